// Near zero, where exp(x) - 1 and log(1 + x) would cancel.
inline __attribute__((always_inline)) float expm1_f32(float x) {
    // exp(x) - 1 = 2^n (exp(r) - 1) + (2^n - 1); both are exact enough for n = 0, where there is nothing to subtract.
    const float t = select(x < -104.0f, -104.0f, select(x > 89.0f, 89.0f, x));
    const float k = t * 1.44269504f + 12582912.0f;
    const int32_t n = static_cast<int32_t>(bits_as<uint32_t>(k) - 0x4B400000u);
    const float whole = k - 12582912.0f;
    float r = t - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    float p = 0.00138145604f;
    p = p * r + 0.0083687352f;
    p = p * r + 0.041668389f;
    p = p * r + 0.166665182f;
    p = p * r + 0.49999994f;
    const float y = p * (r * r) + r;
    const int32_t low = n > 64 ? 64 : n < -126 ? -126 : n;
    const float scale = bits_as<float>(static_cast<uint32_t>(low + 127) << 23);
    const float rest = bits_as<float>(static_cast<uint32_t>((n > 64 ? n - 64 : 0) + 127) << 23);
    return (y * scale + (scale - 1.0f)) * rest;
}
inline __attribute__((always_inline)) float log1p_f32(float x) {
    // u = 1 + x rounded; what the rounding lost is put back to first order.
    const float u = 1.0f + x;
    const float lost = x - (u - 1.0f);
    const float y = log_f32(u) + select((u > 0.0f) & (u < 0x1p24f), lost / u, 0.0f);
    return select(x == 0.0f, x, y);
}
