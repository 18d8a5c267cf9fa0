"""Faults of the libraries that a process maps, and of the wheels that brought them.

Most of them need no other wheel than those of the four stacks: what an older or newer stack holds is the library of
another release, and what belongs to CUDA 12 or 13 is the library of another major.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from fault import Case, Fault, auditing, probing, sound
from stacks import Bench, Stack, pristine, wheel

CUDART12 = "nvidia/cuda_runtime/lib/libcudart.so.12"
CUDART13 = "nvidia/cu13/lib/libcudart.so.13"
CUDNN = "nvidia/cudnn/lib"


def of(stack: str, name: str) -> Path:
    """A file of an unbroken stack, for others to open or to take."""
    return pristine(stack).site / name


def stray(bench: Bench, source: Path) -> Path:
    """A copy of ``source`` in a folder that no wheel owns; a copy and no link, for ld.so knows a file by its inode."""
    target = bench.folder / "stray" / source.name
    target.parent.mkdir(exist_ok=True)
    shutil.copy2(source.resolve(), target)
    return target


def swapped(bench: Bench, stack: str, distribution: str, giver: str, instead: str = "") -> Stack:
    """``stack`` with the release of ``distribution`` that the stack ``giver`` has."""
    made = bench.stack(stack)
    made.swap(distribution, pristine(giver), instead)
    return made


# A: where libraries come from


def _older_cudart_first(bench: Bench) -> Case:
    stack, older = bench.stack("t215"), of("t211", CUDART13)
    stack.early(older)
    return probing(stack, str(older), str(stack.site / CUDART13))


def _own_cudart_first(bench: Bench) -> Case:
    stack = bench.stack("t215")
    stack.early(stack.site / CUDART13)
    return probing(stack)


def _other_major_preloaded(bench: Bench) -> Case:
    other = of("t26", CUDART12)
    return probing(pristine("t215"), str(other), env={"LD_PRELOAD": str(other)})


def _own_cudart_preloaded(bench: Bench) -> Case:
    stack = pristine("t215")
    return probing(stack, env={"LD_PRELOAD": str(stack.site / CUDART13)})


def _same_release_first(bench: Bench) -> Case:
    stack = bench.stack("t26")
    copy = stray(bench, stack.site / CUDART12)
    stack.early(copy)
    return probing(stack, str(copy))


def _own_first(bench: Bench) -> Case:
    stack = bench.stack("t26")
    stack.early(stack.site / CUDART12)
    return probing(stack)


def _same_cudnn_on_library_path(bench: Bench) -> Case:
    other = of("t24", CUDNN)
    return probing(pristine("t26"), str(other), env={"LD_LIBRARY_PATH": str(other)})


def _library_path_against_rpath(bench: Bench) -> Case:
    other = of("t24", CUDART12).parent
    return probing(pristine("t26"), env={"LD_LIBRARY_PATH": str(other)})


def _nccl_of_two_wheels(bench: Bench) -> Case:
    stack = bench.stack("t211")
    stack.lay(pristine("t26"), "nvidia-nccl-cu12")
    return probing(stack, "nvidia-nccl-cu12", "nvidia-nccl-cu13", str(stack.site / "nvidia/nccl/lib/libnccl.so.2"))


def _two_wheels_side_by_side(bench: Bench) -> Case:
    stack = bench.stack("t211")
    stack.lay(pristine("t26"), "nvidia-cusparselt-cu12")
    return probing(stack)


def _patched_byte(bench: Bench) -> Case:
    stack = bench.stack("t26")
    name = "nvidia/nvtx/lib/libnvToolsExt.so.1"
    data = bytearray((stack.site / name).read_bytes())
    data[-1] ^= 1
    return probing(stack, str(stack.write(name, bytes(data))))


def _written_anew(bench: Bench) -> Case:
    stack = bench.stack("t26")
    name = "nvidia/nvtx/lib/libnvToolsExt.so.1"
    stack.write(name, (stack.site / name).read_bytes())
    return probing(stack)


def _older_nvtx(bench: Bench) -> Case:
    return probing(swapped(bench, "t26", "nvidia-nvtx-cu12", "t24"), "nvidia-nvtx-cu12", "12.1.105")


def _newer_nvjitlink(bench: Bench) -> Case:
    return probing(swapped(bench, "t26", "nvidia-nvjitlink-cu12", "t24"))


def _two_variants(bench: Bench) -> Case:
    stack = bench.stack("t215")
    for name in ("jax-cuda12-plugin", "jax-cuda13-plugin"):
        stack.lay(wheel(f"{name}==0.10.2"), name)
    return probing(stack, "jax-cuda12-plugin", "jax-cuda13-plugin")


def _one_variant(bench: Bench) -> Case:
    stack = bench.stack("t215")
    stack.lay(wheel("jax-cuda13-plugin==0.10.2"), "jax-cuda13-plugin")
    return probing(stack)


# B: which versions meet


def _older_runtime_wheel(bench: Bench) -> Case:
    stack = swapped(bench, "t26", "nvidia-cuda-runtime-cu12", "t24")
    return probing(stack, str(stack.site / CUDART12), "12.1", "12.4")


def _newer_runtime_wheel(bench: Bench) -> Case:
    return probing(swapped(bench, "t24", "nvidia-cuda-runtime-cu12", "t26"))


def _older_cudnn(bench: Bench) -> Case:
    return probing(swapped(bench, "t215", "nvidia-cudnn-cu13", "t211"), "9.19.0", "9.26.0")


def _newer_cudnn(bench: Bench) -> Case:
    return probing(swapped(bench, "t211", "nvidia-cudnn-cu13", "t215"))


def _cudnn_on_library_path(bench: Bench) -> Case:
    other = wheel("nvidia-cudnn-cu12==9.5.1.17").site / CUDNN
    return probing(pristine("t26"), str(other), env={"LD_LIBRARY_PATH": str(other)})


def _incomplete_cudnn(bench: Bench) -> Stack:
    stack = bench.stack("t211")
    stack.swap("nvidia-cudnn-cu13", wheel("nvidia-cudnn-cu13==9.20.0.48"))
    return stack


def _cudnn_for_other_major(bench: Bench) -> Case:
    stack = swapped(bench, "t26", "nvidia-cudnn-cu12", "t211", "nvidia-cudnn-cu13")
    return probing(stack, str(stack.site / CUDNN), "CUDA 13")


def _cublaslt_first(bench: Bench) -> Case:
    stack, older = bench.stack("t26"), of("t24", "nvidia/cublas/lib/libcublasLt.so.12")
    stack.early(older)
    return probing(stack, str(older), "12.1.3", "12.4.5")


def _own_cublaslt_first(bench: Bench) -> Case:
    stack = bench.stack("t26")
    stack.early(stack.site / "nvidia/cublas/lib/libcublasLt.so.12")
    return probing(stack)


def _other_builtins(bench: Bench) -> Case:
    stack = bench.stack("t26")
    folder = "nvidia/cuda_nvrtc/lib/"
    (stack.site / folder / "libnvrtc-builtins.so.12.4").unlink()
    stack.put(folder + "libnvrtc-builtins.so.12.1", of("t24", folder + "libnvrtc-builtins.so.12.1"))
    return probing(stack, str(stack.site / folder), "12.4")


def _whole_nvrtc_of_another_release(bench: Bench) -> Case:
    return probing(swapped(bench, "t26", "nvidia-cuda-nvrtc-cu12", "t24"))


def _older_nccl(bench: Bench) -> Case:
    stack = swapped(bench, "t26", "nvidia-nccl-cu12", "t24")
    return probing(stack, "2.20.5", "2.21.5", str(stack.site / "nvidia/nccl/lib/libnccl.so.2"))


def _newer_nccl(bench: Bench) -> Case:
    return probing(swapped(bench, "t24", "nvidia-nccl-cu12", "t26"))


def _nccl_for_other_major(bench: Bench) -> Case:
    stack = swapped(bench, "t26", "nvidia-nccl-cu12", "t211", "nvidia-nccl-cu13")
    return probing(stack, str(stack.site / "nvidia/nccl/lib/libnccl.so.2"), "CUDA 13")


def _older_cufft(bench: Bench) -> Case:
    stack = swapped(bench, "t26", "nvidia-cufft-cu12", "t24")
    return probing(stack, "11.0.2", "11.2.1", str(stack.site / "nvidia/cufft/lib/libcufft.so.11"))


def _newer_cufft(bench: Bench) -> Case:
    return probing(swapped(bench, "t24", "nvidia-cufft-cu12", "t26"))


def _vision(bench: Bench, release: str) -> Case:
    stack = bench.stack("t26")
    stack.lay(wheel(f"torchvision=={release}"), "torchvision")
    stack.lay(wheel("pillow==11.0.0"), "pillow")
    return probing(stack, "torchvision", release)


def _own_vision(bench: Bench) -> Case:
    return _vision(bench, "0.21.0")


def _runtime_for_cpu(bench: Bench) -> Case:
    stack = bench.stack("t26")
    for pin in ("onnxruntime==1.20.1", "flatbuffers==24.3.25", "protobuf==5.29.1", "packaging==24.2"):
        name = pin.partition("==")[0]
        stack.lay(wheel(pin), name)
    return probing(stack, "onnxruntime 1.20.1")


OLDER_PIN = frozenset({"image-torch-requirement-not-met"})

FAULTS = (
    Fault(
        "A02",
        "image-library-twice",
        "an older libcudart.so.13 is opened before torch is imported",
        _older_cudart_first,
        "torch's own libcudart.so.13 is opened before torch is imported",
        _own_cudart_first,
        also=frozenset({"image-cudart-mismatch", "image-library-from-elsewhere"}),
    ),
    Fault(
        "A03",
        "image-library-twice",
        "libcudart.so.12 is preloaded under a torch for CUDA 13",
        _other_major_preloaded,
        "torch's own libcudart.so.13 is preloaded",
        _own_cudart_preloaded,
        severity="warning",
    ),
    Fault(
        "A04",
        "image-library-from-elsewhere",
        "the same libcudart from a folder that no wheel owns is opened before torch is imported",
        _same_release_first,
        "torch's own libcudart is opened before torch is imported",
        _own_first,
    ),
    Fault(
        "A05",
        "image-library-from-elsewhere",
        "cuDNN's inner libraries come from a folder on LD_LIBRARY_PATH, of the same release",
        _same_cudnn_on_library_path,
        "another libcudart lies on LD_LIBRARY_PATH, which torch's RPATH outranks",
        _library_path_against_rpath,
        also=frozenset({"image-cudnn-mixed"}),
    ),
    Fault(
        "A09",
        "image-files-overwritten",
        "nvidia-nccl-cu12 is installed over nvidia-nccl-cu13: both write the same file",
        _nccl_of_two_wheels,
        "nvidia-cusparselt-cu12 is installed beside nvidia-cusparselt-cu13: they write different files",
        _two_wheels_side_by_side,
        also=frozenset({"image-nccl-older-than-build", "image-torch-import-fails"}),
    ),
    Fault(
        "A10",
        "image-files-overwritten",
        "one bit of a library differs from its wheel's, its size does not",
        _patched_byte,
        "the library was written again with the bytes of its wheel",
        _written_anew,
        variant="patched",
    ),
    Fault(
        "A11",
        "image-torch-requirement-not-met",
        "an older nvidia-nvtx-cu12 than torch pins is installed",
        _older_nvtx,
        "torch 2.4 with the NVTX it pins",
        sound("t24"),
    ),
    Fault(
        "A12",
        "image-frameworks-twice",
        "JAX's plugins for CUDA 12 and for CUDA 13 are both installed",
        _two_variants,
        "only the one for CUDA 13 is installed",
        _one_variant,
    ),
    Fault(
        "B01",
        "image-cudart-mismatch",
        "torch for CUDA 12.4 with the runtime of 12.1",
        _older_runtime_wheel,
        "torch for CUDA 12.1 with the runtime of 12.4",
        _newer_runtime_wheel,
        also=OLDER_PIN,
        twin_also=OLDER_PIN,
    ),
    Fault(
        "B02",
        "image-cudnn-older-than-build",
        "torch built with cuDNN 9.26 has cuDNN 9.19",
        _older_cudnn,
        "torch built with cuDNN 9.19 has cuDNN 9.26",
        _newer_cudnn,
        also=OLDER_PIN,
        twin_also=OLDER_PIN,
    ),
    Fault(
        "B03",
        "image-cudnn-mixed",
        "the folder of cuDNN 9.5.1 lies on LD_LIBRARY_PATH under a torch with cuDNN 9.1.0",
        _cudnn_on_library_path,
        "the folder of another libcudart lies on LD_LIBRARY_PATH",
        _library_path_against_rpath,
        also=frozenset(
            {
                "image-library-from-elsewhere",
                "image-library-of-other-release",  # cuDNN is asked for its version, and answers with the other one's
                "image-late-library-does-not-open",
            }
        ),
    ),
    Fault(
        "B04",
        "image-cudnn-incomplete",
        "nvidia-cudnn-cu13 9.20.0.48, which opens a library that it does not bring",
        lambda bench: probing(_incomplete_cudnn(bench), "libcudnn_engines_tensor_ir.so"),
        "nvidia-cudnn-cu13 9.26.0.51, which brings it",
        _newer_cudnn,
        also=frozenset({"image-known-bad-combination"}) | OLDER_PIN,
        twin_also=OLDER_PIN,
    ),
    Fault(
        "B04",
        "audit-cudnn-incomplete",
        "nvidia-cudnn-cu13 9.20.0.48, which opens a library that it does not bring",
        lambda bench: auditing(_incomplete_cudnn(bench).root, "libcudnn_engines_tensor_ir.so"),
        "nvidia-cudnn-cu13 9.26.0.51, which brings it",
        lambda bench: auditing(swapped(bench, "t211", "nvidia-cudnn-cu13", "t215").root),
        also=OLDER_PIN,
        twin_also=OLDER_PIN,
    ),
    Fault(
        "B05",
        "image-library-of-other-cuda",
        "cuDNN built for CUDA 13 in the place of the one for CUDA 12",
        _cudnn_for_other_major,
        "cuDNN of a later minor for the same CUDA",
        _newer_cudnn,
        also=OLDER_PIN,
        twin_also=OLDER_PIN,
        variant="cudnn",
    ),
    Fault(
        "B06",
        "image-cublas-mismatch",
        "libcublasLt of 12.1 is opened before torch is imported, whose libcublas is of 12.4",
        _cublaslt_first,
        "torch's own libcublasLt is opened before torch is imported",
        _own_cublaslt_first,
        also=frozenset({"image-library-from-elsewhere", "image-library-older-than-pinned"}),
    ),
    Fault(
        "B08",
        "image-nvrtc-builtins-mismatch",
        "libnvrtc of 12.4 lies beside libnvrtc-builtins of 12.1",
        _other_builtins,
        "libnvrtc and libnvrtc-builtins both of 12.1 under a torch for 12.4",
        _whole_nvrtc_of_another_release,
        also=frozenset({"image-files-overwritten", "image-late-library-does-not-open", "image-nvrtc-cannot-compile"}),
        twin_also=OLDER_PIN | {"image-library-older-than-pinned"},
    ),
    Fault(
        "B09",
        "image-nccl-older-than-build",
        "torch built with NCCL 2.21.5 has NCCL 2.20.5",
        _older_nccl,
        "torch built with NCCL 2.20.5 has NCCL 2.21.5",
        _newer_nccl,
        also=OLDER_PIN,
        twin_also=OLDER_PIN,
    ),
    Fault(
        "B09",
        "image-library-of-other-cuda",
        "NCCL built for CUDA 13 in the place of the one for CUDA 12",
        _nccl_for_other_major,
        "NCCL of a later minor for the same CUDA",
        _newer_nccl,
        also=OLDER_PIN,
        twin_also=OLDER_PIN,
        variant="nccl",
    ),
    Fault(
        "B11",
        "image-library-older-than-pinned",
        "torch that pins cuFFT 11.2.1 has cuFFT 11.0.2",
        _older_cufft,
        "torch that pins cuFFT 11.0.2 has cuFFT 11.2.1",
        _newer_cufft,
        severity="warning",
        also=OLDER_PIN,
        twin_also=OLDER_PIN,
    ),
    Fault(
        "F07",
        "image-framework-without-gpu",
        "ONNX Runtime's build for the CPU is installed with a torch for CUDA",
        _runtime_for_cpu,
        "torchvision's build for CUDA is installed with it",
        _own_vision,
        severity="warning",
    ),
    Fault(
        "B17",
        "image-framework-built-for-other-torch",
        "torchvision 0.19, built for torch 2.4, is installed with torch 2.6",
        lambda bench: _vision(bench, "0.19.0"),
        "torchvision 0.21, built for torch 2.6, is installed with it",
        _own_vision,
        also=frozenset({"image-framework-broken", "image-extension-does-not-load"}),
    ),
)
