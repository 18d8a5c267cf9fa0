"""Reports of `envkit debug` for tests: those recorded on a GPU, read back, and one that is made up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from envkit.debug.records import (
    Allocation,
    Child,
    CodeLocation,
    DebugReport,
    Fault,
    PythonFrame,
    RankRow,
    Step,
    Verdict,
    Waiting,
)
from envkit.logs.records import Explanation, Line, Mark, Role

RECORD = Path(__file__).parent / "data" / "gpu" / "h100-torch-2.11-cu130-debug.json"


def recorded() -> dict[str, Any]:
    """What ran on a GPU."""
    document: dict[str, Any] = json.loads(RECORD.read_text())
    return document


def frames(plain: Sequence[Mapping[str, Any]]) -> tuple[PythonFrame, ...]:
    """Frames as the JSON has them."""
    return tuple(PythonFrame(each["file"], each["line"], each["function"]) for each in plain)


def report(plain: Mapping[str, Any]) -> DebugReport:
    """The report that a document of `envkit debug` shows; its explanation has no timeline, which is not in it."""
    kernel, said = plain["kernel"], plain["explanation"]
    return DebugReport(
        command=tuple(plain["command"]),
        image=plain["image"] or "",
        verdict=Verdict(plain["verdict"]),
        cause=plain["cause"],
        category=plain["category"],
        cause_class=plain["cause_class"],
        exit=plain["exit"],
        steps=tuple(step(each) for each in plain["steps"]),
        fault=fault(kernel) if kernel else None,
        first_wrong=plain["first_wrong"],
        python=frames(plain["python"]),
        children=tuple(
            Child(each["pid"], each["exit"], frames(each["waiter"]), frames(each["stack"]))
            for each in plain["children"]
        ),
        hang=(),
        explanation=explanation(said) if said else None,
        fix=plain["fix"],
        next=tuple(plain["next"]),
        folder=plain["folder"],
        files=tuple(plain["files"]),
        elapsed_s=plain["elapsed_s"],
        versions=plain["versions"],
    )


def step(plain: Mapping[str, Any]) -> Step:
    """A stage; what a record leaves out of one that did not run is as in any that did not."""
    return msgspec.convert(plain, Step)


def fault(plain: Mapping[str, Any]) -> Fault:
    """What a tool said of a kernel."""
    near, other = plain["nearest_allocation"], plain["other"]
    return Fault(
        tool=plain["tool"],
        kind=plain["kind"],
        problem=plain["problem"],
        kernel=plain["name"],
        place=CodeLocation(plain["function"], plain["file"], plain["line"] or 0),
        access=plain["access"],
        size=plain["size"] or 0,
        address=int(plain["address"], 16) if plain["address"] else None,
        thread=_three(plain["thread"]),
        block=_three(plain["block"]),
        near=Allocation(int(near["address"], 16), near["size"] or 0, near["side"], near["distance"]) if near else None,
        other=CodeLocation(other["function"], other["file"], other["line"] or 0) if other else None,
        host=tuple(plain["host_frames"]),
        count=plain["count"],
    )


def _three(plain: Sequence[int] | None) -> tuple[int, int, int] | None:
    return (plain[0], plain[1], plain[2]) if plain else None


def explanation(plain: Mapping[str, Any]) -> Explanation:
    """What the command's own output told."""
    marks = tuple(
        Mark(Line(each["file"], each["line"], each["text"], each["text"]), Role(each["role"]), plain["category"])
        for each in plain["evidence"]
    )
    return Explanation(
        category=plain["category"],
        cause=plain["cause_class"],
        confidence=plain["confidence"],
        title=plain["category"].replace("-", " "),
        because=plain["because"],
        evidence=marks,
        timeline=marks,
        runner_up=None,
        decide_by="",
        next=(),
        fix=plain["fix"],
    )


def here(file: str, line: int, function: str) -> PythonFrame:
    """A frame of the program."""
    return PythonFrame(f"/srv/train/{file}", line, function)


MAIN = (here("train.py", 90, "<module>"), here("train.py", 78, "main"))
INNER = PythonFrame("/venv/lib/python3.12/site-packages/torch/autograd/graph.py", 823, "_engine_run_backward")


def crash() -> DebugReport:
    """A made-up report: a kernel that memcheck has named, in a child that died."""
    said = "CUDA error: misaligned address"
    root = Mark(Line("as-is/output.txt", 7, said, said), Role.ROOT, "x")
    return DebugReport(
        command=("python", "tune.py", "--steps", "3"),
        image="my/train:1",
        verdict=Verdict.FOUND,
        cause="kernel `turn` reads 16 bytes at the misaligned address 0x7f0000000204",
        category="misaligned-address",
        cause_class="gpu-kernel-bug",
        exit=0,
        steps=(
            Step("as-is", True, "to see how it ends", 2.0, 0, "exited", "process 42 died of SIGABRT (-6)"),
            Step("package-checks", False, "there is no package"),
            Step("blocking", True, "launches wait", 2.5, None, "timed-out"),
            Step("memcheck", True, "to check every access", 5.5, 0, "exited", "kernel `turn` reads"),
            Step("core-dump", False, "cuda-gdb is not there", missing="cuda-gdb", get="apt-get install cuda-gdb"),
        ),
        fault=Fault(
            "memcheck",
            "Invalid __global__ read of size 16 bytes",
            "misaligned",
            "turn(float4 *)",
            CodeLocation("load", "/srv/train/turn.cu", 12),
            "read",
            16,
            0x7F0000000204,
            (32, 0, 0),
            (7, 0, 0),
            Allocation(0x7F0000000000, 16388, "inside", 0),
            count=200,
        ),
        first_wrong="launch at /srv/train/tune.py:18",
        python=(*MAIN, here("tune.py", 18, "launch")),
        children=(Child(42, -6, MAIN, (*MAIN, here("tune.py", 24, "candidate"))), Child(43, 7)),
        hang=(),
        explanation=Explanation(
            "misaligned-address", "gpu-kernel-bug", 0.95, "an access that is not aligned", "the tool says so", (root,),
            (root,), None, "", (), "align it",
        ),
        fix="give the kernel a pointer that is a multiple of 16",
        next=("compute-sanitizer --tool memcheck CMD",),
        folder="/srv/train/envkit-debug-1",
        files=("as-is/output.txt", "memcheck/sanitizer.log", "repro.sh"),
        elapsed_s=10.4,
        versions={"torch": "2.6.0", "driver": "550.54.14"},
    )  # fmt: skip


def hang(ranks: int = 4) -> DebugReport:
    """A made-up report: rank 1 gave no gradient for a frozen branch, and the others stand in their backward."""
    rows = []
    processes = []
    for rank in range(ranks):
        odd = rank == 1
        main = (*MAIN, here("train.py", 49, "logged")) if odd else (*MAIN, INNER)
        rows.append(
            RankRow(
                rank, "node1", 100 + rank, "waits" if odd else "elsewhere", "all_reduce of [4] float32", "1", 3,
                here("train.py", 49, "logged"), "cuda", main, 2, ("branch.weight", "branch.bias") if odd else (),
            )
        )  # fmt: skip
        loader = (here("data.py", 5, "load"),)
        processes.append(Waiting(100 + rank, "python train.py", str(rank), True, "S", "futex_do_wait", (loader, main)))
    return replace(
        crash(),
        command=("torchrun", "--nproc-per-node", str(ranks), "train.py"),
        image="",
        cause="rank 1 gave no gradient for branch.weight, branch.bias of Model in backward 2",
        category="nccl-timeout-hang",
        cause_class="rank-desync",
        exit=None,
        steps=(Step("as-is", True, "to see how it ends", 20.0, None, "hung", "rank 1 gave no gradient"),),
        fault=None,
        python=(),
        children=(),
        hang=tuple(processes),
        ranks=tuple(rows),
        explanation=None,
    )
