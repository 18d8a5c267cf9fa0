"""Judges the numbers of smoke tests; their limits are rows of ``smoke_limits/<group>.jsonl``.

A row bounds measures of one test on some kinds of device, from above (``most``) or from below (``least``), and says how
the bound was bracketed.  A measure that is missing, or is no finite number, is a finding; with ``when`` the row counts
only where that other measure is 1, so that a test must say that it cannot measure something.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import resources

import msgspec

from envkit.judging.checks._outcomes import error, skip_if, unknown_if
from envkit.model import Finding, Severity, Skip
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.case import Case, chosen, devices
from envkit.records import dataclass
from envkit.subjects.smoke import SmokeRun, SmokeTest

_OWN = "*."  # of `when`: the measure of this name beside the bounded one, as fp32.offered beside fp32.wrong
_FIXES = {
    "killed": "rerun this test alone and look for the device's Xid in the kernel log of the host",
    "hung": "the stack in the evidence shows where it stopped; look for the device's Xid in the kernel log of the host",
    "raised": "start with the library that the message names: compare it with what `envkit probe` shows as bound",
    "cuda": "rerun this test alone with CUDA_LAUNCH_BLOCKING=1; `envkit probe` says which libraries are bound",
    "memory": "look for other processes on the GPU (nvidia-smi), and rerun this test alone",
    "garbled": "rerun this test alone; something in the process exits without an error",
}
_CPU_FIXES = {  # no driver has a part in it
    "killed": "rerun this test alone and look for the out-of-memory killer in the kernel log of the host",
    "hung": "the stack in the evidence shows where it stopped; rerun this test alone, while nothing else computes here",
}
_SAID = {"cuda": "met a CUDA error", "memory": "ran out of memory"}


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on measures of one test; ``devices`` are of "cpu", "cuda" and "gpus"."""

    test: str
    measures: tuple[str, ...]
    devices: tuple[str, ...]
    why: str
    most: float | None = None
    least: float | None = None
    when: str = ""
    severity: str = "error"
    fix: str = ""


@cache
def limits() -> dict[str, tuple[Limit, ...]]:
    """All rows, by test."""
    found: dict[str, tuple[Limit, ...]] = {}
    for file in resources.files("envkit.judging.checks").joinpath("smoke_limits").iterdir():
        for line in file.read_text("utf-8").splitlines() if file.name.endswith(".jsonl") else ():
            if line.strip():
                limit = msgspec.json.decode(line, type=Limit, strict=True)
                found[limit.test] = (*found.get(limit.test, ()), limit)
    return found


@cache
def cases() -> dict[str, Case]:
    """The suite's tests by name."""
    return {case.name: case for case in TESTS}


def number(test: SmokeTest, measure: str) -> float:
    """The measure; NaN when it is missing or is no number."""
    try:
        return float(test.measures.get(measure, math.nan))
    except (ValueError, OverflowError):
        return math.nan


def beyond(limit: Limit, measure: str, test: SmokeTest) -> Finding | None:
    """What is wrong with one measure of ``test``, None if it keeps its limit or the test says it does not offer it."""
    when = limit.when.replace(_OWN, measure.partition(".")[0] + ".") if limit.when.startswith(_OWN) else limit.when
    if when and number(test, when) == 0.0:
        return None  # the test itself says that this device does not offer it
    where, severity = test.device, Severity[limit.severity.upper()]
    if measure not in test.measures:
        return Finding(f"{test.name} did not measure {measure}", severity, where, fix=limit.fix)
    value = number(test, measure)
    if not math.isfinite(value):
        said = "not a finite number"
    elif value < 0.0:
        said = "negative, which no count or distance can be"
    elif limit.most is not None and value > limit.most:
        said = f"above its limit of {limit.most:g}"
    elif limit.least is not None and value < limit.least:
        said = f"below its limit of {limit.least:g}"
    else:
        return None
    evidence = {f"{value:g}": f"{measure} of smoke test {test.name}", limit.why: "the limit's reason"}
    if test.detail:
        evidence[test.detail] = "what the test said"
    message = f"{test.name}: {measure} is {value:.4g}, {said}"
    return Finding(message, severity, where, evidence, limit.fix)


def death(test: SmokeTest) -> Finding:
    """That ``test`` did not come to its end, and how."""
    how = f"was killed by {test.signal}" if test.ended == "killed" else _SAID.get(test.ended, test.ended)
    how += f" {test.cuda}" if test.cuda else ""
    detail = test.detail.strip().replace("\n", "; ")
    message = f"{test.name} {how}" + (f": {detail}" if detail else "")
    last = "\n".join(test.stderr_tail.strip().splitlines()[-30:])
    evidence = {last: "its last words on stderr"} if last else {}
    fixes = {**_FIXES, **_CPU_FIXES} if test.device == "cpu" else _FIXES
    return error(message, test.device, evidence, fixes[test.ended])


def of_one(test: SmokeTest) -> Iterator[Finding]:
    """What is wrong with one end of one test."""
    if test.ended == "not-applicable":
        return
    if test.ended != "ran":
        yield death(test)
        return
    kind = test.device.partition(":")[0]
    rows = [limit for limit in limits().get(test.name, ()) if kind in limit.devices]
    if not rows:
        yield error(f"{test.name} has no limit for the device {test.device}", test.device)
    for limit in rows:
        yield from filter(None, (beyond(limit, measure, test) for measure in limit.measures))


def asked(run: SmokeRun) -> tuple[Case, ...]:
    """The tests that the run was asked for."""
    cases = chosen(TESTS, run.level, run.only, run.exclude, run.suite)
    return tuple(case for case in cases if run.sanitize in case.sanitize) if run.sanitize else cases


def _not_reached(case: Case, run: SmokeRun, ended: set[str]) -> str:
    """The devices on which a test should have an end and has none, empty if it has them all."""
    seen = run.gpus.need("the GPUs that the run saw") if case.gpu or case.several else ()
    wanted = devices(case, len(seen))
    return " and ".join(sorted(set(wanted) - ended))


def _explained(finding: Finding, case: Case, run: SmokeRun) -> Finding:
    """The finding, with the earlier fault on the same device that explains it if there is one."""
    known = {(test.name, test.device): test for test in run.tests.value or () if test.injected_fault == ""}
    waiting, met = list(case.needs), {case.name}
    while waiting:
        name = waiting.pop(0)
        if name in met or name not in cases():
            continue
        met.add(name)
        earlier = known.get((name, finding.where))
        fault = next((one for one in of_one(earlier) if one.severity is Severity.ERROR), None) if earlier else None
        if fault is not None:
            why = "an earlier test on the same device, which explains this one"
            evidence = {**finding.evidence, fault.message: why}
            return replace(finding, message=f"{finding.message} (explained by {name})", evidence=evidence)
        waiting += cases()[name].needs
    return finding


def judged(name: str, run: SmokeRun) -> Iterator[Finding]:
    """What is wrong with the test ``name``; under an injected fault what each injected fault was seen by.

    Raises Skip where the test was not asked for or does not apply, Unknown where it has no end somewhere, or where a
    injected fault changed nothing.
    """
    case = cases()[name]
    mine = [test for test in run.tests.value or () if test.name == name]
    skip_if(case not in asked(run) and not mine, "not asked for")
    run.tests.need("the run of the smoke suite")
    findings: list[Finding] = []
    blind: list[str] = []
    for test in mine:
        found = list(of_one(test))
        red = any(one.severity is Severity.ERROR for one in found)
        if run.injected_fault and test.ended != "not-applicable" and not red:
            blind.append(f"{test.injected_fault} on {test.device}")
        findings += found if run.injected_fault else [_explained(one, case, run) for one in found]
    skip_if(run.injected_fault and not mine, f"the injected fault {run.injected_fault!r} is not one of this test's")
    kinds = case.faults if run.injected_fault == "all" else (run.injected_fault,)
    done = {(test.device, test.injected_fault) for test in mine}
    lost = sorted((device, kind) for device, _ in done for kind in kinds if (device, kind) not in done)
    blind += [f"{kind} on {device}, which did not run" for device, kind in lost]
    unknown_if(blind, f"{name} does not see the injected fault {', '.join(blind)}")
    if not any(finding.severity is Severity.ERROR for finding in findings):  # a fault is certain, whatever is open
        where = _not_reached(case, run, {test.device for test in mine})
        unknown_if(where, f"{name} did not finish on {where}")
        if all(test.ended == "not-applicable" for test in mine):
            raise Skip("; ".join(dict.fromkeys(test.detail for test in mine)))
    yield from findings
