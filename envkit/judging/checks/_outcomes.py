"""What a check says in one line: a finding by how much it matters, and guards for questions that it cannot answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from envkit.model import Edit, Finding, Severity, Skip, Span, Unknown

T = TypeVar("T")

_NONE: Mapping[str, str] = {}


def found(
    message: str,
    where: str | Span,
    severity: Severity,
    fix: str,
    evidence: Mapping[str, str] = _NONE,
    edits: tuple[Edit, ...] = (),
) -> Finding:
    """A finding of any severity; ``where`` is a Span in a file that people write, and ``edits`` are for those alone."""
    span, place = (where, where.place) if isinstance(where, Span) else (None, where)
    return Finding(message, severity, place, evidence, fix, span, edits)


def error(message: str, where: str | Span = "", evidence: Mapping[str, str] = _NONE, fix: str = "") -> Finding:
    """What must not stay; arguments as those of ``found``."""
    return found(message, where, Severity.ERROR, fix, evidence)


def warning(message: str, where: str | Span = "", evidence: Mapping[str, str] = _NONE, fix: str = "") -> Finding:
    """What may cost a job something."""
    return found(message, where, Severity.WARNING, fix, evidence)


def note(message: str, where: str | Span = "", evidence: Mapping[str, str] = _NONE, fix: str = "") -> Finding:
    """What somebody may have meant."""
    return found(message, where, Severity.NOTE, fix, evidence)


def skip_if(condition: object, reason: str) -> None:
    """Raises Skip where the condition holds: the question does not apply then."""
    if condition:
        raise Skip(reason)


def unknown_if(condition: object, reason: str, at_most: Severity = Severity.ERROR) -> None:
    """Raises Unknown where the condition holds: a value is lacking then, whose answer is worth ``at_most``."""
    if condition:
        raise Unknown(reason, at_most)


def or_skip(value: T | None, reason: str) -> T:
    """The value; raises Skip where there is none."""
    if value is None:
        raise Skip(reason)
    return value


def or_unknown(value: T | None, reason: str) -> T:
    """The value; raises Unknown where there is none."""
    if value is None:
        raise Unknown(reason)
    return value
