"""Several GPUs and the processes that share them.

Where fewer than two GPUs are seen, tests whose logic means something there run as two processes on the CPU with gloo;
their measures then bear its name and say nothing about NCCL.
"""

from envkit.payload.smoke.case import GENERIC, Case

_CLOSE = ("ulp", "nan", "scale", "block", "order")

CASES = (
    Case("rank-versions", several=2, level="full", faults=("one",)),
    Case("p2p-copies", stress=True, cpu=False, several=2, level="full", faults=(*GENERIC, "order"), seconds=120.0),
    Case("devices-alike", cpu=False, several=2, level="full", faults=(*GENERIC, "device")),
    Case("nccl-allreduce", stress=True, several=2, level="full", faults=(*GENERIC, "order"), seconds=90.0),
    Case("nccl-collectives", several=2, level="full", faults=(*GENERIC, "order"), needs=("nccl-allreduce",)),
    Case("transport-matrix", cpu=False, several=2, level="full", faults=GENERIC, seconds=130.0),
    Case("error-hang-ranks", several=2, level="full", faults=("fault",), seconds=150.0),
    Case("ddp", several=2, level="full", faults=_CLOSE, needs=("nccl-allreduce",)),
    Case("ddp-unfreeze", several=2, level="full", faults=_CLOSE, needs=("ddp",)),
    Case("fsdp", several=2, level="full", faults=_CLOSE, needs=("nccl-collectives",)),
)
