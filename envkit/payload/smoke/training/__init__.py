"""Steps of training."""

from envkit.payload.smoke.case import Case

_EXACT = ("ulp", "one", "nan", "scale", "block")
_CLOSE = ("ulp", "nan", "scale", "block")

CASES = (
    Case("freeze-unfreeze", saboteurs=_CLOSE),
    Case("autocast-training", level="full", saboteurs=_CLOSE, needs=("conv", "gemm-random")),
    Case("grad-scaler", level="full", saboteurs=(*_EXACT, "fault"), sanitize=("memcheck",)),
    Case("checkpointing", level="full", saboteurs=(*_EXACT, "order")),
    Case("optimizers", level="full", saboteurs=(*_CLOSE, "order"), sanitize=("memcheck",)),
    Case("accumulate", level="full", saboteurs=(*_EXACT, "order"), needs=("gemm-exact",)),
    Case("deterministic", level="full", saboteurs=(*_EXACT, "order")),
    Case(
        "wkv",
        cpu=False,
        level="full",
        saboteurs=("nan", "scale", "block"),
        needs=("vector-add-nvrtc",),
        sanitize=("memcheck",),
    ),
)
