(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const draw = () => {
    for (const [name, spec] of Object.entries(specs)) {
      const config = structuredClone(spec.config);
      const renderer = JSON.stringify(spec).length > 600000 ? "canvas" : "svg";
      // In SVG, the colour of the text follows the style sheet, also on paper.
      const ink = renderer === "svg" ? "currentColor" : getComputedStyle(document.body).color;
      Object.assign(config.axis, {labelColor: ink, titleColor: ink, gridColor: ink, domainColor: ink, tickColor: ink});
      Object.assign(config.legend, {labelColor: ink, titleColor: ink});
      config.title.color = ink;
      if (innerWidth < 1000) config.legend.columns = 2;
      if (innerWidth < 600) { config.legend.columns = 1; config.axisBand.labelAngle = -35; }
      config.text = {color: ink};
      config.rule = {color: ink};
      window.vegaEmbed("#chart-" + name, {...spec, config}, {actions: false, renderer, tooltip: {theme: dark.matches ? "dark" : "light"}})
        .catch((error) => { document.getElementById("chart-" + name).textContent = "The chart cannot be drawn: " + error.message; });
    }
  };
  draw();
  dark.addEventListener("change", draw);
})();
