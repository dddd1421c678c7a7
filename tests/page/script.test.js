/** Units of the page's script against slow, obvious versions. */

import assert from "node:assert/strict";
import fs from "node:fs";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import { initialState, parsed, written } from "../../src/recombine/page/script/address.js";
import { fromHalf, inflated, numbersOf } from "../../src/recombine/page/script/bytes.js";
import {
  CODES, nearestPoint, positionsOf, valueAt, valueText, wayThrough,
} from "../../src/recombine/page/script/grid.js";
import { Arena, Kernel, PANEL, packedSize } from "../../src/recombine/page/script/kernel.js";
import { broadcast, erf } from "../../src/recombine/page/script/operations.js";
import { nearestDecoder } from "../../src/recombine/page/script/switches.js";

const code = fs.readFileSync(new URL("../../src/recombine/page/matmul.wasm", import.meta.url));

/** @param {string} name @param {number} count @returns {any} */
function factor(name, count) {
  return { name, low: 0, high: count - 1, count, form: "number", given: null, period: null };
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

test("broadcast axes are merged where they can be", () => {
  assert.deepEqual(broadcast([2, 3, 4], [[2, 3, 4], []]), { shape: [24], strides: [[1], [0]] });
  assert.deepEqual(broadcast([2, 3, 4], [[3, 1], [2, 1, 4]]), { shape: [2, 3, 4], strides: [[0, 1, 0], [4, 0, 1]] });
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
  const bits = new Uint8Array([0, 0b01100110]); // x = 2 and 3, y = 1 and 2
  assert.deepEqual(wayThrough(factors, [0, 0], [0, 1], bits)[1], [2.5, 1.5]);
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
  const data = { title: "", version: "", factors, models: [model, model] };
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

test("a switch changes as little else as possible", () => {
  const labels = ["bump CNN none", "bump CNN stripes", "rate CNN none", "bump MLP none"].map((own) => own.split(" "));
  assert.equal(nearestDecoder(labels, 0, 2, "stripes"), 1);
  assert.equal(nearestDecoder(labels, 1, 1, "MLP"), 3);
  assert.equal(nearestDecoder(labels, 1, 0, "rate"), 2);
  assert.equal(nearestDecoder(labels, 1, 0, "bump"), 1);
});

test("numbers in steps are exact, and what was compressed comes back", async () => {
  const steps = new Uint8Array(new Int16Array([-32767, 0, 3]).buffer);
  assert.deepEqual(Array.from(numbersOf("int16", steps, 0.5)), [-16383.5, 0, 1.5]);
  const bytes = new Uint8Array(1000).fill(7);
  assert.deepEqual(await inflated(new Uint8Array(deflateSync(bytes))), bytes);
});
