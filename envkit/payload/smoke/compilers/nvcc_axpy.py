"""A CUDA program of one's own: compiled by nvcc for this GPU, linked with cudart and cuBLAS, run as a process.

It adds whole numbers with a kernel and with cuBLAS; the copy back waits for the kernel by an event, on another stream.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
from typing import Any

from envkit.payload import isolate, programs
from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import stages
from envkit.payload.smoke.compilers.lacking import lacking_nvcc, nvcc

SOURCE = r"""
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
"""
_SIZE, _FACTOR = (1 << 20) + 13, 3
_BUILD_S, _RUN_S = 150.0, 60.0
_SAID = 2000


def toolkit(said: str) -> str:
    """The toolkit's folder by what ``nvcc --dryrun`` prints, since nvcc may be a wrapper; empty if it tells none."""
    found = re.search(r"^#\$ TOP=(.+)$", said, re.MULTILINE)
    return os.path.realpath(found[1].strip()) if found else ""


def cublas(root: str) -> str:
    """The folder of cuBLAS's library in a toolkit that has its header too, else empty."""
    if not root or not os.path.exists(os.path.join(root, "include", "cublas_v2.h")):
        return ""
    places = [os.path.join(root, "lib64"), *glob.glob(os.path.join(root, "targets", "*", "lib"))]
    return next((place for place in places if os.path.exists(os.path.join(place, "libcublas.so"))), "")


def must(what: str, command: list[str], timeout_s: float) -> str:
    """What the command printed; raises stages.Ended, with the CUDA error that it names, where it does not return 0."""
    code, said = programs.told(command, timeout_s)
    if code == 0:
        return said
    error = re.search(r"^cuda: (\d+ \w+)$", said, re.MULTILINE)
    how = f"signal {-code}" if code < 0 else f"status {code}"
    text = f"{what} ended with {how}: {said[:_SAID] or 'it said nothing'}"
    raise stages.Ended(text, isolate.Ending("raised", text, cuda=error[1] if error else ""))


def build(folder: str, arch: str) -> tuple[str, bool]:
    """Compiles the program for ``arch`` in ``folder``; its path, and whether cuBLAS is in it."""
    source, program = os.path.join(folder, "axpy.cu"), os.path.join(folder, "axpy")
    with open(source, "w") as file:
        file.write(SOURCE)
    library = cublas(toolkit(programs.told([nvcc(), "--dryrun", source, "-o", program], _RUN_S)[1]))
    words = [nvcc(), f"-arch={arch}", source, "-o", program]
    if library:
        words += ["-DWITH_CUBLAS", "-L" + library, "-Xlinker", f"-rpath={library}", "-lcublas"]
    must("nvcc", words, _BUILD_S)
    return program, bool(library)


def raw(tensor: Any) -> bytes:
    """The bytes of a contiguous CPU tensor, without numpy."""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def run(bench: Bench) -> None:
    """Measures ``kernel.wrong``, ``cublas.offered`` and ``cublas.wrong``."""
    bench.not_applicable_if(lacking_nvcc("the program is built"))
    folder = stages.own_folder(bench, "nvcc-axpy")
    major, minor = torch.cuda.get_device_capability(bench.device)
    program, with_cublas = build(folder, f"sm_{major}{minor}")
    random = bench.random()
    x, y = (torch.randint(-(2**20), 2**20, (_SIZE,), generator=random).float() for _ in range(2))
    given, made = os.path.join(folder, "input"), os.path.join(folder, "output")
    with open(given, "wb") as file:
        file.write(raw(x) + raw(y))
    index = str(torch.device(bench.device).index or 0)
    words = [program, index, str(_SIZE), str(_FACTOR), given, made]
    must("the program", words, _RUN_S)
    with open(made, "rb") as file:
        got = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    bench.exact("kernel.wrong", got[:_SIZE], x * _FACTOR + y)
    bench.note("cublas.offered", with_cublas)
    if with_cublas:
        bench.exact("cublas.wrong", got[_SIZE:], x * _FACTOR + y)
