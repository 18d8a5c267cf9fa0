"""What a static reader can compute of the shell: patterns, tests, and the output of a few plain programs.

Each function answers None where it does not know; bracket expressions and sums are not computed at all.
Nothing here takes longer than its bound, whatever the text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache

from envkit.dockerfile import options
from envkit.subjects.dockerfile import Command, Word

_CUT = options.Grammar(frozenset({"-d", "-f", "-c"}))
WORK = 2_000_000  # steps that one pattern may cost before it is left undecided
_BINARY = frozenset({"=", "==", "!=", "-eq", "-ne", "-gt", "-ge", "-lt", "-le", "<", ">", "=~", "-nt", "-ot", "-ef"})


def escape(text: str) -> str:
    """``text`` as a pattern that means itself."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", text)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """The shell's pattern as Python's, None where it has what is not read: brackets, or an extended pattern.

    Stars become atomic groups there, so that a match takes no more than the pattern's length times the text's.
    """
    if "[" in pattern or re.search(r"[?*+@!]\(", pattern):
        return None
    plain = re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?" else found[1], pattern, flags=re.DOTALL)
    return re.compile(translate(plain))


def matches(text: str, pattern: str) -> bool | None:
    """Whether the whole of ``text`` fits the shell's ``pattern``; None where that is not read or costs too much."""
    if not re.search(r"[*?\[\\]", pattern):
        return text == pattern
    wanted = _compiled(pattern) if len(text) * len(pattern) <= WORK else None
    return None if wanted is None else wanted.match(text) is not None


def trimmed(text: str, pattern: str, op: str) -> str | None:
    """``${text#pattern}`` and its kin (``##``, ``%``, ``%%``)."""
    if not re.search(r"[*?\[\\]", pattern):
        return text.removeprefix(pattern) if op[0] == "#" else text.removesuffix(pattern)
    wanted = _compiled(pattern)
    if wanted is None or len(text) * len(text) * len(pattern) > WORK:
        return None
    lengths = range(len(text) + 1)
    for length in lengths if len(op) == 1 else reversed(lengths):
        if op[0] == "#" and wanted.match(text[:length]):
            return text[length:]
        if op[0] == "%" and wanted.match(text[len(text) - length :]):
            return text[: len(text) - length]
    return text


def replaced(text: str, pattern: str, by: str, every: bool) -> str | None:
    """``${text/pattern/by}``, with ``every`` for ``//``; None for a pattern that is more than a plain text."""
    if re.search(r"[*?\[\\]", pattern) or (not every and pattern[:1] in ("#", "%")):
        return None
    return text.replace(pattern, by, -1 if every else 1) if pattern else text


def _integer(word: Word) -> int | None:
    text = word.text.strip()
    return int(text) if word.sure and re.fullmatch(r"[-+]?\d{1,18}", text) else None


def unary(op: str, word: Word) -> bool | None:
    """``[ -n word ]`` and its kin; what is on a disk is not known."""
    if op in ("-n", "-z"):
        return (word.text == "") == (op == "-z") if word.sure else None
    return None


def compare(left: Word, op: str, right: Word, pattern: str | None = None) -> bool | None:
    """``[ left op right ]``; with ``pattern`` as ``[[ ]]`` compares with it."""
    if op in ("=", "==", "!="):
        if not (left.sure and right.sure):
            return None
        same = left.text == right.text if pattern is None else matches(left.text, pattern)
        return None if same is None else same == (op != "!=")
    if op in ("<", ">") and left.sure and right.sure:
        return left.text < right.text if op == "<" else left.text > right.text
    one, other = _integer(left), _integer(right)
    if one is None or other is None:
        return None
    return {
        "-eq": one == other, "-ne": one != other, "-gt": one > other, "-ge": one >= other,
        "-lt": one < other, "-le": one <= other,
    }.get(op)  # fmt: skip


def both(left: bool | None, right: bool | None) -> bool | None:
    """And, where one side may be unknown."""
    return False if left is False or right is False else None if left is None or right is None else True


def either(left: bool | None, right: bool | None) -> bool | None:
    """Or, where one side may be unknown."""
    return True if left is True or right is True else None if left is None or right is None else False


def test(words: Sequence[Word]) -> bool | None:
    """``test words``: POSIX's rule by the number of arguments, and ``-a`` and ``-o`` between them."""
    if len(words) > 64 or any(not word.sure and not word.quoted for word in words):
        # An unquoted unknown may be no word at all, or several: only -n and -z of it alone could be guessed.
        return None
    return _test(list(words), 0)


def _test(words: list[Word], depth: int) -> bool | None:
    texts = [word.text for word in words]
    count = len(words)
    if depth > 16:
        return None
    if count == 0:
        return False
    if count == 1:
        return texts[0] != "" if words[0].sure or texts[0] == "" else None
    if count == 3 and texts[1] in _BINARY:
        return compare(words[0], texts[1], words[2])
    for op, join in (("-o", either), ("-a", both)):
        for at in range(1, count - 1):
            if texts[at] == op and count > 3:
                return join(_test(words[:at], depth + 1), _test(words[at + 1 :], depth + 1))
    if texts[0] == "!":
        inner = _test(words[1:], depth + 1)
        return None if inner is None else not inner
    if texts[0] == "(" and texts[-1] == ")":
        return _test(words[1:-1], depth + 1)
    return unary(texts[0], words[1]) if count == 2 else None


# What plain programs print


def output(commands: Sequence[Command], arch: str) -> str | None:
    """What a pipeline of well-known programs prints, None where unsure; ``arch`` as Debian says it ("amd64")."""
    text: str | None = None
    for index, command in enumerate(commands):
        if not all(word.sure for word in command.words) or (index and command.after != "|"):
            return None
        if any(each.op not in ("<<<",) and each.target.text != "/dev/null" for each in command.redirects):
            return None
        if any(each.op != "2>" and each.target.text == "/dev/null" for each in command.redirects):
            return None
        given = next((each.target for each in command.redirects if each.op == "<<<"), None)
        if given is not None:
            text = given.text + "\n" if given.sure else None
        text = _source(command, arch) if index == 0 and given is None else _filter(command, text)
        if text is None or len(text) > 65536:
            return None
    return text


_FINDS_FOLDERS = frozenset({"cd", "pushd", "dirname", "readlink", "realpath", "pwd"})


def folder(commands: Sequence[Command]) -> str | None:
    """What ``cd FOLDER && pwd`` prints, the way in which scripts find their own folder; None for all else."""
    if not commands or any(each.program not in _FINDS_FOLDERS for each in commands):
        return None
    last, goes = commands[-1], any(each.program in ("cd", "pushd") for each in commands)
    return _source(last, "") if last.program == "pwd" and goes and last.sure else None


def _source(command: Command, arch: str) -> str | None:
    """What a command that reads nothing prints."""
    args = command.args
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(arch)
    match command.program:
        case "echo":
            return _echo(args)
        case "dpkg" if args == ("--print-architecture",):
            return arch + "\n"
        case "uname" if args in (("-m",), ("--machine",)):
            return machine + "\n" if machine else None
        case "arch" if not args:
            return machine + "\n" if machine else None
        case "pwd" if args in ((), ("-P",), ("-L",)) and command.cwd:
            return command.cwd + "\n"
        case "dirname" if len(args) == 1 or (len(args) == 2 and args[0] == "--"):
            return (posixpath.dirname(args[-1].rstrip("/")) or ("/" if args[-1][:1] == "/" else ".")) + "\n"
        case "basename" if len(args) == 1 and args[0].strip("/"):
            return posixpath.basename(args[0].rstrip("/")) + "\n"
        case "realpath" | "readlink" if args and command.cwd:
            links = command.program == "realpath" or args[0] in ("-f", "-m", "-e", "--canonicalize")
            paths = [arg for arg in args if not arg.startswith("-")]
            return (
                posixpath.normpath(posixpath.join(command.cwd, paths[0])) + "\n" if links and len(paths) == 1 else None
            )
    return None


def _echo(args: tuple[str, ...]) -> str | None:
    end = "\n"
    while args and re.fullmatch(r"-[neE]+", args[0]):
        if "n" in args[0]:
            end = ""
        args = args[1:]
    text = " ".join(args)
    return None if "\\" in text else text + end


def _filter(command: Command, text: str | None) -> str | None:
    """What a program that reads ``text`` prints."""
    if text is None:
        return None
    if command.program == "tr":
        return _tr(text, command.args)
    given = options.read(command.words[1:], _CUT)
    if command.program != "cut" or given.rest:
        return None
    made = [_cut(line, given) for line in text.removesuffix("\n").split("\n")]
    return None if None in made else "".join(f"{line}\n" for line in made)


def _cut(line: str, given: options.ParsedOptions) -> str | None:
    """What ``cut`` leaves of a line: fields between separators, or characters."""
    by, wanted, places = given.last("-d"), given.last("-f"), given.last("-c")
    separator, which = by.text if by else "\t", wanted or places
    if which is None or len(separator) != 1:
        return None
    if wanted and separator not in line:
        return line
    fields = line.split(separator) if wanted else list(line)
    picked: set[int] = set()
    for each in which.text.split(","):
        found = re.fullmatch(r"(\d{1,4})?(-)?(\d{1,4})?", each)
        if not found or not (found[1] or found[3]) or (found[3] and not found[2]):
            return None
        first = int(found[1] or 1)
        last = int(found[3]) if found[3] else len(fields) if found[2] else first
        picked.update(range(first, min(last, len(fields)) + 1))
    return (separator if wanted else "").join(fields[at - 1] for at in sorted(picked) if 0 < at <= len(fields))


def _set(text: str) -> str | None:
    """The characters of a set of tr's, None for a class, a range or an escape."""
    return None if "\\" in text or "[" in text or re.search(r".-.", text) else text


def _tr(text: str, args: tuple[str, ...]) -> str | None:
    delete = args[:1] in (("-d",), ("--delete",))
    sets = [_set(arg) for arg in (args[1:] if delete else args)]
    if any(each is None for each in sets) or any(len(arg) > 1 and arg[0] == "-" for arg in args[delete:]):
        return None
    first = sets[0] if sets else None
    if delete and len(sets) == 1 and first is not None:
        return text.translate({ord(char): None for char in first})
    if not delete and len(sets) == 2 and first is not None and sets[1]:
        to = sets[1] + sets[1][-1] * max(len(first) - len(sets[1]), 0)
        return text.translate({ord(a): b for a, b in reversed(list(zip(first, to, strict=False)))})
    return None
