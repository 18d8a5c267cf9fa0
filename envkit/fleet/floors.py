"""How fast the links of a node have to be at least, by what its machine says of its ports and GPUs and by the facts.

A floor is low on purpose: half of one port, where a healthy node uses several.  What is below it does not use the
network that it has, or uses it as no healthy one does.
"""

from __future__ import annotations

from envkit.facts import load
from envkit.fleet.documents import Body
from envkit.records import dataclass


@dataclass(frozen=True, slots=True)
class LinkFloor:
    """The least speed in GB/s of trials whose way, as NCCL calls it, begins with ``way``; ``why`` says of what."""

    way: str
    gbs: float
    why: str


def floors(body: Body) -> tuple[LinkFloor, ...]:
    """The floors of a node, none where its GPUs are not all of one known product with NVLink: without it their own bus
    may be slower than the network."""
    product = (body.hardware or "").rpartition(", ")[0]
    peak = load().peak(product)
    if peak is None or peak.nvlink_gbs is None:
        return ()
    made: list[LinkFloor] = []
    slowest = _slowest(body.fingerprint.get("network rate"))
    for row in load().links:
        if row.gbs is None:
            why = f"{row.share:g} of the {peak.nvlink_gbs:g} GB/s of NVLink of {peak.gpu}"
            made.append(LinkFloor(row.way, row.share * peak.nvlink_gbs, why))
        elif row.gbit == slowest:
            why = f"{row.share:g} of what one port of {row.gbit:g} Gb/s carries"
            made.append(LinkFloor(row.way, row.share * row.gbs, why))
    return tuple(made)


def _slowest(rates: str | None) -> float | None:
    """The slowest rate of a list as `fingerprint` writes it; None without one."""
    try:
        return min(float(rate) for rate in (rates or "").split(", "))
    except ValueError:
        return None
