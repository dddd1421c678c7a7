// AdamW of one member in one pass over memory; the formula is torch.optim.AdamW's.
#include <cmath>

extern "C" void recombine_adamw(float* __restrict weights, float* __restrict mean, float* __restrict square,
                                const float* __restrict gradient, long size, float decay, float stride, float root,
                                float mean_decay, float square_decay, float epsilon) {
    for (long at = 0; at < size; ++at) {
        const float g = gradient[at];
        const float m = mean[at] + (g - mean[at]) * (1 - mean_decay);
        const float v = square[at] * square_decay + g * g * (1 - square_decay);
        mean[at] = m;
        square[at] = v;
        weights[at] = weights[at] * decay - m / (std::sqrt(v) / root + epsilon) * stride;
    }
}
