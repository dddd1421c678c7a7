/**
 * Writes what a page says of some outputs: the nearest training images, the peaks, and the scores over the hold-out,
 * for `node answers.js FILE.json FILE.bin`.
 */

import fs from "node:fs";
import { composes, heldOutScores, peaksOf, signalOf } from "../../src/recombine/page/script/answer.js";
import { Decoder } from "../../src/recombine/page/script/decoder.js";

const [cases, numbers] = process.argv.slice(2);
const bytes = new Uint8Array(fs.readFileSync(numbers));
for (const { model, factors, outputs } of JSON.parse(fs.readFileSync(cases, "utf8"))) {
  const decoder = new Decoder(model, factors, bytes, new Uint8Array());
  const [, rows, columns] = model.image;
  const answers = outputs.map((/** @type {number[]} */ output) => ({
    nearest: decoder.nearest(Float32Array.from(output), 3).map(({ positions, distance }) => ({ positions, distance })),
    peaks: peaksOf(signalOf(decoder, output), rows, columns),
  }));
  console.log(JSON.stringify({ answers, scores: heldOutScores(decoder), composes: composes(decoder) }));
}
