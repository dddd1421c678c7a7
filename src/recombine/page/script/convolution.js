/** Convolutions as products of matrices, and the largest number of each window. */

import { PANEL, addProduct, packedSize } from "./matmul.js";

/** @typedef {import("./matmul.js").Kernel} Kernel */

/**
 * Sizes of a convolution of one image.
 * @typedef {{groups: number, inputs: number, outputs: number, height: number, width: number, rows: number,
 *   columns: number, kernel: [number, number], stride: number[], padding: number[], dilation: number[]}} Sizes
 */

/**
 * @param {any} operation
 * @param {number[]} image (1, channel, y, x)
 * @param {number[]} weight
 * @param {number[]} output
 * @returns {Sizes} with channels of one group
 */
export function sizesOf(operation, image, weight, output) {
  return {
    groups: operation.groups,
    inputs: image[1] / operation.groups,
    outputs: output[1] / operation.groups,
    height: image[2],
    width: image[3],
    rows: output[2],
    columns: output[3],
    kernel: [weight[2], weight[3]],
    stride: operation.stride,
    padding: operation.padding,
    dilation: operation.dilation,
  };
}

/**
 * Whether patches of the image lie side by side in the padded image, so that they need not be gathered one by one.
 * @param {Sizes} s
 */
function isDense(s) {
  return s.stride[0] === 1 && s.stride[1] === 1;
}

/**
 * Rows and columns of the padded image.
 * @param {Sizes} s
 */
function paddedSize(s) {
  return [s.height + 2 * s.padding[0], s.width + 2 * s.padding[1]];
}

/**
 * Numbers of working memory that a convolution needs beside its input and output.
 * @param {Sizes} s
 * @param {boolean} transposed
 * @returns {[number, number]} for the packed input (or patches), and for all else
 */
export function workingSizes(s, transposed) {
  const taps = s.kernel[0] * s.kernel[1];
  if (transposed) {
    const products = s.outputs * taps;
    return [packedSize(s.inputs, s.height * s.width), products * (s.height * s.width + PANEL)];
  }
  if (!isDense(s)) return [packedSize(s.inputs * taps, s.rows * s.columns), s.outputs * PANEL];
  const [tall, wide] = paddedSize(s);
  const spare = s.kernel[1] * s.dilation[1] + PANEL;
  return [
    packedSize(s.inputs * taps, s.rows * wide),
    s.inputs * tall * wide + spare + s.outputs * (s.rows * wide + PANEL),
  ];
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
 * One patch of the image for each number of the output, packed.
 * @param {Float32Array} heap
 * @param {number} image
 * @param {number} to
 * @param {Sizes} s
 */
function patches(heap, image, to, s) {
  const [tall, wide] = s.kernel;
  const depth = s.inputs * tall * wide;
  const leap = depth * PANEL - PANEL;
  let k = 0;
  for (let channel = 0; channel < s.inputs; channel += 1) {
    const plane = image + channel * s.height * s.width;
    for (let ky = 0; ky < tall; ky += 1) {
      for (let kx = 0; kx < wide; kx += 1, k += 1) {
        let target = to + k * PANEL;
        let column = 0;
        for (let y = 0; y < s.rows; y += 1) {
          const row = y * s.stride[0] - s.padding[0] + ky * s.dilation[0];
          const inside = row >= 0 && row < s.height;
          const source = plane + row * s.width;
          let x = kx * s.dilation[1] - s.padding[1];
          for (let n = 0; n < s.columns; n += 1, x += s.stride[1]) {
            heap[target] = inside && x >= 0 && x < s.width ? heap[source + x] : 0;
            target += 1;
            column += 1;
            if (column === PANEL) {
              column = 0;
              target += leap;
            }
          }
        }
        for (; column > 0 && column < PANEL; column += 1, target += 1) heap[target] = 0;
      }
    }
  }
}

/**
 * Adds the convolution to an output that holds the bias.
 * @param {Kernel} kernel
 * @param {Float32Array} heap
 * @param {number} image
 * @param {number} weight
 * @param {number} output
 * @param {number} packed
 * @param {number} scratch
 * @param {Sizes} s
 */
export function convolve(kernel, heap, image, weight, output, packed, scratch, s) {
  const depth = s.inputs * s.kernel[0] * s.kernel[1];
  const pixels = s.rows * s.columns;
  for (let g = 0; g < s.groups; g += 1) {
    const from = image + g * s.inputs * s.height * s.width;
    const own = weight + g * s.outputs * depth;
    const to = output + g * s.outputs * pixels;
    if (isDense(s)) denseConvolve(kernel, heap, from, own, to, packed, scratch, s);
    else {
      patches(heap, from, packed, s);
      addProduct(kernel, heap, own, packed, to, s.outputs, depth, pixels, scratch);
    }
  }
}

/**
 * A convolution of stride 1, computed for every place of the padded rows: the patches of one tap are one long run.
 * @param {Kernel} kernel
 * @param {Float32Array} heap
 * @param {number} image
 * @param {number} weight
 * @param {number} output
 * @param {number} packed
 * @param {number} scratch
 * @param {Sizes} s
 */
function denseConvolve(kernel, heap, image, weight, output, packed, scratch, s) {
  const [tall, wide] = paddedSize(s);
  const [top, left] = s.padding;
  const end = scratch + s.inputs * tall * wide + s.kernel[1] * s.dilation[1] + PANEL;
  heap.fill(0, scratch, end);
  for (let channel = 0; channel < s.inputs; channel += 1) {
    for (let y = 0; y < s.height; y += 1) {
      const from = image + (channel * s.height + y) * s.width;
      heap.copyWithin(scratch + (channel * tall + y + top) * wide + left, from, from + s.width);
    }
  }
  const depth = s.inputs * s.kernel[0] * s.kernel[1];
  const places = s.rows * wide;
  const panels = Math.ceil(places / PANEL);
  let k = 0;
  for (let channel = 0; channel < s.inputs; channel += 1) {
    for (let ky = 0; ky < s.kernel[0]; ky += 1) {
      for (let kx = 0; kx < s.kernel[1]; kx += 1, k += 1) {
        const from = scratch + (channel * tall + ky * s.dilation[0]) * wide + kx * s.dilation[1];
        kernel.spread(from, packed + k * PANEL, panels, depth * PANEL);
      }
    }
  }
  const row = panels * PANEL;
  heap.fill(0, end, end + s.outputs * row);
  kernel.multiply(weight, packed, end, s.outputs, depth, panels, depth, row);
  for (let channel = 0; channel < s.outputs; channel += 1) {
    for (let y = 0; y < s.rows; y += 1) {
      const from = end + channel * row + y * wide;
      const to = output + (channel * s.rows + y) * s.columns;
      for (let x = 0; x < s.columns; x += 1) heap[to + x] += heap[from + x];
    }
  }
}

/**
 * Adds the transposed convolution to an output that holds the bias.
 * @param {Kernel} kernel
 * @param {Float32Array} heap
 * @param {number} image packed already, one group after another
 * @param {number} weight turned
 * @param {number} output
 * @param {number} products
 * @param {Sizes} s
 */
export function convolveTransposed(kernel, heap, image, weight, output, products, s) {
  const taps = s.kernel[0] * s.kernel[1];
  const pixels = s.height * s.width;
  const rows = s.outputs * taps;
  for (let g = 0; g < s.groups; g += 1) {
    heap.fill(0, products, products + rows * pixels);
    const packed = image + g * packedSize(s.inputs, pixels);
    addProduct(kernel, heap, weight + g * rows * s.inputs, packed, products, rows, s.inputs, pixels,
      products + rows * pixels);
    for (let r = 0; r < rows; r += 1) {
      const channel = Math.floor(r / taps);
      const [ky, kx] = [Math.floor((r % taps) / s.kernel[1]), r % s.kernel[1]];
      const plane = output + (g * s.outputs + channel) * s.rows * s.columns;
      for (let y = 0; y < s.height; y += 1) {
        const row = y * s.stride[0] - s.padding[0] + ky * s.dilation[0];
        if (row < 0 || row >= s.rows) continue;
        const source = products + r * pixels + y * s.width;
        const target = plane + row * s.columns;
        const shift = kx * s.dilation[1] - s.padding[1];
        const first = Math.max(0, Math.ceil(-shift / s.stride[1]));
        const last = Math.min(s.width, Math.ceil((s.columns - shift) / s.stride[1]));
        let x = target + shift + first * s.stride[1];
        for (let n = first; n < last; n += 1, x += s.stride[1]) heap[x] += heap[source + n];
      }
    }
  }
}

/**
 * The largest number of each window.
 * @param {Float32Array} heap
 * @param {number} image
 * @param {number} output
 * @param {number[]} size (1, channel, y, x) of the image
 * @param {number[]} result of the output
 * @param {any} operation
 */
export function largest(heap, image, output, size, result, operation) {
  const [height, width] = size.slice(-2);
  const [rows, columns] = result.slice(-2);
  const planes = result.slice(0, -2).reduce((product, count) => product * count, 1);
  const { kernel, stride, padding, dilation } = operation;
  for (let plane = 0, to = output; plane < planes; plane += 1) {
    for (let y = 0; y < rows; y += 1) {
      for (let x = 0; x < columns; x += 1, to += 1) {
        let most = -Infinity;
        for (let ky = 0; ky < kernel[0]; ky += 1) {
          const row = y * stride[0] - padding[0] + ky * dilation[0];
          if (row < 0 || row >= height) continue;
          for (let kx = 0; kx < kernel[1]; kx += 1) {
            const column = x * stride[1] - padding[1] + kx * dilation[1];
            if (column < 0 || column >= width) continue;
            most = Math.max(most, heap[image + (plane * height + row) * width + column]);
          }
        }
        heap[to] = most;
      }
    }
  }
}
