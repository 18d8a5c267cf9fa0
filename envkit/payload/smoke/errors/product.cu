extern "C" __global__ void product(const unsigned* a, const unsigned* b, unsigned* c, int n)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n * n) return;
    unsigned sum = 0;
    for (int k = 0; k < n; ++k) sum += a[at / n * n + k] * b[k * n + at % n];
    c[at] = sum;
}
