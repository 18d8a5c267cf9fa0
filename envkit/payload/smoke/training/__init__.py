"""Steps of training."""

from envkit.payload.smoke.case import CLOSE, GENERIC, Case

CASES = (
    Case("freeze-unfreeze", faults=CLOSE),
    Case("autocast-training", level="full", faults=CLOSE, needs=("conv", "gemm-random")),
    Case("grad-scaler", level="full", faults=(*GENERIC, "fault"), sanitize=("memcheck",)),
    Case("checkpointing", level="full", faults=(*GENERIC, "order")),
    Case("optimizers", level="full", faults=(*CLOSE, "order"), sanitize=("memcheck",)),
    Case("accumulate", level="full", faults=(*GENERIC, "order"), needs=("gemm-exact",)),
    Case("deterministic", level="full", faults=(*GENERIC, "order")),
    Case(
        "wkv",
        cpu=False,
        level="full",
        faults=("nan", "scale", "block"),
        needs=("vector-add-nvrtc",),
        sanitize=("memcheck",),
    ),
)
