"""Speed beside the limit of the hardware.  Each test has its GPU alone and looks at what it computed as well."""

from envkit.payload.smoke.case import CLOSE, GENERIC, Case

_WHOLE = ("ulp", "one", "scale", "block")
_ALONE = Case("", cpu=False, alone=True, level="full", faults=GENERIC)
_GEMM = _ALONE._replace(needs=("gemm-exact",))

CASES = (
    _ALONE._replace(name="speed-copy", stress=True, level="quick", faults=_WHOLE),
    _GEMM._replace(name="speed-gemm", level="quick"),
    _ALONE._replace(name="speed-triad"),
    _ALONE._replace(name="speed-host-copies", faults=_WHOLE),
    _ALONE._replace(name="speed-attention", faults=CLOSE, needs=("attention",)),
    _ALONE._replace(name="speed-launch", faults=_WHOLE),
    _GEMM._replace(name="speed-sustained", level="stress"),
)
