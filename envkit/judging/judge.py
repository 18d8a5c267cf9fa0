"""Runs every check that fits a subject; the only place that knows all checks, and it finds them by itself.

A check is a function with one subject as its parameter, named by its type (``Image | Audit`` where both show what it
asks for), and the facts as a second one where it needs them.  Its name, with dashes, is its id for ever;
``kb/<id>.md`` is its page.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from inspect import unwrap
from types import FunctionType, MappingProxyType, ModuleType, SimpleNamespace, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from envkit.facts import Facts
from envkit.judging import doubts, required
from envkit.model import Finding, Outcome, Result, Skip, Unknown
from envkit.records import dataclass

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Check:
    """A judge and its name; ``subjects`` are the types it judges."""

    id: str
    subjects: tuple[type, ...]
    judge: Callable[..., Iterator[Finding]]
    wants_facts: bool


# These subjects have modules of their own, which begin so; modules with other names judge none of them.
_OWN = {
    "Dockerfile": "dockerfile_", "Host": "host_", "JobStart": "start_", "Launch": "launch_", "Packages": "packages_",
    "SmokeRun": "smoke", "Workload": "workload_",
}  # fmt: skip


def _read(function: Callable[..., Iterator[Finding]], hints: dict[str, Any]) -> Check:
    subjects = [kind for name, kind in hints.items() if name != "return" and kind is not Facts]
    if len(subjects) != 1:
        raise TypeError(f"{function.__name__} must take one subject, and the facts if it needs them")
    kinds = get_args(subjects[0]) if isinstance(subjects[0], UnionType) else (subjects[0],)
    return Check(function.__name__.replace("_", "-"), kinds, function, Facts in hints.values())


def _modules(subject: type | None) -> Iterator[ModuleType]:
    import envkit.judging.checks as package

    own = _OWN.get(subject.__name__) if subject else None
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("_"):  # what checks share
            continue
        if subject and (not module.name.startswith(own) if own else module.name.startswith(tuple(_OWN.values()))):
            continue
        yield importlib.import_module(f"{package.__name__}.{module.name}")


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for name, value in vars(module).items():
        if not name.startswith("_") and isinstance(value, FunctionType) and value.__module__ == module.__name__:
            yield value
    yield from getattr(module, "CHECKS", ())


@cache
def _meant(words: str, module: str) -> Any:
    """The type that an annotation of ``module`` names: the same few words for all checks, which `get_type_hints` of
    each would compile again, a tenth of a second for those of a machine."""
    return get_type_hints(SimpleNamespace(__annotations__={"meant": words}), vars(sys.modules[module]))["meant"]


def _hints(function: FunctionType) -> dict[str, Any]:
    """The types of a function's parameters and of its result, by their names."""
    said, module = function.__annotations__, unwrap(function).__globals__["__name__"]
    return {name: _meant(one, module) if isinstance(one, str) else one for name, one in said.items()}


@cache
def checks(subject: Any = None) -> Mapping[str, Check]:
    """Every check by id, or those of the type ``subject`` alone, whose modules are imported and no others.

    A check is a public function of a module in ``envkit.judging.checks`` that yields findings, or one that the module
    made from data and lists as ``CHECKS``.
    """
    found: dict[str, Check] = {}
    for module in _modules(subject):
        for value in _functions(module):
            hints = _hints(value)
            if hints.get("return") != Iterator[Finding]:
                continue
            check = _read(value, hints)
            if check.id in found:
                raise ValueError(f"two checks are named {check.id}")
            if subject is None or subject in check.subjects:
                found[check.id] = check
    return MappingProxyType(found)


def run(check: Check, subject: object, facts: Facts) -> Result:
    """What one check says of one subject; a check that dies is an outcome, never a crash and never a pass."""
    findings: list[Finding] = []
    try:
        findings.extend(check.judge(subject, facts) if check.wants_facts else check.judge(subject))
    except Skip as skip:
        if findings:  # extend keeps what came before the exception
            return Result(check.id, Outcome.CRASHED, reason=f"skipped ({skip}) after a finding: {findings[0].message}")
        return Result(check.id, Outcome.SKIP, reason=str(skip))
    except Unknown as unknown:
        worst = min(unknown.at_most, doubts.worst(check.id))
        # What was found is certain, whatever else stayed open; less than what is open must not hide the doubt.
        if any(finding.severity >= worst for finding in findings):
            return Result(check.id, Outcome.FAIL, tuple(findings), str(unknown))
        return Result(check.id, Outcome.UNKNOWN, reason=str(unknown), at_most=worst, about=unknown.about)
    except Exception as error:  # a broken check is a result, not a traceback
        return Result(check.id, Outcome.CRASHED, reason=f"{type(error).__name__}: {error}")
    return Result(check.id, Outcome.FAIL if findings else Outcome.PASS, tuple(findings))


def guarded(read: Callable[[], Made]) -> Made | str:
    """What ``read`` gives, or how it died: one of many files must not take the verdict on all others with it."""
    try:
        return read()
    except Exception as error:  # as in ``run``: a broken reader is a result, not a traceback
        return f"{type(error).__name__}: {error}"


def judge(subject: Any, facts: Facts, only: frozenset[str] = frozenset()) -> tuple[Result, ...]:
    """The results of all checks for the type of ``subject``, sorted by id; ``only`` names a part of them.

    Where all were asked, what must have been answered and is open stands behind them.
    """
    kind: Any = type(subject)
    fitting = sorted(checks(kind).items())
    said = tuple(run(check, subject, facts) for name, check in fitting if not only or name in only)
    return said if only else (*said, *unanswered(subject))


def unanswered(subject: object) -> tuple[Result, ...]:
    """A result for each question that must have an answer before "pass" may be said of ``subject``, and has none.

    Raises KeyError for a subject of which nobody has said what must be answered.
    """
    asked = (
        (one.id, guarded(partial(one.open, subject))) for one in (*required.of(subject).questions, required.FIELDS)
    )
    return tuple(Result(name, Outcome.UNKNOWN, reason=why) for name, why in asked if why)
