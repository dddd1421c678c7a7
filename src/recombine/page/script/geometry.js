/**
 * The pull-back metric of a stage over two factors, g = JᵀJ (Eq. 5), and its volume element √det g (Eq. 6).
 *
 * J is by differences between neighbouring grid points, central ones, one-sided at the ends, in the units of the
 * factors' values: as `recombine.metrics.finite_difference_metric` has it.
 */

import { valueAt } from "./grid.js";

/** @typedef {import("./types.js").Factor} Factor */
/** g as its entries: across–across, across–down, down–down. @typedef {[number, number, number]} Metric */

export const FLOOR = 1e-8; // volume elements below this count as this, as in `recombine.metrics.volumes`

/**
 * Neighbours of a position along a factor, and how far their values are apart.
 * @param {Factor} factor
 * @param {number} position
 * @returns {{behind: number, ahead: number, width: number}}
 */
export function neighbours(factor, position) {
  const behind = Math.max(0, position - 1);
  const ahead = Math.min(factor.count - 1, position + 1);
  return { behind, ahead, width: valueAt(factor, ahead) - valueAt(factor, behind) || 1 };
}

/**
 * @param {[Float32Array, Float32Array, number]} across activations behind and ahead, and the width between them
 * @param {[Float32Array, Float32Array, number]} down
 * @returns {Metric}
 */
export function metricOf([left, right, wide], [above, below, tall]) {
  let [xx, xy, yy] = [0, 0, 0];
  for (let k = 0; k < left.length; k += 1) {
    const dx = right[k] - left[k];
    const dy = below[k] - above[k];
    xx += dx * dx;
    xy += dx * dy;
    yy += dy * dy;
  }
  return [xx / (wide * wide), xy / (wide * tall), yy / (tall * tall)];
}

/**
 * log10 of the volume element, floored.
 * @param {Metric} metric
 * @param {boolean} alone whether there is one factor only, along which g is one number
 */
export function logVolume([xx, xy, yy], alone = false) {
  const square = alone ? xx : xx * yy - xy * xy;
  return Math.log10(Math.max(FLOOR, Math.sqrt(Math.max(0, square))));
}

/**
 * The ellipse of steps that change a stage equally: dᵀ g d = size².
 * @param {Metric} metric
 * @param {number} size
 * @returns {{half: [number, number], angle: number}} half axes, longest first, and the longest one's angle from across
 */
export function ellipse([xx, xy, yy], size) {
  const middle = (xx + yy) / 2;
  const spread = Math.hypot((xx - yy) / 2, xy);
  const [least, most] = [Math.max(0, middle - spread), middle + spread];
  const angle = 0.5 * Math.atan2(2 * xy, xx - yy) + Math.PI / 2; // the stage changes least along the longest axis
  return { half: [size / Math.sqrt(least), size / Math.sqrt(most)], angle };
}
