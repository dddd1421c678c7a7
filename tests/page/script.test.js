/** Units of the page's script against slow, obvious versions and known answers. */

import assert from "node:assert/strict";
import fs from "node:fs";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import { initialState, parsed, written } from "../../src/recombine/page/script/address.js";
import { alternative, explainedShare, heldOutScores, said } from "../../src/recombine/page/script/answer.js";
import { withAttention } from "../../src/recombine/page/script/attention.js";
import { fromHalf, inflated, numbersOf } from "../../src/recombine/page/script/bytes.js";
import {
  CODES, nearestPoint, positionsOf, valueAt, valueText, pathThrough,
} from "../../src/recombine/page/script/grid.js";
import { Arena, Kernel, PANEL, packedSize } from "../../src/recombine/page/script/kernel.js";
import { erf } from "../../src/recombine/page/script/operations.js";
import { Program } from "../../src/recombine/page/script/program.js";
import { nearestDecoder } from "../../src/recombine/page/script/switches.js";
import {
  Background, Survey, ellipse, factorization, logVolume, metricOf, neighbours, surveyOf,
} from "../../src/recombine/page/script/survey.js";
import { curvesOf, range, sequential, short } from "../../src/recombine/page/script/views.js";
import { examplesOf, gridRows, trainingRows } from "../../src/recombine/page/script/training/examples.js";
import { Run, described } from "../../src/recombine/page/script/training/runs.js";
import { isInPlace, permutation, stream } from "../../src/recombine/page/script/training/trainer.js";

const code = fs.readFileSync(new URL("../../src/recombine/page/matmul.wasm", import.meta.url));

/** @param {string} name @param {number} count @param {number} step @returns {any} */
function factor(name, count, step = 1) {
  return { name, low: 0, high: step * (count - 1), count, form: "number", given: null, period: null };
}

test("products of matrices", () => {
  for (const [rows, depth, columns] of [[1, 3, 1], [4, 5, 8], [7, 2, 19], [9, 16, 24], [2, 1, 7]]) {
    const kernel = new Kernel(code, 10000);
    const { heap } = kernel;
    const [a, b, packed, c, scratch] = [8, 1000, 2000, 5000, 7000];
    for (let k = 0; k < rows * depth; k += 1) heap[a + k] = Math.sin(k);
    for (let k = 0; k < depth * columns; k += 1) heap[b + k] = Math.cos(3 * k);
    heap.fill(1, c, c + rows * columns + 1);
    assert.ok(packedSize(depth, columns) % PANEL === 0);
    kernel.pack(b, packed, depth, columns);
    kernel.addProduct(a, packed, c, rows, depth, columns, scratch);
    for (let i = 0; i < rows; i += 1) {
      for (let j = 0; j < columns; j += 1) {
        let sum = 1;
        for (let k = 0; k < depth; k += 1) sum += heap[a + i * depth + k] * heap[b + k * columns + j];
        assert.ok(Math.abs(heap[c + i * columns + j] - sum) < 1e-5);
      }
    }
    assert.equal(heap[c + rows * columns], 1); // nothing beyond the end
  }
});

test("a softmax of rows of any length, and nothing beyond them", () => {
  const kernel = new Kernel(code, 10000);
  const { heap } = kernel;
  for (const n of [1, 2, 3, 4, 5, 31, 784]) {
    const rows = 3;
    heap.fill(7, 4000, 4000 + rows * n + 1);
    for (let k = 0; k < rows * n; k += 1) heap[8 + k] = 20 * Math.sin(k * k);
    kernel.softmax(8, 4000, rows, n, 0.5);
    for (let row = 0; row < rows; row += 1) {
      const powers = [...heap.subarray(8 + row * n, 8 + (row + 1) * n)].map((x) => Math.exp(0.5 * x));
      const sum = powers.reduce((one, other) => one + other);
      powers.forEach((own, k) => assert.ok(Math.abs(heap[4000 + row * n + k] - own / sum) < 1e-6));
    }
    assert.equal(heap[4000 + rows * n], 7);
  }
  heap.set([-Infinity, 0, 0, NaN, 1, 2], 8);
  kernel.softmax(8, 8, 2, 3, 1);
  assert.deepEqual([...heap.subarray(8, 11)].map((x) => Math.round(1e6 * x) / 1e6), [0, 0.5, 0.5]);
  assert.ok([...heap.subarray(11, 14)].every(Number.isNaN));
});

test("attention is one operation unless its parts are used elsewhere, with the same result", () => {
  const [heads, rows, columns, depth, features] = [2, 201, 190, 5, 3];
  const shapes = [[heads, rows, depth], [heads, depth, columns], [heads, columns, features], [heads, rows, columns],
    [heads, rows, columns], [1, heads, rows, columns], [1, heads, rows, columns], [heads, rows, columns],
    [heads, rows, features]];
  const operations = [
    { name: "matmul", inputs: [0, 1], output: 3 }, { name: "map", f: "scale", a: 0.4, b: 0, inputs: [3], output: 4 },
    { name: "view", inputs: [4], output: 5 }, { name: "softmax", log: false, inputs: [5], output: 6 },
    { name: "view", inputs: [6], output: 7 }, { name: "matmul", inputs: [7, 2], output: 8 },
  ];
  const sizes = [1, 2].map((value) => shapes[value].reduce((one, other) => one * other));
  const floats = Float32Array.from({ length: sizes[0] + sizes[1] }, (_, k) => Math.sin(3 * k));
  const constants = [1, 2].map((value, k) => (
    { value, type: /** @type {const} */ ("float32"), start: 4 * k * sizes[0], length: 4 * sizes[k] }));
  const data = { shapes, operations, output: 8, stages: [{ name: "output", value: 8 }], constants };
  const input = Float32Array.from({ length: heads * rows * depth }, (_, k) => Math.cos(k));
  const [one, parts] = [data, { ...data, stages: [{ name: "weights", value: 6 }] }].map((own) => {
    const names = withAttention(own).map((o) => o.name).filter((name) => name !== "view");
    return { names, output: new Program(own, new Uint8Array(floats.buffer), code).run(input) };
  });
  assert.deepEqual(one.names, ["attention"]);
  assert.deepEqual(parts.names, ["matmul", "map", "softmax", "matmul"]);
  assert.ok(one.output.every((own, k) => Math.abs(own - parts.output[k]) < 1e-6));
});

test("places are given once, and again after they were given back", () => {
  const arena = new Arena();
  const places = [arena.take(10), arena.take(3), arena.take(8)];
  assert.equal(new Set(places).size, 3);
  arena.give(places[1], 3);
  arena.give(places[0], 10);
  assert.equal(arena.take(24), places[0]);
  assert.notEqual(arena.keep(8), places[2]);
});

test("half precision", () => {
  const halves = new Uint8Array(new Uint16Array([0x3c00, 0xc000, 0x0001, 0x7bff, 0x8000]).buffer);
  assert.deepEqual([...fromHalf(halves)], [1, -2, 2 ** -24, 65504, -0]);
});

test("the error function", () => {
  const known = [[0, 0], [0.5, 0.5204998778], [1, 0.8427007929], [2.4, 0.9993114861], [2.6, 0.9997639656]];
  for (const [x, y] of [...known, [-1, -0.8427007929]]) assert.ok(Math.abs(erf(x) - y) < 1e-9, `${x}`);
  assert.equal(erf(9), 1);
});

test("points of the grid", () => {
  const factors = [factor("x", 4), factor("y", 3), factor("z", 2)];
  assert.equal(nearestPoint(factors, [3, 1, 1]), 21);
  assert.deepEqual(positionsOf(factors, 21), [3, 1, 1]);
  const uneven = { ...factor("s", 3), low: 0.5, high: 1, given: [0.5, 0.7, 1] };
  assert.ok(Math.abs(valueAt(uneven, 1.5) - 0.85) < 1e-12);
  assert.equal(valueAt(uneven, 2), 1);
  assert.equal(valueText(uneven, 1), "0.70");
});

test("a way goes through the middle of what is held out", () => {
  const factors = [factor("x", 4), factor("y", 4)];
  const isHeld = (/** @type {number[]} */ [x, y]) => x >= 2 && (y === 1 || y === 2);
  assert.deepEqual(pathThrough(factors, [0, 0], [0, 1], isHeld)[1], [2.5, 1.5]);
});

test("codes", () => {
  const x = factor("x", 3);
  assert.deepEqual(CODES.onehot(1, x, { kind: "onehot" }), [0, 1, 0]);
  assert.deepEqual(CODES.ramp(1.25, x, { kind: "ramp" }), [1, 0.75, 0]);
  assert.deepEqual(CODES.rate(2, x, { kind: "rate", scale: "unit" }), [1]);
  const angle = { ...factor("a", 4), high: 270, form: /** @type {const} */ ("angle"), period: 360 };
  assert.ok(Math.abs(CODES.polar(1, angle, { kind: "polar" })[1] - 1) < 1e-12);
  assert.equal(CODES.circular(3, angle, { kind: "circular", variance: 1 })[3], 1);
});

test("an address restores the state, and nonsense changes nothing", () => {
  const model = /** @type {any} */ ({});
  const factors = [factor("x", 4), factor("y", 3), factor("z", 2)];
  const data = { title: "", version: "", factors, models: [model, model], start: [1, 1, 0] };
  const first = initialState(data);
  const plane = /** @type {[number, number]} */ ([2, 0]);
  const state = { ...first, at: [1.5, 2, 0], decoder: 1, beside: -1, plane, unit: 7, snap: false };
  assert.deepEqual(parsed(`#${written(state)}`, first, data), state);
  const nonsense = ["", "#", "#at=1,2", "#at=a,b,c&decoder=7", "#plane=1,1&stage=-1&unit=1.5", "#%zz=<b>&decoder=1.5"];
  for (const text of nonsense) {
    assert.deepEqual(parsed(text, first, data), first, text);
  }
  assert.deepEqual(parsed("#at=99,-3,1", first, data).at, [3, 0, 1]);
});

test("an address names a section beside the state", () => {
  const data = { title: "", version: "", factors: [factor("x", 4)], models: [/** @type {any} */ ({})], start: [1] };
  const first = initialState(data);
  const state = { ...first, at: [3], section: "judged" };
  assert.ok(written(state).startsWith("section=judged&at=3&"));
  assert.deepEqual(parsed(`#${written(state)}`, first, data), state);
  assert.deepEqual(parsed("#fig9", state, data), { ...state, section: "fig9" }, "a link within the page");
  assert.equal(parsed("#at=2", state, data).section, "");
  assert.equal(parsed("#section=<b>", state, data).section, "");
});

test("a switch changes as little else as possible", () => {
  const labels = ["bump CNN none", "bump CNN stripes", "rate CNN none", "bump MLP none"].map((own) => own.split(" "));
  assert.equal(nearestDecoder(labels, 0, 2, "stripes"), 1);
  assert.equal(nearestDecoder(labels, 1, 1, "MLP"), 3);
  assert.equal(nearestDecoder(labels, 1, 0, "rate"), 2);
  assert.equal(nearestDecoder(labels, 1, 0, "bump"), 1);
});

test("numbers in steps are exact, and what was compressed comes back", async () => {
  const steps = new Uint8Array(new Int16Array([-32767, 0, 3]).buffer);
  assert.deepEqual([...numbersOf(steps, { type: "int16", start: 0, length: 6, scale: 0.5 })], [-16383.5, 0, 1.5]);
  const bytes = new Uint8Array(1000).fill(7);
  assert.deepEqual(await inflated(new Uint8Array(deflateSync(bytes))), bytes);
});

/**
 * A decoder whose only stage is a function of positions.
 * @param {number[]} counts
 * @param {(at: number[]) => number[]} stage
 * @returns {any}
 */
function decoderOf(counts, stage) {
  const factors = counts.map((count, k) => factor("xyz"[k], count, 2));
  const size = stage(counts.map(() => 0)).length;
  const program = {
    upTo: (/** @type {number} */ _, /** @type {number[]} */ at) => Float32Array.from(stage(at)),
  };
  return { factors, program, sizeOf: () => size, input: (/** @type {number[]} */ at) => at.slice() };
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

test("factorization is 1 for orthogonal directions and a half for one direction", () => {
  assert.deepEqual([factorization([4, 0, 1]), factorization([1, -1, 1])], [1, 0.5]);
});

test("an image explains its multiples, and nothing orthogonal or opposite", () => {
  const image = Float32Array.of(2, 1, 0);
  const shares = [[3, 1, -1], [1, 5, 1], [0, 1, 2]].map((own) => explainedShare(image, Float32Array.from(own), 1));
  assert.deepEqual(shares, [1, 0, 0]);
  assert.ok(Math.abs(explainedShare(image, Float32Array.of(2, 1, 1), 1) - 0.5) < 1e-12);
});

test("flat places have the least volume, and no step leaves the grid", () => {
  assert.equal(logVolume([0, 0, 0]), -8);
  assert.equal(logVolume([1, 1, 1]), -8);
  assert.deepEqual(neighbours(factor("x", 4, 2), 0), { behind: 0, ahead: 1, width: 2 });
  assert.deepEqual(neighbours(factor("x", 4, 2), 2), { behind: 1, ahead: 3, width: 4 });
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

/** Settings of a training on a grid of `size` × `size` combinations. @param {number} size @returns {any} */
function settingsOf(size) {
  const factors = ["x", "y"].map((name) => ({ name, low: 0, high: size - 1, count: size, given: null }));
  const values = Array.from({ length: size }, (_, k) => k);
  const profile = values.map((center) => values.map((k) => Math.exp(-((k - center) ** 2) / 2)));
  const codes = factors.map(() => ({ kind: "bump", variance: 1 }));
  const convolutions = [{ inputs: 2 * size }];
  return { size, factors, codes, convolutions, profiles: [profile, profile], background: 0, tolerance: 1 };
}
const settings = { ...settingsOf(3), held: "000010000" };

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
  assert.deepEqual(gridRows(settings)[5], [1, 2]);
});

test("a bump is where it belongs, and a stripe has the same profile in every row", () => {
  const { codes, images } = examplesOf(settings, [[2, 0], [1, null]]);
  assert.equal(images[2], 1); // row 0, column 2
  assert.deepEqual([...images.slice(9, 12)], [...images.slice(15, 18)]);
  assert.ok(Math.abs(images[9] - Math.exp(-0.5)) < 1e-7 && images[10] === 1);
  assert.deepEqual([...codes.slice(9, 12)], [0, 0, 0]);
});

test("a bump is in place within the tolerance in both axes", () => {
  const wide = settingsOf(4);
  const image = new Float32Array(16);
  image[4 * 3 + 1] = 0.2; // row 3, column 1
  const right = gridRows(wide).filter((_, point) => isInPlace(image, point, wide));
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
  /** @type {any} */
  const data = { drawn: "disk", isolated: "rings", filled: 0.9, failed: 0.6 };
  assert.equal(described(run, true, data), "Starting.");
  /** @type {any} */
  const report = { total: 20, step: 10, heldOut: 0.25, kept: 0.5, seconds: 1.26, losses: [] };
  run.add(report);
  const now = "Step 10 of 20: 25 % of held-out disks in place, 50 % of those trained on; 1.3 s";
  assert.equal(described(run, true, data), `${now}.`);
  assert.equal(described(run, false, data), `${now}, paused.`);
  for (const [heldOut, outcome] of [[0.6, "failed to fill"], [0.7, "partly filled"], [0.9, "filled"]]) {
    run.add({ ...report, step: 20, heldOut });
    assert.ok(described(run, false, data).startsWith(`Without rings, the decoder ${outcome} the hold-out: `));
  }
});

/** A verdict on an output whose true bump is at (4, 5). @param {any} own @returns {any} */
function verdictOf(own) {
  return { error: 0.9, inPlace: false, peaks: [], aligned: 0, spot: [4, 5], isRight: false, ...own };
}

test("an answer says what is drawn instead", () => {
  const peak = (/** @type {number} */ height) => ({ column: 4, row: 1, height });
  const cases = /** @type {[any, boolean, string, string][]} */ ([
    [{ isRight: true, inPlace: true, error: 0.1 }, false, "Composes here",
      "the bump is in place (error 0.10, blank image 1)"],
    [{ inPlace: true }, false, "Composes in part here",
      "the bump is in place, but the image is wrong (error 0.90, blank image 1)"],
    [{}, true, "Not drawn as trained", "it draws nothing instead of a bump at (4, 5)"],
    [{ peaks: [peak(0.9)], aligned: 1 }, false, "Does not compose here",
      "it draws one bump at (4, 1) instead of (4, 5), in its row or column"],
    [{ peaks: [peak(0.2), peak(0.3), peak(0.1)], aligned: 2 }, false, "Does not compose here",
      "it draws three faint bumps instead of one at (4, 5), two of them in its row or column"],
    [{ peaks: [peak(0.9), peak(0.8)], aligned: 2 }, false, "Does not compose here", "it draws two bumps instead " +
      "of one at (4, 5), both in its row or column, as if it added up images of the same row and column"],
    [{ inPlace: null }, false, "Does not compose here", "error 0.90, blank image 1"],
  ]);
  for (const [own, seen, word, reason] of cases) assert.deepEqual(said(verdictOf(own), seen), [word, reason]);
});

test("the most similar decoder that composes is offered", () => {
  const model = (/** @type {string} */ labels, /** @type {number} */ error) => ({
    factors: [factor("x", 2)], data: { labels: labels.split(" "), truth: {} }, errors: Float32Array.of(0.01, error),
    placed: null, isHeld: (/** @type {number} */ point) => point === 1, energy: () => 1,
  });
  const decoders = /** @type {any[]} */ ([
    model("bump CNN none", 0.8), model("rate MLP none", 0.1), model("bump CNN stripes", 0.2),
    model("bump MLP none", 0.9),
  ]);
  assert.deepEqual(heldOutScores(decoders[0]), { count: 1, placed: null, error: Math.fround(0.8) });
  assert.deepEqual([0, 3].map((own) => alternative(decoders, own, [1], true)), [2, 1]);
  assert.equal(alternative(decoders, 2, [1], false), 0);
  assert.equal(alternative(decoders, 0, [0], true), -1); // nothing to compose there
});
