"""Variables that serve to find faults, which checks of images, machines and launches look for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class DebugVariable(NamedTuple):
    """A variable that helps to find a fault and costs a job something; ``on`` says for which values."""

    on: Callable[[str], bool]
    costs: str


def _set(costs: str) -> DebugVariable:
    return DebugVariable(lambda value: value.strip().lower() not in ("", "0", "false", "off", "no"), costs)


def _is(word: str, costs: str) -> DebugVariable:
    return DebugVariable(lambda value: value.strip().upper() == word, costs)


# Sources: CUDA C++ Programming Guide, environment variables; NCCL, environment variables; PyTorch, CUDA environment
# variables and torch.distributed; Triton, README; each as its own documentation words the effect.
LEFT_ON: dict[str, DebugVariable] = {
    "CUDA_LAUNCH_BLOCKING": _set(
        "every kernel launch waits until the kernel ends, so that host and GPU no longer overlap"
    ),
    "CUDA_MODULE_LOADING": _is("EAGER", "every kernel is loaded at the start, which costs time and memory"),
    "CUDA_FORCE_PTX_JIT": _set("all machine code is ignored and PTX compiled at every start"),
    "CUDA_DISABLE_PTX_JIT": _set("nothing that has only PTX for this GPU runs"),
    "CUDA_CACHE_DISABLE": _set("the driver compiles PTX again at every start"),
    "NCCL_DEBUG": _is("TRACE", "NCCL writes a line for nearly every call of every rank"),
    "NCCL_P2P_DISABLE": _set("GPUs no longer reach one another by NVLink or PCI and copy through the host"),
    "NCCL_SHM_DISABLE": _set("processes of one machine communicate over the network"),
    "NCCL_IB_DISABLE": _set("NCCL does not use InfiniBand or RoCE and uses TCP"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": _set("every tensor costs a cudaMalloc and a cudaFree, which synchronise"),
    "TORCH_DISTRIBUTED_DEBUG": _is("DETAIL", "every collective is checked across all ranks before it runs"),
    "TORCH_SHOW_DISPATCH_TRACE": _set("every operator writes a line"),
    "TORCHDYNAMO_DISABLE": _set("torch.compile does nothing"),
    "TRITON_DEBUG": _set("kernels are compiled with their asserts"),
    "TRITON_INTERPRET": _set("Triton kernels run in Python on the CPU"),
    "TRITON_ALWAYS_COMPILE": _set("Triton's cache is not used"),
    "DISABLE_PTXAS_OPT": _set("Triton's kernels are assembled without optimisation"),
}
