"""Reads expect.toml, the contract of a machine, and holds the results of its checks to it."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from dataclasses import replace
from math import inf
from pathlib import Path

from envkit.errors import UsageError, nearest
from envkit.model import Finding, Outcome, Result
from envkit.subjects.host.expected import Expected
from envkit.system import files
from envkit.system.typed_toml import fit

_MODES = ("", "on", "off")
_REQUIRED = ("gpu",)


def load(path: Path, checks: Collection[str]) -> Expected:
    """The contract in ``path``; ``checks`` are the ids that it may name.

    Raises UsageError for a file that cannot be read, is no TOML, or says something that means nothing here.
    """
    fix = "name a file of TOML, such as `[gpus]` `count = 8`"
    try:
        data = tomllib.loads(files.text(path, fix))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}", fix) from error
    expected = fit(data, Expected, str(path))
    _judgeable(expected, path, checks)
    return expected


def _judgeable(expected: Expected, path: Path, checks: Collection[str]) -> None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # only a contract needs it

    for text in (expected.driver.version, expected.driver.cuda):
        try:
            SpecifierSet(text)
        except InvalidSpecifier as error:
            raise UsageError(f"`{text}` in {path} is no version specifier", "write it like `>=MAJOR.MINOR`") from error
    for name in ("mig", "ecc", "persistence"):
        if getattr(expected.gpus, name) not in _MODES:
            raise UsageError(f"gpus.{name} in {path} is neither on nor off", 'write "on" or "off"')
    gpus, ports = expected.gpus, expected.infiniband
    for number in (gpus.count, gpus.memory_gib, expected.nvlink.links, ports.ports, ports.rate_gbps):
        if number is not None and not 0 <= number < inf:
            raise UsageError(f"{path} expects {number} of something", "write how many there should be")
    for word in expected.require:
        if word not in _REQUIRED:
            raise UsageError(f"`{word}` in {path} is nothing to require", f"one of: {', '.join(_REQUIRED)}")
    if expected.require and expected.gpus.count == 0:
        raise UsageError(f"{path} requires a GPU and says that there is none", "take out `require` or `count = 0`")
    for check in (*expected.checks.require, *expected.checks.may_be_unknown):
        if check not in checks:
            raise UsageError(
                f"{path} names the check `{check}`, which does not exist{nearest(check, sorted(checks))}",
                "`envkit doctor --list` lists them",
            )


def hold(results: tuple[Result, ...], expected: Expected | None) -> tuple[Result, ...]:
    """The results under the contract: a required check that was skipped fails, one that may be unknown is skipped."""
    if expected is None:
        return results
    return tuple(_held(result, expected) for result in results)


def _held(result: Result, expected: Expected) -> Result:
    if result.check in expected.checks.require and result.outcome is Outcome.SKIP:
        finding = Finding(
            f"{result.check} is required here and was skipped: {result.reason}",
            fix="fix what it could not be asked about, or take it out of `checks.require`",
        )
        return replace(result, outcome=Outcome.FAIL, findings=(finding,), reason="")
    if result.check in expected.checks.may_be_unknown and result.outcome is Outcome.UNKNOWN:
        reason = f"may be unknown here, as the contract says: {result.reason}"
        return replace(result, outcome=Outcome.SKIP, reason=reason)
    return result
