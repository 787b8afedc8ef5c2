// exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2; ln 2 in two parts (Cody and Waite 1980), exp(r) a polynomial.
// Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
inline __attribute__((always_inline)) float exp_reduced(float x, uint32_t& n) {
    const float k = x * 1.44269504f + 12582912.0f;
    n = bits_as<uint32_t>(k) - 0x4B400000u;
    const float whole = k - 12582912.0f;
    float r = x - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r + 1.0f;
}
// For x <= 64: one scaling, shifted by 2^24 so that a denormal result is rounded once.
inline __attribute__((always_inline)) float exp_low_f32(float x) {
    uint32_t n;
    const float y = exp_reduced(select(x < -104.0f, -104.0f, x), n);
    return y * bits_as<float>((n + 151u) << 23) * 0x1p-24f;
}
// 2^n in two halves: both are normal numbers for every n that matters.
inline __attribute__((always_inline)) float exp_f32(float x) {
    uint32_t n;
    const float y = exp_reduced(select(x < -104.0f, -104.0f, select(x > 89.0f, 89.0f, x)), n);
    const int32_t half = static_cast<int32_t>(n) >> 1;
    const int32_t rest = static_cast<int32_t>(n) - half;
    return y * bits_as<float>(static_cast<uint32_t>(half + 127) << 23) * bits_as<float>(static_cast<uint32_t>(rest + 127) << 23);
}
