"""The speeds in a smoke run, each beside what the GPU's datasheet promises and what a healthy one reached."""

from __future__ import annotations

import math
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.records import dataclass
from envkit.subjects.smoke import SmokeRun, SmokeTest


@dataclass(frozen=True, slots=True)
class Figure:
    """One speed.  ``what`` is the measure's name without its unit; ``peak`` and ``good`` are in the figure's ``unit``,
    None where there is no row of facts for them, and for a time always.

    ``band`` is the share of the peak below which a figure is slow where no good one is known; None where the peak is no
    yardstick.  ``bounded`` says that nothing can be faster than the peak.
    """

    test: str
    device: str
    gpu: str
    what: str
    value: float
    unit: str
    peak: float | None = None
    good: float | None = None
    band: float | None = None
    bounded: bool = True


@dataclass(frozen=True, slots=True)
class _Kind:
    """Which field of a peak row bounds a measure, how many of it at once, and from which share of it on it is slow."""

    field: str = ""
    band: float | None = None
    times: float = 1.0
    bounded: bool = True


# Bands: healthy GPUs give 0.89 to 0.90 of the datasheet's memory bandwidth, 0.87 to 0.88 of PCIe, 0.73 to 0.87 of dense
# bf16 and fp16 (A100, H100, GH200, B200, GB200), 0.71 to 0.76 of fp8, 0.78 to 0.82 of NVLink by a ring.
# A ring of two or three GPUs cannot use all links of each, so that it has no band.
# A band lies about a tenth below the lowest of these.
_GEMM, _COPY, _LINK, _RING = 0.65, 0.80, 0.75, 0.70
_KINDS = {
    ("speed-copy", "copy.gbs"): _Kind("memory_gbs", _COPY),
    ("speed-triad", "triad.gbs"): _Kind("memory_gbs", _COPY),
    ("speed-host-copies", "h2d.gbs"): _Kind("pcie_gbs", _LINK),
    ("speed-host-copies", "d2h.gbs"): _Kind("pcie_gbs", _LINK),
    # what the host's memory and its bridges leave of two directions at once is not the GPU's
    ("speed-host-copies", "both.gbs"): _Kind("pcie_gbs", times=2.0),
    **{("speed-gemm", f"{name}.tflops"): _Kind(name, _GEMM) for name in ("bf16", "fp16", "tf32", "fp8")},
    # what cuBLAS reaches without tensor cores, and in int8, differs too much between GPUs for one band
    **{("speed-gemm", f"{name}.tflops"): _Kind(name) for name in ("fp32", "fp64", "int8")},
    # attention is bound by more than products of matrices: the peak is a limit and no yardstick
    **{("speed-attention", f"plain.{part}.tflops"): _Kind("bf16") for part in ("forward", "training")},
    **{("speed-attention", f"causal.{part}.tflops"): _Kind("bf16") for part in ("forward", "training")},
    # at full power the clock falls, by how much is the cooling's affair: it is said, with its reasons, and not judged
    ("speed-sustained", "mean.tflops"): _Kind("bf16"),
    ("speed-sustained", "least.tflops"): _Kind("bf16"),
    **{("speed-launch", f"{what}.us"): _Kind() for what in ("launch", "stream", "graph", "node")},
    # sums made in the switches (NVLS) move less than the formula of the bus bandwidth counts
    ("nccl-allreduce", "nccl.busbw.gbs"): _Kind("nvlink_gbs", _RING, bounded=False),
    ("p2p-copies", "slowest.gbs"): _Kind(),  # over NVLink or PCIe: the name of a GPU does not say which
}
_UNITS = {"gbs": "GB/s", "tflops": "TFLOP/s", "us": "us"}
TESTS: frozenset[str] = frozenset(test for test, _ in _KINDS)


def gpu_of(test: SmokeTest, run: SmokeRun) -> str:
    """The name of the GPU that ``test`` ran on, of all if they are alike; empty where that is not known."""
    names = run.gpus.value or ()
    where, _, index = test.device.partition(":")
    if where == "gpus":
        return names[0] if len(set(names)) == 1 else ""
    number = int(index) if index.isdigit() else 0
    return names[number] if where == "cuda" and number < len(names) else ""


def _value(test: SmokeTest, measure: str) -> float:
    value = test.measures.get(measure)
    return float(value) if isinstance(value, int | float) else math.nan


def of_test(test: SmokeTest, run: SmokeRun, facts: Facts) -> Iterator[Figure]:
    """The speeds that one test measured, in the order of the tables above; none of a test that did not run."""
    gpu = gpu_of(test, run)
    row = facts.peak(gpu) if gpu else None
    for (name, measure), kind in _KINDS.items():
        value = _value(test, measure)
        if name != test.name or test.ended != "ran" or not (math.isfinite(value) and value > 0.0):
            continue
        what, _, unit = measure.rpartition(".")
        peak: float | None = getattr(row, kind.field) if row and kind.field else None
        good = facts.good(gpu, name, measure)
        known = (peak * kind.times if peak else None, good.value if good else None)
        band = kind.band if _value(test, "ranks") not in (2.0, 3.0) else None
        yield Figure(test.name, test.device, gpu, what, value, _UNITS[unit], *known, band, kind.bounded)


def figures(run: SmokeRun, facts: Facts) -> tuple[Figure, ...]:
    """Every speed of a run, test by test; none of a run whose results were disturbed on purpose."""
    if run.injected_fault:
        return ()
    return tuple(figure for test in run.tests.value or () for figure in of_test(test, run, facts))
