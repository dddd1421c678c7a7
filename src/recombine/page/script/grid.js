/**
 * Factors and their grid. A point is given by its positions: values counted in steps, 0 at a factor's lowest value.
 * Points of the grid are numbered with the last factor fastest.
 */

/** @typedef {import("./types.js").Factor} Factor */

/**
 * @param {Factor} factor
 * @param {number} position
 * @returns {number} the value, on straight lines between neighbouring values of the grid
 */
export function valueAt(factor, position) {
  if (!factor.given) {
    const steps = Math.max(1, factor.count - 1);
    return factor.low + ((factor.high - factor.low) * position) / steps;
  }
  const below = Math.max(0, Math.min(Math.floor(position), factor.count - 2));
  const next = factor.given[Math.min(below + 1, factor.count - 1)];
  return factor.given[below] + (next - factor.given[below]) * (position - below);
}

/**
 * @param {Factor} factor
 * @param {number} position
 * @returns {string} the value with as many digits as one can tell apart
 */
export function valueText(factor, position) {
  const label = factor.labels?.[Math.round(position)];
  if (label !== undefined) return label.length > 24 ? `${label.slice(0, 23)}…` : label;
  const value = valueAt(factor, position);
  const size = Math.abs((factor.high - factor.low) / Math.max(1, factor.count - 1));
  const digits = Number.isInteger(value) ? 0 : Math.max(1, Math.min(6, 1 - Math.floor(Math.log10(size || 1))));
  return value.toFixed(digits);
}

/** @param {Factor} factor @param {number} position */
export function clamped(factor, position) {
  return Math.max(0, Math.min(factor.count - 1, position));
}

/** The number of the grid point that is nearest. @param {Factor[]} factors @param {number[]} positions */
export function nearestPoint(factors, positions) {
  return factors.reduce((flat, factor, k) => flat * factor.count + Math.round(clamped(factor, positions[k])), 0);
}

/** Positions of a grid point. @param {Factor[]} factors @param {number} point @returns {number[]} */
export function positionsOf(factors, point) {
  const positions = new Array(factors.length).fill(0);
  for (let k = factors.length - 1; k >= 0; k -= 1) {
    positions[k] = point % factors[k].count;
    point = Math.floor(point / factors[k].count);
  }
  return positions;
}

/** @param {Factor[]} factors */
export function gridSize(factors) {
  return factors.reduce((size, factor) => size * factor.count, 1);
}

/**
 * A point's bit of a mask, such as that of the hold-out, lowest bit first.
 * @param {Uint8Array} bits
 * @param {number} point
 */
export function isHeldOut(bits, point) {
  return ((bits[point >> 3] >> (point & 7)) & 1) === 1;
}

/**
 * A way through a plane of the grid: from corner to corner through the middle of the held-out points, and back.
 * @param {Factor[]} factors
 * @param {number[]} positions
 * @param {[number, number]} plane
 * @param {Uint8Array} bits
 * @returns {[number, number][]} corners of the way, in steps
 */
export function wayThrough(factors, positions, plane, bits) {
  const [across, down] = plane;
  const ends = [factors[across].count - 1, across === down ? 0 : factors[down].count - 1];
  let [count, x, y] = [0, 0, 0];
  const point = positions.slice();
  for (let i = 0; i <= ends[0]; i += 1) {
    for (let j = 0; j <= ends[1]; j += 1) {
      point[across] = i;
      if (across !== down) point[down] = j;
      if (!isHeldOut(bits, nearestPoint(factors, point))) continue;
      count += 1;
      x += i;
      y += j;
    }
  }
  /** @type {[number, number]} */
  const middle = count ? [x / count, y / count] : [ends[0] / 2, ends[1] / 2];
  return [[0, 0], middle, [ends[0], ends[1]], [ends[0], 0], middle, [0, ends[1]], [0, 0]];
}

/** @param {number} count @param {(k: number) => number} activity */
function neurons(count, activity) {
  return Array.from({ length: count }, (_, k) => activity(k));
}

/** @param {Factor} factor @param {number} value */
function radians(factor, value) {
  return (value * 2 * Math.PI) / (factor.period ?? 360);
}

/**
 * Encodings: the position of a factor to the activity of its neurons, as `recombine.encodings` defines them.
 * @type {Record<string, (position: number, factor: Factor, code: import("./types.js").Code) => number[]>}
 */
export const CODES = {
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
