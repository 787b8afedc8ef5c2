// Where two spans differ first.

// Raises `found` to the complement of the least offset at which `a` and `b` differ.
OP first_difference(const u8* a, const u8* b, u64 bytes, u64* found) {
    u64 packs = whole_packs(b, bytes) == 0 ? 0 : whole_packs(a, bytes), least = ~0ull;
    for (u64 i = first_position(); i < packs; i += stride()) {
        Pack left = ((const Pack*)a)[i], right = ((const Pack*)b)[i];
        u64 low = left.low ^ right.low, high = left.high ^ right.high;
        if ((low | high) != 0) {
            u64 word = low != 0 ? low : high;
            least = i * sizeof(Pack) + (low != 0 ? 0 : 8) + (__ffsll((i64)word) - 1) / 8;
            break;
        }
    }
    for (u64 i = packs * sizeof(Pack) + first_position(); i < bytes && i < least; i += stride()) {
        if (a[i] != b[i]) least = i;
    }
    raise(found, ~least);
}
