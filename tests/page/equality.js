/**
 * Compares the script's outputs with torch's: `node equality.js FILE.json FILE.bin`, as test_script.py writes them; and
 * writes what its views show of every stage. Of a program it writes the outputs for some rows.
 */

import fs from "node:fs";
import { Decoder } from "../../src/recombine/page/script/decoder.js";
import { Program } from "../../src/recombine/page/script/program.js";
import { Survey } from "../../src/recombine/page/script/survey.js";

const [cases, numbers] = process.argv.slice(2);
const bytes = new Uint8Array(fs.readFileSync(numbers));
const kernel = fs.readFileSync(new URL("../../src/recombine/page/matmul.wasm", import.meta.url));
for (const { model, factors, positions, outputs, program, rows } of JSON.parse(fs.readFileSync(cases, "utf8"))) {
  if (program) {
    const ready = new Program(program, bytes, kernel);
    console.log(JSON.stringify(rows.map((/** @type {number[]} */ row) => [...ready.run(row)])));
    continue;
  }
  const decoder = new Decoder(model, factors, bytes, kernel);
  let worst = 0;
  positions.forEach((/** @type {number[]} */ at, /** @type {number} */ row) => {
    const ours = decoder.output(at);
    if (ours.length !== outputs[row].length) worst = Infinity;
    for (let k = 0; k < ours.length; k += 1) {
      const wrong = Math.abs(ours[k] - outputs[row][k]);
      worst = wrong > worst || Number.isNaN(wrong) ? wrong : worst;
    }
  });
  /** @type {Record<string, any>} */
  const surveys = {};
  for (const { name, value } of model.program.stages) {
    const survey = new Survey(decoder, value, factors.map(() => 0), [0, 1]);
    while (!survey.done) survey.step();
    const [metric, volume] = [[...survey.metric], [...survey.volume]];
    surveys[name] = { metric, volume, varying: survey.varying, map: [...survey.map(survey.unit(-1))] };
  }
  console.log(JSON.stringify({ name: model.name, translated: decoder.program !== null, worst, surveys,
    mismatch: decoder.mismatch() }));
}
