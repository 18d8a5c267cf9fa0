typedef unsigned short u16;
typedef unsigned long long u64;

struct Fp32 {
    typedef float Element;
    typedef float4 Vector;
    static __device__ float one(float a) { return a + a; }
    static __device__ float4 all(float4 a) { return make_float4(a.x + a.x, a.y + a.y, a.z + a.z, a.w + a.w); }
};

struct Fp16 {
    typedef u16 Element;
    typedef unsigned Vector;
    static __device__ unsigned all(unsigned a)
    {
        unsigned r = 0;
#if __CUDA_ARCH__ >= 530
        asm("add.f16x2 %0, %1, %1;" : "=r"(r) : "r"(a));
#endif
        return r;
    }
    static __device__ u16 one(u16 a) { return (u16)all(a); }
};

struct Bf16 {
    typedef u16 Element;
    typedef unsigned Vector;
    static __device__ unsigned all(unsigned a)
    {
        unsigned r = 0;
#if __CUDA_ARCH__ >= 800
        asm("fma.rn.bf16x2 %0, %1, %2, %1;" : "=r"(r) : "r"(a), "r"(0x3F803F80u));
#endif
        return r;
    }
    static __device__ u16 one(u16 a) { return (u16)all(a); }
};

template <class T> __device__ void twice(const typename T::Element* x, typename T::Element* y, unsigned n)
{
    const unsigned wide = sizeof(typename T::Vector) / sizeof(typename T::Element);
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned head = (unsigned)((0ull - (u64)x) % sizeof(typename T::Vector)) / sizeof(typename T::Element);
    if (head > n) head = n;
    unsigned vectors = (n - head) / wide, tail = head + vectors * wide;
    if (i < head) y[i] = T::one(x[i]);
    if (i < vectors)
        ((typename T::Vector*)(y + head))[i] = T::all(((const typename T::Vector*)(x + head))[i]);
#ifndef SKIPPED
    if (i < n - tail) y[tail + i] = T::one(x[tail + i]);
#endif
}

extern "C" __global__ void twice_fp32(const float* x, float* y, unsigned n) { twice<Fp32>(x, y, n); }
extern "C" __global__ void twice_fp16(const u16* x, u16* y, unsigned n) { twice<Fp16>(x, y, n); }
extern "C" __global__ void twice_bf16(const u16* x, u16* y, unsigned n) { twice<Bf16>(x, y, n); }

extern "C" __global__ void straighten(const unsigned char* x, unsigned* y, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef SKIPPED
    if (i == n - 1) return;
#endif
    if (i >= n) return;
    unsigned askew = (unsigned)((u64)x & 3u) * 8u;
    const unsigned* words = (const unsigned*)(x - askew / 8u);
    y[i] = askew ? (words[i] >> askew) | (words[i + 1] << (32u - askew)) : words[i];
}
