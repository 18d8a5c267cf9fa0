#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

static at::Tensor read(const std::string& path, long rows, long columns) {
  at::Tensor tensor = at::full({rows, columns}, -1, at::kFloat);
  FILE* file = std::fopen(path.c_str(), "rb");
  if (!file || std::fread(tensor.data_ptr<float>(), 4, size_t(rows * columns), file) != size_t(rows * columns))
    throw std::runtime_error(path + " cannot be read");
  std::fclose(file);
  return tensor;
}

static void write(const std::string& path, const at::Tensor& given) {
  at::Tensor tensor = given.contiguous();
  FILE* file = std::fopen(path.c_str(), "wb");
  if (!file || std::fwrite(tensor.data_ptr<float>(), 4, size_t(tensor.numel()), file) != size_t(tensor.numel()) ||
      std::fclose(file) != 0)
    throw std::runtime_error(path + " cannot be written");
}

int main(int argc, char** argv) {
  try {
    const std::string folder = argv[2];
    std::vector<at::Tensor> given;
    for (int at = 3; at + 1 < argc; at += 2) {
      const std::string name = folder + "/in" + std::to_string((at - 3) / 2);
      given.push_back(read(name, std::stol(argv[at]), std::stol(argv[at + 1])));
    }
    c10::InferenceMode mode;
    torch::inductor::AOTIModelPackageLoader loader{std::string(argv[1])};
    std::vector<at::Tensor> made = loader.run(given);
    for (size_t at = 0; at < made.size(); ++at) write(folder + "/out" + std::to_string(at), made[at]);
    std::printf("%zu\n", made.size());
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return 0;
}
