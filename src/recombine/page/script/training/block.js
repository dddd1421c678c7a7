/** The decoder's stages between the first and the last. */

import { PANEL } from "../matmul.js";
import { pass, rectify } from "./relu.js";
import { Sheet } from "./sheets.js";
import { TILE, Taps, transposedTaps } from "./taps.js";

/** @typedef {import("../matmul.js").Kernel} Kernel */
/** @typedef {import("../memory.js").Arena} Arena */
/** @typedef {import("./types.js").ConvolutionData} ConvolutionData */
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
   * Calls for the eight numbers of every pixel, phase and block: their place in the first block of sums, that in the
   * first block of the output, the block of sums, and the block of the output.
   * @param {(from: number, to: number, sum: number, block: number) => void} use
   */
  #each(use) {
    const { input, output, data: { stride } } = this;
    for (let phase = 0; phase < stride ** 2; phase += 1) {
      const [down, across] = [Math.floor(phase / stride), phase % stride];
      for (let b = 0; b < output.blocks; b += 1) {
        for (let e = 0; e < input.batch; e += 1) {
          for (let y = 0; y < input.size; y += 1) {
            let from = input.pixel(e, y, 0) * PANEL;
            let to = output.pixel(e, stride * y + down, across) * PANEL;
            for (let x = 0; x < input.size; x += 1, from += PANEL, to += stride * PANEL) {
              use(from, to, phase * output.blocks + b, b);
            }
          }
        }
      }
    }
  }

  /** @param {Kernel} kernel @param {Float32Array} heap */
  forward(kernel, heap) {
    const { taps: { sums }, output, bias } = this;
    this.taps.forward(kernel, heap);
    this.#each((from, to, sum, b) => rectify(heap, sums.place(sum) + from, output.place(b) + to, bias + b * PANEL));
  }

  /** @param {Kernel} kernel @param {Float32Array} heap @param {Sheet} after */
  backward(kernel, heap, after) {
    const { taps, output, biasGradient, gradient, count } = this;
    biasGradient.fill(0);
    this.#each((from, to, sum, b) => {
      pass(heap, output.place(b) + to, after.place(b) + to, taps.slopes.place(sum) + from, biasGradient, b * PANEL);
    });
    taps.backward(kernel, heap);
    heap.set(biasGradient, gradient + count);
  }
}
