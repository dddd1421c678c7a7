/**
 * A program made ready: every value has its place in one memory, where places are used again once nobody reads them
 * any more, and every operation is a function without arguments.
 */

import { Arena, fromHalf, memoryFor } from "./memory.js";
import { PANEL, addProduct, kernelFor, pack, packedSize } from "./matmul.js";
import { convolve, convolveTransposed, largest, sizesOf, turned, workingSizes } from "./convolution.js";
import { broadcast, map, move, normalize, reduce, softmax, volume, where, zip } from "./operations.js";

/** @typedef {import("./types.js").ProgramData} ProgramData */
/** @typedef {import("./types.js").Operation} Operation */

export class Program {
  /**
   * @param {ProgramData} data
   * @param {Uint8Array} bytes in which the constants lie
   * @param {BufferSource | null} code of the compiled product
   */
  constructor(data, bytes, code) {
    this.data = data;
    /** Place of every value. @type {number[]} */
    this.places = new Array(data.shapes.length).fill(-1);
    /** How often it has run: values of stages are those of the last time. */
    this.runs = 0;
    /** Steps after which a value is there. @type {number[]} */
    this.counts = new Array(data.shapes.length).fill(0);
    this.arena = new Arena();
    /** Things to do once there is memory. @type {(() => void)[]} */
    this.preparations = [];
    this.constants = new Set(data.constants.map((constant) => constant.value));
    this.#place(bytes);
    const plans = this.#plan();
    const memory = memoryFor(this.arena.top + PANEL);
    this.heap = new Float32Array(memory.buffer);
    this.kernel = kernelFor(code, memory);
    for (const prepare of this.preparations) prepare();
    this.steps = plans.map((plan) => plan());
  }

  /**
   * The output for an input, valid until the next run.
   * @param {ArrayLike<number>} input
   * @returns {Float32Array}
   */
  run(input) {
    this.runs += 1;
    this.heap.set(input, this.places[0]);
    for (const step of this.steps) step();
    return this.value(this.data.output);
  }

  /**
   * A stage's value for an input, without what comes after it; valid until the next run.
   * @param {number} number of the value
   * @param {ArrayLike<number>} input
   */
  upTo(number, input) {
    this.runs += 1;
    this.heap.set(input, this.places[0]);
    for (let k = 0; k < this.counts[number]; k += 1) this.steps[k]();
    return this.value(number);
  }

  /**
   * A value as the last run left it: the output, or a stage.
   * @param {number} number
   */
  value(number) {
    const start = this.places[number];
    return this.heap.subarray(start, start + volume(this.data.shapes[number]));
  }

  /** @param {Uint8Array} bytes */
  #place(bytes) {
    this.places[0] = this.arena.keep(volume(this.data.shapes[0]));
    for (const constant of this.data.constants) {
      const place = this.arena.keep(volume(this.data.shapes[constant.value]));
      this.places[constant.value] = place;
      this.preparations.push(() => {
        this.heap.set(numbersOf(constant.type, bytes.slice(constant.start, constant.start + constant.length)), place);
      });
    }
  }

  /**
   * Gives places to all values in the order in which they are written.
   * @returns {(() => () => void)[]} makers of the steps, to be called once there is memory
   */
  #plan() {
    const { operations, shapes, output, stages } = this.data;
    const root = shapes.map((_, number) => number);
    for (const o of operations) if (o.name === "view") root[o.output] = root[o.inputs[0]];
    const last = new Map();
    operations.forEach((o, index) => o.inputs.forEach((number) => last.set(root[number], index)));
    for (const number of [0, output, ...stages.map((stage) => stage.value)]) last.set(root[number], Infinity);
    const plans = [];
    for (const [index, o] of operations.entries()) {
      const size = volume(shapes[o.output]);
      if (o.name === "view") {
        this.places[o.output] = this.places[o.inputs[0]];
        this.counts[o.output] = this.counts[o.inputs[0]];
        continue;
      }
      this.places[o.output] = this.arena.take(size);
      plans.push(this.#planned(o));
      this.counts[o.output] = plans.length;
      for (const number of new Set([...o.inputs, o.output].map((n) => root[n]))) {
        if (this.constants.has(number) || (last.get(number) ?? index) !== index) continue;
        this.arena.give(this.places[number], volume(shapes[number]));
      }
    }
    return plans;
  }

  /**
   * The step of an operation; working memory is taken for the time of this operation only.
   * @param {Operation} o
   * @returns {() => () => void}
   */
  #planned(o) {
    const shapes = o.inputs.map((number) => this.data.shapes[number]);
    const from = o.inputs.map((number) => this.places[number]);
    const to = this.places[o.output];
    const shape = this.data.shapes[o.output];
    const count = volume(shape);
    const n = shapes.length && shapes[0].length ? shapes[0][shapes[0].length - 1] : 1;
    const rows = shapes.length ? volume(shapes[0]) / Math.max(n, 1) : 0;
    const axes = o.name === "zip" || o.name === "where" ? broadcast(shape, shapes) : null;
    if (count === 0) return () => () => {};
    switch (o.name) {
      case "map":
        return () => () => map(this.heap, o, from[0], to, count);
      case "zip":
        return () => () => axes && zip(this.heap, o.f, axes, from, to);
      case "where":
        return () => () => axes && where(this.heap, axes, from, to);
      case "move":
        return () => () => move(this.heap, o, from, to, count);
      case "take":
        return () => () => {
          for (let k = 0; k < count; k += 1) this.heap[to + k] = this.heap[from[0] + this.heap[from[1] + k]];
        };
      case "embedding":
        return () => () => {
          for (let k = 0; k < count / n; k += 1) {
            const row = from[0] + this.heap[from[1] + k] * n;
            this.heap.copyWithin(to + k * n, row, row + n);
          }
        };
      case "reduce":
        return () => () => reduce(this.heap, o, from[0], to, rows, n);
      case "softmax":
        return () => () => softmax(this.heap, o.log, from[0], to, rows, n);
      case "normalize":
        return () => () => normalize(this.heap, o.epsilon, from[0], to, rows, n);
      case "maxpool":
        return () => () => largest(this.heap, from[0], to, shapes[0], shape, o);
      case "matmul":
        return this.#product(o, shapes, from, to);
      case "conv":
        return this.#convolution(o, shapes, from, to);
      default:
        throw new Error(`no operation ${o.name}`);
    }
  }

  /**
   * @param {Operation} o
   * @param {number[][]} shapes
   * @param {number[]} from
   * @param {number} to
   */
  #product(o, shapes, from, to) {
    const [[many, rows, depth], [others, , columns]] = shapes;
    const batch = Math.max(many, others);
    const size = packedSize(depth, columns);
    const constant = this.constants.has(o.inputs[1]);
    const packed = constant ? this.arena.keep(size * others) : this.arena.take(size);
    const scratch = this.arena.take(rows * PANEL);
    const packOne = (/** @type {number} */ k, /** @type {number} */ target) =>
      pack(this.kernel, from[1] + k * depth * columns, target, depth, columns);
    if (constant) {
      this.preparations.push(() => {
        for (let k = 0; k < others; k += 1) packOne(k, packed + k * size);
      });
    } else this.arena.give(packed, size);
    this.arena.give(scratch, rows * PANEL);
    return () => () => {
      for (let k = 0; k < batch; k += 1) {
        const right = constant ? packed + (others > 1 ? k : 0) * size : packed;
        if (!constant && (k === 0 || others > 1)) packOne(others > 1 ? k : 0, packed);
        const out = to + k * rows * columns;
        this.#fill(out, rows, columns, from[2]);
        const left = from[0] + (many > 1 ? k : 0) * rows * depth;
        addProduct(this.kernel, this.heap, left, right, out, rows, depth, columns, scratch);
      }
    };
  }

  /**
   * Fills a matrix with a row of numbers, or with 0.
   * @param {number} to
   * @param {number} rows
   * @param {number} columns
   * @param {number | undefined} bias
   */
  #fill(to, rows, columns, bias) {
    if (bias === undefined) this.heap.fill(0, to, to + rows * columns);
    else for (let i = 0; i < rows; i += 1) this.heap.copyWithin(to + i * columns, bias, bias + columns);
  }

  /**
   * @param {Operation} o
   * @param {number[][]} shapes
   * @param {number[]} from
   * @param {number} to
   */
  #convolution(o, shapes, from, to) {
    const shape = this.data.shapes[o.output];
    const s = sizesOf(o, shapes[0], shapes[1], shape);
    const [packing, working] = workingSizes(s, o.transposed);
    const packed = this.arena.take(packing * (o.transposed ? s.groups : 1));
    const scratch = this.arena.take(working);
    this.arena.give(scratch, working);
    this.arena.give(packed, packing * (o.transposed ? s.groups : 1));
    if (o.transposed) this.#turnOnce(o.inputs[1], s);
    const pixels = s.rows * s.columns;
    const bias = () => {
      for (let channel = 0; channel < shape[1]; channel += 1) {
        const value = from.length > 2 ? this.heap[from[2] + channel] : 0;
        this.heap.fill(value, to + channel * pixels, to + (channel + 1) * pixels);
      }
    };
    if (!o.transposed) {
      return () => () => {
        bias();
        convolve(this.kernel, this.heap, from[0], from[1], to, packed, scratch, s);
      };
    }
    return () => () => {
      bias();
      const area = s.height * s.width;
      for (let g = 0; g < s.groups; g += 1) {
        const target = packed + g * packedSize(s.inputs, area);
        pack(this.kernel, from[0] + g * s.inputs * area, target, s.inputs, area);
      }
      convolveTransposed(this.kernel, this.heap, packed, from[1], to, scratch, s);
    };
  }

  /**
   * Turns the weights of a transposed convolution, of which each has its own.
   * @param {number} number
   * @param {import("./convolution.js").Sizes} s
   */
  #turnOnce(number, s) {
    if (!this.constants.has(number)) throw new Error("weights that depend on the input");
    this.preparations.push(() => this.value(number).set(turned(this.value(number), s)));
  }
}

/**
 * @param {"float32" | "float16" | "int32"} type
 * @param {Uint8Array} bytes a copy
 * @returns {ArrayLike<number>}
 */
export function numbersOf(type, bytes) {
  if (type === "float16") return fromHalf(bytes);
  return type === "int32" ? new Int32Array(bytes.buffer) : new Float32Array(bytes.buffer);
}
