// As much of CUDA as the ops need, for a C++ compiler: a block is as many threads of the host, and blocks run one after the other.
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __align__(bytes) alignas(bytes)

struct Index {
    unsigned x;
};
static thread_local Index threadIdx, blockIdx;
static Index blockDim, gridDim;
static std::barrier<>* block_barrier;

static inline void __syncthreads() { block_barrier->arrive_and_wait(); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline float __double2float_rn(double value) { return (float)value; }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned __int128)a * b >> 64; }
static inline int __ffsll(long long value) { return __builtin_ffsll(value); }

template <class To, class From> static inline To same_bits(From from) {
    To to;
    static_assert(sizeof to == sizeof from);
    std::memcpy(&to, &from, sizeof to);
    return to;
}
static inline long long __double_as_longlong(double value) { return same_bits<long long>(value); }
static inline double __longlong_as_double(long long bits) { return same_bits<double>(bits); }
static inline unsigned __float_as_uint(float value) { return same_bits<unsigned>(value); }
static inline float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }

template <class T> static inline void atomicAdd(T* to, T value) { __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
template <class T> static inline void atomicMax(T* to, T value) {
    T found = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (found < value && !__atomic_compare_exchange_n(to, &found, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

template <class Kernel> static void run_blocks(unsigned blocks, unsigned threads, Kernel kernel) {
    std::barrier<> barrier(threads);
    block_barrier = &barrier;
    gridDim.x = blocks;
    blockDim.x = threads;
    std::vector<std::thread> block;
    for (unsigned thread = 0; thread < threads; ++thread) {
        block.emplace_back([=] {
            threadIdx.x = thread;
            for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
                kernel();
                __syncthreads();  // shared memory is the next block's
            }
        });
    }
    for (auto& thread : block) thread.join();
}

// Takes a kernel's parameters from where `cuLaunchKernel` would.
template <class... Parameters, std::size_t... Positions>
static void run_with(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, void** arguments, std::index_sequence<Positions...>) {
    run_blocks(blocks, threads, [=] { kernel(*(Parameters*)arguments[Positions]...); });
}
template <class... Parameters> static void run(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, void** arguments) {
    run_with(kernel, blocks, threads, arguments, std::index_sequence_for<Parameters...>());
}
