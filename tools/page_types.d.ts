/** Types that the modules of the page's script share. */
export {};

declare global {
  type Canvas = HTMLCanvasElement;
  type Pen = CanvasRenderingContext2D;
  /** A canvas to draw on, with its size and the page's colours. */
  type Paper = ReturnType<typeof import("../src/recombine/page/script/pictures.js").penOf>;
  /** A colour map: red, green and blue for a share of 0 … 1. */
  type Colours = (share: number) => [number, number, number];
  type Decoder = import("../src/recombine/page/script/decoder.js").Decoder;
  type Kernel = import("../src/recombine/page/script/kernel.js").Kernel;
  type Survey = import("../src/recombine/page/script/survey.js").Survey;
  type Runner = import("../src/recombine/page/script/runner.js").Runner;

  /** What a worker is asked: a method of `Responder`, the number of a decoder, and arguments. */
  type PageRequest = { kind: "output" | "half" | "nearest" | "mismatch" | "survey", decoder: number,
    [argument: string]: any };

  /** What the page shows; `beside` is −1 for no second decoder, `unit` for the most variable one.
   * `section` is the part of the page that the address names, if any;
   * `tour` is the step of the tour, from 1, or 0. */
  type State = { at: number[], decoder: number, beside: number, plane: [number, number], stage: number, unit: number,
    snap: boolean, section: string, tour: number };
  /** An operation with the places and shapes of its inputs and its output, which has `count` elements. The first input
   * is `rows` rows of `n` elements. */
  type Step = { o: Operation, from: number[], to: number, shapes: number[][], shape: number[], count: number,
    rows: number, n: number };
  /** A box in several arrays: its shape, and its strides in each array, the output first. */
  type Axes = { shape: number[], strides: number[][] };

  // Data of the page, as `recombine.page` writes it.
  type Operation = { name: string, inputs: number[], output: number, [setting: string]: any };
  type Range = { start: number, length: number };
  type Numbers = Range & { type: "float32" | "float16" | "int32" | "int16" | "uint8", scale?: number, low?: number,
    high?: number };
  type ProgramData = { shapes: number[][], operations: Operation[], output: number,
    stages: { name: string, value: number }[], constants: (Numbers & { value: number })[] };
  type Factor = { name: string, low: number, high: number, count: number, form: "number" | "category" | "angle",
    given: number[] | null, period: number | null, labels: string[] | null };
  type Code = { kind: string, [setting: string]: any };
  /** Grid points and other images on which a decoder was trained; positions are null for absent factors. */
  type Trained = { seen: Range, images: Numbers | null, positions: (number | null)[][] };
  /** A training image near to an output, and their squared difference. */
  type Memory = { positions: (number | null)[], image: Float32Array, distance: number };
  /** The true column and row of every grid point's bump, and which of the decoder's outputs are in place. */
  type Places = Numbers & { dark: boolean, placed: Range | null };
  /** An output compared with the truth: its error relative to a blank image, whether its bump is in place (null: images
   * are not bumps), its peaks, how many of those away from the true place share its row or column, and that place. */
  type Verdict = { error: number, inPlace: boolean | null, peaks: Peak[], aligned: number, spot: [number, number] | null,
    isRight: boolean };
  type Peak = { column: number, row: number, height: number };
  type ModelData = { name: string, notes: string[], program: ProgramData | null, table: Numbers | null,
    codes: Code[] | null, probes: (Range & { points: number[] }) | null, sizes: number[] | null, mean: number[] | null,
    held: Range, present: Range | null, truth: Numbers | null, trained: Trained | null, errors: Numbers | null,
    places: Places | null, breaks_at: string | null, background: number, image: [number, number, number],
    low: number, high: number, smooth: boolean[], labels?: string[] };
  type PageData = { title: string, factors: Factor[], models: ModelData[], start: number[], labels?: string[],
    version: string };

  // Data of the training panel, as `recombine.page.training` writes it.
  type Recipe = { steps: number, batch: number, lr: number, weight_decay: number, beta1: number, beta2: number,
    epsilon: number };
  type ConvolutionData = { inputs: number, outputs: number, kernel: number, stride: number, bound: number };
  type Settings = { factors: Factor[], codes: Code[], profiles: number[][][], size: number, background: number,
    tolerance: number, held: string, convolutions: ConvolutionData[], recipe: Recipe, parameters: number };
  type PanelData = { settings: Settings, kernel: string, policy: string, drawn: string, isolated: string,
    filled: number, failed: number };
  /** A report of the worker. */
  type Progress = { number: number, step: number, total: number, seconds: number, losses: number[], heldOut: number,
    kept: number, hits: Uint8Array, output: Float32Array, point: number };
}
