/** Random numbers from a seed: one stream for each use, so that no use changes the numbers of another. */

/**
 * A stream of numbers in [0, 1), by the generator sfc32.
 * @param {number} seed
 * @param {string} name
 * @returns {() => number}
 */
export function stream(seed, name) {
  let [a, b, c, count] = [hashed(`${seed}/${name}`, 1), hashed(`${seed}/${name}`, 2), hashed(name, 3), 1];
  const next = () => {
    const sum = (((a + b) | 0) + count) | 0;
    count = (count + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + sum) | 0;
    return (sum >>> 0) / 2 ** 32;
  };
  for (let k = 0; k < 12; k += 1) next();
  return next;
}

/**
 * 32 bits that depend on every letter (FNV-1a, and a last mix).
 * @param {string} text
 * @param {number} salt
 */
function hashed(text, salt) {
  let bits = 2166136261 ^ salt;
  for (let k = 0; k < text.length; k += 1) bits = Math.imul(bits ^ text.charCodeAt(k), 16777619);
  bits = Math.imul(bits ^ (bits >>> 16), 0x7feb352d);
  return bits ^ (bits >>> 15);
}

/**
 * The numbers 0 … count − 1 in random order.
 * @param {number} count
 * @param {() => number} random
 * @returns {Int32Array}
 */
export function permutation(count, random) {
  const order = Int32Array.from({ length: count }, (_, k) => k);
  for (let k = count - 1; k > 0; k -= 1) {
    const other = Math.floor(random() * (k + 1));
    [order[k], order[other]] = [order[other], order[k]];
  }
  return order;
}
