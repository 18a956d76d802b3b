/** Draws every component over time: a row for each component, a column for each moment, in the colours of the map. Draws only new columns. */

import { PALETTES, stepOf } from "./palette";
import type { ComponentClass, Frame, Header } from "./types";
import { CLASSES, CLASS_NAMES, useMetric } from "./types";

const COLUMNS = 1200;
const LIVE_S = 600; // seconds that a live raster shows: the last ten minutes, or more if frames are rare
const UNKNOWN = ["#3a424c", "#5b6775"]; // these alternate, which is as near to hatching as a pixel comes

export interface Cell {
  kind: ComponentClass;
  index: number;
  column: number;
  from_s: number;
  to_s: number;
  /** Mean use meanwhile; null if it was not known, undefined if there was no frame. */
  use: number | null | undefined;
}

interface Band {
  kind: ComponentClass;
  metric: string;
  first: number; // first row
  count: number;
  canvas: HTMLCanvasElement;
  pen: CanvasRenderingContext2D;
}

function packed(colour: string): number {
  const part = (i: number) => parseInt(colour.slice(i, i + 2), 16);
  return ((0xff << 24) | (part(5) << 16) | (part(3) << 8) | part(1)) >>> 0;
}

export class Raster {
  private bands: Band[] = [];
  private rows = 0;
  private sums: Float64Array;
  private counts: Uint16Array;
  private seen = new Uint8Array(COLUMNS);
  private tick_s: number;
  private per = 1; // ticks per column
  private begin: number | null = null; // t_s of the first tick
  private last = -1; // newest column, counted from the first tick
  private painted = -1; // newest column that is complete on the canvas
  private drawnTo = -1; // newest column that is on the canvas
  private width = 0; // columns of the canvas
  private stale = true;
  private paintedAt = 0;
  private cursor: { row: number; column: number } | null = null;
  private marks: { now: HTMLElement; cell: HTMLElement };
  private colours: number[] = [];
  private low = 0;
  private high = 1;

  onCell: (cell: Cell) => void = () => {};
  onTime: (cell: Cell) => void = () => {};
  onLeave: () => void = () => {};

  constructor(
    private header: Header,
    private place: HTMLElement,
  ) {
    this.tick_s = header.period_s > 0 ? header.period_s : 1;
    if (header.live) this.per = Math.max(1, Math.ceil(LIVE_S / this.tick_s / COLUMNS));
    place.replaceChildren();
    for (const kind of CLASSES) {
      const count = header.components[kind]?.length ?? 0;
      const metric = useMetric(header, kind);
      if (!count || !header.metrics.some((m) => m.name === metric)) continue;
      const line = Object.assign(document.createElement("div"), { className: "band" });
      line.append(Object.assign(document.createElement("span"), { textContent: CLASS_NAMES[kind] }));
      const canvas = document.createElement("canvas");
      canvas.dataset["band"] = kind;
      line.append(canvas);
      place.append(line);
      // The CPU draws: single columns of pixels are not worth the round trip to a graphics card.
      const pen = canvas.getContext("2d", { willReadFrequently: true })!;
      this.bands.push({ kind, metric, first: this.rows, count, canvas, pen });
      this.rows += count;
    }
    const high = Math.min(9, Math.max(1, Math.floor(420 / Math.max(1, this.rows))));
    for (const band of this.bands) band.canvas.style.height = `${Math.max(16, high * band.count)}px`;
    this.sums = new Float64Array(COLUMNS * this.rows);
    this.counts = new Uint16Array(COLUMNS * this.rows);
    this.marks = { now: document.createElement("div"), cell: document.createElement("div") };
    this.marks.now.className = "now";
    this.marks.cell.className = "cell";
    place.append(this.marks.now, this.marks.cell);
    place.setAttribute(
      "aria-label",
      `use over time, a row for each of ${this.rows} components; arrow keys move and tell, Enter shows the map of that time`,
    );
    place.onpointermove = (event) => this.point(event, this.onCell);
    place.onclick = (event) => this.point(event, this.onTime);
    place.onpointerleave = () => this.onLeave();
    place.onkeydown = (event) => this.onKey(event);
    place.onfocus = () => this.moved();
    place.onblur = () => {
      this.marks.cell.hidden = true;
      this.onLeave();
    };
    this.marks.cell.hidden = this.marks.now.hidden = true;
  }

  get empty(): boolean {
    return this.rows === 0;
  }

  /** Adds a frame. This is cheap, so that a raster that is opened late contains the past. */
  add(frame: Frame): void {
    this.begin ??= frame.t_s;
    const tick = Math.round((frame.t_s - this.begin) / this.tick_s);
    let to = Math.floor(tick / this.per);
    if (!this.header.live)
      while (to >= COLUMNS) {
        this.halve();
        to = Math.floor(tick / this.per);
      }
    // A machine that was suspended has one frame for several ticks: the frame fills all of them.
    const first = Math.round((frame.t_s - frame.window_s - this.begin) / this.tick_s) + 1;
    const from = Math.min(to, Math.max(0, to - COLUMNS + 1, Math.floor(first / this.per)));
    for (let c = Math.max(this.last + 1, to - COLUMNS + 1); c <= to; c += 1) {
      const slot = c % COLUMNS;
      this.sums.fill(0, slot * this.rows, (slot + 1) * this.rows);
      this.counts.fill(0, slot * this.rows, (slot + 1) * this.rows);
      this.seen[slot] = 0;
    }
    this.last = Math.max(this.last, to);
    for (const { metric, first: row, count } of this.bands) {
      const values = frame.values[metric];
      for (let c = from; c <= to; c += 1) {
        const index = (c % COLUMNS) * this.rows + row;
        for (let i = 0; i < count; i += 1) {
          const v = values?.[i] ?? null;
          if (v === null || Number.isNaN(v)) continue;
          this.sums[index + i]! += v;
          this.counts[index + i]! += 1;
        }
      }
    }
    for (let c = from; c <= to; c += 1) this.seen[c % COLUMNS] = 1;
    this.painted = Math.min(this.painted, from - 1);
  }

  /** Doubles the number of ticks per column. */
  private halve(): void {
    for (let c = 0; c < COLUMNS / 2; c += 1) {
      for (let r = 0; r < this.rows; r += 1) {
        const [a, b] = [2 * c * this.rows + r, (2 * c + 1) * this.rows + r];
        this.sums[c * this.rows + r] = this.sums[a]! + this.sums[b]!;
        this.counts[c * this.rows + r] = this.counts[a]! + this.counts[b]!;
      }
      this.seen[c] = this.seen[2 * c]! | this.seen[2 * c + 1]!;
    }
    this.sums.fill(0, (COLUMNS / 2) * this.rows);
    this.counts.fill(0, (COLUMNS / 2) * this.rows);
    this.seen.fill(0, COLUMNS / 2);
    this.per *= 2;
    this.last = Math.floor(this.last / 2);
    this.stale = true;
  }

  /** Applies the palette and the range of the map. */
  paint(palette: string, low: number, high: number): void {
    this.colours = PALETTES[palette]!.map(packed);
    [this.low, this.high] = [low, high];
    this.stale = true;
  }

  /** Returns the first visible column. */
  private get left(): number {
    return Math.max(0, this.last - this.width + 1);
  }

  /** Draws what is new, and the line at the time that the map shows, aligned with the plot. Returns false if it must be called again. */
  show(now_s: number, span: [number, number] | null, clock = performance.now()): boolean {
    if (this.last < 0 || !this.bands.length || !this.colours.length) return true;
    let complete = true;
    // While a recording loads, each new column would redraw it, so it is redrawn only from time to time.
    let targetWidth = this.last + 1;
    if (this.header.live) for (targetWidth = 75; targetWidth < Math.min(COLUMNS, this.last + 1); ) targetWidth *= 2;
    targetWidth = Math.min(COLUMNS, targetWidth);
    if (targetWidth !== this.width) {
      if (this.header.live || clock - this.paintedAt >= 250) {
        this.width = targetWidth;
        for (const { canvas, count } of this.bands) [canvas.width, canvas.height] = [targetWidth, count];
        this.stale = true;
      } else {
        complete = false;
      }
    }
    if (this.width === 0) return complete;
    const previousLeft = Math.max(0, this.drawnTo - this.width + 1);
    const shift = this.left - previousLeft;
    if (this.stale || shift >= this.width) {
      this.columns(this.left, this.last);
      this.paintedAt = clock;
    } else {
      if (shift > 0)
        for (const { pen, canvas } of this.bands) {
          pen.globalCompositeOperation = "copy";
          pen.drawImage(canvas, -shift, 0);
        }
      if (this.painted < this.last) this.columns(Math.max(this.left, this.painted + 1), this.last);
    }
    this.stale = false;
    this.painted = this.drawnTo = this.last;
    if (span) {
      const parent = this.place.parentElement!;
      parent.style.setProperty("--left", `${span[0]}px`);
      parent.style.setProperty("--wide", `${span[1] - span[0]}px`);
    }
    const column = this.begin === null ? -1 : Math.floor(Math.round((now_s - this.begin) / this.tick_s) / this.per);
    this.marks.now.hidden = column < this.left || column > this.last;
    this.marks.now.style.setProperty("--at", String((column - this.left + 0.5) / this.width));
    return complete;
  }

  private columns(from: number, to: number): void {
    const wide = to - from + 1;
    const [dark, bright] = UNKNOWN.map(packed) as [number, number];
    for (const { pen, first, count } of this.bands) {
      const image = new ImageData(wide, count);
      const pixels = new Uint32Array(image.data.buffer);
      for (let c = 0; c < wide; c += 1) {
        const slot = (from + c) % COLUMNS;
        if (!this.seen[slot]) continue;
        for (let i = 0; i < count; i += 1) {
          const samples = this.counts[slot * this.rows + first + i]!;
          pixels[i * wide + c] = samples
            ? this.colours[stepOf(this.sums[slot * this.rows + first + i]! / samples, this.low, this.high)]!
            : (i + from + c) % 2
              ? dark
              : bright;
        }
      }
      pen.putImageData(image, from - this.left, 0);
    }
  }

  private cell(row: number, column: number): Cell | null {
    const band = this.bands.find((b) => row >= b.first && row < b.first + b.count);
    if (!band || this.begin === null || column < this.left || column > this.last) return null;
    const index = (column % COLUMNS) * this.rows + row;
    const samples = this.counts[index]!;
    const time = (c: number) => this.begin! + (c * this.per - 0.5) * this.tick_s;
    return {
      kind: band.kind, index: row - band.first, column, from_s: time(column), to_s: time(column + 1),
      use: samples ? this.sums[index]! / samples : this.seen[column % COLUMNS] ? null : undefined,
    };
  }

  /** Returns the times of both ends. */
  ends(): [number, number] | null {
    if (this.begin === null || !this.width) return null;
    const time = (c: number) => this.begin! + c * this.per * this.tick_s;
    return [time(this.left), time(this.left + this.width - 1)];
  }

  private point(event: MouseEvent, then: (cell: Cell) => void): void {
    const band = this.bands.find((b) => b.canvas === event.target);
    if (!band) return;
    const box = band.canvas.getBoundingClientRect();
    const row = band.first + Math.min(band.count - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * band.count)));
    const cell = this.cell(row, this.left + Math.floor(((event.clientX - box.left) / box.width) * this.width));
    if (!cell) return;
    this.cursor = { row, column: cell.column };
    then(cell);
  }

  private onKey(event: KeyboardEvent): void {
    const cursor = (this.cursor ??= { row: 0, column: this.last });
    const band = this.bands.findIndex((b) => cursor.row >= b.first && cursor.row < b.first + b.count);
    const go: Record<string, () => void> = {
      ArrowRight: () => (cursor.column += 1),
      ArrowLeft: () => (cursor.column -= 1),
      ArrowDown: () => (cursor.row += 1),
      ArrowUp: () => (cursor.row -= 1),
      PageDown: () => (cursor.row = this.bands[band + 1]?.first ?? cursor.row),
      PageUp: () => (cursor.row = this.bands[band - 1]?.first ?? 0),
      Home: () => (cursor.column = this.left),
      End: () => (cursor.column = this.last),
      Enter: () => this.tellCursor(this.onTime),
    };
    const action = go[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
    this.moved();
  }

  private moved(): void {
    const at = (this.cursor ??= { row: 0, column: this.last });
    at.row = Math.min(this.rows - 1, Math.max(0, at.row));
    at.column = Math.min(this.last, Math.max(this.left, at.column));
    const band = this.bands.find((b) => at.row >= b.first && at.row < b.first + b.count);
    const { cell } = this.marks;
    cell.hidden = !band || !this.place.matches(":focus-visible");
    if (band) {
      const high = band.canvas.offsetHeight / band.count;
      cell.style.top = `${band.canvas.offsetTop + (at.row - band.first + 0.5) * high}px`;
      cell.style.setProperty("--at", String((at.column - this.left + 0.5) / this.width));
    }
    this.tellCursor(this.onCell);
  }

  private tellCursor(then: (cell: Cell) => void): void {
    const cell = this.cursor && this.cell(this.cursor.row, this.cursor.column);
    if (cell) then(cell);
  }
}
