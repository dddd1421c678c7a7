/**
 * What the training panel is given, as `recombine.page.training` writes it.
 *
 * @typedef {{steps: number, batch: number, lr: number, weight_decay: number, beta1: number, beta2: number,
 *   epsilon: number}} Recipe
 * @typedef {{inputs: number, outputs: number, kernel: number, stride: number, bound: number}} ConvolutionData
 * @typedef {{size: number, sigma: number, background: number, variance: number, tolerance: number, held: string,
 *   convolutions: ConvolutionData[], recipe: Recipe, parameters: number}} Settings
 *
 * @typedef {{number: number, step: number, total: number, seconds: number, losses: number[], heldOut: number,
 *   kept: number, hits: Uint8Array, output: Float32Array, point: number}} Progress
 *
 * Where a stage's weights lie in memory, and their gradient.
 * @typedef {{weights: number, gradient: number}} Places
 */
export {};
