// How the elements of a tensor lie in memory, by the codes of `element.rs`.

enum Code { FLOAT64, FLOAT32, FLOAT16, BFLOAT16, INT64, INT32, INT16, INT8, UINT8, BOOLEAN };

// NaN has one bit pattern in each type, so that implementations agree on it.
static __device__ __forceinline__ double not_a_number() { return of_bits(0x7ff8000000000000ull); }

// To binary16, to nearest, ties to even.
static __device__ __forceinline__ u16 half_of(float value) {
    u32 bits = __float_as_uint(value), size = bits & 0x7fffffffu;
    u16 sign = (u16)(bits >> 16 & 0x8000u);
    if (size > 0x7f800000u) return 0x7e00;
    if (size >= 0x477ff000u) return sign | 0x7c00;  // from 65520 on
    if (size >= 0x38800000u) return sign | (u16)((size + 0xfffu + (size >> 13 & 1) - 0x38000000u) >> 13);
    if (size <= 0x33000000u) return sign;  // up to half the least subnormal
    u32 shift = 126 - (size >> 23), significand = (size & 0x7fffffu) | 0x800000u;
    u32 whole = significand >> shift, rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
    return sign | (u16)(whole + (rest > half || (rest == half && (whole & 1))));
}

static __device__ __forceinline__ double double_of_half(u16 half) {
    u64 sign = (u64)(half & 0x8000) << 48, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) return fraction ? not_a_number() : of_bits(sign | 0x7ff0000000000000ull);
    if (exponent == 0) return of_bits(sign | bits_of(mul((double)fraction, 0x1p-24)));
    return of_bits(sign | (exponent + 1008) << 52 | fraction << 42);
}

// To bfloat16, to nearest, ties to even.
static __device__ __forceinline__ u16 bfloat_of(float value) {
    u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static __device__ __forceinline__ double double_of_float(float value) { return value != value ? not_a_number() : (double)value; }

// A type: `number` reads an element as a double, `stored` rounds one (by way of float32 where it is narrower), `cut` wraps an integer.
template <int code> struct Type;

template <> struct Type<FLOAT64> {
    typedef u64 Bits;
    static const bool is_float = true;
    static __device__ __forceinline__ double number(Bits bits) { return is_nan(of_bits(bits)) ? not_a_number() : of_bits(bits); }
    static __device__ __forceinline__ Bits stored(double value) { return bits_of(is_nan(value) ? not_a_number() : value); }
};
template <> struct Type<FLOAT32> {
    typedef u32 Bits;
    static const bool is_float = true;
    static __device__ __forceinline__ double number(Bits bits) { return double_of_float(__uint_as_float(bits)); }
    static __device__ __forceinline__ Bits stored(double value) { return is_nan(value) ? 0x7fc00000u : __float_as_uint(__double2float_rn(value)); }
};
template <> struct Type<FLOAT16> {
    typedef u16 Bits;
    static const bool is_float = true;
    static __device__ __forceinline__ double number(Bits bits) { return double_of_half(bits); }
    static __device__ __forceinline__ Bits stored(double value) { return half_of(__double2float_rn(value)); }
};
template <> struct Type<BFLOAT16> {
    typedef u16 Bits;
    static const bool is_float = true;
    static __device__ __forceinline__ double number(Bits bits) { return double_of_float(__uint_as_float((u32)bits << 16)); }
    static __device__ __forceinline__ Bits stored(double value) { return bfloat_of(__double2float_rn(value)); }
};
template <class Unsigned, class Signed> struct Integer {
    typedef Unsigned Bits;
    static const bool is_float = false;
    static __device__ __forceinline__ double number(Bits bits) { return (double)(Signed)bits; }
    static __device__ __forceinline__ Bits cut(i64 value) { return (Bits)value; }
};
template <> struct Type<INT64> : Integer<u64, i64> {};
template <> struct Type<INT32> : Integer<u32, int> {};
template <> struct Type<INT16> : Integer<u16, short> {};
template <> struct Type<INT8> : Integer<u8, signed char> {};
template <> struct Type<UINT8> : Integer<u8, u8> {};
// Any byte is read as it is, so that two is not taken for true; what is stored is zero or one.
template <> struct Type<BOOLEAN> : Integer<u8, u8> {
    static __device__ __forceinline__ Bits cut(i64 value) { return value != 0; }
};

#define TYPE_CASE(code, ...)     \
    case code: {                 \
        typedef Type<code> T;    \
        __VA_ARGS__;             \
        break;                   \
    }
// Runs a statement in which `T` is the type of that code.
#define WITH_TYPE(code, ...)                  \
    switch (code) {                           \
        TYPE_CASE(FLOAT64, __VA_ARGS__)       \
        TYPE_CASE(FLOAT32, __VA_ARGS__)       \
        TYPE_CASE(FLOAT16, __VA_ARGS__)       \
        TYPE_CASE(BFLOAT16, __VA_ARGS__)      \
        TYPE_CASE(INT64, __VA_ARGS__)         \
        TYPE_CASE(INT32, __VA_ARGS__)         \
        TYPE_CASE(INT16, __VA_ARGS__)         \
        TYPE_CASE(INT8, __VA_ARGS__)          \
        TYPE_CASE(UINT8, __VA_ARGS__)         \
        TYPE_CASE(BOOLEAN, __VA_ARGS__)       \
    }
