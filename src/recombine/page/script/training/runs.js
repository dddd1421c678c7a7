/** What is known of a training: its curves, and how far it is. */

/** @typedef {import("./types.js").Progress} Progress */

const SMOOTHED = 8; // steps whose losses become one point of the curve

export class Run {
  /**
   * @param {number} seed
   * @param {boolean} stripes
   */
  constructor(seed, stripes) {
    this.seed = seed;
    this.stripes = stripes;
    /** Step and share of held-out bumps in place. @type {[number, number][]} */
    this.accuracies = [];
    /** Step and mean loss of the steps before it. @type {[number, number][]} */
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

/**
 * How far a training is, in words.
 * @param {Run | null} run
 * @param {boolean} running
 * @param {{filled: number, failed: number}} bounds shares in place at which the box has filled, and has failed
 */
export function described(run, running, { filled, failed }) {
  const latest = run?.latest;
  if (!run || !latest) return running ? "Starting." : "Not started.";
  const [share, kept] = [percent(latest.heldOut), percent(latest.kept)];
  const rest = `of held-out bumps in place, ${kept} of those trained on; ${latest.seconds.toFixed(1)} s`;
  if (!run.done) return `Step ${latest.step} of ${latest.total}: ${share} ${rest}${running ? "" : ", paused"}.`;
  const outcome = latest.heldOut >= filled ? "filled" : latest.heldOut <= failed ? "failed" : "filled in part";
  return `${run.stripes ? "With" : "Without"} stripes the box ${outcome}: ${share} ${rest}.`;
}
