"""``--fix``: writes the edits that findings bring along, each safe by itself, and proves that nothing else changed."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from envkit.dockerfile.parse import parse
from envkit.model import Edit, Finding, Span
from envkit.static import JudgedFile


def fixed(judged: JudgedFile, more: Sequence[Edit] = ()) -> tuple[str, int]:
    """The text with all edits that fit together, and how many findings and edits of ``more`` they are.

    Edits of one finding are made all or none, and only those in the file itself.  Where two want the same stretch, the
    first in the file wins, and the other is left for a second run.  In a Dockerfile every instruction that no edit
    touches must stay what it was, or nothing is changed at all.
    """
    taken: list[Edit] = []
    lines: dict[int, list[Edit]] = {}  # of ``taken``: two can touch only where they share a line
    count = 0
    findings = [finding for result in judged.results for finding in result.findings if finding.edits]
    for edits in [*(f.edits for f in sorted(findings, key=_place)), *((edit,) for edit in more)]:
        if any(edit.span.path != judged.path for edit in edits):
            continue
        near = {edit: [other for line in _on(edit) for other in lines.get(line, ())] for edit in edits}
        if any(_touch(edit, other) for edit in edits for other in near[edit] if edit != other):
            continue
        for edit in edits:
            if edit not in near[edit]:
                taken.append(edit)
                for line in _on(edit):
                    lines.setdefault(line, []).append(edit)
        count += 1
    text = apply(judged.text, taken)
    if text == judged.text or (judged.kind == "dockerfile" and not _only_there(judged.text, text, taken)):
        return judged.text, 0
    return text, count


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with the edits made; they must not overlap.  Line ends stay what they are."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)

    def offset(place: tuple[int, int]) -> int:
        return starts[place[0] - 1] + place[1] - 1

    places = sorted(((offset(_begin(e.span)), offset(_end(e.span)), e.text) for e in edits), reverse=True)
    made: list[str] = []
    last = len(text)
    for begin, end, new in places:
        made += [text[end:last], new]
        last = begin
    return "".join([text[:last], *reversed(made)])


def diff(judged: JudgedFile, text: str) -> str:
    """What would change, as a unified diff."""
    name = judged.path.removeprefix("./").replace("\n", "\\n")
    found = difflib.unified_diff(_lines(judged.text), _lines(text), f"a/{name}", f"b/{name}")
    return "".join(map(_ended, found))


def _lines(text: str) -> list[str]:
    """The lines with their newlines; nothing else ends one, as for diff and patch."""
    *whole, last = text.split("\n")
    return [line + "\n" for line in whole] + ([last] if last else [])


def _ended(line: str) -> str:
    return line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"


def _place(finding: Finding) -> tuple[int, int]:
    return _begin(finding.edits[0].span)


def _begin(span: Span) -> tuple[int, int]:
    return span.line, span.column


def _end(span: Span) -> tuple[int, int]:
    return span.end_line or span.line, span.end_column or span.column


def _on(edit: Edit) -> range:
    return range(edit.span.line, (edit.span.end_line or edit.span.line) + 1)


def _touch(one: Edit, two: Edit) -> bool:
    """Whether two edits want the same stretch, or begin at the same place, where their order would matter."""
    (a, b), (c, d) = (_begin(one.span), _end(one.span)), (_begin(two.span), _end(two.span))
    return (a < d and c < b) or a == c


def _only_there(before: str, after: str, edits: Iterable[Edit]) -> bool:
    """Whether all instructions are still there, and those without an edit say what they said."""
    was, now = parse(before, ""), parse(after, "")
    old, new = was.instructions, now.instructions
    if [i.name for i in old] != [i.name for i in new] or len(now.problems) > len(was.problems):
        return False
    lines = sorted(edit.span.line for edit in edits)
    for one, two in zip(old, new, strict=True):
        at = bisect_left(lines, one.span.line)
        if at < len(lines) and lines[at] <= (one.span.end_line or one.span.line):
            if one.exec_form is not None and ("\\" in one.text.value or two.exec_form is None):
                return False  # where its strings have escapes, the place of a word is not known
            continue
        said = [
            (i.text.value, i.exec_form, [f.value for f in i.flags], [h.content.value for h in i.heredocs])
            for i in (one, two)
        ]
        if said[0] != said[1]:
            return False
    return True
