"""Puts Python tracebacks together from lines that several processes wrote between one another.

Read are CPython's own form (chained, in groups, cut at either end), IPython's, pytest's and rich's.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import field

from envkit.logs.records import Frame, Line, Traceback
from envkit.records import dataclass, replace

FIRST, LAST = 200, 50
"""Tracebacks kept of a reading: so many from its beginning, so many from its end."""

_DEEPEST = 200  # frames kept of one traceback: a few of the outermost and the innermost
_OUTERMOST = 20
_STRANGE = 24  # lines of others that may stand between two lines of a traceback
_MESSAGE_LINES, _MESSAGE = 14, 4000
_STREAMS = 2000  # processes whose tracebacks are followed at once

_BARS = re.compile(r"^[ ]{0,40}(?:[|│] ?)+(?=\S|  )|^ {0,40}\+(?:-\+)?-{3,} {0,2}\d{0,4} {0,2}-{0,60}$")
_HEAD = re.compile(r"^(?P<lead>.{0,300}?)(?:Exception Group )?Traceback \((?:most recent call last|innermost last)\):?")
_AT = r"(?P<line>\d{1,9})"
_IN = r"(?P<function>[^\n]{1,300})"
_FRAME = re.compile(rf'^(?P<indent> *)File "(?P<file>[^"\n]{{1,500}})", line {_AT}(?:, in {_IN})?')
_FAULT_HANDLER = re.compile(r"\", line \d{1,9} in ")  # which shows no source (CPython, Python/traceback.c)
_OTHER_FRAMES = (
    re.compile(rf"^(?P<indent> *)File (?P<file>[~/\w][^:\n]{{0,400}}):{_AT}(?:, in {_IN})?$"),
    re.compile(
        r"^(?P<indent> *)(?P<file>(?:[~/]|[A-Z]:\\)[^\n:]{1,400}\.py|<ipython-input-[^>\n]{1,60}>)"
        r" in (?P<function>[\w<>.]{1,200}.{0,200})$"
    ),
    re.compile(rf"^(?P<indent> *)(?P<file>(?:Cell |Input )In ?\[\d{{1,5}}\]),? (?:line {_AT}|in {_IN})"),
    re.compile(rf"^(?P<indent> *)(?P<file>[\w./~-]{{1,300}}\.pyx?):{_AT}:? in (?P<function>[\w<>.]{{1,200}})$"),
)
_CODE = re.compile(r"^(?:-{2,6}> ?\d{1,6}\b|> {1,8}\S|\s{1,8}\d{1,6}(?: |$)|[\s~^]{1,400}$)")
_EXCEPTION = re.compile(
    r"^(?!During: )(?P<kind>(?:[A-Za-z_]\w{0,80}\.){0,10}(?P<name>[A-Za-z_]\w{0,100}))(?:: ?(?P<message>.*)|)$"
)
_RAISED = re.compile(
    r"(?:Error|Exception|Interrupt|Exit|Iteration|Warning|Timeout|Failure|Fault|Abort(?:ed)?|Killed|Group|Failed|Refused|NotFound|OOM|Empty|Full|^(?:gai|h)?error|^timeout)$"
)
_DURING = "During handling of the above exception"
_FROM = "The above exception was the direct cause"

HEAD, FRAME, CODE, EXCEPTION, MESSAGE, OTHER = "head", "frame", "code", "exception", "message", ""


@dataclass(slots=True)
class _Open:
    """A traceback that is being written."""

    first: Line
    indent: int
    within: str
    last: Line
    frames: list[Frame] = field(default_factory=list)
    strange: int = 0
    code: bool = False  # the line before was a frame
    depth: int = 0  # columns before the first frame


# in a message of several lines, the one that says what is wrong
# of a compiler that says below its own exception which one it met (torch/_dynamo/exc.py)
_INNER = re.compile(r"\bgot [\w.]{1,80}(?:Error|Exception)\(")
_HEADING = re.compile(r":$|\b\d{1,4} validation errors? for \w")  # of a message whose words stand below
_TELLS = re.compile(r"(?i)error|mismatch|missing|unexpected|undefined|cannot")


@dataclass(slots=True)
class _Closed:
    """One whose exception is known and whose message may go on."""

    first: Line
    line: Line
    frames: tuple[Frame, ...]
    kind: str
    message: list[str]
    within: str
    telling: Line | None = None


@dataclass(slots=True)
class _Stream:
    """What one process is writing."""

    open: _Open | None = None
    closed: _Closed | None = None
    within: str = ""


class Tracebacks:
    """Takes lines one after another and says what each is to a traceback."""

    def __init__(self) -> None:
        self._streams: dict[tuple[object, ...], _Stream] = {}
        self._first: list[Traceback] = []
        self._last: deque[Traceback] = deque(maxlen=LAST)

    def take(self, line: Line) -> str:
        """HEAD, FRAME, CODE (source text that a frame quotes), EXCEPTION, MESSAGE (more of it), or OTHER."""
        stream = self._streams.get(line.process)
        text = line.text
        if "|" in text[:40] or "│" in text[:40] or "+-" in text[:44]:
            text = _BARS.sub("", text, count=1)
        found = _FRAME.match(text)
        if stream is None:
            if found is None and "Traceback (" not in text:
                found = _other_frame(text)
                if found is None:
                    return OTHER
            stream = self._stream(line)
        if "Traceback (" in text and (head := _HEAD.match(text)):
            self._finish(stream)
            stream.open = _Open(line, len(text) - len(text.lstrip()), stream.within, line)
            if head["lead"].strip():
                # a logger's words, or IPython's exception name: what comes back to the margin ends it
                stream.open.indent = 0
            stream.within = ""
            return HEAD
        if found is None:
            found = _other_frame(text)
        if found is not None:
            return self._frame(stream, line, found)
        if stream.open is not None:
            return self._inside(stream, stream.open, line, text)
        return self._after(stream, line, text)

    def found(self) -> tuple[Traceback, ...]:
        """All of them so far, the open ones too, in the order of their ends."""
        for stream in self._streams.values():
            self._finish(stream)
        self._streams.clear()
        return (*self._first, *self._last)

    def _stream(self, line: Line) -> _Stream:
        if len(self._streams) >= _STREAMS:
            oldest = next(iter(self._streams))
            self._finish(self._streams.pop(oldest))
        return self._streams.setdefault(line.process, _Stream())

    def _frame(self, stream: _Stream, line: Line, found: re.Match[str]) -> str:
        values = found.groupdict()
        if stream.open is None:
            self._finish(stream)
            indent = max(0, len(values["indent"]) - 2)
            stream.open = _Open(line, indent, stream.within, line)
            stream.within = ""
        now = stream.open
        if not now.frames:
            now.depth = len(values["indent"])
        frame = Frame(values["file"], int(values.get("line") or 0), (values.get("function") or "").strip())
        now.frames.append(frame)
        if len(now.frames) > _DEEPEST:
            del now.frames[_OUTERMOST]
        now.last, now.strange = line, 0
        now.code = _FAULT_HANDLER.search(line.text) is None
        return FRAME

    def _inside(self, stream: _Stream, now: _Open, line: Line, text: str) -> str:
        indent = len(text) - len(text.lstrip())
        plain = text.strip()
        if not plain or plain.startswith(("[Previous line repeated", "...")):
            return CODE
        # torchrun indents all of a traceback but its first line, so that the exception is not at the margin
        deeper = indent > now.indent and (not now.frames or indent >= now.depth) and not _is_marked(line)
        if deeper or _CODE.match(text):
            if now.code and now.frames and deeper:
                now.frames[-1] = replace(now.frames[-1], code=plain[:300])
            now.code = False
            return CODE
        if plain.startswith((_DURING, _FROM)):
            self._finish(stream)
            stream.within = "during" if plain.startswith(_DURING) else "from"
            return OTHER
        raised = _EXCEPTION.match(plain)
        if raised and now.frames and _is_exception(raised):
            said = [(raised["message"] or "").strip()]
            stream.open, frames = None, tuple(now.frames)
            stream.closed = _Closed(now.first, line, frames, raised["kind"], said, now.within)
            return EXCEPTION
        if now.code:
            # the quoted source of a paste that lost its indentation
            now.frames[-1] = replace(now.frames[-1], code=plain[:300])
            now.code = False
            return CODE
        now.strange += 1
        if now.strange > _STRANGE:
            self._finish(stream)
        return OTHER

    def _after(self, stream: _Stream, line: Line, text: str) -> str:
        plain = text.strip()
        if plain.startswith((_DURING, _FROM)):
            self._finish(stream)
            stream.within = "during" if plain.startswith(_DURING) else "from"
            return OTHER
        done = stream.closed
        if done is None:
            return OTHER
        # a collector gives each line its time, a logger one to all lines of what it says
        collected = done.first.time_s != done.line.time_s
        labelled = bool(line.clock) and not collected and line.time_s != done.line.time_s
        near = line.number - done.line.number <= _MESSAGE_LINES
        if not plain or labelled or not near or len(done.message) >= _MESSAGE_LINES:
            if plain or not near:
                self._finish(stream)
            return OTHER
        if (not done.message[0] or _HEADING.search(done.message[0])) and (
            done.telling is None or not _TELLS.search(done.telling.text)
        ):
            done.telling = line if done.telling is None or _TELLS.search(plain) else done.telling
        elif done.telling is None and _INNER.search(plain):
            done.telling = line
        done.message.append(plain)
        return MESSAGE

    def _finish(self, stream: _Stream) -> None:
        now, done = stream.open, stream.closed
        stream.open = stream.closed = None
        if done is not None:
            message = "\n".join(done.message).strip()[:_MESSAGE]
            self._keep(Traceback(done.first, done.line, done.frames, done.kind, message, done.within, done.telling))
        if now is not None and now.frames:
            self._keep(Traceback(now.first, now.last, tuple(now.frames), "", "", now.within))

    def _keep(self, trace: Traceback) -> None:
        if len(self._first) < FIRST:
            self._first.append(trace)
        else:
            self._last.append(trace)


def _other_frame(text: str) -> re.Match[str] | None:
    if ".py" not in text and "In" not in text and "File " not in text:
        return None
    return next((found for rule in _OTHER_FRAMES if (found := rule.match(text))), None)


def _is_marked(line: Line) -> bool:
    """Whether pytest marks it as what was raised."""
    return line.body.endswith(f"E   {line.text}") and line.text != line.body


def _is_exception(raised: re.Match[str]) -> bool:
    """Whether "name: message" is an exception: named like one, dotted, or at least a class by its capital letter.

    A word all in capitals ("NOTE: ...") is a logger's.
    """
    name = raised["name"]
    if _RAISED.search(name):
        return True
    if not name[0].isupper():
        return False
    return raised["kind"] != name or (not name.isupper() and raised["message"] is not None)
