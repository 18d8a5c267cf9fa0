"""Trees that are folders of this machine: a root file system, a virtual environment, or an engine's unpacked layers.

Nothing is opened but directories and regular files, and no link is followed: a link within the tree may lead anywhere
on this machine.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from envkit.errors import UsageError
from envkit.image.tar import shown
from envkit.image.tree.parts import Budget, Entry, Layer, Unreadable, sha256_of, why

_SMALL = 64 << 10  # bytes up to which a file is read: a map of it costs a file descriptor for as long as it lives
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# File systems that hold no files but the kernel's words about itself, endless some of them (proc(5), sysfs(5)).
_KERNEL = frozenset(
    ("autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
     "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs",
     "tracefs")
)  # fmt: skip
_OPAQUE = "trusted.overlay.opaque"  # Documentation/filesystems/overlayfs.rst, "whiteouts and opaque directories"


def walk(root: str, number: int, budget: Budget, unread: dict[str, str], *, overlay: bool = False) -> Layer:
    """Everything below ``root`` (no link in its path) as layer ``number``.

    With ``overlay`` devices 0/0 and opaque directories mean what the kernel's overlay means by them.  ``unread`` gets
    what could not be examined, with the reason; a name that vanishes meanwhile was never there.  Raises UsageError
    where ``root`` itself cannot be listed, Broken where there is more than ``budget`` allows.
    """
    return _Walk(number, budget, unread, overlay).below(root)


class _Walk:
    """One layer while it is listed."""

    def __init__(self, number: int, budget: Budget, unread: dict[str, str], overlay: bool) -> None:
        self._number = number
        self._budget = budget
        self._unread = unread
        self._overlay = overlay
        self._layer = Layer()
        self._twins: dict[tuple[int, int], Entry] = {}
        self._waiting: list[tuple[str, int]] = [("", -1)]  # directories, each with the file system that it is named on
        self._kernels: set[int] | None = None

    def below(self, root: str) -> Layer:
        prefix = "" if root == "/" else root
        while self._waiting:
            folder, device = self._waiting.pop()
            try:
                handle = os.open(prefix + folder or "/", _DIRECTORY)
            except OSError as error:
                if not folder:
                    told = f"{shown(root)} cannot be listed: {why(error)}"
                    raise UsageError(told, "check who may read it") from error
                self._unread[folder] = why(error)
                continue
            try:
                here = os.fstat(handle).st_dev
                if device in (-1, here) or not self._is_kernels(here):
                    if self._overlay and self._number and _opaque(handle):
                        self._layer.opaque.add(folder or "/")
                    self._list(handle, folder, here)
            except OSError as error:
                self._unread[folder or "/"] = why(error)
            finally:
                os.close(handle)
        return self._layer

    def _is_kernels(self, device: int) -> bool:
        if self._kernels is None:
            self._kernels = _kernels()
        return device in self._kernels

    def _list(self, handle: int, folder: str, device: int) -> None:
        """Puts what the open directory holds into the layer, and its directories among those that wait."""
        layer, number, spend = self._layer, self._number, self._budget.spend
        with os.scandir(handle) as found:
            for one in found:
                path = f"{folder}/{one.name}"
                spend(path)
                try:
                    about = one.stat(follow_symlinks=False)
                    mode = about.st_mode
                    link = os.readlink(one.name, dir_fd=handle) if stat.S_ISLNK(mode) else ""
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self._unread[path] = why(error)
                    layer.entries[path] = Entry("other", 0, 0, 0, 0, "", number)
                    continue
                kind, size = "other", 0
                if stat.S_ISREG(mode):
                    kind, size = "file", about.st_size
                elif stat.S_ISDIR(mode):
                    kind = "directory"
                    self._waiting.append((path, device))
                elif link:
                    kind = "link"
                elif self._overlay and stat.S_ISCHR(mode) and about.st_rdev == 0:
                    layer.gone.add(path)
                    continue
                entry = Entry(kind, size, stat.S_IMODE(mode), about.st_uid, about.st_gid, link, number)
                if about.st_nlink > 1 and kind != "directory":
                    first = self._twins.setdefault((about.st_dev, about.st_ino), entry)
                    if first is not entry:
                        entry = first
                        layer.shared.add(id(entry))
                layer.entries[path] = entry


def _opaque(handle: int) -> bool:
    try:
        return os.getxattr(handle, _OPAQUE) == b"y"
    except OSError:  # no such attribute, or a file system without any
        return False


def _kernels() -> set[int]:
    """The numbers of the mounted file systems that hold no files; proc(5) names the fields of the list."""
    found = set()
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.split(" ")[0] in _KERNEL:
            major, _, minor = fields.split(" ")[2].partition(":")
            found.add(os.makedev(int(major), int(minor)))
    return found


@contextmanager
def _opened(root: str, path: str) -> Iterator[tuple[int, int]]:
    """The file ``path`` below ``root``, open, and its size; every failure is Unreadable."""
    full = ("" if root == "/" else root) + path
    try:
        handle = os.open(full, _FILE)
    except (OSError, ValueError) as error:
        raise Unreadable(path, why(error)) from error
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise Unreadable(path, "it is no regular file any more")
        # A directory on the way may have become a link since it was listed.
        if os.readlink(f"/proc/self/fd/{handle}") != full:
            raise Unreadable(path, "it is gone, or leads out of the tree by now")
        yield handle, about.st_size
    except OSError as error:
        raise Unreadable(path, why(error)) from error
    finally:
        os.close(handle)


def content(root: str, path: str) -> memoryview:
    """The content of the file ``path`` below ``root``, mapped unless it is small.

    Raises Unreadable where it is gone, forbidden, or no regular file inside ``root`` any more.
    """
    with _opened(root, path) as (handle, size):
        if size <= _SMALL:
            return memoryview(os.read(handle, size))
        mapped = mmap.mmap(handle, size, access=mmap.ACCESS_READ)
        mapped.madvise(mmap.MADV_RANDOM)
        return memoryview(mapped)


def digest(root: str, path: str) -> str:
    """The sha256 (hex) of the content of the file ``path`` below ``root``; raises Unreadable as ``content`` does."""
    with _opened(root, path) as (handle, _):
        return sha256_of(lambda most: os.read(handle, most))
