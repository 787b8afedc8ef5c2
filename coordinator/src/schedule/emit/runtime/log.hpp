inline __attribute__((always_inline)) float log_f32(float x) { return std::log(x); }
