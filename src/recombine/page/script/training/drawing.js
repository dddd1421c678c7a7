/** The panel's map over the grid and its curves, at the screen's resolution and in the page's colours. */

const FRAME = { left: 40, right: 10, top: 8, bottom: 20 };

/** A curve. @typedef {{points: [number, number][], colour: string, faint: boolean}} Curve */

/**
 * A pen over a canvas as large as it is shown, and the colours of the page.
 * @param {HTMLCanvasElement} canvas
 */
function penOf(canvas) {
  const scale = window.devicePixelRatio || 1;
  const [wide, tall] = [canvas.clientWidth || 200, canvas.clientHeight || 200];
  canvas.width = Math.round(wide * scale);
  canvas.height = Math.round(tall * scale);
  const pen = canvas.getContext("2d");
  pen?.scale(scale, scale);
  const style = getComputedStyle(canvas);
  return { pen, wide, tall, colour: (/** @type {string} */ name) => style.getPropertyValue(name).trim() };
}

/**
 * Whether the bump is in place, at every grid point; the held-out ones are framed and the chosen one is marked.
 * @param {HTMLCanvasElement} canvas
 * @param {number} size
 * @param {string} held a letter for each point, 1 where it is held out
 * @param {Uint8Array | null} hits for each point 0 or 1, if they are known
 * @param {number} chosen
 */
export function drawHits(canvas, size, held, hits, chosen) {
  const { pen, wide, colour } = penOf(canvas);
  if (!pen) return;
  const edge = (/** @type {number} */ k) => Math.round((k * wide) / size);
  const colours = [colour("--miss"), colour("--hit"), colour("--unknown")];
  const gap = wide / size > 6 ? 1 : 0;
  for (let point = 0; point < size * size; point += 1) {
    const [x, y] = [Math.floor(point / size), point % size];
    pen.fillStyle = colours[hits ? hits[point] : 2];
    pen.fillRect(edge(x), edge(y), edge(x + 1) - edge(x) - gap, edge(y + 1) - edge(y) - gap);
  }
  pen.beginPath();
  const isHeld = (/** @type {number} */ x, /** @type {number} */ y) =>
    x >= 0 && y >= 0 && x < size && y < size && held[x * size + y] === "1";
  for (let x = 0; x <= size; x += 1) {
    for (let y = 0; y <= size; y += 1) {
      if (isHeld(x, y) !== isHeld(x - 1, y)) pen.rect(edge(x) - gap / 2, edge(y), 0, edge(y + 1) - edge(y));
      if (isHeld(x, y) !== isHeld(x, y - 1)) pen.rect(edge(x), edge(y) - gap / 2, edge(x + 1) - edge(x), 0);
    }
  }
  twice(pen, 2, colour);
  const center = [Math.floor(chosen / size), chosen % size].map((k) => (edge(k) + edge(k + 1) - gap) / 2);
  pen.beginPath();
  pen.arc(center[0], center[1], Math.max(5, wide / size / 1.6), 0, 2 * Math.PI);
  twice(pen, 2.5, colour);
}

/**
 * Draws the path dark on light, which is seen on any colour.
 * @param {CanvasRenderingContext2D} pen
 * @param {number} width
 * @param {(name: string) => string} colour
 */
function twice(pen, width, colour) {
  pen.lineJoin = "round";
  pen.lineWidth = width + 2.5;
  pen.strokeStyle = colour("--paper");
  pen.stroke();
  pen.lineWidth = width;
  pen.strokeStyle = colour("--ink");
  pen.stroke();
}

/**
 * Curves over steps.
 * @param {HTMLCanvasElement} canvas
 * @param {Curve[]} curves whose colours are names of the page's
 * @param {number} steps
 * @param {{low: number, high: number, ticks: [number, string][], logarithmic?: boolean, line?: number}} axis
 */
export function drawCurves(canvas, curves, steps, axis) {
  const { pen, wide, tall, colour } = penOf(canvas);
  if (!pen) return;
  const height = (/** @type {number} */ value) => (axis.logarithmic ? Math.log(Math.max(value, 1e-12)) : value);
  const [bottom, span] = [height(axis.low), height(axis.high) - height(axis.low)];
  const across = (/** @type {number} */ step) => FRAME.left + (step / steps) * (wide - FRAME.left - FRAME.right);
  const down = (/** @type {number} */ value) => {
    const share = Math.max(0, Math.min(1, (height(value) - bottom) / span));
    return tall - FRAME.bottom - share * (tall - FRAME.top - FRAME.bottom);
  };
  const line = (/** @type {[number, number][]} */ points) => {
    pen.beginPath();
    points.forEach(([step, value], k) => (k ? pen.lineTo : pen.moveTo).call(pen, across(step), down(value)));
    pen.stroke();
  };
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = colour("--soft");
  pen.strokeStyle = colour("--line");
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (const [value, text] of axis.ticks) {
    line([[0, value], [steps, value]]);
    pen.fillText(text, FRAME.left - 6, down(value));
  }
  pen.textBaseline = "alphabetic";
  for (const [step, place] of /** @type {[number, CanvasTextAlign][]} */ ([[0, "left"], [steps, "right"]])) {
    pen.textAlign = place;
    pen.fillText(String(step), across(step), tall - 5);
  }
  if (axis.line !== undefined) {
    pen.setLineDash([4, 4]);
    pen.strokeStyle = colour("--soft");
    line([[0, axis.line], [steps, axis.line]]);
  }
  for (const { points, colour: name, faint } of curves) {
    pen.setLineDash(faint ? [6, 4] : []);
    pen.lineWidth = faint ? 1.5 : 2.5;
    pen.strokeStyle = colour(name);
    line(points);
  }
}
