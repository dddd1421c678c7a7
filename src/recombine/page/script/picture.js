/** Elements of the page: text that stays text, and pictures with captions. */

/**
 * @param {string} tag
 * @param {string} [name] of its class
 * @param {string} [text]
 * @returns {HTMLElement}
 */
export function element(tag, name = "", text = "") {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text) made.textContent = text;
  return made;
}

/** A picture with its caption. */
export class Picture {
  /** @param {string} caption */
  constructor(caption) {
    this.figure = element("figure");
    this.canvas = /** @type {HTMLCanvasElement} */ (document.createElement("canvas"));
    this.canvas.setAttribute("role", "img");
    this.words = element("figcaption");
    this.figure.append(this.canvas, this.words);
    this.caption(caption);
  }

  /** @param {string} text */
  caption(text) {
    if (this.words.textContent === text) return;
    this.words.textContent = text;
    this.canvas.setAttribute("aria-label", text);
  }
}
