/**
 * Attention as one operation: the product of queries and keys, its scaling, softmax, and the product with the values.
 *
 * Scores of a few rows at a time stay in the processor's cache; those of all rows are ten megabytes for 784 tokens and
 * four heads, and would be written and read six times.
 */

import { PANEL, packedSize } from "./kernel.js";

const BLOCK = 2 ** 15; // floats of the scores computed at a time

/**
 * Returns the operations with every attention in place of its parts, unless one of these is used elsewhere.
 * @param {ProgramData} data @returns {Operation[]}
 */
export function withAttention({ operations, stages, output, shapes }) {
  /** @type {Map<number, Operation[]>} */
  const users = new Map();
  for (const o of operations) for (const number of o.inputs) users.set(number, [...(users.get(number) ?? []), o]);
  const kept = new Set([output, ...stages.map((stage) => stage.value)]);
  /**
   * The only operation that uses a value, behind views, as its first input.
   * @param {number} value @returns {Operation | null}
   */
  const next = (value) => {
    const [own, ...others] = users.get(value) ?? [];
    if (!own || others.length || kept.has(value) || own.inputs.indexOf(value) > 0) return null;
    return own.name === "view" ? next(own.output) : own;
  };
  const isProduct = (/** @type {Operation | null} */ o) => o?.name === "matmul" && o.inputs.length === 2;
  /** @type {Map<Operation, Operation[]>} */
  const instead = new Map();
  for (const scores of operations.filter(isProduct)) {
    const then = next(scores.output);
    const scaled = then?.name === "map" && then.f === "scale" && then.b === 0 ? then : scores;
    const softmax = next(scaled.output);
    if (softmax?.name !== "softmax" || softmax.log) continue;
    const last = next(softmax.output);
    if (!last || !isProduct(last)) continue;
    const [weights, [, rows, columns]] = [shapes[last.inputs[0]], shapes[scores.output]];
    if (weights[1] !== rows || weights[2] !== columns || shapes[softmax.inputs[0]].at(-1) !== columns) continue;
    for (const own of [scores, scaled, softmax]) instead.set(own, []);
    const a = scaled === scores ? 1 : scaled.a;
    instead.set(last, [{ ...last, name: "attention", inputs: [...scores.inputs, last.inputs[1]], a }]);
  }
  return operations.flatMap((o) => instead.get(o) ?? [o]);
}

/** Floats of working memory: keys, values, and scores with the scratch of their product. @param {number[][]} shapes */
export function attentionSizes([[, rows, depth], [, , columns], [, , features]]) {
  const some = blockRows(rows, columns);
  return [packedSize(depth, columns), packedSize(columns, features), some * columns, PANEL * some];
}

/** @param {number} rows @param {number} columns */
function blockRows(rows, columns) {
  return Math.min(rows, Math.max(4, 4 * Math.floor(BLOCK / columns / 4)));
}

/**
 * Computes attention at addresses in the kernel's memory. @param {Kernel} kernel @param {Step} step
 * @param {number[]} working addresses
 */
export function attend(kernel, { o, shapes, from, to }, [keys, values, scores, scratch]) {
  const [[many, rows, depth], [others, , columns], [last, , features]] = shapes;
  const some = blockRows(rows, columns);
  for (let k = 0; k < Math.max(many, others, last); k += 1) {
    const place = (/** @type {number} */ count) => (count > 1 ? k : 0);
    kernel.pack(from[1] + place(others) * depth * columns, keys, depth, columns);
    kernel.pack(from[2] + place(last) * columns * features, values, columns, features);
    for (let row = 0; row < rows; row += some) {
      const count = Math.min(some, rows - row);
      const query = from[0] + (place(many) * rows + row) * depth;
      const out = to + (k * rows + row) * features;
      kernel.heap.fill(0, scores, scores + count * columns);
      kernel.heap.fill(0, out, out + count * features);
      kernel.addProduct(query, keys, scores, count, depth, columns, scratch);
      kernel.softmax(scores, scores, count, columns, o.a);
      kernel.addProduct(scores, values, out, count, columns, features, scratch);
    }
  }
}
