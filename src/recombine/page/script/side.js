/** One decoder's column: output, ground truth, error, superposed halves, nearest training images, stage activity. */

import { explainedShare, judged } from "./answer.js";
import { tell } from "./explained.js";
import { nearestPoint, valueText } from "./grid.js";
import { Picture, diverging, drawImage, drawStage, element } from "./pictures.js";
import { StageViews, short } from "./views.js";

const MEMORIES = 3;
const PATIENCE = 6; // after this many outputs, a detail is drawn even if the point has moved on
const TOLERANCE = 1e-4; // largest acceptable difference from torch's outputs

export class Side {
  /** The position for which each half was computed. @type {(number | null)[]} */
  #halfAt = [];
  /** @type {{at: number[], stage: number}} */
  #wanted = { at: [], stage: 0 };
  #stage = -1;
  busy = false; // whether a request is under way
  #outputs = 0; // number of outputs drawn since the last detail
  #turn = 0;
  #isChecked = false;
  /** The output of which the nearest training images are shown. @type {Float32Array | null} */
  #compared = null;
  /** @type {Float32Array[]} */
  #halves = [];

  /**
   * @param {Decoder} decoder @param {number} number of the decoder @param {Runner} runner
   * @param {() => void} changed called after the output or the nearest training images have changed
   */
  constructor(decoder, number, runner, changed) {
    this.decoder = decoder;
    this.number = number;
    this.runner = runner;
    this.changed = changed;
    /** The point whose output is shown. @type {number[]} */
    this.at = [];
    /** Whether the column has been replaced. */
    this.closed = false;
    const { data, factors } = decoder;
    this.root = element("section", "side");
    this.heading = element("h2", "", data.name);
    this.heading.title = data.name;
    this.numbers = element("p", "numbers");
    this.root.append(this.heading, this.numbers, ...data.notes.map((note) => element("p", "note", note)));
    this.output = new Picture("output");
    this.truth = new Picture("ground truth");
    this.difference = new Picture("output − ground truth");
    this.#row("", data.truth ? [this.output, this.truth, this.difference] : [this.output]);
    this.halves = factors.map((factor) => new Picture(`D(${factor.name})`));
    this.sum = new Picture("their sum");
    if (decoder.hasHalves) {
      const title = factors.length === 2 ? "Two superposed halves" : "Superposed parts";
      const text = "The output for one factor, with every other factor's code replaced by its training-set mean.";
      this.#row(title, [...this.halves, this.sum], text);
    }
    this.memories = Array.from({ length: data.trained ? MEMORIES : 0 }, () => new Picture("training image"));
    this.likeness = element("p", "note", "None is like it: a blank image is nearer to the output than any of them.");
    if (data.trained) {
      const text = "The images it was trained on whose squared difference from the output is smallest.";
      this.#row("Nearest training images", this.memories, text);
      this.root.append(this.likeness);
    }
    this.stage = new Picture("activity of a stage");
    this.stage.figure.classList.add("wide");
    /** @type {StageViews | null} */
    this.views = null;
    if (data.program?.stages.length) {
      this.#row("Inside the decoder", [this.stage]);
      this.views = new StageViews(decoder);
      this.root.append(this.views.root);
    }
    /** The nearest training images. @type {Memory[]} */
    this.nearest = [];
    /** @type {Float32Array | null} */
    this.shown = null;
    /** How right the output is; null if there is no true output. @type {Verdict | null} */
    this.verdict = null;
  }

  /** @param {string} title @param {Picture[]} pictures @param {string} [text] */
  #row(title, pictures, text = "") {
    if (title) this.root.append(element("h3", "", title));
    if (text) this.root.append(element("p", "soft", text));
    const row = element("div", "pictures");
    row.append(...pictures.map((picture) => picture.figure));
    this.root.append(row);
  }

  /**
   * Brings the column up to date, one request after another; the newest point is always next.
   * @param {number[]} at @param {number} stage
   */
  async follow(at, stage) {
    this.#wanted = { at, stage };
    if (this.busy) return;
    this.busy = true;
    for (let task = this.#next(); task && !this.closed; task = this.#next()) await task();
    this.busy = false;
  }

  /** Whether the output shown is not yet that of the current point. */
  get isLate() {
    const { at, stage } = this.#wanted;
    return this.shown === null || this.#stage !== stage || this.at.join() !== at.join();
  }

  /**
   * Returns the next request. Details wait for the output, but are not forgotten during a long drag.
   * @returns {(() => Promise<void>) | null}
   */
  #next() {
    const details = this.#details();
    const due = details.length > 0 && this.#outputs >= PATIENCE;
    if (this.isLate && !due) return () => this.#askOutput();
    this.#outputs = 0;
    return details.length ? details[this.#turn++ % details.length] : null;
  }

  /** @param {PageRequest["kind"]} kind @param {object} [rest] */
  #ask(kind, rest = {}) {
    return this.runner.ask({ kind, decoder: this.number, ...rest });
  }

  async #askOutput() {
    const { at, stage } = this.#wanted;
    const stages = this.decoder.data.program?.stages ?? [];
    const own = stages.length ? stages[Math.min(stage, stages.length - 1)] : null;
    const { output, activity } = await this.#ask("output", { at, stage: own?.value ?? -1 });
    if (this.closed) return;
    this.at = at;
    this.#stage = stage;
    this.#outputs += 1;
    this.#draw(output);
    if (own) {
      const what = drawStage(this.stage.canvas, activity, this.decoder.data.program?.shapes[own.value] ?? [],
        this.decoder.data.image);
      this.stage.caption(`${own.name}: ${what}; blue is below 0, red above`);
    }
    this.changed();
  }

  /** Draws the output, the ground truth and their difference. @param {Float32Array} output */
  #draw(output) {
    const { decoder, at } = this;
    const { image, low, high } = decoder.data;
    this.shown = output;
    drawImage(this.output.canvas, output, image, low, high);
    const truth = decoder.truth(at);
    if (truth) {
      drawImage(this.truth.canvas, truth, image, low, high);
      const span = high - low || 1;
      const difference = output.map((number, k) => number - truth[k]);
      drawImage(this.difference.canvas, difference, image, -span, span, diverging);
      const between = at.some((position) => Math.abs(position - Math.round(position)) > 1e-6);
      this.truth.caption(between ? "ground truth at the nearest grid point" : "ground truth");
    } else if (decoder.data.truth) {
      drawImage(this.truth.canvas, output.map(() => low), image, low, high);
      drawImage(this.difference.canvas, output.map(() => 0), image, -1, 1, diverging);
      this.truth.caption("not in the data");
    }
    this.verdict = judged(decoder, output, at);
    const present = decoder.isPresent(nearestPoint(decoder.factors, at));
    const place = decoder.isHeldOut(at) ? "held out" : present ? "in the training range" : "not in the data";
    const relative = !this.verdict ? "" : `error ${this.verdict.error.toFixed(3)} relative to a blank image`;
    const wrong = output.every(Number.isFinite) ? relative : "the output is not finite here";
    this.numbers.textContent = [decoder.hasHoldout ? place : "", wrong].filter(Boolean).join(" · ");
    const blank = decoder.energy(nearestPoint(decoder.factors, at)) / decoder.pixels;
    tell(this.root, ".numbers", this.verdict && blank ?
      `Here ${short(this.verdict.error * blank)} ÷ ${short(blank)} = ${short(this.verdict.error)}.` : "");
    this.#tellSuperposition();
    this.root.classList.toggle("wrong", this.verdict !== null && !this.verdict.isRight);
  }

  /** Returns requests for the details that do not belong to the output shown. */
  #details() {
    const { decoder } = this;
    const { at } = this.#wanted;
    /** @type {(() => Promise<void>)[]} */
    const tasks = [];
    if (!this.shown) return tasks;
    if (!this.#isChecked) tasks.push(() => this.#check());
    if (decoder.hasHalves) {
      for (const [k, position] of at.entries()) {
        if (this.#halfAt[k] !== position) tasks.push(() => this.#askHalf(at, k));
      }
    }
    if (decoder.data.trained && this.#compared !== this.shown) tasks.push(() => this.#askNearest(this.shown));
    return tasks;
  }

  /** Compares the decoder's outputs with torch's. */
  async #check() {
    this.#isChecked = true;
    const wrong = await this.#ask("mismatch");
    if (wrong <= TOLERANCE) return;
    const warning = `Do not trust this page: outputs differ from torch's by ${wrong.toPrecision(2)}.`;
    this.root.querySelector(".pictures")?.before(element("p", "note", warning));
  }

  /** @param {number[]} at @param {number} factor */
  async #askHalf(at, factor) {
    this.#halves[factor] = await this.#ask("half", { at, factor });
    this.#halfAt[factor] = at[factor];
    this.#drawHalf(at, factor);
  }

  /** @param {Float32Array | null} output */
  async #askNearest(output) {
    this.#compared = output;
    this.nearest = await this.#ask("nearest", { output, count: MEMORIES });
    this.#drawNearest();
    this.changed();
  }

  /** @param {number[]} at @param {number} factor */
  #drawHalf(at, factor) {
    const { image, low, high, background } = this.decoder.data;
    const { factors } = this.decoder;
    const others = factors.length === 2 ? `mean ${factors[1 - factor].name}` : "all others at their mean";
    this.halves[factor].caption(`${factors[factor].name} = ${valueText(factors[factor], at[factor])}, ${others}`);
    if (Object.keys(this.#halves).length < factors.length) return;
    const sum = this.decoder.superposed(this.#halves);
    const most = sum.reduce((largest, x) => Math.max(largest, Math.abs(x - background)), 0);
    // faint pictures are brightened, since their shape matters rather than their amplitude
    const gain = most > 1e-4 * (high - low) ? Math.max(1, (0.9 * (high - low)) / most) : 1;
    this.#tellSuperposition();
    const drawn = [...this.#halves, sum].map((part) => part.map((x) => background + gain * (x - background)));
    drawn.forEach((part, k) => drawImage((this.halves[k] ?? this.sum).canvas, part, image, low, high));
    this.sum.caption(gain > 1.05 ? `their sum (all ${gain.toFixed(gain < 9.95 ? 1 : 0)} times brighter)` : "their sum");
  }

  /** Says how much of the output the sum of its halves explains, once all are those of its point. */
  #tellSuperposition() {
    const { decoder, at, shown } = this;
    if (!shown || !decoder.hasHalves || at.some((position, k) => this.#halfAt[k] !== position)) return;
    if (Object.keys(this.#halves).length < at.length) return;
    const share = explainedShare(shown, decoder.superposed(this.#halves), decoder.data.background);
    tell(this.root, "h3:superposed", `Here R² = ${short(share)}.`);
  }

  #drawNearest() {
    const { decoder } = this;
    const { image, low, high } = decoder.data;
    this.likeness.hidden = this.nearest.length > 0;
    this.memories.forEach((picture, k) => {
      const memory = this.nearest[k];
      picture.figure.hidden = !memory;
      if (!memory) return;
      drawImage(picture.canvas, memory.image, image, low, high);
      const values = decoder.factors.flatMap(({ name }, f) => {
        const position = memory.positions[f];
        return position === null ? [] : `${name} ${valueText(decoder.factors[f], position)}`;
      });
      picture.caption(values.join(", ") + (values.length < decoder.factors.length ? " alone" : ""));
    });
  }
}
