// log(x) = e ln 2 + log(m), m in [sqrt(1/2), sqrt 2); ln 2 in two parts. Coefficients by minimax.py.
inline __attribute__((always_inline)) float log_f32(float x) {
    const bool tiny = x < 0x1p-126f;
    const uint32_t bits = bits_as<uint32_t>(select(tiny, x * 0x1p23f, x)) - 0x3F3504F3u;
    const float e = static_cast<float>(static_cast<int32_t>(bits) >> 23) - select(tiny, 23.0f, 0.0f);
    const float r = bits_as<float>((bits & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
    float p = -0.07635656f;
    p = p * r + 0.127633274f;
    p = p * r - 0.131605819f;
    p = p * r + 0.142015532f;
    p = p * r - 0.166232988f;
    p = p * r + 0.200012341f;
    p = p * r - 0.250008225f;
    p = p * r + 0.333333313f;
    const float square = r * r;
    float y = p * r * square + (e * -2.12194440e-4f - 0.5f * square);
    y = (r + y) + e * 0.693359375f;
    y = select(x == 0.0f, -__builtin_inff(), y);
    y = select(x < 0.0f, __builtin_nanf(""), y);
    return select(x < __builtin_inff(), y, x);
}
