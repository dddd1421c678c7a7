/** The plane of two factors: held-out points shaded, the present one marked; dragged, touched or moved by keys. */

import { clamped, isHeldOut, nearestPoint } from "./grid.js";
import { penOf } from "./pictures.js";

/** @typedef {import("./types.js").Factor} Factor */
/**
 * @typedef {{factors: Factor[], at: number[], plane: [number, number], held: Uint8Array, memories: number[][],
 *   way: [number, number][] | null}} PlaneView
 */

const MARGIN = 26;
const STEPS = /** @type {Record<string, [number, number]>} */ ({
  ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
});

export class Plane {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {(across: number, down: number) => void} moved is told new positions of the two factors
   * @param {(across: number, down: number) => void} stepped is told by how many steps they are to change
   */
  constructor(canvas, moved, stepped) {
    this.canvas = canvas;
    this.moved = moved;
    this.stepped = stepped;
    /** @type {PlaneView | null} */
    this.view = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      canvas.focus({ preventScroll: true });
      this.#point(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (canvas.hasPointerCapture(event.pointerId)) this.#point(event);
    });
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Steps along both axes of the plane. */
  #counts() {
    if (!this.view) return [1, 1];
    const [across, down] = this.view.plane;
    return [this.view.factors[across].count, across === down ? 1 : this.view.factors[down].count];
  }

  /** @param {PointerEvent} event */
  #point(event) {
    const box = this.canvas.getBoundingClientRect();
    const [columns, rows] = this.#counts();
    const side = box.width - MARGIN;
    const tall = box.height - MARGIN;
    this.moved(
      ((event.clientX - box.left - MARGIN) / side) * columns - 0.5,
      ((event.clientY - box.top) / tall) * rows - 0.5,
    );
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (!this.view || event.altKey || event.ctrlKey || event.metaKey) return;
    const [columns, rows] = this.#counts();
    const step = STEPS[event.key];
    const times = event.shiftKey ? 5 : 1;
    if (step) this.stepped(times * step[0], times * step[1]);
    else if (event.key === "Home") this.moved(0, 0);
    else if (event.key === "End") this.moved(columns - 1, rows - 1);
    else return;
    event.preventDefault();
  }

  /** @param {PlaneView} view */
  draw(view) {
    this.view = view;
    const { pen, wide, tall, colour } = penOf(this.canvas);
    if (!pen) return;
    const [columns, rows] = this.#counts();
    const [dx, dy] = [(wide - MARGIN) / columns, (tall - MARGIN) / rows];
    const x = (/** @type {number} */ position) => MARGIN + (position + 0.5) * dx;
    const y = (/** @type {number} */ position) => (position + 0.5) * dy;
    this.#cells(pen, view, colour, dx, dy);
    if (view.way) this.#way(pen, view.way.map(([i, j]) => [x(i), y(j)]), colour("--soft"));
    const [across, down] = view.plane;
    pen.strokeStyle = colour("--memory");
    pen.lineWidth = 1.5;
    for (const point of view.memories) {
      const row = across === down ? 0 : point[down];
      pen.strokeRect(x(point[across]) - dx / 2, y(row) - dy / 2, Math.max(3, dx), Math.max(3, dy));
    }
    this.#marker(pen, x(view.at[across]), y(across === down ? 0 : view.at[down]), wide, tall, colour);
    this.#names(pen, view, wide, tall, colour("--soft"));
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {PlaneView} view
   * @param {(name: string) => string} colour
   * @param {number} dx
   * @param {number} dy
   */
  #cells(pen, view, colour, dx, dy) {
    const [columns, rows] = this.#counts();
    const [across, down] = view.plane;
    const point = view.at.map((position, k) => Math.round(clamped(view.factors[k], position)));
    pen.fillStyle = colour("--field");
    pen.fillRect(MARGIN, 0, columns * dx, rows * dy);
    pen.fillStyle = colour("--held");
    for (let i = 0; i < columns; i += 1) {
      for (let j = 0; j < rows; j += 1) {
        point[across] = i;
        if (across !== down) point[down] = j;
        if (!isHeldOut(view.held, nearestPoint(view.factors, point))) continue;
        const [left, top] = [Math.round(MARGIN + i * dx), Math.round(j * dy)]; // whole pixels leave no seams
        pen.fillRect(left, top, Math.round(MARGIN + (i + 1) * dx) - left, Math.round((j + 1) * dy) - top);
      }
    }
  }

  /** @param {CanvasRenderingContext2D} pen @param {number[][]} points @param {string} colour */
  #way(pen, points, colour) {
    pen.save();
    pen.strokeStyle = colour;
    pen.setLineDash([3, 4]);
    pen.beginPath();
    for (const [x, y] of points) pen.lineTo(x, y);
    pen.stroke();
    pen.restore();
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {number} x
   * @param {number} y
   * @param {number} wide
   * @param {number} tall
   * @param {(name: string) => string} colour
   */
  #marker(pen, x, y, wide, tall, colour) {
    pen.strokeStyle = colour("--line");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x, 0);
    pen.lineTo(x, tall - MARGIN);
    pen.moveTo(MARGIN, y);
    pen.lineTo(wide, y);
    pen.stroke();
    pen.beginPath();
    pen.arc(x, y, 7, 0, 2 * Math.PI);
    pen.fillStyle = colour("--accent");
    pen.fill();
    pen.lineWidth = 2;
    pen.strokeStyle = colour("--paper");
    pen.stroke();
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {PlaneView} view
   * @param {number} wide
   * @param {number} tall
   * @param {string} colour
   */
  #names(pen, view, wide, tall, colour) {
    const [across, down] = view.plane;
    const short = (/** @type {string} */ name) => (name.length > 24 ? `${name.slice(0, 23)}…` : name);
    pen.fillStyle = colour;
    pen.font = "13px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(`${short(view.factors[across].name)} →`, MARGIN + (wide - MARGIN) / 2, tall - MARGIN / 2);
    if (across === down) return;
    pen.save();
    pen.translate(MARGIN / 2, (tall - MARGIN) / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(`← ${short(view.factors[down].name)}`, 0, 0);
    pen.restore();
  }
}
