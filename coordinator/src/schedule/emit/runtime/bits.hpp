template <class To, class From>
inline __attribute__((always_inline)) To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "types of one size");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
