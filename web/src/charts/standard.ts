/**
 * Supplies what the chart library uses and QuickJS, a bare engine, does not have. Browsers have all of it.
 *
 * Vega-Lite copies specifications by structuredClone when its module is evaluated, so this module is imported first.
 */

/** Returns a deep copy of arrays, dates and plain objects, which is all that specifications contain. */
function clone(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(clone);
  if (value instanceof Date) return new Date(value);
  if (typeof value === "function" || typeof value === "symbol") throw new TypeError(`cannot copy ${String(value)}`);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, clone(entry)]));
}

const silent = () => {};
const scope = globalThis as unknown as Record<string, unknown>;
scope["structuredClone"] ??= clone;
// Charts in files do not move. The library only lists the timers among the functions that expressions must not call.
scope["setTimeout"] ??= silent;
scope["setInterval"] ??= silent;
scope["console"] ??= { debug: silent, error: silent, info: silent, log: silent, warn: silent };

export {};
