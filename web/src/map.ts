/** Draws the machine as SVG. A frame changes only the classes of components that have changed. */

import { countsStalls } from "./rates";
import type { ComponentClass, Header, MapBox } from "./types";
import { Zoom } from "./zoom";

const SVG = "http://www.w3.org/2000/svg";

interface Piece {
  kind: ComponentClass;
  index: number;
  shapes: SVGElement[];
  texts: Texts | null;
  bar: SVGRectElement | null;
  label: string;
  x: number;
  y: number;
  look: string;
  shown: string;
  raised: boolean;
}

/** Texts of a box: its name, its number and, if there is room, its rates; `wide` is the room in characters. */
interface Texts {
  name: SVGTextElement;
  number: SVGTextElement;
  detail: SVGTextElement | null;
  wide: number;
}

/**
 * Look of a component: a step of colour (-1: not known), the number in it, its rates, a mark if the number is uncertain,
 * and of a CPU the share of cycles in which it is stalled.
 */
export interface Look {
  step: number;
  stalled?: number | null;
  text: string;
  detail?: string;
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

const CHARACTER = 4.3; // width of a small letter, in units of the map

function fitted(text: string, characters: number): string {
  return text.length <= characters ? text : `${text.slice(0, Math.max(1, Math.floor(characters) - 1))}…`;
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
  readonly zoom: Zoom;
  numbers = false;
  onHover: (kind: ComponentClass, index: number) => void = () => {};

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
    // Links have a rim below them, so that idle links are visible, too.
    for (const line of map.lines)
      make("polyline", { points: line.points.map((p) => p.join(",")).join(" "), class: "casing" }, this.svg);
    for (const line of map.lines) {
      const points = line.points.map((p) => p.join(",")).join(" ");
      const [a, b] = [line.points[0]!, line.points[line.points.length - 1]!];
      const shape = make("polyline", { points, class: "link" }, this.svg);
      this.add("link", line.index, shape, null, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
    }
    for (const s of map.switches) make("circle", { cx: s.x, cy: s.y, r: 8, class: "switch" }, this.svg);
    for (const plate of map.plates ?? []) {
      make("rect", { x: plate.x, y: plate.y, width: plate.w, height: plate.h, rx: 2, class: "plate" }, this.svg);
      const attributes = { x: plate.x + plate.w / 2, y: plate.y + plate.h / 2 + 3, class: "plate-name" };
      make("text", attributes, this.svg).textContent = fitted(plate.label, plate.w / CHARACTER);
    }
    for (const box of map.boxes) {
      const shape = make("rect", { x: box.x, y: box.y, width: box.w, height: box.h, rx: 2, class: "box" }, this.svg);
      const texts = box.w >= 17 ? this.texts(box) : null;
      this.add(box.class, box.index, shape, texts, box.x + box.w / 2, box.y + box.h / 2, box.label);
      if (box.class === "cpu" && countsStalls(header)) this.byKey.get(`cpu:${box.index}`)!.bar = this.bar(box);
    }
    if (this.pieces[0]) this.pieces[0].shapes[0]!.setAttribute("tabindex", "0");
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    this.zoom = new Zoom(this.svg, map.width, map.height);
    place.replaceChildren(this.svg);
  }

  private texts(box: MapBox): Texts {
    if (this.header.map.roomy) {
      const put = (x: number, y: number, anchor: string) => make("text", { x, y, class: `label ${anchor}` }, this.svg);
      const [left, right] = [box.x + 7, box.x + box.w - 7];
      const texts = { name: put(left, box.y + 13, "left"), number: put(right, box.y + 13, "right"), detail: put(left, box.y + box.h - 8, "left small") };
      texts.name.textContent = box.label;
      return { ...texts, wide: (box.w - 12) / CHARACTER };
    }
    const middle = box.x + box.w / 2;
    const name = make("text", { x: middle, y: box.y + box.h / 2 + 3.4, class: "label" }, this.svg);
    const number = make("text", { x: middle, y: box.y + box.h * (box.label ? 0.9 : 0.5) + (box.label ? 0 : 3.4), class: "label" }, this.svg);
    if (box.label) number.style.fontSize = `${Math.min(9, 0.5 * box.h)}px`;
    name.textContent = box.label;
    return { name, number, detail: null, wide: 0 };
  }

  /** Returns a bar in the lower edge of a box; `show` sets its length. */
  private bar(box: MapBox): SVGRectElement {
    const height = Math.min(3, box.h / 5);
    return make("rect", { x: box.x, y: box.y + box.h - height, width: 0, height, class: "bar", "aria-hidden": "true" }, this.svg);
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

  private add(kind: ComponentClass, index: number, shape: SVGElement, texts: Texts | null, x: number, y: number, label = ""): void {
    const key = `${kind}:${index}`;
    let piece = this.byKey.get(key);
    if (piece) {
      piece.shapes.push(shape); // the other end of a link that wraps around
    } else {
      piece = { kind, index, shapes: [shape], texts, bar: null, label, x, y, look: "", shown: "", raised: false };
      this.byKey.set(key, piece);
      this.pieces.push(piece);
      shape.setAttribute("role", "img");
      shape.setAttribute("tabindex", "-1");
      shape.setAttribute("aria-label", this.nameOf(kind, index));
    }
    shape.dataset["component"] = key;
    shape.addEventListener("pointerenter", () => this.onHover(kind, index));
    shape.addEventListener("focus", () => {
      this.current = this.pieces.indexOf(this.byKey.get(key)!);
      this.onHover(kind, index);
    });
  }

  nameOf(kind: ComponentClass, index: number): string {
    const name = this.header.components[kind]?.[index]?.name ?? `${kind} ${index}`;
    return kind === "link" ? `link ${name}` : name;
  }

  /** Sets the text that screen readers read for a component. */
  label(kind: ComponentClass, index: number, text: string): void {
    this.byKey.get(`${kind}:${index}`)?.shapes[0]?.setAttribute("aria-label", text);
  }

  /** Moves to the nearest component in the direction of an arrow key. */
  private onKey(event: KeyboardEvent): void {
    const direction = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    const origin = this.pieces[this.current];
    if (!direction || !origin) return;
    event.preventDefault();
    let best: Piece | null = null;
    let least = Infinity;
    for (const piece of this.pieces) {
      const along = (piece.x - origin.x) * direction[0]! + (piece.y - origin.y) * direction[1]!;
      const across = Math.abs((piece.x - origin.x) * direction[1]!) + Math.abs((piece.y - origin.y) * direction[0]!);
      const distance = along + 2.5 * across;
      if (along > 0.5 && distance < least) [best, least] = [piece, distance];
    }
    if (!best) return;
    origin.shapes[0]!.setAttribute("tabindex", "-1");
    best.shapes[0]!.setAttribute("tabindex", "0");
    this.zoom.reveal(best.x, best.y);
    best.shapes[0]!.focus();
  }

  /** Draws rings around hot spots; a line gets a broader rim. */
  mark(keys: string[]): void {
    this.rings.replaceChildren();
    for (const key of keys)
      for (const shape of this.byKey.get(key)?.shapes ?? []) {
        if (shape.tagName === "polyline") {
          make("polyline", { points: shape.getAttribute("points")!, class: "ring-line" }, this.rings);
          continue;
        }
        const attribute = (name: string) => Number(shape.getAttribute(name));
        make("rect", { x: attribute("x") - 2, y: attribute("y") - 2, width: attribute("width") + 4, height: attribute("height") + 4, rx: 4, class: "ring" }, this.rings);
      }
  }

  /** Colours all components; does not touch what has not changed. */
  show(lookOf: (kind: ComponentClass, index: number) => Look): void {
    for (const piece of this.pieces) {
      const { step, text, detail = "", mark, stalled } = lookOf(piece.kind, piece.index);
      const ink = step < 0 || mark === "unsure" ? "" : ` i${step}`;
      const look = `${mark === "unsure" ? "unsure" : step < 0 ? "unknown" : `s${step}`}${mark === "estimated" && step >= 0 ? " estimated" : ""}`;
      const { texts } = piece;
      if (look !== piece.look) {
        // A bus is a link that is drawn as a box.
        for (const shape of piece.shapes)
          shape.setAttribute("class", `${shape.tagName === "polyline" ? "link" : "box"} ${look}`);
        const added = `${ink}${mark === "unsure" ? " on-unsure" : step < 0 ? " on-unknown" : ""}`;
        for (const one of texts ? [texts.name, texts.number, texts.detail] : [])
          if (one) one.setAttribute("class", `${one.getAttribute("class")!.replace(/ (i\d|on-unsure|on-unknown)/g, "")}${added}`);
        piece.look = look;
      }
      if (piece.bar) {
        const length = String(Math.min(1, stalled ?? 0) * Number(piece.shapes[0]!.getAttribute("width")));
        if (piece.bar.getAttribute("width") !== length) piece.bar.setAttribute("width", length);
        piece.bar.style.fill = step < 0 ? "" : `var(--i${step})`;
      }
      if (!texts) continue;
      const shown = this.numbers ? `${text}\n${detail}` : "";
      if (shown === piece.shown) continue;
      piece.shown = shown;
      texts.number.textContent = this.numbers ? (texts.detail ? (step < 0 ? "" : `${text} %`) : text) : "";
      if (texts.detail) texts.detail.textContent = this.numbers ? fitted(detail, texts.wide) : "";
      else if (piece.label && piece.raised !== this.numbers) raise(piece, this.numbers);
    }
  }
}

/** Moves the name of a box up and makes it smaller while its number is below it. */
function raise(piece: Piece, raised: boolean): void {
  const [box, name] = [piece.shapes[0]!, piece.texts!.name];
  const [y, h] = [Number(box.getAttribute("y")), Number(box.getAttribute("height"))];
  name.setAttribute("y", String(raised ? y + 0.38 * h : y + h / 2 + 3.4));
  name.style.fontSize = raised ? `${Math.min(7, 0.36 * h)}px` : "";
  piece.raised = raised;
}
