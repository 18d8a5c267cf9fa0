"""What sed makes of a text that is known, for the scripts that people write into Dockerfiles."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from envkit.dockerfile import options
from envkit.subjects.dockerfile import Command

Change = Callable[[str], str]
_LONGEST_LINE = 2_000  # characters; a longer one is not matched
_MOST_REPEATS = 3  # of one pattern: more, or a repeated group, could take very long on a hostile file
_SED = options.Grammar(
    frozenset({"--expression"}),
    short={
        "e": "--expression",
        "E": "--regexp-extended",
        "r": "--regexp-extended",
        "i": "--in-place",
        "s": "--separate",
    },
)
_UNDERSTOOD = {"--expression", "--regexp-extended", "--in-place", "--separate"}
_SUFFIX = re.compile(r"\A(-[Ers]*i|--in-place).+", re.DOTALL)  # what follows names the copy that sed keeps
_TURNED = frozenset("+?|(){}")  # operators with a backslash in a basic pattern, without one in an extended one


@dataclass(frozen=True, slots=True)
class Edited:
    """``paths`` are the files read; ``inside`` says that they are written back (``sed -i``), else the text is printed.

    ``change`` gives the new text for the old one, None where the script is more than this module understands.  A line
    that is dropped becomes an empty one, so that the others keep their numbers.
    """

    paths: tuple[str, ...]
    inside: bool
    change: Change | None


def read(command: Command) -> Edited | None:
    """What the command edits; None where it is no sed or names no file."""
    return _sed(command) if command.program == "sed" else None


def of_pipe(command: Command) -> Change | None:
    """What a ``sed`` that reads its input makes of the text; None where it reads files, or does more than ``s``."""
    script, rest, extended, inside = _arguments(command)
    return None if script is None or rest or inside else _script(script, extended, drops=False)


def _sed(command: Command) -> Edited | None:
    script, rest, extended, inside = _arguments(command)
    return Edited(tuple(rest), inside, None if script is None else _script(script, extended)) if rest else None


def _arguments(command: Command) -> tuple[str | None, list[str], bool, bool]:
    """The script of a sed (None where an option or a word of it is not known), its files, whether its patterns are
    extended ones, and whether the files are written back.
    """
    words = [replace(word, text=_SUFFIX.sub(r"\1", word.text, count=1)) for word in command.words[1:]]
    given = options.read(words, _SED)
    names, rest = given.names(), [word.text for word in given.rest]
    scripts = [word.text for word in given.every("--expression")] or rest[:1]
    files = rest if given.every("--expression") else rest[1:]
    known = names <= _UNDERSTOOD and all(word.sure for word in command.words)
    return "\n".join(scripts) if known else None, files, "--regexp-extended" in names, "--in-place" in names


_SCRIPT = re.compile(
    r"[\s;]*(?P<address>/(?:[^/\\\n]|\\.)*/[ \t]*I?)?[ \t]*(?P<verb>d(?=\s*(?:;|\Z|\n))|s(?=[^\w\s\\]))"
)


def _script(script: str, extended: bool, *, drops: bool = True) -> Change | None:
    """The change of a script of ``s/pattern/text/`` and, where ``drops`` allows it, ``/pattern/d``; else None."""
    steps: list[tuple[re.Pattern[str] | None, Change | None]] = []
    at = 0
    while script[at:].strip(" \t\n;"):
        found = _SCRIPT.match(script, at)
        if found is None or (found["verb"] == "d" and not (drops and found["address"])):
            return None
        address = None
        if found["address"]:
            body, _, flag = found["address"].rpartition("/")
            address = _pattern(body[1:].replace("\\/", "/"), extended, flag.strip() == "I")
            if address is None:
                return None
        at = found.end()
        if found["verb"] == "d":
            steps.append((address, None))
            continue
        mark = re.escape(script[at])
        whole = re.compile(rf"{mark}((?:\\.|(?!{mark})[^\\\n])*){mark}((?:\\.|(?!{mark})[^\\\n])*){mark}([gI]*)").match(
            script, at
        )
        if whole is None or not re.match(r"[ \t]*(?:[;\n]|\Z)", script[whole.end() :]):
            return None
        old = _pattern(whole[1].replace("\\" + script[at], script[at]), extended, "I" in whole[3])
        new = _replacement(whole[2].replace("\\" + script[at], script[at]))
        if old is None or new is None:
            return None
        steps.append((address, _substitute(old, new, 0 if "g" in whole[3] else 1)))
        at = whole.end()
    return (lambda text: _applied(text, steps)) if steps else None


def _substitute(old: re.Pattern[str], new: str, count: int) -> Change:
    return lambda line: old.sub(new, line, count=count)


def _applied(text: str, steps: list[tuple[re.Pattern[str] | None, Change | None]]) -> str:
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if len(line) > _LONGEST_LINE:
            continue
        for address, change in steps:
            if address is not None and not address.search(line):
                continue
            if change is None:
                line = ""
                break
            line = change(line)
        lines[number] = line
    return "\n".join(lines)


def _pattern(text: str, extended: bool, ignore_case: bool) -> re.Pattern[str] | None:
    """A POSIX pattern as Python's, None for one that is not understood or could take long."""
    made: list[str] = []
    at = repeats = 0
    while at < len(text):
        letter = text[at]
        if letter == "[":
            end = text.find("]", at + (3 if text[at + 1 : at + 2] == "^" else 2))
            if end < 0 or "[:" in text[at:end] or "\\" in text[at:end] or "[" in text[at + 1 : end]:
                return None
            made.append(text[at : end + 1])
            at = end + 1
            continue
        escaped = letter == "\\" and at + 1 < len(text)
        if escaped:
            letter = text[at + 1]
        at += 2 if escaped else 1
        if letter in _TURNED and escaped is not extended:
            repeats += letter in "+{"
            if letter in "+{" and made and made[-1] == ")":
                return None
            made.append(letter)
        elif letter in _TURNED:
            made.append("\\" + letter)
        elif escaped:
            if letter.isdigit():
                return None
            made.append(
                {"<": r"\b", ">": r"\b"}.get(letter, ("\\" + letter) if letter in "swSWbB" else re.escape(letter))
            )
        elif letter == "*":
            if made and made[-1] == ")":
                return None
            repeats += 1
            made.append("*" if made and made[-1] not in ("^", "(", "|") else r"\*")
        elif letter in ".^$":
            made.append(letter)
        else:
            made.append(re.escape(letter))
    if repeats > _MOST_REPEATS:
        return None
    try:
        return re.compile("".join(made), re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError):
        return None


def _replacement(text: str) -> str | None:
    """The text of an s command as Python's; None where it holds a line break or another thing with a backslash."""
    made: list[str] = []
    at = 0
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            following = text[at + 1 : at + 2]
            if following.isdigit():
                made.append(rf"\g<{following}>")
            elif following.isalpha() or following in ("", "\n"):
                return None
            else:
                made.append(following.replace("\\", "\\\\"))
            at += 2
            continue
        made.append(r"\g<0>" if letter == "&" else letter)
        at += 1
    return "".join(made)
