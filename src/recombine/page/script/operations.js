/** The operations of a program, except products and convolutions. `heap` holds all values. */

/**
 * Computes the error function to about 1e-7 with a series or a continued fraction; the usual approximation (Abramowitz
 * and Stegun 7.1.26) is not accurate enough.
 * @param {number} x
 */
export function erf(x) {
  const size = Math.abs(x);
  if (size < 2.5) {
    let term = size;
    let sum = size;
    for (let n = 1; n < 60 && Math.abs(term) > 1e-17; n += 1) {
      term *= (-size * size) / n;
      sum += term / (2 * n + 1);
    }
    return (Math.sign(x) * 2 * sum) / Math.sqrt(Math.PI);
  }
  if (size > 6) return Math.sign(x);
  let fraction = 0;
  for (let n = 40; n > 0; n -= 1) fraction = n / 2 / (size + fraction);
  return Math.sign(x) * (1 - Math.exp(-size * size) / (Math.sqrt(Math.PI) * (size + fraction)));
}

/** Unary functions that Math lacks. @type {Record<string, (x: number, a: number, b: number) => number>} */
const MAPS = {
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  rsqrt: (x) => 1 / Math.sqrt(x),
  reciprocal: (x) => 1 / x,
  erf,
  neg: (x) => -x,
  round: (x) => (x - Math.floor(x) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x)), // half to even, as in torch
  not: (x) => (x === 0 ? 1 : 0),
  truth: (x) => (x === 0 ? 0 : 1),
  gelu: (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2)),
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
  leaky: (x, a) => (x > 0 ? x : a * x),
  elu: (x, a, b) => (x > 0 ? b * x : a * b * Math.expm1(x)),
  least: (x, a) => (x < a ? a : x),
  most: (x, a) => (x > a ? a : x),
  power: (x, a) => x ** a,
};

/** Binary functions that Math lacks. @type {Record<string, (x: number, y: number) => number>} */
const ZIPS = {
  sub: (x, y) => x - y,
  mul: (x, y) => x * y,
  div: (x, y) => x / y,
  fmod: (x, y) => x % y,
  mod: (x, y) => x - y * Math.floor(x / y),
  gt: (x, y) => (x > y ? 1 : 0),
  ge: (x, y) => (x >= y ? 1 : 0),
  lt: (x, y) => (x < y ? 1 : 0),
  le: (x, y) => (x <= y ? 1 : 0),
  eq: (x, y) => (x === y ? 1 : 0),
  ne: (x, y) => (x === y ? 0 : 1),
  and: (x, y) => (x && y ? 1 : 0),
  or: (x, y) => (x || y ? 1 : 0),
  prelu: (x, y) => (x > 0 ? x : x * y),
};

/**
 * Calls a function for every run of elements along the last axis of a box in several arrays.
 * @param {Axes} axes
 * @param {number[]} places of the box's first element in each array
 * @param {(places: number[], count: number, steps: number[]) => void} stretch @param {number} [axis]
 */
function everyStretch(axes, places, stretch, axis = 0) {
  const steps = axes.strides.map((own) => own[axis]);
  const count = axes.shape[axis];
  if (axis === axes.shape.length - 1) {
    stretch(places, count, steps);
    return;
  }
  for (let k = 0; k < count; k += 1) {
    everyStretch(axes, places.map((place, array) => place + k * steps[array]), stretch, axis + 1);
  }
}

/** @type {Record<string, (heap: Float32Array, from: number, n: number, correction: number) => number>} */
const REDUCTIONS = {
  sum: total,
  mean: (heap, from, n) => total(heap, from, n) / n,
  max: (heap, from, n) => folded(heap, from, n, -Infinity, Math.max),
  min: (heap, from, n) => folded(heap, from, n, Infinity, Math.min),
  prod: (heap, from, n) => folded(heap, from, n, 1, ZIPS.mul),
  any: (heap, from, n) => folded(heap, from, n, 0, ZIPS.or),
  all: (heap, from, n) => folded(heap, from, n, 1, ZIPS.and),
  norm: (heap, from, n) => Math.sqrt(folded(heap, from, n, 0, (sum, x) => sum + x * x)),
  var: (heap, from, n, correction) => squares(heap, from, n) / Math.max(0, n - correction),
};

/** @param {Float32Array} heap @param {number} from @param {number} n */
function total(heap, from, n) {
  return folded(heap, from, n, 0, (sum, x) => sum + x);
}

/** Sum of squared deviations from the mean. @param {Float32Array} heap @param {number} from @param {number} n */
function squares(heap, from, n) {
  const mean = total(heap, from, n) / n;
  return folded(heap, from, n, 0, (sum, x) => sum + (x - mean) ** 2);
}

/**
 * Computes a reduction; the `reduce` method of typed arrays is six times slower.
 * @param {Float32Array} heap @param {number} from @param {number} n @param {number} result
 * @param {(result: number, x: number) => number} f
 */
function folded(heap, from, n, result, f) {
  for (let k = 0; k < n; k += 1) result = f(result, heap[from + k]);
  return result;
}

/** Implementations by name. @type {Record<string, (heap: Float32Array, step: Step) => void>} */
export const RUN = {
  map(heap, { o: { f, a, b }, from: [from], to, count }) {
    if (f === "scale") {
      for (let k = 0; k < count; k += 1) heap[to + k] = a * heap[from + k] + b;
    } else {
      const g = MAPS[f] ?? /** @type {any} */ (Math)[f];
      for (let k = 0; k < count; k += 1) heap[to + k] = g(heap[from + k], a, b);
    }
  },

  zip(heap, { o: { f, axes }, from, to }) {
    const g = ZIPS[f] ?? /** @type {any} */ (Math)[f];
    everyStretch(axes, [to, ...from], ([out, x, y], count, [, dx, dy]) => {
      // indices that grow are faster than products
      if (f === "add") for (let k = 0; k < count; k += 1, x += dx, y += dy) heap[out + k] = heap[x] + heap[y];
      else if (f === "mul") for (let k = 0; k < count; k += 1, x += dx, y += dy) heap[out + k] = heap[x] * heap[y];
      else for (let k = 0; k < count; k += 1) heap[out + k] = g(heap[x + k * dx], heap[y + k * dy]);
    });
  },

  where(heap, { o: { axes }, from, to }) {
    everyStretch(axes, [to, ...from], ([out, c, x, y], count, [, dc, dx, dy]) => {
      for (let k = 0; k < count; k += 1) heap[out + k] = heap[c + k * dc] ? heap[x + k * dx] : heap[y + k * dy];
    });
  },

  move(heap, { o: { pieces, fill }, from, to, count }) {
    const covered = pieces.length === 1 && volume(pieces[0].shape) === count;
    if (!covered) heap.fill(fill, to, to + count);
    for (const piece of pieces) {
      everyStretch(piece, [to + piece.to, from[piece.of] + piece.from], ([out, x], n, [step, by]) => {
        if (by === 1 && step === 1 && n > 16) heap.copyWithin(out, x, x + n);
        else for (let k = 0; k < n; k += 1, out += step, x += by) heap[out] = heap[x];
      });
    }
  },

  take(heap, { from: [from, table], to, count }) {
    for (let k = 0; k < count; k += 1) heap[to + k] = heap[from + heap[table + k]];
  },

  embedding(heap, { from: [table, numbers], to, count, n }) {
    for (let k = 0; k < count / n; k += 1) {
      const row = table + heap[numbers + k] * n;
      heap.copyWithin(to + k * n, row, row + n);
    }
  },

  reduce(heap, { o: { f, correction }, from: [from], to, rows, n }) {
    for (let row = 0; row < rows; row += 1) heap[to + row] = REDUCTIONS[f](heap, from + row * n, n, correction);
  },

  logSoftmax(heap, { from: [from], to, rows, n }) {
    for (let row = 0; row < rows; row += 1, from += n, to += n) {
      const most = folded(heap, from, n, -Infinity, Math.max);
      const shift = Math.log(folded(heap, from, n, 0, (sum, x) => sum + Math.exp(x - most)));
      for (let k = 0; k < n; k += 1) heap[to + k] = heap[from + k] - most - shift;
    }
  },

  normalize(heap, { o: { epsilon }, from: [from], to, rows, n }) {
    for (let row = 0; row < rows; row += 1, from += n, to += n) {
      let [mean, square] = [0, 0];
      for (let k = from; k < from + n; k += 1) mean += heap[k];
      mean /= n;
      for (let k = from; k < from + n; k += 1) square += (heap[k] - mean) * (heap[k] - mean);
      const scale = 1 / Math.sqrt(square / n + epsilon);
      for (let k = 0; k < n; k += 1) heap[to + k] = (heap[from + k] - mean) * scale;
    }
  },

  maxpool(heap, { o: { kernel, stride, padding, dilation }, from: [from], to, shapes, shape, count }) {
    const [height, width] = shapes[0].slice(-2);
    const [rows, columns] = shape.slice(-2);
    for (let k = 0; k < count; k += 1) {
      const plane = from + Math.floor(k / (rows * columns)) * height * width;
      const [top, left] = [(Math.floor(k / columns) % rows) * stride[0] - padding[0],
        (k % columns) * stride[1] - padding[1]];
      let most = -Infinity;
      for (let y = top; y < top + kernel[0] * dilation[0]; y += dilation[0]) {
        for (let x = left; x < left + kernel[1] * dilation[1]; x += dilation[1]) {
          if (y >= 0 && y < height && x >= 0 && x < width) most = Math.max(most, heap[plane + y * width + x]);
        }
      }
      heap[to + k] = most;
    }
  },
};

/** The number of elements of an array. @param {number[]} shape */
export function volume(shape) {
  return shape.reduce((product, count) => product * count, 1);
}
