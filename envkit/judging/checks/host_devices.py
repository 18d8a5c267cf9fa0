"""What is asked of the driver's device files and of who may open them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.judging.checks._driver import driver_params, need_own_driver, need_own_gpu, some
from envkit.judging.checks._host import AGAIN, docker_engine
from envkit.judging.checks._outcomes import error, skip_if, unknown_if, warning
from envkit.model import Finding
from envkit.subjects import Host

# the minor numbers that are not a GPU's (the driver's nv.h; nvidia-uvm's uvm_common.h)
_MINORS = {"nvidiactl": 255, "nvidia-modeset": 254, "nvidia-uvm": 0, "nvidia-uvm-tools": 1}
# the names in /proc/devices under which a node's major number may stand; older drivers have one for all
_OWNERS = {
    "nvidiactl": ("nvidiactl", "nvidia-frontend", "nvidia"),
    "nvidia-modeset": ("nvidia-modeset", "nvidia-frontend", "nvidia"),
    "nvidia-uvm": ("nvidia-uvm",),
    "nvidia-uvm-tools": ("nvidia-uvm",),
}


def host_device_nodes_stale(host: Host) -> Iterator[Finding]:
    """The driver's device files have the numbers under which the kernel knows the driver now."""
    need_own_driver(host)
    nodes = host.device_nodes.need("the device nodes")
    majors = host.driver_majors.need("the device numbers of the driver")
    doubts = []
    judged = 0
    for node in nodes:
        name = node.path.rpartition("/")[2]
        owners = _OWNERS.get(name, ("nvidia", "nvidia-frontend"))
        major = next((majors[owner] for owner in owners if owner in majors), None)
        gpu = re.fullmatch("nvidia([0-9]+)", name)
        minor = int(gpu[1]) if gpu else _MINORS.get(name)
        if major is None or minor is None:
            continue
        judged += 1
        if node.major < 0:
            doubts.append(f"the numbers of {node.path} were not observed")
        elif (node.major, node.minor) != (major, minor):
            yield error(
                f"{node.path} is device {node.major}:{node.minor} and the driver has {major}:{minor}",
                node.path,
                {f"{node.major}:{node.minor}": host.device_nodes.via, f"major {major}": host.driver_majors.via},
                f"it is left over from another load of the module: `rm {node.path}`, then `nvidia-modprobe -c 0 -u`; "
                f"check it with `ls -l {node.path}` and `grep nvidia /proc/devices`",
            )
    unknown_if(doubts, "; ".join(doubts))
    skip_if(not judged, "no device file here belongs to a loaded module")


def host_dev_char_links_missing(host: Host) -> Iterator[Finding]:
    """Each device file of a GPU has its link by number in /dev/char, by which systemd knows devices."""
    need_own_driver(host)
    driver = docker_engine(host).cgroup_driver
    skip_if(driver != "systemd", f"Docker's cgroup driver is {driver or 'not told'}")
    links = set(host.dev_char.need("the links in /dev/char"))
    nodes = [node for node in host.device_nodes.need("the device nodes") if node.major >= 0]
    unknown_if(not nodes, "the numbers of the device files were not observed")
    bare = [node.path for node in nodes if f"{node.major}:{node.minor}" not in links]
    if bare:
        yield warning(
            f"{some(bare)} have no link in /dev/char: running containers lose them when systemd reloads",
            "/dev/char",
            dict.fromkeys(bare, "listing of /dev/char"),
            "make them with `nvidia-ctk system create-dev-char-symlinks --create-all`, at each boot by a udev rule; "
            "check it with `ls -l /dev/char | grep nvidia`",
        )


def host_gpu_excluded_from_driver(host: Host) -> Iterator[Finding]:
    """The driver was not told to leave a GPU alone."""
    need_own_driver(host)
    gpus = host.driver_gpus.need("the driver's list of GPUs")
    params = driver_params(host)
    listed = [uuid for name in ("ExcludedGpus", "GpuBlacklist") for uuid in params.get(name, "").split(",") if uuid]
    marked = [gpu for gpu in gpus if gpu.excluded]
    for gpu in marked:
        yield _excluded(f"GPU {gpu.address}", gpu.uuid, f"/proc/driver/nvidia/gpus/{gpu.address}", host.driver_gpus.via)
    for uuid in listed:
        if uuid not in {gpu.uuid for gpu in marked}:
            yield _excluded(f"GPU {uuid}", uuid, "/proc/driver/nvidia/params", host.driver_params.via)


def _excluded(what: str, uuid: str, where: str, via: str) -> Finding:
    return warning(
        f"{what} is excluded by an option of the driver",
        where,
        {f"{uuid} is excluded": via},
        "if the GPU is to work again, remove it from NVreg_ExcludedGpus in /etc/modprobe.d, rebuild the initramfs and "
        "reboot; check it with `nvidia-smi -L`",
    )


def host_mig_device_files_missing(host: Host) -> Iterator[Finding]:
    """Every MIG instance has its capability's device file."""
    need_own_driver(host)
    capabilities = host.mig_capabilities.need("the capabilities of MIG instances")
    skip_if(not capabilities, "no GPU here is divided into MIG instances")
    for capability in capabilities:
        if not capability.node:
            node = f"/dev/nvidia-caps/nvidia-cap{capability.minor}"
            yield error(
                f"{node}, which gives access to {capability.name}, does not exist",
                node,
                {f"minor {capability.minor}": f"/proc/driver/nvidia/capabilities, {capability.name}"},
                f"make it with `nvidia-modprobe -f /proc/driver/nvidia/capabilities/{_in_proc(capability.name)}`, or "
                f"hand it to the container; check it with `ls {node}`",
            )


def _in_proc(name: str) -> str:
    """A capability's path in /proc, where "mig" stands between the GPU and its instance."""
    gpu, _, rest = name.partition("/")
    return f"{gpu}/mig/{rest}"


def host_selinux_blocks_gpu_devices(host: Host) -> Iterator[Finding]:
    """SELinux lets Docker's containers use devices."""
    need_own_gpu(host)
    selinux = host.selinux.need("SELinux")
    skip_if(selinux.state != "enforcing", f"SELinux is {selinux.state}")
    skip_if(not any("selinux" in option for option in docker_engine(host).security), "Docker does not use SELinux")
    skip_if(not selinux.booleans, "the policy has no switch for containers and devices")
    if not any(selinux.booleans.values()):
        yield warning(
            f"SELinux is enforcing, Docker uses it, and {some(sorted(selinux.booleans))} are off",
            "/sys/fs/selinux/booleans",
            {f"{name} is off": host.selinux.via for name in selinux.booleans},
            "run `setsebool -P container_use_devices on`, or start GPU containers with `--security-opt label=disable`; "
            "check it with `getsebool container_use_devices`",
        )


def host_selinux_denied_gpu_device(host: Host) -> Iterator[Finding]:
    """SELinux refused nobody one of NVIDIA's device files since boot."""
    need_own_gpu(host)
    selinux = host.selinux.need("SELinux")
    skip_if(selinux.state != "enforcing", f"SELinux is {selinux.state}")
    skip_if(selinux.denials.is_unsupported, "nothing keeps an audit log here")
    denials = selinux.denials.need("the audit log, which root may read,")
    if denials:
        yield warning(
            f"SELinux refused NVIDIA's device files {len(denials)} times since boot, the last time: `{denials[-1]}`",
            "/var/log/audit/audit.log",
            {denials[-1]: selinux.denials.via},
            "`ausearch -m avc -c nvidia` lists them all; run `setsebool -P container_use_devices on` for "
            "containers, or "
            f"`restorecon -v /dev/nvidia*` for wrong labels; {AGAIN}",
        )
