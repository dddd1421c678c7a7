/** Trains in a worker so that the page stays responsive; follows commands and reports its progress. */

import { Trainer } from "./trainer.js";

/**
 * A command: `begin` starts a run, whose reports contain its `number`; `pause` is the time between reports in ms.
 * @typedef {{begin?: {settings: Settings, code: Uint8Array, seed: number, isolated: boolean, number: number},
 *   run?: boolean, point?: number, pause?: number}} Order
 */

const SLICE = 30; // milliseconds of training between checks for new commands
const SOONEST = 250; // minimum number of milliseconds between reports
const SHARE = 3; // minimum training time between reports, as a multiple of the last report's duration
const EARLY = 8; // number of initial reports for which that multiple is 1, since most progress is early

/** @type {Trainer | null} */
let trainer = null;
let running = false;
let point = 0;
let pause = SOONEST;
let spent = 0; // milliseconds, including evaluations
let reported = 0; // time of the last report
let cost = 0; // duration of the last report in milliseconds
let reports = 0;
let evaluated = -1; // the step at which the grid was last evaluated
let number = 0;
/** @type {number[]} */
let losses = [];
/** Calls `slice` after pending commands; browsers delay nested timers by at least four milliseconds. */
const turn = new MessageChannel();
let waiting = false;
turn.port1.onmessage = () => {
  waiting = false;
  slice();
};

function soon() {
  if (!waiting) turn.port2.postMessage(null);
  waiting = true;
}

/** Sends the progress to the page. */
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
  reported = performance.now();
  cost = reported - began;
}

/** Trains for one slice of time and schedules the next one. */
function slice() {
  if (!trainer || !running) return;
  const began = performance.now();
  do losses.push(trainer.advance());
  while (!trainer.done && performance.now() - began < SLICE);
  if (trainer.done) running = false;
  const ended = performance.now();
  spent += ended - began;
  if (trainer.done || ended - reported >= Math.max(pause, (reports < EARLY ? 1 : SHARE) * cost)) report();
  if (running) soon();
}

globalThis.addEventListener("message", (event) => {
  const order = /** @type {Order} */ (/** @type {MessageEvent} */ (event).data);
  if (order.begin) {
    const { settings, code, seed, isolated } = order.begin;
    trainer = new Trainer(settings, /** @type {BufferSource} */ (code), seed, isolated);
    [spent, reported, cost, reports, evaluated, losses, number] = [0, 0, 0, 0, -1, [], order.begin.number];
  }
  if (order.pause !== undefined) pause = Math.max(order.pause, SOONEST);
  if (order.point !== undefined) point = order.point;
  if (order.run !== undefined) running = order.run && trainer !== null && !trainer.done;
  if (!running) report();
  if (running) soon();
});
