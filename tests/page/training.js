/**
 * Trains as test_training.py asks for and writes what comes of it: `node training.js FILE.json`.
 *
 * `{settings, weights, rows}`: the error and gradient of the first batch, and all errors and the last weights of as
 * many steps as there are batches. `{settings, seed, stripes}`: a whole training, with its accuracies and seconds.
 */

import fs from "node:fs";
import { Trainer } from "../../src/recombine/page/script/training/trainer.js";

const code = fs.readFileSync(new URL("../../src/recombine/page/matmul.wasm", import.meta.url));
const { settings, weights, rows, seed, stripes, plain } = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const trainer = new Trainer(settings, plain ? null : code, seed ?? 0, stripes);
const { network, examples, points } = trainer;
/** @type {any} */
let result;
if (weights) {
  network.load(weights);
  network.learn(examples.codes, examples.images, rows[0]);
  const gradient = [...network.stored(network.gradient)];
  const errors = rows.map((/** @type {number[]} */ batch) => trainer.advance(batch));
  result = { gradient, errors, weights: [...network.stored(network.weights)], outputs: [...trainer.output(0)] };
} else {
  const began = performance.now();
  while (!trainer.done) trainer.advance();
  const seconds = (performance.now() - began) / 1000;
  trainer.evaluate([...points.held, ...points.kept]);
  result = { heldOut: trainer.accuracy(points.held), kept: trainer.accuracy(points.kept), seconds };
}
console.log(JSON.stringify(result));
