inline __attribute__((always_inline)) float sigmoid_f32(float x) { return 1.0f / (1.0f + exp_f32(-x)); }
