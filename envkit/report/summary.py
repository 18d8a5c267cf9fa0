"""What a person wants to see of each subject beside the verdict."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from textwrap import shorten

from envkit.facts import Facts
from envkit.judging.checks.start import before_python, environment_changes, moves
from envkit.judging.judge import checks
from envkit.judging.throughput import figures
from envkit.model import Result
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.case import chosen
from envkit.report import Bar, Table
from envkit.subjects import AotiRun, Audit, Host, Image, Placement, Precision, SmokeRun
from envkit.subjects.image import Library

_LARGEST = 5
_GB = 1e9
_COMMAND = 80  # characters of a layer's command; a list of packages would fill the page


def image(seen: Image) -> tuple[Table, ...]:
    """The CUDA libraries as loaded, with the version that each says or its package does; and other copies of them on
    this system, which nothing binds."""

    def version(lib: Library) -> str:
        return lib.version or (f"{lib.owner} {lib.owner_version}" if lib.owner_version else "not said")

    rows = tuple(
        (lib.name, version(lib), lib.found_via or "unknown", lib.path)
        for lib in sorted(seen.libraries.value or (), key=lambda lib: (lib.name, lib.path))
    )
    loaded = {lib.name for lib in seen.libraries.value or ()}
    idle = tuple(
        (lib.name, version(lib), lib.found_via, lib.path)
        for lib in sorted(seen.unmapped.value or (), key=lambda lib: (lib.name, lib.path))
        if lib.name in loaded
    )
    columns = ("library", "version", "found by", "path")
    return (
        _what(seen),
        *_started(seen),
        *_content(seen),
        Table(f"libraries as loaded in {seen.name}", columns, rows),
        Table("copies of them that are there and were not loaded", columns, idle),
    )


def _what(seen: Image) -> Table:
    """The image by its name, content and lock, and what its torch was built for."""
    torch, promise = seen.torch.value, seen.promise.value
    rows = [
        ("digest", seen.digest),
        ("lock", f"sha256:{promise.lock_sha256}" if promise and promise.lock_sha256 else ""),
        ("torch", torch.version if torch else ""),
        ("CUDA", torch.cuda or "none: this torch is for the CPU" if torch else ""),
        ("Python", seen.python.value or ""),
        ("system", ", ".join(filter(None, (seen.platform.value, seen.libc.value)))),
        ("engine", seen.engine),
    ]
    return Table(f"what {seen.name} is", ("", ""), tuple(row for row in rows if row[1]))


def _started(seen: Image) -> tuple[Table, ...]:
    """How the image starts its job, and what its entry point and Python change before the job's program begins."""
    start, process = seen.start.value, seen.process.value
    if start is None or process is None:
        return ()
    who = f"{process.user or 'without a name'}, uid {process.uid}, home {process.home or 'not set'}"
    rows = [("command", shlex.join(start.job)), ("through", ", ".join(start.through)),
            ("Python", process.executable), ("user", who), ("folder", process.folder),
            ("as said by", start.named_by), ("not set, for their values are not known", ", ".join(start.unset)),
            ("run at Python's start", ", ".join(process.at_start))]  # fmt: skip
    for by, what, before, after in moves(seen):
        rows.append((f"{by} changes {what}", f"{before} to {after}"))
    for change in environment_changes(seen):
        by = before_python(seen) if change.by == "the entry point" else change.by
        before, after = (f"`{value}`" if value is not None else "not set" for value in (change.before, change.after))
        rows.append((f"{by} changes {change.name}", f"{before} to {after}"))
    rows = [row for row in rows if row[1]]
    return (Table(f"how {seen.name} starts its job", ("", ""), tuple(rows)),)


def _content(seen: Image) -> tuple[Table, ...]:
    """How many of torch's and CUDA's libraries were compared with what was installed by content, and which were not."""
    content = seen.content.value
    if content is None:
        return ()
    rows = [("by content", f"{content.read} libraries, {content.read_bytes / _GB:.2f} GB", "")]
    if content.left:
        names = ", ".join(sorted({path.rpartition("/")[2] for path in content.left}))
        rows.append(("by size and time alone", f"{len(content.left)}, {content.left_bytes / _GB:.2f} GB", names))
    return (Table("how the libraries were compared with what was installed", ("", "", ""), tuple(rows)),)


# The parts of a machine by the modules of their checks: the longest beginning that fits counts.
_PARTS = {
    "host_": "machine", "host_driver": "driver", "host_devices": "driver", "host_gpu": "GPUs",
    "host_nvlink": "fabric and network", "host_fabric": "fabric and network", "host_infiniband": "fabric and network",
    "host_rdma": "fabric and network", "host_nccl": "fabric and network", "host_network": "fabric and network",
    "host_pci": "PCI bus", "host_log": "kernel log", "host_kernel": "kernel log", "host_cdi": "containers",
    "host_container": "containers", "host_cri": "containers", "host_toolkit": "containers",
    "host_environment": "environment", "host_expected": "contract",
}  # fmt: skip


def host(results: tuple[Result, ...]) -> tuple[Table, ...]:
    """A line a part of the machine, worst mark first in it: how many of its checks ended how."""
    parts: dict[str, Counter[str]] = {}
    for result in results:
        check = checks(Host).get(result.check)  # none of what every machine must have answered
        module = check.judge.__module__.rpartition(".")[2] if check else "host_driver"
        part = _PARTS[max((one for one in _PARTS if module.startswith(one)), key=len)]
        worst = max((finding.severity for finding in result.findings), default=None)
        parts.setdefault(part, Counter())[worst.name.lower() if worst else result.outcome.value] += 1
    rows = tuple(
        (_mark(said), part, *(str(said[word] or "-") for word in _ENDS))
        for part, said in sorted(parts.items(), key=lambda item: item[0].lower())
    )
    return (Table("parts of the machine", ("", "part", *_ENDS), rows),)


_ENDS = ("error", "warning", "note", "unknown", "pass", "skip")
_MARKS = {"error": "✗", "crashed": "?", "unknown": "?", "warning": "!", "note": "i", "pass": "✓"}


def _mark(said: Counter[str]) -> str:
    return next((mark for word, mark in _MARKS.items() if said[word]), "-")


def smoke(run: SmokeRun) -> tuple[Table, ...]:
    """The smoke tests, one line each: device, injected fault, how it ended and in how many seconds."""
    rows = tuple(
        (
            test.name,
            test.device,
            test.injected_fault or (f"{test.rounds} rounds" if test.rounds > 1 else "-"),
            " ".join(filter(None, (test.ended, test.signal, test.cuda))),
            f"{test.seconds:.1f}",
        )
        for test in run.tests.value or ()
        if test.ended != "not-applicable"
    )
    columns = ("test", "device", "injected fault" if run.injected_fault else "rounds", "ended", "seconds")
    return (Table("smoke tests, each in a process of its own", columns, rows),)


def speeds(run: SmokeRun, facts: Facts) -> tuple[Table, ...]:
    """The speeds of a smoke run, in percent of the datasheet's peak and of what a healthy GPU reached."""

    def share(value: float, whole: float | None) -> str:
        return f"{value / whole:.0%}" if whole else "-"

    rows = tuple(
        (
            f"{one.test.removeprefix('speed-')} {one.what}",
            one.device,
            f"{one.value:,.4g} {one.unit}",
            share(one.value, one.peak),
            share(one.value, one.good),
        )
        for one in figures(run, facts)
    )
    return (Table("speed", ("what", "device", "figure", "of the peak", "of a healthy one"), rows),)


def bars(run: SmokeRun, facts: Facts) -> tuple[Bar, ...]:
    """The same speeds for a page with bars."""
    return tuple(
        Bar(f"{one.test} {one.what} {one.device}", one.value, one.unit, one.peak, one.good)
        for one in figures(run, facts)
    )


def smoke_list(level: str, only: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> Iterator[str]:
    """The tests of a run, a line each: name, level, where it runs, its injected faults."""
    for case in chosen(TESTS, level, only, exclude):
        places = [name for name, there in (("cpu", case.cpu), ("gpu", case.gpu and not case.several)) if there]
        places += [f"{case.several} gpus"] if case.several else []
        yield f"{case.name:22} {case.level:6} {','.join(places):10} {','.join(case.faults)}"


def audit(seen: Audit) -> tuple[Table, ...]:
    """The largest packages, the layers, and for which GPUs there is code."""
    packages = tuple(
        (f"{one.size / _GB:.2f} GB", f"{one.name} {one.version}", one.kind)
        for one in (seen.packages.value or ())[:_LARGEST]
    )
    layers = tuple(
        (f"{layer.size / _GB:.2f} GB", str(number), shorten(layer.command, _COMMAND, placeholder=" ...") or "not told")
        for number, layer in enumerate(seen.layers.value or (), 1)
        if layer.size
    )
    code = [(seen.code.value.path, seen.code.value.sass, seen.code.value.ptx)] if seen.code.value else []
    code += [(one.path, one.sass, one.ptx) for one in seen.extensions.value or ()]
    return (
        Table(f"largest of {len(seen.packages.value or ())} packages", ("size", "package", "kind"), packages),
        Table("layers", ("size", "number", "made by"), layers),
        Table(
            "code for GPUs",
            ("machine code", "for a driver to compile", "file"),
            tuple((" ".join(sass) or "none", " ".join(ptx) or "none", path) for path, sass, ptx in code),
        ),
    )


def placement(seen: Placement) -> tuple[Table, ...]:
    """Tensors by device and dtype, and the lines that cross between host and device."""
    groups = tuple(
        (one.what + (" (trained)" if one.trained else ""), one.device, one.dtype, str(one.tensors), f"{one.elements:,}")
        for one in seen.groups.value or ()
    )
    lines = tuple(
        (one.where or "unknown", one.kind, str(one.count), f"{one.bytes:,}", one.source)
        for one in seen.lines.value or ()
    )
    return (
        Table("tensors", ("what", "device", "dtype", "tensors", "elements"), groups),
        Table("between host and device, in one run", ("line", "what", "times", "bytes", "source"), lines),
    )


def precision(seen: Precision) -> tuple[Table, ...]:
    """How far each result of the step is off, and the steepest operation on its way."""
    rows = []
    for each in seen.wanted.value.results if seen.wanted.value else ():
        blamed = each.bad or each.origin or each.steepest
        off = "not finite" if each.not_finite else "noise" if each.noise else f"{each.error:.2g}"
        lost = f"{each.lost} of {each.significant}" if each.lost else ""
        rows.append((each.what, off, lost, f"{blamed.op} {blamed.where or blamed.module}".strip() if blamed else ""))
    name = f"one step in {seen.dtype}{' under autocast' if seen.autocast else ''}, beside {seen.wide.value or 'wide'}"
    return (Table(name, ("result", "relative error", "became zero", "most of it at"), tuple(rows)),)


def aoti(seen: AotiRun) -> tuple[Table, ...]:
    """What the package says that it was made for, beside this machine."""
    said = seen.package.value
    if said is None:
        return ()
    made, gpus = " ".join(filter(None, (said.device, said.capability))), " ".join(map(str, seen.gpus.value or ()))
    rows = (
        ("device", made or "not told", gpus or "no GPU"),
        ("machine", said.machine or "not told", seen.machine.value or "unknown"),
        ("instructions", said.isa or "not told", "see /proc/cpuinfo" if seen.flags.value else "unknown"),
        ("form", said.form or "unreadable", f"torch {seen.torch.value.version}" if seen.torch.value else "no torch"),
    )
    return (Table(f"{said.path} and this place", ("what", "made for", "here"), rows),)
