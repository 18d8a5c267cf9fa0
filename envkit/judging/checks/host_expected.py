"""What a contract (``--expect``) says of a machine, line by line; what it does not say is skipped.

A contract turns what is missing into a failure: without a single GPU there is nothing that could be wrong with one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase

from envkit.judging.checks._host import gpu_name, gpu_signs, loaded_driver
from envkit.judging.checks._outcomes import error, or_skip, skip_if, unknown_if
from envkit.model import Finding, Unknown
from envkit.subjects import Host
from envkit.subjects.host import Gpu
from envkit.subjects.host.expected import Expected

_GIB = 1024**3
_FIX = "make the machine match the contract, or change the contract"


def _contract(host: Host) -> Expected:
    """The contract; skips without one."""
    return or_skip(host.expected.value, "no contract was given with --expect")


def _gpus(host: Host) -> tuple[Gpu, ...]:
    """NVML's GPUs; none where NVML answers otherwise than with GPUs, for then the contract is not kept."""
    nvml = host.nvml.need("NVML")
    return nvml.gpus if nvml.ended == "answered" else ()


def _within(version: str, wanted: str) -> bool:
    from packaging.specifiers import SpecifierSet  # only a contract needs it

    return version in SpecifierSet(wanted)


def host_contract_gpus_mismatch(host: Host) -> Iterator[Finding]:
    """As many GPUs of the expected name are there as the contract says."""
    wanted = _contract(host).gpus
    skip_if(wanted.count is None and not wanted.name, "the contract requires no number or name of GPUs")
    if wanted.count == 0:
        yield from _none_there(host)
        return
    gpus = _gpus(host)
    names = Counter(gpu.name.value or "a GPU without a name" for gpu in gpus)
    shown = ", ".join(f"{number} x {name}" for name, number in sorted(names.items())) or "none"
    strange = [gpu.name.value for gpu in gpus if gpu.name.value and not fnmatchcase(gpu.name.value, wanted.name or "*")]
    if strange or (wanted.count is not None and len(gpus) != wanted.count) or not gpus:
        count = "" if wanted.count is None else f"{wanted.count} "
        asked = f"{count}GPUs{f' named {wanted.name}' if wanted.name else ''}"
        yield error(
            f"the contract expects {asked}, and NVML shows {shown}",
            "NVML",
            {shown: "nvmlDeviceGetCount, nvmlDeviceGetName"},
            f"look for the missing one in `lspci -d 10de:` and `dmesg | grep NVRM`; {_FIX}",
        )
    elif wanted.name:
        for gpu in gpus:
            gpu.name.need(f"the name of GPU {gpu.index}")


def _none_there(host: Host) -> Iterator[Finding]:
    """No place shows a GPU; raises Unknown where one of them was not seen."""
    signs, silent = gpu_signs(host)
    if host.driver_gpus.value:
        signs[f"{len(host.driver_gpus.value)} in the driver's own list"] = host.driver_gpus.via
    elif host.driver_gpus.value is None:
        silent.append(f"the driver's own list: {host.driver_gpus.missing}")
    if signs:
        first = next(iter(signs.values()))
        yield error(f"the contract expects no GPU, and there is one: {', '.join(signs)}", first, signs, _FIX)
    elif silent:
        raise Unknown(f"no GPU was seen, as the contract says, and not every place was looked at: {'; '.join(silent)}")


def host_contract_gpu_memory_mismatch(host: Host) -> Iterator[Finding]:
    """Each GPU has the memory that the contract says."""
    least = or_skip(_contract(host).gpus.memory_gib, "the contract says nothing of GPU memory")
    gpus = _gpus(host)
    if not gpus:
        yield error(f"the contract expects {least:g} GiB on each GPU, and NVML shows none", "NVML", fix=_FIX)
    for gpu in gpus:
        memory = gpu.memory.need(f"the memory of GPU {gpu.index}")
        if memory < least * _GIB:
            yield error(
                f"{gpu_name(gpu)} has {memory / _GIB:.1f} GiB of memory, and the contract expects {least:g}",
                f"GPU {gpu.index}",
                {f"{memory} bytes": gpu.memory.via},
                _FIX,
            )


def host_contract_gpu_modes_mismatch(host: Host) -> Iterator[Finding]:
    """MIG, ECC and persistence mode of each GPU are what the contract says."""
    wanted = _contract(host).gpus
    modes = {"mig": wanted.mig, "ecc": wanted.ecc, "persistence": wanted.persistence}
    skip_if(not any(modes.values()), "the contract says nothing of GPU modes")
    gpus = _gpus(host)
    if not gpus:
        yield error("the contract expects modes of GPUs, and NVML shows none", "NVML", fix=_FIX)
    for gpu in gpus:
        for name, mode in modes.items():
            if not mode:
                continue
            seen = getattr(gpu, name)
            now = "unsupported" if seen.is_unsupported else seen.need(f"the {name} mode of GPU {gpu.index}")
            if now != mode and not (mode == "off" and now == "unsupported"):
                yield error(
                    f"{name} of {gpu_name(gpu)} is {now}, and the contract expects {mode}",
                    f"GPU {gpu.index}",
                    {now: seen.via},
                    f"set it with nvidia-smi as root (-mig, -e, -pm); {_FIX}",
                )


def host_contract_driver_mismatch(host: Host) -> Iterator[Finding]:
    """The loaded driver is of the version that the contract says."""
    wanted = _contract(host).driver.version
    skip_if(not wanted, "the contract requires no driver version")
    try:
        driver, via = loaded_driver(host)
    except Unknown:
        if "nvidia" in host.modules.need("the list of loaded kernel modules"):
            raise
        yield error(f"the contract expects driver {wanted}, and none is loaded", host.modules.via, fix=_FIX)
        return
    if not _within(str(driver), wanted):
        yield error(
            f"driver {driver} is loaded, and the contract expects {wanted}",
            via,
            {str(driver): via},
            f"install the driver that the contract names and reboot; {_FIX}",
        )


def host_contract_cuda_mismatch(host: Host) -> Iterator[Finding]:
    """The newest CUDA that the driver supports is what the contract says."""
    wanted = _contract(host).driver.cuda
    skip_if(not wanted, "the contract requires no CUDA version")
    nvml = host.nvml.need("NVML")
    answered = nvml.ended == "answered"
    if not answered or not _within(nvml.cuda, wanted):
        said = f"supports CUDA {nvml.cuda}" if answered else f"does not say: {nvml.detail or nvml.ended}"
        yield error(
            f"the driver {said}, and the contract expects {wanted}",
            "NVML",
            {nvml.cuda or nvml.ended: "nvmlSystemGetCudaDriverVersion"},
            f"install a driver of a newer branch; {_FIX}",
        )


def host_contract_nvlink_mismatch(host: Host) -> Iterator[Finding]:
    """As many NVLinks of each GPU are up as the contract says."""
    wanted = or_skip(_contract(host).nvlink.links, "the contract says nothing of NVLink")
    gpus = _gpus(host)
    if not gpus:
        yield error(f"the contract expects {wanted} NVLinks up on each GPU, and NVML shows none", "NVML", fix=_FIX)
    for gpu in gpus:
        links = () if gpu.links.is_unsupported else gpu.links.need(f"the NVLinks of GPU {gpu.index}")
        up = sum(link.active for link in links)
        if up != wanted:
            yield error(
                f"{up} NVLinks of {gpu_name(gpu)} are up, and the contract expects {wanted}",
                f"GPU {gpu.index}",
                {f"{up} of {len(links)} up": "nvmlDeviceGetNvLinkState"},
                f"look at `nvidia-smi nvlink -s` and at the fabric manager's log; {_FIX}",
            )


def host_contract_system_mismatch(host: Host) -> Iterator[Finding]:
    """The kernel and the distribution are what the contract says."""
    wanted = _contract(host).machine
    skip_if(not (wanted.kernel or wanted.os), "the contract requires no kernel or distribution")
    for what, pattern, seen in (("kernel", wanted.kernel, host.kernel), ("distribution", wanted.os, host.os)):
        if pattern and not fnmatchcase(now := seen.need(f"the {what}"), pattern):
            yield error(f"the {what} is {now}, and the contract expects {pattern}", seen.via, {now: seen.via}, _FIX)


def host_contract_service_not_running(host: Host) -> Iterator[Finding]:
    """The services that the contract names run."""
    wanted = _contract(host).machine.services
    skip_if(not wanted, "the contract names no services")
    services = host.services.need("systemd's units")
    unasked = [name for name in wanted if name not in services]
    for name in wanted:
        if name in services and services[name].active != "active":
            yield error(
                f"the service {name} is {services[name].active}, and the contract expects it to run",
                name,
                {services[name].active: host.services.via},
                f"read `journalctl -u {name}` and start it with `systemctl enable --now {name}`; {_FIX}",
            )
    unknown_if(unasked, f"systemd was not asked about {', '.join(unasked)}")


def host_contract_infiniband_mismatch(host: Host) -> Iterator[Finding]:
    """As many InfiniBand ports are active, each at least as fast, as the contract says."""
    wanted = _contract(host).infiniband
    skip_if(wanted.ports is None and wanted.rate_gbps is None, "the contract says nothing of InfiniBand")
    devices = host.infiniband.need("the RDMA devices")
    up = [
        (device, port)
        for device in devices
        for port in device.ports.need(f"the ports of {device.name}")
        if port.layer.need(f"the link layer of {device.name}") == "InfiniBand"
        and port.state.need(f"the state of {device.name}") == "ACTIVE"
    ]
    shown = ", ".join(device.name for device, _ in up) or "none"
    if (wanted.ports is not None and len(up) != wanted.ports) or (not up and wanted.ports != 0):
        asked = "InfiniBand ports" if wanted.ports is None else f"{wanted.ports} InfiniBand ports active"
        yield error(
            f"the contract expects {asked}, and {len(up)} are: {shown}",
            host.infiniband.via,
            {f"{len(up)} active": host.infiniband.via},
            f"look at `ibstat` and at the cables and the switch of the port that is not active; {_FIX}",
        )
    for device, port in up if wanted.rate_gbps is not None else ():
        rate = port.rate.need(f"the rate of {device.name}")
        if wanted.rate_gbps is not None and rate < wanted.rate_gbps:
            yield error(
                f"port {port.number} of {device.name} runs at {rate:g} Gb/s, and the contract expects "
                f"{wanted.rate_gbps:g}",
                device.name,
                {f"{rate:g} Gb/s": port.rate.via},
                f"reseat or replace its cable and look at the switch's port; {_FIX}",
            )
