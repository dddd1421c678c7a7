/** Trains beside the page, which stays free to be used: takes orders, and tells how far it is now and then. */

import { Trainer } from "./trainer.js";

/** @typedef {import("../types.js").Settings} Settings */
/** @typedef {import("../types.js").Progress} Progress */
/**
 * @typedef {{settings: Settings, code: Uint8Array, seed: number, stripes: boolean,
 *   number: number}} Beginning of a training, which reports name by its number
 *
 * An order; `pause` are milliseconds between reports.
 * @typedef {{begin?: Beginning, run?: boolean, point?: number, pause?: number}} Order
 */

const SLICE = 30; // milliseconds between looks at what the page wants
const SOONEST = 250; // milliseconds between reports, unless the page asks for fewer
const SHARE = 3; // at least so many times as long as the last report took is trained before the next
const EARLY = 8; // reports at the beginning, when most happens, that come as soon as training took as long as one

/** @type {Trainer | null} */
let trainer = null;
let running = false;
let point = 0;
let pause = SOONEST;
/** Milliseconds of training, reports included; and when the last one was. */
let spent = 0;
let told = 0;
/** Milliseconds that the last report took. */
let cost = 0;
let reports = 0;
/** The step at which the grid was evaluated last. */
let evaluated = -1;
let number = 0;
/** @type {number[]} */
let losses = [];
/** Calls `slice` after what the page has sent meanwhile; a timer would wait for four milliseconds. */
const turn = new MessageChannel();
let waiting = false;
turn.port1.onmessage = () => {
  waiting = false;
  slice();
};

/** Goes on in a moment. */
function soon() {
  if (!waiting) turn.port2.postMessage(null);
  waiting = true;
}

/** Tells the page how far it is. */
function report() {
  if (!trainer) return;
  const { points, settings } = trainer;
  const began = performance.now();
  if (trainer.step !== evaluated) {
    trainer.evaluate([...points.held, ...points.kept]);
    evaluated = trainer.step;
    reports += 1;
    spent += performance.now() - began;
  }
  /** @type {Progress} */
  const progress = {
    number, step: trainer.step, total: settings.recipe.steps, seconds: spent / 1000, losses,
    heldOut: trainer.accuracy(points.held), kept: trainer.accuracy(points.kept), hits: trainer.hits.slice(),
    output: trainer.output(point), point,
  };
  /** @type {any} */ (globalThis).postMessage(progress);
  losses = [];
  told = performance.now();
  cost = told - began;
}

/** Trains for a moment, and then again. */
function slice() {
  if (!trainer || !running) return;
  const began = performance.now();
  do losses.push(trainer.advance());
  while (!trainer.done && performance.now() - began < SLICE);
  if (trainer.done) running = false;
  const ended = performance.now();
  spent += ended - began;
  if (trainer.done || ended - told >= Math.max(pause, (reports < EARLY ? 1 : SHARE) * cost)) report();
  if (running) soon();
}

/** @param {Order} order */
function obey(order) {
  if (order.begin) {
    const { settings, code, seed, stripes } = order.begin;
    trainer = new Trainer(settings, /** @type {BufferSource} */ (code), seed, stripes);
    [spent, told, cost, reports, evaluated, losses, number] = [0, 0, 0, 0, -1, [], order.begin.number];
  }
  if (order.pause !== undefined) pause = Math.max(order.pause, SOONEST);
  if (order.point !== undefined) point = order.point;
  if (order.run !== undefined) running = order.run && trainer !== null && !trainer.done;
  if (!running) report();
  if (running) soon();
}

globalThis.addEventListener("message", (event) => obey(/** @type {MessageEvent} */ (event).data));
