// Draw the charts of a part when it is unfolded: until then, and without this script, the drawing in the page stands.
// `ast`: expressions are interpreted, so that the page's policy can forbid eval.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const options = {
    mode: "vega", ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true },
  };
  // Panels beside each other are as wide as their place too: two of them, and the axis before them.
  function fit(view, holder) {
    if (!("child_width" in view.getState({ signals: () => true }).signals)) return view;
    return view.signal("child_width", Math.max(100, (holder.clientWidth - 110) / 2)).runAsync();
  }
  function draw(holder) {
    if (holder.dataset.drawn || !holder.clientWidth) return Promise.resolve();
    holder.dataset.drawn = "begun";
    const still = holder.firstElementChild;
    const place = document.createElement("div");
    holder.append(place);
    return vegaEmbed(place, charts[holder.dataset.chart], options)
      .then(({ view }) => {
        if (still) still.remove();
        window.addEventListener("resize", () => fit(view, holder));
        return fit(view, holder);
      })
      .then(() => { holder.dataset.drawn = "yes"; })
      .catch((error) => { // the drawing in the page stays
        holder.dataset.drawn = "failed";
        place.textContent = "The interactive chart could not be drawn: " + error.message;
        console.error(error);
      });
  }
  const drawIn = (part) => Promise.all([...part.querySelectorAll("[data-chart]")].map(draw));
  document.querySelectorAll("details.part").forEach((part) => part.addEventListener("toggle", () => drawIn(part)));
  drawIn(document).then(() => { document.documentElement.dataset.drawn = "yes"; });
})();
