extern "C" __global__ void barrier(volatile unsigned* in, volatile unsigned* out, int fault)
{
    int at = threadIdx.x;
    unsigned value = in[at] + 1;
    if (!fault || at < 48) {
        __syncthreads(); // here
    }
    out[at] = value;
}
