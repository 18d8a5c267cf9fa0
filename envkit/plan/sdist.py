"""What a source archive says that it needs, read out of it: no code of it runs."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator

_MOST_BYTES = 256 << 20  # of an archive when it is unpacked, up to the files that are looked for
_MOST_MEMBER = 1 << 20  # bytes of one such file
_MOST_MEMBERS = 50_000
_INFO = re.compile(r"[^/]+/PKG-INFO")
_EGG = re.compile(r"(?:[^/]+/)+[^/]+\.egg-info/(PKG-INFO|requires\.txt)")


class _Bounded(io.RawIOBase):
    """The unpacked bytes of an archive, as far as ``most``."""

    def __init__(self, data: bytes, most: int) -> None:
        self._inner = gzip.GzipFile(fileobj=io.BytesIO(data))
        self._left = most

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        got = self._inner.read(wanted)
        self._left -= len(got)
        return got


def requires(archive: bytes, most: int = _MOST_BYTES) -> tuple[str, ...] | None:
    """The requirements of a ``.tar.gz`` as lines of METADATA; None where it does not say them,
    or not within the first ``most`` bytes that it unpacks to.

    They stand in PKG-INFO, or in the requires.txt that setuptools writes beside it (setuptools, "The egg-info").  What
    setup.py would decide while it builds, such as by the CUDA that it finds, is not in them.
    """
    info, listed, egg = "", None, False
    try:
        for name, text in _members(archive, most):
            if _INFO.fullmatch(name):
                info = text
            elif name.endswith("requires.txt"):
                listed = text
            else:
                egg = True
    except (OSError, EOFError, tarfile.TarError, zlib.error, ValueError):
        return None
    if said := of_metadata(info):
        return said
    if listed is not None:
        return tuple(_of_egg(listed))
    since = re.search(r"^Metadata-Version: *(\d+)\.(\d+)", info)
    dynamic = any(re.match(r"dynamic: *requires-dist", line, re.IGNORECASE) for line in _head(info))
    complete = since is not None and (int(since[1]), int(since[2])) >= (2, 2) and not dynamic  # PEP 643
    return () if egg or complete else None


def of_metadata(text: str) -> tuple[str, ...]:
    """The requirements that METADATA or PKG-INFO names, as its lines have them."""
    return tuple(line.partition(":")[2].strip() for line in _head(text) if line.lower().startswith("requires-dist:"))


def _head(text: str) -> list[str]:
    return text.replace("\r\n", "\n").partition("\n\n")[0].split("\n")


def _members(archive: bytes, most: int) -> Iterator[tuple[str, str]]:
    """The files of an archive that say what it needs."""
    with tarfile.open(fileobj=_Bounded(archive, most), mode="r|") as tar:
        for number, member in enumerate(tar):
            if number >= _MOST_MEMBERS:
                return
            wanted = member.isfile() and (_INFO.fullmatch(member.name) or _EGG.fullmatch(member.name))
            if not wanted or member.size > _MOST_MEMBER:
                continue
            held = tar.extractfile(member)
            if held is not None:
                yield member.name, held.read(_MOST_MEMBER).decode("utf-8", "replace")


def _of_egg(text: str) -> Iterator[str]:
    """The lines of a requires.txt: its sections are "[extra]", "[:marker]" or "[extra:marker]"."""
    marker = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            extra, _, condition = line[1:-1].partition(":")
            parts = [f"({condition})" if condition else "", f'extra == "{extra}"' if extra else ""]
            marker = " and ".join(part for part in parts if part)
        elif line and not line.startswith("#"):
            yield f"{line}; {marker}" if marker else line
