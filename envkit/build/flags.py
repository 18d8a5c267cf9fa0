"""What `docker run` must be told for an image to work, each flag with its reason; and what the images are called."""

from __future__ import annotations

from envkit.plan.lockfile import Lock
from envkit.plan.spec import Flavor
from envkit.records import dataclass

WORKSPACE = "/workspace"
HOME = "/home/job"  # of a job's user in the container
SHM = "8g"
SSH_PORT = 2222
JUPYTER_PORT = 8888


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of `docker run` as its arguments, and why the image needs it."""

    arguments: tuple[str, ...]
    why: str


def image(lock: Lock, flavor: Flavor) -> str:
    """The name that `envkit build` gives to a flavor's image."""
    return f"envkit/{lock.name}:{'latest' if flavor.value == lock.flavor else flavor.value}"


def stack(lock: Lock) -> str:
    """What must be the same for jobs to share a HOME: what is compiled for one torch, CUDA and Python is wrong for
    another."""
    return f"torch{lock.torch}-{f'cuda{lock.cuda}' if lock.cuda else 'cpu'}-python{lock.python}"


def run_flags(lock: Lock, flavor: Flavor) -> tuple[Flag, ...]:
    """What `docker run` must be told for the flavor's tools to work, each with its reason.

    Ports are those of the loopback alone; nothing here makes the container privileged.
    """
    gpus = Flag(("--device", "nvidia.com/gpu=all"), "the GPUs, by CDI; for an engine without CDI use --gpus all")
    flags = [
        *([gpus] if lock.cuda else []),
        Flag(("--init",), "stops and reaps processes that the first process leaves behind"),
        Flag(
            ("--shm-size", SHM), "DataLoader workers and NCCL pass tensors through /dev/shm, which is 64 MB by default"
        ),
        Flag(("--ulimit", "memlock=-1"), "NCCL locks memory for its transports"),
    ]
    if flavor is not Flavor.RUNTIME:
        volume = f"{lock.name}-workspace:{WORKSPACE}"
        flags.append(Flag(("--volume", volume), "files in the workspace outlive the container"))
    if flavor is Flavor.DEBUG:
        flags += [
            Flag(("--cap-add", "SYS_PTRACE"), "gdb, cuda-gdb, py-spy and strace attach to other processes"),
            Flag(
                ("--cap-add", "PERFMON"),
                "nsys samples the CPU with perf_event_open, which the engine otherwise refuses",
            ),
            Flag(("--ulimit", "core=-1"), "core dumps of any size"),
            Flag(("--publish", f"127.0.0.1:{SSH_PORT}:{SSH_PORT}"), "SSH, reachable from this machine only"),
            Flag(
                ("--publish", f"127.0.0.1:{JUPYTER_PORT}:{JUPYTER_PORT}"), "Jupyter, reachable from this machine only"
            ),
        ]
    return tuple(flags)


def notes(lock: Lock, flavor: Flavor) -> tuple[str, ...]:
    """What no flag of ours can give, and who can."""
    if flavor is not Flavor.DEBUG:
        return ()
    cores = "the host decides in kernel.core_pattern where core dumps are written"
    if not lock.cuda:
        return (cores,)
    return (
        "GPU performance counters (ncu, nsys --gpu-metrics-device) are for administrators (ERR_NVGPUCTRPERM): let the"
        " host load the driver with NVreg_RestrictProfilingToAdminUsers=0, or add --cap-add SYS_ADMIN, which gives the"
        " container most of root's power over the host",
        "nsys samples the CPU only if the host's kernel.perf_event_paranoid is 2 or less",
        cores,
    )
