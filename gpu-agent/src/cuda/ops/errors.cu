// How far the baseline is from the truth, by binary exponent of the truth.

const u32 EXPONENTS = 2048;
// Threads of a block of `errors`; a power of two.
const u32 ERROR_THREADS = 256;

static __device__ __forceinline__ u32 exponent_of(double value) { return (u32)(bits_of(value) >> 52 & 0x7ff); }

// The truth that `value` is nearer to; the exact one where they are as near.
static __device__ __forceinline__ double nearer(double value, double truth, double rounded) {
    return magnitude(add(value, -rounded)) < magnitude(add(value, -truth)) ? rounded : truth;
}

// A block's errors: by exponent in `worst` and `seen`; returns this thread's sum of squares.
template <class T>
static __device__ double errors_of(const typename T::Bits* values, u64 count, const double* truth, const double* rounded, u64 truth_key,
                                   u64* worst, u32* seen) {
    double own = 0.0;
    for (u64 i = first_position(); i < count; i += stride()) {
        double exact = truth[i], value = T::number(values[i]);
        if (bits_of(exact) == stream_word(truth_key, i) || !is_finite(exact) || !is_finite(value)) continue;
        double near = rounded ? nearer(value, exact, rounded[i]) : exact;
        double error = magnitude(add(value, -near));
        u32 bin = exponent_of(near);
        if (bits_of(error) > worst[bin]) atomicMax(&worst[bin], bits_of(error));
        atomicAdd(&seen[bin], 1u);
        own = add(own, mul(error, error));
    }
    return own;
}

// `greatest` and `counts` are by exponent, `squares` by block. `rounded` may be null. The sum of squares has one order of additions
// whatever the device does: each lane's own, then halves of the block, then blocks by the host.
OP errors(const u8* values, u32 code, u64 count, const double* truth, const double* rounded, u64 truth_key, u64* greatest, u64* counts,
          double* squares) {
    __shared__ u64 worst[EXPONENTS];
    __shared__ u32 seen[EXPONENTS];
    __shared__ double sums[ERROR_THREADS];
    for (u32 bin = threadIdx.x; bin < EXPONENTS; bin += blockDim.x) worst[bin] = seen[bin] = 0;
    __syncthreads();
    double own = 0.0;
    WITH_TYPE(code, own = errors_of<T>((const T::Bits*)values, count, truth, rounded, truth_key, worst, seen))
    sums[threadIdx.x] = own;
    for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] = add(sums[threadIdx.x], sums[threadIdx.x + half]);
    }
    __syncthreads();
    if (threadIdx.x == 0) squares[blockIdx.x] = sums[0];
    for (u32 bin = threadIdx.x; bin < EXPONENTS; bin += blockDim.x) {
        if (worst[bin] != 0) atomicMax(&greatest[bin], worst[bin]);
        if (seen[bin] != 0) atomicAdd(&counts[bin], (u64)seen[bin]);
    }
}
