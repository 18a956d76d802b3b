/** The live map: one page for a live machine, a recording and a simulated machine. */

import { ChangeView } from "./change";
import { get, keep, recall, tableRow, timeText } from "./dom";
import { useText, whatIsFull } from "./full";
import type { Look } from "./map";
import { MeshMap, percent } from "./map";
import { unpack } from "./packed";
import { PALETTES, STEPS, inkOn, stepOf } from "./palette";
import { TimePlot } from "./plot";
import type { Cell } from "./raster";
import { Raster } from "./raster";
import { countsStalls, rates, stalledShare } from "./rates";
import "./style.css";
import type { ComponentClass, Frame, Header } from "./types";
import { CLASSES, isEstimated, useMetric, valueOf } from "./types";

const KEPT = 36_000; // frames: an hour at 10 frames per second

class Page {
  private header: Header | null = null;
  private frames: Frame[] = [];
  private map: MeshMap | null = null;
  private plot: TimePlot | null = null;
  private raster: Raster | null = null;
  private bounds: [number, number] = [0, 1];
  private estimated = new Set<ComponentClass>();
  private at = -1; // number of the frame that is shown
  private follows = true; // shows the newest frame
  private plays = false; // a recording is playing
  private hovered: { kind: ComponentClass; index: number } | null = null;
  private toldCell: Cell | null = null; // the cell of the raster that is pointed at
  private dirty = false;
  private viewed = false;
  private playedFrom = { wall: 0, t: 0 };
  private cost = { cpu_s: 0, elapsed_s: 0 }; // of the sampler, in all frames that arrived

  constructor() {
    const palette = get<HTMLSelectElement>("palette");
    for (const name of Object.keys(PALETTES)) palette.add(new Option(name, name));
    palette.value = recall("palette") ?? "inferno";
    if (!PALETTES[palette.value]) palette.value = "inferno";
    palette.addEventListener("change", () => {
      keep("palette", palette.value);
      this.paint();
    });
    for (const id of ["low", "high"]) get(id).addEventListener("input", () => this.paint());
    get("narrow").addEventListener("click", () => this.range(1, 10));
    get("full").addEventListener("click", () => this.range(0, 100));
    get<HTMLInputElement>("numbers").addEventListener("change", () => this.paint());
    get("closer").addEventListener("click", () => this.map?.zoom.by(1.5));
    get("farther").addEventListener("click", () => this.map?.zoom.by(1 / 1.5));
    get("fit").addEventListener("click", () => this.map?.zoom.fit());
    get("play").addEventListener("click", () => this.toggle());
    get("back").addEventListener("click", () => this.jump(this.at - 1));
    get("on").addEventListener("click", () => this.jump(this.at + 1));
    get<HTMLInputElement>("scrubber").addEventListener("input", (e) => this.jump(Number((e.target as HTMLInputElement).value)));
    get<HTMLSelectElement>("speed").addEventListener("change", () => this.beginPlay());
    const raster = get<HTMLDetailsElement>("raster");
    raster.open = recall("raster") === "open";
    raster.addEventListener("toggle", () => {
      keep("raster", raster.open ? "open" : "closed");
      this.dirty = true;
    });
    this.paint();
    const tick = () => {
      this.draw();
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  // ---------------------------------------------------------------- colours

  private range(low: number, high: number): void {
    get<HTMLInputElement>("low").value = String(low);
    get<HTMLInputElement>("high").value = String(high);
    this.paint();
  }

  /** Applies the colours that the command requested; not again when the stream starts anew, since the reader may have changed them. */
  private view({ view }: Header): void {
    if (!view || this.viewed) return;
    this.viewed = true;
    for (const id of ["low", "high"] as const) if (Number.isFinite(view[id])) get<HTMLInputElement>(id).value = String(view[id]);
    if (view.palette && Object.hasOwn(PALETTES, view.palette)) get<HTMLSelectElement>("palette").value = view.palette;
  }

  /** Applies the palette and the range to the page and to the scale beside the map. */
  private paint(): void {
    if (this.header?.change) return; // a comparison has its own colours
    const colours = PALETTES[get<HTMLSelectElement>("palette").value]!;
    const lowField = get<HTMLInputElement>("low");
    const highField = get<HTMLInputElement>("high");
    let [low, high] = [Number(lowField.value), Number(highField.value)];
    const valid = Number.isFinite(low) && Number.isFinite(high) && low >= 0 && high <= 100 && low < high;
    lowField.setAttribute("aria-invalid", String(!valid));
    highField.setAttribute("aria-invalid", String(!valid));
    if (!valid) [low, high] = [0, 100];
    const scale = get("scale");
    scale.replaceChildren();
    colours.forEach((colour, i) => {
      document.documentElement.style.setProperty(`--s${i}`, colour);
      document.documentElement.style.setProperty(`--i${i}`, inkOn(colour));
      const item = document.createElement("li");
      const start = low + ((high - low) * i) / STEPS;
      item.className = `swatch s${i}`;
      item.textContent = start % 1 === 0 ? String(start) : start.toFixed(1);
      scale.append(item);
    });
    const end = document.createElement("li");
    end.className = "bound";
    end.textContent = `${high} %`;
    const unknown = document.createElement("li");
    unknown.className = "key hatched";
    unknown.textContent = "not known";
    scale.append(end, unknown);
    if (this.estimated.size) {
      const likely = document.createElement("li");
      likely.className = "key dashed";
      likely.textContent = "estimated";
      scale.append(likely);
    }
    if (this.header && countsStalls(this.header)) {
      const stalls = document.createElement("li");
      stalls.className = "key barred";
      stalls.textContent = "share of cycles in which the CPU is stalled";
      scale.append(stalls);
    }
    this.bounds = [low / 100, high / 100];
    if (this.map) this.map.numbers = get<HTMLInputElement>("numbers").checked;
    this.raster?.paint(get<HTMLSelectElement>("palette").value, ...this.bounds);
    this.dirty = true;
  }

  // ---------------------------------------------------------------- the stream

  begin(header: Header): void {
    this.header = header;
    this.frames = [];
    this.cost = { cpu_s: 0, elapsed_s: 0 };
    this.at = -1;
    this.follows = header.live;
    this.plays = !header.live;
    document.title = `${header.machine} – Meshmark`;
    get("machine").textContent = header.title ?? header.machine;
    const source = header.source === "host" && !header.live ? "recording" : header.source;
    const shownSource = { host: "this machine", model: "simulated", recording: "recorded" }[source] ?? source;
    // The load of a simulated CPU is not time, as on a host.
    const cpu = header.source === "model" ? header.metrics.find((m) => m.name === useMetric(header, "cpu")) : undefined;
    get("source").textContent = cpu ? `${shownSource}; CPUs: ${cpu.what}` : shownSource;
    this.estimated = new Set(CLASSES.filter((kind) => isEstimated(header, kind)));
    this.map = new MeshMap(header, get("map"));
    get<HTMLInputElement>("numbers").checked = header.map.roomy === true && !header.change;
    this.absent(header);
    if (header.change) return;
    this.view(header);
    this.map.onHover = (kind, index) => {
      this.toldCell = null;
      this.choose(kind, index);
    };
    get("plot").replaceChildren();
    this.plot = new TimePlot(header, get("plot"), (t_s) => this.jumpTo(t_s));
    this.raster = new Raster(header, get("rows"));
    this.raster.onCell = (cell) => {
      this.toldCell = cell;
      this.choose(cell.kind, cell.index);
    };
    this.raster.onTime = (cell) => {
      this.jumpTo(cell.to_s);
      this.toldCell = cell;
    };
    this.raster.onLeave = () => {
      this.toldCell = null;
      this.dirty = true;
    };
    get("raster").hidden = this.raster.empty;
    whatIsFull(header, get("full-use"));
    const thinned = get("thinned");
    thinned.hidden = !header.thinned;
    if (header.thinned)
      thinned.textContent = `The recording has ${header.thinned.frames} frames, too many for one page: each frame here is the mean of ${header.thinned.by}.`;
    get("play").textContent = header.live || this.plays ? "pause" : "play";
    this.paint();
    this.beginPlay();
  }

  private choose(kind: ComponentClass, index: number): void {
    this.hovered = { kind, index };
    this.plot?.choose(kind, index);
    this.dirty = true;
  }

  private absent(header: Header): void {
    const absent = get("absent");
    absent.hidden = header.absent.length === 0;
    absent.querySelector("ul")!.replaceChildren(
      ...header.absent.map((a) => {
        const item = document.createElement("li");
        const name = document.createElement("code");
        name.textContent = a.metric;
        item.append(name, ` ${a.why}${a.hint ? `; ${a.hint}` : ""}`);
        return item;
      }),
    );
  }

  /** Compares two recordings: shows a map of changes, without time. */
  compare(): void {
    new ChangeView(this.header!, this.map!);
  }

  add(frame: Frame): void {
    this.frames.push(frame);
    this.cost.cpu_s += frame.cost_s ?? 0;
    this.cost.elapsed_s += frame.window_s;
    this.raster?.add(frame);
    if (this.frames.length > KEPT) {
      this.frames.shift();
      if (!this.follows) this.at = Math.max(0, this.at - 1);
    }
    if (this.follows) this.at = this.frames.length - 1;
    this.dirty = true;
  }

  state(text: string): void {
    get("state").textContent = text;
  }

  // ---------------------------------------------------------------- time

  private toggle(): void {
    if (this.header?.live) this.follows = !this.follows;
    else this.plays = !this.plays;
    if (this.follows) this.at = this.frames.length - 1;
    get("play").textContent = (this.header?.live ? this.follows : this.plays) ? "pause" : "play";
    if (this.plays && this.at >= this.frames.length - 1) this.at = 0;
    this.beginPlay();
    this.dirty = true;
  }

  private jump(to: number): void {
    this.follows = false;
    this.plays = false;
    get("play").textContent = "play";
    this.at = Math.min(this.frames.length - 1, Math.max(0, to));
    this.dirty = true;
  }

  /** Jumps to the last frame that had ended by a time. */
  private jumpTo(t_s: number): void {
    let [low, high] = [0, this.frames.length - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.frames[middle]!.t_s <= t_s) low = middle;
      else high = middle - 1;
    }
    this.jump(low);
  }

  private beginPlay(): void {
    this.playedFrom = { wall: performance.now(), t: this.frames[Math.max(0, this.at)]?.t_s ?? 0 };
  }

  /** Advances a recording that is playing. A model's microseconds are played a million times slower. */
  private advance(): void {
    if (!this.plays || !this.header || this.frames.length === 0) return;
    const stretch = this.header.period_s < 1e-3 ? (4 * this.header.period_s) / 1 : 1;
    const speed = Number(get<HTMLSelectElement>("speed").value) * stretch;
    const t = this.playedFrom.t + ((performance.now() - this.playedFrom.wall) / 1000) * speed;
    let at = Math.max(0, this.at);
    while (at + 1 < this.frames.length && this.frames[at + 1]!.t_s <= t) at += 1;
    if (at !== this.at) {
      this.at = at;
      this.dirty = true;
    }
    if (at === this.frames.length - 1 && (this.header.frames === undefined || this.frames.length >= this.header.frames)) {
      this.plays = false;
      get("play").textContent = "play";
    }
  }

  private draw(): void {
    this.advance();
    if (!this.dirty || !this.map || !this.header || this.header.change) return;
    this.dirty = false;
    const frame = this.frames[this.at];
    this.map.show((kind, index) => this.look(frame, kind, index));
    this.spots(frame);
    this.processes(frame);
    this.showCost();
    const scrubber = get<HTMLInputElement>("scrubber");
    scrubber.max = String(Math.max(0, this.frames.length - 1));
    scrubber.value = String(Math.max(0, this.at));
    (window as { meshmarkAt?: number }).meshmarkAt = frame?.at ?? 0; // for programs that measure the page
    get("clock").textContent = frame ? this.clock(frame) : "–";
    this.plot?.show(this.frames);
    if (this.raster && get<HTMLDetailsElement>("raster").open) {
      if (!this.raster.show(frame?.t_s ?? -1, this.plot?.span() ?? null)) this.dirty = true;
      const ends = this.raster.ends();
      ["ends-from", "ends-to"].forEach((id, i) => {
        const text = ends ? timeText(ends[i]!, this.header!.period_s) : "";
        if (get(id).textContent !== text) get(id).textContent = text;
      });
    }
    this.tell(frame);
  }

  private look(frame: Frame | undefined, kind: ComponentClass, index: number): Look {
    const share = valueOf(frame, useMetric(this.header!, kind), index);
    const likely = this.estimated.has(kind) && share !== null;
    const text = `${likely ? "~" : ""}${percent(share)}`;
    const detail = this.map!.numbers ? rates(this.header!, frame, kind, index) : "";
    const stalled = kind === "cpu" ? stalledShare(frame, index) : null;
    return { step: stepOf(share, ...this.bounds), text, detail, mark: likely ? "estimated" : "", stalled };
  }

  /** States the CPU time of the sampler, on average over all frames that arrived. */
  private showCost(): void {
    const cpus = this.header!.components["cpu"]?.length ?? 0;
    const { cpu_s, elapsed_s } = this.cost;
    const footer = get("cost");
    footer.hidden = !(cpu_s > 0 && elapsed_s > 0 && cpus > 0);
    if (footer.hidden) return;
    const share = (100 * cpu_s) / (elapsed_s * cpus);
    const text = `The sampler used ${share.toFixed(share < 0.1 ? 3 : share < 1 ? 2 : 1)} % of ${cpus} ${cpus === 1 ? "CPU" : "CPUs"}.`;
    if (footer.textContent !== text) footer.textContent = text;
  }

  /** Lists the busy processes, where they ran, and where their memory lies. */
  private processes(frame: Frame | undefined): void {
    const entries = frame?.processes ?? [];
    const place = get("processes");
    const key = JSON.stringify(entries);
    if (place.dataset["key"] === key) return;
    place.dataset["key"] = key;
    place.hidden = entries.length === 0;
    const nodes = Math.max(0, ...entries.map((p) => p.nodes?.length ?? 0));
    const bytes = (b: number) => (b >= 2 ** 30 ? `${(b / 2 ** 30).toFixed(1)} GiB` : `${(b / 2 ** 20).toFixed(0)} MiB`);
    const names = Array.from({ length: nodes }, (_, n) => `on node ${n}`);
    place.querySelector("thead")!.replaceChildren(
      tableRow(["process", "pid", "CPU (%)", "threads", "last on CPU", "memory", ...names], "column"),
    );
    place.querySelector("tbody")!.replaceChildren(
      ...entries.map((p) =>
        tableRow(
          [p.name, String(p.pid), (100 * p.cpu).toFixed(0), String(p.threads), String(p.on), bytes(p.rss),
            ...names.map((_, n) => (p.nodes ? bytes(p.nodes[n] ?? 0) : "–"))],
          "row",
        ),
      ),
    );
  }

  /** Lists the hot spots, with cause and remedy, and marks them on the map. */
  private spots(frame: Frame | undefined): void {
    const spots = frame?.spots ?? [];
    const text = spots.map((s) => s.text).join("\n");
    const list = get("spots");
    if (list.dataset["text"] === text) return;
    list.dataset["text"] = text;
    list.replaceChildren(
      ...spots.map((s) => {
        const item = document.createElement("li");
        item.textContent = s.text;
        return item;
      }),
    );
    this.map!.mark(spots.flatMap((s) => s.components.map((i) => `${s.class}:${i}`)));
  }

  private clock(frame: Frame): string {
    const { period_s } = this.header!;
    const at = frame.at ?? 0; // a model has no clock
    const wall = at > 0 && period_s >= 1e-3 ? new Date(1000 * at).toLocaleTimeString() : "";
    return `${timeText(frame.t_s, period_s)} ${wall}`.trim();
  }

  /** Updates the line under the map: the component that is pointed at, and the reason if its use is not known. */
  private tell(frame: Frame | undefined): void {
    if (!this.hovered || !this.map || !this.header) return;
    const { kind, index } = this.hovered;
    const name = this.map.nameOf(kind, index);
    const share = this.toldCell ? this.toldCell.use : valueOf(frame, useMetric(this.header, kind), index);
    const use = share === null || share === undefined ? `not known: ${this.why(kind, index)}` : "";
    const absolute = rates(this.header, frame, kind, index);
    let text = `${name}: ${use || useText(this.header, frame, kind, index, share!)}${absolute ? `; ${absolute}` : ""}`;
    if (this.toldCell) {
      const { from_s, to_s } = this.toldCell;
      const { period_s } = this.header;
      const end = timeText(to_s - period_s / 2, period_s);
      const when = to_s - from_s > 1.5 * period_s ? `${timeText(from_s + period_s / 2, period_s)} to ${end}` : end;
      const likely = this.estimated.has(kind) ? "~" : "";
      text = `${name} at ${when}: ${share === undefined ? "no frame" : use || `${likely}${percent(share!)} %`}`;
    }
    const field = get("told");
    if (field.textContent !== text) field.textContent = text;
    if (!this.toldCell) this.map.label(kind, index, text);
  }

  private why(kind: ComponentClass, index: number): string {
    const name = this.header!.components[kind]?.[index]?.name;
    const metric = useMetric(this.header!, kind);
    const absence =
      this.header!.absent.find((a) => a.metric === `${metric}:${name}`) ??
      this.header!.absent.find((a) => a.metric === metric || a.metric === kind);
    return absence?.why ?? (this.header!.metrics.some((m) => m.name === metric) ? "not known at this tick" : "no source says it");
  }
}

const counted = (frames: number) => `${frames} frame${frames === 1 ? "" : "s"}`;

/** Adds the frames that are in the page itself. */
async function inside(page: Page, text: string): Promise<void> {
  const { header, frames } = await unpack(text);
  page.begin(header);
  if (header.change) {
    page.compare();
  } else {
    for (let i = 0; i < frames.length; i += 1) {
      page.add(frames[i]!);
      if (i % 500 === 499) await new Promise((resolve) => setTimeout(resolve, 0)); // so that the page responds meanwhile
    }
  }
  page.state(header.change ? "two recordings" : counted(frames.length));
}

async function past(page: Page, header: Header): Promise<void> {
  let begin = 0;
  for (;;) {
    const answer = await fetch(`api/past?begin=${begin}&count=600`);
    if (!answer.ok) throw new Error(`${answer.status}`);
    const frames = (await answer.json()) as Frame[];
    for (const frame of frames) page.add(frame);
    begin += frames.length;
    if (frames.length === 0 || begin >= KEPT) break;
  }
  page.state(counted(header.frames ?? begin));
}

function live(page: Page): void {
  const source = new EventSource("api/frames");
  source.addEventListener("header", (e) => {
    page.begin(JSON.parse((e as MessageEvent<string>).data) as Header);
    page.state("live");
  });
  source.addEventListener("frame", (e) => page.add(JSON.parse((e as MessageEvent<string>).data) as Frame));
  source.addEventListener("end", (e) => {
    page.state((JSON.parse((e as MessageEvent<string>).data) as { why: string }).why);
    source.close();
  });
  // The browser reconnects by itself; a new header starts the page anew.
  source.onerror = () => page.state(source.readyState === EventSource.CLOSED ? "the server is gone" : "reconnecting");
}

/** On pages below the front page of `meshmark serve`, shows the link back to it. */
function showHome(): void {
  const below = /^(.*\/)(?:live|node\/[^/]+|recording\/[^/]+|model\/[^/]+\/[^/]+)\/$/.exec(location.pathname);
  if (!below || location.protocol === "file:") return;
  const home = get<HTMLAnchorElement>("home");
  home.href = below[1]!;
  home.hidden = false;
}

async function main(): Promise<void> {
  const page = new Page();
  showHome();
  const data = document.getElementById("data");
  if (data) {
    try {
      await inside(page, data.textContent ?? "");
    } catch (why) {
      page.state(`this page cannot be unpacked here: ${why instanceof Error ? why.message : String(why)}`);
    }
    return;
  }
  try {
    const header = (await (await fetch("api/header")).json()) as Header;
    if (header.live) {
      live(page);
    } else if (header.change) {
      page.begin(header);
      page.compare();
      page.state("two recordings");
    } else {
      page.begin(header);
      await past(page, header);
    }
  } catch {
    page.state("the server does not answer");
  }
}

void main();
