"""Whether who wrote one part of a log writes on as before: lines of the same shape, whatever their words.

Of a line only its shape counts: where digits, names of files and white space stand.  So a good end needs no
word of success.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from envkit.logs.ends import ZERO
from envkit.logs.records import Line

_LONGEST = 400  # characters of a line that are compared
_TOKEN = re.compile(r"[^\s,;|]+")
_VALUE = re.compile(r"[\d/\\]|^[0-9a-f]{8,}$")
_WORD = re.compile(r"[A-Za-z][A-Za-z_-]{2,}")
_VALUES = 3  # numbers in a row of a table that has no word
# of the program's own: not indented, no frame of a stack and no word of an error
_PLAIN = re.compile(
    r"(?!frame #|at |0x|File |Thread 0x|goroutine |.{0,300}\((?:0x|\.\.\.))[|\[\w]"
    r"(?!.{0,400}(?i:error|fail|warn|exception|traceback|abort|killed|signal|nccl))"
)
_MANY = re.compile(
    r"(?i)torch[./]distributed|\btorchrun\b|\bc10d\b|\bnccl\b|\bgloo\b|\bworld[_ ]?size\b|\bnproc|\branks?\b"
    r"|\bmpi(?:run|exec)\b|\bsrun\b|deepspeed|\bdata.parallel\b|\bddp\b|\bfsdp\b|\d (?:processes|gpus|workers)\b"
)
_NAMED = re.compile(r"(?i)\b(?:process|pid)(?: id)?[ :=\[(]{1,3}(\d{1,7})\b")
# what is asked of a service by who watches it, whatever becomes of its work
WATCHED = re.compile(
    r"(?i)/(?:\w{1,20}/){0,3}(?:health\w*|heartbeat|metrics|ready\w*|live\w*|ping|status)\b|\bheartbeat\b"
)
# a line that begins so may be of any of several processes
_OF_MANY = re.compile(
    r"(?i)(?:ranks?|workers?|gpus?|devices?|nodes?|hosts?|process(?:es)?|proc|replicas?|shards?|tasks?|jobs?|local_rank"
    r"|pods?|actors?|pid|thread\w*|errors?|warn\w*|info|debug|fatal|critical|failed|exception|nccl|cuda|traceback"
    r"|torch\w*|runtime\w*|[A-Za-z]*(?:Error|Exception|Warning))$"
)


# what a program prints at each of its steps
_STEP = re.compile(
    r"(?i)(?:^|[^\w-])(?:steps?|epochs?|iter(?:ation)?s?|it|batch|trial)[ :=#\[]{1,8}\d|\bloss\b.{0,3}\d"
    r"|\d ?(?:it|samples|tokens)/s|\d%\||HTTP/[\d.]{1,4}\" 2\d\d\b"
)


@lru_cache(1 << 12)
def tells_step(text: str) -> bool:
    """Whether a text is what a program prints at each of its steps."""
    return _STEP.search(text) is not None


@lru_cache(1 << 12)
def shape(text: str) -> tuple[str, ...]:
    """What is left of a text without its values: its words, and "0" for each run of tokens with digits or paths.

    Empty where nothing is left to know it by: a text of words alone says the same however often it is printed, and
    one of few numbers belongs to anybody.
    """
    found: list[str] = []
    values = words = 0
    for token in _TOKEN.findall(text[:_LONGEST]):
        if _VALUE.search(token):
            values += 1
            lead = _WORD.match(token)  # "loss=0.4" and "step_17" keep what they are named
            token = f"{lead[0]}0" if lead and "/" not in token and "(" not in token else "0"
            words += token != "0"
            if found[-1:] == [token]:
                continue
        elif not any(map(str.isalnum, token)):  # of a bar, or between columns
            continue
        else:
            words += 1
        found.append(token)
    if not values or (not words and values < _VALUES):
        return ()
    return tuple(found)


def goes_on(before: Iterable[Line], after: Sequence[Line]) -> int:
    """How many of the lines after an error have the shape of one before it."""
    known = {shape(line.text) for line in before} - {()}
    return sum(shape(line.text) in known and not WATCHED.search(line.text) for line in after)


def steady(after: Iterable[Line]) -> int:
    """How many of some lines have the shape that most of them have: steps, rows, frames of a film, requests."""
    shapes = Counter(shape(line.text) for line in after if _is_plain(line.text) and not WATCHED.search(line.text))
    del shapes[()]
    return max(shapes.values(), default=0)


def repeated(after: Iterable[Line]) -> int:
    """How many of some lines have a shape that another of them has: of work whose parts print more than one line."""
    shapes = Counter(shape(line.text) for line in after if _is_plain(line.text) and not WATCHED.search(line.text))
    return sum(count for form, count in shapes.items() if form and count > 1)


def work(after: Iterable[Line]) -> int:
    """How many of some lines may be of a program's work: not indented, no frame of a stack, and no sentence alone."""
    return sum(_is_plain(line.text) and shape(line.text) != () for line in after)


@lru_cache(1 << 12)
def _is_plain(text: str) -> bool:
    """Whether a text is a program's own and has no word of an error, or is of a step that counts none."""
    return _PLAIN.match(text) is not None or (tells_step(text) and _PLAIN.match(ZERO.sub(" ", text)) is not None)


def names(line: Line) -> list[str]:
    """The numbers of processes that a line names."""
    return _NAMED.findall(line.text)


def replaced(before: Iterable[Line], after: Iterable[Line]) -> int:
    """The number of the last line by which a process is first named after the end of another; 0 where there is none."""
    known = {number for line in before for number in (*names(line), str(line.pid))}
    return max((line.number for line in after if set(names(line)) - known), default=0)


def is_of_many(lines: Iterable[Line]) -> bool:
    """Whether other processes of the same program may write into a log."""
    return any(line.rank is not None or _MANY.search(line.raw or line.text) for line in lines)


def listed(line: Line, at: int, after: Iterable[Line]) -> int:
    """How many lines below one begin with its own first word, which stands before its words of an error, at ``at``: a
    program that prints an error as one row of several has met it."""
    lead = _WORD.match(line.text)
    if lead is None or lead.end() > at or _OF_MANY.match(lead[0]) or not shape(line.text[:at] + " 0"):
        return 0
    return sum(line_after.text.startswith(lead[0]) for line_after in after)
