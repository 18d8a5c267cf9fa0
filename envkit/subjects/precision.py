"""A model's step in the numbers that are wanted, beside the same step in wide ones; no opinion."""

from __future__ import annotations

from dataclasses import field

from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.placement import End, Stop
from envkit.subjects.recorded import Recorded


@dataclass(frozen=True, slots=True)
class Limits:
    """What the wanted dtype can hold, by torch.finfo: ``eps`` is the gap between 1 and the next number, ``smallest``
    the smallest number with all its digits."""

    eps: float
    largest: float
    smallest: float


@dataclass(frozen=True, slots=True)
class Rounding:
    """The switches by which torch computes single precision with fewer digits: TF32 in products and in cuDNN, and what
    torch.get_float32_matmul_precision says."""

    matmul: bool
    cudnn: bool
    precision: str


@dataclass(frozen=True, slots=True)
class Event:
    """One operation after which the numbers were worse than before it.

    ``kind`` is "overflow", "infinity", "nan" or "everywhere" (the wide numbers are not finite either) where what comes
    out is not finite, else "cancellation" (it multiplies the errors of its inputs), "rounding" (its own), "underflow"
    (numbers became zero) or "growth".  Errors are relative, of a whole tensor (2-norm), against wide numbers: ``inputs_
    error`` of the worst input, ``growth`` how much larger the output's is than that and the dtype's eps together.
    ``largest`` is the largest magnitude that the wide numbers have, ``limit`` the largest that ``dtype`` holds.
    """

    op: str
    stage: str
    kind: str
    dtype: str = ""
    inputs_error: float = 0.0
    error: float | None = None
    growth: float | None = None
    largest: float | None = None
    limit: float = 0.0
    count: int = 0
    inputs_finite: bool = True
    where: str = ""
    source: str = ""
    module: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """How far one result is off: an output, the loss, all gradients as one, or the gradient of one parameter.

    ``noise`` says that the next finer dtype would have no digits here either.  ``not_finite`` counts numbers that are
    finite in wide numbers alone, ``not_finite_anywhere`` those that are not even there.  ``significant`` counts the
    elements within eps of the largest, ``lost`` those of them that are zero.  ``bad`` is the operation that first
    yielded what is not finite, ``origin`` the one at which the error exploded, ``steepest`` the one at which it grew
    most, each on this result's own way.
    """

    what: str
    error: float
    size: float = 0.0
    not_finite: int = 0
    not_finite_anywhere: int = 0
    nans: int = 0
    noise: bool = False
    elements: int = 0
    significant: int = 0
    lost: int = 0
    bad: Event | None = None
    origin: Event | None = None
    steepest: Event | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """An operation that raised: its operands' dtypes and devices, and what it said."""

    op: str
    stage: str
    dtypes: tuple[str, ...]
    devices: tuple[str, ...]
    message: str
    where: str = ""
    source: str = ""
    module: str = ""


@dataclass(frozen=True, slots=True)
class Hole:
    """What autocast passes by: ``kind`` is "product" (in single precision), "narrow" (an operation that autocast runs
    in single precision ran in the narrow dtype) or "round trip" (a cast that only undoes the last).  ``enabled`` says
    whether autocast was on there."""

    kind: str
    op: str
    enabled: bool
    count: int = 1
    elements: int = 0
    where: str = ""
    source: str = ""
    module: str = ""


@dataclass(frozen=True, slots=True)
class Product:
    """The error that a product in single precision made by itself, from exactly its own inputs."""

    op: str
    own_error: float
    where: str = ""
    source: str = ""
    module: str = ""


@dataclass(frozen=True, slots=True)
class UncheckedOperation:
    """An operation that could not be repeated in wide numbers, and why: what it gave was taken as it was."""

    op: str
    why: str


@dataclass(frozen=True, slots=True)
class NonDeterministicOperation:
    """An operation that gave two results from one input."""

    op: str
    where: str = ""
    source: str = ""
    module: str = ""


@dataclass(frozen=True, slots=True)
class StepSeen:
    """One step: ``stage`` is the one it came to ("forward", "loss", "backward"), ``error`` what ended it there."""

    dtype: str
    stage: str
    error: Stop | None = None
    backward: str = "not run"
    refusal: Refused | None = None
    operations: int = 0
    casts: int = 0
    unfollowed: tuple[UncheckedOperation, ...] = ()
    holes: tuple[Hole, ...] = ()
    products: tuple[Product, ...] = ()
    results: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True)
class Precision(Recorded):
    """One model's steps: ``single`` in single precision, ``wanted`` in ``dtype`` (with ``autocast``, or cast to it).

    ``wide`` is the dtype that both were held against, ``unsteady`` what two steps in single precision did differently.
    Known outside: ``gpus_given`` ("all" or one name each), ``engine`` the engine that ran it, empty without.
    """

    name: str
    digest: str = ""
    target: str = ""
    dtype: str = ""
    autocast: bool = False
    python: Observed[str] = field(default_factory=Observed)
    torch: Observed[str] = field(default_factory=Observed)
    gpus: Observed[tuple[str, ...]] = field(default_factory=Observed)
    device: Observed[str] = field(default_factory=Observed)
    wide: Observed[str] = field(default_factory=Observed)
    limits: Observed[Limits] = field(default_factory=Observed)
    rounding: Observed[Rounding] = field(default_factory=Observed)
    end: Observed[End] = field(default_factory=Observed)
    single: Observed[StepSeen] = field(default_factory=Observed)
    unsteady: Observed[tuple[NonDeterministicOperation, ...]] = field(default_factory=Observed)
    wanted: Observed[StepSeen] = field(default_factory=Observed)
    seconds: float = 0.0
    gpus_given: tuple[str, ...] = ()
    engine: str = ""
