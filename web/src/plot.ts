/** Plots use over time: the mean of each class, and the component that is pointed at. */

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import type { ComponentClass, Frame, Header } from "./types";
import { CLASSES, CLASS_NAMES, useMetric, valueOf } from "./types";

const COLOURS: Record<ComponentClass, string> = { cpu: "#0072b2", memory: "#009e73", link: "#d55e00", io: "#cc79a7" };

function mean(values: ArrayLike<number | null> | undefined): number | null {
  let sum = 0;
  let count = 0;
  for (let i = 0; i < (values?.length ?? 0); i += 1) {
    const v = values![i] ?? null;
    if (v !== null && !Number.isNaN(v)) (sum += v), (count += 1);
  }
  return count ? (100 * sum) / count : null;
}

export class TimePlot {
  private plot: uPlot;
  private classes: ComponentClass[];
  private chosen: { kind: ComponentClass; index: number } | null = null;
  private last = 0;

  constructor(
    private header: Header,
    private place: HTMLElement,
    onTime: (t_s: number) => void,
  ) {
    this.classes = CLASSES.filter((c) => header.components[c]?.length && header.metrics.some((m) => m.name === useMetric(header, c)));
    const ink = getComputedStyle(document.body).color;
    const axis = { stroke: ink, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8884", width: 1 } };
    const small = header.period_s < 1e-3; // a model's time is in microseconds
    const unit = small ? 1e6 : 1;
    this.scale = unit;
    this.plot = new uPlot(
      {
        width: Math.max(280, place.clientWidth),
        height: 170,
        scales: { x: { time: false }, y: { range: [0, 100] } },
        legend: { live: true },
        cursor: { drag: { x: false, y: false } },
        axes: [
          { ...axis, label: small ? "µs" : "s", labelSize: 18, labelFont: "12px system-ui" },
          { ...axis, values: (_, ticks) => ticks.map((t) => `${t} %`), size: 58 },
        ],
        series: [
          { label: small ? "µs" : "s" },
          ...this.classes.map((c) => ({
            label: `${CLASS_NAMES[c]}, mean`,
            stroke: COLOURS[c],
            width: 1.5,
            spanGaps: false,
            points: { show: false },
            value: (_: uPlot, v: number | null) => (v === null || v === undefined ? "–" : `${v.toFixed(1)} %`),
          })),
          {
            label: "pointed at",
            stroke: ink,
            width: 1,
            dash: [4, 3],
            points: { show: false },
            value: (_: uPlot, v: number | null) => (v === null || v === undefined ? "–" : `${v.toFixed(1)} %`),
          },
        ],
      },
      [[], ...this.classes.map(() => []), []],
      place,
    );
    this.plot.over.addEventListener("click", () => {
      const index = this.plot.cursor.idx;
      const t = index === null || index === undefined ? undefined : this.plot.data[0][index];
      if (t !== undefined) onTime((t + 1e-6) / this.scale); // not just before it, because of rounding
    });
    new ResizeObserver(() => this.plot.setSize({ width: Math.max(280, place.clientWidth), height: 170 })).observe(place);
  }

  private scale: number;

  /** Returns where the plot begins and ends, in pixels from the left of its place, so that the raster below can align with it. */
  span(): [number, number] {
    const left = this.plot.over.offsetLeft;
    return [left, left + this.plot.over.offsetWidth];
  }

  choose(kind: ComponentClass, index: number): void {
    this.chosen = { kind, index };
    this.last = 0;
  }

  /** Draws at most four times a second, which is enough for a plot. */
  show(frames: Frame[], now = performance.now()): void {
    if (now - this.last < 250) return;
    this.last = now;
    const stride = Math.max(1, Math.ceil(frames.length / Math.max(200, 2 * this.place.clientWidth)));
    const samples = stride === 1 ? frames : frames.filter((_, i) => i % stride === 0);
    const chosen = this.chosen;
    this.plot.setData([
      samples.map((f) => f.t_s * this.scale),
      ...this.classes.map((c) => samples.map((f) => mean(f.values[useMetric(this.header, c)]))),
      samples.map((f) => {
        const share = chosen ? valueOf(f, useMetric(this.header, chosen.kind), chosen.index) : null;
        return share === null ? null : 100 * share;
      }),
    ]);
  }
}
