// Input values. What a regime means is said in `recipe.rs`.

enum Regime { CAPTURED, SCALED_UP, SCALED_DOWN, NEGATIVE, FLAT, LARGE, DENORMAL, SPECIAL };
enum Source { QUANTILES, CONSTANT, NORMAL };

// Laid out as in `recipe.rs`.
struct Recipe {
    u64 seed, row, rarity, zero_below;
    i64 low;
    u64 choices;
    double constant, greatest, spacing;
    u32 quantiles, source, regime, binades, subnormal_bits, code;
};

static __device__ __forceinline__ double captured(const Recipe& recipe, const double* quantiles, u64 position) {
    Four random = philox(recipe.seed, position, 0);
    u64 bits = joined(random.b, random.c);
    if (recipe.source == NORMAL) return normal(bits);
    if (recipe.source == CONSTANT) return mul(recipe.constant, add(0.5, unit(bits)));
    if (random.a < recipe.zero_below) return 0.0;
    double at = mul(unit(bits), (double)(recipe.quantiles - 1));
    u32 below = (u32)at;
    if (below > recipe.quantiles - 2) below = recipe.quantiles - 2;
    double part = add(at, -(double)below);
    return add(mul(quantiles[below], add(1.0, -part)), mul(quantiles[below + 1], part));
}

static __device__ __forceinline__ double large(const Recipe& recipe, u64 position) {
    Four random = philox(recipe.seed, position, 0);
    u64 exponent = 1023 + 7 + ((u64)random.b * recipe.binades >> 32);
    return of_bits((u64)(random.a & 1) << 63 | exponent << 52 | joined(random.c, random.d) >> 12);
}

static __device__ __forceinline__ double denormal(const Recipe& recipe, u64 position) {
    Four random = philox(recipe.seed, position, 0);
    u32 top = 1u << ((u64)random.b * recipe.subnormal_bits >> 32);
    double size = mul((double)(top | (random.c & (top - 1))), recipe.spacing);
    return random.a & 1 ? -size : size;
}

static __device__ __forceinline__ double special(const Recipe& recipe, const double* quantiles, u64 position) {
    Four random = philox(recipe.seed, position, 1);
    if (__umul64hi(joined(random.a, random.b), recipe.rarity) != 0) return captured(recipe, quantiles, position);
    switch ((u64)random.c * 11 >> 32) {
        case 0: return not_a_number();
        case 1: return of_bits(0x7ff0000000000000ull);
        case 2: return of_bits(0xfff0000000000000ull);
        case 3: return 0.0;
        case 4: return -0.0;
        case 5: return recipe.greatest;
        case 6: return -recipe.greatest;
        case 7: return 1.2e-38;
        case 8: return -1e-40;
        case 9: return 100.0;
        default: return -100.0;
    }
}

static __device__ __forceinline__ double drawn(const Recipe& recipe, const double* quantiles, u64 position) {
    switch (recipe.regime) {
        case SCALED_UP: return mul(captured(recipe, quantiles, position), 64.0);
        case SCALED_DOWN: return mul(captured(recipe, quantiles, position), 0x1p-10);
        case NEGATIVE: return -magnitude(captured(recipe, quantiles, position));
        case FLAT: {
            Four random = philox(recipe.seed, position, 1);
            double center = captured(recipe, quantiles, position - position % recipe.row);
            return add(center, mul(1e-4, normal(joined(random.a, random.b))));
        }
        case LARGE: return large(recipe, position);
        case DENORMAL: return denormal(recipe, position);
        case SPECIAL: return special(recipe, quantiles, position);
        default: return captured(recipe, quantiles, position);
    }
}

template <class T, bool is_float> struct Drawing;
template <class T> struct Drawing<T, true> {
    static __device__ __forceinline__ typename T::Bits element(const Recipe& recipe, const double* quantiles, u64 position) {
        return T::stored(drawn(recipe, quantiles, position));
    }
};
// Integers are indices and masks: as captured in every regime. `choices` of zero stands for all 2^64.
template <class T> struct Drawing<T, false> {
    static __device__ __forceinline__ typename T::Bits element(const Recipe& recipe, const double*, u64 position) {
        Four random = philox(recipe.seed, position, 0);
        u64 bits = joined(random.a, random.b);
        return T::cut((i64)((u64)recipe.low + (recipe.choices == 0 ? bits : __umul64hi(bits, recipe.choices))));
    }
};

template <class T> static __device__ void draw_all(u8* to, u64 count, const Recipe& recipe, const double* quantiles) {
    typedef typename T::Bits Bits;
    typedef Drawing<T, T::is_float> Draw;
    const u64 half = 8 / sizeof(Bits);
    u64 packs = whole_packs(to, count * sizeof(Bits));
    for (u64 i = first_position(); i < packs; i += stride()) {
        Pack pack = {0, 0};
#pragma unroll 1  // one element is long enough already
        for (u64 j = 0; j < half; ++j) {
            pack.low |= (u64)Draw::element(recipe, quantiles, 2 * half * i + j) << 8 * sizeof(Bits) * j;
            pack.high |= (u64)Draw::element(recipe, quantiles, 2 * half * i + half + j) << 8 * sizeof(Bits) * j;
        }
        ((Pack*)to)[i] = pack;
    }
    for (u64 i = packs * 2 * half + first_position(); i < count; i += stride()) ((Bits*)to)[i] = Draw::element(recipe, quantiles, i);
}

OP draw(u8* to, u64 count, Recipe recipe, const double* quantiles) { WITH_TYPE(recipe.code, draw_all<T>(to, count, recipe, quantiles)) }
