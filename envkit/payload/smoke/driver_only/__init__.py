"""The CUDA driver alone, through ctypes and PTX text: needs no torch and no toolkit."""

from envkit.payload.smoke.case import Case
from envkit.payload.smoke.sanitize import TOOLS

_BARE = Case("", cpu=False, start="bare", faults=("ulp", "one"), needs=("driver-context",))
_PTX = _BARE._replace(faults=("ulp", "order"), needs=("driver-ptx",))

CASES = (
    _BARE._replace(name="driver-context", alone=True, needs=()),
    _BARE._replace(name="driver-ptx", faults=("ulp", "one", "block"), sanitize=TOOLS),
    _BARE._replace(name="driver-copies"),
    _PTX._replace(name="driver-launches"),
    _PTX._replace(name="driver-events"),
    _PTX._replace(name="driver-memory", stress=True, level="full", alone=True, faults=("one",), seconds=120.0),
)
