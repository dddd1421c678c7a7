/**
 * The plane of two factors, on which the point is moved with the pointer or keyboard: a map of the decoder's error at
 * every grid point, with an outline around held-out points. Without errors, held-out points are shaded.
 */

import { nearestPoint, onPlane, planeCounts, shortened } from "./grid.js";
import { heat, mark, outline, penOf, twice } from "./pictures.js";

/**
 * @typedef {{decoder: Decoder, at: number[], plane: [number, number], memories: Memory[],
 *   path: [number, number][] | null}} PlaneView
 */

const MARGIN = 26;
const STEPS = /** @type {Record<string, [number, number]>} */ ({
  ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
});

export class Plane {
  /**
   * @param {Canvas} canvas
   * @param {(across: number, down: number) => void} moved called with new positions of the two factors
   * @param {(across: number, down: number) => void} stepped called with changes in their positions
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

  /** Returns the number of grid points along each axis. */
  #counts() {
    return this.view ? planeCounts(this.view.decoder.factors, this.view.plane) : [1, 1];
  }

  /** @param {PointerEvent} event */
  #point(event) {
    const box = this.canvas.getBoundingClientRect();
    const [columns, rows] = this.#counts();
    this.moved(
      ((event.clientX - box.left - MARGIN) / (box.width - MARGIN)) * columns - 0.5,
      ((event.clientY - box.top) / (box.height - MARGIN)) * rows - 0.5,
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
    const paper = penOf(this.canvas);
    const { pen, wide, tall, colour } = paper;
    const [columns, rows] = this.#counts();
    const [dx, dy] = [(wide - MARGIN) / columns, (tall - MARGIN) / rows];
    const x = (/** @type {number} */ position) => MARGIN + (position + 0.5) * dx;
    const y = (/** @type {number} */ position) => (position + 0.5) * dy;
    this.#cells(paper, view, dx, dy);
    const lines = (/** @type {number[][]} */ points, /** @type {string} */ name, /** @type {number[]} */ dashes) => {
      pen.setLineDash(dashes);
      pen.strokeStyle = colour(name);
      pen.beginPath();
      for (const point of points) pen.lineTo(point[0], point[1]);
      pen.stroke();
    };
    if (view.path) lines(view.path.map(([i, j]) => [x(i), y(j)]), "--accent", [3, 4]);
    const [across, down] = view.plane;
    const here = [x(view.at[across]), y(across === down ? 0 : view.at[down])];
    lines([[here[0], 0], [here[0], tall - MARGIN]], "--line", []);
    lines([[MARGIN, here[1]], [wide, here[1]]], "--line", []);
    for (const { positions } of view.memories) {
      const [column, row] = [positions[across], across === down ? 0 : positions[down]];
      // an image without one of the factors is a line across the plane
      const [left, width] = column === null ? [MARGIN, columns * dx] : [x(column) - dx / 2, Math.max(3, dx)];
      const [top, height] = row === null ? [0, rows * dy] : [y(row) - dy / 2, Math.max(3, dy)];
      pen.beginPath();
      pen.rect(left, top, width, height);
      twice(pen, colour("--paper"), colour("--memory"));
    }
    mark(pen, here[0], here[1], 7, colour("--accent"), colour("--paper"));
    this.#names(paper, view);
  }

  /** @param {Paper} paper @param {PlaneView} view @param {number} dx @param {number} dy */
  #cells({ pen, colour }, view, dx, dy) {
    const { decoder, at, plane } = view;
    const [columns, rows] = this.#counts();
    const { errors } = decoder;
    const isHeld = (/** @type {number} */ i, /** @type {number} */ j) => decoder.isHeldOut(onPlane(at, plane, i, j));
    pen.fillStyle = colour("--field");
    pen.fillRect(MARGIN, 0, columns * dx, rows * dy);
    const held = colour("--held");
    for (let i = 0; i < columns; i += 1) {
      for (let j = 0; j < rows; j += 1) {
        const error = errors?.[nearestPoint(decoder.factors, onPlane(at, plane, i, j))] ?? -1;
        if (error < 0 && (errors || !isHeld(i, j))) continue;
        pen.fillStyle = error < 0 ? held : `rgb(${heat(error).join()})`;
        const [left, top] = [Math.round(MARGIN + i * dx), Math.round(j * dy)]; // integer pixels leave no seams
        pen.fillRect(left, top, Math.round(MARGIN + (i + 1) * dx) - left, Math.round((j + 1) * dy) - top);
      }
    }
    if (!errors) return;
    pen.save();
    pen.translate(MARGIN, 0);
    outline(pen, columns, rows, dx, dy, isHeld);
    twice(pen, "#fff", "#222", 2);
    pen.restore();
  }

  /** @param {Paper} paper @param {PlaneView} view */
  #names({ pen, wide, tall, colour }, view) {
    const [across, down] = view.plane;
    const { factors } = view.decoder;
    pen.fillStyle = colour("--soft");
    pen.font = "13px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(`${shortened(factors[across].name, 24)} →`, MARGIN + (wide - MARGIN) / 2, tall - MARGIN / 2);
    if (across === down) return;
    pen.translate(MARGIN / 2, (tall - MARGIN) / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(`← ${shortened(factors[down].name, 24)}`, 0, 0);
  }
}
