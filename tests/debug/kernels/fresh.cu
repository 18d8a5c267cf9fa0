#include <cuda_runtime.h>

__global__ void blur_rows(const float* in, float* out, int count, int reach)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) out[at] = 0.5f * (in[at] + in[at + reach]); // beyond
}

__global__ void block_sums(const float* in, float* out, int wait)
{
    __shared__ float part[256];
    part[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x]; // raced
    if (wait) __syncthreads();
    float sum = 0.0f;
    for (int at = 0; at < 256; ++at) sum += part[at];
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void accumulate(const float* in, float* sums, int count)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) sums[at] += in[at]; // unset
}

__global__ void gather_rows(const float* const* rows, float* out, int width)
{
    const float* row = rows[blockIdx.x];
    for (int at = threadIdx.x; at < width; at += blockDim.x) out[blockIdx.x * width + at] = row[at]; // gone
}

extern "C" int blur(const float* in, float* out, int count, int reach)
{
    blur_rows<<<(count + 255) / 256, 256>>>(in, out, count, reach);
    return cudaGetLastError();
}

extern "C" int sums(const float* in, float* out, int blocks, int wait)
{
    block_sums<<<blocks, 256>>>(in, out, wait);
    return cudaGetLastError();
}

extern "C" int add(const float* in, float* sums, int count)
{
    accumulate<<<(count + 255) / 256, 256>>>(in, sums, count);
    return cudaGetLastError();
}

extern "C" int gather(const float* const* rows, float* out, int count, int width, void* stream)
{
    gather_rows<<<count, 256, 0, (cudaStream_t)stream>>>(rows, out, width);
    return cudaGetLastError();
}
