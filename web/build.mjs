// Bundles the pages into one folder of plain files beside the server, with relative names: it works under any prefix.
// Bundles the chart library, its font and the widths of the font's characters into a folder beside the drawings.
import { build } from "esbuild";
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";

import { widths } from "./font.mjs";

const common = { bundle: true, minify: true, target: "es2022", legalComments: "inline" };

async function emptied(folder) {
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  return folder;
}

const pages = await emptied("../src/meshmark/web/static");
await build({ ...common, entryPoints: ["src/main.ts", "src/fleet.ts"], format: "esm", outdir: pages });
await cp("index.html", `${pages}/index.html`);

/** Returns the texts of the licences in the folders of packages. */
async function licences(packages) {
  const texts = [];
  for (const name of packages) {
    const files = (await readdir(`node_modules/${name}`)).filter((file) => /^licen[cs]e/i.test(file)).sort();
    for (const file of files) {
      const text = await readFile(`node_modules/${name}/${file}`, "utf8");
      texts.push(`${name}\n\n${text.trim()}\n`);
    }
  }
  return texts.join(`\n${"-".repeat(80)}\n\n`);
}

const charts = await emptied("../src/meshmark/views/charts/static");
const { metafile } = await build({
  ...common,
  entryPoints: { charts: "src/charts/main.ts" },
  format: "iife",
  outdir: charts,
  metafile: true,
});
const arimo = "@expo-google-fonts/arimo";
const sources = { regular: "400Regular/Arimo_400Regular.ttf", bold: "700Bold/Arimo_700Bold.ttf" };
const font = {};
for (const [weight, source] of Object.entries(sources)) {
  const data = await readFile(`node_modules/${arimo}/${source}`);
  await writeFile(`${charts}/${weight}.ttf`, data);
  font[weight] = widths(data);
}
await writeFile(`${charts}/font.json`, JSON.stringify(font));

const inputs = Object.values(metafile.outputs).flatMap((output) => Object.keys(output.inputs));
const bundled = new Set(inputs.map((path) => /node_modules\/(@[^/]+\/[^/]+|[^/]+)/.exec(path)?.[1]).filter(Boolean));
// The colours of ColorBrewer in d3-scale-chromatic are under the Apache License, whose text comes with TypeScript.
await writeFile(`${charts}/licences.txt`, await licences([...[...bundled].sort(), arimo, "typescript"]));
