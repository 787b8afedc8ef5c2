// Quotients and remainders as Python's (floor) and C's (trunc); a zero divisor gives zero instead of a signal.
template <class T>
inline T trunc_div(T a, T b) { return b == 0 ? T(0) : b == T(-1) ? T(0 - static_cast<uint64_t>(a)) : T(a / b); }
template <class T>
inline T trunc_mod(T a, T b) { return b == 0 || b == T(-1) ? T(0) : T(a % b); }
template <class A, class B>
inline int64_t floor_div(A a, B b) {
    const int64_t quotient = trunc_div<int64_t>(a, b);
    return quotient - (trunc_mod<int64_t>(a, b) != 0 && (a < 0) != (b < 0));
}
template <class A, class B>
inline int64_t floor_mod(A a, B b) {
    const int64_t rest = trunc_mod<int64_t>(a, b);
    return rest + (rest != 0 && (rest < 0) != (b < 0) ? b : 0);
}
template <class T>
inline T floor_fmod(T a, T b) {
    const T rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
inline int64_t wrap_index(int64_t at, int64_t size) { return at < 0 ? at + size : at; }
// An index outside its buffer ends the program, as the compiler's own code does.
inline int64_t checked_index(int64_t at, int64_t size, bool needed) {
    if (needed && (at < 0 || at >= size)) {
        std::fprintf(stderr, "index out of bounds: 0 <= %lld < %lld\n", static_cast<long long>(at), static_cast<long long>(size));
        std::abort();
    }
    return needed ? at : 0;
}
