/** Encodings: the position of a factor to the activity of its neurons, as `recombine.encodings` defines them. */

import { valueAt } from "./grid.js";

/** @typedef {import("./types.js").Factor} Factor */
/** @typedef {import("./types.js").Code} Code */

/**
 * @param {number} count
 * @param {(k: number) => number} activity
 */
function neurons(count, activity) {
  return Array.from({ length: count }, (_, k) => activity(k));
}

/**
 * @param {Factor} factor
 * @param {number} value
 */
function radians(factor, value) {
  return (value * 2 * Math.PI) / (factor.period ?? 360);
}

/** @type {Record<string, (position: number, factor: Factor, code: Code) => number[]>} */
const CODES = {
  bump: (v, factor, { variance }) => neurons(factor.count, (k) => Math.exp(-((k - v) ** 2) / (2 * variance))),
  onehot: (v, factor) => neurons(factor.count, (k) => (k === Math.round(v) ? 1 : 0)),
  ramp: (v, factor) => neurons(factor.count, (k) => Math.max(0, Math.min(1, v - k + 0.5))),
  rate(v, factor, { scale }) {
    const value = valueAt(factor, v);
    const half = (factor.high - factor.low) / 2 || 1;
    return [scale === "unit" ? (value - (factor.high + factor.low) / 2) / half : value];
  },
  positional(v, factor, { pairs, base }) {
    const angles = neurons(pairs, (k) => v / base ** (k / pairs));
    return [...angles.map(Math.sin), ...angles.map(Math.cos)];
  },
  polar(v, factor) {
    if (factor.form !== "angle") return neurons(factor.count, (k) => Math.max(0, 1 - Math.abs(k - v)));
    const angle = radians(factor, valueAt(factor, v));
    return [Math.cos(angle), Math.sin(angle)];
  },
  circular(v, factor, code) {
    if (factor.period === null) return CODES.bump(v, factor, code);
    const spacing = factor.count > 1 ? (factor.high - factor.low) / (factor.count - 1) : 1;
    const step = radians(factor, spacing);
    const angle = radians(factor, valueAt(factor, v));
    return neurons(factor.count, (k) => {
      const distance = angle - radians(factor, valueAt(factor, k));
      return Math.exp((Math.cos(distance) - 1) / (code.variance * step * step));
    });
  },
};

/**
 * The code of one factor.
 * @param {number} position
 * @param {Factor} factor
 * @param {Code} code
 */
export function codeOf(position, factor, code) {
  return CODES[code.kind](position, factor, code);
}
