#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace at {
struct BFloat16 { uint16_t x; };
struct Half { uint16_t x; };
}
static double maximum(double a, double b) { return a != a || a > b ? a : b; }
static double minimum(double a, double b) { return a != a || a < b ? a : b; }
static int64_t python_mod(int64_t a, int64_t b) { return ((a % b) + b) % b; }

static void* load(const char* path) {
    void* library = dlopen(path, RTLD_NOW);
    if (!library) { std::puts(dlerror()); std::exit(2); }
    return dlsym(library, "kernel");
}

template <class T> static double to_double(T value) { return static_cast<double>(value); }
template <> double to_double(at::BFloat16 value) {
    const uint32_t bits = uint32_t(value.x) << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
}
template <class T> static T from_double(double value) { return static_cast<T>(value); }
template <> at::BFloat16 from_double(double value) {
    const float f = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    return {static_cast<uint16_t>(bits >> 16)};
}

// Memory of one storage between two guard zones.
struct Block {
    static constexpr int64_t kGuard = 64;
    std::vector<unsigned char> bytes;
    int64_t count = 0, size = 0;
    bool is_float = true;
    double tolerance = 1e-5;
    std::vector<double> (*read)(const unsigned char*, int64_t) = nullptr;

    template <class T>
    void reserve(int64_t elements, int64_t bound, int regime, bool is_input) {
        if (elements <= count) return;
        static uint64_t state = 88172645463325252ull;
        auto random = [&] {
            state ^= state << 13; state ^= state >> 7; state ^= state << 17;
            return static_cast<double>(state >> 11) * 0x1p-53;
        };
        count = elements, size = sizeof(T);
        is_float = !std::is_integral<T>::value;
        tolerance = std::is_same<T, at::BFloat16>::value ? 8e-3 : 1e-5;
        bytes.assign((count + 2 * kGuard) * size, 0xAB);
        read = [](const unsigned char* from, int64_t n) {
            std::vector<double> result(n);
            for (int64_t i = 0; i < n; ++i) { T value; std::memcpy(&value, from + i * sizeof(T), sizeof(T)); result[i] = to_double(value); }
            return result;
        };
        const double specials[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e-40};
        for (int64_t i = 0; i < count; ++i) {
            double value = std::sqrt(-2 * std::log(random() + 1e-300)) * std::cos(6.283185307179586 * random());
            if (bound > 0) value = std::floor(random() * static_cast<double>(bound));
            else if (std::is_same<T, bool>::value) value = random() < 0.5;
            else if (!is_float) value = std::floor(random() * 7);
            else if (regime == 1) value = 0.1 + 1.9 * random();
            else if (regime == 2) value *= 8;
            else if (regime == 3 && random() < 0.02) value = specials[static_cast<int>(random() * 6)];
            if (!is_input && bound == 0) value = is_float ? NAN : 0;
            const T stored = from_double<T>(value);
            std::memcpy(&bytes[(kGuard + i) * size], &stored, size);
        }
    }
    template <class T> T* pointer() { return reinterpret_cast<T*>(&bytes[kGuard * size]); }
    std::vector<double> doubles() const { return read(&bytes[kGuard * size], count); }
    bool guarded(const char* name) const {
        for (int64_t i = 0; i < kGuard * size; ++i)
            if (bytes[i] != 0xAB || bytes[bytes.size() - 1 - i] != 0xAB) { std::printf("%s: written out of bounds\n", name); return false; }
        return true;
    }
    bool compare(const char* name, int regime, double slack_factor, int64_t offset, const double* want, int64_t n) const {
        if (!guarded(name)) return false;
        const std::vector<double> got = doubles();
        double scale = 1;
        for (int64_t i = 0; i < n; ++i)
            if (std::isfinite(want[i])) scale = std::max(scale, std::fabs(want[i]));
        for (int64_t i = 0; i < n; ++i) {
            const double g = got[offset + i], w = want[i];
            const bool same = (std::isnan(g) && std::isnan(w)) || g == w;
            const double slack = is_float ? slack_factor * tolerance * std::max(std::fabs(w), 0.2 * scale) : 0;
            if (!same && !(std::fabs(g - w) <= slack)) {
                std::printf("%s[%lld], regime %d: %.9g instead of %.9g\n", name, static_cast<long long>(i), regime, g, w);
                return false;
            }
        }
        return true;
    }
};
