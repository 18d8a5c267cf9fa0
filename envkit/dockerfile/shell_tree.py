"""What a shell's text becomes: words, commands and compound commands as a tree, each with its place in the file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from envkit.model import Span
from envkit.records import dataclass


class HasPositions(Protocol):
    """A text that knows where its characters stand in a file (``parse.Text``)."""

    @property
    def value(self) -> str:
        """The characters."""

    def span(self, start: int, end: int) -> Span:
        """Where the characters from ``start`` to ``end`` stand."""


class HereText(Protocol):
    """A here-document that the Dockerfile's own grammar has cut off already (``parse.Heredoc``)."""

    @property
    def name(self) -> str:
        """Its delimiter without quotes."""

    @property
    def content(self) -> HasPositions:
        """Its lines."""


@dataclass(frozen=True, slots=True)
class Piece:
    """``length`` characters of a made text and the stretch they come from; ``exact`` where they are the same ones."""

    length: int
    start: int
    end: int
    exact: bool
    opaque: bool = False  # nobody knows what stands here; the text is what was written


class Source:
    """A script: its characters, and where each comes from in a text of the file.

    A script that a shell is handed as an argument is made of pieces of the outer one, quotes taken off.
    """

    __slots__ = ("_at", "_pieces", "opaque", "text", "value")

    def __init__(self, value: str, text: HasPositions, pieces: Sequence[Piece] = ()) -> None:
        self.value = value
        self.text = text
        self._pieces = pieces
        self._at: list[int] = []
        self.opaque: dict[int, int] = {}
        position = 0
        for piece in pieces:
            self._at.append(position)
            if piece.opaque and piece.length:
                self.opaque[position] = position + piece.length
            position += piece.length

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Where ``start`` to ``end`` stands in the text underneath."""
        if not self._pieces:
            return start, end
        first = max(bisect_right(self._at, start) - 1, 0)
        last = max(bisect_right(self._at, max(end - 1, start)) - 1, first)
        one, other = self._pieces[first], self._pieces[last]
        low = one.start + (start - self._at[first]) if one.exact else one.start
        high = other.start + (end - self._at[last]) if other.exact else other.end
        return low, max(low, high)

    def span(self, start: int, end: int) -> Span:
        """Where ``start`` to ``end`` stands in the file."""
        if not self._pieces:
            return self.text.span(start, end)
        return self.text.span(*self.origin(start, end))


@dataclass(slots=True, eq=False, repr=False)
class Part:
    """A piece of a word.  ``kind``: "lit", "var", "cmd", "arith", "proc" or "opaque".

    ``text`` is a literal with its quotes taken off, a variable's name or an arithmetic expression; ``op`` what
    ``${name op ...}`` does, ``first`` and ``second`` its operands; ``body`` a substituted command; ``index`` an
    array's subscript.
    """

    kind: str
    start: int
    end: int
    text: str = ""
    quoted: bool = False
    op: str = ""
    first: tuple[Part, ...] = ()
    second: tuple[Part, ...] | None = None
    body: Seq | None = None
    source: Source | None = None  # of ``body``, where it is not the word's own (backquotes)
    index: str = ""


@dataclass(slots=True, eq=False, repr=False)
class Token:
    """One word as written; ``plain`` is its text where nothing in it means anything to the shell."""

    start: int
    end: int
    plain: str | None = None
    parts: tuple[Part, ...] = ()


@dataclass(slots=True, eq=False, repr=False)
class Assign:
    """``name=value``, ``name+=value``, ``name=(a b)``; ``index`` is what stands between brackets."""

    name: str
    start: int
    end: int
    value: Token
    append: bool = False
    index: str = ""
    array: tuple[Token, ...] | None = None


@dataclass(slots=True, eq=False, repr=False)
class Redir:
    """A redirection; for a here-document ``body`` has its text and ``parts`` what is in it."""

    op: str
    target: Token
    start: int
    end: int
    fd: str = ""
    name: str = ""
    expands: bool = True
    body: Source | None = None
    parts: tuple[Part, ...] = ()


@dataclass(slots=True, eq=False, repr=False)
class Simple:
    """A simple command; an Assign among its words is an argument of export, declare and their like."""

    start: int
    end: int
    assigns: list[Assign]
    words: list[Token | Assign]
    redirects: list[Redir]


@dataclass(slots=True, eq=False, repr=False)
class Pipeline:
    """Commands joined by "|" or "|&"; ``ops`` has one operator fewer."""

    items: list[Node]
    ops: list[str]
    negated: bool = False


@dataclass(slots=True, eq=False, repr=False)
class AndOr:
    """Pipelines joined by "&&" and "||"."""

    items: list[Node]
    ops: list[str]


@dataclass(slots=True, eq=False, repr=False)
class Seq:
    """Commands one after the other; ``background`` are the indexes of those that "&" ends."""

    items: list[Node]
    background: set[int]


@dataclass(slots=True, eq=False, repr=False)
class Block:
    """``{ ...; }`` or ``( ... )``."""

    body: Seq
    subshell: bool
    redirects: list[Redir]


@dataclass(slots=True, eq=False, repr=False)
class If:
    """``if``: pairs of a condition and what follows then, and ``else``."""

    clauses: list[tuple[Seq, Seq]]
    otherwise: Seq | None
    redirects: list[Redir]


@dataclass(slots=True, eq=False, repr=False)
class Loop:
    """``while`` and ``until``."""

    condition: Seq
    body: Seq
    until: bool
    redirects: list[Redir]


@dataclass(slots=True, eq=False, repr=False)
class For:
    """``for`` (and ``select``); ``words`` is None without ``in``; a C-style loop has no name."""

    name: str
    words: list[Token] | None
    body: Seq
    redirects: list[Redir]


@dataclass(slots=True, eq=False, repr=False)
class Case:
    """``case``: the word, and branches of patterns, body and terminator."""

    word: Token
    branches: list[tuple[list[Token], Seq, str]]
    redirects: list[Redir]


@dataclass(slots=True, eq=False, repr=False)
class Function:
    """The definition of a function."""

    name: str
    body: Node


@dataclass(slots=True, eq=False, repr=False)
class Condition:
    """``[[ ... ]]``: words, and operators as strings."""

    items: list[Token | str]
    redirects: list[Redir]


@dataclass(slots=True, eq=False, repr=False)
class Arithmetic:
    """``(( ... ))``."""

    text: str
    redirects: list[Redir]


Node = Simple | Pipeline | AndOr | Seq | Block | If | Loop | For | Case | Function | Condition | Arithmetic
