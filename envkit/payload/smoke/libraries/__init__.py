"""The libraries that torch calls."""

from envkit.payload.smoke.case import CLOSE, GENERIC, Case

_WHOLE = ("ulp", "one", "scale", "block")  # where only integers are compared
_GEMM = ("gemm-exact",)

CASES = (
    Case("conv", faults=CLOSE),
    Case("conv-variants", level="full", faults=CLOSE, needs=("conv",)),
    Case("rnn", level="full", faults=CLOSE, needs=_GEMM),
    Case("attention", faults=CLOSE, needs=_GEMM),
    Case("attention-kernels", level="full", faults=CLOSE, needs=("attention",)),
    Case("normalization", level="full", faults=GENERIC),
    Case("fft", level="full", faults=CLOSE),
    Case("solve", level="full", faults=CLOSE, needs=_GEMM),
    Case("linalg", level="full", faults=CLOSE, needs=("solve",)),
    Case("random", level="full", faults=GENERIC),
    Case("sort-scatter", level="full", faults=GENERIC),
    Case("elementwise", level="full", faults=GENERIC),
    Case("embedding", level="full", faults=GENERIC),
    Case("einsum", level="full", faults=GENERIC, needs=_GEMM),
    Case("sparse", level="full", faults=GENERIC),
    Case("sparse-formats", level="full", faults=GENERIC, needs=("sparse",)),
    Case("indexing-large", cpu=False, level="full", faults=_WHOLE),
)
