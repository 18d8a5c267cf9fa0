"""What is asked of the machine itself: shared memory, limits, the C library, names, and where envkit runs."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.errors import UsageError
from envkit.facts import Facts
from envkit.judging.checks._host import gib, loaded_driver, need_driver, nvml_answers
from envkit.judging.checks._outcomes import error, note, unknown_if, warning
from envkit.judging.checks._rows import rows
from envkit.model import Finding, Severity, Unknown
from envkit.subjects import Host
from envkit.subjects.host import Limit
from envkit.versions import Glibc

_GIB = 1024**3
_MIB = 1024**2

_SHM_FREE = 0.10  # of its size; a proposal: a running job fills it as planned, a dead one leaves it full
# PyTorch's data loader keeps a descriptor for each tensor on its way between processes; a proposal, not a measurement
_NOFILE_WANTED = 4096
_STACK_WANTED = 8 * _MIB  # the kernel's default; below it deep C++ recursion in compilers ends in SIGSEGV
_MEMLOCK_RDMA = 32 * _GIB  # Primus' node smoke test, where RDMA registers GPU buffers


def host_shm_nearly_full(host: Host) -> Iterator[Finding]:
    """Most of /dev/shm is not taken by what other processes left there."""
    size, free = host.shm.need("the size of /dev/shm"), host.shm_free.need("the room in /dev/shm")
    if free < _SHM_FREE * size:
        yield warning(
            f"/dev/shm has {gib(free)} of {gib(size)} free",
            "/dev/shm",
            {f"{free} bytes": host.shm_free.via},
            "remove what dead processes left (`ls -l /dev/shm`: torch_*, nccl-*) once no job runs; check it with "
            "`df -h /dev/shm`",
        )


def host_resource_limits_too_low(host: Host) -> Iterator[Finding]:
    """Resource limits allow open files, stack and locked memory."""
    limits = host.limits.need("this process's limits")
    infiniband = [device.name for device in host.infiniband.need("whether there are RDMA devices")]
    files, stack, memlock = (limits.get(name) for name in ("nofile", "stack", "memlock"))
    if files is None or stack is None or memlock is None:
        raise Unknown("not all of nofile, stack and memlock were observed")
    if 0 <= files.soft < _NOFILE_WANTED:
        yield _few_files(files, host.limits.via)
    if 0 <= stack.soft < _STACK_WANTED:
        yield warning(
            f"the stack is limited to {stack.soft // 1024} KiB, less than {_STACK_WANTED // 1024} KiB",
            "RLIMIT_STACK",
            {str(stack.soft): host.limits.via},
            "raise it with `ulimit -s`, and `--ulimit stack=67108864` for containers; check it with `ulimit -s`",
        )
    if infiniband and 0 <= memlock.soft < _MEMLOCK_RDMA:
        yield warning(
            f"{', '.join(infiniband)} need locked memory and only {memlock.soft // 1024} KiB may be locked",
            "RLIMIT_MEMLOCK",
            {str(memlock.soft): host.limits.via, ", ".join(infiniband): host.infiniband.via},
            "set memlock to unlimited in /etc/security/limits.conf and in the service that starts jobs, and "
            "`--ulimit memlock=-1` for containers; check it with `ulimit -l`",
        )


def _few_files(files: Limit, via: str) -> Finding:
    raisable = files.hard < 0 or files.hard >= _NOFILE_WANTED
    return Finding(
        f"this process may open {files.soft} files, {files.hard if files.hard >= 0 else 'unlimited'} if it "
        "raises the limit itself, "
        f"and {_NOFILE_WANTED} are wanted",
        Severity.NOTE if raisable else Severity.WARNING,
        "RLIMIT_NOFILE",
        {str(files.soft): via},
        f"set nofile in /etc/security/limits.conf, and `--ulimit nofile={_NOFILE_WANTED}` for containers; "
        "check it with `ulimit -n`",
    )


def host_glibc_too_old_for_torch(host: Host, facts: Facts) -> Iterator[Finding]:
    """The C library is new enough for the newest torch wheels."""
    here = Glibc(host.glibc.need("the C library"))
    tagged = [row for row in facts.torches if row.glibc is not None]
    unknown_if(not tagged, "the facts name no torch build's glibc")
    newest = max(tagged, key=lambda row: row.torch)
    if newest.glibc is not None and here < newest.glibc:
        yield warning(
            f"glibc is {here}, and the wheels of torch {newest.torch} need {newest.glibc}",
            evidence={str(here): host.glibc.via, str(newest.glibc): newest.source},
            fix="this concerns `--engine local` alone: containers bring their own; update the distribution or use "
            "one; check it with `ldd --version`",
        )


def host_gpu_product_unknown(host: Host, facts: Facts) -> Iterator[Finding]:
    """The facts know each GPU's product, so that what is judged by them is judged at all."""
    need_driver(host)
    gpus = nvml_answers(host).gpus
    unknown_if(not gpus, "NVML lists no GPU")
    for gpu in gpus:
        name = gpu.name.need(f"the name of GPU {gpu.index}")
        try:
            facts.gpu(name)
        except UsageError:
            yield warning(
                f"the facts do not know the product `{name}`",
                f"GPU {gpu.index}",
                {name: gpu.name.via},
                "update envkit: what depends on the product (peaks, good figures) is not judged until then; check it "
                "with `envkit facts gpu`",
            )


def host_driver_branch_unknown(host: Host, facts: Facts) -> Iterator[Finding]:
    """The facts know the branch of the loaded driver."""
    need_driver(host)
    driver, via = loaded_driver(host)
    newest = max(facts.drivers, key=lambda row: row.branch, default=None)
    if newest is None:
        raise Unknown("the facts hold no branch of the driver")
    if facts.branch(driver) is None:
        yield note(
            f"the facts do not know the branch of the loaded driver {driver}, their newest is {newest.branch}",
            "the driver",
            {str(driver): via, f"seen {newest.seen}": newest.source},
            "update envkit: end of life and the CUDA that the branch speaks are not judged until then",
        )


def host_hostname_without_usable_address(host: Host) -> Iterator[Finding]:
    """The machine's own name leads to an address, on a machine of a cluster to one that others can reach."""
    seen = host.names.need("what the machine's name leads to")
    if seen.error or not seen.addresses:
        yield warning(
            f"the machine's name {seen.hostname} does not resolve: {seen.error or 'no address'}",
            "/etc/hosts",
            {seen.hostname: host.names.via},
            f"name it in /etc/hosts or in the DNS; check it with `getent hosts {seen.hostname}`",
        )
    elif all(_is_loopback(address) for address in seen.addresses) and host.infiniband.need("the RDMA devices"):
        yield warning(
            f"the machine's name {seen.hostname} resolves only to {', '.join(seen.addresses)}, which no other machine "
            "reaches",
            "/etc/hosts",
            {", ".join(seen.addresses): host.names.via},
            "let it lead to the address of the cluster's network, or name the interface with GLOO_SOCKET_IFNAME and "
            f"NCCL_SOCKET_IFNAME; check it with `getent hosts {seen.hostname}`",
        )


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def host_localhost_not_loopback(host: Host) -> Iterator[Finding]:
    """The name localhost leads to this machine alone, as `torchrun --standalone` and every local server need."""
    seen = host.names.need("what localhost leads to")
    if seen.localhost_error or not seen.localhost:
        said = seen.localhost_error or "no address"
    elif not all(_is_loopback(address) for address in seen.localhost):
        said = ", ".join(seen.localhost)
    else:
        return
    yield error(
        f"localhost does not resolve to this machine: {said}",
        "/etc/hosts",
        {said: host.names.via},
        "write `127.0.0.1 localhost` into /etc/hosts; check it with `getent ahosts localhost`",
    )


CHECKS = rows(__name__)
