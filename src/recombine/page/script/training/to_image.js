/** The decoder's last stage. */

import { PANEL } from "../matmul.js";
import { TILE, Taps } from "./taps.js";

/** @typedef {import("./sheets.js").Sheet} Sheet */
/** @typedef {import("../matmul.js").Kernel} Kernel */
/** @typedef {import("../memory.js").Arena} Arena */
/** @typedef {import("./types.js").ConvolutionData} ConvolutionData */
/** @typedef {import("./types.js").Places} Places */

/** A 3 × 3 convolution to one channel: a map for each tap, which is one product of matrices, and their shifted sum. */
export class ToImage {
  /** @param {ConvolutionData} data */
  static size({ inputs, kernel }) {
    return inputs * ToImage.#blocks(kernel) * PANEL + 1;
  }

  /** @param {ConvolutionData} data @returns {number[]} */
  static order({ inputs, kernel }) {
    const order = [];
    for (let i = 0; i < inputs; i += 1) {
      for (let tap = 0; tap < kernel * kernel; tap += 1) {
        const tile = Math.floor(i / PANEL) * ToImage.#blocks(kernel) + Math.floor(tap / PANEL);
        order.push(tile * TILE + (i % PANEL) * PANEL + (tap % PANEL));
      }
    }
    return order;
  }

  /** Blocks of eight taps. @param {number} kernel */
  static #blocks(kernel) {
    return Math.ceil(kernel ** 2 / PANEL);
  }

  /**
   * @param {Arena} arena
   * @param {ConvolutionData} data
   * @param {Sheet} input
   * @param {Places} places
   */
  constructor(arena, data, input, places) {
    this.input = input;
    this.count = ToImage.size(data) - 1;
    this.bias = places.weights + this.count;
    this.biasGradient = places.gradient + this.count;
    const blocks = ToImage.#blocks(data.kernel);
    const whole = [{ down: 0, across: 0, phase: 0 }];
    this.taps = new Taps(arena, input, whole, 1, blocks, places.weights, places.gradient);
    const { sums } = this.taps;
    const half = (data.kernel - 1) / 2;
    /** The block of each tap's map, its place among the eight, and its shift in pixels. */
    this.maps = Array.from({ length: data.kernel ** 2 }, (_, tap) => ({
      block: Math.floor(tap / PANEL),
      lane: tap % PANEL,
      shift: (Math.floor(tap / data.kernel) - half) * sums.pitch + (tap % data.kernel) - half,
    }));
    /** Images, one after another, without borders. */
    this.images = new Float32Array(input.batch * input.size ** 2);
    /** Their gradient, on the pixels of the input. */
    this.slopes = new Float32Array(sums.pixels + 2 * sums.guard);
  }

  /** @param {Kernel} kernel @param {Float32Array} heap */
  forward(kernel, heap) {
    const { input, images, taps: { sums }, maps } = this;
    this.taps.forward(kernel, heap);
    images.fill(heap[this.bias]);
    for (const { block, lane, shift } of maps) {
      for (let e = 0, to = 0; e < input.batch; e += 1) {
        for (let y = 0; y < input.size; y += 1) {
          let from = sums.place(block) + (sums.pixel(e, y, 0) + shift) * PANEL + lane;
          for (let x = 0; x < input.size; x += 1, to += 1, from += PANEL) images[to] += heap[from];
        }
      }
    }
  }

  /** @param {Kernel} kernel @param {Float32Array} heap @param {Float32Array} after the gradient of the images */
  backward(kernel, heap, after) {
    const { input, slopes, taps, maps } = this;
    const { guard } = input;
    let total = 0;
    for (let e = 0, from = 0; e < input.batch; e += 1) {
      for (let y = 0; y < input.size; y += 1) {
        const to = guard + input.pixel(e, y, 0);
        for (let x = 0; x < input.size; x += 1, from += 1) total += slopes[to + x] = after[from];
      }
    }
    const shifts = maps.map(({ shift }) => guard - shift);
    const places = maps.map(({ block, lane }) => taps.slopes.place(block) + lane);
    for (let e = 0; e < input.batch; e += 1) {
      for (let y = 0; y < input.size; y += 1) {
        const pixel = input.pixel(e, y, 0);
        for (let x = pixel; x < pixel + input.size; x += 1) {
          for (let k = 0; k < shifts.length; k += 1) heap[places[k] + x * PANEL] = slopes[x + shifts[k]];
        }
      }
    }
    taps.backward(kernel, heap);
    heap[this.biasGradient] = total;
  }
}
