"""Files of the driver, of CDI and of the container toolkit."""

from __future__ import annotations

import json
import os
import re
import tomllib
from typing import Any

from envkit.host import cdi, driver
from envkit.host.root import HostRoot, Source, by_name
from envkit.model import Observed
from envkit.subjects.host import DaemonConfig, Toolkit, ToolkitConfig
from envkit.system.proc import run

_VERSION_S = 1.0  # nvidia-ctk --version only prints
_PROGRAMS = (
    "nvidia-ctk",
    "nvidia-cdi-hook",
    "nvidia-container-runtime",
    "nvidia-container-runtime-hook",
    "nvidia-container-cli",
)
_DEBUGS = (("nvidia-container-cli", "debug"), ("nvidia-container-runtime", "debug"))
_LOW_LEVEL = ("runc", "crun")  # the toolkit's own default (its GetDefault)


def parse_toolkit_version(text: str) -> str:
    """The version out of "NVIDIA Container Toolkit CLI version <version>"; raises ValueError on other text."""
    found = re.search(r"Container Toolkit CLI version (\S+)", text)
    if not found:
        raise ValueError("no line `NVIDIA Container Toolkit CLI version ...`")
    return found[1]


def toolkit(place: HostRoot) -> Observed[Toolkit]:
    """The toolkit's programs in the usual directories and, on the running machine, its version."""
    there = {name: path for name in _PROGRAMS if (path := place.program(name))}
    programs = {name: path for name, path in there.items() if os.access(place.path(path), os.X_OK)}
    via = "program directories"
    if "nvidia-ctk" not in programs or not place.live:
        return Observed.of(Toolkit(programs, Observed.lost("nvidia-ctk was not asked")), via)
    answer = run([programs["nvidia-ctk"], "--version"], timeout_s=_VERSION_S)
    try:
        version = Observed.of(parse_toolkit_version(answer.stdout), "nvidia-ctk --version")
    except ValueError as error:
        version = Observed.lost(str(error), "nvidia-ctk --version")
    return Observed.of(Toolkit(programs, version), via)


def has_program(place: HostRoot, program: str) -> bool:
    """Whether a program is there; one without a slash is looked for in the usual directories.

    Raises OSError if it may not be looked at.
    """
    return place.exists(program) if "/" in program else bool(place.program(program))


def table(value: object, what: str) -> dict[str, Any]:
    """``value`` if it is a table, an empty one for None; raises ValueError, naming ``what``, for anything else."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no table")
    return value


def texts(value: object) -> tuple[str, ...]:
    """The strings of a list; what is none in it, or no list at all, gives none."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _hard(limit: object) -> int | None:
    hard = limit.get("Hard") if isinstance(limit, dict) else None
    return hard if isinstance(hard, int) else None


def parse_daemon_config(text: str, path: str, place: HostRoot) -> DaemonConfig:
    """What Docker's daemon.json says (keys of the dockerd reference)."""
    try:
        data = table(json.loads(text) if text.strip() else {}, "it")
        runtimes, features = table(data.get("runtimes"), "runtimes"), table(data.get("features"), "features")
        ulimits = table(data.get("default-ulimits"), "default-ulimits")
        programs = {name: str(table(entry, name).get("path") or "") for name, entry in runtimes.items()}
    except RecursionError:
        return DaemonConfig(path, error="it is nested too deeply")
    except ValueError as error:
        words = f"it is not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)
        return DaemonConfig(path, error=words)
    # what dockerd refuses, in its own order: a value of another kind, and a second runc
    said = {key: data.get(key) or "" for key in ("default-runtime", "data-root", "storage-driver")}
    wrong = [f"{key} is no text" for key, value in said.items() if not isinstance(value, str)]
    wrong += [f"features.{key} is neither true nor false" for key, on in features.items() if not isinstance(on, bool)]
    wrong += ["it redefines the runtime runc, whose name is reserved"] if "runc" in runtimes else []
    if wrong:
        return DaemonConfig(path, error=wrong[0])
    return DaemonConfig(
        path,
        True,
        "",
        programs,
        tuple(program for program in programs.values() if program and not has_program(place, program)),
        features.get("cdi"),
        str(said["default-runtime"]),
        str(said["data-root"]),
        str(said["storage-driver"]),
        texts(data["cdi-spec-dirs"]) if "cdi-spec-dirs" in data else None,
        {name: hard for name, limit in ulimits.items() if (hard := _hard(limit)) is not None},
    )


def daemon_config(place: HostRoot) -> Observed[DaemonConfig]:
    """Docker's /etc/docker/daemon.json; its absence is an observation too."""
    path = "/etc/docker/daemon.json"
    if not place.exists(path[1:]):
        return Observed.of(DaemonConfig(path, present=False), path)
    text = place.text(path[1:])
    if text.value is None:
        return text.absence(path)
    if "\ufffd" in text.value:
        return Observed.of(DaemonConfig(path, error="it is no UTF-8"), path)
    return Observed.of(parse_daemon_config(text.value, path, place), path)


def parse_toolkit_config(text: str, path: str, place: HostRoot) -> ToolkitConfig:
    """What the toolkit's config.toml says (its keys: the toolkit's api/config/v1), with the toolkit's defaults."""
    try:
        data = tomllib.loads(text)
        cli = table(data.get("nvidia-container-cli"), "nvidia-container-cli")
        runtime = table(data.get("nvidia-container-runtime"), "nvidia-container-runtime")
        programs = [cli] + [table(data.get(name), name) for name in ("nvidia-ctk", "nvidia-container-runtime-hook")]
        features = table(data.get("features"), "features")
    except (ValueError, RecursionError) as error:
        return ToolkitConfig(path, error=f"it is no TOML that the toolkit can use: {error}")
    ldconfig = str(cli.get("ldconfig") or "@/sbin/ldconfig")
    # a name without a slash is one the toolkit looks for, and which need not be installed
    named = [str(entry["path"]) for entry in programs if str(entry.get("path", "")).startswith("/")]
    missing = [program for program in named if not place.exists(program)]
    program = ldconfig[1:]
    if ldconfig.startswith("@") and not (place.exists(program) or place.exists(program.removesuffix(".real"))):
        missing.append(program)
    low_level = texts(runtime.get("runtimes")) or _LOW_LEVEL
    logs = (str(table(data.get(section), section).get(key) or "") for section, key in _DEBUGS)
    return ToolkitConfig(
        path,
        mode=str(runtime.get("mode") or "auto"),
        no_cgroups=cli.get("no-cgroups") is True,
        ldconfig=ldconfig,
        ldconfig_inside=features.get("allow-ldconfig-from-container") is True,
        by_variable=data.get("accept-nvidia-visible-devices-envvar-when-unprivileged") is not False,
        by_mount=data.get("accept-nvidia-visible-devices-as-volume-mounts") is True,
        logs=tuple(log for log in logs if log not in ("", "/dev/null")),
        missing=tuple(missing),
        low_level=low_level,
        low_level_found=tuple(program for program in low_level if has_program(place, program)),
    )


def toolkit_config(place: HostRoot) -> Observed[ToolkitConfig]:
    """The toolkit's /etc/nvidia-container-runtime/config.toml; without one its defaults hold."""
    path = "/etc/nvidia-container-runtime/config.toml"
    if not place.exists(path):
        found = tuple(program for program in _LOW_LEVEL if has_program(place, program))
        return Observed.of(ToolkitConfig(path, present=False, low_level=_LOW_LEVEL, low_level_found=found), path)
    text = place.text(path[1:])
    if text.value is None:
        return text.absence(path)
    return Observed.of(parse_toolkit_config(text.value, path, place), path)


SOURCES: dict[str, Source] = {
    "driver_libraries": driver.libraries,
    "cdi": cdi.specs,
    **by_name(daemon_config, toolkit_config, toolkit),
}
