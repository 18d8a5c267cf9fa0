"""Products of matrices."""

from envkit.payload.smoke.case import Case

CASES = (
    Case("gemm-exact", stress=True, saboteurs=("ulp", "one", "nan", "scale", "block")),
    Case("gemm-random", saboteurs=("ulp", "nan", "scale", "block"), needs=("gemm-exact",)),
    Case(
        "gemm-tf32-exact",
        cpu=False,
        level="full",
        saboteurs=("ulp", "one", "nan", "scale", "block"),
        needs=("gemm-exact",),
    ),
    Case("gemm-batched", level="full", saboteurs=("ulp", "nan", "scale", "block"), needs=("gemm-exact",)),
    Case("gemm-fp8", stress=True, level="full", saboteurs=("ulp", "nan", "scale", "block"), needs=("gemm-exact",)),
    Case("gemm-int8", stress=True, level="full", saboteurs=("ulp", "one", "scale", "block")),
    Case("gemm-odd-shapes", level="full", saboteurs=("ulp", "one", "nan", "block"), needs=("gemm-exact",)),
    Case(
        "gemm-repeat", stress=True, cpu=False, level="full", saboteurs=("ulp", "nan", "block"), needs=("gemm-random",)
    ),
    Case("gemm-split-k", cpu=False, level="full", saboteurs=("ulp", "nan", "scale", "block"), needs=("gemm-random",)),
    Case("gemm-large", stress=True, cpu=False, level="full", saboteurs=("ulp", "nan", "block"), needs=("gemm-exact",)),
    Case(
        "gemm-cublas",
        cpu=False,
        level="full",
        saboteurs=("ulp", "nan", "block", "order"),
        needs=("gemm-exact", "streams-events"),
    ),
    Case("gemm-complex", level="full", saboteurs=("ulp", "one", "nan", "block")),
)
