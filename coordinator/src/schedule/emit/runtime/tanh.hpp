inline __attribute__((always_inline)) float tanh_f32(float x) { return std::tanh(x); }
