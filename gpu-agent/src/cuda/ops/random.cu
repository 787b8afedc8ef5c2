// Randomness that is a pure function of a seed and a position.

// The finalizer of SplitMix64 (Steele, Lea and Flood 2014), a bijection of 64 bits.
static __device__ __forceinline__ u64 mix(u64 z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

// Word `k` of SplitMix64's stream from `key`.
static __device__ __forceinline__ u64 stream_word(u64 key, u64 k) { return mix(key + (k + 1) * 0x9e3779b97f4a7c15ull); }

// Byte `offset` of the same stream, least significant first.
static __device__ __forceinline__ u8 stream_byte(u64 key, u64 offset) { return (u8)(stream_word(key, offset / 8) >> 8 * (offset % 8)); }

struct Four {
    u32 a, b, c, d;
};

// Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011) of the counter (position, stream, 0) under the key `seed`.
static __device__ __forceinline__ Four philox(u64 seed, u64 position, u32 stream) {
    Four x = {(u32)position, (u32)(position >> 32), stream, 0};
    u32 key0 = (u32)seed, key1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u64 p = (u64)0xd2511f53u * x.a, q = (u64)0xcd9e8d57u * x.c;
        x = Four{(u32)(q >> 32) ^ x.b ^ key0, (u32)q, (u32)(p >> 32) ^ x.d ^ key1, (u32)p};
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    return x;
}

static __device__ __forceinline__ u64 joined(u32 low, u32 high) { return (u64)high << 32 | low; }

// A multiple of 2^-53 in [0, 1).
static __device__ __forceinline__ double unit(u64 random) { return mul((double)(random >> 11), 0x1p-53); }

// Sum of four uniforms of 16 bits each, scaled to unit variance (Irwin-Hall): near enough to normal, and exact but for one rounding.
// The factor is sqrt(3) / 65535.
static __device__ __forceinline__ double normal(u64 random) {
    int sum = (int)(random & 0xffff) + (int)(random >> 16 & 0xffff) + (int)(random >> 32 & 0xffff) + (int)(random >> 48);
    return mul((double)(sum - 131070), 0x1.bb6969eeeeb99p-16);
}
