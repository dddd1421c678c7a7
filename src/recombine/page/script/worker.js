/** Runs decoders in a worker, so that the page only draws. */

import { Responder } from "./requests.js";

/** @type {Responder | null} */
let responder = null;

globalThis.addEventListener("message", (event) => {
  const { begin, number, request } = /** @type {MessageEvent} */ (event).data;
  if (begin) responder = new Responder(begin.data, begin.bytes, begin.kernel);
  else /** @type {any} */ (globalThis).postMessage({ number, answer: responder?.answer(request) });
});
