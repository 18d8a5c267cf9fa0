"""What differs between two machines: first what works there and not here, then what was observed otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envkit.diff.compare import Change, Weight
from envkit.facts import Facts
from envkit.judging import judge
from envkit.model import Outcome, Reason, is_observation
from envkit.subjects import Host
from envkit.subjects.codec import to_plain

# What is another value at every look, or another one by nature on every machine.
_VOLATILE = {
    "uuid", "serial", "temperature", "power", "clocks", "utilization", "memory_used", "pstate", "throttle",
    "throttled_us", "processes", "log", "free", "used", "replays", "uptime", "load", "ecc_corrected", "minor",
    "available", "committed", "free_large", "tasks", "today", "hostname", "addresses", "pid", "inodes_free", "energy",
}  # fmt: skip
_NOTABLE = {"module", "nvml", "kernel", "os", "glibc", "toolkit", "docker", "pci_gpus", "packages", "infiniband"}
_NAMES = ("index", "path", "address", "name", "number", "link", "release")
_MOST = 120  # characters of a value that a line shows


def changes(old: Host, new: Host, facts: Facts) -> tuple[Change, ...]:
    """``old`` is the machine on which it works, ``new`` the other one."""
    return (*_checks(old, new, facts), *_fields(old, new))


def _checks(old: Host, new: Host, facts: Facts) -> Iterator[Change]:
    there = {result.check: result for result in judge.judge(old, facts)}
    for result in judge.judge(new, facts):
        if result.check not in there:  # a required question that had its answer there
            yield Change("check", f"{result.check}: {result.reason}", "", str(result.outcome), Weight.NOTABLE)
            continue
        before, now = there[result.check].outcome, result.outcome
        if now is before:
            continue
        said = result.reason or "; ".join(finding.message for finding in result.findings)
        worse = now in (Outcome.FAIL, Outcome.UNKNOWN, Outcome.CRASHED)
        weight = Weight.BREAKING if now is Outcome.FAIL else Weight.NOTABLE if worse else Weight.PLAIN
        text = f"{result.check}: {before} there, {now} here{f': {said}' if said else ''}"
        yield Change("check", text, str(before), str(now), weight)


def _fields(old: Host, new: Host) -> Iterator[Change]:
    """A line a difference; the same one in several items of a list (every GPU's VBIOS) is one line."""
    before, after = ({**to_plain(host), "name": ""} for host in (old, new))
    alike: dict[tuple[str, str, str], list[str]] = {}
    for path, general, one, other in _differ(before, after, "", ""):
        alike.setdefault((general, one, other), []).append(path)
    for (general, one, other), paths in sorted(alike.items(), key=lambda item: item[1][0]):
        path = paths[0] if len(paths) == 1 else f"{general} ({len(paths)} times)"
        weight = Weight.NOTABLE if general.split(".")[0] in _NOTABLE else Weight.PLAIN
        yield Change("field", f"{path}: {one} there, {other} here", one, other, weight)


def _differ(one: Any, other: Any, path: str, general: str) -> Iterator[tuple[str, str, str, str]]:
    """Where two plain values differ: the path, the path with ``*`` for an item of a list, and both as they are shown.

    What only one of them has is one difference, however much it holds.
    """
    one, other = _observed(one), _observed(other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted(one.keys() | other.keys()):
            if key not in _VOLATILE:
                dot = "." if path else ""
                yield from _differ(one.get(key), other.get(key), f"{path}{dot}{key}", f"{general}{dot}{key}")
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if any(isinstance(item, Mapping) for item in (*one, *other)):
            mine, theirs = _by_key(one), _by_key(other)
            gone = [_mark(key) for key in mine if key not in theirs]
            come = [_mark(key) for key in theirs if key not in mine]
            if gone or come:
                yield path, general, _shown(gone), _shown(come)
            for key in (key for key in mine if key in theirs):
                yield from _differ(mine[key], theirs[key], f"{path}.{key}", f"{general}.*")
        elif list(one) != list(other):
            gone = [item for item in one if item not in other]
            come = [item for item in other if item not in one]
            yield (path, general, *((_shown(gone), _shown(come)) if gone or come else (_shown(one), _shown(other))))
    elif one != other:
        yield path, general, _shown(one), _shown(other)


def _observed(value: Any) -> Any:
    """What was observed, without how; what was not is told by a word."""
    if not is_observation(value):
        return value
    absent = "not supported" if value.get("reason") == Reason.UNSUPPORTED else "not observed"
    return absent if value["value"] is None else value["value"]


def _by_key(items: Sequence[Any]) -> dict[str, Any]:
    """The items by what names each on both machines: its index, path, address or name, else its place."""
    found: dict[str, Any] = {}
    for number, item in enumerate(items):
        name = next((str(item[key]) for key in _NAMES if isinstance(item.get(key), (str, int))), str(number))
        found[f"{name}#{number}" if name in found else name] = item
    return found


def _mark(key: str) -> str:
    """A number of an item, which must not read like how many there are."""
    return f"#{key}" if key.isdecimal() else key


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        plain = ((key, _observed(item)) for key, item in value.items())
        said = [f"{key} {item}" for key, item in plain if isinstance(item, (str, int, float)) and item != ""]
        text = ", ".join(said) or "present"
    elif isinstance(value, (list, tuple)):
        text = ", ".join(_name(item) for item in value)
    else:
        text = "" if value is None else str(value)
    return f"{text[:_MOST]}..." if len(text) > _MOST else text or "nothing"


def _name(item: Any) -> str:
    if isinstance(item, Mapping):
        return next((str(item[key]) for key in _NAMES if isinstance(item.get(key), (str, int))), "one")
    return str(item)
