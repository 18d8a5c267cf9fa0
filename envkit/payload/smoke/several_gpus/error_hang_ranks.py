"""One rank misbehaves on purpose, and the monitor must name it: it stays away, brings another size, calls another
operation, or dies.  The notes of the ranks must tell who is missing, within seconds, and nothing of the job may stay.
"""

from __future__ import annotations

import glob
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial

from envkit.payload import waits
from envkit.payload.lazy import torch
from envkit.payload.smoke import ranks
from envkit.payload.smoke.bench import SEED, Bench
from envkit.payload.smoke.ranks import Diagnosis, Rank

FAULTS = {"away": "late", "size": "disagree", "operation": "disagree", "death": "late"}
_STEP = 5  # the faulty one: 1 is the start of the process group
_COUNT = 1 << 16
_TIMEOUT_S = 5.0  # torch's own, so that its watchdog speaks before the monitor ends the run
_PATIENCE_S = 10  # the first step with NCCL builds the connections, and must not be taken for a hang
_GRACE_S = 1.0
_BUDGET_S = 40.0
_TIMEOUT = re.compile("tim(ed|ing) ?out|timeout", re.IGNORECASE)
_WATCHDOG = {
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
}


def named_right(fault: str, victim: int, size: int, found: Diagnosis) -> bool:
    """Whether the monitor told the planted fault: its kind, its step and its rank.

    Two ranks that disagree are both to blame, for nobody else can say which of them is right.
    """
    alike = FAULTS[fault] == "disagree" and size == 2
    wanted = tuple(range(size)) if alike else (victim,)
    return (found.kind, found.step, found.ranks) == (FAULTS[fault], _STEP, wanted)


def _work(fault: str, victim: int, rank: Rank) -> None:
    import torch.distributed as dist

    planted = rank.rank == victim and rank.bench.injected_fault != "fault"
    for number in range(2, 8):
        due = planted and number == _STEP
        count = _COUNT + (1 if due and fault == "size" else 0)
        data = torch.ones(count, device=rank.device)
        if due and fault == "away":
            time.sleep(_BUDGET_S * waits.LONGEST)
        if due and fault == "death":
            os.kill(os.getpid(), signal.SIGKILL)
        if due and fault == "operation":
            with rank.step("broadcast", f"{count} fp32"):
                dist.broadcast(data, victim)
        else:
            with rank.step("all_reduce", f"{count} fp32"):
                dist.all_reduce(data)


def _alive(folder: str) -> int:
    """How many processes were started for the ranks of ``folder`` and are still there."""
    known = set()
    for path in glob.glob(os.path.join(glob.escape(folder), "*.pid")):
        with open(path, encoding="ascii") as file:
            known.add(int(file.read()))
    return sum(int(fields[2]) in known and fields[0] != b"Z" for fields in waits.processes().values())


def _noted(fault: str, victim: int, folder: str, rank: Rank) -> None:
    with open(os.path.join(folder, f"{rank.rank}.pid"), "w", encoding="ascii") as file:
        file.write(str(os.getpgrp()))
    _work(fault, victim, rank)


def _torch_said(outcome: ranks.Outcome, folder: str) -> str:
    """What torch's watchdog, or its timeout, said by itself."""
    dumps = glob.glob(os.path.join(glob.escape(folder), "flight-*"))
    words = [f"its flight recorder left {len(dumps)} files"] if dumps else []
    for rank, ending in enumerate(outcome.endings):
        lines = [line for line in (ending.detail + "\n" + ending.stderr_tail).splitlines() if _TIMEOUT.search(line)]
        if lines and ending is not ranks.ENDED_WITH_OTHERS:
            words.append(f"rank {rank}: {lines[0].strip()[:200]}")
    return "torch said by itself: " + "; ".join(words) if words else "torch said nothing by itself in this time"


def run(bench: Bench) -> None:
    """Measures ``<backend>.named.wrong`` (faults that were not named by kind, step and rank),
    ``<backend>.seconds`` (the longest from the first rank's coming to the faulty step until the job was explained and
    ended, without what a rank waited for a processor) and ``<backend>.left.behind`` (processes)."""
    backend, size = ranks.kind(bench)
    said = []
    for number, fault in enumerate(FAULTS):
        victim = (SEED + number) % size
        folder = tempfile.mkdtemp(prefix="ranks-", dir=bench.folder())
        environ = dict(_WATCHDOG)
        for name in ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"):
            environ[name] = os.path.join(folder, "flight-")
        work: Callable[[Rank], None] = partial(_noted, fault, victim, folder)
        began = time.time()
        outcome = ranks.run(bench, work, size, backend, folder, _BUDGET_S, environ, _PATIENCE_S, _GRACE_S, _TIMEOUT_S)
        ended = time.time()
        found = outcome.diagnosis
        entered = [note["at"] for notes in ranks.read(folder, size) for note in notes if note.get("enter") == _STEP]
        bench.count(f"{backend}.named.wrong", int(not named_right(fault, victim, size, found)))
        bench.note(f"{backend}.seconds", max(0.0, ended - min(entered, default=began) - found.waited))
        bench.count(f"{backend}.left.behind", _alive(folder))
        said.append(f"{fault}: {found.text or 'nothing was found'}")
        if fault == "away":
            said.append(_torch_said(outcome, folder))
    ranks.declare(bench, backend, size)
    bench.detail = "; ".join(filter(None, (bench.detail, *said)))
