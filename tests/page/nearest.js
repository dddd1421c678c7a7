/** Writes the training images that a page lists as nearest to some outputs: `node nearest.js FILE.json FILE.bin`. */

import fs from "node:fs";
import { Decoder } from "../../src/recombine/page/script/decoder.js";

const [cases, numbers] = process.argv.slice(2);
const bytes = new Uint8Array(fs.readFileSync(numbers));
for (const { model, factors, outputs } of JSON.parse(fs.readFileSync(cases, "utf8"))) {
  const decoder = new Decoder(model, factors, bytes, new Uint8Array());
  console.log(JSON.stringify(outputs.map((/** @type {number[]} */ output) =>
    decoder.nearest(Float32Array.from(output), 3).map(({ positions, distance }) => ({ positions, distance })))));
}
