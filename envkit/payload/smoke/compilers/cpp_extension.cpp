#include <string>
#include <vector>

std::vector<torch::Tensor> apply(const std::vector<torch::Tensor>& given) {
  std::vector<torch::Tensor> made;
  for (const auto& tensor : given) {
    TORCH_CHECK(tensor.is_contiguous(), "not contiguous: ", tensor.toString());
    auto out = torch::full_like(tensor, -1);
    AT_DISPATCH_ALL_TYPES(tensor.scalar_type(), "apply", [&] {
      const scalar_t* from = tensor.data_ptr<scalar_t>();
      scalar_t* to = out.data_ptr<scalar_t>();
      for (int64_t at = 0; at < tensor.numel(); ++at) to[at] = from[at] * 2 + 1;
    });
    made.push_back(out);
  }
  return made;
}

std::string kind(const torch::Tensor& tensor) { return tensor.toString(); }

int64_t new_abi() { return _GLIBCXX_USE_CXX11_ABI; }
