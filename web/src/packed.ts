/** Unpacks a recording inside the page itself, so that one file opens without a server; page.py packs it. */

import type { Finding, Frame, Header, Process } from "./types";

interface Said {
  header: Header;
  t_s: number[];
  window_s: number[];
  at: number[];
  /** Number of the frame from which a list is valid, and the list. */
  processes: [number, Process[]][];
  spots: [number, Finding[]][];
  /** In the order of the numbers that follow; `count`: number of components. */
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

  /** Returns views into the tables. They are created on demand, so that a frame that is not shown takes no memory. */
  get values(): Frame["values"] {
    const views: Frame["values"] = {};
    for (const [name, [table, count]] of this.tables) views[name] = table.subarray(this.seq * count, (this.seq + 1) * count);
    return views;
  }
}

/** Decodes thousandths, one component after the other, as differences from the previous number, low bytes first; 0 means unknown. */
function table(bytes: Uint8Array, at: number, count: number, frames: number): Float64Array {
  const decoded = new Float64Array(count * frames);
  const high = at + count * frames;
  let offset = 0;
  for (let c = 0; c < count; c += 1) {
    let value = 0;
    for (let t = 0; t < frames; t += 1, offset += 1) {
      const step = bytes[at + offset]! | (bytes[high + offset]! << 8);
      value = (value + ((step >>> 1) ^ -(step & 1))) & 0xffff;
      decoded[t * count + c] = value === 0 ? NaN : (value - 1) / 1000;
    }
  }
  return decoded;
}

const breath = () => new Promise((resolve) => setTimeout(resolve, 0));

/** Returns the header and the frames in the text. */
export async function unpack(text: string): Promise<{ header: Header; frames: Frame[] }> {
  const raw = atob(text.trim());
  const packed = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) packed[i] = raw.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const begin = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const content = JSON.parse(new TextDecoder().decode(bytes.subarray(4, begin))) as Said;
  const frames = content.t_s.length;
  const tables = new Map<string, [Float64Array, number]>();
  let offset = begin;
  for (const { name, count } of content.metrics) {
    tables.set(name, [table(bytes, offset, count, frames), count]);
    offset += 2 * count * frames;
    await breath();
  }
  const unpacked: Frame[] = [];
  let [processes, spots]: [Process[], Finding[]] = [[], []];
  let [p, s] = [0, 0];
  for (let i = 0; i < frames; i += 1) {
    while (content.processes[p]?.[0] === i) processes = content.processes[p++]![1];
    while (content.spots[s]?.[0] === i) spots = content.spots[s++]![1];
    unpacked.push(new Packed(i, content.t_s[i]!, content.window_s[i]!, content.at[i]!, processes, spots, tables));
  }
  return { header: content.header, frames: unpacked };
}
