"""``envkit explain``: logs and what was observed beside them, to one explanation; or the page of a check or a failure.

What is given is read once and bounded.  Nothing is decided here: ``logs/`` reads, tells and weighs.
"""

from __future__ import annotations

import io
import json
import os
import re
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import IO, Any, TextIO

import msgspec

from envkit import facts
from envkit.doctor import anonymize
from envkit.errors import UsageError
from envkit.explain import as_text, nodes
from envkit.host.root import short
from envkit.judging import pages
from envkit.logs import flight, hang, reader, story, verdict
from envkit.logs.records import Explanation, FileSeen, Hypothesis, Line, Reading, Strength
from envkit.logs.story import Story
from envkit.records import dataclass
from envkit.system import files
from envkit.system.terminal import columns, wants_color

Say = Callable[[str], None]
_Input = io.BufferedReader | io.FileIO

STDIN = "stdin"
FORMATS = ("console", "json", "html")
VERSIONS = ("torch", "cuda", "cudnn", "nccl", "driver", "driver_cuda", "runtime_cuda", "gpu", "arch")

_PEEKED = 4096  # bytes that a dump is known by
_WAITED_MS = 3000  # for somebody to write to a FIFO
_SILENT_S = 10  # without a byte from a pipe, after which it is said what is waited for
_RANK = re.compile(r"(?P<rank>[0-9]{1,6})=(?P<file>.+)", re.DOTALL)
_LARGE = 32_000_000  # bytes; fewer are read before anybody wonders
_PROGRESS_S = 2.0  # seconds between two lines of progress
_AGREED = 0.1  # what a finding of a report that says the same adds to the confidence; 0.95 stays the most
_SUREST = 0.95


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """What to read: ``logs`` as named ("-" is stdin), ``kernel`` logs, ``beside`` a report or a saved observation,
    ``ranks`` as RANK=FILE for files whose names do not say their rank; ``redact`` asks for placeholders, ``ran`` is the
    run on many nodes whose job failed."""

    logs: tuple[str, ...]
    kernel: tuple[str, ...] = ()
    beside: Path | None = None
    ranks: tuple[str, ...] = ()
    redact: bool = False
    ran: nodes.Ran | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a report says is wrong."""

    check: str
    message: str


@dataclass(frozen=True, slots=True)
class Observations:
    """What a report or a saved observation tells: values by the names that signatures use, and what was found wrong."""

    name: str
    values: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class FindingCause:
    """What a check's finding would mean for a failed run; a row of ``logs/findings.jsonl``."""

    check: str
    category: str
    cause: str


def page(word: str) -> str:
    """The page of a check or of a kind of failure, of both where both have this id.

    Raises UsageError, naming the nearest, where it is neither.
    """
    failure = pages.failure(word)
    told = [pages.told_failure(failure)] if failure else []
    told += [pages.told(pages.load(word))] if word in pages.names() else []
    if told:
        return "\n".join(told)
    near = pages.nearest(word)
    looks_like_a_path = "/" in word or "." in word
    what = f"there is no file {word}" if looks_like_a_path else f"`{word}` is no file, no check and no kind of failure"
    raise UsageError(what, f"nearest: {', '.join(near)}" if near else "name logs, or the id that a report names")


def is_page(words: Sequence[str]) -> bool:
    """Whether the words ask for a page rather than for logs: one word that names no file."""
    return len(words) == 1 and words[0] != "-" and not os.path.lexists(words[0])


def exit_code(found: Explanation) -> int:
    """1 where a cause was found, 3 where none is known; 0 is for pages, for no log proves that nothing failed."""
    return 1 if as_text.is_known(found) else 3


def printed(found: Explanation, format: str, timeline: int | None, stream: TextIO) -> str:
    """The explanation in one of FORMATS; ``timeline`` is the most lines of it, ``stream`` where it will go."""
    if format == "json":
        return as_text.document(found, timeline)
    if format == "html":
        from envkit.explain import as_html

        shown = found.timeline if timeline is None else as_text.shortened(found.timeline, timeline)
        return as_html.render(replace(found, timeline=shown))
    most = as_text.TIMELINE if timeline is None else timeline
    return as_text.render(found, wants_color(stream, os.environ), columns(stream), most)


def answer(asked: ExplainRequest, say: Say, stdin: IO[bytes] | None = None) -> Explanation:
    """Reads all that is named and explains it.

    Raises UsageError, in one sentence, for an input that is missing, a directory, a device, unreadable or binary, and
    for a report that is none.
    """
    given = beside(asked.beside) if asked.beside else None
    told = story.tell(read(asked, say, stdin), observed(given) if given else None)
    found = verdict.explain(told, facts.load())
    found = replace(found, ranks=found.ranks or hang.table(told), versions={**versions(told), **found.versions})
    if not any(seen.lines for seen in told.files):  # an input without a line is said to be one
        names = ", ".join(seen.name for seen in told.files)
        found = replace(found, because=f"{names} {'is' if len(told.files) == 1 else 'are'} empty")
    if given:
        found = _with_findings(found, given)
    if asked.ran:
        found = nodes.placed(found, told, asked.ran)
    files = tuple(replace(seen, head=(), tail=(), loud=()) for seen in found.files)  # nobody shows them
    found = replace(found, files=files)
    return _redacted(found, told, asked.ran) if asked.redact else found


def versions(told: Story) -> dict[str, str]:
    """The versions that the logs, or the report beside them, name; where they name several, all of them."""
    found = {name: ", ".join(told.values(name)) or told.observed.get(name, "") for name in VERSIONS}
    return {name: value for name, value in found.items() if value}


# Inputs.


def read(asked: ExplainRequest, say: Say, stdin: IO[bytes] | None = None) -> tuple[Reading, ...]:
    """The logs as read, and the flight recorder's files among them; raises UsageError as ``answer`` does."""
    ranks = _ranks(asked.ranks)
    names = [*asked.logs, *(name for name in ranks if name not in asked.logs)]
    named = [(name, False) for name in names] + [(name, True) for name in asked.kernel]
    inputs: list[reader.Input] = []
    dumps: list[flight.Dump] = []
    with ExitStack() as opened:
        seen: set[tuple[int, int]] = set()
        size = 0
        for name, kernel in named:
            stream: _Input = _stdin(stdin, say) if name == "-" else _open(name, say)
            if name != "-":
                opened.callback(stream.close)
            about = _about(stream)
            if about is not None and (about.st_dev, about.st_ino) in seen:
                continue  # the same file named twice
            if about is not None:
                seen.add((about.st_dev, about.st_ino))
                size += about.st_size
            label = STDIN if name == "-" else name
            if flight.is_dump(_first_bytes(label, stream)):
                dumps.append(_dump(label, stream, ranks.get(name)))
            else:
                inputs.append(reader.Input(label, stream, kernel))
        reading = _ranked(_read(inputs, _progress(size, say)), ranks)
    for file in reading.files:
        if file.cut:
            say(f"{file.name}: {file.cut}")
    _refuse_binary(reading, bool(dumps), say)
    return (reading, flight.reading(dumps)) if dumps else (reading,)


def _ranks(words: Iterable[str]) -> dict[str, int]:
    """The rank that was said of each file."""
    found: dict[str, int] = {}
    for word in words:
        said = _RANK.fullmatch(word)
        if said is None:
            raise UsageError(f"`{word}` names no rank and its file", "write it as RANK=FILE, such as 3=worker3.err")
        name, rank = said["file"], int(said["rank"])
        if found.setdefault(name, rank) != rank:
            raise UsageError(f"{name} is said to be of rank {found[name]} and of rank {rank}", "say one of them")
    return found


def _ranked(reading: Reading, ranks: Mapping[str, int]) -> Reading:
    """With the ranks that were said of files; who says one knows better than the file's name."""
    if not ranks:
        return reading

    def of(line: Line) -> Line:
        return replace(line, rank=ranks[line.file]) if line.file in ranks else line

    def file(seen: FileSeen) -> FileSeen:
        head, tail, loud = (tuple(map(of, lines)) for lines in (seen.head, seen.tail, seen.loud))
        return replace(seen, head=head, tail=tail, loud=loud)

    events = tuple(replace(event, line=of(event.line)) for event in reading.events)
    traces = tuple(replace(each, first=of(each.first), line=of(each.line)) for each in reading.tracebacks)
    return Reading(tuple(map(file, reading.files)), events, traces)


class _Pipe(io.RawIOBase):
    """A pipe read by its number, that says now and then that nothing comes.

    How long a log takes that is still written nobody knows here: its end is waited for, but not in silence.
    """

    def __init__(self, number: int, name: str, say: Say) -> None:
        self._number, self._name, self._say = number, name, say
        self._ready = select.poll()
        self._ready.register(number, select.POLLIN)

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def readinto(self, buffer: Any) -> int:
        silent = 0
        while not self._ready.poll(_SILENT_S * 1000):
            silent += _SILENT_S
            self._say(f"nothing came from {self._name} for {silent} s; it is read until it ends (Ctrl-C stops)")
        data = os.read(self._number, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            os.close(self._number)
        super().close()


def _refuse_endless(name: str, handle: int) -> None:
    if files.has_no_end(handle):
        said = f"{name} cannot be read: {files.ENDLESS}"
        raise UsageError(said, "write what it holds to a file (dmesg > FILE, or journalctl -k > FILE) and name that")


def _stdin(given: IO[bytes] | None, say: Say) -> _Input:
    if given is None:
        _refuse_endless(STDIN, 0)
    if given is None and not stat.S_ISREG(os.fstat(0).st_mode):
        return io.BufferedReader(_Pipe(os.dup(0), STDIN, say))
    stream: Any = given or sys.stdin.buffer
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)


def _open(name: str, say: Say) -> _Input:
    """The file, opened; a pipe by its name (as a shell's `<(...)` gives one) is as good."""
    try:
        mode = os.stat(name).st_mode
        if stat.S_ISDIR(mode):
            raise UsageError(f"{name} is a directory", f"name the logs in it, such as {name.rstrip('/')}/*.log")
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise UsageError(f"{name} is no file: a device or a socket has no end", "name a log, or pipe one in")
        return _opened_pipe(name, say) if stat.S_ISFIFO(mode) else _opened(name)
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {name}", "check the name, or give the log on stdin as -") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise UsageError(f"{name} cannot be read: {short(error)}", "check its permissions") from error


def _opened(name: str) -> io.FileIO:
    """The file, without a buffer: of ten thousand ranks each has one open, and is read in large blocks."""
    stream = io.FileIO(name)
    try:
        _refuse_endless(name, stream.fileno())
    except UsageError:
        stream.close()
        raise
    return stream


def _opened_pipe(name: str, say: Say) -> io.BufferedReader:
    """A FIFO of the file system whether or not somebody writes to it: open() waits for that, maybe for ever.  A pipe
    without a name (`<(...)` of a shell) is open at both ends from the first."""
    number = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    if os.path.exists(os.path.realpath(name)):
        ready = select.poll()
        ready.register(number, select.POLLIN)
        ready.poll(_WAITED_MS)
    os.set_blocking(number, True)  # from here on it ends at once where nobody has it open
    return io.BufferedReader(_Pipe(number, name, say))


def _about(stream: _Input) -> os.stat_result | None:
    try:
        return os.fstat(stream.fileno())
    except (OSError, io.UnsupportedOperation):  # a stream of no file
        return None


def _first_bytes(name: str, stream: _Input) -> bytes:
    try:
        if isinstance(stream, io.FileIO):
            return os.pread(stream.fileno(), _PEEKED, 0)
        return stream.peek(_PEEKED)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {short(error)}", "name a log") from error


def _dump(name: str, stream: _Input, rank: int | None) -> flight.Dump:
    try:
        found = flight.load(stream, name)
    except (OSError, ValueError) as error:
        fix = "copy it once more from the machine that wrote it, or leave it out"
        raise UsageError(f"{name} begins like a flight recorder's file and cannot be read: {error}", fix) from error
    return found if rank is None else replace(found, rank=rank)


def _progress(size: int, say: Say, clock: Callable[[], float] = time.monotonic) -> Callable[[int], None] | None:
    """What says, now and then, how much was read; None where that takes no time anyway.

    The text of compressed logs is more than ``size``, the bytes of the files.
    """
    if size < _LARGE:
        return None
    last, done = clock(), 0

    def tell(more: int) -> None:
        nonlocal last, done
        done += more
        now = clock()
        if now - last >= _PROGRESS_S:
            last = now
            say(f"read {done / 1e6:.0f} MB of text; the files have {size / 1e6:.0f} MB")

    return tell


def _read(inputs: Sequence[reader.Input], progress: Callable[[int], None] | None) -> Reading:
    try:
        return reader.read(inputs, progress=progress)
    except (OSError, EOFError) as error:
        names = ", ".join(each.name for each in inputs)
        raise UsageError(f"{names} cannot be read: {short(error)}", "copy what can be read of it to a file") from error


def _refuse_binary(reading: Reading, others: bool, say: Say) -> None:
    """Text among bytes that are no text still tells something; bytes that tell nothing are the wrong file."""
    binary = [seen for seen in reading.files if seen.binary]
    told = {event.line.file for event in reading.events} | {trace.line.file for trace in reading.tracebacks}
    mute = [seen.name for seen in binary if seen.name not in told]
    if mute and len(mute) == len(reading.files) and not others:
        fix = "name the text that the program printed; a core dump is for cuda-gdb or gdb"
        raise UsageError(f"{', '.join(mute)} {'is' if len(mute) == 1 else 'are'} binary, not a log", fix)
    for seen in binary:
        say(f"{seen.name} holds bytes that are no text; what is text in it was read")


# What was observed beside the logs.


def beside(path: Path) -> Observations:
    """What a report of envkit or a saved observation tells.  Raises UsageError where the file is neither."""
    from envkit.subjects import saved

    plain = _json(path)
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if schema == saved.SCHEMA:
        return _of_subject(path)
    if schema == "envkit.report/1":
        return _of_report(path, plain)
    fix = "name what `--format json` printed or what --save wrote"
    raise UsageError(f"{path} is neither a report of envkit nor a saved observation", fix)


def _json(path: Path) -> Any:
    from envkit.subjects import saved

    try:
        return json.loads(files.text(path, "name a report of envkit in JSON", saved.MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}", "name a report of envkit in JSON") from error


def _of_subject(path: Path) -> Observations:
    from envkit.judging import judge
    from envkit.model import Severity
    from envkit.subjects import KINDS, codec, saved

    kind, plain = saved.document(path)
    subject: Any = codec.recorded(KINDS[kind], plain)
    results = judge.judge(subject, facts.load())
    found = [
        Finding(one.check, each.message) for one in results for each in one.findings if each.severity > Severity.NOTE
    ]
    return Observations(str(path), _values({kind: plain}), tuple(found))


def _of_report(path: Path, plain: Mapping[str, Any]) -> Observations:
    try:
        report = msgspec.convert(plain, _Report)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{path} is no whole report of envkit: {error}", "write it again with --format json"
        ) from error
    found = [
        Finding(one.check, each.message) for one in report.results for each in one.findings if each.severity != "note"
    ]
    kind = report.subject.kind
    observed = {kind: report.observed} if "name" in report.observed else report.observed
    return Observations(str(path), _values(observed), tuple(found))


@dataclass(frozen=True, slots=True)
class _ReportedFinding:
    message: str
    severity: str


@dataclass(frozen=True, slots=True)
class _ReportedResult:
    check: str
    findings: tuple[_ReportedFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class _ReportedSubject:
    kind: str


@dataclass(frozen=True, slots=True)
class _Report:
    """What is read of an envkit.report/1."""

    subject: _ReportedSubject
    results: tuple[_ReportedResult, ...]
    observed: Mapping[str, Any] = field(default_factory=dict)


def _values(observed: Mapping[str, Any]) -> dict[str, str]:
    """The values of the subjects, by kind, under the names that signatures use; only those that were observed."""
    from envkit.subjects import Host, Image, codec

    found: dict[str, str] = {}
    if isinstance(plain := observed.get("image"), dict):
        image = codec.from_plain(Image, plain)
        torch, driver = image.torch.value, image.driver.value
        libraries = {lib.name: lib.version for lib in image.libraries.value or () if lib.version}
        found |= {"torch": torch.version, "cuda": torch.cuda} if torch else {}
        found |= {"runtime_cuda": libraries.get("cudart", "")}
        found |= {name: libraries.get(name, "") for name in ("cudnn", "nccl")}
        found |= {"driver": driver.module or driver.file, "driver_cuda": driver.cuda} if driver else {}
        found |= {"arch": ", ".join(dict.fromkeys(map(str, image.devices.value or ())))}
    if isinstance(plain := observed.get("host"), dict):
        host = codec.from_plain(Host, plain)
        nvml = host.nvml.value
        module = host.module.value
        seen = {"driver": module.version} if module else {}
        if nvml:
            names = dict.fromkeys(gpu.name.value for gpu in nvml.gpus if gpu.name.value)
            archs = dict.fromkeys(gpu.sm.value for gpu in nvml.gpus if gpu.sm.value)
            seen |= {"driver_cuda": nvml.cuda, "gpu": ", ".join(names), "arch": ", ".join(archs)}
            seen.setdefault("driver", nvml.driver)
        found |= {name: value for name, value in seen.items() if value}
    return {name: value for name, value in found.items() if value}


def observed(given: Observations) -> dict[str, str]:
    """What a story takes of it: the values by their names, and each finding's message as ``finding:CHECK``."""
    return {**given.values, **{f"finding:{each.check}": each.message for each in given.findings}}


@cache
def meanings() -> Mapping[str, FindingCause]:
    """What findings of checks mean for a failed run, by check."""
    lines = (Path(__file__).parents[1] / "logs" / "findings.jsonl").read_bytes().splitlines()
    return {row.check: row for row in (msgspec.json.decode(line, type=FindingCause) for line in lines)}


def _with_findings(found: Explanation, given: Observations) -> Explanation:
    """A finding that says the same makes the answer surer; one that says something else is the runner-up if there is
    none, and its page is a next step.  None replaces what the log says: it need not have been so when the run failed.
    """
    known = [(each, meanings()[each.check]) for each in given.findings if each.check in meanings()]
    for each, meant in known:
        if (meant.category, meant.cause) == (found.category, found.cause):
            because = f"{found.because}; {each.check} of {given.name} found the same: {each.message}"
            surer = round(max(found.confidence, min(_SUREST, found.confidence + _AGREED)), 2)
            return replace(found, because=because, confidence=surer)
    for each, meant in known:
        other = found.runner_up or Hypothesis(
            meant.category, meant.cause, Strength.POSSIBLE, (), f"{each.check} of {given.name} found: {each.message}"
        )
        steps = dict.fromkeys((*found.next, f"envkit explain {each.check}"))
        return replace(found, runner_up=other, next=tuple(steps))
    return found


# Redaction.


def _redacted(found: Explanation, told: Story, ran: nodes.Ran | None) -> Explanation:
    """The explanation under placeholders for machines, addresses, people and serial numbers."""
    lines = [event.line for event in told.events] + [trace.line for trace in told.tracebacks]
    lines += [line for seen in told.files for line in (*seen.head, *seen.tail)]
    hosts = dict.fromkeys(line.host for line in lines if line.host)
    for node in (*ran.nodes, *ran.others) if ran else ():
        hosts |= dict.fromkeys(name for name in (node.name, node.host, node.machine) if name and not name.isdigit())
    plain = anonymize.words(msgspec.to_builtins(found), hosts)
    return msgspec.convert(plain, Explanation)
