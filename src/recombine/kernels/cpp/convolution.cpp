// Direct transposed convolutions of the same size (kernel 3) and twice the size (kernel 4, stride 2), with gradients.
#include <algorithm>

#include "layers.h"
#include "vector.h"

namespace {

struct Taps {
    long count, left[16], right[16];  // offsets of inputs relative to the pixel, and of weight matrices
};

// Consecutive pixels: inputs are `step` and outputs `target_step` floats apart; `depth` and `out` count channels.
struct Row {
    const float *left, *right, *bias, *gate;
    float *target, *sums;
    long pixels, step, target_step, depth, out;
    const Taps& taps;
};

template <int V, int STEP, bool BACK>
struct Run : Row {
    template <int P>
    void piece(long first) const {
        Vector total[P][V];
        UNROLL for (int p = 0; p < P; ++p)
            UNROLL for (int v = 0; v < V; ++v) total[p][v] = BACK ? Vector{} : load(bias + v * LANES);
        for (long tap = 0; tap < taps.count; ++tap)
            multiply<P, V, STEP>(total, left + first * (STEP ? STEP : step) + taps.left[tap], step,
                                 right + taps.right[tap], out, depth);
        Vector sum[V] = {};
        UNROLL for (int p = 0; p < P; ++p)
            UNROLL for (int v = 0; v < V; ++v) {
                const long at = (first + p) * target_step + v * LANES;
                const Vector open = BACK ? load(gate + at) : total[p][v];
                const Vector kept = open <= Vector{} ? Vector{} : total[p][v];  // NaN stays NaN
                store(target + at, kept);
                if (BACK) sum[v] += kept;
            }
        if (BACK)
            for (int v = 0; v < V; ++v) store(sums + v * LANES, load(sums + v * LANES) + sum[v]);
    }
};

template <bool BACK>
void blocks(Row row) {
    const long count = (wide(row.out) ? WIDE : BLOCK) * LANES;
    for (long c = 0; c < row.out; c += count) {
        with_step<16, 32, 64, 128>(row.step, [&](auto constant) {
            constexpr int STEP = decltype(constant)::value;
            if (wide(row.out))
                Pieces<PIXELS>::of(0, row.pixels, Run<WIDE, STEP, BACK>{row});
            else
                Pieces<PIXELS>::of(0, row.pixels, Run<BLOCK, STEP, BACK>{row});
        });
        row.right += count;
        row.target += count;
        (BACK ? row.gate : row.bias) += count;
        if (BACK) row.sums += count;
    }
}

// Sum over the pixels in rows y … y + rows - 1 of one image, into (tap, in, out).
template <int V>
void outer_blocks(const float* x, const float* z, float* sum, Shape in, Shape out, long y, long rows, bool up) {
    const long side = up ? 4 : 3;
    for (long ky = 0; ky < side; ++ky)
        for (long kx = 0; kx < side; ++kx)
            for (long co = 0; co < out.channels; co += V * LANES)
                for (long ci = 0; ci < in.channels; ci += ROWS) {
                    float* at = sum + ((ky * side + kx) * in.channels + ci) * out.channels + co;
                    accumulate<V>(at, out.channels, [&](Vector(&total)[ROWS][V]) {
                        for (long row = y; row < y + rows; ++row) {
                            const float *left, *right;
                            if (up) {
                                left = x + (row + 1) * in.pitch() + in.channels + ci;
                                right = z + (2 * row + ky) * out.pitch() + kx * out.channels + co;
                            } else {
                                left = x + (row + 2 - ky) * in.pitch() + (2 - kx) * in.channels + ci;
                                right = z + (row + 1) * out.pitch() + out.channels + co;
                            }
                            outer<V>(total, left, in.channels, right, (up ? 2 : 1) * out.channels, in.width);
                        }
                    });
                }
}

constexpr long PIXELS_SUMMED = 96;  // approximate pixels per block of sums, to fit into the L1 cache

}  // namespace

void project(const float* x, const float* w, const float* bias, float* y, long code, long channels, long step,
             long images) {
    blocks<false>({x, w, bias, nullptr, y, nullptr, images, code, step, code, channels, {1, {}, {}}});
}

void convolve(const Layer& layer, const float* x, const float* w, const float* bias, float* y, long images) {
    const Shape from = layer.from(), to = layer.to();
    const long in = from.channels, out = to.channels, scale = layer.up ? 2 : 1, side = layer.up ? 2 : 3;
    for (long image = 0; image < images; ++image, x += from.image(), y += to.image()) {
        clear_border(y, to);
        for (long row = 0; row < from.height; ++row)
            for (long parity = 0; parity < scale * scale; ++parity) {
                const long py = parity / 2, px = parity % 2;
                Taps taps{side * side, {}, {}};
                for (long ty = 0; ty < side; ++ty)
                    for (long tx = 0; tx < side; ++tx) {
                        const long at = ty * side + tx;
                        const long dy = layer.up ? py - ty : 1 - ty, dx = layer.up ? px - tx : 1 - tx;
                        const long tap = layer.up ? (1 - py + 2 * ty) * 4 + 1 - px + 2 * tx : at;
                        taps.left[at] = dy * from.pitch() + dx * in;
                        taps.right[at] = tap * in * out;
                    }
                float* target = y + (scale * row + py + 1) * to.pitch() + (px + 1) * out;
                blocks<false>({x + (row + 1) * from.pitch() + in, w, bias, nullptr, target, nullptr, from.width, in,
                               scale * out, in, out, taps});
            }
    }
}

void input_gradient(const Layer& layer, const float* z, const float* w, const float* gate, float* x, float* sums,
                    long images) {
    const Shape from = layer.to(), to = layer.from();
    const long side = layer.side(), scale = layer.up ? 2 : 1;
    Taps taps{side * side, {}, {}};
    for (long ky = 0; ky < side; ++ky)
        for (long kx = 0; kx < side; ++kx) {
            taps.left[ky * side + kx] = ky * from.pitch() + kx * from.channels;
            taps.right[ky * side + kx] = (ky * side + kx) * from.channels * to.channels;
        }
    for (long image = 0; image < images; ++image, z += from.image(), gate += to.image(), x += to.image()) {
        clear_border(x, to);
        for (long row = 0; row < to.height; ++row) {
            const long at = (row + 1) * to.pitch() + to.channels;
            blocks<true>({z + scale * row * from.pitch(), w, nullptr, gate + at, x + at, sums, to.width,
                          scale * from.channels, to.channels, from.channels, to.channels, taps});
        }
    }
}

void weight_gradient(const Layer& layer, const float* x, const float* z, float* sums, long images) {
    const Shape from = layer.from(), to = layer.to();
    const long rows = std::max(1L, PIXELS_SUMMED / from.width);
    const auto work = wide(to.channels) ? outer_blocks<WIDE> : outer_blocks<BLOCK>;
    for (long image = 0; image < images; ++image, x += from.image(), z += to.image())
        for (long y = 0; y < from.height; y += rows)
            work(x, z, sums, from, to, y, std::min(rows, from.height - y), layer.up);
}
