"""What is asked of a machine's drives and file systems: that they are whole, writable, have room, and answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from envkit.judging.checks._host import gathered, gib
from envkit.judging.checks._made import check_by
from envkit.judging.checks._outcomes import error, skip_if, warning
from envkit.model import Finding, Severity, Unknown
from envkit.subjects import Host
from envkit.subjects.host import Disk

_GIB = 1024**3
# an image with one torch for CUDA and numpy measured 5.9 GB, and its build and export hold it twice for a while
_IMAGES_LEAST = 6 * _GIB
_IMAGES_WANTED = 20 * _GIB
_TEMPORARY_WANTED = 2 * _GIB  # a torch wheel for CUDA is up to 0.9 GB and is unpacked beside itself
_INODES_WANTED = 0.05  # of all; the node health check's (mej/nhc) example configuration asks for 5 % free


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _each_disk(host: Host, judge: Callable[[Disk], Iterator[Finding]]) -> Iterator[Finding]:
    """Judges the disk of each use; an error of one outranks a doubt about another."""
    disks = host.disks.need("the room on disks")
    seen = ", ".join(disk.use for disk in disks)
    doubt = "" if {disk.use for disk in disks} == {"images", "temporary"} else f"only {seen or 'nothing'} was looked at"
    yield from gathered(disks, judge, lambda disk: disk.path, doubt)


_of_each_disk = check_by(_each_disk)


@_of_each_disk
def host_disk_space_low(disk: Disk) -> Iterator[Finding]:
    """There is room for images and temporary files."""
    free, total = disk.free.need("the room"), disk.total.need("the size")
    images = disk.use == "images"
    least, wanted = (_IMAGES_LEAST, _IMAGES_WANTED) if images else (0, _TEMPORARY_WANTED)
    if free >= wanted:
        return
    how = (
        "make room with `docker system prune` and `docker buildx prune`, or move the directory to a larger disk"
        if images
        else "make room there, or set TMPDIR to a directory on a larger disk"
    )
    yield Finding(
        f"{disk.path} ({disk.use}) has {gib(free)} free ({_percent(free, total)}), less than {gib(wanted)}",
        Severity.ERROR if free < least else Severity.WARNING,
        disk.path,
        {f"{free} bytes": disk.free.via},
        f"{how}; check it with `df -h {disk.path}`",
    )


@_of_each_disk
def host_inodes_low(disk: Disk) -> Iterator[Finding]:
    """There are inodes left for images and temporary files."""
    if disk.inodes.is_unsupported:
        return
    free, total = disk.inodes_free.need("free inodes"), disk.inodes.need("inodes")
    if free < _INODES_WANTED * total:
        yield warning(
            f"{disk.path} ({disk.use}) has {free} of {total} inodes free",
            disk.path,
            {f"{free} inodes": disk.inodes_free.via},
            f"remove caches of many small files; check it with `df -i {disk.path}`",
        )


@_of_each_disk
def host_disk_read_only(disk: Disk) -> Iterator[Finding]:
    """The file systems for images and temporary files can be written to."""
    if "read-only" in disk.flags.need("the flags of its mount"):
        yield error(
            f"{disk.path} ({disk.use}) lies on a file system that is mounted read-only",
            disk.path,
            {"read-only": disk.flags.via},
            f"look with `dmesg | grep -i remount` whether an error made it so, and repair it; else mount it "
            f"writable or use another directory; check it with `findmnt -T {disk.path}`",
        )


@_of_each_disk
def host_temporary_directory_noexec(disk: Disk) -> Iterator[Finding]:
    """Libraries that are built into the temporary directory can be loaded from there."""
    if disk.use == "temporary" and "noexec" in disk.flags.need("the flags of its mount"):
        yield warning(
            f"{disk.path} is mounted noexec, and no library can be loaded from there",
            disk.path,
            {"noexec": disk.flags.via},
            "set TMPDIR (or TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR) to a directory without it; check it with "
            f"`findmnt -T {disk.path}`",
        )


def host_file_system_errors(host: Host) -> Iterator[Finding]:
    """No file system on a drive met an error.

    In a container a directory of a file system that is meant to be read-only looks the same.
    """
    frozen = [mount for mount in host.mounts.need("the mounts") if mount.frozen and not mount.read_only]
    counted = {name: count for name, count in host.file_system_errors.need("ext4's errors").items() if count}
    inside = bool(frozen) and host.container.need("whether this is a container") != "none"
    if inside and not counted:
        raise Unknown(f"whether an error made {frozen[0].device} read-only cannot be seen in a container")
    for mount in [] if inside else frozen:
        yield error(
            f"{mount.path} ({mount.kind} on {mount.device}) was mounted writable and is read-only now",
            mount.path,
            {"ro": host.mounts.via},
            f"an error made it so: read `dmesg | grep -iE 'error|remount'`, replace the drive or repair it with "
            f"`fsck {mount.device}`; check it with `findmnt {mount.path}`",
        )
    for name, count in counted.items():
        yield warning(
            f"ext4 on {name} counts {count} errors since it was last checked",
            name,
            {f"errors_count {count}": host.file_system_errors.via},
            f"look at the drive with `smartctl -a`, and run `e2fsck -f /dev/{name}` while it is not mounted; check it "
            f"with `cat /sys/fs/ext4/{name}/errors_count`",
        )


def host_raid_degraded(host: Host) -> Iterator[Finding]:
    """Each software RAID array runs with all its members."""
    arrays = host.raids.need("the RAID arrays")
    skip_if(not arrays, "no software RAID on this machine")
    for raid in arrays:
        lacking = raid.wanted - raid.working
        if raid.active and not lacking and not raid.failed:
            continue
        faults = [
            *(["is not active"] if not raid.active else []),
            *([f"works with {raid.working} of {raid.wanted} members"] if lacking else []),
            *([f"calls {', '.join(raid.failed)} failed"] if raid.failed else []),
        ]
        yield Finding(
            f"{raid.name} ({raid.level or 'no level'}) {', '.join(faults)}",
            Severity.WARNING if raid.active else Severity.ERROR,
            raid.name,
            {", ".join(faults): host.raids.via},
            f"replace the drive and add it with `mdadm /dev/{raid.name} --add`; check it with `cat /proc/mdstat`",
        )


def host_nvme_controller_not_live(host: Host) -> Iterator[Finding]:
    """Each NVMe drive's controller is live."""
    drives = host.nvme_drives.need("the NVMe drives")
    skip_if(not drives, "no NVMe drive on this machine")
    for drive in drives:
        if drive.state != "live":
            yield Finding(
                f"the controller of {drive.name} ({drive.model or 'no model'}) is {drive.state}",
                Severity.WARNING if drive.state in ("new", "resetting", "connecting") else Severity.ERROR,
                drive.name,
                {drive.state: host.nvme_drives.via},
                f"read `dmesg | grep {drive.name}`, seat or replace the drive; check it with "
                f"`cat /sys/class/nvme/{drive.name}/state`",
            )


def host_remote_mount_not_responding(host: Host) -> Iterator[Finding]:
    """The file systems of other machines answer."""
    mounts = host.remote_mounts.need("the mounts of other machines' files")
    judged = [mount for mount in mounts if not (mount.ended == "error" and mount.detail == "permission denied")]
    skip_if(not judged, "no file system of another machine is mounted for this user")
    for mount in judged:
        if mount.ended != "answered":
            yield error(
                f"{mount.path} ({mount.kind} of {mount.device}) does not answer: {mount.detail}",
                mount.path,
                {mount.detail: host.remote_mounts.via},
                f"check its server and the network, then mount it again: `umount -l {mount.path} && mount "
                f"{mount.path}`; check it with `timeout 5 stat -f {mount.path}`",
            )


def host_lustre_unhealthy(host: Host) -> Iterator[Finding]:
    """Lustre calls itself healthy."""
    skip_if(host.lustre.is_unsupported, "Lustre is not loaded")
    said = host.lustre.need("Lustre's word on its health")
    if said != "healthy":
        yield error(
            f"Lustre reports: {said[:200].splitlines()[0] if said else 'nothing'}",
            "lustre",
            {said[:200] or "nothing": host.lustre.via},
            "see which targets are gone with `lfs check servers` and `dmesg | grep Lustre`; check it with "
            "`lctl get_param health_check`",
        )
