"""Which call of torch made the first number that is nan or infinite, and where what autograd keeps was changed, by the
companion's events."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envkit.debug import stacks
from envkit.debug.job import Event
from envkit.records import dataclass

NOT_FINITE = re.compile(r"\bnan\b|\binf(?:inity|inite)?\b|not finite|non-?finite", re.I)
CHANGED = "modified by an inplace operation"  # torch, csrc/autograd
_FOLLOW = (
    "see what it divides by, takes the root or the logarithm of or subtracts, and whether a mask hides a whole row"
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where it began: a sentence and what to do; ``sure`` where no kernel but torch's own can have made it."""

    said: str
    fix: str
    sure: bool = False


def read(events: Sequence[Event]) -> Origin | None:
    """What the events of a run tell; None where no such number and no such change was seen."""
    if edits := [place for event in events if event["event"] == "edited" if (place := _place(event))]:
        more = f", and before at {', '.join(dict.fromkeys(edits[1:]))}" if edits[1:] else ""
        said = f"a tensor of that type and shape was last changed in place at {edits[0]}{more}"
        return Origin(
            said, f"at {edits[0]} make a new tensor in place of the change, or clone what is changed", sure=True
        )
    met = [event for event in events if event["event"] == "unfinite"]
    nan = next((event for event in met if event.get("how") == "nan"), None)
    inf = next((event for event in met if event.get("how") == "inf"), None)
    begun = nan or inf
    if begun is None or not _place(begun):
        return None
    where = f"`{begun.get('operation', '')}` at {_place(begun)}"
    if begun.get("given"):
        said = f"a nan first comes into {where}, made by no call of torch that was seen"
        return Origin(said, "look at what is given there: data, weights after a backward pass, or what a kernel wrote")
    what = "nan" if nan else "infinite number"
    said = f"the first {what} comes out of {where}, which was given none"
    if nan and inf and met[0] is inf:
        there = "there" if _place(inf) == _place(nan) else f"at {_place(inf)}"
        said += f"; before it an infinite number came out of `{inf.get('operation', '')}` {there}, out of finite ones"
    wide = "; numbers of half precision end at 65504: compute it in float32 or bfloat16" if inf is not None else ""
    return Origin(said, _FOLLOW + wide, sure=True)


def _place(event: Event) -> str:
    return stacks.at("", stacks.frames(event.get("frames", ()))).strip()
