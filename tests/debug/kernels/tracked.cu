// An operator of two kernels with torch's tracked assertions: a thread of the first ends where its assertion fails, and
// what it should have written is then used by the second.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDADeviceAssertion.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

__global__ void plan(const int64_t* starts, int64_t* order, int count, int64_t length, TORCH_DSA_KERNEL_ARGS) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  CUDA_KERNEL_ASSERT2(starts[at] < length);  // tracked
  order[at] = starts[at];
}

__global__ void place(const int64_t* order, float* out, int count, TORCH_DSA_KERNEL_ARGS) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) out[order[at]] = 1.0f;
}

static void placed(const at::Tensor& starts, const at::Tensor& order, const at::Tensor& out) {
  auto stream = c10::cuda::getCurrentCUDAStream();
  int count = static_cast<int>(starts.numel()), blocks = (count + 255) / 256;
  auto* from = starts.const_data_ptr<int64_t>();
  auto* to = order.mutable_data_ptr<int64_t>();
  TORCH_DSA_KERNEL_LAUNCH(plan, blocks, 256, 0, stream, from, to, count, out.numel());
  TORCH_DSA_KERNEL_LAUNCH(place, blocks, 256, 0, stream, to, out.mutable_data_ptr<float>(), count);
}

TORCH_LIBRARY(tracked, library) {
  library.def("placed(Tensor starts, Tensor order, Tensor out) -> ()");
}

TORCH_LIBRARY_IMPL(tracked, CUDA, library) {
  library.impl("placed", placed);
}
