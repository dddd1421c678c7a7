/**
 * A compiled program: every value has an address in one memory, which is reused once the value is no longer needed, and
 * every operation is a function without arguments.
 */

import { attend, attentionSizes, withAttention } from "./attention.js";
import { numbersOf } from "./bytes.js";
import { Arena, Kernel, PANEL, packedSize } from "./kernel.js";
import { convolve, convolveTransposed, turned, workingSizes } from "./convolution.js";
import { RUN, volume } from "./operations.js";

export class Program {
  /** @param {ProgramData} data @param {Uint8Array} bytes with the constants @param {BufferSource} code of the kernel */
  constructor(data, bytes, code) {
    this.data = data;
    /** Address of every value. @type {number[]} */
    this.places = new Array(data.shapes.length).fill(-1);
    /** Number of runs so far; stages hold their values from the last run. */
    this.runs = 0;
    /** Number of steps after which each value is known. @type {number[]} */
    this.counts = new Array(data.shapes.length).fill(0);
    this.arena = new Arena();
    /** Functions to call once the memory exists. @type {(() => void)[]} */
    this.preparations = [];
    this.constants = new Set(data.constants.map((constant) => constant.value));
    this.places[0] = this.arena.keep(volume(data.shapes[0]));
    for (const constant of data.constants) {
      const place = this.arena.keep(volume(data.shapes[constant.value]));
      this.places[constant.value] = place;
      this.preparations.push(() => this.heap.set(numbersOf(bytes, constant), place));
    }
    this.steps = this.#plan();
    this.kernel = new Kernel(code, this.arena.top + PANEL);
    this.heap = this.kernel.heap;
    for (const prepare of this.preparations) prepare();
  }

  /** Computes the output, valid until the next run. @param {ArrayLike<number>} input @returns {Float32Array} */
  run(input) {
    return this.upTo(this.data.output, input, this.steps.length);
  }

  /**
   * Returns a stage's value for an input without running later steps; valid until the next run.
   * @param {number} number @param {ArrayLike<number>} input @param {number} count of steps
   */
  upTo(number, input, count = this.counts[number]) {
    this.runs += 1;
    this.heap.set(input, this.places[0]);
    for (let k = 0; k < count; k += 1) this.steps[k]();
    return this.value(number);
  }

  /** Returns the value of the output or a stage from the last run. @param {number} number */
  value(number) {
    const start = this.places[number];
    return this.heap.subarray(start, start + volume(this.data.shapes[number]));
  }

  /** Assigns addresses to all values in the order of the operations. @returns {(() => void)[]} */
  #plan() {
    const { shapes, output, stages } = this.data;
    const operations = withAttention(this.data);
    const root = shapes.map((_, number) => number);
    for (const o of operations) if (o.name === "view") root[o.output] = root[o.inputs[0]];
    const last = new Map();
    operations.forEach((o, index) => o.inputs.forEach((number) => last.set(root[number], index)));
    for (const number of [0, output, ...stages.map((stage) => stage.value)]) last.set(root[number], Infinity);
    const steps = [];
    for (const [index, o] of operations.entries()) {
      if (o.name === "view") {
        this.places[o.output] = this.places[o.inputs[0]];
        this.counts[o.output] = this.counts[o.inputs[0]];
        continue;
      }
      this.places[o.output] = this.arena.take(volume(shapes[o.output]));
      steps.push(this.#step(o));
      this.counts[o.output] = steps.length;
      for (const number of new Set([...o.inputs, o.output].map((n) => root[n]))) {
        if (this.constants.has(number) || (last.get(number) ?? index) !== index) continue;
        this.arena.give(this.places[number], volume(shapes[number]));
      }
    }
    return steps;
  }

  /** Returns the step for an operation; its working memory can be reused by the next step. @param {Operation} o */
  #step(o) {
    const shapes = o.inputs.map((number) => this.data.shapes[number]);
    const shape = this.data.shapes[o.output];
    const n = shapes[0]?.at(-1) ?? 1;
    const step = {
      o, shapes, shape, n, from: o.inputs.map((number) => this.places[number]), to: this.places[o.output],
      count: volume(shape), rows: shapes.length ? volume(shapes[0]) / Math.max(n, 1) : 0,
    };
    if (step.count === 0) return () => {};
    if (o.name === "matmul") return this.#product(step);
    if (o.name === "conv") return this.#convolution(step);
    if (o.name === "attention") return this.#attention(step);
    if (o.name === "softmax" && !o.log) return () => this.kernel.softmax(step.from[0], step.to, step.rows, n, 1);
    if (o.name === "map" && o.f === "relu") return () => this.kernel.relu(step.from[0], step.to, step.count);
    const run = RUN[o.name === "softmax" ? "logSoftmax" : o.name];
    return () => run(this.heap, step);
  }

  /** @param {Step} step */
  #product({ o, shapes, from, to }) {
    const bias = /** @type {number | undefined} */ (from[2]);
    const [[many, rows, depth], [others, , columns]] = shapes;
    const batch = Math.max(many, others);
    const size = packedSize(depth, columns);
    const constant = this.constants.has(o.inputs[1]);
    const packed = constant ? this.arena.keep(size * others) : this.arena.take(size);
    const scratch = this.arena.take(rows * PANEL);
    const packOne = (/** @type {number} */ k, /** @type {number} */ target) =>
      this.kernel.pack(from[1] + k * depth * columns, target, depth, columns);
    if (constant) {
      this.preparations.push(() => {
        for (let k = 0; k < others; k += 1) packOne(k, packed + k * size);
      });
    } else this.arena.give(packed, size);
    this.arena.give(scratch, rows * PANEL);
    return () => {
      for (let k = 0; k < batch; k += 1) {
        const right = constant ? packed + (others > 1 ? k : 0) * size : packed;
        if (!constant && (k === 0 || others > 1)) packOne(others > 1 ? k : 0, packed);
        const out = to + k * rows * columns;
        if (bias === undefined) this.heap.fill(0, out, out + rows * columns);
        else for (let i = 0; i < rows; i += 1) this.heap.copyWithin(out + i * columns, bias, bias + columns);
        const left = from[0] + (many > 1 ? k : 0) * rows * depth;
        this.kernel.addProduct(left, right, out, rows, depth, columns, scratch);
      }
    };
  }

  /** @param {Step} step */
  #attention(step) {
    const sizes = attentionSizes(step.shapes);
    const working = sizes.map((size) => this.arena.take(size));
    working.forEach((place, k) => this.arena.give(place, sizes[k]));
    return () => attend(this.kernel, step, working);
  }

  /** @param {Step} step */
  #convolution({ o, shapes, from, to, shape }) {
    const { groups, stride, padding, dilation } = o;
    const [near, far] = o.transposed ? [shapes[0], shape] : [shape, shapes[0]];
    const s = {
      batch: 1, groups, stride, padding, dilation, inputs: near[1] / groups, outputs: far[1] / groups,
      from: near.slice(2), to: far.slice(2), kernel: shapes[1].slice(2),
    };
    const sizes = workingSizes(s, o.transposed);
    const [packed, scratch] = sizes.map((size) => this.arena.take(size));
    [packed, scratch].forEach((place, k) => this.arena.give(place, sizes[k]));
    if (o.transposed) { // its weights are a constant not used elsewhere
      const weight = () => this.value(o.inputs[1]);
      this.preparations.push(() => weight().set(turned(weight(), s)));
    }
    const add = o.transposed ? convolveTransposed : convolve;
    const [image, weights, output] = [shapes[0], shapes[1], shape].map((own) => volume(own) / groups);
    const area = shape[2] * shape[3];
    return () => {
      for (let channel = 0; channel < shape[1]; channel += 1) {
        const bias = from.length > 2 ? this.heap[from[2] + channel] : 0;
        this.heap.fill(bias, to + channel * area, to + (channel + 1) * area);
      }
      for (let g = 0; g < groups; g += 1) {
        add(this.kernel, from[0] + g * image, from[1] + g * weights, to + g * output, packed, scratch, s);
      }
    };
  }
}
