"""Faults made on purpose, in children: the image must report each by its right name."""

from __future__ import annotations

from envkit.payload.smoke.case import Case

# Alone, because on one GPU a fault of one process can stop what another runs there at that moment.
_BARE = Case(
    "", cpu=False, start="bare", level="full", alone=True, saboteurs=("fault", "one"), needs=("vector-add-nvrtc",)
)
_TORCH = _BARE._replace(start="fork", needs=("gemm-exact",), seconds=90.0)

CASES: tuple[Case, ...] = (
    Case("drill-crash", gpu=False, start="bare", saboteurs=("fault",)),
    _TORCH._replace(name="drill-device-assert"),
    _BARE._replace(name="drill-illegal-address"),
    _BARE._replace(name="drill-misaligned-address"),
    _BARE._replace(name="drill-trap"),
    _BARE._replace(name="drill-invalid-argument"),
    _BARE._replace(name="drill-hang-kernel", seconds=180.0),
    _TORCH._replace(name="drill-fork-after-init"),
    _TORCH._replace(name="drill-out-of-memory"),
    _TORCH._replace(name="drill-cublas", seconds=150.0),
    _TORCH._replace(
        name="drill-aoti-wrong-device",
        builds=True,
        alone=False,
        saboteurs=("fault",),
        needs=("gemm-exact", "aoti-gpu"),
        seconds=500.0,
    ),
    Case("drill-aoti-dies-at-load", gpu=False, level="full", saboteurs=("fault",), seconds=120.0),
    _BARE._replace(name="drill-sanitizer", alone=False, saboteurs=("fault",), seconds=400.0),
    _BARE._replace(name="drill-debugger", alone=False, saboteurs=("fault",), seconds=400.0),
)
