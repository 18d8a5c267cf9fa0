"""Faults made on purpose, in children: the image must report each by its right name."""

from envkit.payload.smoke.case import Case

_FAULT = ("fault",)
_BARE = Case("", cpu=False, start="bare", level="full", faults=(*_FAULT, "one"), needs=("vector-add-nvrtc",))
# Alone, because on one GPU a fault of one process can stop what another runs there at that moment.
_ALONE = _BARE._replace(alone=True)
_TORCH = _ALONE._replace(start="fork", needs=("gemm-exact",), seconds=90.0)
_PACKAGES = _TORCH._replace(alone=False, builds=True, needs=("gemm-exact", "aoti-gpu"))
_TOOLS = _BARE._replace(faults=_FAULT, seconds=400.0)

CASES = (
    Case("error-crash", gpu=False, start="bare", faults=_FAULT),
    _TORCH._replace(name="error-device-assert"),
    _ALONE._replace(name="error-illegal-address"),
    _ALONE._replace(name="error-misaligned-address"),
    _ALONE._replace(name="error-trap"),
    _ALONE._replace(name="error-invalid-argument"),
    _ALONE._replace(name="error-hang-kernel", seconds=180.0),
    _TORCH._replace(name="error-fork-after-init"),
    _TORCH._replace(name="error-out-of-memory"),
    _TORCH._replace(name="error-cublas", seconds=150.0),
    _PACKAGES._replace(name="error-aoti-wrong-device", faults=_FAULT, seconds=500.0),
    Case("error-aoti-dies-at-load", gpu=False, level="full", faults=_FAULT, seconds=120.0),
    _TOOLS._replace(name="error-sanitizer"),
    _TOOLS._replace(name="error-debugger"),
)
