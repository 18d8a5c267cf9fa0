"""Faults made on purpose, in children: the image must report each by its right name."""

from __future__ import annotations

from envkit.payload.smoke.case import Case

# Alone, because on one GPU a fault of one process can stop what another runs there at that moment.
_BARE = Case(
    "", cpu=False, start="bare", level="full", alone=True, faults=("fault", "one"), needs=("vector-add-nvrtc",)
)
_TORCH = _BARE._replace(start="fork", needs=("gemm-exact",), seconds=90.0)

CASES: tuple[Case, ...] = (
    Case("error-crash", gpu=False, start="bare", faults=("fault",)),
    _TORCH._replace(name="error-device-assert"),
    _BARE._replace(name="error-illegal-address"),
    _BARE._replace(name="error-misaligned-address"),
    _BARE._replace(name="error-trap"),
    _BARE._replace(name="error-invalid-argument"),
    _BARE._replace(name="error-hang-kernel", seconds=180.0),
    _TORCH._replace(name="error-fork-after-init"),
    _TORCH._replace(name="error-out-of-memory"),
    _TORCH._replace(name="error-cublas", seconds=150.0),
    _TORCH._replace(
        name="error-aoti-wrong-device",
        builds=True,
        alone=False,
        faults=("fault",),
        needs=("gemm-exact", "aoti-gpu"),
        seconds=500.0,
    ),
    Case("error-aoti-dies-at-load", gpu=False, level="full", faults=("fault",), seconds=120.0),
    _BARE._replace(name="error-sanitizer", alone=False, faults=("fault",), seconds=400.0),
    _BARE._replace(name="error-debugger", alone=False, faults=("fault",), seconds=400.0),
)
