// x + x^3 p(x^2) near zero, 1 - 2 / (exp(2 |x|) + 1) elsewhere. Coefficients by minimax.py.
inline __attribute__((always_inline)) float tanh_f32(float x) {
    const float t = __builtin_fabsf(x), s = x * x;
    float p = -0.00562898535f;
    p = p * s + 0.0205727536f;
    p = p * s - 0.0537200198f;
    p = p * s + 0.13331221f;
    p = p * s - 0.333332747f;
    const float low = p * s * x + x;
    const float high = 1.0f - 2.0f / (exp_low_f32(2.0f * select(t > 10.0f, 10.0f, t)) + 1.0f);
    return select(t > 0.625f, __builtin_copysignf(high, x), low);
}
