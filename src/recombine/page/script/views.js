/** Views of a stage over the plane: its volume element, and the tuning of one of its units. */

import { clamped } from "./grid.js";
import { drawMap, range, sequential, short } from "./charts.js";
import { drawCurve } from "./curves.js";
import { Picture, element } from "./picture.js";
import { diverging } from "./pictures.js";
import { surveyOf } from "./survey.js";

/** @typedef {import("./decoder.js").Decoder} Decoder */
/** @typedef {import("./address.js").State} State */

export class StageViews {
  /** @param {Decoder} decoder */
  constructor(decoder) {
    this.decoder = decoder;
    this.root = element("div", "views");
    this.volume = new Picture("log10 dv over the plane");
    this.activity = new Picture("a unit over the plane");
    this.curves = [new Picture("a unit across"), new Picture("a unit down")];
    this.progress = element("p", "soft");
    this.drawn = element("div");
    const dv = "log10 dv says how much the stage enlarges a cell of the plane; " +
      "the ellipse holds steps that change it equally.";
    const curves = "Curves of a unit are its mean over the other factor (line) and through the point (dashes).";
    const charts = element("div", "pictures charts");
    charts.append(...[this.volume, this.activity, ...this.curves].map((picture) => picture.figure));
    this.drawn.append(element("h3", "", "Over the plane"), element("p", "soft", `${dv} ${curves}`), charts);
    this.root.append(this.progress, this.drawn);
    /** Whether it is on the screen: nothing is computed for what nobody sees. */
    this.visible = true;
    if (typeof IntersectionObserver === "function") {
      this.visible = false;
      this.observer = new IntersectionObserver((entries) => {
        this.visible = entries[entries.length - 1].isIntersecting;
        if (this.visible) this.appeared();
      });
      this.observer.observe(this.root);
    }
    /** Called when it comes into sight. */
    this.appeared = () => {};
  }

  /**
   * What is shown in a state.
   * @param {State} state
   */
  survey(state) {
    const stages = this.decoder.data.program?.stages ?? [];
    const { value } = stages[Math.min(state.stage, stages.length - 1)];
    return surveyOf(this.decoder, value, state.at, state.plane);
  }

  /**
   * Draws what is known so far.
   * @param {State} state
   */
  draw(state) {
    const survey = this.survey(state);
    this.progress.textContent = this.#words(survey);
    this.progress.hidden = survey.done && !survey.tooLarge;
    this.drawn.hidden = survey.tooLarge;
    if (survey.tooLarge) return;
    this.#drawVolume(survey, state);
    this.#drawTuning(survey, state);
  }

  /** @param {import("./survey.js").Survey} survey */
  #words(survey) {
    if (survey.tooLarge) return "The plane or the stage is too large for views over all of it.";
    const share = Math.floor((100 * survey.known) / survey.count);
    return `Running the decoder over the plane while nothing moves: ${share} %`;
  }

  /**
   * @param {import("./survey.js").Survey} survey
   * @param {State} state
   */
  #drawVolume(survey, { at }) {
    const bounds = range(survey.volume);
    drawMap(this.volume.canvas, survey, survey.volume, bounds, sequential, at, true);
    const here = survey.volume[survey.pointAt(at)];
    const words = [Number.isNaN(here) ? "" : `log10 dv ${digits(here)} here`];
    if (survey.known) words.push(`${digits(bounds[0])} (dark) to ${digits(bounds[1])} (light) over the plane`);
    this.volume.caption(words.filter(Boolean).join("; ") || "log10 dv");
  }

  /**
   * @param {import("./survey.js").Survey} survey
   * @param {State} state
   */
  #drawTuning(survey, { at, unit }) {
    for (const { figure } of [this.activity, ...this.curves]) figure.hidden = !survey.done;
    this.curves[1].figure.hidden ||= survey.alone;
    if (!survey.done) return;
    const own = survey.unit(unit);
    const map = survey.map(own);
    const [low, high] = range(map);
    const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
    drawMap(this.activity.canvas, survey, map, [-most, most], diverging, at, false);
    const which = unit < 0 ? " (the one that varies most)" : "";
    const here = map[survey.pointAt(at)];
    this.activity.caption(`unit ${own}${this.#place(survey, own)}${which}: ${short(here)} here, ` +
      `${short(low)} to ${short(high)} over the plane`);
    for (const axis of /** @type {(0 | 1)[]} */ (survey.alone ? [0] : [0, 1])) {
      drawCurve(this.curves[axis].canvas, survey, map, axis, at.map((p, k) => clamped(this.decoder.factors[k], p)));
      this.curves[axis].caption(`unit ${own} along ${this.decoder.factors[survey.plane[axis]].name}`);
    }
  }

  /**
   * Where a unit is, in stages of maps.
   * @param {import("./survey.js").Survey} survey
   * @param {number} unit
   */
  #place(survey, unit) {
    const shape = this.decoder.data.program?.shapes[survey.value].slice(1) ?? [];
    if (shape.length !== 3) return "";
    const [, rows, columns] = shape;
    const [map, row] = [Math.floor(unit / (rows * columns)), Math.floor(unit / columns) % rows];
    return `, map ${map}, row ${row}, column ${unit % columns}`;
  }
}

/** @param {number} number */
function digits(number) {
  return number.toFixed(2).replace("-", "−");
}
