"""What a process survived: an error after which it went on with its work, tried again, or ended as it was meant to.

A file is read from its end for this: what a process survived late it was there to survive, so that is no end of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile

from envkit.logs.again import AWAITED, MET, OVERCOME, STARTED, STEPS_OVER, TRIES
from envkit.logs.codes import exception_causes
from envkit.logs.ends import (
    ANYHOW,
    CLOSES,
    EXIT_0,
    ILL,
    INNOCENT,
    OF_TESTS,
    PARTS,
    SAYS,
    SERVES,
    STATUS_0,
    STEADY,
    STEPS,
    TRACKER,
    bad_end,
    bad_words,
    chain_of,
    holds,
    in_passing,
    is_caught,
    is_output,
    is_reported,
    leads,
    same_process,
    service,
    stays,
    tag_of,
    trace_of,
)
from envkit.logs.goes_on import (
    answered_on,
    answers_behind,
    begun_again,
    carried_on,
    concluded,
    did_without,
    died_later,
    done_later,
    draws_on,
    ends_badly,
    ends_process,
    extent,
    is_noted,
    is_of_failed_test,
    is_resolved,
    is_row,
    of_kill,
    open_end,
    passes_items,
    replaced_by,
    served_later,
    session_went_on,
    taken_over,
    went_on_as_before,
    works_anew,
)
from envkit.logs.outcome import GoodEnd, falls_short, good_end, is_short, left_failed
from envkit.logs.records import Event, FileSeen, Line, Role, Traceback
from envkit.logs.steady import tells_step
from envkit.records import replace

_NUMBERS = re.compile(r"\d+(?:\.\d+)?")
# of the program's own: not indented, and no word of an error, of a warning or of a table's border
_PLAIN = re.compile(
    r"(?=\w)(?=.{0,200}[a-z]{2}.{0,80}\d|.{0,300}\d.{0,80}[a-z]{2})(?!.{0,400}(?i:error|fail|warn|exception|traceback|abort|killed|signal|nccl))"
)
_OF_GPU = re.compile(r"(?i)cuda|\bgpu|nccl|cudnn|cublas|(?<!left on )device|driver|nvidia|\bhip\b|triton|kernel|memory")
# the words of a check of arguments, which a library makes before it asks the GPU for anything
_CHECKED = re.compile(
    r"\b[Oo]nly (?:supports?|accepts?|works? (?:with|for|on))\b|\bmust (?:be|have|match)\b|\bshould (?:be|have)\b"
    r"|\bbut (?:got|found|received|was|is)\b|\b[Ee]xpected\b.{0,200}\bgot\b|\brequires?\b.{0,200}, got\b"
    r"|\b[Oo]nly\b.{3,90}\b(?:is|are) (?:supported|allowed|implemented)\b"
    r"|\b(?:shapes?|dimensions?)\b.{0,200}\(\d{0,9},"
    r"|\bis not (?:implemented|supported) for ['\"]|\b[Uu]nsupported (?:dtype|data ?type|shape|layout|input)"
)
_OF_THE_GPU = re.compile(
    r"(?i)compute.capab|\bsm_?\d|\b(?:ampere|hopper|turing|volta|blackwell|ada)\b|\bgpus?\b|driver|architecture|\bmemory\b"
    r"|\bcuda (?:version|runtime|toolkit)|CUDA error|_STATUS_|cudaError|CUDA_ERROR"
)
# kinds that are told of by engines, compilers and the kernel, which end with them and go on to say what to read
_OF_TOOLS = (
    *("docker", "nvidia-container", "selinux", "cgroup", "xid", "sxid", "ecc", "nvcc", "unsupported-gnu"),
    *("driver-library", "forward-compat", "cuda-init-error-802", "segfault", "watchdog"),
)
_INSTALLED = re.compile(r"Successfully installed \S")
_WELL = re.compile(
    r"(?i)\b(?:ok|done|passed|succeeded|success|completed?|finished|exit(?:ed)?(?: with)?(?: code)?:? 0)[.!]?$"
    r"|\bcompleted exit code 0\b|\b(?:finished|succeeded|completed) (?:in|after|successfully)\b"
)
# what a run says last that ended well, or a search that settled on something
_GOOD_END = re.compile(
    r"(?i)\b(?:finished|succeeded|completed|complete(?=[.!]?$)|successful(?:ly)?|saved|exported|written|wrote|uploaded|published"
    r"|recovered|verified|done|passed|converged|rolled out|encoded|rendered)\b"
    rf"|{STATUS_0}"
    r"|\b0 (?:failed|failures|errors)\b|\b(?:best|largest|selected|chosen|settled on)\b"
)
_LEVEL = re.compile(r"(?:WARN(?:ING)?|INFO|NOTICE)\b")
_LEAD = 12  # characters with which lines of steady progress begin
_THROWN = re.compile(
    r"(?:(?:[A-Za-z]\w{0,40}\.){2,12}[A-Za-z]{0,60}(?:Error|Exception)|Error): "
)  # of Java, .NET, Node
_RAISED = re.compile(r"[\w.]{1,100}(?:Error|Exception)\b")
_SHUTS = re.compile(r"(?i)\bshut(?:ting)?[ -]?down\b")
_FUNCTION = re.compile(r"[a-z]\w{0,60}_\w{1,60}: ")  # of C or C++, which is nobody's name
# a shell's status of a missing command
_NOT_FOUND = re.compile(r"(?i)\b(?:exit\w{0,2}|error|status|code)\b.{0,20}\b127\b")
_WORKS = 5  # lines
_BROKEN_AT, _BROKEN_BELOW = 60, 140  # characters of a line that was broken there
# the first of a table, but for what Kubernetes tells of a Pod
_COLUMN = re.compile(
    r"(?!.{0,60}\b(?:Warning|Normal) {2,}|\s{0,16}(?:Message|Reason|Error|Exit Code):)"
    r"\s{0,8}(?:[\w.:/-]{1,40} {2,}|\d{1,9}\|)(?=\S)"
)
_OF_TREE = re.compile(
    r"\s{0,8}[\u2502 ]{0,40}[\u251c\u2514\u2570]\S{0,3}\s?[\u2716\u2717\u2718x]"
)  # what failed in a tree of steps
_ROW = re.compile(r"\s{0,8}\d{1,9} {2,}\S")  # of a table that a program prints
_GOES_WITH = re.compile(r"(?:\t+| +)(?! )(?![-*] )")  # lines that are indented below another, and no list
_MESSAGE = 5  # lines of a message, behind its first, in which it says what was met
_JAVA_THREAD = re.compile(r"Exception in thread \"(?!main\")[^\"]{1,200}\" [\w.$]{3,200}")
_UNPLACED = re.compile(
    r"\bFailedScheduling\b|\b\d{1,6}/\d{1,6} nodes are available\b|\bFailed(?:Mount|AttachVolume|CreatePodSandBox)\b"
    r"|\b(?:Err)?Image\w{0,4}Pull|\bFailed to pull image\b"
)
_POD = re.compile(r"\bpod/([a-z\d.-]{1,200})")
_STARTED = re.compile(r"\bStarted container\b")
_PANICKED = re.compile(r"thread '.{0,80}' (?:\(\d{1,10}\) )?panicked at \S")  # of Rust
_FATAL = re.compile(r"(?i)\W{0,4}fatal error\b")  # what the line below it says more of
_HEADS = re.compile(r"(?i)(?:\w{1,20} ){0,3}(?:error|stderr|failure|cause|reason|caused by):\s?$")
"""A heading of who manages a part that failed, above what the part said."""
_SUMMARY = re.compile(r"[A-Z]\w{1,60}Error:\s?$")  # an error whose words stand below its name, as Paddle writes it
_ANY = ("RuntimeError", "Exception", "SystemError", "InternalError", "OSError")
_PASSES_ON = re.compile(
    r"(?i)\bfail|\berror|\bcould not|\bcannot|\bunable|\bdied\b|\bcrash|\babort|\bsee \S{0,20} ?above"
)
_OF_PARTS = re.compile(
    r"(?i)\b(?:trials?|tasks?|jobs?|workers?|actors?|stages?|steps?|runs?|process(?:es)?)\b.{0,60}"
    r"\b(?:did not (?:complete|finish|succeed)|failed|died)\b"
)
STUMBLES = frozenset(["AttributeError", "TypeError", "IndexError", "UnboundLocalError", "NameError", "KeyError"])
"""Exceptions of a program that was handed nothing, where it expected something."""


@dataclass
class _End:
    """What is left of a file, read from its end: what a process survived late it was there to survive, so that is no
    end of it either."""

    seen: FileSeen
    events: list[Event]
    traces: list[Traceback]
    survived: list[Event] = field(default_factory=list)
    passed: list[Traceback] = field(default_factory=list)
    gone: list[Traceback] = field(default_factory=list)
    good: GoodEnd | None = None

    def look(self) -> None:
        """Sort out what the process went on after."""
        # the reader keeps one line of those that are equal: of a traceback that came again it is the event too
        known = {event.line.text: event for event in self.events if event.role is Role.ROOT}
        again = [
            replace(known[trace.line.text], line=trace.line)
            for trace in self.traces
            if trace.line.text in known and trace.line.number > known[trace.line.text].line.number
        ]
        self.events += again
        whole = self.seen
        self.good = end = self._good_end()
        for event in sorted(self.events, key=lambda each: -each.line.number):
            told = is_tabled(event, whole) or any(holds(trace, event.line) for trace in self.gone)
            told = told or (end is not None and self._is_outlived_by(end, event))
            told = told or done_later(event, self.traces, whole) or answered_on(event, self.traces, whole)
            told = told or self._was_said_again(event)
            if told or (not self._passed_on(event) and _survived(event, self.events, self.traces, self.seen)):
                self.events.remove(event)
                self._leave([trace for trace in self.traces if holds(trace, event.line)], event.line.number)
                if event not in again:
                    self.survived.append(event)
        kept = {event.line.text for event in self.events if event not in again}
        self.events = [event for event in self.events if event not in again or event.line.text not in kept]
        loud = [event.line for event in self.events if event.role is Role.ROOT]
        for trace in sorted(self.traces, key=lambda each: -each.line.number):
            if trace not in self.traces:
                continue
            mine = chain_of(trace, self.traces)
            own = any(holds(each, line) for each in mine for line in loud)
            if own:
                continue
            tried = _is_introduced(mine[0], self.seen) or _is_tried_again(mine[0], trace, self.seen)
            where = (trace.line, mine[0].first, self.events, self.traces, self.seen)
            caught = is_caught(mine[0]) and ends_well(*where)
            open_ = not ends_process(mine[0], self.seen)
            caught = caught or (open_ and any(asked(*where) for asked in (carried_on, draws_on, passes_items)))
            caught = caught or taken_over(*where)
            caught = caught or begun_again(*where)
            caught = caught or (is_noted(mine[0], whole) and answers_behind(trace.line, whole, noted=True, caught=True))
            if (
                (end is not None and end.speaks_for(trace.line) and _may_be(end, mine[0], trace, self.seen))
                or caught
                or (tried and _worked_past(trace, self.traces, self.seen, loud))
                or (not loud and works_again(trace.line.number, service(trace.line), self.traces, self.seen))
            ):
                self.passed += mine
                self._leave(mine)

    def _good_end(self) -> GoodEnd | None:
        """Where the whole is told to have ended well, with nothing below it that ends anything."""
        end = good_end(self.seen)
        if end is None or any(trace.line.number >= end.line.number for trace in self.traces):
            return None
        later = (event for event in self.events if event.line.number >= end.line.number)
        return None if any(event.role is Role.ROOT and not event.has("warning") for event in later) else end

    def _is_outlived_by(self, end: GoodEnd, event: Event) -> bool:
        """Whether an error stands above a good end of the whole: of one that stays with its process only a count
        counts."""
        if not end.speaks_for(event.line) or event.role not in (Role.ROOT, Role.CASCADE) or event.has("order"):
            return False
        own = trace_of(event.line, self.traces)
        if own is not None and not _may_be(end, chain_of(own, self.traces)[0], own, self.seen):
            return False
        row = _OF_TREE.match(event.line.text) is not None
        return end.counted or row or not (stays(event) or event.line.source == "kernel")

    def _was_said_again(self, event: Event) -> bool:
        """Whether who reports an error reported it again, and survived that: so it did the first time."""
        said = (_shape(event.line.text), event.line.process)
        again = any((_shape(each.line.text), each.line.process) == said for each in self.survived)
        return again and event.line.source != "kernel" and trace_of(event.line, self.traces) is None

    def spoke(self) -> bool:
        """Whether nothing is left to tell of, and something was told before the good end."""
        left = self.traces or any(event.role is Role.ROOT for event in self.events)
        told = self.good is not None and any(map(self.good.speaks_for, self.seen.loud))
        return not left and (told or bool(self.survived) or bool(self.passed))

    def _passed_on(self, event: Event) -> bool:
        """Whether another exception was raised out of the one that an event is of: that one counts."""
        return any(
            holds(each, event.line)
            for trace in self.traces
            if trace.within and trace.first.number > event.line.number
            for each in chain_of(trace, self.traces)[:-1]
        )

    def _leave(self, traces: Sequence[Traceback], number: int = 0) -> None:
        """Take tracebacks out with those that they were raised out of, their lines and what introduces them; and the
        line of a number."""
        traces = [each for trace in traces for each in chain_of(trace, self.traces)]
        self.traces = [each for each in self.traces if each not in traces]
        self.gone += traces
        head, tail, near = (
            tuple(
                line
                for line in part
                if line.number != number and not any(holds(trace, line) or leads(line, trace) for trace in traces)
            )
            for part in (self.seen.head, self.seen.tail, self.seen.near)
        )
        self.seen = replace(without(self.seen, traces, number), head=head, tail=tail, near=near)


def _may_be(end: GoodEnd, first: Traceback, last: Traceback, seen: FileSeen) -> bool:
    """Whether a good end may be told of what met an exception: behind one that nobody caught something is done first,
    as a shell says "done" whatever came before."""
    if end.counted or is_caught(first):
        return True
    between = {each.number: each.text for each in seen.kept if last.line.number < each.number < end.line.number}
    worked = sum(re.match(r"(?!\+ ).*\w", text) is not None and not bad_words(text) for text in between.values())
    return worked >= STEPS or any(AWAITED.search(text) for text in between.values())


def read_backwards(
    told: Iterable[Event], traced: Iterable[Traceback], seen: Mapping[str, FileSeen]
) -> tuple[list[Event], list[Event], list[Traceback], list[Traceback], dict[str, GoodEnd]]:
    """The events that ended something, those that were survived, and the same of tracebacks; of each file that ends
    well the line that says so."""
    ends = {name: _End(file, [], []) for name, file in seen.items()}
    for event in told:
        ends[event.line.file].events.append(event)
    for trace in traced:
        ends[trace.line.file].traces.append(trace)
    for end in ends.values():
        end.look()
    return (
        [event for end in ends.values() for event in end.events],
        [event for end in ends.values() for event in end.survived],
        [trace for end in ends.values() for trace in end.traces],
        [trace for end in ends.values() for trace in end.passed],
        {name: end.good for name, end in ends.items() if end.good is not None and end.spoke()},
    )


def _worked_past(trace: Traceback, traces: Sequence[Traceback], seen: FileSeen, loud: Iterable[Line]) -> bool:
    """Whether the process of a traceback that the program itself printed went on working, and nothing else ended it."""
    if any(other.first.number > trace.line.number for other in traces):
        return False
    if any(line.number > trace.line.number for line in loud):
        return False
    lines = {line.number: line for line in seen.kept if same_process(line, trace.line)}
    before = any(n < trace.first.number - 1 and is_output(line) for n, line in lines.items())
    after = [line for n, line in lines.items() if n > trace.line.number and not _GOES_WITH.match(line.text)]
    if any(ILL.search(line.text) or bad_end(line) for line in after):
        return False
    return len([line for line in after if is_output(line)]) >= (1 if before else STEPS)


def _is_introduced(trace: Traceback, seen: FileSeen) -> bool:
    """Whether a line of the program's own says what the traceback below it is."""
    return any(leads(line, trace) and same_process(line, trace.first) for line in seen.kept)


def _is_tried_again(first: Traceback, last: Traceback, seen: FileSeen) -> bool:
    """Whether the program, which had printed something before, says just behind a traceback what it does about it."""
    lines = [line for line in seen.kept if same_process(line, first.first)]
    after = [line for line in lines if 0 < line.number - last.line.number <= SAYS and is_output(line)]
    before = any(line.number < first.first.number and is_output(line) for line in lines)
    return before and any(TRIES.search(line.text) for line in after)


def _stepped_on(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether the process that met an error went on: it says so or made steps after it, and what ended it, if anything,
    is an exception that no rule knows; whatever a launcher or another process says of a failure leaves it open."""
    lasting = event.role is not Role.ROOT or (event.category in INNOCENT and not _only_noted(event.line))
    if lasting or any(event.has(trait) for trait in ("late", "warning")):
        return False
    own = trace_of(event.line, traces)
    if own is not None and ends_process(chain_of(own, traces)[0], seen):
        return False
    at = event.line.number
    after = {line.number: line for line in (*seen.head, *seen.tail) if line.number > at}
    if any(line.level == "fatal" or _SHUTS.search(line.text) for line in after.values()):
        return False
    said = max((n for n, line in after.items() if line.text == event.line.text), default=at)
    steps = [n for n in went_on(event.line, seen, traces) if n > said]
    again = bool(steps) and not tells_step(after[steps[0]].text) and len(after) > STEPS
    if len(steps) < (0 if STEPS_OVER.search(event.line.text) else 1 if again else STEPS):
        return False
    later = [trace for trace in traces if trace.line.file == seen.name and trace.first.number > at]
    if not later:
        if seen.tail and seen.tail[-1].number > at and bad_end(seen.tail[-1]) and not _COLUMN.match(seen.tail[-1].text):
            return False
        loud = (line for line in seen.loud if line.number > at)
        return not any(ILL.search(line.text) for line in (*after.values(), *loud)) and not any(
            other.role is Role.ROOT and other.line.number > max([at, *steps])
            for other in events
            if other.line.file == seen.name
        )
    ends = next((each for each in later if each.line.process == event.line.process and each.kind), None)
    if ends is None or (steps and ends.first.number < steps[:STEPS][-1]):
        return False
    return not any(other.category not in INNOCENT and holds(ends, other.line) for other in events)


def _survived(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether the process that met an error did not end by it.

    Nothing that follows shows this of an error that stays with its process: only who waited for it says so.
    """
    if _fell_silent(event.line, seen) or falls_short(seen) or left_failed(event.line, seen):
        return False
    if OF_TESTS.search(event.signature.id):
        return False
    if is_of_failed_test(event.line, seen):
        return False
    badly = ends_badly(event, events, seen)
    if _is_last_word(event.line, traces, seen):
        return not badly and any(asked(event, events, traces, seen) for asked in (replaced_by, works_anew))
    if _overtaken(event, events, traces, seen) or _installed(event, seen) or _overcome(event, events, traces, seen):
        return True
    if _ended_so(event, seen) or _asked_in_passing(event, traces, seen) or is_resolved(event, events, traces, seen):
        return True
    if did_without(event, events, traces, seen):
        return True
    if died_later(event, events, traces, seen) or _of_thread(event, seen) or _placed(event, seen):
        return True
    general = (session_went_on, went_on_as_before, is_row, replaced_by, works_anew, open_end, served_later, concluded)
    if of_kill(event, events, traces, seen) or (
        not badly and any(asked(event, events, traces, seen) for asked in general)
    ):
        return True
    if stays(event) and event.line.level not in ("info", "debug"):
        return _handled(event, events, traces, seen)
    ways = (_started_again, _stepped_on, _outlived, _handled, _met, _child_outlived, _ended_well)
    return any(asked(event, events, traces, seen) for asked in ways)


def _of_thread(event: Event, seen: FileSeen) -> bool:
    """Whether an exception ended a thread of Java that is not its first, and the program wrote on.

    Source: OpenJDK, ThreadGroup.uncaughtException; the virtual machine ends with its last thread.
    """
    if event.role is not Role.ROOT or not _JAVA_THREAD.match(event.line.text):
        return False
    after = {line.number: line for line in seen.kept if line.number > event.line.number}
    rest = [line for _, line in sorted(after.items()) if not re.match(r"\s|Caused by: ", line.text)]
    bad = any(ILL.search(line.text) or bad_end(line) for line in rest)
    return not bad and any(is_output(line) and not CLOSES.search(line.text) for line in rest)


def _placed(event: Event, seen: FileSeen) -> bool:
    """Whether a Pod was started after all for which Kubernetes had no node, no volume or no image at first: it starts
    a container only when it has all of them."""
    if event.role is not Role.ROOT or not _UNPLACED.search(event.line.raw):
        return False
    pod = _POD.search(event.line.raw)
    later = (line for line in seen.kept if line.number > event.line.number and _STARTED.search(line.raw))
    return any((found := _POD.search(line.raw)) is None or pod is None or found[1] == pod[1] for line in later)


def _is_last_word(line: Line, traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether a line is what a runtime prints of the exception by which it ends a process or a thread: C++ behind
    "what():", Rust below the place where it panicked, Python below an exception whose first line ends with a colon."""
    if line.text.lstrip().startswith("what():"):
        return True
    above = [trace for trace in traces if _words_below(trace, line)]
    if any(not (is_caught(first) or is_reported(first, seen)) for first in (chain_of(x, traces)[0] for x in above)):
        return True
    return any(each.number == line.number - 1 and _PANICKED.match(each.text) for each in seen.kept)


def _words_below(trace: Traceback, line: Line) -> bool:
    """Whether a line is of the message of an exception whose first line only introduces it."""
    return 0 < line.number - trace.line.number <= _MESSAGE and trace.line.text.rstrip().endswith(":")


def _child_outlived(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether who speaks before a traceback, behind a name in brackets, speaks on after it of its work to the end."""
    own = trace_of(event.line, traces)
    if event.role is not Role.ROOT or own is None or own.first.level:
        return False
    at = own.line.number
    lines = {line.number: line for line in (*seen.head, *seen.tail)}
    before = {tag_of(line.text) for n, line in lines.items() if n < own.first.number} - {""}
    after = [line for n, line in sorted(lines.items()) if n > at]
    roots = (other.line.number for other in events if other.role is Role.ROOT and other.line.file == seen.name)
    if any(n > at for n in roots) or any(trace.first.number > at for trace in traces):
        return False
    if any(ILL.search(line.text) or bad_end(line) or CLOSES.search(line.text) for line in after):
        return False
    mine = [line for line in after if is_output(line) and tag_of(line.text)]
    return len(mine) > STEPS and any(tag_of(line.text) in before and line.text[:1] == "[" for line in mine)


def _ended_well(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether the log of an error goes on to a good end of the run that met it, and nothing after it ends that."""
    if event.role not in (Role.ROOT, Role.CASCADE) or event.line.source == "kernel":
        return False
    if event.has("order") or (event.has("late") and event.category in INNOCENT):  # who was asked to end may end well
        return False
    own = trace_of(event.line, traces)
    if own is not None and not (is_caught(chain_of(own, traces)[0]) or _is_answered(own, seen)):
        return False
    last, first = extent(event.line, own, traces)
    behind = takewhile(lambda other: other.line.number > last.number, reversed(events))
    after = (other for other in behind if other is not event and other.line.file == seen.name)
    if any(other.role is Role.ROOT and not other.has("warning") for other in after):
        return False  # which most often one look at the last of very many tells
    return ends_well(last, first, (other for other in events if other is not event), traces, seen)


def _is_answered(trace: Traceback, seen: FileSeen) -> bool:
    """Whether the line behind a traceback, of the same process and with a level that a logger gave it, says what is
    done about it: behind one that nobody caught a Python says nothing more of its work."""
    behind = (each for each in seen.kept if each.number == trace.line.number + 1)
    said = next(behind, None)
    if said is None or not (said.level or _LEVEL.match(said.text)) or not same_process(said, trace.line):
        return False
    return MET.search(said.text) is not None


def ends_well(line: Line, first: Line, events: Iterable[Event], traces: Iterable[Traceback], seen: FileSeen) -> bool:
    """Whether what was said from the line ``first`` to ``line`` is followed by a good end: last words of success, a
    service that is up, or steady progress, of the same process or of who watches it, and by nothing bad."""
    if any(trace.line.file == seen.name and trace.first.number > line.number for trace in traces):
        return False
    events = [other for other in events if other.line.file == seen.name and other.line.number > line.number]
    ends = [other for other in events if not other.has("warning")]
    if any(other.role is Role.ROOT or (other.role is Role.CASCADE and other.category == "insufficient-evidence")
           for other in ends):  # fmt: skip
        return False
    lines = {each.number: each for each in seen.kept}
    last = max([line.number, *(n for n, each in lines.items() if each.text == line.text)])
    warned = {other.line.number for other in events if other.has("warning")}
    after = [each for n, each in sorted(lines.items()) if n > last]
    started = max((each.number for each in after if STARTED.search(each.text)), default=0)
    for at, each in enumerate(after, 1):
        if each.number <= started or each.number in warned or EXIT_0.search(each.text):
            continue
        if in_passing(each, len(after) - at):
            continue
        if ILL.search(each.text) or bad_end(each) or _SHUTS.search(each.text):
            return False
    said = [replace(each, text=each.text.lstrip()) if each.level else each for each in after]
    # where a log has but one rank, lines without it are of that one too
    alone = len({each.rank for each in lines.values()} - {None}) < 2
    mine = [replace(each, rank=line.rank) if alone else each for each in said]
    mine = [each for each in mine if is_output(each) and same_process(each, line) and not TRACKER.match(each.text)]
    # what is printed to a pipe comes after what is printed to stderr, unless something of it came before
    before = any(n < first.number and is_output(each) for n, each in lines.items())
    if len(mine) < STEPS or not (before or line.level or not _RAISED.match(line.text)):
        return False
    whose = "" if _FUNCTION.match(line.text) or _RAISED.match(line.text) else tag_of(line.text)
    again = not whose or any(tag_of(each.text) == whose for each in mine)
    begun = {_NUMBERS.sub("0", each.text)[:_LEAD] for each in mine[-STEADY:]}
    steady = len(mine) > STEADY and (len(begun) == 1 or all(tells_step(each.text) for each in mine[-STEADY:]))
    serves = any(SERVES.search(each.text) for each in mine)
    good = any(
        _GOOD_END.search(each.text) and not ANYHOW.search(each.text) and not CLOSES.search(each.text)
        and (again or not tag_of(each.text))
        for each in mine[-STEADY:]
    )  # fmt: skip
    return good or (again and (steady or serves))


def _ended_so(event: Event, seen: FileSeen) -> bool:
    """Whether the last line of the same job or part of a run, by what it begins with, says that it ended well."""
    tag = tag_of(event.line.text)
    if event.role is not Role.ROOT or not tag or event.line.source == "kernel":
        return False
    mine = [line for line in (*seen.head, *seen.tail) if line.number > event.line.number and tag_of(line.text) == tag]
    if not mine or bad_end(mine[-1]) or is_short(mine[-1].text):
        return False
    return _WELL.search(mine[-1].text) is not None


def ended_badly_so(line: Line, seen: FileSeen) -> bool:
    """Whether the last line of the same job, shard or part of a run says that it did not end well."""
    tag = tag_of(line.text)
    mine = [each for each in (*seen.head, *seen.tail) if each.number > line.number and tag_of(each.text) == tag]
    return bool(tag and mine) and (bad_end(mine[-1]) or ILL.search(mine[-1].text) is not None)


def _fell_silent(line: Line, seen: FileSeen) -> bool:
    """Whether a job or worker in brackets says nothing more after a line, while its siblings go on without a word of
    it."""
    tag = tag_of(line.text)
    if tag[:1] != "[" or not re.search(r"\d", tag):
        return False
    after = [each.text for each in (*seen.head, *seen.tail) if each.number > line.number]
    tags = {tag_of(text) for text in after} - {""}
    kin = re.sub(r"\d+", "0", tag)
    siblings = tags and tag not in tags and all(re.sub(r"\d+", "0", each) == kin for each in tags)
    return bool(siblings) and not any(MET.search(text) for text in (line.text, *after))


def _asked_in_passing(event: Event, traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether a script only asked for nvidia-smi and went on without it."""
    if event.signature.id != "smi-not-found" or traces:
        return False
    lines = {line.number: line for line in (*seen.head, *seen.tail) if line.number > event.line.number}
    after = [line for _, line in sorted(lines.items()) if re.search(r"\w\w", line.text)]
    if not after or any(_NOT_FOUND.search(line.text) for line in after):
        return False
    return is_output(after[0]) and not ILL.search(after[0].text) and not bad_end(after[0])


def _installed(event: Event, seen: FileSeen) -> bool:
    """Whether pip told of packages that do not fit what it installs, and then installed it all the same."""
    if event.signature.id != "resolve-requires":
        return False
    lines = {line.number: line for line in seen.kept}
    return any(n > event.line.number and _INSTALLED.match(line.text) for n, line in lines.items())


def _overcome(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether what has nothing to do with the GPU was tried again or done otherwise."""
    if event.role is not Role.ROOT or event.category != "not-gpu-env" or event.line.source == "kernel":
        return False
    if event.has("late") or any(holds(trace, event.line) for trace in traces):
        return False
    return overcome(event.line, events, traces, seen, event.signature.id)


def overcome(
    line: Line, events: Iterable[Event], traces: Iterable[Traceback], seen: FileSeen, signature: str = ""
) -> bool:
    """Whether the next lines say that an error was met by a wait, another try or another way, and the log goes on after
    the last such one to an end that tells of nothing else."""
    after = {each.number: each for each in seen.kept if each.number > line.number}
    near = {line.number: line} | {n: each for n, each in after.items() if n <= line.number + SAYS}
    met = next((n for n in sorted(near) if OVERCOME.search(near[n].text)), None)
    if met is None or any(trace.first.number > line.number for trace in traces if trace.line.file == seen.name):
        return False
    roots = [other for other in events if other.role is Role.ROOT and other.line.number > line.number]
    if any(other.line.file == seen.name and other.signature.id != signature for other in roots):
        return False
    last = max([met, *(other.line.number for other in roots)])
    # of lines that are equal the reader makes one event
    rest = [each for n, each in sorted(after.items()) if n > last and _shape(each.text) != _shape(line.text)]
    rest = [each for each in rest if not OVERCOME.search(each.text)]
    bad = any(ILL.search(each.text) or bad_end(each) for each in rest)
    return bool(rest) and not bad and is_output(rest[-1])


def _started_again(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether a supervisor started the program of an error again and it then worked to the end of the log, or the
    service of it ended with 0."""
    if event.role is not Role.ROOT or event.line.source == "kernel" or event.category.startswith(_OF_TOOLS):
        return False
    own = trace_of(event.line, traces)
    at = event.line.number if own is None else own.line.number
    return works_again(at, service(event.line), traces, seen, (each for each in events if each is not event))


def works_again(at: int, name: str, traces: Sequence[Traceback], seen: FileSeen, events: Iterable[Event] = ()) -> bool:
    """Whether what ended at a line, of the service of that name, was started again and worked, or ended with 0."""
    lines = {line.number: line for line in seen.kept if line.number > at}
    if name and any(re.match(rf"{re.escape(name)} exited with code 0$", line.text) for line in lines.values()):
        return True
    again = next((n for n in sorted(lines) if n <= at + SAYS and STARTED.search(lines[n].text)), None)
    if again is None or any(trace.first.number > at for trace in traces):
        return False
    if any(other.role is Role.ROOT and other.line.number > at for other in events):
        return False
    after = [line for n, line in lines.items() if n > again]
    return sum(map(is_output, after)) >= _WORKS and not any(ILL.search(x.text) or bad_end(x) for x in after)


def _overtaken(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether the program printed of its work after an error, and then ended by an exception that is its own alone."""
    if event.role is not Role.ROOT or event.category in INNOCENT or event.has("late"):
        return False
    if event.line.source == "kernel" or event.category.startswith(_OF_TOOLS):
        return False
    own = trace_of(event.line, traces)
    at = event.line.number if own is None else own.line.number + own.message.count("\n")
    later = [trace for trace in traces if trace.line.file == seen.name and trace.first.number > at]
    if not later or not all(same_process(trace.line, event.line) for trace in later):
        return False
    ends = [later.pop()]
    while ends[0].within and later:
        ends.insert(0, later.pop())
    between = [line for line in (*seen.head, *seen.tail) if at < line.number < ends[0].first.number]
    inside = {n for trace in later for n in range(trace.first.number, trace.line.number + 1)}
    worked = any(
        same_process(line, event.line) and is_output(line) and line.number not in inside and not bad_words(line.text)
        for line in between
    )
    worked = worked or (own is None and _ROW.match(event.line.text) is not None)
    return worked and not any(map(_stumbles, ends)) and _unrelated(ends, event, events)


def _stumbles(trace: Traceback) -> bool:
    """Whether an exception tells that something is missing that the program was to have by then."""
    name = trace.kind.rpartition(".")[2]
    return name in ("UnboundLocalError", "IndexError") or "NoneType" in trace.message


def _handled(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether the program says of an error that it met it, or waited for it, and then ends without another one."""
    if event.role is not Role.ROOT or event.category in INNOCENT or event.has("late"):
        return False
    if event.line.source == "kernel" or event.category.startswith(_OF_TOOLS):
        return False
    trace = next((each for each in traces if holds(each, event.line)), None)
    begin, end = (event.line.number,) * 2 if trace is None else (trace.first.number, trace.line.number)
    lines = {line.number: line for line in seen.kept}
    mine = {n: line for n, line in lines.items() if same_process(line, event.line)}
    said = [line for n, line in mine.items() if begin - SAYS <= n < begin or end < n <= end + SAYS]
    lone = [event.line] if trace is None else []
    met = AWAITED if stays(event) else MET
    if not any(met.search(line.text) for line in (*lone, *said)):
        return False
    if any(other.first.number > end for other in traces if other.line.file == seen.name):
        return False
    after = [line for n, line in sorted(lines.items()) if n > end]
    bad = any(ILL.search(line.text) or (bad_words(line.text) and not MET.search(line.text)) for line in after)
    return bool(after) and not bad


def _outlived(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether a line that stands by itself, or in a traceback that a logger wrote, is not where its process ended: an
    exception that the line does not explain did that, or lines follow that speak of nothing but work."""
    noted = event.category not in INNOCENT or _only_noted(event.line)
    if event.role is not Role.ROOT or not noted or event.has("late"):
        return False
    if event.line.source == "kernel" or event.category.startswith(_OF_TOOLS):
        return False
    own = trace_of(event.line, traces)
    if own is not None and not is_reported(chain_of(own, traces)[0], seen):
        return False
    at = event.line.number if own is None else own.line.number
    later = [trace for trace in traces if trace.line.file == seen.name and trace.first.number > at]
    if later:
        told = event.line.level.lower() in ("info", "debug")  # what failed for want of something says more of it
        stumbled = any(
            _stumbles(trace) if told else trace.kind.rpartition(".")[2] in STUMBLES and not is_check(trace.message)
            for trace in later
        )
        return not stumbled and _unrelated(later, event, events)
    lines = {line.number: line for line in seen.kept}
    lines = {number: line for number, line in lines.items() if same_process(line, event.line)}
    above = lines.get(event.line.number - 1)
    if above is not None and (_FATAL.match(above.text) or (_HEADS.match(above.text) and event.line.text[:1].isspace())):
        return False
    if any(n in lines and _SUMMARY.match(lines[n].text) for n in range(event.line.number - SAYS, event.line.number)):
        return False
    beside = _rest_of(event.line, lines)
    said = words(own).splitlines()[1:] if own is not None else ()
    after = {
        number: line
        for number, line in lines.items()
        if number > at
        and number not in beside
        and line.text not in said
        and not _GOES_WITH.match(line.text)
        and not TRACKER.match(line.text)
    }
    # what is printed to a pipe comes after what is printed to stderr, unless something of it came before
    first = not _only_noted(event.line) and not any(number < at and is_output(line) for number, line in lines.items())
    thrown = not event.line.level and _THROWN.match(event.line.text)
    least = STEPS if first or thrown or own is not None else 1
    install = event.signature.id.startswith("install-")
    works = [
        each
        for each in after.values()
        if not (any(told.search(each.text) for told in (CLOSES, ANYHOW, _SHUTS)) or PARTS.match(each.text))
    ]
    if install or (first and not event.has("warning")) or len(after) < least or not works:
        return False
    if own is not None and not any(map(is_output, works)):
        return False  # who only complains further does no work
    roots = (other for other in events if other.role is Role.ROOT and other.line.number > at and other is not event)
    if any(other.line.file == seen.name and other.signature.id != event.signature.id for other in roots):
        return False
    if any(other.role is Role.CASCADE and other.category == "insufficient-evidence" and other.line.number > at
           for other in events):  # fmt: skip
        return False  # a wrapper tells that something failed
    return not any(ILL.search(line.text) or bad_end(line) for line in after.values())


def _met(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether a line says of the error itself what is done in its place, and what ended the program has no part in
    it."""
    if event.role is not Role.ROOT or event.category in INNOCENT or event.has("late"):
        return False
    if event.line.source == "kernel" or event.category.startswith(_OF_TOOLS) or not MET.search(event.line.text):
        return False
    if not traces or any(holds(trace, event.line) for trace in traces):
        return False
    return not any(map(_stumbles, traces)) and _unrelated(traces, event, events, anyone=True)


def is_tabled(event: Event, seen: FileSeen) -> bool:
    """Whether it stands in a column of a table that a program prints, with another row beside it."""
    row = _COLUMN.match(event.line.text)
    if row is None or event.line.source == "kernel" or event.line.logged:
        return False
    beside = (line for line in (*seen.head, *seen.tail) if abs(line.number - event.line.number) == 1)
    return any((other := _COLUMN.match(line.text)) is not None and other.end() == row.end() for line in beside)


def _rest_of(line: Line, lines: Mapping[int, Line]) -> set[int]:
    """The numbers of the lines into which a terminal or mail broke the rest of a long line."""
    rest: set[int] = set()
    while (
        (after := lines.get(line.number + 1)) is not None
        and _BROKEN_AT <= len(line.body) <= _BROKEN_BELOW
        and after.body == after.text
        and (re.match(r"(?!\w{1,60}: )[a-z\d`'(]", after.text) or line.body.rstrip().endswith(":"))
        and not line.body.endswith((".", "!", "?", ";"))
    ):
        rest.add(after.number)
        line = after
    return rest


def _unrelated(later: Sequence[Traceback], event: Event, events: Sequence[Event], *, anyone: bool = False) -> bool:
    """Whether exceptions that came after an error are of the program alone, and none passes on what another met;
    with ``anyone`` those of other processes of its too."""
    mine = [trace for trace in later if trace.kind and (anyone or same_process(trace.line, event.line))]
    if len(mine) < len(later):
        return False
    # what an exception passes on of another process, or of a child, is the last that was told before it
    own = [other.line.number for other in events if other.category == "not-gpu-env" and other.role is Role.ROOT]
    rest = [trace for trace in mine if not any(event.line.number < n < trace.first.number for n in own)]
    names = [trace.kind.rpartition(".")[2] for trace in rest]
    if any(name == "AssertionError" or exception_causes().get(name) == "" for name in names):
        return False
    if any(name in _ANY and _PASSES_ON.search(trace.message) for name, trace in zip(names, rest, strict=True)):
        return False
    if any(_OF_PARTS.search(trace.message) for trace in rest):
        return False
    said = any(_OF_GPU.search(f"{trace.kind} {trace.message}") and not is_check(trace.message) for trace in mine)
    return not said and not any(
        other.category not in INNOCENT and (holds(trace, other.line) or _words_below(trace, other.line))
        for trace in mine
        for other in events
    )


def noted_again(events: Sequence[Event], survived: Sequence[Event]) -> list[Event]:
    """What a logger noted once more, having been survived before, and what NCCL informed of, in a log that tells of
    no other failure."""
    known = {(event.signature.id, event.line.process) for event in survived}
    roots = [event for event in events if event.role is Role.ROOT and event not in survived]
    informed = all("NCCL INFO" in event.line.text for event in roots)
    return [
        event
        for event in roots
        if informed or ((event.signature.id, event.line.process) in known and _only_noted(event.line))
    ]


def went_on(line: Line, seen: FileSeen, traces: Iterable[Traceback] = ()) -> list[int]:
    """The numbers of the lines behind ``line`` by which its process shows that it went on with its work: steps, and
    lines such as it printed before, but for their numbers."""
    mine = {each.number: each for each in (*seen.head, *seen.tail) if each.process == line.process}
    within = [(trace.first.number, trace.line.number) for trace in traces if trace.line.file == seen.name]
    mine = {n: each for n, each in mine.items() if not any(first <= n <= last for first, last in within)}
    before = {_shape(each.text) for n, each in mine.items() if n < line.number and _is_plain(each.text)}
    before.discard(_shape(line.text))
    return [n for n in sorted(mine) if n > line.number and (tells_step(mine[n].text) or _shape(mine[n].text) in before)]


@lru_cache(1 << 12)
def _is_plain(text: str) -> bool:
    return _PLAIN.match(text) is not None


@lru_cache(1 << 12)
def _shape(text: str) -> str:
    """A line but for its numbers."""
    return _NUMBERS.sub("0", text)


def words(trace: Traceback) -> str:
    """The exception's message without the lines that other programs wrote below it.

    More of it is what is indented, and what follows a colon, as the inner error of a compiler does.
    """
    lines = trace.message.splitlines()
    kept = lines[:1]
    for line in lines[1:]:
        if not line[:1].isspace() and not kept[-1].rstrip().endswith((":", "(")):
            break
        kept.append(line)
    return "\n".join(kept)


def is_check(message: str) -> bool:
    """Whether a library refused an argument, and not the GPU or its driver."""
    return bool(_CHECKED.search(message)) and not _OF_THE_GPU.search(message)


def _only_noted(line: Line) -> bool:
    """Whether a logger noted it as something that does not end the program."""
    return line.level.lower() in ("info", "debug", "notice", "warn", "warning")


def without(seen: FileSeen, traces: Sequence[Traceback], number: int = 0) -> FileSeen:
    """The file without the loud lines of these tracebacks, those that introduce them, and the one of a number."""
    mine = [trace for trace in traces if trace.line.file == seen.name]
    if not mine and not number:
        return seen
    kept = (
        line
        for line in seen.loud
        if line.number != number and not any(holds(trace, line) or leads(line, trace) for trace in mine)
    )
    return replace(seen, loud=tuple(kept))


def without_complaints(seen: FileSeen, end: GoodEnd) -> FileSeen:
    """The file without what complains above a good end that speaks for it."""

    def kept(part: Iterable[Line]) -> tuple[Line, ...]:
        return tuple(x for x in part if not (ILL.search(x.text) or bad_words(x.text)) or not end.speaks_for(x))

    loud = tuple(line for line in seen.loud if not end.speaks_for(line))
    return replace(seen, head=kept(seen.head), tail=kept(seen.tail), near=kept(seen.near), loud=loud)
