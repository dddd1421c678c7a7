/** Examples of the bump task: codes and images of combinations, and of single factors (stripes). */

/** @typedef {import("../types.js").Settings} Settings */

/** A table of examples, row by row. @typedef {{count: number, codes: Float32Array, images: Float32Array}} Table */

/**
 * A Gaussian over the whole numbers below `size`.
 * @param {number} size
 * @param {number} center
 * @param {number} variance
 */
function gaussian(size, center, variance) {
  return Array.from({ length: size }, (_, k) => Math.exp(-((k - center) ** 2) / (2 * variance)));
}

/**
 * Codes and images of rows of factor values (x, y); a factor that is absent is null: its code is all zeros, and the
 * image does not depend on it.
 * @param {Settings} settings
 * @param {(number | null)[][]} rows
 * @returns {Table}
 */
export function examplesOf(settings, rows) {
  const { size, sigma, background, variance } = settings;
  const codes = new Float32Array(rows.length * 2 * size);
  const images = new Float32Array(rows.length * size * size);
  rows.forEach((row, e) => {
    const profiles = row.map((center, factor) => {
      if (center === null) return new Array(size).fill(1);
      codes.set(gaussian(size, center, variance), (2 * e + factor) * size);
      return gaussian(size, center, sigma ** 2);
    });
    for (let y = 0; y < size; y += 1) {
      for (let x = 0; x < size; x += 1) {
        const bump = profiles[0][x] * profiles[1][y];
        images[(e * size + y) * size + x] = background ? 1 - bump : bump;
      }
    }
  });
  return { count: rows.length, codes, images };
}

/** The values of every grid point in order: x changes last. @param {number} size @returns {number[][]} */
export function gridRows(size) {
  return Array.from({ length: size * size }, (_, point) => [Math.floor(point / size), point % size]);
}

/**
 * What is trained on: all stripes if asked for, and every combination that is not held out.
 * @param {Settings} settings
 * @param {boolean} stripes
 * @returns {(number | null)[][]}
 */
export function trainingRows(settings, stripes) {
  const values = Array.from({ length: settings.size }, (_, k) => k);
  const alone = stripes ? [...values.map((x) => [x, null]), ...values.map((y) => [null, y])] : [];
  return [...alone, ...gridRows(settings.size).filter((_, point) => settings.held[point] === "0")];
}
