template <int64_t N, class T, class V>
inline __attribute__((always_inline)) void fill(T* lanes, V value) {
    #pragma omp simd
    for (int64_t l = 0; l < N; ++l) lanes[l] = static_cast<T>(value);
}
template <int64_t N, class T>
inline __attribute__((always_inline)) void add_lanes(T* to, const T* from) {
    #pragma omp simd
    for (int64_t l = 0; l < N; ++l) to[l] += from[l];
}
// Halves are folded onto each other, so that a sum of N lanes rounds log2(N) times.
template <int64_t N, class T, class F>
inline __attribute__((always_inline)) T fold_lanes(T* lanes, F combine) {
    if constexpr (N > 1) {
        #pragma omp simd
        for (int64_t l = 0; l < N / 2; ++l) lanes[l] = combine(lanes[l], lanes[N - N / 2 + l]);
        return fold_lanes<N - N / 2>(lanes, combine);
    } else {
        return lanes[0];
    }
}
template <int64_t N, class T>
inline T fold_sum(T* lanes) { return fold_lanes<N>(lanes, [](T a, T b) { return T(a + b); }); }
template <int64_t N, class T>
inline T fold_prod(T* lanes) { return fold_lanes<N>(lanes, [](T a, T b) { return T(a * b); }); }
template <int64_t N, class T>
inline T fold_max(T* lanes) { return fold_lanes<N>(lanes, [](T a, T b) { return max_nan(a, b); }); }
template <int64_t N, class T>
inline T fold_min(T* lanes) { return fold_lanes<N>(lanes, [](T a, T b) { return min_nan(a, b); }); }
template <int64_t N, class T>
inline T fold_any(T* lanes) { return fold_lanes<N>(lanes, [](T a, T b) { return T(a | b); }); }
