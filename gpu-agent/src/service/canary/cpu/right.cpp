// Softmax over 64 rows of 256.
#include <cmath>
#include <cstdint>
#include <limits>

extern "C" void kernel(const float* in_ptr0, float* out_ptr0, float* out_ptr1, float* out_ptr2) {
    #pragma omp parallel for num_threads(1)
    for (std::int64_t x0 = 0; x0 < 64; ++x0) {
        const float* row = in_ptr0 + 256 * x0;
        float* out = out_ptr2 + 256 * x0;
        float top = -std::numeric_limits<float>::infinity();
        for (int x1 = 0; x1 < 256; ++x1) top = (row[x1] > top || std::isnan(row[x1])) && !std::isnan(top) ? row[x1] : top;
        float sum = 0.0f;
        for (int x1 = 0; x1 < 256; ++x1) sum += out[x1] = std::exp(row[x1] - top);
        for (int x1 = 0; x1 < 256; ++x1) out[x1] /= sum;
        out_ptr0[x0] = top;
        out_ptr1[x0] = sum;
    }
}
