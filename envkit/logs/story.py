"""What happened, in order: the events of all files on one line of time, roots told from consequences.

The rules, in their order:

1. A line that talks (a hint, a wrapper, a quotation) is never evidence; the reader has marked it so.
2. After a sticky CUDA error each later CUDA error of the same process is a consequence of it (CUDA Runtime API,
   cudaError_t: "the process must be terminated and relaunched").
3. A report of somebody else's failure (a time-out, a closed connection) is a consequence where any process has a root
   of its own that is not later than it, or whose time is not known.  An order to end the job from outside is such a
   root only where it is known to have come first: schedulers and people end what already hangs.
4. What stands in the source code of a program is talk, line by line: what else is printed among it is evidence.
5. An error that leaves its process whole (no memory, no such device), after which that process makes further steps and
   ends well or by an exception of its own, was survived: it is not where the failure began.
   A file is read from its end for this: what a process survived late it was there to survive.
6. Of an exception chain the first exception is the root, unless a later one names another failure of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from envkit.logs import names
from envkit.logs.again import AWAITED
from envkit.logs.ends import (
    ILL,
    INNOCENT,
    OF_TESTS,
    holds,
    is_ignored,
    of_loop,
    stays,
)
from envkit.logs.records import Event, FileSeen, Line, Reading, Role, Traceback
from envkit.logs.segments import of_failed_tests, silent
from envkit.logs.survived import (
    noted_again,
    read_backwards,
    without,
    without_complaints,
)
from envkit.records import replace

_WORDS = (
    r"from [\w.]+ import|import [\w.{]+|(?:async )?def \w+|class \w+|return\b|yield\b|raise \w|assert\b|pass$|break\b"
    r"|continue\b|try:|else:|finally:|@\w|(?:if|elif|for|while|with|except)\b.{0,200}:$|lambda\b"
    r"|namespace\b|template\b|using\b|public:|private:|static\b|const\b|void\b|auto\b|__global__|__device__"
)
_CODE = re.compile(
    rf"^\s*(?:{_WORDS}|[bfru]{{0,2}}[\"']|#|//|/\*|\*|[\w.\[\]*]{{1,80}}(?:: [\w.\[\], |]{{1,80}})? ?[-+*/|&]?= ?\S"
    r"|[\w.]{1,80}\(|[)\]}]+[,;:)]*|.{0,300}[,({\[;]$)"
)
# a line of a log is hardly ever one of these
_SURELY_CODE = re.compile(
    r"^(?:from [\w.]+ import \w|import \w[\w.]*(?: as \w+)?$|\s*(?:async )?def \w+\(.{0,300}(?:[:,(]|\.\.\.)$"
    r"|class \w+[(:]|#include [<\"]|#(?:define|ifdef|ifndef|endif|pragma)\b|\s*(?:template ?<|namespace \w+ ?\{)"
    r"|\s*(?:return|raise|assert) .{1,200}[\w)\]'\"]$)"
)
# what grep begins a line with; compilers, warnings and loggers do too, and say what it is after it
_SEARCHED = re.compile(
    r"(?:\.?/)?[\w.-]{1,80}/[\w./-]{1,200}\.\w{1,6}[:-]\d{1,6}[:-]"
    r"(?!(?:\d{1,5}:)?\s?(?:(?:fatal )?(?:error|warning|note)|ERROR|WARN\w*|INFO|DEBUG)\b)"
    r"(?!\s[A-Z]\w{0,60}(?:Warning|Error|Exception)\b)"
    r"(?!.{0,400}\b(?:block: ?\[\d|Assertion [`'].{0,400} failed))"  # of a kernel, or of the C library
)
_COMMITTED = re.compile(r"(?:[*|/\\ ]{0,12})(?=\d{0,12}[a-f])[0-9a-f]{7,12} (?:\([^)\n]{1,120}\) )?[A-Za-z\[]")
# the last line of pytest, and of others, where every test passed: what the tests printed before it was asked for
_PASSED = re.compile(
    r"^=* ?\d+ passed\b(?!.{0,200}\b(?:failed|errors?)\b).{0,200} in [\d.]{1,12}s\b"
    r"|^(?P<all>\d{1,6}) (?:checks?|tests?|cases?),? (?P=all) (?:ok|passed)$"
    r"|^OK(?: \((?:.{0,40}, )?expected failures=.{1,40}\))?$|^\[  PASSED  \] \d+ tests?\.$"
    r"|^test result: ok\. \d+ passed"
    r"|^100% tests passed\b"
)
_FAILED = re.compile(r"\[  FAILED  \]|FAIL Required test coverage|ERROR: Coverage failure: ")
# the last lines of pytest, unittest, jest, mocha, RSpec, cargo and go where a test failed
_TEST_FAILED = re.compile(
    r"^=* ?(?:\d+ \w+, )?\d+ failed\b.{0,200} in [\d.]{1,12}s|^FAILED \((?:failures|errors)=\d|^Tests: {1,9}\d+ failed"
    r"|^\s*\d+ failing$|^\d+ examples?, [1-9]\d* failures?|^test result: FAILED"
    r"|^Tests run: \d+, (?:Failures: [1-9]|Failures: 0, Errors: [1-9])|^\[  FAILED  \] "
    r"|^\d+ tests?, \d+ passed, [1-9]\d* failed$|^--- FAIL: |^\*\*\*Test Failed\*\*\* \d"
)
# of a report of a failed test: its source, with a mark or a number before it, and how two values differ
_SHOWN = re.compile(
    r"(?!\s{1,20}\w{1,80}_test\.go:\d{1,6}: [^\"`]{1,300}$)(?:\s*>?\s*\d{1,6} ?[|:] |[>E]? {3,}|\s{1,}(?!what\(\): ))"
)
_DIFFERS = re.compile(r"E {3,}(?:(?:AssertionError: )?assert |AssertionError: ['\"\[({]|[-+?] )")
# two values that were to be equal, told by what asserted it
_COMPARED = re.compile(
    r"^\W{0,8}(?:AssertionError: )?(?:assert )?(?:[bfru]?['\"\[({]).{0,2000}(?: [!=]=| not in| not found in| is not) "
)
# an error between quotation marks behind other words, or before an arrow that leads to what it is taken for
_CITES = re.compile(
    r"(?P<before>[^\"'`=({\[]{3,200}) [\"`](?P<what>[^\"`]{8,300})[\"`](?P<after>(?:[ ,;.(].{0,80})?)$"
    r"|(?P<before_arrow>\w{1,20} \d{1,9}: )(?P<what_arrow>.{8,300}) (?:->|=>) "
    r"(?P<after_arrow>(?:label|class|kind|category|expected)\b.{0,80})$"
)
# what somebody asked of a service, a text between quotes in a statement of SQL, and a name of a file of words
_ENTERED = (
    re.compile(
        r"\b(?:prompt|query|question|asked|search(?:[ _]\w{1,10})?|subject|title|utterance|comment|keywords?|ticket"
        r"|user(?:[ _]\w{1,10})?|input|q)[\"']?\]?\s?[:=]?\s?(?P<q>[\"'`])(?P<what>.{8,2000}?)(?:(?P=q)(?![\w(])|$)"
    ),
    re.compile(
        r"[\"']role[\"']: ?[\"']user[\"'], ?[\"']content[\"']: ?(?P<q>[\"'])(?P<what>.{8,2000}?)(?:(?P=q)(?!\w)|$)"
    ),
    re.compile(r"(?i)\b(?:select|insert into|update|delete from)\b.{1,400}?'(?P<what>[^'\n]{8,400})'"),
    re.compile(
        r"(?:^|[\s'\"])(?:[\w.~-]{1,80}/){1,12}(?![\w.-]{1,80}\.\w{1,6}\b)"
        r"(?P<what>\S[^\n]{8,200}\.(?:txt|md|rst|html?|json|csv|eml|log|pdf|png|ya?ml))"
        r"(?=['\",;:)]|$| \d| \()"
    ),
    re.compile(
        r"^(?:text|line|input|sample|message|example|log)s?[ #]?\d{0,9}: (?P<what>.{8,400}?) {1,20}(?:->|=>|\u2192) "
    ),
    re.compile(r"(?:\"[^\"\n]{1,80}\" ){2,8}\"(?P<what>[^\"\n]{8,400})\"$"),
    re.compile(
        r"^(?:\[[\w./-]{1,80}(?: \(root-commit\))? [0-9a-f]{7,40}\]|HEAD is now at [0-9a-f]{7,40}"
        r"|(?=[a-f\d]{0,11}\d)(?=\d{0,11}[a-f])[0-9a-f]{7,12}(?: \([^)\n]{1,120}\))?) (?P<what>.{8,400})$"
    ),
    re.compile(r"^(?:[^\",\n]{1,80},){1,6}\"(?P<what>[^\"\n]{8,400})\"(?:,|$)"),
    re.compile(r"[\"']query[\"']: ?\{.{0,200}?: ?\"(?P<what>[^\"\n]{8,2000})\""),
    re.compile(
        r"^[-dl][rwxsStT-]{9}[.+@]? +\d{1,6} \S{1,40} +\S{1,40} +[\d.,]{1,16}[KMGT]? "
        r".{5,20}[\d:]{4,5} (?P<what>.{8,300})$"
    ),
)
_LOGIN = re.compile(r"Last login: ")  # behind what a machine greets its users with
# words beside a quotation that tell that it happened
_TELLS = re.compile(
    r"(?i)error|fail|exception|\braise|\bcaught\b|\bgot\b|\bsaid\b|\bsays\b|reason|because|\bmsg\b|message|detail|abort|\bdied\b"
    r"|terminat|crash|\bwith\b|\bend(?:ed|s)\b|\breturned\b|\bwarn|\bfatal\b|stderr|stdout|output|:$"
)
# a sentence about what happens each time, which tells of none that did
_EXPLAINS = re.compile(r"(?i)\b(?:each|every|any|such|usually|often|typically|means?|whenever|you should)\b")
# what pytest says of a test: that it failed by itself, by what a child of it did, by an exception; and its sections
_OWN_FAILURE = re.compile(r"AssertionError\b|assert |Failed: DID NOT RAISE")
_OF_CHILD = re.compile(r"(?i)return_?code|exit_?code|\bstatus\b|CompletedProcess|[!=]= 0\b")
_RAISED = re.compile(r"(?!AssertionError)[\w.]{1,80}(?:Error|Exception)\b")
_CAPTURED = re.compile(r"-{3,} Captured (?:stdout|stderr|log) \w+ -{3,}$")
_SECTION = re.compile(r"={3,} |_{3,} |\d+ failed\b")
# how tests begin
_TESTING = re.compile(
    r"test session starts|^collected \d+ items?|^\[(?:=+|-+| {1,2}RUN {1,6})\]|^running \d+ tests?$|^Test project "
    r"|^test_\w+ \(|\.py::test|^[.sxFE]{1,80}(?: +\[ ?\d+%\])?$|(?i:^running .{0,40}\b(?:tests?|checks?)\b)"
)
_LOUD = ("error", "fatal", "critical")
_MANY, _APART = 3, 3  # kinds of failure, and lines between two of a list
_RAISED_FIRST = re.compile(r"[\w.]{0,100}(?:Error|Exception|Warning)\b")
_BEGIN, _SHAPE = 40, 4  # characters of a line of a list, and marks and words of its shape, that are compared
# below the message of an error that nobody caught: frames of Node, Java, OCaml and Julia, what Node says of the error,
# the rest of a box of Terraform's, a hint of Rust's, and the end of a pipeline of GStreamer's
_REPORT = re.compile(
    r"\s{1,20}at \S.{0,300}[\d)]$|\s{1,20}\.{3} \d{1,4} more$|\s{1,20}at \S.{0,300} \{$"
    r"|\s{0,4}\[\d{1,3}\] \S.{0,300}\)$|\s{1,6}@ \S|Stacktrace:$|\s{1,8}code: 'ERR_|\}$"
    r"|[\u2502\u2575]|note: run with `RUST_BACKTRACE|Additional debug info|Setting pipeline to "
    r"|(?:ERROR: )?(?:from element /|pipeline doesn't want)"
    r"|(?:Raised (?:by|at)|Re-raised at|Called from) \S"
    r"|in expression starting at \S|(?:Effective GPU memory|Memory pool) usage: "
)
_HISTORY = re.compile(r"commit [0-9a-f]{40}\b")
_LEAST_SURE, _SHARE, _ENDS = 3, 0.6, 2
_SHARE_OF_HISTORY = 0.15  # of lines that begin with a commit, where each names the files that it changed
Process = tuple[str, str, int | None, int | None]


@dataclass(frozen=True)
class Story:
    """All events with their settled roles, oldest first; ``observed`` are values of a report that was given beside,
    ``survived`` errors after which their process went on, ``well`` lines that tell of a good end of the whole."""

    events: tuple[Event, ...]
    tracebacks: tuple[Traceback, ...]
    files: tuple[FileSeen, ...]
    observed: Mapping[str, str] = field(default_factory=dict)
    survived: tuple[Event, ...] = ()
    well: tuple[Line, ...] = ()

    @cached_property
    def roots(self) -> tuple[Event, ...]:
        """The events that can be where it began."""
        return tuple(event for event in self.events if event.role is Role.ROOT)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Every rank that any line names, lowest first."""
        named = {event.line.rank for event in self.events} | {trace.line.rank for trace in self.tracebacks}
        return tuple(sorted(rank for rank in named if rank is not None))

    def of(self, *ids: str) -> tuple[Event, ...]:
        """The events of these signatures, whatever their role."""
        return tuple(event for event in self.events if event.signature.id in ids)

    def in_category(self, *categories: str, roots: bool = True) -> tuple[Event, ...]:
        """The events of these categories; with ``roots`` only those that can be the cause."""
        events = self.roots if roots else self.events
        return tuple(event for event in events if event.category in categories)

    def value(self, name: str) -> str | None:
        """The first value of this name that any event gives, else that of the report given beside."""
        for event in self.events:
            if found := event.values.get(name):
                return found
        return self.observed.get(name)

    def values(self, name: str) -> tuple[str, ...]:
        """The different values of this name, in the order of the events."""
        return tuple(dict.fromkeys(event.values[name] for event in self.events if event.values.get(name)))

    def before(self, event: Event) -> tuple[Event, ...]:
        """The events that came before this one."""
        return self.events[: self.events.index(event)]

    def traceback_of(self, line: Line) -> Traceback | None:
        """The traceback whose exception this line is, or that this line is a part of."""
        for trace in self.tracebacks:
            if trace.line.file == line.file and trace.first.number <= line.number <= trace.line.number + 40:
                same = trace.line.rank == line.rank or line.rank is None
                if same and (line.number <= trace.line.number or line.text in trace.message):
                    return trace
        return None

    def frames(self) -> Iterator[str]:
        """File and function of every frame of every traceback, for asking whose code it was."""
        for trace in self.tracebacks:
            for frame in trace.frames:
                yield f"{frame.file}:{frame.function}"


def tell(readings: Iterable[Reading], observed: Mapping[str, str] | None = None) -> Story:
    """The story of what was read."""
    parts = [_without_source(part) for part in readings]
    whole = {seen.name: seen for part in parts for seen in part.files}
    ignored = [
        trace
        for part in parts
        for trace in part.tracebacks
        if is_ignored(trace, whole[trace.line.file])
        and whole[trace.line.file].lines > trace.line.number - trace.first.number + 1
    ]
    files = tuple(without(seen, ignored) for part in parts for seen in part.files)
    order = {seen.name: index for index, seen in enumerate(files)}
    seen = {each.name: each for each in files}
    traced = [trace for part in parts for trace in part.tracebacks]
    told = [_as_tried(event) for part in parts for event in part.events if not _is_talk(event)]
    told = [event for event in told if not any(holds(x, event.line) or of_loop(event.line, x) for x in ignored)]
    traced = [trace for trace in traced if trace not in ignored]
    worked = {name: _without_reports(each) for name, each in seen.items()}
    told, survived, traced, passed, well = read_backwards(told, traced, worked)
    files = tuple(without(file, passed) for file in files)
    files = tuple(without_complaints(f, well[f.name]) if f.name in well else f for f in files)
    if not traced and not any(ILL.search(line.text) for file in files for line in (*file.tail, *file.loud)):
        survived += noted_again(told, survived)
    events = _ordered((event for event in told if event not in survived), order)
    traces = sorted(traced, key=lambda trace: (order[trace.line.file], trace.line.number))
    outlived = tuple(_ordered(survived, order))
    told_well = tuple(end.line for end in well.values())
    return Story(tuple(_settled(events)), tuple(traces), files, dict(observed or {}), outlived, told_well)


def _without_reports(seen: FileSeen) -> FileSeen:
    """The file without what belongs to the report of an error that nobody caught: no work of its program."""
    kept = (seen.head, seen.near, seen.tail)
    head, near, tail = (tuple(line for line in lines if not _REPORT.match(line.text)) for lines in kept)
    return seen if (head, near, tail) == kept else replace(seen, head=head, near=near, tail=tail)


def _as_tried(event: Event) -> Event:
    """The event, as a diagnosis where it only tells what NCCL tried to load: what it cannot do without, it warns of."""
    of_ranks = event.category.startswith("nccl") and event.category != "nccl-version-mismatch"
    of_ranks = of_ranks or event.category in INNOCENT
    tried = event.role is Role.ROOT and not of_ranks and not stays(event) and "NCCL INFO" in event.line.text
    return replace(event, role=Role.DIAGNOSTIC) if tried else event


def _is_talk(event: Event) -> bool:
    """Whether it speaks of a failure that it is not; what it says of versions and devices may be true all the same."""
    return event.role is Role.ADVICE and event.signature.role in (Role.ROOT, Role.CASCADE)


def _without_source(reading: Reading) -> Reading:
    """The reading with lines of source code taken for talk.

    Only lines that look like it: whatever a file seems to be, an error, an assertion or a traceback that was printed
    into it is one.
    """
    code = {seen.name: is_code for seen in reading.files if (is_code := _source(seen)) is not None}
    passed = {
        seen.name: line.number
        for seen in reading.files
        if not any(_FAILED.match(line.text) for line in seen.tail)
        for line in seen.tail
        if _PASSED.search(line.text)
    }
    tested = {seen.name for seen in reading.files if any(_TEST_FAILED.search(line.text) for line in seen.kept)}
    greeted = {seen.name: line.number for seen in reading.files for line in seen.head if _LOGIN.match(line.text)}
    roots = [event.line.text for event in reading.events if event.role is Role.ROOT]
    roots += [line.text for seen in reading.files for line in seen.loud]
    cited = any(_CITES.match(text) or any(pattern.search(text) for pattern in _ENTERED) for text in roots)
    known: dict[str, list[Line]] = {}
    for event in reading.events:
        known.setdefault(event.line.file, []).append(event.line)
    for trace in reading.tracebacks:
        known.setdefault(trace.line.file, []).extend((trace.first, trace.line))
    mute = {seen.name: numbers for seen in reading.files if (numbers := silent(seen, known.get(seen.name, ())))}
    many = len({event.category for event in reading.events if event.role is Role.ROOT}) >= _MANY
    if not code and not passed and not tested and not cited and not greeted and not mute and not many:
        return reading
    captured = {(seen.name, number) for seen in reading.files if seen.name in tested for number in _captured(seen)}
    traced = {
        (trace.line.file, number)
        for trace in reading.tracebacks
        for number in range(trace.first.number, trace.line.number + 2)
    }

    began = {
        seen.name: min((line.number for line in (*seen.head, *seen.tail) if _begins_tests(line.text)), default=0)
        for seen in reading.files
        if seen.name in passed
    }

    def talks(line: Line, event: Event | None = None) -> bool:
        is_code = code.get(line.file)
        if is_code is not None and is_code(_said(line)):
            return True
        if event is not None and line.file in tested and (_is_of_test(line) or (line.file, line.number) in captured):
            return True
        if line.number < greeted.get(line.file, 0) or line.number in mute.get(line.file, ()):
            return True
        if event is None and line.level not in _LOUD and _was_entered(line.text) != line.text:
            return _is_mute(_was_entered(line.text))
        if event is not None and (_is_cited(event, traced) or _is_entered(event)):
            return True
        of_tests = line.number < passed.get(line.file, 0)
        if event is not None and stays(event):  # may be of a program before the tests
            of_tests = of_tests and began[line.file] <= line.number
        return of_tests

    told = (seen for seen in reading.files if seen.name in known)
    failed = {(seen.name, number) for seen in told for number in of_failed_tests(seen)}

    def settled(event: Event) -> Event:
        if (event.line.file, event.line.number) in failed:
            event = replace(event, role=event.signature.role)
        return replace(event, role=Role.ADVICE) if talks(event.line, event) else event

    events = tuple(map(settled, reading.events))
    traces = tuple(trace for trace in reading.tracebacks if not talks(trace.line))
    listed = _listed(events)
    events = tuple(replace(each, role=Role.ADVICE) if each in listed else each for each in events)
    files = tuple(
        replace(seen, loud=() if seen.name in code else tuple(_loud(seen, mute.get(seen.name, ()), talks)))
        for seen in reading.files
    )
    return Reading(files, events, traces)


def _loud(seen: FileSeen, mute: Collection[int], talks: Callable[[Line], bool]) -> Iterator[Line]:
    """The loud lines of a file that are no talk; of lines that differ in numbers the reader keeps the first, so in the
    place of one that the frame takes out of the account stands the next of its kind."""
    for line in seen.loud:
        if not talks(line):
            yield line
        elif line.number in mute:
            form = re.sub(r"\d+", "0", line.text)
            later = (each for each in (*seen.near, *seen.tail) if each.number > line.number and not talks(each))
            yield from [each for each in later if re.sub(r"\d+", "0", each.text) == form][:1]


def _listed(events: Iterable[Event]) -> list[Event]:
    """Events of several kinds of failure that stand one below the other behind the same words: a list of failures is
    none."""
    rows: list[Event] = []
    listed: list[Event] = []
    for event in (*(each for each in events if each.role is Role.ROOT and each.category), None):
        near = event is not None and bool(rows) and 0 < event.line.number - rows[-1].line.number <= _APART
        if event is None or not near or _led(event) != _led(rows[-1]):
            if len({each.category.partition("-")[0] for each in rows}) >= _MANY:
                listed += rows
            rows = []
        if event is not None and _is_row(event):
            rows.append(event)
    return listed


def _is_row(event: Event) -> bool:
    """Whether an event can be a row of a list: something stands before its words, and it is no exception."""
    marked = re.search(r"\W", _led(event)) is not None and not _RAISED_FIRST.match(event.line.text)
    return marked and event.line.source != "kernel" and not event.line.level


def _led(event: Event) -> str:
    """The shape of what the line of an event begins with."""
    return re.sub(r"\w+", "w", re.sub(r"\s", "", event.line.text[:_BEGIN]))[:_SHAPE]


def _was_entered(text: str) -> str:
    """The line without what somebody asked of the program, or called a file."""
    for pattern in _ENTERED:
        text = pattern.sub(" ", text)
    return text


def _is_mute(text: str) -> bool:
    """Whether nothing of a line sounds like an error."""
    return re.search(r"(?i)\b\w*(?:error|exception|fail\w*|fatal|panic|abort\w*|cannot|denied)\b", text) is None


def _is_entered(event: Event) -> bool:
    """Whether the wording of an event stands only in what somebody asked of the program, or called a file."""
    line = event.line
    if event.role is not Role.ROOT or line.level in _LOUD or line.source == "kernel":
        return False
    return any(
        any(_stands_in(event, found["what"]) for found in each.finditer(line.text))
        and not _stands_in(event, each.sub(" ", line.text))
        for each in _ENTERED
    )


def _is_cited(event: Event, traced: AbstractSet[tuple[str, int]]) -> bool:
    """Whether a line is about an error that it quotes, as a title or a row of a table of errors, and tells of none."""
    line = event.line
    if event.role is not Role.ROOT or line.level or line.source == "kernel" or (line.file, line.number) in traced:
        return False
    found = _CITES.match(line.text)
    if found is None:
        return False
    if found["what"] is None:
        return not _TELLS.search(found["after_arrow"])
    if names.is_name(found["what"]) and names.is_value(f'{found["before"]} "', '"'):
        return False
    around = re.sub(r"\S*[/.]\S*", " ", f"{found['before']} {found['after']}")
    return _stands_in(event, found["what"]) and (not _TELLS.search(around) or _EXPLAINS.search(around) is not None)


def _stands_in(event: Event, text: str) -> bool:
    """Whether the wording of an event stands in a part of its line."""
    return re.search(event.signature.pattern, text) is not None


def _captured(seen: FileSeen) -> Iterator[int]:
    """The lines that pytest shows of what a test printed that failed by a comparison of its own alone."""
    lines = {line.number: line for line in (*seen.head, *seen.loud, *seen.tail)}
    shown = map(_as_shown, lines.values())
    said = [text[1:].strip() for text in shown if text.startswith("E  ")]
    own = [text for text in said if _OWN_FAILURE.match(text)]
    if not own or any(_OF_CHILD.search(text) for text in own) or any(_RAISED.match(text) for text in said):
        return
    for begin in (number for number, line in lines.items() if _CAPTURED.match(line.text)):
        ends = (number for number, line in lines.items() if number > begin and _SECTION.match(line.text))
        yield from range(begin, min(ends, default=begin))


def _is_of_test(line: Line) -> bool:
    """Whether a line of a report of failed tests is a test's source, or compares two texts that a test is about."""
    shown = _as_shown(line)
    if shown.startswith("E "):
        return _DIFFERS.match(shown) is not None
    return _SHOWN.match(shown) is not None or _COMPARED.match(line.text) is not None


def _as_shown(line: Line) -> str:
    """The line with the mark that a test runner puts before it, without what a collector put before that."""
    if not line.body.endswith(line.text):
        return line.body
    taken = line.body.removesuffix(line.text)
    mark = next((mark for mark in ("E   ", "> ", ">") if taken.endswith(mark)), "")
    return mark + line.text


def _begins_tests(text: str) -> bool:
    return bool(_TESTING.search(text) or AWAITED.search(text))


def _source(seen: FileSeen) -> Callable[[str], bool] | None:
    """What tells the lines of source code of a file that is source code, what a search of it found, or its history,
    from its beginning to its end; None for any other.

    Most lines look like it, and of code the last ones too: a log that begins with the program does not end with it.
    """
    ends = {line.number: line for line in (*seen.head, *seen.tail)}
    lines = [ends[number] for number in sorted(ends)]
    texts = list(map(_said, lines))
    for shape in (_SEARCHED, _COMMITTED):
        found = [match for match in map(shape.match, texts) if match]
        # nothing is found twice at one place: that is a program that prints where it stands
        places = {match[0] for match in found}
        few = shape is _COMMITTED and len(places) == len(found) and len(found) >= _SHARE_OF_HISTORY * len(texts)
        if len(places) >= _LEAST_SURE and (few or len(found) >= _SHARE * len(texts)):
            return lambda text, shape=shape: shape.match(text) is not None  # type: ignore[misc]
    if any(line.logged for line in lines):
        return None
    if texts and _HISTORY.match(texts[0]):
        return lambda text: True
    code = list(map(_is_code, texts))
    sure = sum(bool(_SURELY_CODE.match(text)) for text in texts)
    is_source = sure >= _LEAST_SURE and all(code[-_ENDS:]) and sum(code) >= _SHARE * len(code)
    return _is_code if is_source else None


def _said(line: Line) -> str:
    """The line with the mark of a comment or a list that may stand before it, without what a collector put there."""
    return line.text if line.logged else line.body


def _is_code(text: str) -> bool:
    return bool(_CODE.match(text) or _SURELY_CODE.match(text))


def _ordered(events: Iterable[Event], order: Mapping[str, int]) -> list[Event]:
    """By time where every event bears the wall clock's, else as the files were named; lines of one file never swap."""
    found = list(events)
    walls = all(event.line.clock == "wall" and event.line.time_s is not None for event in found)

    def place(event: Event) -> tuple[float, int, int]:
        return (event.line.time_s or 0.0 if walls else 0.0, order[event.line.file], event.line.number)

    return sorted(found, key=place)


def _settled(events: list[Event]) -> Iterator[Event]:
    stuck: set[Process] = set()  # processes that met a sticky error
    own = [event for event in events if event.role is Role.ROOT and not event.has("late") and not event.has("warning")]
    ended = [event for event in own if event.signature.id != "smi-not-found"]  # who asks in passing goes on
    waited: Event | None = None  # the first report of somebody else's failure that was not explained
    for event in events:
        if event.role is not Role.ROOT:
            yield event
            continue
        mine = event.line.process
        if event.has("order") and (stuck or (waited is not None and not _surely_before(event, waited))):
            yield replace(event, role=Role.CASCADE)
            continue
        poisoned = mine in stuck and event.has("cuda") and not event.has("device")
        if poisoned or (
            event.has("late")
            and any(_before(root, event) for root in (ended if OF_TESTS.search(event.signature.id) else own))
        ):
            yield replace(event, role=Role.CASCADE)
            continue
        if event.has("sticky"):
            stuck.add(mine)
        if event.has("late") and event.category not in INNOCENT:
            waited = waited or event
        yield event


def _before(root: Event, late: Event) -> bool:
    """Whether ``root`` can be what ``late`` reports."""
    return _surely_before(root, late) if root.has("order") else _not_after(root, late)


def _surely_before(order: Event, late: Event) -> bool:
    """Whether an order to end came before ``late``, as far as times or the places in one file tell."""
    if order.line.file == late.line.file:
        return order.line.number < late.line.number
    return _not_after(order, late)


def _not_after(root: Event, late: Event) -> bool:
    """Whether ``root`` can have caused ``late``: it is not known to have happened after it."""
    if root.line.clock == late.line.clock and root.line.time_s is not None and late.line.time_s is not None:
        return root.line.time_s <= late.line.time_s
    if root.line.file == late.line.file and root.line.process == late.line.process:
        return root.line.number < late.line.number
    return True
