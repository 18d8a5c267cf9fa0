"""The libraries that torch calls."""

from envkit.payload.smoke.case import CLOSE, GENERIC, Case

_WHOLE = ("ulp", "one", "scale", "block")  # where only integers are compared
_GEMM = ("gemm-exact",)

CASES = (
    Case("conv", saboteurs=CLOSE),
    Case("conv-variants", level="full", saboteurs=CLOSE, needs=("conv",)),
    Case("rnn", level="full", saboteurs=CLOSE, needs=_GEMM),
    Case("attention", saboteurs=CLOSE, needs=_GEMM),
    Case("attention-kernels", level="full", saboteurs=CLOSE, needs=("attention",)),
    Case("normalization", level="full", saboteurs=GENERIC),
    Case("fft", level="full", saboteurs=CLOSE),
    Case("solve", level="full", saboteurs=CLOSE, needs=_GEMM),
    Case("linalg", level="full", saboteurs=CLOSE, needs=("solve",)),
    Case("random", level="full", saboteurs=GENERIC),
    Case("sort-scatter", level="full", saboteurs=GENERIC),
    Case("elementwise", level="full", saboteurs=GENERIC),
    Case("embedding", level="full", saboteurs=GENERIC),
    Case("einsum", level="full", saboteurs=GENERIC, needs=_GEMM),
    Case("sparse", level="full", saboteurs=GENERIC),
    Case("sparse-formats", level="full", saboteurs=GENERIC, needs=("sparse",)),
    Case("indexing-large", cpu=False, level="full", saboteurs=_WHOLE),
)
