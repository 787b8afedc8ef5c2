// NaN wins.
template <class T>
inline __attribute__((always_inline)) T max_nan(T a, T b) {
    return select((a > b) | (a != a), a, b);
}
template <class T>
inline __attribute__((always_inline)) T min_nan(T a, T b) {
    return select((a < b) | (a != a), a, b);
}
