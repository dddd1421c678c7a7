// The last convolution (kernel 3, padding 1, to one channel) and its gradients. Images as in convolution.cpp; what is
// drawn has no channels and no border. Image place o sees input o + k - 1. Weights are (place, channel).
#include <cstring>
#include <vector>

#include "vector.h"

namespace {

float total_of(Vector v) {
    float sum = 0;
    for (int lane = 0; lane < LANES; ++lane) sum += v[lane];
    return sum;
}

// A drawn image with a border of zeros.
void bordered(const float* z, std::vector<float>& into, long height, long width) {
    into.assign((height + 2) * (width + 2), 0.0f);
    for (long y = 0; y < height; ++y)
        std::memcpy(into.data() + (y + 1) * (width + 2) + 1, z + y * width, width * sizeof(float));
}

}  // namespace

extern "C" {

void recombine_draw(const float* x, const float* w, const float* bias, float* y, long height, long width, long channels,
                    long first, long last) {
    const long pitch = (width + 2) * channels;
    for (long image = first; image < last; ++image)
        for (long row = 0; row < height; ++row)
            for (long column = 0; column < width; ++column) {
                const float* at = x + (image * (height + 2) + row) * pitch + column * channels;
                Vector sum[3] = {};
                for (long ky = 0; ky < 3; ++ky)
                    for (long c = 0; c < channels; c += LANES)
#pragma GCC unroll 3
                        for (long kx = 0; kx < 3; ++kx)
                            sum[kx] += load(at + ky * pitch + kx * channels + c) * load(w + (ky * 3 + kx) * channels + c);
                y[(image * height + row) * width + column] = *bias + total_of(sum[0] + sum[1] + sum[2]);
            }
}

// Gradients of input (before the ReLU below, whose answers are x) and of the weights (chunk, place, channel; cleared),
// and sums (chunk, channel; cleared) of the first.
void recombine_undraw(const float* x, const float* w, const float* z, float* below, float* weights, float* sums,
                      long height, long width, long channels, long chunk, long first, long last) {
    const long pitch = (width + 2) * channels, size = (height + 2) * pitch;
    std::vector<float> drawn;
    for (long image = first; image < last; ++image) {
        bordered(z + image * height * width, drawn, height, width);
        const float* from = x + image * size;
        float* to = below + image * size;
        float *own = weights + image / chunk * 9 * channels, *sum = sums + image / chunk * channels;
        std::memset(to, 0, size * sizeof(float));
        for (long row = 0; row < height; ++row)
            for (long c = 0; c < channels; c += LANES) {
                Vector place[9], gradient[9], total = load(sum + c);
#pragma GCC unroll 9
                for (int k = 0; k < 9; ++k) {
                    place[k] = load(w + k * channels + c);
                    gradient[k] = load(own + k * channels + c);
                }
                for (long column = 0; column < width; ++column) {
                    const long at = (row + 1) * pitch + (column + 1) * channels + c;
                    const float* near = drawn.data() + (row + 2) * (width + 2) + column + 2;
                    const Vector here = load(from + at);
                    Vector found = zero();
#pragma GCC unroll 3
                    for (int ky = 0; ky < 3; ++ky)
#pragma GCC unroll 3
                        for (int kx = 0; kx < 3; ++kx) {
                            const float one = near[-ky * (width + 2) - kx];
                            found += one * place[ky * 3 + kx];
                            gradient[ky * 3 + kx] += one * here;
                        }
                    found = here > zero() ? found : zero();
                    total += found;
                    store(to + at, found);
                }
#pragma GCC unroll 9
                for (int k = 0; k < 9; ++k) store(own + k * channels + c, gradient[k]);
                store(sum + c, total);
            }
    }
}
}
