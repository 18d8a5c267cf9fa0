"""The last state of the whole of a log, as who manages, counts or watches the work tells it: it outweighs what was met.

A queue, workflow, supervisor, scheduler, test runner or program that says last that all is done, and of how much, or
that nothing failed, says so of every part before it, so an error above that line ended nothing.  A state that is told
of one object says nothing of another that stands beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from envkit.logs.again import AGAIN
from envkit.logs.ends import (
    ANYHOW,
    CLOSES,
    ILL,
    NAMES,
    PARTS,
    STATUS_0,
    TRACKER,
    ZERO,
    bad_end,
    bad_words,
    is_output,
    service,
    tag_of,
)
from envkit.logs.records import FileSeen, Line
from envkit.logs.steady import shape
from envkit.records import replace

_LAST = 8  # lines of words in which it stands
_OF_ALL = r"(?: of |/| out of | / )"
_STATES = (
    r"(?:completed?|succeeded|success(?:ful(?:ly)?)?|finished|done|passed|ok|resolved|recovered|converged|healthy)"
)
_DONE = rf"(?:{_STATES}|written|saved|uploaded|built)"
# counts that tell of the whole: nothing failed, as much was done as there was, or all of it
_COUNTED = re.compile(
    rf"(?i)(?<![=:.])\b{NAMES}"
    r"(?:0|no|zero) (?:\w{1,20} ){0,2}?(?:errors|fail(?:ed|ures)|crashes|unreachable|missing)\b"
    r"|\b0 error\b|\bjob-controller {1,20}Job completed$"
    r"|\b(?:errors?|fail(?:ed|ures?)(?: \w{1,20})?|(?:open|active|pending) \w{1,20})"
    r"[\"']?\s?[:=] ?(?:0|none)\b(?![.x]?\d)"
    rf"|\b(?P<all>[1-9]\d{{0,6}}){_OF_ALL}(?P=all)\b(?=.{{0,80}}\b{_DONE}\b)"
    rf"|\b{_DONE}\b.{{0,60}}\b(?P<both>[1-9]\d{{0,6}}){_OF_ALL}(?P=both)\b"
    r"|(?<!not )\ball (?:\w{1,20} ){1,3}(?!died|failed|killed|lost|refused)(?:\w{2,20}ed|done)\b"
)
# a status of somebody's: a shell that traces its commands says only what is asked for
_STATUS = re.compile(
    rf"(?i)(?!\+ ).{{0,300}}?(?:{STATUS_0}|\b(?:rc|returncode|exit_?code|exit_?status)[\"']?[:= ]{{1,2}}0\b"
    r"|\b(?:code|status)(?: \w{1,20}){0,4}[:= ]{1,2}0[.!]?$)"
)
# a state, behind the name of what is in it, as the last word of a line or of a cell, or before a count; or a result
_STATE = re.compile(
    rf"(?i)\w.{{0,300}}?\W(?:is |are |was )?(?<!not ){_STATES}"
    r"(?=[.!]?\W{0,4}$|, | in \d| after \d| on \w| {2,}|\s*[|\u2502\u2503])"
    r"|(?:largest|best|fastest|selected|chosen)\b.{0,60}: \S|.{0,200}\b(?:saved|written) to \S|configure: creating "
)
_SHORT = re.compile(rf"\b(?P<some>\d{{1,7}}){_OF_ALL}(?!(?P=some)\b)\d{{1,7}} ")  # less than there was
_FEWER = re.compile(
    rf"(?i)\b(?P<some>\d{{1,7}}){_OF_ALL}(?P<of_all>\d{{1,7}}) (?:\w{{1,20}} ){{0,2}}{_DONE}\b"
    r"|\b(?P<part>\d{1,7}) (?:[a-z]{2,20} ){1,2}of (?P<of_whole>\d{1,7})\b"
    rf"|\b(?P<few>\d{{1,7}}){_OF_ALL}(?P<of_many>\d{{1,7}}) (?:\w{{1,20}} ){{1,3}}(?:are|were|is|was|have|had|came)\b"
)
# counts that stand below each other: what failed was done again where as much was
_TALLY = re.compile(r"(?i)\s{0,8}(?P<what>[a-z][\w -]{2,30}?)(?:\s{0,20}[:=]\s{0,8}|\s{2,20})(?P<count>\d{1,7})$")
_TALLIED = (
    re.compile(r"(?i)fail|error"),
    re.compile(r"(?i)retr(?:y|ie)|re-?submi|restart|again"),
    re.compile(rf"(?i){_DONE}"),
)
# all of it, as the last words
_WHOLE = re.compile(
    r"(?i)(?:.{0,80}[^\w.] ?)?(?<!step )(?<!epoch )(?<!stage )(?<!attempt )(?<!try )(?<!batch )(?<!part )(?<!rank )"
    r"\b(?P<whole>[1-9]\d{0,6}) (?:of|out of) (?P=whole) (?:\w{1,20} ){0,3}\w{1,20}(?P<last>[.!]?$)?(?(last)|, )"
)
_IN_VAIN = re.compile(
    r"(?i)\b(?:no|not|none|never|without|lost|dead|gone|left|bad|wrong|down|miss\w*|drop\w*|skip\w*|ignor\w*|reject\w*"
    r"|un\w+|stuck|hung|late|wait\w*|pend\w*|queued|tried|started|running|broken?|timed|\w+n't)\b"
)
_LOST_ALL = re.compile(
    r"(?i)\b(?:no|not|none|never|without|lost|dead|gone|broken?|un(?:done|usable|finished|written|read\w*)"
    r"|miss\w*|drop\w*|reject\w*)\b"
)
_METRIC = re.compile(r"(?i)\berror(?: rate)?[ :=]{1,2}\d*\.\d")
_WORSE = re.compile(
    r"(?i)\b[1-9]\d{0,6} (?:\w+ )?(?:failed|failures?|errors?)\b|\btimed out\b"
    r"|\b(?:fail(?:ed|ures?)?|errors?|unreachable|killed|lost)[\"']?\s?[:=] {0,4}[1-9]\d{0,6}\b(?!\.)"
    r"|\bdid not\b|\bnot \w+ ?(?:\w+ly)?[.!]?$"
    r"|(?:\b|_)exit_?(?:code|status)\W{1,4}[1-9]"
)
# how many failed, and how many may
_FAILED = re.compile(
    r"(?i)(?<![=:\d])\b(?P<count>\d{1,6}) (?:\w{1,20} ){0,2}?(?:fail(?:ed|ures?)|errors?)\b"
    r"|(?:\b|_)(?:fail(?:ed|ures?)|errors?)(?: \w{1,20})?[\"']?\s?[:=] ?(?P<after>\d{1,6})\b"
)
_MAY = re.compile(
    r"(?i)\b(?P<count>\d{1,6})(?: \w{1,20}){0,3}? "
    r"(?:may\b|(?:(?:is|are|were) )?(?:allowed|permitted|tolerated|acceptable)\b)"
    r"|\b(?:allow(?:ed|s|ance)?|toler\w{2,6}|permit(?:ted|s)?|up to|at most|no more than|limit|budget|max(?:imum)?)"
    r"(?![a-z])\D{0,20}(?P<after>\d{1,6})\b(?!\.\d| ?%)"
)
_BOUND = r"(?:limit|tolerance|threshold|budget|allowance|bound|max(?:imum)?|allowed|tolerated|permitted)"
# a share and its bound: in words, and as two numbers
_KEPT_TO = re.compile(
    rf"(?i)\b(?P<well>below|under|within|inside|less than|no more than|not above|not over)"
    rf" (?:the |its |our |an? |what is )?(?:\w{{1,20}} )?{_BOUND}\b"
    rf"|\b(?:above|over|beyond|outside|more than|exceed(?:s|ed|ing)?) (?:the |its |our |an? |what is )?"
    rf"(?:\w{{1,20}} )?{_BOUND}\b"
)
_NUMBER = r"\d{1,3}(?:\.\d{1,9})?"
_UP_TO = rf"(?:\b{_BOUND}\b|<=?|\b(?:below|under|within|at most|up to|(?:less|fewer|lower) than)\b)"
_SHARE = re.compile(
    rf"(?i)\b(?:share|rate|ratio|fraction|part|percent(?:age)?)\b[^\d%]{{0,12}}(?P<share>{_NUMBER}) ?%?"
    rf".{{0,24}}?\b{_BOUND}\b[^\d%]{{0,12}}(?P<most>{_NUMBER})"
    rf"|(?P<left>{_NUMBER}) ?%? ?<=? ?(?P<right>{_NUMBER}) ?%? (?:is |are )?{_BOUND}\b"
    rf"|(?P<of>{_NUMBER}) ?%(?!\|).{{0,40}}?{_UP_TO}[^\d%]{{0,12}}"
    rf"(?P<may>{_NUMBER}) ?%"
    rf"|(?P<part>0\.\d{{1,9}})\b.{{0,24}}?{_UP_TO}[^\d%]{{0,12}}"
    rf"(?P<top>0\.\d{{1,9}})\b"
)
_CELLS = re.compile(r" {2,}|\.{4,}|[|\u2502\u2503\t]")
_ROW, _TABLE = 2, 3  # cells
_NAME = re.compile(r"[\w./-]{2,}")
_BAD_STATE = re.compile(
    r"(?i)(?P<what>.{2,200}?)\W(?:failed|failure|error|errored|fatal|dead|lost|evicted|cancell?ed|preempted|oom\w*|node_fail)"
    r"(?=\W{0,4}$| {2,}|\s*[|\u2502\u2503])"
)
# a piece of work of its own by its number, and how it is told that it failed
_PIECE = re.compile(r"\b(?P<what>(?i:job|task|build|pod|experiment|request))[ #:_-]{1,2}\d[\w.-]{0,20}\b")
_PIECE_FAILED = re.compile(
    rf"(?P<name>{_PIECE.pattern})[\])]?:? (?:has |was )?(?i:failed|errored|died|crashed|ended badly)\b"
)
_LOST = re.compile(r"(?i)\b(?:dead|lost|evicted|cancell?ed|preempted|stalled|blocked|oom\w*|node_fail)$")


@dataclass(frozen=True)
class GoodEnd:
    """Where the whole is told to have ended well, and whether by a count and not by a state alone."""

    line: Line
    counted: bool

    def speaks_for(self, line: Line) -> bool:
        """Whether a line is of what ended well: it is no other rank, task, worker or service than the one that tells
        it."""
        if line.number >= self.line.number or (self.line.rank is not None and line.rank != self.line.rank):
            return False
        mine, others = (tag_of(each.text) or service(each) for each in (self.line, line))
        return mine == others or re.sub(r"\d+", "0", mine) != re.sub(r"\d+", "0", others)


def good_end(seen: FileSeen) -> GoodEnd | None:
    """Where the whole of a file is told to have ended well; None where it does not end so."""
    said = [_whole(line) for line in seen.tail if re.search(r"\w", line.text) and not TRACKER.match(line.text)]
    if (tallied := _done_again(said[-_LAST:])) is not None:
        return GoodEnd(tallied, True)
    if (
        said
        and (whole := _WHOLE.match(said[-1].text))
        and whole["last"] is not None
        and not (_IN_VAIN.search(said[-1].text) or bad_words(said[-1].text))
    ):
        return GoodEnd(said[-1], True)
    spoke: set[str] = set()  # writers that say something better below
    for at, line in reversed(list(enumerate(said))):
        text = _METRIC.sub(" ", line.text)
        if (writer := tag_of(text) or service(line)) in spoke and (ILL.search(text) or bad_words(text)):
            continue
        if writer and is_output(line) and not (CLOSES.search(text) or PARTS.match(text[len(writer) :].strip())):
            spoke.add(writer)
        if (few := _as_few_as_may(text)) is not None:
            return GoodEnd(line, True) if few and not ILL.search(_FAILED.sub(" ", text)) else None
        if line.source == "kernel" or _WORSE.search(text) or line.level in ("warning", "error", "fatal", "critical"):
            return None
        anyhow = ANYHOW.search(text) or CLOSES.search(text)
        counted = (count := _COUNTED.search(text)) is not None
        if at < len(said) - _LAST and not re.search(r"\d", count[0] if count else ""):  # so far above: of a part
            if ILL.search(text) or bad_words(text):
                return None
            continue
        if counted or (_STATUS.match(text) and not anyhow):
            rest = _STATUS.sub(" ", ZERO.sub(" ", text))
            if any(_WORSE.search(row.text) for row in _rows_beside(line, said[:at])):
                return None
            return None if ILL.search(rest) or (not counted and bad_words(rest)) else GoodEnd(line, counted)
        if ILL.search(text) or (bad_words(text) and bad_end(line)) or _SHORT.search(text):
            return None
        if not anyhow and _WHOLE.match(text) and not _IN_VAIN.search(text):
            return GoodEnd(line, False)
        if not anyhow and line.text[:1] not in (" ", "\t") and _STATE.match(text):
            rows, below = _rows_beside(line, said[:at]), _rows_beside(line, said[:at:-1])
            failed = any(not _STATE.match(row.text) for row in below if len(_CELLS.split(row.text)) >= _TABLE)
            failed = failed or _left_bad(line, said[:at])
            listed = [row for row in rows if len(_CELLS.split(row.text)) >= _TABLE and _STATE.match(row.text)]
            return None if failed else GoodEnd(line, bool(listed))
    return None


def _whole(line: Line) -> Line:
    """The line, with the word before a bare number that was taken for a level: "ERROR: 0" is a count."""
    return replace(line, text=line.body.strip("# "), level="") if line.level and line.text.isdigit() else line


def _as_few_as_may(text: str) -> bool | None:
    """Whether no more failed than the same line says may, by number or by share; None where it does not tell both."""
    if (kept := _KEPT_TO.search(text)) is not None:
        return kept["well"] is not None
    if (share := _SHARE.search(text)) is not None:
        told, most = (float(each) for each in share.groups() if each is not None)
        return told <= most
    if (may := _MAY.search(text)) is None:
        return None
    rest = text[: may.start()] + " " * (may.end() - may.start()) + text[may.end() :]
    if (failed := _FAILED.search(rest)) is None:
        return None
    return int(failed["count"] or failed["after"]) <= int(may["count"] or may["after"])


def _done_again(lines: Sequence[Line]) -> Line | None:
    """The last of the closing counts of a manager of much work where something was done and as much as failed was
    tried again; None where they tell of no such thing."""
    counts = _counts(lines)
    failed, again, done = (sum(each) for each in _sums(counts))
    if not (0 < failed <= again and done):
        return None
    rest = [line.text for line in lines if line.number > counts[-1][0].number]
    return None if any(ILL.search(text) or bad_words(text) for text in rest) else counts[-1][0]


def _counts(lines: Iterable[Line]) -> list[tuple[Line, re.Match[str]]]:
    """The lines of a table of counts."""
    return [(line, found) for line in lines if (found := _TALLY.match(line.text))]


def _sums(counts: Iterable[tuple[Line, re.Match[str]]]) -> list[list[int]]:
    """How many failed, were tried again and are done, by the rows that tell of each."""
    return [[int(found["count"]) for _, found in counts if of.search(found["what"])] for of in _TALLIED]


def _rows_beside(line: Line, others: Sequence[Line]) -> list[Line]:
    """The lines directly above or below a state that are of its kind: of as many cells, or with the same first word."""
    lead, cells = line.text.split()[0], len(_CELLS.split(line.text))
    rows = []
    for each in reversed(others):
        alike = cells >= _ROW and len(_CELLS.split(each.text)) == cells
        tallied = _TALLY.match(each.text) and _TALLY.match(line.text)
        if each.text.split()[0] != lead and not alike and not tallied and shape(each.text) != shape(line.text):
            break
        rows.append(each)
    return rows


def _left_bad(line: Line, before: Sequence[Line]) -> bool:
    """Whether something else than a good state names was last told to be in a bad one, in a line of the same form."""
    if _another_failed(line, before):
        return True
    lead, cells = line.text.split()[0], len(_CELLS.split(line.text))
    later = set(_NAME.findall(line.text))
    for row in reversed(before):
        found = _BAD_STATE.match(row.text)
        if found is None:
            later.update(_NAME.findall(row.text))
            continue
        alike = (
            len(_CELLS.split(row.text)) == cells if cells >= _ROW else len(row.text.split()) == len(line.text.split())
        )
        names = _NAME.findall(found["what"])
        names = names[1:] if names[:1] == [lead] and len(names) > 1 else names
        if alike and names and names[0] not in later:
            return True
    return False


def _another_failed(line: Line, before: Sequence[Line]) -> bool:
    """Whether a state is of one piece of work, and another of its kind was told to have failed and is named no more."""
    mine = _PIECE.search(line.text)
    if mine is None:
        return False
    later = {mine[0].lower()}
    for row in reversed(before):
        if AGAIN.search(row.text):
            return False
        failed = _PIECE_FAILED.search(row.text)
        if failed and failed["what"].lower() == mine["what"].lower():
            return failed["name"].lower() not in later
        later |= {found[0].lower() for found in _PIECE.finditer(row.text)}
    return False


def left_failed(line: Line, seen: FileSeen) -> bool:
    """Whether the piece of work that a line is of is told to have failed and is named no more; another goes on."""
    after = sorted({each.number: each for each in seen.kept if each.number > line.number}.items())
    told = [each for _, each in after if _PIECE.search(each.text)]
    return bool(told) and _another_failed(told[-1], [each for _, each in after if each.number < told[-1].number])


def falls_short(seen: FileSeen) -> bool:
    """Whether the last line of a file says that less was done than there was, that more failed than may, or that
    something was lost."""
    failed, again, _ = _sums(_counts(seen.tail[-_LAST:]))
    few = len(again) > 0 and sum(failed) > sum(again)
    return few or is_short(next((line.text for line in reversed(seen.tail) if re.search(r"\w", line.text)), ""))


@lru_cache(1 << 6)
def is_short(said: str) -> bool:
    """The same of a line."""
    if (few := _as_few_as_may(said)) is not None:
        return not few
    if _WHOLE.match(said) and _LOST_ALL.search(ZERO.sub(" ", said)):
        return True
    for found in _FEWER.finditer(said):
        part, whole = (int(found[each]) for each in found.groupdict() if found[each] is not None)
        if part < whole:  # "72 pages of 8 volumes" tells of all
            return True
    return _LOST.search(said) is not None and len(_CELLS.split(said)) >= _TABLE
