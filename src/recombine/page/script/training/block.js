/** The decoder's stages between the first and the last. */

import { PANEL } from "../matmul.js";
import { pass, rectify } from "./relu.js";
import { Sheet } from "./sheets.js";
import { TILE, Taps, transposedTaps } from "./taps.js";

/** @typedef {import("../matmul.js").Kernel} Kernel */
/** @typedef {import("../memory.js").Arena} Arena */
/** @typedef {import("./types.js").ConvolutionData} ConvolutionData */
/** @typedef {import("./relu.js").Row} Row */
/** @typedef {import("./types.js").Places} Places */

/** A transposed convolution with padding 1 that keeps or doubles the size, and its ReLU. */
export class Block {
  /** @param {ConvolutionData} data */
  static size({ inputs, outputs, kernel }) {
    return (inputs * kernel * kernel + 1) * outputs;
  }

  /** @param {ConvolutionData} data @returns {number[]} */
  static order({ inputs, outputs, kernel }) {
    const order = [];
    for (let i = 0; i < inputs; i += 1) {
      for (let o = 0; o < outputs; o += 1) {
        for (let tap = 0; tap < kernel * kernel; tap += 1) {
          const tile = (tap * inputs / PANEL + Math.floor(i / PANEL)) * (outputs / PANEL) + Math.floor(o / PANEL);
          order.push(tile * TILE + (i % PANEL) * PANEL + (o % PANEL));
        }
      }
    }
    return order;
  }

  /**
   * @param {Arena} arena
   * @param {ConvolutionData} data
   * @param {Sheet} input
   * @param {Places} places
   */
  constructor(arena, data, input, places) {
    const { stride, outputs, kernel } = data;
    this.data = data;
    this.input = input;
    this.count = data.inputs * outputs * kernel ** 2;
    this.gradient = places.gradient;
    this.bias = places.weights + this.count;
    this.biasGradient = new Float64Array(outputs);
    this.taps = new Taps(arena, input, transposedTaps(kernel, stride), stride ** 2, outputs / PANEL, places.weights,
      places.gradient);
    this.output = new Sheet(arena, input.batch, input.size * stride, outputs / PANEL);
  }

  /**
   * Calls for every row of pixels of every phase and block.
   * @param {(sums: Row, output: Row, block: number) => void} use is told where the row is behind the start of the sums,
   *   where it is in the output, and the block of the output
   */
  #rows(use) {
    const { input, output, taps: { sums }, data: { stride } } = this;
    for (let phase = 0; phase < stride ** 2; phase += 1) {
      const [down, across] = [Math.floor(phase / stride), phase % stride];
      for (let b = 0; b < output.blocks; b += 1) {
        const before = (phase * output.blocks + b) * sums.stride;
        for (let e = 0; e < input.batch; e += 1) {
          for (let y = 0; y < input.size; y += 1) {
            const from = before + input.pixel(e, y, 0) * PANEL;
            const to = output.place(b) + output.pixel(e, stride * y + down, across) * PANEL;
            use([from, PANEL], [to, stride * PANEL], b);
          }
        }
      }
    }
  }

  /** @param {Kernel} kernel @param {Float32Array} heap */
  forward(kernel, heap) {
    const { taps, input: { size }, bias } = this;
    taps.forward(kernel, heap);
    this.#rows(([from, near], to, b) => rectify(heap, [taps.sums.start + from, near], to, size, bias + b * PANEL));
  }

  /** @param {Kernel} kernel @param {Float32Array} heap @param {Sheet} after the gradient of the output */
  backward(kernel, heap, after) {
    const { taps, input: { size }, output, biasGradient, gradient, count } = this;
    biasGradient.fill(0);
    const behind = after.start - output.start; // both are laid out alike
    this.#rows(([to, near], from, b) => {
      pass(heap, from, behind, [taps.slopes.start + to, near], size, biasGradient, b * PANEL);
    });
    taps.backward(kernel, heap);
    heap.set(biasGradient, gradient + count);
  }
}
