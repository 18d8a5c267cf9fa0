"""The nouns of `envkit debug`: the stages of a run, the fault that was found, and the report of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from envkit.errors import EnvkitError, Undecided
from envkit.logs.records import Explanation
from envkit.records import dataclass


class Verdict(StrEnum):
    """``FOUND``: something is wrong and the report says what.  ``CLEAN``: the command succeeded and every stage that
    should have looked has looked and found nothing.  ``UNDECIDED``: neither."""

    FOUND = "found"
    CLEAN = "clean"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class PythonFrame:
    """A place in Python, as a traceback names it."""

    file: str
    line: int
    function: str

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """A place in a kernel: the function that was inlined last, and file and line where the build has line numbers."""

    function: str
    file: str = ""
    line: int = 0

    @property
    def where(self) -> str:
        """File and line, or nothing."""
        return f"{self.file}:{self.line}" if self.file else ""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation nearest to an address: its start, its bytes, and how the address lies to it.

    ``side`` is "before", "after" or "inside"; ``distance`` is in bytes, counted as the tool counts.
    """

    address: int
    size: int
    side: str
    distance: int


@dataclass(frozen=True, slots=True)
class Fault:
    """What a tool said of one wrong operation of a kernel.

    ``tool`` is "memcheck", "racecheck", "initcheck", "synccheck", "core" or "assert".  ``kind`` are the tool's words;
    ``problem`` is one of "out of bounds", "misaligned", "race", "uninitialized", "barrier", "assert", "other".
    ``access`` is "read", "write" or "atomic", ``size`` its bytes, 0 where unknown.  ``other`` is the second access of a
    race.  ``python`` are frames of Python that led to the launch, the innermost last; ``count`` how often it was told.
    ``fused`` are the lines of the program's that torch.compile made the kernel of.
    """

    tool: str
    kind: str
    problem: str
    kernel: str
    place: CodeLocation
    access: str = ""
    size: int = 0
    address: int | None = None
    thread: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    near: Allocation | None = None
    other: CodeLocation | None = None
    python: tuple[PythonFrame, ...] = ()
    host: tuple[str, ...] = ()
    sure: bool = True
    count: int = 1
    fused: tuple[PythonFrame, ...] = ()


@dataclass(frozen=True, slots=True)
class Child:
    """A process below the command that ended otherwise than with 0; ``exit`` is negative for a signal.

    ``waiter`` is where the parent's Python learned it, ``stack`` where the child's Python was when it died.
    """

    pid: int
    exit: int
    waiter: tuple[PythonFrame, ...] = ()
    stack: tuple[PythonFrame, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Where one process of a hanging command is.

    ``threads`` are the stacks of its Python threads, the main thread's last, each with its innermost frame last;
    ``native`` is what a native debugger printed, ``waits_in`` the kernel function it sleeps in.
    """

    pid: int
    command: str
    rank: str
    cuda: bool
    state: str
    waits_in: str
    threads: tuple[tuple[PythonFrame, ...], ...]
    native: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One stage: whether it ran and why (or why not), how it ended, and what it brought.

    ``exit`` is the command's own, negative for a signal, None where it was ended or not run.  ``ended`` is "exited",
    "timed-out", "hung", "forks", "not-started" or "" for a stage that did not run.  ``missing`` names a tool that the
    stage wanted, with ``get`` how to come by it.
    """

    stage: str
    ran: bool
    why: str
    seconds: float = 0.0
    exit: int | None = None
    ended: str = ""
    found: str = ""
    missing: str = ""
    get: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank of a job beside the others.

    ``state`` is "waits" (inside a collective), "elsewhere", "raised", "ended" or "silent" (no trace of it).
    ``operation`` is its last collective, number ``seq`` of ``group``, called at ``called``; ``main`` its main thread's
    stack, the innermost frame last; ``missing`` are parameters without a gradient in DDP's backward ``backwards``.
    """

    rank: int
    host: str
    pid: int
    state: str
    operation: str = ""
    group: str = ""
    seq: int = 0
    called: PythonFrame | None = None
    device: str = ""
    main: tuple[PythonFrame, ...] = ()
    backwards: int = 0
    missing: tuple[str, ...] = ()
    raised: str = ""


def unkept(error: EnvkitError, verdict: Verdict, cause: str) -> Undecided:
    """The error of a report that could not be written: its message alone is left to hold the answer."""
    answer = f"; the verdict is {verdict.value}" + (f": {cause}" if cause else "")
    return Undecided(error.message + answer, error.fix)


@dataclass(frozen=True, slots=True)
class DebugReport:
    """All that a session brought; ``cause`` is one sentence with the observed values, empty where none was found.
    ``command`` is without what looks like a secret; ``unseen`` says what the tools that ran could not see of it."""

    command: tuple[str, ...]
    image: str
    verdict: Verdict
    cause: str
    category: str
    cause_class: str
    exit: int | None
    steps: tuple[Step, ...]
    fault: Fault | None
    first_wrong: str
    python: tuple[PythonFrame, ...]
    children: tuple[Child, ...]
    hang: tuple[Waiting, ...]
    explanation: Explanation | None
    fix: str
    next: tuple[str, ...]
    folder: str
    files: tuple[str, ...]
    elapsed_s: float
    versions: Mapping[str, str] = field(default_factory=dict)
    ranks: tuple[RankRow, ...] = ()
    unseen: str = ""

    @property
    def code(self) -> int:
        """The exit code of the contract."""
        return {Verdict.CLEAN: 0, Verdict.FOUND: 1, Verdict.UNDECIDED: 3}[self.verdict]
