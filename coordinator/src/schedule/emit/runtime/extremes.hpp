// NaN wins.
inline __attribute__((always_inline)) float max_nan(float a, float b) { return select((a > b) | (a != a), a, b); }
inline __attribute__((always_inline)) double max_nan(double a, double b) { return select((a > b) | (a != a), a, b); }
inline __attribute__((always_inline)) float min_nan(float a, float b) { return select((a < b) | (a != a), a, b); }
inline __attribute__((always_inline)) double min_nan(double a, double b) { return select((a < b) | (a != a), a, b); }
template <class T>
inline __attribute__((always_inline)) T max_nan(T a, T b) { return a > b ? a : b; }
template <class T>
inline __attribute__((always_inline)) T min_nan(T a, T b) { return a < b ? a : b; }
