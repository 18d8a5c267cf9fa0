"""What is asked of the environment variables that an image sets: what bends the linker, what slows a job down."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from envkit.model import Finding, Severity, Skip
from envkit.subjects.audit import Audit
from envkit.subjects.image import Image, Variable

_CUDA_LIBRARY = re.compile(
    r"lib(cuda|cudart|cublas\w*|cudnn\w*|cufft\w*|curand|cusolver\w*|cusparse\w*|nccl|nvrtc[\w-]*|nvJitLink|nvidia-\w+)\.so"
)
_CUDA_DIRECTORY = re.compile(r"cuda|cudnn|nccl|nvidia/\w+/lib", re.IGNORECASE)
_HOSTS = ("/usr/local/nvidia/lib", "/usr/local/nvidia/lib64")  # where the container toolkit once put the driver


def image_loader_variables(image: Image | Audit) -> Iterator[Finding]:
    """LD_LIBRARY_PATH names no stubs directory, and neither it nor LD_PRELOAD puts other CUDA libraries first.

    The stubs are an error: their libcuda shadows the driver.  The rest is a note, for it decides which library torch
    binds and other checks say whether that one fits.  Source: ld.so(8): LD_LIBRARY_PATH comes before RUNPATH and the
    cache.
    """
    variables = {one.name: one.value for one in image.variables.need("the environment variables")}
    directories = [entry for entry in re.split("[:;]", variables.get("LD_LIBRARY_PATH", "")) if entry]
    preloads = variables.get("LD_PRELOAD", "").replace(":", " ").split()
    if not directories and not preloads:
        raise Skip("neither LD_LIBRARY_PATH nor LD_PRELOAD is set")
    via = image.variables.via
    for entry in directories:
        if "stubs" in entry.split("/"):
            yield Finding(
                f"LD_LIBRARY_PATH holds {entry}, whose libcuda is a stub that shadows the driver",
                where="LD_LIBRARY_PATH",
                evidence={entry: via},
                fix="take it off LD_LIBRARY_PATH; to link against the stub, LIBRARY_PATH is enough",
            )
    others = [
        entry
        for entry in directories
        if _CUDA_DIRECTORY.search(entry)
        and entry.rstrip("/") not in _HOSTS
        and not {"stubs", "compat"} & set(entry.split("/"))
    ]
    if others:
        yield Finding(
            f"LD_LIBRARY_PATH holds {' and '.join(others)}: libraries there come before those that torch's own search "
            "names only by RUNPATH",
            Severity.NOTE,
            "LD_LIBRARY_PATH",
            dict.fromkeys(others, via),
            "wheels find their libraries without it: unset it unless something else needs it",
        )
    for path in preloads:
        if _CUDA_LIBRARY.match(posixpath.basename(path)):
            yield Finding(
                f"LD_PRELOAD holds {path}, which every process binds before its own",
                Severity.NOTE,
                "LD_PRELOAD",
                {path: via},
                "unset it once what it worked around is mended",
            )


class _Left(NamedTuple):
    """A variable that helps to find a fault and costs a job something; ``on`` says for which values."""

    on: Callable[[str], bool]
    costs: str


def _set(value: str) -> bool:
    return value.strip().lower() not in ("", "0", "false", "off", "no")


# Sources: CUDA C++ Programming Guide, environment variables; NCCL, environment variables; PyTorch, CUDA environment
# variables and torch.distributed; Triton, README; each as its own documentation words the effect.
_LEFT: dict[str, _Left] = {
    "CUDA_LAUNCH_BLOCKING": _Left(
        _set, "every kernel launch waits for its end, so that host and GPU no longer overlap"
    ),
    "CUDA_MODULE_LOADING": _Left(
        lambda value: value.strip().upper() == "EAGER",
        "every kernel is loaded at the start, which costs time and memory",
    ),
    "CUDA_FORCE_PTX_JIT": _Left(_set, "all machine code is ignored and PTX compiled at every start"),
    "CUDA_DISABLE_PTX_JIT": _Left(_set, "nothing that has only PTX for this GPU runs"),
    "CUDA_CACHE_DISABLE": _Left(_set, "what the driver compiled from PTX is compiled again at every start"),
    "NCCL_DEBUG": _Left(
        lambda value: value.strip().upper() == "TRACE", "NCCL writes a line for nearly every call of every rank"
    ),
    "NCCL_P2P_DISABLE": _Left(_set, "GPUs no longer reach one another by NVLink or PCI and copy through the host"),
    "NCCL_SHM_DISABLE": _Left(_set, "processes of one machine talk through the network"),
    "NCCL_IB_DISABLE": _Left(_set, "NCCL leaves InfiniBand and RoCE and talks TCP"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": _Left(_set, "every tensor costs a cudaMalloc and a cudaFree, which synchronise"),
    "TORCH_DISTRIBUTED_DEBUG": _Left(
        lambda value: value.strip().upper() == "DETAIL", "every collective is checked across all ranks before it runs"
    ),
    "TORCH_SHOW_DISPATCH_TRACE": _Left(_set, "every operator writes a line"),
    "TORCHDYNAMO_DISABLE": _Left(_set, "torch.compile does nothing"),
    "TRITON_DEBUG": _Left(_set, "kernels are compiled with their asserts"),
    "TRITON_INTERPRET": _Left(_set, "Triton kernels run in Python on the CPU"),
    "TRITON_ALWAYS_COMPILE": _Left(_set, "Triton's cache is not used"),
    "DISABLE_PTXAS_OPT": _Left(_set, "Triton's kernels are assembled without optimisation"),
}


def image_debug_variables_left_on(image: Image | Audit) -> Iterator[Finding]:
    """No variable that serves to find faults is left on in the environment of every process.

    Source: the documentation of CUDA, NCCL, PyTorch and Triton of each variable's effect.
    """
    variables: tuple[Variable, ...] = image.variables.need("the environment variables")
    if not variables:
        raise Skip("no variable that steers CUDA or a framework is set")
    for one in variables:
        left = _LEFT.get(one.name)
        if left is not None and left.on(one.value):
            yield Finding(
                f"{one.name} is `{one.value}`: {left.costs}",
                Severity.WARNING,
                one.name,
                {f"{one.name}={one.value}": image.variables.via},
                f"unset {one.name} in the image and set it for the one run that needs it",
            )
