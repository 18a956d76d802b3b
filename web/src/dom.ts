/** Small helpers of the page. */

export const get = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

/** What the reader chose last time; a browser that keeps nothing (a file, a private window) has nothing. */
export function recall(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function keep(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // It is asked again next time.
  }
}

/** A row of a table; where `head` is set its cells (or the first one) are headings. */
export function tableRow(cells: string[], head: "column" | "row" | "" = ""): HTMLTableRowElement {
  const line = document.createElement("tr");
  cells.forEach((text, i) => {
    const heading = head === "column" || (head === "row" && i === 0);
    const cell = Object.assign(document.createElement(heading ? "th" : "td"), { textContent: text });
    if (heading) cell.setAttribute("scope", head === "column" ? "col" : "row");
    line.append(cell);
  });
  return line;
}

/** A model's time is in microseconds. */
export function timeText(t: number, period: number): string {
  return period < 1e-3 ? `${(1e6 * t).toFixed(1)} µs` : `${t.toFixed(1)} s`;
}
