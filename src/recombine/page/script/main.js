/** The explorer page: its controls, state and scheduling of drawing tasks. */

import { Answer } from "./answer.js";
import { initialState, parsed, written } from "./address.js";
import { decoded, inflated } from "./bytes.js";
import { Decoder } from "./decoder.js";
import { clamped, onPlane, shortened, valueText, pathThrough } from "./grid.js";
import { explain } from "./explained.js";
import { Plane } from "./plane.js";
import { atNextFrame, element, onAppearance } from "./pictures.js";
import { Runner } from "./runner.js";
import { Side } from "./side.js";
import { Background } from "./survey.js";
import { Switches } from "./switches.js";
import { Tour } from "./tour.js";
import { workerOf } from "./workers.js";

const PACE = 7; // grid steps per second along the path
const SURVEYED = 30; // milliseconds of a survey between two answers of a worker
const LATE = 50; // milliseconds between checks of whether outputs are those of the current point
const QUIET = 350; // milliseconds without a change before the address and the announcement are updated

/** @param {string} id @returns {any} */
function byId(id) {
  return document.getElementById(id);
}

class Explorer {
  #request = atNextFrame((time) => this.#frame(time));
  #changed = true;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #later;
  /** Distance along the path, in grid steps; null while it is not playing. @type {number | null} */
  #gone = null;
  #clock = 0;
  #touched = 0; // time of the last change
  #held = false; // whether a pointer is pressed
  #kept = false; // whether the browser's history already has an entry for the current state
  #seen = ""; // the address from which the state was last taken, or to which it was written
  #viewsChanged = true;

  /** @param {Uint8Array} bytes to which the page's data refer */
  constructor(bytes) {
    /** @type {PageData} */
    this.data = JSON.parse(byId("data").textContent);
    const kernel = /** @type {BufferSource} */ (decoded(byId("kernel").textContent.trim()));
    this.decoders = this.data.models.map((model) => new Decoder(model, this.data.factors, bytes, kernel));
    /** One for each column. @type {Runner[]} */
    this.runners = [];
    this.runner = (/** @type {number} */ side) => (this.runners[side] ??= new Runner(
      () => workerOf(byId("worker").textContent, byId("worker").dataset.policy), this.data, bytes, kernel));
    this.state = parsed(location.hash, initialState(this.data), this.data);
    this.calm = window.matchMedia("(prefers-reduced-motion: reduce)");
    const move = (/** @type {number} */ across, /** @type {number} */ down) => {
      this.stop();
      this.set({ at: onPlane(this.state.at, this.state.plane, across, down) });
    };
    this.plane = new Plane(byId("plane"), move, (across, down) => {
      move(this.state.at[this.state.plane[0]] + across, this.state.at[this.state.plane[1]] + down);
    });
    this.background = new Background(
      () => this.#gone === null && performance.now() - this.#touched > QUIET,
      () => this.#unfinished(),
      () => this.#refreshViews(),
    );
    /** @type {HTMLInputElement[]} */
    this.sliders = [];
    /** @type {Side[]} */
    this.sides = [];
    this.#controls();
    this.#rebuild();
    window.addEventListener("hashchange", () => this.#arrive());
    window.addEventListener("pointerdown", () => (this.#held = true), true);
    for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, () => this.#release(), true);
    window.addEventListener("message", (event) => { // from the notebook widget around the page
      const address = event.data?.address;
      if (event.source !== window.parent || event.source === window || typeof address !== "string") return;
      this.set(parsed(address, this.state, this.data));
    });
    onAppearance(() => this.refresh());
    this.#arrive();
  }

  /** Takes the state from the address, after a link, Back or Forward; all but links restore the scroll position. */
  #arrive() {
    this.stop();
    this.#seen = location.hash;
    this.set(parsed(this.#seen, this.state, this.data));
    this.#kept = true;
    const { section } = this.state;
    if (section && history.state === null) document.getElementById(section)?.scrollIntoView();
  }

  /** Writes the address at the end of a drag, so that Back undoes all of it. */
  #release() {
    this.#held = false;
    if (this.#later === undefined || this.#gone !== null) return;
    clearTimeout(this.#later);
    this.#later = setTimeout(() => this.#settle());
  }

  /** Sets up the controls. */
  #controls() {
    byId("title").textContent = this.data.title;
    const anyHeld = this.decoders.some((decoder) => decoder.hasHoldout);
    byId("lead").hidden = !anyHeld;
    byId("held-key").hidden = !anyHeld;
    const anyErrors = this.decoders.some((decoder) => decoder.errors);
    byId("error-key").hidden = !anyErrors;
    byId("held-key").classList.toggle("framed", anyErrors);
    if (anyErrors) byId("lead").textContent = byId("lead").textContent.replace("Shaded", "Framed");
    byId("memory-key").hidden = !this.data.models.some((model) => model.trained);
    this.pathName = anyHeld ? "a path through the hold-out" : "a path";
    if (this.data.factors.length === 1) byId("plane").style.aspectRatio = "4 / 1";
    this.#label();
    const names = this.data.models.map((model) => model.name);
    this.#options(byId("decoder"), names);
    this.#options(byId("beside"), ["nothing", ...names]);
    const labels = this.data.labels ?? [];
    if (labels.length) this.switches = new Switches(byId("switches"), this.data, labels, (change) => this.set(change));
    byId("models").hidden = names.length < 2 || labels.length > 0;
    this.answer = new Answer(byId("answer"), this.decoders, labels, (side, number) =>
      this.set(side ? { beside: number } : { decoder: number }));
    for (const id of ["across", "down"]) this.#options(byId(id), this.data.factors.map((factor) => factor.name));
    byId("axes").hidden = this.data.factors.length < 3;
    const choose = (/** @type {string} */ id, /** @type {(number: number) => Partial<State>} */ change) =>
      byId(id).addEventListener("change", () => this.set(change(byId(id).selectedIndex)));
    choose("decoder", (decoder) => ({ decoder }));
    choose("beside", (number) => ({ beside: number - 1 }));
    choose("stage", (stage) => ({ stage }));
    byId("unit").addEventListener("change", () => {
      const unit = byId("unit").valueAsNumber;
      this.set({ unit: Number.isInteger(unit) && unit >= 0 ? unit : -1 });
    });
    // choosing the factor of the other axis swaps the two
    choose("across", (k) => ({ plane: [k, this.state.plane[k === this.state.plane[1] ? 0 : 1]] }));
    choose("down", (k) => ({ plane: [this.state.plane[k === this.state.plane[0] ? 1 : 0], k] }));
    byId("snap").addEventListener("change", () => this.set({ snap: byId("snap").checked }));
    byId("play").addEventListener("click", () => this.play());
    this.tour = new Tour(byId("tour"), byId("tour-start"), this.data, this.decoders, (change) => this.set(change));
    byId("copy").hidden = window.parent !== window; // the address of a frame leads nowhere
    byId("copy").addEventListener("click", () => this.#copy());
    this.calm.addEventListener("change", () => this.stop());
    this.#sliderRows();
  }

  #sliderRows() {
    for (const [k, factor] of this.data.factors.entries()) {
      const row = element("div", "slider");
      const slider = document.createElement("input");
      Object.assign(slider, { type: "range", min: "0", max: String(factor.count - 1), id: `factor${k}` });
      const label = /** @type {HTMLLabelElement} */ (element("label", "", factor.name));
      label.htmlFor = slider.id;
      label.title = factor.name;
      slider.addEventListener("input", () => {
        const at = this.state.at.slice();
        at[k] = Number(slider.value);
        this.stop();
        this.set({ at });
      });
      row.append(label, slider, element("output"));
      byId("sliders").append(row);
      this.sliders.push(slider);
    }
  }

  /** @param {HTMLSelectElement} select @param {string[]} names */
  #options(select, names) {
    select.replaceChildren(...names.map((name) => element("option", "", shortened(name, 80))));
  }

  /** Creates the columns for the selected decoders unless they already exist. */
  #rebuild() {
    const shown = [this.state.decoder, ...(this.state.beside >= 0 ? [this.state.beside] : [])];
    const decoders = shown.map((number) => this.decoders[number]);
    if (decoders.length === this.sides.length && decoders.every((own, k) => this.sides[k].decoder === own)) return;
    for (const side of this.sides) {
      side.closed = true;
      side.views?.observer?.disconnect();
    }
    this.sides = decoders.map((decoder, k) => new Side(decoder, shown[k], this.runner(k), () => this.#request()));
    for (const { views } of this.sides) if (views) views.appeared = () => this.#refreshViews();
    byId("sides").replaceChildren(...this.sides.map((side) => side.root));
    for (const { root } of this.sides) explain(root);
    byId("sides").classList.toggle("two", this.sides.length > 1);
    const stages = this.sides[0].decoder.data.program?.stages ?? [];
    this.#options(byId("stage"), stages.map((stage) => stage.name));
    byId("stages").hidden = stages.length === 0;
  }

  /** Whether a factor may take values between grid points. @param {number} factor */
  #isSmooth(factor) {
    return !this.state.snap && this.sides.every((side) => side.decoder.data.smooth[factor]);
  }

  /** Changes the state and redraws. @param {Partial<State>} change */
  set(change) {
    Object.assign(this.state, change);
    this.#touched = performance.now();
    this.#kept = false;
    this.#rebuild();
    this.state.at = this.state.at.map((position, k) => {
      const inside = clamped(this.data.factors[k], position);
      return this.#isSmooth(k) ? inside : Math.round(inside);
    });
    this.#show();
    this.refresh();
    clearTimeout(this.#later);
    this.#later = setTimeout(() => (this.#held ? null : this.#settle()), QUIET);
  }

  /** Names the canvases by what is drawn on them. @param {string} point */
  #name(point) {
    const [across, down] = this.state.plane.map((k) => this.data.factors[k].name.slice(0, 60));
    const axes = across === down ? `Line of ${across}` : `Plane of ${across} (across) and ${down} (down)`;
    byId("plane").setAttribute("aria-label", `${axes}, with the point at ${point}. Arrow keys move the point, with ` +
      "Shift by five; Home and End go to the corners.");
    for (const { root, decoder } of this.sides) {
      for (const canvas of root.querySelectorAll("figure canvas")) {
        const caption = canvas.parentElement?.querySelector("figcaption")?.textContent ?? "";
        canvas.setAttribute("aria-label", `${caption}, of ${decoder.data.name.slice(0, 60)} at ${point}`);
      }
    }
  }

  /** Copies a link to what the explorer shows. */
  async #copy() {
    const link = `${location.href.split("#")[0]}#${written({ ...this.state, section: "" })}`;
    let words = "Link copied";
    try {
      await navigator.clipboard.writeText(link);
    } catch {
      words = "Copy it from the address bar";
    }
    byId("copy").textContent = words;
    byId("spoken").textContent = words;
    setTimeout(() => (byId("copy").textContent = "Copy link"), 2000);
  }

  /** Updates the controls. */
  #show() {
    const { state } = this;
    byId("decoder").selectedIndex = state.decoder;
    byId("beside").selectedIndex = state.beside + 1;
    this.switches?.show(state);
    this.tour?.show(state);
    byId("across").selectedIndex = state.plane[0];
    byId("down").selectedIndex = state.plane[1];
    byId("stage").selectedIndex = Math.min(state.stage, byId("stage").options.length - 1);
    if (document.activeElement !== byId("unit")) byId("unit").value = state.unit < 0 ? "" : String(state.unit);
    byId("snap").checked = state.snap;
    byId("snap").disabled = !this.sides.some((side) => side.decoder.data.smooth.some(Boolean));
    for (const [k, slider] of this.sliders.entries()) {
      const text = valueText(this.data.factors[k], state.at[k]);
      slider.step = this.#isSmooth(k) ? "0.05" : "1";
      slider.value = String(state.at[k]);
      slider.setAttribute("aria-valuetext", text);
      /** @type {HTMLElement} */ (slider.nextElementSibling).textContent = text;
    }
  }

  /** Updates the address and the announcement, once nothing has changed for a while and no pointer is pressed. */
  #settle() {
    const address = `#${written(this.state)}`;
    const framed = window.parent !== window;
    if (framed) window.parent.postMessage({ address }, "*");
    else if (location.hash !== this.#seen) return; // Back, Forward or a link, whose event is still to come
    try {
      if (framed || this.#kept) history.replaceState({}, "", address);
      else if (address !== location.hash) history.pushState({}, "", address);
    } catch {
      // A frame in a notebook is not allowed to change its address.
    }
    this.#seen = location.hash;
    this.#kept = false;
    this.#announce();
  }

  /** Updates the announcement and the names of the canvases, as soon as they show the current point. */
  #announce() {
    if (this.sides.some((side) => side.isLate)) {
      this.#later = setTimeout(() => this.#announce(), LATE);
      return;
    }
    this.#later = undefined;
    const { factors } = this.data;
    const point = factors.map((factor, k) => `${factor.name.slice(0, 60)} ${valueText(factor, this.state.at[k])}`);
    this.#name(point.join(", "));
    const errors = this.sides.map((side) => `${side.decoder.data.name.slice(0, 60)}: ${side.numbers.textContent}`);
    byId("spoken").textContent = [point.join(", "), ...(this.answer?.text ?? []), ...errors].join(". ");
  }

  /** Redraws at the next frame. */
  refresh() {
    this.#changed = true;
    this.#request();
  }

  /** Redraws the views of the plane at the next frame, and computes missing points in the background. */
  #refreshViews() {
    this.#viewsChanged = true;
    this.#request();
    this.background.wake();
  }

  /** Returns the first visible survey that is incomplete, as work for its worker. */
  #unfinished() {
    for (const { views, runner, number: decoder } of this.sides) {
      const survey = views?.visible ? views.survey(this.state) : null;
      if (!survey || survey.done) continue;
      const { value, at, plane } = survey;
      const budget = runner.hasWorker ? SURVEYED : 0;
      const step = async () => survey.take(await runner.ask({ kind: "survey", decoder, value, at, plane, budget }));
      return { get done() { return survey.done; }, step };
    }
    return null;
  }

  /** @param {number} time */
  #frame(time) {
    if (this.#gone !== null && !this.calm.matches) this.#advance((Math.min(time - this.#clock, 100) / 1000) * PACE);
    this.#clock = time;
    const moving = this.#changed;
    this.#changed = false;
    if (moving) for (const side of this.sides) side.follow(this.state.at, this.state.stage);
    if (moving || this.#viewsChanged) {
      this.#viewsChanged = false;
      for (const { views } of this.sides) if (views?.visible) views.draw(this.state);
      this.background.wake();
    }
    this.answer?.show(this.sides);
    const { state: { at, plane }, sides: [{ decoder, nearest }] } = this;
    this.plane.draw({ decoder, at, plane, memories: nearest, path: this.#gone === null ? null : this.#path() });
    if (this.#gone !== null) this.#request();
  }

  #path() {
    const { decoder } = this.sides[0];
    return pathThrough(this.data.factors, this.state.at, this.state.plane, (at) => decoder.isHeldOut(at));
  }

  /** Starts or stops playing the path; with reduced motion, takes one step. */
  play() {
    if (this.calm.matches) {
      this.#gone ??= 0;
      this.#advance(1);
    } else if (this.#gone !== null) {
      this.stop();
    } else {
      this.#gone = 0;
      this.#clock = performance.now();
    }
    this.#label();
    this.#request();
  }

  stop() {
    this.#gone = null;
    this.#label();
  }

  #label() {
    const words = this.#gone === null ? `Play ${this.pathName}` : "Stop";
    byId("play").textContent = this.calm.matches ? `Next step of ${this.pathName}` : words;
    byId("play").setAttribute("aria-pressed", String(this.#gone !== null && !this.calm.matches));
  }

  /** Moves along the path. @param {number} steps */
  #advance(steps) {
    if (this.#gone === null) return;
    const path = this.#path();
    const lengths = path.slice(1).map(([x, y], k) => Math.max(Math.abs(x - path[k][0]), Math.abs(y - path[k][1])));
    const whole = lengths.reduce((sum, length) => sum + length, 0) || 1;
    this.#gone = (this.#gone + steps) % whole;
    let [rest, leg] = [this.#gone, 0];
    while (leg < lengths.length - 1 && rest > lengths[leg]) rest -= lengths[leg++];
    const share = lengths[leg] ? rest / lengths[leg] : 0;
    const [from, to] = [path[leg], path[leg + 1]];
    const [x, y] = [0, 1].map((axis) => from[axis] + (to[axis] - from[axis]) * share);
    this.set({ at: onPlane(this.state.at, this.state.plane, x, y) });
  }
}

const numbers = await inflated(decoded(byId("numbers").textContent.trim()));
Object.assign(window, { explorer: new Explorer(numbers) });
if (window.parent !== window) window.parent.postMessage({ ready: true }, "*"); // to the notebook widget
