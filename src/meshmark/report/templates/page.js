(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const draw = () => {
    const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
    const line = getComputedStyle(document.documentElement).getPropertyValue("--soft").trim();
    for (const [name, spec] of Object.entries(specs)) {
      const config = structuredClone(spec.config);
      Object.assign(config.axis, {labelColor: ink, titleColor: ink, gridColor: line, domainColor: line, tickColor: line});
      Object.assign(config.legend, {labelColor: ink, titleColor: ink});
      config.title.color = ink;
      if (innerWidth < 600) { config.legend.columns = 1; config.axisBand.labelAngle = -35; }
      config.text = {color: ink};
      config.rule = {color: ink};
      window.vegaEmbed("#chart-" + name, {...spec, config}, {actions: false, renderer: JSON.stringify(spec).length > 600000 ? "canvas" : "svg", tooltip: {theme: dark.matches ? "dark" : "light"}})
        .catch((error) => { document.getElementById("chart-" + name).textContent = "The chart cannot be drawn: " + error.message; });
    }
  };
  draw();
  dark.addEventListener("change", draw);
})();
