/** The page's end of a worker that runs decoders. Without workers, the page answers its requests itself. */

import { Responder } from "./requests.js";

export class Runner {
  /** Requests without an answer. @type {Map<number, {request: PageRequest, resolve: (answer: any) => void}>} */
  #pending = new Map();
  #count = 0;
  /** @type {Worker | null} */
  #worker = null;
  /** @type {Responder | null} */
  #own = null;

  /** @param {() => Worker} start @param {PageData} data @param {Uint8Array} bytes @param {BufferSource} kernel */
  constructor(start, data, bytes, kernel) {
    this.inPage = () => (this.#own ??= new Responder(data, bytes, kernel));
    try {
      this.#worker = start();
      this.#worker.addEventListener("message", ({ data: { number, answer } }) => this.#resolve(number, answer));
      this.#worker.addEventListener("error", (event) => {
        event.preventDefault();
        this.#fail();
      });
      const { factors, models } = data;
      this.#worker.postMessage({ begin: { data: { factors, models }, bytes, kernel } });
    } catch {
      this.#worker = null;
    }
  }

  /** Whether a worker answers. */
  get hasWorker() {
    return this.#worker !== null;
  }

  /** @param {PageRequest} request @returns {Promise<any>} the answer */
  ask(request) {
    return new Promise((resolve) => {
      const number = this.#count++;
      this.#pending.set(number, { request, resolve });
      if (this.#worker) this.#worker.postMessage({ number, request });
      else this.#answer(number, request);
    });
  }

  /** Answers in the page, after pending events. @param {number} number @param {PageRequest} request */
  #answer(number, request) {
    setTimeout(() => this.#resolve(number, this.inPage().answer(request)));
  }

  /** @param {number} number @param {any} answer */
  #resolve(number, answer) {
    this.#pending.get(number)?.resolve(answer);
    this.#pending.delete(number);
  }

  #fail() {
    this.#worker?.terminate();
    this.#worker = null;
    for (const [number, { request }] of this.#pending) this.#answer(number, request);
  }
}
