"""A Debian archive of hand-made packages in a folder, for the real apt-get."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

DATED = "2026-03-04T05:06:07Z"
_DATE = "Wed, 04 Mar 2026 05:06:07 UTC"

needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="this machine has no apt-get")


class Archive:
    """Packages by name and version; ``publish`` writes the lists, ``lines`` are its sources.list."""

    def __init__(self, folder: Path, suite: str = "bookworm", arch: str = "amd64") -> None:
        self.folder, self.suite, self.arch = folder, suite, arch
        self.stanzas: dict[tuple[str, str], str] = {}
        self.lines = (f"deb [trusted=yes] file:{folder} {suite} main",)
        self._published = 1_700_000_000

    def add(self, name: str, version: str, arch: str = "", hashed: bool = True, **fields: str) -> str:
        """Holds a package from the next ``publish`` on; gives its sha256."""
        digest = hashlib.sha256(f"{name} {version}".encode()).hexdigest()
        rows = {
            "Package": name,
            "Version": version,
            "Architecture": arch or self.arch,
            "Maintainer": "Nobody <nobody@example.org>",
            **{key.replace("_", "-").title(): value for key, value in fields.items()},
            "Filename": f"pool/{name}_{version.replace(':', '%3a')}_{arch or self.arch}.deb",
            "Size": str(len(name) + 1000),
            **({"SHA256": digest} if hashed else {}),
            "Description": name,
        }
        self.stanzas[name, version] = "".join(f"{key}: {value}\n" for key, value in rows.items())
        return digest

    def publish(self, date: str = _DATE) -> None:
        """Writes the lists as they are now."""
        top = self.folder / "dists" / self.suite
        listed = f"main/binary-{self.arch}/Packages"
        (top / listed).parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(self.stanzas.values()).encode()
        (top / listed).write_bytes(text)
        (top / "Release").write_text(
            f"Origin: Test\nSuite: {self.suite}\nCodename: {self.suite}\nDate: {date}\n"
            f"Architectures: {self.arch}\nComponents: main\n"
            f"SHA256:\n {hashlib.sha256(text).hexdigest()} {len(text)} {listed}\n"
        )
        self._published += 60  # apt takes a file of the same age for the same file
        for path in (top / listed, top / "Release"):
            os.utime(path, (self._published, self._published))


def installed(*packages: tuple[str, str], arch: str = "amd64", **fields: str) -> bytes:
    """A /var/lib/dpkg/status that holds ``packages`` (name, version)."""
    extra = "".join(f"{key.title()}: {value}\n" for key, value in fields.items())
    return "\n".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: {arch}\nVersion: {version}\n{extra}"
        "Maintainer: Nobody <nobody@example.org>\nDescription: x\n"
        for name, version in packages
    ).encode()
