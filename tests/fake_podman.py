"""A podman on PATH that a test plays: a program that keeps each line that it was started with, and answers by rules.

Its answers are podman's own words, as a real one printed them; what it is to do besides is a line of shell.
"""

from __future__ import annotations

import copy
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envkit.engine.podman import PodmanEngine
from envkit.errors import EnvkitError

INFO: dict[str, Any] = {
    "host": {
        "os": "linux", "arch": "amd64", "cgroupVersion": "v2", "cgroupControllers": ["cpu", "memory", "pids"],
        "memTotal": 8 << 30, "security": {"rootless": False}, "serviceIsRemote": False,
    },
    "store": {"graphRoot": "/nowhere/storage", "graphDriverName": "overlay", "graphStatus": {}},
    "version": {"Version": "4.9.3"},
}  # fmt: skip
ID = "ab" * 32


class FakeProgram:
    """The program ``name`` in a folder that comes first on PATH."""

    def __init__(self, folder: Path, name: str, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        self.path = folder / "bin" / name
        self._rules: list[str] = []
        self._write()
        patch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")

    def on(
        self, pattern: str, out: str = "", *, err: str = "", exit: int = 0, does: str = "", when: str = "true"
    ) -> None:
        """For words that the shell's ``pattern`` fits, while ``when`` holds; the rule that came last goes first.

        In ``does`` and ``when``, ``$D`` is the folder, and ``value --option=`` prints what stands behind that.
        """
        says = f"printf %s {shlex.quote(out)}; printf %s {shlex.quote(err)} >&2"
        rule = f'case "$*" in {pattern}) if {when}; then {does or ":"}; {says}; exit {exit}; fi;; esac'
        self._rules.insert(0, rule)
        self._write()

    def _write(self) -> None:
        lines = [
            "#!/bin/sh",
            f"D={shlex.quote(str(self.folder))}",
            'value() { for word in $ALL; do case "$word" in "$1"*) echo "${word#"$1"}";; esac; done; }',
            'ALL="$*"',
            """{ printf '%s\\037' "$@"; printf '\\036'; } >> "$D/lines" """,
            '[ "$1" = --log-level=error ] && shift',
            *self._rules,
            'echo "Error: unknown $*" >&2; exit 125',
        ]
        self.path.write_text("\n".join(lines) + "\n")
        self.path.chmod(0o755)

    def lines(self, *beginning: str) -> list[list[str]]:
        """All lines so far that begin so, without the wish to hear errors alone, which each has."""
        kept = self.folder / "lines"
        text = kept.read_text() if kept.exists() else ""
        found = [line.split("\037")[:-1] for line in text.split("\036")[:-1]]
        found = [line[1:] if line[:1] == ["--log-level=error"] else line for line in found]
        return [line for line in found if line[: len(beginning)] == list(beginning)]

    def forget(self) -> None:
        """Lines so far are no longer told."""
        (self.folder / "lines").unlink(missing_ok=True)


class FakePodman(FakeProgram):
    """A podman that says INFO of itself, has no image, and removes what it is told to."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, info: dict[str, Any] | None = None) -> None:
        super().__init__(folder, "podman", patch)
        self.on("'info --format json'", json.dumps(INFO if info is None else info))
        self.on("'image exists '*|'container exists '*", exit=1)
        self.on("'image ls '*|'ps '*|'rm '*")

    def holds(self, name: str, when: str = "true", **facts: Any) -> None:
        """An image, by what `podman image inspect` says of it."""
        said = {
            "Id": ID, "Os": "linux", "Architecture": "amd64", "Size": 7, "Labels": None, "RepoDigests": [],
            "RootFS": {"Layers": ["sha256:" + "1" * 64]}, "Config": {}, **facts,
        }  # fmt: skip
        self.on(shlex.quote(f"image exists {name}"), when=when)
        self.on(shlex.quote(f"image inspect {name}"), json.dumps([said]), when=when)

    def has_container(self, **state: Any) -> None:
        """Whatever container is asked for is there in this state."""
        self.on("'container exists '*")
        self.on("'container inspect '*", json.dumps([state]))


def quiet(line: str) -> None:
    """Takes a line of progress."""


def info(**host: Any) -> dict[str, Any]:
    """INFO with other words on the host."""
    said = copy.deepcopy(INFO)
    said["host"] |= host
    return said


def with_info(tmp_path: Path, patch: pytest.MonkeyPatch, said: dict[str, Any]) -> tuple[FakePodman, PodmanEngine]:
    fake = FakePodman(tmp_path / f"fake{len(list(tmp_path.iterdir()))}", patch, said)
    made = PodmanEngine(tmp_path / "cache")
    fake.forget()
    return fake, made


def refused(kind: type[EnvkitError], work: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(kind) as caught:
        work()
    assert type(caught.value) is kind
    return caught.value.message, caught.value.fix
