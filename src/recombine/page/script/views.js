/** Views of a stage on the plane: its volume element and the tuning of one unit. */

import { clamped, onPlane, valueText } from "./grid.js";
import { Picture, diverging, drawChart, drawImage, element, mark, outline, penOf, twice } from "./pictures.js";
import { tell } from "./explained.js";
import { ellipse, factorization, logVolume, surveyOf } from "./survey.js";

const SHADES = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const CELLS = 2.2; // half axis of an ellipse of mean volume, in steps of the grid
/** A canvas with one pixel per cell. @type {HTMLCanvasElement | undefined} */
let scratch;

export class StageViews {
  /** @param {Decoder} decoder */
  constructor(decoder) {
    this.decoder = decoder;
    this.root = element("div", "views");
    this.volume = new Picture("log10 dv on the plane");
    this.activity = new Picture("a unit on the plane");
    this.curves = [new Picture("a unit across"), new Picture("a unit down")];
    this.progress = element("p", "soft");
    this.drawn = element("div");
    const dv = "log10 dv is the log volume element: how much the stage enlarges a cell of the plane. " +
      "All steps that end on the ellipse change the stage equally.";
    const curves = "Tuning curves show the mean over the other factor (solid) and a cut through the point (dashed).";
    const charts = element("div", "pictures charts");
    charts.append(...[this.volume, this.activity, ...this.curves].map((picture) => picture.figure));
    this.drawn.append(element("h3", "", "Over the plane"), element("p", "soft", `${dv} ${curves}`), charts);
    this.root.append(this.progress, this.drawn);
    /** Whether the view is on screen; nothing is computed while it is not. */
    this.visible = false;
    this.observer = new IntersectionObserver((entries) => {
      this.visible = entries[entries.length - 1].isIntersecting;
      if (this.visible) this.appeared();
    });
    this.observer.observe(this.root);
    /** Called when the view becomes visible. */
    this.appeared = () => {};
  }

  /** The survey to show. @param {State} state */
  survey(state) {
    const stages = this.decoder.data.program?.stages ?? [];
    const { value } = stages[Math.min(state.stage, stages.length - 1)];
    return surveyOf(this.decoder, value, state.at, state.plane);
  }

  /** Draws the part computed so far. @param {State} state */
  draw(state) {
    const survey = this.survey(state);
    const share = Math.floor((100 * survey.known) / survey.count);
    this.progress.textContent = survey.tooLarge ? "The plane or the stage is too large for these views." :
      `Running the decoder over the plane: ${share} %`;
    this.progress.hidden = survey.done && !survey.tooLarge;
    this.drawn.hidden = survey.tooLarge;
    if (survey.tooLarge) return;
    this.#drawVolume(survey, state);
    this.#drawTuning(survey, state);
  }

  /** @param {Survey} survey @param {State} state */
  #drawVolume(survey, { at }) {
    const bounds = range(survey.volume);
    drawMap(this.volume.canvas, survey, survey.volume, bounds, sequential, at, true);
    const here = survey.volume[survey.pointAt(at)];
    const words = [Number.isNaN(here) ? "" : `log10 dv ${digits(here)} here`];
    if (survey.known) words.push(`${digits(bounds[0])} (dark) to ${digits(bounds[1])} (light) over the plane`);
    this.volume.caption(words.filter(Boolean).join("; ") || "log10 dv");
    const metric = survey.metricAt(at);
    tell(this.root, "h3:over the plane", metric && !survey.alone ? numbersOfMetric(metric) : "");
  }

  /** @param {Survey} survey @param {State} state */
  #drawTuning(survey, { at, unit }) {
    for (const { figure } of [this.activity, ...this.curves]) figure.hidden = !survey.done;
    this.curves[1].figure.hidden ||= survey.alone;
    if (!survey.done) return;
    const own = survey.unit(unit);
    const map = survey.map(own);
    const [low, high] = range(map);
    const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
    drawMap(this.activity.canvas, survey, map, [-most, most], diverging, at, false);
    const which = unit < 0 ? " (the most variable)" : "";
    const here = map[survey.pointAt(at)];
    this.activity.caption(`unit ${own}${this.#place(survey, own)}${which}: ${short(here)} here, ` +
      `${short(low)} to ${short(high)} over the plane`);
    for (const axis of /** @type {(0 | 1)[]} */ (survey.alone ? [0] : [0, 1])) {
      drawCurve(this.curves[axis].canvas, survey, map, axis, at.map((p, k) => clamped(this.decoder.factors[k], p)));
      this.curves[axis].caption(`unit ${own} along ${this.decoder.factors[survey.plane[axis]].name}`);
    }
  }

  /** Returns the map, row and column of a unit, if any, as text. @param {Survey} survey @param {number} unit */
  #place(survey, unit) {
    const shape = this.decoder.data.program?.shapes[survey.value].slice(1) ?? [];
    if (shape.length !== 3) return "";
    const [, rows, columns] = shape;
    const [map, row] = [Math.floor(unit / (rows * columns)), Math.floor(unit / columns) % rows];
    return `, map ${map}, row ${row}, column ${unit % columns}`;
  }
}

/** @param {[number, number, number]} metric at the point */
function numbersOfMetric(metric) {
  const [xx, xy, yy] = metric.map(short);
  const [dv, f] = [10 ** logVolume(metric), factorization(metric)];
  const rest = Number.isNaN(f) ? "" : `, F = ${short(f)}`;
  return `Here g₁₁ = ${xx}, g₁₂ = ${xy}, g₂₂ = ${yy}: dv = ${short(dv)}${rest}.`;
}

/** @param {number} number */
function digits(number) {
  return number.toFixed(2).replace("-", "−");
}

/** Viridis, a perceptually uniform colour map from dark blue to yellow. @type {Colours} */
export function sequential(share) {
  const place = Math.max(0, Math.min(1, share)) * (SHADES.length - 1);
  const below = Math.min(Math.floor(place), SHADES.length - 2);
  return /** @type {any} */ (SHADES[below].map((level, c) => level + (SHADES[below + 1][c] - level) * (place - below)));
}

/** Returns the minimum and maximum, ignoring NaN. @param {ArrayLike<number>} numbers @returns {[number, number]} */
export function range(numbers) {
  let [low, high] = [Infinity, -Infinity];
  for (let k = 0; k < numbers.length; k += 1) {
    if (numbers[k] < low) low = numbers[k];
    if (numbers[k] > high) high = numbers[k];
  }
  return low <= high ? [low, high] : [0, 0];
}

/**
 * Draws all complete rows of numbers on the plane; held-out cells are framed, and the current point is marked.
 * @param {Canvas} canvas @param {Survey} survey @param {ArrayLike<number>} numbers @param {[number, number]} bounds
 * @param {Colours} palette @param {number[]} at @param {boolean} withEllipse
 */
function drawMap(canvas, survey, numbers, [low, high], palette, at, withEllipse) {
  const { columns, rows } = survey;
  const { pen, wide, tall, colour } = penOf(canvas, survey.alone ? 8 : 1);
  const [dx, dy] = [wide / columns, tall / rows];
  const complete = Math.floor(survey.known / columns); // rows
  if (complete) {
    scratch ??= document.createElement("canvas");
    drawImage(scratch, numbers, [1, complete, columns], low, high, palette);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(scratch, 0, 0, wide, complete * dy);
  }
  const [across, down] = survey.plane;
  outline(pen, columns, rows, dx, dy, (i, j) => survey.decoder.isHeldOut(onPlane(at, survey.plane, i, j)));
  twice(pen, "#000a", "#fffc");
  const [x, y] = [(at[across] + 0.5) * dx, survey.alone ? tall / 2 : (at[down] + 0.5) * dy];
  if (withEllipse) {
    pen.save();
    pen.translate(x, y);
    pen.scale(dx, dy);
    const drawn = ellipsePath(pen, survey, at);
    pen.restore();
    if (drawn) twice(pen, "#000c", "#fff");
  }
  mark(pen, x, y, 4, colour("--accent"), "#fff");
}

/**
 * Creates a path along the ellipse of steps that change the stage equally, scaled to CELLS at the plane's mean volume.
 * Returns whether the metric is known. The pen's unit is a grid step, and its origin is the current point.
 * @param {Pen} pen @param {Survey} survey @param {number[]} at
 */
function ellipsePath(pen, survey, at) {
  const metric = survey.metricAt(at);
  if (!metric || survey.alone || !survey.done) return false;
  const { factors } = survey.decoder;
  const [wide, tall] = survey.plane.map((k) => (factors[k].high - factors[k].low) / Math.max(1, factors[k].count - 1));
  const known = survey.volume.reduce((sum, number) => sum + number, 0) / survey.count;
  const size = CELLS * Math.sqrt(10 ** known * wide * tall); // in units of the stage
  const { half, angle } = ellipse([metric[0] * wide * wide, metric[1] * wide * tall, metric[2] * tall * tall], size);
  const most = Math.max(survey.columns, survey.rows);
  pen.beginPath();
  pen.ellipse(0, 0, Math.min(half[0], most), Math.min(half[1], most), angle, 0, 2 * Math.PI);
  return true;
}

/** Formats a number with two significant digits. @param {number} number */
export function short(number) {
  const text = Math.abs(number) >= 1000 ? number.toExponential(0) : String(Number(number.toPrecision(2)));
  return text.replace("-", "−");
}

/**
 * Plots a unit's activity against one factor of the plane: the mean over the other factor, and a cut through the point.
 * @param {Canvas} canvas @param {Survey} survey @param {Float32Array} map @param {0 | 1} axis @param {number[]} at
 */
function drawCurve(canvas, survey, map, axis, at) {
  const { decoder, plane } = survey;
  const factor = plane[axis];
  const { mean, through } = curvesOf(survey, map, axis, at);
  const [low, high] = range(map);
  const end = mean.length - 1;
  const isHeld = (/** @type {number} */ k) => decoder.isHeldOut(at.map((position, f) => (f === factor ? k : position)));
  /** @type {(numbers: number[]) => [number, number][]} */
  const points = (numbers) => numbers.map((number, k) => [k, number]);
  const { pen, x, y, colour } = drawChart(canvas, {
    end, low, high, aspect: 1.45, ticks: [[low, short(low)], [high, short(high)]],
    words: [valueText(decoder.factors[factor], 0), valueText(decoder.factors[factor], end)],
    shaded: [...mean.keys()].filter(isHeld).map((k) => [Math.max(0, k - 0.5), Math.min(end, k + 0.5)]),
  }, [
    { points: points(through), colour: "--accent", dashes: [4, 3] },
    { points: points(mean), colour: "--ink" },
  ]);
  mark(pen, x(at[factor]), y(through[Math.round(at[factor])]), 4, colour("--accent"), "#fff");
}

/**
 * Returns a unit's tuning curve along an axis of the plane, as in `recombine.metrics.neuron_tuning`, and its activity
 * along the cut through the current point. @param {Survey} survey @param {Float32Array} map @param {0 | 1} axis
 * @param {number[]} at
 */
export function curvesOf(survey, map, axis, at) {
  const { columns, rows } = survey;
  const [count, others] = axis === 0 ? [columns, rows] : [rows, columns];
  const here = survey.pointAt(at);
  const other = axis === 0 ? Math.floor(here / columns) : here % columns;
  const place = (/** @type {number} */ k, /** @type {number} */ o) => (axis === 0 ? o * columns + k : k * columns + o);
  const mean = Array.from({ length: count }, (_, k) => {
    let sum = 0;
    for (let o = 0; o < others; o += 1) sum += map[place(k, o)];
    return sum / others;
  });
  return { mean, through: Array.from({ length: count }, (_, k) => map[place(k, other)]) };
}
