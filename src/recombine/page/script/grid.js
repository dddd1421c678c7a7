/**
 * Factors and their grid. A position is a factor value in grid steps, 0 at the lowest value. Grid points are numbered
 * with the last factor varying fastest.
 */

/** Returns a value, interpolated linearly between grid values. @param {Factor} factor @param {number} position */
export function valueAt(factor, position) {
  if (!factor.given) {
    const steps = Math.max(1, factor.count - 1);
    return factor.low + ((factor.high - factor.low) * position) / steps;
  }
  const below = Math.max(0, Math.min(Math.floor(position), factor.count - 2));
  const next = factor.given[Math.min(below + 1, factor.count - 1)];
  return factor.given[below] + (next - factor.given[below]) * (position - below);
}

/** Formats a value with as many digits as the grid step requires. @param {Factor} factor @param {number} position */
export function valueText(factor, position) {
  const label = factor.labels?.[Math.round(position)];
  if (label !== undefined) return shortened(label, 24);
  const value = valueAt(factor, position);
  const size = Math.abs((factor.high - factor.low) / Math.max(1, factor.count - 1));
  const digits = Number.isInteger(value) ? 0 : Math.max(1, Math.min(6, 1 - Math.floor(Math.log10(size || 1))));
  return value.toFixed(digits);
}

/** @param {string} text @param {number} [longest] in characters */
export function shortened(text, longest = 60) {
  return text.length > longest ? `${text.slice(0, longest - 1)}…` : text;
}

/** @param {Factor} factor @param {number} position */
export function clamped(factor, position) {
  return Math.max(0, Math.min(factor.count - 1, position));
}

/** Returns the index of the nearest grid point. @param {Factor[]} factors @param {number[]} positions */
export function nearestPoint(factors, positions) {
  return factors.reduce((flat, factor, k) => flat * factor.count + Math.round(clamped(factor, positions[k])), 0);
}

/** Returns the positions of a grid point. @param {Factor[]} factors @param {number} point @returns {number[]} */
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

/** Counts points across and down a plane of one or two factors. @param {Factor[]} factors @param {number[]} plane */
export function planeCounts(factors, [across, down]) {
  return [factors[across].count, across === down ? 1 : factors[down].count];
}

/** Returns positions on a plane. @param {number[]} at @param {number[]} plane @param {number} i @param {number} j */
export function onPlane(at, [across, down], i, j) {
  const point = at.slice();
  point[across] = i;
  if (across !== down) point[down] = j;
  return point;
}

/**
 * Returns the vertices, in grid steps, of a closed path through all corners and the centre of the held-out points.
 * @param {Factor[]} factors @param {number[]} positions @param {[number, number]} plane
 * @param {(positions: number[]) => boolean} isHeld @returns {[number, number][]}
 */
export function pathThrough(factors, positions, plane, isHeld) {
  const ends = planeCounts(factors, plane).map((count) => count - 1);
  let [count, x, y] = [0, 0, 0];
  for (let i = 0; i <= ends[0]; i += 1) {
    for (let j = 0; j <= ends[1]; j += 1) {
      if (!isHeld(onPlane(positions, plane, i, j))) continue;
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
 * Encodings, which map a factor's position to the activity of its neurons, as in `recombine.encodings`.
 * @type {Record<string, (position: number, factor: Factor, code: Code) => number[]>}
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
