"""A core dump that a crash has left: opened with the debugger beside the program and the libraries that it ran with.

A core dump holds a process's memory and not its code, which the debugger takes from the files that the process had
mapped.  In another image these are other files or none, and the stack is then wrong or empty; so what is not there is
told before any function.  The notes of the dump name the files (NT_FILE) and the program among them (AT_PHDR of
NT_AUXV): Linux, fs/binfmt_elf.c; core(5), elf(5).
"""

from __future__ import annotations

import json
import mmap
import re
import signal
import struct
import sys
import time
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import NamedTuple

from envkit import debug
from envkit.debug import DebugRequest, cores, job, native, packages, repro, stages, told
from envkit.debug.container import Container
from envkit.debug.job import CommandRun, CommandTarget
from envkit.debug.records import DebugReport, Fault, Step, Verdict
from envkit.engine import Say
from envkit.errors import Undecided, UsageError
from envkit.facts import Facts
from envkit.payload.companion.envkit_builds import build_id, notes
from envkit.records import dataclass
from envkit.system import files

_INSIDE = "/envkit-core"  # where a container sees the dump
_CORE, _CUDA = 4, 190  # ET_CORE of e_type, EM_CUDA of e_machine
_LOAD, _NOTES = 1, 4  # PT_LOAD, PT_NOTE
_AUXV, _FILES = 6, 0x46494C45  # NT_AUXV, NT_FILE
_PHDR = 3  # AT_PHDR: where the program's own headers are mapped
_NOT_RUN = 127  # of what a shell or the loader of libraries cannot start
_MANY = 0xFFFF  # PN_XNUM: the real number stands in the first section
_MOST_NOTES = 64 << 20
_FIRST = 1 << 16  # bytes of a mapped file's beginning; Linux dumps its first page (core(5), bit 4 of the filter)
_FILES_S = 60.0
_PACKED = {b"\x28\xb5\x2f\xfd": "zstd -d", b"\x04\x22\x4d\x18": "lz4 -d", b"\xfd7zX": "xz -d", b"\x1f\x8b": "gzip -d"}
_ENDED = re.compile(r"^Program terminated with signal (SIG[A-Z0-9]+)", re.M)
_ANSWER = re.compile(r"^envkit-builds:(\{.*\})$", re.M)
# What no other process finds under that name: devices, shared memory, what was deleted while it was mapped, and what is
# compiled while a program runs.
_NO_FILE = re.compile(
    r"^/(?:dev/|proc/|memfd:|SYSV)|\(deleted\)$|/(?:torchinductor_|\.triton/|torch_extensions/|\.cache/)"
)
_CODE = re.compile(r"\.so[0-9.]*$")
_DRIVER = re.compile(r"/lib(?:cuda|nvidia-[\w-]+|nvcuvid)\.so[0-9.]* is not there$")  # which no image holds
_OTHER = "warning: core file may not match specified executable file."


@dataclass(frozen=True, slots=True)
class CoreFile:
    """A core dump: of the GPU, or of a process with its ``program``, empty where the notes do not tell it, and the
    ``builds`` of the program and the libraries that it had mapped: their build ids by path, empty where the dump does
    not hold one."""

    path: Path
    gpu: bool
    program: str = ""
    builds: Mapping[str, str] = field(default_factory=dict)


def read(path: Path) -> CoreFile:
    """What a file says of itself; raises UsageError for one that is no core dump, or packed."""
    try:
        with open(files.opened(path), "rb") as file:
            head = file.read(64)
            if packed := next((how for magic, how in _PACKED.items() if head.startswith(magic)), ""):
                fix = f"unpack it first: {packed} {path}; of systemd's: coredumpctl dump --output=core PID"
                raise UsageError(f"{path} is packed", fix)
            if len(head) < 64 or not head.startswith(b"\x7fELF\x02\x01"):
                raise UsageError(f"{path} is no core dump of a 64-bit process", "name the file that the kernel wrote")
            kind, machine = struct.unpack_from("<HH", head, 16)
            if machine == _CUDA:
                return CoreFile(path, True)
            if kind != _CORE:
                raise UsageError(f"{path} is a program or a library, and no core dump", "put the program after --")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _of_a_dump(path, data)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {files.why(error)}", "check its name and permissions") from error
    except (struct.error, ValueError) as error:
        raise UsageError(f"{path} is cut off or damaged: its headers lead out of the file", "write it again") from error


def _of_a_dump(path: Path, data: mmap.mmap) -> CoreFile:
    at, mapped, builds, segments = 0, list[_Mapping](), dict[str, str](), tuple(_segments(data))
    for kind, note in _notes(data, segments):
        if kind == _AUXV:
            at = dict(struct.iter_unpack("<QQ", note[: len(note) // 16 * 16])).get(_PHDR, 0)
        elif kind == _FILES:
            mapped += _files(note)
    memory = sorted((address, offset, held) for kind, offset, address, held in segments if kind == _LOAD)
    begins = [address for address, _, _ in memory]
    for each in mapped:
        if each.offset or _NO_FILE.search(each.name):
            continue
        if _CODE.search(each.name) or each.begin <= at < each.end:
            builds.setdefault(each.name, "")
        address, offset, held = memory[max(0, bisect(begins, each.begin) - 1)] if memory else (0, 0, 0)
        if address <= each.begin < address + held:
            begin = offset + each.begin - address
            if known := build_id(data[begin : min(begin + _FIRST, offset + held)]):
                builds[each.name] = known
    return CoreFile(path, False, next((each.name for each in mapped if each.begin <= at < each.end), ""), builds)


class _Mapping(NamedTuple):
    begin: int
    end: int
    offset: int
    name: str


def _files(note: bytes) -> Iterator[_Mapping]:
    """The mapped files: their number, the size of a page, the three numbers of each, then the names."""
    count = struct.unpack_from("<Q", note)[0]
    if count > len(note) // 24:
        raise ValueError("more files than there is room for")
    for number, name in zip(range(count), note[16 + 24 * count :].split(b"\0"), strict=False):
        begin, end, offset = struct.unpack_from("<QQQ", note, 16 + 24 * number)
        yield _Mapping(begin, end, offset, name.decode("utf-8", "surrogateescape"))


def _segments(data: mmap.mmap) -> Iterator[tuple[int, int, int, int]]:
    """The kind, the place in the file, the address and the size of each segment of a dump."""
    headers, sections = struct.unpack_from("<QQ", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    if count == _MANY:
        count = struct.unpack_from("<I", data, sections + 44)[0]
    for number in range(count):
        kind, _, offset, address, _, held = struct.unpack_from("<IIQQQQ", data, headers + number * size)
        yield kind, offset, address, held


def _notes(data: mmap.mmap, segments: Iterable[tuple[int, int, int, int]]) -> Iterator[tuple[int, bytes]]:
    """The type and the content of each note of a dump."""
    for kind, offset, _, held in segments:
        if kind != _NOTES:
            continue
        if held > _MOST_NOTES or offset + held > len(data):
            raise ValueError("notes beyond the file")
        for sort, _, begin, end in notes(data, offset, offset + held):
            if end > offset + held:
                raise ValueError("a note beyond the notes")
            yield sort, data[begin:end]


def opened(
    core: CoreFile, program: str, request: DebugRequest, ground: CommandTarget, facts: Facts, say: Say
) -> DebugReport:
    """What the debugger says of ``core`` where ``ground`` is; ``program`` counts before the one that the dump names.

    Of ``request`` the folder and the budget count.  Raises UsageError where the dump does not name its program and
    nobody else does, and Undecided where there is no debugger, or it cannot be started.
    """
    started, program = time.monotonic(), program or core.program
    of_program = {program: core.builds.get(core.program, "")} if program else {}
    core = replace(core, builds={**{k: v for k, v in core.builds.items() if k != core.program}, **of_program})
    if not core.gpu and not program:
        raise UsageError(f"{core.path} does not name its program", "put its path after --")
    there = request.folder is not None and request.folder.exists()
    if isinstance(ground, Container):
        ground = replace(ground, volumes={**ground.volumes, _INSIDE: (core.path.absolute(), False)})
    ground, folder, tools, here = debug.prepared(replace(request, command=("sh",)), ground)
    name = next((each for each in (("cuda-gdb",) if core.gpu else ("gdb", "cuda-gdb")) if tools.paths.get(each)), "")
    if not name:
        if not there:
            folder.rmdir()
        wanted = "cuda-gdb" if core.gpu else "gdb"
        raise Undecided(f"there is no {wanted} {_where(ground)}", stages.how_to_get(wanted, facts))
    try:
        seen = _INSIDE if ground.image else str(core.path.resolve())
        argv = cores.command(tools.paths[name], seen) if core.gpu else _gdb(tools.paths[name], program, seen)
        say(f"opening {core.path} with {name} {_where(ground)}")
        strange = () if core.gpu else _strange(core, ground, folder)
        ran = job.run(ground, argv, folder / "opened", budget_s=request.budget_s)
        made = _told(core, program, ground, ran, strange)
        kept = tuple(sorted(each.relative_to(folder).as_posix() for each in ran.folder.rglob("*") if each.is_file()))
        step = Step("opened", True, f"{core.path} was named", round(ran.seconds, 3), ran.exit, ran.ended, files=kept)
        why = f"opens the core dump with {name}"
        text = repro.script(
            argv, {}, {}, cwd="/" if ground.image else str(here), image=ground.image, versions=tools.versions, why=why
        )
        elapsed = round(time.monotonic() - started, 3)
        made = replace(made, steps=(step,), folder=str(folder), versions=tools.versions, elapsed_s=elapsed)
        return debug.kept(folder, made, {"repro.sh": text})
    finally:
        if ground.image:
            debug.closed(folder)


def _strange(core: CoreFile, ground: CommandTarget, folder: Path) -> tuple[str, ...]:
    """What the process had mapped and is not there, or is another build there.

    Raises Undecided where that cannot be asked.
    """
    asked = folder / "builds.json"
    asked.write_text(json.dumps(dict(core.builds)), encoding="utf-8")
    python = "python3" if ground.image else sys.executable
    argv = (python, "-I", f"{ground.seen(job.COMPANION)}/envkit_builds.py", ground.seen(asked))
    ran = job.run(ground, argv, folder / "builds", budget_s=_FILES_S)
    answer = _ANSWER.search(ran.text())
    if not answer:
        raise Undecided(f"the files of the core dump could not be looked at {_where(ground)}", "see builds/output.txt")
    return tuple(f"{name} {what}" for name, what in json.loads(answer[1]).items())


def _told(core: CoreFile, program: str, ground: CommandTarget, ran: CommandRun, strange: Sequence[str]) -> DebugReport:
    made = DebugReport(
        command=(program or str(core.path),), image=ground.image, verdict=Verdict.UNDECIDED, cause="", category="",
        cause_class="", exit=None, steps=(), fault=None, first_wrong="", python=(), children=(), hang=(),
        explanation=None, fix="", next=(), folder="", files=(), elapsed_s=0.0,
    )  # fmt: skip
    if strange:  # the program first: with another one no function is right
        said = sorted(strange, key=lambda each: not each.startswith(program))
        more = f", and so on, {len(said)} files in all" if len(said) > 1 else ""
        cause = f"the core dump was not written {_where(ground)}: {said[0]}{more}"
        driver = ground.image and all(map(_DRIVER.search, strange))
        fix = "show the container the GPUs, with which the driver's libraries come: --gpus all" if driver else ""
        return replace(made, cause=cause, fix=fix or _elsewhere(ground.image))
    if ran.ended != "exited":
        return replace(made, cause=f"the debugger did not end by itself ({ran.ended})", fix="give it time: --budget")
    if ran.exit == _NOT_RUN:
        return replace(made, cause=f"the debugger does not run {_where(ground)}: {job.last_line(ran)}")
    return _of_a_gpu(made, cores.read(ran.text())) if core.gpu else _of_a_process(made, ran.text())


def _gdb(path: str, program: str, core: str) -> tuple[str, ...]:
    """The gdb at ``path`` on a dump of ``program``: it prints the signal and the stack, and ends."""
    first = ("set debuginfod enabled off", "set auto-load off", "set pagination off")
    return (path, "-nx", "--batch", *(word for line in first for word in ("-iex", line)), "-ex", "bt 40", program, core)


def _where(ground: CommandTarget) -> str:
    return f"in {ground.image}" if ground.image else "on this machine"


def _elsewhere(image: str) -> str:
    other = "another image with --image" if image else "the image that it ran in with --image"
    return f"name {other}, or the program's path after --"


def _of_a_gpu(made: DebugReport, fault: Fault | None) -> DebugReport:
    if fault is None:
        return replace(made, cause="cuda-gdb named no kernel in the core dump")
    return replace(
        made, verdict=Verdict.FOUND, fault=fault, cause=told.sentence(fault, (), ()), category=told.category(fault),
        cause_class=told.blamed(fault, ()), fix=told.fix(fault, (), ()),
    )  # fmt: skip


def _of_a_process(made: DebugReport, text: str) -> DebugReport:
    if _OTHER in text:
        said = f"the core dump is not of {made.command[0]}, by what its notes say it ran"
        return replace(made, cause=said, fix=_elsewhere(made.image))
    ended, stack = _ENDED.search(text), native.listed(text)
    place = native.sentence(stack)
    if not place:
        refused = re.search(r"^\S+: Permission denied\.$", text, re.M)
        why = f": {refused[0]}" if refused else ""
        fix = "run it as --user 0" if refused and made.image else "see opened/output.txt"
        return replace(made, cause=f"the debugger tells no stack of the core dump{why}", fix=fix)
    if ended is None:
        return replace(made, cause=f"the core dump tells of no signal: its process may have gone on; it was {place}")
    died = ended[1]
    if died == "SIGSEGV" and stack and stack[0].function.strip("_") == "abort":
        # abort's signal does not end the first process of a container; glibc's abort then runs an instruction that does
        died = "SIGABRT"
    number = getattr(signal, died, None)
    code = -int(number) if number is not None else None
    if carries := native.runtime_inside(stack):
        cause = f"{native.own_runtime(carries)}; it died of {died} {place}"
        return replace(
            made, verdict=Verdict.FOUND, cause=cause, exit=code, category="undefined-symbol-abi-mismatch",
            cause_class="wrong-build-installed", fix=packages.SHARED,
        )  # fmt: skip
    own = code in job.CRASHES
    verdict = Verdict.FOUND if own else Verdict.UNDECIDED
    cause = f"the program died of {died} {place}"
    return replace(made, verdict=verdict, exit=code, cause=cause if own else f"{cause}, which somebody sent it")
