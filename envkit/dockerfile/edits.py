"""What a text becomes that grep, sed or cat reads: those of their patterns that mean the same here as there.

Sources: POSIX, "Regular Expressions", and the manuals of GNU grep and sed.  What is not surely understood gives None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from envkit.dockerfile.files import FileText
from envkit.records import dataclass
from envkit.subjects.dockerfile import Command

_MOST_LINES = 2_000  # of a text; a list of packages that people write has fewer
_LONGEST = 300  # characters of a line or a pattern
_ENDS = ("", ")", "|", "\\")
_MOST_STARS = 2  # of a pattern, for each multiplies the time by the length of a line
_ESCAPED = frozenset('.*[]^$/\\|-+?(){}"#=~&@,:;%! ')  # a letter or another sign may mean more to GNU
_CLASSES = {
    "[:space:]": r"\s",
    "[:blank:]": r" \t",
    "[:digit:]": "0-9",
    "[:alpha:]": "A-Za-z",
    "[:alnum:]": "A-Za-z0-9",
}
_GREP = re.compile(r"-[EviFwxhe]+")
_LONG = {"--invert-match": "v", "--extended-regexp": "E", "--fixed-strings": "F", "--ignore-case": "i"}
_SED_OPTIONS = {
    "-E": "E",
    "-r": "E",
    "--regexp-extended": "E",
    "-i": "i",
    "--in-place": "i",
    "-i.bak": "i",
} | dict.fromkeys(("-Ei", "-ri"), "Ei")
_PARTS = re.compile(r"\s*(?:;|\n)\s*(?=/|s[/|#,@]|$)")  # of a script, whose commands hold no semicolon themselves
_SIGNS = ("/", "|", "#", ",", "@")

Read = Callable[[str], FileText | str]
_Edit = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a command does to each line of files: a line in, a line out, None for one that goes."""

    edits: tuple[_Edit, ...]
    paths: tuple[str, ...]
    power: int  # of a line's length, which is what its slowest pattern may take
    in_place: bool = False


def pattern(text: str, *, extended: bool, ignore_case: bool = False) -> re.Pattern[str] | None:
    """A POSIX pattern as one of Python's, None for one that may mean something else or take long."""
    if len(text) > _LONGEST:
        return None
    found: list[str] = []
    at = stars = 0
    while at < len(text):
        sign = text[at]
        if sign == "[":
            taken = _bracket(text, at)
            if taken is None:
                return None
            made, at = taken
            found.append(made)
            continue
        at += 1
        if (sign == "^" and found and found[-1] not in ("(", "|")) or (sign == "$" and text[at : at + 1] not in _ENDS):
            return None  # it means itself there, in one of the two grammars
        if sign == "\\":
            following = text[at : at + 1]
            at += 1
            special = following in "|+?(){}" and following != "" and not extended
            if not special and following not in _ESCAPED:
                return None  # \b, \w, \1 and their like
            sign = following if special else "\\" + following
        elif not extended and sign in "|+?(){}":
            sign = "\\" + sign
        if sign in ("*", "+", "{"):
            stars += 1
            if found[-1:] in ([], [")"], ["("], ["|"]):
                return None  # a group that is repeated may take long, a star in front means itself
        found.append(sign)
    if stars > _MOST_STARS:
        return None
    try:
        return re.compile("".join(found), re.IGNORECASE if ignore_case else 0)
    except re.error:
        return None


def _bracket(text: str, at: int) -> tuple[str, int] | None:
    """A bracket expression from ``at`` on, and where it ends; in it a backslash is one."""
    inside = at + 1
    negated = text[inside : inside + 1] == "^"
    inside += negated
    found = ""
    first = inside
    while inside < len(text) and (text[inside] != "]" or inside == first):
        name = next((each for each in _CLASSES if text.startswith(each, inside)), "")
        if name:
            found += _CLASSES[name]
            inside += len(name)
            continue
        if text.startswith(("[:", "[.", "[="), inside):
            return None
        ranges = text[inside] == "-" and inside != first and text[inside + 1 : inside + 2] != "]"
        found += "-" if ranges else re.escape(text[inside])
        inside += 1
    if inside >= len(text) or not found:
        return None
    return f"[{'^' if negated else ''}{found}]", inside + 1


class Budget:
    """What the edits of one Dockerfile may take together, in steps of its patterns; nobody's take a hundredth."""

    def __init__(self) -> None:
        self.left = 5_000_000

    def spent(self, steps: int) -> bool:
        """Whether so many are no longer there; takes them else."""
        if steps > self.left:
            return True
        self.left -= steps
        return False


def _power(patterns: Sequence[str]) -> int:
    return 1 + max((len(re.findall(r"[*+{]", one)) for one in patterns), default=0)


def printed(command: Command, read: Read, budget: Budget) -> FileText | None:
    """What cat, grep or sed prints of one file that ``read`` knows, None where that is not sure.

    The lines stay where they were in that file, empty where they are left out, so that what they ask for has its place.
    """
    if not all(word.sure for word in command.words) or any(each.op.startswith("<") for each in command.redirects):
        return None
    args = command.args
    if command.program == "cat" and len(args) == 1 and not args[0].startswith("-"):
        found = read(args[0])
        return found if isinstance(found, FileText) else None
    asked = _grep(command) if command.program in ("grep", "egrep", "fgrep") else None
    asked = _sed(args) if command.program == "sed" else asked
    if asked is None or asked.in_place or len(asked.paths) != 1:
        return None
    return _edited(read(asked.paths[0]), asked, budget)


def edited_in_place(command: Command, read: Read, budget: Budget) -> dict[str, FileText | None]:
    """The files that `sed -i` edits, each with its new text, None where that is not sure."""
    asked = _sed(command.args) if all(word.sure for word in command.words) else None
    if asked is None or not asked.in_place:
        return {}
    return {path: _edited(read(path), asked, budget) for path in asked.paths}


def _grep(command: Command) -> _Asked | None:
    flags = {"egrep": "E", "fgrep": "F"}.get(command.program, "")
    rest: list[str] = []
    patterns: list[str] = []
    words = list(command.args)
    while words:
        word = words.pop(0)
        if word in _LONG:
            flags += _LONG[word]
        elif _GREP.fullmatch(word):
            flags += word[1:].removesuffix("e")
            if word.endswith("e"):
                patterns.append(words.pop(0) if words else "")
        elif word.startswith("-"):
            return None
        else:
            rest.append(word)
    if not patterns:
        patterns, rest = rest[:1], rest[1:]
    found = [_of_grep(one, flags) for one in patterns]
    if not found or "e" in flags or "w" in flags:
        return None
    known = [one for one in found if one is not None]
    if known != found:
        return None
    return _Asked((partial(_kept, known, "v" in flags, "x" in flags),), tuple(rest), _power(patterns))


def _of_grep(text: str, flags: str) -> re.Pattern[str] | None:
    literal = re.sub(r"([.*[\]^$\\])", r"\\\1", text) if "F" in flags else text
    return pattern(literal, extended="E" in flags, ignore_case="i" in flags)


def _kept(patterns: Sequence[re.Pattern[str]], inverted: bool, whole: bool, line: str) -> str | None:
    meets = any(one.fullmatch(line) if whole else one.search(line) for one in patterns)
    return line if meets != inverted else None


def _sed(words: Sequence[str]) -> _Asked | None:
    scripts: list[str] = []
    rest: list[str] = []
    extended = in_place = False
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word in _SED_OPTIONS:
            extended, in_place = extended or "E" in _SED_OPTIONS[word], in_place or "i" in _SED_OPTIONS[word]
        elif word in ("-e", "--expression") and queue:
            scripts.append(queue.pop(0))
        elif word.startswith("-"):
            return None
        else:
            rest.append(word)
    if not scripts:
        scripts, rest = rest[:1], rest[1:]
    edits = [_edit(part, extended) for script in scripts for part in _PARTS.split(script.strip()) if part.strip()]
    known = tuple(edit for edit in edits if edit is not None)
    if not known or not rest or len(known) != len(edits):
        return None
    return _Asked(
        known, tuple(rest), 1 + _MOST_STARS if any("*" in one or "+" in one for one in scripts) else 1, in_place
    )


def _edit(script: str, extended: bool) -> _Edit | None:
    """One command: `/P/d`, `s/P/R/`, `s/P/R/g`."""
    script = script.strip()
    delete = re.fullmatch(r"/((?:[^/\\]|\\.)+)/\s*(I?)\s*d", script)
    if delete:
        gone = pattern(delete[1], extended=extended, ignore_case=bool(delete[2]))
        return None if gone is None else partial(_kept, [gone], True, False)
    sign = script[1:2]
    if not script.startswith("s") or sign not in _SIGNS:
        return None
    parts = re.findall(rf"((?:[^\\{re.escape(sign)}]|\\.)*){re.escape(sign)}", script[2:])
    if len(parts) != 2 or re.search(r"\\[^/&.,#@\[\]\"-]|\n", parts[1]) or (sign == "|" and "\\|" in script):
        return None
    options = script[2 + sum(len(part) + 1 for part in parts) :]
    wanted = pattern(parts[0].replace("\\" + sign, sign), extended=extended, ignore_case="I" in options)
    if wanted is None or options.strip("gI"):
        return None
    made = re.sub(r"\\(.)|&", lambda found: found[1] or "\0", parts[1].replace("\0", ""))
    return partial(_replaced, wanted, made, 0 if "g" in options else 1)


def _replaced(wanted: re.Pattern[str], made: str, count: int, line: str) -> str:
    return wanted.sub(lambda found: made.replace("\0", found[0]), line, count=count)


def _edited(file: FileText | str, asked: _Asked, budget: Budget) -> FileText | None:
    """The text after all edits, None where it is not known or too long; a line that is deleted is left empty."""
    if isinstance(file, str):
        return None
    lines = file.text.removesuffix("\n").split("\n")
    if len(lines) > _MOST_LINES or any(len(line) > _LONGEST for line in lines):
        return None
    if budget.spent(len(asked.edits) * sum(len(line) ** asked.power for line in lines)):
        return None
    found: list[str] = []
    for line in lines:
        now: str | None = line
        for edit in asked.edits:
            now = edit(now) if now is not None else None
        found.append(now or "")
    return FileText(file.path, "\n".join(found) + "\n")
