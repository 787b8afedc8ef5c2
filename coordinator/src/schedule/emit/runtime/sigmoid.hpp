// With e = exp(-|x|) <= 1: 1 / (1 + e) or e / (1 + e), so that small results are not lost to an infinite exponential.
inline __attribute__((always_inline)) float sigmoid_f32(float x) {
    const float e = exp_low_f32(-__builtin_fabsf(x));
    return select(x < 0.0f, e, 1.0f) / (1.0f + e);
}
