"""A Dockerfile's text as the instructions that BuildKit sees in it, each character with its place in the file.

The rules are those of BuildKit's frontend/dockerfile/parser (parser.go, split_command.go, line_parsers.go and
directives.go) and of the Dockerfile reference.  Where BuildKit stops with an error, this parser notes a ``Problem`` and
reads on as a person would, for the rest of such a file is still worth a judgement.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from envkit.dockerfile.instructions import Heredoc, Instruction, Text
from envkit.dockerfile.words import SPACES, heredoc_name, heredoc_words, name_values, short
from envkit.model import Span
from envkit.patterns import pattern
from envkit.records import dataclass, replace

LONGEST_LINE = 65_535  # bytes; BuildKit reads lines with Go's bufio.Scanner, whose tokens end there
_TOO_LONG = f"the line is longer than {LONGEST_LINE:,} bytes, where BuildKit stops reading"

_MAY_BE_JSON = frozenset(("ADD", "CMD", "COPY", "ENTRYPOINT", "RUN", "SHELL", "VOLUME"))
_KNOWN = _MAY_BE_JSON | frozenset(
    ("ARG", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER", "ONBUILD", "STOPSIGNAL", "USER", "WORKDIR")
)
_MAY_HAVE_HEREDOCS = frozenset(("ADD", "COPY", "RUN"))
_DIRECTIVES = frozenset(("check", "escape", "syntax"))

_DIRECTIVE = pattern(rf"#[{SPACES}]*([a-zA-Z][a-zA-Z0-9]*)[\t\f\r ]*=[\t\f\r ]*(.+?)[\t\f\r ]*\Z", re.DOTALL)
_BLANKS = pattern(r"[\t\v\f\r ]+")
_HEREDOC = pattern(r"(\d*)<<(-?)[\t\n\f\r ]*([^<]*)\Z", re.ASCII)
_SURROGATE = pattern("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Problem:
    """A clause for which BuildKit refuses the file; ``too_long`` marks a line at which it stops reading."""

    message: str
    span: Span
    too_long: bool = False


@dataclass(frozen=True, slots=True)
class Parsed:
    """``directives`` are the parser directives by name in lower case (syntax, escape, check)."""

    instructions: tuple[Instruction, ...]
    escape: str
    directives: Mapping[str, str]
    problems: tuple[Problem, ...]


def parse(text: str, path: str) -> Parsed:
    """The instructions of a Dockerfile; any text gives a result.

    Columns count the characters of ``text``: a byte order mark at its begin is the first of them.  Only a newline ends
    a line, as for BuildKit.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    problems: list[Problem] = []
    _cut_before_too_long(lines, path, problems)
    mark = 1 if text.startswith("\ufeff") else 0
    head = lines[0][mark:] if lines else ""
    directives, comments = _directives([head, *lines[1:]] if mark else lines, path, problems)
    escape = directives.get("escape", "\\")
    if escape not in ("\\", "`"):
        escape = "\\"

    ends = _Ends(lines)
    instructions: list[Instruction] = []
    at, count = comments, len(lines)
    while at < count:
        raw = lines[at] if at or not mark else head
        line = raw.strip(SPACES)
        if not line or line[0] == "#":
            at += 1
            continue
        first = at
        raw = raw.rstrip("\r")
        column = len(raw) - len(raw.lstrip(SPACES)) + 1 + (mark if not at else 0)
        piece, goes_on = _continuation(raw.lstrip(SPACES), escape)
        at += 1
        if goes_on:
            pieces, starts, places, length = [piece], [0], [(first + 1, column)], len(piece)
            while goes_on and at < count:
                piece = lines[at].rstrip("\r")
                at += 1
                bare = piece.lstrip(SPACES)
                if not bare or bare[0] == "#":
                    continue
                piece, goes_on = _continuation(piece, escape)
                if piece:
                    starts.append(length)
                    places.append((at, 1))
                    pieces.append(piece)
                    length += len(piece)
            joined = Text("".join(pieces), path, tuple(starts), tuple(places))
        else:
            joined = Text(piece, path, (0,), ((first + 1, column),))
        end_column = len(lines[at - 1].rstrip("\r")) + 1
        instruction = _instruction(joined, at, end_column, escape, problems)
        if "<<" in joined.value:
            instruction, at = _with_heredocs(instruction, joined, at, ends, problems)
        instructions.append(instruction)
    _judge_order(instructions, path, problems)
    return Parsed(tuple(instructions), escape, directives, tuple(problems))


def _cut_before_too_long(lines: list[str], path: str, problems: list[Problem]) -> None:
    """BuildKit reads no further than a line that is too long; neither do we, which bounds the work a line can make."""
    if not lines or len(max(lines, key=len)) * 4 <= LONGEST_LINE:
        return
    for index, line in enumerate(lines):
        if len(line) * 4 <= LONGEST_LINE:
            continue
        size = len(line) if len(line) > LONGEST_LINE else len(line.encode("utf-8", "surrogatepass"))
        if size > LONGEST_LINE:
            problems.append(Problem(_TOO_LONG, Span(path, index + 1, 1, index + 1, len(line) + 1), too_long=True))
            del lines[index:]
            return


def _directives(lines: Sequence[str], path: str, problems: list[Problem]) -> tuple[dict[str, str], int]:
    """The parser directives at the top and how many lines they take."""
    found: dict[str, str] = {}
    for index, line in enumerate(lines):
        match = _DIRECTIVE.match(line.rstrip("\r").lstrip(SPACES))
        name = match[1].lower() if match else ""
        if match is None or name not in _DIRECTIVES:
            return found, index
        span = Span(path, index + 1, 1, index + 1, len(line) + 1)
        if name in found:
            problems.append(Problem(f"the parser directive {name} stands here for the second time", span))
            continue
        if name == "escape" and match[2] not in ("\\", "`"):
            problems.append(Problem(f"the escape character is {match[2]!r}, neither \\ nor `", span))
        found[name] = match[2]
    return found, len(lines)


def _continuation(line: str, escape: str) -> tuple[str, bool]:
    """The line without the escape character at its end, and whether one was there: it may have blanks behind it, but no
    second escape character before it.
    """
    bare = line.rstrip(" \t")
    if bare.endswith(escape) and bare[-2:-1] != escape:
        return bare[:-1], True
    return line, False


def _instruction(line: Text, end_line: int, end_column: int, escape: str, problems: list[Problem]) -> Instruction:
    """The instruction on one logical line."""
    value = line.value
    start = len(value) - len(value.lstrip(SPACES))
    stop = max(start, len(value.rstrip(SPACES)))
    blanks = _BLANKS.search(value, start, stop)
    name_end, at = blanks.span() if blanks else (stop, stop)
    name = value[start:name_end].lower().upper()
    where = line.span(start, name_end)
    span = Span(line.path, where.line, where.column, end_line, end_column)
    if name not in _KNOWN:
        what = f"there is no instruction {short(name)}" if name else "a continuation has no begin"
        problems.append(Problem(what, where))
    flags: tuple[Text, ...] = ()
    if value.startswith("--", at, stop):
        flags, at = _flags(line, at, stop, escape)
    while at < stop and value[at] in SPACES:
        at += 1
    text = line.slice(at, max(at, stop))

    exec_form = trigger = None
    if name in _MAY_BE_JSON:
        exec_form = _exec_form(text, problems)
    elif name == "HEALTHCHECK":
        blanks = _BLANKS.search(text.value)
        exec_form = _exec_form(text.slice(blanks.end(), len(text)), problems) if blanks else None
    elif name in ("ENV", "LABEL"):
        wrong = name_values(text.value, escape, legacy=True)[1]
        if wrong:
            problems.append(Problem(f"{name} {wrong}", span))
    elif name == "FROM" and text.value:
        count = len(_BLANKS.split(text.value))
        if count not in (1, 3):
            problems.append(Problem(f"FROM takes a name, or a name AS a stage, and here are {count} words", span))
    elif name == "ONBUILD" and text.value:
        if _BLANKS.split(text.value, maxsplit=1)[0].upper() == "ONBUILD":
            problems.append(Problem("ONBUILD holds another ONBUILD", span))
        else:
            trigger = _instruction(text, end_line, end_column, escape, problems)
    return Instruction(name, span, text, flags, (), exec_form, trigger, escape)


def _flags(line: Text, at: int, stop: int, escape: str) -> tuple[tuple[Text, ...], int]:
    """The words at ``at`` that begin with ``--``, and where what follows them begins; ``--`` alone ends them."""
    value = line.value
    found: list[Text] = []
    while value.startswith("--", at, stop):
        quote, quoted, kept, start = "", False, [], at
        while at < stop:
            char = value[at]
            if not quote and char in SPACES:
                break
            if char == escape:
                kept.append((start, at))
                at += 1
                start = at
            elif char == quote or (not quote and char in "'\""):
                kept.append((start, at))
                start, quote, quoted = at + 1, "" if quote else char, True
            at += 1
        at = min(at, stop)
        kept.append((min(start, at), at))
        flag = line.pick(kept)
        if flag.value == "--":
            return tuple(found), at
        if flag.value or quoted:
            found.append(flag)
        while at < stop and value[at] in SPACES:
            at += 1
    return tuple(found), at


def _exec_form(text: Text, problems: list[Problem]) -> tuple[str, ...] | None:
    """The strings of a JSON list; None for anything that is no JSON list, which BuildKit takes for the shell form."""
    value = text.value
    if not value.startswith("["):
        return None
    try:
        found = json.loads(value, parse_constant=_refuse, parse_int=_any_number, parse_float=_any_number)
    except RecursionError:  # thousands of lists in lists: well formed as far as it was read, and no list of strings
        found = [None] if value.endswith("]") else None
    except ValueError:
        found = None
    if found is None:
        return None
    if all(isinstance(string, str) for string in found):
        # Half of a pair of surrogates is what Go's decoder, too, takes for an unknown character.
        return tuple(_SURROGATE.sub("\ufffd", string) for string in found)
    problems.append(Problem(f"the JSON list {short(value)} holds more than strings", text.span(0, len(value))))
    return None


def _refuse(word: str) -> None:
    """NaN and Infinity are Python's, not JSON's."""
    raise ValueError(word)


def _any_number(digits: str) -> int:
    """A number's value matters to nobody here, and a long one takes long to read."""
    return len(digits)


class _Ends:
    """Finds the line that ends a here-document; the lines are put into a table once, however many there are."""

    __slots__ = ("_tables", "lines")

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self._tables: dict[bool, dict[str, list[int]]] = {}

    def find(self, name: str, chomp: bool, after: int) -> int | None:
        """The first line from ``after`` on that is ``name``, tabs before it aside where ``chomp`` says so."""
        if chomp not in self._tables:
            table: dict[str, list[int]] = {}
            for index, line in enumerate(self.lines):
                line = line.rstrip("\r")
                table.setdefault(line.lstrip("\t") if chomp else line, []).append(index)
            self._tables[chomp] = table
        places = self._tables[chomp].get(name, [])
        at = bisect_left(places, after)
        return places[at] if at < len(places) else None


def _with_heredocs(
    instruction: Instruction, line: Text, at: int, ends: _Ends, problems: list[Problem]
) -> tuple[Instruction, int]:
    """The instruction with the here-documents that follow its line, and the first line after them."""
    owner = instruction.trigger or instruction
    if owner.name not in _MAY_HAVE_HEREDOCS or owner.exec_form is not None:
        return instruction, at
    found: list[Heredoc] = []
    for word in heredoc_words(line.value):
        match = _HEREDOC.match(word)
        name = heredoc_name(match[3]) if match else None
        if match is None or name is None:
            continue
        stop = ends.find(name.text, bool(match[2]), at)
        if stop is None:
            # Before dockerfile 1.16 a blank after << made it none, and the shift in $((1 << 2)) was never meant as one.
            if not word.lstrip("0123456789").startswith(("<< ", "<<\t")):
                problems.append(Problem(f"the here-document {short(name.text)} has no end", instruction.span))
            continue
        content = Text.of("".join(f"{each}\n" for each in ends.lines[at:stop]), line.path, at + 1)
        found.append(Heredoc(name.text, content, not name.quoted, bool(match[2]), match[1]))
        at = stop + 1
    if not found:
        return instruction, at
    end = len(ends.lines[at - 1].rstrip("\r")) + 1
    trigger = instruction.trigger and _longer(instruction.trigger, tuple(found), at, end)
    return replace(_longer(instruction, tuple(found), at, end), trigger=trigger), at


def _longer(instruction: Instruction, heredocs: tuple[Heredoc, ...], end_line: int, end_column: int) -> Instruction:
    span = replace(instruction.span, end_line=end_line, end_column=end_column)
    return replace(instruction, span=span, heredocs=heredocs)


def _judge_order(instructions: Sequence[Instruction], path: str, problems: list[Problem]) -> None:
    """What BuildKit says of a file without a stage, and of what stands before the first one."""
    for instruction in instructions:
        if instruction.name == "FROM":
            return
        if instruction.name != "ARG":
            problems.append(Problem(f"{short(instruction.name)} stands before the first FROM", instruction.span))
            return
    what = "there is no FROM" if instructions else "there is no instruction in the file"
    problems.append(Problem(what, Span(path, 1, 1, 1, 1)))
