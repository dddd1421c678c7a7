// SIMD vectors of floats, and the two small products that everything else is built from.
#pragma once

#include <type_traits>

#if defined(__AVX512F__)
constexpr int LANES = 16, PIXELS = 14, ROWS = 8;
#elif defined(__AVX__)
constexpr int LANES = 8, PIXELS = 6, ROWS = 4;
#else
constexpr int LANES = 4, PIXELS = 6, ROWS = 4;
#endif
// Rows per block of a matrix product (PIXELS) and of a sum of outer products (ROWS), whose totals fit into registers.

// Loops over registers have constant bounds and must be unrolled; otherwise totals would go through memory.
#define UNROLL _Pragma("GCC unroll 36")
// GCC does not inline frequently used templates with lambdas, which makes training steps a quarter slower.
#define INLINE __attribute__((always_inline)) inline

typedef float Vector __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

inline Vector load(const float* at) {
    return *reinterpret_cast<const Vector*>(at);
}
inline void store(float* at, Vector value) {
    *reinterpret_cast<Vector*>(at) = value;
}

// Number of vectors in a block of 16 channels, and in the 32 that are computed at a time if there are enough.
constexpr int BLOCK = 16 / LANES, WIDE = LANES == 16 ? 2 : BLOCK;
inline bool wide(long channels) {
    return channels % (WIDE * LANES) == 0;
}

// total[p][v] += Σ over k of left[p · step + k] · right[k · width + v]
template <int P, int V, int STEP>
inline void multiply(Vector (&total)[P][V], const float* left, long step, const float* right, long width, long depth) {
    for (long k = 0; k < depth; ++k) {
        Vector row[V];
        UNROLL for (int v = 0; v < V; ++v) row[v] = load(right + k * width + v * LANES);
        UNROLL for (int p = 0; p < P; ++p) {
            const float one = left[p * (STEP ? STEP : step) + k];
            UNROLL for (int v = 0; v < V; ++v) total[p][v] += one * row[v];
        }
    }
}

// total[r][v] += Σ over n of left[n · left_step + r] · right[n · right_step + v]
template <int V>
inline void outer(Vector (&total)[ROWS][V], const float* left, long left_step, const float* right, long right_step,
                  long count) {
    for (long n = 0; n < count; ++n, left += left_step, right += right_step) {
        Vector row[V];
        UNROLL for (int v = 0; v < V; ++v) row[v] = load(right + v * LANES);
        UNROLL for (int r = 0; r < ROWS; ++r) {
            UNROLL for (int v = 0; v < V; ++v) total[r][v] += left[r] * row[v];
        }
    }
}

// Load ROWS × V vectors at `at`, with rows `step` apart, into registers, let `work` add to them, and store them.
template <int V, class Work>
INLINE void accumulate(float* at, long step, Work&& work) {
    Vector total[ROWS][V];
    UNROLL for (int r = 0; r < ROWS; ++r)
        UNROLL for (int v = 0; v < V; ++v) total[r][v] = load(at + r * step + v * LANES);
    work(total);
    UNROLL for (int r = 0; r < ROWS; ++r)
        UNROLL for (int v = 0; v < V; ++v) store(at + r * step + v * LANES, total[r][v]);
}

// Call `work` with the step as a compile-time constant if it is in STEPS, which saves registers; otherwise with 0.
template <int... STEPS, class Work>
INLINE void with_step(long step, Work&& work) {
    const bool known = ((step == STEPS && (work(std::integral_constant<int, STEPS>{}), true)) || ...);
    if (!known) work(std::integral_constant<int, 0>{});
}

// Split `count` into pieces of at most PIXELS and call `work.piece<P>(first)` for each; P is a compile-time constant.
template <int P>
struct Pieces {
    template <class Work>
    static void of(long first, long count, Work&& work) {
        for (; count - first >= P; first += P) work.template piece<P>(first);
        if constexpr (P > 1) Pieces<P / 2>::of(first, count, work);
    }
};
