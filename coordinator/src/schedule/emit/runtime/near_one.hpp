inline __attribute__((always_inline)) float expm1_f32(float x) { return std::expm1(x); }
inline __attribute__((always_inline)) float log1p_f32(float x) { return std::log1p(x); }
