"""Who met an error goes on: as before, in another process, at a prompt, or so long that nothing says it ended."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from envkit.logs.again import AGAIN, MET, RESOLVED
from envkit.logs.ends import (
    ANYHOW,
    ASKED,
    CLOSES,
    EXIT_0,
    ILL,
    INNOCENT,
    PARTS,
    SAYS,
    SERVES,
    STEADY,
    STEPS,
    TRACKER,
    ZERO,
    bad_end,
    chain_of,
    holds,
    is_caught,
    is_output,
    is_reported,
    same_process,
    service,
    stays,
    tag_of,
    trace_of,
)
from envkit.logs.records import Event, FileSeen, Line, Role, Traceback
from envkit.logs.segments import of_failed_tests
from envkit.logs.steady import (
    WATCHED,
    goes_on,
    is_of_many,
    listed,
    names,
    repeated,
    replaced,
    shape,
    steady,
    tells_step,
    work,
)
from envkit.records import replace

# a command that was typed: in Python, in a shell
_TYPED = re.compile(
    r"(?:(?P<python>In \[\d{1,5}\]: |>>> )|(?:\([\w.-]{1,40}\) ?)?"
    r"(?:[\w.-]{1,40}@[\w.-]{1,80}[^\n$#]{0,120}[$]|\[[\w.-]{1,40}@[^\]\n]{1,80}\][$#]|[$])[ ])(?P<command>\S.*)?"
)
_KILLS = re.compile(
    r"(?i)\b(?:p?kill(?:ed|ing|all)?|scancel|SIGKILL|SIGTERM|SIGINT|terminat(?:ed|ing))\b(?!.{0,40}memory)"
)
_OF_CHILD = re.compile(r"Process [\w:-]{1,60}:$")
# what a runner, a launcher or a shell says of the whole, and not of a part
_VERDICT = re.compile(
    r"(?i)\b[1-9]\d{0,6} (?:\w+ )?(?:failed|failures?|errors?|failing)\b|^\W{0,4}(?:FAIL|FAILED|not ok)\b"
    r"|\bexit(?:ed)?_?(?: with)?(?: exit)?(?: ?code| status)?[:=]? ?-?[1-9]\d{0,2}\b|\b(?:rc|status)=-?[1-9]"
    r"|\bbuild failed\b|\bcore dump|^[\w./-]{1,80} failed$|^Node\.js v\d"
)
# what a tool that builds, or who starts things again, says where it stops; and where a build came to its end after all
_STOPPED = re.compile(
    r"g?make(?:\[\d{1,3}\])?: \*\*\* |ninja: build stopped|-- Configuring incomplete|ERROR: failed to (?:solve|build)\b"
    r"|(?i:(?:build|compilation) (?:failed|stopped|aborted)\b)|gave up: "
    r"|(?i:.{0,200}\b(?:start request repeated too quickly|backoff ?limit|no more retries|retries (?:are )?exhausted))"
)
_BUILT = re.compile(
    r"(?i)\[100%\]|\bBuilt target\b|\bbuil(?:t|d) (?:succe|complete|finished)|\bSuccessfully (?:built|installed)\b"
)
# how who manages some work says that it begins
_BEGINS = re.compile(
    r"(?i)\b(?:re-?)?(?:start|launch|spawn|boot|submit|schedul|dispatch|rendezvous)(?:s|ed|ing|ting|ted)?\b"
)
_RUN = re.compile(r"(?i)\b(run|attempt|try|life|incarnation|generation|start)[ #:=]{0,2}(\d{1,4})\b")
_TRIED = re.compile(r"(.{0,200}?\w.{0,40}\d.{0,40}?[A-Za-z]{3} ?#?)\d{1,4}\b[^\d\n]{0,40}$")  # a part and its try
_SAID = re.compile(r"[A-Za-z]{3}.*[\d ]")  # a text that is no frame of a box or a rule
_ERROR_NAME = re.compile(r"(?:[a-z]\w*\.)*[A-Z]\w{2,60}(?:Error|Exception)\b")
_LEAST_LEAD = 6  # characters
_LONG = 12  # lines of one shape: who writes them works, whatever was met before
_GONE = re.compile(r"(?i)\b(?:died|dead|death|gone|lost|too many)\b")
_CLOSING = 4  # last lines among which one closes the work
# signatures of the words by which a program of another language than Python dies of an exception that nobody caught
_DIES = (
    *("program-java-thrown", "program-go-panic", "program-rust-panic", "program-ruby-raised", "program-ruby-network"),
    *("program-perl-died", "program-ocaml-raised", "program-fatal-level"),
)
# what an exception says that passes on what another process, a library or the GPU met
_OF_OTHERS = re.compile(
    r"(?i)cuda|\bgpu|nccl|cudnn|cublas|(?<!left on )\bdevice|driver|nvidia|\bhip\b|\bmemory\b|\bpeer\b|\bclosed by\b"
    r"|\b(?:workers?|ranks?|child\w*|process(?:es)?|tasks?|trials?)\b.{0,60}\b(?:fail|died|lost|exit|crash|did not)"
    r"|NoneType"
)
_ANSWERED = re.compile(
    r"HTTP/[\d.]{1,4}\"? 2\d\d\b|[\"']status(?:_?code)?[\"']: ?2\d\d\b|\b(?:GET|POST|PUT) \S{1,300} 2\d\d\b"
    r"|\| 200 \|.{0,80}\b(?:GET|POST|PUT)\b"
)
_NUMBERED = re.compile(
    r"(?i)\b(\w{0,24}(?:worker|engine|process|replica|actor|server|child|instance|executor))[-_( #]{0,2}(\d{1,7})\b"
)
_ENDED = re.compile(r"(?i)\b(?:left|exit\w*|died|death|ended|gone|crash\w*|killed|fail\w*|status|code|rc)\b")
_ASKED = 12  # last lines among which a service is asked to stop
# what says that there is no GPU to work with, and an exception that speaks of one
_NO_GPU = ("cuda-init-no-device", "driver-too-old", "missing-shared-library", "torch-not-compiled-with-cuda")
_ASKS_GPU = re.compile(
    r"(?i)cuda|\bgpu|nccl|cudnn|cublas|(?<!left on )device|driver|nvidia|\bhip\b|triton|kernel|memory"
)
_RAISED = re.compile(r"[\w.]{1,100}(?:Error|Exception)\b")
_OF_THREAD = re.compile(r"Exception in thread ")
_ITEM = re.compile(r"(?<![\w.:])#?(\d{1,9})(?![\w.:]\d)")
_ALIKE = 12  # characters with which errors of one kind begin
_BAR = re.compile(r"\| *(?P<done>\d{1,9})/(?P<total>\d{1,9}) \[\d{1,3}:\d\d")  # of tqdm


def went_on_as_before(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether who met an error writes on as before, so that it, or what took its place, goes on with its work."""
    if event.role not in (Role.ROOT, Role.CASCADE) or event.line.source == "kernel" or event.has("order"):
        return False
    own = trace_of(event.line, traces)
    chain = [] if own is None else chain_of(own, traces)
    if chain and ends_process(chain[0], seen):
        return False
    last, first = (event.line, event.line) if own is None else (own.line, chain[0].first)
    others = [other for other in events if other is not event]
    if stays(event) and not _is_waited_for(chain, seen):  # a process that only seems to work makes steps too
        return _is_another(chain[0].first if chain else event.line, last, others, seen) and carried_on(
            last, first, others, traces, seen, STEADY
        )
    late = event.has("late") and event.category not in INNOCENT
    if not late and any(asked(last, first, others, traces, seen) for asked in (draws_on, passes_items)):
        return True
    return carried_on(last, first, others, traces, seen, STEADY if late else STEPS)


def _is_another(first: Line, last: Line, events: Iterable[Event], seen: FileSeen) -> bool:
    """Whether requests are answered behind an error, or a worker of another number than its own works and its own does
    not."""
    kept = _kept(seen)
    mine = [kept.lines[n].body for n in (first.number - 1, first.number, last.number) if n in kept.lines]
    own = {found.groups() for text in mine for found in _NUMBERED.finditer(text)}
    if not own and not kept.answered:
        return False
    begun = _last_bad(last, events, kept)
    if sum(n > begun for n in kept.answered) >= STEADY:
        return True
    after = [each.body for n, each in kept.lines.items() if n > begun]
    later = {found.groups() for text in after[-STEADY:] for found in _NUMBERED.finditer(text)}
    return bool(own) and not own & later and bool({name for name, _ in own} & {name for name, _ in later})


def ends_process(first: Traceback, seen: FileSeen) -> bool:
    """Whether a traceback is one by which Python ended a process: nobody caught it, no logger wrote it, and it is of no
    thread alone."""
    if is_caught(first) or is_reported(first, seen):
        return False
    above = _above(first, seen)
    if above is not None and _OF_CHILD.match(above.text):
        return not _is_waited_for([first], seen)
    # where nobody else can have written, or each line bears its rank, what is printed further is its own: it caught it
    anybody = _kept(seen).is_of_many and first.line.rank is None
    return anybody and not (above is not None and _OF_THREAD.match(above.text))


def _above(first: Traceback, seen: FileSeen) -> Line | None:
    """The line above a traceback."""
    return _kept(seen).lines.get(first.first.number - 1)


def _is_waited_for(chain: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether an exception ended a process of multiprocessing whose parent tells how it ended, and so goes on."""
    above = _above(chain[0], seen) if chain else None
    if above is None or not _OF_CHILD.match(above.text):
        return False
    return any(n > chain[0].line.number and ILL.search(each.text) for n, each in _kept(seen).lines.items())


def carried_on(
    line: Line, first: Line, events: Iterable[Event], traces: Iterable[Traceback], seen: FileSeen, least: int = STEPS
) -> bool:
    """Whether who wrote the lines from ``first`` to ``line`` goes on behind the last bad word of the log with ``least``
    lines of the shape of those before it.

    A process that is first seen behind the error took the place of the one that met it; one seen before is another.
    """
    kept = _kept(seen)
    inside = [(t.first.number, t.line.number) for t in traces if t.line.file == seen.name]
    last = max([_last_bad(line, events, kept), *(end for _, end in inside)])
    if last >= kept.last or kept.stopped > line.number:
        return False
    whole = [each for n, each in kept.work.items() if not any(begin <= n <= end for begin, end in inside)]
    known = {each.pid for n, each in kept.lines.items() if n < first.number} - {line.pid, None}
    mine = [each for each in whole if _of_writer(each, line) and each.pid not in known]
    mine = [each for each in mine if not _is_elsewhere(line, each)]
    if (tag := tag_of(line.text))[:1] == "[":
        mine = [each for each in mine if tag_of(each.text) == tag]
    if "NCCL" in line.body and not kept.ranked:  # only NCCL tells the ranks
        mine = whole
    after = [each for each in mine if each.number > last]
    if len(after) < least:
        return False
    if goes_on((each for each in mine if each.number < first.number and each.number not in kept.bad), after) >= least:
        return True
    # what is printed to a pipe comes after what is printed to stderr, unless something of it came before
    begun = bool(line.level) or _begun(first, kept) or listed(line, len(line.text), after) > 0
    return begun and least == STEPS and steady(after) > STEADY


def draws_on(line: Line, first: Line, events: Iterable[Event], traces: Iterable[Traceback], seen: FileSeen) -> bool:
    """Whether the process that wrote the lines from ``first`` to ``line`` draws a bar further behind the last bad word
    of the log, to its end: a bar is drawn at once and where errors are, so that none was waiting to be printed.

    Source: tqdm, std.py (sys.stderr is its file, and is flushed); what is left of a bar when its loop is left stays
    where it was.
    """
    kept = _kept(seen)
    last = max([_last_bad(line, events, kept), *(t.line.number for t in traces if t.line.file == seen.name)])
    if last >= kept.last or kept.stopped > line.number or (kept.is_of_many and line.rank is None):
        return False
    drawn: dict[str, set[str]] = {}
    for each in (*seen.head, *seen.near, *seen.tail):
        if each.number > last and same_process(each, line) and (bar := _BAR.search(each.text)) is not None:
            drawn.setdefault(bar["total"], set()).add(bar["done"])
    return any(len(done) > 1 and total in done for total, done in drawn.items())


def passes_items(line: Line, first: Line, events: Iterable[Event], traces: Iterable[Traceback], seen: FileSeen) -> bool:
    """Whether an error is one item's of many: the line above it is one of several of its process that differ in a
    rising number, each with such an error below it, and something that is not bad is said behind the last of them."""
    kept = _kept(seen)
    if max(kept.stopped, kept.verdict) > line.number:
        return False
    mine = _of_items(kept, first)
    if not mine:
        return False
    if mine[-1] > line.number:
        return True
    last = max([_last_bad(line, events, kept), *(t.line.number for t in traces if t.line.file == seen.name)])
    return any(n > last and _SAID.search(each.text) and same_process(each, line) for n, each in kept.work.items())


def _of_items(kept: _Kept, error: Line) -> list[int]:
    """The lines that tell of an item each, of a rising number, as the one above an error does; what was passed
    already, further below, is taken out of the lines."""
    above = kept.lines.get(error.number - 1)
    form = shape(above.text) if above is not None else ()
    mine = [each for each in kept.lines.values() if form and same_process(each, error) and shape(each.text) == form]
    errors = [kept.lines.get(each.number + 1) for each in mine if each.number < error.number]
    if not all(each is not None and each.text[:_ALIKE] == error.text[:_ALIKE] for each in errors):
        return []
    columns = list(zip(*([int(n) for n in _ITEM.findall(each.text)] for each in mine), strict=False))
    rises = any(all(a < b for a, b in itertools.pairwise(column)) for column in columns)
    return [each.number for each in mine] if len(mine) > 1 and rises else []


def speaks_on(line: Line, name: str, lines: Iterable[Line]) -> bool:
    """Whether a service that was started again speaks behind a line, and last of nothing bad."""
    mine = sorted({each.number: each for each in lines if each.number > line.number and service(each) == name}.items())
    mine = [(n, each) for n, each in mine if each.text.strip()]
    bad = max((n for n, each in mine if ILL.search(each.text) or bad_end(each)), default=0)
    return bool(name) and sum(n > bad and is_output(each) and not _closes(each) for n, each in mine) >= STEPS


def is_met(line: Line, seen: FileSeen) -> bool:
    """Whether a line says itself what is done about its error, or its service speaks on, and the log goes on with
    nothing else that is bad."""
    if speaks_on(line, service(line), seen.kept):
        return True
    if not (AGAIN.search(line.text) or MET.search(line.text)):
        return False
    kept = _kept(seen)
    after = [each for n, each in kept.lines.items() if n > line.number and each.text != line.text]
    good = sum(is_output(each) for each in after)
    return good >= STEPS and not any(each.number in kept.bad for each in after)


def left_open(
    line: Line, events: Iterable[Event], traces: Iterable[Traceback], seen: FileSeen, least: int = STEPS
) -> bool:
    """Whether so much was printed behind a line, and nothing bad, that the log does not tell it for an end."""
    kept = _kept(seen)
    last = _last_bad(line, events, kept)
    if last >= kept.last or max(kept.verdict, kept.stopped) > line.number or not (line.level or _begun(line, kept)):
        return False
    if any(trace.line.file == seen.name and trace.line.number >= line.number for trace in traces):
        return False
    return work(each for n, each in kept.work.items() if n > last and _of_writer(each, line)) >= least


def concluded(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether long work of one shape follows behind the last bad word of a log, and is closed by a line of another
    shape, or goes on as it did before: a process that dies in its work leaves lines of that last.

    This holds whatever was met, for who dies of that, or is ended from outside, is another than who works.
    """
    if event.role not in (Role.ROOT, Role.CASCADE) or event.line.source == "kernel":
        return False
    last, first = extent(event.line, trace_of(event.line, traces), traces)
    kept = _kept(seen)
    bad = _last_bad(last, [other for other in events if other is not event], kept)
    bad = max([bad, *(trace.line.number for trace in traces if trace.line.file == seen.name)])
    if bad >= kept.last or kept.stopped > event.line.number or kept.verdict > bad:
        return False
    if _GONE.search(kept.lines[kept.last].text):
        return False
    after = [each for n, each in kept.work.items() if n > bad and not _is_elsewhere(event.line, each)]
    ranks = {each.rank for each in after} - {None}
    if ranks and event.line.rank is not None and event.line.rank not in ranks:  # only its siblings went on
        return False
    form = shape(event.line.text)
    often = sum(
        each.text == event.line.text or (form != () and shape(each.text) == form) for each in kept.lines.values()
    )
    # who met it several times has shown that it works on
    if steady(after) < (STEADY if often >= STEADY else _LONG):
        return False
    before = [each for n, each in kept.work.items() if n < first.number and n not in kept.bad]
    return _is_closed(after) or goes_on(before, after) >= _LONG


def _is_closed(work: Sequence[Line]) -> bool:
    """Whether one of the last lines of some work is of no shape that the lines before it have."""
    known = {shape(each.text) for each in work[:-_CLOSING]} - {()}
    said = {each.text for each in work[:-_CLOSING]}
    return any(
        shape(each.text) not in known
        and each.text not in said
        and _SAID.search(each.text)
        and not PARTS.match(each.text)
        for each in work[-_CLOSING:]
    )


def died_later(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether a program worked on for long behind an error that ended nothing by itself, and then died of its own: an
    exception that nobody caught, in whatever language, stands last, and says nothing of a GPU; or above, as what is
    printed to a pipe comes after what is printed to stderr."""
    if event.role is not Role.ROOT or event.line.source == "kernel" or event.has("late"):
        return False
    own = trace_of(event.line, traces)
    if own is not None and not is_noted(chain_of(own, traces)[0], seen):
        return False
    at = event.line.number if own is None else own.line.number
    kept = _kept(seen)
    end = _death(at, events, traces, kept)
    if not end and own is None and _died_above(event.line, traces, seen):
        end = kept.last + 1
    if not end:
        return False
    before = [each for n, each in kept.work.items() if n < event.line.number]
    between = [each for n, each in kept.work.items() if at < n < end]
    return (
        goes_on(before, between) >= STEADY or steady(each for each in between if each.number not in kept.bad) >= _LONG
    )


def _died_above(line: Line, traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether exceptions that nobody caught stand above a line, of its process, and none says anything of a GPU."""
    above = [t for t in traces if t.line.number < line.number and same_process(t.line, line) and not is_noted(t, seen)]
    said = (f"{trace.kind} {trace.message.partition(chr(10))[0]}" for trace in above)
    return bool(above) and not any(map(_OF_OTHERS.search, said))


def _death(at: int, events: Sequence[Event], traces: Sequence[Traceback], kept: _Kept) -> int:
    """Where the report begins of the exception that stands last behind a line; 0 where none does, or one that speaks of
    the GPU, of other processes or of the same thing as an error before it."""
    later = [trace for trace in traces if trace.first.number > at]
    behind = [each for each in events if each.line.number > at and each.role is Role.ROOT]
    if later:
        chain = chain_of(later[-1], later)
        said = " ".join(f"{trace.kind} {trace.message}" for trace in chain)
        number = chain[0].first.number
    else:
        ends = [each.line for each in behind if each.signature.id in _DIES][-1:]
        said = " ".join(line.text for line in ends)
        number = ends[0].number if ends else 0
    alien = any(each.category not in INNOCENT for each in behind)
    return 0 if alien or ILL.search(said) or _OF_OTHERS.search(said) else number


def open_end(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """The same of an event that has nothing to do with the GPU."""
    if event.role is not Role.ROOT or event.category != "not-gpu-env" or event.line.source == "kernel":
        return False
    if event.has("late") or event.has("order") or any(holds(trace, event.line) for trace in traces):
        return False
    return left_open(event.line, [other for other in events if other is not event], traces, seen)


def answered_on(event: Event, traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether somebody noted an error, and a service answered its requests before anything else was met: whatever ended
    it came later."""
    if event.role is not Role.ROOT or event.line.source == "kernel" or stays(event) or event.has("late"):
        return False
    own = trace_of(event.line, traces)
    if own is not None and not is_noted(chain_of(own, traces)[0], seen):
        return False
    return answers_behind(event.line if own is None else own.line, seen, noted=True, caught=own is not None)


def is_noted(first: Traceback, seen: FileSeen) -> bool:
    """Whether a traceback is of an exception that somebody caught, and so the process of it went on."""
    return is_reported(first, seen) or is_caught(first)


def answers_behind(line: Line, seen: FileSeen, *, noted: bool = False, caught: bool = False) -> bool:
    """Whether requests were answered behind a line that was not said again; behind one that somebody ``noted`` it is
    enough that the service came up, behind an exception that was ``caught`` that the only process worked on for long.
    """
    kept = _kept(seen)
    if kept.said_last.get(line.text, 0) > line.number:
        return False
    if sum(n > line.number for n in kept.answered) >= STEADY:
        return True
    if noted and kept.serves > line.number:
        return True
    if not (noted and caught) or kept.is_of_many:
        return False
    return steady([each for n, each in kept.work.items() if n > line.number and same_process(each, line)]) >= _LONG


def done_later(event: Event, traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether what a logger's line says of a traceback is said again with another number and no error, as "part 3
    attempt 2" behind "part 3 attempt 1": the part was tried again, whatever else went wrong."""
    own = trace_of(event.line, traces)
    if event.role is not Role.ROOT or stays(event) or own is None:
        return False
    kept = _kept(seen)
    above = _above(chain_of(own, traces)[0], seen)
    found = _TRIED.match(above.text) if above is not None and above.level else None
    again = [each for n, each in kept.lines.items() if found and n > own.line.number and each.text.startswith(found[1])]
    return bool(again) and is_output(again[-1]) and not bad_end(again[-1])


def replaced_by(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether another process took the place of the one that an error ended, and works to the end of the log."""
    return _over_its_trace(taken_over, event, events, traces, seen)


def works_anew(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether what an error ended was started again, whatever stays with its process, and worked to the end."""
    return _over_its_trace(begun_again, event, events, traces, seen)


def _over_its_trace(
    asked: Callable[[Line, Line, Iterable[Event], Iterable[Traceback], FileSeen], bool],
    event: Event,
    events: Sequence[Event],
    traces: Sequence[Traceback],
    seen: FileSeen,
) -> bool:
    """What ``asked`` says of an error from the first line of its tracebacks to the last."""
    if event.role is not Role.ROOT or event.line.source == "kernel":
        return False
    if event.has("order") and not AGAIN.search(event.line.text):
        return False
    last, first = extent(event.line, trace_of(event.line, traces), traces)
    return asked(last, first, [other for other in events if other is not event], traces, seen)


def extent(line: Line, own: Traceback | None, traces: Sequence[Traceback]) -> tuple[Line, Line]:
    """The last and the first line of what is told with a line: those of its chain of tracebacks, else itself."""
    return (line, line) if own is None else (own.line, chain_of(own, traces)[0].first)


def _raised_behind(line: Line, traces: Iterable[Traceback], seen: FileSeen) -> bool:
    """Whether a traceback ends behind a line."""
    return any(trace.line.file == seen.name and trace.line.number > line.number for trace in traces)


def taken_over(line: Line, first: Line, events: Iterable[Event], traces: Iterable[Traceback], seen: FileSeen) -> bool:
    """Whether a process that is first named behind an error works from there to the end of the log."""
    kept = _kept(seen)
    if kept.named <= line.number:
        return False
    if _raised_behind(line, traces, seen):
        return False
    after = [each for n, each in kept.lines.items() if n > line.number]
    begun = replaced((each for n, each in kept.lines.items() if n <= line.number), after) if after else 0
    rest = [each for n, each in kept.work.items() if n > begun]
    return bool(begun) and _last_bad(line, events, kept) <= begun and work(rest) >= STEPS


def begun_again(line: Line, first: Line, events: Iterable[Event], traces: Iterable[Traceback], seen: FileSeen) -> bool:
    """Whether what an error ended was started again, as it was before, and then worked to the end of the log."""
    kept = _kept(seen)
    if _raised_behind(line, traces, seen):
        return False
    last = _last_bad(line, events, kept)
    begins = {n: shape(each.text) for n, each in kept.lines.items() if _BEGINS.search(each.text)}
    known = {form for n, form in begins.items() if n < first.number} - {()}
    starts = [n for n, form in begins.items() if n > line.number and n >= last and form in known]
    start = max([*starts, *_next_runs(line, last, kept), *_said_anew(first, last, kept)], default=0)
    if _announced_again(first, last, kept):
        return True
    start = start or max(_to_be_again(first, line, last, kept), default=0)
    before = [each for n, each in kept.work.items() if n < first.number and n not in kept.bad]
    if start:
        after = [each for n, each in kept.work.items() if n > start]
        return max(goes_on(before, after), steady(after)) >= STEADY
    # torchrun says that a rank failed when it has ended all of its ranks: who writes on as they did was started anew.
    # Source: torch, distributed/elastic, PContext.wait, and SimpleElasticAgent._invoke_run, which restarts behind it.
    if not any(each.signature.id == "elastic-exit" and each.line.number == last for each in events):
        return False
    return goes_on(before, [each for n, each in kept.work.items() if n > last and each.host == line.host]) >= STEADY


def _announced_again(first: Line, last: int, kept: _Kept) -> bool:
    """Whether who announced, behind its name and right above an error, what met it announces the next of that kind
    below it, and then speaks last of something else that is not bad: it tried one value after another."""
    above = kept.lines.get(first.number - 1)
    tag, form = (tag_of(above.text), shape(above.text)) if above is not None else ("", ())
    mine = [each for n, each in kept.work.items() if n > last and tag and tag_of(each.text) == tag]
    again = [each.number for each in mine if form and shape(each.text) == form and above and each.text != above.text]
    return bool(again) and mine[-1].number > again[-1] and not bad_end(mine[-1])


def _to_be_again(first: Line, line: Line, last: int, kept: _Kept) -> list[int]:
    """The last line of an error and of what is said about it, where one beside it, or a later one that tells of an end
    too, says that what failed is done again."""
    near = {n: each for n, each in kept.lines.items() if n >= first.number - 1 and AGAIN.search(each.text)}
    said = [n for n, each in near.items() if n == line.number or not bad_end(each)]
    behind = (
        n for n in said if n > max(line.number, last - SAYS) and (n <= last + SAYS or _ENDED.search(kept.lines[n].text))
    )
    beside = (n for n in said if n < first.number or n == line.number == first.number)
    found = [*behind, *(beside if last - line.number <= SAYS else ())]
    return [max(last, *found)] if found else []


def _next_runs(line: Line, last: int, kept: _Kept) -> list[int]:
    """The lines behind an error that name the run, attempt or life after one that is named above them."""
    named = {
        n: {(found[1].lower(), int(found[2])) for found in _RUN.finditer(each.text)} for n, each in kept.lines.items()
    }
    known: set[tuple[str, int]] = set()
    found: list[int] = []
    for n, runs in named.items():
        if n > line.number and n >= last and any((name, number - 1) in known for name, number in runs - known):
            found.append(n)
        known |= runs
    return found


def _said_anew(first: Line, last: int, kept: _Kept) -> list[int]:
    """The line behind an error, if any, from which the log says again what it said from its beginning, word for word
    and in the same order, and then more than it said before the error: who failed was begun anew, in whatever words."""
    before = [each for n, each in kept.lines.items() if n < first.number and n not in kept.bad]
    after = [each for n, each in kept.lines.items() if n > last]
    times = Counter(each.text for each in before)
    places = {each.text: at for at, each in enumerate(before) if times[each.text] == 1 and _SAID.search(each.text)}
    again = [(at, each) for at, each in enumerate(after) if each.text in places]
    again = [a for a, b in itertools.pairwise(again) if places[a[1].text] < places[b[1].text]]
    if len({each.text for _, each in again}) < STEPS or again[0][0] > STEADY:
        return []
    longer = len(after) - again[0][0] > len(before) - places[again[0][1].text]
    return [again[0][1].number] if longer else []


def served_later(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether what a line says of an error is said again later, behind the same words, with no error: it was tried
    again, and nothing bad comes after that."""
    if event.role is not Role.ROOT or event.line.source == "kernel" or stays(event) or event.has("order"):
        return False
    return said_later(event.line, [other for other in events if other is not event], traces, seen)


def said_later(line: Line, events: Iterable[Event], traces: Iterable[Traceback], seen: FileSeen) -> bool:
    """The same of a line."""
    raised = _ERROR_NAME.search(line.text)
    lead = line.text[: raised.start()] if raised else ""
    if len(lead) < _LEAST_LEAD or not lead.endswith((": ", "- ", "| ")) or not re.search(r"\d|[./]", lead):
        return False
    kept = _kept(seen)
    if _raised_behind(line, traces, seen):
        return False
    last = _last_bad(line, events, kept)
    again = [each for n, each in kept.lines.items() if n > last and each.text.startswith(lead) and is_output(each)]
    return any(not PARTS.match(each.text[len(lead) :]) for each in again)


def _begun(first: Line, kept: _Kept) -> bool:
    """Whether anything was printed before a line, or the line more than once: who tries again writes in order."""
    again = sum(each.text == first.text for each in kept.lines.values()) > 1
    return again or any(n < first.number and is_output(each) for n, each in kept.lines.items())


_ALIGNED = re.compile(r" {1,4}\d")  # a number of steps that is set below the one before


class _Kept:
    """The lines that are known of a file, by their numbers, without what a logger's level is padded with."""

    def __init__(self, seen: FileSeen) -> None:
        self._seen = seen
        found = {each.number: each for each in seen.kept}
        self.lines = {
            n: replace(each, text=each.text.lstrip())
            if each.text[:1].isspace() and (each.logged or (each.rank is not None and _ALIGNED.match(each.text)))
            else each
            for n, each in found.items()
        }
        self.lines = dict(sorted(self.lines.items()))
        self.last = max(self.lines, default=0)

    @cached_property
    def asked(self) -> int:
        """The line by which who runs a service asked it to stop; one behind the last where nobody did."""
        last = list(self.lines)[-_ASKED:]
        return min((n for n in last if ASKED.search(self.lines[n].text)), default=self.last + 1)

    @cached_property
    def bad(self) -> frozenset[int]:
        """The numbers of lines that tell of something bad."""
        return frozenset(
            n
            for n, each in self.lines.items()
            if n < self.asked and (ILL.search(each.text) or bad_end(each)) and not EXIT_0.search(each.text)
        )

    @cached_property
    def work(self) -> dict[int, Line]:
        """What a program prints, and not because a run ends."""
        return {n: each for n, each in self.lines.items() if is_output(each) and not _closes(each)}

    @cached_property
    def answered(self) -> list[int]:
        """The numbers of lines that tell of a request that was answered, and not to who only watches."""
        return [n for n, each in self.lines.items() if _ANSWERED.search(each.body) and not WATCHED.search(each.body)]

    @cached_property
    def serves(self) -> int:
        """The last line by which a service is up; 0 where there is none."""
        up = (n for n, each in self.lines.items() if SERVES.search(each.text) and is_output(each) and not bad_end(each))
        return max(up, default=0)

    @cached_property
    def said_last(self) -> dict[str, int]:
        """What the lines say, each with the number of the last one."""
        return {each.text: n for n, each in self.lines.items()}

    @cached_property
    def failed_tests(self) -> frozenset[int]:
        """The numbers of lines that a stream of tests tells of those that failed."""
        return frozenset(of_failed_tests(self._seen))

    @cached_property
    def named(self) -> int:
        """The last line that names a process by its number."""
        return max((n for n, each in self.lines.items() if names(each)), default=0)

    @cached_property
    def is_of_many(self) -> bool:
        """Whether other processes of the same program may write into the log."""
        return is_of_many(self.lines.values())

    @cached_property
    def ranked(self) -> bool:
        """Whether lines that are not NCCL's own bear a rank."""
        return any(each.rank is not None and "NCCL" not in each.body for each in self.lines.values())

    @cached_property
    def stopped(self) -> int:
        """The last line by which who builds, or starts things again, stops; 0 where it came to its end after that."""
        stop = max((n for n, each in self.lines.items() if _STOPPED.match(each.text)), default=0)
        return 0 if any(n > stop and _BUILT.search(each.text) for n, each in self.lines.items()) else stop

    @cached_property
    def verdict(self) -> int:
        """The last line that judges the whole as failed."""
        told = ((n, each) for n, each in self.lines.items() if n < self.asked)
        found = (n for n, each in told if _VERDICT.search(ZERO.sub(" ", each.text)))
        return max(found, default=0)


@dataclass(frozen=True, eq=False)
class _Same:
    """A file, known by being the same object: to compare all its lines costs more than to read them."""

    seen: FileSeen

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.seen is self.seen

    def __hash__(self) -> int:
        return id(self.seen)


@lru_cache(8)
def _view(same: _Same) -> _Kept:
    return _Kept(same.seen)


def ends_badly(event: Event, events: Sequence[Event], seen: FileSeen) -> bool:
    """Whether the last line that is known of a file tells of something bad, so that nothing went on to its end."""
    kept, last = _kept(seen), events[-1]
    told = last is not event and last.line.number == kept.last and last.role is not Role.ADVICE
    return kept.last in kept.bad or told


def _kept(seen: FileSeen) -> _Kept:
    """What is known of a file, made once for all its events."""
    return _view(_Same(seen))


def _closes(line: Line) -> bool:
    """Whether a line is of what is done however a run ended."""
    return bool(TRACKER.match(line.text) or CLOSES.search(line.text) or ANYHOW.search(line.text))


def _last_bad(line: Line, events: Iterable[Event], kept: _Kept) -> int:
    """The number of the last line of a file that tells of anything bad, ``line`` or one below it."""
    told = (
        each.line.number
        for each in events
        if each.line.file == line.file and each.role is not Role.ADVICE and not ASKED.search(each.line.text)
    )
    again = (n for n, each in kept.lines.items() if each.text == line.text)
    before = {shape(each.text) for n, each in kept.lines.items() if n < line.number} - {()}
    bad = (n for n in kept.bad if n < line.number or shape(kept.lines[n].text) not in before)  # else it is no news
    return max([line.number, *bad, *told, *again])


def _is_elsewhere(line: Line, other: Line) -> bool:
    """Whether two lines begin with the names of two machines or parts that differ in their numbers: "n7: ", "n9: "."""
    mine, others = tag_of(line.raw or line.text), tag_of(other.raw or other.text)
    return mine[-1:] == ":" and mine != others and re.sub(r"\d+", "0", mine) == re.sub(r"\d+", "0", others)


def _of_writer(line: Line, other: Line) -> bool:
    """Whether two lines are of one machine, rank and service, whatever process wrote them."""
    mine, others = ((each.host, each.rank, _ident(each)) for each in (line, other))
    # a table's first column is no service where a line bears none
    return mine == others and service(other) in ("", service(line))


@lru_cache(1 << 12)
def _ident(line: Line) -> str:
    """What syslog calls the program whose line it is; "" where no number of a process says so."""
    found = re.search(rf"(\S{{1,80}})\[{line.pid}\]: ", line.raw) if line.pid is not None else None
    return found[1] if found else ""


def session_went_on(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether somebody types at a prompt, and ran the program of an error again, or the next command of the same
    interpreter, with nothing bad from there to the end."""
    if event.line.source == "kernel":
        return False
    lines = _kept(seen).lines
    typed = {n: found for n, each in lines.items() if "$" in each.body or each.body[:2] in (">>", "In")
             if (found := _TYPED.match(each.body))}  # fmt: skip
    mine = max((n for n in typed if n <= event.line.number), default=0)
    if not mine:
        return False
    bad = [n for n in _kept(seen).bad if n not in typed]
    ends = [trace.line.number for trace in traces if trace.line.file == seen.name]
    last = max([event.line.number, *bad, *ends, *(each.line.number for each in events if each.role is Role.ROOT)])
    run = None if typed[mine]["python"] else (typed[mine]["command"] or "").split()[:2]
    again = [
        n
        for n, found in typed.items()
        if n > last
        and found["command"]
        and (bool(found["python"]) if run is None else found["command"].split()[:2] == run)
    ]
    said = [n for n, each in lines.items() if again and n > again[0] and n not in typed and re.search(r"\w", each.text)]
    return len(said) >= (1 if run is None else STEPS)


def of_kill(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether the driver only cleaned up after a process that somebody had ended before.

    Source: NVIDIA, Xid Errors: 45 is written too where a process is killed (ctrl-C, kill -9).
    """
    if event.category != "xid-45" or any(each.role is Role.ROOT and each.category != "xid-45" for each in events):
        return False
    before = (each for each in (*seen.head, *seen.tail) if each.number < event.line.number)
    return any(_KILLS.search(each.body) and each.source != "kernel" for each in before)


def is_of_failed_test(line: Line, seen: FileSeen) -> bool:
    """Whether a stream of tests tells a line of a test that failed."""
    return line.number in _kept(seen).failed_tests


def is_row(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether an error is one of several rows of what a program prints, which goes on below it with nothing bad."""
    if event.role is not Role.ROOT or event.line.source == "kernel" or event.line.level or stays(event):
        return False
    if any(trace.line.file == seen.name and trace.line.number >= event.line.number for trace in traces):
        return False
    found = re.search(event.signature.pattern, event.line.text)
    lines = _kept(seen).lines.items()
    rest = [each for n, each in lines if n > event.line.number and same_process(each, event.line)]
    own = [other.line.text for other in events if other.signature.id == event.signature.id]
    good = [each for each in rest if each.text not in own]
    if found is None or any(ILL.search(each.text) or bad_end(each) for each in good):
        return False
    if any(other.role is Role.ROOT and other.line.number > event.line.number and other.line.text not in own
           for other in events):  # fmt: skip
        return False
    return bool(rest) and rest[-1] in good and listed(event.line, found.start(), good) >= STEPS


def is_resolved(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether the last that who tells of an error says of it, behind the same name, is that it is over."""
    tag = _name(event.line)
    if event.role is not Role.ROOT or not tag or event.line.source == "kernel" or trace_of(event.line, traces):
        return False
    lines = sorted({line.number: line for line in seen.kept if line.number > event.line.number}.items())
    mine = [line for _, line in lines if _name(line) == tag]
    over = max((line.number for line in mine if RESOLVED.search(line.text)), default=0)
    later = any(ILL.search(line.text) or bad_end(line) for line in mine if line.number > over)
    return over > 0 and not later and not any(each.line.number > over for each in events if each.role is Role.ROOT)


def _name(line: Line) -> str:
    """What a line begins with that tells whose it is, before a level too."""
    return tag_of(line.text) or tag_of(line.raw)


def did_without(event: Event, events: Sequence[Event], traces: Sequence[Traceback], seen: FileSeen) -> bool:
    """Whether a program that found no GPU made steps of its work behind that, which it can only have made without one:
    what ended it, if anything did, is another failure."""
    if event.role is not Role.ROOT or event.category not in _NO_GPU or event.has("late"):
        return False
    own = trace_of(event.line, traces)
    if own is not None and not is_noted(chain_of(own, traces)[0], seen):
        return False
    lines = {line.number: line for line in seen.kept}
    if event.line.rank is None and is_of_many(lines.values()):
        return False
    at = max(n for n, line in lines.items() | {(event.line.number, event.line)} if line.text == event.line.text)
    at = max([at, *(each.line.number for each in events if each.category == event.category)])
    known = [each.line.number for each in events if each.role is Role.ROOT and each.line.number > at]
    raised = {
        trace.first.number: " ".join((trace.kind, trace.message, *(frame.code for frame in trace.frames[-1:])))
        for trace in traces
        if trace.first.number > at
    }
    raised |= {n: line.text for n, line in lines.items() if n > at and not raised and _RAISED.match(line.text)}
    if not known and any(map(_ASKS_GPU.search, raised.values())):  # who wants a GPU after all
        return False
    end = min([*known, *raised], default=max(lines) + 1)
    work = [line for n, line in sorted(lines.items()) if at < n < end and same_process(line, event.line)]
    if sum(tells_step(line.text) for line in work) < STEPS and repeated(work) < STEADY:
        return False
    return end <= max(lines) or not ends_badly(event, events, seen)
