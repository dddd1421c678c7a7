// Same-size convolution with Winograd's F(4 × 4, 3 × 3) (Lavin & Gray 2016), which needs a quarter of the products.
//
// A tile of 4 × 4 outputs depends on 6 × 6 inputs d: Aᵀ [ Σ over channels of (G g Gᵀ) ∘ (Bᵀ d B) ] A. Tiles are done in
// blocks whose intermediate results fit into the cache. Tiles may extend beyond the bottom and right of an image,
// where they read zeros and write nothing. Kernels and their gradients are transformed to (36, in, out).
#include <algorithm>
#include <vector>

#include "layers.h"
#include "vector.h"

namespace {

constexpr long SIDE = 4, REACH = 6, PLACES = REACH * REACH;
constexpr long TILES = 28;         // per block
constexpr long TILES_SUMMED = 21;  // per block of a weight gradient

struct Plane : Shape {
    long across() const { return (width + SIDE - 1) / SIDE; }
    long tiles() const { return across() * ((height + SIDE - 1) / SIDE); }
};

// Floats from one position of a block to the next. The extra cache line keeps positions from sharing cache sets.
inline long stride_of(long tiles, const Plane& p) {
    return tiles * p.channels + 16;
}

inline void spread(const Vector* d, long s, Vector* v, long t) {  // Bᵀ
    const Vector d0 = d[0], d1 = d[s], d2 = d[2 * s], d3 = d[3 * s], d4 = d[4 * s], d5 = d[5 * s];
    const Vector a = d4 - 4.0f * d2, b = d3 - 4.0f * d1, c = d4 - d2, e = 2.0f * (d3 - d1);
    v[0] = 4.0f * d0 - 5.0f * d2 + d4;
    v[t] = a + b;
    v[2 * t] = a - b;
    v[3 * t] = c + e;
    v[4 * t] = c - e;
    v[5 * t] = 4.0f * d1 - 5.0f * d3 + d5;
}

inline void gather(const Vector* m, long s, Vector* y, long t) {  // Aᵀ
    const Vector a = m[s] + m[2 * s], b = m[s] - m[2 * s], c = m[3 * s] + m[4 * s], d = m[3 * s] - m[4 * s];
    y[0] = m[0] + a + c;
    y[t] = b + 2.0f * d;
    y[2 * t] = a + 4.0f * c;
    y[3 * t] = b + 8.0f * d + m[5 * s];
}

inline void scatter(const Vector* z, long s, Vector* n, long t) {  // A
    const Vector z0 = z[0], z1 = z[s], z2 = z[2 * s], z3 = z[3 * s];
    const Vector a = z0 + z2, b = z1 + z3, c = z0 + 4.0f * z2, d = 2.0f * z1 + 8.0f * z3;
    n[0] = z0;
    n[t] = a + b;
    n[2 * t] = a - b;
    n[3 * t] = c + d;
    n[4 * t] = c - d;
    n[5 * t] = z3;
}

// G and Gᵀ, which map three positions of a kernel along one axis to six, and back.
inline void widen(const Vector* g, long s, Vector* u, long t) {
    const Vector even = (-1.0f / 6) * (g[0] + g[2 * s]), odd = (-1.0f / 6) * g[s];
    const Vector far = (1.0f / 24) * g[0] + (1.0f / 6) * g[2 * s], middle = (1.0f / 12) * g[s];
    u[0] = 0.25f * g[0];
    u[t] = even + odd;
    u[2 * t] = even - odd;
    u[3 * t] = far + middle;
    u[4 * t] = far - middle;
    u[5 * t] = g[2 * s];
}

inline void narrow(const Vector* u, long s, Vector* g, long t) {
    const Vector near = u[s] + u[2 * s], far = u[3 * s] + u[4 * s];
    g[0] = 0.25f * u[0] - (1.0f / 6) * near + (1.0f / 24) * far;
    g[t] = (-1.0f / 6) * (u[s] - u[2 * s]) + (1.0f / 12) * (u[3 * s] - u[4 * s]);
    g[2 * t] = (-1.0f / 6) * near + (1.0f / 6) * far + u[5 * s];
}

// Apply one of these transforms to columns and rows, mapping FROM × FROM values to TO × TO.
template <long FROM, long TO, void ALONG(const Vector*, long, Vector*, long)>
inline void both_ways(const Vector* from, Vector* to) {
    Vector half[TO * FROM];
    UNROLL for (long x = 0; x < FROM; ++x) ALONG(from + x, FROM, half + x, FROM);
    UNROLL for (long y = 0; y < TO; ++y) ALONG(half + y * FROM, 1, to + y * TO, 1);
}

struct Tile {
    long image, y, x;
};

inline Tile tile_of(long number, const Plane& p) {
    const long tile = number % p.tiles();
    return {number / p.tiles(), tile / p.across() * SIDE, tile % p.across() * SIDE};
}

// Read N × N pixels; those beyond `rows` and `columns` are zero.
template <long N>
inline void read_patch(const float* corner, const Plane& p, long rows, long columns, Vector* into) {
    if (rows == N && columns == N) {
        UNROLL for (long y = 0; y < N; ++y)
            UNROLL for (long x = 0; x < N; ++x) into[y * N + x] = load(corner + y * p.pitch() + x * p.channels);
    } else {
        for (long y = 0; y < N; ++y)
            for (long x = 0; x < N; ++x)
                into[y * N + x] = y < rows && x < columns ? load(corner + y * p.pitch() + x * p.channels) : Vector{};
    }
}

// Transform a tile to (36, tile, channel): Bᵀ d B for inputs, which have a border (N = 6), or A z Aᵀ for gradients.
template <long N, void ALONG(const Vector*, long, Vector*, long)>
void transform(const float* images, const Plane& p, Tile t, float* into, long stride) {
    constexpr long edge = N == REACH ? 0 : 1;
    const float* corner = images + t.image * p.image() + (t.y + edge) * p.pitch() + (t.x + edge) * p.channels;
    const long rows = std::min(N, p.height + 2 - 2 * edge - t.y);
    const long columns = std::min(N, p.width + 2 - 2 * edge - t.x);
    for (long c = 0; c < p.channels; c += LANES) {
        Vector patch[N * N], places[PLACES];
        read_patch<N>(corner + c, p, rows, columns, patch);
        both_ways<N, REACH, ALONG>(patch, places);
        UNROLL for (long k = 0; k < PLACES; ++k) store(into + k * stride + c, places[k]);
    }
}

// Write Aᵀ m A of a tile to its image, with bias and ReLU (or, with BACK, gated and summed by channel).
template <bool BACK>
void write_tile(const float* products, long stride, const Plane& p, Tile t, const float* bias, const float* gate,
                float* images, float* sums) {
    const long corner = t.image * p.image() + (t.y + 1) * p.pitch() + (t.x + 1) * p.channels;
    const long rows = std::min(SIDE, p.height - t.y), columns = std::min(SIDE, p.width - t.x);
    for (long c = 0; c < p.channels; c += LANES) {
        Vector m[PLACES], y[SIDE * SIDE];
        UNROLL for (long k = 0; k < PLACES; ++k) m[k] = load(products + k * stride + c);
        both_ways<REACH, SIDE, gather>(m, y);
        const Vector offset = BACK ? Vector{} : load(bias + c);
        Vector sum{};
        for (long r = 0; r < rows; ++r)
            for (long x = 0; x < columns; ++x) {
                const long at = corner + r * p.pitch() + x * p.channels + c;
                const Vector value = y[r * SIDE + x] + offset;
                const Vector kept = (BACK ? load(gate + at) : value) <= Vector{} ? Vector{} : value;
                store(images + at, kept);
                sum += kept;
            }
        if (BACK) store(sums + c, load(sums + c) + sum);
    }
}

template <int V, int STEP>
struct Product {
    const float *left, *right;
    float* target;
    long in, out;

    template <int P>
    void piece(long first) const {
        Vector total[P][V] = {};
        multiply<P, V, STEP>(total, left + first * in, in, right, out, in);
        UNROLL for (int p = 0; p < P; ++p)
            UNROLL for (int v = 0; v < V; ++v) store(target + (first + p) * out + v * LANES, total[p][v]);
    }
};

template <int V>
void product(const float* left, const float* right, float* target, long tiles, long in, long out) {
    for (long c = 0; c < out; c += V * LANES)
        with_step<64, 32>(in, [&](auto constant) {
            const Product<V, decltype(constant)::value> work{left, right + c, target + c, in, out};
            Pieces<PIXELS>::of(0, tiles, work);
        });
}

template <int V>
void add_outer(const float* left, const float* right, float* sum, long tiles, long in, long out) {
    for (long co = 0; co < out; co += V * LANES)
        for (long ci = 0; ci < in; ci += ROWS)
            accumulate<V>(sum + ci * out + co, out, [&](Vector(&total)[ROWS][V]) {
                outer<V>(total, left + ci, in, right + co, out, tiles);
            });
}

template <bool BACK>
void by_tiles(const float* x, const float* u, const float* bias, const float* gate, float* y, float* sums, Plane from,
              Plane to, long images) {
    thread_local std::vector<float> spread_out, products;
    const long left = stride_of(TILES, from), right = stride_of(TILES, to);
    spread_out.resize(PLACES * left);
    products.resize(PLACES * right);
    for (long image = 0; image < images; ++image) clear_border(y + image * to.image(), to);
    for (long begin = 0; begin < images * from.tiles(); begin += TILES) {
        const long tiles = std::min(TILES, images * from.tiles() - begin);
        for (long t = 0; t < tiles; ++t)
            transform<REACH, spread>(x, from, tile_of(begin + t, from), spread_out.data() + t * from.channels, left);
        for (long k = 0; k < PLACES; ++k) {
            const auto work = wide(to.channels) ? product<WIDE> : product<BLOCK>;
            work(spread_out.data() + k * left, u + k * from.channels * to.channels, products.data() + k * right, tiles,
                 from.channels, to.channels);
        }
        for (long t = 0; t < tiles; ++t)
            write_tile<BACK>(products.data() + t * to.channels, right, to, tile_of(begin + t, to), bias, gate, y, sums);
    }
}

}  // namespace

void winograd_convolve(const Layer& layer, const float* x, const float* u, const float* bias, float* y, long images) {
    by_tiles<false>(x, u, bias, nullptr, y, nullptr, {layer.from()}, {layer.to()}, images);
}

void winograd_input_gradient(const Layer& layer, const float* z, const float* u, const float* gate, float* x,
                             float* sums, long images) {
    by_tiles<true>(z, u, nullptr, gate, x, sums, {layer.to()}, {layer.from()}, images);
}

void winograd_weight_gradient(const Layer& layer, const float* x, const float* z, float* sums, long images) {
    const Plane from{layer.from()}, to{layer.to()};
    const long in = from.channels, out = to.channels;
    const long left_stride = stride_of(TILES_SUMMED, from), right_stride = stride_of(TILES_SUMMED, to);
    thread_local std::vector<float> left, right;
    left.resize(PLACES * left_stride);
    right.resize(PLACES * right_stride);
    const auto work = wide(out) ? add_outer<WIDE> : add_outer<BLOCK>;
    for (long begin = 0; begin < images * from.tiles(); begin += TILES_SUMMED) {
        const long tiles = std::min(TILES_SUMMED, images * from.tiles() - begin);
        for (long t = 0; t < tiles; ++t) {
            transform<REACH, spread>(x, from, tile_of(begin + t, from), left.data() + t * in, left_stride);
            transform<SIDE, scatter>(z, to, tile_of(begin + t, to), right.data() + t * out, right_stride);
        }
        for (long k = 0; k < PLACES; ++k)
            work(left.data() + k * left_stride, right.data() + k * right_stride, sums + k * in * out, tiles, in, out);
    }
}

void winograd_kernel(const float* taps, float* u, long size, bool mirrored) {
    for (long at = 0; at < size; at += LANES) {
        Vector g[9], all[PLACES];
        for (long k = 0; k < 9; ++k) g[mirrored ? 8 - k : k] = load(taps + k * size + at);
        both_ways<3, REACH, widen>(g, all);
        UNROLL for (long k = 0; k < PLACES; ++k) store(u + k * size + at, all[k]);
    }
}

void winograd_kernel_gradient(const float* u, float* taps, long size) {
    for (long at = 0; at < size; at += LANES) {
        Vector all[PLACES], g[9];
        UNROLL for (long k = 0; k < PLACES; ++k) all[k] = load(u + k * size + at);
        both_ways<REACH, 3, narrow>(all, g);
        for (long k = 0; k < 9; ++k) store(taps + k * size + at, g[8 - k]);  // the forward pass mirrors it
    }
}
