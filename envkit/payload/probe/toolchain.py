"""The compilers that an extension build, and Triton, would take here: nvcc, its host compiler, ptxas.

Each is asked for its version, all side by side, while this process goes on.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from subprocess import DEVNULL, PIPE, STDOUT

from envkit.payload.probe import wheels
from envkit.payload.probe.report import lost, observed

_BUDGET_S = 60.0  # a version costs milliseconds, and seconds on a cold network disk or a busy machine
_DEFAULT = "/usr/local/cuda"
# as torch's cpp_extension and nvcc look for it: what nvcc is told, what torch is told, what both find
_HOST_VARIABLES = ("NVCC_CCBIN", "CXX", "CUDAHOSTCXX", "CC")
_HOST_NAMES = ("c++", "g++", "clang++")
_BRINGS = ("torch", "triton", "pytorch-triton", "nvidia-cuda-nvcc")
_RELEASE = re.compile(r"release \d+\.\d+, V(\d+(?:\.\d+)+)")
_CLANG = re.compile(r"clang version (\d+(?:\.\d+)*)")
_NUMBER = re.compile(r"\A\d+(?:\.\d+)*\Z")


class _Running:
    """A program on its way, given no input."""

    def __init__(self, command: list[str]) -> None:
        self._deadline = time.monotonic() + _BUDGET_S
        self._error = ""
        self._child: subprocess.Popen[str] | None = None
        try:
            self._child = subprocess.Popen(
                command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, encoding="utf-8", errors="backslashreplace"
            )
        except OSError as error:
            self._error = error.strerror or str(error)

    def said(self) -> tuple[str, str]:
        """What it printed and "", or why it did not end well; to be called once."""
        if self._child is None:
            return "", self._error
        try:
            text, _ = self._child.communicate(timeout=max(0.01, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()
            return "", f"did not end within {_BUDGET_S:g} s"
        code = self._child.returncode
        if code:
            last = text.strip().splitlines()[-1:] or ["it printed nothing"]
            return "", f"ended with {code}: {last[0]}"
        return text, ""


def _release(running: _Running) -> dict[str, str]:
    """The version that nvcc or ptxas says, or why it said none."""
    text, error = running.said()
    found = _RELEASE.search(text)
    if found:
        return {"version": found.group(1), "error": ""}
    return {"version": "", "error": error or "its output names no release"}


def _listed(dists: list[wheels.Dist], name: str) -> Iterator[tuple[str, str]]:
    """Distribution and path of each file that a distribution lists whose name is ``name`` or begins with ``name-``."""
    for dist in dists:
        if not any(dist.name == one or dist.name.startswith(one + "-") for one in _BRINGS):
            continue
        for file in re.findall(rf"^([^,\n]*bin/{name}(?:-[^/,\n]*)?),", dist.record, re.MULTILINE):
            path = os.path.realpath(os.path.join(dist.base, file))
            if os.path.isfile(path):
                yield dist.name, path


def _nvccs(dists: list[wheels.Dist]) -> Iterator[tuple[str, str]]:
    """How and where an nvcc is found: in the order in which torch's cpp_extension looks, then those of wheels."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        home = os.environ.get(name, "")
        if home:
            yield name, os.path.join(home, "bin", "nvcc")
    found = shutil.which("nvcc")
    if found:
        yield "PATH", found
    if os.path.exists(f"{_DEFAULT}/bin/nvcc"):
        yield _DEFAULT, f"{_DEFAULT}/bin/nvcc"
    yield from _listed(dists, "nvcc")


def _ptxases(dists: list[wheels.Dist]) -> Iterator[tuple[str, str]]:
    """Owner and path of each ptxas: of packages, and those that a variable of Triton names, which no package owns."""
    seen = dict.fromkeys((path, owner) for owner, path in _listed(dists, "ptxas"))
    for path, owner in seen:
        yield owner, path
    known = {path for path, _ in seen}
    for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        path = os.environ.get(name, "")
        if path and os.path.realpath(path) not in known:
            known.add(os.path.realpath(path))
            yield "", os.path.realpath(path)


def _host_compiler() -> tuple[str, list[str]]:
    """Who named the host compiler that nvcc would take, and its command; none where there is none."""
    for name in _HOST_VARIABLES:
        words = os.environ.get(name, "").split()
        # "ccache g++" and "g++ -m64" are both in use: the compiler is the last word that is no option
        commands = [word for word in words if not word.startswith("-")]
        if commands:
            return f"${name}", [commands[-1]]
    for name in _HOST_NAMES:
        found = shutil.which(name)
        if found:
            return "PATH", [found]
    return "", []


class Tools:
    """All version questions on their way."""

    def __init__(self, dists: list[wheels.Dist]) -> None:
        self._nvccs = [(via, os.path.realpath(path), _Running([path, "--version"])) for via, path in _nvccs(dists)]
        self._ptxases = [(owner, path, _Running([path, "--version"])) for owner, path in _ptxases(dists)]
        self._by, self._compiler = _host_compiler()
        self._banner = _Running([*self._compiler, "--version"]) if self._compiler else None
        # gcc before 7 knows only -dumpversion, later ones shorten what that says
        self._number = _Running([*self._compiler, "-dumpfullversion", "-dumpversion"]) if self._compiler else None

    def toolkits(self) -> list[dict[str, str]]:
        """One row an nvcc; a program that is reached in two ways stands in two rows."""
        return [{"via": via, "path": path, **_release(running)} for via, path, running in self._nvccs]

    def assemblers(self) -> list[dict[str, str]]:
        """One row a ptxas."""
        return [{"owner": owner, "path": path, **_release(running)} for owner, path, running in self._ptxases]

    def compiler(self) -> dict[str, object]:
        """The field ``compiler``: "gcc" or "clang" and its version, empty where there is no compiler."""
        if self._banner is None or self._number is None:
            return observed("", f"no {', no '.join(_HOST_NAMES)} on PATH")
        banner, banner_failed = self._banner.said()
        number, failed = self._number.said()
        clang = _CLANG.search(banner)
        command = self._compiler[0]
        if clang:
            return observed(f"clang {clang.group(1)}", f"{command} --version, by {self._by}")
        if _NUMBER.match(number.strip()):
            return observed(f"gcc {number.strip()}", f"{command} -dumpfullversion, by {self._by}")
        why = failed or banner_failed or f"it said {number.strip()[:80]!r}"
        return lost(f"asking {command} for its version: {why}")
