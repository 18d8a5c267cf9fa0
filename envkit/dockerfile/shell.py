"""What the shell of a RUN would start: each simple command with its words expanded, as far as the text alone says.

The tree that ``shell_syntax.py`` reads is walked once, with what is known of the variables.  A branch is taken when
its condition is decided; where it is not, every branch is walked and its commands say that they are not sure.  A
command is presumed to succeed, for a build in which it does not ends there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from envkit.dockerfile import shell_values as values
from envkit.dockerfile.shell_syntax import (
    DEPTH,
    AndOr,
    Arithmetic,
    Assign,
    Block,
    Case,
    Condition,
    For,
    Function,
    HereText,
    If,
    Loop,
    Node,
    Parser,
    Part,
    Piece,
    Pipeline,
    Placed,
    Redir,
    Seq,
    Simple,
    Source,
    Token,
)
from envkit.model import Span
from envkit.subjects.dockerfile import Command, Redirect, Word

LONGEST = 1_000_000  # characters of a script; nobody writes a longer one, and it would take more than a second
MOST = 2_000  # commands that one script may yield
UNROLL = 64  # rounds of a loop
_COPIES = 1_000_000  # entries of environments that may be copied for one script
_VOLUME = 4_000_000  # characters that expansions may add to one script
_VALUE = 65_536  # characters of one variable's value
_WORDS = 200_000  # words that one script may have, rounds of loops counted
_NAMES = 128  # functions, and variables that are unknown or unset

SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_TESTS = frozenset({"[", "test", "grep", "egrep", "fgrep", "which", "type", "hash", "diff", "cmp", "getent"})
_SURE = frozenset({"true", ":", "echo", "printf", "export", "set", "unset", "umask", "shopt", "readonly", "trap"})
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CHANGES = re.compile(r"(?<![=!<>])=(?!=)|<<=|>>=|\+\+|--")  # in a sum: what gives a variable another value
_INHERITED = frozenset({"HOME", "PATH", "USER", "SHELL", "HOSTNAME", "LANG", "TERM", "LD_LIBRARY_PATH", "PYTHONPATH"})
# Options of wrappers that take a value as a word of its own.
_VALUED: Mapping[str, frozenset[str]] = {
    "sudo": frozenset("ughpCTrtUDR") | {"--user", "--group", "--host", "--prompt", "--chdir"},
    "env": frozenset("uC") | {"--unset", "--chdir"},
    "time": frozenset("fo") | {"--format", "--output"},
    "nice": frozenset("n") | {"--adjustment"},
    "ionice": frozenset("cn") | {"--class", "--classdata"},
    "nohup": frozenset(),
    "exec": frozenset("a"),
    "command": frozenset(),
    "builtin": frozenset(),
    "stdbuf": frozenset("ioe") | {"--input", "--output", "--error"},
    "timeout": frozenset("ks") | {"--kill-after", "--signal"},
    "xargs": frozenset("nLPIdEsa") | {"--max-args", "--max-procs", "--delimiter", "--arg-file", "--max-lines"},
    "gosu": frozenset(),
    "su-exec": frozenset(),
    "setsid": frozenset(),
    "xvfb-run": frozenset("nes") | {"--server-args", "--server-num"},
    "tini": frozenset("pe"),
    "dumb-init": frozenset("r"),
    "runuser": frozenset("ugG") | {"--user", "--group"},
    "taskset": frozenset(),
}
_LEADING = {"timeout": 1, "gosu": 1, "su-exec": 1, "taskset": 1}  # operands before the command


@dataclass(frozen=True, slots=True)
class Script:
    """The commands of a script in the order in which they would start, and what is known at its end.

    ``env`` maps a variable whose value nobody knows to None.  ``assigned`` are the assignments that stand alone, with
    no command behind them.  ``complete`` is False where a bound was reached or the text is no shell, so that commands
    may be missing.
    """

    commands: tuple[Command, ...]
    env: Mapping[str, str | None]
    assigned: tuple[tuple[str, Word], ...] = ()
    complete: bool = True


class _Status(Enum):
    """How a command ended: decided, presumed to succeed, or open (a test of what only the build knows)."""

    TRUE = 0
    FALSE = 1
    LIKELY = 2
    OPEN = 3


def _status(value: bool | None) -> _Status:
    return _Status.OPEN if value is None else _Status.TRUE if value else _Status.FALSE


def _any_of(ends: Sequence[_Status], branches: Sequence[_State]) -> _Status:
    """How one of several branches ended, nobody knows which; one that stopped is out of it."""
    going = [end for end, branch in zip(ends, branches, strict=True) if not branch.stop]
    return _Status.OPEN if _Status.FALSE in going or _Status.OPEN in going else _Status.LIKELY


# How certain it is that a command runs.
_CERTAIN, _MAYBE, _UNLIKELY = 2, 1, 0
_ROUND = ("break", "continue")  # what ends with a loop


@dataclass(slots=True)
class _State:
    """What the shell knows at one moment.  ``env`` is shared until it changes."""

    env: dict[str, str]
    unknown: frozenset[str]
    cwd: str
    arrays: dict[str, tuple[Word, ...]] = field(default_factory=dict)
    args: tuple[str, ...] | None = ()
    functions: dict[str, tuple[Node, Source]] = field(default_factory=dict)
    level: int = _CERTAIN
    stop: str = ""
    doubt: frozenset[str] = frozenset()  # "break", "return", "exit": what may have ended a loop, function, script
    previous: str = ""
    folders: tuple[str, ...] = ()

    def fork(self) -> _State:
        """A subshell, or a branch that may not be taken."""
        return replace(self)


@dataclass(slots=True)
class _Field:
    """A word and what it is made of, for when it turns out to be a script; no pieces: the token's own characters."""

    word: Word
    source: Source
    token: Token
    pieces: tuple[Piece, ...] | None = None


@dataclass(slots=True)
class _Bit:
    """A stretch of an expansion."""

    text: str
    part: Part
    sure: bool
    quoted: bool
    exact: bool = False
    fields: tuple[Word, ...] | None = None  # "$@" and "${array[@]}"
    inner: list[_Bit] | None = None  # a default whose parts are quoted one by one


class _Walk:
    """One script being walked, with all that is handed on inside it."""

    def __init__(self, bash: bool, arch: str) -> None:
        self.bash = bash
        self.arch = arch
        self.found: list[Command] = []
        self.assigned: list[tuple[str, Word]] = []
        self.complete = True
        self.copies = _COPIES
        self.volume = _VOLUME
        self.depth = 0
        self.outer: tuple[Redirect, ...] = ()
        self.called: set[str] = set()
        self.statements = MOST * 2
        self.words = _WORDS
        self.bodies: dict[int, Source] = {}  # here-documents in which something was expanded, as scripts

    # Variables

    def get(self, name: str, state: _State) -> tuple[str | None, bool]:
        """A variable's value (None where it is not known, or not set) and whether that is all there is to know."""
        if name in state.env:
            return state.env[name], True
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

    def put(self, name: str, value: str | None, state: _State) -> None:
        """Sets a variable; None where its value is not known."""
        if value is not None and len(value) <= _VALUE:
            self.copies -= len(state.env)
            if self.copies < 0:
                self.complete = False
                value = None
        if value is None or len(value) > _VALUE:
            if name in state.env:
                state.env = {key: each for key, each in state.env.items() if key != name}
            if len(state.unknown) < _NAMES:
                state.unknown |= {name}
            else:
                self.complete = False
        elif state.env.get(name) != value:
            state.env = {**state.env, name: value}
            if name in state.unknown:
                state.unknown -= {name}
        if name in state.arrays:
            state.arrays = {key: each for key, each in state.arrays.items() if key != name}

    def assign(self, item: Assign, source: Source, state: _State) -> Word:
        """Does one assignment and answers what was assigned."""
        span = source.span(item.start, item.end)
        raw = source.value[item.value.start : item.value.end]
        if item.array is not None:
            self.words -= len(item.array)
            self.copies -= len(state.arrays) + len(state.arrays.get(item.name, ()))
            if self.words < 0 or self.copies < 0:
                self.complete = False
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

    def bits(self, parts: Iterable[Part], source: Source, state: _State) -> list[_Bit]:
        """What each part of a word becomes."""
        made: list[_Bit] = []
        for part in parts:
            if part.kind == "lit":
                made.append(_Bit(part.text, part, True, part.quoted, part.end - part.start == len(part.text)))
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

    def bit(self, part: Part, source: Source, text: str | None) -> _Bit:
        """A value, or what was written where there is none."""
        if text is not None:
            self.volume -= len(text)
            if self.volume < 0:
                self.complete = False
                text = None
        if text is None:
            return _Bit(source.value[part.start : part.end], part, False, part.quoted)
        return _Bit(text, part, True, part.quoted)

    def joined(self, parts: Iterable[Part], source: Source, state: _State) -> str | None:
        """The text of parts, None where one of them is not known."""
        bits = self.bits(parts, source, state)
        return "".join(bit.text for bit in bits) if all(bit.sure for bit in bits) else None

    def pattern(self, parts: Iterable[Part], source: Source, state: _State) -> str | None:
        """The same as a pattern, in which what was quoted means itself."""
        bits = self.bits(parts, source, state)
        if not all(bit.sure for bit in bits):
            return None
        return "".join(values.escape(bit.text) if bit.quoted else bit.text for bit in bits)

    def variable(self, part: Part, source: Source, state: _State) -> _Bit:
        """``$name`` and all forms of ``${name ...}``."""
        name, op = part.text, part.op
        if op in ("bad", "indirect"):
            return self.bit(part, source, None)
        if part.index or name in ("@", "*"):
            words = self.listed(part, state)
            if words is not None and not op:
                if all(word.sure for word in words) and (not part.quoted or part.index not in ("", "@") or name == "*"):
                    return self.bit(part, source, " ".join(word.text for word in words))
                self.volume -= sum(len(word.text) + 8 for word in words)
                if self.volume < 0:
                    return self.bit(part, source, None)
                return _Bit(" ".join(word.text for word in words), part, True, part.quoted, fields=words)
            if part.index:
                if words is not None and op == "length":
                    return self.bit(part, source, str(len(words)))
                return self.bit(part, source, None)
        value, known = self.get(name, state)
        if op in (":-", "-", ":=", "="):
            if value or (value is not None and ":" not in op):
                return self.bit(part, source, value)
            if not known and (name in state.unknown or name in _INHERITED or not _NAME.fullmatch(name)):
                return self.bit(part, source, None)
            if op in (":=", "="):
                text = self.joined(part.first, source, state)
                if text is not None:
                    self.put(name, text, state)
                return self.bit(part, source, text)
            return self.default(part, source, state)
        if op in (":+", "+"):
            if value or (value is not None and ":" not in op):
                return self.default(part, source, state)
            return self.bit(part, source, "" if known else None)
        if op in (":?", "?"):
            return self.bit(part, source, value if value or (value is not None and op == "?") else None)
        if not known:
            return self.bit(part, source, None)
        value = value or ""
        return self.bit(part, source, self.operated(part, op, value, source, state) if op else value)

    def default(self, part: Part, source: Source, state: _State) -> _Bit:
        """The word of ``${name:-word}``: outside quotes it is split, except for what it quotes itself."""
        bits = self.bits(part.first, source, state)
        if not all(bit.sure for bit in bits):
            return self.bit(part, source, None)
        whole = self.bit(part, source, "".join(bit.text for bit in bits))
        if whole.sure and not part.quoted and any(bit.quoted or bit.fields for bit in bits):
            whole.inner = [bit if bit.quoted or bit.part.kind != "lit" else replace(bit, part=part) for bit in bits]
        return whole

    def operated(self, part: Part, op: str, value: str, source: Source, state: _State) -> str | None:
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

    def listed(self, part: Part, state: _State) -> tuple[Word, ...] | None:
        """The words of an array, or the positional parameters."""
        many = len(state.arrays.get(part.text, ())) if part.index else len(state.args or ())
        self.words -= many
        if self.words < 0:
            self.complete = False
            return None
        if not part.index:
            span = Span("", 1)
            return None if state.args is None else tuple(Word(arg, arg, span) for arg in state.args)
        words = state.arrays.get(part.text)
        if words is None:
            return None
        if part.index in ("@", "*"):
            return words
        if re.fullmatch(r"\d{1,4}", part.index):
            return words[int(part.index) : int(part.index) + 1]
        return None

    def touched(self, text: str, state: _State) -> None:
        """A sum is not computed; the variables that it may change are not known any more."""
        if _CHANGES.search(text):
            for name in set(_NAME.findall(text)):
                self.put(name, None, state)

    def inner(self, body: Seq, source: Source, state: _State) -> tuple[list[Command], _Status]:
        """The commands of a subshell, which start before what contains them, and how it ends."""
        before = len(self.found)
        sub = state.fork()
        outer, self.outer = self.outer, ()
        status = self.seq(body, source, sub, "", False)
        self.outer = outer
        return self.found[before:], status

    def substituted(self, part: Part, source: Source, state: _State) -> _Bit:
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
        return self.bit(part, source, None if text is None else text.rstrip("\n"))

    def single(self, token: Token, source: Source, state: _State) -> Word:
        """A word that is not split: an assignment's value, a redirection's target."""
        raw = source.value[token.start : token.end]
        span = source.span(token.start, token.end)
        if token.plain is not None:
            return Word(token.plain, raw, span)
        bits = self.bits(token.parts, source, state)
        self.tilde(bits, state)
        return Word(
            "".join(bit.text for bit in bits), raw, span, all(bit.sure for bit in bits), any(bit.quoted for bit in bits)
        )

    def tilde(self, bits: list[_Bit], state: _State) -> None:
        """``~/`` at the begin of a word, where HOME is known."""
        if bits and bits[0].part.kind == "lit" and not bits[0].quoted and bits[0].text.startswith("~"):
            bit = bits[0]
            home, _ = self.get("HOME", state)
            if home and (bit.text == "~" or bit.text.startswith("~/")) and (len(bits) == 1 or bit.text != "~"):
                bits[0] = replace(bit, text=home + bit.text[1:], exact=False)
            else:
                bits[0] = replace(bit, sure=False)

    def fields(self, token: Token, source: Source, state: _State) -> list[_Field]:
        """The words that a word becomes by expansion and splitting.  Patterns of file names stay as written."""
        if token.plain is not None:
            word = Word(token.plain, token.plain, source.span(token.start, token.end))
            return [_Field(word, source, token)]
        raw = source.value[token.start : token.end]
        span = source.span(token.start, token.end)
        found = self.split(token, source, raw, span, state)
        if token.braces and self.bash and ("," in raw or ".." in raw):
            # bash makes several words of {a,b} and {1..3}; which ones is not computed.
            return [replace(each, word=replace(each.word, sure=False)) for each in found]
        return found

    def split(self, token: Token, source: Source, raw: str, span: Span, state: _State) -> list[_Field]:
        """Expansion and splitting of one word."""
        if token.plain is not None:
            return [_Field(Word(token.plain, raw, span), source, token)]
        bits = self.bits(token.parts, source, state)
        self.tilde(bits, state)
        made: list[_Field] = []
        current: list[tuple[_Bit, str]] = []

        def end() -> None:
            """Closes the word that is being made, if there is one."""
            if not current:
                return
            pieces = tuple(_piece(bit, text, source) for bit, text in current)
            word = Word(
                "".join(text for _, text in current),
                raw,
                span,
                all(bit.sure for bit, _ in current),
                any(bit.quoted for bit, _ in current),
            )
            made.append(_Field(word, source, token, pieces))
            current.clear()

        for bit in bits:
            if bit.fields is not None:
                for index, each in enumerate(bit.fields):
                    if index:
                        end()
                    current.append((replace(bit, text=each.text, sure=each.sure), each.text))
            elif bit.part.kind == "lit" or bit.quoted or not bit.sure:
                if bit.text or bit.quoted:
                    current.append((bit, bit.text))
            else:
                separators = state.env.get("IFS", " \t\n")
                pieces = re.split(f"[{re.escape(separators)}]+", bit.text) if separators else [bit.text]
                for index, text in enumerate(pieces):
                    if index:
                        end()
                    if text:
                        current.append((bit, text))
        end()
        self.words -= len(made)
        return made

    def script_of(self, each: _Field) -> Source | None:
        """A word as a script; None where nothing of it is known."""
        text = each.word.text
        if each.pieces is None:
            low, high = each.source.origin(each.token.start, each.token.end)
            return Source(text, each.source.text, (Piece(len(text), low, high, high - low == len(text)),))
        if not any(text.strip() for text in _known(text, each.pieces)):
            return None
        return Source(text, each.source.text, each.pieces)

    # Lists, pipelines and compound commands

    def seq(self, body: Seq, source: Source, state: _State, after: str, must: bool) -> _Status:
        """Commands in their order; ``after`` is the operator in front, ``must`` that the build needs it to succeed."""
        status = _Status.TRUE
        if self.depth >= DEPTH:
            self.complete = False
            return _Status.OPEN
        self.depth += 1
        last = len(body.items) - 1
        for index, item in enumerate(body.items):
            if state.stop or len(self.found) >= MOST:
                break
            if state.doubt and state.level == _CERTAIN:
                state.level = _MAYBE
            if index in body.background:
                self.node(item, source, state.fork(), after, False)
                status = _Status.TRUE
            else:
                status = self.node(item, source, state, after, must and index == last)
            after = "&" if index in body.background else ";"
        self.depth -= 1
        return status

    def node(self, node: Node, source: Source, state: _State, after: str, must: bool) -> _Status:
        """One command of any kind."""
        self.statements -= 1
        if len(self.found) >= MOST or min(self.statements, self.words, self.copies) < 0:
            self.complete = False
            state.stop = "exit"
            return _Status.OPEN
        match node:
            case Simple():
                return self.simple(node, source, state, after)
            case AndOr():
                return self.and_or(node, source, state, after, must)
            case Pipeline():
                return self.pipeline(node, source, state, after, must)
            case Seq():
                return self.seq(node, source, state, after, must)
            case Function():
                if len(state.functions) < _NAMES:
                    state.functions = {**state.functions, node.name: (node.body, source)}
                return _Status.TRUE
        outer = self.outer
        self.outer = (*self.redirects(node.redirects, source, state), *outer)
        self.depth += 1
        try:
            match node:
                case _ if self.depth >= DEPTH:
                    self.complete = False
                    return _Status.OPEN
                case Block():
                    return self.block(node, source, state, after, must)
                case If():
                    return self.choose(node, source, state, after, must)
                case Loop():
                    return self.loop(node, source, state, after)
                case For():
                    return self.each(node, source, state, after)
                case Case():
                    return self.case(node, source, state, after, must)
                case Condition():
                    return _status(self.condition(node.items, source, state))
                case Arithmetic():
                    self.touched(node.text, state)
                    return _Status.OPEN
        finally:
            self.depth -= 1
            self.outer = outer

    def and_or(self, node: AndOr, source: Source, state: _State, after: str, must: bool) -> _Status:
        """``a && b || c``, from the left."""
        ands = len(node.ops)
        while ands and node.ops[ands - 1] == "&&":
            ands -= 1  # all items from here on are joined by "&&"
        # Where the build needs the whole to succeed and nothing but "&&" follows, each item has succeeded.
        level = state.level
        status = self.node(node.items[0], source, state, after, must and ands == 0)
        for index, op in enumerate(node.ops):
            if state.stop:
                break
            if state.doubt:
                state.level = level = min(level, _MAYBE)
            needed = must and index + 1 >= ands
            if status is (_Status.FALSE if op == "&&" else _Status.TRUE):
                continue
            followed = status is not _Status.OPEN or (must and index >= ands)
            if followed if op == "&&" else status is _Status.FALSE:
                status = self.node(node.items[index + 1], source, state, op, needed)
                continue
            branch = state.fork()
            branch.level = min(level, _UNLIKELY if status is _Status.LIKELY else _MAYBE)
            right = self.node(node.items[index + 1], source, branch, op, needed)
            if status is _Status.LIKELY:
                status = _Status.TRUE if right is _Status.TRUE else _Status.LIKELY
                continue
            self.merge(state, [branch, state.fork()])
            if op == "&&":
                status = _Status.FALSE if right is _Status.FALSE else _Status.OPEN
            else:  # whoever goes on after "|| exit" came from the left; else it is the right's word that decides
                status = _Status.LIKELY if branch.stop else _Status.OPEN if right is _Status.FALSE else right
        if not state.stop:
            state.level = level
        return status

    def pipeline(self, node: Pipeline, source: Source, state: _State, after: str, must: bool) -> _Status:
        """Each command of a pipeline runs in a shell of its own."""
        status = _Status.TRUE
        if len(node.items) == 1:
            status = self.node(node.items[0], source, state, after, must and not node.negated)
        else:
            for index, item in enumerate(node.items):
                last = index == len(node.items) - 1
                status = self.node(item, source, state.fork(), after, must and last and not node.negated)
                after = node.ops[index] if not last else after
        if node.negated:
            return {
                _Status.TRUE: _Status.FALSE, _Status.FALSE: _Status.TRUE,
                _Status.LIKELY: _Status.OPEN, _Status.OPEN: _Status.OPEN,
            }[status]  # fmt: skip
        return status

    def block(self, node: Block, source: Source, state: _State, after: str, must: bool) -> _Status:
        """``{ }`` shares everything, ``( )`` nothing."""
        if not node.subshell:
            return self.seq(node.body, source, state, after, must)
        return self.seq(node.body, source, state.fork(), after, must)

    def choose(self, node: If, source: Source, state: _State, after: str, must: bool) -> _Status:
        """``if``: one branch where the conditions decide it, else all that may run."""
        level = state.level
        branches: list[_State] = []
        ends: list[_Status] = []
        rest = state  # what is known where no condition held so far
        for condition, body in node.clauses:
            status = self.seq(condition, source, rest, after, False)
            after = ";"
            if rest.stop or status is _Status.TRUE:
                ends.append(status if rest.stop else self.seq(body, source, rest, after, must))
                break
            if status is _Status.FALSE:
                continue
            branch = rest.fork()
            branch.level = min(level, _MAYBE)
            ends.append(self.seq(body, source, branch, after, False))
            branches.append(branch)
            rest = rest.fork()
            rest.level = min(level, _MAYBE)
        else:
            ends.append(self.seq(node.otherwise, source, rest, after, must) if node.otherwise else _Status.TRUE)
        if rest is state:
            return ends[0]
        branches.append(rest)
        self.merge(state, branches, level)
        return _any_of(ends, branches)

    def merge(self, state: _State, branches: Sequence[_State], level: int | None = None) -> None:
        """After branches of which nobody knows which was taken: what they agree on is known.

        A branch that ends the build with a failure is none; one that ends the script or loop well leaves a doubt.
        """
        alive = [branch for branch in branches if branch.stop != "fail"]
        if any(branch.stop for branch in alive):
            if all(branch.stop for branch in alive):
                state.stop = alive[0].stop
            else:
                state.doubt |= {branch.stop.split()[0] for branch in alive if branch.stop}
        elif not alive:
            state.stop = "fail"
        going = [branch for branch in alive if not branch.stop] or alive or list(branches)
        first = going[0]
        env, unknown = first.env, first.unknown
        for other in going[1:]:
            unknown |= other.unknown
            if other.env is not env:
                self.copies -= len(env) + len(other.env)
                unknown |= {name for name in env.keys() | other.env.keys() if env.get(name) != other.env.get(name)}
        if unknown:
            self.copies -= len(unknown)
            if not unknown.isdisjoint(env):
                env = {name: value for name, value in env.items() if name not in unknown}
        state.env, state.unknown = env, unknown
        state.arrays = first.arrays if all(each.arrays is first.arrays for each in going) else {}
        state.cwd = first.cwd if all(each.cwd == first.cwd for each in going) else ""
        state.previous, state.folders = first.previous, first.folders
        state.args = first.args if all(each.args == first.args for each in going) else None
        for branch in going:
            state.doubt |= branch.doubt
        for branch in going:
            if branch.functions is not state.functions:
                state.functions = {**state.functions, **branch.functions}
        if level is not None and not state.stop:
            state.level = level

    def ended(self, state: _State, level: int, doubt: frozenset[str], ends: tuple[str, ...]) -> None:
        """After a loop or function: what ends it (``break``, ``return``) ends here, and so does the doubt about it."""
        if state.stop.split()[:1] and state.stop.split()[0] in ends:
            state.stop = ""
        state.doubt = (state.doubt - set(ends)) | doubt
        if not state.stop:
            state.level = min(level, _MAYBE) if state.doubt else level

    def loop(self, node: Loop, source: Source, state: _State, after: str) -> _Status:
        """``while`` and ``until``: the first round, and whatever changes in it is not known afterwards."""
        level, doubt = state.level, state.doubt
        status = self.seq(node.condition, source, state, after, False)
        if state.stop:
            return status
        if node.until:
            status = {_Status.TRUE: _Status.FALSE, _Status.FALSE: _Status.TRUE}.get(status, _Status.OPEN)
        if status is _Status.FALSE:
            return _Status.TRUE
        branch = state.fork()
        branch.level = level if status is _Status.TRUE else min(level, _MAYBE)
        end = self.seq(node.body, source, branch, ";", False)
        if branch.stop and branch.stop not in _ROUND and status is _Status.TRUE:
            state.stop = branch.stop
            return _Status.TRUE
        if branch.stop in _ROUND:
            branch.stop = ""
        self.merge(state, [branch, state.fork()])
        self.ended(state, level, doubt, _ROUND)
        return _any_of([end], [branch])

    def each(self, node: For, source: Source, state: _State, after: str) -> _Status:
        """``for``: each round where the words are known, else one of which nothing is."""
        level, doubt = state.level, state.doubt
        words: list[Word] | None = None
        if node.words is not None:
            words = [each.word for token in node.words for each in self.fields(token, source, state)]
        elif node.name and state.args is not None:
            words = [Word(arg, arg, Span("", 1)) for arg in state.args]
        known = words is not None and all(word.sure and (word.quoted or not _globs(word)) for word in words)
        if words is not None and known and len(words) <= UNROLL:
            end = _Status.TRUE
            for word in words:
                self.put(node.name, word.text, state)
                end = self.seq(node.body, source, state, after, False)
                after = ";"
                if state.stop == "continue":
                    state.stop = ""
                if state.stop or len(self.found) >= MOST:
                    break
            self.ended(state, level, doubt, _ROUND)
            return end
        branch = state.fork()
        branch.level = min(level, _MAYBE)
        if node.name:
            self.put(node.name, None, branch)
        end = self.seq(node.body, source, branch, after, False)
        if branch.stop in _ROUND:
            branch.stop = ""
        self.merge(state, [branch, state.fork()])
        self.ended(state, level, doubt, _ROUND)
        return _any_of([end], [branch])

    def case(self, node: Case, source: Source, state: _State, after: str, must: bool) -> _Status:
        """``case``: the branch that fits, or all from the first that may."""
        word = self.single(node.word, source, state)
        level = state.level
        branches: list[_State] = []
        ends: list[_Status] = []
        falling = False  # ";&" runs on into the next branch
        open_ = False  # a branch before this one may have been taken
        for patterns, body, end in node.branches:
            fits: bool | None = True
            if not falling:
                fits = False
                for token in patterns:
                    fits = values.either(fits, self.fits(word, token, source, state))
                    if fits:
                        break
            if fits is False:
                continue
            if fits and not open_:
                result = self.seq(body, source, state, after, must)
                falling = end == ";&"
                if end == ";;" or not end or state.stop:
                    return result
                continue
            branch = state.fork()
            branch.level = min(level, _MAYBE)
            ends.append(self.seq(body, source, branch, after, False))
            after = ";"
            branches.append(branch)
            open_ = True
            falling = False
            if fits:
                self.merge(state, branches, level)
                return _any_of(ends, branches)
        if branches:
            self.merge(state, [*branches, state.fork()], level)
            return _any_of(ends, branches)
        return _Status.TRUE

    def fits(self, word: Word, token: Token, source: Source, state: _State) -> bool | None:
        """Whether a word fits a pattern of ``case`` or ``[[ ]]``."""
        if token.plain == "*":
            return True
        pattern = token.plain if token.plain is not None else self.pattern(token.parts, source, state)
        return None if pattern is None or not word.sure else values.matches(word.text, pattern)

    def condition(self, items: Sequence[Token | str], source: Source, state: _State) -> bool | None:
        """``[[ ]]``: or, and, not, parentheses, and tests."""
        if len(items) > 256:
            return None
        at = 0
        depth = 0

        def any_of() -> bool | None:
            """A chain of ``||``."""
            nonlocal at
            value = all_of()
            while at < len(items) and items[at] == "||":
                at += 1
                value = values.either(value, all_of())
            return value

        def all_of() -> bool | None:
            """A chain of ``&&``."""
            nonlocal at
            value = one()
            while at < len(items) and items[at] == "&&":
                at += 1
                value = values.both(value, one())
            return value

        def one() -> bool | None:
            """A single test."""
            nonlocal at, depth
            negated = False
            while at < len(items) and _plain(items[at]) == "!":
                negated = not negated
                at += 1
            if at < len(items) and items[at] == "(" and depth < 16:
                at += 1
                depth += 1
                value = any_of()
                depth -= 1
                at += 1
            else:
                start = at
                while at < len(items) and items[at] not in ("&&", "||", ")"):
                    at += 1
                value = self.tested(items[start:at], source, state)
            return None if value is None else value != negated

        result = any_of()
        return result if at >= len(items) else None

    def tested(self, items: Sequence[Token | str], source: Source, state: _State) -> bool | None:
        """One test of ``[[ ]]``, whose right side is a pattern."""
        if len(items) == 1 and isinstance(items[0], Token):
            word = self.single(items[0], source, state)
            return word.text != "" if word.sure else None
        if len(items) == 2 and isinstance(items[1], Token):
            return values.unary(_plain(items[0]), self.single(items[1], source, state))
        if len(items) != 3 or not isinstance(items[0], Token) or not isinstance(items[2], Token):
            return None
        op = items[1] if isinstance(items[1], str) else _plain(items[1])
        left = self.single(items[0], source, state)
        right = self.single(items[2], source, state)
        if op in ("=", "==", "!="):
            fits = self.fits(left, items[2], source, state)
            return None if fits is None else fits == (op != "!=")
        return values.compare(left, op, right)

    # Simple commands

    def redirects(self, redirs: Sequence[Redir], source: Source, state: _State) -> tuple[Redirect, ...]:
        """Redirections with their targets expanded."""
        made: list[Redirect] = []
        for redir in redirs:
            if redir.op not in ("<<", "<<-"):
                made.append(Redirect(redir.fd + redir.op, self.single(redir.target, source, state)))
                continue
            raw = source.value[redir.target.start : redir.target.end]
            span = source.span(redir.target.start, redir.target.end)
            if redir.body is None:
                made.append(Redirect(redir.fd + redir.op, Word(redir.name, raw, span, quoted=not redir.expands)))
                continue
            body = redir.body
            if body.value:
                span = body.span(0, len(body.value))
            text, sure = body.value, True
            if redir.expands:
                bits = self.bits(redir.parts, body, state)
                text, sure = "".join(bit.text for bit in bits), all(bit.sure for bit in bits)
                self.bodies[id(redir)] = Source(text, body.text, [_piece(bit, bit.text, body) for bit in bits])
            made.append(Redirect(redir.fd + redir.op, Word(text, body.value, span, sure, not redir.expands)))
        return tuple(made)

    def simple(self, node: Simple, source: Source, state: _State, after: str) -> _Status:
        """A simple command: its words, its effects on the shell, and what it starts."""
        before = len(self.found)
        fields: list[_Field] = []
        self.words -= len(node.words)
        for item in node.words:
            if self.words < 0:
                self.complete = False
                return _Status.OPEN
            if isinstance(item, Token):
                fields.extend(self.fields(item, source, state))
            else:
                fields.append(self.declared(item, source, state))
        redirects = (*self.redirects(node.redirects, source, state), *self.outer)
        if not fields:
            for item in node.assigns:
                self.assigned.append((item.name, self.assign(item, source, state)))
            return _Status.TRUE if len(self.found) == before else _Status.LIKELY
        assigns: dict[str, Word] = {}
        env = state.env
        if node.assigns:
            own = state.fork()
            for item in node.assigns:
                assigns[item.name] = self.assign(item, source, own)
            env = own.env
        span = source.span(node.start, node.end)
        known = state.functions.get(fields[0].word.text)
        if known is not None and fields[0].word.sure:
            called = self.call(fields, known, state, after)
            if called is not None:
                return called
        command = Command(
            words=tuple(each.word for each in fields),
            span=span,
            raw_words=tuple(each.word for each in fields),
            assigns=assigns,
            env=env,
            redirects=redirects,
            after=after,
            sure=state.level == _CERTAIN,
            cwd=state.cwd,
            heredoc="".join(each.target.text for each in redirects if _is_here(each) and "\n" in each.target.text),
        )
        return self.start(command, fields, node, source, state)

    def declared(self, item: Assign, source: Source, state: _State) -> _Field:
        """``name=value`` behind export, declare and their like: one word, whatever is in it."""
        raw = source.value[item.start : item.end]
        word = self.assign(item, source, state)
        text = source.value[item.start : item.value.start] + word.text
        made = Word(text, raw, word.span, word.sure, word.quoted)
        low, high = source.origin(item.start, item.end)
        return _Field(made, source, item.value, (Piece(len(text), low, high, high - low == len(text)),))

    def call(self, fields: list[_Field], known: tuple[Node, Source], state: _State, after: str) -> _Status | None:
        """A function in place of its call; None where it calls itself too often."""
        if self.depth >= DEPTH - 2:
            return None
        name = fields[0].word.text
        self.called.add(name)
        node, source = known
        args, doubt, level = state.args, state.doubt, state.level
        words = [each.word for each in fields[1:]]
        state.args = tuple(word.text for word in words) if all(word.sure for word in words) else None
        self.depth += 1
        status = self.node(node, source, state, after, False)
        self.depth -= 1
        state.args = args
        if state.stop in ("return", "return false"):
            status = _Status.FALSE if state.stop == "return false" else _Status.TRUE
        elif "return" in state.doubt - doubt and status is not _Status.OPEN:
            status = _Status.LIKELY
        self.ended(state, level, doubt, ("return",))
        return status

    def start(self, command: Command, fields: list[_Field], node: Simple, source: Source, state: _State) -> _Status:
        """What a command does to the shell, and what it starts when its wrappers are taken off."""
        command, fields = self.unwrapped(command, fields)
        nested = self.nested(command, fields, node, state)
        if nested is not None:
            return nested
        self.found.append(command)
        name = command.words[0].text
        args = command.words[1:]
        match name:
            case "[" | "test":
                words = args[:-1] if name == "[" and args and args[-1].text == "]" else args
                return _status(values.test(words))
            case "true" | ":":
                return _Status.TRUE
            case "false":
                return _Status.FALSE
            case "cd" | "chdir" | "pushd":
                self.moved(name, args, state)
            case "popd":
                state.cwd = state.folders[-1] if state.folders else ""
                state.folders = state.folders[:-1]
            case "export" | "declare" | "typeset" | "local" | "readonly" | "unset" | "read" | "mapfile" | "readarray":
                self.changed(name, args, state)
            case "set":
                self.options(args, state)
            case "shift" if state.args is not None:
                count = int(args[0].text) if args and re.fullmatch(r"\d{1,4}", args[0].text) else 1
                state.args = state.args[count:]
            case "getopts" if len(args) > 1:
                self.put(args[1].text, None, state)
            case "printf" if args and args[0].text == "-v" and len(args) > 1:
                self.put(args[1].text, None, state)
            case "exit" | "return" | "break" | "continue":
                return self.left(name, args, state)
            case "exec" if args:
                pass
            case _:
                if command.raw_words[0].text == "exec" and state.level == _CERTAIN:
                    state.stop = "exit"  # the shell is no more
                return _Status.OPEN if _is_test(command) else _Status.TRUE if name in _SURE else _Status.LIKELY
        return _Status.TRUE if name in _SURE else _Status.LIKELY

    def moved(self, name: str, args: Sequence[Word], state: _State) -> None:
        """``cd`` and ``pushd``."""
        words = [word for word in args if word.text not in ("-P", "-L", "--", "-e")]
        before = state.cwd
        if name == "pushd":
            state.folders = (*state.folders[-64:], before)
        if not words:
            state.cwd = self.get("HOME", state)[0] or ""
        elif words[0].text == "-":
            state.cwd = state.previous
        elif not words[0].sure or _globs(words[0]):
            state.cwd = ""
        elif words[0].text.startswith("/"):
            state.cwd = _normal(words[0].text)
        else:
            state.cwd = _normal(posixpath.join(before, words[0].text)) if before else ""
        if len(state.cwd) > 4096:
            state.cwd = ""  # longer than a path may be
        state.previous = before

    def changed(self, name: str, args: Sequence[Word], state: _State) -> None:
        """Builtins that change variables; assignments written as such were done before."""
        if name in ("unset", "read", "mapfile", "readarray"):
            for word in args:
                if _NAME.fullmatch(word.text):
                    self.put(word.text, None, state)
                    if name == "unset":
                        state.functions = {k: v for k, v in state.functions.items() if k != word.text}
            return
        for word in args:
            found = _ASSIGNED.fullmatch(word.text)
            if found and not re.match(r"[A-Za-z_]\w*\+?=", word.raw):  # a name that an expansion made
                self.put(found[1], found[2] if word.sure else None, state)

    def options(self, args: Sequence[Word], state: _State) -> None:
        """``set``: the words behind its options are the positional parameters."""
        index = 0
        while index < len(args):
            text = args[index].text
            if text == "--":
                index += 1
                break
            if text[:1] not in ("-", "+") or len(text) < 2:
                break
            index += 2 if text[1:] and text[-1] == "o" else 1
        else:
            if not args or args[-1].text != "--":
                return
        words = args[index:]
        state.args = tuple(word.text for word in words) if all(word.sure for word in words) else None

    def left(self, name: str, args: Sequence[Word], state: _State) -> _Status:
        """``exit``, ``return``, ``break`` and ``continue``."""
        code = args[0].text if args else "0"
        failed = name in ("exit", "return") and code != "0"
        if state.level == _UNLIKELY:
            return _Status.LIKELY  # the way of a build that fails
        if name == "exit":
            state.stop = "fail" if failed else "exit"
        elif name == "return":
            state.stop = "return false" if failed else "return"
        else:
            state.stop = name
        return _Status.FALSE if failed else _Status.TRUE

    def unwrapped(self, command: Command, fields: list[_Field]) -> tuple[Command, list[_Field]]:
        """Takes sudo, env, time and their like off."""
        at = 0
        assigns: dict[str, Word] = {}
        removed: set[str] = set()
        cwd = command.cwd
        while at < len(fields):
            name = posixpath.basename(fields[at].word.text)
            if name not in _VALUED or not fields[at].word.sure:
                break
            step = self.wrapper(name, fields, at, assigns, removed)
            if step is None:
                break
            at = step
        if not at:
            return command, fields
        fields = fields[at:]
        env = command.env
        if assigns or removed:
            env = {key: value for key, value in env.items() if key not in removed}
            env.update({key: word.text for key, word in assigns.items() if word.sure})
        return (
            replace(
                command,
                words=tuple(each.word for each in fields),
                assigns={**command.assigns, **assigns},
                env=env,
                cwd=cwd,
            ),
            fields,
        )

    def wrapper(
        self, name: str, fields: list[_Field], at: int, assigns: dict[str, Word], removed: set[str]
    ) -> int | None:
        """Where the command begins that the wrapper at ``at`` starts; None where it starts none."""
        valued = _VALUED[name]
        at += 1
        while at < len(fields):
            text = fields[at].word.text
            if text == "--":
                at += 1
                break
            if not text.startswith("-") or (text == "-" and name != "env"):
                break
            if name in ("command", "exec") and re.fullmatch(r"-[a-z]*[vV][a-z]*", text):
                return None  # a question
            if name == "sudo" and text in ("-l", "-v", "-V", "-e", "-k") and at == len(fields) - 1:
                return None
            at += 1
            takes = text in valued if text.startswith("--") else len(text) == 2 and text[1] in valued
            if not takes and text[:2] != "--" and len(text) > 2 and name in ("sudo", "xargs"):
                takes = text[-1] in valued and not any(char in valued for char in text[1:-1])
            if takes and at < len(fields):
                if name == "env" and text in ("-u", "--unset"):
                    removed.add(fields[at].word.text)
                at += 1
        if name in ("sudo", "env"):
            while at < len(fields):
                word = fields[at].word
                found = _ASSIGNED.fullmatch(word.text)
                if not found:
                    break
                assigns[found[1]] = replace(word, text=found[2])
                at += 1
        at += _LEADING.get(name, 0)
        return at if at < len(fields) else None

    def nested(self, command: Command, fields: list[_Field], node: Simple, state: _State) -> _Status | None:
        """A script that the command hands to a shell, walked; None where it hands none."""
        found = self.handed(command, fields, node)
        if found is None:
            return None
        script, args, same, bash = found
        self.volume -= len(script.value)
        if self.depth >= DEPTH - 2 or self.volume < 0:
            self.complete = False
            return None
        parser = Parser(script, self.depth + 1)
        body = parser.seq(frozenset())
        parser.close()
        inner = state if same else state.fork()
        if not same:
            inner.functions = {}
            inner.arrays = {}
            inner.args = args
            if command.assigns:
                inner.env = dict(command.env)
            inner.doubt = frozenset()
        before, outer, was = len(self.found), self.outer, self.bash
        self.bash = bash or (same and was)
        self.outer = tuple(each for each in command.redirects if not _is_here(each))
        level = inner.level
        if parser.broken:
            self.complete = False
        status = self.seq(body, script, inner, command.after, False)
        self.outer, self.bash = outer, was
        if same and not state.stop:
            state.level = level
        prefix = command.raw_words
        for index in range(before, len(self.found)):
            one = self.found[index]
            one = replace(one, assigns={**command.assigns, **one.assigns}) if command.assigns else one
            if one.raw_words == one.words:
                one = replace(one, raw_words=prefix)
            self.found[index] = one
        return status

    def handed(
        self, command: Command, fields: list[_Field], node: Simple
    ) -> tuple[Source, tuple[str, ...] | None, bool, bool] | None:
        """The script, its arguments, whether the shell itself runs it, and whether bash does."""
        name = command.program
        words = command.words
        script: Source | None
        if name == "eval" and len(words) > 1:
            if len(words) > 2:
                self.complete = False  # words that are joined to a script are not read
                return None
            script = self.script_of(fields[1])
            return None if script is None else (script, None, True, False)
        if name in ("su", "runuser", "script", "sg"):
            at = next((i for i, word in enumerate(words) if word.text in ("-c", "--command", "-lc", "-qc")), 0)
            if at and at + 1 < len(words):
                script = self.script_of(fields[at + 1])
                return None if script is None else (script, (), False, self.bash)
            return None
        if name == "busybox" and len(words) > 1 and words[1].text in SHELLS:
            fields, words = fields[1:], words[1:]
            name = words[0].text
        if name not in SHELLS or not words[0].sure:
            return None
        at, has, reads = _shell_options(words)
        if has:
            if at >= len(words):
                return None
            script = self.script_of(fields[at])
            rest = words[at + 2 :]
            args = tuple(word.text for word in rest) if all(word.sure for word in rest) else None
            return None if script is None else (script, args, False, name != "sh" and name != "dash")
        if at < len(words) and not reads:
            return None
        rest = words[at:]
        args = tuple(word.text for word in rest) if all(word.sure for word in rest) else None
        for redir in reversed(node.redirects):
            if redir.op in ("<<", "<<-") and redir.body is not None and not redir.fd:
                return self.bodies.get(id(redir), redir.body), args, False, name != "sh" and name != "dash"
        return None


def _piece(bit: _Bit, text: str, source: Source) -> Piece:
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


def _shell_options(words: Sequence[Word]) -> tuple[int, bool, bool]:
    """The index of a shell's first operand, whether that is a script (``-c``), and whether it reads one (``-s``)."""
    at = 1
    has = reads = False
    while at < len(words):
        text = words[at].text
        if text == "--" or text == "-":
            return at + 1, has, reads
        if text[:1] not in ("-", "+") or not words[at].sure:
            break
        at += 1
        if text.startswith("--"):
            at += text in ("--rcfile", "--init-file")
            continue
        has = has or (text[0] == "-" and "c" in text)
        reads = reads or (text[0] == "-" and "s" in text)
        at += text.count("o") + text.count("O")
    return at, has, reads


def _plain(item: Token | str) -> str:
    return "" if isinstance(item, str) else item.plain or ""


def _globs(word: Word) -> bool:
    """Whether file names may take a word's place."""
    return any(char in word.text for char in "*?[")


def _is_here(redirect: Redirect) -> bool:
    """Whether a redirection is a here-document for the standard input."""
    return redirect.op in ("<<", "<<-")


def _is_test(command: Command) -> bool:
    """Whether a command asks rather than does, so that either answer is expected."""
    name = command.program
    args = command.args
    if name in _TESTS:
        return True
    return (name == "command" and args[:1] in (("-v",), ("-V",))) or (
        name in ("dpkg", "rpm", "pip", "pip3", "conda") and args[:1] in (("-s",), ("-l",), ("-q",), ("show",))
    )


def _normal(path: str) -> str:
    path = posixpath.normpath(path)
    return path[1:] if path.startswith("//") else path


def commands(
    script: Placed,
    env: Mapping[str, str | None],
    cwd: str = "",
    *,
    dialect: str = "sh",
    heredocs: Sequence[HereText] = (),
    arch: str = "amd64",
) -> Script:
    """The commands of ``script``, run by the shell ``dialect`` ("sh", "bash") in ``cwd`` with the variables of ``env``.

    A variable that ``env`` maps to None is set to nobody knows what; one that it lacks may be the base's.  ``heredocs``
    are the bodies that the Dockerfile's grammar has cut off the script.  ``arch`` is Debian's name of the machine that
    the image is for.  Never raises; see ``Script.complete``.
    """
    source = Source(script.value, script)
    bash = posixpath.basename(dialect) in ("bash", "zsh", "ksh")
    walk = _Walk(bash, arch)
    state = _State(
        {name: value for name, value in env.items() if value is not None},
        frozenset(name for name, value in env.items() if value is None),
        cwd,
    )
    if len(source.value) > LONGEST:
        return Script((), dict(env), complete=False)
    parser = Parser(source, here=heredocs)
    body = parser.seq(frozenset())
    parser.close()
    walk.complete = not parser.broken
    walk.seq(body, source, state, "", True)
    for name, (node, where) in state.functions.items():
        if name not in walk.called and len(walk.found) < MOST:
            idle = state.fork()
            idle.level, idle.stop, idle.args = _MAYBE, "", None
            walk.node(node, where, idle, ";" if walk.found else "", False)
    known: dict[str, str | None] = dict.fromkeys(state.unknown)
    known.update(state.env)
    return Script(tuple(walk.found), known, tuple(walk.assigned), walk.complete and len(walk.found) < MOST)
