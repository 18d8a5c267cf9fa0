extern "C" __global__ void shift_tail(const float* in, float* out, int count, int beyond)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) out[at + beyond] = in[at] + 1.0f; // beyond
}
extern "C" __global__ void sum_tile(const float* in, float* out, int wait)
{
    __shared__ float tile[256];
    int at = threadIdx.x;
    tile[at] = in[blockIdx.x * 256 + at]; // raced
    if (wait) __syncthreads();
    out[blockIdx.x * 256 + at] = tile[(at + 128) % 256] + tile[at];
}
extern "C" __global__ void add_carry(const float* in, float* carry, int count)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) carry[at] = carry[at] * 0.5f + in[at]; // unset
}
extern "C" __global__ void copy_rows(const float* in, float* out, int rows, int columns)
{
    int row = blockIdx.x;
    int from = row * columns;
    for (int at = threadIdx.x; at < 32; at += blockDim.x) out[row * 32 + at] = in[from + at]; // overflow
}
extern "C" __global__ void grad_rows(const float* up, float* down, int count, int step)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) down[(long long)at * step] = up[at]; // unfrozen
}
extern "C" __global__ void load_quads(const float* in, float* out, int quads)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < quads) reinterpret_cast<float4*>(out)[at] = reinterpret_cast<const float4*>(in)[at]; // quads
}
