(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const specs = read("specs");
  const {names, most} = read("names");
  const said = document.getElementById("said");
  const loaded = new Map();
  window.machine = (data) => { loaded.set(data.id, data); };
  const load = (id) => new Promise((done, failed) => {
    if (loaded.has(id)) return done();
    const script = document.createElement("script");
    script.src = `machines/${id}.js`;
    script.onload = done;
    script.onerror = () => failed(new Error(`machines/${id}.js cannot be loaded`));
    document.head.append(script);
  });
  const cell = (kind, text, name) => {
    const element = document.createElement(kind);
    element.textContent = text;
    if (name) element.className = name;
    return element;
  };
  const table = (machines) => {
    const element = document.getElementById("table");
    const head = document.createElement("tr");
    head.append(cell("th", ""), ...machines.map((m) => cell("th", m.title, "n")));
    const rows = [head];
    const keys = new Set(machines.flatMap((m) => Object.keys(m.figures)));
    for (const key of keys) {
      const figures = machines.map((m) => m.figures[key]);
      const first = figures[0];
      const row = document.createElement("tr");
      row.append(cell("td", figures.find(Boolean).title));
      for (const figure of figures) {
        if (!figure) { row.append(cell("td", "–", "n absent")); continue; }
        const data = cell("td", figure.text + " ", "n");
        if (first && figure !== first && first.value > 0) {
          const apart = first.interval && figure.interval && (figure.interval[0] > first.interval[1] || figure.interval[1] < first.interval[0]);
          const better = figure.lower ? figure.value < first.value : figure.value > first.value;
          data.append(cell(apart ? "b" : "span", `× ${(figure.value / first.value).toPrecision(3)}`, apart ? (better ? "better" : "worse") : "why"));
        }
        for (const flag of figure.flags) data.append(" ", cell("span", flag, "flag"));
        row.append(data);
      }
      rows.push(row);
    }
    element.replaceChildren(...rows);
  };
  const draw = (machines) => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    for (const [name, spec] of Object.entries(specs)) {
      const rows = machines.flatMap((m) => m[name].map((point) => ({...point, machine: m.title})));
      document.getElementById("section-" + name).hidden = !rows.length;
      if (!rows.length) continue;
      const config = structuredClone(spec.config);
      for (const part of ["axis", "legend"]) Object.assign(config[part], {labelColor: "currentColor", titleColor: "currentColor"});
      Object.assign(config.axis, {gridColor: "currentColor", domainColor: "currentColor", tickColor: "currentColor"});
      window.vegaEmbed("#chart-" + name, {...spec, config, datasets: {rows}}, {actions: false, renderer: "svg", tooltip: {theme: dark ? "dark" : "light"}})
        .catch((error) => { document.getElementById("chart-" + name).textContent = "The chart cannot be drawn: " + error.message; });
    }
  };
  const show = async () => {
    const ids = decodeURIComponent(location.hash.slice(1)).split(",").filter((id) => Object.hasOwn(names, id)).slice(0, most);
    if (ids.length < 2) { said.textContent = "Choose two or more machines on the page of all machines."; return; }
    try {
      await Promise.all(ids.map(load));
    } catch (error) {
      said.textContent = error.message;
      return;
    }
    const machines = ids.map((id) => loaded.get(id));
    const titles = machines.map((m) => m.title);
    // Two results of machines with the same title are told apart by their number.
    for (const [i, m] of machines.entries()) if (titles.filter((t) => t === titles[i]).length > 1) machines[i] = {...m, title: `${m.title} (${i + 1})`};
    said.textContent = machines.map((m) => m.title).join(" · ");
    table(machines);
    draw(machines);
  };
  window.addEventListener("hashchange", show);
  show();
})();
