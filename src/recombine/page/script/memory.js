/** Where values lie: one stretch of memory for all, which the compiled product of matrices sees too. */

const PAGE = 65536;

/** Hands out places in a memory of float32 numbers, and takes them back. Places are multiples of 8 numbers. */
export class Arena {
  /** Places that are free, as [start, end), in order. @type {[number, number][]} */
  free = [];
  /** Numbers in use or once used. */
  top = 8;

  /**
   * @param {number} count how many numbers
   * @returns {number} the place of the first
   */
  take(count) {
    const size = Math.max(8, Math.ceil(count / 8) * 8);
    for (let k = 0; k < this.free.length; k += 1) {
      const [start, end] = this.free[k];
      if (end - start >= size) {
        if (end - start === size) this.free.splice(k, 1);
        else this.free[k] = [start + size, end];
        return start;
      }
    }
    return this.keep(size);
  }

  /**
   * A place that nobody had before, for numbers that stay from one run to the next.
   * @param {number} count
   */
  keep(count) {
    const start = this.top;
    this.top += Math.max(8, Math.ceil(count / 8) * 8);
    return start;
  }

  /**
   * @param {number} start
   * @param {number} count as it was taken
   */
  give(start, count) {
    const end = start + Math.max(8, Math.ceil(count / 8) * 8);
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

/**
 * @param {number} numbers
 * @returns {WebAssembly.Memory | {buffer: ArrayBuffer}} so many float32 numbers, all 0
 */
export function memoryFor(numbers) {
  const bytes = Math.ceil((numbers * 4) / PAGE) * PAGE;
  if (typeof WebAssembly === "object") return new WebAssembly.Memory({ initial: bytes / PAGE });
  return { buffer: new ArrayBuffer(bytes) };
}

/**
 * @param {string} text base64
 * @returns {Uint8Array}
 */
export function decoded(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let k = 0; k < letters.length; k += 1) bytes[k] = letters.charCodeAt(k);
  return bytes;
}

/**
 * @param {Uint8Array} bytes of float16 numbers, lowest byte first
 * @returns {Float32Array}
 */
export function fromHalf(bytes) {
  const numbers = new Float32Array(bytes.length / 2);
  for (let k = 0; k < numbers.length; k += 1) {
    const bits = bytes[2 * k] | (bytes[2 * k + 1] << 8);
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    let size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    if (exponent === 31) size = fraction ? NaN : Infinity;
    numbers[k] = bits & 32768 ? -size : size;
  }
  return numbers;
}

/**
 * @param {Uint8Array} bytes as zlib writes them
 * @returns {Promise<Uint8Array>}
 */
export async function inflated(bytes) {
  const stream = new Blob([/** @type {BlobPart} */ (bytes)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
