typedef float octet __attribute__((vector_size(32), aligned(4), may_alias));
// Eight rows of eight become eight columns: pairs, then quarters, then halves change places.
inline __attribute__((always_inline)) void transpose_8x8(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    typedef int32_t places __attribute__((vector_size(32)));
    octet a[8], b[8];
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) a[i] = *reinterpret_cast<const octet*>(from + i * from_stride);
    #pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
        b[i] = __builtin_shuffle(a[i], a[i + 1], places{0, 8, 1, 9, 4, 12, 5, 13});
        b[i + 1] = __builtin_shuffle(a[i], a[i + 1], places{2, 10, 3, 11, 6, 14, 7, 15});
    }
    #pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4) {
        a[i] = __builtin_shuffle(b[i], b[i + 2], places{0, 1, 8, 9, 4, 5, 12, 13});
        a[i + 1] = __builtin_shuffle(b[i], b[i + 2], places{2, 3, 10, 11, 6, 7, 14, 15});
        a[i + 2] = __builtin_shuffle(b[i + 1], b[i + 3], places{0, 1, 8, 9, 4, 5, 12, 13});
        a[i + 3] = __builtin_shuffle(b[i + 1], b[i + 3], places{2, 3, 10, 11, 6, 7, 14, 15});
    }
    #pragma GCC unroll 8
    for (int i = 0; i < 4; ++i) {
        *reinterpret_cast<octet*>(to + i * to_stride) = __builtin_shuffle(a[i], a[i + 4], places{0, 1, 2, 3, 8, 9, 10, 11});
        *reinterpret_cast<octet*>(to + (i + 4) * to_stride) = __builtin_shuffle(a[i], a[i + 4], places{4, 5, 6, 7, 12, 13, 14, 15});
    }
}
// tile[k][l] = from[k + l * stride].
template <int64_t K, int64_t L>
inline __attribute__((always_inline)) void stage_in(float (*tile)[L], const float* from, int64_t stride) {
    for (int64_t l = 0; l < L; l += 8)
        for (int64_t k = 0; k < K; k += 8) transpose_8x8(from + k + l * stride, stride, &tile[k][l], L);
}
// to[k + l * stride] = tile[k][l].
template <int64_t K, int64_t L>
inline __attribute__((always_inline)) void stage_out(float* to, const float (*tile)[L], int64_t stride) {
    for (int64_t l = 0; l < L; l += 8)
        for (int64_t k = 0; k < K; k += 8) transpose_8x8(&tile[k][l], L, to + k + l * stride, stride);
}
