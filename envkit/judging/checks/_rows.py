"""Checks of a machine that differ by what they read and by their words: each is a row of ``host_rows/<module>.jsonl``.

A row is found by its check's id, and becomes a function of its module.  Of ``message``, ``shows`` (the evidence),
``where`` and ``fix`` the words in braces are values that the row's kind names.
"""

from __future__ import annotations

import operator
import re
import string
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import Any

import msgspec

from envkit.facts import Facts
from envkit.facts.xid import XidCategory
from envkit.judging.checks._driver import need_own_gpu
from envkit.judging.checks._gpus import each_gpu, is_laptop, told
from envkit.judging.checks._host import gib, gpu_name, is_workstation, setting
from envkit.judging.checks._log import by_device, count, device, judge_xids, line_finding, log_lines
from envkit.judging.checks._made import named
from envkit.judging.checks._outcomes import skip_if
from envkit.judging.checks._pci import on_paths
from envkit.model import Finding, Observed, Severity
from envkit.subjects import Host
from envkit.subjects.host import Gpu


class Lines(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="by", tag="lines"):
    """Any line of a ``topic`` in the kernel log is the fault: one finding, or with ``each`` one for each device.

    ``on_paths`` asks for devices on the path to a GPU or network adapter alone, ``own_gpu`` for a GPU of this machine;
    lines with the words of ``without`` are left to another check.
    Values: count, address ("" where the line has none), device (in words).
    """

    check: str
    topic: str
    severity: str
    message: str
    fix: str
    where: str = "kernel log"
    each: bool = False
    on_paths: bool = False
    own_gpu: bool = False
    without: str = ""


class Xids(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="by", tag="xids"):
    """Any Xid of these categories is a fault, as grave as the facts say; ``fix`` stands in for the facts' advice."""

    check: str
    categories: tuple[XidCategory, ...]
    fix: str = ""


class Bound(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="by", tag="bound"):
    """One observed value has a bound: ``fails`` are the conditions of which each is the fault.

    ``reads`` is a field of the machine, of each GPU (``gpus``), or a switch of the kernel (``switch``).  Conditions
    compare its attributes, or itself as ``it``, with each other or with numbers ("width * 4 <= most_width"); ``worse``
    makes an error of it, ``milder_on_workstations`` a note.  ``skips`` are conditions with their reasons, of which
    "laptop" and "workstation" are asked before the value is.  ``origin`` says where the bound comes from.
    """

    check: str
    reads: str
    what: str
    fails: tuple[str, ...]
    message: str
    shows: str
    fix: str
    origin: str
    severity: str = "warning"
    where: str = ""
    via: str = ""
    worse: str = ""
    skips: tuple[tuple[str, str], ...] = ()
    gpus: bool = False
    switch: bool = False
    milder_on_workstations: bool = False


Row = Lines | Xids | Bound
Check = Callable[..., Iterator[Finding]]


def rows(module: str) -> tuple[Check, ...]:
    """The checks of ``module`` that are rows."""
    name = module.rpartition(".")[2]
    text = resources.files("envkit.judging.checks").joinpath("host_rows").joinpath(f"{name}.jsonl").read_text("utf-8")
    made = [msgspec.json.decode(line, type=Row, strict=True) for line in text.splitlines() if line.strip()]
    return tuple(named(_check(row), row.check.replace("-", "_"), module) for row in made)


def _check(row: Row) -> Check:
    if isinstance(row, Lines):
        return _of_lines(row)
    if isinstance(row, Xids):
        return _of_xids(row)
    return _of_gpus(row) if row.gpus else _of_machine(row)


# ---------------------------------------------------------------- the kernel log


def _of_lines(row: Lines) -> Check:
    def check(host: Host) -> Iterator[Finding]:
        if row.own_gpu:
            need_own_gpu(host)
        lines = [line for line in log_lines(host, row.topic) if not row.without or row.without not in line.text]
        lines = on_paths(host, lines) if row.on_paths else lines
        for found in by_device(lines).values() if row.each else [lines] if lines else []:
            values = {"count": count(found), "address": found[-1].pci, "device": device(found[-1])}
            words = (part.format_map(values) for part in (row.message, row.fix, row.where))
            yield line_finding(host, found, Severity[row.severity.upper()], *words)

    return check


def _of_xids(row: Xids) -> Check:
    def check(host: Host, facts: Facts) -> Iterator[Finding]:
        need_own_gpu(host)
        yield from judge_xids(host, facts, *row.categories, fix=row.fix)

    return check


# ---------------------------------------------------------------- bounds

_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_UNITS: Mapping[str, Callable[[Any], str]] = {
    "GiB": gib,
    "W": lambda milliwatts: f"{milliwatts / 1000:g} W",
    "whole_W": lambda milliwatts: f"{milliwatts // 1000}",
    "us_in_s": lambda microseconds: f"{microseconds / 1e6:g} s",
}
_TERM = r"(\w+|'[^']*'|[0-9.]+)(?: \* ([0-9.]+))?"
_CONDITION = re.compile(rf"{_TERM} (<=|>=|==|!=|<|>) {_TERM}")


class _Words(string.Formatter):
    """Words with values in them, whose format may be a unit."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return _UNITS[format_spec](value) if format_spec in _UNITS else format(value, format_spec)


def _holds(condition: str, value: object) -> bool:
    """Whether all parts of a condition hold; raises ValueError for what is none."""
    for part in condition.split(" and "):
        found = _CONDITION.fullmatch(part)
        if found is None:
            raise ValueError(f"`{part}` is no condition")
        left, by, sign, right, of = found.groups()
        if not _SIGNS[sign](_term(left, by, value), _term(right, of, value)):
            return False
    return True


def _term(text: str, factor: str | None, value: object) -> Any:
    found: Any
    if text.startswith("'"):
        found = text.strip("'")
    elif text[0].isdecimal():
        found = float(text)
    else:
        found = value if text == "it" else getattr(value, text)
    return found if factor is None else found * float(factor)


def _of_gpus(row: Bound) -> Check:
    kinds = {"laptop": is_laptop, "workstation": is_workstation}

    def judge(gpu: Gpu) -> Iterator[Finding]:
        for kind, reason in row.skips:
            skip_if(kind in kinds and kinds[kind](gpu), reason)
        seen: Observed[Any] = getattr(gpu, row.reads)
        value = told(seen, row.what)
        for condition, reason in row.skips:
            skip_if(condition not in kinds and _holds(condition, value), reason)
        mild = row.milder_on_workstations and is_workstation(gpu)
        yield from _bounded(row, value, seen.via, {"gpu": gpu_name(gpu), "index": gpu.index}, mild)

    def check(host: Host) -> Iterator[Finding]:
        yield from each_gpu(host, judge)

    return check


def _of_machine(row: Bound) -> Check:
    def check(host: Host) -> Iterator[Finding]:
        if row.switch:
            value, via = setting(host, row.reads)
        else:
            seen: Observed[Any] = getattr(host, row.reads)
            value, via = seen.need(row.what), seen.via
        yield from _bounded(row, value, via, {}, mild=False)

    return check


def _bounded(row: Bound, value: object, via: str, names: Mapping[str, object], mild: bool) -> Iterator[Finding]:
    if not any(_holds(condition, value) for condition in row.fails):
        return
    severity = Severity.NOTE if mild else Severity[row.severity.upper()]
    if row.worse and _holds(row.worse, value):
        severity = Severity.ERROR
    message, where, shows, fix = (
        _Words().vformat(words, (), {"it": value, **names}) for words in (row.message, row.where, row.shows, row.fix)
    )
    yield Finding(message, severity, where, {shows: row.via or via}, fix)
