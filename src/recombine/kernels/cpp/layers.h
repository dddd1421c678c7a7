// Layers of the decoder. Images are (image, y, x, channel) with a border of zeros one pixel wide; output gradients
// are those before the ReLU. Weights are (tap, in, out) forward and (tap, out, in) backward, where taps are those of the
// kernel or, with `Layer::winograd`, its 36 transformed positions. Sums are added to existing values.
#pragma once

#include <cstring>

struct Shape {
    long height, width, channels;
    long pitch() const { return (width + 2) * channels; }  // floats per row
    long image() const { return (height + 2) * pitch(); }
};

inline void clear_border(float* image, const Shape& s) {
    const auto clear = [](float* at, long count) { std::memset(at, 0, count * sizeof(float)); };
    clear(image, s.pitch());
    clear(image + (s.height + 1) * s.pitch(), s.pitch());
    for (long y = 1; y <= s.height; ++y) {
        clear(image + y * s.pitch(), s.channels);
        clear(image + y * s.pitch() + (s.width + 1) * s.channels, s.channels);
    }
}

// A transposed convolution that keeps the number of channels: kernel 3 at the same size, or kernel 4 at twice the size.
struct Layer {
    long size, channels;  // of the input
    bool up;
    Shape from() const { return {size, size, channels}; }
    Shape to() const { return {up ? 2 * size : size, up ? 2 * size : size, channels}; }
    long side() const { return up ? 4 : 3; }
    // With fewer channels, Winograd's extra additions cost more than they save.
    bool winograd() const { return !up && channels >= 32; }
    long kernel() const { return side() * side(); }
    long taps() const { return winograd() ? 36 : kernel(); }
    long matrix() const { return channels * channels; }
};

// y = ReLU(bias + x · w) for each image's code x; outputs of consecutive images are `step` floats apart
void project(const float* x, const float* w, const float* bias, float* y, long code, long channels, long step,
             long images);

// y = ReLU(bias + transposed convolution of x)
void convolve(const Layer&, const float* x, const float* w, const float* bias, float* y, long images);
void winograd_convolve(const Layer&, const float* x, const float* u, const float* bias, float* y, long images);

// x = gradient before the ReLU of the previous layer, whose outputs are `gate`; sums = its sums by channel
void input_gradient(const Layer&, const float* z, const float* w, const float* gate, float* x, float* sums,
                    long images);
void winograd_input_gradient(const Layer&, const float* z, const float* u, const float* gate, float* x, float* sums,
                             long images);

// sums = gradient of the weights (tap, in, out)
void weight_gradient(const Layer&, const float* x, const float* z, float* sums, long images);
void winograd_weight_gradient(const Layer&, const float* x, const float* z, float* sums, long images);

// Transform a kernel (9, size) to its 36 positions, and their gradient (of the mirrored kernel) back.
void winograd_kernel(const float* taps, float* u, long size, bool mirrored);
void winograd_kernel_gradient(const float* u, float* taps, long size);

// The last convolution (kernel 3, padding 1) to one channel, and its gradients; weights (tap, channel). Outputs have
// neither channels nor a border.
void readout(const Shape&, const float* x, const float* w, float bias, float* y, long images);
void readout_gradients(const Shape&, const float* x, const float* w, const float* z, float* below, float* weights,
                       float* sums, long images);
