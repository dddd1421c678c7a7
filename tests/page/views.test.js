/** Geometry, curves and background work of the page's script: known answers. */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Background, Survey, ellipse, logVolume, metricOf, neighbours, surveyOf,
} from "../../src/recombine/page/script/survey.js";
import { curvesOf, range, sequential, short } from "../../src/recombine/page/script/views.js";

/** @param {string} name @param {number} count @returns {any} */
function factor(name, count) {
  return { name, low: 0, high: 2 * (count - 1), count, form: "number", given: null, period: null };
}

/**
 * A decoder whose only stage is a function of positions.
 * @param {number[]} counts
 * @param {(at: number[]) => number[]} stage
 * @returns {any}
 */
function decoderOf(counts, stage) {
  const factors = counts.map((count, k) => factor("xyz"[k], count));
  const size = stage(counts.map(() => 0)).length;
  const program = {
    value: () => new Float32Array(size),
    upTo: (/** @type {number} */ _, /** @type {number[]} */ at) => Float32Array.from(stage(at)),
  };
  return { factors, program, input: (/** @type {number[]} */ at) => at.slice() };
}

/** @param {Survey} survey */
function finished(survey) {
  while (!survey.done) survey.step();
  return survey;
}

test("a metric is that of the Jacobian, in the units of the factors", () => {
  // f(x, y) = (3x, x + 2y, 0) per unit: J = [[3, 0], [1, 2], [0, 0]]
  const decoder = decoderOf([4, 3], ([x, y]) => [3 * 2 * x, 2 * x + 2 * 2 * y, 0]);
  const survey = finished(new Survey(decoder, 0, [0, 0], [0, 1]));
  for (let point = 0; point < 12; point += 1) {
    assert.deepEqual([...survey.metric.subarray(3 * point, 3 * point + 3)], [10, 2, 4]);
    assert.ok(Math.abs(survey.volume[point] - Math.log10(6)) < 1e-12); // √(40 − 4)
  }
  assert.deepEqual(survey.metricAt([3, 2]), [10, 2, 4]);
  assert.equal(survey.varying, 0);
  assert.deepEqual([...survey.map(0)], [0, 6, 12, 18, 0, 6, 12, 18, 0, 6, 12, 18]);
});

test("one factor has a volume too, and a third one stays where it is", () => {
  const line = finished(new Survey(decoderOf([5], ([x]) => [8 * x]), 0, [0], [0, 0]));
  assert.deepEqual([...line.volume], Array(5).fill(Math.log10(4)));
  const decoder = decoderOf([3, 3, 3], ([x, y, z]) => [x * z, y]);
  assert.equal(finished(surveyOf(decoder, 0, [0, 0, 2], [0, 1])).metricAt([0, 0, 2])?.[0], 1);
  assert.equal(surveyOf(decoder, 0, [2, 1, 2], [0, 1]).done, true);
  assert.equal(surveyOf(decoder, 0, [2, 1, 1], [0, 1]).done, false);
});

test("planes that are too large are left", () => {
  const survey = new Survey(decoderOf([65, 64], () => [1]), 0, [0, 0], [0, 1]);
  assert.equal(survey.tooLarge && survey.done, true);
  assert.equal(survey.metricAt([0, 0]), null);
});

test("flat places have the least volume, and no step leaves the grid", () => {
  assert.equal(logVolume([0, 0, 0]), -8);
  assert.equal(logVolume([1, 1, 1]), -8);
  assert.deepEqual(neighbours(factor("x", 4), 0), { behind: 0, ahead: 1, width: 2 });
  assert.deepEqual(neighbours(factor("x", 4), 2), { behind: 1, ahead: 3, width: 4 });
  const zero = new Float32Array(2);
  assert.deepEqual(metricOf([zero, Float32Array.of(3, 4), 5], [zero, zero, 1]), [1, 0, 0]);
});

test("an ellipse is longest where the stage changes least", () => {
  const { half, angle } = ellipse([4, 0, 1], 2);
  assert.deepEqual(half, [2, 1]);
  assert.ok(Math.abs(Math.cos(angle)) < 1e-12); // down
  const tilted = ellipse([1, 0.5, 1], 1);
  for (const turn of [0, 0.7, 2]) {
    const [u, v] = [tilted.half[0] * Math.cos(turn), tilted.half[1] * Math.sin(turn)];
    const x = u * Math.cos(tilted.angle) - v * Math.sin(tilted.angle);
    const y = u * Math.sin(tilted.angle) + v * Math.cos(tilted.angle);
    assert.ok(Math.abs(x * x + x * y + y * y - 1) < 1e-12);
  }
});

test("tuning curves are means over the other factor, and rows of the map", () => {
  const survey = finished(new Survey(decoderOf([3, 2], ([x, y]) => [x + 10 * y]), 0, [0, 0], [0, 1]));
  const map = survey.map(survey.unit(5));
  assert.deepEqual(curvesOf(survey, map, 0, [0, 1]), { mean: [5, 6, 7], through: [10, 11, 12] });
  assert.deepEqual(curvesOf(survey, map, 1, [2, 0]), { mean: [1, 11], through: [2, 12] });
});

test("numbers and colours", () => {
  assert.deepEqual(range([NaN, 2, -1]), [-1, 2]);
  assert.deepEqual(range([NaN]), [0, 0]);
  assert.deepEqual([sequential(0), sequential(2)], [[68, 1, 84], [253, 231, 37]]);
  assert.deepEqual([short(-0.1234), short(12345)], ["−0.12", "1e+4"]);
});

test("work waits until it is quiet, and is told when it is done", async () => {
  let [left, quiet, told] = [3, false, 0];
  const work = { get done() { return left === 0; }, step: () => { left -= 1; } };
  const background = new Background(() => quiet, () => (work.done ? null : work), () => { told += 1; });
  const later = (/** @type {number} */ time) => new Promise((resolve) => { setTimeout(resolve, time); });
  background.wake();
  await later(100);
  assert.equal(left, 3);
  quiet = true;
  await later(200);
  assert.deepEqual([left, told], [0, 1]);
});
