/** A tour of the page in a few steps, which are data. */

import { composes } from "./answer.js";
import { targetOf } from "./explained.js";
import { element } from "./pictures.js";

const OFFERED = 3; // decoders that compose, at most

/**
 * Steps: what is highlighted, what is said, and which decoders it offers to switch to: one that fails, or ones that
 * compose. Steps about what a page lacks are left out.
 */
const TOUR = /** @type {[string, string, "" | "fails" | "composes"][]} */ ([
  ["#plane", "Every point is a combination of two factors, such as a position across and a position down. " +
    "Shaded combinations were held out of training. Drag the point, or use the arrow keys.", ""],
  [".side .pictures", "The decoder draws the combination at the point, live. Outside the shaded region it was " +
    "trained to. Inside, it has seen each of the two values, only never together.", "fails"],
  [".numbers", "The error compares the output with the ground truth. 0 is perfect, and 1 is no better than a blank " +
    "image.", "fails"],
  ["h3:superposed", "What a decoder that fails often draws instead: the sum of what it draws for each value " +
    "alone, that is, memorised images on top of each other.", "fails"],
  ["h3:nearest", "These training images are the most similar to the output; they are framed on the plane.", ""],
  ["h3:inside", "Choose a stage to see its activity, and follow it as the point crosses into the held-out region.", ""],
  ["h3:over the plane", "The volume element dv says how much a stage stretches the plane at each point.", ""],
  ["#sides", "Other training data or another architecture may compose. Switch, and move the point through the " +
    "hold-out.", "composes"],
]);

/** @param {string} text @param {() => void} press */
function button(text, press) {
  const made = /** @type {HTMLButtonElement} */ (element("button", "", text));
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}

export class Tour {
  #shown = 0; // the step shown, from 1; 0 for none
  /** @type {HTMLElement | null} */
  #marked = null;

  /**
   * @param {HTMLElement} root @param {HTMLElement} start the button that starts the tour
   * @param {PageData} data @param {Decoder[]} decoders @param {(change: Partial<State>) => void} change
   */
  constructor(root, start, data, decoders, change) {
    this.root = root;
    this.start = start;
    this.data = data;
    this.decoders = decoders;
    this.change = change;
    start.addEventListener("click", () => change({ tour: 1 }));
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") change({ tour: 0 });
    });
  }

  /** Shows a step, if it is not yet shown. @param {State} state */
  show({ tour }) {
    if (tour === this.#shown) return;
    this.#marked?.classList.remove("toured");
    const steps = TOUR.filter(([selector]) => targetOf(document, selector));
    this.#shown = Math.min(tour, steps.length);
    this.root.hidden = this.#shown === 0;
    if (this.root.hidden) {
      this.start.focus();
      return;
    }
    const [selector, text, kind] = steps[this.#shown - 1];
    this.#marked = targetOf(document, selector);
    this.#marked?.classList.add("toured");
    this.#marked?.scrollIntoView({ block: "start" });
    const line = (/** @type {HTMLElement[]} */ buttons) => {
      const row = element("div", "buttons");
      row.append(...buttons);
      return row;
    };
    const step = (/** @type {number} */ by) => () => this.change({ tour: this.#shown + by });
    const last = this.#shown === steps.length;
    const ways = [button("Back", step(-1)), button(last ? "Done" : "Next", last ? step(-this.#shown) : step(1))];
    if (!last) ways.push(button("Skip", step(-this.#shown)));
    /** @type {HTMLButtonElement} */ (ways[0]).disabled = this.#shown === 1;
    const words = element("p", "", text);
    words.setAttribute("aria-live", "polite");
    const head = element("p", "soft", `Step ${this.#shown} of ${steps.length}`);
    const offered = kind ? this.#offers(kind) : [];
    this.root.replaceChildren(head, words, ...(offered.length ? [line(offered)] : []), line(ways));
    ways[1].focus({ preventScroll: true });
  }

  /** Buttons that switch to decoders. @param {"fails" | "composes"} kind */
  #offers(kind) {
    const wanted = kind === "composes";
    const found = this.decoders.map((_, k) => k).filter((k) => composes(this.decoders[k]) === wanted);
    return found.slice(0, wanted ? OFFERED : 1).map((decoder) => {
      const name = wanted ? this.data.models[decoder].name : "One that fails";
      return button(name, () => this.change({ decoder, beside: -1, at: [...this.data.start] }));
    });
  }
}
