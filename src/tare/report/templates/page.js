// The page is complete without this: it filters and sorts the effect plot, and shows numbers under the pointer.
(() => {
  const controls = document.querySelector(".controls");
  const panels = [...document.querySelectorAll(".effects .panel")];
  const rowsOf = (panel) => [...panel.querySelectorAll("tr.level")];
  panels.forEach((panel) => rowsOf(panel).forEach((row, place) => { row.dataset.shown = place; }));
  const words = ["slower", "cannot_tell", "equivalent", "faster"];
  const by = {
    as: (row) => Number(row.dataset.shown),
    order: (row) => Number(row.dataset.order),
    most: (row) => -Number(row.dataset.size),
    least: (row) => Number(row.dataset.size),
    verdict: (row) => words.indexOf(row.dataset.word),
  };
  function arrange() {
    const wanted = [...controls.querySelectorAll("[data-factor]")].filter((each) => each.value);
    const key = by[controls.querySelector("[data-sort]").value];
    let seen = 0, all = 0;
    panels.forEach((panel) => {
      const rows = rowsOf(panel).sort((a, b) => key(a) - key(b));
      rows.forEach((row) => {
        row.hidden = !wanted.every((each) => row.dataset["f" + each.dataset.factor] === each.value);
        seen += row.hidden ? 0 : 1;
        all += 1;
        panel.append(row);
      });
      panel.hidden = rows.every((row) => row.hidden);
    });
    controls.querySelector(".count").textContent = seen === all ? "" : seen + " of " + all + " shown";
  }
  if (controls) {
    controls.hidden = false;
    controls.addEventListener("change", arrange);
  }

  // Tables with many rows sort by a click on a header; numbers by their size, in the unit that they are shown in.
  const units = { ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, KiB: 1024, MiB: 1048576, GiB: 1073741824 };
  function worth(text) {
    const found = text.replace(/\u2212/g, "-").replace(/,/g, "").match(/^\s*([+-]?[\d.]+)\s*(\S*)/);
    return found ? Number(found[1]) * (units[found[2]] || 1) : text;
  }
  document.querySelectorAll(".scroll table").forEach((table) => {
    [...table.querySelectorAll("thead th")].forEach((head, column) => {
      head.tabIndex = 0;
      head.classList.add("sorts");
      const sort = () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        table.querySelectorAll("thead th").forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        [...table.tBodies].forEach((body) => {
          const rows = [...body.rows].map((row) => [worth((row.cells[column] || row).textContent), row]);
          rows.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1));
          rows.forEach(([, row]) => body.append(row));
        });
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
    });
  });

  // Numbers under the pointer, at once; the title that a browser shows late is what there is without this script.
  const box = document.createElement("div");
  box.id = "told";
  box.hidden = true;
  document.body.append(box);
  document.querySelectorAll("svg.lane").forEach((lane) => {
    const title = lane.querySelector("title");
    if (title) { lane.dataset.told = title.textContent; title.remove(); }
  });
  document.addEventListener("pointermove", (event) => {
    const over = event.target.closest && event.target.closest("[data-told]");
    box.hidden = !over;
    if (!over) return;
    box.textContent = over.dataset.told;
    const wide = box.offsetWidth, tall = box.offsetHeight;
    box.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - wide - 8)) + "px";
    box.style.top = (event.clientY + 16 + tall > innerHeight ? event.clientY - tall - 8 : event.clientY + 16) + "px";
  });

  // A link into a folded part unfolds it, and so does printing.
  function reveal() {
    let place = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!place) return;
    for (let each = place; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
    place.scrollIntoView();
  }
  addEventListener("hashchange", reveal);
  reveal();
})();
