// AdamW for one member in one pass over memory, with the formula of torch.optim.AdamW. The caller computes 1 - beta in
// double precision, since float32 would lose digits.
#include <cmath>

extern "C" void recombine_adamw(float* __restrict weights, float* __restrict mean, float* __restrict square,
                                const float* __restrict gradient, long size, float decay, float stride, float root,
                                float mean_share, float beta2, float square_share, float epsilon) {
    for (long at = 0; at < size; ++at) {
        const float g = gradient[at];
        const float m = mean[at] + (g - mean[at]) * mean_share;
        const float v = square[at] * beta2 + g * g * square_share;
        mean[at] = m;
        square[at] = v;
        weights[at] = weights[at] * decay - m / (std::sqrt(v) / root + epsilon) * stride;
    }
}
