// The last convolution and its gradients; output pixel o depends on inputs o + k - 1.
#include <cstring>
#include <vector>

#include "layers.h"
#include "vector.h"

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
                const Vector whole = sum[0] + sum[1] + sum[2];
                float total = 0;
                for (int lane = 0; lane < LANES; ++lane) total += whole[lane];
                *y++ = bias + total;
            }
}

void readout_gradients(const Shape& shape, const float* x, const float* w, const float* z, float* below, float* weights,
                       float* sums, long images) {
    const long pitch = shape.pitch(), channels = shape.channels, width = shape.width;
    thread_local std::vector<float> framed;  // an image with a border of zeros
    for (long image = 0; image < images; ++image, x += shape.image(), below += shape.image()) {
        framed.assign((shape.height + 2) * (width + 2), 0.0f);
        for (long y = 0; y < shape.height; ++y, z += width)
            std::memcpy(framed.data() + (y + 1) * (width + 2) + 1, z, width * sizeof(float));
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
                    Vector slope{};
                    UNROLL for (int ky = 0; ky < 3; ++ky)
                        UNROLL for (int kx = 0; kx < 3; ++kx) {
                            const float one = near[-ky * (width + 2) - kx];
                            slope += one * tap[ky * 3 + kx];
                            gradient[ky * 3 + kx] += one * here;
                        }
                    slope = here <= Vector{} ? Vector{} : slope;
                    total += slope;
                    store(below + at, slope);
                }
                UNROLL for (int k = 0; k < 9; ++k) store(weights + k * channels + c, gradient[k]);
                store(sums + c, total);
            }
    }
}
