// Draw every chart of the page. `ast`: expressions are interpreted, so that the page's policy can forbid eval.
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
  return vegaEmbed(holder, charts[holder.dataset.chart], options)
    .then(({ view }) => {
      window.addEventListener("resize", () => fit(view, holder));
      return fit(view, holder);
    })
    .then(() => { holder.dataset.drawn = "yes"; })
    .catch((error) => { holder.textContent = "This chart could not be drawn: " + error.message; console.error(error); });
}
Promise.all([...document.querySelectorAll("[data-chart]")].map(draw))
  .then(() => { document.documentElement.dataset.drawn = "yes"; });
// A chart is as wide as its place, on paper as well: printing changes the place.
window.addEventListener("beforeprint", () => window.dispatchEvent(new Event("resize")));
