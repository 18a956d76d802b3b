(() => {
  const body = document.querySelector("#table tbody");
  const rows = [...body.rows];
  const most = Number(document.getElementById("chosen").textContent.match(/to (\d+)/)[1]);
  // Sorts by a column; absent values come last in both directions.
  const sort = (button) => {
    const column = Number(button.dataset.column);
    const rising = button.getAttribute("aria-pressed") !== "true";
    for (const other of document.querySelectorAll("th button")) other.removeAttribute("aria-pressed");
    button.setAttribute("aria-pressed", String(rising));
    const key = (row) => row.cells[column].dataset.sort;
    rows.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return rising ? order : -order;
    });
    body.append(...rows);
  };
  for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sort(button));
  document.getElementById("search").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every((word) => row.cells[1].textContent.toLowerCase().includes(word));
  });
  const checked = () => [...body.querySelectorAll("input:checked")];  // in the order of the table
  const compare = document.getElementById("compare");
  const update = () => {
    const count = checked().length;
    compare.disabled = count < 2 || count > most;
    document.getElementById("chosen").textContent = count ? `${count} chosen; 2 to ${most} can be compared.` : `Choose 2 to ${most} machines to compare them.`;
  };
  body.addEventListener("change", update);
  compare.addEventListener("click", () => { location.href = "compare.html#" + checked().map((box) => box.value).join(","); });
  update();
})();
