"""Products of matrices."""

from envkit.payload.smoke.case import CLOSE, GENERIC, Case

_FULL = Case("", level="full", saboteurs=CLOSE, needs=("gemm-exact",))
_ON_GPU = _FULL._replace(cpu=False)

CASES = (
    Case("gemm-exact", stress=True, saboteurs=GENERIC),
    _FULL._replace(name="gemm-random", level="quick"),
    _ON_GPU._replace(name="gemm-tf32-exact", saboteurs=GENERIC),
    _FULL._replace(name="gemm-batched"),
    _FULL._replace(name="gemm-fp8", stress=True),
    _FULL._replace(name="gemm-int8", stress=True, saboteurs=("ulp", "one", "scale", "block"), needs=()),
    _FULL._replace(name="gemm-odd-shapes", saboteurs=("ulp", "one", "nan", "block")),
    _ON_GPU._replace(name="gemm-repeat", stress=True, saboteurs=("ulp", "nan", "block"), needs=("gemm-random",)),
    _ON_GPU._replace(name="gemm-split-k", needs=("gemm-random",)),
    _ON_GPU._replace(name="gemm-large", stress=True, saboteurs=("ulp", "nan", "block")),
    _ON_GPU._replace(
        name="gemm-cublas", saboteurs=("ulp", "nan", "block", "order"), needs=("gemm-exact", "streams-events")
    ),
    _FULL._replace(name="gemm-complex", saboteurs=("ulp", "one", "nan", "block"), needs=()),
)
