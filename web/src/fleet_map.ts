/** Draws the map of the racks. Each rack is a canvas, since ten thousand elements would make the page slow. */

import type { Layout } from "./fleet_types";
import { FleetState, shown } from "./fleet_types";
import { get } from "./dom";
import { PALETTES, STEPS, inkOn, stepOf } from "./palette";

const COLOURS: Record<string, string> = { live: "#4f7290", silent: "#e69f00", named: "#f2701d", wrong: "#f06db0", never: "" };
const OUTLINE = "#5b6775";
const PALETTE = PALETTES["cividis"]!;
const SIZES: [number, number][] = [[300, 16], [2000, 11], [6000, 9], [Infinity, 7]]; // size of a cell in px, by the number of nodes

interface Rack {
  canvas: HTMLCanvasElement;
  nodes: number[];
  x: number[];
  y: number[];
}

export class RackMap {
  onHover: (number: number) => void = () => {};
  onChosen: (number: number) => void = () => {};
  private racks: Rack[] = [];
  private place: [number, number][] = []; // rack and index within it, by node
  private size = 12;
  private at = -1; // node under the cursor of the keyboard or the pointer
  private selected = -1;
  private legend = "";
  private rings = { at: ring("at"), selected: ring("selected") };

  constructor(
    private root: HTMLElement,
    private state: FleetState,
  ) {
    root.addEventListener("pointermove", (e) => this.point(this.under(e)));
    root.addEventListener("click", (e) => {
      const number = this.under(e);
      if (number >= 0) this.onChosen(number);
    });
    root.addEventListener("keydown", (e) => this.key(e));
    root.addEventListener("focus", () => this.point(this.at >= 0 ? this.at : (this.racks[0]?.nodes[0] ?? -1)));
    new ResizeObserver(() => this.rest()).observe(root);
  }

  lay(layout: Layout): void {
    const total = layout.names.length;
    this.size = SIZES.find(([most]) => total <= most)![1];
    this.place = [];
    const many = layout.racks.length > 1;
    const scale = devicePixelRatio || 1;
    this.racks = layout.racks.map(({ name, nodes, x, y }, r) => {
      const canvas = document.createElement("canvas");
      const [wide, tall] = [x, y].map((positions) => (1 + Math.max(0, ...positions)) * this.size);
      canvas.width = wide! * scale;
      canvas.height = tall! * scale;
      canvas.style.width = `${wide}px`;
      canvas.style.height = `${tall}px`;
      canvas.getContext("2d")!.scale(scale, scale);
      canvas.title = "";
      nodes.forEach((number, i) => (this.place[number] = [r, i]));
      canvas.dataset["rack"] = String(r);
      const figure = document.createElement("figure");
      if (many) figure.append(Object.assign(document.createElement("figcaption"), { textContent: name || "in no rack" }));
      figure.append(canvas);
      return { canvas, nodes, x, y, figure };
    });
    this.root.replaceChildren(...(this.racks as (Rack & { figure: HTMLElement })[]).map((r) => r.figure), this.rings.at, this.rings.selected);
    this.draw(null);
    this.rest();
  }

  /** Draws nodes; null: all nodes, which is also necessary if the range of colours has changed. */
  draw(numbers: number[] | null): void {
    if (this.scale()) numbers = null;
    for (const number of numbers ?? this.place.keys()) this.cell(number);
  }

  select(number: number): void {
    this.selected = number;
    this.rest();
  }

  // ---------------------------------------------------------------- colours

  private cell(number: number): void {
    const [r, i] = this.place[number] ?? [-1, 0];
    const rack = this.racks[r];
    if (!rack) return;
    const [x, y, size] = [rack.x[i]! * this.size, rack.y[i]! * this.size, this.size - 1];
    const context = rack.canvas.getContext("2d")!;
    context.clearRect(x, y, this.size, this.size);
    const colour = this.colour(number);
    if (colour) {
      context.fillStyle = colour;
      context.fillRect(x, y, size, size);
    } else {
      context.strokeStyle = OUTLINE;
      context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    }
  }

  /** Returns the colour of a node; "": only an outline. */
  private colour(number: number): string {
    if (!this.state.metric) return COLOURS[this.state.stateOf(number)] ?? "";
    const step = stepOf(this.state.valueOf(number), ...this.state.bounds);
    return step < 0 ? "" : PALETTE[step]!;
  }

  /** Updates the legend; returns whether it has changed. */
  private scale(): boolean {
    const { state } = this;
    const key = JSON.stringify([state.metric, state.bounds, state.stateNames]);
    if (key === this.legend) return false;
    this.legend = key;
    const items: HTMLElement[] = [];
    const add = (text: string, colour: string, kind: string) => {
      const item = Object.assign(document.createElement("li"), { textContent: text, className: kind });
      if (kind === "swatch") item.style.cssText = `background:${colour};color:${inkOn(colour)}`;
      else item.style.setProperty("--key", colour || "transparent");
      items.push(item);
    };
    if (state.metric) {
      const [low, high] = state.bounds;
      PALETTE.forEach((colour, i) => add(shown(state, low + ((high - low) * i) / STEPS).replace(/\.0+(?=\D|$)/, ""), colour, "swatch"));
      add("not known", "", "key");
    } else {
      state.stateNames.forEach((name, i) => add(state.stateTexts[i]!, COLOURS[name] ?? "", "key"));
    }
    get("legend").replaceChildren(...items);
    return true;
  }

  // ---------------------------------------------------------------- pointing

  private under(event: MouseEvent): number {
    const canvas = (event.target as HTMLElement).closest("canvas");
    const rack = canvas && this.racks[Number(canvas.dataset["rack"])];
    if (!canvas || !rack) return -1;
    const box = canvas.getBoundingClientRect();
    const zoom = box.width / (canvas.width / (devicePixelRatio || 1)) || 1;
    const [x, y] = [event.clientX - box.left, event.clientY - box.top].map((v) => Math.floor(v / zoom / this.size));
    return this.find(rack, x!, y!);
  }

  private find(rack: Rack, x: number, y: number): number {
    const i = rack.x.findIndex((column, k) => column === x && rack.y[k] === y);
    return i < 0 ? -1 : rack.nodes[i]!;
  }

  private point(number: number): void {
    if (number < 0) return;
    this.at = number;
    this.rest();
    this.onHover(number);
  }

  private key(event: KeyboardEvent): void {
    const [r, i] = this.place[this.at] ?? [-1, 0];
    const rack = this.racks[r];
    if (!rack) return;
    const [x, y] = [rack.x[i]!, rack.y[i]!];
    const [columns, rows] = [Math.max(...rack.x), Math.max(...rack.y)];
    const beside = (by: number): number => {
      const next = this.racks[r + by];
      if (!next || next.nodes.length === 0) return -1;
      const cell = this.find(next, by > 0 ? 0 : Math.max(...next.x), Math.min(y, Math.max(...next.y)));
      return cell >= 0 ? cell : next.nodes[next.nodes.length - 1]!; // the last column may be shorter
    };
    const moves: Record<string, () => number> = {
      ArrowLeft: () => (x > 0 ? this.find(rack, x - 1, y) : beside(-1)),
      ArrowRight: () => (x < columns ? this.find(rack, x + 1, y) : beside(1)),
      ArrowUp: () => (y > 0 ? this.find(rack, x, y - 1) : -1),
      ArrowDown: () => (y < rows ? this.find(rack, x, y + 1) : -1),
      PageUp: () => this.racks[r - 1]?.nodes[0] ?? -1,
      PageDown: () => this.racks[r + 1]?.nodes[0] ?? -1,
      Home: () => this.racks[0]?.nodes[0] ?? -1,
      End: () => this.racks[this.racks.length - 1]?.nodes.at(-1) ?? -1,
    };
    if (event.key === "Enter" || event.key === " ") this.onChosen(this.at);
    else if (moves[event.key]) this.point(moves[event.key]!());
    else return;
    event.preventDefault();
  }

  /** Moves the rings to their nodes. */
  private rest(): void {
    for (const kind of ["at", "selected"] as const) {
      const [r, i] = this.place[this[kind]] ?? [-1, 0];
      const rack = this.racks[r];
      const { style } = this.rings[kind];
      this.rings[kind].hidden = !rack;
      if (!rack) continue;
      const [box, frame] = [rack.canvas.getBoundingClientRect(), this.root.getBoundingClientRect()];
      const zoom = box.width / (rack.canvas.width / (devicePixelRatio || 1)) || 1;
      style.left = `${box.left - frame.left + rack.x[i]! * this.size * zoom}px`;
      style.top = `${box.top - frame.top + rack.y[i]! * this.size * zoom}px`;
      style.width = style.height = `${(this.size - 1) * zoom}px`;
    }
  }
}

function ring(kind: string): HTMLElement {
  return Object.assign(document.createElement("div"), { className: `ring ${kind}`, hidden: true });
}
