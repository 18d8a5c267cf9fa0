"""Turns what programs wrote into lines, events and tracebacks, in one pass and in bounded memory.

A file is read in blocks.  One search over each block, made of what every signature needs and of the words that errors
are told in (``scan``), finds the lines worth a look; a line that it does not find costs nothing more.  Around each of
them some lines are read too, for messages go on, mail wraps them, and a traceback's frames lead up to them.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from functools import cache, cached_property

from envkit.logs import inner, knowledge, names, tracebacks
from envkit.logs.ends import ZERO
from envkit.logs.prefix import NO_YEAR, LogMessage, rank_of_name, strip
from envkit.logs.records import Event, FileSeen, Line, Reading, Role, Signature, Traceback
from envkit.logs.scan import LONGEST, SHAPE, Piece, Progress, Scanner, Stream, solid
from envkit.logs.tracebacks import Tracebacks
from envkit.logs.words import Words
from envkit.records import dataclass, replace

__all__ = ["LONGEST", "Input", "read"]

FIRST, LAST = 16, 4
"""Events kept of one signature in one process: so many from the beginning, so many from the end."""

ENDS = 40
"""Lines of a file's beginning and of its end that are kept."""

LOUD = 100
"""Lines kept that sound like an error and that no signature knows."""

NEAR = 120
"""Lines kept that stand beside an error: half of them the first, half the last."""

_BEHIND = 4  # lines beside an error that are kept behind it; one is kept before it
_PROCESSES = 500  # processes that are told apart for one signature
_REMEMBERED = 4096  # texts whose outcome is remembered, so that a flood of one error costs little
_LEAD_IN = re.compile(r"[^\s|│+>#*/-]")
_LEADS = 8  # of unknown collectors, in one file
_WRAPPED_AT = 40  # a line that mail or Markdown wrapped is at least so long
_WRAPPED_BELOW = 140  # and hardly longer than this
_EACH_HALF = 4  # characters of a match that each half must hold
_MORE_LINES = 2  # lines that may be joined to a wrapped one
_OUTLINED = 1000  # bytes of a line whose shape is held against the signatures before the line is read
_HALVES = 2000  # shapes of a file that may be the first half of a wrapped line, and nothing else, that are read
_JOINED = 1000  # lines of a file that are joined in vain to those after them: who wraps lines pastes a short log
_AFTER, _AFTER_FRAME = 6, 16  # lines read after a find: a message goes on, a frame is followed by code and carets

_LOUD_WORDS = (
    "error", "fatal", "fail", "exception", "panic", "killed", "abort", "core dumped", "segfault", "segmentation fault",
    "cannot", "can't", "unable to", "not found", "no such", "denied", "refused", "unrecognized", "assertion",
    "unsupported", "incompatible", "mismatch", "timed out",
)  # fmt: skip
_COMMON = {b"error", b"failed"}  # anchors of signatures that any error may hold
_FRAME_WORDS = (
    b", line ", b"traceback (most", b"----> ", b"0: in ", b".py in ", "❱ ".encode(), b"direct cause of the following",
    b"handling of the above exc",
)  # fmt: skip
# IPython's frames: "File ~/x.py:3, in f"
_FILE_WORDS = (b"file ~/", b"file /")
_FILE_SHAPE = re.compile(rb"\bfile [~/][^:\n]{1,400}:0")
_TASK = "fatal: ["  # of Ansible, before what a task says
_LOUD = re.compile("|".join(re.escape(word) for word in _LOUD_WORDS))
# "0 errors", "error_rate=0.1", "no errors", "fail_on=...": words of quiet lines
_QUIET = re.compile(
    r"\b(?:no|0|without) (?:errors?|failures?|exceptions?)\b"
    r"|\berrors?[_ ]?(?:rate|bars?)?[=:] ?[0-9.]+\b|\bfailed[=:] ?0\b"
)


@dataclass(frozen=True, slots=True)
class Input:
    """One log: the name it is told by, its bytes, and whether it is the kernel's."""

    name: str
    stream: Stream
    kernel: bool = False


def read(inputs: Sequence[Input], *, progress: Progress | None = None) -> Reading:
    """Reads all inputs to their ends; ``progress`` is told the bytes of text as they pass.

    Raises OSError as the streams do, ValueError where two inputs share a name or a row of ``signatures/`` does not fit.
    """
    names = [each.name for each in inputs]
    if twice := {name for name, times in Counter(names).items() if times > 1}:
        raise ValueError(f"two logs are called {', '.join(sorted(twice))}")
    matcher = _matcher()
    read_ones = [_File(each, matcher).read(progress) for each in inputs]
    years = {year for one in read_ones for year in one.years}
    year = years.pop() if len(years) == 1 else None  # that lines without one can be in: the only one that any names
    if year is not None:
        read_ones = [_dated(one, year) if one.yearless else one for one in read_ones]
    files = tuple(one.seen for one in read_ones)
    events = tuple(event for one in read_ones for event in one.events)
    traces = tuple(trace for one in read_ones for trace in one.traces)
    if len(traces) > tracebacks.FIRST + tracebacks.LAST:
        traces = (*traces[: tracebacks.FIRST], *traces[-tracebacks.LAST :])
    return Reading(files, events, traces)


@dataclass(frozen=True, slots=True)
class _Row:
    """A signature; ``order`` is its place among all, ``anchor`` what is to stand in a text in small letters."""

    order: int
    signature: Signature
    anchor: bytes

    def find(self, text: str) -> _Match | None:
        """The signature in ``text``."""
        found = _compiled(self.signature.pattern).search(text)
        if found is None:
            return None
        rest = text[found.end() :] if names.is_name(found[0]) else None
        return _Match(self.signature, _values(found), _lead(self.signature, text, found), found.span(), rest)

    def outlines(self, shape: str) -> bool:
        """Whether a line of this shape (small letters, digits 0, prefixes still on) can be one of the signature's."""
        outline = _outline(self.signature.pattern)
        return outline is None or outline.search(shape) is not None


class _NamedRow(_Row):
    """All errors that are told by name or number alone; its signature is the first of theirs."""

    def find(self, text: str) -> _Match | None:
        """The error that ``text`` names."""
        values: Mapping[str, str] = {}
        if (known := names.found(text)) is not None:
            signature, found = known
        elif (numbered := names.of_library(text)) is not None and (told := _told(numbered[0])) is not None:
            signature, values, found = told.signature, told.values, numbered[1]
        else:
            return None
        lead, rest = text[: found.start()], text[found.end() :]
        if lead in _QUOTE_MARKS and rest.startswith(":"):
            lead = ""  # HIP prints its message in quotes
        return _Match(signature, values, lead, found.span(), rest)

    def outlines(self, shape: str) -> bool:
        """Whether a line of this shape can name one."""
        return names.outlines(shape)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, ready for use from its first use on: a log needs few of all, and all of them take half a second."""
    return re.compile(pattern)


_BOUNDS = re.compile(r"\{\d*,?\d*\}|\\d")


@cache
def _outline(pattern: str) -> re.Pattern[str] | None:
    """What finds the shape of every line that ``pattern`` finds; None where certain digits are asked for, a beginning
    somewhere within, or something that must not be there, which shapes do not show."""
    freed = pattern.removeprefix("^")
    asked = _BOUNDS.sub("", freed)
    if re.search(r"[0-9]|\(\?<?!", asked) or "^" in asked.replace("[^", ""):
        return None
    return re.compile(freed, re.IGNORECASE)


class _Matcher:
    """All signatures, and which of them a text can be."""

    def __init__(self, signatures: Iterable[Signature], unspecific: int) -> None:
        """``unspecific`` is the place of the first signature that tells less than an error's name."""
        self._rows: dict[bytes, list[_Row]] = {}  # by the stretch of their anchor that shapes show
        for order, signature in enumerate(signatures):
            row = _Row(order + (order >= unspecific), signature, signature.anchor.encode())
            self._rows.setdefault(solid(signature.anchor).translate(SHAPE), []).append(row)
        for anchor in names.ANCHORS:  # a wording that is known tells more than a name in it
            named = _NamedRow(unspecific, names.kinds()[0], anchor.encode())
            self._rows.setdefault(anchor.encode(), []).append(named)
        # None: the word alone makes a line worth reading
        self._stretches: dict[bytes, list[_Row] | None] = {word: [] for word in _FILE_WORDS}
        self._stretches |= self._rows
        self._stretches |= {word.translate(SHAPE): None for word in _FRAME_WORDS}
        self._more_than_loud = {word for word in self._stretches if word.strip(b" :") not in _COMMON}
        self._stretches |= {word.translate(SHAPE): None for word in map(str.encode, _LOUD_WORDS)}
        self.worth = Words(self._stretches)

    @cached_property
    def strong(self) -> Words:
        """The words that are more than loud, to be looked for in a flood of loud lines."""
        return Words(self._more_than_loud)

    def rows(self, text: str) -> list[_Row]:
        """The rows whose anchor the text holds, in their order."""
        low = text.lower().encode()
        held = self.worth.held_by(low.translate(SHAPE))
        found = {row.order: row for word in held for row in self._rows.get(word, ()) if row.anchor in low}
        return [found[order] for order in sorted(found)]

    def outlined(self, shape: bytes) -> bool:
        """Whether a line of this shape sounds like an error, or can be one that a signature knows."""
        rows: list[_Row] = []
        for word in self.worth.held_by(shape):
            known = self._stretches[word]
            if known is None:
                return True
            rows += known
        text = shape.decode("utf-8", "replace")
        return any(row.outlines(text) for row in rows)


@cache
def _matcher() -> _Matcher:
    return _Matcher(knowledge.signatures(), knowledge.before_unspecific())


@cache
def _told(name: str) -> _Match | None:
    """What tells the name of an error that the table of names does not have."""
    rows = (row for row in _matcher().rows(name) if row.signature.role is Role.ROOT)
    return next((found for row in rows if (found := row.find(name)) is not None), None)


@dataclass(frozen=True, slots=True)
class _Match:
    """A signature found in a text; ``lead`` is what stands before it, ``span`` is where.

    Of an error that is told by a name or a number alone ``rest`` is what stands behind it, else None.
    """

    signature: Signature
    values: Mapping[str, str]
    lead: str
    span: tuple[int, int] = (0, 0)
    rest: str | None = None


@dataclass(slots=True)
class _PendingEvent:
    """An event with its place in the order of reading, its repetitions still growing."""

    order: int
    line: Line
    match: _Match
    role: Role
    quoted: bool
    times: int = 1


@dataclass(slots=True)
class _Bucket:
    """The events of one signature in one process."""

    first: list[_PendingEvent] = field(default_factory=list)
    last: deque[_PendingEvent] = field(default_factory=lambda: deque(maxlen=LAST))


@dataclass(slots=True)
class _Read:
    """What came of one input."""

    seen: FileSeen
    events: list[Event]
    traces: tuple[Traceback, ...]
    years: set[int]
    yearless: bool


@dataclass(slots=True)
class _ParsedLine:
    """A line with what it was made of."""

    line: Line
    said: LogMessage
    found: bool
    match: _Match | None


class _File:
    """One input on its way."""

    def __init__(self, source: Input, matcher: _Matcher) -> None:
        self._name = source.name
        self._stream = source.stream
        self._kernel = source.kernel
        self._matcher = matcher
        self._rank = rank_of_name(source.name)
        self._traces = Tracebacks()
        self._buckets: dict[tuple[str, object], _Bucket] = {}
        self._processes: dict[str, int] = {}
        self._loud: dict[str, _PendingEvent] = {}
        self._late_loud: deque[Line] = deque(maxlen=LOUD // 2)
        self._near: list[Line] = []
        self._late_near: deque[Line] = deque(maxlen=NEAR // 2)
        self._above: Line | None = None  # the line before, where it was not kept beside an error
        self._behind = 0  # lines that are still to be kept
        self._remembered: dict[str, _Match | None] = {}
        self._order = 0
        self._years: set[int] = set()
        self._yearless = False
        self._day: int | None = None  # of the last time whose year was noted
        self._halves = self._joined = 0
        self._leads: dict[
            str, bool
        ] = {}  # what stood before a traceback's first line, and whether it did before others

    def read(self, progress: Progress | None) -> _Read:
        """Reads it to its end."""
        scanner = Scanner(self._matcher.worth, lambda: self._matcher.strong, self._worth, ENDS)
        waiting: deque[_ParsedLine] = deque()
        for piece in scanner.pieces(self._stream, progress):
            if piece.late:
                self._drain(waiting, 0)
                for each in self._spoken(piece):
                    self._look_late(each)
                continue
            spoken = list(self._spoken(piece))
            wanted = max((self._after(each) for each in spoken), default=0) if piece.found else 0
            if piece.gap:
                self._drain(waiting, 0)
            if wanted:
                scanner.owe(wanted)
                if piece.before is not None:
                    waiting.extend(self._spoken(Piece(*piece.before, found=False, gap=True)))
            waiting.extend(spoken)
            self._drain(waiting, _MORE_LINES)
        self._drain(waiting, 0)
        seen = scanner.seen
        traces = self._traces.found()
        # a whole log that was pasted as a quotation is a log; a quotation within one that fails by itself is talk
        quoted = seen.quoted * 2 < max(1, seen.lines) and self._fails_unquoted()
        # most lines of a short log are both: each of many ranks has one
        known: dict[tuple[int, bytes], tuple[Line, ...]] = {}
        head, tail = self._plain(scanner.first, known)[:ENDS], self._plain(scanner.last(), known)[-ENDS:]
        loud = (*(replace(kept.line, times=kept.times) for kept in self._loud.values()), *self._late_loud)
        near = (*self._near, *self._late_near)
        file = FileSeen(self._name, seen.lines, seen.bytes, seen.binary, seen.cut, head, tail, loud, near)
        return _Read(file, list(self._events(quoted)), traces, self._years, self._yearless)

    def _fails_unquoted(self) -> bool:
        """Whether anything that is no quotation tells of a failure of its own; what launchers report is another's."""
        kept = (each for bucket in self._buckets.values() for each in bucket.first)
        return any(not each.quoted and each.role is Role.ROOT for each in kept)

    def _plain(self, pieces: Iterable[Piece], known: dict[tuple[int, bytes], tuple[Line, ...]]) -> tuple[Line, ...]:
        """The lines of the pieces that are not blank; ``known`` are those of pieces that were asked for before."""
        found: list[Line] = []
        for piece in pieces:
            lines = known.get((piece.number, piece.raw))
            if lines is None:
                lines = tuple(spoken.line for spoken in self._spoken(piece) if spoken.line.text.strip())
                known[piece.number, piece.raw] = lines
            found += lines
        return tuple(found)

    def _events(self, quoted_is_talk: bool) -> Iterator[Event]:
        kept = [each for bucket in self._buckets.values() for each in (*bucket.first, *bucket.last)]
        for each in sorted(kept, key=lambda one: (one.line.number, one.order)):
            line = each.line if each.times == 1 else replace(each.line, times=each.times)
            role = Role.ADVICE if each.quoted and quoted_is_talk else each.role
            yield Event(line, each.match.signature, role, each.match.values)

    def _spoken(self, piece: Piece) -> Iterator[_ParsedLine]:
        raw = piece.raw.decode("utf-8", "replace").rstrip("\r\n")
        if piece.lead:
            lead = piece.lead.decode("utf-8", "replace")
            raw = lead[: strip(lead).frame] + raw
        parts = inner.parts(raw)
        for text, outer in parts:
            said = strip(text)
            lead = self._led(said)
            inside = text[said.frame :] if said.frame or outer.collected else raw[outer.frame :] if outer.frame else ""
            line = Line(
                file=self._name,
                number=piece.number,
                text=said.text,
                raw=raw,
                source="kernel" if self._kernel and said.source == "program" else said.source,
                rank=said.rank if said.rank is not None else self._rank,
                host=said.host or lead,
                pid=said.pid,
                time_s=said.time_s if said.time_s is not None else outer.time_s,
                clock=said.clock or outer.clock,
                level=said.level or outer.level,
                times=piece.times,
                inside=inside,
                logged=said.at > said.frame or bool(outer.level),
            )
            if line.time_s is not None and line.clock == "wall":
                self._note_year(line.time_s)
            match = self._match(line.text, line.body if len(parts) == 1 else line.text) if piece.found else None
            yield _ParsedLine(line, said, piece.found, match)

    def _led(self, said: LogMessage) -> str:
        """Takes off what a collector that nobody here knows puts before each line; returns it, "" where there is none.

        What stands before a traceback's first line and before its first frame too is no logger's message.
        """
        text = said.text
        at = text.find("Traceback (most recent call last)")
        if at > 0 and _LEAD_IN.search(text, 0, at) and len(self._leads) < _LEADS:
            self._leads.setdefault(text[:at], False)
        for lead, known in self._leads.items():
            if text.startswith(lead) and (known or text.startswith('  File "', len(lead))):
                self._leads[lead] = True
                said.frame += len(lead) if said.at == said.frame else 0
                said.at, said.text = said.at + len(lead), text[len(lead) :]
                return lead.strip()
        return ""

    def _worth(self, shape: bytes) -> bool:
        """Whether lines of a shape with a word of ours in it are to be read."""
        if len(shape) > _OUTLINED or b"\\" in shape or b"&" in shape:
            return True
        if self._matcher.outlined(shape) or _FILE_SHAPE.search(shape):
            return True
        # it holds what a signature needs, and may be the first half of a line that mail wrapped
        half = self._halves < _HALVES and _WRAPPED_AT <= len(shape) <= _WRAPPED_BELOW
        self._halves += half
        return half

    def _after(self, spoken: _ParsedLine) -> int:
        """How many lines after this one belong to what it tells, as far as can be known yet."""
        text = spoken.line.text
        if "File " in text or "Traceback (" in text or "----> " in text or (".py" in text and " in " in text):
            return _AFTER_FRAME
        if spoken.match is not None or spoken.said.level in ("error", "fatal") or _LOUD.search(text.lower()):
            return _AFTER
        return _MORE_LINES if len(text) <= _WRAPPED_BELOW else 0

    def _note_year(self, time_s: float) -> None:
        day = int(time_s // 86_400)
        if day == self._day:
            return
        self._day = day
        if _YEARLESS[0] <= time_s < _YEARLESS[1]:
            self._yearless = True
        elif len(self._years) < 50:
            self._years.add(datetime.fromtimestamp(time_s, UTC).year)

    def _drain(self, waiting: deque[_ParsedLine], leave: int) -> None:
        """Looks at the waiting lines but for the last ones, which may turn out to go on with those before."""
        while len(waiting) > leave:
            spoken = waiting.popleft()
            self._look(spoken, [each for each, _ in zip(waiting, range(_MORE_LINES), strict=False)])

    def _look(self, spoken: _ParsedLine, following: list[_ParsedLine]) -> None:
        line, said = spoken.line, spoken.said
        part = self._traces.take(line)
        if not line.text.strip():
            return
        match = spoken.match
        wrapped = _wrapped(spoken, following) if part in (tracebacks.OTHER, tracebacks.EXCEPTION) else []
        if wrapped and (match is not None or spoken.found or following[0].found) and self._joined < _JOINED:
            across = self._across(line.text, wrapped, match)
            self._joined += across is None
            if across is not None:
                match, text = across
                rest = text[len(line.text.rstrip()) :]
                line = replace(
                    line, text=text, raw=line.raw.rstrip() + rest, inside=line.inside and line.inside.rstrip() + rest
                )
        told = match is not None or (spoken.found and _LOUD.search(line.text.lower()) is not None)
        self._note_near(line, part, told)
        if match is None:
            if spoken.found and part in (tracebacks.OTHER, tracebacks.MESSAGE, tracebacks.EXCEPTION):
                self._hear(line, said)
            return
        role = Role.ADVICE if part == tracebacks.CODE else _role(match, line, said)
        if role is Role.ADVICE and part != tracebacks.CODE and match.signature.role is Role.ROOT:
            # what only quotes an error may tell of a failure of its own
            match, role = self._own(match, line, said) or (match, role)
        self._keep(line, match, role, said.quoted)

    def _note_near(self, line: Line, part: str, told: bool) -> None:
        """Keeps the line before one that tells of an error, or before a traceback, and some behind it."""
        # whose words those below an exception are is not known yet
        other = part in (tracebacks.OTHER, tracebacks.MESSAGE)
        if (told or not other) and self._above is not None and line.number - self._above.number == 1:
            self._keep_near(self._above)
        self._above = None
        if told or not other:
            self._behind = _BEHIND
        elif self._behind:
            self._behind -= 1
            self._keep_near(line)
        else:
            self._above = line

    def _keep_near(self, line: Line) -> None:
        if len(self._near) < NEAR // 2:
            self._near.append(line)
        else:
            self._late_near.append(line)

    def _own(self, quoted: _Match, line: Line, said: LogMessage) -> tuple[_Match, Role] | None:
        """What a line tells that quotes another failure, where it begins with that."""
        rows = (row for row in self._matcher.rows(line.text) if row.signature.category == "not-gpu-env")
        for row in rows:
            match = row.find(line.text)
            if match is not None and match.span[0] == 0 and match.signature is not quoted.signature:
                match = replace(match, lead="")
                if (role := _role(match, line, said)) is not Role.ADVICE:
                    return match, role
        return None

    def _look_late(self, spoken: _ParsedLine) -> None:
        """Counts lines of a flood that were passed over."""
        if spoken.match is not None:
            role = _role(spoken.match, spoken.line, spoken.said)
            self._keep(spoken.line, spoken.match, role, spoken.said.quoted)
        else:
            self._hear(spoken.line, spoken.said)

    def _match(self, text: str, raw: str) -> _Match | None:
        if text in self._remembered:
            return self._remembered[text]
        rows = self._matcher.rows(text)
        found = _first(rows, text)
        if found is None and rows and text[:1] == " ":
            found = _first(rows, text.lstrip())
        if found is None and raw != text:
            # what looked like a prefix may be the program's own word: "ERROR: Failed building wheel"
            found = _first(self._matcher.rows(raw), raw)
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        self._remembered[text] = found
        return found

    def _across(self, text: str, wrapped: Sequence[str], known: _Match | None) -> tuple[_Match, str] | None:
        """A match that goes on in the lines after, and the joined text; with ``known`` only one of the same signature
        that tells more."""
        end = len(text.rstrip())
        for count in range(1, len(wrapped) + 1):
            for glue in (" ", ""):
                joined = glue.join((text.rstrip(), *wrapped[:count]))
                rows = self._matcher.rows(joined)
                if known is not None:
                    rows = [row for row in rows if row.signature is known.signature]
                for row in rows:
                    found = row.find(joined)
                    if found is None or found.span[0] > end - _EACH_HALF or found.span[1] < end + _EACH_HALF:
                        continue
                    values = found.values
                    if known is None or (len(values) > len(known.values) and known.values.items() <= values.items()):
                        return found, joined
        return None

    def _keep(self, line: Line, match: _Match, role: Role, quoted: bool) -> None:
        self._order += 1
        name = match.signature.id
        key: tuple[str, object] = (name, (line.process, role))
        bucket = self._buckets.get(key)
        if bucket is None:
            if self._processes.get(name, 0) >= _PROCESSES:
                key = (name, None)
            else:
                self._processes[name] = self._processes.get(name, 0) + 1
            bucket = self._buckets.setdefault(key, _Bucket())
        for kept in (*bucket.first, *bucket.last):
            if kept.line.text == line.text and kept.role is role:
                kept.times += line.times
                return
        kept = _PendingEvent(self._order, line, match, role, quoted, line.times)
        if len(bucket.first) < FIRST:
            bucket.first.append(kept)
            return
        if len(bucket.last) == LAST:
            bucket.first[-1].times += bucket.last[0].times
        bucket.last.append(kept)

    def _hear(self, line: Line, said: LogMessage) -> None:
        """Keeps a line that sounds like an error; those that differ in numbers only are one."""
        low = line.text.lower()
        loud = _LOUD.search(low) or said.level in ("error", "fatal") or line.body.startswith(_TASK)
        if (
            said.prompt
            or not loud
            or _QUIET.search(low)
            or (_COUNT.search(low) and not _LOUD.search(ZERO.sub(" ", low)))
        ):
            return
        if _EXCERPT.match(line.text):
            return
        shape = _NUMBER.sub("0", low)
        if (kept := self._loud.get(shape)) is not None:
            kept.times += line.times
        elif len(self._loud) < LOUD // 2:
            self._loud[shape] = _PendingEvent(0, line, _NOTHING, Role.ROOT, False, line.times)
        else:
            self._late_loud.append(line)


_NUMBER = re.compile(r"\d+")
_COUNT = re.compile(r"s?[\"']?[ :=]{1,2}0\b|\b(?:0|no|zero|without) ")  # of what did not happen, perhaps
_NOTHING = _Match(Signature("", "", Role.DIAGNOSTIC, "", "", "", ""), {}, "")


def _first(rows: Iterable[_Row], text: str) -> _Match | None:
    return next(filter(None, (row.find(text) for row in rows)), None)


# a pattern that takes in what stands before its words: "^.*?an illegal memory access"
_WIDE = re.compile(r"(?<!\\)\.(?:[*+]|\{)|\][*+{]")


def _lead(signature: Signature, text: str, found: re.Match[str]) -> str:
    """What stands before the words of the signature."""
    before, anchor, _ = signature.pattern.lower().partition(signature.anchor)
    if anchor and _WIDE.search(before):
        at = text.lower().find(signature.anchor, found.start())
        return text[: max(at, found.start())]
    return text[: found.start()]


def _values(found: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in found.groupdict().items() if value is not None}


# --- wrapped lines ----------------------------------------------------------------------------------------------------

_ENDED = (".", "!", "?", ";", "}")
_BEGINS = re.compile(r"\s*(?:Traceback|File \"|Exception|raise |[-=*+#~`|]{3,}|$)|\S{1,80}(?:Error|Exception): ")


def _wrapped(spoken: _ParsedLine, following: Sequence[_ParsedLine]) -> list[str]:
    """The lines after that can be the rest of this one: without a prefix of their own, after a line of some length."""
    rest: list[str] = []
    before = spoken
    for each in following:
        if not _WRAPPED_AT <= len(before.line.body) <= _WRAPPED_BELOW or before.line.text.rstrip().endswith(_ENDED):
            break
        fresh = each.said.at > each.said.frame or each.said.prompt or each.line.number == before.line.number
        fresh = fresh or each.line.process != before.line.process
        fresh = fresh or (each.match is not None and spoken.match is None)
        if fresh or _BEGINS.match(each.line.text) or len(each.line.text) > LONGEST // 8:
            break
        rest.append(each.line.text.strip())
        before = each
    return rest


# --- talk -------------------------------------------------------------------------------------------------------------

_STATED = re.compile(
    r"\b\w*(?:Error|Exception|Warning|Failure)\b\W|^ptxas\b|what\(\)|NCCL (?:WARN|INFO)|NVRM|terminate called|^\s*$"
)
_SPEAKER = re.compile(
    r"(?i:\b(?:I|I'm|I've|I'd|we|we're|we've|my|our|your|you're|think|guess|maybe|perhaps|probably|seems?|suspect"
    r"|anyone|anybody|someone|somebody|hello|hi|thanks|please|e\.g\.|for example|such as|looks like|turns out)(?![\w'])"
    r"|\b(?:if|when|once|unless|should|in case) you (?:see|get|run|have|hit|want|encounter|experience|meet)\b"
    r"|\b(?:did|do|does|have|has|can|could|is|are|was|why|how|what|when) (?:you|I|we|this|that|it|the|there|anyone)\b"
    r"|\b(?:same|similar|following|this|that|these|of|an?|the|(?<!ed )(?<!turns )(?<!fails )(?<!exits )(?<!ends )with)"
    r" (?:issue|problem|errors?|messages?|exceptions?)\b(?! *:))"
)
# somebody's words in a conversation, behind who says them
_ASKS = re.compile(r"[A-Za-z][\w ]{0,20}> (?:.{0,200}\b(?:my|your|you|I|someone|anyone|says?|means?)\b|\s{0,8}$)")
_FUNCTION = re.compile(
    r"(?i)\b(?:the|is|it|that|this|a|of|to|with|on|and|but|in|for|after|so|because|if|when|was|not|by)\b"
)
_WORD = re.compile(r"[A-Za-z']+")
_COMMENT = re.compile(r"\s*(?:#(?!\d)|//|/\*|--\s|<!--|;;|rem\s)")
_HEADED = re.compile(
    r"\s*#{2,6} (?:\d{1,3}(?:\.\d{1,3}){0,3}\.? )?$"
)  # what is a heading's whole text is printed, not said
_TABLE = re.compile(r"\s*\| ?(?:`|\[[^\]\n]{1,200}\]\(|\*\*)")  # a row of a table in Markdown
_GREP = re.compile(r"[\w./-]{1,200}\.(?:py|cc|cpp|cu|cuh|c|h|hpp|md|rst|sh|yml|yaml)[:-]\d{1,6}[:-]\s*")
# a hit of grep in what is no program, and inline code in a sentence of a document
_QUOTED_FILE = re.compile(r"[\w./-]{1,200}\.(?:md|rst|txt|jsonl?|ya?ml|ipynb|html)[:-]\d{1,6}[:-]")
# the name of a test with what it is given, as pytest prints it
_TESTED = re.compile(r"_{1,80} \S{0,200}test\w*\[|(?:\S{1,40} )?[\w./-]{1,200}\.py::\w")
# a string of a record that is no log's message, and a row of a table of other jobs, with their states
_DATA = re.compile(
    r"[\[{,(] ?\"(?!(?!(?:last|prev|previous|prior|expected|known|example|sample)_)"
    r"(?:\w{0,20}_)?(?:msg|message|error|err|exception|reason|stderr|stdout|log|line|details?|traceback"
    r"|cause|event|body)\")"
    r"[\w -]{1,60}\": ?\"[^\"\n]{0,300}$"
)
# an item of a list, of a file of settings or of what a program shows of its own
_ITEM = re.compile(r"(?:^[A-Z][A-Z0-9_]{1,60}=[\"']|^\s*- [\"']|(?:^\s*|\[)[\"'])(?:[\w ]{1,40}: (?:an? )?)?$")
_FIRST_COLUMN = re.compile(r"[\w./:-]{1,60}(?:,|\t|  | ?\|)")
_STATE_COLUMN = re.compile(
    r"(?:,|\t|  |\|) ?(?i:failed|fail|crashed|cancelled|oom|timeout|node_fail)(?:,\"?|\t| {2,8}| {0,8}\| {0,8})"
    r"(?:[\w.]{1,40} ?(?:[Ee]rror|Exception): |[\w.]{0,40}(?:Error|Exception): ){0,2}(?:an? )?$"
)
# one side of a comparison that a test shows, and what stands between it and the other side
_COMPARED = re.compile(r"\bAssertionError: (?:assert )?(?:not )?[bfr]?(?P<quote>['\"])[^'\"\n]{0,200}$")
_WITH = re.compile(r".{0,300}['\"] (?:not in|in|==|!=|is|not found in|unexpectedly found in) ")
# what was met by another run, and a line of a list of changes
_EARLIER = re.compile(r"(?i)\b(?:previous|earlier|prior|former) (?:run|attempt|job|try|session|launch)\b")
_OF_EARLIER = re.compile(
    r".{0,200}\b(?:seen|met|hit|happened|occurred|found) (?:in|by|during) (?:an?|the|its) "
    r"(?:previous|earlier|prior|former|last) (?:run|attempt|job|try|session|launch)\b"
)
# what a test is called with, and what pytest shows of the values in an assertion
_SHOWN = re.compile(
    r"(?:SKIPPED|XFAIL) (?:\[\d{1,6}\] )?\S{1,300}(?: - |: )|"
    r"(?:FAIL|ERROR): \w{0,40}test\w* \(|\s*\+ {1,8}(?:where|and) {1,3}\S.{0,200} = \S"
)
# a part of a message in the source of a library, which tracebacks show around a frame
_LITERAL = re.compile(r"\s{8,}[bfruBFRU]{0,2}(?P<quote>[\"'])(?!.{0,200}[\"'] ?:)")
_CHANGE = re.compile(
    r"\s*(?:[-*+] )?(?:\[?v?\d{1,3}\.\d[\w.]*\]?:? )?(?i:fix(?:ed|es)?|bugfix|resolve[sd]?)\b(?:\(\w{1,20}\))?[: ]"
)
_LEAD = 400  # characters before the words of an error that are looked at for what they stand in
_QUOTE_MARKS = ('"', "'")
_NONE = re.compile(r"e?s ?[:=] ?0(?![.\dx])")  # "illegal memory accesses: 0"
# a line of source code that a compiler or BuildKit shows, by its number
_EXCERPT = re.compile(r"\s{0,8}\d{1,6} {1,4}\| ")
_MARKED = re.compile(r"\s*(?:[-*+>] |\*\*|#{1,6} |\d{1,2}\. )")
_CODE = re.compile(
    r"\s*(?:[-+]\s+)?(?:#|//|(?:raise|throw|return|assert|echo|grep|rg|elif|if|with pytest)\b|f?printf?\(|f?puts\("
    r"|(?:logger|logging|log)\.\w+\("
    r"|warnings\.warn|LOG\(|TORCH_\w+\(|AT_ERROR\(|CHECK\w*\(|(?:std::)?(?:cerr|cout)\s*<<"
    r"|\w{1,60} = (?:[rfb]?[\"'(\[{]|[\w.]{1,80}\())"
)


def _role(match: _Match, line: Line, said: LogMessage) -> Role:
    return Role.ADVICE if _talk(match, line, said) else match.signature.role


def _length(match: _Match, text: str) -> int:
    """How far the signature's anchor reaches into what follows its lead."""
    at = text.lower().find(match.signature.anchor)
    return at + len(match.signature.anchor) if at >= 0 else len(text)


def _talk(match: _Match, line: Line, said: LogMessage) -> bool:
    """Whether the line speaks about the error instead of being it: a prompt, code, a comment, somebody's prose."""
    lead = match.lead
    if said.prompt and "prose" in match.signature.traits and match.signature.role is Role.DIAGNOSTIC:
        return False  # the command itself is what the row asks for
    if said.prompt or any(shape.match(lead) for shape in (_COMMENT, _TABLE, _TESTED, _EXCERPT)):
        return said.prompt or not _HEADED.match(lead)
    if _QUOTED_FILE.match(lead) or (lead.count("`") % 2 and _MARKED.match(lead)):
        return True
    near = lead[-_LEAD:]
    if match.rest is not None and names.spoken_of(near, match.rest):
        return True
    # what stood before a quoted name may be its key: `solver: "ncclSystemError"`
    valued = match.rest is not None and (names.is_value(near, match.rest) or (said.at > 0 and lead in _QUOTE_MARKS))
    data = not valued and (_DATA.search(near) or _ITEM.search(near))
    if data or (_FIRST_COLUMN.match(lead) and _STATE_COLUMN.search(near)):
        return True
    if lead.count("`") % 2 and _SPEAKER.search(near):
        return True
    if _EARLIER.search(near) or _CHANGE.match(lead) or _OF_EARLIER.match(line.text, len(lead)):
        return True
    if _SHOWN.match(lead):
        return True
    # one that goes on in the next line of the source
    if (literal := _LITERAL.match(lead)) and line.text.rstrip().endswith(f" {literal['quote']}"):
        return True
    if _COMPARED.search(near) and _WITH.match(line.text, len(lead)):
        return True
    if _NONE.match(line.text, len(lead) + _length(match, line.text[len(lead) :])):
        return True
    hit = _GREP.match(lead)
    statement = _CODE.match(lead, hit.end() if hit else 0)
    if statement and not valued and any(mark in lead[statement.start() :] for mark in "\"'(`#/"):
        return True
    if "prose" in match.signature.traits or line.source == "kernel":
        return False
    plain = lead[-400:]
    stated = _STATED.search(plain)
    if stated and not _ASKS.match(plain[: stated.start()]):
        return False
    if said.level and plain.rstrip()[-1:] == ":":
        return False  # "E0101 there was an error before creating the handle: CUDA ..."
    if _SPEAKER.search(plain):
        return True
    own = said.at > 0 or bool(said.level)
    words = _WORD.findall(plain)
    return not own and len(words) >= 6 and len(_FUNCTION.findall(plain)) >= 3 and plain.rstrip()[-1:] not in ":(="


# --- years ------------------------------------------------------------------------------------------------------------

_YEARLESS = (datetime(NO_YEAR, 1, 1, tzinfo=UTC).timestamp(), datetime(NO_YEAR + 1, 1, 1, tzinfo=UTC).timestamp())


def _with_year(line: Line, year: int) -> Line:
    if line.time_s is None or line.clock != "wall" or not _YEARLESS[0] <= line.time_s < _YEARLESS[1]:
        return line
    when = datetime.fromtimestamp(line.time_s, UTC)
    try:
        moved = when.replace(year=year)
    except ValueError:  # 29 February
        return line
    return replace(line, time_s=moved.timestamp())


def _dated(one: _Read, year: int) -> _Read:
    """The same with lines of ``year`` where they name none."""
    seen = one.seen
    kept = (seen.head, seen.tail, seen.loud, seen.near)
    head, tail, loud, near = (tuple(_with_year(line, year) for line in lines) for lines in kept)
    events = [replace(event, line=_with_year(event.line, year)) for event in one.events]
    traces = tuple(
        replace(trace, first=_with_year(trace.first, year), line=_with_year(trace.line, year)) for trace in one.traces
    )
    seen = replace(seen, head=head, tail=tail, loud=loud, near=near)
    return _Read(seen, events, traces, one.years, one.yearless)
