"""A finding by how much it matters, which reads better than a severity among the arguments."""

from __future__ import annotations

from collections.abc import Mapping

from envkit.model import Finding, Severity

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
