"""What is asked of the limits and namespaces of a job: shared memory, locked memory, files, network, privileges."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._fabric import name_filter
from envkit.judging.checks._launch import (
    AGAIN,
    GIB,
    MIB,
    declared,
    given,
    need_nodes,
    nodes,
    some,
    variables,
    wanted,
    who,
)
from envkit.judging.checks._outcomes import error, note, skip_if, warning
from envkit.model import Finding, Observed, Severity, Skip
from envkit.subjects.host import Limit
from envkit.subjects.launch import Launch

# Below 512 MiB DeepSpeed's ds_report warns of failing data loaders; NVIDIA's NCCL documentation gives containers 1 GiB
# (--shm-size=1g) for its own segments; Primus' node smoke test wants 8 GiB where both come together.
_SHM_WORKERS, _SHM_NCCL, _SHM_WANTED = 512 * MIB, GIB, 8 * GIB
_MEMLOCK_WANTED = 32 * GIB  # Primus' node smoke test, where RDMA registers GPU buffers
_MEMLOCK_LEAST = 64 * MIB  # a proposal: systemd's default of 8 MiB fails at NCCL's first ibv_reg_mr of a few MiB each
_STACK_WANTED = 8 * MIB  # the kernel's default
_NOFILE_WANTED = 4096  # the data loader keeps a descriptor for each tensor on its way; a proposal
# A torch with 4 and with 8 data loader workers was counted: each worker has three threads; beside them a process that
# uses CUDA has some eight of the driver and of autograd, and those of OpenMP: a proposal
_THREADS_OF_WORKER, _THREADS_OF_RANK = 3, 8
_MEMORY_OF_RANK = GIB  # a proposal: `import torch` alone keeps 437 MiB, a CUDA context some hundreds
_LEAST_PORT = 1024  # net.ipv4.ip_unprivileged_port_start; a container with a network of its own has 0 there (Docker)
# these give each rank the address and the port themselves
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "composer")
_MIGHTY = ("ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO", "SYS_PTRACE", "NET_ADMIN", "DAC_READ_SEARCH")


def _amount(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size // MIB} MiB"


def _gpus(launch: Launch) -> int:
    """How many GPUs the job gets, 0 if none or nobody said."""
    return len(given(launch).gpus) if launch.job.gpus.value else 0


def launch_shm_too_small(launch: Launch) -> Iterator[Finding]:
    """/dev/shm is large enough for the data loader's workers and for NCCL."""
    workers = launch.job.workers.value or 0
    gpus = _gpus(launch)
    if not workers and gpus < 2:
        declared(launch.job.workers, "how many workers the data loader has")
        raise Skip("the job has no data loader workers and no more than one GPU")
    shared = launch.job.ipc.value == "host"
    source: Observed[int] = launch.host.shm if shared else launch.job.shm
    size = launch.host.shm.need("the size of /dev/shm") if shared else declared(source, "the size of /dev/shm")
    least = max(_SHM_WORKERS if workers else 0, _SHM_NCCL if gpus > 1 else 0)
    best = _SHM_WANTED if workers and gpus > 1 else least
    if size >= best:
        return
    users = [some(workers, "data loader worker")] if workers else []
    users += [f"NCCL with {gpus} GPUs"] if gpus > 1 else []
    yield Finding(
        f"/dev/shm will have {_amount(size)} for {' and '.join(users)}, which need {_amount(least)}"
        + (f" and better {_amount(best)}" if best > least else ""),
        Severity.ERROR if size < least else Severity.WARNING,
        "/dev/shm",
        {f"{size} bytes": source.via},
        f"give `--shm-size={max(1, best // GIB)}g` or `--ipc=host`; {AGAIN}",
    )


def launch_shm_fills_memory_limit(launch: Launch) -> Iterator[Finding]:
    """The memory limit of the job leaves room beside a full /dev/shm."""
    limit = declared(launch.job.memory, "the memory limit")
    shm = declared(launch.job.shm, "the size of /dev/shm")
    if shm >= limit:
        yield warning(
            f"the job may use {_amount(limit)} of memory and fill /dev/shm with {_amount(shm)} of it",
            "--memory",
            {f"{limit} bytes": launch.job.memory.via, f"{shm} bytes": launch.job.shm.via},
            f"give more memory, or a smaller --shm-size; {AGAIN}",
        )


def _devices(launch: Launch) -> tuple[str, ...]:
    """The names of the machine's RDMA devices."""
    return tuple(one.name for one in launch.host.infiniband.need("whether there are RDMA devices"))


def _rdma(launch: Launch) -> tuple[str, ...]:
    """The machine's RDMA devices for a job on several machines; raises Skip if there are none."""
    need_nodes(launch)
    devices = _devices(launch)
    skip_if(not devices, "there is no RDMA device on this machine")
    return devices


def launch_memlock_too_low_for_rdma(launch: Launch) -> Iterator[Finding]:
    """A job on several machines with RDMA may lock enough memory."""
    devices = _rdma(launch)
    if launch.job.privileged.value or "IPC_LOCK" in (launch.job.capabilities.value or ()):
        return
    limits = declared(launch.job.limits, "the limits of the job")
    limit = limits.get("memlock")
    if limit is not None and (limit.soft < 0 or limit.soft >= _MEMLOCK_WANTED):
        return
    unset = "has the memlock limit of the engine's service, because it sets none"
    has = f"may lock {_amount(limit.soft)}" if limit else unset
    yield Finding(
        f"{', '.join(devices)} register memory, and the job {has}",
        Severity.ERROR if limit is not None and limit.soft < _MEMLOCK_LEAST else Severity.WARNING,
        "--ulimit memlock",
        {str(limit.soft) if limit else "not given": launch.job.limits.via, ", ".join(devices): "/sys/class/infiniband"},
        f"give `--ulimit memlock=-1`; {AGAIN}",
    )


def _limit(launch: Launch, name: str) -> Limit:
    limits = declared(launch.job.limits, "the limits of the job")
    skip_if(name not in limits, f"no limit {name} was declared")
    return limits[name]


def launch_stack_limit_too_low(launch: Launch) -> Iterator[Finding]:
    """The stack that the job is given is no smaller than the kernel's default."""
    limit = _limit(launch, "stack")
    if 0 <= limit.soft < _STACK_WANTED:
        yield warning(
            f"the stack is limited to {limit.soft // 1024} KiB, less than {_STACK_WANTED // 1024} KiB",
            "--ulimit stack",
            {str(limit.soft): launch.job.limits.via},
            f"give `--ulimit stack=67108864`; {AGAIN}",
        )


def launch_open_files_limit_too_low(launch: Launch) -> Iterator[Finding]:
    """A job whose data loader has workers may open enough files.

    With the strategy file_descriptor each tensor on its way keeps one.  Source: PyTorch, multiprocessing, sharing
    strategies; the number is a proposal.
    """
    workers = declared(launch.job.workers, "how many workers the data loader has")
    skip_if(not workers, "the data loader has no workers")
    limit = _limit(launch, "nofile")
    if 0 <= limit.soft < _NOFILE_WANTED:
        yield warning(
            f"{some(workers, 'data loader worker')} may open {limit.soft} files, less than {_NOFILE_WANTED}",
            "--ulimit nofile",
            {str(limit.soft): launch.job.limits.via},
            f"give `--ulimit nofile={16 * _NOFILE_WANTED}`; {AGAIN}",
        )


def launch_rdma_devices_missing(launch: Launch) -> Iterator[Finding]:
    """A job on several machines is given the RDMA devices that this one has."""
    devices = _rdma(launch)
    if launch.job.privileged.value:
        return
    handed = declared(launch.job.devices, "which devices the job gets")
    if not any(one.partition(":")[0].startswith("/dev/infiniband") for one in handed):
        yield warning(
            f"this machine has {', '.join(devices)} and the job gets no device of /dev/infiniband: NCCL will use TCP",
            "--device",
            {", ".join(handed) or "none": launch.job.devices.via, ", ".join(devices): launch.host.infiniband.via},
            f"give `--device=/dev/infiniband --cap-add=IPC_LOCK`; {AGAIN}",
        )


def launch_network_unreachable_by_peers(launch: Launch) -> Iterator[Finding]:
    """A job on several machines has a network in which the others can reach it."""
    count = need_nodes(launch)
    network = declared(launch.job.network, "the network of the job")
    if network == "host":
        return
    yield Finding(
        f"the job runs on {count} machines and its network is {network}",
        Severity.ERROR if network == "none" else Severity.WARNING,
        "--network",
        {network: launch.job.network.via},
        f"give `--network=host`; {AGAIN}",
    )


def launch_master_addr_is_localhost(launch: Launch) -> Iterator[Finding]:
    """MASTER_ADDR of a job on several machines is no name of the machine itself."""
    count = need_nodes(launch)
    address = variables(launch).get("MASTER_ADDR", "")
    skip_if(not address, "MASTER_ADDR is not set: the command names the rendezvous")
    if address in ("localhost", "::1", "0.0.0.0") or address.startswith("127."):
        yield error(
            f"the job runs on {count} machines and MASTER_ADDR is {address}",
            "MASTER_ADDR",
            {address: launch.job.environment.via},
            f"set it to the first machine's name or address, at which the others reach it; {AGAIN}",
        )


def launch_privileges_excessive(launch: Launch) -> Iterator[Finding]:
    """The job is given no privileges beyond what GPUs need, which is none."""
    mighty = [one for one in launch.job.capabilities.value or () if one in _MIGHTY]
    if launch.job.privileged.value or mighty:
        what = "all privileges and every device" if launch.job.privileged.value else ", ".join(mighty)
        yield note(
            f"the job is given {what}, which GPUs do not need",
            "--privileged" if launch.job.privileged.value else "--cap-add",
            {what: launch.job.privileged.via or launch.job.capabilities.via},
            "grant only the devices that it needs; profilers need SYS_ADMIN only where the driver restricts "
            f"them; {AGAIN}",
        )
        return
    declared(launch.job.privileged, "whether the job is privileged")
    declared(launch.job.capabilities, "the capabilities of the job")


def launch_socket_interface_unusable(launch: Launch) -> Iterator[Finding]:
    """NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME name an interface that the job has, and on several machines not lo."""
    env = variables(launch)
    named = {name: env[name] for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if env.get(name)}
    skip_if(not named, "neither NCCL_SOCKET_IFNAME nor GLOO_SOCKET_IFNAME is set")
    network = declared(launch.job.network, "the network of the job")
    if network == "host":
        here = tuple(one.name for one in launch.host.network.need("the network interfaces"))
    else:
        here = ("lo",) if network == "none" else ("eth0", "lo")
    several = (launch.job.nodes.value or 1) > 1
    for name, text in named.items():
        whole = [one for one in here if one in text.split(",")]
        found = _matching(text, here) if name.startswith("NCCL") else whole
        if set(found) == {"lo"}:
            nodes(launch)  # alone it is well, and whether it is alone must be known
        if not found or (several and set(found) == {"lo"}):
            yield error(
                f"{name} is `{text}` and "
                + ("matches only lo, which reaches no other machine" if found else f"the job has {', '.join(here)}"),
                name,
                {f"{name}={text}": launch.job.environment.via, ", ".join(here): launch.host.network.via or network},
                f"name an interface that `ip -br link` shows, or unset it; {AGAIN}",
            )


def _matching(text: str, here: tuple[str, ...]) -> list[str]:
    """The names that NCCL's list leaves."""
    wanted = name_filter(text).without_ports()
    return [one for one in here if wanted.takes(one)]


def launch_nccl_hca_matches_no_device(launch: Launch) -> Iterator[Finding]:
    """NCCL_IB_HCA leaves an RDMA device that this machine has."""
    text = variables(launch).get("NCCL_IB_HCA", "")
    skip_if(not text, "NCCL_IB_HCA is not set")
    here = _devices(launch)
    if not _matching(text, here):
        yield warning(
            f"NCCL_IB_HCA is `{text}` and this machine has {', '.join(here) or 'no RDMA device'}",
            "NCCL_IB_HCA",
            {f"NCCL_IB_HCA={text}": launch.job.environment.via, ", ".join(here) or "none": launch.host.infiniband.via},
            f"name devices that `ls /sys/class/infiniband` shows, or unset it; {AGAIN}",
        )


def launch_nccl_transport_disabled(launch: Launch) -> Iterator[Finding]:
    """No variable turns off a transport that NCCL would use between the GPUs of the job."""
    wanted(launch)
    env = variables(launch)
    gpus, count = _gpus(launch), launch.job.nodes.value or 1
    skip_if(gpus < 2 and count < 2, "the job has one GPU")
    off = {}
    if gpus > 1:
        off["NCCL_P2P_DISABLE"] = "GPUs no longer reach one another by NVLink or PCI"
        off["NCCL_SHM_DISABLE"] = "ranks on one machine without peer access communicate over the network"
    if count > 1 and _devices(launch):
        off["NCCL_IB_DISABLE"] = "NCCL does not use InfiniBand or RoCE and uses TCP"
    for name, costs in off.items():
        if env.get(name, "0").strip() not in ("", "0"):
            yield warning(
                f"{name} is `{env[name]}`: {costs}",
                name,
                {f"{name}={env[name]}": launch.job.environment.via},
                f"unset {name}; {AGAIN}",
            )


def _tasks(launch: Launch) -> tuple[int, int]:
    """How many tasks the job has at the least, and how many are likely; raises Skip where nobody said."""
    workers = declared(launch.job.workers, "how many workers the data loader has")
    ranks = launch.job.ranks.value or 1
    text = variables(launch).get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    pool = int(text) if text.isdecimal() and int(text) else launch.host.processors.need("the processors").usable
    least = ranks * (1 + _THREADS_OF_WORKER * workers)
    return least, least + ranks * (_THREADS_OF_RANK + pool)


def launch_process_limit_too_low(launch: Launch) -> Iterator[Finding]:
    """The job may have as many processes and threads as its ranks and data loader workers need."""
    limits = {}
    if launch.job.pids.value is not None:
        limits["--pids-limit"] = (launch.job.pids.value, launch.job.pids.via)
    nproc = (launch.job.limits.value or {}).get("nproc")
    if nproc is not None and nproc.soft >= 0 and who(launch).uid != 0:  # the kernel spares root
        limits["--ulimit nproc"] = (nproc.soft, launch.job.limits.via)
    skip_if(not limits, "no limit on processes was declared")
    least, likely = _tasks(launch)
    for name, (most, via) in limits.items():
        if most < likely:
            workers, ranks = launch.job.workers.value or 0, launch.job.ranks.value or 1
            enough = max(2 * likely, 4096)
            yield Finding(
                f"{some(ranks, 'rank')} with {some(workers, 'data loader worker')} each have {least} processes and "
                f"threads at the least and likely {likely}, and {most} are allowed",
                Severity.ERROR if most < least else Severity.WARNING,
                name,
                {str(most): via, f"{workers} workers": launch.job.workers.via},
                f"give `{name}{'=' if name.endswith('nproc') else ' '}{enough}`, or fewer workers; {AGAIN}",
            )


def launch_more_workers_than_cpus(launch: Launch) -> Iterator[Finding]:
    """There is a processor for every data loader worker of the job."""
    workers = declared(launch.job.workers, "how many workers the data loader has")
    skip_if(not workers, "the data loader has no workers")
    ranks = launch.job.ranks.value or 1
    usable = launch.host.processors.need("the processors").usable
    granted = launch.job.cpus.value
    here = usable if granted is None else min(granted, usable)
    if ranks * workers > here:
        yield warning(
            f"{some(ranks, 'rank')} with {some(workers, 'data loader worker')} each are {ranks * workers} workers on "
            f"{here:g} processors",
            "workers",
            {
                f"{workers} workers": launch.job.workers.via,
                f"{here:g} processors": launch.host.processors.via if granted is None else launch.job.cpus.via,
            },
            f"give each rank at most {max(int(here // ranks), 1)} workers, or more processors; {AGAIN}",
        )


def launch_memory_limit_too_low_for_ranks(launch: Launch) -> Iterator[Finding]:
    """The memory limit of the job leaves each of its ranks enough to start."""
    limit = declared(launch.job.memory, "the memory limit")
    ranks = declared(launch.job.ranks, "how many ranks run here")
    if limit < ranks * _MEMORY_OF_RANK:
        yield warning(
            f"{some(ranks, 'rank')} may use {_amount(limit)} of memory together, less than {_amount(_MEMORY_OF_RANK)} "
            "each: importing torch and starting CUDA take most of that",
            "--memory",
            {f"{limit} bytes": launch.job.memory.via, f"{ranks} ranks": launch.job.ranks.via},
            f"give `--memory {4 * ranks}g` or more; {AGAIN}",
        )


def launch_master_port_unusable(launch: Launch) -> Iterator[Finding]:
    """The port that the first rank listens on is one that it may take and that the others know."""
    text = variables(launch).get("MASTER_PORT", "").strip()
    skip_if(not text, "MASTER_PORT is not set")
    words = launch.job.command.value or ()
    skip_if(words and words[0].rpartition("/")[2] in _LAUNCHERS, f"{words[0] if words else ''} sets it itself")
    if not text.isdecimal():
        return  # launch-variable-invalid says it
    port = int(text)
    count = (launch.job.ranks.value or 1) * (launch.job.nodes.value or 1)
    world = variables(launch).get("WORLD_SIZE", "")
    if port == 0 and count > 1 and not world:  # with WORLD_SIZE launch-variables-contradict says it
        yield error(
            f"MASTER_PORT is 0 and the job has {count} ranks: the first takes any free port, and no other learns which",
            "MASTER_PORT",
            {text: launch.job.environment.via},
            f"set it to a free port from {_LEAST_PORT} on; {AGAIN}",
        )
    if 0 < port < _LEAST_PORT and launch.job.network.value == "host" and who(launch).uid != 0:
        yield error(
            f"MASTER_PORT is {port}, and in the machine's network only root may listen below {_LEAST_PORT}",
            "MASTER_PORT",
            {text: launch.job.environment.via, f"user {who(launch).uid}": launch.job.user.via},
            f"set it to a free port from {_LEAST_PORT} on; {AGAIN}",
        )
