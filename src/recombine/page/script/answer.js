/**
 * Whether a decoder composes at the point and over the hold-out, said in a sentence, with a button that switches to a
 * decoder that does.
 *
 * A network composes over the hold-out if at least 90 % of held-out bumps are in place and the squared error is less
 * than half that of blank images; the report judges networks by the same criteria. At a point, the same holds of one
 * image. Peaks are those of `recombine.metrics.separate_peaks`, relative to the output's own maximum.
 */

import { nearestPoint, shortened } from "./grid.js";
import { drawImage, element, sizeOf } from "./pictures.js";

const LARGEST_ERROR = 0.5; // relative to a blank image
const LEAST_SHARE = 0.9; // of held-out bumps in place
const NEARBY = 1; // pixels along each axis
const FAINTEST = 0.05; // smallest maximum, relative to the true height, of an output that is not blank
const FAINT = 0.5; // largest maximum, relative to the true height, of bumps that are called faint
const THRESHOLD = 0.3; // height of the lowest peak relative to the highest
const PROMINENCE = 0.1; // a path between two peaks falls by at least this much
const REACH = 2; // a peak is the highest pixel within this distance along both axes
const NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];

/**
 * Returns an image's distance from the background at every pixel, positive where there is a bump.
 * @param {Decoder} decoder @param {ArrayLike<number>} numbers
 */
export function signalOf({ data }, numbers) {
  const { image: [channels, rows, columns], background, places } = data;
  const area = rows * columns;
  return Float64Array.from({ length: area }, (_, k) => {
    if (channels === 1) return (numbers[k] - background) * (places?.dark ? -1 : 1);
    let sum = 0; // colour has no polarity
    for (let c = 0; c < channels; c += 1) sum += Math.abs(numbers[c * area + k] - background);
    return sum;
  });
}

/** The first of the highest pixels. @param {ArrayLike<number>} numbers */
function highest(numbers) {
  let best = 0;
  for (let k = 1; k < numbers.length; k += 1) if (numbers[k] > numbers[best]) best = k;
  return best;
}

/**
 * Returns the peaks of a signal, from top to bottom, with heights relative to the highest.
 * @param {Float64Array} signal @param {number} rows @param {number} columns @param {number} [faintest] lowest maximum
 * @returns {Peak[]}
 */
export function peaksOf(signal, rows, columns, faintest = FAINTEST) {
  const top = signal[highest(signal)];
  if (!(top >= faintest)) return [];
  // of equal pixels, the first is higher
  const above = (/** @type {number} */ one, /** @type {number} */ other) =>
    signal[one] > signal[other] || (signal[one] === signal[other] && one < other);
  /** @param {number} pixel @param {number} reach @param {(other: number) => void} visit */
  const around = (pixel, reach, visit) => {
    const [x, y] = [pixel % columns, Math.floor(pixel / columns)];
    for (let j = Math.max(0, y - reach); j <= Math.min(rows - 1, y + reach); j += 1) {
      for (let i = Math.max(0, x - reach); i <= Math.min(columns - 1, x + reach); i += 1) visit(j * columns + i);
    }
  };
  /** Whether every path to a higher pixel falls. @param {number} pixel */
  const isSeparate = (pixel) => {
    const [seen, queue] = [new Set([pixel]), [pixel]];
    let separate = true;
    while (queue.length && separate) {
      around(/** @type {number} */ (queue.pop()), 1, (other) => {
        if (seen.has(other) || signal[other] <= signal[pixel] - PROMINENCE * top) return;
        separate &&= !above(other, pixel);
        seen.add(other);
        queue.push(other);
      });
    }
    return separate;
  };
  const peaks = [];
  for (let pixel = 0; pixel < signal.length; pixel += 1) {
    if (signal[pixel] <= THRESHOLD * top) continue;
    let isHighest = true;
    around(pixel, REACH, (other) => { isHighest &&= !above(other, pixel); });
    if (!isHighest || !isSeparate(pixel)) continue;
    peaks.push({ column: pixel % columns, row: Math.floor(pixel / columns), height: signal[pixel] / top });
  }
  return peaks;
}

/**
 * Compares an output with the truth; null if there is no truth.
 * @param {Decoder} decoder @param {Float32Array} output @param {number[]} at @returns {Verdict | null}
 */
export function judged(decoder, output, at) {
  const truth = decoder.truth(at);
  if (!truth) return null;
  const error = decoder.error(output, truth);
  const spot = decoder.place(nearestPoint(decoder.factors, at));
  if (!spot) return { error, inPlace: null, peaks: [], aligned: 0, spot, isRight: error < LARGEST_ERROR };
  const [, rows, columns] = decoder.data.image;
  const [signal, right] = [signalOf(decoder, output), signalOf(decoder, truth)];
  const height = right[highest(right)];
  const near = (/** @type {number} */ column, /** @type {number} */ row) =>
    [Math.abs(column - spot[0]) <= NEARBY, Math.abs(row - spot[1]) <= NEARBY];
  const brightest = highest(signal);
  const inPlace = near(brightest % columns, Math.floor(brightest / columns)).every(Boolean);
  const found = peaksOf(signal, rows, columns, FAINTEST * height);
  const peaks = found.map((peak) => ({ ...peak, height: (peak.height * signal[brightest]) / height }));
  const aligned = peaks.filter(({ column, row }) => {
    const [inColumn, inRow] = near(column, row);
    return inColumn !== inRow;
  }).length;
  return { error, inPlace, peaks, aligned, spot, isRight: inPlace && error < LARGEST_ERROR };
}

/**
 * Returns the share of an image that another one explains at its best scale, as `explained_variance` of one point.
 * @param {Float32Array} image @param {Float32Array} other @param {number} background of both
 */
export function explainedShare(image, other, background) {
  let [product, power, own] = [0, 0, 0];
  for (let k = 0; k < image.length; k += 1) {
    const [a, b] = [image[k] - background, other[k] - background];
    product += a * b;
    own += a * a;
    power += b * b;
  }
  return product > 0 ? (product * product) / (power * own) : 0;
}

/** Over the hold-out. @typedef {{count: number, placed: number | null, error: number}} Scores */

/** Of every decoder, once they were asked for. @type {Map<Decoder, Scores | null>} */
const SCORES = new Map();

/** Returns a decoder's scores over the hold-out; null if they are not known. @param {Decoder} decoder */
export function heldOutScores(decoder) {
  const known = SCORES.get(decoder);
  if (known !== undefined) return known;
  const { errors, placed } = decoder;
  let [count, hits, wrong, blank] = [0, 0, 0, 0];
  for (const [point, error] of errors?.entries() ?? []) {
    if (!decoder.isHeld(point) || error < 0) continue;
    const energy = decoder.energy(point);
    count += 1;
    hits += Number(placed?.(point) ?? 0);
    wrong += energy ? error * energy : error;
    blank += energy;
  }
  const scores = count ? { count, placed: placed ? hits : null, error: blank ? wrong / blank : wrong } : null;
  SCORES.set(decoder, scores);
  return scores;
}

/** Whether a decoder composes over the hold-out; null if that is not known. @param {Decoder} decoder */
export function composes(decoder) {
  const scores = heldOutScores(decoder);
  if (!scores) return null;
  return scores.error < LARGEST_ERROR && (scores.placed === null || scores.placed >= LEAST_SHARE * scores.count);
}

/** Whether a decoder's output at a grid point is right. @param {Decoder} decoder @param {number} point */
export function isRightAt({ errors, placed }, point) {
  const error = errors?.[point] ?? -1;
  return error >= 0 && error < LARGEST_ERROR && (placed?.(point) ?? true);
}

/**
 * Returns the most similar decoder that composes (or not) at a point and over the hold-out; −1 if there is none.
 * @param {Decoder[]} decoders @param {number} own @param {number[]} at @param {boolean} wanted
 */
export function alternative(decoders, own, at, wanted) {
  const point = nearestPoint(decoders[own].factors, at);
  const labels = decoders.map((decoder) => decoder.data.labels ?? []);
  const shared = (/** @type {number} */ k) => labels[k].filter((text, place) => text === labels[own][place]).length;
  let best = -1;
  for (const [k, decoder] of decoders.entries()) {
    if (k === own || !decoder.isHeld(point) || composes(decoder) !== wanted) continue;
    if (isRightAt(decoder, point) !== wanted || (best >= 0 && shared(k) <= shared(best))) continue;
    best = k;
  }
  return best;
}

/** @param {number} error */
function relative(error) {
  return `error ${error.toFixed(2)}, blank image 1`;
}

/**
 * Says what an output shows, as the verdict and the reason.
 * @param {Verdict} verdict @param {boolean} seen whether the point was in the training set @returns {[string, string]}
 */
export function said({ error, inPlace, peaks, aligned, spot, isRight }, seen) {
  const words = seen ? ["Drawn as trained", "Drawn in part", "Not drawn as trained"] :
    ["Composes here", "Composes in part here", "Does not compose here"];
  if (inPlace === null || !spot) return [words[isRight ? 0 : 2], relative(error)];
  if (isRight) return [words[0], `the bump is in place (${relative(error)})`];
  if (inPlace) return [words[1], `the bump is in place, but the image is wrong (${relative(error)})`];
  const place = `(${spot.map((pixel) => Number(pixel.toFixed(1))).join(", ")})`;
  if (!peaks.length) return [words[2], `it draws nothing instead of a bump at ${place}`];
  const faint = Math.max(...peaks.map((peak) => peak.height)) < FAINT ? "faint " : "";
  const share = aligned === peaks.length ? aligned === 2 ? "both" : "all" : `${NUMBERS[aligned] ?? aligned} of them`;
  if (peaks.length === 1) {
    const [{ column, row }] = peaks;
    const rest = aligned ? ", in its row or column" : "";
    return [words[2], `it draws one ${faint}bump at (${column}, ${row}) instead of ${place}${rest}`];
  }
  const [count, rest] = [NUMBERS[peaks.length] ?? peaks.length, aligned ? `, ${share} in its row or column` : ""];
  const why = aligned === peaks.length ? ", as if it added up images of the same row and column" : "";
  return [words[2], `it draws ${count} ${faint}bumps instead of one at ${place}${rest}${why}`];
}

/** Says how many held-out outputs are right, and where a decoder that fails breaks. @param {Decoder} decoder */
export function saidOfHoldout(decoder) {
  const scores = heldOutScores(decoder);
  if (!scores) return "";
  const { count, placed, error } = scores;
  const all = placed === null ? "" : `${placed} of ${count} bumps are in place, and `;
  const stage = composes(decoder) ? null : decoder.data.breaks_at;
  const where = stage ? ` It breaks at ${stage}, the first stage that treats held-out combinations differently.` : "";
  return `Over the whole hold-out, ${all}the mean error is ${error.toFixed(2)}.${where}`;
}

/** A decoder and its output at a point.
 * @typedef {{decoder: Decoder, at: number[], shown: Float32Array | null, verdict: Verdict | null}} Shown */

/** The sentences above the explorer, one for each decoder shown. */
export class Answer {
  #shown = "";

  /**
   * @param {HTMLElement} root @param {Decoder[]} decoders @param {string[]} names of the labels
   * @param {(side: number, decoder: number) => void} choose
   */
  constructor(root, decoders, names, choose) {
    this.root = root;
    this.decoders = decoders;
    this.names = names;
    this.choose = choose;
    this.lines = [0, 1].map((side) => this.#line(side));
    root.append(...this.lines.map((line) => line.root));
  }

  /** @param {number} side */
  #line(side) {
    const root = element("div", "answer");
    const words = element("p");
    const picture = document.createElement("canvas"); // of the output, where the pictures are below the screen
    picture.setAttribute("aria-hidden", "true");
    const [name, verdict, reason] = [element("span", "soft"), element("strong"), document.createTextNode("")];
    words.append(name, verdict, reason);
    const button = /** @type {HTMLButtonElement} */ (element("button"));
    button.type = "button";
    const line = { root, picture, name, verdict, reason, button, target: -1 };
    button.addEventListener("click", () => this.choose(side, line.target));
    root.append(picture, words, button);
    return line;
  }

  /** @param {Shown[]} sides */
  show(sides) {
    for (const [side, { shown, decoder }] of sides.entries()) {
      const { image, low, high } = decoder.data;
      const { picture } = this.lines[side];
      if (shown && sizeOf(picture)[0]) drawImage(picture, shown, image, low, high);
    }
    const contents = sides.map(({ decoder, verdict, at }) => {
      if (!verdict) return null;
      const own = this.decoders.indexOf(decoder);
      const point = nearestPoint(decoder.factors, at);
      const [word, reason] = said(verdict, decoder.isSeen(point));
      const target = alternative(this.decoders, own, at, !verdict.isRight);
      const offered = target >= 0 && !sides.some((side) => side.decoder === this.decoders[target]);
      return { own, verdict, word, text: `: ${reason}. ${saidOfHoldout(decoder)}`, target: offered ? target : -1 };
    });
    const key = JSON.stringify(contents.map((own) => own && [own.own, own.word, own.text, own.target]));
    if (key === this.#shown) return; // nothing is written to the page unless it has changed
    this.#shown = key;
    this.root.classList.toggle("two", sides.length > 1);
    this.root.hidden = contents.every((own) => own === null);
    for (const [side, line] of this.lines.entries()) {
      const own = contents[side];
      line.root.hidden = !own;
      if (!own) continue;
      line.target = own.target;
      line.root.classList.toggle("right", own.verdict.isRight);
      line.name.textContent = sides.length > 1 ? `${this.#change(contents[1 - side]?.own ?? own.own, own.own)} — ` : "";
      line.verdict.textContent = own.word;
      line.reason.textContent = own.text;
      line.button.hidden = own.target < 0;
      if (own.target < 0) continue;
      line.button.textContent = `${own.verdict.isRight ? "See it fail" : "Try"}: ${this.#change(own.own, own.target)}`;
    }
  }

  /** What is different about another decoder. @param {number} own @param {number} other */
  #change(own, other) {
    const [before, after] = [own, other].map((k) => this.decoders[k].data.labels ?? []);
    const changed = [...this.names.keys()].filter((k) => before[k] !== after[k]);
    const isPlain = (/** @type {string} */ text) => changed.length === 1 && /^[a-z]/i.test(text) && text !== "none";
    const words = changed.map((k) => after[k] === "none" ? `no ${this.names[k]}` :
      isPlain(after[k]) ? after[k] : `${this.names[k]} ${after[k]}`);
    return shortened(words.join(", ") || this.decoders[other].data.name, 80);
  }

  /** The sentences as text, to be read aloud. */
  get text() {
    const shown = this.lines.filter((line) => !line.root.hidden);
    return shown.map(({ name, verdict, reason }) => [name, verdict, reason].map((own) => own.textContent).join(""));
  }
}
