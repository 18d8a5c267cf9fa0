extern "C" __global__ void unset(volatile unsigned* in, volatile unsigned* out, int fault)
{
    int at = threadIdx.x;
    unsigned value = in[at]; // here
    out[at] = value + 1;
}
