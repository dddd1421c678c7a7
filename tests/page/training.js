/**
 * Trains as test_training.py asks for and writes what comes of it: `node training.js FILE.json`.
 *
 * `{settings, weights, rows}`: the error and gradient of the first batch, and all errors and the last weights of as
 * many steps as there are batches. `{settings, seed, isolated}`: a whole training, with its accuracies and seconds.
 * `{recipe, weights, gradients}`: the weights after a step of AdamW with each gradient.
 */

import fs from "node:fs";
import { AdamW, Trainer } from "../../src/recombine/page/script/training/trainer.js";

const code = fs.readFileSync(new URL("../../src/recombine/page/matmul.wasm", import.meta.url));
const request = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
console.log(JSON.stringify(request.gradients ? optimized(request) : trained(request)));

/** @param {any} request */
function optimized({ recipe, weights, gradients }) {
  const optimizer = new AdamW(recipe, weights.length);
  const own = Float32Array.from(weights);
  return gradients.map((/** @type {number[]} */ gradient) => {
    optimizer.update(own, Float32Array.from(gradient));
    return [...own];
  });
}

/** @param {any} request */
function trained({ settings, weights, rows, seed, isolated }) {
  const trainer = new Trainer(settings, code, seed ?? 0, isolated);
  const { network, examples, points } = trainer;
  if (!weights) {
    const began = performance.now();
    while (!trainer.done) trainer.advance();
    const seconds = (performance.now() - began) / 1000;
    trainer.evaluate([...points.held, ...points.kept]);
    return { heldOut: trainer.accuracy(points.held), kept: trainer.accuracy(points.kept), seconds };
  }
  network.weights.set(network.reordered(weights));
  network.learn(examples.codes, examples.images, rows[0]);
  const gradient = [...network.reordered(network.gradient)];
  const errors = rows.map((/** @type {number[]} */ batch) => trainer.advance(batch));
  return { gradient, errors, weights: [...network.reordered(network.weights)], outputs: [...trainer.output(0)] };
}
