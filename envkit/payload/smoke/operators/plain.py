"""Numbers for the table of operators: drawn, laid out in memory and compared in plain Python.

A fault that a library has in every type is also in its own doubles, so nothing here is computed by torch: lists become
tensors, and tensors become lists again.  What a row compares is told by two numbers.  ``ROW.wrong`` counts the elements
that differ where the answer is exact.  ``ROW.units`` is the largest distance of an element in rounding units of its
type, that is |got - want| / (eps (|want| + rms)), with rms the root mean square of all wanted ones; ``ROW.half-units``
is that of types of 16 bits, whose units are so large that few of them may be lost.
"""

# ruff: noqa: B905 - Python 3.8 has no strict

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import mul, ne
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import SEED, Bench, worse

EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
HALVES = ("float16", "bfloat16")
FLOATS = ("float32", "float64", *HALVES)
POISON = 77  # what lies in memory between the elements of a tensor
_FARTHEST = 3  # distances whose place the detail names
_TOLD = 12  # wrong places that the detail names
_SIGNS = 1 << 20  # Freivalds' vectors are of numbers below this

Numbers = Sequence[Any]
Shape = tuple[int, ...]


def strides(shape: Shape) -> Shape:
    """The strides of a contiguous tensor."""
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= size
    return tuple(reversed(found))


@lru_cache(maxsize=64)
def offsets(shape: Shape, steps: Shape) -> list[int]:
    """Where in memory each element lies, in the order of the indices."""
    found = [0]
    for size, step in zip(shape, steps):
        found = [base + step * place for base in found for place in range(size)]
    return found


def turned(values: Numbers, shape: Shape, order: Sequence[int]) -> list[Any]:
    """The values of ``permute(order)``."""
    steps = strides(shape)
    places = offsets(tuple(shape[axis] for axis in order), tuple(steps[axis] for axis in order))
    return [values[place] for place in places]


def dot(left: Numbers, right: Numbers) -> Any:
    """The sum of the products."""
    return sum(map(mul, left, right))


def rows(values: Numbers, width: int) -> list[Any]:
    """The values in pieces of ``width``."""
    return [values[first : first + width] for first in range(0, len(values), width)]


def _packed(values: Numbers, mask: int) -> int:
    """The polynomial whose coefficients are the values, at 2^64; ``mask`` has the highest bit of every field."""
    return (int.from_bytes(array("q", values).tobytes(), "little") ^ mask) - mask


def _mask(count: int) -> int:
    return int.from_bytes(b"\0\0\0\0\0\0\0\x80" * count, "little")


def _unpacked(number: int, count: int) -> array[int]:
    mask = _mask(count)
    found = array("q")
    found.frombytes(((number + mask) ^ mask).to_bytes(8 * count, "little"))
    return found


def wrong_columns(left: Numbers, right: Numbers, got: Numbers, inner: int, source: random.Random) -> int:
    """In how many columns ``got`` is not the product of two matrices of integers, row by row, with ``inner`` between.

    Freivalds' check from the left: r (left right) = r got for one vector r of numbers from 1 to 2^20.  One wrong
    element of a column is always seen, several that cancel one another with a chance of 2^-20 ("Fast probabilistic
    algorithms", 1979).  Rows are packed into integers of Python, so that they are added at the speed of C.
    """
    columns = len(right) // inner
    try:
        whole = array("q", map(int, got))
    except (ValueError, OverflowError):  # NaN and infinity are no integers
        return columns
    if any(map(ne, whole, got)):
        return columns
    weights = [source.randrange(1, _SIGNS) for _ in range(len(left) // inner)]
    mask_inner, mask = _mask(inner), _mask(columns)
    packed = (_packed(row, mask_inner) for row in rows(left, inner))
    through = _unpacked(sum(map(mul, weights, packed)), inner)
    want = sum(map(mul, through, (_packed(row, mask) for row in rows(right, columns))))
    have = sum(map(mul, weights, (_packed(row, mask) for row in rows(whole, columns))))
    return sum(map(ne, _unpacked(want, columns), _unpacked(have, columns)))


def _alike(got: Any, want: Any) -> bool:
    return bool(got == want or (got != got and want != want))


@dataclass
class Desk:
    """Where a row of the table works: it draws from its own source, and notes what is wrong under its own name."""

    bench: Bench
    row: str = ""
    part: str = ""
    source: random.Random = field(default_factory=random.Random)
    told: list[str] = field(default_factory=list)
    far: dict[str, tuple[float, str]] = field(default_factory=dict)

    def begin(self, row: str) -> None:
        """Every row draws the same numbers in every run, whichever rows run before it."""
        self.row, self.part, self.source = row, "", random.Random(f"{SEED} {row}")

    @property
    def full(self) -> bool:
        """Whether the level asks for all types and layouts of a regime."""
        return self.bench.level != "quick"

    def types(self, *quick: str, full: Sequence[str] = FLOATS) -> Iterator[str]:
        """The types that this level tries; each is named in what goes wrong."""
        for dtype in full if self.full else quick:
            self.part = dtype
            yield dtype

    def at(self, part: str) -> None:
        """Names what is compared next."""
        self.part = part

    def whole(self, count: int, top: int = 3) -> list[int]:
        """Integers from ``-top`` to ``top``."""
        return self.source.choices(range(-top, top + 1), k=count)

    def rare(self, count: int, zeros: int = 2) -> list[int]:
        """-1 and 1, with ``zeros`` zeros for each pair of them."""
        return self.source.choices((-1, 1, *[0] * zeros), k=count)

    def parts(self, count: int, top: float = 2.0) -> list[float]:
        """64ths from ``-top`` to ``top``, at most 4: numbers of every floating type."""
        most = int(top * 64)
        return [number / 64 for number in self.source.choices(range(-most, most + 1), k=count)]

    def below(self, count: int, most: int) -> list[int]:
        """Integers from 0 to ``most - 1``."""
        return self.source.choices(range(most), k=count)

    def shuffled(self, count: int) -> list[int]:
        """The integers from 0 to ``count - 1`` in some order."""
        return self.source.sample(range(count), count)

    def tensor(self, values: Numbers, shape: Shape, dtype: str = "float32", layout: str = "plain") -> Any:
        """The values on the device: "plain", "turned" (the last axis is the slowest in memory), "spaced" (every second
        element is another's) or "shifted" (from the second element of its memory on)."""
        kind, device = getattr(torch, dtype), self.bench.device
        if layout == "plain":
            return torch.tensor(values, dtype=kind, device=device).reshape(shape)
        order = tuple(reversed(range(len(shape))))
        if layout == "turned":
            steps = strides(tuple(shape[axis] for axis in order))[::-1]
        else:
            steps = tuple(step * (2 if layout == "spaced" else 1) for step in strides(shape))
        first = int(layout == "shifted")
        places = offsets(shape, steps)
        memory: list[Any] = [POISON] * (max(places, default=0) + 2 + first)
        if layout == "spaced":
            memory[1::2] = [math.nan if dtype in EPS else POISON] * len(memory[1::2])
        for place, value in zip(places, values):
            memory[place + first] = value
        return torch.tensor(memory, dtype=kind, device=device).as_strided(shape, steps, first)

    def leaf(self, values: Numbers, shape: Shape, dtype: str = "float32", layout: str = "plain") -> Any:
        """The same, to be differentiated by."""
        return self.tensor(values, shape, dtype, layout).requires_grad_()

    def empty(self, shape: Shape, dtype: str = "float32") -> Any:
        """A tensor for a result, with other numbers in it."""
        return torch.full(shape, POISON, dtype=getattr(torch, dtype), device=self.bench.device)

    def _wrong(self, count: int, of: int) -> None:
        self.bench.count(self.row + ".wrong", count)
        if count and len(self.told) < _TOLD:
            self.told.append(f"{self.row}{', ' * bool(self.part)}{self.part}: {count} of {of} wrong")

    def values(self, got: Any, shape: Shape | None, exact: bool = True) -> list[Any] | None:
        """The result as a list, after the run's injected fault; None where its shape is another than ``shape``."""
        if shape is not None and tuple(got.shape) != shape:
            return None
        got = got.detach()
        if got.dtype is torch.bool:
            got = got.to(torch.int8)
        exact = exact or not (got.is_floating_point() or got.is_complex())
        return list(self.bench.disturb(got, exact).cpu().reshape(-1).tolist())

    def same(self, got: Any, want: Numbers, shape: Shape | None = None) -> None:
        """Counts the elements that differ; NaN is to be where NaN is wanted.  Without ``shape``, any will do."""
        seen = self.values(got, shape)
        if seen is None or len(seen) != len(want):
            self._wrong(max(1, len(want)), len(want))
            return
        want = list(want)
        differing = 0 if seen == want else sum(not _alike(*pair) for pair in zip(seen, want))
        self._wrong(differing, len(want))

    def count(self, wrong: int, of: int = 1) -> None:
        """Counts what was found wrong otherwise."""
        self._wrong(wrong, of)

    def rounds_to(self, got: Any, want: Numbers, shape: Shape | None = None) -> None:
        """Counts the elements that are a quarter or more from the integer wanted.

        Algorithms that transform their operands (Winograd's, of a convolution) leave fractions behind that are far
        below it, and a term that is lost or doubled is a whole number.
        """
        seen = self.values(got, shape, exact=False)
        if seen is None or len(seen) != len(want):
            self._wrong(max(1, len(want)), len(want))
            return
        differing = sum(not abs(one - other) < 0.25 for one, other in zip(seen, want))
        self._wrong(differing, len(want))

    def near(self, got: Any, want: Numbers, shape: Shape | None = None, dtype: str = "") -> None:
        """Notes the largest distance, in units of ``dtype``, else of the result's own type."""
        eps = EPS[dtype or str(got.dtype).rpartition(".")[2]]
        seen = self.values(got, shape, exact=False)
        self.distance(seen, want, eps)

    def distance(self, seen: Numbers | None, want: Numbers, eps: float) -> None:
        """As ``near``, of lists; an element that is not finite, or not there, is infinitely far from another."""
        found = 0.0
        if seen is None or len(seen) != len(want):
            found = math.inf
        else:
            finite = [number for number in want if math.isfinite(number)]
            scale = math.sqrt(math.fsum(map(mul, finite, finite)) / max(1, len(finite)))
            for one, other in zip(seen, want):
                if not math.isfinite(other):
                    far = 0.0 if _alike(one, other) else math.inf
                else:
                    far = abs(one - other)
                    unit = eps * (abs(other) + scale)
                    far = 0.0 if not far else far / unit if unit else math.inf
                if not far <= found:
                    found = worse(found, far)
        self.note("half-units" if eps > EPS["float32"] else "units", found)

    def note(self, kind: str, value: float) -> None:
        """Notes a distance ``ROW.kind``, and where the largest was met."""
        name = f"{self.row}.{kind}"
        self.bench.note(name, value)
        if not value <= self.far.get(name, (-1.0, ""))[0]:
            self.far[name] = (value, self.part)

    def detail(self) -> str:
        """What was wrong, else which distances were the largest, and where."""
        ordered = sorted(self.far.items(), key=lambda item: -item[1][0] if item[1][0] == item[1][0] else -math.inf)
        far = [f"{name} {value:.3g}" + (f" at {part}" if part else "") for name, (value, part) in ordered[:_FARTHEST]]
        return "; ".join([*self.told, "farthest: " + ", ".join(far)] if far else self.told)


Row = Callable[[Desk], None]
