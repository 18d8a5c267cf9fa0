"""The Debian packages of a tree, out of dpkg's own files (dpkg(1), FILES)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from envkit.image.audit.linker import is_file, text
from envkit.image.tree import Tree
from envkit.records import dataclass

_STATUS = "/var/lib/dpkg/status"
_INFO = "/var/lib/dpkg/info"
_MOST = 64 << 20


@dataclass(frozen=True, slots=True)
class Deb:
    """One installed package and the regular files that its list names and that are in the tree."""

    name: str
    version: str
    files: tuple[str, ...]


def read(tree: Tree) -> tuple[Deb, ...] | None:
    """The installed packages, None where dpkg keeps no status here."""
    if not is_file(tree, _STATUS):
        return None
    return tuple(
        Deb(name, version, tuple(_files(tree, name, machine)))
        for name, version, machine in installed(text(tree, _STATUS, _MOST))
    )


def installed(status: str) -> Iterator[tuple[str, str, str]]:
    """Name, version and architecture of each package that dpkg's status file calls installed."""
    for paragraph in status.split("\n\n"):
        fields = {}
        for line in paragraph.splitlines():
            key, colon, value = line.partition(": ")
            if colon and key in ("Package", "Version", "Architecture", "Status"):
                fields[key] = value.strip()
        if fields.get("Status", "").endswith(" installed") and "Package" in fields:
            yield fields["Package"], fields.get("Version", ""), fields.get("Architecture", "")


def _files(tree: Tree, name: str, machine: str) -> Iterator[str]:
    names = (f"{_INFO}/{name}.list", f"{_INFO}/{name}:{machine}.list")
    path = next((one for one in names if is_file(tree, one)), "")
    folders: dict[str, str] = {}  # a merged /usr: the list says /lib/x, the file lies in /usr/lib/x
    for line in text(tree, path, _MOST).splitlines() if path else ():
        entry = tree.entries.get(line)
        if entry is None and line.startswith(("/lib", "/bin", "/sbin")):
            folder, _, base = line.rpartition("/")
            if folder not in folders:
                folders[folder] = tree.real(folder)
            line = f"{folders[folder]}/{base}"
            entry = tree.entries.get(line)
        if entry is not None and entry.kind == "file":
            yield posixpath.normpath(line)
