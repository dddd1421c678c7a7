/** Convolutions as matrix products. */

import { PANEL, packedSize } from "./kernel.js";

/**
 * Sizes of a transposed convolution, whose input and output have `from` and `to` rows and columns. A convolution is its
 * transpose, from `to` to `from`. Channels are counted per group. A batch is stored channel by channel.
 * @typedef {{batch: number, groups: number, inputs: number, outputs: number, from: number[], to: number[],
 *   kernel: number[], stride: number[], padding: number[], dilation: number[]}} Sizes
 */

/** Rows (taps of every channel) and columns (pixels of every image) of the product. @param {Sizes} s */
function productSize({ outputs, kernel, batch, from }) {
  return [outputs * kernel[0] * kernel[1], batch * from[0] * from[1]];
}

/**
 * Returns the working memory of a convolution in floats: for the packed matrix, and for the product with its scratch.
 * @param {Sizes} s @param {boolean} transposed
 */
export function workingSizes(s, transposed) {
  const [rows, pixels] = productSize(s);
  return [packedSize(transposed ? s.inputs : rows, pixels), rows * pixels + PANEL * Math.max(rows, s.inputs)];
}

/**
 * Adds the convolution of one group to an output that contains the bias, given the addresses of the image, weights,
 * output and working memory.
 * @typedef {(kernel: Kernel, image: number, weight: number, output: number, packed: number, products: number,
 *   s: Sizes) => void} Convolve
 */

/** A convolution, with patches of pixels as the columns of a matrix. @type {Convolve} */
export const convolve = (kernel, image, weight, output, packed, patches, s) => {
  const [rows, pixels] = productSize(s);
  kernel.heap.fill(0, patches, patches + rows * pixels); // the padding, which shiftRows skips
  shiftRows(kernel, patches, image, s, true);
  kernel.pack(patches, packed, rows, pixels);
  kernel.addProduct(weight, packed, output, s.inputs, rows, pixels, patches + rows * pixels);
};

/**
 * Reorders a transposed convolution's weights, (channel in, channel out, y, x), as required by its product:
 * (group, channel out × tap, channel in). @param {Float32Array} weight @param {Sizes} s
 */
export function turned(weight, s) {
  const rows = s.outputs * s.kernel[0] * s.kernel[1];
  const result = new Float32Array(weight.length);
  for (let g = 0; g < s.groups; g += 1) {
    for (let i = 0; i < s.inputs; i += 1) {
      const from = (g * s.inputs + i) * rows;
      for (let r = 0; r < rows; r += 1) result[(g * rows + r) * s.inputs + i] = weight[from + r];
    }
  }
  return result;
}

/**
 * A transposed convolution, with `turned` weights: one product computes every tap of every pixel, and its rows are
 * shifted and summed.
 * @type {Convolve}
 */
export const convolveTransposed = (kernel, image, weight, output, packed, products, s) => {
  const [rows, pixels] = productSize(s);
  kernel.pack(image, packed, s.inputs, pixels);
  kernel.heap.fill(0, products, products + rows * pixels);
  kernel.addProduct(weight, packed, products, rows, s.inputs, pixels, products + rows * pixels);
  shiftRows(kernel, products, output, s, false);
};

/**
 * Adds the rows of a transposed convolution's product to its output, each shifted by its tap; or, if `back`, gathers
 * the product's gradient from that of the output, leaving entries outside the output unchanged.
 * @param {Kernel} kernel @param {number} products @param {number} output @param {Sizes} s @param {boolean} back
 */
export function shiftRows(kernel, products, output, s, back) {
  const { batch, outputs, kernel: [tall, wide], stride, padding, dilation, from, to } = s;
  const { shift } = kernel.compiled;
  const taps = tall * wide;
  const within = (/** @type {number} */ offset, /** @type {0 | 1} */ axis) => {
    const first = Math.max(0, Math.ceil(-offset / stride[axis]));
    return { first, count: Math.min(from[axis], Math.ceil((to[axis] - offset) / stride[axis])) - first };
  };
  for (let r = 0; r < outputs * taps; r += 1) {
    const down = Math.floor((r % taps) / wide) * dilation[0] - padding[0];
    const across = (r % wide) * dilation[1] - padding[1];
    const [y, x] = [within(down, 0), within(across, 1)];
    if (x.count <= 0 || y.count <= 0) continue;
    if (from[0] * from[1] === 1) { // images of one pixel can be shifted all at once
      const far = output + (Math.floor(r / taps) * batch * to[0] + down) * to[1] + across;
      shift(4 * (products + r * batch), 4 * far, batch, 4 * to[0] * to[1], 1, 0, 0, back);
      continue;
    }
    for (let image = 0; image < batch; image += 1) {
      const near = products + ((r * batch + image) * from[0] + y.first) * from[1] + x.first;
      const row = (Math.floor(r / taps) * batch + image) * to[0] + y.first * stride[0] + down;
      const far = output + row * to[1] + x.first * stride[1] + across;
      shift(4 * near, 4 * far, x.count, 4 * stride[1], y.count, 4 * from[1], 4 * stride[0] * to[1], back);
    }
  }
}
