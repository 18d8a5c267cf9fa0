extern "C" __global__ void scale_rows(const float* in, float* out, int rows, int pitch)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float value = 2.0f * in[row];
    out[(long long)row * pitch] = value; // here
}
