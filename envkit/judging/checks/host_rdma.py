"""What lets GPUs use RDMA: drivers, device nodes, and the ways from a card into a GPU's memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.judging.checks._fabric import data_devices, nccl_settings, of_data_devices, own_cards, rdma_devices
from envkit.judging.checks._host import AGAIN, need_driver, nvml_answers
from envkit.judging.checks._outcomes import or_unknown, skip_if, unknown_if, warning
from envkit.model import Finding, Skip
from envkit.subjects import Host
from envkit.subjects.host.fabric import RdmaDevice

# the module that makes an RDMA device of what the driver of the PCI function drives
_RDMA_MODULE = {"mlx5_core": "mlx5_ib", "mlx4_core": "mlx4_ib", "efa": "efa"}
_PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
# the first kernel whose RDMA core takes DMA-BUF memory (linux, commit bfe0cc6eb249; NVIDIA GPU Operator, "GPUDirect
# RDMA"), if the driver is the open one
_DMABUF_KERNEL = (5, 12)
_CONSUMER = re.compile(r"GeForce|TITAN")  # NVIDIA GPUDirect RDMA documentation: not on these


def host_rdma_card_without_driver(host: Host) -> Iterator[Finding]:
    """Every InfiniBand card and Elastic Fabric Adapter has become an RDMA device."""
    cards = own_cards(host, "infiniband") + own_cards(host, "efa")
    skip_if(not cards, "no InfiniBand card and no Elastic Fabric Adapter on the PCI bus")
    devices = {device.pci for device in host.infiniband.need("the RDMA devices")}
    modules = host.rdma_modules.need("the loaded modules of RDMA")
    for card in (card for card in cards if card.address not in devices):
        module = _RDMA_MODULE.get(card.driver, "")
        if not card.driver:
            problem, fix = "has no driver", "load mlx5_core, or efa for an Elastic Fabric Adapter"
        elif module and module not in modules:
            problem, fix = f"is driven by {card.driver} and {module} is not loaded", f"run `modprobe {module}`"
        elif devices:
            problem = f"is driven by {card.driver} but is not an RDMA device"
            fix = f"`dmesg | grep {card.address}` says why it was not taken"
        else:
            raise Skip("no RDMA device can be seen from here: they may belong to another network namespace")
        yield warning(
            f"the {'Elastic Fabric Adapter' if card.kind == 'efa' else 'InfiniBand card'} {card.address} {problem}",
            card.address,
            {card.driver or "no driver": host.fabric_cards.via, "no RDMA device": host.infiniband.via},
            f"{fix}, and have it loaded at boot; until then jobs use TCP; check it with `ls /sys/class/infiniband`",
        )


@of_data_devices
def host_rdma_device_nodes_not_accessible(host: Host, devices: list[RdmaDevice]) -> Iterator[Finding]:
    """Programs can open every RDMA device."""
    stands = [(device, device.verbs.need(f"the device node of {device.name}")) for device in devices]
    if {word for _, word in stands} == {"no node"}:
        raise Skip("no RDMA device node is in /dev/infiniband: none was handed in")
    for device, word in stands:
        if word != "usable":
            yield warning(
                f"{device.name} cannot be opened by programs: {word}",
                "/dev/infiniband",
                {word: device.verbs.via},
                "run `modprobe ib_uverbs` and have it loaded at boot; everybody may open the nodes (mode 0666, package "
                "rdma-core); a container needs `--device /dev/infiniband`; without them NCCL uses TCP; check it with "
                "`ls -l /dev/infiniband` and `ibv_devinfo`",
            )


def host_gpudirect_rdma_unavailable(host: Host) -> Iterator[Finding]:
    """Network cards can reach GPU memory: by nvidia_peermem, or by DMA-BUF with the open driver."""
    need_driver(host)
    if all(device.driver == "efa" for device in rdma_devices(host)):
        raise Skip("Elastic Fabric Adapters reach GPU memory by their own driver")
    modules = host.rdma_modules.need("the loaded modules of RDMA")
    if any(module in modules for module in _PEER_MODULES):
        return
    names = [gpu.name.need(f"the name of GPU {gpu.index}") for gpu in nvml_answers(host).gpus]
    skip_if(names and all(_CONSUMER.search(name) for name in names), "these GPUs have no GPUDirect RDMA")
    kernel = host.kernel.need("the kernel")
    numbers = or_unknown(re.match(r"([0-9]+)\.([0-9]+)", kernel), f"the kernel calls itself {kernel}")
    flavor = host.module.need("the driver's module").flavor
    recent = (int(numbers[1]), int(numbers[2])) >= _DMABUF_KERNEL
    if recent and flavor == "open":
        return
    unknown_if(recent and not flavor, "whether the driver is the open one was not observed")
    data_devices(host)  # those that manage NVSwitches do not reach GPU memory
    why = f"the driver is {flavor}" if recent else f"kernel {kernel} has no DMA-BUF for RDMA"
    yield warning(
        f"network cards cannot reach GPU memory: nvidia_peermem is not loaded and {why}",
        "/sys/module",
        {"no nvidia_peermem": host.rdma_modules.via, why: host.module.via if recent else host.kernel.via},
        "run `modprobe nvidia-peermem` and have it loaded at boot, or install the open driver; until then all traffic "
        f"between machines goes through host memory; {AGAIN}",
    )


def host_gdrcopy_unusable(host: Host) -> Iterator[Finding]:
    """GDRCopy can be used where it is wanted: by NCCL_GDRCOPY_ENABLE, by UCX_TLS, or because its node is there."""
    need_driver(host)
    wishes = []
    if (setting := nccl_settings(host).get("NCCL_GDRCOPY_ENABLE")) and setting[0] not in ("", "0"):
        wishes.append(f"NCCL_GDRCOPY_ENABLE={setting[0]}")
    transports = host.environment.need("the environment").get("UCX_TLS", "")
    if "gdr_copy" in transports and not transports.startswith("^"):
        wishes.append(f"UCX_TLS={transports}")
    stands = host.gdrdrv.need("the node of GDRCopy")
    skip_if(not wishes and stands == "absent", "nobody asks for GDRCopy here")
    if stands != "usable":
        wish = wishes[0] if wishes else "its module"
        yield warning(
            f"{wish} asks for GDRCopy, and /dev/gdrdrv is absent"
            if stands == "absent"
            else f"/dev/gdrdrv cannot be opened: {stands}",
            "/dev/gdrdrv",
            {stands: host.gdrdrv.via, wish: host.environment.via},
            "install gdrdrv-dkms and run `modprobe gdrdrv`; everybody may open the node (mode 0666), and a container "
            "needs `--device /dev/gdrdrv`; check it with `gdrcopy_sanity`",
        )


def host_gpudirect_storage_not_ready(host: Host) -> Iterator[Finding]:
    """cuFile's configuration can be read, and GPUDirect Storage is there if it forbids to do without."""
    need_driver(host)
    cufile = host.cufile.need("cuFile's configuration")
    forced = host.environment.need("the environment").get("CUFILE_FORCE_COMPAT_MODE", "").lower()
    if cufile.error:
        yield warning(
            f"{cufile.path} cannot be read: {cufile.error}",
            cufile.path,
            {cufile.error: host.cufile.via},
            "correct it: it is JSON with comments; check it with `gdscheck -p`",
        )
        return
    strict = cufile.compatible is False and forced != "true"
    skip_if(not strict, "cuFile may do without GPUDirect Storage here")
    if "nvidia_fs" not in host.rdma_modules.need("the loaded modules of RDMA") and not cufile.p2pdma:
        yield warning(
            f"{cufile.path} forbids the compatibility mode and nvidia_fs is not loaded",
            cufile.path,
            {"allow_compat_mode is false": host.cufile.via, "no nvidia_fs": host.rdma_modules.via},
            "install nvidia-fs and run `modprobe nvidia_fs`, or allow the compatibility mode; until then cuFile's "
            "calls fail; check it with `gdscheck -p`",
        )


def host_ibgda_peer_mapping_off(host: Host) -> Iterator[Finding]:
    """The driver maps network cards for GPUs where NVSHMEM shall ring their doorbells itself."""
    need_driver(host)
    wish = host.environment.need("the environment").get("NVSHMEM_IB_ENABLE_IBGDA", "").lower()
    skip_if(wish not in ("1", "y", "yes", "true", "on"), "NVSHMEM_IB_ENABLE_IBGDA is not set")
    params = host.driver_params.need("the driver's options")
    words = params.get("RegistryDwords", "").strip('"')
    if not re.search(r"\bPeerMappingOverride=(0x)?0*1\b", words):
        yield warning(
            f"NVSHMEM_IB_ENABLE_IBGDA={wish} and the driver's RegistryDwords are `{words}`, without "
            "PeerMappingOverride=1",
            "/proc/driver/nvidia/params",
            {f"RegistryDwords: {words}": host.driver_params.via, wish: host.environment.via},
            'write `options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords="PeerMappingOverride=1;"` to '
            "/etc/modprobe.d and load the driver again; until then NVSHMEM fails or falls back; check it with "
            "`grep RegistryDwords /proc/driver/nvidia/params`",
        )
