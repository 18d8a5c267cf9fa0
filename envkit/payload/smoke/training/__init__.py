"""Steps of training."""

from envkit.payload.smoke.case import CLOSE, GENERIC, Case

_FULL = Case("", level="full", faults=(*GENERIC, "order"))
_MEMCHECK = _FULL._replace(sanitize=("memcheck",))

CASES = (
    Case("freeze-unfreeze", faults=CLOSE),
    _FULL._replace(name="autocast-training", faults=CLOSE, needs=("conv", "gemm-random")),
    _MEMCHECK._replace(name="grad-scaler", faults=(*GENERIC, "fault")),
    _FULL._replace(name="checkpointing"),
    _MEMCHECK._replace(name="optimizers", faults=(*CLOSE, "order")),
    _FULL._replace(name="accumulate", needs=("gemm-exact",)),
    _FULL._replace(name="deterministic"),
    _MEMCHECK._replace(name="wkv", cpu=False, faults=("nan", "scale", "block"), needs=("vector-add-nvrtc",)),
)
