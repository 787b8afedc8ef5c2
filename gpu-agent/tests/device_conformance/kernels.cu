// Kernels that the conformance suite launches. `out` = 2 x + y is what its simulated kernels compute.

extern "C" __global__ void saxpy(const float* x, const float* y, float* out, int n, const void*, const void*) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = 2.0f * x[i] + y[i];
}

// Writes one element behind the last, too.
extern "C" __global__ void past_the_end(const float* x, const float* y, float* out, int n, const void*, const void*) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i <= n; i += gridDim.x * blockDim.x) out[i] = i < n ? 2.0f * x[i] + y[i] : 0.0f;
}

// Never ends.
extern "C" __global__ void spin(const float*, const float*, volatile float* out, int, const void*, const void*) {
    for (;;) out[0] = out[0] + 1.0f;
}
