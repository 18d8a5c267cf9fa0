#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

__global__ void twice_plus_one(const float* given, float* out, int64_t size) {
  int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at < size) out[at] = given[at] * 2.0f + 1.0f;
}

void apply(torch::Tensor given, torch::Tensor out, bool current) {
  TORCH_CHECK(given.is_cuda() && out.device() == given.device(), "apply: expected two tensors of one GPU");
  TORCH_CHECK(given.is_contiguous() && out.is_contiguous() && out.numel() == given.numel(), "apply: shapes differ");
  const c10::cuda::CUDAGuard guard(given.device());
  cudaStream_t stream = current ? c10::cuda::getCurrentCUDAStream().stream() : nullptr;
  const int64_t size = given.numel();
  twice_plus_one<<<(size + 255) / 256, 256, 0, stream>>>(given.data_ptr<float>(), out.data_ptr<float>(), size);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
