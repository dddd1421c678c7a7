/** Decoding of the page's binary data. */

/** @param {string} text base64 @returns {Uint8Array} */
export function decoded(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** @param {Uint8Array} bytes compressed by zlib @returns {Promise<Uint8Array>} */
export async function inflated(bytes) {
  const stream = new Blob([/** @type {BlobPart} */ (bytes)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Every float16 number, by its bits. */
const HALVES = new Float32Array(2 ** 16);

/** @param {Uint8Array} bytes little-endian float16 numbers @returns {Float32Array} */
export function fromHalf(bytes) {
  if (HALVES[1] === 0) {
    for (let bits = 0; bits < HALVES.length; bits += 1) {
      const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
      const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
      HALVES[bits] = bits & 32768 ? -size : size;
    }
  }
  const numbers = new Float32Array(bytes.length / 2);
  for (let k = 0; k < numbers.length; k += 1) numbers[k] = HALVES[bytes[2 * k] | (bytes[2 * k + 1] << 8)];
  return numbers;
}

/** Reads numbers as float32; int16 and uint8 are quantised. @param {Uint8Array} bytes @param {Numbers} which */
export function numbersOf(bytes, { type, start, length, scale = 1, low = 0, high = 0 }) {
  const own = bytes.slice(start, start + length);
  if (type === "float16") return fromHalf(own);
  if (type === "uint8") return Float32Array.from(own, (step) => low + step * ((high - low) / 255));
  if (type === "float32") return new Float32Array(own.buffer);
  const integers = type === "int16" ? new Int16Array(own.buffer) : new Int32Array(own.buffer);
  return Float32Array.from(integers, (step) => step * scale);
}
