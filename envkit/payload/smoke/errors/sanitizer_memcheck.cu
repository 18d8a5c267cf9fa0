extern "C" __global__ void beyond(volatile unsigned* in, volatile unsigned* out, int fault)
{
    int at = threadIdx.x;
    unsigned value = in[at] + 1;
    out[at + fault] = value; // here
}
