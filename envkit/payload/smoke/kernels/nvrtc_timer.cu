extern "C" __global__ void tuned(const unsigned* x, unsigned* y, unsigned n)
{
    __shared__ unsigned tile[THREADS * EACH + FIXED / 4];
    unsigned base = blockIdx.x * THREADS * EACH;
#pragma unroll
    for (unsigned k = 0; k < EACH; ++k) {
        unsigned i = base + k * THREADS + threadIdx.x;
        tile[k * THREADS + threadIdx.x] = i < n ? x[i] : 0u;
    }
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < EACH; ++k) {
        unsigned i = base + k * THREADS + threadIdx.x;
        unsigned mirror = THREADS * EACH - 1 - (k * THREADS + threadIdx.x);
        if (i < n) y[i] = tile[mirror] * 3u + i;
    }
}
