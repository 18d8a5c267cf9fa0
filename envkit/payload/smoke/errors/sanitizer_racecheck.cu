extern "C" __global__ void race(volatile unsigned* in, volatile unsigned* out, int fault)
{
    __shared__ unsigned shared[64];
    int at = threadIdx.x;
    shared[at] = in[at] + 1; // here
    if (!fault) __syncthreads();
    out[at] = shared[63 - at]; // here
}
