/** Zooms and pans the map by changing its view box: buttons, keys (+, -, 0), Ctrl and the wheel, and dragging. */

const MOST = 12; // maximum factor

export class Zoom {
  private factor = 1;
  private x = 0; // left and top of the visible part, in units of the map
  private y = 0;

  constructor(
    private svg: SVGSVGElement,
    private width: number,
    private height: number,
  ) {
    svg.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey) return; // a plain wheel scrolls the page
        event.preventDefault();
        const center = this.place(event.clientX, event.clientY);
        this.by(Math.exp(-event.deltaY / 300), center);
      },
      { passive: false },
    );
    svg.addEventListener("keydown", (event) => {
      const change = { "+": () => this.by(1.5), "=": () => this.by(1.5), "-": () => this.by(1 / 1.5), "0": () => this.fit() }[event.key];
      if (!change || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      change();
    });
    this.drags();
  }

  /** Zooms about a place of the map, by default the middle of the visible part. */
  by(change: number, about?: [number, number]): void {
    const [cx, cy] = about ?? [this.x + this.width / this.factor / 2, this.y + this.height / this.factor / 2];
    const factor = Math.min(MOST, Math.max(1, this.factor * change));
    this.x = cx - ((cx - this.x) * this.factor) / factor;
    this.y = cy - ((cy - this.y) * this.factor) / factor;
    this.factor = factor;
    this.apply();
  }

  fit(): void {
    [this.factor, this.x, this.y] = [1, 0, 0];
    this.apply();
  }

  /** Moves the visible part so that it contains a place. */
  reveal(x: number, y: number): void {
    const [w, h] = [this.width / this.factor, this.height / this.factor];
    if (x < this.x || x > this.x + w) this.x = x - w / 2;
    if (y < this.y || y > this.y + h) this.y = y - h / 2;
    this.apply();
  }

  private place(clientX: number, clientY: number): [number, number] {
    const box = this.svg.getBoundingClientRect();
    const [w, h] = [this.width / this.factor, this.height / this.factor];
    return [this.x + ((clientX - box.left) / box.width) * w, this.y + ((clientY - box.top) / box.height) * h];
  }

  private drags(): void {
    let dragStart: { at: [number, number]; x: number; y: number } | null = null;
    this.svg.addEventListener("pointerdown", (event) => {
      if (this.factor > 1) dragStart = { at: [event.clientX, event.clientY], x: this.x, y: this.y };
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (!dragStart || !(event.buttons & 1)) return;
      const box = this.svg.getBoundingClientRect();
      this.x = dragStart.x - ((event.clientX - dragStart.at[0]) / box.width) * (this.width / this.factor);
      this.y = dragStart.y - ((event.clientY - dragStart.at[1]) / box.height) * (this.height / this.factor);
      this.apply();
    });
    for (const end of ["pointerup", "pointerleave"] as const) this.svg.addEventListener(end, () => (dragStart = null));
  }

  private apply(): void {
    const [w, h] = [this.width / this.factor, this.height / this.factor];
    this.x = Math.min(this.width - w, Math.max(0, this.x));
    this.y = Math.min(this.height - h, Math.max(0, this.y));
    this.svg.setAttribute("viewBox", `${this.x} ${this.y} ${w} ${h}`);
    this.svg.classList.toggle("zoomed", this.factor > 1);
  }
}
