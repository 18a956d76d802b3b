/** Functions that several pages use. */

export const get = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

/** Returns the last choice of the reader; null if the browser has stored none, as for a file or in a private window. */
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
    // The choice is lost when the page closes.
  }
}

/** Returns a row of a table; `head` makes all its cells ("column") or the first one ("row") headings. */
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

/** Returns a time as a text; a model's time is in microseconds. */
export function timeText(t: number, period: number): string {
  return period < 1e-3 ? `${(1e6 * t).toFixed(1)} µs` : `${t.toFixed(1)} s`;
}
