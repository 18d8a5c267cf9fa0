"""What a check says in one line: a finding by how much it matters, and guards for questions that it cannot answer."""

from __future__ import annotations

from collections.abc import Mapping

from envkit.model import Finding, Severity, Skip, Unknown

_NONE: Mapping[str, str] = {}


def error(message: str, where: str = "", evidence: Mapping[str, str] = _NONE, fix: str = "") -> Finding:
    """What must not stay; arguments as those of Finding."""
    return Finding(message, Severity.ERROR, where, evidence, fix)


def warning(message: str, where: str = "", evidence: Mapping[str, str] = _NONE, fix: str = "") -> Finding:
    """What may cost a job something."""
    return Finding(message, Severity.WARNING, where, evidence, fix)


def note(message: str, where: str = "", evidence: Mapping[str, str] = _NONE, fix: str = "") -> Finding:
    """What somebody may have meant."""
    return Finding(message, Severity.NOTE, where, evidence, fix)


def skip_if(condition: object, reason: str) -> None:
    """Raises Skip where the condition holds: the question does not apply then."""
    if condition:
        raise Skip(reason)


def unknown_if(condition: object, reason: str) -> None:
    """Raises Unknown where the condition holds: a value is lacking then."""
    if condition:
        raise Unknown(reason)
