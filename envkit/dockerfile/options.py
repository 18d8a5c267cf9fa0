"""Options of a command line: which words are options, which are their values, which are left over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path

import msgspec

from envkit.records import dataclass
from envkit.subjects.dockerfile import Word


@dataclass(frozen=True, slots=True)
class Grammar:
    """The options of one program, long names with their dashes.

    ``values`` take a value, ``flags`` are those that take none and are worth knowing, ``short`` maps a letter to the
    long name, ``aliases`` another spelling to the usual one.  ``abbreviate`` says that an unambiguous beginning of a
    long name will do, as in Python's optparse.
    """

    values: frozenset[str]
    flags: frozenset[str] = frozenset()
    short: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    abbreviate: bool = False


@dataclass(frozen=True, slots=True)
class _Row:
    program: str
    values: tuple[str, ...]
    flags: tuple[str, ...]
    short: dict[str, str]
    aliases: dict[str, str]
    abbreviate: bool
    source: str
    seen: str


@cache
def _rows() -> Mapping[str, _Row]:
    lines = Path(__file__).with_name("grammars.jsonl").read_bytes().splitlines()
    return {row.program: row for row in (msgspec.json.decode(line, type=_Row) for line in lines)}


def grammar(program: str) -> Grammar:
    """The options of a program, a row of ``grammars.jsonl``."""
    row = _rows()[program]
    return Grammar(frozenset(row.values), frozenset(row.flags), row.short, row.aliases, row.abbreviate)


@cache
def _valued() -> Mapping[str, list[str]]:
    text = Path(__file__).with_name("option_values.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, list[str]])


@cache
def valued(program: str) -> Grammar:
    """Of a program of which only that matters: the options that take a value as a word of its own."""
    return Grammar(frozenset(_valued()[program]))


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """What a command line gave: options in order with their values, and the other words."""

    options: tuple[tuple[str, Word | None], ...]
    rest: tuple[Word, ...]

    def names(self) -> frozenset[str]:
        """All options given, by their usual long names."""
        return frozenset(name for name, _ in self.options)

    def every(self, name: str) -> list[Word]:
        """The values of an option that may be repeated, in order."""
        return [value for given, value in self.options if given == name and value is not None]

    def last(self, name: str) -> Word | None:
        """The value that wins, None where the option was not given."""
        values = self.every(name)
        return values[-1] if values else None


def is_true(value: str) -> bool:
    """Whether the value of a tool's variable or setting switches something on."""
    return value.strip().lower() in ("1", "true", "yes", "on", "t", "y")


def value_of(words: Sequence[str], *names: str) -> str:
    """The first value of an option with one of these names, a word of its own or behind "="; "" where none is given."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names and (equals or at + 1 < len(words)):
            return value if equals else words[at + 1]
    return ""


def names(text: str) -> frozenset[str]:
    """Option names (or others) out of a text that lists them."""
    return frozenset(text.split())


def read(words: Sequence[Word], grammar: Grammar, *, inner: bool = False) -> ParsedOptions:
    """Options and the rest; with ``inner`` all from the first other word on is the rest, a command of its own."""
    options: list[tuple[str, Word | None]] = []
    rest: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        text = word.text
        at += 1
        if text == "--":
            rest.extend(words[at:])
            break
        if len(text) < 2 or text[0] != "-":
            rest.append(word)
            if inner:
                rest.extend(words[at:])
                break
            continue
        if text.startswith("--"):
            name, equals, value = text.partition("=")
            name = _usual(name, grammar)
            if equals:
                options.append((name, replace(word, text=value)))
            elif name in grammar.values and at < len(words):
                options.append((name, words[at]))
                at += 1
            else:
                options.append((name, None))
            continue
        for place in range(1, len(text)):
            name = grammar.short.get(text[place], "-" + text[place])
            if name in grammar.values:
                attached = text[place + 1 :].removeprefix("=")
                if attached:
                    options.append((name, replace(word, text=attached)))
                elif at < len(words):
                    options.append((name, words[at]))
                    at += 1
                break
            options.append((name, None))
    return ParsedOptions(tuple(options), tuple(rest))


def _usual(name: str, grammar: Grammar) -> str:
    if name in grammar.aliases:
        return grammar.aliases[name]
    if not grammar.abbreviate or name in grammar.values or name in grammar.flags:
        return name
    begun = {
        grammar.aliases.get(long, long)
        for long in (*grammar.values, *grammar.flags, *grammar.aliases)
        if long.startswith(name)
    }
    return begun.pop() if len(begun) == 1 else name
