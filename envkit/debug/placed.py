"""Which tensor of a line that failed lay on another device, and where it was made, by the companion's event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from envkit.debug import stacks
from envkit.debug.job import Event, PlacedTensor
from envkit.debug.records import PythonFrame
from envkit.records import dataclass


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor by the name that the line has for it, its device, its shape, and where it was made, if that was seen."""

    name: str
    device: str
    shape: tuple[int, ...]
    made: PythonFrame | None


@dataclass(frozen=True, slots=True)
class Placed:
    """The tensor that lies apart, and one that lies where most do."""

    apart: Tensor
    other: Tensor

    @property
    def fix(self) -> str:
        """What to do about it."""
        made = f" at {self.apart.made.place}" if self.apart.made else ""
        return (
            f"make `{self.apart.name}`{made} on {self.other.device} (device=..., or .to()); one that belongs to a "
            "module is to be a buffer of it (register_buffer), for .to() and .cuda() move those"
        )


def read(events: Sequence[Event]) -> Placed | None:
    """Of the tensors that the first failing line names, the one on another device than most; None where all lie
    together.  Of two devices the CPU is the one where a tensor was left; a lone number there goes with any GPU."""
    named = next((event["tensors"] for event in events if event["event"] == "placed" and "tensors" in event), [])
    return _apart([_tensor(each) for each in named])


def _apart(tensors: Sequence[Tensor]) -> Placed | None:
    tensors = [each for each in tensors if each.shape or each.device != "cpu"]
    count = Counter(each.device for each in tensors)
    if len(count) < 2:
        return None
    device = "cpu" if "cpu" in count else count.most_common()[-1][0]
    apart = next(each for each in tensors if each.device == device)
    return Placed(apart, next(each for each in tensors if each.device != device))


def _tensor(raw: PlacedTensor) -> Tensor:
    made = stacks.frames([raw["made"]])[0] if raw["made"] else None
    return Tensor(raw["name"], raw["device"], tuple(raw["shape"]), made)


def sentence(placed: Placed) -> str:
    """Which tensor it is and where it was made."""
    apart, other = placed.apart, placed.other
    made = f", made at {apart.made.place} in {apart.made.function}" if apart.made else ""
    return f"`{apart.name}` {list(apart.shape)} is on {apart.device}{made}; `{other.name}` is on {other.device}"
