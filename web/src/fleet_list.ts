/** Lists the extremes: nodes with the highest or lowest values of the metric, or nodes that do not simply report. */

import { get, tableRow } from "./dom";
import type { FleetState } from "./fleet_types";
import { shown } from "./fleet_types";

const ROWS = 20;
const WORST = ["wrong", "named", "silent", "never"];

export class ExtremesList {
  onChosen: (number: number) => void = () => {};
  private body = get("list").querySelector("tbody")!;
  private held = false; // true while the reader points at the list or is in it with the keyboard
  private last = 0;
  private metric: string | null = null;

  constructor(private state: FleetState) {
    const table = get("list");
    for (const [on, off] of [["pointerenter", "pointerleave"], ["focusin", "focusout"]] as const) {
      table.addEventListener(on, () => (this.held = true));
      table.addEventListener(off, () => (this.held = false));
    }
    table.addEventListener("click", (e) => {
      const number = (e.target as HTMLElement).closest("button")?.dataset["node"];
      if (number !== undefined) this.onChosen(Number(number));
    });
    for (const input of get("order").querySelectorAll("input")) input.addEventListener("change", () => this.show(true));
  }

  /** Updates the list at most once a second, and not while the reader uses it. */
  show(now = false): void {
    const { state } = this;
    const time = performance.now();
    if (this.metric !== state.metric) now = true;
    if (!now && (this.held || time - this.last < 1000)) return;
    this.last = time;
    this.metric = state.metric;
    get("order").hidden = !state.metric;
    get("list-head").textContent = state.metric ? `Extremes of ${state.metric}` : "Nodes to look at";
    const rows = state.metric ? this.byValue() : this.byState();
    get("none").hidden = rows.length > 0;
    get("none").textContent = state.metric ? "no node has a value" : "none: all nodes report, and none has an open case";
    get("list").hidden = rows.length === 0;
    get("list").querySelector("thead")!.replaceChildren(tableRow(["node", state.metric ? "value" : "state"], "column"));
    this.body.replaceChildren(
      ...rows.slice(0, ROWS).map(([number, text]) => {
        const row = tableRow(["", text], "row");
        const button = Object.assign(document.createElement("button"), { type: "button", textContent: state.names[number]! });
        button.dataset["node"] = String(number);
        row.cells[0]!.append(button);
        return row;
      }),
    );
    if (rows.length > ROWS && !state.metric) this.body.append(tableRow(["", `and ${(rows.length - ROWS).toLocaleString("en")} more`], "row"));
  }

  private byValue(): [number, string][] {
    const { state } = this;
    const sign = get<HTMLInputElement>("order").querySelector<HTMLInputElement>("input:checked")!.value === "low" ? 1 : -1;
    const numbers = [...state.names.keys()].filter((n) => state.valueOf(n) !== null);
    numbers.sort((a, b) => sign * (state.valueOf(a)! - state.valueOf(b)!));
    return numbers.slice(0, ROWS).map((n) => [n, shown(state, state.valueOf(n)!)]);
  }

  private byState(): [number, string][] {
    const { state } = this;
    const order = (n: number) => WORST.indexOf(state.stateOf(n)) - (state.cases.has(n) ? WORST.length : 0);
    const numbers = [...state.names.keys()].filter((n) => state.cases.has(n) || WORST.includes(state.stateOf(n)));
    numbers.sort((a, b) => order(a) - order(b));
    return numbers.map((n) => [n, state.textOf(n)]);
  }
}
