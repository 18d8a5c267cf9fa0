"""The nouns of `envkit debug --memory` and `--slow`: what a measured run of a command showed, in one shape for both."""

from __future__ import annotations

from envkit.debug.records import PythonFrame, Verdict
from envkit.records import dataclass
from envkit.report import Table


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that costs memory or time and need not: its kind, a sentence with what was measured, the fix, and the
    program's lines, the one to change first.  ``weight`` orders findings: the share of memory or time, 0 to 1."""

    kind: str
    said: str
    fix: str
    places: tuple[PythonFrame, ...] = ()
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one step in a picture: its lane, what it is, and when, in milliseconds from the step's beginning."""

    lane: str
    name: str
    kind: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Judged:
    """What the figures say: findings, the heaviest first; tables; and in ``open`` why nothing can be called clean."""

    findings: tuple[Finding, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    open: str = ""
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """A whole report: ``question`` is "memory" or "slow"; ``exit`` is the command's own, None where it was ended."""

    question: str
    command: tuple[str, ...]
    image: str
    verdict: Verdict
    cause: str
    fix: str
    judged: Judged
    exit: int | None
    ended: str
    folder: str
    elapsed_s: float
    files: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        """The exit code of the contract."""
        return {Verdict.CLEAN: 0, Verdict.FOUND: 1, Verdict.UNDECIDED: 3}[self.verdict]


def size(count: float) -> str:
    """Bytes for a person, in binary units."""
    for unit, bytes_ in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(count) >= bytes_:
            value = count / bytes_
            return f"{value:.1f} {unit}" if value < 100 else f"{value:,.0f} {unit}"
    return f"{count:.0f} bytes"


def span(seconds: float) -> str:
    """Seconds for a person."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
