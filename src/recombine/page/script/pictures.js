/** HTML elements, and functions that draw arrays and charts on canvases. */

const GAP = 1;

/** Grey from black to white. @param {number} share 0 … 1 @returns {[number, number, number]} */
export function grey(share) {
  const level = 255 * Math.max(0, Math.min(1, share));
  return [level, level, level];
}

/** Blue (low) to white (middle) to red (high). @param {number} share 0 … 1 @returns {[number, number, number]} */
export function diverging(share) {
  const t = Math.max(-1, Math.min(1, 2 * share - 1));
  const end = t < 0 ? [33, 102, 172] : [178, 24, 43];
  const size = Math.abs(t) ** 0.7;
  return /** @type {[number, number, number]} */ (end.map((level) => 247 + (level - 247) * size));
}

const WARMTH = [[253, 250, 240], [252, 202, 125], [224, 96, 62], [112, 20, 58]]; // as the key in the style sheet

/** Cream (no error) to orange to dark red (as wrong as a blank image, or more). @type {Colours} */
export function heat(share) {
  const place = Math.max(0, Math.min(1, share)) * (WARMTH.length - 1);
  const below = Math.min(Math.floor(place), WARMTH.length - 2);
  return /** @type {any} */ (WARMTH[below].map((level, c) =>
    Math.round(level + (WARMTH[below + 1][c] - level) * (place - below))));
}

/** Lookup tables of 256 RGBA colours by colour map. @type {Map<Function, Uint32Array>} */
const PALETTES = new Map();

/** @param {Colours} colour @returns {Uint32Array} */
function palette(colour) {
  let steps = PALETTES.get(colour);
  if (!steps) {
    const bytes = new Uint8ClampedArray(1024);
    for (let step = 0; step < 256; step += 1) bytes.set([...colour(step / 255), 255], 4 * step);
    steps = new Uint32Array(bytes.buffer);
    PALETTES.set(colour, steps);
  }
  return steps;
}

/** @param {number} share @returns {number} an index of the lookup table: 0 … 255 */
function stepOf(share) {
  return share > 0 ? Math.min(255, Math.round(255 * share)) : 0;
}

/**
 * Draws an image of (channels, rows, columns), in colour if it has three channels, else with channels side by side.
 * @param {Canvas} canvas @param {ArrayLike<number>} numbers @param {[number, number, number]} shape
 * @param {number} low @param {number} high @param {Colours} colour
 */
export function drawImage(canvas, numbers, [channels, rows, columns], low, high, colour = grey) {
  if (channels !== 3 || colour !== grey) {
    drawTiles(canvas, numbers, [channels, rows, columns], [rows * columns, columns, 1], low, high, colour);
    return;
  }
  const picture = blank(canvas, rows, columns);
  const area = rows * columns;
  for (let k = 0; k < area; k += 1) {
    for (let c = 0; c < 3; c += 1) picture.data[4 * k + c] = stepOf((numbers[c * area + k] - low) / (high - low || 1));
    picture.data[4 * k + 3] = 255;
  }
  canvas.getContext("2d")?.putImageData(picture, 0, 0);
}

/**
 * Draws many small maps as tiles; `shape` and `strides` refer to maps, rows and columns.
 * @param {Canvas} canvas @param {ArrayLike<number>} numbers @param {number[]} shape @param {number[]} strides
 * @param {number} low @param {number} high @param {Colours} colour
 */
function drawTiles(canvas, numbers, [count, rows, columns], [leap, down, step], low, high, colour) {
  const across = Math.max(1, Math.min(count, Math.round(Math.sqrt((2 * count * rows) / columns))));
  const height = Math.ceil(count / across) * (rows + GAP) - GAP;
  const picture = blank(canvas, height, across * (columns + GAP) - GAP);
  const colours = palette(colour);
  const pixels = new Uint32Array(picture.data.buffer);
  const span = high - low || 1;
  for (let tile = 0; tile < count; tile += 1) {
    const top = Math.floor(tile / across) * (rows + GAP);
    const left = (tile % across) * (columns + GAP);
    for (let y = 0; y < rows; y += 1) {
      for (let x = 0; x < columns; x += 1) {
        const share = (numbers[tile * leap + y * down + x * step] - low) / span;
        pixels[(top + y) * picture.width + left + x] = colours[stepOf(share)];
      }
    }
  }
  canvas.getContext("2d")?.putImageData(picture, 0, 0);
}

/**
 * Draws the activity of a stage, one map per channel, and returns a description. Tokens may be the output's pixels.
 * @param {Canvas} canvas @param {Float32Array} numbers @param {number[]} shape with a batch axis of length 1
 * @param {[number, number, number]} image shape of the output
 */
export function drawStage(canvas, numbers, shape, image) {
  const own = shape.slice(1);
  const most = numbers.reduce((largest, number) => Math.max(largest, Math.abs(number)), 0);
  const draw = (/** @type {number} */ count, /** @type {number[]} */ size, /** @type {number[]} */ strides) =>
    drawTiles(canvas, numbers, [Math.min(count, 64), ...size], strides, -most, most, diverging);
  const shown = (/** @type {number} */ count) => (count > 64 ? `the first 64 of ${count}` : `${count}`);
  if (own.length === 3) {
    const [channels, rows, columns] = own;
    draw(channels, [rows, columns], [rows * columns, columns, 1]);
    return `${shown(channels)} maps of ${rows} × ${columns}`;
  }
  if (own.length === 2 && own[0] === image[1] * image[2]) {
    draw(own[1], image.slice(1), [1, image[2] * own[1], own[1]]);
    return `${shown(own[1])} features of ${own[0]} pixels`;
  }
  const count = numbers.length;
  const columns = own.length === 2 ? own[1] : Math.min(count, 32);
  draw(1, [Math.ceil(count / columns), columns], [0, columns, 1]);
  return own.length === 2 ? `${own[0]} rows of ${own[1]} numbers` : `${count} numbers`;
}

/** @param {Canvas} canvas @param {number} rows @param {number} columns @returns {ImageData} transparent */
function blank(canvas, rows, columns) {
  Object.assign(canvas, { width: columns, height: rows });
  return new ImageData(columns, rows);
}

/** Width and height of canvases on the page, in CSS pixels. @type {WeakMap<Element, number[]>} */
const sizes = new WeakMap();
/** The page's colours by name. @type {Map<string, string>} */
const colours = new Map();
/** Functions that draw again when the size of a canvas, or the colour scheme, changes. @type {(() => void)[]} */
const redraws = [];
/** @type {ResizeObserver | undefined} */
let observer;

function watch() {
  const again = () => { for (const redraw of redraws) redraw(); };
  window.addEventListener("resize", again); // also when the page is zoomed, or moved to a denser screen
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    colours.clear();
    again();
  });
  return new ResizeObserver((entries) => {
    for (const { target } of entries) sizes.set(target, [target.clientWidth, target.clientHeight]);
    again();
  });
}

/** Calls a function when the size of a canvas, or the colour scheme, changes. @param {() => void} redraw */
export function onAppearance(redraw) {
  redraws.push(redraw);
}

/**
 * Returns the width and height of a canvas. Asking the canvas itself in every frame would lay the page out each time.
 * @param {Canvas} canvas @returns {number[]} zeros if it is hidden
 */
export function sizeOf(canvas) {
  const known = sizes.get(canvas) ?? [canvas.clientWidth, canvas.clientHeight];
  if (!sizes.has(canvas)) {
    sizes.set(canvas, known);
    (observer ??= watch()).observe(canvas);
  }
  return known;
}

/**
 * Clears a canvas, at the resolution of the screen, and returns its context, size and the page's colours.
 * @param {Canvas} canvas @param {number} [aspect] width divided by height, unless set by the style sheet
 */
export function penOf(canvas, aspect) {
  const scale = window.devicePixelRatio || 1;
  const [width, height] = sizeOf(canvas);
  const wide = width || 160;
  const tall = aspect ? Math.max(24, Math.round(wide / aspect)) : height || 160;
  Object.assign(canvas, { width: Math.round(wide * scale), height: Math.round(tall * scale) });
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.scale(scale, scale);
  return { pen, wide, tall, colour: colourOf };
}

/** Returns a colour of the page. @param {string} name of the style sheet's variable */
function colourOf(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return /** @type {string} */ (colours.get(name));
}

/**
 * Strokes a path in one colour on top of a wider stroke in another, so that it is visible on any background.
 * @param {Pen} pen @param {string} under @param {string} over @param {number} [width]
 */
export function twice(pen, under, over, width = 1.5) {
  pen.lineJoin = "round";
  for (const [colour, wide] of /** @type {[string, number][]} */ ([[under, width + 2], [over, width]])) {
    pen.strokeStyle = colour;
    pen.lineWidth = wide;
    pen.stroke();
  }
}

/**
 * @param {Pen} pen @param {number} x @param {number} y @param {number} radius
 * @param {string} inside @param {string} around
 */
export function mark(pen, x, y, radius, inside, around) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = inside;
  pen.fill();
  pen.lineWidth = 1.5;
  pen.strokeStyle = around;
  pen.stroke();
}

/**
 * Draws a line chart with ticks on the left and labels below both ends; colours are given as names of CSS variables.
 * @param {Canvas} canvas
 * @param {{end: number, low: number, high: number, ticks: [number, string][], words: [string, string],
 *   logarithmic?: boolean, shaded?: [number, number][], aspect?: number}} frame whose x axis is 0 … end
 * @param {{points: [number, number][], colour: string, width?: number, dashes?: number[]}[]} lines
 */
export function drawChart(canvas, { end, low, high, ticks, words, logarithmic, shaded = [], aspect }, lines) {
  const { pen, wide, tall, colour } = penOf(canvas, aspect);
  const [left, right, top, bottom] = [40, wide - 10, 8, tall - 20];
  const height = (/** @type {number} */ value) => (logarithmic ? Math.log(Math.max(value, 1e-12)) : value);
  const x = (/** @type {number} */ step) => left + (step / (end || 1)) * (right - left);
  const y = (/** @type {number} */ value) => {
    const share = (height(value) - height(low)) / (height(high) - height(low) || 1);
    return bottom - Math.max(0, Math.min(1, share)) * (bottom - top);
  };
  pen.fillStyle = colour("--held");
  pen.globalAlpha = 0.45;
  for (const [from, to] of shaded) pen.fillRect(x(from), top, x(to) - x(from), bottom - top);
  pen.globalAlpha = 1;
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = colour("--soft");
  pen.fillText(words[0], left, tall - 5);
  pen.textAlign = "right";
  pen.fillText(words[1], right, tall - 5);
  pen.textBaseline = "middle";
  for (const [value, text] of ticks) pen.fillText(text, left - 6, y(value));
  const rules = ticks.map(([v]) => ({ points: [[0, v], [end, v]], colour: "--line", width: 1, dashes: [] }));
  for (const { points, colour: name, width = 2, dashes = [] } of [...rules, ...lines]) {
    pen.setLineDash(dashes);
    pen.lineWidth = width;
    pen.strokeStyle = colour(name);
    pen.beginPath();
    for (const [step, value] of points) pen.lineTo(x(step), y(value));
    pen.stroke();
  }
  pen.setLineDash([]);
  return { pen, x, y, colour };
}

/**
 * Creates a path along the boundary between marked cells of a grid, such as held-out cells, and all others.
 * @param {Pen} pen @param {number} columns @param {number} rows @param {number} dx width of a cell @param {number} dy
 * @param {(column: number, row: number) => boolean} isMarked
 */
export function outline(pen, columns, rows, dx, dy, isMarked) {
  const marked = (/** @type {number} */ i, /** @type {number} */ j) =>
    i >= 0 && j >= 0 && i < columns && j < rows && isMarked(i, j);
  pen.beginPath();
  for (let j = 0; j <= rows; j += 1) {
    for (let i = 0; i <= columns; i += 1) {
      const own = marked(i, j);
      if (own !== marked(i - 1, j)) pen.rect(i * dx, j * dy, 0, dy);
      if (own !== marked(i, j - 1)) pen.rect(i * dx, j * dy, dx, 0);
    }
  }
}

/** @param {string} tag @param {string} [name] of its class @param {string} [text] @returns {HTMLElement} */
export function element(tag, name = "", text = "") {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text) made.textContent = text;
  return made;
}

/** Returns a function that draws at most once, at the next frame. @param {(time: number) => void} draw */
export function atNextFrame(draw) {
  let waiting = false;
  return () => {
    if (!waiting) requestAnimationFrame((time) => {
      waiting = false;
      draw(time);
    });
    waiting = true;
  };
}

/** A canvas with a caption. */
export class Picture {
  /** @param {string} caption */
  constructor(caption) {
    this.figure = element("figure");
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.words = element("figcaption");
    this.figure.append(this.canvas, this.words);
    this.caption(caption);
  }

  /** @param {string} text */
  caption(text) {
    if (this.words.textContent === text) return;
    this.words.textContent = text;
    this.canvas.setAttribute("aria-label", text);
  }
}
