/** A complete training run: weights, batches, optimiser, and accuracy on the grid. */

import { positionsOf } from "../grid.js";
import { examplesOf, gridRows, trainingRows } from "./examples.js";
import { Network } from "./network.js";

export class Trainer {
  step = 0;
  /** Order of the examples in the current epoch. @type {Int32Array} */
  #order = new Int32Array(0);
  #epoch = -1;

  /**
   * @param {Settings} settings @param {BufferSource} code of `matmul.wasm` @param {number} seed
   * @param {boolean} isolated whether to include isolated-factor examples
   */
  constructor(settings, code, seed, isolated) {
    this.settings = settings;
    this.seed = seed;
    this.network = new Network(settings, code);
    this.network.weights.set(this.network.reordered(initialWeights(settings, seed)));
    this.optimizer = new AdamW(settings.recipe, this.network.count);
    this.examples = examplesOf(settings, trainingRows(settings, isolated));
    this.grid = examplesOf(settings, gridRows(settings));
    this.points = { held: this.#where("1"), kept: this.#where("0") };
    /** For each grid point, 1 if the output was in place (`isInPlace`) at its last evaluation, else 0. */
    this.hits = new Uint8Array(this.grid.count);
  }

  get done() {
    return this.step >= this.settings.recipe.steps;
  }

  /** @param {string} mark */
  #where(mark) {
    return Array.from({ length: this.grid.count }, (_, point) => point).filter((p) => this.settings.held[p] === mark);
  }

  /** Returns the rows of the next batch. Every epoch is reshuffled, and its last batch may be smaller. */
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

  /** Takes one step. @param {ArrayLike<number>} rows @returns {number} the loss on the batch before the step */
  advance(rows = this.batch()) {
    const { network, examples } = this;
    const error = network.learn(examples.codes, examples.images, rows);
    this.optimizer.update(network.weights, network.gradient);
    this.step += 1;
    return error;
  }

  /** Evaluates whether the output is in place at each of the given grid points. @param {number[]} points */
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

  /** Returns the fraction of points whose output was in place at its last evaluation. @param {number[]} points */
  accuracy(points) {
    return points.filter((point) => this.hits[point] === 1).length / points.length;
  }

  /** The image at a grid point. @param {number} point */
  output(point) {
    return this.network.forward(this.grid.codes, [point]).slice(0, this.network.pixels);
  }
}

/**
 * Returns whether the most extreme pixel (the first if several) is within the tolerance of the point.
 * @param {Float32Array} image @param {number} point @param {Settings} settings
 */
export function isInPlace(image, point, { factors, size, background, tolerance }) {
  const sign = background ? -1 : 1;
  let extreme = 0;
  for (let k = 1; k < image.length; k += 1) if (sign * image[k] > sign * image[extreme]) extreme = k;
  const [across, down] = [extreme % size, Math.floor(extreme / size)];
  const [x, y] = positionsOf(factors, point);
  return Math.abs(across - x) <= tolerance && Math.abs(down - y) <= tolerance;
}

/**
 * Draws initial weights in torch's order, uniformly within each convolution's bound as in torch.
 * @param {Settings} settings @param {number} seed
 */
export function initialWeights({ convolutions }, seed) {
  const random = stream(seed, "weights");
  return convolutions.flatMap(({ inputs, outputs, kernel, bound }) =>
    Array.from({ length: inputs * outputs * kernel ** 2 + outputs }, () => bound * (2 * random() - 1)));
}

/** AdamW with the same update rule as `recombine.training.adamw`. */
export class AdamW {
  /** @param {Recipe} recipe @param {number} count number of weights */
  constructor(recipe, count) {
    this.recipe = recipe;
    this.mean = new Float32Array(count);
    this.square = new Float32Array(count);
    this.step = 0;
  }

  /** Takes one step in place. @param {Float32Array} weights @param {Float32Array} gradient */
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

/** Returns a generator of random numbers in [0, 1) (sfc32). @param {number} seed @param {string} name */
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
  for (let k = 0; k < 12; k += 1) next(); // until nearby seeds have diverged
  return next;
}

/** Returns a 32-bit hash: FNV-1a with a final mix for short texts. @param {string} text @param {number} salt */
function hashed(text, salt) {
  let bits = 2166136261 ^ salt;
  for (let k = 0; k < text.length; k += 1) bits = Math.imul(bits ^ text.charCodeAt(k), 16777619);
  bits = Math.imul(bits ^ (bits >>> 16), 0x7feb352d);
  return bits ^ (bits >>> 15);
}

/** Returns the numbers 0 … count − 1 in random order. @param {number} count @param {() => number} random */
export function permutation(count, random) {
  const order = Int32Array.from({ length: count }, (_, k) => k);
  for (let k = count - 1; k > 0; k -= 1) {
    const other = Math.floor(random() * (k + 1));
    [order[k], order[other]] = [order[other], order[k]];
  }
  return order;
}
