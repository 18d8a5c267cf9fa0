"""An instruction of a Dockerfile and its texts, each character with its place in the file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from envkit.model import Span
from envkit.records import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """A logical text, put together of stretches of a file: continuations joined, comment lines in between left out.

    ``starts`` are the positions in the whole joined text where a stretch begins, ``places`` their lines and columns in
    the file (both from 1); ``offset`` is where this text begins in the joined one, so that slices share the map.
    """

    value: str
    path: str
    starts: tuple[int, ...]
    places: tuple[tuple[int, int], ...]
    offset: int = 0

    @classmethod
    def of(cls, value: str, path: str, line: int = 1, column: int = 1) -> Text:
        """A plain string as it stands in ``path`` from ``line`` and ``column`` on; its newlines are the file's."""
        starts, places = [0], [(line, column)]
        at = value.find("\n")
        while at >= 0:
            line += 1
            starts.append(at + 1)
            places.append((line, 1))
            at = value.find("\n", at + 1)
        return cls(value, path, tuple(starts), tuple(places))

    def __len__(self) -> int:
        return len(self.value)

    def __str__(self) -> str:
        return self.value

    def place(self, at: int) -> tuple[int, int]:
        """Line and column in the file of the character at ``at``; at the very end, of where the next would stand."""
        at += self.offset
        index = bisect_right(self.starts, at) - 1
        line, column = self.places[index]
        return line, column + at - self.starts[index]

    def span(self, start: int, end: int) -> Span:
        """Where the characters from ``start`` up to ``end`` stand in the file."""
        at = start + self.offset
        index = bisect_right(self.starts, at)
        line, column = self.places[index - 1]
        column += at - self.starts[index - 1]
        if end <= start:
            return Span(self.path, line, column, line, column)
        if index == len(self.starts) or end + self.offset <= self.starts[index]:  # within one line, as nearly all are
            return Span(self.path, line, column, line, column + end - start)
        end_line, end_column = self.place(end - 1)
        return Span(self.path, line, column, end_line, end_column + 1)

    def slice(self, start: int, end: int) -> Text:
        """The text from ``start`` up to ``end``."""
        return Text(self.value[start:end], self.path, self.starts, self.places, self.offset + start)

    def pick(self, stretches: Iterable[tuple[int, int]]) -> Text:
        """The stretches from a start up to an end, put together: what stays when quotes are taken away, say."""
        values, starts, places, length = [], [], [], 0
        for start, end in stretches:
            while start < end:
                index = bisect_right(self.starts, start + self.offset)
                stop = min(end, self.starts[index] - self.offset) if index < len(self.starts) else end
                starts.append(length)
                places.append(self.place(start))
                values.append(self.value[start:stop])
                length += stop - start
                start = stop
        if not starts:
            return self.slice(0, 0)
        return Text("".join(values), self.path, tuple(starts), tuple(places))


@dataclass(frozen=True, slots=True)
class Heredoc:
    """A here-document: ``content`` are its lines as they stand in the file, the last newline and any tabs included.

    ``expand`` is False where its word was quoted; ``chomp`` is True for ``<<-``: whoever uses the content takes the
    tabs at the begin of its lines away.  ``fd`` is the number before ``<<``, mostly "".
    """

    name: str
    content: Text
    expand: bool
    chomp: bool
    fd: str


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    ``name`` is upper case; ``text`` what follows it and its flags, without blanks around.  ``span`` goes from the name
    to the end of the last line that belongs to it, here-documents included.  ``flags`` are without their quotes
    ("--mount=type=cache,target=/x").  ``exec_form`` are the strings of a JSON list, HEALTHCHECK's after its word CMD;
    None for the shell form.  ``trigger`` is what ONBUILD holds back; its here-documents are ONBUILD's too.
    ``escape`` is the character that the file escapes with.
    """

    name: str
    span: Span
    text: Text
    flags: tuple[Text, ...] = ()
    heredocs: tuple[Heredoc, ...] = ()
    exec_form: tuple[str, ...] | None = None
    trigger: Instruction | None = None
    escape: str = "\\"
