"""Products of matrices."""

from envkit.payload.smoke.case import CLOSE, GENERIC, Case

_BITS = ("ulp", "nan", "block")
_FULL = Case("", level="full", faults=CLOSE, needs=("gemm-exact",))
_ON_GPU = _FULL._replace(cpu=False)

CASES = (
    Case("gemm-exact", stress=True, faults=GENERIC),
    _FULL._replace(name="gemm-random", level="quick"),
    _ON_GPU._replace(name="gemm-tf32-exact", faults=GENERIC),
    _FULL._replace(name="gemm-batched"),
    _FULL._replace(name="gemm-fp8", stress=True),
    _FULL._replace(name="gemm-int8", stress=True, faults=("ulp", "one", "scale", "block"), needs=()),
    _FULL._replace(name="gemm-odd-shapes", faults=("ulp", "one", "nan", "block")),
    _ON_GPU._replace(name="gemm-repeat", stress=True, faults=_BITS, needs=("gemm-random",)),
    _ON_GPU._replace(name="gemm-split-k", needs=("gemm-random",)),
    _ON_GPU._replace(name="gemm-large", stress=True, faults=_BITS),
    _ON_GPU._replace(name="gemm-cublas", faults=(*_BITS, "order"), needs=("gemm-exact", "streams-events")),
    _FULL._replace(name="gemm-complex", faults=("ulp", "one", "nan", "block"), needs=()),
)
