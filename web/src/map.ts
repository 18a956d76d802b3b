/** The machine as SVG; a frame only changes classes of what changed. */

import type { ComponentClass, Header } from "./types";

const SVG = "http://www.w3.org/2000/svg";

interface Piece {
  kind: ComponentClass;
  index: number;
  shapes: SVGElement[];
  text: SVGTextElement | null;
  label: string;
  x: number;
  y: number;
  look: string;
  shown: string;
}

/** How a component looks: a step of colour (-1: not known), the number in it, and whether the number is only likely. */
export interface Look {
  step: number;
  text: string;
  mark: "" | "estimated" | "unsure";
}

function make<K extends keyof SVGElementTagNameMap>(
  name: K,
  attributes: Record<string, string | number>,
  parent: Element,
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  parent.append(element);
  return element;
}

export function percent(share: number | null): string {
  if (share === null) return "?";
  const value = 100 * share;
  return value > 0 && value < 9.95 ? value.toFixed(1) : value.toFixed(0);
}

export class MeshMap {
  readonly svg: SVGSVGElement;
  private pieces: Piece[] = [];
  private byKey = new Map<string, Piece>();
  private current = 0;
  private rings: SVGGElement;
  numbers = false;
  onTold: (kind: ComponentClass, index: number) => void = () => {};

  constructor(
    private header: Header,
    place: HTMLElement,
  ) {
    const { map } = header;
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${map.width} ${map.height}`);
    this.svg.setAttribute("role", "group");
    this.svg.setAttribute("aria-label", `map of ${header.machine}`);
    this.svg.style.maxWidth = `${Math.max(320, Math.min(2.2 * map.width, 1500))}px`;
    this.hatch();
    for (const o of map.outlines) {
      make("rect", { x: o.x, y: o.y, width: o.w, height: o.h, rx: 5, class: "node" }, this.svg);
      make("text", { x: o.x + 6, y: o.y + 11.5, class: "node-name" }, this.svg).textContent = o.label;
    }
    this.rings = make("g", { "aria-hidden": "true" }, this.svg);
    // Under the links a rim, so that idle ones are seen too.
    for (const line of map.lines)
      make("polyline", { points: line.points.map((p) => p.join(",")).join(" "), class: "casing" }, this.svg);
    for (const line of map.lines) {
      const points = line.points.map((p) => p.join(",")).join(" ");
      const [a, b] = [line.points[0]!, line.points[line.points.length - 1]!];
      const shape = make("polyline", { points, class: "link" }, this.svg);
      this.add("link", line.index, shape, null, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
    }
    for (const s of map.switches) make("circle", { cx: s.x, cy: s.y, r: 8, class: "switch" }, this.svg);
    for (const box of map.boxes) {
      const shape = make("rect", { x: box.x, y: box.y, width: box.w, height: box.h, rx: 2, class: "box" }, this.svg);
      const text =
        box.w >= 17
          ? make("text", { x: box.x + box.w / 2, y: box.y + box.h / 2 + 3.4, class: "label" }, this.svg)
          : null;
      if (text) text.textContent = box.label;
      this.add(box.class, box.index, shape, text, box.x + box.w / 2, box.y + box.h / 2, box.label);
    }
    if (this.pieces[0]) this.pieces[0].shapes[0]!.setAttribute("tabindex", "0");
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    place.replaceChildren(this.svg);
  }

  private hatch(): void {
    const defs = make("defs", {}, this.svg);
    const pattern = make(
      "pattern",
      { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      defs,
    );
    make("rect", { width: 6, height: 6, class: "hatch-ground" }, pattern);
    make("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch-line" }, pattern);
  }

  private add(kind: ComponentClass, index: number, shape: SVGElement, text: SVGTextElement | null, x: number, y: number, label = ""): void {
    const key = `${kind}:${index}`;
    let piece = this.byKey.get(key);
    if (piece) {
      piece.shapes.push(shape); // the other end of a link that goes round
    } else {
      piece = { kind, index, shapes: [shape], text, label, x, y, look: "", shown: label };
      this.byKey.set(key, piece);
      this.pieces.push(piece);
      shape.setAttribute("role", "img");
      shape.setAttribute("tabindex", "-1");
      shape.setAttribute("aria-label", this.nameOf(kind, index));
    }
    shape.dataset["component"] = key;
    shape.addEventListener("pointerenter", () => this.onTold(kind, index));
    shape.addEventListener("focus", () => {
      this.current = this.pieces.indexOf(this.byKey.get(key)!);
      this.onTold(kind, index);
    });
  }

  nameOf(kind: ComponentClass, index: number): string {
    const name = this.header.components[kind]?.[index]?.name ?? `${kind} ${index}`;
    return kind === "link" ? `link ${name}` : name;
  }

  /** Says the value to those who listen, not only to those who see. */
  label(kind: ComponentClass, index: number, text: string): void {
    this.byKey.get(`${kind}:${index}`)?.shapes[0]?.setAttribute("aria-label", text);
  }

  /** Arrow keys go to the nearest component that way. */
  private onKey(event: KeyboardEvent): void {
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    const from = this.pieces[this.current];
    if (!way || !from) return;
    event.preventDefault();
    let best: Piece | null = null;
    let least = Infinity;
    for (const piece of this.pieces) {
      const along = (piece.x - from.x) * way[0]! + (piece.y - from.y) * way[1]!;
      const across = Math.abs((piece.x - from.x) * way[1]!) + Math.abs((piece.y - from.y) * way[0]!);
      const far = along + 2.5 * across;
      if (along > 0.5 && far < least) [best, least] = [piece, far];
    }
    if (!best) return;
    from.shapes[0]!.setAttribute("tabindex", "-1");
    best.shapes[0]!.setAttribute("tabindex", "0");
    best.shapes[0]!.focus();
  }

  /** Rings round hot spots; a line gets a broader rim. */
  mark(keys: string[]): void {
    this.rings.replaceChildren();
    for (const key of keys)
      for (const shape of this.byKey.get(key)?.shapes ?? []) {
        if (shape.tagName === "polyline") {
          make("polyline", { points: shape.getAttribute("points")!, class: "ring-line" }, this.rings);
          continue;
        }
        const at = (name: string) => Number(shape.getAttribute(name));
        make("rect", { x: at("x") - 2, y: at("y") - 2, width: at("width") + 4, height: at("height") + 4, rx: 4, class: "ring" }, this.rings);
      }
  }

  /** Colours everything; what has not changed is left alone. */
  show(lookOf: (kind: ComponentClass, index: number) => Look): void {
    for (const piece of this.pieces) {
      const { step, text, mark } = lookOf(piece.kind, piece.index);
      const ink = step < 0 || mark === "unsure" ? "" : ` i${step}`;
      const look = `${mark === "unsure" ? "unsure" : step < 0 ? "unknown" : `s${step}`}${mark === "estimated" && step >= 0 ? " estimated" : ""}`;
      if (look !== piece.look) {
        // A bus is a link that is drawn as a box.
        for (const shape of piece.shapes)
          shape.setAttribute("class", `${shape.tagName === "polyline" ? "link" : "box"} ${look}`);
        piece.text?.setAttribute("class", `label${ink}${mark === "unsure" ? " on-unsure" : ""}`);
        piece.look = look;
      }
      if (piece.text) {
        const shown = this.numbers ? text : piece.label;
        if (shown !== piece.shown) {
          piece.text.textContent = shown;
          piece.shown = shown;
        }
      }
    }
  }
}
