extern "C" __global__ void stride_map(const unsigned* a, unsigned* out, unsigned* visits, unsigned n)
{
#ifdef SKIPPED
    if (blockIdx.x == 0) return;
#endif
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        out[i] = a[i] * 2654435761u + i;
        atomicAdd(visits + i, 1u);
    }
}
