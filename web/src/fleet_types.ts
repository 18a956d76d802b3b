/** What the server of a fleet sends, and the state of all nodes that follows from it. */

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
  values: (number | null)[]; // of the metric of the stream; none without one
  counts: Record<string, number>;
  refused: Record<string, string>;
  cases: Record<string, string>; // what is wrong, by number
}

const COUNTS = new Set(["cpu.ipc", "host.running", "host.blocked"]); // of unit 1, but no shares

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

  /** Take in what changed; `all`: the rest is no longer known. */
  take(change: Change, all: boolean): void {
    if (all) this.values.fill(NaN);
    this.cases = new Map(Object.entries(change.cases).map(([number, what]) => [Number(number), what]));
    change.nodes.forEach((number, i) => {
      this.states[number] = change.states.charCodeAt(i) - 48;
      this.values[number] = change.values[i] ?? NaN;
    });
    this.bounds = this.isShare(this.metric) ? [0, 1] : bounds(this.values);
  }

  stateOf(number: number): string {
    return this.stateNames[this.states[number]!] ?? "";
  }

  /** The state as text, with what is wrong. */
  textOf(number: number): string {
    const what = this.cases.get(number);
    const text = this.stateTexts[this.states[number]!] ?? "";
    return what ? `${text}; open case: ${what}` : text;
  }

  isLive(number: number): boolean {
    return this.states[number]! >= 2;
  }

  /** The value of a node that reports; null if it is unknown. */
  valueOf(number: number): number | null {
    const value = this.values[number]!;
    return Number.isNaN(value) || !this.isLive(number) ? null : value;
  }

  isShare(metric: string): boolean {
    const [name] = metric.split(" ");
    return this.units.get(metric) === "1" && !COUNTS.has(name!);
  }
}

/** A range of colours with round ends: from 0, unless all values are alike. */
function bounds(values: Float64Array): [number, number] {
  const known = values.filter((v) => !Number.isNaN(v)).sort();
  if (known.length === 0) return [0, 1];
  const [least, most] = [known[Math.floor(0.01 * (known.length - 1))]!, known[Math.ceil(0.99 * (known.length - 1))]!];
  const low = least > 0.5 * most && least < most ? least : Math.min(0, least);
  const step = 10 ** Math.floor(Math.log10(Math.max(most - low, 1e-12)));
  const high = Math.ceil(most / step) * step;
  const from = Math.floor(low / step) * step;
  return [from, high > from ? high : from + step];
}

/** A value of the metric that is chosen, or of another one. */
export function shown(state: FleetState, value: number, metric = state.metric): string {
  const unit = state.units.get(metric) ?? "";
  if (state.isShare(metric)) return `${digits(100 * value)}\u00a0%`;
  return scaledTo(value, unit);
}
