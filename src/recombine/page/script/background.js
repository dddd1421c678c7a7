/** Long work in short slices, and only while nobody moves anything. */

/** Work that is done step by step. @typedef {{done: boolean, step: () => void}} Work */

const SLICE = 8; // milliseconds
const AGAIN = 60; // milliseconds until it is asked again whether it is quiet
const TOLD = 120; // milliseconds between reports

export class Background {
  #waiting = false;
  #told = 0;

  /**
   * @param {() => boolean} isQuiet
   * @param {() => Work | null} next what is to be done now, if anything
   * @param {() => void} tell is called now and then while there is progress, and at the end
   */
  constructor(isQuiet, next, tell) {
    this.isQuiet = isQuiet;
    this.next = next;
    this.tell = tell;
  }

  /** Goes on, if there is something to do; called whenever that may have changed. */
  wake() {
    if (this.#waiting) return;
    this.#waiting = true;
    setTimeout(() => {
      this.#waiting = false;
      this.#slice();
    }, this.isQuiet() ? 0 : AGAIN);
  }

  #slice() {
    const work = this.next();
    if (!work) return;
    if (this.isQuiet()) {
      const start = performance.now();
      do work.step();
      while (!work.done && performance.now() - start < SLICE);
      if (work.done || start - this.#told > TOLD) {
        this.#told = start;
        this.tell();
      }
    }
    this.wake();
  }
}
