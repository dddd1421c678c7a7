/** Bias and ReLU of eight channels along a row of pixels, forward and backward. */

import { PANEL } from "../matmul.js";

/** Where the numbers of a row's first pixel are, and how far those of the next. @typedef {[number, number]} Row */

/**
 * Adds the bias and applies ReLU.
 * @param {Float32Array} heap
 * @param {Row} sums
 * @param {Row} activity
 * @param {number} count pixels
 * @param {number} bias
 */
export function rectify(heap, [sums, near], [activity, far], count, bias) {
  for (let c = 0; c < PANEL; c += 1) {
    const added = heap[bias + c];
    for (let n = 0, from = sums + c, to = activity + c; n < count; n += 1, from += near, to += far) {
      const sum = heap[from] + added;
      heap[to] = sum > 0 ? sum : 0;
    }
  }
}

/**
 * The gradient before the ReLU, which is also added to that of the bias.
 * @param {Float32Array} heap
 * @param {Row} activity
 * @param {number} after how far behind the activity its gradient lies
 * @param {Row} slopes where the gradient before the ReLU goes
 * @param {number} count pixels
 * @param {Float64Array} bias
 * @param {number} channel the first of the eight
 */
export function pass(heap, [activity, far], after, [slopes, near], count, bias, channel) {
  for (let c = 0; c < PANEL; c += 1) {
    let sum = 0;
    for (let n = 0, from = activity + c, to = slopes + c; n < count; n += 1, from += far, to += near) {
      const slope = heap[from] > 0 ? heap[from + after] : 0;
      heap[to] = slope;
      sum += slope;
    }
    bias[channel + c] += sum;
  }
}
