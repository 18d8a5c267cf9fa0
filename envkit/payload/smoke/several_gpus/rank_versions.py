"""Every rank tells what it runs on and with: torch, CUDA runtime, driver, cuDNN, the NCCL that is loaded, its GPU.

NCCL is asked itself: what torch says is the version it was built with.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from envkit.payload import mapped
from envkit.payload.lazy import torch
from envkit.payload.smoke import ranks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.ranks import Rank

_DRIVER = "/sys/module/nvidia/version"


def asked(prefix: str, function: str) -> str:
    """What a mapped library's version function says, "absent" where the library is not mapped.

    Raises RuntimeError where the function fails.
    """
    path = next((path for path in mapped.paths() if os.path.basename(path).startswith(prefix)), "")
    if not path:
        return "absent"
    number = ctypes.c_int()
    code = getattr(ctypes.CDLL(path), function)(ctypes.byref(number))
    if code:
        raise RuntimeError(f"{function} of {path} returned {code}")
    return str(number.value)


def _told(rank: Rank) -> dict[str, str]:
    told = {
        "torch": str(torch.__version__),
        "CUDA runtime": asked("libcudart.so", "cudaRuntimeGetVersion"),
        "cuDNN": str(torch.backends.cudnn.version()),
        "NCCL": asked("libnccl.so", "ncclGetVersion"),
        "CUDA of the driver": "absent",
        "driver": "absent",
        "GPU": "none",
    }
    if rank.backend == "nccl":
        told["CUDA of the driver"] = asked("libcuda.so", "cuDriverGetVersion")
        told["GPU"] = torch.cuda.get_device_name(rank.rank)
        try:
            with open(_DRIVER, encoding="ascii") as file:
                told["driver"] = file.read().strip()
        except OSError:
            pass  # a sandbox hides it from all ranks alike
    if rank.bench.injected_fault == "one" and rank.rank == rank.size - 1:
        told["NCCL"] += "1"
    return told


def _work(rank: Rank) -> list[dict[str, str]]:
    import torch.distributed as dist

    if rank.backend == "nccl":
        import torch

        with rank.step("all_reduce"):  # what is bound late is bound by now
            dist.all_reduce(torch.ones(1, device=rank.device))
    told: list[Any] = [None] * rank.size
    with rank.step("all_gather_object"):
        dist.all_gather_object(told, _told(rank))
    return told


def differing(told: list[dict[str, str]]) -> dict[str, str]:
    """What is not the same on all ranks, each with what they say."""
    out = {}
    for name in told[0]:
        said: dict[str, list[int]] = {}
        for rank, each in enumerate(told):
            said.setdefault(each.get(name, "absent"), []).append(rank)
        if len(said) > 1:
            out[name] = ", ".join(f"{value} on {ranks.named(who)}" for value, who in said.items())
    return out


def run(bench: Bench) -> None:
    """Measures ``<backend>.differing``, how many of seven things are not the same on all ranks, and
    ``<backend>.views.wrong``, how many ranks heard something else than rank 0 did."""
    backend, heard = ranks.together(bench, _work)
    odd = differing(heard[0])
    bench.count(f"{backend}.differing", len(odd))
    bench.count(f"{backend}.views.wrong", sum(view != heard[0] for view in heard))
    said = "; ".join(f"{name}: {text}" for name, text in odd.items())
    said = said or ", ".join(f"{name} {value}" for name, value in heard[0][0].items())
    bench.detail = "; ".join(filter(None, (bench.detail, said)))
