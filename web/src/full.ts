/** Explains what 100 % of use is: the definition of the metric, a bandwidth that was attained here, or the bandwidth of the wire. */

import { percent } from "./map";
import type { ComponentClass, Denominators, Frame, Header } from "./types";
import { CLASSES, CLASS_NAMES, isEstimated, useMetric, valueOf } from "./types";

const WORDS: Record<string, string> = { attained: "attained here", wire: "on the wire" };

function rate(bytes: number): string {
  return `${(bytes / 1e9).toPrecision(3)} GB/s`;
}

function known(d: Denominators | undefined, which: string, index: number): number | null {
  const all = which === "wire" ? d?.wire : which === "attained" ? d?.attained : undefined;
  return all?.[index] ?? null;
}

/** Returns the use in words: "42 % of 38.4 GB/s attained here (wire: 51.2 GB/s), what the metric is". */
export function useText(header: Header, frame: Frame | undefined, kind: ComponentClass, index: number, share: number): string {
  const name = useMetric(header, kind);
  const metric = header.metrics.find((m) => m.name === name);
  const d = header.denominators?.[kind];
  const used = d ? known(d, d.used, index) : null;
  const likely = isEstimated(header, kind);
  let text = `${likely ? "~" : ""}${percent(share)} %`;
  if (likely) {
    const [low, high] = [valueOf(frame, `${name}_low`, index), valueOf(frame, `${name}_high`, index)];
    text += low === null || high === null ? ", estimated" : ", estimated, " + `${percent(low)} to ${percent(high)} %`;
  }
  if (d && used !== null) {
    const other = d.used === "wire" ? "attained" : "wire";
    const rest = known(d, other, index);
    text += ` of ${rate(used)} ${WORDS[d.used] ?? d.used}${rest === null ? "" : ` (${other}: ${rate(rest)})`}`;
  } else if (metric?.of) {
    text += ` of ${metric.of}`;
  }
  return `${text}${metric ? ` (${metric.what})` : " (in use)"}`;
}

/** Writes one line per class, below the map. */
export function whatIsFull(header: Header, place: HTMLElement): void {
  const items: HTMLElement[] = [];
  for (const kind of CLASSES) {
    const metric = header.metrics.find((m) => m.name === useMetric(header, kind));
    if (!metric || !header.components[kind]?.length) continue;
    const d = header.denominators?.[kind];
    const parts = (["attained", "wire"] as const).flatMap((which) => {
      const values = (d?.[which] ?? []).filter((v): v is number => v !== null);
      if (!values.length) return [];
      const [least, most] = [Math.min(...values), Math.max(...values)];
      const value = least === most ? rate(least) : `${rate(least)} to ${rate(most)}`;
      const from = d!.from?.[which];
      return [`${which === d!.used ? "100 % is " : ""}${value} ${WORDS[which]}${from ? ` (${from})` : ""}`];
    });
    if (!parts.length && !metric.of) continue;
    const item = document.createElement("li");
    const name = document.createElement("code");
    name.textContent = metric.name;
    const meaning = parts.length ? parts.join("; ") : `100 % is ${metric.of}`;
    item.append(`${CLASS_NAMES[kind]}: `, name, `, ${metric.what}; ${meaning}${metric.estimated ? "; estimated" : ""}`);
    items.push(item);
  }
  if (header.audit) {
    const verdicts = Object.entries(header.audit.verdicts).map(([metric, verdict]) => `${metric} ${verdict}`);
    const item = document.createElement("li");
    item.textContent = `Counters audited on ${header.audit.when.slice(0, 10)}: ${verdicts.join(", ")}`;
    items.push(item);
  }
  place.hidden = items.length === 0;
  place.querySelector("ul")!.replaceChildren(...items);
}
