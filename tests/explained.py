"""A made-up explanation for the tests of its outputs: four ranks of which one is silent, and the kernel's lines."""

from __future__ import annotations

from dataclasses import replace

from envkit.logs.records import Explanation, FileSeen, Hypothesis, Line, Mark, RankState, Role, Strength

START = 1_700_000_000.0


def line(number: int, text: str, rank: int | None = None) -> Line:
    """A line of a rank's file, one second after the one before."""
    name = f"rank{rank}.log" if rank is not None else "job.log"
    return Line(name, number, text, f"[x] {text}", rank=rank, time_s=START + number, clock="wall")


ROOT = line(3, "CUDA error: an illegal memory access was encountered", 2)
KERNEL = replace(line(7, "NVRM: Xid (PCI:0000:65:00): 31, pid=42"), file="dmesg.log", source="kernel", host="node1")
LATE = line(9, "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE)", 0)


def explanation() -> Explanation:
    """The explanation; its ranks 0, 1 and 3 wait for rank 2."""
    waits = tuple(
        Mark(line(10 + rank, f"rank {rank} waits", rank), Role.CASCADE, "nccl-timeout-hang") for rank in (0, 1, 3)
    )
    marks = (
        Mark(line(1, "torch says its version", 0), Role.DIAGNOSTIC, "torch-version"),
        Mark(ROOT, Role.ROOT, "illegal-memory-access"),
        Mark(KERNEL, Role.DIAGNOSTIC, "xid-31"),
        Mark(LATE, Role.CASCADE, "nccl-timeout-hang"),
        *waits,
    )
    return Explanation(
        category="illegal-memory-access",
        cause="gpu-kernel-bug",
        confidence=0.8,
        title="a kernel read or wrote memory that is not its own",
        because="rank 2 met CUDA error 700 at line 3 and the kernel logged Xid 31 for pid 42",
        evidence=(marks[1], marks[2]),
        timeline=marks,
        runner_up=Hypothesis(
            "xid-31", "hardware-fault", Strength.POSSIBLE, (KERNEL,), "the same GPU may fail with other programs too"
        ),
        decide_by="whether it stays with the GPU or goes with the program",
        next=("CUDA_LAUNCH_BLOCKING=1 CMD", "compute-sanitizer --tool memcheck CMD"),
        fix="check the bounds of the kernel's indexes, and use 64-bit offsets",
        ranks=tuple(
            RankState(rank, "0", 12 if rank != 2 else 11, 11, "ALLREDUCE", "forward of model.py:10", rank == 2)
            for rank in range(4)
        ),
        files=tuple(FileSeen(f"rank{rank}.log", 20, 900) for rank in range(4)),
        versions={"torch": "2.6.0", "driver": "550.54.14"},
    )


def many(ranks: int, marks: int) -> Explanation:
    """The same with so many ranks and marks."""
    timeline = tuple(
        Mark(line(at + 1, f"step {at} fails", at % ranks), Role.CASCADE if at % 7 else Role.DIAGNOSTIC, "x")
        for at in range(marks)
    )
    root = Mark(line(marks + 1, "the root of it", 5), Role.ROOT, "y")
    states = tuple(RankState(rank, "0", 9 - (rank == 5), 8, "ALLREDUCE", "", rank == 5) for rank in range(ranks))
    return replace(explanation(), timeline=(*timeline, root), evidence=(root,), ranks=states)
