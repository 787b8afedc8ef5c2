// A hash of a span in which position counts: every word of eight bytes is mixed with its position, and the results are added, in any order.

static __device__ __forceinline__ u64 digest_term(u64 word, u64 k) { return mix(word ^ stream_word(0, k)); }

// Adds the terms of all words to `sum`; the last word is filled up with zeros.
OP digest(const u8* from, u64 bytes, u64* sum) {
    u64 packs = whole_packs(from, bytes), words = (bytes + 7) / 8, own = 0;
    for (u64 i = first_position(); i < packs; i += stride()) {
        Pack pack = ((const Pack*)from)[i];
        own += digest_term(pack.low, 2 * i) + digest_term(pack.high, 2 * i + 1);
    }
    for (u64 k = 2 * packs + first_position(); k < words; k += stride()) {
        u64 word = 0, end = bytes - 8 * k < 8 ? bytes - 8 * k : 8;
        for (u64 j = 0; j < end; ++j) word |= (u64)from[8 * k + j] << 8 * j;
        own += digest_term(word, k);
    }
    accumulate(sum, own);
}
