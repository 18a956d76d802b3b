(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  // Draws a chart, again with fewer columns while its legend is wider than the chart.
  const embed = (name, spec, config, renderer) => window.vegaEmbed("#chart-" + name, {...spec, config}, {actions: false, renderer, tooltip: {theme: dark.matches ? "dark" : "light"}})
    .then(() => {
      const svg = document.querySelector(`#chart-${name} svg.marks`);
      const right = (element) => element.getBoundingClientRect().right;
      if (!svg || config.legend.columns < 2 || ![...svg.querySelectorAll(".role-legend")].some((legend) => right(legend) > right(svg) + 1)) return;
      config.legend.columns -= 1;
      return embed(name, spec, config, renderer);
    });
  const draw = () => {
    for (const [name, spec] of Object.entries(specs)) {
      const config = structuredClone(spec.config);
      const renderer = JSON.stringify(spec).length > 600000 ? "canvas" : "svg";
      // In SVG, the colour of the text follows the style sheet, also on paper.
      const ink = renderer === "svg" ? "currentColor" : getComputedStyle(document.body).color;
      Object.assign(config.axis, {labelColor: ink, titleColor: ink, gridColor: ink, domainColor: ink, tickColor: ink});
      Object.assign(config.legend, {labelColor: ink, titleColor: ink});
      config.title.color = ink;
      if (innerWidth < 600) { config.legend.columns = 1; config.axisBand.labelAngle = -35; }
      config.text = {color: ink};
      config.rule = {color: ink};
      embed(name, spec, config, renderer)
        .catch((error) => { document.getElementById("chart-" + name).textContent = "The chart cannot be drawn: " + error.message; });
    }
  };
  draw();
  dark.addEventListener("change", draw);
})();
