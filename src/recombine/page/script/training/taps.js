/**
 * A convolution that keeps or doubles the size, as products of matrices: one for each tap of its kernel, over all
 * pixels of the batch at once. Where the size doubles, output pixels of one parity (a phase) are a convolution of their
 * own.
 */

import { PANEL } from "../matmul.js";
import { Planes, Sheet } from "./sheets.js";

/** @typedef {import("../matmul.js").Kernel} Kernel */
/** @typedef {import("../memory.js").Arena} Arena */
/** Which pixel is read, and which phase it adds to. @typedef {{down: number, across: number, phase: number}} Tap */

export const TILE = PANEL * PANEL;

/**
 * Taps of a transposed convolution with padding 1, in the order of its weights.
 * @param {number} kernel
 * @param {number} stride
 * @returns {Tap[]}
 */
export function transposedTaps(kernel, stride) {
  const along = Array.from({ length: kernel }, (_, k) => {
    const step = Math.floor((k - 1) / stride);
    return { shift: 0 - step, parity: k - 1 - stride * step };
  });
  return along.flatMap((y) => along.map((x) => ({
    down: y.shift, across: x.shift, phase: y.parity * stride + x.parity,
  })));
}

export class Taps {
  /**
   * @param {Arena} arena
   * @param {Sheet} input
   * @param {Tap[]} taps
   * @param {number} phases
   * @param {number} blocks of eight output channels, in each phase
   * @param {number} weights their place: a tile of eight by eight for each tap, input block and output block
   * @param {number} gradient of the weights, its place
   */
  constructor(arena, input, taps, phases, blocks, weights, gradient) {
    this.input = input;
    this.blocks = blocks;
    this.weights = weights;
    this.gradient = gradient;
    this.taps = taps.map(({ down, across, phase }) => ({ shift: down * input.pitch + across, phase }));
    this.planes = new Planes(arena, input);
    /** Before bias and activation: phases one after another, on the pixels of the input. */
    this.sums = new Sheet(arena, input.batch, input.size, phases * blocks);
    /** Gradient of the sums; its border stays zero. */
    this.slopes = new Sheet(arena, input.batch, input.size, phases * blocks);
    /** Gradient of the input; its border means nothing. */
    this.before = new Sheet(arena, input.batch, input.size, input.blocks);
    this.turned = arena.keep(TILE);
  }

  /**
   * Calls for every tile of weights.
   * @param {(tile: number, shift: number, from: number, to: number) => void} use is told the tile's number, the shift
   *   in pixels, the block of the input and that of the sums
   */
  #each(use) {
    let tile = 0;
    for (const { shift, phase } of this.taps) {
      for (let from = 0; from < this.input.blocks; from += 1) {
        for (let to = 0; to < this.blocks; to += 1, tile += 1) use(tile, shift, from, phase * this.blocks + to);
      }
    }
  }

  /**
   * @param {Kernel} kernel
   * @param {Float32Array} heap
   */
  forward(kernel, heap) {
    const { input, sums, weights } = this;
    for (let block = 0; block < sums.blocks; block += 1) {
      heap.fill(0, sums.place(block), sums.place(block) + sums.pixels * PANEL);
    }
    this.#each((tile, shift, from, to) => {
      kernel.multiply(input.place(from) + shift * PANEL, weights + tile * TILE, sums.place(to), sums.pixels, PANEL, 1,
        PANEL, PANEL);
    });
  }

  /**
   * The gradients of weights and input, from that of the sums.
   * @param {Kernel} kernel
   * @param {Float32Array} heap
   */
  backward(kernel, heap) {
    const { input, slopes, planes, before, gradient, weights, turned } = this;
    planes.fill(heap);
    for (let block = 0; block < before.blocks; block += 1) {
      heap.fill(0, before.place(block), before.place(block) + before.pixels * PANEL);
    }
    this.#each((tile, shift, from, to) => {
      const own = gradient + tile * TILE;
      heap.fill(0, own, own + TILE);
      kernel.multiply(planes.place(from) + shift, slopes.place(to), own, PANEL, input.pixels, 1, planes.stride, PANEL);
      for (let i = 0; i < PANEL; i += 1) {
        for (let j = 0; j < PANEL; j += 1) heap[turned + j * PANEL + i] = heap[weights + tile * TILE + i * PANEL + j];
      }
      kernel.multiply(slopes.place(to) - shift * PANEL, turned, before.place(from), input.pixels, PANEL, 1, PANEL,
        PANEL);
    });
  }
}
