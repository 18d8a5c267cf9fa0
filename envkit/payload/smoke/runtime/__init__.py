"""Streams, memory and processes."""

from envkit.payload.smoke.case import GENERIC, Case

_EXACT = ("ulp", "one", "block")

CASES = (
    Case("streams-events", cpu=False, faults=("ulp", "one", "block", "order")),
    Case("allocator", cpu=False, level="full", faults=(*_EXACT, "order"), sanitize=("memcheck",)),
    Case("cuda-graph", cpu=False, level="full", faults=(*GENERIC, "order"), sanitize=("memcheck",)),
    Case("pinned-copies", cpu=False, faults=(*_EXACT, "order"), sanitize=("memcheck",)),
    Case("dataloader", start="fresh", level="full"),
    Case("large-launch", cpu=False, level="full", faults=(*_EXACT, "order")),
    Case("host-threads", level="full", faults=GENERIC, needs=("gemm-exact",)),
    Case("multiprocessing-fork", start="fresh", level="full", faults=GENERIC, needs=("gemm-exact",), seconds=120.0),
    Case("ipc", start="fresh", level="full", faults=(*_EXACT, "order"), seconds=120.0),
    Case(
        "allocator-backends",
        cpu=False,
        start="bare",
        level="full",
        faults=GENERIC,
        needs=("gemm-exact",),
        seconds=180.0,
    ),
    Case("oom-recovery", cpu=False, level="full", alone=True, faults=(*GENERIC, "fault"), needs=("gemm-exact",)),
)
