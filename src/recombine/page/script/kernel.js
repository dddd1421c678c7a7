/**
 * The compiled matrix product and the memory that it shares with the script.
 *
 * The right-hand matrix is packed into panels of eight columns. A panel stores the eight numbers of each row side by
 * side, so that memory is read in order. Columns beyond the last are ignored. Addresses and strides are in floats.
 */

export const PANEL = 8;
const PAGE = 65536; // bytes per page of WebAssembly memory

/** @param {number} count */
function rounded(count) {
  return Math.max(PANEL, Math.ceil(count / PANEL) * PANEL);
}

/** An allocator. Addresses are multiples of eight floats. */
export class Arena {
  /** Free ranges [start, end) in increasing order. @type {[number, number][]} */
  free = [];
  /** End of the memory used so far. */
  top = 8;

  /** @param {number} count of floats @returns {number} the address of the first */
  take(count) {
    const size = rounded(count);
    const k = this.free.findIndex(([start, end]) => end - start >= size);
    if (k < 0) return this.keep(size);
    const [start, end] = this.free[k];
    if (end - start === size) this.free.splice(k, 1);
    else this.free[k] = [start + size, end];
    return start;
  }

  /** Reserves memory that is never reused, for values that must outlive a run. @param {number} count */
  keep(count) {
    const start = this.top;
    this.top += rounded(count);
    return start;
  }

  /** @param {number} start @param {number} count the same as in `take` */
  give(start, count) {
    const end = start + rounded(count);
    let k = this.free.findIndex((other) => other[0] > start);
    if (k < 0) k = this.free.length;
    this.free.splice(k, 0, [start, end]);
    for (const at of [k, k - 1]) {
      if (at < 0 || at + 1 >= this.free.length) continue;
      const [one, next] = [this.free[at], this.free[at + 1]];
      if (one[1] === next[0]) this.free.splice(at, 2, [one[0], next[1]]);
    }
  }
}

export class Kernel {
  /** @param {BufferSource} code of `matmul.wasm` @param {number} numbers floats of memory, initially 0 */
  constructor(code, numbers) {
    const memory = new WebAssembly.Memory({ initial: Math.ceil((numbers * 4) / PAGE) });
    const instance = new WebAssembly.Instance(new WebAssembly.Module(code), { page: { memory } });
    this.heap = new Float32Array(memory.buffer);
    this.compiled = /** @type {any} */ (instance.exports);
  }

  /**
   * Packs a row-major matrix, row by row; reads up to seven floats beyond it.
   * @param {number} from @param {number} to @param {number} depth @param {number} columns
   */
  pack(from, to, depth, columns) {
    const panels = Math.ceil(columns / PANEL);
    for (let k = 0; k < depth; k += 1) {
      this.compiled.spread(4 * (from + k * columns), 4 * (to + k * PANEL), panels, 4 * depth * PANEL);
    }
  }

  /**
   * Computes the softmax of rows of numbers times a scale; reads up to three floats beyond them.
   * @param {number} from @param {number} to may be the same @param {number} rows @param {number} n
   * @param {number} scale
   */
  softmax(from, to, rows, n, scale) {
    this.compiled.softmax(4 * from, 4 * to, rows, n, scale);
  }

  /**
   * The larger of each number and 0; writes up to three numbers more, for which an arena leaves room.
   * @param {number} from @param {number} to @param {number} count
   */
  relu(from, to, count) {
    this.compiled.relu(4 * from, 4 * to, count);
  }

  /**
   * Computes C += A B for a contiguous C and a packed B. Any incomplete last panel is computed in `scratch`, which has
   * eight floats per row. @param {number} a @param {number} b @param {number} c @param {number} rows
   * @param {number} depth @param {number} columns @param {number} scratch
   */
  addProduct(a, b, c, rows, depth, columns, scratch) {
    const { heap, compiled: { matmul } } = this;
    const whole = Math.floor(columns / PANEL);
    const rest = columns - whole * PANEL;
    matmul(4 * a, 4 * b, 4 * c, rows, depth, whole, 4 * depth, 4 * columns);
    if (!rest) return;
    heap.fill(0, scratch, scratch + rows * PANEL);
    matmul(4 * a, 4 * (b + whole * depth * PANEL), 4 * scratch, rows, depth, 1, 4 * depth, 4 * PANEL);
    for (let i = 0; i < rows; i += 1) {
      for (let j = 0; j < rest; j += 1) heap[c + i * columns + whole * PANEL + j] += heap[scratch + i * PANEL + j];
    }
  }
}

/** Number of floats in a packed matrix. @param {number} depth @param {number} columns */
export function packedSize(depth, columns) {
  return Math.ceil(columns / PANEL) * depth * PANEL;
}
