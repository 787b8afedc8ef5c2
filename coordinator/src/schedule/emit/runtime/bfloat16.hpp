// bfloat16 is the upper half of a float; to nearest, ties to even, NaN stays NaN.
inline __attribute__((always_inline)) float from_bf16(const at::BFloat16* from, int64_t at) {
    return bits_as<float>(static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(from)[at]) << 16);
}
inline __attribute__((always_inline)) void to_bf16(at::BFloat16* to, int64_t at, float value) {
    const uint32_t bits = bits_as<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t nan = -static_cast<uint32_t>(value != value);
    reinterpret_cast<uint16_t*>(to)[at] = static_cast<uint16_t>((nan & 0x7FC0u) | (~nan & rounded));
}
