"""The two processes that are observed, which report line by line, so that a crash loses only what was not yet seen.

One imports torch as a user's process would; the other one never does and reads, meanwhile, what needs no torch.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from envkit.payload import begin
from envkit.payload.probe.report import LATE, Pipe, lost, observed

if TYPE_CHECKING:
    from envkit.payload.probe.ask import Questions

# the fields that the process which imports torch reports, those of the other one, and all
WITH_TORCH = ("torch_import", "torch", "late", "libraries", "bindings")
WITHOUT_TORCH = (
    "python", "platform", "libc", "wheels", "requires", "unmapped", "devices", "variables", "driver",
    "cudnn", "overwritten", "content", "modules", "search", "closed", "debian", "preloads",
    "toolkits", "compiler", "assemblers", "extensions",
)  # fmt: skip
FIELDS = (*WITHOUT_TORCH, *WITH_TORCH, "frameworks", "process", "abilities")


def _report_static(pipe: Pipe, folder: str | None) -> None:
    """Every field that needs no torch.  This runs beside the import of torch, so that its time costs none."""
    import platform

    from envkit.payload.probe import driver, environ, extensions, identity, present, toolchain, wheels

    seen = driver.DriverProbe()  # children, that work meanwhile
    pipe.field("variables", observed(environ.variables(os.environ), "os.environ"))
    pipe.field("python", observed(platform.python_version(), sys.executable))
    pipe.field("platform", observed(platform.machine(), "uname"))
    libc, number = platform.libc_ver()
    pipe.field("libc", observed(f"{libc} {number}", "confstr") if number else lost("this libc does not say"))
    pipe.doing("reading the installed distributions")
    dists = wheels.distributions()
    tools = toolchain.Tools(dists)
    names = wheels.needed(wheels.by_name(dists))
    pipe.field("wheels", observed([{"name": d.name, "version": d.version} for d in dists], "METADATA"))
    pipe.field("requires", observed(wheels.requirements(dists, names), "METADATA"))
    owned = wheels.owners(dists)
    known: dict[str, str] = {}
    # For the outer process, which says of what the other one maps whose it is and that it is mapped.
    pipe.field("owned", observed({path: wheels.owner_of(path, owned, known) for path in owned}, "RECORD"))
    pipe.field("unmapped", observed([*wheels.on_disk(owned), *present.libraries(set(owned))], present.VIA))
    pipe.doing("reading what cuDNN refers to")
    pipe.field("cudnn", observed(wheels.cudnn_sets(owned), "names in .rodata, RECORD"))
    pipe.doing("asking the compilers for their versions")
    pipe.field("toolkits", observed(tools.toolkits(), "nvcc --version"))
    pipe.field("compiler", tools.compiler())
    pipe.field("assemblers", observed(tools.assemblers(), "ptxas --version"))
    pipe.doing("reading the extensions' device code")
    try:
        pipe.field("extensions", observed(extensions.extensions(dists), "RECORD, ELF headers"))
    except ValueError as error:
        pipe.field("extensions", lost(f"reading the extensions' device code: {error}"))
    identity.report(pipe, dists, names, folder)
    # last, for a driver that hangs is waited for as long as its budget is
    pipe.doing("asking the driver for its devices")
    devices, driver_seen = seen.collect(lambda path: wheels.owner_of(path, owned, {})[0])
    pipe.field("devices", devices)
    pipe.field("driver", driver_seen)


def as_the_job(words: list[str]) -> None:
    """Gives this process the search path of the job, its own folder first unless Python's options keep that away.

    What a file there hides and the payload has imported already is forgotten, so that the next import finds that file.
    """
    from envkit.payload.probe import paths

    folder = words[words.index("--folder") + 1] if "--folder" in words else None
    sys.path[1:] = [one for one in begin.GIVEN[1:] if one] or sys.path[1:]
    hiding = {row["module"] for row in paths.shadows(folder) if row["hidden_by"] == paths.STDLIB}
    if hiding:  # what the payload imports later must not meet it
        from envkit.payload.probe import bound, frameworks, libs, maps, torchside  # noqa: F401
    for name in [one for one in sys.modules if one.partition(".")[0] in hiding]:
        del sys.modules[name]
    if folder is not None and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path.insert(0, os.path.realpath(folder or "."))


def _capabilities(words: list[str]) -> list[int]:
    """The GPUs behind "--sm", with commas, as NVRTC counts them."""
    return [int(one) for one in words[words.index("--sm") + 1].split(",")] if "--sm" in words else []


def _report_abilities(pipe: Pipe, words: list[str]) -> None:
    """What can be done here without torch, or, with "full", what takes long and needs it."""
    as_the_job(words)
    pipe.doing("trying what can be done here")
    if words[words.index("--abilities") + 1] == "tools":
        from envkit.payload.abilities import tools

        pipe.field("tools", observed(tools.tried(), "children"))
        return
    from envkit.payload.abilities import full
    from envkit.payload.probe import torchside

    ended, _ = torchside.import_torch()
    pipe.field("full", observed(full.tried(_capabilities(words)) if ended == "done" else [], "children"))


def _forked(words: list[str]) -> Questions | None:
    """What can be done with the torch that this process has just imported, tried by a fork of it meanwhile."""
    if "--abilities" not in words:
        return None
    from envkit.payload.abilities import in_torch
    from envkit.payload.probe.ask import Questions

    folder = words[words.index("--folder") + 1] if "--folder" in words else "."
    return Questions(lambda: in_torch.tried(_capabilities(words), folder), in_torch.BUDGET_S)


def _report_torch(pipe: Pipe, words: list[str], without: frozenset[str], until: str) -> None:
    """How the import of torch ends, then what it and its late loads map.

    Of the late loads those named in ``without`` are left out, and those from ``until`` on.  Nothing is rehearsed: the
    outer process sees which one killed this process or hangs, and runs another one without it.
    """
    from envkit.payload.probe import maps, torchside

    before = maps.mapped()
    pipe.doing("import torch")
    ended, opened = torchside.import_torch()
    pipe.field("torch_import", observed(ended, "importlib.import_module"))
    tried = _forked(words) if ended == "done" else None
    pipe.doing("asking torch for its build")
    pipe.field("torch", _build(ended))
    from envkit.payload.probe import bound, libs

    torch_cuda = next((path for path in maps.mapped() if libs.family(path) == "torch_cuda"), "")
    done: list[dict[str, str]] = []
    for what, step in torchside.late_steps(torch_cuda, opened) if torch_cuda else ():
        if what == until:
            break
        if what not in without:
            pipe.doing(LATE + what)
            done.append({"what": what, "error": step()})
    pipe.field("late", observed(done, "dlopen" if torch_cuda else "libtorch_cuda.so is not mapped"))
    pipe.doing("asking the mapped libraries for their versions")
    told = libs.libraries(before, opened)
    pipe.field("libraries", observed(told, "dl_iterate_phdr"))
    bindings = bound.bindings(sorted({one["name"] for one in told}))
    pipe.field("bindings", observed(bindings, "relocations, dlsym, dladdr"))
    if tried is not None:
        pipe.doing("trying what torch can do here")
        rows, why = tried.answer()
        pipe.field("in_torch", lost(why) if rows is None else observed(rows, "forks after import torch"))


def _build(ended: str) -> dict[str, object]:
    from envkit.payload.probe import torchside

    if ended != "done":
        return lost(f"import torch: {ended}")
    try:
        return observed(torchside.build(), "torch._C")
    except Exception as error:  # a torch that cannot name its build is data
        return lost(f"torch does not name its build: {type(error).__name__}: {error}")


def main(argv: list[str]) -> NoReturn:
    """Observes this process.

    ``argv`` is the number of the pipe and then "--static" for the process without torch, "--framework" and a name for
    one that imports it after torch, or "--without" and the late loads to leave out, with commas, and "--until" and the
    one at which to stop.  "--folder" and a folder is what the job's Python has first on its path.  "--abilities" has
    things tried: "forked" from the process with torch, "tools" or "full" in one that does nothing else.
    """
    pipe, words = Pipe(int(argv[0])), argv[1:]
    if "--static" in words:
        _report_static(pipe, words[words.index("--folder") + 1] if "--folder" in words else None)
    elif "--framework" in words:
        from envkit.payload.probe import frameworks

        as_the_job(words)
        frameworks.report(pipe, words[words.index("--framework") + 1])
    elif "--abilities" in words and words[words.index("--abilities") + 1] != "forked":
        _report_abilities(pipe, words)
    else:
        as_the_job(words)
        left_out = words[words.index("--without") + 1] if "--without" in words else ""
        until = words[words.index("--until") + 1] if "--until" in words else ""
        _report_torch(pipe, words, frozenset(left_out.split(",")), until)
    pipe.send({"end": True})
    sys.stderr.flush()
    os._exit(0)  # unloading a broken CUDA stack is nobody's question and has been seen to crash
