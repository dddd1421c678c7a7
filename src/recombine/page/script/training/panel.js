/** The training panel: its controls, the worker that trains, and the drawing of its progress. */

import { decoded } from "../bytes.js";
import { nearestPoint, positionsOf } from "../grid.js";
import { atNextFrame, drawChart, drawImage, onAppearance } from "../pictures.js";
import { workerOf } from "../workers.js";
import { examplesOf, gridRows } from "./examples.js";
import { Run, described, drawHits, percent } from "./runs.js";

const CALM = 2000; // milliseconds between reports if reduced motion is preferred
const SPOKEN = 4000; // milliseconds between announcements to screen readers
const LARGEST_SEED = 999999;
const AXES = ["x", "y"];

/** @param {string} id @returns {any} */
function part(id) {
  return document.getElementById(`training-${id}`);
}

class TrainingPanel {
  /** @type {Worker | null} */
  #worker = null;
  #number = 0;
  #spoken = 0;
  #failed = false;
  draw = atNextFrame(() => this.#draw());

  constructor() {
    /** @type {PanelData} */
    this.data = JSON.parse(part("data").textContent);
    this.settings = this.data.settings;
    this.running = false;
    /** The current run; `latest` has the latest run of either kind. @type {Run | null} */
    this.run = null;
    /** @type {{with: Run | null, without: Run | null}} */
    this.latest = { with: null, without: null };
    this.calm = window.matchMedia("(prefers-reduced-motion: reduce)");
    const inside = gridRows(this.settings).filter((_, point) => this.settings.held[point] === "1");
    this.point = inside.length ? this.#pointAt(inside[Math.floor(inside.length / 2)]) : 0;
    this.#controls();
    this.#choose(this.point);
  }

  /** @param {number[]} positions */
  #pointAt(positions) {
    return nearestPoint(this.settings.factors, positions);
  }

  #controls() {
    part("run").addEventListener("click", () => this.toggle());
    part("reset").addEventListener("click", () => this.reset());
    part("isolated").addEventListener("change", () => this.#again());
    part("seed").addEventListener("change", () => {
      const seed = Math.round(Number(part("seed").value));
      part("seed").value = String(Math.max(0, Math.min(LARGEST_SEED, seed || 0)));
      this.#again();
    });
    for (const name of AXES) {
      part(name).addEventListener("input", () => this.#choose(this.#pointAt(AXES.map((axis) => +part(axis).value))));
    }
    const pick = (/** @type {PointerEvent} */ event) => {
      const { size } = this.settings;
      const box = part("map").getBoundingClientRect();
      const [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
      this.#choose(this.#pointAt([size * x - 0.5, size * y - 0.5]));
    };
    part("map").addEventListener("pointerdown", pick);
    part("map").addEventListener("pointermove", (/** @type {PointerEvent} */ event) => event.buttons && pick(event));
    this.calm.addEventListener("change", () => this.#send({ pause: this.#pause }));
    onAppearance(this.draw);
  }

  get #pause() {
    return this.calm.matches ? CALM : 0;
  }

  /** @param {object} order */
  #send(order) {
    this.#worker?.postMessage(order);
  }

  #start() {
    this.#worker = workerOf(part("worker").textContent, this.data.policy);
    this.#worker.addEventListener("message", (event) => this.#hear(event.data));
    this.#worker.addEventListener("error", (event) => {
      event.preventDefault();
      this.#fail();
    });
  }

  #fail() {
    this.running = false;
    this.#failed = true;
    this.#update(true);
  }

  /** Starts a new run with the current settings of the controls. */
  #begin() {
    this.run = new Run(Number(part("seed").value), part("isolated").checked);
    this.latest[this.run.isolated ? "with" : "without"] = this.run;
    this.#number += 1;
    try {
      if (!this.#worker) this.#start();
    } catch {
      this.#fail();
      return;
    }
    const { seed, isolated } = this.run;
    const begin = { settings: this.settings, code: decoded(this.data.kernel), seed, isolated, number: this.#number };
    this.#send({ begin, run: this.running, point: this.point, pause: this.#pause });
  }

  /** Starts, pauses or continues training; starts a new run if the current one has finished. */
  toggle() {
    this.running = !this.running;
    if (!this.run || this.run.done) this.#begin();
    else this.#send({ run: this.running });
    this.#update(true);
  }

  reset() {
    this.running = false;
    this.#send({ run: false });
    if (this.run) this.latest[this.run.isolated ? "with" : "without"] = null;
    this.run = null;
    this.#number += 1;
    this.#update(true);
  }

  /** Restarts a run in progress after a change in data or seed. */
  #again() {
    if (this.running) this.#begin();
    else {
      this.run = null;
      this.#number += 1;
    }
    this.#update(true);
  }

  /** @param {number} point */
  #choose(point) {
    this.point = point;
    positionsOf(this.settings.factors, point).forEach((position, k) => {
      part(AXES[k]).value = String(position);
      part(`${AXES[k]}-value`).textContent = String(position);
    });
    const held = this.settings.held[point] === "1";
    part("where").textContent = `This combination is ${held ? "held out" : "trained on"}.`;
    if (this.run) this.#send({ point });
    this.draw();
  }

  /** @param {Progress} progress */
  #hear(progress) {
    if (progress.number !== this.#number || !this.run) return;
    this.run.add(progress);
    if (this.run.done) this.running = false;
    this.#update(this.run.done);
  }

  get words() {
    if (this.#failed) return "This browser does not let the page train in the background.";
    return described(this.run, this.running, this.data);
  }

  /** Shows the state, and announces it unless the last announcement is recent. @param {boolean} atOnce */
  #update(atOnce) {
    const begun = this.run?.latest && this.run.latest.step > 0 && !this.run.done;
    part("run").textContent = this.running ? "Pause" : begun ? "Continue" : this.run?.done ? "Train again" : "Start";
    this.draw();
    const now = performance.now();
    if (!atOnce && now - this.#spoken < SPOKEN) return;
    this.#spoken = now;
    part("spoken").textContent = this.words;
  }

  #draw() {
    const { size, background, recipe, factors } = this.settings;
    const latest = this.run?.latest ?? null;
    part("now").textContent = this.words;
    part("progress").value = latest?.step ?? 0;
    drawHits(part("map"), this.settings, latest?.hits ?? null, this.point);
    const share = latest && `${percent(latest.heldOut)} of held-out ${this.data.drawn}s in place`;
    part("map").setAttribute("aria-label", `Map of all combinations: ${share ?? "nothing trained yet"}`);
    const [x, y] = positionsOf(factors, this.point);
    const truth = examplesOf(this.settings, [[x, y]]).images;
    const blank = new Float32Array(size * size).fill(background);
    const output = latest && latest.point === this.point ? latest.output : blank;
    for (const [name, image] of /** @type {[string, Float32Array][]} */ ([["output", output], ["truth", truth]])) {
      drawImage(part(name), image, [1, size, size], 0, 1);
      part(name).setAttribute("aria-label", `${name} at x ${x}, y ${y}`);
    }
    this.#drawCurves(recipe.steps);
    this.#fillTable();
  }

  /** @param {number} end steps */
  #drawCurves(end) {
    const runs = [this.latest.without, this.latest.with].filter((run) => run !== null);
    const curves = (/** @type {"accuracies" | "losses"} */ name) => runs.map((run) => ({
      points: run[name], colour: run.isolated ? "--with" : "--without",
      ...(run === this.run ? { width: 2.5 } : { width: 1.5, dashes: [6, 4] }),
    }));
    const { drawn, isolated, filled } = this.data;
    const words = /** @type {[string, string]} */ (["0", String(end)]);
    drawChart(part("accuracy"), { end, words, low: 0, high: 1, ticks: [[0, "0 %"], [0.5, "50 %"], [1, "100 %"]] }, [
      { points: [[0, filled], [end, filled]], colour: "--soft", width: 1, dashes: [4, 4] }, ...curves("accuracies"),
    ]);
    drawChart(part("loss"), {
      end, words, low: 1e-5, high: 0.1, logarithmic: true, ticks: [[1e-5, "10⁻⁵"], [1e-3, "10⁻³"], [1e-1, "10⁻¹"]],
    }, curves("losses"));
    const shares = runs.map((run) => `${run.isolated ? "with" : "without"} ${isolated} `
      + `${run.latest ? percent(run.latest.heldOut) : "nothing yet"}`).join(", ") || "nothing yet";
    part("accuracy").setAttribute("aria-label", `Held-out ${drawn}s in place by step: ${shares}`);
    const loss = this.run?.losses[this.run.losses.length - 1];
    const last = loss ? loss[1].toExponential(1) : "nothing yet";
    part("loss").setAttribute("aria-label", `Training loss by step: ${last}`);
  }

  #fillTable() {
    for (const kind of /** @type {("with" | "without")[]} */ (["with", "without"])) {
      const run = this.latest[kind];
      const latest = run?.latest;
      const texts = run && latest ? [percent(latest.heldOut), percent(latest.kept), String(latest.step),
        latest.seconds.toFixed(1), String(run.seed)] : ["–", "–", "–", "–", "–"];
      part(kind).querySelectorAll("td").forEach((/** @type {HTMLElement} */ cell, /** @type {number} */ k) => {
        cell.textContent = texts[k];
      });
    }
  }
}

Object.assign(window, { training: new TrainingPanel() });
