/** One training from its first step to its last: weights, batches, and how well the grid is drawn. */

import { examplesOf, gridRows, trainingRows } from "./examples.js";
import { Network } from "./network.js";

/** @typedef {import("../types.js").Settings} Settings */

export class Trainer {
  step = 0;
  /** The order of the present epoch. @type {Int32Array} */
  #order = new Int32Array(0);
  #epoch = -1;

  /**
   * @param {Settings} settings
   * @param {BufferSource} code of the compiled product
   * @param {number} seed
   * @param {boolean} stripes whether single factors are shown alone, beside the combinations
   */
  constructor(settings, code, seed, stripes) {
    this.settings = settings;
    this.seed = seed;
    this.network = new Network(settings, code);
    this.network.weights.set(this.network.reordered(initialWeights(settings, seed)));
    this.optimizer = new AdamW(settings.recipe, this.network.count);
    this.examples = examplesOf(settings, trainingRows(settings, stripes));
    this.grid = examplesOf(settings, gridRows(settings.size));
    this.points = { held: this.#where("1"), kept: this.#where("0") };
    /** For each grid point whether its bump was in place when it was evaluated. */
    this.hits = new Uint8Array(this.grid.count);
  }

  get done() {
    return this.step >= this.settings.recipe.steps;
  }

  /** @param {string} mark */
  #where(mark) {
    return Array.from({ length: this.grid.count }, (_, point) => point).filter((p) => this.settings.held[p] === mark);
  }

  /** Rows of the next batch: an epoch is a new order of all examples, and its last batch holds what is left. */
  batch() {
    const { batch } = this.settings.recipe;
    const { count } = this.examples;
    const perEpoch = Math.ceil(count / batch);
    const epoch = Math.floor(this.step / perEpoch);
    if (epoch !== this.#epoch) {
      this.#order = permutation(count, stream(this.seed, `order/${epoch}`));
      this.#epoch = epoch;
    }
    const first = (this.step % perEpoch) * batch;
    return this.#order.subarray(first, Math.min(first + batch, count));
  }

  /** One step. @param {ArrayLike<number>} rows @returns {number} the error of the batch before it */
  advance(rows = this.batch()) {
    const { network, examples } = this;
    const error = network.learn(examples.codes, examples.images, rows);
    this.optimizer.update(network.weights, network.gradient);
    this.step += 1;
    return error;
  }

  /** Evaluates some grid points: is the bump drawn in place? @param {number[]} points */
  evaluate(points) {
    const { network, grid, settings } = this;
    for (let first = 0; first < points.length; first += network.batch) {
      const rows = points.slice(first, first + network.batch);
      const images = network.forward(grid.codes, rows);
      rows.forEach((point, e) => {
        const image = images.subarray(e * network.pixels, (e + 1) * network.pixels);
        this.hits[point] = isInPlace(image, point, settings) ? 1 : 0;
      });
    }
  }

  /** The share of points where the bump was in place when they were evaluated. @param {number[]} points */
  accuracy(points) {
    return points.filter((point) => this.hits[point] === 1).length / points.length;
  }

  /** The image at a grid point. @param {number} point */
  output(point) {
    return this.network.forward(this.grid.codes, [point]).slice(0, this.network.pixels);
  }
}

/**
 * Whether the extreme pixel, the first one among equals, is where it belongs.
 * @param {Float32Array} image
 * @param {number} point
 * @param {Settings} settings
 */
export function isInPlace(image, point, { size, background, tolerance }) {
  const sign = background ? -1 : 1;
  let extreme = 0;
  for (let k = 1; k < image.length; k += 1) if (sign * image[k] > sign * image[extreme]) extreme = k;
  const [across, down] = [extreme % size, Math.floor(extreme / size)];
  const [x, y] = [Math.floor(point / size), point % size];
  return Math.abs(across - x) <= tolerance && Math.abs(down - y) <= tolerance;
}

/**
 * Weights before the first step, uniform within each convolution's bound as torch's are, in torch's order.
 * @param {Settings} settings
 * @param {number} seed
 */
export function initialWeights({ convolutions }, seed) {
  const random = stream(seed, "weights");
  return convolutions.flatMap(({ inputs, outputs, kernel, bound }) =>
    Array.from({ length: inputs * outputs * kernel ** 2 + outputs }, () => bound * (2 * random() - 1)));
}

/** AdamW, as `recombine.training.adamw` has it. */
export class AdamW {
  /** @param {import("../types.js").Recipe} recipe @param {number} count of weights */
  constructor(recipe, count) {
    this.recipe = recipe;
    this.mean = new Float32Array(count);
    this.square = new Float32Array(count);
    this.step = 0;
  }

  /** One step, in place. @param {Float32Array} weights @param {Float32Array} gradient */
  update(weights, gradient) {
    const { lr, weight_decay: weightDecay, beta1, beta2, epsilon } = this.recipe;
    const { mean, square } = this;
    this.step += 1;
    const decay = 1 - lr * weightDecay;
    const stride = lr / (1 - beta1 ** this.step);
    const root = Math.sqrt(1 - beta2 ** this.step);
    for (let k = 0; k < weights.length; k += 1) {
      const slope = gradient[k];
      mean[k] += (1 - beta1) * (slope - mean[k]);
      square[k] = beta2 * square[k] + (1 - beta2) * slope * slope;
      weights[k] = weights[k] * decay - (stride * mean[k]) / (Math.sqrt(square[k]) / root + epsilon);
    }
  }
}

/**
 * A stream of numbers in [0, 1), by the generator sfc32.
 * @param {number} seed
 * @param {string} name
 * @returns {() => number}
 */
export function stream(seed, name) {
  let [a, b, c, count] = [hashed(`${seed}/${name}`, 1), hashed(`${seed}/${name}`, 2), hashed(name, 3), 1];
  const next = () => {
    const sum = (((a + b) | 0) + count) | 0;
    count = (count + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + sum) | 0;
    return (sum >>> 0) / 2 ** 32;
  };
  for (let k = 0; k < 12; k += 1) next();
  return next;
}

/** 32 bits that depend on every letter (FNV-1a, and a last mix). @param {string} text @param {number} salt */
function hashed(text, salt) {
  let bits = 2166136261 ^ salt;
  for (let k = 0; k < text.length; k += 1) bits = Math.imul(bits ^ text.charCodeAt(k), 16777619);
  bits = Math.imul(bits ^ (bits >>> 16), 0x7feb352d);
  return bits ^ (bits >>> 15);
}

/**
 * The numbers 0 … count − 1 in random order.
 * @param {number} count
 * @param {() => number} random
 * @returns {Int32Array}
 */
export function permutation(count, random) {
  const order = Int32Array.from({ length: count }, (_, k) => k);
  for (let k = count - 1; k > 0; k -= 1) {
    const other = Math.floor(random() * (k + 1));
    [order[k], order[other]] = [order[other], order[k]];
  }
  return order;
}
