inline __attribute__((always_inline)) float erf_f32(float x) { return std::erf(x); }
