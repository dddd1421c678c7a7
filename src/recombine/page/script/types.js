/**
 * Data of the page, as `recombine.page` writes it.
 *
 * @typedef {{name: string, inputs: number[], output: number, [setting: string]: any}} Operation
 * @typedef {{type: "float32" | "float16" | "int32" | "int16" | "uint8", start: number, length: number,
 *   scale?: number, low?: number, high?: number}} Numbers
 * @typedef {{shapes: number[][], operations: Operation[], output: number,
 *   stages: {name: string, value: number}[], constants: (Numbers & {value: number})[]}} ProgramData
 *
 * @typedef {{name: string, low: number, high: number, count: number, form: "number" | "category" | "angle",
 *   given: number[] | null, period: number | null, labels: string[] | null}} Factor
 * @typedef {{kind: string, [setting: string]: any}} Code
 *
 * @typedef {{name: string, notes: string[], program: ProgramData | null, table: Numbers | null, codes: Code[] | null,
 *   probes: {points: number[], start: number, length: number} | null, sizes: number[] | null,
 *   mean: number[] | null, held: {start: number, length: number}, present: {start: number, length: number} | null,
 *   truth: Numbers | null,
 *   background: number, image: [number, number, number], low: number, high: number, smooth: boolean[],
 *   labels?: string[]}} ModelData
 * @typedef {{title: string, factors: Factor[], models: ModelData[], labels?: string[], version: string}} PageData
 *
 * Data of the training panel, as `recombine.page.training` writes it.
 *
 * @typedef {{steps: number, batch: number, lr: number, weight_decay: number, beta1: number, beta2: number,
 *   epsilon: number}} Recipe
 * @typedef {{inputs: number, outputs: number, kernel: number, stride: number, bound: number}} ConvolutionData
 * @typedef {{factors: Factor[], codes: Code[], profiles: number[][][], size: number, background: number,
 *   tolerance: number, held: string, convolutions: ConvolutionData[], recipe: Recipe, parameters: number}} Settings
 * @typedef {{settings: Settings, kernel: string, policy: string, drawn: string, isolated: string, filled: number,
 *   failed: number}} PanelData
 *
 * @typedef {{number: number, step: number, total: number, seconds: number, losses: number[], heldOut: number,
 *   kept: number, hits: Uint8Array, output: Float32Array, point: number}} Progress
 */
export {};
