"""Files of the driver, of CDI and of the container toolkit."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from envkit.host import cdi, driver
from envkit.host.place import Source
from envkit.model import Observed
from envkit.proc import run
from envkit.subjects.host import CudaDirectory, DaemonConfig, Toolkit

_VERSION_S = 1.0  # nvidia-ctk --version only prints
_PROGRAMS = ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime", "nvidia-container-runtime-hook")
_DIRECTORIES = (
    "usr/bin",
    "usr/sbin",
    "usr/local/bin",
    "usr/local/nvidia/toolkit",
    "run/current-system/sw/bin",
)


def parse_toolkit_version(text: str) -> str:
    """The version out of "NVIDIA Container Toolkit CLI version <version>"; raises ValueError on anything
    else.
    """
    found = re.search(r"Container Toolkit CLI version (\S+)", text)
    if not found:
        raise ValueError("no line `NVIDIA Container Toolkit CLI version ...`")
    return found[1]


def toolkit(root: Path) -> Toolkit:
    """The toolkit's programs in the usual directories and, on the running machine, its version."""
    programs: dict[str, str] = {}
    for directory in _DIRECTORIES:
        for name in _PROGRAMS:
            if name not in programs and os.access(root / directory / name, os.X_OK):
                programs[name] = f"/{directory}/{name}"
    if "nvidia-ctk" not in programs or root != Path("/"):
        return Toolkit(programs, Observed.lost("nvidia-ctk was not asked"))
    answer = run([programs["nvidia-ctk"], "--version"], timeout_s=_VERSION_S)
    try:
        version = Observed.of(parse_toolkit_version(answer.stdout), "nvidia-ctk --version")
    except ValueError as error:
        version = Observed.lost(str(error), "nvidia-ctk --version")
    return Toolkit(programs, version)


def parse_daemon_config(text: str, path: str, root: Path) -> DaemonConfig:
    """What Docker's daemon.json says of runtimes and CDI; a program without a slash is looked for in
    /usr/bin.
    """
    try:
        data = json.loads(text) if text.strip() else {}
    except ValueError as error:
        return DaemonConfig(path, error=f"it is not JSON: {error}")
    runtimes = data.get("runtimes", {}) if isinstance(data, dict) else None
    features = data.get("features", {}) if isinstance(data, dict) else None
    if not isinstance(runtimes, dict) or not isinstance(features, dict):
        return DaemonConfig(path, error="it, its runtimes or its features are no JSON object")
    programs = {name: str(entry.get("path", "")) for name, entry in runtimes.items() if isinstance(entry, dict)}
    places = {
        name: [program] if "/" in program else [f"/{d}/{program}" for d in _DIRECTORIES]
        for name, program in programs.items()
        if program
    }
    gone = tuple(
        programs[name]
        for name, candidates in places.items()
        if not any((root / candidate.lstrip("/")).exists() for candidate in candidates)
    )
    return DaemonConfig(path, True, "", programs, gone, features.get("cdi"))


def daemon_config(root: Path) -> Observed[DaemonConfig]:
    """Docker's /etc/docker/daemon.json; its absence is an observation too."""
    path = "/etc/docker/daemon.json"
    try:
        return Observed.of(parse_daemon_config((root / path[1:]).read_text(), path, root), path)
    except FileNotFoundError:
        return Observed.of(DaemonConfig(path, present=False), path)
    except (OSError, UnicodeDecodeError) as error:
        return Observed.lost(f"{path}: {error}", path)


def cuda_on_path(search: str) -> tuple[CudaDirectory, ...]:
    """The directories of an LD_LIBRARY_PATH that hold libcuda, each name with the file it leads to."""
    found = []
    for directory in dict.fromkeys(part for part in search.split(":") if part):
        files = {
            name: os.path.realpath(os.path.join(directory, name))
            for name in ("libcuda.so.1", "libcuda.so")
            if os.path.lexists(os.path.join(directory, name))
        }
        if files:
            found.append(CudaDirectory(directory, files))
    return tuple(found)


def search_path(environment: Mapping[str, str]) -> Observed[tuple[CudaDirectory, ...]]:
    """As cuda_on_path, for the LD_LIBRARY_PATH of an environment."""
    return Observed.of(cuda_on_path(environment.get("LD_LIBRARY_PATH", "")), "LD_LIBRARY_PATH")


SOURCES: dict[str, Source] = {
    "driver_libraries": lambda place: Observed.of(driver.libraries(place.root), "library directories"),
    "cdi": lambda place: Observed.of(cdi.specs(place.root), "/etc/cdi, /var/run/cdi"),
    "daemon_config": lambda place: daemon_config(place.root),
    "toolkit": lambda place: Observed.of(toolkit(place.root), "program directories"),
    # the last one, for a search path can lead to a file system that hangs
    "cuda_on_path": lambda place: search_path(place.environ),
}
