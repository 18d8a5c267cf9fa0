"""Runs every check that fits a subject; the only place that knows all checks, and it finds them by itself.

A check is a function with one subject as its parameter, named by its type (``Image | Audit`` where both show what it
asks for), and the facts as a second one where it needs them.  Its name, with dashes, is its id for ever;
``kb/<id>.md`` is its page.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from envkit.facts import Facts
from envkit.model import Finding, Outcome, Result, Severity, Skip, Unknown

Judge = TypeVar("Judge", bound=Callable[..., Iterator[Finding]])


@dataclass(frozen=True, slots=True)
class Check:
    """A judge and its name; ``subjects`` are the types it judges."""

    id: str
    subjects: tuple[type, ...]
    judge: Callable[..., Iterator[Finding]]
    wants_facts: bool


def _read(function: Callable[..., Iterator[Finding]]) -> Check:
    hints = {name: kind for name, kind in get_type_hints(function).items() if name != "return"}
    subjects = [kind for kind in hints.values() if kind is not Facts]
    if len(subjects) != 1:
        raise TypeError(f"{function.__name__} must take one subject, and the facts if it needs them")
    kinds = get_args(subjects[0]) if isinstance(subjects[0], UnionType) else (subjects[0],)
    return Check(function.__name__.replace("_", "-"), kinds, function, Facts in hints.values())


def _modules() -> Iterator[ModuleType]:
    import envkit.checks as package

    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):  # what checks share
            yield importlib.import_module(f"{package.__name__}.{module.name}")


def checks() -> dict[str, Check]:
    """Every check by id: the public functions of the modules in ``envkit.checks`` that yield findings."""
    found: dict[str, Check] = {}
    for module in _modules():
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", "") != module.__name__ or not callable(value):
                continue
            if isinstance(value, type) or get_type_hints(value).get("return") != Iterator[Finding]:
                continue
            check = _read(value)
            if check.id in found:
                raise ValueError(f"two checks are named {check.id}")
            found[check.id] = check
    return found


def run(check: Check, subject: object, facts: Facts) -> Result:
    """What one check says of one subject; a check that dies is an outcome, never a crash and never a pass."""
    findings: list[Finding] = []
    try:
        findings.extend(check.judge(subject, facts) if check.wants_facts else check.judge(subject))
    except Skip as skip:
        if findings:  # extend keeps what came before the exception
            return Result(check.id, Outcome.BROKE, reason=f"skipped ({skip}) after a finding: {findings[0].message}")
        return Result(check.id, Outcome.SKIP, reason=str(skip))
    except Unknown as unknown:
        # An error that was found is certain, whatever else stayed open; less than that must not hide the doubt.
        if any(finding.severity is Severity.ERROR for finding in findings):
            return Result(check.id, Outcome.FAIL, tuple(findings), str(unknown))
        return Result(check.id, Outcome.UNKNOWN, reason=str(unknown))
    except Exception as error:  # the one broad except of the program: a broken check is a result, not a traceback
        return Result(check.id, Outcome.BROKE, reason=f"{type(error).__name__}: {error}")
    return Result(check.id, Outcome.FAIL if findings else Outcome.PASS, tuple(findings))


def judge(subject: Any, facts: Facts, only: frozenset[str] = frozenset()) -> tuple[Result, ...]:
    """The results of all checks for the type of ``subject``, sorted by id; ``only`` names a part of them."""
    fitting = sorted(checks().items())
    return tuple(
        run(check, subject, facts)
        for name, check in fitting
        if type(subject) in check.subjects and (not only or name in only)
    )
