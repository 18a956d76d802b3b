// Types of what the server sends, from the schema that tests hold the server to: src/schema.ts.
import { compile } from "json-schema-to-typescript";
import { readFile, writeFile } from "node:fs/promises";

const schema = JSON.parse(await readFile("../schema/frame.json", "utf8"));
const types = await compile(schema, "FrameLine", {
  additionalProperties: false,
  bannerComment: "// Made by schema.mjs from schema/frame.json.",
  format: false,
});
await writeFile("src/schema.ts", types);
