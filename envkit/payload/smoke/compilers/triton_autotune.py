"""A Triton kernel tuned over configurations of which one asks for too much and one crashes.

Each is tried in a process that may die, and the tune goes on without it.  Then Triton's own tuner chooses among those
that are left and the one that asks for too much.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from envkit.payload import isolate
from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import stages
from envkit.payload.smoke.compilers.lacking import lacking_c
from envkit.payload.smoke.compilers.triton_kernels import kernels


class Config(NamedTuple):
    """What one configuration asks for."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    trap: bool = False

    def words(self) -> dict[str, Any]:
        """The kernel's own parameters of it."""
        tile = {"ROWS": self.rows, "COLUMNS": self.columns, "DEPTH": self.depth}
        return {**tile, "TRAP": self.trap, "PRECISION": "ieee"}


TRAP = Config(32, 32, 32, 4, 2, trap=True)
# Five stages of two tiles of 64 KiB ask for over half a megabyte of shared memory; no GPU has half of that.
TOO_LARGE = Config(128, 128, 256, 8, 6)
CONFIGS = (
    Config(16, 16, 16, 2, 1), Config(32, 32, 16, 2, 2), Config(32, 64, 32, 4, 2), TRAP, Config(64, 32, 32, 4, 2),
    Config(64, 64, 32, 4, 3), TOO_LARGE, Config(64, 64, 64, 4, 2), Config(128, 32, 32, 4, 2), Config(32, 128, 32, 4, 2),
    Config(128, 64, 32, 4, 3), Config(128, 128, 32, 8, 2),
)  # fmt: skip
# No multiples of the tiles; but of 16, or Triton does not load ahead and no number of stages costs shared memory.
_ROWS, _COLUMNS, _DEPTH = 333, 208, 528
_SIZES = (_ROWS, _COLUMNS, _DEPTH, _DEPTH, _COLUMNS, _COLUMNS)  # of the product, then of the rows in memory
_TRY_S, _TUNE_S = 90.0, 90.0


def _operands(bench: Bench) -> tuple[Any, Any, Any]:
    """Two matrices of whole numbers, which fp16 holds, on the device, and their exact product on the CPU."""
    random = bench.random()
    shapes = ((_ROWS, _DEPTH), (_DEPTH, _COLUMNS))
    left, right = (torch.randint(-8, 9, shape, generator=random) for shape in shapes)
    torch.cuda.set_device(bench.device)
    want = (left.double() @ right.double()).float()
    return left.half().to(bench.device), right.half().to(bench.device), want


def _poisoned(device: str) -> Any:
    return torch.full((_ROWS, _COLUMNS), float("nan"), device=device)


def _try_each(bench: Bench, module: Any, waiting: list[int], say: Callable[[Any], None]) -> None:
    """Tries configurations one after another; says of each that it begins, and how many elements it got wrong."""
    too_much = importlib.import_module("triton.runtime.errors").OutOfResources
    left, right, want = _operands(bench)
    for number in waiting:
        say({"begins": number})
        config = CONFIGS[number]
        words = config.words()
        if config.trap and bench.injected_fault == "fault":
            words["TRAP"] = False
        out = _poisoned(bench.device)
        grid = (-(-_ROWS // config.rows), -(-_COLUMNS // config.columns))
        try:
            module.product[grid](left, right, out, *_SIZES, **words, num_warps=config.warps, num_stages=config.stages)
            torch.cuda.synchronize()
        except too_much:
            say({"refused": number})
            continue
        say({"ran": number, "wrong": int((~(out.cpu() == want)).sum())})


def _tune(bench: Bench, module: Any, numbers: list[int]) -> dict[str, Any]:
    """Triton's own tuner over these configurations; what the best of them computes."""
    triton: Any = importlib.import_module("triton")
    left, right, want = _operands(bench)
    chosen = [CONFIGS[number] for number in numbers]
    configs = [triton.Config(one.words(), num_warps=one.warps, num_stages=one.stages) for one in chosen]
    tuned = triton.autotune(configs=configs, key=["rows", "columns", "depth"])(module.product)

    def grid(chosen: dict[str, Any]) -> tuple[int, int]:
        return -(-_ROWS // chosen["ROWS"]), -(-_COLUMNS // chosen["COLUMNS"])

    for _ in range(2):  # the first call tunes, the second uses what was chosen
        out = _poisoned(bench.device)
        tuned[grid](left, right, out, *_SIZES)
        bench.exact("best.wrong", out.cpu(), want)
    best = tuned.best_config
    bench.count("best.refused", int(best.num_stages == TOO_LARGE.stages))
    return stages.told(bench)


class TuningResult(NamedTuple):
    """What came of the configurations: wrong elements of those that ran, those refused, those that ended a process."""

    ran: dict[int, int]
    refused: set[int]
    ended: dict[int, isolate.Ending]


def sort(attempt: Callable[[list[int], Callable[[Any], None]], isolate.Ending], count: int) -> TuningResult:
    """Tries all ``count`` configurations, in as many processes as their deaths cost.

    ``attempt`` starts one over the numbers that wait, and passes on what it says.  Raises stages.Ended when a process
    ends before it began with one.
    """
    tried = TuningResult({}, set(), {})
    waiting = list(range(count))
    while waiting:
        begun: list[int] = []

        def heard(said: dict[str, int], begun: list[int] = begun) -> None:
            if "begins" in said:
                begun.append(said["begins"])
            elif "refused" in said:
                tried.refused.add(said["refused"])
            else:
                tried.ran[said["ran"]] = said["wrong"]

        ending = attempt(waiting, heard)
        if ending.ended == "ran":
            break
        if ending.ended == "not-applicable":
            raise isolate.NotApplicable(ending.detail)
        if not begun:
            how = f"{ending.ended} {ending.detail}{ending.signal}"
            raise stages.Ended(f"no configuration was begun with: {how}", ending)
        tried.ended[begun[-1]] = ending
        waiting = waiting[waiting.index(begun[-1]) + 1 :]
    return tried


def judge(bench: Bench, tried: TuningResult) -> None:
    """Records what came of the configurations; counts, and in words what was not as it should be."""
    trap, large = CONFIGS.index(TRAP), CONFIGS.index(TOO_LARGE)
    good = [number for number in range(len(CONFIGS)) if number not in (trap, large)]
    bench.note("configs.ran", sum(number in tried.ran for number in good))
    bench.count("configs.wrong", sum(tried.ran.get(number, 0) > 0 for number in good))
    bench.count("large.accepted", int(large not in tried.refused))
    crash = tried.ended.get(trap)
    bench.count("trap.missed", int(crash is None))
    bench.count("trap.unnamed", int(crash is None or not crash.cuda))
    lost = [f"{CONFIGS[number]} ended its process: {ending.ended} {ending.signal}{ending.detail}"
            for number, ending in sorted(tried.ended.items()) if number != trap]  # fmt: skip
    bench.detail = "; ".join(lost)


def run(bench: Bench) -> None:
    """Measures how many ``configs.ran`` and were ``configs.wrong``, whether what asks for too much was
    ``large.accepted``, whether the crash was ``trap.missed`` or ``trap.unnamed``, and ``best.wrong``, ``best.refused``
    of the one that Triton's tuner chose."""
    module = kernels(bench, "triton-autotune")
    bench.not_applicable_if(lacking_c("triton builds its launcher"))

    def attempt(waiting: list[int], heard: Callable[[Any], None]) -> isolate.Ending:
        work = partial(_try_each, bench, module, waiting)
        return stages.try_part(isolate.Task("trying configurations", bench.device, _TRY_S, work, heard=heard))

    tried = sort(attempt, len(CONFIGS))
    judge(bench, tried)
    left = [*sorted(tried.ran.keys() - {CONFIGS.index(TRAP)}), CONFIGS.index(TOO_LARGE)]
    inner = Bench(bench.device, bench.injected_fault)
    stages.take(bench, stages.part(isolate.Task("tuning", bench.device, _TUNE_S, lambda _: _tune(inner, module, left))))
