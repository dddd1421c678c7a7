/** Tuning curves: a unit's activity along one factor of the plane. */

import { mark, penOf, range, short } from "./charts.js";
import { isHeldOut, nearestPoint, valueText } from "./grid.js";

/** @typedef {import("./survey.js").Survey} Survey */

const FRAME = { left: 34, right: 8, top: 8, bottom: 20 };

/**
 * A unit's activity along one factor of the plane: its mean over the other one, and through the present point.
 * @param {HTMLCanvasElement} canvas
 * @param {Survey} survey
 * @param {Float32Array} map
 * @param {0 | 1} axis of the plane
 * @param {number[]} at
 */
export function drawCurve(canvas, survey, map, axis, at) {
  const { pen, wide, tall, colour } = penOf(canvas, 1.45);
  if (!pen) return;
  const factor = survey.plane[axis];
  const { mean, through } = curvesOf(survey, map, axis, at);
  const [low, high] = range(map);
  const count = mean.length;
  const x = (/** @type {number} */ k) =>
    FRAME.left + (k / Math.max(1, count - 1)) * (wide - FRAME.left - FRAME.right);
  const y = (/** @type {number} */ number) =>
    tall - FRAME.bottom - ((number - low) / (high - low || 1)) * (tall - FRAME.top - FRAME.bottom);
  shadeHeldOut(pen, survey, axis, at, x, tall, colour("--held"));
  pen.strokeStyle = colour("--line");
  pen.lineWidth = 1;
  pen.strokeRect(FRAME.left, FRAME.top, wide - FRAME.left - FRAME.right, tall - FRAME.top - FRAME.bottom);
  const line = (/** @type {number[]} */ numbers, /** @type {string} */ stroke, /** @type {number[]} */ dashes) => {
    pen.setLineDash(dashes);
    pen.strokeStyle = stroke;
    pen.lineWidth = 1.8;
    pen.beginPath();
    numbers.forEach((number, k) => pen.lineTo(x(k), y(number)));
    pen.stroke();
    pen.setLineDash([]);
  };
  line(through, colour("--accent"), [4, 3]);
  line(mean, colour("--ink"), []);
  mark(pen, x(at[factor]), y(through[Math.round(at[factor])]), colour("--accent"));
  const { factors } = survey.decoder;
  pen.fillStyle = colour("--soft");
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "right";
  pen.fillText(short(high), FRAME.left - 4, FRAME.top + 9);
  pen.fillText(short(low), FRAME.left - 4, tall - FRAME.bottom);
  pen.fillText(valueText(factors[factor], count - 1), wide - FRAME.right, tall - 6);
  pen.textAlign = "left";
  pen.fillText(valueText(factors[factor], 0), FRAME.left, tall - 6);
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Survey} survey
 * @param {0 | 1} axis
 * @param {number[]} at
 * @param {(k: number) => number} x
 * @param {number} tall
 * @param {string} colour
 */
function shadeHeldOut(pen, survey, axis, at, x, tall, colour) {
  const { decoder, plane } = survey;
  const point = at.slice();
  const { count } = decoder.factors[plane[axis]];
  pen.fillStyle = colour;
  pen.globalAlpha = 0.45;
  for (let k = 0; k < count; k += 1) {
    point[plane[axis]] = k;
    if (!isHeldOut(decoder.held, nearestPoint(decoder.factors, point))) continue;
    const [left, right] = [x(Math.max(0, k - 0.5)), x(Math.min(count - 1, k + 0.5))];
    pen.fillRect(left, FRAME.top, right - left, tall - FRAME.top - FRAME.bottom);
  }
  pen.globalAlpha = 1;
}

/**
 * A unit's tuning curve along an axis of the plane, as `recombine.metrics.neuron_tuning` has it, and the same activity
 * through the present point.
 * @param {Survey} survey
 * @param {Float32Array} map
 * @param {0 | 1} axis
 * @param {number[]} at
 * @returns {{mean: number[], through: number[]}}
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
