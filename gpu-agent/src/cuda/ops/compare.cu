// How far a candidate is from the truth, over what is allowed.

// Laid out as in `reference.rs`.
struct Allowance {
    double relative, least, at_zero, greatest;
};

struct Verdict {
    u64 worst, max_error, wrong, first_wrong;
};

// What stands for another class.
static __device__ __forceinline__ double impossible() { return 1e9; }

static __device__ __forceinline__ double allowed(double truth, const Allowance& allowance, const double* by_exponent) {
    double least = truth == 0.0 ? allowance.at_zero : allowance.least;
    return add(add(by_exponent[exponent_of(truth)], mul(allowance.relative, magnitude(truth))), least);
}

static __device__ __forceinline__ bool same_class(double a, double b) {
    return (is_finite(a) && is_finite(b)) || (is_nan(a) && is_nan(b)) || a == b;
}

// At the end of a type's range a few roundings decide between the greatest number and infinity.
static __device__ __forceinline__ bool overflows(double finite, double infinite, const Allowance& allowance, const double* by_exponent) {
    bool apart = is_finite(infinite) || is_nan(infinite) || !is_finite(finite) || (bits_of(finite) ^ bits_of(infinite)) >> 63;
    return !apart && add(magnitude(finite), allowed(finite, allowance, by_exponent)) >= allowance.greatest;
}

static __device__ double distance(double value, double expected, const Allowance& allowance, const double* by_exponent) {
    if (!same_class(value, expected)) {
        bool near = overflows(expected, value, allowance, by_exponent) || overflows(value, expected, allowance, by_exponent);
        return near ? 0.0 : impossible();
    }
    if (!is_finite(value) || value == expected) return 0.0;
    double a = allowed(expected, allowance, by_exponent), b = allowed(value, allowance, by_exponent);
    double ratio = divide(magnitude(add(value, -expected)), a > b ? a : b);
    return ratio <= impossible() ? ratio : impossible();
}

// Where the baseline is of another class than the truth, it is as good a witness as the truth.
static __device__ double ratio_of(double value, double truth, double baseline, const Allowance& allowance, const double* by_exponent) {
    double to_truth = distance(value, truth, allowance, by_exponent);
    if (same_class(truth, baseline)) return to_truth;
    double to_baseline = distance(value, baseline, allowance, by_exponent);
    return to_baseline < to_truth ? to_baseline : to_truth;
}

template <class T, bool is_float> struct Judged;
template <class T> struct Judged<T, true> {
    static __device__ double ratio(typename T::Bits value, typename T::Bits baseline, double truth, const double* rounded,
                                   const Allowance& allowance, const double* by_exponent) {
        double number = T::number(value), reference = T::number(baseline);
        double ratio = ratio_of(number, truth, reference, allowance, by_exponent);
        if (!(ratio > 1.0) || !rounded) return ratio;
        double other = ratio_of(number, *rounded, reference, allowance, by_exponent);
        return other < ratio ? other : ratio;
    }
};
// Integers are equal to the truth, or to the baseline where that breaks a near-tie otherwise.
template <class T> struct Judged<T, false> {
    static __device__ double ratio(typename T::Bits value, typename T::Bits baseline, double truth, const double* rounded,
                                   const Allowance&, const double*) {
        double number = T::number(value);
        return value == baseline || number == truth || (rounded && number == *rounded) ? 0.0 : impossible();
    }
};

template <class Bits> static __device__ __forceinline__ bool still_poison(Bits value, u64 key, u64 position) {
    u64 offset = position * sizeof(Bits);
    return value == (Bits)(stream_word(key, offset / 8) >> 8 * (offset % 8));
}

struct Compared {
    const u8 *values, *baseline;
    const double *truth, *rounded;
    u64 count, values_key, truth_key;
};

// What one thread finds; the doubles as bits.
struct Found {
    u64 worst, max_error, wrong, first;
};

template <class T> static __device__ Found compare_all(const Compared& what, const Allowance& allowance, const double* by_exponent) {
    typedef typename T::Bits Bits;
    Found found = {0, 0, 0, ~0ull};
    for (u64 i = first_position(); i < what.count; i += stride()) {
        Bits value = ((const Bits*)what.values)[i];
        double exact = what.truth[i], ratio;
        if (bits_of(exact) == stream_word(what.truth_key, i)) {
            ratio = still_poison(value, what.values_key, i) ? 0.0 : impossible();
        } else {
            Bits baseline = ((const Bits*)what.baseline)[i];
            ratio = Judged<T, T::is_float>::ratio(value, baseline, exact, what.rounded ? what.rounded + i : 0, allowance, by_exponent);
            double number = T::number(value);
            if (is_finite(number) && is_finite(exact)) {
                u64 error = bits_of(magnitude(add(number, -exact)));
                found.max_error = error > found.max_error ? error : found.max_error;
            }
        }
        found.worst = bits_of(ratio) > found.worst ? bits_of(ratio) : found.worst;
        if (ratio > 1.0) {
            found.wrong += 1;
            found.first = i < found.first ? i : found.first;
        }
    }
    return found;
}

// Raises and adds to the fields of `verdict`; `first_wrong` is a complement. `rounded` may be null.
OP compare(Compared what, u32 code, Allowance allowance, const double* by_exponent, Verdict* verdict) {
    Found found = {0, 0, 0, ~0ull};
    WITH_TYPE(code, found = compare_all<T>(what, allowance, by_exponent))
    raise(&verdict->worst, found.worst);
    raise(&verdict->max_error, found.max_error);
    accumulate(&verdict->wrong, found.wrong);
    raise(&verdict->first_wrong, ~found.first);
}
