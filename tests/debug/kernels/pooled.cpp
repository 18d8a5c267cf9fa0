// What a person's own extension does on the CPU beside its tensors of the GPU; with nvcc it also speaks to CUDA.
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

static void settle()
{
#ifdef __CUDACC__
    cudaDeviceSynchronize();
#endif
}

static float sum_rows(const float* rows, int count)
{
    float sum = 0;
    for (int at = 0; at < count; at++) sum += rows[at]; // pooled
    return sum;
}

extern "C" float pooled(const float* rows, int count)
{
    settle();
    return sum_rows(rows, count) / count;
}

extern "C" void staged(char* staging, const char* rows, long count)
{
    settle();
    std::memcpy(staging, rows, count); // staged
}

static void check_width(int width)
{
    if (width % 64) throw std::runtime_error("width " + std::to_string(width)); // refused
}

extern "C" int refused(int width)
{
    settle();
    check_width(width);
    return width / 64;
}

static void flush(int* counters, int count)
{
    for (int at = 0; at < count; at++) counters[at] += 1; // flushed
}

extern "C" void flushed(int* counters, int count)
{
    std::thread writer(flush, counters, count);
    writer.join();
}
