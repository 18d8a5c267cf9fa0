"""Words as Docker reads them, which is not quite as a shell does: splitting, quotes, and the ``${...}`` forms.

The rules are those of BuildKit's frontend/dockerfile/shell/lex.go and parser/line_parsers.go, and of "Environment
replacement" in the Dockerfile reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from envkit.dockerfile.instructions import Instruction, Text
from envkit.patterns import pattern
from envkit.records import dataclass

# What Go's unicode.IsSpace calls space; Python's own str.isspace has four more.
SPACES = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"

LONGEST = 131_072  # characters; Linux starts no process with a longer argument or variable (MAX_ARG_STRLEN)
DEEPEST = 50  # ${a:-${b:-...}} that a person wrote never nests like this

_FIELD = pattern(r"[^\t\v\f\r ]+")
_NAME = pattern(r"\d+|[@*#?$!-]|\w+")
_BLANK = pattern(r"[\t\r ]+")


@dataclass(frozen=True, slots=True)
class Expanded:
    """A word with its variables put in and its quotes taken away.

    ``sure`` is False where a part of ``text`` is unset, unknown, or an ``error``; ``missing`` names the unset ones, in
    order.  ``error`` is a clause that says why BuildKit refuses the word, which then stands in ``text`` as written.
    ``quoted`` says whether a part of it was quoted.
    """

    text: str
    sure: bool = True
    missing: tuple[str, ...] = ()
    error: str = ""
    quoted: bool = False


def expand(word: str, env: Mapping[str, str | None], escape: str = "\\") -> Expanded:
    """The word as an instruction would use it.

    A name that is not in ``env`` is unset: it gives "", as in BuildKit, and is ``missing`` unless the form has its own
    answer to that, as ``${x:-y}`` does.  A name that ``env`` maps to None has a value that nobody knows: what needs it
    stays as written.
    """
    if escape not in word and "$" not in word and "'" not in word and '"' not in word:
        return Expanded(word)
    lexer = _Lexer(word, env, escape)
    try:
        text = lexer.until("", raw=False)
    except _Refused as error:
        return Expanded(word, False, (), str(error))
    if len(text) > LONGEST:
        return Expanded(word, False, (), f"the value is longer than {LONGEST:,} characters")
    return Expanded(text, lexer.sure, tuple(dict.fromkeys(lexer.missing)), "", lexer.quoted)


def split(text: Text) -> tuple[Text, ...]:
    """The words of FROM, COPY, ADD, EXPOSE, VOLUME: blanks alone part them, quotes do not hold them together."""
    return tuple(text.slice(*match.span()) for match in _FIELD.finditer(text.value))


def assignments(instruction: Instruction) -> tuple[tuple[str, Text | None], ...]:
    """Names and values of ENV, LABEL and ARG; ENV and LABEL have the old form ``ENV name all the rest`` too.

    Values are as written: ``expand`` takes their quotes away.  Names are without quotes, their variables not put in.
    An ARG without a default has None; a word of ENV or LABEL without ``=``, which BuildKit refuses, is left out.
    """
    text = instruction.text
    found: list[tuple[str, Text | None]] = []
    pairs, _ = name_values(text.value, instruction.escape, legacy=instruction.name != "ARG")
    for start, end, value_start, value_end in pairs:
        name = text.value[start:end]
        if "$" not in name:
            name = expand(name, {}, instruction.escape).text
        if value_start >= 0:
            found.append((name, text.slice(value_start, value_end)))
        elif instruction.name == "ARG":
            found.append((name, None))
    return tuple(found)


def name_values(value: str, escape: str, *, legacy: bool) -> tuple[list[tuple[int, int, int, int]], str]:
    """Where each name and its value begin and end (-1, -1 where there is no ``=``), and what is wrong with them, or "".

    ``legacy`` is for the instructions that know ``name all the rest`` and refuse a name alone.
    """
    words = _quoted_words(value, escape)
    if legacy and words and "=" not in value[slice(*words[0])]:
        field = _FIELD.search(value)
        start, end = field.span() if field else (0, 0)
        rest = _FIELD.search(value, end)
        if rest is None:
            return [(start, end, -1, -1)], "has a name and no value"
        return [(start, end, rest.start(), len(value))], ""
    found, wrong = [], ""
    for start, end in words:
        equals = value.find("=", start, end)
        if equals >= 0:
            found.append((start, equals, equals + 1, end))
        else:
            found.append((start, end, -1, -1))
            if legacy and not wrong:
                wrong = "has a word without ="
    return found, wrong


@lru_cache(maxsize=2)
def _word_pattern(escape: str) -> re.Pattern[str]:
    """A word of ENV, LABEL or ARG: quotes and the escape character hold blanks; an open quote holds all the rest."""
    mark = re.escape(escape)
    bare = rf"""[^{SPACES}'"{mark}]++|{mark}.|({mark})\Z"""
    quoted = rf"""'[^']*+(?:'|\Z)|"(?:[^"{mark}]++|{mark}.)*(?:"|({mark})?\Z)"""
    return re.compile(f"(?:{bare}|{quoted})+", re.DOTALL)


def _quoted_words(value: str, escape: str) -> list[tuple[int, int]]:
    """Where the words begin and end; an escape character that ends the text belongs to none."""
    found = []
    for match in _word_pattern(escape).finditer(value):
        start, end = match.span()
        if match.start(1) == end - 1 or match.start(2) == end - 1:
            end -= 1
        if end > start:
            found.append((start, end))
    return found


def heredoc_words(line: str) -> tuple[str, ...]:
    """The words of an instruction's line that have ``<<`` in them, quotes kept; none where BuildKit cannot read it.

    A blank after ``<<`` does not end the word, as from dockerfile 1.16 on.
    """
    lexer = _Lexer(line, {}, "\\", keep=True)
    found: list[str] = []
    start = 0
    in_word = False
    try:
        while lexer.at < len(line):
            char = line[lexer.at]
            if char in SPACES:
                if in_word:
                    found.append(line[start : lexer.at])
                in_word = False
                lexer.at += 1
                continue
            if not in_word:
                start, in_word = lexer.at, True
            if char == "\\":
                lexer.at = min(lexer.at + 2, len(line))
            elif char == "<" and line.startswith("<<", lexer.at):
                blank = _BLANK.match(line, lexer.at + 2)
                lexer.at = blank.end() if blank else lexer.at + 2
            else:
                lexer.piece("<" + SPACES, raw=True)
    except _Refused:
        return ()
    if in_word:
        found.append(line[start:])
    return tuple(word for word in found if "<<" in word)


def heredoc_name(word: str) -> Expanded | None:
    """The name of a here-document from the word after ``<<``, variables as written; None where that is no name."""
    lexer = _Lexer(word, {}, "\\", keep=True)
    try:
        text = lexer.until("", raw=False)
    except _Refused:
        return None
    return Expanded(text, quoted=lexer.quoted) if text else None


class _Refused(Exception):
    """BuildKit would refuse the word; its text is a clause that says why."""


class _Lexer:
    """One pass over one word.  ``keep`` leaves unset variables as written, for the names of here-documents."""

    __slots__ = ("at", "depth", "env", "escape", "keep", "missing", "quoted", "size", "sure", "text")

    def __init__(self, text: str, env: Mapping[str, str | None], escape: str, keep: bool = False) -> None:
        self.text = text
        self.env = env
        self.escape = escape
        self.keep = keep
        self.at = 0
        self.depth = 0
        self.size = 0
        self.sure = True
        self.quoted = False
        self.missing: list[str] = []

    def until(self, stop: str, raw: bool) -> str:
        """What comes before the character ``stop``, which is passed; before the end where ``stop`` is "".

        ``raw`` keeps the escape character with what it escapes, as patterns want it.
        """
        text, escape = self.text, self.escape
        out: list[str] = []
        while self.at < len(text):
            char = text[self.at]
            if char == stop:
                self.at += 1
                return "".join(out)
            if char == escape:
                out.append(text[self.at if raw else self.at + 1 : self.at + 2])
                self.at += 2
            else:
                out.append(self.piece(stop, raw))
        if stop:
            raise _Refused(f"a {stop} is missing")
        return "".join(out)

    def piece(self, stop: str, raw: bool) -> str:
        """One quoted string, one variable, or the plain characters up to the next special one or one of ``stop``."""
        char = self.text[self.at]
        if char == "$":
            return self.dollar()
        if char == "'":
            end = self.text.find("'", self.at + 1)
            if end < 0:
                raise _Refused("a ' is missing")
            self.quoted = True
            start, self.at = self.at + 1, end + 1
            return self.text[start:end]
        if char == '"':
            return self.double_quoted(raw)
        plain = _plain(self.escape, stop).match(self.text, self.at)
        start, self.at = self.at, plain.end() if plain else self.at + 1
        return self.text[start : self.at]

    def double_quoted(self, raw: bool) -> str:
        """The string at the double quote: the escape character is one only before ", $ and itself."""
        text, escape = self.text, self.escape
        out: list[str] = []
        self.at += 1
        while self.at < len(text):
            char = text[self.at]
            if char == '"':
                self.at += 1
                self.quoted = True
                return "".join(out)
            if char == "$":
                out.append(self.dollar())
            elif char == escape:
                after = text[self.at + 1 : self.at + 2]
                if after and after in f'"${escape}':
                    out.append(escape + after if raw else after)
                    self.at += 2
                else:
                    out.append(escape * 2 if raw else escape)
                    self.at += 1
            else:
                end = _plain(escape, '"').match(text, self.at)
                start, self.at = self.at, end.end() if end else self.at + 1
                out.append(text[start : self.at])
        raise _Refused('a " is missing')

    def name(self) -> str:
        """The name of a variable: digits alone, one special character, or a word; "" where there is none."""
        match = _NAME.match(self.text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match[0]

    def dollar(self) -> str:
        """The value of the variable or the ``${...}`` form at the dollar sign."""
        start = self.at
        self.at += 1
        if not self.text.startswith("{", self.at):
            name = self.name()
            return self.value(name, start) if name else "$"
        self.at += 1
        if self.text[self.at : self.at + 1] in ("", "{", "}", ":"):
            raise _Refused(f"{short(self.text[start : self.at + 1])} is no substitution")
        name = self.name()
        operator = self.text[self.at : self.at + 1]
        self.at += 1
        if operator == "}":
            return self.value(name, start)
        self.depth += 1
        if self.depth > DEEPEST:
            raise _Refused(f"variables are nested more than {DEEPEST} deep")
        if operator == "/":
            value = self.replaced(name, start)
        elif operator and operator in ":+-?#%":
            if operator == ":":
                operator += self.text[self.at : self.at + 1]
                self.at += 1
                if operator in (":#", ":%"):
                    raise _Refused(f"{operator} is no operator of Docker's")
            value = self.chosen(name, operator, start)
        else:
            raise _Refused(f"{operator or 'nothing'} is no operator of Docker's")
        self.depth -= 1
        return value

    def value(self, name: str, start: int) -> str:
        """What ``$name``, written from ``start`` to here, gives."""
        value = self.env.get(name, "")
        if name not in self.env:
            if self.keep:
                return self.text[start : self.at]
            self.sure = False
            self.missing.append(name)
        elif value is None:
            return self.as_written(start)
        return self.measured(value or "")

    def measured(self, value: str) -> str:
        """The value, once it is counted: variables of variables grow without end where nobody counts."""
        self.size += len(value)
        if self.size > LONGEST:
            raise _Refused(f"the value is longer than {LONGEST:,} characters")
        return value

    def as_written(self, start: int) -> str:
        """What was written from ``start`` on, for its value is not known."""
        self.sure = False
        return self.text[start : self.at]

    def chosen(self, name: str, operator: str, start: int) -> str:
        """The forms with one word behind the operator: a default, an alternative, a message, a pattern to take away."""
        sure, missing = self.sure, len(self.missing)
        word = self.until("}", raw=operator in "#%")
        word_sure, word_missing = self.sure, self.missing[missing:]
        self.sure = sure
        del self.missing[missing:]
        known, value = name in self.env, self.env.get(name, "")
        if self.keep and not known:
            return self.text[start : self.at]
        kind = operator[-1]
        if kind not in "+-?#%":
            raise _Refused(f"{short(operator)} is no operator of Docker's")
        if value is None:
            return self.as_written(start)
        held = known and not (operator[0] == ":" and not value)
        if kind == "?":
            if not held:
                raise _Refused(f"{name} is not set: {short(word)}" if word else f"{name} is not set")
            return self.measured(value)
        if kind == "-" and held:
            return self.measured(value)
        if kind == "+" and not held:
            return ""
        self.sure = sure and word_sure
        self.missing += word_missing
        if kind in "+-":
            return word
        if not known:
            self.missing.append(name)
        return self.as_written(start)  # what a pattern takes away is not computed

    def replaced(self, name: str, start: int) -> str:
        """The forms ``${name/pattern/text}`` and ``${name//pattern/text}``, which are not computed."""
        self.at += self.text.startswith("/", self.at)
        self.until("/", raw=True)
        self.until("}", raw=True)
        if name not in self.env:
            self.missing.append(name)
        return self.as_written(start)


@lru_cache(maxsize=64)
def _plain(escape: str, stop: str) -> re.Pattern[str]:
    """Characters that mean nothing but themselves outside of quotes, or within those that end at the quote ``stop``."""
    special = "$" if stop == '"' else "$'\""
    return re.compile(f"[^{special}{re.escape(escape)}{re.escape(stop)}]+")


def short(value: str) -> str:
    """For a message: any text on one line and of bounded length."""
    return ascii(value if len(value) <= 60 else value[:57] + "...")[1:-1]
