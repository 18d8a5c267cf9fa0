"""The libraries that torch calls."""

from envkit.payload.smoke.case import Case

_CLOSE = ("ulp", "nan", "scale", "block")
_EXACT = ("ulp", "one", "nan", "scale", "block")
_WHOLE = ("ulp", "one", "scale", "block")  # where only integers are compared
_GEMM = ("gemm-exact",)

CASES = (
    Case("conv", saboteurs=_CLOSE),
    Case("conv-variants", level="full", saboteurs=_CLOSE, needs=("conv",)),
    Case("rnn", level="full", saboteurs=_CLOSE, needs=_GEMM),
    Case("attention", saboteurs=_CLOSE, needs=_GEMM),
    Case("attention-kernels", level="full", saboteurs=_CLOSE, needs=("attention",)),
    Case("normalization", level="full", saboteurs=_EXACT),
    Case("fft", level="full", saboteurs=_CLOSE),
    Case("solve", level="full", saboteurs=_CLOSE, needs=_GEMM),
    Case("linalg", level="full", saboteurs=_CLOSE, needs=("solve",)),
    Case("random", level="full", saboteurs=_EXACT),
    Case("sort-scatter", level="full", saboteurs=_EXACT),
    Case("elementwise", level="full", saboteurs=_EXACT),
    Case("embedding", level="full", saboteurs=_EXACT),
    Case("einsum", level="full", saboteurs=_EXACT, needs=_GEMM),
    Case("sparse", level="full", saboteurs=_EXACT),
    Case("sparse-formats", level="full", saboteurs=_EXACT, needs=("sparse",)),
    Case("indexing-large", cpu=False, level="full", saboteurs=_WHOLE),
)
