/** A recording inside the page itself, so that one file opens without a server; page.py packs it. */

import type { Finding, Frame, Header, Process } from "./types";

interface Said {
  header: Header;
  t_s: number[];
  window_s: number[];
  at: number[];
  /** Number of the frame from which on a list holds, and the list. */
  processes: [number, Process[]][];
  spots: [number, Finding[]][];
  /** In the order of the numbers that follow; each of so many components. */
  metrics: { name: string; count: number }[];
}

class Packed implements Frame {
  readonly cost_s = 0;
  readonly dropped = 0;

  constructor(
    readonly seq: number,
    readonly t_s: number,
    readonly window_s: number,
    readonly at: number,
    readonly processes: Process[],
    readonly spots: Finding[],
    private tables: Map<string, [Float64Array, number]>,
  ) {}

  /** Views into the tables, made when they are asked for: a frame that is not shown takes no room. */
  get values(): Frame["values"] {
    const made: Frame["values"] = {};
    for (const [name, [table, count]] of this.tables) made[name] = table.subarray(this.seq * count, (this.seq + 1) * count);
    return made;
  }
}

/** Thousandths, one component after the other, as steps from the number before, low bytes first; 0 is not known. */
function table(bytes: Uint8Array, at: number, count: number, frames: number): Float64Array {
  const made = new Float64Array(count * frames);
  const high = at + count * frames;
  let from = 0;
  for (let c = 0; c < count; c += 1) {
    let value = 0;
    for (let t = 0; t < frames; t += 1, from += 1) {
      const step = bytes[at + from]! | (bytes[high + from]! << 8);
      value = (value + ((step >>> 1) ^ -(step & 1))) & 0xffff;
      made[t * count + c] = value === 0 ? NaN : (value - 1) / 1000;
    }
  }
  return made;
}

const breath = () => new Promise((done) => setTimeout(done, 0));

/** The header and the frames that the text holds. */
export async function unpack(text: string): Promise<{ header: Header; frames: Frame[] }> {
  const raw = atob(text.trim());
  const packed = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) packed[i] = raw.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const begin = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const said = JSON.parse(new TextDecoder().decode(bytes.subarray(4, begin))) as Said;
  const frames = said.t_s.length;
  const tables = new Map<string, [Float64Array, number]>();
  let at = begin;
  for (const { name, count } of said.metrics) {
    tables.set(name, [table(bytes, at, count, frames), count]);
    at += 2 * count * frames;
    await breath();
  }
  const made: Frame[] = [];
  let [processes, spots]: [Process[], Finding[]] = [[], []];
  let [p, s] = [0, 0];
  for (let i = 0; i < frames; i += 1) {
    while (said.processes[p]?.[0] === i) processes = said.processes[p++]![1];
    while (said.spots[s]?.[0] === i) spots = said.spots[s++]![1];
    made.push(new Packed(i, said.t_s[i]!, said.window_s[i]!, said.at[i]!, processes, spots, tables));
  }
  return { header: said.header, frames: made };
}
