/** What the page asks of its decoders, and the answers: given in a worker, or in the page if no worker starts. */

import { Decoder } from "./decoder.js";
import { surveyOf } from "./survey.js";

/** Answers requests about decoders, each by one method. */
export class Responder {
  /** @param {Pick<PageData, "factors" | "models">} data @param {Uint8Array} bytes @param {BufferSource} kernel */
  constructor({ factors, models }, bytes, kernel) {
    this.decoders = models.map((model) => new Decoder(model, factors, bytes, kernel));
  }

  /** @param {PageRequest} request @returns {any} what may be sent from a worker */
  answer({ kind, decoder, ...rest }) {
    return /** @type {any} */ (this)[kind](this.decoders[decoder], rest);
  }

  /**
   * The output at a point, with the activity of a stage, if any.
   * @param {Decoder} decoder @param {{at: number[], stage: number}} _
   */
  output(decoder, { at, stage }) {
    const output = decoder.output(at);
    return { output, activity: decoder.program && stage >= 0 ? decoder.program.value(stage).slice() : null };
  }

  /** @param {Decoder} decoder @param {{at: number[], factor: number}} _ */
  half(decoder, { at, factor }) {
    return decoder.half(at, factor);
  }

  /** @param {Decoder} decoder @param {{output: Float32Array, count: number}} _ */
  nearest(decoder, { output, count }) {
    return decoder.nearest(output, count).map((memory) => ({ ...memory, image: memory.image.slice() }));
  }

  /** @param {Decoder} decoder */
  mismatch(decoder) {
    return decoder.mismatch();
  }

  /**
   * Continues a survey for some milliseconds; its activity comes with the last answer only, since it is large.
   * @param {Decoder} decoder
   * @param {{value: number, at: number[], plane: [number, number], budget: number}} _
   */
  survey(decoder, { value, at, plane, budget }) {
    const survey = surveyOf(decoder, value, at, plane);
    const start = performance.now();
    do if (!survey.done) survey.step();
    while (!survey.done && performance.now() - start < budget);
    const { known, metric, volume, varying } = survey;
    return { known, metric, volume, varying, activity: survey.done ? survey.activity : null };
  }
}
