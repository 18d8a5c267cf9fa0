"""What is asked of the observation itself: that every source of the machine was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from envkit.judging.checks._host import AGAIN
from envkit.judging.checks._outcomes import error, unknown_if
from envkit.model import Finding, Observed, Reason
from envkit.subjects import Host


def host_source_not_read(host: Host) -> Iterator[Finding]:
    """Every source of the machine was read, and none hung.

    A source that hangs or kills its reader is a finding; one that could not be read for another reason leaves the
    machine undecided, whether or not another check asked for it.
    """
    sick: dict[str, list[str]] = {}
    lost: list[str] = []
    for item in fields(host):
        seen = getattr(host, item.name)
        if not isinstance(seen, Observed) or item.name in ("wanted_cuda", "expected") or seen.is_unsupported:
            continue
        if seen.reason is Reason.READER_DIED:
            sick.setdefault(seen.missing, []).append(item.name)
        elif seen.missing or seen.value is None:
            lost.append(f"{item.name}: {seen.missing or 'no value'}")
    for said, names in sick.items():
        yield error(
            said,
            ", ".join(names),
            {name: getattr(host, name).missing for name in names},
            f"what is read there hangs or crashes: look at `dmesg` and for processes in state D; {AGAIN}",
        )
    unknown_if(lost, "; ".join(lost))
