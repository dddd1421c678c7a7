/** Drawings over a plane of two factors: at the screen's resolution, in the page's colours. */

import { isHeldOut, nearestPoint } from "./grid.js";
import { ellipse } from "./geometry.js";
import { drawImage } from "./pictures.js";

/** @typedef {import("./survey.js").Survey} Survey */

const SHADES = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const CELLS = 2.2; // half axis of an ellipse of mean volume, in steps of the grid
/** On which cells are drawn as single pixels. @type {HTMLCanvasElement | undefined} */
let scratch;

/**
 * From dark blue to yellow, equally bright steps (viridis).
 * @param {number} share 0 … 1
 * @returns {[number, number, number]}
 */
export function sequential(share) {
  const place = Math.max(0, Math.min(1, share)) * (SHADES.length - 1);
  const below = Math.min(Math.floor(place), SHADES.length - 2);
  return /** @type {any} */ (SHADES[below].map((level, c) => level + (SHADES[below + 1][c] - level) * (place - below)));
}

/**
 * The least and the greatest of the numbers that are any.
 * @param {ArrayLike<number>} numbers
 * @returns {[number, number]}
 */
export function range(numbers) {
  let [low, high] = [Infinity, -Infinity];
  for (let k = 0; k < numbers.length; k += 1) {
    if (numbers[k] < low) low = numbers[k];
    if (numbers[k] > high) high = numbers[k];
  }
  return low <= high ? [low, high] : [0, 0];
}

/**
 * A pen over a canvas as large as it is shown, and the colours of the page.
 * @param {HTMLCanvasElement} canvas
 * @param {number} aspect width over height
 */
export function penOf(canvas, aspect) {
  const scale = window.devicePixelRatio || 1;
  const wide = canvas.clientWidth || 160;
  const tall = Math.max(24, Math.round(wide / aspect));
  if (canvas.width !== Math.round(wide * scale) || canvas.height !== Math.round(tall * scale)) {
    canvas.width = Math.round(wide * scale);
    canvas.height = Math.round(tall * scale);
  }
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  pen?.setTransform(scale, 0, 0, scale, 0, 0);
  pen?.clearRect(0, 0, wide, tall);
  return { pen, wide, tall, colour: (/** @type {string} */ name) => style.getPropertyValue(name) };
}

/**
 * Numbers over the plane, cell by cell; held-out cells are framed, the present point is marked.
 * @param {HTMLCanvasElement} canvas
 * @param {Survey} survey
 * @param {ArrayLike<number>} numbers row by row; rows that are not complete are left blank
 * @param {[number, number]} bounds
 * @param {(share: number) => [number, number, number]} palette
 * @param {number[]} at
 * @param {boolean} withEllipse
 */
export function drawMap(canvas, survey, numbers, [low, high], palette, at, withEllipse) {
  const { columns, rows } = survey;
  const { pen, wide, tall, colour } = penOf(canvas, survey.alone ? 8 : 1);
  if (!pen) return;
  const [dx, dy] = [wide / columns, tall / rows];
  const complete = Math.floor(survey.known / columns); // rows
  if (complete) {
    scratch ??= document.createElement("canvas");
    drawImage(scratch, numbers, [1, complete, columns], low, high, palette);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(scratch, 0, 0, wide, complete * dy);
  }
  frameHeldOut(pen, survey, at, dx, dy);
  const [across, down] = survey.plane;
  const [x, y] = [(at[across] + 0.5) * dx, survey.alone ? tall / 2 : (at[down] + 0.5) * dy];
  if (withEllipse) drawEllipse(pen, survey, at, x, y, dx, dy);
  mark(pen, x, y, colour("--accent"));
}

/**
 * Lines between cells of which one is held out.
 * @param {CanvasRenderingContext2D} pen
 * @param {Survey} survey
 * @param {number[]} at
 * @param {number} dx
 * @param {number} dy
 */
function frameHeldOut(pen, survey, at, dx, dy) {
  const { decoder, columns, rows, plane: [across, down] } = survey;
  const point = at.slice();
  const held = (/** @type {number} */ i, /** @type {number} */ j) => {
    if (i < 0 || j < 0 || i >= columns || j >= rows) return false;
    point[across] = i;
    if (!survey.alone) point[down] = j;
    return isHeldOut(decoder.held, nearestPoint(decoder.factors, point));
  };
  pen.beginPath();
  for (let j = 0; j <= rows; j += 1) {
    for (let i = 0; i <= columns; i += 1) {
      const own = held(i, j);
      if (own !== held(i - 1, j)) pen.rect(i * dx, j * dy, 0, dy);
      if (own !== held(i, j - 1)) pen.rect(i * dx, j * dy, dx, 0);
    }
  }
  twice(pen, "#000a", "#fffc");
}

/**
 * Steps that change the stage equally: as large as CELLS where the volume is the mean of the plane.
 * @param {CanvasRenderingContext2D} pen
 * @param {Survey} survey
 * @param {number[]} at
 * @param {number} x
 * @param {number} y
 * @param {number} dx
 * @param {number} dy
 */
function drawEllipse(pen, survey, at, x, y, dx, dy) {
  const metric = survey.metricAt(at);
  if (!metric || survey.alone || !survey.done) return;
  const { factors } = survey.decoder;
  const [wide, tall] = survey.plane.map((k) => (factors[k].high - factors[k].low) / Math.max(1, factors[k].count - 1));
  const known = survey.volume.reduce((sum, number) => sum + number, 0) / survey.count;
  const size = CELLS * Math.sqrt(10 ** known * wide * tall); // in units of the stage
  const perStep = /** @type {import("./geometry.js").Metric} */ ([
    metric[0] * wide * wide, metric[1] * wide * tall, metric[2] * tall * tall,
  ]);
  const { half, angle } = ellipse(perStep, size);
  const most = Math.max(survey.columns, survey.rows);
  pen.save();
  pen.translate(x, y);
  pen.scale(dx, dy);
  pen.rotate(angle);
  pen.beginPath();
  pen.ellipse(0, 0, Math.min(half[0], most), Math.min(half[1], most), 0, 0, 2 * Math.PI);
  pen.restore();
  twice(pen, "#000c", "#fff");
}

/**
 * A line that is seen on dark and on light.
 * @param {CanvasRenderingContext2D} pen
 * @param {string} under
 * @param {string} over
 */
function twice(pen, under, over) {
  for (const [colour, width] of /** @type {[string, number][]} */ ([[under, 3.5], [over, 1.5]])) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.stroke();
  }
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {number} x
 * @param {number} y
 * @param {string} colour
 */
export function mark(pen, x, y, colour) {
  pen.beginPath();
  pen.arc(x, y, 4, 0, 2 * Math.PI);
  pen.fillStyle = colour;
  pen.fill();
  pen.lineWidth = 1.5;
  pen.strokeStyle = "#fff";
  pen.stroke();
}

/** A number in few letters. @param {number} number */
export function short(number) {
  const text = Math.abs(number) >= 1000 ? number.toExponential(0) : String(Number(number.toPrecision(2)));
  return text.replace("-", "−");
}
