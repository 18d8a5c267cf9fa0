"""What is asked of the observation itself: that every source of the machine was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from envkit.judging.checks._host import AGAIN
from envkit.judging.checks._outcomes import error, unknown_if
from envkit.model import Finding, Observed, Reason
from envkit.subjects import Host


def host_source_not_read(host: Host) -> Iterator[Finding]:
    """Every source of the machine was read, none hung, and none said what cannot be.

    A source that hangs or kills its reader is a finding, and so is a value that cannot be; a source that could not be
    read for another reason leaves the machine undecided, whether or not another check asked for it.
    """
    sick: dict[str, list[str]] = {}
    lost: list[str] = []
    for item in fields(host):
        seen = getattr(host, item.name)
        if not isinstance(seen, Observed) or item.name in ("wanted_cuda", "expected") or seen.is_unsupported:
            continue
        if seen.reason is Reason.READER_DIED:
            sick.setdefault(seen.missing, []).append(item.name)
        elif seen.reason not in _ODD and (seen.missing or seen.value is None):
            lost.append(f"{item.name}: {seen.missing or 'no value'}")
    for said, names in sick.items():
        yield error(
            said,
            ", ".join(names),
            {name: getattr(host, name).missing for name in names},
            f"what is read there hangs or crashes: look at `dmesg` and for processes in state D; {AGAIN}",
        )
    for path, odd in _odd(host, ""):
        if odd.reason is Reason.NEWER:
            lost.append(f"{path}: {odd.missing}")
        else:
            yield error(
                f"{path} was not observed: {odd.missing}",
                path,
                {odd.missing: odd.via},
                f"whatever said this cannot be trusted: read `dmesg`, then reset the device or reboot; {AGAIN}",
            )
    unknown_if(lost, "; ".join(lost))


_ODD = (Reason.NONSENSE, Reason.NEWER)
_NAMES = ("index", "address", "name", "link", "number", "path", "release")  # by which one of a list is named


def _odd(value: object, path: str) -> Iterator[tuple[str, Observed[Any]]]:
    """The observations anywhere in ``value`` whose source said what cannot be, or what this version does not know."""
    if isinstance(value, Observed):
        if value.reason in _ODD:
            yield path, value
        value = value.value
    if isinstance(value, tuple):
        for place, item in enumerate(value):
            if not is_dataclass(item):
                return
            name = next((getattr(item, name) for name in _NAMES if hasattr(item, name)), place)
            yield from _odd(item, f"{path} {name}")
    elif is_dataclass(value):
        for field in fields(value):
            inner = getattr(value, field.name)
            if isinstance(inner, (Observed, tuple)):
                yield from _odd(inner, f"{path} {field.name}".strip())
