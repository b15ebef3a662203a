// Everything that comes from a store is put in as text (textContent), never as markup.
const holder = document.getElementById("stores");
const line = document.getElementById("line");
const draws = typeof vegaEmbed === "function";
const views = new Map(); // panel key -> Promise of a view
const kept = new Map(); // store number -> {section, parts}

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function table(headers, rows) {
  const made = make("table");
  const head = made.createTHead().insertRow();
  headers.forEach((header) => head.append(make("th", header)));
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
  const blocks = { field: "blocks", type: "quantitative", title: "blocks", axis: { tickMinStep: 1, format: "d" } };
  const share = { type: "quantitative", title: null, axis: { format: "+.1%" } };
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

function chart(key, place, spec, points) {
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
    section.setAttribute("aria-label", "run " + (number + 1));
    const parts = {};
    for (const name of ["head", "fleet", "running", "panels", "verdicts", "tighten", "left", "newest", "device"]) {
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
    chart(number + one.title, panel.place, seriesChart(one.unit), one.points.map(([t, v]) => ({ t, v })));
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
    place.rows.tabIndex = 0;
    place.rows.setAttribute("role", "region");
    place.rows.setAttribute("aria-label", "devices");
    place.words = make("p", "", "summary");
    place.replaceChildren(make("h3", "The devices"), place.words, place.rows);
  }
  place.words.textContent = fleet.words;
  const rows = fleet.rows.map((row) => [[row.name, "id"], [stateOf(row), "device-" + row.state.replace(" ", "-")], [String(row.done), "num"], [String(row.left), "num"], [row.last, "state-" + row.last]]);
  place.rows.replaceChildren(table(["device", "state", "done", "left", "last"], rows));
}

function listed(title, sentences) {
  const list = make("ul");
  sentences.forEach((sentence) => list.append(make("li", sentence)));
  return sentences.length ? [make("h3", title), list] : [];
}

function show(number, store) {
  const parts = sectionOf(number);
  const title = make("h2", store.name);
  if (store.trouble) { parts.head.replaceChildren(title, make("p", store.trouble, "alarm")); return; }
  const bar = make("progress", undefined, "bar");
  bar.max = Math.max(1, store.progress.total);
  bar.value = store.progress.done;
  const words = [store.progress.words, store.progress.left, store.progress.state].filter(Boolean).join("; ");
  parts.head.replaceChildren(title, make("p", store.question, "quiet"), bar, make("p", words));
  showFleet(parts, store.fleet);
  const running = store.running;
  parts.running.replaceChildren(...(running ? [make("h3", "Now: " + running.label), make("p", "trial " + running.trial + (running.block === null ? "" : ", block " + running.block), "fineprint"), ...(running.output.length ? [make("pre", running.output.join("\n"), "fineprint")] : [])] : []));
  showPanels(number, parts, running);
  const verdicts = store.verdicts.map((one) => [[one.level], [one.effect, "num"], [one.interval, "num"], [one.phrase, "word word-" + one.word], [String(one.n), "num"]]);
  parts.verdicts.replaceChildren(...(verdicts.length ? [make("h3", "Verdicts so far: " + store.metric), table(["level", "effect", "interval", "verdict", "n"], verdicts), make("p", store.more_verdicts, "quiet")] : [make("p", store.verdict_trouble, "quiet")]));
  if (store.history.length) {
    if (!parts.tighten.place) { parts.tighten.place = make("div", undefined, "chart"); parts.tighten.replaceChildren(make("h3", "The intervals as they tighten" + (store.target === null ? "" : ", until they are within \u00b1" + +(100 * store.target).toFixed(2) + " % (dashed)")), parts.tighten.place); }
    // Where n is too small for an interval the band has no width.
    chart(number + "tighten", parts.tighten.place, tightening(store.target), store.history.map((one) => ({
      ...one, low: one.low ?? one.effect, high: one.high ?? one.effect,
      wantedLow: one.effect - (store.target || 0), wantedHigh: one.effect + (store.target || 0),
    })));
  }
  parts.left.replaceChildren(...listed("Left out, and why", store.left_out), ...listed("Damaged", store.problems));
  const newest = store.newest.map((one) => [[one.trial, "id"], [one.label], [String(one.block), "num"], [one.state, "state-" + one.state], [one.took, "num"], [one.reasons.join(" ")]]);
  parts.newest.replaceChildren(...(newest.length ? [make("h3", "Newest trials"), table(["trial", "what", "block", "state", "took", "why"], newest)] : []));
  const device = store.device.map((one) => [[one.knob], [one.baseline], [one.now], [one.owner], [one.age]]);
  // Of a fleet, this machine is none of the devices.
  if (store.fleet && !device.length) parts.device.replaceChildren();
  else parts.device.replaceChildren(make("h3", store.fleet ? "This machine" : "The device"), device.length ? table(["changed now", "as found", "now", "by", "since"], device) : make("p", "as it was found: nothing is changed.", "quiet"));
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
    line.textContent = "live, " + new Date().toLocaleTimeString();
    document.documentElement.dataset.seen = String(Number(document.documentElement.dataset.seen || 0) + 1);
  };
  source.onerror = () => {
    line.textContent = "not connected: is `tare watch` still running? Trying again.";
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000); // else the browser tries by itself
  };
}
connect();
