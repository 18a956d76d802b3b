/** Compares two recordings: the map is coloured by the change of each component's mean use, in percentage points. */

import { get, tableRow } from "./dom";
import type { Look, MeshMap } from "./map";
import { DIVERGING, STEPS, inkOn, stepOf } from "./palette";
import type { Change, ComponentClass, Difference, Header, Side } from "./types";
import { CLASSES } from "./types";

const MINUS = "−";

/** Returns signed percentage points as a short text. */
export function points(share: number, places?: number): string {
  const value = 100 * share;
  const text = Math.abs(value).toFixed(places ?? (Math.abs(value) < 9.95 ? 1 : 0));
  return Number(text) === 0 ? text : `${value < 0 ? MINUS : "+"}${text}`;
}

/** Returns a bound of the scale as a text, without a fraction if the bound has none. */
function bound(share: number): string {
  return points(share, Math.abs(100 * share - Math.round(100 * share)) < 1e-6 ? 0 : 1);
}

const plain = (share: number) => (100 * share).toFixed(1);

export class ChangeView {
  private hovered: { kind: ComponentClass; index: number } | null = null;
  private difference: Difference;

  constructor(
    private header: Header,
    private map: MeshMap,
  ) {
    this.difference = header.change!;
    document.body.dataset["mode"] = "change";
    for (const id of ["range", "palettes", "time", "processes", "spots"]) get(id).hidden = true;
    for (const id of ["spread", "changes"]) get(id).hidden = false;
    get("source").textContent = "change of mean use between two recordings";
    const side = ({ name, started, frames, seconds }: Side) =>
      `${name} (${started ? `${started.slice(0, 16).replace("T", " ")}, ` : ""}${frames} frames, ${this.long(seconds)})`;
    get("compared").textContent = `From ${side(this.difference.before)} to ${side(this.difference.after)}.`;
    map.onHover = (kind, index) => {
      this.hovered = { kind, index };
      this.tell();
    };
    const field = get<HTMLInputElement>("most");
    field.addEventListener("input", () => this.paint());
    for (const most of [10, 50, 100])
      get(`most-${most}`).addEventListener("click", () => {
        field.value = String(most);
        this.paint();
      });
    get<HTMLInputElement>("numbers").addEventListener("change", () => this.paint());
    this.table();
    this.paint();
  }

  private long(seconds: number): string {
    return this.header.period_s < 1e-3 ? `${(1e6 * seconds).toPrecision(3)} µs` : `${seconds.toPrecision(3)} s`;
  }

  private of(kind: ComponentClass, index: number): Change | null {
    return this.difference.changes[kind]?.[index] ?? null;
  }

  paint(): void {
    const field = get<HTMLInputElement>("most");
    let most = Number(field.value) / 100;
    const valid = Number.isFinite(most) && most > 0 && most <= 1;
    field.setAttribute("aria-invalid", String(!valid));
    if (!valid) most = 1;
    const scale = get("scale");
    scale.setAttribute("aria-label", "colour scale, percentage points");
    scale.replaceChildren();
    const item = (className: string, text: string) =>
      scale.append(Object.assign(document.createElement("li"), { className, textContent: text }));
    DIVERGING.forEach((colour, i) => {
      document.documentElement.style.setProperty(`--s${i}`, colour);
      document.documentElement.style.setProperty(`--i${i}`, inkOn(colour));
      const start = most * ((2 * i) / STEPS - 1);
      item(`swatch s${i}`, bound(start));
    });
    item("bound", `${bound(most)} points`);
    item("key unsure", "inconclusive");
    item("key hatched", "not known");
    this.map.numbers = get<HTMLInputElement>("numbers").checked;
    this.map.show((kind, index): Look => {
      const change = this.of(kind, index);
      if (!change || change.change === null) return { step: -1, text: "?", mark: "" };
      return { step: stepOf(change.change, -most, most), text: points(change.change), mark: change.certain ? "" : "unsure" };
    });
    this.tell();
  }

  private words(kind: ComponentClass, index: number): string {
    const one = this.of(kind, index);
    const name = this.map.nameOf(kind, index);
    if (!one || one.before === null || one.after === null || one.change === null)
      return `${name}: not known: ${one?.why ?? "no source says it"}`;
    const means = `${name}: ${plain(one.before)} % → ${plain(one.after)} %, ${points(one.change, 1)} points`;
    if (one.low === null || one.high === null) return `${means}; ${one.why ?? "no interval"}`;
    const interval = `95 % interval ${points(one.low, 1)} to ${points(one.high, 1)}`;
    return `${means} (${interval})${one.certain ? "" : ": inconclusive"}`;
  }

  private tell(): void {
    if (!this.hovered) return;
    const { kind, index } = this.hovered;
    const text = this.words(kind, index);
    const field = get("told");
    if (field.textContent !== text) field.textContent = text;
    this.map.label(kind, index, text);
  }

  /** Lists the same changes as numbers, the largest ones first. */
  private table(): void {
    const all = CLASSES.flatMap((kind) => (this.difference.changes[kind] ?? []).map((one, index) => ({ kind, index, one })));
    for (const { kind, index } of all) this.map.label(kind, index, this.words(kind, index));
    const known = all.filter(({ one }) => one.change !== null);
    known.sort((a, b) => Number(b.one.certain) - Number(a.one.certain) || Math.abs(b.one.change!) - Math.abs(a.one.change!));
    const table = get("changes").querySelector("table")!;
    const heads = ["component", "before (%)", "after (%)", "change (points)", "95 % interval", "remark"];
    table.querySelector("thead")!.replaceChildren(tableRow(heads, "column"));
    table.querySelector("tbody")!.replaceChildren(
      ...known.slice(0, 100).map(({ kind, index, one }) =>
        tableRow(
          [
            this.map.nameOf(kind, index), plain(one.before!), plain(one.after!), points(one.change!, 1),
            one.low === null || one.high === null ? "–" : `${points(one.low, 1)} to ${points(one.high, 1)}`,
            one.certain ? "" : one.low === null ? (one.why ?? "") : "inconclusive",
          ],
          "row",
        ),
      ),
    );
    const more = known.length > 100 ? `; ${known.length - 100} smaller ones are not in this table` : "";
    const certain = known.filter(({ one }) => one.certain).length;
    get("changed").textContent = `${certain} of ${known.length} components changed distinguishably; of those that did not change, one in twenty looks as if it had${more}.`;
  }
}
