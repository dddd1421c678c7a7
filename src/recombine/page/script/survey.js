/**
 * A stage over a plane of the grid: its metric and its units' activity at every point, computed one point at a time,
 * while nobody moves anything.
 *
 * The metric is that of the pull-back over two factors, g = JᵀJ (Eq. 5), with its volume element √det g (Eq. 6). J is
 * by differences between neighbouring grid points, central ones, one-sided at the ends, in the units of the factors'
 * values: as `recombine.metrics.finite_difference_metric` has it.
 */

import { clamped, onPlane, valueAt } from "./grid.js";

/** @typedef {import("./decoder.js").Decoder} Decoder */
/** @typedef {import("./types.js").Factor} Factor */
/** g as its entries: across–across, across–down, down–down. @typedef {[number, number, number]} Metric */

const LARGEST_PLANE = 4096; // points
const MOST_NUMBERS = 2 ** 23; // numbers that are kept of a survey
const MOST_SURVEYS = 4; // that are kept, of all decoders together

const FLOOR = 1e-8; // volume elements below this count as this, as in `recombine.metrics.volume_statistics`

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

export class Survey {
  /** @type {Iterator<void> | null} */
  #steps = null;

  /**
   * @param {Decoder} decoder
   * @param {number} value of the program, which is the stage's
   * @param {number[]} at positions of the factors that are not on the plane
   * @param {[number, number]} plane
   */
  constructor(decoder, value, at, plane) {
    const { factors, program } = decoder;
    this.decoder = decoder;
    this.value = value;
    this.at = at.slice();
    this.plane = plane;
    /** Whether the plane has one factor only. */
    this.alone = plane[0] === plane[1];
    this.columns = factors[plane[0]].count;
    this.rows = this.alone ? 1 : factors[plane[1]].count;
    this.count = this.columns * this.rows;
    this.size = program ? program.value(value).length : 0;
    this.tooLarge = this.count > LARGEST_PLANE || 3 * this.columns * this.size > MOST_NUMBERS || this.columns < 2;
    /** Every so many units' activity is kept. */
    this.stride = Math.max(1, Math.ceil((this.size * this.count) / MOST_NUMBERS));
    this.units = Math.ceil(this.size / this.stride);
    /** Points, row by row, whose metric is known. */
    this.known = 0;
    /** Entries of g at each point. */
    this.metric = new Float64Array(this.tooLarge ? 0 : 3 * this.count);
    this.volume = new Float64Array(this.tooLarge ? 0 : this.count).fill(NaN);
    this.activity = new Float32Array(this.tooLarge ? 0 : this.count * this.units);
    /** The unit that varies most. @type {number | null} */
    this.varying = null;
  }

  /** Whether all is known. */
  get done() {
    return this.tooLarge || this.varying !== null;
  }

  /** Computes a little more: the stage, or its metric, at one point. */
  step() {
    this.#steps ??= this.#all();
    if (this.#steps.next().done) this.#steps = null;
  }

  *#all() {
    const row = this.columns * this.size;
    const lines = [0, 1, 2].map(() => new Float32Array(row)); // activations of three rows of the plane, in turn
    for (let j = 0; j <= this.rows; j += 1) {
      for (let i = 0; i < this.columns && j < this.rows; i += 1) {
        this.#evaluate(i, j, lines[j % 3].subarray(i * this.size, (i + 1) * this.size));
        yield;
      }
      if (j > 0) yield* this.#measure(j - 1, lines);
    }
    this.varying = this.#mostVarying();
  }

  /** @param {number} i @param {number} j @param {Float32Array} target */
  #evaluate(i, j, target) {
    const { decoder, units, stride } = this;
    if (!decoder.program) return;
    target.set(decoder.program.upTo(this.value, decoder.input(onPlane(this.at, this.plane, i, j))));
    const start = (j * this.columns + i) * units;
    for (let unit = 0; unit < units; unit += 1) this.activity[start + unit] = target[unit * stride];
  }

  /**
   * The metric along a row of the plane, once its neighbours are there.
   * @param {number} j
   * @param {Float32Array[]} lines
   */
  *#measure(j, lines) {
    const { factors } = this.decoder;
    const [across, down] = this.plane;
    const place = (/** @type {number} */ i, /** @type {number} */ k) =>
      lines[k % 3].subarray(i * this.size, (i + 1) * this.size);
    const tall = this.alone ? { behind: j, ahead: j, width: 1 } : neighbours(factors[down], j);
    for (let i = 0; i < this.columns; i += 1) {
      const wide = neighbours(factors[across], i);
      const metric = metricOf(
        [place(wide.behind, j), place(wide.ahead, j), wide.width],
        [place(i, tall.behind), place(i, tall.ahead), tall.width],
      );
      this.metric.set(metric, 3 * this.known);
      this.volume[this.known] = logVolume(metric, this.alone);
      this.known += 1;
      yield;
    }
  }

  /** The unit whose activity has the largest variance over the plane, among those kept. */
  #mostVarying() {
    let [best, most] = [0, -1];
    for (let unit = 0; unit < this.units; unit += 1) {
      let [sum, squares] = [0, 0];
      for (let point = 0; point < this.count; point += 1) {
        const number = this.activity[point * this.units + unit];
        sum += number;
        squares += number * number;
      }
      const variance = squares - (sum * sum) / this.count;
      if (variance > most) [best, most] = [unit, variance];
    }
    return best * this.stride;
  }

  /**
   * The unit that is shown where one is asked for: itself, or the next that was kept.
   * @param {number} asked −1 for the one that varies most
   */
  unit(asked) {
    if (asked < 0) return this.varying ?? 0;
    return Math.min(Math.floor(asked / this.stride), this.units - 1) * this.stride;
  }

  /** A unit's activity at every point, row by row. @param {number} unit */
  map(unit) {
    const kept = Math.floor(unit / this.stride);
    return Float32Array.from({ length: this.count }, (_, point) => this.activity[point * this.units + kept]);
  }

  /**
   * The metric at the grid point nearest to some positions; null while it is not known.
   * @param {number[]} at
   * @returns {Metric | null}
   */
  metricAt(at) {
    const point = this.pointAt(at);
    if (point >= this.known || this.tooLarge) return null;
    return /** @type {any} */ ([...this.metric.subarray(3 * point, 3 * point + 3)]);
  }

  /** The plane's point nearest to some positions. @param {number[]} at */
  pointAt(at) {
    const [across, down] = this.plane;
    const [i, j] = [across, down].map((k) => Math.round(clamped(this.decoder.factors[k], at[k])));
    return this.alone ? i : j * this.columns + i;
  }
}

/** Surveys of all decoders, the latest last. @type {{key: string, survey: Survey}[]} */
const SURVEYS = [];

/**
 * The survey of a stage over the plane, which may not have begun; the latest few are kept.
 * @param {Decoder} decoder
 * @param {number} value
 * @param {number[]} at
 * @param {[number, number]} plane
 * @returns {Survey}
 */
export function surveyOf(decoder, value, at, plane) {
  const others = at.map((position, k) => (plane.includes(k) ? "" : position.toFixed(3)));
  const key = [value, ...plane, ...others].join();
  const place = SURVEYS.findIndex((one) => one.key === key && one.survey.decoder === decoder);
  const [one] = place < 0 ? [{ key, survey: new Survey(decoder, value, at, plane) }] : SURVEYS.splice(place, 1);
  SURVEYS.push(one);
  if (SURVEYS.length > MOST_SURVEYS) SURVEYS.shift();
  return one.survey;
}

/** Work that is done step by step. @typedef {{done: boolean, step: () => void}} Work */

const SLICE = 8; // milliseconds
const AGAIN = 60; // milliseconds until it is asked again whether it is quiet
const TOLD = 120; // milliseconds between reports

export class Background {
  #waiting = false;
  #told = 0;

  /**
   * @param {() => boolean} isQuiet
   * @param {() => Work | null} next what is to be done now, if anything
   * @param {() => void} tell is called now and then while there is progress, and at the end
   */
  constructor(isQuiet, next, tell) {
    this.isQuiet = isQuiet;
    this.next = next;
    this.tell = tell;
  }

  /** Goes on, if there is something to do; called whenever that may have changed. */
  wake() {
    if (this.#waiting) return;
    this.#waiting = true;
    setTimeout(() => {
      this.#waiting = false;
      this.#slice();
    }, this.isQuiet() ? 0 : AGAIN);
  }

  #slice() {
    const work = this.next();
    if (!work) return;
    if (this.isQuiet()) {
      const start = performance.now();
      do work.step();
      while (!work.done && performance.now() - start < SLICE);
      if (work.done || start - this.#told > TOLD) {
        this.#told = start;
        this.tell();
      }
    }
    this.wake();
  }
}
