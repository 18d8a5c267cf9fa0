// A histogram on the GPU.  Some samples are lost, and nothing says where: see README.md.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "histogram.h"

struct AtomicAdd {
  __device__ void operator()(unsigned* bin) const { atomicAdd(bin, 1u); }
};

__global__ void histogram(const float* samples, int count, unsigned* bins) {
  int thread = blockIdx.x * blockDim.x + threadIdx.x;
  count_sample(samples, count, thread, bins, AtomicAdd());
}

static void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "histogram: %s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

int main() {
  const int count = 100000;
  std::vector<float> samples(count);
  for (int i = 0; i < count; ++i) samples[i] = sample_of(i);

  float* given;
  unsigned* bins;
  check(cudaMalloc(&given, count * sizeof(float)), "cudaMalloc");
  check(cudaMalloc(&bins, BINS * sizeof(unsigned)), "cudaMalloc");
  check(cudaMemcpy(given, samples.data(), count * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaMemset(bins, 0, BINS * sizeof(unsigned)), "cudaMemset");
  histogram<<<(count + 255) / 256, 256>>>(given, count, bins);
  check(cudaGetLastError(), "launch");
  check(cudaDeviceSynchronize(), "histogram");

  unsigned counted[BINS];
  check(cudaMemcpy(counted, bins, sizeof counted, cudaMemcpyDeviceToHost), "cudaMemcpy");
  unsigned total = 0;
  for (unsigned each : counted) total += each;
  std::printf("%u of %d samples are in a bin\n", total, count);
  cudaFree(bins);
  cudaFree(given);
  return total == static_cast<unsigned>(count) ? 0 : 1;
}
