/** Explanations of the page's quantities on hover or focus, which are data, with their numbers at the point. */

import { element } from "./pictures.js";

/** Explanations by what they explain. @type {[string, string][]} */
const EXPLAINED = [
  [".numbers", "Error = mean (output − ground truth)² ÷ mean (blank image − ground truth)²: 0 is perfect, 1 is no " +
    "better than a blank image. Held out: never seen in training."],
  ["h3:superposed", "D(x) is the output for this x, with the code of every other factor replaced by its mean over " +
    "the training set. A decoder superposes if D(x, y) ≈ D(x) + D(y), each above the blank image. R² is the share of " +
    "the output that their sum explains at its best scale, from 0 to 1: (Σ ab)² ÷ (Σ a² Σ b²) over pixels, for the " +
    "output a and the sum b."],
  ["h3:nearest", "The training images with the smallest sum of squared differences from the output."],
  ["h3:inside", "The activity of every unit of a stage at the point; one map per channel if the stage has channels."],
  ["h3:over the plane", "dv = √det g with g = JᵀJ, where J holds the derivatives of the stage's activity with " +
    "respect to the two factors. Factorization F = 1 − |g₁₂| ÷ (g₁₁ + g₂₂): 1 if the two factors move the stage in " +
    "different directions, ½ if in the same one."],
];

/**
 * Returns the first match of a selector; `h3:text` is a heading that contains the text.
 * @param {ParentNode} root @param {string} selector
 */
export function targetOf(root, selector) {
  const [tag, text] = selector.split(":");
  return [.../** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll(tag))]
    .find((own) => (own.textContent ?? "").toLowerCase().includes(text ?? "")) ?? null;
}

/** Adds explanations to one decoder's column, as tooltips of elements that can be focused. @param {HTMLElement} root */
export function explain(root) {
  for (const [selector, text] of EXPLAINED) {
    const own = targetOf(root, selector);
    if (!own) continue;
    const tip = element("p", "tip", `${text} `);
    tip.append(element("strong"));
    tip.setAttribute("role", "tooltip");
    tip.id = `tip-${document.querySelectorAll(".tip").length}-${EXPLAINED.findIndex(([name]) => name === selector)}`;
    own.classList.add("explained");
    own.tabIndex = 0;
    own.setAttribute("aria-describedby", tip.id);
    own.after(tip);
  }
}

/**
 * Says in an explanation what its numbers are at the point. @param {HTMLElement} root of the column
 * @param {string} selector what is explained @param {string} words
 */
export function tell(root, selector, words) {
  const here = targetOf(root, selector)?.nextElementSibling?.querySelector("strong");
  if (here && here.textContent !== words) here.textContent = words;
}
