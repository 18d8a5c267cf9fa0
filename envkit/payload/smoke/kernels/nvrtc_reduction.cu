typedef unsigned long long u64;

#ifdef LOST
#define BARRIER
#else
#define BARRIER __syncthreads()
#endif

extern "C" __global__ void reduce_tree(const unsigned* x, unsigned n, u64* out)
{
    __shared__ u64 sums[THREADS];
    __shared__ unsigned xors[THREADS], least[THREADS], most[THREADS];
    unsigned me = threadIdx.x;
    sums[me] = 0xA5A5A5A5A5A5A5A5ull;
    xors[me] = least[me] = most[me] = 0xA5A5A5A5u;
    __syncthreads();
    u64 sum = 0;
    unsigned bits = 0, low = 0xFFFFFFFFu, high = 0;
    for (unsigned i = blockIdx.x * blockDim.x + me; i < n; i += gridDim.x * blockDim.x) {
        unsigned value = x[i];
        sum += value;
        bits ^= value;
        low = value < low ? value : low;
        high = value > high ? value : high;
    }
    if (me / 32 == THREADS / 32 - 1) {
        long long start = clock64(), now = start;
        while (now - start < LATE) now = clock64();
        sum += now < start;  // never true; it keeps the compiler from writing the sum before the wait
    }
    sums[me] = sum;
    xors[me] = bits;
    least[me] = low;
    most[me] = high;
    BARRIER;
    for (unsigned half = THREADS / 2; half; half /= 2) {
        if (me < half) {
            sums[me] += sums[me + half];
            xors[me] ^= xors[me + half];
            least[me] = least[me + half] < least[me] ? least[me + half] : least[me];
            most[me] = most[me + half] > most[me] ? most[me + half] : most[me];
        }
        BARRIER;
    }
    if (me == 0) {
        atomicAdd(out, sums[0]);
        atomicXor(out + 1, (u64)xors[0]);
        atomicMin(out + 2, (u64)least[0]);
        atomicMax(out + 3, (u64)most[0]);
    }
}
