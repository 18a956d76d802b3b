/**
 * Entry of the chart library. Pages draw their charts by `vegaEmbed`. Meshmark draws charts for files in QuickJS: it
 * calls `meshmarkCharts.measureBy` once. For each chart it calls `meshmarkDraw`, executes all pending jobs, then reads
 * `error` and `svg`.
 */

import "./standard";

import embed from "vega-embed";

import { measureBy, svgOf, textOf } from "./svg";

const meshmarkCharts = { measureBy, svg: "", error: "" };

function meshmarkDraw(spec: string): void {
  Object.assign(meshmarkCharts, { svg: "", error: "" });
  svgOf(JSON.parse(spec)).then(
    // Python takes neither half of a pair of surrogates nor a string that QuickJS keeps as a tree of parts.
    (svg) => (meshmarkCharts.svg = [svg.replace(/\p{Surrogate}/gu, "\ufffd")].join("")),
    (error: unknown) => (meshmarkCharts.error = textOf(error)),
  );
}

Object.assign(globalThis, { vegaEmbed: embed, meshmarkCharts, meshmarkDraw });
