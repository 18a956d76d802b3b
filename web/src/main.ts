/** The live map: one page for a live machine, a recording and a simulated machine. */

import { MeshMap, percent } from "./map";
import { PALETTES, STEPS, inkOn } from "./palette";
import { TimePlot } from "./plot";
import "./style.css";
import type { ComponentClass, Frame, Header } from "./types";
import { useOf } from "./types";

const KEPT = 36_000; // frames: an hour at 10 a second
const get = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

class Page {
  private header: Header | null = null;
  private frames: Frame[] = [];
  private map: MeshMap | null = null;
  private plot: TimePlot | null = null;
  private at = -1; // number of the frame that is shown
  private follows = true; // shows the newest
  private plays = false; // of a recording
  private told: { kind: ComponentClass; index: number } | null = null;
  private dirty = false;
  private playedFrom = { wall: 0, t: 0 };

  constructor() {
    const palette = get<HTMLSelectElement>("palette");
    for (const name of Object.keys(PALETTES)) palette.add(new Option(name, name));
    palette.value = localStorage.getItem("palette") ?? "inferno";
    if (!PALETTES[palette.value]) palette.value = "inferno";
    palette.addEventListener("change", () => {
      localStorage.setItem("palette", palette.value);
      this.paint();
    });
    for (const id of ["low", "high"]) get(id).addEventListener("input", () => this.paint());
    get("narrow").addEventListener("click", () => this.range(1, 10));
    get("full").addEventListener("click", () => this.range(0, 100));
    get<HTMLInputElement>("numbers").addEventListener("change", () => this.paint());
    get("play").addEventListener("click", () => this.toggle());
    get("back").addEventListener("click", () => this.jump(this.at - 1));
    get("on").addEventListener("click", () => this.jump(this.at + 1));
    get<HTMLInputElement>("scrubber").addEventListener("input", (e) => this.jump(Number((e.target as HTMLInputElement).value)));
    get<HTMLSelectElement>("speed").addEventListener("change", () => this.beginPlay());
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

  /** The palette and the range, on the page and in the scale beside the map. */
  private paint(): void {
    const colours = PALETTES[get<HTMLSelectElement>("palette").value]!;
    const lowField = get<HTMLInputElement>("low");
    const highField = get<HTMLInputElement>("high");
    let [low, high] = [Number(lowField.value), Number(highField.value)];
    const right = Number.isFinite(low) && Number.isFinite(high) && low >= 0 && high <= 100 && low < high;
    lowField.setAttribute("aria-invalid", String(!right));
    highField.setAttribute("aria-invalid", String(!right));
    if (!right) [low, high] = [0, 100];
    const scale = get("scale");
    scale.replaceChildren();
    colours.forEach((colour, i) => {
      document.documentElement.style.setProperty(`--s${i}`, colour);
      document.documentElement.style.setProperty(`--i${i}`, inkOn(colour));
      const item = document.createElement("li");
      const from = low + ((high - low) * i) / STEPS;
      item.className = `swatch s${i}`;
      item.textContent = from % 1 === 0 ? String(from) : from.toFixed(1);
      scale.append(item);
    });
    const end = document.createElement("li");
    end.className = "bound";
    end.textContent = `${high} %`;
    const unknown = document.createElement("li");
    unknown.className = "swatch hatched";
    unknown.textContent = "not known";
    scale.append(end, unknown);
    if (this.map) {
      this.map.low = low / 100;
      this.map.high = high / 100;
      this.map.numbers = get<HTMLInputElement>("numbers").checked;
    }
    this.dirty = true;
  }

  // ---------------------------------------------------------------- the stream

  begin(header: Header): void {
    this.header = header;
    this.frames = [];
    this.at = -1;
    this.follows = header.live;
    this.plays = !header.live;
    document.title = `${header.machine} – Meshmark`;
    get("machine").textContent = header.title ?? header.machine;
    get("source").textContent = { host: "this machine", model: "simulated", recording: "recorded" }[header.source] ?? header.source;
    this.map = new MeshMap(header, get("map"));
    this.map.onTold = (kind, index) => {
      this.told = { kind, index };
      this.plot?.choose(kind, index);
      this.dirty = true;
    };
    get("plot").replaceChildren();
    this.plot = new TimePlot(header, get("plot"), (at) => this.jump(at));
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
    get("play").textContent = header.live || this.plays ? "pause" : "play";
    this.paint();
    this.beginPlay();
  }

  add(frame: Frame): void {
    this.frames.push(frame);
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

  private beginPlay(): void {
    this.playedFrom = { wall: performance.now(), t: this.frames[Math.max(0, this.at)]?.t_s ?? 0 };
  }

  /** Where a recording has come to. A model's microseconds are played a million times slower. */
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
    if (!this.dirty || !this.map || !this.header) return;
    this.dirty = false;
    const frame = this.frames[this.at];
    this.map.show(frame);
    this.spots(frame);
    this.processes(frame);
    const scrubber = get<HTMLInputElement>("scrubber");
    scrubber.max = String(Math.max(0, this.frames.length - 1));
    scrubber.value = String(Math.max(0, this.at));
    (window as { meshmarkAt?: number }).meshmarkAt = frame?.at ?? 0; // for those who measure the page
    get("clock").textContent = frame ? this.clock(frame) : "–";
    this.plot?.show(this.frames);
    this.tell(frame);
  }

  /** Who is busy, where it ran, and where its memory lies. */
  private processes(frame: Frame | undefined): void {
    const found = frame?.processes ?? [];
    const place = get("processes");
    const key = JSON.stringify(found);
    if (place.dataset["key"] === key) return;
    place.dataset["key"] = key;
    place.hidden = found.length === 0;
    const nodes = Math.max(0, ...found.map((p) => p.nodes?.length ?? 0));
    const row = (cells: string[], kind: "td" | "th") => {
      const line = document.createElement("tr");
      for (const text of cells) line.append(Object.assign(document.createElement(kind), { textContent: text }));
      return line;
    };
    const bytes = (b: number) => (b >= 2 ** 30 ? `${(b / 2 ** 30).toFixed(1)} GiB` : `${(b / 2 ** 20).toFixed(0)} MiB`);
    const names = Array.from({ length: nodes }, (_, n) => `on node ${n}`);
    place.querySelector("thead")!.replaceChildren(row(["process", "pid", "CPU (%)", "threads", "last on CPU", "memory", ...names], "th"));
    place.querySelector("tbody")!.replaceChildren(
      ...found.map((p) =>
        row(
          [p.name, String(p.pid), (100 * p.cpu).toFixed(0), String(p.threads), String(p.on), bytes(p.rss),
            ...names.map((_, n) => (p.nodes ? bytes(p.nodes[n] ?? 0) : "–"))],
          "td",
        ),
      ),
    );
  }

  /** What is hot, why, and what helps; and a ring round it on the map. */
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
    if (this.header!.period_s < 1e-3) return `${(1e6 * frame.t_s).toFixed(1)} µs`;
    const wall = frame.at > 0 ? new Date(1000 * frame.at).toLocaleTimeString() : "";
    return `${frame.t_s.toFixed(1)} s ${wall}`.trim();
  }

  /** The line under the map: what is pointed at, and why it is not known where it is not. */
  private tell(frame: Frame | undefined): void {
    if (!this.told || !this.map || !this.header) return;
    const { kind, index } = this.told;
    const name = this.map.nameOf(kind, index);
    const share = useOf(frame, kind, index);
    const metric = this.header.metrics.find((m) => m.name === `${kind}.busy`);
    const text =
      share === null
        ? `${name}: not known: ${this.why(kind, index)}`
        : `${name}: ${percent(share)} % (${metric?.what ?? "in use"})`;
    const told = get("told");
    if (told.textContent !== text) told.textContent = text;
    this.map.label(kind, index, text);
  }

  private why(kind: ComponentClass, index: number): string {
    const name = this.header!.components[kind]?.[index]?.name;
    const said =
      this.header!.absent.find((a) => a.metric === `${kind}.busy:${name}`) ??
      this.header!.absent.find((a) => a.metric === `${kind}.busy` || a.metric === kind);
    return said?.why ?? "no source says it";
  }
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
  page.state(`${header.frames ?? begin} frames`);
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
  // The browser comes back by itself; a new header begins anew.
  source.onerror = () => page.state(source.readyState === EventSource.CLOSED ? "the server is gone" : "reconnecting");
}

async function main(): Promise<void> {
  const page = new Page();
  try {
    const header = (await (await fetch("api/header")).json()) as Header;
    if (header.live) {
      live(page);
    } else {
      page.begin(header);
      await past(page, header);
    }
  } catch {
    page.state("the server does not answer");
  }
}

void main();
