"""Variables that an image leaves behind: values that their programs do not take, contradictions, hidden GPUs.

All of them need no GPU.  One recipe of each check runs every time, the others in the night: they differ by their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from fault import Case, Fault, probing
from stacks import Bench, pristine

TITLES = {
    "V01": "a variable that its program does not take",
    "V02": "variables that contradict one another",
    "V03": "GPUs that are hidden before the job begins",
}
CATALOGUE = {
    "V01": ("image-variable-invalid",),
    "V02": ("image-variables-contradict",),
    "V03": ("image-gpus-hidden",),
}


@cache  # one function for all who ask for the same, so that its run is shared
def _with(traces: tuple[str, ...], variables: tuple[tuple[str, str], ...]) -> Callable[[Bench], Case]:
    return lambda bench: probing(pristine("t26"), *traces, env=dict(variables))


def _set(variables: Mapping[str, str], *traces: str) -> Callable[[Bench], Case]:
    """A probe of torch 2.6 with these variables."""
    return _with(traces, tuple(variables.items()))


# what is well of nearly every kind that is planted below: one run, which all of them share
TWIN = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "HF_ENDPOINT": "https://huggingface.co",
    "JAX_PLATFORMS": "cuda,cpu",
    "KMP_AFFINITY": "granularity=fine,compact,1,0",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
    "NCCL_ALGO": "^Tree",
    "NCCL_BUFFSIZE": "4194304",
    "NCCL_DEBUG": "info",
    "NCCL_IB_HCA": "mlx5_0",
    "NCCL_P2P_LEVEL": "NVL",
    "OMP_NUM_THREADS": "2,1",
    "OMP_PROC_BIND": "close",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128,",
    "RANK": "0",
    "TORCH_DISTRIBUTED_DEBUG": "info",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "WORLD_SIZE": "1",
    "XLA_FLAGS": "--xla_gpu_autotune_level=4",
}
_VALUES = {
    "allocator-key": ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segment:True", "error"),
    "allocator-boolean": ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:true", "error"),
    "allocator-split": ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:10", "error"),
    "allocator-newer": ("PYTORCH_CUDA_ALLOC_CONF", "per_process_memory_fraction:0.5", "error"),
    "allocator-name": ("PYTORCH_ALLOC_CONF", "expandable_segments:True", "warning"),
    "omp-threads": ("OMP_NUM_THREADS", "0", "warning"),
    "omp-bind": ("OMP_PROC_BIND", "yes", "warning"),
    "kmp-affinity": ("KMP_AFFINITY", "granularity=core2", "warning"),
    "cublas": ("CUBLAS_WORKSPACE_CONFIG", "4096:8", "error"),
    "ptxas": ("TRITON_PTXAS_PATH", "/nowhere/ptxas", "warning"),
    "nccl-algo": ("NCCL_ALGO", "Rings", "error"),
    "nccl-debug": ("NCCL_DEBUG", "INF0", "warning"),
    "nccl-buffer": ("NCCL_BUFFSIZE", "4MB", "warning"),
    "nccl-level": ("NCCL_P2P_LEVEL", "nvl", "warning"),
    "torch-nccl": ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "true", "error"),
    "port": ("MASTER_PORT", "70000", "error"),
    "address": ("MASTER_ADDR", "http://node0", "error"),
    "jax": ("JAX_PLATFORMS", "gpus", "error"),
    "xla": ("XLA_FLAGS", "xla_gpu_autotune_level=4", "error"),
    "hub": ("HF_ENDPOINT", "huggingface.co", "error"),
    "order": ("CUDA_DEVICE_ORDER", "PCI_BUS", "warning"),
    "some-hidden": ("CUDA_VISIBLE_DEVICES", "0,x", "error"),
}
_PAIRS = {
    "ranks": ({"RANK": "8", "WORLD_SIZE": "8"}, "error"),
    "adapters": ({"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": "mlx5_0"}, "warning"),
    "ports": ({"MASTER_PORT": "0", "WORLD_SIZE": "2"}, "error"),
    "container": ({"CUDA_VISIBLE_DEVICES": "2", "NVIDIA_VISIBLE_DEVICES": "2"}, "error"),
}
_ALSO = {"adapters": frozenset({"image-debug-variables-left-on"})}  # NCCL_IB_DISABLE is one of these as well
_HIDING = {"empty": "", "minus-one": "-1", "none": "none"}


def _emptied(bench: Bench) -> Case:
    """A .pth file empties CUDA_VISIBLE_DEVICES in every process of this Python."""
    stack = bench.stack("t26")
    pth = stack.site / "hide.pth"
    pth.write_text("import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''\n", encoding="utf-8")
    return probing(stack, "hide.pth", "CUDA_VISIBLE_DEVICES")


def _looked_at(bench: Bench) -> Case:
    """A .pth file with code that leaves the variables alone."""
    stack = bench.stack("t26")
    (stack.site / "look.pth").write_text("import os; os.environ.get('CUDA_VISIBLE_DEVICES')\n", encoding="utf-8")
    return probing(stack)


FAULTS = (
    *(
        Fault(
            "V01",
            "image-variable-invalid",
            f"{name}={value}",
            _set({name: value}, name, value),
            f"{name}={TWIN[name]}" if name in TWIN else f"other variables, and {name} is not set",
            _set(TWIN),
            severity=severity,
            nightly=variant != "allocator-key",
            variant=variant,
        )
        for variant, (name, value, severity) in _VALUES.items()
    ),
    *(
        Fault(
            "V02",
            "image-variables-contradict",
            " and ".join(f"{name}={value}" for name, value in variables.items()),
            _set(variables, *variables),
            "variables of the same kind that go together",
            _set(TWIN),
            severity=severity,
            also=_ALSO.get(variant, frozenset()),
            nightly=variant != "ranks",
            variant=variant,
        )
        for variant, (variables, severity) in _PAIRS.items()
    ),
    *(
        Fault(
            "V03",
            "image-gpus-hidden",
            f"CUDA_VISIBLE_DEVICES={value}",
            _set({"CUDA_VISIBLE_DEVICES": value}, "CUDA_VISIBLE_DEVICES"),
            "CUDA_VISIBLE_DEVICES is not set",
            _set(TWIN),
            nightly=True,
            variant=variant,
        )
        for variant, value in _HIDING.items()
    ),
    Fault(
        "V03",
        "image-gpus-hidden",
        "a .pth file empties CUDA_VISIBLE_DEVICES",
        _emptied,
        "a .pth file reads CUDA_VISIBLE_DEVICES",
        _looked_at,
        also=frozenset({"image-python-start-changes-environment"}),
        variant="pth",
    ),
)
