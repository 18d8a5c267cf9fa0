"""The same small all-reduce under each of NCCL's ways between two GPUs of a machine, and one sentence about which is
broken.  Each way has ranks of its own, since NCCL reads its variables once a process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke import ranks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.ranks import Rank
from envkit.payload.smoke.several_gpus.nccl_allreduce import expected, values

_BUDGET_S = 20.0
_PATIENCE_S = 15
_COUNTS = (3, (1 << 20) + 1)
TRANSPORTS = {
    "default": {},
    "p2p-off": {"NCCL_P2P_DISABLE": "1"},
    "shm-off": {"NCCL_SHM_DISABLE": "1"},
    "socket": {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket"},
    "nvls-off": {"NCCL_NVLS_ENABLE": "0"},
}


# Where what NCCL chooses fails: the first way here that works tells why.
_ONLY_WITHOUT = (
    ("nvls-off", "only with NVLink multicast on it fails: the fabric manager or NVLS is broken; "
                 "restart the fabric manager or set NCCL_NVLS_ENABLE=0"),
    ("p2p-off", "only with P2P on it fails: peer access between the GPUs is broken; "
                "look at ACS and IOMMU on the host or set NCCL_P2P_DISABLE=1"),
    ("shm-off", "only with shared memory on it fails: /dev/shm is too small or not shared; "
                "give the container --ipc=host or a larger --shm-size, or set NCCL_SHM_DISABLE=1"),
    ("socket", "only sockets work: P2P and shared memory are both broken; look at ACS and IOMMU on the host, "
               "and give the container --ipc=host or a larger --shm-size"),
)  # fmt: skip
# Where it works: what each way that fails tells.
_LOST = (
    ("p2p-off", "shared memory (with P2P off) fails: give the container --ipc=host or a larger --shm-size"),
    ("shm-off", "P2P alone (with shared memory off) fails: GPUs that have no peer access have no other way"),
    ("socket", "sockets fail: no network interface is usable, so a job of several machines could not run either"),
    ("nvls-off", "it needs NVLink multicast: without NVLS it fails"),
)


def cause(passed: Mapping[str, bool]) -> str:
    """One sentence of cause from which transports passed; empty where all did.

    ``passed`` has "default", "p2p-off", "shm-off" and "socket", and "nvls-off" where the default uses NVLink multicast.
    """
    if all(passed.values()):
        return ""
    if not any(passed.values()):
        return "no transport works, not even sockets: look at the exceptions, at NCCL_DEBUG=INFO and at the GPUs first"
    if passed["default"]:
        lost = [words for name, words in _LOST if passed.get(name) is False]
        return "what NCCL chooses works, but " + "; ".join(lost)
    by_itself = "what NCCL chooses by itself fails: an NCCL_* variable or a configuration file sets it; look at them"
    return next((words for name, words in _ONLY_WITHOUT if passed.get(name)), by_itself)


def _work(rank: Rank) -> None:
    import torch.distributed as dist

    for count in _COUNTS:
        data = values(rank.rank, rank.size, count, 3, rank.device).float()
        with rank.step("all_reduce", f"{count} fp32"):
            dist.all_reduce(data, dist.ReduceOp.SUM)
        rank.bench.exact("wrong", data, expected("sum", rank.size, count, 3, rank.device).to(torch.float32))


def _lost(ending: Any, outcome: ranks.Outcome) -> str:
    how = " ".join(filter(None, (ending.ended, ending.signal, ending.cuda, ending.detail[:160])))
    return outcome.diagnosis.text or how


def run(bench: Bench) -> None:
    """Measures for each transport ``<transport>.wrong``: the elements that differ, or the ranks that did not come to
    their end; ``nvls-off.offered`` says whether the environment lets the default use NVLink multicast at all."""
    if bench.gpus < 2:
        bench.not_applicable("fewer than two GPUs are here")
    backend, size = ranks.kind(bench)
    multicast = os.environ.get("NCCL_NVLS_ENABLE", "0") != "0"
    bench.note("nvls-off.offered", int(multicast))
    passed = {}
    told = []
    for name, environ in TRANSPORTS.items():
        if name == "nvls-off" and not multicast:
            continue
        folder = tempfile.mkdtemp(prefix="ranks-", dir=bench.folder())
        outcome = ranks.run(bench, _work, size, backend, folder, _BUDGET_S, environ, _PATIENCE_S)
        lost = [ending for ending in outcome.endings if ending.ended != "ran"]
        wrong = sum(ending.value["measures"]["wrong"] for ending in outcome.endings if ending.ended == "ran")
        bench.count(name + ".wrong", int(wrong) + len(lost))
        passed[name] = not wrong and not lost
        if lost:
            told.append(f"{name}: {_lost(lost[0], outcome)}")
        elif wrong:
            told.append(f"{name}: {wrong:.0f} elements are wrong")
    bench.detail = "; ".join(filter(None, (*told, cause(passed))))
