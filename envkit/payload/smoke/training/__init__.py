"""Steps of training."""

from envkit.payload.smoke.case import CLOSE, GENERIC, Case

CASES = (
    Case("freeze-unfreeze", saboteurs=CLOSE),
    Case("autocast-training", level="full", saboteurs=CLOSE, needs=("conv", "gemm-random")),
    Case("grad-scaler", level="full", saboteurs=(*GENERIC, "fault"), sanitize=("memcheck",)),
    Case("checkpointing", level="full", saboteurs=(*GENERIC, "order")),
    Case("optimizers", level="full", saboteurs=(*CLOSE, "order"), sanitize=("memcheck",)),
    Case("accumulate", level="full", saboteurs=(*GENERIC, "order"), needs=("gemm-exact",)),
    Case("deterministic", level="full", saboteurs=(*GENERIC, "order")),
    Case(
        "wkv",
        cpu=False,
        level="full",
        saboteurs=("nan", "scale", "block"),
        needs=("vector-add-nvrtc",),
        sanitize=("memcheck",),
    ),
)
