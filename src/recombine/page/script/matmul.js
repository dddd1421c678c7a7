/**
 * Products of matrices. The right factor is packed in panels of eight columns: panel p holds, for k = 0, 1, …, the
 * eight numbers of row k side by side; what stands beyond the last column does not matter.
 */

export const PANEL = 8;

/**
 * Two loops over numbers of the heap; places and strides count numbers. `multiply` adds the product of A and the panels
 * of B to C. `spread` copies a row into panels that lie `leap` apart; it may read up to 7 numbers beyond the row.
 * @typedef {{
 *   multiply: (a: number, b: number, c: number, rows: number, depth: number, panels: number, lda: number,
 *     ldc: number) => void,
 *   spread: (from: number, to: number, panels: number, leap: number) => void,
 * }} Kernel
 */

/**
 * @param {BufferSource | null} code the compiled kernel, if there is one
 * @param {WebAssembly.Memory | {buffer: ArrayBuffer}} memory
 * @returns {Kernel}
 */
export function kernelFor(code, memory) {
  if (code && typeof WebAssembly === "object" && memory instanceof WebAssembly.Memory) {
    try {
      const instance = new WebAssembly.Instance(new WebAssembly.Module(code), { page: { memory } });
      const { matmul, spread } = /** @type {any} */ (instance.exports);
      return {
        multiply: (a, b, c, rows, depth, panels, lda, ldc) =>
          matmul(4 * a, 4 * b, 4 * c, rows, depth, panels, 4 * lda, 4 * ldc),
        spread: (from, to, panels, leap) => spread(4 * from, 4 * to, panels, 4 * leap),
      };
    } catch {
      // A browser without vector instructions: the plain one below is slower, and right.
    }
  }
  return plainKernel(new Float32Array(memory.buffer));
}

/**
 * @param {Float32Array} heap
 * @returns {Kernel}
 */
function plainKernel(heap) {
  return {
    multiply(a, b, c, rows, depth, panels, lda, ldc) {
      for (let p = 0; p < panels; p += 1) {
        for (let i = 0; i < rows; i += 1) {
          const out = c + i * ldc + p * PANEL;
          for (let j = 0; j < PANEL; j += 1) {
            let sum = heap[out + j];
            for (let k = 0; k < depth; k += 1) sum += heap[a + i * lda + k] * heap[b + (p * depth + k) * PANEL + j];
            heap[out + j] = sum;
          }
        }
      }
    },
    spread(from, to, panels, leap) {
      for (let p = 0; p < panels; p += 1) heap.copyWithin(to + p * leap, from + p * PANEL, from + (p + 1) * PANEL);
    },
  };
}

/**
 * Numbers of a packed matrix.
 * @param {number} depth
 * @param {number} columns
 */
export function packedSize(depth, columns) {
  return Math.ceil(columns / PANEL) * depth * PANEL;
}

/**
 * Packs a row-major matrix.
 * @param {Kernel} kernel
 * @param {number} from
 * @param {number} to
 * @param {number} depth
 * @param {number} columns
 */
export function pack(kernel, from, to, depth, columns) {
  const panels = Math.ceil(columns / PANEL);
  for (let k = 0; k < depth; k += 1) kernel.spread(from + k * columns, to + k * PANEL, panels, depth * PANEL);
}

/**
 * C += A B, for a C whose rows end where the next begins.
 * @param {Kernel} kernel
 * @param {Float32Array} heap
 * @param {number} a
 * @param {number} b packed
 * @param {number} c
 * @param {number} rows
 * @param {number} depth
 * @param {number} columns
 * @param {number} scratch eight numbers for each row
 */
export function addProduct(kernel, heap, a, b, c, rows, depth, columns, scratch) {
  const whole = Math.floor(columns / PANEL);
  const rest = columns - whole * PANEL;
  kernel.multiply(a, b, c, rows, depth, whole, depth, columns);
  if (!rest) return;
  heap.fill(0, scratch, scratch + rows * PANEL);
  kernel.multiply(a, b + whole * depth * PANEL, scratch, rows, depth, 1, depth, PANEL);
  for (let i = 0; i < rows; i += 1) {
    for (let j = 0; j < rest; j += 1) heap[c + i * columns + whole * PANEL + j] += heap[scratch + i * PANEL + j];
  }
}
