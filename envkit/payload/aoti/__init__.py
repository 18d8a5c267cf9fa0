"""What an AOTInductor package was made for, what is here, and how it loads and runs.

``aoti PACKAGE [--model NAME] [--inputs module:function] [--code FOLDER] [--runner cpu|cuda] [--seconds S]``
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import tempfile
import time
from typing import Any

from envkit.payload import elf, isolate
from envkit.payload.aoti import compilers, live, package
from envkit.payload.probe import environ
from envkit.payload.probe.report import lost, observed
from envkit.payload.smoke.driver import Driver, NoGpu

BUDGET_S = 300.0  # for the run; importing torch from a cold network disk alone has been seen to take minutes
_LINK_S = 120.0
_DRIVER_S = 60.0
_FLAGS = 300  # a recent x86-64 lists some 130
_VERSIONED = re.compile(r"(lib[\w+-]+|ld-linux[\w-]*)\.so")


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="envkit.pyz aoti", description=__doc__, allow_abbrev=False)
    parser.add_argument("package")
    for name in ("--model", "--inputs", "--code", "--runner"):
        parser.add_argument(name, default="")
    parser.add_argument("--seconds", type=float, default=BUDGET_S)
    return parser.parse_args(argv)


def _cpu_flags() -> dict[str, Any]:
    """What the processor can do, as the kernel lists it."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() in ("flags", "Features"):
                    return observed(value.split()[:_FLAGS], "/proc/cpuinfo")
    except OSError as error:
        return lost(f"/proc/cpuinfo: {error}")
    return lost("/proc/cpuinfo lists no flags")


def _capabilities() -> dict[str, Any]:
    """The architectures of the GPUs that this process sees; asked in a child, for a driver can hang and crash."""

    def ask(_: object) -> dict[str, Any]:
        try:
            driver = Driver()
        except NoGpu as reason:
            return {"gpus": [], "via": str(reason)}
        count = driver.count()
        return {"gpus": [f"sm_{driver.capability(at)}" for at in range(count)], "via": "cuDeviceGetAttribute"}

    ending = isolate.run_one(isolate.Task("gpus", "", _DRIVER_S, work=ask))
    if ending.ended != "ran":
        return lost(f"asking the driver for its devices {ending.ended}: {ending.detail or ending.signal}")
    return observed(ending.value["gpus"], ending.value["via"])


def _scratch() -> dict[str, Any]:
    """Where a package is unpacked when it is loaded: the folder, its room in bytes, whether code may run from it."""
    try:
        folder = tempfile.gettempdir()
        state = os.statvfs(folder)
    except OSError as error:
        return lost(f"there is no folder for temporary files: {error}")
    said = {"path": folder, "free": state.f_bavail * state.f_frsize, "runs": not state.f_flag & os.ST_NOEXEC}
    return observed(said, "statvfs")


def _mapped(seen: list[dict[str, str]], said: dict[str, Any]) -> list[dict[str, Any]]:
    """What was mapped, once each, with the versions it defines where the model's libraries ask its name for some."""
    asked = {need["library"] for one in said["libraries"] for need in one["needs"]}
    stems = {match[1] for name in asked for match in [_VERSIONED.match(name)] if match}
    found: dict[str, dict[str, Any]] = {}
    for one in seen:
        path = one["path"]
        match = _VERSIONED.match(os.path.basename(path))
        defines: tuple[str, ...] = ()
        if match and match[1] in stems and path not in found:
            try:
                defines = elf.read(elf.mapped(path)).defines
            except (OSError, ValueError):
                defines = ()  # it names none; the check does not take that for "enough"
        found.setdefault(path, {"path": path, "stage": one["stage"], "defines": list(defines)})
    return list(found.values())


def _runner(said: dict[str, Any], request: str) -> str:
    """The runner that a bare library is loaded with: the one asked for, else the one it was linked for."""
    needed = [name for one in said["libraries"] for name in one["needed"]]
    return request or ("cuda" if any(name.startswith("libtorch_cuda") for name in needed) else "cpu")


def _alive(request: live.LoadRequest, budget_s: float, document: dict[str, Any]) -> None:
    """Fills in what only a process that loads the package can tell."""
    told, linked, why = live.link(request, min(_LINK_S, budget_s))
    document["link"] = observed(told, "dlopen, RTLD_NOW") if told is not None else lost(why)
    ended, heard = live.run(request, budget_s)
    document["run"] = observed(ended, live.CHECKS + "=1")
    missing = str(heard.get("inputs_missing") or f"the run came no further than: {ended['stage']}")
    document["inputs"] = lost(missing)
    if "inputs" in heard:
        via = request.factory or "made from the package's own description"
        document["inputs"] = observed(heard["inputs"], via)
    document["torch"] = lost(f"importing torch ended: {ended['detail'] or ended['signal'] or ended['ended']}")
    if "torch" in heard:
        document["torch"] = observed(heard["torch"], "torch.__version__")
    seen = [*heard["mapped"], *({**one, "stage": "load"} for one in linked if one["stage"] in ("link", "end"))]
    found = _mapped(seen, request.package)
    document["mapped"] = observed(found, "dl_iterate_phdr") if found else lost("no process came up")
    if ended["ended"] == "killed":
        trail, why = live.trail(request, min(budget_s, 60 + 3 * ended["seconds"]))
        document["trail"] = observed(trail, "ptrace") if trail is not None else lost(why)


def main(argv: list[str]) -> dict[str, Any]:
    """The document of one package; leaves with 2 for wrong words."""
    started = time.monotonic()
    asked = _arguments(argv)
    said, places = package.read(asked.package, asked.model)
    gone = f"the package cannot be read: {said['error']}" if said["error"] else ""
    untried = lost(gone or "it was not tried")
    document: dict[str, Any] = {
        "package": observed(said, "its bytes"),
        "machine": observed(platform.machine(), "uname"),
        "flags": _cpu_flags(),
        "gpus": _capabilities(),
        "scratch": _scratch(),
        "compilers": compilers.observe(),
        "variables": observed(environ.variables(os.environ), "environ"),
        **dict.fromkeys(("torch", "mapped", "link", "inputs", "run"), untried),
        "trail": lost(gone or "nothing died"),
    }
    if not gone:
        request = live.LoadRequest(said, places, asked.inputs, asked.code, _runner(said, asked.runner))
        # What torch unpacks stays behind when its process dies, so it is given a folder that goes with this run.
        with tempfile.TemporaryDirectory(prefix="envkit-aoti-") as folder:
            os.environ["TMPDIR"] = folder
            _alive(request, asked.seconds, document)
    return {"aoti": document, "seconds": round(time.monotonic() - started, 3)}
