"""Many machines at once: which files do not run on which of them (`envkit check --fleet machines.toml`)."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from envkit.dockerfile.files import LARGEST
from envkit.errors import UsageError, one_line
from envkit.facts import Facts
from envkit.model import Finding, Outcome, Result
from envkit.static import CheckOptions, JudgedFile
from envkit.system import files, typed_toml
from envkit.versions import Driver

MOST = 200  # kinds of machines of one file; more of one kind cost nothing
_EXAMPLE = '[[machine]] with name = "gpu01", gpus = ["H100"] and driver = "550", or host = "gpu01.json"'
_SHOWN = 3  # names of one kind in a message
_WORSE = (Outcome.CRASHED, Outcome.UNKNOWN, Outcome.PASS, Outcome.SKIP)


@dataclasses.dataclass(frozen=True)  # msgspec reads its types
class Machine:
    """One machine: its GPUs and its driver, or the file that `envkit doctor --save` wrote of it."""

    name: str
    gpus: list[str] = dataclasses.field(default_factory=list)
    driver: str = ""
    host: str = ""


def load(path: Path, facts: Facts) -> dict[tuple[tuple[str, ...], str], list[str]]:
    """The names of the machines of a file by GPUs and driver; raises UsageError for what is no such file."""
    try:
        table = tomllib.loads(files.content(path, LARGEST).decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {files.why(error)}", f"write {_EXAMPLE}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {one_line(str(error))}", f"write {_EXAMPLE}") from error
    kinds: dict[tuple[tuple[str, ...], str], list[str]] = {}
    listed = table.pop("machine", [])
    if table or not isinstance(listed, list):
        raise UsageError(f"{path} has more than [[machine]] tables", f"write {_EXAMPLE}")
    for number, each in enumerate(listed, 1):
        machine = typed_toml.fit(each, Machine, f"{path}: [[machine]] {number}")
        kinds.setdefault(_of(machine, path, facts), []).append(machine.name)
    if not kinds:
        raise UsageError(f"{path} names no machine", f"write {_EXAMPLE}")
    if len(kinds) > MOST:
        raise UsageError(f"{path} has {len(kinds)} kinds of machines, more than {MOST}", "split it")
    return kinds


def _of(machine: Machine, path: Path, facts: Facts) -> tuple[tuple[str, ...], str]:
    """What a machine is for the checks; raises UsageError for GPUs or a driver that nobody knows."""
    where = f"{path}: machine `{one_line(machine.name)}`"
    if bool(machine.host) == bool(machine.gpus or machine.driver):
        has = "has both a host and GPUs or a driver" if machine.host else "has neither a host nor GPUs nor a driver"
        raise UsageError(f"{where} {has}", f"write {_EXAMPLE}")
    if machine.host:
        from envkit.host.products import of_machine  # most files name GPUs and drivers
        from envkit.subjects import Host, saved

        return of_machine(saved.of_kind(path.parent / machine.host, Host), facts)
    for name in machine.gpus:
        facts.gpu(name)  # raises UsageError with the nearest names
    try:
        driver = str(Driver(machine.driver)) if machine.driver else ""
    except ValueError as error:
        raise UsageError(f"{where}: `{one_line(machine.driver)}` is no driver version", f"write {_EXAMPLE}") from error
    return tuple(machine.gpus), driver


def judged(
    plain: Sequence[JudgedFile],
    kinds: dict[tuple[tuple[str, ...], str], list[str]],
    options: CheckOptions,
    judge: Callable[[CheckOptions], Sequence[JudgedFile]],
) -> tuple[JudgedFile, ...]:
    """The files as judged without a machine, with what ``judge`` says besides of each kind of machine."""
    found = [
        (_names(names), judge(replace(options, gpus=gpus, driver=driver))) for (gpus, driver), names in kinds.items()
    ]
    return tuple(_together(each, [(names, files[at]) for names, files in found]) for at, each in enumerate(plain))


def _names(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(map(one_line, names[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _together(plain: JudgedFile, machines: Sequence[tuple[str, JudgedFile]]) -> JudgedFile:
    """One file: a check that says something else of a machine than without one speaks of each machine."""
    results = []
    for at, result in enumerate(plain.results):
        other = [(names, one.results[at]) for names, one in machines if one.results[at : at + 1] not in ((), (result,))]
        results.append(_of_machines(result, other) if other else result)
    return replace(plain, results=tuple(results))


def _of_machines(plain: Result, said: Sequence[tuple[str, Result]]) -> Result:
    findings = tuple(_on(names, one, plain) for names, result in said for one in result.findings)
    if findings:
        return replace(plain, outcome=Outcome.FAIL, findings=findings, reason="")
    worst = min((result for _, result in said), key=lambda result: _WORSE.index(result.outcome))
    open_ones = [f"on {names}: {one.reason}" for names, one in said if one.outcome is worst.outcome and one.reason]
    return replace(worst, reason="; ".join(open_ones[:_SHOWN]))


def _on(names: str, finding: Finding, plain: Result) -> Finding:
    return finding if finding in plain.findings else replace(finding, message=f"on {names}: {finding.message}")
