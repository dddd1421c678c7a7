/**
 * A stage on a plane of the grid: its metric and its units' activity at every point, computed point by point while
 * nothing moves, usually in a worker.
 *
 * The metric is the pull-back to two factors, g = JᵀJ (Eq. 5), with the volume element √det g (Eq. 6). J is computed by
 * central differences between neighbouring grid points (one-sided at the ends), in units of factor values, as in
 * `recombine.metrics.finite_difference_metric`.
 */

import { clamped, onPlane, valueAt } from "./grid.js";

/** g as its entries: across–across, across–down, down–down. @typedef {[number, number, number]} Metric */

const LARGEST_PLANE = 4096; // points
const MOST_NUMBERS = 2 ** 23; // floats kept per survey
const MOST_SURVEYS = 4; // number of surveys kept across all decoders

const FLOOR = 1e-8; // lower bound for volume elements, as in `recombine.metrics.volume_statistics`

/** Returns the neighbours and the difference between their values. @param {Factor} factor @param {number} position */
export function neighbours(factor, position) {
  const behind = Math.max(0, position - 1);
  const ahead = Math.min(factor.count - 1, position + 1);
  return { behind, ahead, width: valueAt(factor, ahead) - valueAt(factor, behind) || 1 };
}

/**
 * Computes g from the activations behind and ahead along both factors, and the distances between them.
 * @param {[Float32Array, Float32Array, number]} across @param {[Float32Array, Float32Array, number]} down
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

/** Computes the bounded log10 volume element. @param {Metric} metric @param {boolean} alone whether g is a scalar */
export function logVolume([xx, xy, yy], alone = false) {
  const square = alone ? xx : xx * yy - xy * xy;
  return Math.log10(Math.max(FLOOR, Math.sqrt(Math.max(0, square))));
}

/** Returns F (Eq. 7), as `recombine.metrics.local_factorization`. @param {Metric} metric */
export function factorization([xx, xy, yy]) {
  return 1 - Math.abs(xy) / (xx + yy);
}

/**
 * Returns the ellipse of steps that change a stage equally, dᵀ g d = size²: its half axes, longest first, and angle.
 * @param {Metric} metric @param {number} size
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
   * @param {Decoder} decoder @param {number} value of the program: the stage
   * @param {number[]} at positions of the factors that are not on the plane @param {[number, number]} plane
   */
  constructor(decoder, value, at, plane) {
    const { factors } = decoder;
    this.decoder = decoder;
    this.value = value;
    this.at = at.slice();
    this.plane = plane;
    /** Whether the plane has only one factor. */
    this.alone = plane[0] === plane[1];
    this.columns = factors[plane[0]].count;
    this.rows = this.alone ? 1 : factors[plane[1]].count;
    this.count = this.columns * this.rows;
    this.size = decoder.sizeOf(value);
    this.tooLarge = this.count > LARGEST_PLANE || 3 * this.columns * this.size > MOST_NUMBERS || this.columns < 2;
    /** The activity of every stride-th unit is kept. */
    this.stride = Math.max(1, Math.ceil((this.size * this.count) / MOST_NUMBERS));
    this.units = Math.ceil(this.size / this.stride);
    /** Number of points whose metric is known, counted row by row. */
    this.known = 0;
    /** Entries of g at each point. */
    this.metric = new Float64Array(this.tooLarge ? 0 : 3 * this.count);
    this.volume = new Float64Array(this.tooLarge ? 0 : this.count).fill(NaN);
    this.activity = new Float32Array(this.tooLarge ? 0 : this.count * this.units);
    /** The unit that varies most. @type {number | null} */
    this.varying = null;
  }

  get done() {
    return this.tooLarge || this.varying !== null;
  }

  /** Computes the stage or its metric at one more point. */
  step() {
    this.#steps ??= this.#all();
    if (this.#steps.next().done) this.#steps = null;
  }

  /** Takes what a worker knows of the same survey. @param {any} answer */
  take({ known, metric, volume, varying, activity }) {
    Object.assign(this, { known, metric, volume, varying });
    if (activity) this.activity = activity;
  }

  *#all() {
    const { decoder, columns, size, units } = this;
    const lines = [0, 1, 2].map(() => new Float32Array(columns * size)); // a ring buffer of three rows of activations
    for (let j = 0; j <= this.rows; j += 1) {
      for (let i = 0; i < columns && j < this.rows; i += 1) {
        const stage = lines[j % 3].subarray(i * size, (i + 1) * size);
        stage.set(decoder.program?.upTo(this.value, decoder.input(onPlane(this.at, this.plane, i, j))) ?? []);
        const start = (j * columns + i) * units;
        for (let unit = 0; unit < units; unit += 1) this.activity[start + unit] = stage[unit * this.stride];
        yield;
      }
      if (j > 0) yield* this.#measure(j - 1, lines);
    }
    this.varying = this.#mostVarying();
  }

  /** Computes g along a row, whose neighbouring rows are known. @param {number} j @param {Float32Array[]} lines */
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

  /** Returns the unit, among those kept, whose activity has the largest variance across the plane. */
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

  /** Returns the unit, or the nearest kept unit below it. @param {number} asked −1: the one that varies most */
  unit(asked) {
    if (asked < 0) return this.varying ?? 0;
    return Math.min(Math.floor(asked / this.stride), this.units - 1) * this.stride;
  }

  /** Returns a unit's activity at every point, row by row. @param {number} unit */
  map(unit) {
    const kept = Math.floor(unit / this.stride);
    return Float32Array.from({ length: this.count }, (_, point) => this.activity[point * this.units + kept]);
  }

  /** The metric at the nearest grid point; null while it is not known. @param {number[]} at @returns {Metric | null} */
  metricAt(at) {
    const point = this.pointAt(at);
    if (point >= this.known || this.tooLarge) return null;
    return /** @type {any} */ ([...this.metric.subarray(3 * point, 3 * point + 3)]);
  }

  /** The index of the nearest point of the plane. @param {number[]} at */
  pointAt(at) {
    const [across, down] = this.plane;
    const [i, j] = [across, down].map((k) => Math.round(clamped(this.decoder.factors[k], at[k])));
    return this.alone ? i : j * this.columns + i;
  }
}

/** Recent surveys of all decoders, most recent last. @type {{key: string, survey: Survey}[]} */
const SURVEYS = [];

/**
 * Returns the survey of a stage on the plane, from the cache if possible.
 * @param {Decoder} decoder @param {number} value @param {number[]} at @param {[number, number]} plane
 */
export function surveyOf(decoder, value, at, plane) {
  const others = at.map((position, k) => (plane.includes(k) ? "" : position.toFixed(3)));
  const key = [value, ...plane, ...others].join();
  const place = SURVEYS.findIndex((entry) => entry.key === key && entry.survey.decoder === decoder);
  const [entry] = place < 0 ? [{ key, survey: new Survey(decoder, value, at, plane) }] : SURVEYS.splice(place, 1);
  SURVEYS.push(entry);
  if (SURVEYS.length > MOST_SURVEYS) SURVEYS.shift();
  return entry.survey;
}

/** A task performed step by step. @typedef {{done: boolean, step: () => void | Promise<void>}} Work */

const SLICE = 8; // milliseconds of steps between checks of whether the page is idle
const AGAIN = 60; // milliseconds between checks for whether the page is idle
const REPORTS = 120; // milliseconds between calls to `report`

export class Background {
  #waiting = false;
  #reported = 0;

  /**
   * @param {() => boolean} isQuiet whether the page is idle
   * @param {() => Work | null} next the current task, if any
   * @param {() => void} report called from time to time while there is progress, and at the end
   */
  constructor(isQuiet, next, report) {
    this.isQuiet = isQuiet;
    this.next = next;
    this.report = report;
  }

  /** Continues if there is work to do; call it whenever that may have changed. */
  wake() {
    if (this.#waiting) return;
    this.#waiting = true;
    setTimeout(() => this.#slice(), this.isQuiet() ? 0 : AGAIN);
  }

  async #slice() {
    const work = this.next();
    if (work && this.isQuiet()) {
      const start = performance.now();
      do await work.step();
      while (!work.done && performance.now() - start < SLICE);
      if (work.done || start - this.#reported > REPORTS) {
        this.#reported = start;
        this.report();
      }
    }
    this.#waiting = false;
    if (work) this.wake();
  }
}
