"""The commands that ``make`` starts, where its file is in the build context: rules, prerequisites, plain variables.

Functions (``$(shell ...)``), patterns and includes are what only make knows; they stay in the text as written, where
the shell reader takes them for what they are to it, a command's unknown output.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import field

from envkit.dockerfile import options
from envkit.dockerfile.files import Files, FileText
from envkit.dockerfile.instructions import Text
from envkit.patterns import pattern
from envkit.records import dataclass
from envkit.subjects.dockerfile import Command

NAMES = ("GNUmakefile", "makefile", "Makefile")  # in the order in which make looks for them
_MAKE = options.Grammar(
    frozenset({"--directory", "--file", "-I", "-o", "-W"}),
    short={"C": "--directory", "f": "--file"},
    aliases={"--makefile": "--file"},
)
_RULE = pattern(r"([^\s:=#][^:=#]*?)\s*::?(?!=)\s*([^=;#]*?)\s*(?:;(.*)|#.*)?")
_ASSIGNED = pattern(r"(?:export\s+|override\s+)?([\w.-]+)\s*(\?|\+|:{0,3})=\s*(.*?)\s*(?:\s#.*)?")
_USED = pattern(r"\$(?:\(([\w.-]+)\)|\{([\w.-]+)\})")
_CONDITION = pattern(r"\s*(if(?:eq|neq|def|ndef)\b|else\b|endif\b)")
_DEEPEST, _MOST, _LONGEST = 20, 500, 20_000  # prerequisites of prerequisites; recipe lines; characters of a line


@dataclass(slots=True)
class _Rules:
    """A makefile as read: the lines of each goal with whether they are sure, its prerequisites, the variables."""

    lines: dict[str, list[tuple[Text, bool]]] = field(default_factory=dict)
    needs: dict[str, list[str]] = field(default_factory=dict)
    variables: dict[str, str | None] = field(default_factory=dict)
    first: str = ""


def started(command: Command, files: Files) -> tuple[tuple[Text, bool], ...] | None:
    """The recipe lines that ``make`` runs for this command, in order, each with whether it surely runs; each is a shell
    of its own in ``folder(command)``.  None for another program, and where the file cannot be known.
    """
    if command.program not in ("make", "gmake"):
        return None
    goals, given, name = _asked(command)
    place = folder(command)
    found: FileText | str = ""
    for each in (name,) if name else NAMES:
        found = files.read(each, place)
        if isinstance(found, FileText):
            break
    if isinstance(found, str):
        return None
    rules = _read(found, given)
    wanted = goals or ([rules.first] if rules.first else [])
    return tuple(_run(rules, wanted, set(), 0))[:_MOST]


def recipes(file: FileText) -> tuple[tuple[Text, bool], ...]:
    """The recipe lines of all goals of a makefile, as ``started`` gives them."""
    rules = _read(file, {})
    return tuple(line for lines in rules.lines.values() for line in lines)[:_MOST]


def folder(command: Command) -> str:
    """Where make works: its directory, or that of -C."""
    place = options.read(command.words[1:], _MAKE).last("--directory")
    return posixpath.join(command.cwd, place.text) if place else command.cwd


def _asked(command: Command) -> tuple[list[str], dict[str, str | None], str]:
    """Goals, variables given on the command line, and the file of -f."""
    told = options.read(command.words[1:], _MAKE)
    goals: list[str] = []
    given: dict[str, str | None] = {}
    for word in told.rest:
        key, equals, value = word.text.partition("=")
        if equals:
            given[key.rstrip(":?+")] = value if word.sure else None
        else:
            goals.append(word.text)
    file = told.last("--file")
    return goals, given, file.text if file else ""


def _read(file: FileText, given: Mapping[str, str | None]) -> _Rules:
    rules = _Rules(variables=dict(given))
    current: list[str] = []
    open_conditions = 0
    for text in _logical(file):
        line = text.value
        if line.startswith("\t"):
            body = text.slice(len(line) - len(line.lstrip("\t @-+")), len(line))
            for goal in current:
                rules.lines.setdefault(goal, []).append((body, not open_conditions))
            continue
        if condition := _CONDITION.match(line):
            open_conditions += {"else": 0, "endif": -1}.get(condition[1], 1)
            continue
        if assigned := _ASSIGNED.fullmatch(line.strip()):
            _assign(rules, assigned, given, sure=not open_conditions)
        elif rule := _RULE.fullmatch(line.rstrip()):
            current = _expanded(rule[1], rules).split()
            for goal in current:
                rules.needs.setdefault(goal, []).extend(_expanded(rule[2], rules).split())
                if not rules.first and not goal.startswith(".") and "%" not in goal:
                    rules.first = goal
    for goal, lines in rules.lines.items():
        rules.lines[goal] = [(_placed(line, rules), sure) for line, sure in lines]
    return rules


def _logical(file: FileText) -> Iterator[Text]:
    """The lines, those that a backslash continues joined into one at the place of the first."""
    held, begun = "", 0
    for number, line in enumerate(file.text.split("\n"), 1):
        begun = begun or number
        held += line.rstrip("\r") if not held else " " + line.strip()
        if held.endswith("\\") and len(held) < _LONGEST:
            held = held[:-1]
            continue
        if held.strip() and not held.lstrip().startswith("#"):
            yield Text.of(held[:_LONGEST], file.path, begun)
        held, begun = "", 0


def _assign(rules: _Rules, assigned: re.Match[str], given: Mapping[str, str | None], *, sure: bool) -> None:
    name, operator, value = assigned[1], assigned[2], assigned[3]
    if name in given or (operator == "?" and name in rules.variables):
        return
    before = rules.variables.get(name, "")
    if not sure or before is None:
        rules.variables[name] = None
    elif operator == "+":
        rules.variables[name] = f"{before} {value}"[:_LONGEST]
    else:
        rules.variables[name] = value


def _expanded(text: str, rules: _Rules) -> str:
    """The text with the variables that are known; ``$$`` is the shell's dollar."""

    def value(found: re.Match[str]) -> str:
        known = rules.variables.get(found[1] or found[2])
        return found[0] if known is None else known

    for _ in range(_DEEPEST):
        new = _USED.sub(value, text)
        if new == text or len(new) > _LONGEST:
            break
        text = new
    return text.replace("$$", "$")


def _placed(line: Text, rules: _Rules) -> Text:
    new = _expanded(line.value, rules)
    if new == line.value:
        return line
    span = line.span(0, len(line.value))
    return Text.of(new, span.path, span.line, span.column)


def _run(rules: _Rules, goals: list[str], done: set[str], depth: int) -> Iterator[tuple[Text, bool]]:
    for goal in goals:
        if goal in done or depth > _DEEPEST:
            continue
        done.add(goal)
        yield from _run(rules, rules.needs.get(goal, []), done, depth + 1)
        yield from rules.lines.get(goal, ())
