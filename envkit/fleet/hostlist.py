"""Lists of nodes as Slurm writes them ("n[01-04,7],login"), host files, and the shortest text for a set of names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from envkit.errors import UsageError, one_line
from envkit.system import files

MOST_NODES = 100_000
# A host name, or an index; what is named so also becomes the name of a file.
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_PART = re.compile(r"\[([0-9,-]+)\]|([^\[\],\s]+)")
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)")
_FIX = "write names as `n1,n2` or `n[1-8,12]`, or name a file with one host a line"


def expand(text: str) -> tuple[str, ...]:
    """The names in a list as Slurm writes it, in its order.

    Raises UsageError for an empty list, a name that no host can have, a name twice, and more than ``MOST_NODES`` names.
    """
    names: list[str] = []
    for entry in _entries(text.strip()):
        for name in _expanded(entry):
            names.append(_named(name))
            if len(names) > MOST_NODES:
                raise UsageError(f"the list of nodes has more than {MOST_NODES} names", _FIX)
    return _distinct(names)


def read(path: Path) -> tuple[str, ...]:
    """The hosts of a file: the first word of each line, as in the host files of MPI ("n1 slots=8", "n1:8"); `#` begins
    a comment.  Raises UsageError as ``expand`` does."""
    lines = (line.partition("#")[0].split() for line in files.text(path, _FIX, files.MOST_BYTES).splitlines())
    return _distinct([_named(words[0].partition(":")[0]) for words in lines if words])


def given(text: str) -> tuple[str, ...]:
    """The nodes that a person named: a host file where one lies there, else a list."""
    path = Path(text)
    if "/" in text or ("[" not in text and "," not in text and path.is_file()):
        return read(path)
    return expand(text)


def compressed(names: Iterable[str]) -> str:
    """The shortest list for ``names`` that Slurm's `--exclude` takes, in the order of the names' numbers."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    plain: list[str] = []
    for name in names:
        found = _NUMBERED.fullmatch(name)
        # A number with a leading zero keeps its width; one without has none.
        if found and len(found[2]) <= 18:
            width = len(found[2]) if found[2].startswith("0") else 0
            groups.setdefault((found[1], width, found[3]), []).append(int(found[2]))
        else:
            plain.append(name)
    # n08 and n10 have one width; where all without a zero in front are as wide as the padded ones, they are one list.
    for head, width, tail in sorted(groups):
        if width and (other := groups.get((head, 0, tail))):
            wide = [number for number in other if len(str(number)) == width]
            groups[head, width, tail] += wide
            groups[head, 0, tail] = [number for number in other if len(str(number)) != width]
    lists = [_bracketed(*key, sorted(set(numbers))) for key, numbers in sorted(groups.items()) if numbers]
    return ",".join([*sorted(set(plain)), *lists])


def _bracketed(head: str, width: int, tail: str, numbers: list[int]) -> str:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words = [f"{one:0{width}d}" if one == two else f"{one:0{width}d}-{two:0{width}d}" for one, two in ranges]
    if len(numbers) == 1:
        return f"{head}{words[0]}{tail}"
    return f"{head}[{','.join(words)}]{tail}"


def _entries(text: str) -> Iterator[str]:
    """The parts between commas that stand in no bracket."""
    begun, depth = 0, 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise UsageError(f"the brackets in the list of nodes `{one_line(text)}` do not match", _FIX)
        if char == "," and not depth:
            yield text[begun:at]
            begun = at + 1
    if depth:
        raise UsageError(f"the brackets in the list of nodes `{one_line(text)}` do not match", _FIX)
    yield text[begun:]


def _expanded(entry: str) -> Iterator[str]:
    found = list(_PART.finditer(entry.strip()))
    if not found or "".join(part[0] for part in found) != entry.strip():
        raise UsageError(f"`{one_line(entry)}` is no name of a node", _FIX)
    names: Iterable[str] = [""]
    for part in found:
        ends = list(_numbers(part[1], entry)) if part[1] else [part[2]]
        names = [name + end for name in names for end in ends]
        if len(names) > MOST_NODES:
            raise UsageError(f"the list of nodes has more than {MOST_NODES} names", _FIX)
    yield from names


def _numbers(text: str, entry: str) -> Iterator[str]:
    for word in text.split(","):
        found = _RANGE.fullmatch(word)
        first, last = (found[1], found[2] or found[1]) if found else ("1", "0")
        if int(last) < int(first):
            raise UsageError(f"`{one_line(word)}` in `{one_line(entry)}` is no range", _FIX)
        if int(last) - int(first) >= MOST_NODES:
            raise UsageError(f"the list of nodes has more than {MOST_NODES} names", _FIX)
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}d}"


def _named(name: str) -> str:
    if not NAME.fullmatch(name) or ".." in name:
        raise UsageError(f"`{one_line(name)}` is no name of a node", _FIX)
    return name


def _distinct(names: list[str]) -> tuple[str, ...]:
    if not names:
        raise UsageError("the list of nodes is empty", _FIX)
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise UsageError(f"the list of nodes has `{twice}` twice", "name each node once")
    return tuple(names)
