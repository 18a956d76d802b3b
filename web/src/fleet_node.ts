/** Shows one node: its state, its newest values, and the history of a metric. */

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { get, tableRow } from "./dom";
import type { FleetState } from "./fleet_types";
import { shown } from "./fleet_types";

interface NodeReport {
  node: string;
  state: string;
  of_fleet: boolean;
  age_s: number | null;
  source: string;
  clock_ahead_s: number;
  case: string;
  why: string;
  map: string;
  values: Record<string, number>;
  at: number[];
  past: Record<string, (number | null)[]>;
}

const clock = (at: number): string => new Date(1000 * at).toLocaleTimeString("en-GB");

export class NodeView {
  private number = -1;
  private asked = 0;
  private waits = false;
  private report: NodeReport | null = null;
  private metric = "";
  private plot: uPlot | null = null;

  constructor(private state: FleetState) {
    get("node-values").addEventListener("click", (e) => {
      const metric = (e.target as HTMLElement).closest("button")?.textContent;
      if (metric) {
        this.metric = metric;
        this.draw();
      }
    });
    const place = get("node-plot");
    new ResizeObserver(() => this.plot?.setSize({ width: Math.max(200, place.clientWidth), height: 150 })).observe(place);
  }

  choose(number: number): void {
    this.number = number;
    this.report = null;
    this.metric = this.state.metric;
    void this.ask();
  }

  /** Requests the report again if the node is among the nodes that changed. */
  refresh(numbers: number[]): void {
    if (this.number >= 0 && numbers.includes(this.number)) void this.ask();
  }

  private async ask(): Promise<void> {
    if (this.waits) return;
    const number = this.number;
    this.waits = true;
    try {
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, this.asked + 1000 - performance.now()) * Number(this.report !== null)));
      this.asked = performance.now();
      const answer = await fetch(`api/nodes/${encodeURIComponent(this.state.names[number]!)}`);
      if (answer.ok && number === this.number) {
        this.report = (await answer.json()) as NodeReport;
        this.show(this.report);
      }
    } catch {
      // The stream reports that the server is gone.
    } finally {
      this.waits = false;
      if (number !== this.number) void this.ask(); // another node was selected meanwhile
    }
  }

  private show(of: NodeReport): void {
    get("node-none").hidden = true;
    get("node-body").hidden = false;
    get("node-head").textContent = of.node;
    const text = this.state.stateTexts[this.state.stateNames.indexOf(of.state)] ?? of.state;
    get("node-state").textContent = `${text}${of.age_s === null ? "" : `; last report ${Math.round(of.age_s)} s ago from ${of.source}`}`;
    const notes = [
      of.case && `open case: ${of.case}`,
      of.why,
      of.clock_ahead_s && `its clock is ${Math.abs(of.clock_ahead_s).toFixed(0)} s ${of.clock_ahead_s > 0 ? "ahead" : "behind"}`,
      !of.of_fleet && "fleet.toml and the last campaigns do not have this node",
    ].filter((note): note is string => Boolean(note));
    get("node-notes").replaceChildren(...notes.map((note) => Object.assign(document.createElement("li"), { textContent: note })));
    get("node-map").hidden = !of.map;
    get("node-map").querySelector("a")!.href = of.map;
    const names = Object.keys(of.values).sort();
    if (!of.past[this.metric]) this.metric = of.past["cpu.busy"] ? "cpu.busy" : (names[0] ?? "");
    this.table(of, names);
    this.draw();
  }

  /** Fills the table. Rows keep their places, so that the focus stays, too. */
  private table(of: NodeReport, names: string[]): void {
    const table = get<HTMLTableElement>("node-values");
    const body = table.tBodies[0]!;
    const key = names.join("\n");
    if (body.dataset["key"] !== key) {
      body.dataset["key"] = key;
      table.tHead!.replaceChildren(tableRow(["metric", "newest value"], "column"));
      body.replaceChildren(
        ...names.map((name) => {
          const row = tableRow(["", ""], "row");
          row.cells[0]!.append(Object.assign(document.createElement("button"), { type: "button", textContent: name }));
          return row;
        }),
      );
    }
    names.forEach((name, i) => (body.rows[i]!.cells[1]!.textContent = shown(this.state, of.values[name]!, name)));
  }

  private draw(): void {
    const of = this.report;
    const past = of?.past[this.metric];
    get("node-metric").textContent = past ? this.metric : "";
    get("node-plot").hidden = !past;
    if (!of || !past) return;
    for (const button of get("node-values").querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.textContent === this.metric));
    const place = get("node-plot");
    place.setAttribute("role", "img");
    const known = past.filter((v): v is number => v !== null);
    const spread = known.length ? `from ${shown(this.state, Math.min(...known), this.metric)} to ${shown(this.state, Math.max(...known), this.metric)}` : "unknown";
    place.setAttribute("aria-label", `${this.metric} of ${of.node} in its last ${of.at.length} reports: ${spread}`);
    this.plot ??= this.made(place);
    this.plot.setData([of.at, past]);
  }

  private made(place: HTMLElement): uPlot {
    const axis = { stroke: () => getComputedStyle(document.body).color, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8884", width: 1 } };
    return new uPlot(
      {
        width: Math.max(200, place.clientWidth),
        height: 150,
        legend: { show: false },
        cursor: { drag: { x: false, y: false } },
        scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? 1.05 * high : 1] } },
        axes: [{ ...axis, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 80, values: (_, ticks) => ticks.map((t) => shown(this.state, t, this.metric)) }],
        series: [{}, { stroke: "#0072b2", width: 1.5, points: { show: true, size: 4 } }],
      },
      [[], []],
      place,
    );
  }
}
