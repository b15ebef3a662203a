// Everything that comes from a store is put in as text (textContent), never as markup.
const holder = document.getElementById("stores");
const line = document.getElementById("line");
const clock = document.getElementById("clock");
const draws = typeof vegaEmbed === "function";
const views = new Map(); // panel key -> Promise of a view
const kept = new Map(); // store number -> {section, parts}

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

// What has not changed stays: whoever has put the focus there, or has it read out, is not disturbed.
function morph(old, fresh) {
  const before = [...old.childNodes], after = [...fresh.childNodes];
  if (old.nodeName !== fresh.nodeName || before.length !== after.length) { old.replaceWith(fresh); return; }
  if (old.nodeType === Node.TEXT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
  if (old.className !== fresh.className) old.className = fresh.className;
  before.forEach((child, place) => morph(child, after[place]));
}

function update(part, seen, build) {
  const key = JSON.stringify(seen);
  if (part.key === key) return;
  part.key = key;
  const before = [...part.childNodes], after = build();
  if (before.length !== after.length) part.replaceChildren(...after);
  else before.forEach((child, place) => morph(child, after[place]));
}

function table(name, headers, rows) {
  const made = make("table");
  const head = made.createTHead().insertRow();
  headers.forEach((header, place) => {
    const cell = make("th", header, rows.length && rows[0][place][1] === "num" ? "num" : "");
    cell.scope = "col";
    head.append(cell);
  });
  const body = made.createTBody();
  rows.forEach((cells) => {
    const row = body.insertRow();
    cells.forEach(([text, className], place) => {
      const cell = row.insertCell();
      cell.textContent = text;
      cell.dataset.label = headers[place]; // a narrow screen has no room for a row of headers
      if (className) cell.className = className;
    });
  });
  const scroll = make("div", undefined, "scroll");
  scroll.tabIndex = 0; // a keyboard can scroll it
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", name);
  scroll.append(made);
  return scroll;
}

const quiet = { labelColor: "var(--quiet)", titleColor: "var(--quiet)", gridColor: "var(--rule)", domainColor: "var(--quiet)", tickColor: "var(--quiet)" };
const look = { background: "transparent", view: { stroke: null }, axis: quiet, legend: { ...quiet, orient: "top", title: null } };
const options = { ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true } };

function seriesChart(unit) {
  return {
    width: "container", height: 70, config: look, autosize: { contains: "padding" },
    mark: { type: "line", color: "var(--level-1)", strokeWidth: 1.5 },
    encoding: {
      x: { field: "t", type: "quantitative", axis: null, scale: { nice: false } },
      y: { field: "v", type: "quantitative", title: null, axis: { tickCount: 3 }, scale: { zero: true } },
    },
  };
}

// Over the blocks: the effect with its interval, and dashed how narrow it has to become where a target was declared.
function tightening(target) {
  const blocks = { field: "blocks", type: "quantitative", title: "blocks", axis: { grid: false, labelExpr: "datum.value % 1 ? '' : datum.value" } };
  const share = { type: "quantitative", title: null, axis: { labelExpr: "datum.value === 0 ? '0' : replace(format(datum.value, '+.1~%'), '%', ' %')" } };
  const dashed = { type: "line", strokeDash: [4, 3], opacity: 0.8, interpolate: "step-after" };
  const goal = target === null ? [] : ["wantedLow", "wantedHigh"].map((field) => (
    { mark: dashed, encoding: { y: { field, ...share }, color: { field: "level", type: "nominal" } } }));
  return {
    width: "container", height: 170, config: look, autosize: { contains: "padding" }, encoding: { x: blocks },
    layer: [
      { mark: { type: "area", opacity: 0.25, interpolate: "step-after" }, encoding: {
        y: { field: "low", ...share }, y2: { field: "high" }, color: { field: "level", type: "nominal" } } },
      { mark: { type: "line", interpolate: "step-after", point: true }, encoding: {
        y: { field: "effect", ...share }, color: { field: "level", type: "nominal" } } },
      ...goal,
    ],
  };
}

function chart(key, place, spec, points, words) {
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", words);
  if (!draws) return;
  if (!views.has(key)) { // with its first points: a scale over nothing has no end
    views.set(key, vegaEmbed(place, { ...spec, data: { name: "points", values: points } }, options).then((made) => made.view));
    return;
  }
  views.get(key).then((view) => view.data("points", points).runAsync()).catch((error) => console.error(error));
}

function sectionOf(number) {
  if (!kept.has(number)) {
    const section = make("section", undefined, "store");
    section.setAttribute("aria-labelledby", "run-" + number);
    const parts = {};
    for (const name of ["head", "obstacles", "fleet", "verdicts", "tighten", "errors", "running", "panels", "parts", "device", "newest", "damaged"]) {
      parts[name] = make("div", undefined, name);
      section.append(parts[name]);
    }
    parts.panels.shown = new Map();
    holder.append(section);
    kept.set(number, parts);
  }
  return kept.get(number);
}

function showPanels(number, parts, running) {
  const series = running ? running.series : [];
  const wanted = new Set(series.map((one) => one.title));
  for (const [title, panel] of parts.panels.shown) if (!wanted.has(title)) { panel.box.remove(); parts.panels.shown.delete(title); views.delete(number + title); }
  series.forEach((one) => {
    if (!parts.panels.shown.has(one.title)) {
      const box = make("div", undefined, "panel");
      const head = make("h4", one.title);
      const now = make("span", "", "now");
      const place = make("div", undefined, "chart");
      head.append(now);
      box.append(head, place);
      parts.panels.append(box);
      parts.panels.shown.set(one.title, { box, now, place });
    }
    const panel = parts.panels.shown.get(one.title);
    panel.now.textContent = one.points[one.points.length - 1][1] + " " + one.unit;
    chart(number + one.title, panel.place, seriesChart(one.unit), one.points.map(([t, v]) => ({ t, v })), one.title + " over the last seconds, now " + panel.now.textContent);
  });
}

function stateOf(row) {
  if (row.state === "running") return "trial " + row.trial + ", for " + row.since;
  if (row.state === "unseen") return "trial " + row.trial + ", unseen for " + row.since;
  return row.why ? row.state + ": " + row.why : row.state;
}

function showFleet(parts, fleet) {
  if (!fleet) { parts.fleet.replaceChildren(); return; }
  const place = parts.fleet;
  if (!place.rows) { // kept, so that whoever has scrolled stays where they are
    place.rows = make("div", undefined, "rows");
    place.words = make("p", "", "summary");
    place.replaceChildren(make("h3", "The devices"), place.words, place.rows);
  }
  place.words.textContent = fleet.words;
  const rows = fleet.rows.map((row) => [[row.name, "id"], [stateOf(row), "device-" + row.state.replace(" ", "-")], [String(row.done), "num"], [String(row.left), "num"], [row.last, "state-" + row.last]]);
  update(place.rows, rows, () => [table("devices", ["device", "state", "done", "left", "last"], rows)]);
}

function listed(title, sentences) {
  const list = make("ul");
  sentences.forEach((sentence) => list.append(make("li", sentence)));
  return sentences.length ? [make("h3", title), list] : [];
}

const plain = (rows, ...fields) => rows.map((one) => fields.map((field) => [String(one[field])]));

function showHead(number, parts, store) {
  if (!parts.head.bar) {
    const title = make("h2", store.name);
    title.id = "run-" + number;
    parts.head.bar = make("progress", undefined, "bar");
    parts.head.bar.setAttribute("aria-label", "trials done");
    parts.head.words = make("p");
    parts.head.replaceChildren(title, make("p", store.question, "quiet"), parts.head.bar, parts.head.words);
  }
  parts.head.bar.max = Math.max(1, store.progress.total);
  parts.head.bar.value = store.progress.done;
  parts.head.words.textContent = [store.progress.words, store.progress.left, store.progress.state].filter(Boolean).join("; ");
}

function showRunning(number, parts, running) {
  const shown = running && [running.label, running.trial, running.block, running.output];
  update(parts.running, shown, () => running ? [
    make("h3", "Now: " + running.label),
    make("p", "trial " + running.trial + (running.block === null ? "" : ", block " + running.block), "fineprint"),
    ...(running.output.length ? [make("pre", running.output.join("\n"), "fineprint")] : []),
  ] : []);
  showPanels(number, parts, running);
  update(parts.parts, running && [running.step_parts, running.parts], () => running ? [
    ...(running.step_parts.length ? [make("h3", `Parts of a ${running.unit}, means of the newest ${running.unit}s`), table(`parts of a ${running.unit}`, ["part", "time", "share"], plain(running.step_parts, "part", "time", "share"))] : []),
    make("h3", "Parts of this trial"), table("parts of this trial", ["part", "with"], plain(running.parts, "kind", "what")),
  ] : []);
}

// Where n is too small for an interval the band has no width.
function showTightening(number, parts, store) {
  if (!store.history.length) return;
  const goal = store.target === null ? "" : ", until they are within \u00b1" + +(100 * store.target).toFixed(2) + " % (dashed)";
  if (!parts.tighten.place) {
    parts.tighten.place = make("div", undefined, "chart");
    parts.tighten.replaceChildren(make("h3", "The intervals as they tighten" + goal), parts.tighten.place);
  }
  const words = "Effect and interval over the blocks" + goal + ". Now: " + store.verdicts.map((one) => one.level + " " + one.effect + " " + one.interval).join("; ");
  chart(number + "tighten", parts.tighten.place, tightening(store.target), store.history.map((one) => ({
    ...one, low: one.low ?? one.effect, high: one.high ?? one.effect,
    wantedLow: one.effect - (store.target || 0), wantedHigh: one.effect + (store.target || 0),
  })), words);
}

function show(number, store) {
  const parts = sectionOf(number);
  if (store.trouble) {
    parts.head.bar = null;
    update(parts.head, store.trouble, () => [make("h2", store.name), make("p", store.trouble, "alarm")]);
    return;
  }
  showHead(number, parts, store);
  update(parts.obstacles, store.not_measured, () => listed("Not measured here, known before the first trial", store.not_measured));
  showFleet(parts, store.fleet);
  const verdicts = store.verdicts.map((one) => [[one.level], [one.effect, "num"], [one.interval, "num"], [one.phrase, "word word-" + one.word], [String(one.n), "num"]]);
  update(parts.verdicts, [verdicts, store.more_verdicts, store.verdict_trouble], () => verdicts.length ? [make("h3", "Verdicts so far: " + store.metric), table("verdicts so far", ["level", "effect", "interval", "verdict", "n"], verdicts), make("p", store.more_verdicts, "quiet")] : [make("p", store.verdict_trouble || "no verdict yet", "quiet")]);
  showTightening(number, parts, store);
  update(parts.errors, store.errors, () => store.errors.length ? [make("h3", "Left out, and why"), table("left out, and why", ["trials", "reason"], plain(store.errors, "count", "text"))] : []);
  showRunning(number, parts, store.running);
  // Of a fleet, this machine is none of the devices.
  const changed = store.changed.map((one) => [[one.knob], [one.baseline], [one.now], [one.owner], [one.age]]);
  update(parts.device, [store.device, store.changed], () => store.fleet && !changed.length ? [] : [
    make("h3", store.fleet ? "This machine" : "The device"), table("state of the device", ["what", "now"], plain(store.device, "what", "now")),
    ...(changed.length ? [make("h4", "Changed now"), table("changed on the device", ["what", "as found", "now", "by", "since"], changed)] : []),
  ]);
  const newest = store.newest.map((one) => [[one.trial, "id"], [one.label], [String(one.block), "num"], [one.state, "state-" + one.state], [one.took || "not known", "num"], [one.reasons.join(" ") || "-"]]);
  update(parts.newest, newest, () => newest.length ? [make("h3", "Newest trials"), table("newest trials", ["trial", "what", "block", "state", "took", "why"], newest)] : []);
  update(parts.damaged, store.problems, () => listed("Damaged", store.problems));
}

// What a tab in the background shows: how far the first run that is not finished has come.
function titleOf(stores) {
  const known = stores.filter((store) => store.progress);
  const one = known.find((store) => store.progress.state === "running") || known[0];
  return one ? Math.floor(100 * one.progress.share) + " % \u00b7 " + one.name + " \u00b7 tare watch" : "tare watch";
}

function connect() {
  const source = new EventSource("/events");
  source.onmessage = (event) => {
    const stores = JSON.parse(event.data);
    document.body.classList.toggle("several", stores.length > 1);
    stores.forEach((store, number) => show(number, store));
    document.title = titleOf(stores);
    if (line.textContent !== "live") line.textContent = "live"; // read out when it changes, not every second
    clock.textContent = new Date().toLocaleTimeString();
    document.documentElement.dataset.seen = String(Number(document.documentElement.dataset.seen || 0) + 1);
  };
  source.onerror = () => {
    const words = "not connected: trying again. If `tare watch` was started again, open the address that it printed.";
    if (line.textContent !== words) line.textContent = words;
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000); // else the browser tries by itself
  };
}
connect();
