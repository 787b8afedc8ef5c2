// Moving bytes for its own sake: to empty a cache, and to learn how fast memory is. The loads pass by the first-level cache, which
// holds nothing that a kernel reads once.

static __device__ __forceinline__ Pack load_past_l1(const Pack* at) {
#ifdef __CUDA_ARCH__
    Pack pack;  // volatile, or passes over the same bytes would become one
    asm volatile("ld.global.cg.v2.u64 {%0, %1}, [%2];" : "=l"(pack.low), "=l"(pack.high) : "l"(at));
    return pack;
#else
    return *at;
#endif
}

// Overwrites `bytes` bytes, a multiple of sixteen.
OP flush(Pack* to, u64 bytes, u64 seed) {
    for (u64 i = first_position(); i < bytes / sizeof(Pack); i += stride()) to[i] = Pack{seed, i};
}

// Loads that a thread has on their way at once.
const int BATCH = 4;

// Reads `bytes` bytes `passes` times.
OP sweep_read(const Pack* from, u64 bytes, u32 passes, u64* sink) {
    u64 own = 0, packs = bytes / sizeof(Pack);
    for (u32 pass = 0; pass < passes; ++pass) {
        for (u64 i = first_position(); i < packs; i += BATCH * stride()) {
#pragma unroll
            for (int j = 0; j < BATCH; ++j) {
                if (i + j * stride() >= packs) break;
                Pack pack = load_past_l1(from + i + j * stride());
                own ^= pack.low ^ pack.high;
            }
        }
    }
    if (own == 0x6b65726e656c6f70ull) *sink = own;  // one time in 2^64: the loads must seem to be of use
}

// Copies `bytes` bytes `passes` times.
OP sweep_copy(const Pack* from, Pack* to, u64 bytes, u32 passes) {
    u64 packs = bytes / sizeof(Pack);
    for (u32 pass = 0; pass < passes; ++pass) {
        for (u64 i = first_position(); i < packs; i += BATCH * stride()) {
            Pack batch[BATCH];
#pragma unroll
            for (int j = 0; j < BATCH; ++j) {
                if (i + j * stride() < packs) batch[j] = load_past_l1(from + i + j * stride());
            }
#pragma unroll
            for (int j = 0; j < BATCH; ++j) {
                if (i + j * stride() < packs) to[i + j * stride()] = batch[j];
            }
        }
    }
}
