extern "C" __global__ void count_bins(const int* in, int* out, int atomic)
{
    __shared__ int bins[16];
    int at = threadIdx.x;
    if (at < 16) bins[at] = 0;
    __syncthreads();
    int bin = in[blockIdx.x * 256 + at] & 15;
    if (atomic) {
        atomicAdd(&bins[bin], 1);
    } else {
        bins[bin] = bins[bin] + 1; // here
    }
    __syncthreads();
    if (at < 16) out[blockIdx.x * 16 + at] = bins[at];
}
