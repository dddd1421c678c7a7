/** Units of the script that trains in the page, with known answers. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { examplesOf, gridRows, trainingRows } from "../../src/recombine/page/script/training/examples.js";
import { Run, described } from "../../src/recombine/page/script/training/runs.js";
import { isInPlace, permutation, stream } from "../../src/recombine/page/script/training/trainer.js";

/** @type {any} */
const settings = { size: 3, sigma: 1, background: 0, variance: 1, tolerance: 1, held: "000010000" };

test("a stream is the same for the same seed and name, and even", () => {
  const numbers = Array.from({ length: 4000 }, stream(7, "weights"));
  assert.deepEqual(numbers.slice(0, 9), Array.from({ length: 9 }, stream(7, "weights")));
  for (const other of [stream(8, "weights"), stream(7, "order/0")]) assert.notEqual(other(), numbers[0]);
  const mean = numbers.reduce((sum, own) => sum + own, 0) / numbers.length;
  const square = numbers.reduce((sum, own) => sum + (own - 0.5) ** 2, 0) / numbers.length;
  assert.ok(Math.abs(mean - 0.5) < 0.02 && Math.abs(square - 1 / 12) < 0.005);
  assert.ok(numbers.every((own) => own >= 0 && own < 1));
});

test("a permutation has every number once, in every place", () => {
  const orders = Array.from({ length: 300 }, (_, k) => [...permutation(5, stream(k, "order"))]);
  for (const order of orders) assert.deepEqual(order.slice().sort(), [0, 1, 2, 3, 4]);
  for (let place = 0; place < 5; place += 1) {
    assert.equal(new Set(orders.map((order) => order[place])).size, 5);
  }
});

test("stripes come before the kept combinations, which lack the held-out one", () => {
  assert.equal(trainingRows(settings, false).length, 8);
  const rows = trainingRows(settings, true);
  assert.equal(rows.length, 14);
  assert.deepEqual([rows[0], rows[3], rows[6]], [[0, null], [null, 0], [0, 0]]);
  assert.ok(!rows.some(([x, y]) => x === 1 && y === 1));
  assert.deepEqual(gridRows(3)[5], [1, 2]);
});

test("a bump is where it belongs, and a stripe has the same profile in every row", () => {
  const { codes, images } = examplesOf(settings, [[2, 0], [1, null]]);
  assert.equal(images[2], 1); // row 0, column 2
  assert.deepEqual([...images.slice(9, 12)], [...images.slice(15, 18)]);
  assert.ok(Math.abs(images[9] - Math.exp(-0.5)) < 1e-7 && images[10] === 1);
  assert.deepEqual([...codes.slice(9, 12)], [0, 0, 0]);
});

test("a bump is in place within the tolerance in both axes", () => {
  const wide = { ...settings, size: 4 };
  const image = new Float32Array(16);
  image[4 * 3 + 1] = 0.2; // row 3, column 1
  const right = gridRows(4).filter((_, point) => isInPlace(image, point, wide));
  assert.deepEqual(right, [[0, 2], [0, 3], [1, 2], [1, 3], [2, 2], [2, 3]]);
  assert.ok(isInPlace(image.map((own) => 1 - own), 7, { ...wide, background: 1 }));
});

test("losses become points of a curve whatever reports they come in", () => {
  const run = new Run(0, true);
  /** @type {any} */
  const report = { total: 20, heldOut: 0.5, step: 5, losses: [1, 1, 1, 1, 1] };
  run.add(report);
  run.add({ ...report, step: 17, losses: new Array(12).fill(3) });
  assert.deepEqual(run.losses, [[8, 1.75], [16, 3]]);
  assert.deepEqual(run.accuracies, [[5, 0.5], [17, 0.5]]);
  assert.ok(!run.done);
});

test("a training is told in words", () => {
  const run = new Run(0, false);
  const bounds = { filled: 0.9, failed: 0.6 };
  assert.equal(described(run, true, bounds), "Starting.");
  /** @type {any} */
  const report = { total: 20, step: 10, heldOut: 0.25, kept: 0.5, seconds: 1.26, losses: [] };
  run.add(report);
  const now = "Step 10 of 20: 25 % of held-out bumps in place, 50 % of those trained on; 1.3 s";
  assert.equal(described(run, true, bounds), `${now}.`);
  assert.equal(described(run, false, bounds), `${now}, paused.`);
  for (const [heldOut, outcome] of [[0.6, "failed"], [0.7, "filled in part"], [0.9, "filled"]]) {
    run.add({ ...report, step: 20, heldOut });
    assert.ok(described(run, false, bounds).startsWith(`Without stripes the box ${outcome}: `));
  }
});
