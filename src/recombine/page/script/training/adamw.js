/** AdamW, as `recombine.training.adamw` has it. */

/** @typedef {import("./types.js").Recipe} Recipe */

export class AdamW {
  /**
   * @param {Recipe} recipe
   * @param {number} count of weights
   */
  constructor(recipe, count) {
    this.recipe = recipe;
    this.mean = new Float32Array(count);
    this.square = new Float32Array(count);
    this.step = 0;
  }

  /**
   * One step, in place.
   * @param {Float32Array} weights
   * @param {Float32Array} gradient
   */
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
