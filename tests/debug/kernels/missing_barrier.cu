extern "C" __global__ void reverse_block(const float* in, float* out, int wait)
{
    __shared__ float shared[256];
    int at = threadIdx.x;
    shared[at] = in[blockIdx.x * 256 + at]; // here
    if (wait) __syncthreads();
    out[blockIdx.x * 256 + at] = shared[255 - at]; // here
}
