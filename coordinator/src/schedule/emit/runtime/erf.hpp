// x + x p(x^2) near zero, 1 - exp(-(x + x q(x))) elsewhere. Coefficients by minimax.py.
inline __attribute__((always_inline)) float erf_f32(float x) {
    const float s = x * x, a = __builtin_fabsf(x), t = select(a > 4.0f, 4.0f, a);
    float p = -0.000590797747f;
    p = p * s + 0.0049768365f;
    p = p * s - 0.0267554391f;
    p = p * s + 0.112815067f;
    p = p * s - 0.37612465f;
    p = p * s + 0.128379151f;
    const float low = p * x + x;
    float q = -0.000213984953f;
    q = q * t + 0.00321495556f;
    q = q * t - 0.0228899661f;
    q = q * t + 0.105261832f;
    q = q * t + 0.635718286f;
    q = q * t + 0.128514394f;
    uint32_t n;
    const float tail = exp_reduced(-(q * t + t), n) * bits_as<float>((n + 127u) << 23);
    return select(a > 0.93f, __builtin_copysignf(1.0f - tail, x), low);
}
