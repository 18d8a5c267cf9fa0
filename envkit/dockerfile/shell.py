"""What the shell of a RUN would start: each simple command with its words expanded, as far as the text alone says.

The tree that ``shell_syntax.py`` reads is walked once, with what is known of the variables.  A branch is taken when
its condition is decided; where it is not, every branch is walked and its commands say that they are not sure.  A
command is presumed to succeed, for a build in which it does not ends there.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from envkit.dockerfile import shell_tree as tree
from envkit.dockerfile import shell_values as values
from envkit.dockerfile.shell_commands import Commands, may_glob
from envkit.dockerfile.shell_syntax import DEPTH, Parser
from envkit.dockerfile.shell_words import CERTAIN, MAYBE, MOST, NAMES, UNLIKELY, Reader, State, Status, status_of
from envkit.model import Span
from envkit.records import dataclass
from envkit.subjects.dockerfile import Command, Word

LONGEST = 1_000_000  # characters of a script; nobody writes a longer one, and it would take more than a second
UNROLL = 64  # rounds of a loop
_REMEMBERED = 20_000  # characters of a script that is parsed once: many files start the same, one of them many times
_ROUND = ("break", "continue")  # what ends with a loop


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


def _any_of(ends: Sequence[Status], branches: Sequence[State]) -> Status:
    """How one of several branches ended, nobody knows which; one that stopped is out of it."""
    going = [end for end, branch in zip(ends, branches, strict=True) if not branch.stop]
    return Status.OPEN if Status.FALSE in going or Status.OPEN in going else Status.LIKELY


class _Walk(Commands):
    """The lists, pipelines and compound commands of a script."""

    def seq(self, body: tree.Seq, source: tree.Source, state: State, after: str, must: bool) -> Status:
        """Commands in their order; ``after`` is the operator in front, ``must`` that the build needs it to succeed."""
        status = Status.TRUE
        if self.depth >= DEPTH:
            self.complete = False
            return Status.OPEN
        self.depth += 1
        last = len(body.items) - 1
        for index, item in enumerate(body.items):
            if state.stop or len(self.found) >= MOST:
                break
            if state.doubt and state.level == CERTAIN:
                state.level = MAYBE
            if index in body.background:
                self.node(item, source, state.fork(), after, False)
                status = Status.TRUE
            else:
                status = self.node(item, source, state, after, must and index == last)
            after = "&" if index in body.background else ";"
        self.depth -= 1
        return status

    def node(self, node: tree.Node, source: tree.Source, state: State, after: str, must: bool) -> Status:
        """One command of any kind."""
        if not self.spend(statements=1) or len(self.found) >= MOST:
            self.complete = False
            state.stop = "exit"
            return Status.OPEN
        match node:
            case tree.Simple():
                return self.simple(node, source, state, after)
            case tree.AndOr():
                return self.and_or(node, source, state, after, must)
            case tree.Pipeline():
                return self.pipeline(node, source, state, after, must)
            case tree.Seq():
                return self.seq(node, source, state, after, must)
            case tree.Function():
                if len(state.functions) < NAMES:
                    state.functions = {**state.functions, node.name: (node.body, source)}
                return Status.TRUE
        outer = self.outer
        self.outer = (*self.redirects(node.redirects, source, state), *outer)
        self.depth += 1
        try:
            match node:
                case _ if self.depth >= DEPTH:
                    self.complete = False
                    return Status.OPEN
                case tree.Block():
                    return self.block(node, source, state, after, must)
                case tree.If():
                    return self.choose(node, source, state, after, must)
                case tree.Loop():
                    return self.loop(node, source, state, after)
                case tree.For():
                    return self.each(node, source, state, after)
                case tree.Case():
                    return self.case(node, source, state, after, must)
                case tree.Condition():
                    return status_of(self.condition(node.items, source, state))
                case tree.Arithmetic():
                    self.touched(node.text, state)
                    return Status.OPEN
        finally:
            self.depth -= 1
            self.outer = outer

    def and_or(self, node: tree.AndOr, source: tree.Source, state: State, after: str, must: bool) -> Status:
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
                state.level = level = min(level, MAYBE)
            needed = must and index + 1 >= ands
            if status is (Status.FALSE if op == "&&" else Status.TRUE):
                continue
            followed = status is not Status.OPEN or (must and index >= ands)
            if followed if op == "&&" else status is Status.FALSE:
                status = self.node(node.items[index + 1], source, state, op, needed)
                continue
            branch = state.fork()
            branch.level = min(level, UNLIKELY if status is Status.LIKELY else MAYBE)
            right = self.node(node.items[index + 1], source, branch, op, needed)
            if status is Status.LIKELY:
                status = Status.TRUE if right is Status.TRUE else Status.LIKELY
                continue
            self.merge(state, [branch, state.fork()])
            if op == "&&":
                status = Status.FALSE if right is Status.FALSE else Status.OPEN
            else:  # whoever goes on after "|| exit" came from the left; else it is the right's word that decides
                status = Status.LIKELY if branch.stop else Status.OPEN if right is Status.FALSE else right
        return status

    def pipeline(self, node: tree.Pipeline, source: tree.Source, state: State, after: str, must: bool) -> Status:
        """Each command of a pipeline runs in a shell of its own."""
        status = Status.TRUE
        if len(node.items) == 1:
            status = self.node(node.items[0], source, state, after, must and not node.negated)
        else:
            for index, item in enumerate(node.items):
                last = index == len(node.items) - 1
                status = self.node(item, source, state.fork(), after, must and last and not node.negated)
                after = node.ops[index] if not last else after
        if node.negated:
            return {
                Status.TRUE: Status.FALSE, Status.FALSE: Status.TRUE,
                Status.LIKELY: Status.OPEN, Status.OPEN: Status.OPEN,
            }[status]  # fmt: skip
        return status

    def block(self, node: tree.Block, source: tree.Source, state: State, after: str, must: bool) -> Status:
        """``{ }`` shares everything, ``( )`` nothing."""
        return self.seq(node.body, source, state.fork() if node.subshell else state, after, must)

    def choose(self, node: tree.If, source: tree.Source, state: State, after: str, must: bool) -> Status:
        """``if``: one branch where the conditions decide it, else all that may run."""
        level = state.level
        branches: list[State] = []
        ends: list[Status] = []
        rest = state  # what is known where no condition held so far
        for condition, body in node.clauses:
            status = self.seq(condition, source, rest, after, False)
            after = ";"
            if rest.stop or status is Status.TRUE:
                ends.append(status if rest.stop else self.seq(body, source, rest, after, must))
                break
            if status is Status.FALSE:
                continue
            branch = rest.fork()
            branch.level = min(level, MAYBE)
            ends.append(self.seq(body, source, branch, after, False))
            branches.append(branch)
            rest = rest.fork()
            rest.level = min(level, MAYBE)
        else:
            ends.append(self.seq(node.otherwise, source, rest, after, must) if node.otherwise else Status.TRUE)
        if rest is state:
            return ends[0]
        branches.append(rest)
        self.merge(state, branches, level)
        return _any_of(ends, branches)

    def merge(self, state: State, branches: Sequence[State], level: int | None = None) -> None:
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
        state.env, state.unknown = self.agreed(going)
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

    def agreed(self, branches: Sequence[State]) -> tuple[dict[str, str], frozenset[str]]:
        """The variables that have one value in all branches, and the names of those that have not."""
        env, unknown = branches[0].env, branches[0].unknown
        for other in branches[1:]:
            unknown |= other.unknown
            if other.env is not env:
                self.spend(len(env) + len(other.env))
                unknown |= {name for name in env.keys() | other.env.keys() if env.get(name) != other.env.get(name)}
        if unknown:
            self.spend(len(unknown))
            if not unknown.isdisjoint(env):
                env = {name: value for name, value in env.items() if name not in unknown}
        return env, unknown

    def loop(self, node: tree.Loop, source: tree.Source, state: State, after: str) -> Status:
        """``while`` and ``until``: each round that takes parameters away as long as its condition is decided, else the
        first one, and whatever changes in it is not known afterwards."""
        level, doubt = state.level, state.doubt
        for _ in range(UNROLL):
            before = state.args
            status = self.seq(node.condition, source, state, after, False)
            if state.stop:
                return status
            if node.until:
                status = {Status.TRUE: Status.FALSE, Status.FALSE: Status.TRUE}.get(status, Status.OPEN)
            if status is Status.FALSE:
                return Status.TRUE
            branch = state.fork()
            branch.level = level if status is Status.TRUE else min(level, MAYBE)
            end = self.seq(node.body, source, branch, ";", False)
            if branch.stop and branch.stop not in _ROUND and status is Status.TRUE:
                state.stop = branch.stop
                return Status.TRUE
            left = branch.stop == "break"
            if branch.stop in _ROUND:
                branch.stop = ""
            shifted = branch.args is not None and branch.args != before
            if status is not Status.TRUE or branch.stop or branch.doubt != doubt or not (shifted or left):
                break
            state.become(branch)
            if left:
                return Status.TRUE
        self.merge(state, [branch, state.fork()])
        self.ended(state, level, doubt, _ROUND)
        return _any_of([end], [branch])

    def each(self, node: tree.For, source: tree.Source, state: State, after: str) -> Status:
        """``for``: each round where the words are known, else one of which nothing is."""
        level, doubt = state.level, state.doubt
        words: list[Word] | None = None
        if node.words is not None:
            words = [each.word for token in node.words for each in self.fields(token, source, state)]
        elif node.name and state.args is not None:
            words = [Word(arg, arg, Span("", 1)) for arg in state.args]
        known = words is not None and all(word.sure and (word.quoted or not may_glob(word)) for word in words)
        if words is not None and known and len(words) <= UNROLL:
            end = Status.TRUE
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
        branch.level = min(level, MAYBE)
        if node.name:
            self.put(node.name, None, branch)
        end = self.seq(node.body, source, branch, after, False)
        if branch.stop in _ROUND:
            branch.stop = ""
        self.merge(state, [branch, state.fork()])
        self.ended(state, level, doubt, _ROUND)
        return _any_of([end], [branch])

    def case(self, node: tree.Case, source: tree.Source, state: State, after: str, must: bool) -> Status:
        """``case``: the branch that fits, or all from the first that may."""
        word = self.single(node.word, source, state)
        level = state.level
        branches: list[State] = []
        ends: list[Status] = []
        falls = any(end in (";&", ";;&") for *_, end in node.branches)  # which branches then follow is not read
        open_ = falls  # a branch before this one may have been taken
        for patterns, body, _ in node.branches:
            fits: bool | None = False
            for token in patterns:
                fits = values.either(fits, self.fits(word, token, source, state))
            if fits is False and not falls:
                continue
            if fits and not open_:
                return self.seq(body, source, state, after, must)
            branch = state.fork()
            branch.level = min(level, MAYBE)
            ends.append(self.seq(body, source, branch, after, False))
            after = ";"
            branches.append(branch)
            open_ = True
            if fits and not falls:
                self.merge(state, branches, level)
                return _any_of(ends, branches)
        if branches:
            self.merge(state, [*branches, state.fork()], level)
            return _any_of(ends, branches)
        return Status.TRUE

    def fits(self, word: Word, token: tree.Token, source: tree.Source, state: State) -> bool | None:
        """Whether a word fits a pattern of ``case`` or ``[[ ]]``."""
        if token.plain == "*":
            return True
        pattern = token.plain if token.plain is not None else self.pattern(token.parts, source, state)
        return None if pattern is None or not word.sure else values.matches(word.text, pattern)

    def condition(self, items: Sequence[tree.Token | str], source: tree.Source, state: State) -> bool | None:
        """``[[ ]]``: tests joined by ``&&`` and ``||``; parentheses are not read."""
        if len(items) > 256 or "(" in items:
            return None
        found: bool | None = False
        for group in _parted(items, "||"):
            whole: bool | None = True
            for test in _parted(group, "&&"):
                whole = values.both(whole, self.tested(test, source, state))
            found = values.either(found, whole)
        return found

    def tested(self, items: Sequence[tree.Token | str], source: tree.Source, state: State) -> bool | None:
        """One test of ``[[ ]]``, whose right side is a pattern."""
        if items and _plain(items[0]) == "!":
            inner = self.tested(items[1:], source, state)
            return None if inner is None else not inner
        if len(items) == 1 and isinstance(items[0], tree.Token):
            word = self.single(items[0], source, state)
            return word.text != "" if word.sure else None
        if len(items) == 2 and isinstance(items[1], tree.Token):
            return values.unary(_plain(items[0]), self.single(items[1], source, state))
        if len(items) != 3 or not isinstance(items[0], tree.Token) or not isinstance(items[2], tree.Token):
            return None
        op = items[1] if isinstance(items[1], str) else _plain(items[1])
        left = self.single(items[0], source, state)
        right = self.single(items[2], source, state)
        if op in ("=", "==", "!="):
            fits = self.fits(left, items[2], source, state)
            return None if fits is None else fits == (op != "!=")
        return values.compare(left, op, right)


def _parted(items: Sequence[tree.Token | str], by: str) -> Iterator[Sequence[tree.Token | str]]:
    """The stretches of ``items`` between those that are ``by``."""
    start = 0
    for at, item in enumerate(items):
        if item == by:
            yield items[start:at]
            start = at + 1
    yield items[start:]


def _plain(item: tree.Token | str) -> str:
    return "" if isinstance(item, str) else item.plain or ""


class _Place:
    """Where a script stands that may stand in several files; what was parsed of it asks here."""

    __slots__ = ("_spans", "_text", "value", "words")

    def __init__(self, value: str) -> None:
        self.value = value
        self._text: tree.HasPositions | None = None
        self._spans: dict[tuple[int, int], Span] = {}
        self.words: dict[tree.Token, Word] = {}  # the plain ones

    def at(self, text: tree.HasPositions) -> None:
        """From here on it is this text, of the same characters, whose places are given."""
        if self._text != text:
            self._text, self._spans, self.words = text, {}, {}

    def span(self, start: int, end: int) -> Span:
        """Where the characters from ``start`` to ``end`` stand."""
        found = self._spans.get((start, end))
        if found is None:
            assert self._text is not None
            found = self._spans[start, end] = self._text.span(start, end)
        return found


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A script as a tree; ``broken`` where a shell would have refused it."""

    place: _Place
    source: tree.Source
    body: tree.Seq
    broken: bool


def _parsed(value: str, heredocs: Sequence[tree.HereText] = ()) -> _Parsed:
    place = _Place(value)
    source = tree.Source(value, place)
    parser = Parser(source, here=heredocs)
    body = parser.seq(frozenset())
    parser.close()
    return _Parsed(place, source, body, parser.broken)


_remembered = lru_cache(maxsize=128)(_parsed)


def commands(
    script: tree.HasPositions,
    env: Mapping[str, str | None],
    cwd: str = "",
    *,
    dialect: str = "sh",
    heredocs: Sequence[tree.HereText] = (),
    arch: str = "amd64",
    args: tuple[str, ...] | None = (),
    name: str = "",
    read: Reader | None = None,
) -> Script:
    """The commands of ``script``, run by the shell ``dialect`` ("sh", "bash") in ``cwd`` with the variables of ``env``.

    A variable that ``env`` maps to None is set to nobody knows what; one that it lacks may be the base's.  ``heredocs``
    are the bodies that the Dockerfile's grammar has cut off the script.  ``arch`` is Debian's name of the machine that
    the image is for, ``args`` are its positional parameters, None where they are not known, ``name`` is what it was
    started as, "" where that is not known, and ``read`` gives the files that it sources.  Never raises; see
    ``Script.complete``.
    """
    bash = posixpath.basename(dialect) in ("bash", "zsh", "ksh")
    walk = _Walk(bash, arch, read)
    unknown = frozenset(name for name, value in env.items() if value is None)
    state = State({name: value for name, value in env.items() if value is not None}, unknown, cwd)
    state.args, state.name, state.file = args, name, name
    if len(script.value) > LONGEST:
        return Script((), dict(env), complete=False)
    parsed = (
        _remembered(script.value)
        if not heredocs and len(script.value) <= _REMEMBERED
        else _parsed(script.value, heredocs)
    )
    parsed.place.at(script)
    body, source = parsed.body, parsed.source
    walk.complete, walk.plain = not parsed.broken, parsed.place.words
    walk.seq(body, source, state, "", True)
    for name, (node, where) in state.functions.items():
        if name not in walk.called and len(walk.found) < MOST:
            idle = state.fork()
            idle.level, idle.stop, idle.args = MAYBE, "", None
            walk.node(node, where, idle, ";" if walk.found else "", False)
    known: dict[str, str | None] = {**dict.fromkeys(state.unknown), **state.env}
    return Script(tuple(walk.found), known, tuple(walk.assigned), walk.complete and len(walk.found) < MOST)
