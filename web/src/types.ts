/** The data that the server sends; see docs/reference/frames.md. `null` is unknown, never zero. */
import type { StreamFrame, StreamHeader } from "./schema";

export type { Denominators, Finding, Process } from "./schema";

export type ComponentClass = "cpu" | "memory" | "link" | "io";

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
  roomy?: boolean; // boxes have room for names, shares and rates
  boxes: MapBox[];
  plates?: { x: number; y: number; w: number; h: number; label: string }[]; // shared caches
  lines: { index: number; points: [number, number][] }[];
  outlines: { x: number; y: number; w: number; h: number; label: string }[];
  switches: { x: number; y: number; label: string }[];
}

/** Header of a stream, with the fields that are for the page alone. */
export interface Header extends StreamHeader {
  title?: string;
  live: boolean;
  frames?: number;
  map: MachineMap;
  /** In a page in one file: each frame is the mean of `by` frames of the recording. */
  thinned?: { by: number; frames: number };
  /** Comparison of two recordings, in place of frames. */
  change?: Difference;
  /** Colours that the command requested: bounds in per cent, and a palette. */
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

/** Frame of a stream, or an unpacked one. */
export interface Frame extends Omit<StreamFrame, "type" | "values"> {
  values: Record<string, ArrayLike<number | null>>;
}

export const CLASSES: ComponentClass[] = ["cpu", "memory", "link", "io"];
export const CLASS_NAMES: Record<ComponentClass, string> = {
  cpu: "CPUs",
  memory: "memory",
  link: "links",
  io: "I/O",
};

/** Returns the metric that colours a class. */
export function useMetric(header: Header, kind: ComponentClass): string {
  return header.use?.[kind] ?? `${kind}.busy`;
}

export function isEstimated(header: Header, kind: ComponentClass): boolean {
  const name = useMetric(header, kind);
  return header.metrics.some((m) => m.name === name && m.estimated === true);
}

/** Returns a component's value of a metric; null if it is not known. */
export function valueOf(frame: Frame | undefined, metric: string, index: number): number | null {
  const value = frame?.values[metric]?.[index] ?? null;
  return value === null || Number.isNaN(value) ? null : value; // packed frames have NaN for unknown values
}
