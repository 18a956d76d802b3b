/** Draws charts as SVG in QuickJS, which has neither a document nor a canvas to measure texts. */

import * as vega from "vega";
import { compile, type TopLevelSpec } from "vega-lite";

/** Advance widths of the font's characters in thousandths of its size, one set for each weight. */
interface Font {
  regular: Record<string, number>;
  bold: Record<string, number>;
}

/** The properties of a text that decide its width. */
interface Style {
  fontSize?: number;
  fontWeight?: number | string;
  limit?: number;
}

const DEFAULT_SIZE = 11; // px; Vega uses it for a text without a size

/** Returns the width of a text in px. A character that the font lacks counts like a digit. */
function width(font: Font, { fontSize = DEFAULT_SIZE, fontWeight = 400 }: Style, text: string): number {
  const isBold = fontWeight === "bold" || Number(fontWeight) >= 600;
  const advances = isBold ? font.bold : font.regular;
  let sum = 0;
  for (const character of text) sum += advances[character] ?? advances["0"]!;
  return (sum * fontSize) / 1000;
}

/**
 * Makes Vega measure texts by the widths of a font. Otherwise, it assumes that characters are 0.8 times as wide as high.
 *
 * Vega shortens a text whose width is not below its limit, so a wider text counts as wide as the limit.
 */
export function measureBy(font: Font): void {
  const metrics = (vega as unknown as { textMetrics: { width: (style: Style, line: unknown) => number } }).textMetrics;
  metrics.width = (style, line) => {
    const full = width(font, style, String(line ?? "").trim());
    return style.limit && style.limit > 0 ? Math.min(full, style.limit) : full;
  };
}

/** Returns the message of an error. QuickJS throws null if memory does not suffice for an error. */
export function textOf(error: unknown): string {
  if (error === null) return "out of memory";
  return (error instanceof Error && error.message) || String(error) || "unknown error";
}

/** Calls a function if the evaluation of a view fails: Vega takes null, see `textOf`, for success. */
function onFailure(view: vega.View, call: () => void): void {
  const { _heap: queue } = view as unknown as { _heap: { clear: () => void } };
  const { clear } = queue;
  queue.clear = () => {
    call();
    clear();
  };
}

/** Returns the SVG of a Vega-Lite specification. */
export async function svgOf(spec: TopLevelSpec): Promise<string> {
  const errors: string[] = [];
  // Vega reports errors of data and expressions to its logger, and draws an incomplete chart.
  const keep = (_method: string, _level: string, input: readonly unknown[]) => errors.push(input.map(textOf).join(" "));
  const logger = vega.logger(vega.Error, undefined, keep);
  let hasFailed = false;
  const view = new vega.View(vega.parse(compile(spec).spec), { logger, renderer: "none" });
  onFailure(view, () => (hasFailed = true));
  const svg = await view.toSVG();
  view.finalize();
  if (hasFailed || errors.length) throw errors.length ? new Error(errors[0]) : null;
  return svg;
}
