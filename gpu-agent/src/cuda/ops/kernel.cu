// What every op shares. The ops are one translation unit, compiled by NVRTC without any header.
//
// An op is a grid-stride loop over 64-bit positions. What it computes for a position depends on that position alone, so grids of
// any size give the same bits; `reference.rs` has the same algorithms in Rust. Doubles are added and multiplied through the named
// roundings below, which no compiler fuses.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define OP extern "C" __global__ void

// Sixteen bytes that are loaded and stored at once.
struct __align__(16) Pack {
    u64 low, high;
};

static __device__ __forceinline__ u64 first_position() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ __forceinline__ u64 stride() { return (u64)gridDim.x * blockDim.x; }

// How many packs of `bytes` bytes can be taken whole: none where the address does not allow it.
static __device__ __forceinline__ u64 whole_packs(const void* at, u64 bytes) { return (u64)at % sizeof(Pack) == 0 ? bytes / sizeof(Pack) : 0; }

static __device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
static __device__ __forceinline__ double mul(double a, double b) { return __dmul_rn(a, b); }
static __device__ __forceinline__ double divide(double a, double b) { return __ddiv_rn(a, b); }
static __device__ __forceinline__ u64 bits_of(double value) { return (u64)__double_as_longlong(value); }
static __device__ __forceinline__ double of_bits(u64 bits) { return __longlong_as_double((i64)bits); }
static __device__ __forceinline__ bool is_finite(double value) { return (bits_of(value) >> 52 & 0x7ff) != 0x7ff; }
static __device__ __forceinline__ bool is_nan(double value) { return value != value; }
static __device__ __forceinline__ double magnitude(double value) { return of_bits(bits_of(value) & 0x7fffffffffffffffull); }

// Raises `*most` to the greatest `value` of the block. Zero counts as nothing. Doubles that are not negative order as their bits do.
static __device__ void raise(u64* most, u64 value) {
    __shared__ u64 greatest;
    __syncthreads();
    if (threadIdx.x == 0) greatest = 0;
    __syncthreads();
    if (value > greatest) atomicMax(&greatest, value);
    __syncthreads();
    if (threadIdx.x == 0 && greatest != 0) atomicMax(most, greatest);
}

// Adds the block's `value`s to `*sum`.
static __device__ void accumulate(u64* sum, u64 value) {
    __shared__ u64 total;
    __syncthreads();
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    if (value != 0) atomicAdd(&total, value);
    __syncthreads();
    if (threadIdx.x == 0 && total != 0) atomicAdd(sum, total);
}
