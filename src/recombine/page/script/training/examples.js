/** Examples of a task whose images are products of one profile per factor. */

import { CODES, gridSize, positionsOf } from "../grid.js";

/** Examples, one per row. @typedef {{count: number, codes: Float32Array, images: Float32Array}} Table */

/**
 * Returns codes and images for rows of positions. A null position means that the factor is absent: its code is all
 * zeros, and the image ignores it. @param {Settings} settings @param {(number | null)[][]} rows @returns {Table}
 */
export function examplesOf({ factors, codes: kinds, profiles, convolutions, size, background }, rows) {
  const [{ inputs }] = convolutions;
  const codes = new Float32Array(rows.length * inputs);
  const images = new Float32Array(rows.length * size * size);
  rows.forEach((row, e) => {
    let start = e * inputs;
    const [across, down] = row.map((position, k) => {
      const code = CODES[kinds[k].kind](position ?? 0, factors[k], kinds[k]);
      if (position !== null) codes.set(code, start);
      start += code.length;
      return position === null ? new Array(size).fill(1) : profiles[k][position];
    });
    for (let y = 0; y < size; y += 1) {
      for (let x = 0; x < size; x += 1) {
        images[(e * size + y) * size + x] = background + (1 - 2 * background) * across[x] * down[y];
      }
    }
  });
  return { count: rows.length, codes, images };
}

/** Returns the positions of all grid points, in order. @param {Settings} settings @returns {number[][]} */
export function gridRows({ factors }) {
  return Array.from({ length: gridSize(factors) }, (_, point) => positionsOf(factors, point));
}

/**
 * Returns the training set: if `isolated`, each factor value alone, then every combination that is not held out.
 * @param {Settings} settings @param {boolean} isolated
 */
export function trainingRows(settings, isolated) {
  const values = Array.from({ length: settings.size }, (_, k) => k);
  const alone = isolated ? [...values.map((x) => [x, null]), ...values.map((y) => [null, y])] : [];
  return [...alone, ...gridRows(settings).filter((_, point) => settings.held[point] === "0")];
}
