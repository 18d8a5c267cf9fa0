"""What is asked of the ways between a machine's GPUs: peer access, the NVLink fabric, and every link of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from envkit.judging.checks._gpus import each_gpu, in_mig, of_each_gpu, of_each_product, told
from envkit.judging.checks._host import gpu_name, is_workstation, need_driver, nvml_answers
from envkit.judging.checks._outcomes import error, skip_if, unknown_if, warning
from envkit.model import Finding, Severity, Skip
from envkit.subjects import Host
from envkit.subjects.host import Gpu
from envkit.subjects.host.gpu import Fabric, NvLink

# The links of boards with switches run at 25 GB/s and more in each direction since the first of them (NVIDIA's
# data sheets of HGX boards, bandwidth by links); bridged cards have slower ones.
_SWITCHED_MBS = 25_000
_CRC_MANY = 100  # NVIDIA DCGM, DcgmGPUHardwareLimits.h: flawed packets matter from 100 a second on
_FLAWED = ("crc_flit", "crc_data")
_NARROWED = ("A800", "H800")  # sold with a part of their links switched off
_HEALTH = {
    "bandwidth degraded": (Severity.WARNING, "some of its links carry less than they should"),
    "route recovery": (Severity.WARNING, "a route is being recovered"),
    "route unhealthy": (Severity.ERROR, "a route is broken"),
    "access timeout recovery": (Severity.WARNING, "it recovers from an access that timed out"),
    "incorrect configuration": (Severity.ERROR, "it is configured wrongly"),
}

_MANAGER = "read `journalctl -u nvidia-fabricmanager`"
_STATUS = "check it with `nvidia-smi nvlink -s`"


def _links(gpu: Gpu) -> tuple[NvLink, ...]:
    """The GPU's links; skips where it has none, or is in MIG mode, in which NVML calls them down (as DCGM knows)."""
    links = told(gpu.links, "its NVLinks")
    skip_if(not links, "no GPU here has NVLink")
    skip_if(in_mig(gpu), "a GPU in MIG mode does not use its NVLinks")
    return links


def _switched(gpu: Gpu) -> bool:
    return any(link.active and link.remote == "switch" for link in gpu.links.value or ())


def host_gpu_peer_access_unavailable(host: Host) -> Iterator[Finding]:
    """The driver lets GPUs read each other's memory."""

    def judge(gpu: Gpu) -> Iterator[Finding]:
        skip_if(is_workstation(gpu), "the driver lets workstation GPUs reach each other by product, not by health")
        peers = told(gpu.p2p, "its peers")
        skip_if(not peers, "there is one GPU")
        skip_if(in_mig(gpu), "a GPU in MIG mode has no peers")
        denied = {index: why for index, why in peers.items() if why != "ok"}
        if not denied:
            return
        by_index = {str(other.index): other for other in nvml_answers(host).gpus}
        broken = [index for index in denied if _switched(gpu) and index in by_index and _switched(by_index[index])]
        forbidden = [index for index, why in denied.items() if "regkey" in why]
        if not broken and not forbidden and told(gpu.virtual, "whether it is virtual") != "none":
            raise Skip("a virtual machine's bus need not let GPUs reach each other")
        reasons = ", ".join(sorted(set(denied.values())))
        yield Finding(
            f"{gpu_name(gpu)} cannot read the memory of GPU {', '.join(denied)}: {reasons}",
            Severity.ERROR if broken else Severity.WARNING if forbidden else Severity.NOTE,
            evidence={f"GPU {index}: {why}": gpu.p2p.via for index, why in denied.items()},
            fix=f"{_PEERS if broken else _FORBIDDEN if forbidden else _BUS}; check it with `nvidia-smi topo -p2p r`",
        )

    yield from each_gpu(host, judge)


_PEERS = f"the fabric does not carry them, and NCCL falls back to slower ways or fails: {_MANAGER}"
_FORBIDDEN = "a driver option forbids it: look for NVreg_RegistryDwords in /etc/modprobe.d, and reboot"
_BUS = "NCCL goes by the machine's memory instead: a matter of slots, of the firmware's ACS and IOMMU settings"


def _fabric(gpu: Gpu) -> Fabric:
    return told(gpu.fabric, "an NVLink fabric")


@of_each_gpu
def host_fabric_gpu_not_registered(gpu: Gpu) -> Iterator[Finding]:
    """Every GPU that belongs to an NVLink fabric is registered in it."""
    fabric = _fabric(gpu)
    if fabric.state == "completed" and not fabric.status:
        return
    words = fabric.state + (f" with status {fabric.status}" if fabric.status else "")
    yield error(
        f"the registration of {gpu_name(gpu)} in the NVLink fabric is {words}",
        evidence={words: gpu.fabric.via},
        fix=f"CUDA waits for it and fails with error 802: start nvidia-fabricmanager, of the driver's own version, and "
        f"{_MANAGER}; check it with `nvidia-smi -q | grep -A4 Fabric`",
    )


def host_fabric_clique_mismatch(host: Host) -> Iterator[Finding]:
    """All GPUs that are registered in an NVLink fabric are in one cluster and clique."""
    need_driver(host)
    cliques: dict[tuple[str, int], list[int]] = {}
    via = ""
    for gpu in nvml_answers(host).gpus:
        try:
            fabric = _fabric(gpu)
        except Skip:
            continue
        if fabric.state == "completed":  # another state is host-fabric-gpu-not-registered's
            cliques.setdefault((fabric.cluster, fabric.clique), []).append(gpu.index)
            via = gpu.fabric.via
    skip_if(sum(map(len, cliques.values())) < 2, "no two GPUs are registered in an NVLink fabric")
    if len(cliques) > 1:
        words = [
            f"GPU {', '.join(map(str, own))} in clique {clique} of {cluster or 'no cluster'}"
            for (cluster, clique), own in cliques.items()
        ]
        yield warning(
            f"the GPUs are in {len(cliques)} NVLink cliques: {'; '.join(words)}",
            "NVLink fabric",
            dict.fromkeys(words, via),
            "if the machine is not partitioned on purpose, restart nvidia-fabricmanager after all jobs have ended, and "
            f"{_MANAGER}; check it with `nvidia-smi -q | grep -A8 Fabric`",
        )


@of_each_gpu
def host_fabric_unhealthy(gpu: Gpu) -> Iterator[Finding]:
    """The driver knows of no trouble with the way from a GPU into its NVLink fabric."""
    health = _fabric(gpu).health
    if all(said == "not supported" for said in health.values()):
        raise Skip("no GPU here reports the health of its NVLink fabric")
    for what, said in health.items():
        if said in ("false", "not supported"):
            continue
        severity, meaning = _HEALTH.get(what, (Severity.WARNING, "the driver says no more"))
        exact = "" if said == "true" else f" ({said})"
        yield Finding(
            f"the NVLink fabric of {gpu_name(gpu)} reports {what}{exact}: {meaning}",
            severity,
            evidence={f"{what}: {said}": gpu.fabric.via},
            fix=f"drain the machine, {_MANAGER}, then reset all GPUs together; check it with "
            "`nvidia-smi -q | grep -A12 Fabric`",
        )


def host_nvlink_down(host: Host) -> Iterator[Finding]:
    """Every NVLink that leads somewhere is up."""
    need_driver(host)
    most: Counter[str] = Counter()
    count: Counter[str] = Counter()
    boards: set[str] = set()
    for gpu in nvml_answers(host).gpus:
        name = gpu.name.value or ""
        count[name] += 1
        most[name] = max(most[name], sum(link.active for link in gpu.links.value or ()))
        if _switched(gpu) or "SXM" in name or gpu.fabric.value is not None:
            boards.add(name)

    def judge(gpu: Gpu) -> Iterator[Finding]:
        links = _links(gpu)
        name = gpu.name.need("its name")
        down = [link.link for link in links if not link.active]
        up = len(links) - len(down)
        # a lone GPU without a link is one that a virtual machine was given out of a board
        on_board = name in boards and (_switched(gpu) or count[name] > 1)
        whole = len(links) if on_board and not any(mark in name for mark in _NARROWED) else most[name]
        skip_if(not up and not on_board, "no GPU here is bridged by NVLink")
        if up < whole:
            yield Finding(
                f"{up} NVLinks of {gpu_name(gpu)} are up where {whole} should be; these are down: {_numbers(down)}",
                Severity.ERROR if on_board else Severity.WARNING,
                evidence={f"{up} of {len(links)} up": gpu.links.via},
                fix=f"drain the machine; `dmesg | grep -E 'NVLink|SXid'` and the fabric manager's log say why; reset "
                f"all GPUs together, or seat the bridge again; {_STATUS}",
            )

    yield from each_gpu(host, judge)


def _numbers(links: list[int]) -> str:
    return ", ".join(map(str, links))


def host_nvlink_speed_reduced(host: Host) -> Iterator[Finding]:
    """Every NVLink that is up runs as fast as the fastest of GPUs of its kind, and to a switch at 25 GB/s or more."""
    need_driver(host)
    fastest: Counter[str] = Counter()
    for gpu in nvml_answers(host).gpus:
        speeds = [link.speed for link in gpu.links.value or () if link.active]
        fastest[gpu.name.value or ""] = max([*speeds, fastest[gpu.name.value or ""]])

    def judge(gpu: Gpu) -> Iterator[Finding]:
        links = [link for link in _links(gpu) if link.active]
        skip_if(not any(link.speed for link in links), "no NVLink here reports its speed")
        unknown_if(any(not link.speed for link in links), "the speed of some of its NVLinks was not observed")
        best = max(fastest[gpu.name.need("its name")], _SWITCHED_MBS if _switched(gpu) else 0)
        slow = {link.link: link.speed for link in links if link.speed < best}
        if slow:
            yield warning(
                f"{len(slow)} NVLinks of {gpu_name(gpu)} run at {min(slow.values())} MB/s, and {best} MB/s is "
                "the expected speed",
                evidence={f"link {link}: {speed} MB/s": gpu.links.via for link, speed in slow.items()},
                fix=f"drain the machine and reset all GPUs together, so that the links train again; {_STATUS}",
            )

    yield from each_gpu(host, judge)


@of_each_gpu
def host_nvlink_errors_counted(gpu: Gpu) -> Iterator[Finding]:
    """No NVLink counted an error since the driver was loaded, but for a few flawed packets."""
    links = _links(gpu)
    skip_if(not any(link.errors for link in links if link.active), "no NVLink here counts its errors")
    totals: Counter[str] = Counter()
    bad: set[int] = set()
    for link in links:
        for what, number in link.errors.items():
            if number >= (_CRC_MANY if what in _FLAWED else 1):
                totals[what] += number
                bad.add(link.link)
    if bad:
        words = ", ".join(f"{what} {number}" for what, number in totals.items())
        yield warning(
            f"NVLinks {_numbers(sorted(bad))} of {gpu_name(gpu)} counted errors since the driver came up: {words}",
            evidence={f"{what} {number}": gpu.links.via for what, number in totals.items()},
            fix="watch whether they grow under load; if they do, seat the GPU or its bridge again and have the link "
            "repaired; check it with `nvidia-smi nvlink -e`",
        )


@of_each_product
def host_nvlinks_differ_between_gpus(product: str, gpus: list[Gpu]) -> Iterator[Finding]:
    """The NVLinks of GPUs of one product speak one version of NVLink and lead all of them to like partners."""
    seen: dict[str, list[int]] = {}
    for gpu in gpus:
        up = [link for link in _links(gpu) if link.active]
        if up:
            versions = sorted({str(link.version) for link in up if link.version})
            partners = sorted({link.remote for link in up if link.remote})
            words = f"version {' and '.join(versions) or 'unknown'} to {' and '.join(partners) or 'unknown'}"
            seen.setdefault(words, []).append(gpu.index)
    skip_if(sum(map(len, seen.values())) < 2, "no two GPUs of one product have NVLinks that are up")
    if len(seen) > 1:
        words = "; ".join(f"{value} on GPU {_numbers(own)}" for value, own in seen.items())
        yield warning(
            f"the NVLinks of {product} are not alike: {words}",
            "NVLink",
            dict.fromkeys(seen, gpus[0].links.via),
            f"a link that trained wrongly is slow or leads nowhere: reset all GPUs together; {_STATUS}",
        )
