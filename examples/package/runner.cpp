// Runs a package of AOTInductor without Python: runner MODEL.pt2 [cpu|cuda].  The input is checked against what export.py
// wrote into the package, for a package itself takes any pointer.
#include <torch/torch.h>

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

// Throws std::invalid_argument unless `given` is what `stated` ("float32 cuda * 64") says; only float32 is known here.
static void check(const std::string& stated, const at::Tensor& given) {
  std::istringstream words(stated);
  std::string dtype, device, size;
  words >> dtype >> device;
  if (dtype != "float32" || given.scalar_type() != at::kFloat)
    throw std::invalid_argument(std::string("it is ") + c10::toString(given.scalar_type()) + ", the package takes " + dtype);
  if (c10::DeviceTypeName(given.device().type(), /*lower_case=*/true) != device)
    throw std::invalid_argument("it is on " + c10::DeviceTypeName(given.device().type(), true) + ", the package takes " + device);
  std::vector<std::string> sizes;
  while (words >> size) sizes.push_back(size);
  bool fits = static_cast<int64_t>(sizes.size()) == given.dim();
  for (size_t at = 0; fits && at < sizes.size(); ++at)
    fits = sizes[at] == "*" || sizes[at] == std::to_string(given.size(static_cast<int64_t>(at)));
  if (!fits) throw std::invalid_argument("its shape is not the one of " + stated);
}

int main(int count, char** words) {
  if (count < 2 || count > 3) {
    std::fprintf(stderr, "usage: runner MODEL.pt2 [cpu|cuda]\n");
    return 2;
  }
  try {
    torch::inductor::AOTIModelPackageLoader package(words[1]);
    const std::string stated = package.get_metadata().at("input0");
    const bool on_gpu = count == 3 ? std::string(words[2]) == "cuda" : stated.find(" cuda ") != std::string::npos;
    const at::Tensor given = torch::ones({4, 64}, on_gpu ? at::kCUDA : at::kCPU);
    check(stated, given);
    std::vector<at::Tensor> inputs{given};
    const at::Tensor out = package.run(inputs)[0].cpu();
    std::printf("%lld rows, the first begins with %.4f\n", static_cast<long long>(out.size(0)), out[0][0].item<float>());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "runner: %s: %s\n", words[1], error.what());
    return 1;
  }
  return 0;
}
