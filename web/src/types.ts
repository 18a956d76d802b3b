/** What the server says; see docs/reference/frames.md. `null` is unknown, never zero. */

export type ComponentClass = "cpu" | "memory" | "link" | "io";

export interface Metric {
  name: string;
  unit: string;
  what: string;
  of?: string;
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
  values: Record<string, (number | null)[]>;
}

export const CLASSES: ComponentClass[] = ["cpu", "memory", "link", "io"];
export const CLASS_NAMES: Record<ComponentClass, string> = {
  cpu: "CPUs",
  memory: "memory",
  link: "links",
  io: "I/O",
};

/** Share of use of a component in a frame; null where it is not known. */
export function useOf(frame: Frame | undefined, kind: ComponentClass, index: number): number | null {
  return frame?.values[`${kind}.busy`]?.[index] ?? null;
}
