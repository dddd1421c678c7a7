/**
 * The CNN decoder (`recombine.decoders.CNN`) with its gradient, for a batch. Activity is stored as (channel, example,
 * y, x), so that each stage is one matrix product over all pixels of the batch. The last convolution is computed as a
 * transposed convolution with its taps reversed; everything else is in torch's order.
 */

import { convolveTransposed, shiftRows, turned, workingSizes } from "../convolution.js";
import { Arena, Kernel, PANEL, packedSize } from "../kernel.js";

/**
 * Addresses of a batch of images and of their gradient, and the number of rows of an image.
 * @typedef {{activity: number, slopes: number, size: number}} Activity
 */

/** A transposed convolution and, unless it is the last, its ReLU. */
class Stage {
  /**
   * @param {Arena} arena @param {ConvolutionData} data @param {number} batch @param {Activity} input
   * @param {number} padding @param {number} weights address, followed by the bias @param {number} gradient
   */
  constructor(arena, { inputs, outputs, kernel, stride }, batch, input, padding, weights, gradient) {
    this.size = (input.size - 1) * stride - 2 * padding + kernel;
    this.sizes = {
      batch, groups: 1, inputs, outputs, from: [input.size, input.size], to: [this.size, this.size],
      kernel: [kernel, kernel], stride: [stride, stride], padding: [padding, padding], dilation: [1, 1],
    };
    this.input = input;
    this.weights = weights;
    this.gradient = gradient;
    /** Rows and columns of the product. */
    this.rows = outputs * kernel ** 2;
    this.pixels = batch * input.size ** 2;
    this.area = batch * this.size ** 2; // elements of an output channel
    const [packing, working] = workingSizes(this.sizes, true);
    this.activity = arena.keep(outputs * this.area);
    this.slopes = arena.keep(outputs * this.area);
    this.columns = arena.keep(this.rows * this.pixels); // gradient of the product
    this.turned = arena.keep(this.rows * inputs);
    this.products = arena.keep(working);
    this.packed = arena.keep(Math.max(packing, packedSize(this.rows, this.pixels), packedSize(this.pixels, inputs)));
    this.scratch = arena.keep(PANEL * Math.max(this.rows, inputs));
  }

  /** Number of weights without the bias. */
  get count() {
    return this.rows * this.sizes.inputs;
  }

  /** @param {Kernel} kernel @param {boolean} rectified whether a ReLU follows */
  forward(kernel, rectified) {
    const { sizes, weights, count, activity, area, input } = this;
    const { heap } = kernel;
    heap.set(turned(heap.subarray(weights, weights + count), sizes), this.turned);
    for (let o = 0; o < sizes.outputs; o += 1) {
      heap.fill(heap[weights + count + o], activity + o * area, activity + (o + 1) * area);
    }
    convolveTransposed(kernel, input.activity, this.turned, activity, this.packed, this.products, sizes);
    const end = rectified ? activity + sizes.outputs * area : 0;
    for (let k = activity; k < end; k += 1) heap[k] = Math.max(0, heap[k]);
  }

  /**
   * Computes the gradients of weights, bias and, except for codes, the input.
   * @param {Kernel} kernel @param {boolean} rectified whether a ReLU follows
   */
  backward(kernel, rectified) {
    const { sizes, sizes: { inputs, outputs }, slopes, columns, pixels, area, rows, count } = this;
    const { heap } = kernel;
    const [behind, least] = [this.activity - slopes, rectified ? 0 : -Infinity]; // both have the same layout
    for (let o = 0; o < outputs; o += 1) {
      let sum = 0;
      for (let k = slopes + o * area; k < slopes + (o + 1) * area; k += 1) {
        const slope = heap[k] * Number(heap[k + behind] > least); // a branch would often be mispredicted
        heap[k] = slope;
        sum += slope;
      }
      heap[this.gradient + count + o] = sum;
    }
    shiftRows(kernel, columns, slopes, sizes, true); // entries outside the image stay 0
    this.#weightGradient(kernel);
    if (!this.input.slopes) return;
    kernel.pack(columns, this.packed, rows, pixels);
    heap.fill(0, this.input.slopes, this.input.slopes + inputs * pixels);
    kernel.addProduct(this.weights, this.packed, this.input.slopes, inputs, rows, pixels, this.scratch);
  }

  /** Multiplies the columns by the input, whose pixels are packed as rows. @param {Kernel} kernel */
  #weightGradient(kernel) {
    const { sizes: { inputs }, input: { activity }, pixels, rows, count, packed, gradient } = this;
    const { heap } = kernel;
    for (let from = activity, to = packed; from < activity + inputs * pixels; from += PANEL * pixels) {
      for (let n = 0; n < pixels; n += 1) {
        for (let c = 0; c < PANEL; c += 1, to += 1) heap[to] = heap[from + c * pixels + n];
      }
    }
    heap.fill(0, this.turned, this.turned + count);
    kernel.addProduct(this.columns, packed, this.turned, rows, pixels, inputs, this.scratch);
    for (let i = 0; i < inputs; i += 1) {
      for (let r = 0; r < rows; r += 1) heap[gradient + i * rows + r] = heap[this.turned + r * inputs + i];
    }
  }
}

export class Network {
  /** @param {Settings} settings @param {BufferSource} code of `matmul.wasm` */
  constructor({ convolutions, size, recipe }, code) {
    const sizes = convolutions.map(({ inputs, outputs, kernel }) => (inputs * kernel ** 2 + 1) * outputs);
    this.count = sizes.reduce((sum, own) => sum + own, 0);
    this.batch = recipe.batch;
    this.pixels = size * size;
    const arena = new Arena();
    let [weights, gradient] = [arena.keep(this.count), arena.keep(this.count)];
    const [first, from] = [weights, gradient];
    this.codes = arena.keep(this.batch * convolutions[0].inputs);
    /** @type {Activity} */
    let input = { activity: this.codes, slopes: 0, size: 1 };
    this.stages = convolutions.map((data, k) => {
      const stage = new Stage(arena, data, this.batch, input, k ? 1 : 0, weights, gradient);
      [weights, gradient, input] = [weights + sizes[k], gradient + sizes[k], stage];
      return stage;
    });
    this.last = this.stages[this.stages.length - 1];
    this.kernel = new Kernel(code, arena.top + PANEL);
    const { heap } = this.kernel;
    this.weights = heap.subarray(first, first + this.count);
    this.gradient = heap.subarray(from, from + this.count);
    this.images = heap.subarray(this.last.activity, this.last.activity + this.batch * this.pixels);
  }

  /**
   * Converts weights or gradients between torch's order and the network's order, in which the last taps are reversed.
   * @param {ArrayLike<number>} values
   */
  reordered(values) {
    const { rows, count } = this.last;
    const start = this.count - count - 1;
    return Float32Array.from(values, (own, k) => {
      const tap = k - start;
      return tap < 0 || tap >= count ? own : values[start + tap - (tap % rows) + rows - 1 - (tap % rows)];
    });
  }

  /** Computes images, overwritten by the next call. @param {Float32Array} table @param {ArrayLike<number>} rows */
  forward(table, rows) {
    const { kernel, codes, stages, batch, last } = this;
    const { inputs } = stages[0].sizes;
    for (let e = 0; e < rows.length; e += 1) {
      for (let i = 0; i < inputs; i += 1) kernel.heap[codes + i * batch + e] = table[rows[e] * inputs + i];
    }
    for (const stage of stages) stage.forward(kernel, stage !== last);
    return this.images;
  }

  /**
   * Returns the mean squared error on at most one batch of rows and writes its gradient to `gradient`.
   * @param {Float32Array} codes @param {Float32Array} targets @param {ArrayLike<number>} rows
   */
  learn(codes, targets, rows) {
    const { kernel, pixels, last, stages, batch } = this;
    const { heap } = kernel;
    const images = this.forward(codes, rows);
    heap.fill(0, last.slopes, last.slopes + batch * pixels);
    const share = 1 / (rows.length * pixels);
    let error = 0;
    for (let e = 0, k = 0; e < rows.length; e += 1) {
      const target = rows[e] * pixels;
      for (let p = 0; p < pixels; p += 1, k += 1) {
        const wrong = images[k] - targets[target + p];
        error += share * wrong * wrong;
        heap[last.slopes + k] = 2 * share * wrong;
      }
    }
    for (const stage of stages.slice().reverse()) stage.backward(kernel, stage !== last);
    return error;
  }
}
