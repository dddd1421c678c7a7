/** The decoder's first stage. */

import { PANEL } from "../matmul.js";
import { pass, rectify } from "./relu.js";
import { Sheet } from "./sheets.js";

/** @typedef {import("../matmul.js").Kernel} Kernel */
/** @typedef {import("../memory.js").Arena} Arena */
/** @typedef {import("./types.js").ConvolutionData} ConvolutionData */
/** @typedef {import("./relu.js").Row} Row */
/** @typedef {import("./types.js").Places} Places */

/** A transposed convolution of one pixel, which is one product of matrices, and its ReLU. */
export class FromPoint {
  /**
   * Numbers of weights and bias.
   * @param {ConvolutionData} data
   */
  static size({ inputs, outputs, kernel }) {
    return (inputs * kernel * kernel + 1) * outputs;
  }

  /**
   * The place of each of torch's weights.
   * @param {ConvolutionData} data
   * @returns {number[]}
   */
  static order({ inputs, outputs, kernel }) {
    const order = [];
    for (let i = 0; i < inputs; i += 1) {
      for (let o = 0; o < outputs; o += 1) {
        for (let pixel = 0; pixel < kernel * kernel; pixel += 1) {
          const panel = (pixel * outputs + o - (o % PANEL)) / PANEL;
          order.push((panel * inputs + i) * PANEL + (o % PANEL));
        }
      }
    }
    return order;
  }

  /**
   * @param {Arena} arena
   * @param {ConvolutionData} data
   * @param {number} batch
   * @param {Places} places
   */
  constructor(arena, data, batch, places) {
    this.data = data;
    this.batch = batch;
    this.weights = places.weights;
    this.gradient = places.gradient;
    this.columns = data.outputs * data.kernel ** 2;
    this.codes = arena.keep(batch * data.inputs);
    this.turned = arena.keep(batch * data.inputs);
    this.sums = arena.keep(batch * this.columns);
    this.slopes = arena.keep(batch * this.columns);
    this.output = new Sheet(arena, batch, data.kernel, data.outputs / PANEL);
    this.bias = this.weights + data.inputs * this.columns;
    this.biasGradient = new Float64Array(data.outputs);
  }

  /**
   * Calls for every row of pixels and block.
   * @param {(example: number, panel: number, block: number, row: Row) => void} use is told the first pixel's panel of
   *   columns, and where the row is in the output
   */
  #rows(use) {
    const { output, batch, data: { kernel } } = this;
    for (let e = 0; e < batch; e += 1) {
      for (let y = 0; y < kernel; y += 1) {
        for (let b = 0; b < output.blocks; b += 1) {
          const place = output.place(b) + output.pixel(e, y, 0) * PANEL;
          use(e, y * kernel * output.blocks + b, b, [place, PANEL]);
        }
      }
    }
  }

  /** @param {Kernel} kernel @param {Float32Array} heap */
  forward(kernel, heap) {
    const { codes, sums, columns, batch, bias, weights, output, data } = this;
    heap.fill(0, sums, sums + batch * columns);
    kernel.multiply(codes, weights, sums, batch, data.inputs, columns / PANEL, data.inputs, columns);
    this.#rows((e, panel, b, row) => {
      const from = sums + e * columns + panel * PANEL;
      rectify(heap, [from, output.blocks * PANEL], row, output.size, bias + b * PANEL);
    });
  }

  /** @param {Kernel} kernel @param {Float32Array} heap @param {Sheet} after the gradient of the output */
  backward(kernel, heap, after) {
    const { codes, turned, slopes, columns, batch, gradient, biasGradient, output, data: { inputs } } = this;
    biasGradient.fill(0);
    const behind = after.start - output.start; // both are laid out alike
    this.#rows((e, panel, b, row) => {
      const to = slopes + (panel * batch + e) * PANEL;
      pass(heap, row, behind, [to, output.blocks * batch * PANEL], output.size, biasGradient, b * PANEL);
    });
    for (let e = 0; e < batch; e += 1) {
      for (let i = 0; i < inputs; i += 1) heap[turned + i * batch + e] = heap[codes + e * inputs + i];
    }
    heap.fill(0, gradient, gradient + inputs * columns);
    for (let panel = 0; panel < columns / PANEL; panel += 1) {
      const [from, to] = [slopes + panel * batch * PANEL, gradient + panel * inputs * PANEL];
      kernel.multiply(turned, from, to, inputs, batch, 1, batch, PANEL);
    }
    heap.set(biasGradient, gradient + inputs * columns);
  }
}
