// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2; ln 2 in two parts (Cody and Waite 1980). Adding 1.5 * 2^23
// rounds to an integer and leaves it in the low bits. 0.69 ulp of the reduced part; coefficients by minimax.py.
inline __attribute__((always_inline)) float exp_reduced(float x, uint32_t& n) {
    const float k = x * 1.44269504f + 12582912.0f;
    n = bits_as<uint32_t>(k) - 0x4B400000u;
    const float whole = k - 12582912.0f;
    float r = x - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    float p = 0.00138145604f;
    p = p * r + 0.0083687352f;
    p = p * r + 0.041668389f;
    p = p * r + 0.166665182f;
    p = p * r + 0.49999994f;
    p = p * r + 1.0f;
    return p * r + 1.0f;
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
