extern "C" __global__ void add_one(const unsigned* a, const unsigned* b, unsigned* c, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void add_four(const unsigned* a, const unsigned* b, unsigned* c, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned head = (unsigned)((16ull - ((unsigned long long)a & 15ull)) & 15ull) / 4u;
    if (head > n) head = n;
    unsigned quads = (n - head) / 4u;
    unsigned tail = head + quads * 4u;
    if (i < head) c[i] = a[i] + b[i];
    if (i < quads) {
        uint4 x = *(const uint4*)(a + head + 4u * i);
        uint4 y = *(const uint4*)(b + head + 4u * i);
        *(uint4*)(c + head + 4u * i) = make_uint4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    }
    if (tail + i < n) c[tail + i] = a[tail + i] + b[tail + i];
}
