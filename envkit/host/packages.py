"""What dpkg has installed of the driver and its neighbours, and what will change it: upgrades, a reboot that is due."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from envkit.host.driver import DRIVER_VERSION
from envkit.host.root import HostRoot, by_name
from envkit.model import Observed
from envkit.subjects.host import Package, Reboot, UnattendedUpgrades

_STATUS = "var/lib/dpkg/status"
_MOST_STATUS = 64 << 20  # a desktop with everything has 5 MB
_MATTERS = re.compile(
    r"(lib)?nvidia-.*|nvidia.*|libcuda.*|cuda-.*|cuda|nvlsm|libnvsdm.*|datacenter-gpu-manager.*|gdrcopy.*|libgdrapi"
    r"|nsight-.*|libnccl.*|libcudnn.*|docker.*|containerd.*|podman.*|buildah|cri-o.*|enroot.*|unattended-upgrades"
    r"|linux-(image|modules-nvidia|objects-nvidia)-.*|rdma-core|mlnx-.*|doca-.*"
)
_DRIVER = re.compile(r"(lib)?nvidia-.*|libcuda1|linux-(modules|objects)-nvidia-.*|xserver-xorg-video-nvidia.*")
# these have versions of their own
_APART = re.compile(
    r"nvidia-(settings|modprobe|xconfig|prime|support|installer|cuda|container|nsight).*|libnvidia-(container|egl).*"
)


def parse_stanza(text: str) -> dict[str, str]:
    """The fields of one paragraph of deb822(5), by name; of a field of several lines the first."""
    lines = [line.partition(":") for line in text.splitlines() if not line.startswith((" ", "\t"))]
    return {name: value.strip() for name, colon, value in lines if colon}


def _stanzas(place: HostRoot) -> tuple[dict[str, str], ...]:
    """The paragraphs about packages that matter; raises ValueError for a file without any package."""
    path = place.path(_STATUS)
    about = path.stat()
    return _read(path, about.st_ino, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=1)
def _read(path: Path, *state: int) -> tuple[dict[str, str], ...]:
    """The paragraphs of the file in this ``state``, which two fields of a machine are made of."""
    return tuple(_paragraphs(path))


def _paragraphs(path: Path) -> Iterator[dict[str, str]]:
    with path.open("rb") as file:
        data = file.read(_MOST_STATUS + 1)
    if len(data) > _MOST_STATUS:
        raise ValueError(f"/{_STATUS} has more than {_MOST_STATUS >> 20} MiB")
    names = list(re.finditer(rb"^Package: *(\S+) *$", data, re.MULTILINE))
    if not names and data.strip():
        raise ValueError(f"/{_STATUS} names no package")
    for name in names:
        if _MATTERS.fullmatch(name[1].decode("ascii", "replace")):
            end = data.find(b"\n\n", name.start())
            # the field may be any of its paragraph, though dpkg writes it first
            start = data.rfind(b"\n\n", 0, name.start()) + 2 if b"\n\n" in data[: name.start()] else 0
            yield parse_stanza(data[start : end if end >= 0 else len(data)].decode("utf-8", "replace"))


def _installed(place: HostRoot) -> Iterator[dict[str, str]]:
    """Of these, the ones whose files are here, those that are not yet configured among them."""
    for fields in _stanzas(place):
        state = fields.get("Status", "").split()[-1:]
        if state and state[0] not in ("not-installed", "config-files") and fields.get("Architecture") != "i386":
            yield fields


def _no_dpkg(place: HostRoot) -> bool:
    return not place.exists(_STATUS)


def packages(place: HostRoot) -> Observed[Mapping[str, str]]:
    """The installed packages that matter here and their versions."""
    if _no_dpkg(place):
        return Observed.unsupported(f"/{_STATUS}")
    found = {fields["Package"]: fields.get("Version", "") for fields in _installed(place)}
    return Observed.of(found, f"/{_STATUS}")


def _package(fields: Mapping[str, str]) -> Package:
    want, _, state = [*fields.get("Status", "").split(), "", "", ""][:3]
    vendor = "nvidia" if "nvidia.com" in fields.get("Maintainer", "") else "distribution"
    return Package(fields["Package"], fields.get("Version", ""), state, want == "hold", vendor)


def driver_packages(place: HostRoot) -> Observed[tuple[Package, ...]]:
    """The driver's own packages: those whose version is a driver's, and modules that a distribution built."""
    if _no_dpkg(place):
        return Observed.unsupported(f"/{_STATUS}")
    found = []
    for fields in _installed(place):
        name = fields["Package"]
        ours = _DRIVER.fullmatch(name) and not _APART.fullmatch(name)
        if ours and (name.startswith("linux-") or DRIVER_VERSION.match(fields.get("Version", "").rpartition(":")[2])):
            found.append(_package(fields))
    return Observed.of(tuple(found), f"/{_STATUS}")


_BLANK = r"\s+|//[^\n]*|/\*.*?\*/|#(?!clear|include)[^\n]*"
_TOKEN = re.compile(_BLANK + r'|("(?:[^"\\]|\\.)*")|([{};])|((?!/\*)[^\s{};"]+)', re.DOTALL)


def parse_apt(text: str) -> Iterator[tuple[str, str]]:
    """The assignments of apt.conf(5) in their order, as ("a::b::c", value); names are in lower case.

    A list's items come under the list's name; ("a::b", "#clear") empties a list.  Raises ValueError where a string or
    a comment does not end.
    """
    scope: list[str] = []
    words: list[str] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found:
            raise ValueError(f"`{text[at : at + 20]}` is none of apt.conf's words")
        at = found.end()
        if found[1]:
            words.append(found[1][1:-1])
        elif found[3]:
            words.append(found[3].lower() if not words else found[3])
        elif found[2] == "{":
            scope.append("::".join(word.strip(":") for word in words[:1]))
            words = []
        elif found[2] == "}":
            if not scope:
                raise ValueError("a `}` too many")
            scope.pop()
            words = []
        elif found[2] == ";":
            yield from _assigned(scope, words)
            words = []


def _assigned(scope: list[str], words: list[str]) -> Iterator[tuple[str, str]]:
    name = "::".join(part for part in scope if part)
    if words[:1] == ["#clear"]:
        yield from ((word.lower().strip(":"), "#clear") for word in words[1:])
    elif len(words) == 2:
        yield "::".join(part for part in (name, words[0].strip(":")) if part), words[1]
    elif len(words) == 1:
        yield name, words[0]


def parse_unattended(assigned: Iterator[tuple[str, str]], installed: bool) -> UnattendedUpgrades:
    """The periodic upgrade, what it takes from and what it leaves alone, out of apt's assignments."""
    lists: dict[str, list[str]] = {}
    period = "0"
    for name, value in assigned:
        if value == "#clear":
            for known in [known for known in lists if f"unattended-upgrade::{known}".startswith(name)]:
                del lists[known]
        elif name == "apt::periodic::unattended-upgrade":
            period = value
        elif name.startswith("unattended-upgrade::"):
            lists.setdefault(name.partition("::")[2], []).append(value)
    origins = (*lists.get("allowed-origins", ()), *lists.get("origins-pattern", ()))
    return UnattendedUpgrades(installed and period not in ("0", ""), origins, tuple(lists.get("package-blacklist", ())))


def unattended(place: HostRoot) -> Observed[UnattendedUpgrades]:
    """The unattended upgrades as apt's configuration sets them, its files in apt's order."""
    if _no_dpkg(place):
        return Observed.unsupported(f"/{_STATUS}")
    folder = "etc/apt/apt.conf.d"
    names = place.names(folder) if place.exists(folder) else ()
    # apt reads names without an extension or with .conf, and leaves backups of editors and dpkg alone
    read = [f"{folder}/{name}" for name in names if re.fullmatch(r"[A-Za-z0-9_.-]+", name) and _kept(name)]
    assigned: list[tuple[str, str]] = []
    for path in [*read, *(["etc/apt/apt.conf"] if place.exists("etc/apt/apt.conf") else [])]:
        text = place.text(path)
        if text.value is None:
            return text.absence()
        assigned += parse_apt(text.value)
    installed = place.exists("usr/bin/unattended-upgrade") or place.exists("usr/bin/unattended-upgrades")
    return Observed.of(parse_unattended(iter(assigned), installed), f"/{folder}")


def _kept(name: str) -> bool:
    return "." not in name or name.endswith(".conf")


def reboot(place: HostRoot) -> Observed[Reboot]:
    """Whether update-notifier's mark for a due reboot lies there; only Debian's relatives write it."""
    if _no_dpkg(place):
        return Observed.unsupported(f"/{_STATUS}")
    wanted = place.exists("run/reboot-required")
    for_whom = place.word("run/reboot-required.pkgs") if place.exists("run/reboot-required.pkgs") else ""
    return Observed.of(Reboot(wanted, tuple(sorted(set(for_whom.split())))), "/run/reboot-required")


SOURCES = by_name(reboot, unattended, packages, driver_packages)
