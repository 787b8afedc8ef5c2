// Any type to double.

template <class T> static __device__ void widen_all(const typename T::Bits* from, u64 count, double* to) {
    for (u64 i = first_position(); i < count; i += stride()) to[i] = T::number(from[i]);
}

OP widen(const u8* from, u32 code, u64 count, double* to) { WITH_TYPE(code, widen_all<T>((const T::Bits*)from, count, to)) }
