"""``# envkit ignore=rule[,rule]`` in a file: what its author has looked at and accepts.

The comment holds for the line that it stands on and, where it has a line of its own, for the statement that follows;
``# envkit ignore-file=rule`` holds for the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from envkit.model import Finding, Outcome, Result, Severity
from envkit.patterns import pattern
from envkit.records import dataclass

_COMMENT = pattern(r"#\s*envkit\s+(ignore|ignore-file)\s*=\s*([a-z0-9-]+(?:\s*,\s*[a-z0-9-]+)*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ignored:
    """One comment: the checks it names, the first and the last line it covers; ``last`` 0 is the whole file."""

    checks: frozenset[str]
    line: int
    last: int = 0

    def covers(self, line: int) -> bool:
        """Whether a finding on that line is accepted."""
        return not self.last or self.line <= line <= self.last


def read(text: str, kind: str) -> tuple[Ignored, ...]:
    """All such comments of a file; ``kind`` is "dockerfile" where statements may go on over lines."""
    if "envkit" not in text.lower() or not _COMMENT.search(text):
        return ()
    return tuple(_read(text.split("\n"), _statements(text) if kind == "dockerfile" else []))


def _read(lines: list[str], statements: list[tuple[int, int]]) -> Iterator[Ignored]:
    for number, line in enumerate(lines, 1):
        found = _COMMENT.search(line)
        if not found:
            continue
        names = frozenset(name.strip().lower() for name in found[2].split(","))
        if found[1].lower() == "ignore-file":
            yield Ignored(names, number)
        elif line.lstrip().startswith("#"):
            after = _next(lines, number)
            # Inside a statement a comment is for the line below it, before one for all of its lines.
            inside = any(first < number <= last for first, last in statements)
            last = next((b for a, b in statements if a == after), after)
            yield Ignored(names, number, after if inside else last)
        else:
            yield Ignored(names, number, number)


def _next(lines: list[str], number: int) -> int:
    """The number of the first line after ``number`` that says something; itself where none does."""
    for later in range(number + 1, len(lines) + 1):
        said = lines[later - 1].strip()
        if said and not said.startswith("#"):
            return later
    return number


def _statements(text: str) -> list[tuple[int, int]]:
    """First and last line of each instruction of a Dockerfile."""
    from envkit.dockerfile.parse import parse

    return [(i.span.line, i.span.end_line or i.span.line) for i in parse(text, "").instructions]


def unknown(ignored: tuple[Ignored, ...], known: frozenset[str]) -> Iterator[tuple[int, str]]:
    """The line and name of every check that a comment names and that does not exist."""
    for each in ignored:
        for name in sorted(each.checks - known):
            yield each.line, name


def applied(
    results: tuple[Result, ...], path: str, ignored: tuple[Ignored, ...], beside: Callable[[str], tuple[Ignored, ...]]
) -> tuple[Result, ...]:
    """The results for the file at ``path`` without what the comments accept.

    ``ignored`` are its own comments; ``beside`` gives those of another file that a finding's place is in, as a
    requirements file that a Dockerfile installs.  A result of which nothing is left says which line took it.
    """
    return tuple(_one(result, path, ignored, beside) for result in results)


def _one(
    result: Result, path: str, ignored: tuple[Ignored, ...], beside: Callable[[str], tuple[Ignored, ...]]
) -> Result:
    mine = [each for each in ignored if result.check in each.checks]
    whole = next((each for each in mine if not each.last), None)
    if whole is not None and result.outcome in (Outcome.FAIL, Outcome.UNKNOWN):
        return Result(result.check, Outcome.SKIP, reason=f"ignored by line {whole.line}")
    left: list[Finding] = []
    taken = ""
    for finding in result.findings:
        span = finding.span
        if span is None or span.path == path:
            by = next((each for each in mine if span is not None and each.covers(span.line)), None)
        else:
            there = (each for each in beside(span.path) if result.check in each.checks)
            by = next((each for each in there if each.covers(span.line)), None)
        if by is None:
            left.append(finding)
        else:
            taken = f"line {by.line}" if span is None or span.path == path else f"line {by.line} of {span.path}"
    if not taken:
        return result
    if left:
        return replace(result, findings=tuple(left))
    return Result(result.check, Outcome.SKIP, reason=f"ignored by {taken}")


def weighed(results: tuple[Result, ...], severity: Mapping[str, Severity | None], path: str) -> tuple[Result, ...]:
    """The results with the severities that the settings at ``path`` give; a check that they turn off is skipped."""
    if not severity:
        return results
    changed: list[Result] = []
    for result in results:
        if result.check not in severity:
            changed.append(result)
            continue
        wanted = severity[result.check]
        if wanted is None:
            changed.append(Result(result.check, Outcome.SKIP, reason=f"turned off in {path}"))
        else:
            weighed_ones = tuple(replace(finding, severity=wanted) for finding in result.findings)
            changed.append(replace(result, findings=weighed_ones, at_most=wanted))
    return tuple(changed)
