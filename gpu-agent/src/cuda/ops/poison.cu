// The pattern that stands where a kernel has not written yet: SplitMix64's stream from `key`, from the span's start.

OP poison(u8* to, u64 bytes, u64 key) {
    u64 packs = whole_packs(to, bytes);
    for (u64 i = first_position(); i < packs; i += stride()) ((Pack*)to)[i] = Pack{stream_word(key, 2 * i), stream_word(key, 2 * i + 1)};
    for (u64 i = packs * sizeof(Pack) + first_position(); i < bytes; i += stride()) to[i] = stream_byte(key, i);
}

// Raises `found` to the complement of the least offset whose byte is not the pattern's.
OP first_unpoisoned(const u8* from, u64 bytes, u64 key, u64* found) {
    u64 packs = whole_packs(from, bytes), least = ~0ull;
    for (u64 i = first_position(); i < packs; i += stride()) {
        Pack pack = ((const Pack*)from)[i];
        u64 low = pack.low ^ stream_word(key, 2 * i), high = pack.high ^ stream_word(key, 2 * i + 1);
        if ((low | high) != 0) {
            u64 word = low != 0 ? low : high;
            least = i * sizeof(Pack) + (low != 0 ? 0 : 8) + (__ffsll((i64)word) - 1) / 8;
            break;
        }
    }
    for (u64 i = packs * sizeof(Pack) + first_position(); i < bytes && i < least; i += stride()) {
        if (from[i] != stream_byte(key, i)) least = i;
    }
    raise(found, ~least);
}
