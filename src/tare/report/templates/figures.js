// Draw every chart of the page. `ast`: expressions are interpreted, so that the page's policy can forbid eval.
const charts = JSON.parse(document.getElementById("charts").textContent);
const options = {
  mode: "vega", ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true },
};
function draw(holder) {
  return vegaEmbed(holder, charts[holder.dataset.chart], options)
    .then(() => { holder.dataset.drawn = "yes"; })
    .catch((error) => { holder.textContent = "This chart could not be drawn: " + error.message; console.error(error); });
}
Promise.all([...document.querySelectorAll("[data-chart]")].map(draw))
  .then(() => { document.documentElement.dataset.drawn = "yes"; });
// A chart is as wide as its place, on paper as well: printing changes the place.
window.addEventListener("beforeprint", () => window.dispatchEvent(new Event("resize")));
