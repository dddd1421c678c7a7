/** The progress of one training run in words and pictures. */

import { outline, penOf, twice } from "../pictures.js";

const SMOOTHED = 8; // number of steps whose losses are averaged into one point of the curve

export class Run {
  /** @param {number} seed @param {boolean} isolated whether isolated-factor examples are included */
  constructor(seed, isolated) {
    this.seed = seed;
    this.isolated = isolated;
    /** Step and accuracy on held-out combinations. @type {[number, number][]} */
    this.accuracies = [];
    /** Step and mean loss over the preceding steps. @type {[number, number][]} */
    this.losses = [];
    /** @type {number[]} */
    this.recent = [];
    /** @type {Progress | null} */
    this.latest = null;
  }

  get done() {
    return this.latest !== null && this.latest.step >= this.latest.total;
  }

  /** @param {Progress} progress */
  add(progress) {
    const before = progress.step - progress.losses.length;
    progress.losses.forEach((loss, k) => {
      this.recent.push(loss);
      if (this.recent.length < SMOOTHED) return;
      this.losses.push([before + k + 1, this.recent.reduce((sum, own) => sum + own, 0) / SMOOTHED]);
      this.recent = [];
    });
    const last = this.accuracies[this.accuracies.length - 1];
    if (!last || last[0] < progress.step) this.accuracies.push([progress.step, progress.heldOut]);
    this.latest = progress;
  }
}

/** @param {number} share */
export function percent(share) {
  return `${Math.round(100 * share)} %`;
}

/** Describes a run's progress in words. @param {Run | null} run @param {boolean} running @param {PanelData} data */
export function described(run, running, { drawn, isolated, filled, failed }) {
  const latest = run?.latest;
  if (!run || !latest) return running ? "Starting." : "Not started.";
  const [share, kept] = [percent(latest.heldOut), percent(latest.kept)];
  const rest = `of held-out ${drawn}s in place, ${kept} of those trained on; ${latest.seconds.toFixed(1)} s`;
  if (!run.done) return `Step ${latest.step} of ${latest.total}: ${share} ${rest}${running ? "" : ", paused"}.`;
  const outcome = latest.heldOut >= filled ? "filled" : latest.heldOut <= failed ? "failed to fill" : "partly filled";
  return `${run.isolated ? "With" : "Without"} ${isolated}, the decoder ${outcome} the hold-out: ${share} ${rest}.`;
}

/**
 * Draws a map of the grid points whose output is in place; held-out points are framed, and the chosen point is marked.
 * @param {Canvas} canvas @param {Settings} settings @param {Uint8Array | null} hits 0 or 1 @param {number} chosen
 */
export function drawHits(canvas, { size, held }, hits, chosen) {
  const { pen, wide, colour } = penOf(canvas);
  const edge = (/** @type {number} */ k) => Math.round((k * wide) / size);
  const colours = [colour("--miss"), colour("--hit"), colour("--unknown")];
  const gap = wide / size > 6 ? 1 : 0;
  for (let point = 0; point < size * size; point += 1) {
    const [x, y] = [Math.floor(point / size), point % size];
    pen.fillStyle = colours[hits ? hits[point] : 2];
    pen.fillRect(edge(x), edge(y), edge(x + 1) - edge(x) - gap, edge(y + 1) - edge(y) - gap);
  }
  outline(pen, size, size, wide / size, wide / size, (x, y) => held[x * size + y] === "1");
  twice(pen, colour("--paper"), colour("--ink"), 2);
  const center = [Math.floor(chosen / size), chosen % size].map((k) => (edge(k) + edge(k + 1) - gap) / 2);
  pen.beginPath();
  pen.arc(center[0], center[1], Math.max(5, wide / size / 1.6), 0, 2 * Math.PI);
  twice(pen, colour("--paper"), colour("--ink"), 2.5);
}
