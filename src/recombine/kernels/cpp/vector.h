// Vectors of floats as wide as the machine's, and the two small products that everything else is made of.
#pragma once

#if defined(__AVX512F__)
constexpr int LANES = 16, PIXELS = 14, ROWS = 8;
#elif defined(__AVX__)
constexpr int LANES = 8, PIXELS = 6, ROWS = 4;
#else
constexpr int LANES = 4, PIXELS = 6, ROWS = 4;
#endif
// PIXELS: rows of a block of a product; ROWS: those of a sum of outer products. Their totals stay in registers.

typedef float Vector __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

inline Vector load(const float* at) {
    return *reinterpret_cast<const Vector*>(at);
}
inline void store(float* at, Vector value) {
    *reinterpret_cast<Vector*>(at) = value;
}
inline Vector zero() {
    return Vector{};
}

// Vectors of a block of 16 channels, and of the 32 that are done at a time where there are as many.
constexpr int BLOCK = 16 / LANES, WIDE = LANES == 16 ? 2 : BLOCK;
inline bool wide(long channels) {
    return channels % (WIDE * LANES) == 0;
}

// total[p][v] += Σ over k of left[p · step + k] · right[k · width + v]
template <int P, int V, int STEP>
inline void multiply(Vector (&total)[P][V], const float* left, long step, const float* right, long width, long depth) {
    for (long k = 0; k < depth; ++k) {
        Vector row[V];
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) row[v] = load(right + k * width + v * LANES);
#pragma GCC unroll 16
        for (int p = 0; p < P; ++p) {
            const float one = left[p * (STEP ? STEP : step) + k];
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) total[p][v] += one * row[v];
        }
    }
}

// total[r][v] += Σ over n of left[n · left_step + r] · right[n · right_step + v]
template <int V>
inline void outer(Vector (&total)[ROWS][V], const float* left, long left_step, const float* right, long right_step,
                  long count) {
    for (long n = 0; n < count; ++n, left += left_step, right += right_step) {
        Vector row[V];
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) row[v] = load(right + v * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) total[r][v] += left[r] * row[v];
        }
    }
}

// Do `work(first, P)` for pieces of at most PIXELS that make up `count`; P is a constant.
template <int P>
struct Pieces {
    template <class Work>
    static void of(long first, long count, Work&& work) {
        for (; count - first >= P; first += P) work.template piece<P>(first);
        if constexpr (P > 1) Pieces<P / 2>::of(first, count, work);
    }
};
