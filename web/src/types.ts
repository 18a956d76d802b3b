/** What the server says; see docs/reference/frames.md. `null` is unknown, never zero. */

export type ComponentClass = "cpu" | "memory" | "link" | "io";

export interface Metric {
  name: string;
  unit: string;
  what: string;
  of?: string;
  /** Told from other numbers; `NAME_low` and `NAME_high` are its 95 % interval. */
  estimated?: boolean;
}

/** What 1 of a class's use is, for each of its components (B/s), and where that is known from. */
export interface Denominators {
  used: string;
  from?: Record<string, string>;
  wire?: (number | null)[];
  attained?: (number | null)[];
}

export interface MapBox {
  class: ComponentClass;
  index: number;
  x: number;
  y: number;
  w: number;
  h: number;
  label: string;
}

export interface MachineMap {
  width: number;
  height: number;
  boxes: MapBox[];
  lines: { index: number; points: [number, number][] }[];
  outlines: { x: number; y: number; w: number; h: number; label: string }[];
  switches: { x: number; y: number; label: string }[];
}

export interface Header {
  source: string;
  machine: string;
  title?: string;
  started: string;
  period_s: number;
  live: boolean;
  frames?: number;
  components: Record<string, { name: string }[]>;
  metrics: Metric[];
  absent: { metric: string; why: string; hint?: string }[];
  map: MachineMap;
  /** Metrics that colour a class, where it is not its `busy`. */
  use?: Partial<Record<ComponentClass, string>>;
  denominators?: Partial<Record<ComponentClass, Denominators>>;
  /** Of a page in one file: each frame is the mean of so many of the recording's. */
  thinned?: { by: number; frames: number };
  /** Two recordings compared, in place of frames. */
  change?: Difference;
  /** Colours that the command was asked for: bounds in per cent, and a palette. */
  view?: { low?: number; high?: number; palette?: string };
}

/** Mean use of a component in two recordings, and its change, as shares; `low` to `high` is the 95 % interval. */
export interface Change {
  before: number | null;
  after: number | null;
  change: number | null;
  low: number | null;
  high: number | null;
  certain: boolean;
  why?: string;
}

export interface Side {
  name: string;
  machine: string;
  started: string;
  frames: number;
  seconds: number;
}

export interface Difference {
  before: Side;
  after: Side;
  changes: Partial<Record<ComponentClass, Change[]>>;
}

export interface HotSpot {
  class: ComponentClass;
  components: number[];
  verdict: string;
  text: string;
}

export interface Process {
  pid: number;
  name: string;
  cpu: number;
  threads: number;
  rss: number;
  on: number;
  nodes?: number[] | null;
}

export interface Frame {
  processes?: Process[];
  spots?: HotSpot[];
  seq: number;
  t_s: number;
  window_s: number;
  at: number;
  cost_s: number;
  dropped: number;
  values: Record<string, ArrayLike<number | null>>;
}

export const CLASSES: ComponentClass[] = ["cpu", "memory", "link", "io"];
export const CLASS_NAMES: Record<ComponentClass, string> = {
  cpu: "CPUs",
  memory: "memory",
  link: "links",
  io: "I/O",
};

/** The metric that colours a class. */
export function useMetric(header: Header, kind: ComponentClass): string {
  return header.use?.[kind] ?? `${kind}.busy`;
}

export function isEstimated(header: Header, kind: ComponentClass): boolean {
  const name = useMetric(header, kind);
  return header.metrics.some((m) => m.name === name && m.estimated === true);
}

/** A component's value of a metric; null where it is not known. */
export function valueOf(frame: Frame | undefined, metric: string, index: number): number | null {
  const value = frame?.values[metric]?.[index] ?? null;
  return value === null || Number.isNaN(value) ? null : value; // packed frames have NaN for what is not known
}
