/** Numbers as the page holds them. */

/** @param {string} text base64 @returns {Uint8Array} */
export function decoded(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** @param {Uint8Array} bytes as zlib writes them @returns {Promise<Uint8Array>} */
export async function inflated(bytes) {
  const stream = new Blob([/** @type {BlobPart} */ (bytes)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {Uint8Array} bytes of float16 numbers, lowest byte first @returns {Float32Array} */
export function fromHalf(bytes) {
  const numbers = new Float32Array(bytes.length / 2);
  for (let k = 0; k < numbers.length; k += 1) {
    const bits = bytes[2 * k] | (bytes[2 * k + 1] << 8);
    const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
    const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    numbers[k] = bits & 32768 ? -size : size;
  }
  return numbers;
}

/**
 * @param {"float32" | "int16" | "int32"} type
 * @param {Uint8Array} bytes a copy
 * @param {number} [scale] what int16 numbers count
 * @returns {ArrayLike<number>}
 */
export function numbersOf(type, bytes, scale = 1) {
  if (type === "int16") return Float32Array.from(new Int16Array(bytes.buffer), (step) => step * scale);
  return type === "int32" ? new Int32Array(bytes.buffer) : new Float32Array(bytes.buffer);
}
