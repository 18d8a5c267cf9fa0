#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
#ifdef WITH_CUBLAS
#include <cublas_v2.h>
#endif

static void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "cuda: %d %s\n%s\n", int(error), cudaGetErrorName(error), cudaGetErrorString(error));
  std::exit(3);
}

static void need(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(4);
}

__global__ void wait(long long cycles) {
  for (long long start = clock64(); clock64() - start < cycles;) {}
}

__global__ void axpy(int size, float factor, const float* x, const float* y, float* out) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < size) out[at] = factor * x[at] + y[at];
}

int main(int argc, char** argv) {
  need(argc == 6, "expected: device size factor input output");
  const int size = std::atoi(argv[2]);
  const float factor = float(std::atof(argv[3]));
  const size_t bytes = size_t(size) * sizeof(float);
  std::vector<float> given(size_t(size) * 2), got(size, -1.0f);
  FILE* input = std::fopen(argv[4], "rb");
  need(input && std::fread(given.data(), 1, bytes * 2, input) == bytes * 2, "the input cannot be read");
  std::fclose(input);
  FILE* output = std::fopen(argv[5], "wb");
  need(output != nullptr, "the output cannot be opened");

  must(cudaSetDevice(std::atoi(argv[1])));
  float *x, *y, *out;
  must(cudaMalloc(&x, bytes));
  must(cudaMalloc(&y, bytes));
  must(cudaMalloc(&out, bytes));
  must(cudaMemcpy(x, given.data(), bytes, cudaMemcpyHostToDevice));
  must(cudaMemcpy(y, given.data() + size, bytes, cudaMemcpyHostToDevice));
  must(cudaMemset(out, 0xff, bytes));  // NaN
  must(cudaDeviceSynchronize());
  cudaStream_t computes, copies;
  cudaEvent_t computed;
  must(cudaStreamCreateWithFlags(&computes, cudaStreamNonBlocking));
  must(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
  must(cudaEventCreateWithFlags(&computed, cudaEventDisableTiming));
  wait<<<1, 1, 0, computes>>>(200000000);
  axpy<<<(size + 255) / 256, 256, 0, computes>>>(size, factor, x, y, out);
  must(cudaGetLastError());
  must(cudaEventRecord(computed, computes));
  must(cudaStreamWaitEvent(copies, computed, 0));
  must(cudaMemcpyAsync(got.data(), out, bytes, cudaMemcpyDeviceToHost, copies));
  must(cudaStreamSynchronize(copies));
  need(std::fwrite(got.data(), 1, bytes, output) == bytes, "the output cannot be written");
  must(cudaDeviceSynchronize());
#ifdef WITH_CUBLAS
  cublasHandle_t handle;
  need(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "cublasCreate failed");
  need(cublasSaxpy(handle, size, &factor, x, 1, y, 1) == CUBLAS_STATUS_SUCCESS, "cublasSaxpy failed");
  got.assign(size, -1.0f);
  must(cudaMemcpy(got.data(), y, bytes, cudaMemcpyDeviceToHost));
  need(std::fwrite(got.data(), 1, bytes, output) == bytes, "the output cannot be written");
  need(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS, "cublasDestroy failed");
#endif
  need(std::fclose(output) == 0, "the output cannot be written");
  must(cudaFree(x));
  must(cudaFree(y));
  must(cudaFree(out));
  std::printf("done\n");
  return 0;
}
