/**
 * The CNN decoder (`recombine.decoders.CNN`) with its gradient. Weights lie in memory as products of matrices want
 * them; `load` and `stored` translate from and to torch's order, weight and bias of each convolution in turn.
 */

import { kernelFor } from "../matmul.js";
import { Arena, memoryFor } from "../memory.js";
import { Block } from "./block.js";
import { FromPoint } from "./from_point.js";
import { ToImage } from "./to_image.js";

/** @typedef {import("./types.js").Settings} Settings */

export class Network {
  /**
   * @param {Settings} settings
   * @param {BufferSource | null} code the compiled kernel, if there is one
   */
  constructor(settings, code) {
    const { convolutions, size, recipe } = settings;
    const kinds = convolutions.map((_, k) =>
      (k === 0 ? FromPoint : k < convolutions.length - 1 ? Block : ToImage));
    const sizes = convolutions.map((data, k) => kinds[k].size(data));
    this.count = sizes.reduce((sum, own) => sum + own, 0);
    this.batch = recipe.batch;
    this.pixels = size * size;
    const arena = new Arena();
    const [weights, gradient] = [arena.keep(this.count), arena.keep(this.count)];
    const places = sizes.map((_, k) => {
      const before = sizes.slice(0, k).reduce((sum, own) => sum + own, 0);
      return { weights: weights + before, gradient: gradient + before };
    });
    this.#order = convolutions.flatMap((data, k) => {
      const own = kinds[k].order(data);
      const biases = Array.from({ length: data.outputs }, (_, o) => sizes[k] - data.outputs + o);
      return [...own, ...biases].map((place) => places[k].weights - weights + place);
    });
    this.first = new FromPoint(arena, convolutions[0], this.batch, places[0]);
    let sheet = this.first.output;
    this.blocks = convolutions.slice(1, -1).map((data, k) => {
      const block = new Block(arena, data, sheet, places[k + 1]);
      sheet = block.output;
      return block;
    });
    this.last = new ToImage(arena, convolutions[convolutions.length - 1], sheet, places[places.length - 1]);
    const memory = memoryFor(arena.top);
    this.heap = new Float32Array(memory.buffer);
    this.kernel = kernelFor(code, memory);
    this.weights = this.heap.subarray(weights, weights + this.count);
    this.gradient = this.heap.subarray(gradient, gradient + this.count);
    this.#slopes = new Float32Array(this.batch * this.pixels);
  }

  /** The place of each of torch's weights. @type {number[]} */
  #order;
  /** @type {Float32Array} */
  #slopes;

  /** @param {ArrayLike<number>} values in torch's order */
  load(values) {
    this.#order.forEach((place, k) => {
      this.weights[place] = values[k];
    });
  }

  /**
   * Weights, or what belongs to each of them, in torch's order.
   * @param {Float32Array} values
   */
  stored(values) {
    return Float32Array.from(this.#order, (place) => values[place]);
  }

  /**
   * The images of some codes, at most a batch of them; they stay where they are until the next call.
   * @param {Float32Array} table codes, row by row
   * @param {ArrayLike<number>} rows
   */
  forward(table, rows) {
    const { heap, kernel, first, blocks, last } = this;
    const { inputs } = first.data;
    for (let e = 0; e < rows.length; e += 1) {
      heap.set(table.subarray(rows[e] * inputs, (rows[e] + 1) * inputs), first.codes + e * inputs);
    }
    first.forward(kernel, heap);
    for (const block of blocks) block.forward(kernel, heap);
    last.forward(kernel, heap);
    return last.images;
  }

  /**
   * The mean squared error of a batch and, in `gradient`, its gradient.
   * @param {Float32Array} codes
   * @param {Float32Array} targets images, row by row
   * @param {ArrayLike<number>} rows at most a batch
   */
  learn(codes, targets, rows) {
    const { heap, kernel, first, blocks, last, pixels } = this;
    const images = this.forward(codes, rows);
    const slopes = this.#slopes.fill(0);
    const share = 1 / (rows.length * pixels);
    let error = 0;
    for (let e = 0, k = 0; e < rows.length; e += 1) {
      const target = rows[e] * pixels;
      for (let p = 0; p < pixels; p += 1, k += 1) {
        const wrong = images[k] - targets[target + p];
        error += share * wrong * wrong;
        slopes[k] = 2 * share * wrong;
      }
    }
    last.backward(kernel, heap, slopes);
    let after = last.taps.before;
    for (const block of blocks.slice().reverse()) {
      block.backward(kernel, heap, after);
      after = block.taps.before;
    }
    first.backward(kernel, heap, after);
    return error;
  }
}
