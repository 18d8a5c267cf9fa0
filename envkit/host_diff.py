"""What differs between two machines: first what works there and not here, then what was observed otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envkit import judge
from envkit.diff import Change, Weight
from envkit.facts import Facts
from envkit.model import Outcome
from envkit.subjects import Host
from envkit.subjects.codec import to_plain

# What is another value at every look, or another one by nature on every machine.
_VOLATILE = frozenset(
    {
        *("uuid", "serial", "temperature", "power", "clocks", "utilization", "memory_used", "pstate", "throttle"),
        *("throttled_us", "processes", "log", "free", "used", "replays", "uptime", "load", "ecc_corrected", "minor"),
    }
)
_NOTABLE = frozenset(
    {"module", "nvml", "kernel", "os", "glibc", "toolkit", "docker", "pci_gpus", "packages", "infiniband"}
)
_MOST = 200  # characters of a value that a line shows


def changes(old: Host, new: Host, facts: Facts) -> tuple[Change, ...]:
    """``old`` is the machine on which it works, ``new`` the other one."""
    return (*_checks(old, new, facts), *_fields(old, new))


def _checks(old: Host, new: Host, facts: Facts) -> Iterator[Change]:
    there = {result.check: result for result in judge.judge(old, facts)}
    for result in judge.judge(new, facts):
        before, now = there[result.check].outcome, result.outcome
        if now is before:
            continue
        said = result.reason or "; ".join(finding.message for finding in result.findings)
        worse = now in (Outcome.FAIL, Outcome.UNKNOWN, Outcome.BROKE)
        weight = Weight.BREAKING if now is Outcome.FAIL else Weight.NOTABLE if worse else Weight.PLAIN
        text = f"{result.check}: {before} there, {now} here{f': {said}' if said else ''}"
        yield Change("check", text, str(before), str(now), weight)


def _fields(old: Host, new: Host) -> Iterator[Change]:
    before, after = (dict(_flat({**to_plain(host), "name": ""}, "")) for host in (old, new))
    for path in sorted(before.keys() | after.keys()):
        one, other = before.get(path, ""), after.get(path, "")
        if one != other:
            weight = Weight.NOTABLE if path.split(".")[0] in _NOTABLE else Weight.PLAIN
            text = f"{path}: {_shown(one)} there, {_shown(other)} here"
            yield Change("field", text, one, other, weight)


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        if set(value) == {"value", "via", "missing"}:
            yield from _flat(value["value"], path) if value["value"] is not None else [(path, "not observed")]
            return
        for key, item in value.items():
            if key not in _VOLATILE:
                yield from _flat(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _flat(item, f"{path}.{_key(item, number)}")
    else:
        yield path, str(value)


def _key(item: Any, number: int) -> str:
    """What names an item of a list on both machines: its own path, address or name, else its place."""
    if isinstance(item, Mapping):
        for key in ("path", "address", "name", "index", "link"):
            if isinstance(item.get(key), (str, int)):
                return str(item[key])
        return str(number)
    return str(item) if isinstance(item, str) else str(number)


def _shown(text: str) -> str:
    return f"{text[:_MOST]}..." if len(text) > _MOST else text or "nothing"
