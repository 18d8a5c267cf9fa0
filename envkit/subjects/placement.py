"""A model as it was followed through one run: what lay where, what met, what crossed; no opinion."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.recorded import Recorded
from envkit.subjects.smoke import Ended

How = Literal["run", "fake", "trace", "auto", ""]


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor of an operation; ``name`` is the parameter's, buffer's or input's, empty for what lies between."""

    name: str
    device: str
    dtype: str
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The operation that torch refuses: ``kind`` is "devices" or "dtypes".

    ``op`` is torch's name for it (empty where only its message is known), ``where`` the user's line ("train.py:12"),
    ``source`` that line's text, ``module`` the dotted name of the part of the model.
    """

    kind: Literal["devices", "dtypes"]
    op: str
    where: str = ""
    source: str = ""
    module: str = ""
    message: str = ""
    tensors: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """An exception of the user's code or of torch, of the class ``kind``; ``by_user`` if the code itself raised it.

    ``stage`` is "import", "factory", "ranks", "forward", "loss" or "backward".
    """

    stage: str
    message: str
    where: str = ""
    source: str = ""
    module: str = ""
    by_user: bool = False
    kind: str = ""

    def __post_init__(self) -> None:
        """Takes the class from the message, which begins with it, where an older document does not name it."""
        if not self.kind:
            object.__setattr__(self, "kind", self.message.split(":")[0])


@dataclass(frozen=True, slots=True)
class End:
    """How the child with the user's code ended: as a smoke test does, at ``stage``, with ``stop`` if it told why."""

    ended: Ended
    stage: str = ""
    detail: str = ""
    signal: str = ""
    stop: Stop | None = None
    stderr_tail: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Tensors of one kind that are alike: "parameters", "buffers", "scalar buffers" (without dimensions), "inputs",
    "outputs" or "optimizer state"."""

    what: str
    device: str
    dtype: str
    trained: bool
    tensors: int
    elements: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """What one line does: ``kind`` is "host to device", "device to host" or "wait" (the host waits for the GPU).

    ``count`` is how often in one run, ``bytes`` how much of it in all.
    """

    kind: str
    op: str
    where: str = ""
    source: str = ""
    module: str = ""
    count: int = 1
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork of the process after CUDA was initialised; ``by`` is "a data loader" or "the code"."""

    where: str
    source: str = ""
    by: str = "the code"


@dataclass(frozen=True, slots=True)
class MisplacedState:
    """State of an optimizer that lies on ``device`` while its parameter ``name`` lies on ``of``."""

    name: str
    key: str
    device: str
    of: str


@dataclass(frozen=True, slots=True)
class RankGpu:
    """A GPU that a rank works on; ``id`` is its UUID or PCI address, empty where it could not be learned."""

    device: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Rank:
    """What one rank said of itself; numbers are None where the launcher's variables are not set.

    ``seen`` is how many GPUs it sees, ``visible`` its CUDA_VISIBLE_DEVICES.
    """

    rank: int | None
    local_rank: int | None = None
    world: int | None = None
    host: str = ""
    visible: str | None = None
    seen: int = 0
    gpus: tuple[RankGpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """A way that was tried first, and why it did not do."""

    how: str
    why: str


@dataclass(frozen=True, slots=True)
class Placement(Recorded):
    """One model followed through one run.

    ``target`` is "module:factory".  ``how`` is "run" (on the devices themselves), "fake" (torch's fake tensors on a GPU
    that is not there) or "trace" (tensors on the CPU that remember the device they were put on).  ``unjudged`` are the
    operators that belong to no rule.  ``declared_map`` says that the model itself declares which part lies where.

    Known outside: ``gpus_given`` ("all" or one name each), ``ranks_asked`` whether ranks were to be compared,
    ``engine`` the engine that ran it, empty without.
    """

    name: str
    digest: str = ""
    target: str = ""
    how: How = ""
    python: Observed[str] = field(default_factory=Observed)
    torch: Observed[str] = field(default_factory=Observed)
    gpus: Observed[tuple[str, ...]] = field(default_factory=Observed)
    end: Observed[End] = field(default_factory=Observed)
    groups: Observed[tuple[Group, ...]] = field(default_factory=Observed)
    refusal: Refusal | None = None
    lines: Observed[tuple[Line, ...]] = field(default_factory=Observed)
    forks: Observed[tuple[Fork, ...]] = field(default_factory=Observed)
    astray: Observed[tuple[MisplacedState, ...]] = field(default_factory=Observed)
    ranks: Observed[tuple[Rank, ...]] = field(default_factory=Observed)
    declared_map: bool = False
    operations: int = 0
    unjudged: tuple[str, ...] = ()
    tried: tuple[Attempt, ...] = ()
    backward: str = "not run"
    seconds: float = 0.0
    gpus_given: tuple[str, ...] = ()
    ranks_asked: bool = False
    engine: str = ""
