// Bundles the pages into one folder of plain files beside the server, with relative names: it works under any prefix.
import { build } from "esbuild";
import { cp, mkdir, rm } from "node:fs/promises";

const out = "../src/meshmark/web/static";
await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
await build({
  entryPoints: ["src/main.ts", "src/fleet.ts"],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  outdir: out,
  legalComments: "inline",
});
await cp("index.html", `${out}/index.html`);
