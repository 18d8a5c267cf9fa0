"""Configuration files of the engines beside Docker: containerd, CRI-O, Podman, enroot with pyxis, and the kubelet.

Files only, but for Podman's version.  TOML is read as the engines do: what a later file says goes over what an
earlier one said.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from dataclasses import replace
from typing import Any

from envkit.host.files import has_program, table, texts
from envkit.host.root import HostRoot, by_name
from envkit.model import Observed
from envkit.subjects.host import CriEngine, Enroot, Kubelet, Podman
from envkit.system.proc import run

_VERSION_S = 1.0  # podman --version only prints
_CDI_DIRS = ("/etc/cdi", "/var/run/cdi")  # the default of containerd, CRI-O and containers-common alike
# A Kubernetes distribution that brings its own containerd writes it a file of its own, which outranks /etc.
_CONTAINERD_FILES = (
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "var/snap/microk8s/current/args/containerd.toml",
    "etc/containerd/config.toml",
)
_CONTAINERD_PARTS = "etc/containerd/conf.d/*.toml"  # containerd's DefaultConfigIncludePattern, where no file is there
# the plugin of Kubernetes in versions 3, 2 and 1 of the file (containerd, docs/cri/config.md)
_CRI_TABLES = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
_HOOK_DIRS = ("usr/share/containers/oci/hooks.d", "etc/containers/oci/hooks.d")
_NVIDIA_HOOK = re.compile(r"nvidia-container-(runtime-hook|toolkit)\b")
_ENROOT_HOOKS = ("etc/enroot/hooks.d/98-nvidia.sh", "usr/local/etc/enroot/hooks.d/98-nvidia.sh")
_MOST_FILES = 64  # of a directory of parts


def _matching(place: HostRoot, pattern: str) -> list[str]:
    """The files of one directory that fit a pattern, in the order of their names."""
    directory, _, names = pattern.strip("/").rpartition("/")
    if not place.exists(directory):
        return []
    found = [name for name in place.names(directory) if fnmatch.fnmatch(name, names)]
    return [f"{directory}/{name}" for name in found[:_MOST_FILES]]


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Two tables as one: tables are merged, of anything else the second has its way."""
    made = dict(under)
    for key, value in over.items():
        old = made.get(key)
        made[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return made


def _text(place: HostRoot, name: str) -> str:
    """The text of a file; raises OSError if it cannot be read."""
    text = place.text(name)
    if text.value is None:
        raise OSError(text.missing)
    return text.value


def _toml(place: HostRoot, name: str) -> dict[str, Any]:
    """The table in a file; raises ValueError with the file's name if it has none, OSError if it cannot be read."""
    try:
        return tomllib.loads(_text(place, name))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"/{name} is no TOML: {error}") from error


def _merged_files(place: HostRoot, names: list[str]) -> tuple[dict[str, Any], str]:
    """All files as one table, and what is wrong with the first that is none."""
    data: dict[str, Any] = {}
    for name in names:
        try:
            data = merged(data, _toml(place, name))
        except ValueError as error:
            return data, str(error)
    return data, ""


def containerd(place: HostRoot) -> Observed[CriEngine]:
    """containerd's configuration: its own file and what it imports."""
    main = next((name for name in _CONTAINERD_FILES if place.exists(name)), "")
    installed = bool(main) or bool(place.program("containerd"))
    if not installed:
        return Observed.of(CriEngine(False), "program directories, /etc/containerd")
    names = [main] if main else _matching(place, _CONTAINERD_PARTS)
    error = ""
    try:
        data, error = _merged_files(place, names)
        for pattern in texts(data.get("imports")):
            at = pattern if pattern.startswith("/") else f"{main.rpartition('/')[0]}/{pattern}"
            names += [name for name in _matching(place, at) if name not in names]
        data, error = _merged_files(place, names)
        engine = parse_containerd(data, place)
    except ValueError as wrong:
        engine, error = CriEngine(True, True), str(wrong)
    files = tuple(f"/{name}" for name in names)
    via = ", ".join(files) or "no configuration file of containerd"
    return Observed.of(replace(engine, files=files, error=error), via)


def parse_containerd(data: dict[str, Any], place: HostRoot) -> CriEngine:
    """What containerd's configuration says of Kubernetes' runtimes; raises ValueError on tables that are none."""
    plugins = table(data.get("plugins"), "plugins")
    cri: dict[str, Any] = {}
    for name in reversed(_CRI_TABLES):
        cri = merged(cri, table(plugins.get(name), name))
    part = table(cri.get("containerd"), "containerd")
    runtimes = table(part.get("runtimes"), "runtimes")
    options = {name: table(table(entry, name).get("options"), f"{name}.options") for name, entry in runtimes.items()}
    programs = {name: str(option.get("BinaryName") or "") for name, option in options.items()}
    off = set(_CRI_TABLES).intersection(texts(data.get("disabled_plugins")))
    switch, version = cri.get("enable_cdi"), data.get("version")
    if isinstance(switch, bool):
        cdi = Observed.of(switch, "enable_cdi")
    elif isinstance(version, int) and version >= 3:  # the form of containerd 2, whose default is on
        cdi = Observed.of(True, f"version = {version}, whose default is on")
    else:
        cdi = Observed.lost("the file does not say, and the default depends on containerd's release", "enable_cdi")
    return CriEngine(
        True,
        not off,
        runtimes=programs,
        default_runtime=str(part.get("default_runtime_name") or "runc"),
        missing=tuple(program for program in programs.values() if program and not has_program(place, program)),
        cgroups={
            name: "systemd" if option.get("SystemdCgroup") is True else "cgroupfs" for name, option in options.items()
        },
        cdi=cdi,
        cdi_dirs=texts(cri["cdi_spec_dirs"]) if "cdi_spec_dirs" in cri else _CDI_DIRS,
    )


def crio(place: HostRoot) -> Observed[CriEngine]:
    """CRI-O's configuration: crio.conf and the parts beside it (crio.conf(5))."""
    if not place.program("crio"):
        return Observed.of(CriEngine(False), "program directories")
    names = [name for name in ("etc/crio/crio.conf",) if place.exists(name)]
    names += _matching(place, "etc/crio/crio.conf.d/*")
    data, error = _merged_files(place, names)
    files = tuple(f"/{name}" for name in names)
    try:
        part = table(table(data.get("crio"), "crio").get("runtime"), "crio.runtime")
        runtimes = table(part.get("runtimes"), "runtimes")
        programs = {name: str(table(entry, name).get("runtime_path") or "") for name, entry in runtimes.items()}
    except ValueError as wrong:
        return Observed.of(CriEngine(True, True, files, error or str(wrong)), "/etc/crio")
    missing = tuple(program for program in programs.values() if program and not has_program(place, program))
    chosen, manager = str(part.get("default_runtime") or ""), str(part.get("cgroup_manager") or "systemd")
    cdi = Observed.of(True, "CRI-O has no switch for it")
    specs = texts(part["cdi_spec_dirs"]) if "cdi_spec_dirs" in part else _CDI_DIRS
    engine = CriEngine(True, True, files, error, programs, chosen, missing, {"*": manager}, cdi, specs)
    return Observed.of(engine, ", ".join(files) or "no configuration file of CRI-O")


def _nvidia_hooks(place: HostRoot, directories: tuple[str, ...]) -> tuple[str, ...]:
    found = []
    for directory in directories:
        for name in _matching(place, f"{directory.strip('/')}/*.json"):
            if _NVIDIA_HOOK.search(_text(place, name)):
                found.append(f"/{name}")
    return tuple(found)


def parse_podman_version(text: str) -> str:
    """The version out of "podman version <version>"; raises ValueError on anything else."""
    found = re.fullmatch(r"podman version ([0-9]+\.[0-9]+\S*)\s*", text)
    if not found:
        raise ValueError("no line `podman version ...`")
    return found[1]


def _may_have_gpu(place: HostRoot) -> bool:
    """Whether anything here is of NVIDIA's: a device on the PCI bus, a node, the driver; or WSL's node for any GPU."""
    if any(place.exists(name) for name in ("dev/nvidiactl", "dev/dxg", "proc/driver/nvidia")):
        return True
    bus = "sys/bus/pci/devices"
    devices = place.names(bus) if place.exists(bus) else ()
    return any(place.word(f"{bus}/{device}/vendor") == "0x10de" for device in devices)


def podman(place: HostRoot) -> Observed[Podman]:
    """Podman's configuration (containers.conf(5), the user's file last) and its version on the running machine."""
    program = place.program("podman")
    if not program:
        return Observed.of(Podman(False), "program directories")
    home = place.environ.get("HOME", "").strip("/")
    config = place.environ.get("XDG_CONFIG_HOME", "").strip("/") or f"{home}/.config"
    names = ["usr/share/containers/containers.conf", "etc/containers/containers.conf"]
    names = [name for name in names if place.exists(name)]
    names += _matching(place, "etc/containers/containers.conf.d/*.conf")
    names += [name for name in (f"{config}/containers/containers.conf",) if place.exists(name)]
    data, error = _merged_files(place, names)
    engine = data.get("engine")
    part: dict[str, Any] = engine if isinstance(engine, dict) else {}
    hooks = texts(part.get("hooks_dir")) or tuple(f"/{directory}" for directory in _HOOK_DIRS)
    version: Observed[str] = Observed.lost("podman was not asked")
    if place.live and _may_have_gpu(place):  # its version is asked for GPUs alone, and costs some 30 ms
        answer = run([program, "--version"], timeout_s=_VERSION_S)
        try:
            version = Observed.of(parse_podman_version(answer.stdout), "podman --version")
        except ValueError as wrong:
            version = Observed.lost(str(wrong), "podman --version")
    specs = texts(part["cdi_spec_dirs"]) if "cdi_spec_dirs" in part else _CDI_DIRS
    via = ", ".join(f"/{name}" for name in names) or "no containers.conf"
    return Observed.of(Podman(True, error, specs, _nvidia_hooks(place, hooks), version), via)


def _plugstack(place: HostRoot) -> list[str]:
    """The lines of Slurm's plugstack.conf with those of the files it includes (spank(7))."""
    lines: list[str] = []
    todo = ["etc/slurm/plugstack.conf", "etc/slurm-llnl/plugstack.conf"]
    seen: set[str] = set()
    while todo and len(seen) < _MOST_FILES:
        name = todo.pop(0)
        if name in seen or not place.exists(name):
            continue
        seen.add(name)
        for line in _text(place, name).splitlines():
            words = line.split("#", 1)[0].split()
            if words[:1] == ["include"] and len(words) > 1:
                at = words[1] if words[1].startswith("/") else f"{name.rpartition('/')[0]}/{words[1]}"
                todo += _matching(place, at)
            elif words:
                lines.append(" ".join(words))
    return lines


def enroot(place: HostRoot) -> Observed[Enroot]:
    """Whether enroot is here, its hook for GPUs, and pyxis in Slurm's plugstack."""
    hook = next((name for name in _ENROOT_HOOKS if place.exists(name)), "")
    runs = bool(hook) and bool(place.path(hook).stat().st_mode & 0o111)
    lines = _plugstack(place)
    plugins = tuple(word for line in lines for word in line.split()[1:2] if word.endswith("spank_pyxis.so"))
    # a name without a slash is looked for in Slurm's PluginDir, which is not known here
    missing = tuple(plugin for plugin in plugins if plugin.startswith("/") and not place.exists(plugin))
    seen = Enroot(bool(place.program("enroot")), f"/{hook}" if hook else "", runs, plugins, missing)
    return Observed.of(seen, "/etc/enroot, /etc/slurm/plugstack.conf")


def kubelet(place: HostRoot) -> Observed[Kubelet]:
    """The kubelet's directory: its configuration, the sockets of device plugins and the plugins of DRA."""
    base = "var/lib/kubelet"
    if not place.exists(f"{base}/device-plugins") and not place.exists(f"{base}/config.yaml"):
        return Observed.of(Kubelet(False), f"/{base}")
    listed = {
        part: place.names(f"{base}/{part}") if place.exists(f"{base}/{part}") else ()
        for part in ("device-plugins", "plugins")
    }
    driver = ""
    if place.exists(f"{base}/config.yaml"):
        found = re.search(r'^cgroupDriver:\s*"?(\w+)"?\s*$', _text(place, f"{base}/config.yaml"), re.MULTILINE)
        driver = found[1] if found else ""
    sockets = tuple(name for name in listed["device-plugins"] if name.endswith(".sock"))
    return Observed.of(Kubelet(True, sockets, listed["plugins"], driver), f"/{base}")


SOURCES = by_name(kubelet, enroot, containerd, crio, podman)
