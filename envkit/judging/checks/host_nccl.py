"""What is asked of the variables that steer NCCL, Gloo, UCX and libfabric: that they name what is here, and cost
nothing that was not meant.

NCCL reads its variables from the environment and from configuration files.  Its rules are those of its documentation,
"Environment Variables".
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from envkit.judging.checks import _fabric as fabric
from envkit.judging.checks._host import is_workstation, need_driver, nvml_answers
from envkit.judging.checks._outcomes import note, skip_if
from envkit.model import Finding, Severity, Skip
from envkit.subjects import Host
from envkit.subjects.host.fabric import RdmaDevice

_UNSET = (
    "unset the variable, or name what is here; check it with `env | grep -E 'NCCL|UCX|GLOO|^FI_'` and in /etc/nccl.conf"
)

# what each costs; the value is the one that turns the feature off
_COSTLY = (
    ("NCCL_P2P_DISABLE", ("1",), Severity.WARNING, "GPUs of one machine copy through host memory"),
    ("NCCL_P2P_LEVEL", ("0", "LOC"), Severity.WARNING, "GPUs of one machine copy through host memory"),
    ("NCCL_SHM_DISABLE", ("1",), Severity.WARNING, "what cannot go directly from GPU to GPU goes over the network"),
    ("NCCL_NVLS_ENABLE", ("0",), Severity.NOTE, "reductions are not made in the NVSwitches"),
)
_COSTLY_RDMA = (
    ("NCCL_IB_DISABLE", ("1",), Severity.WARNING, "machines talk over TCP"),
    ("NCCL_NET", ("Socket", "socket"), Severity.WARNING, "machines talk over TCP"),
    ("NCCL_NET_GDR_LEVEL", ("0", "LOC"), Severity.WARNING, "network traffic goes through host memory"),
    ("NCCL_IB_CUDA_SUPPORT", ("0",), Severity.WARNING, "network traffic goes through host memory"),
)
_TUNING = (
    *("NCCL_ALGO", "NCCL_PROTO", "NCCL_BUFFSIZE", "NCCL_NTHREADS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
    *("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_CHECKS_DISABLE", "NCCL_LL_THRESHOLD", "NCCL_LAUNCH_MODE"),
)


def _setting(host: Host, name: str) -> tuple[str, str]:
    """A variable's value and where it was set; skips if it is not."""
    if name.startswith("NCCL_"):
        found = fabric.nccl_settings(host).get(name)
    else:
        environment = host.environment.need("the environment")
        found = (environment[name], host.environment.via) if name in environment else None
    if found is None or not found[0]:
        raise Skip(f"{name} is not set")
    return found


def _wrong(message: str, severity: Severity, name: str, value: str, via: str, here: tuple[str, str]) -> Finding:
    return Finding(message, severity, name, {f"{name}={value}": via, here[0] or "nothing": here[1]}, _UNSET)


def host_nccl_hca_invalid(host: Host) -> Iterator[Finding]:
    """NCCL_IB_HCA names RDMA devices that are here, with an active port, and no more than it says."""
    value, via = _setting(host, "NCCL_IB_HCA")
    devices = {device.name: device for device in host.infiniband.need("the RDMA devices")}
    here = (", ".join(devices), host.infiniband.via)
    wanted = fabric.name_filter(value)
    bare = wanted.without_ports()
    taken = [name for name in devices if bare.takes(name)]
    if not taken:
        yield _wrong(
            f"NCCL_IB_HCA={value} takes none of the {len(devices)} RDMA devices here",
            Severity.ERROR if devices else Severity.WARNING,
            *("NCCL_IB_HCA", value, via, here),
        )
        return
    if wanted.negated:
        return
    for name in bare.names:
        hits = [device for device in devices if bare.hits(name, device)]
        if not hits:
            message = f"NCCL_IB_HCA names `{name}`, which is no RDMA device here"
            yield _wrong(message, Severity.WARNING, "NCCL_IB_HCA", value, via, here)
        more = [device for device in hits if name in hits and device not in bare.names]
        if more:
            message = f"NCCL_IB_HCA={value} takes {', '.join(more)} too, because {name} without `=` is a prefix"
            yield _wrong(message, Severity.NOTE, "NCCL_IB_HCA", value, via, here)
    for name in taken:
        if not _is_active(devices[name]):
            message = f"NCCL_IB_HCA names {name}, which has no active port"
            yield _wrong(message, Severity.WARNING, "NCCL_IB_HCA", value, via, here)


def _is_active(device: RdmaDevice) -> bool:
    ports = device.ports.need(f"the ports of {device.name}")
    return any(port.state.need(f"the state of {fabric.port_name(device, port)}") == "ACTIVE" for port in ports)


def host_nccl_interface_unusable(host: Host) -> Iterator[Finding]:
    """NCCL_SOCKET_IFNAME leaves NCCL an interface that is up and leads to other machines."""
    value, via = _setting(host, "NCCL_SOCKET_IFNAME")
    wanted = fabric.name_filter(value)
    yield from _interfaces(host, "NCCL_SOCKET_IFNAME", value, via, wanted)


def host_gloo_interface_unusable(host: Host) -> Iterator[Finding]:
    """GLOO_SOCKET_IFNAME names interfaces that are here and up."""
    value, via = _setting(host, "GLOO_SOCKET_IFNAME")
    yield from _interfaces(
        host, "GLOO_SOCKET_IFNAME", value, via, fabric.NameFilter(tuple(value.split(",")), False, True)
    )


def _interfaces(host: Host, variable: str, value: str, via: str, wanted: fabric.NameFilter) -> Iterator[Finding]:
    interfaces = host.network.need("the network interfaces")
    here = (", ".join(item.name for item in interfaces), host.network.via)
    taken = [item for item in interfaces if wanted.takes(item.name)]
    # loopback and many virtual interfaces have the state "unknown" and work
    up = [item for item in taken if item.state in ("up", "unknown")]
    if not taken:
        message = f"{variable}={value} takes none of the {len(interfaces)} network interfaces here"
        yield _wrong(message, Severity.ERROR, variable, value, via, here)
    elif not up:
        words = ", ".join(f"{item.name} is {item.state or 'silent'}" for item in taken)
        message = f"{variable}={value} leaves no interface that is up: {words}"
        yield _wrong(message, Severity.ERROR, variable, value, via, here)
    elif not wanted.negated and all(item.loopback for item in up):
        message = f"{variable}={value} selects only the loopback interface"
        yield _wrong(message, Severity.WARNING, variable, value, via, here)


def host_nccl_transport_disabled(host: Host) -> Iterator[Finding]:
    """No variable turns off a fast way between GPUs or machines that is here."""
    need_driver(host)
    settings = fabric.nccl_settings(host)
    off = [row for row in _COSTLY if row[0] in settings and settings[row[0]][0] in row[1]]
    off_rdma = [row for row in _COSTLY_RDMA if row[0] in settings and settings[row[0]][0] in row[1]]
    if off:
        gpus = nvml_answers(host).gpus
        if len(gpus) < 2 or all(is_workstation(gpu) for gpu in gpus):
            off = []
    if off_rdma and not _has_rdma(host):
        off_rdma = []
    for name, _, severity, cost in (*off, *off_rdma):
        value, via = settings[name]
        yield Finding(
            f"{name}={value}: {cost}",
            severity,
            name,
            {f"{name}={value}": via},
            f"it is meant for debugging only: `unset {name}` and repair what it works around; check it "
            "with `NCCL_DEBUG=INFO`, which names the transport of each channel",
        )


def _has_rdma(host: Host) -> bool:
    try:
        return bool(fabric.active_ports(fabric.data_devices(host)))
    except Skip:
        return False


def host_nccl_debug_left_on(host: Host) -> Iterator[Finding]:
    """NCCL does not write its log for debugging."""
    value, via = _setting(host, "NCCL_DEBUG")
    if value.upper() in ("INFO", "TRACE", "ABORT"):
        yield note(
            f"NCCL_DEBUG={value} has every rank write its log",
            "NCCL_DEBUG",
            {f"NCCL_DEBUG={value}": via},
            "once the fault is found, set it to WARN, which reports only errors; check it with `env | grep NCCL_DEBUG`",
        )


def host_nccl_tuning_forced(host: Host) -> Iterator[Finding]:
    """No variable holds NCCL to an algorithm, a protocol or a number of channels."""
    settings = fabric.nccl_settings(host)
    for name in _TUNING:
        if name in settings and settings[name][0]:
            value, via = settings[name]
            yield note(
                f"{name}={value} overrides what NCCL would choose itself",
                name,
                {f"{name}={value}": via},
                "measure without it, with `all_reduce_perf` of nccl-tests, and unset it unless it is faster here; "
                f"check it with `env | grep {name}`",
            )


def host_nccl_gid_index_invalid(host: Host) -> Iterator[Finding]:
    """NCCL_IB_GID_INDEX names an entry of RoCE version 2 on every active port on Ethernet."""
    value, via = _setting(host, "NCCL_IB_GID_INDEX")
    skip_if(value.strip() == "-1", "NCCL_IB_GID_INDEX leaves the choice to NCCL")
    active = fabric.active_ports(fabric.rdma_devices(host))
    ports = [port for port in active if fabric.link_layer(*port) == "Ethernet"]
    skip_if(not ports, "no active RDMA port on Ethernet")
    for device, port in ports:
        gids = {str(gid.index): gid.kind for gid in port.gids.need(f"the GIDs of {fabric.port_name(device, port)}")}
        kind = gids.get(value.strip())
        if kind == "RoCE v2":
            continue
        words = f"is of {kind}" if kind else "does not exist"
        yield Finding(
            f"NCCL_IB_GID_INDEX={value}, and that entry of {fabric.port_name(device, port)} {words}",
            Severity.WARNING if kind else Severity.ERROR,
            "NCCL_IB_GID_INDEX",
            {f"NCCL_IB_GID_INDEX={value}": via, f"{len(gids)} entries": port.gids.via},
            "unset it, so that NCCL finds the entry itself, or name one that `show_gids` lists as v2 on all ports",
        )


def host_ucx_device_missing(host: Host) -> Iterator[Finding]:
    """UCX_NET_DEVICES names devices and interfaces that are here."""
    value, via = _setting(host, "UCX_NET_DEVICES")
    names = [name for name in value.removeprefix("^").split(",") if name]
    if value.startswith("^") or names == ["all"]:
        return
    devices = [device.name for device in host.infiniband.need("the RDMA devices")]
    interfaces = [item.name for item in host.network.need("the network interfaces")]
    known = [*devices, *interfaces]
    here = (", ".join(known), host.network.via)
    lost = [name for name in names if not any(fnmatchcase(one, name.split(":")[0]) for one in known)]
    for name in lost:
        yield _wrong(
            f"UCX_NET_DEVICES names `{name}`, which is neither an RDMA device nor an interface here",
            Severity.ERROR if len(lost) == len(names) else Severity.WARNING,
            *("UCX_NET_DEVICES", value, via, here),
        )


def host_libfabric_provider_unusable(host: Host) -> Iterator[Finding]:
    """FI_PROVIDER names a provider whose device is present, and RDMA of an Elastic Fabric Adapter is not turned off."""
    environment = host.environment.need("the environment")
    provider = environment.get("FI_PROVIDER", "")
    direct = environment.get("FI_EFA_USE_DEVICE_RDMA", "")
    skip_if(not provider and not direct, "neither FI_PROVIDER nor FI_EFA_USE_DEVICE_RDMA is set")
    devices = host.infiniband.need("the RDMA devices")
    here = (", ".join(device.name for device in devices), host.infiniband.via)
    adapters = [device for device in devices if device.driver == "efa"]
    kinds = [kind for kind in provider.split(";")[0].split(",") if kind]
    absent = [kind for kind in kinds if (kind == "efa" and not adapters) or (kind == "verbs" and not devices)]
    if kinds and len(absent) == len(kinds):
        message = f"FI_PROVIDER={provider} and no device of that kind is here"
        yield _wrong(message, Severity.ERROR, "FI_PROVIDER", provider, host.environment.via, here)
    if adapters and direct == "0":
        message = "FI_EFA_USE_DEVICE_RDMA=0: the Elastic Fabric Adapter does not read or write GPU memory itself"
        yield _wrong(message, Severity.WARNING, "FI_EFA_USE_DEVICE_RDMA", direct, host.environment.via, here)
