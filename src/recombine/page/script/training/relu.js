/** Bias and ReLU of eight channels of a pixel, forward and backward. */

import { PANEL } from "../matmul.js";

/**
 * Adds the bias and applies ReLU.
 * @param {Float32Array} heap
 * @param {number} from the place of eight numbers
 * @param {number} to
 * @param {number} bias
 */
export function rectify(heap, from, to, bias) {
  for (let c = 0; c < PANEL; c += 1) {
    const sum = heap[from + c] + heap[bias + c];
    heap[to + c] = sum > 0 ? sum : 0;
  }
}

/**
 * The gradient before the ReLU, which is also added to that of the bias.
 * @param {Float32Array} heap
 * @param {number} activity
 * @param {number} after the gradient behind the ReLU
 * @param {number} to
 * @param {Float64Array} bias
 * @param {number} channel
 */
export function pass(heap, activity, after, to, bias, channel) {
  for (let c = 0; c < PANEL; c += 1) {
    const slope = heap[activity + c] > 0 ? heap[after + c] : 0;
    heap[to + c] = slope;
    bias[channel + c] += slope;
  }
}
