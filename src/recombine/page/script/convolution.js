/** Convolutions as products of matrices. */

import { PANEL, packedSize } from "./kernel.js";

/** @typedef {import("./kernel.js").Kernel} Kernel */

/**
 * Sizes of a convolution; channels are those of one group, `from` and `to` rows and columns of input and output. Of a
 * `batch` of images, each channel has all.
 * @typedef {{batch: number, groups: number, inputs: number, outputs: number, from: number[], to: number[],
 *   kernel: number[], stride: number[], padding: number[], dilation: number[]}} Sizes
 */

/**
 * @param {any} operation
 * @param {number[]} image (1, channel, y, x)
 * @param {number[]} weight
 * @param {number[]} output
 * @returns {Sizes}
 */
export function sizesOf(operation, image, weight, output) {
  const { groups, stride, padding, dilation } = operation;
  return {
    batch: 1, groups, stride, padding, dilation, inputs: image[1] / groups, outputs: output[1] / groups,
    from: image.slice(2), to: output.slice(2), kernel: weight.slice(2),
  };
}

/**
 * Rows and columns of the padded image, and how many of its pixels, row after row, a convolution of stride 1 has.
 * @param {Sizes} s
 */
function padded({ from, padding, kernel, dilation }) {
  const [tall, wide] = from.map((count, axis) => count + 2 * padding[axis]);
  return { tall, wide, places: (tall - dilation[0] * (kernel[0] - 1)) * wide };
}

/**
 * Numbers of working memory that a convolution needs beside its input and output.
 * @param {Sizes} s
 * @param {boolean} transposed
 * @returns {[number, number]} for the packed input, and for all else
 */
export function workingSizes(s, transposed) {
  const taps = s.kernel[0] * s.kernel[1];
  if (transposed) {
    const pixels = s.batch * s.from[0] * s.from[1];
    return [packedSize(s.inputs, pixels), s.outputs * taps * (pixels + PANEL)];
  }
  const { tall, wide, places } = padded(s);
  const image = s.inputs * tall * wide + s.kernel[1] * s.dilation[1] + PANEL;
  return [packedSize(s.inputs * taps, places), image + s.outputs * (places + PANEL)];
}

/**
 * Adds the convolution of one group to an output that holds the bias. It is computed for every place of the padded
 * rows, so that the patches of one tap are one long run; strides leave most of it out.
 * @param {Kernel} kernel
 * @param {number} image
 * @param {number} weight
 * @param {number} output
 * @param {number} packed
 * @param {number} scratch
 * @param {Sizes} s
 */
export function convolve(kernel, image, weight, output, packed, scratch, s) {
  const { heap } = kernel;
  const [[height, width], [rows, columns]] = [s.from, s.to];
  const { tall, wide, places } = padded(s);
  const products = scratch + s.inputs * tall * wide + s.kernel[1] * s.dilation[1] + PANEL;
  heap.fill(0, scratch, products);
  for (let channel = 0; channel < s.inputs; channel += 1) {
    for (let y = 0; y < height; y += 1) {
      const from = image + (channel * height + y) * width;
      heap.copyWithin(scratch + (channel * tall + y + s.padding[0]) * wide + s.padding[1], from, from + width);
    }
  }
  const depth = s.inputs * s.kernel[0] * s.kernel[1];
  const panels = Math.ceil(places / PANEL);
  let k = 0;
  for (let channel = 0; channel < s.inputs; channel += 1) {
    for (let y = 0; y < s.kernel[0]; y += 1) {
      for (let x = 0; x < s.kernel[1]; x += 1, k += 1) {
        const from = scratch + (channel * tall + y * s.dilation[0]) * wide + x * s.dilation[1];
        kernel.spread(from, packed + k * PANEL, panels, depth * PANEL);
      }
    }
  }
  const row = panels * PANEL;
  heap.fill(0, products, products + s.outputs * row);
  kernel.multiply(weight, packed, products, s.outputs, depth, panels, row);
  for (let channel = 0; channel < s.outputs; channel += 1) {
    for (let y = 0; y < rows; y += 1) {
      const to = output + (channel * rows + y) * columns;
      let from = products + channel * row + y * s.stride[0] * wide;
      for (let x = 0; x < columns; x += 1, from += s.stride[1]) heap[to + x] += heap[from];
    }
  }
}

/**
 * A transposed convolution's weights as its product has them: (group, channel out × tap, channel in).
 * @param {Float32Array} weight (channel in, channel out of a group, y, x)
 * @param {Sizes} s
 * @returns {Float32Array}
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
 * Adds the transposed convolution of one group to an output that holds the bias: every tap of every pixel as one
 * product, and a sum of shifted rows.
 * @param {Kernel} kernel
 * @param {number} image
 * @param {number} weight turned
 * @param {number} output
 * @param {number} packed
 * @param {number} products
 * @param {Sizes} s
 */
export function convolveTransposed(kernel, image, weight, output, packed, products, s) {
  const { heap } = kernel;
  const pixels = s.batch * s.from[0] * s.from[1];
  const rows = s.outputs * s.kernel[0] * s.kernel[1];
  kernel.pack(image, packed, s.inputs, pixels);
  heap.fill(0, products, products + rows * pixels);
  kernel.addProduct(weight, packed, products, rows, s.inputs, pixels, products + rows * pixels);
  shiftRows(kernel, products, output, s, false);
}

/**
 * Adds rows of the product of a transposed convolution to its output, each shifted as its tap says; or, back, gathers
 * from the output's gradient that of the product, of which what no pixel reaches is left as it is.
 * @param {Kernel} kernel
 * @param {number} products
 * @param {number} output
 * @param {Sizes} s
 * @param {boolean} back
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
    if (from[0] * from[1] === 1) { // images of one pixel, all at once
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
