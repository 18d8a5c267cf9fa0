"""Drives, file systems and the room on them: statvfs hangs on a network file system whose server is gone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from envkit.host import files
from envkit.host.root import HostRoot, Source, by_name, nearest, parsed, short
from envkit.model import Observed
from envkit.subjects.host import Disk
from envkit.subjects.host.system import Mount, NvmeDrive, Raid

_DOCKER_ROOT = "/var/lib/docker"
_MOST_MOUNTINFO = 16 << 20  # a node of Kubernetes has some kilobytes for each container, of its overlay's options
# file systems on this machine's own drives, whose super block the kernel makes read-only after an error
_ON_DRIVES = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs")


def shm(place: HostRoot, count: Callable[[os.statvfs_result], int]) -> Observed[int]:
    """Bytes of /dev/shm, by a count of its blocks."""
    try:
        seen = os.statvfs(place.path("dev/shm"))
    except OSError as error:
        return Observed.lost(f"/dev/shm: {short(error)}", "statvfs")
    return Observed.of(count(seen) * seen.f_frsize, "statvfs")


def room(use: str, path: str, place: HostRoot) -> Disk:
    """What an ordinary process may still write where ``path`` is or, until it exists, its nearest parent."""
    try:
        seen = os.statvfs(nearest(place, path))
    except OSError as error:
        why = short(error)
        lost: Observed[int] = Observed.lost(why, "statvfs")
        return Disk(use, path, lost, lost, lost, lost, Observed.lost(why, "statvfs"))
    free, total = seen.f_bavail * seen.f_frsize, seen.f_blocks * seen.f_frsize
    # a file system that makes inodes as it needs them (btrfs, most of those in memory) says that it has none
    none: Observed[int] = Observed.unsupported("statvfs")
    flags = tuple(name for bit, name in ((os.ST_RDONLY, "read-only"), (os.ST_NOEXEC, "noexec")) if seen.f_flag & bit)
    return Disk(
        use,
        path,
        Observed.of(free, "statvfs"),
        Observed.of(total, "statvfs"),
        Observed.of(seen.f_favail, "statvfs") if seen.f_files else none,
        Observed.of(seen.f_files, "statvfs") if seen.f_files else none,
        Observed.of(flags, "statvfs"),
    )


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """The mounts of /proc/PID/mountinfo; raises ValueError for other text."""
    if not text:
        raise ValueError("it is empty")
    found = []
    for line in text.splitlines():
        own, _, shared = line.partition(" - ")
        fields, rest = own.split(), shared.split(" ")
        if len(fields) < 6 or len(rest) < 3:
            raise ValueError(f"`{line[:60]}` is no line of mountinfo")
        kind, device, options = rest[:3]
        read_only, frozen = "ro" in fields[5].split(","), "ro" in options.split(",")
        found.append(Mount(_plain(fields[4]), kind, _plain(device), read_only, frozen))
    return tuple(found)


def _plain(text: str) -> str:
    """A path of mountinfo, which writes a space as \\040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def all_mounts(place: HostRoot) -> Observed[tuple[Mount, ...]]:
    """The mounts that this process sees."""
    return parsed(place, "proc/self/mountinfo", parse_mounts, _MOST_MOUNTINFO)


def mounts(place: HostRoot) -> Observed[tuple[Mount, ...]]:
    """The file systems on drives, each once for each way in which it is mounted."""
    read = all_mounts(place)
    if read.value is None:
        return read.absence()
    found: dict[tuple[str, bool, bool], Mount] = {}
    for mount in read.value:
        if mount.kind in _ON_DRIVES:
            found.setdefault((mount.device, mount.read_only, mount.frozen), mount)
    return Observed.of(tuple(found.values()), read.via)


def file_system_errors(place: HostRoot) -> Observed[dict[str, int]]:
    """The errors that ext4 wrote into each super block, by device; empty without ext4."""
    try:
        names = place.names("sys/fs/ext4")
    except FileNotFoundError:
        names = ()
    found = {}
    for name in names:
        try:
            found[name] = int(place.word(f"sys/fs/ext4/{name}/errors_count"))
        except (FileNotFoundError, NotADirectoryError):  # the directory also holds "features"
            continue
    return Observed.of(found, "/sys/fs/ext4/*/errors_count")


def parse_mdstat(text: str) -> tuple[Raid, ...]:
    """The arrays of /proc/mdstat; raises ValueError for a file that does not begin as one."""
    if not text.startswith("Personalities"):
        raise ValueError("/proc/mdstat does not begin with `Personalities`")
    found: list[Raid] = []
    for line in text.splitlines():
        head = re.fullmatch(
            r"(\w+) : (active|inactive)(?: \([\w-]+\))*(?: (linear|raid[0-9]+|multipath|faulty))?(.*)", line
        )
        if head:
            failed = tuple(re.findall(r"(\S+)\[[0-9]+\](?:\([WSJR]\))*\(F\)", head[4]))
            found.append(Raid(head[1], head[2] == "active", head[3] or "", 0, 0, failed))
        if found and not found[-1].active and "super external:" in line:
            found.pop()  # the drives' own metadata (Intel's and DDF's), from which arrays are made that follow
        counts = re.search(r"\[([0-9]+)/([0-9]+)\] \[[U_]+\]", line)
        if counts and found:
            last = found[-1]
            found[-1] = Raid(last.name, last.active, last.level, int(counts[1]), int(counts[2]), last.failed)
    return tuple(found)


def raids(place: HostRoot) -> Observed[tuple[Raid, ...]]:
    """The software RAID arrays; none where the kernel has no driver for them."""
    try:
        return Observed.of(parse_mdstat(place.word("proc/mdstat")), "/proc/mdstat")
    except FileNotFoundError:
        return Observed.of((), "/proc/mdstat is not there")


def nvme_drives(place: HostRoot) -> Observed[tuple[NvmeDrive, ...]]:
    """The NVMe controllers; none without the directory."""
    base = "sys/class/nvme"
    try:
        names = place.names(base)
    except FileNotFoundError:
        return Observed.of((), f"/{base} is not there")
    found = []
    for name in names:
        try:
            model = place.word(f"{base}/{name}/model")
        except OSError:  # a controller that never came up has none
            model = ""
        found.append(NvmeDrive(name, place.word(f"{base}/{name}/state"), model))
    return Observed.of(tuple(found), f"/{base}")


def lustre(place: HostRoot) -> Observed[str]:
    """What Lustre says of its own health; unsupported where it is not loaded."""
    for name in ("sys/fs/lustre/health_check", "proc/fs/lustre/health_check"):
        try:
            return Observed.of(place.word(name), f"/{name}")
        except FileNotFoundError:
            continue
    return Observed.unsupported("/sys/fs/lustre")


def docker_root(place: HostRoot) -> str:
    """Where Docker keeps its images: daemon.json's data-root or the default; empty if that file cannot be read."""
    try:
        config = files.daemon_config(place).value
    except OSError:  # a program that it names may not be looked at
        config = None
    return "" if config is None else config.data_root or _DOCKER_ROOT


def disks(place: HostRoot) -> Observed[tuple[Disk, ...]]:
    """The room for temporary files and, if it is known where they lie, for images."""
    paths = {"temporary": place.environ.get("TMPDIR") or "/tmp", "images": docker_root(place)}
    return Observed.of(tuple(room(use, path, place) for use, path in paths.items() if path), "statvfs")


SOURCES: dict[str, Source] = {
    **by_name(mounts, file_system_errors, raids, nvme_drives, lustre),
    "shm": lambda place: shm(place, lambda seen: seen.f_blocks),
    "shm_free": lambda place: shm(place, lambda seen: seen.f_bavail),
    "disks": disks,
}
