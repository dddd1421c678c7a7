/**
 * Activity of a batch of square images. Channels lie in blocks of eight; a block holds the eight numbers of every pixel
 * side by side. An image has a border of zeros and images follow each other, so that all pixels shifted by a step are
 * the same numbers read from another place.
 */

import { PANEL } from "../matmul.js";

/** @typedef {import("../memory.js").Arena} Arena */

export class Sheet {
  /**
   * @param {Arena} arena
   * @param {number} batch images
   * @param {number} size rows and columns of an image
   * @param {number} blocks of eight channels
   */
  constructor(arena, batch, size, blocks) {
    this.batch = batch;
    this.size = size;
    this.blocks = blocks;
    this.pitch = size + 2;
    /** Pixels of all images, borders included. */
    this.pixels = batch * this.pitch * this.pitch;
    this.guard = this.pitch + 1; // what a shift reaches beyond the first and the last pixel
    this.stride = (this.pixels + 2 * this.guard) * PANEL;
    this.start = arena.keep(blocks * this.stride) + this.guard * PANEL;
  }

  /** @param {number} block @returns {number} the place of its first pixel */
  place(block) {
    return this.start + block * this.stride;
  }

  /** The number of a pixel. @param {number} image @param {number} y @param {number} x */
  pixel(image, y, x) {
    return (image * this.pitch + y + 1) * this.pitch + x + 1;
  }
}

/** The same activity channel by channel: what gradients of weights read. */
export class Planes {
  /**
   * @param {Arena} arena
   * @param {Sheet} sheet
   */
  constructor(arena, sheet) {
    this.sheet = sheet;
    this.stride = sheet.pixels + 2 * sheet.guard;
    this.start = arena.keep(sheet.blocks * PANEL * this.stride) + sheet.guard;
  }

  /** @param {number} block @returns {number} the place of the first pixel of its first channel */
  place(block) {
    return this.start + block * PANEL * this.stride;
  }

  /** Follows the sheet. @param {Float32Array} heap */
  fill(heap) {
    const { sheet, stride } = this;
    for (let block = 0; block < sheet.blocks; block += 1) {
      let from = sheet.place(block);
      const to = this.place(block);
      for (let p = 0; p < sheet.pixels; p += 1) {
        for (let c = 0; c < PANEL; c += 1, from += 1) heap[to + c * stride + p] = heap[from];
      }
    }
  }
}
