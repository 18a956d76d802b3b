/** Describes what a component does in absolute values; the same as `watch/rates.py`. */

import type { ComponentClass, Frame, Header } from "./types";
import { valueOf } from "./types";

const VERBS: Record<string, [string, string]> = { network: ["receives", "sends"], disk: ["reads", "writes"] };
const MEMORY = [["memory.read", "reads"], ["memory.write", "writes"], ["memory.traffic", "moves"]] as const;
const CPU = [
  ["user", "cpu.user"], ["system", "cpu.system"], ["stolen", "cpu.steal"],
  ["stalled", "cpu.stalled"], ["waiting for memory", "cpu.waiting"], ["remote loads", "cpu.remote"],
] as const;
const DECIMAL: [number, string][] = [[1e15, "PB/s"], [1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]];
const BINARY: [number, string][] = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];

/** Returns a number with three significant digits, without an exponent. */
export function digits(value: number, significant = 3): string {
  if (value === 0) return "0";
  return value.toFixed(Math.max(0, significant - 1 - Math.floor(Math.log10(Math.abs(value)))));
}

function scaled(value: number, scales: [number, string][], whole: boolean): string {
  const [factor, symbol] = scales.find(([f]) => value >= f) ?? scales[scales.length - 1]!;
  const shown = value / factor;
  return `${whole && Number.isInteger(shown) ? String(shown) : digits(shown)}\u00a0${symbol}`;
}

/** Returns a value with its unit: bytes in binary units, rates of bytes in decimal ones. */
export function scaledTo(value: number, unit: string): string {
  if (unit === "B/s") return scaled(value, DECIMAL, false);
  if (unit === "B") return scaled(value, BINARY, true);
  if (value === 0) return unit === "1" ? "0" : `0\u00a0${unit}`;
  const thousands = Math.min(4, Math.max(-4, Math.floor(Math.log10(Math.abs(value)) / 3)));
  if (unit === "s" || unit === "Hz" || unit === "W") {
    return `${digits(value / 1000 ** thousands)}\u00a0${["p", "n", "µ", "m", "", "k", "M", "G", "T"][thousands + 4]}${unit}`;
  }
  return unit === "1" ? digits(value) : `${digits(value)}\u00a0${unit}`;
}

const STALLS = ["cpu.stalled", "cpu.waiting"];

/** Returns whether the CPUs of a machine count the cycles in which they are stalled. */
export function countsStalls(header: Header): boolean {
  return header.metrics.some((m) => STALLS.includes(m.name));
}

/** Returns the share of cycles in which a CPU is stalled, at least for memory; null if it is not known. */
export function stalledShare(frame: Frame | undefined, cpu: number): number | null {
  return STALLS.map((metric) => valueOf(frame, metric, cpu)).find((share) => share !== null) ?? null;
}

/** Returns the absolute values of a component: `reads 1.20 MB/s, writes 0 B/s`; "" if no value is known. */
export function rates(header: Header, frame: Frame | undefined, kind: ComponentClass, index: number): string {
  const about = header.components[kind]?.[index] as { kind?: string; node?: number } | undefined;
  const rate = (metric: string, verb: string): string[] => {
    const value = valueOf(frame, metric, index);
    return value === null ? [] : [`${verb} ${scaled(value, DECIMAL, false)}`];
  };
  if (kind === "cpu") {
    return CPU
      .flatMap(([name, metric]) => {
        const share = valueOf(frame, metric, index);
        return share ? [`${name} ${digits(100 * share, 2)}\u00a0%`] : [];
      })
      .join(", ");
  }
  if (kind === "io") {
    const [into, out] = VERBS[about?.kind ?? ""] ?? ["in", "out"];
    return [...rate("io.in", into), ...rate("io.out", out)].join(", ");
  }
  if (kind === "link") return rate("link.out", "carries").join(", ");
  const texts = MEMORY.flatMap(([metric, verb]) => rate(metric, verb));
  texts.push(...rate("memory.moved", "others move").map((text) => `~${text}`));
  const node = about?.node;
  const alone = header.components["memory"]?.filter((m) => (m as { node?: number }).node === node).length === 1;
  if (node !== undefined && alone) {
    const [used, total] = [valueOf(frame, "node.used", node), valueOf(frame, "node.total", node)];
    if (used !== null && total) texts.push(`${scaled(used, BINARY, true)} of ${scaled(total, BINARY, true)} used`);
  }
  return texts.join(", ");
}
