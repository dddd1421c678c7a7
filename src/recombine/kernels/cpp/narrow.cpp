// Convolutions with few channels (kernel 3, padding 1) and their gradients; images are (image, channel, y, x), without
// a border. Planes are copied into a buffer with a border of zeros, so that a tap is a constant offset and a plane is
// contiguous. Results in the border between rows are ignored.
#include <cstring>
#include <vector>

#include "vector.h"

namespace {

struct Planes {
    long height, width;
    long pitch() const { return width + 2; }
    long bordered() const { return (height + 2) * pitch() + LANES; }
    long run() const {  // length of a plane, rounded up to a multiple of the vector size
        return ((height - 1) * pitch() + width + LANES - 1) / LANES * LANES;
    }
};

// Copy planes with a border (edge 1) or without (edge 0), `step` floats apart, filling gaps with zeros.
void copy(const Planes& planes, const float* x, float* into, long channels, long edge, long step) {
    for (long channel = 0; channel < channels; ++channel, into += step) {
        std::memset(into, 0, step * sizeof(float));
        for (long row = 0; row < planes.height; ++row, x += planes.width)
            std::memcpy(into + (row + edge) * planes.pitch() + edge, x, planes.width * sizeof(float));
    }
}

// Convolve images, or with `back` their gradients, for which taps are read from the last to the first.
void convolve(const Planes& planes, const float* x, const float* w, const float* bias, float* y, long in, long out,
              bool back) {
    thread_local std::vector<float> sums;
    const long pitch = planes.pitch(), run = planes.run(), step = planes.bordered();
    sums.resize(run);
    for (long o = 0; o < out; ++o) {
        const Vector first = Vector{} + (bias ? bias[o] : 0.0f);
        for (long at = 0; at < run; at += LANES) store(sums.data() + at, first);
        for (long i = 0; i < in; ++i) {
            const float* k = back ? w + (i * out + o) * 9 + 8 : w + (o * in + i) * 9;
            const long turn = back ? -1 : 1;
            const float* plane = x + i * step;
            for (long at = 0; at < run; at += LANES) {
                Vector total = load(sums.data() + at);
                UNROLL for (long ky = 0; ky < 3; ++ky)
                    UNROLL for (long kx = 0; kx < 3; ++kx)
                        total += k[turn * (ky * 3 + kx)] * load(plane + at + ky * pitch + kx);
                store(sums.data() + at, total);
            }
        }
        for (long row = 0; row < planes.height; ++row, y += planes.width)
            std::memcpy(y, sums.data() + row * pitch, planes.width * sizeof(float));
    }
}

// Add to the weight gradients (out, in, 9) and bias sums (out).
void correlate(const Planes& planes, const float* x, const float* z, float* weights, float* sums, long in, long out) {
    const long pitch = planes.pitch(), run = planes.run(), step = planes.bordered();
    for (long o = 0; o < out; ++o, z += run) {
        Vector sum{};
        for (long at = 0; at < run; at += LANES) sum += load(z + at);
        for (int lane = 0; lane < LANES; ++lane) sums[o] += sum[lane];
        for (long i = 0; i < in; ++i, weights += 9) {
            Vector total[9] = {};
            for (long at = 0; at < run; at += LANES) {
                const Vector one = load(z + at);
                UNROLL for (long k = 0; k < 9; ++k) total[k] += one * load(x + i * step + at + k / 3 * pitch + k % 3);
            }
            for (long k = 0; k < 9; ++k)
                for (int lane = 0; lane < LANES; ++lane) weights[k] += total[k][lane];
        }
    }
}

}  // namespace

extern "C" void recombine_narrow(const float* x, const float* w, const float* bias, float* y, long in, long out,
                                 long height, long width, long first, long last, long) {
    const Planes planes{height, width};
    thread_local std::vector<float> framed;
    framed.resize(in * planes.bordered());
    for (long image = first; image < last; ++image) {
        copy(planes, x + image * in * height * width, framed.data(), in, 1, planes.bordered());
        convolve(planes, framed.data(), w, bias, y + image * out * height * width, in, out, false);
    }
}

// Write the gradient of x to `below`, unless it is null, and a chunk's sums for weights and biases to `sums`.
extern "C" void recombine_narrow_back(const float* x, const float* w, const float* z, float* below, float* sums,
                                      long in, long out, long height, long width, long first, long last,
                                      long chunk) {
    const Planes planes{height, width};
    thread_local std::vector<float> framed, slopes;
    framed.resize((in > out ? in : out) * planes.bordered());
    slopes.resize(out * planes.run());
    sums += chunk * (out * in * 9 + out);
    std::memset(sums, 0, (out * in * 9 + out) * sizeof(float));
    for (long image = first; image < last; ++image) {
        const float* own = z + image * out * height * width;
        copy(planes, x + image * in * height * width, framed.data(), in, 1, planes.bordered());
        copy(planes, own, slopes.data(), out, 0, planes.run());
        correlate(planes, framed.data(), slopes.data(), sums, sums + out * in * 9, in, out);
        if (below) {
            copy(planes, own, framed.data(), out, 1, planes.bordered());
            convolve(planes, framed.data(), w, nullptr, below + image * in * height * width, out, in, true);
        }
    }
}
