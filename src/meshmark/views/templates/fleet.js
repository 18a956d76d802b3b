(() => {
  const metrics = JSON.parse(document.getElementById("map-data").textContent);
  const cells = [...document.querySelectorAll(".rack rect")];
  const chosen = document.getElementById("map-metric");
  const said = document.getElementById("map-node");
  if (!chosen) return;
  const decoded = (text) => Int8Array.from(atob(text), (c) => c.charCodeAt(0));
  let values = null;
  // Standard deviations from the class, higher is worse.
  const worse = (cell) => {
    const row = cell.dataset.r;
    return values === null || row === undefined || values[row] === -128 ? null : values[row] / 10;
  };
  const shade = (z) => ["b4", "b3", "b2", "b0", "w2", "w3", "w4"][z < -4 ? 0 : z < -3 ? 1 : z < -2 ? 2 : z <= 2 ? 3 : z <= 3 ? 4 : z <= 4 ? 5 : 6];
  chosen.addEventListener("change", () => {
    values = chosen.value === "" ? null : decoded(metrics[chosen.value].data);
    for (const cell of cells) {
      cell.dataset.state ??= cell.getAttribute("class");
      const z = worse(cell);
      cell.setAttribute("class", values === null ? cell.dataset.state : z === null ? "m-left" : "m-" + shade(z));
    }
    document.querySelector("#map .legend").hidden = values !== null;
    document.querySelector("#map .scale").hidden = values === null;
  });
  document.querySelector(".racks").addEventListener("pointerover", (event) => {
    const cell = event.target.closest("rect");
    if (!cell) return;
    const z = worse(cell);
    const text = z === null ? cell.dataset.t ?? "as its class" : Math.abs(z).toFixed(1) + " standard deviations " + (z > 0 ? "worse" : "better") + " than its class";
    said.textContent = cell.dataset.n + ": " + text;
  });
})();
