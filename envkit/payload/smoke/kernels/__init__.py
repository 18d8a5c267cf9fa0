"""Kernels that NVRTC compiles from source and the driver launches."""

from envkit.payload.smoke.case import Case
from envkit.payload.smoke.sanitize import TOOLS

_NEEDS = ("driver-context", "vector-add-nvrtc")
_BARE = Case("", cpu=False, start="bare", faults=("ulp", "one", "block"), needs=_NEEDS)
_PLAIN = _BARE._replace(sanitize=TOOLS)

CASES = (
    _PLAIN._replace(name="vector-add-nvrtc", needs=("driver-context",)),
    _PLAIN._replace(name="nvrtc-reduction", faults=("ulp", "one", "order")),
    _PLAIN._replace(name="nvrtc-grid-stride"),
    _PLAIN._replace(name="nvrtc-alignment", level="full"),
    _BARE._replace(name="nvrtc-timer", level="full", faults=("ulp", "one", "fault"), needs=("driver-events", *_NEEDS)),
)
