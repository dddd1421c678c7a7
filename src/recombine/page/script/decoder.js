/** A decoder: its outputs (computed or from a table), the true outputs, and the nearest training images. */

import { numbersOf } from "./bytes.js";
import { CODES, gridSize, nearestPoint, positionsOf, valueAt } from "./grid.js";
import { volume } from "./operations.js";
import { Program } from "./program.js";

export class Decoder {
  /** @type {Program | null} */
  #program = null;
  /** @type {Map<Numbers, Float32Array>} */
  #tables = new Map();

  /** @param {ModelData} data @param {Factor[]} factors @param {Uint8Array} bytes @param {BufferSource} kernel */
  constructor(data, factors, bytes, kernel) {
    this.data = data;
    this.factors = factors;
    this.bytes = bytes;
    this.kernel = kernel;
    this.held = bytes.subarray(data.held.start, data.held.start + data.held.length);
    /** Mask of the points with a true output; null if all points have one. */
    this.present = data.present && bytes.subarray(data.present.start, data.present.start + data.present.length);
    const seen = data.trained?.seen;
    /** Mask of the points in the training set; null if it is not known. */
    this.seen = seen ? bytes.subarray(seen.start, seen.start + seen.length) : null;
    this.hasHoldout = this.held.some((bits) => bits > 0);
    this.pixels = data.image[0] * data.image[1] * data.image[2];
  }

  /** The program, created on first use. */
  get program() {
    if (!this.#program && this.data.program) {
      this.#program = new Program(this.data.program, this.bytes, this.kernel);
    }
    return this.#program;
  }

  /** The number of a stage's units. @param {number} value of the program */
  sizeOf(value) {
    return this.data.program ? volume(this.data.program.shapes[value]) : 0;
  }

  /** @param {number[]} positions @returns {Float32Array} a copy */
  output(positions) {
    if (this.program) return this.program.run(this.input(positions)).slice();
    return this.#row(/** @type {Numbers} */ (this.data.table), nearestPoint(this.factors, positions));
  }

  /** Returns the largest difference from torch's outputs at the probe points, relative to the largest output or 1. */
  mismatch() {
    const { probes } = this.data;
    if (!probes) return 0;
    const right = numbersOf(this.bytes, { ...probes, type: "float32" });
    const ours = probes.points.map((point) => [...this.output(positionsOf(this.factors, point))]).flat();
    const scale = right.reduce((most, number) => Math.max(most, Math.abs(number)), 1);
    return ours.reduce((most, number, k) => Math.max(most, Math.abs(number - right[k])), 0) / scale;
  }

  /** @param {number[]} positions @returns {number[]} the module's input: concatenated codes, or raw factor values */
  input(positions) {
    const { codes } = this.data;
    if (!codes) return this.factors.map((factor, k) => valueAt(factor, positions[k]));
    return this.factors.flatMap((factor, k) => CODES[codes[k].kind](positions[k], factor, codes[k]));
  }

  /** Whether codes have one block per factor, so that a factor's code can be replaced by its mean. */
  get hasHalves() {
    return Boolean(this.data.program && this.data.sizes && this.factors.length > 1);
  }

  /** Computes the output with mean codes for all other factors. @param {number[]} positions @param {number} factor */
  half(positions, factor) {
    const { mean, sizes } = this.data;
    if (!this.program || !mean || !sizes) throw new Error("codes have no blocks");
    const code = this.input(positions);
    const start = sizes.slice(0, factor).reduce((sum, size) => sum + size, 0);
    const mixed = mean.map((number, k) => (k >= start && k < start + sizes[factor] ? code[k] : number));
    return this.program.run(mixed).slice();
  }

  /** Returns the halves superposed on the background. @param {Float32Array[]} halves */
  superposed(halves) {
    const { background } = this.data;
    return halves[0].map((_, k) => halves.reduce((sum, half) => sum + half[k] - background, background));
  }

  /** @param {number[]} positions @returns {Float32Array | null} */
  truth(positions) {
    const point = nearestPoint(this.factors, positions);
    return this.data.truth && this.isPresent(point) ? this.#row(this.data.truth, point) : null;
  }

  /** Whether the data contain this combination. @param {number} point */
  isPresent(point) {
    return !this.present || isMarked(this.present, point);
  }

  /** @param {number[]} positions */
  isHeldOut(positions) {
    return this.isHeld(nearestPoint(this.factors, positions));
  }

  /** @param {number} point */
  isHeld(point) {
    return isMarked(this.held, point);
  }

  /** The error at every grid point relative to a blank image (−1: no true output), as computed by torch. */
  get errors() {
    return this.data.errors && this.#numbers(this.data.errors);
  }

  /** A function that returns whether the output at a grid point is in place; null if images are not bumps. */
  get placed() {
    const range = this.data.places?.placed;
    if (!range) return null;
    const bits = this.bytes.subarray(range.start, range.start + range.length);
    return (/** @type {number} */ point) => isMarked(bits, point);
  }

  /** The column and row of the true bump; null if images are not bumps. @param {number} point */
  place(point) {
    const { places } = this.data;
    if (!places) return null;
    return /** @type {[number, number]} */ ([...this.#numbers(places).subarray(2 * point, 2 * point + 2)]);
  }

  /** The squared difference between the true output and a blank image. @param {number} point */
  energy(point) {
    if (!this.data.truth) return 0;
    return this.#row(this.data.truth, point).reduce((sum, x) => sum + (x - this.data.background) ** 2, 0);
  }

  /**
   * Returns the training images nearest to an output by their squared difference, nearest first, except those that are
   * no nearer than a blank image. @param {Float32Array} output @param {number} count @returns {Memory[]}
   */
  nearest(output, count) {
    const { truth, trained, background } = this.data;
    if (!truth || !trained) return [];
    const blank = output.reduce((sum, number) => sum + (number - background) ** 2, 0);
    /** @type {{row: number, table: Float32Array, distance: number}[]} */
    const best = [];
    const compare = (/** @type {Float32Array} */ table, /** @type {number} */ row) => {
      const bound = best.length < count ? blank : best[best.length - 1].distance;
      let distance = 0;
      for (let k = 0, at = row * this.pixels; k < this.pixels && distance < bound; k += 1) {
        distance += (output[k] - table[at + k]) ** 2;
      }
      if (distance >= bound) return;
      best.push({ row, table, distance });
      best.sort((a, b) => a.distance - b.distance);
      best.length = Math.min(best.length, count);
    };
    const rows = this.#numbers(truth);
    for (let point = 0; point < gridSize(this.factors); point += 1) if (this.isSeen(point)) compare(rows, point);
    const others = trained.images ? this.#numbers(trained.images) : rows;
    for (let row = 0; row < trained.positions.length; row += 1) compare(others, row);
    return best.map(({ row, table, distance }) => ({
      positions: table === rows ? positionsOf(this.factors, row) : trained.positions[row],
      image: table.subarray(row * this.pixels, (row + 1) * this.pixels), distance,
    }));
  }

  /** Whether a grid point was in the training set. @param {number} point */
  isSeen(point) {
    return Boolean(this.seen && isMarked(this.seen, point));
  }

  /** Mean squared error relative to that of a blank image. @param {Float32Array} output @param {Float32Array} truth */
  error(output, truth) {
    let [wrong, blank] = [0, 0];
    for (let k = 0; k < truth.length; k += 1) {
      wrong += (output[k] - truth[k]) ** 2;
      blank += (truth[k] - this.data.background) ** 2;
    }
    return blank ? wrong / blank : wrong;
  }

  /** @param {Numbers} table @param {number} point */
  #row(table, point) {
    return this.#numbers(table).subarray(point * this.pixels, (point + 1) * this.pixels);
  }

  /** @param {Numbers} table @returns {Float32Array} */
  #numbers(table) {
    const numbers = this.#tables.get(table) ?? numbersOf(this.bytes, table);
    this.#tables.set(table, numbers);
    return numbers;
  }
}

/** Returns a point's bit in a mask, lowest bit first. @param {Uint8Array} bits @param {number} point */
function isMarked(bits, point) {
  return ((bits[point >> 3] >> (point & 7)) & 1) === 1;
}
