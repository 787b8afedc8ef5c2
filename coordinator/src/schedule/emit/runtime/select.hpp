// condition ? a : b without a branch: a conditional would be threaded into branches that no loop vectorises over.
inline __attribute__((always_inline)) int32_t select(bool condition, int32_t a, int32_t b) {
    const int32_t mask = -static_cast<int32_t>(condition);
    return (mask & a) | (~mask & b);
}
inline __attribute__((always_inline)) int64_t select(bool condition, int64_t a, int64_t b) {
    const int64_t mask = -static_cast<int64_t>(condition);
    return (mask & a) | (~mask & b);
}
inline __attribute__((always_inline)) float select(bool condition, float a, float b) {
    return bits_as<float>(select(condition, bits_as<int32_t>(a), bits_as<int32_t>(b)));
}
inline __attribute__((always_inline)) double select(bool condition, double a, double b) {
    return bits_as<double>(select(condition, bits_as<int64_t>(a), bits_as<int64_t>(b)));
}
