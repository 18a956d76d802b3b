/** The messages of a fleet's server, and the state of all nodes that follows from them. */

import { digits, scaledTo } from "./rates";

export interface Layout {
  cluster: string;
  names: string[];
  racks: { name: string; nodes: number[]; x: number[]; y: number[] }[];
  states: Record<string, string>; // in the order of their numbers
  metrics: { name: string; unit: string }[];
}

export interface Change {
  at: number;
  nodes: number[];
  states: string; // a digit for each node
  values: (number | null)[]; // values of the metric of the stream; empty without a metric
  counts: Record<string, number>;
  refused: Record<string, string>;
  cases: Record<string, string>; // text of the open case, by number
}

const COUNTS = new Set(["cpu.ipc", "host.running", "host.blocked"]); // these have the unit 1, but are not shares

export class FleetState {
  names: string[] = [];
  stateNames: string[] = [];
  stateTexts: string[] = [];
  units = new Map<string, string>();
  metric = "";
  states = new Uint8Array(0);
  values = new Float64Array(0);
  bounds: [number, number] = [0, 1];
  cases = new Map<number, string>();

  lay(layout: Layout): void {
    this.names = layout.names;
    this.stateNames = Object.keys(layout.states);
    this.stateTexts = Object.values(layout.states);
    this.units = new Map(layout.metrics.map((m) => [m.name, m.unit]));
    const [states, values] = [this.states, this.values];
    this.states = new Uint8Array(this.names.length);
    this.states.set(states.subarray(0, this.names.length));
    this.values = new Float64Array(this.names.length).fill(NaN);
    this.values.set(values.subarray(0, this.names.length));
  }

  /** Applies a change; `all`: all other values are no longer known. */
  take(change: Change, all: boolean): void {
    if (all) this.values.fill(NaN);
    this.cases = new Map(Object.entries(change.cases).map(([number, description]) => [Number(number), description]));
    change.nodes.forEach((number, i) => {
      this.states[number] = change.states.charCodeAt(i) - 48;
      this.values[number] = change.values[i] ?? NaN;
    });
    this.bounds = this.isShare(this.metric) ? [0, 1] : bounds(this.values);
  }

  stateOf(number: number): string {
    return this.stateNames[this.states[number]!] ?? "";
  }

  /** Returns the state as a text, with the open case. */
  textOf(number: number): string {
    const what = this.cases.get(number);
    const text = this.stateTexts[this.states[number]!] ?? "";
    return what ? `${text}; open case: ${what}` : text;
  }

  isLive(number: number): boolean {
    return this.states[number]! >= 2;
  }

  /** Returns the value of a node that reports; null if it is unknown. */
  valueOf(number: number): number | null {
    const value = this.values[number]!;
    return Number.isNaN(value) || !this.isLive(number) ? null : value;
  }

  isShare(metric: string): boolean {
    const [name] = metric.split(" ");
    return this.units.get(metric) === "1" && !COUNTS.has(name!);
  }
}

/** Returns a range of colours with round ends, which begins at 0 unless all values are similar. */
function bounds(values: Float64Array): [number, number] {
  const sorted = values.filter((v) => !Number.isNaN(v)).sort();
  if (sorted.length === 0) return [0, 1];
  const [least, most] = [sorted[Math.floor(0.01 * (sorted.length - 1))]!, sorted[Math.ceil(0.99 * (sorted.length - 1))]!];
  const low = least > 0.5 * most && least < most ? least : Math.min(0, least);
  const step = 10 ** Math.floor(Math.log10(Math.max(most - low, 1e-12)));
  const high = Math.ceil(most / step) * step;
  const start = Math.floor(low / step) * step;
  return [start, high > start ? high : start + step];
}

/** Returns a value of the selected metric, or of another one, as a text. */
export function shown(state: FleetState, value: number, metric = state.metric): string {
  const unit = state.units.get(metric) ?? "";
  if (state.isShare(metric)) return `${digits(100 * value)}\u00a0%`;
  return scaledTo(value, unit);
}
