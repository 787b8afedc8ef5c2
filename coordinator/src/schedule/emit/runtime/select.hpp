// condition ? a : b without a branch: a conditional would be threaded into branches that no loop vectorises over.
inline __attribute__((always_inline)) float select(bool condition, float a, float b) {
    const uint32_t mask = -static_cast<uint32_t>(condition);
    return bits_as<float>((mask & bits_as<uint32_t>(a)) | (~mask & bits_as<uint32_t>(b)));
}
inline __attribute__((always_inline)) double select(bool condition, double a, double b) {
    const uint64_t mask = -static_cast<uint64_t>(condition);
    return bits_as<double>((mask & bits_as<uint64_t>(a)) | (~mask & bits_as<uint64_t>(b)));
}
