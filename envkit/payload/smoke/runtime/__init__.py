"""Streams, memory and processes."""

from envkit.payload.smoke.case import GENERIC, Case

_ORDERED = ("ulp", "one", "block", "order")
_MEMCHECK = ("memcheck",)
_GEMM = Case("", level="full", faults=GENERIC, needs=("gemm-exact",))

CASES = (
    Case("streams-events", cpu=False, faults=_ORDERED),
    Case("allocator", cpu=False, level="full", faults=_ORDERED, sanitize=_MEMCHECK),
    Case("cuda-graph", cpu=False, level="full", faults=(*GENERIC, "order"), sanitize=_MEMCHECK),
    Case("pinned-copies", cpu=False, faults=_ORDERED, sanitize=_MEMCHECK),
    Case("dataloader", start="fresh", level="full"),
    Case("large-launch", cpu=False, level="full", faults=_ORDERED),
    _GEMM._replace(name="host-threads"),
    _GEMM._replace(name="multiprocessing-fork", start="fresh", seconds=120.0),
    Case("ipc", start="fresh", level="full", faults=_ORDERED, seconds=120.0),
    _GEMM._replace(name="allocator-backends", cpu=False, start="bare", seconds=180.0),
    _GEMM._replace(name="oom-recovery", cpu=False, alone=True, faults=(*GENERIC, "fault")),
)
