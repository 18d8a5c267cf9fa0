"""What the words of a shell become: variables, substitutions, splitting, as far as the text alone says."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import field, fields
from enum import Enum
from functools import lru_cache
from operator import attrgetter

from envkit.dockerfile import shell_values as values
from envkit.dockerfile.shell_tree import Assign, HasPositions, Node, Part, Piece, Pipeline, Seq, Simple, Source, Token
from envkit.model import Span
from envkit.patterns import pattern
from envkit.records import dataclass, replace
from envkit.subjects.dockerfile import Command, Redirect, Word

MOST = 2_000  # commands that one script may yield
# What one script may cost, in entries of environments that are copied; what else it does is weighed against them.
_BUDGET = 1_500_000
_STATEMENT, _WORD = 250, 5  # a command, and a word that it or an array gets, rounds of loops counted
_PER_ENTRY = 4  # characters that an expansion adds
_VALUE = 65_536  # characters of one variable's value
NAMES = 128  # functions, and variables that are unknown or unset
NAME = pattern(r"[A-Za-z_]\w*", re.ASCII)
_CHANGES = pattern(r"(?<![=!<>])=(?!=)|<<=|>>=|\+\+|--")  # in a sum: what gives a variable another value
_INHERITED = frozenset({"HOME", "PATH", "USER", "SHELL", "HOSTNAME", "LANG", "TERM", "LD_LIBRARY_PATH", "PYTHONPATH"})


class Status(Enum):
    """How a command ended: decided, presumed to succeed, or open (a test of what only the build knows)."""

    TRUE = 0
    FALSE = 1
    LIKELY = 2
    OPEN = 3


def status_of(value: bool | None) -> Status:
    return Status.OPEN if value is None else Status.TRUE if value else Status.FALSE


# How certain it is that a command runs.
CERTAIN, MAYBE, UNLIKELY = 2, 1, 0


@dataclass(slots=True)
class State:
    """What the shell knows at one moment.  ``env`` is shared until it changes."""

    env: dict[str, str]
    unknown: frozenset[str]
    cwd: str
    arrays: dict[str, tuple[Word, ...]] = field(default_factory=dict)
    args: tuple[str, ...] | None = ()
    functions: dict[str, tuple[Node, Source]] = field(default_factory=dict)
    level: int = CERTAIN
    stop: str = ""
    doubt: frozenset[str] = frozenset()  # "break", "return", "exit": what may have ended a loop, function, script
    previous: str = ""
    folders: tuple[str, ...] = ()
    name: str = ""  # what the script was started as
    file: str = ""  # the file that is read at the moment: the script, or one that it sources

    def become(self, other: State) -> None:
        """Takes over what is known in a branch that was surely taken."""
        for each in fields(State):
            setattr(self, each.name, getattr(other, each.name))

    def fork(self) -> State:
        """A subshell, or a branch that may not be taken."""
        return State(*_values(self))


_values = attrgetter(*(each.name for each in fields(State)))


# Gives the text of a file by its path and the folder that a relative one is below, None where that is not known.
Reader = Callable[[str, str], HasPositions | None]


@dataclass(slots=True)
class Field:
    """A word and what it is made of, for when it turns out to be a script; no pieces: the token's own characters."""

    word: Word
    source: Source
    token: Token
    pieces: tuple[Piece, ...] | None = None
    bits: tuple[tuple[Bit, str], ...] = ()  # what pieces are made of where somebody asks


@dataclass(slots=True)
class Bit:
    """A stretch of an expansion."""

    text: str
    part: Part
    sure: bool
    quoted: bool
    exact: bool = False
    fields: tuple[Word, ...] | None = None  # "$@" and "${array[@]}"
    inner: list[Bit] | None = None  # a default whose parts are quoted one by one


class Expansion(ABC):
    """One script being walked: its bounds, its variables, and what its words expand to."""

    def __init__(self, bash: bool, arch: str, read: Reader | None = None) -> None:
        self.bash = bash
        self.read = read
        self.arch = arch
        self.found: list[Command] = []
        self.assigned: list[tuple[str, Word]] = []
        self.complete = True
        self.budget = _BUDGET
        self.depth = 0
        self.outer: tuple[Redirect, ...] = ()
        self.called: set[str] = set()
        self.plain: dict[Token, Word] = {}  # words that mean nothing to the shell, and so are the same in each round
        self.bodies: dict[int, Source] = {}  # here-documents in which something was expanded, as scripts

    @abstractmethod
    def seq(self, body: Seq, source: Source, state: State, after: str, must: bool) -> Status:
        """Commands in their order; ``after`` is the operator in front, ``must`` that the build needs it to succeed."""

    def spend(self, entries: int = 0, *, statements: int = 0, words: int = 0, characters: int = 0) -> bool:
        """Takes from what the script may cost; False from when on that is used up, and commands may be missing."""
        self.budget -= entries + statements * _STATEMENT + words * _WORD + characters // _PER_ENTRY
        if self.budget < 0:
            self.complete = False
        return self.budget >= 0

    # Variables

    def get(self, name: str, state: State) -> tuple[str | None, bool]:
        """A variable's value (None where it is not known, or not set) and whether that is all there is to know."""
        if name in state.env:
            return state.env[name], True
        if name in ("0", "BASH_SOURCE"):
            named = state.name if name == "0" else state.file
            return named or None, bool(named)
        if name.isdigit():
            at = int(name) - 1
            if state.args is None or at < 0 or len(name) > 4:
                return None, False
            return (state.args[at] if at < len(state.args) else None), True
        if name in ("@", "*"):
            return (None, False) if state.args is None else (" ".join(state.args) or None, True)
        if name == "#":
            return (None, False) if state.args is None else (str(len(state.args)), True)
        if name == "PWD" and state.cwd:
            return state.cwd, True
        return None, False

    def put(self, name: str, value: str | None, state: State) -> None:
        """Sets a variable; None where its value is not known."""
        if value is not None and (len(value) > _VALUE or not self.spend(len(state.env))):
            value = None
        if value is None:
            if name in state.env:
                state.env = {key: each for key, each in state.env.items() if key != name}
            if len(state.unknown) < NAMES:
                state.unknown |= {name}
            else:
                self.complete = False
        elif state.env.get(name) != value:
            state.env = {**state.env, name: value}
            if name in state.unknown:
                state.unknown -= {name}
        if name in state.arrays:
            state.arrays = {key: each for key, each in state.arrays.items() if key != name}

    def assign(self, item: Assign, source: Source, state: State) -> Word:
        """Does one assignment and answers what was assigned."""
        span = source.span(item.start, item.end)
        raw = source.value[item.value.start : item.value.end]
        if item.array is not None:
            entries = len(state.arrays) + len(state.arrays.get(item.name, ()))
            if not self.spend(entries, words=len(item.array)):
                self.put(item.name, None, state)
                return Word(raw, raw, span, False)
            words = tuple(each.word for token in item.array for each in self.fields(token, source, state))
            if item.append:
                words = state.arrays.get(item.name, ()) + words
            self.put(item.name, words[0].text if words and words[0].sure else None if words else "", state)
            state.arrays = {**state.arrays, item.name: words}
            return Word(" ".join(word.text for word in words), raw, span, all(word.sure for word in words))
        word = replace(self.single(item.value, source, state), span=span)
        if item.index:
            self.put(item.name, None, state)
            return word
        text = word.text
        sure = word.sure
        if item.append:
            before, known = self.get(item.name, state)
            text = (before or "") + text
            sure = sure and known
        self.put(item.name, text if sure else None, state)
        return word

    # Expansion

    def bits(self, parts: Iterable[Part], source: Source, state: State) -> list[Bit]:
        """What each part of a word becomes."""
        made: list[Bit] = []
        for part in parts:
            if part.kind == "lit":
                made.append(Bit(part.text, part, True, part.quoted, part.end - part.start == len(part.text)))
            elif part.kind == "var":
                bit = self.variable(part, source, state)
                made.extend([bit] if bit.inner is None else bit.inner)
            elif part.kind == "cmd":
                made.append(self.substituted(part, source, state))
            elif part.kind == "arith":
                self.touched(part.text, state)
                made.append(self.bit(part, source, None))
            else:
                if part.kind == "proc" and part.body is not None:
                    self.inner(part.body, source, state)
                made.append(self.bit(part, source, None))
        return made

    def bit(self, part: Part, source: Source, text: str | None) -> Bit:
        """A value, or what was written where there is none."""
        if text is None or not self.spend(characters=len(text)):
            return Bit(source.value[part.start : part.end], part, False, part.quoted)
        return Bit(text, part, True, part.quoted)

    def joined(self, parts: Iterable[Part], source: Source, state: State) -> str | None:
        """The text of parts, None where one of them is not known."""
        bits = self.bits(parts, source, state)
        return "".join(bit.text for bit in bits) if all(bit.sure for bit in bits) else None

    def pattern(self, parts: Iterable[Part], source: Source, state: State) -> str | None:
        """The same as a pattern, in which what was quoted means itself."""
        bits = self.bits(parts, source, state)
        if not all(bit.sure for bit in bits):
            return None
        return "".join(values.escape(bit.text) if bit.quoted else bit.text for bit in bits)

    def variable(self, part: Part, source: Source, state: State) -> Bit:
        """``$name`` and all forms of ``${name ...}``."""
        name, op = part.text, part.op
        if op in ("bad", "indirect"):
            return self.bit(part, source, None)
        if part.index or (name in ("@", "*") and not op):
            words = self.listed(part, state)
            if words is not None or part.index:
                return self.words_of(part, source, words)
        value, known = self.get(name, state)
        has = bool(value) or (value is not None and ":" not in op)
        if op in (":-", "-", ":=", "="):
            if has:
                return self.bit(part, source, value)
            if not known and (name in state.unknown or name in _INHERITED or not NAME.fullmatch(name)):
                return self.bit(part, source, None)
            if op in (":=", "="):
                text = self.joined(part.first, source, state)
                if text is not None:
                    self.put(name, text, state)
                return self.bit(part, source, text)
            return self.default(part, source, state)
        if op in (":+", "+"):
            return self.default(part, source, state) if has else self.bit(part, source, "" if known else None)
        if op in (":?", "?"):
            return self.bit(part, source, value if has else None)
        if not known:
            return self.bit(part, source, None)
        value = value or ""
        return self.bit(part, source, self.operated(part, op, value, source, state) if op else value)

    def words_of(self, part: Part, source: Source, words: tuple[Word, ...] | None) -> Bit:
        """All words of an array or all positional parameters, or their number; not known without ``words``."""
        if words is None or part.op:
            return self.bit(part, source, str(len(words)) if words is not None and part.op == "length" else None)
        text = " ".join(word.text for word in words)
        one = not part.quoted or part.index not in ("", "@") or part.text == "*"
        if one and all(word.sure for word in words):
            return self.bit(part, source, text)
        if not self.spend(characters=sum(len(word.text) + 8 for word in words)):
            return self.bit(part, source, None)
        return Bit(text, part, True, part.quoted, fields=words)

    def default(self, part: Part, source: Source, state: State) -> Bit:
        """The word of ``${name:-word}``: outside quotes it is split, except for what it quotes itself."""
        bits = self.bits(part.first, source, state)
        if not all(bit.sure for bit in bits):
            return self.bit(part, source, None)
        whole = self.bit(part, source, "".join(bit.text for bit in bits))
        if whole.sure and not part.quoted and any(bit.quoted or bit.fields for bit in bits):
            whole.inner = [bit if bit.quoted or bit.part.kind != "lit" else replace(bit, part=part) for bit in bits]
        return whole

    def operated(self, part: Part, op: str, value: str, source: Source, state: State) -> str | None:
        """``${name op ...}`` for the operators that change a value."""
        if op == "length":
            return str(len(value))
        if op in ("#", "##", "%", "%%"):
            pattern = self.pattern(part.first, source, state)
            return None if pattern is None else values.trimmed(value, pattern, op)
        if op in ("/", "//"):
            pattern = self.pattern(part.first, source, state)
            by = self.joined(part.second or (), source, state)
            return None if pattern is None or by is None else values.replaced(value, pattern, by, op == "//")
        # What changes the case or takes a part by position is not computed.
        return None

    def listed(self, part: Part, state: State) -> tuple[Word, ...] | None:
        """The words of an array, or the positional parameters."""
        many = len(state.arrays.get(part.text, ())) if part.index else len(state.args or ())
        if not self.spend(words=many):
            return None
        if not part.index:
            span = Span("", 1)
            return None if state.args is None else tuple(Word(arg, arg, span) for arg in state.args)
        words = state.arrays.get(part.text)
        if words is None and part.text == "BASH_SOURCE" and part.index == "0" and state.file:
            return (Word(state.file, state.file, Span("", 1)),)
        if words is None:
            return None
        if part.index in ("@", "*"):
            return words
        if re.fullmatch(r"\d{1,4}", part.index):
            return words[int(part.index) : int(part.index) + 1]
        return None

    def touched(self, text: str, state: State) -> None:
        """A sum is not computed; the variables that it may change are not known any more."""
        if _CHANGES.search(text):
            for name in set(NAME.findall(text)):
                self.put(name, None, state)

    def inner(self, body: Seq, source: Source, state: State) -> tuple[list[Command], Status]:
        """The commands of a subshell, which start before what contains them, and how it ends."""
        before = len(self.found)
        sub = state.fork()
        outer, self.outer = self.outer, ()
        status = self.seq(body, source, sub, "", False)
        self.outer = outer
        return self.found[before:], status

    def substituted(self, part: Part, source: Source, state: State) -> Bit:
        """``$(...)``: its commands run; what they print is known for the plainest of them."""
        if part.body is None:
            return self.bit(part, source, None)
        commands, _ = self.inner(part.body, part.source or source, state)
        text: str | None = None
        items = part.body.items
        count = len(items[0].items) if len(items) == 1 and isinstance(items[0], Pipeline) else 1
        whole = len(items) == 1 and isinstance(items[0], Pipeline | Simple)
        if whole and len(commands) >= count and not part.body.background:
            last = commands[-count:]
            if last and last[0].after == "":
                text = values.output(last, self.arch)
        elif not part.body.background:
            text = values.folder(commands)
        return self.bit(part, source, None if text is None else text.rstrip("\n"))

    def single(self, token: Token, source: Source, state: State) -> Word:
        """A word that is not split: an assignment's value, a redirection's target."""
        raw = source.value[token.start : token.end]
        span = source.span(token.start, token.end)
        if token.plain is not None:
            return Word(token.plain, raw, span)
        bits = self.bits(token.parts, source, state)
        self.tilde(bits, state)
        sure, quoted = all(bit.sure for bit in bits), any(bit.quoted for bit in bits)
        return Word("".join(bit.text for bit in bits), raw, span, sure, quoted)

    def tilde(self, bits: list[Bit], state: State) -> None:
        """``~/`` at the begin of a word, where HOME is known."""
        if bits and bits[0].part.kind == "lit" and not bits[0].quoted and bits[0].text.startswith("~"):
            bit = bits[0]
            home, _ = self.get("HOME", state)
            if home and (bit.text == "~" or bit.text.startswith("~/")) and (len(bits) == 1 or bit.text != "~"):
                bits[0] = replace(bit, text=home + bit.text[1:], exact=False)
            else:
                bits[0] = replace(bit, sure=False)

    def fields(self, token: Token, source: Source, state: State) -> list[Field]:
        """The words that a word becomes by expansion and splitting.  Patterns of file names stay as written."""
        if token.plain is not None:
            word = self.plain.get(token)
            if word is None:
                word = self.plain[token] = Word(token.plain, token.plain, source.span(token.start, token.end))
            return [Field(word, source, token)]
        raw = source.value[token.start : token.end]
        span = source.span(token.start, token.end)
        found = self.split(token, source, raw, span, state)
        braces = any(part.kind == "lit" and not part.quoted and "{" in part.text for part in token.parts)
        if braces and self.bash and ("," in raw or ".." in raw):
            # bash makes several words of {a,b} and {1..3}; which ones is not computed.
            return [replace(each, word=replace(each.word, sure=False)) for each in found]
        return found

    def split(self, token: Token, source: Source, raw: str, span: Span, state: State) -> list[Field]:
        """Expansion and splitting of one word."""
        bits = self.bits(token.parts, source, state)
        self.tilde(bits, state)
        made: list[Field] = []
        current: list[tuple[Bit, str]] = []

        def end() -> None:
            """Closes the word that is being made, if there is one."""
            if not current:
                return
            if len(current) == 1:
                bit, text = current[0]
                word = Word(text, raw, span, bit.sure, bit.quoted)
            else:
                sure, quoted = all(bit.sure for bit, _ in current), any(bit.quoted for bit, _ in current)
                word = Word("".join([text for _, text in current]), raw, span, sure, quoted)
            made.append(Field(word, source, token, None, tuple(current)))
            current.clear()

        for bit in bits:
            if bit.fields is not None:
                for index, each in enumerate(bit.fields):
                    if index:
                        end()
                    one = Bit(each.text, bit.part, each.sure, bit.quoted, bit.exact, bit.fields, bit.inner)
                    current.append((one, each.text))
            elif bit.part.kind == "lit" or bit.quoted or not bit.sure:
                if bit.text or bit.quoted:
                    current.append((bit, bit.text))
            else:
                separators = state.env.get("IFS", " \t\n")
                pieces = _splitter(separators).split(bit.text) if separators else [bit.text]
                for index, text in enumerate(pieces):
                    if index:
                        end()
                    if text:
                        current.append((bit, text))
        end()
        self.spend(words=len(made))
        return made

    def script_of(self, each: Field) -> Source | None:
        """A word as a script; None where nothing of it is known."""
        text = each.word.text
        pieces = each.pieces
        if each.bits:
            pieces = tuple(piece_of(bit, text, each.source) for bit, text in each.bits)
        if pieces is None:
            low, high = each.source.origin(each.token.start, each.token.end)
            return Source(text, each.source.text, (Piece(len(text), low, high, high - low == len(text)),))
        if not any(text.strip() for text in _known(text, pieces)):
            return None
        return Source(text, each.source.text, pieces)


@lru_cache(maxsize=8)
def _splitter(separators: str) -> re.Pattern[str]:
    """What finds the stretches of these characters."""
    return re.compile(f"[{re.escape(separators)}]+")


def piece_of(bit: Bit, text: str, source: Source) -> Piece:
    """Where ``text``, a stretch of what ``bit`` became, comes from."""
    low, high = source.origin(bit.part.start, bit.part.end)
    return Piece(len(text), low, high, bit.exact and high - low == len(text), not bit.sure and bit.part.kind != "lit")


def _known(text: str, pieces: Iterable[Piece]) -> Iterable[str]:
    """The stretches of a text that are known."""
    at = 0
    for piece in pieces:
        if not piece.opaque:
            yield text[at : at + piece.length]
        at += piece.length
