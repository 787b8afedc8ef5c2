#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <limits>
#include <vector>

int main(int, char** argv) {
    auto* kernel = reinterpret_cast<void (*)(const float*, float*, int64_t)>(dlsym(dlopen(argv[1], RTLD_NOW), "kernel"));
    const double allowed = std::atof(argv[2]);
    std::vector<float> from, to;
    for (float special : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.0f, -1.0f, 2.0f, 1e-45f, -1e-45f, 88.72284f, 88.72283f, 89.5f, -87.33655f, -103.97208f,
                          -103.9721f, -103.28f, 709.0f, 0.625f, 0.93f, 3.92f, 4.0f, 16777216.0f, 3.4e38f, -0.99999994f})
        from.push_back(special);
    for (uint64_t bits = 0; bits < (1ull << 32); bits += 509) {
        const uint32_t low = static_cast<uint32_t>(bits);
        float x;
        std::memcpy(&x, &low, 4);
        from.push_back(x);
    }
    // Where functions bend and results leave the range, every float counts.
    for (float x = 0.6f; x < 0.95f; x = std::nextafterf(x, 2.0f)) from.push_back(x);
    for (float x = -104.5f; x < -103.0f; x = std::nextafterf(x, 0.0f)) from.push_back(x);
    for (float x = 88.0f; x < 89.0f; x = std::nextafterf(x, 100.0f)) from.push_back(x);
    to.resize(from.size());
    kernel(from.data(), to.data(), static_cast<int64_t>(from.size()));
    double worst = 0;
    float at = 0;
    for (size_t i = 0; i < from.size(); ++i) {
        const double x = from[i], want = WANT, got = to[i];
        if (std::isnan(want) || std::isnan(got)) {
            if (std::isnan(want) != std::isnan(got)) return std::printf("%.9g gives %.9g instead of %.9g\n", x, got, want), 1;
            continue;
        }
        const double limit = std::numeric_limits<float>::max() * (1 + 0x1p-25);
        if (std::isinf(got) || std::fabs(want) > limit) {
            if (!(std::fabs(want) > limit * (1 - 0x1p-24)) || (got < 0) != (want < 0)) return std::printf("%.9g gives %.9g instead of %.9g\n", x, got, want), 1;
            if (std::isinf(want) && got != want) return std::printf("%.9g gives %.9g instead of %.9g\n", x, got, want), 1;
            continue;
        }
        int exponent;
        std::frexp(want, &exponent);
        const double ulp = std::ldexp(1.0, std::max(exponent, -125) - 24);
        const double error = std::fabs(got - want) / ulp;
        if (error > worst) worst = error, at = from[i];
    }
    std::printf("worst %.3f ulp at %.9g\n", worst, at);
    return worst <= allowed ? 0 : 1;
}
