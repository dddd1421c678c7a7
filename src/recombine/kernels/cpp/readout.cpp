// The last convolution and its gradients; output pixel o depends on inputs o + k - 1.
#include <cstring>
#include <vector>

#include "layers.h"
#include "vector.h"

namespace {

float total_of(Vector v) {
    float sum = 0;
    for (int lane = 0; lane < LANES; ++lane) sum += v[lane];
    return sum;
}

// A single-channel image with a border of zeros.
void bordered(const float* z, std::vector<float>& into, long height, long width) {
    into.assign((height + 2) * (width + 2), 0.0f);
    for (long y = 0; y < height; ++y)
        std::memcpy(into.data() + (y + 1) * (width + 2) + 1, z + y * width, width * sizeof(float));
}

}  // namespace

void readout(const Shape& shape, const float* x, const float* w, float bias, float* y, long images) {
    const long pitch = shape.pitch(), channels = shape.channels;
    for (long image = 0; image < images; ++image, x += shape.image())
        for (long row = 0; row < shape.height; ++row)
            for (long column = 0; column < shape.width; ++column) {
                const float* at = x + row * pitch + column * channels;
                Vector sum[3] = {};
                for (long ky = 0; ky < 3; ++ky)
                    for (long c = 0; c < channels; c += LANES)
                        UNROLL for (long kx = 0; kx < 3; ++kx)
                            sum[kx] +=
                                load(at + ky * pitch + kx * channels + c) * load(w + (ky * 3 + kx) * channels + c);
                *y++ = bias + total_of(sum[0] + sum[1] + sum[2]);
            }
}

void readout_gradients(const Shape& shape, const float* x, const float* w, const float* z, float* below, float* weights,
                       float* sums, long images) {
    const long pitch = shape.pitch(), channels = shape.channels, width = shape.width;
    thread_local std::vector<float> framed;
    for (long image = 0; image < images; ++image, x += shape.image(), below += shape.image()) {
        bordered(z + image * shape.height * width, framed, shape.height, width);
        clear_border(below, shape);
        for (long row = 0; row < shape.height; ++row)
            for (long c = 0; c < channels; c += LANES) {
                Vector tap[9], gradient[9], total = load(sums + c);
                UNROLL for (int k = 0; k < 9; ++k) {
                    tap[k] = load(w + k * channels + c);
                    gradient[k] = load(weights + k * channels + c);
                }
                for (long column = 0; column < width; ++column) {
                    const long at = (row + 1) * pitch + (column + 1) * channels + c;
                    const float* near = framed.data() + (row + 2) * (width + 2) + column + 2;
                    const Vector here = load(x + at);
                    Vector slope = zero();
                    UNROLL for (int ky = 0; ky < 3; ++ky)
                        UNROLL for (int kx = 0; kx < 3; ++kx) {
                            const float one = near[-ky * (width + 2) - kx];
                            slope += one * tap[ky * 3 + kx];
                            gradient[ky * 3 + kx] += one * here;
                        }
                    slope = here <= zero() ? zero() : slope;
                    total += slope;
                    store(below + at, slope);
                }
                UNROLL for (int k = 0; k < 9; ++k) store(weights + k * channels + c, gradient[k]);
                store(sums + c, total);
            }
    }
}
