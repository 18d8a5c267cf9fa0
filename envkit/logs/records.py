"""The nouns of an explanation: lines, events, tracebacks, hypotheses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum, StrEnum
from typing import Literal

from envkit.records import dataclass


class Role(StrEnum):
    """What an event can be: where the failure began, what followed from it, what tells more of it, or only talk.

    ADVICE is printed whatever the cause (hints, wrappers, harmless warnings, quoted talk) and is never evidence.
    """

    ROOT = "root"
    CASCADE = "cascade"
    DIAGNOSTIC = "diagnostic"
    ADVICE = "advice"


class Strength(IntEnum):
    """How far the log carries a hypothesis."""

    FALLBACK = 1  # nothing better is known: the category's usual cause
    POSSIBLE = 2  # something beside the message points to it
    USUAL = 3  # what the message most often means, and the log has nothing for it or against it
    LIKELY = 4  # the log has evidence for it beside the message, or the message leaves little else
    DECISIVE = 5  # the log itself states the cause


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it was written.

    ``number`` counts physical lines (ends of line, not carriage returns) from 1.  ``raw`` is the line without terminal
    escapes, for quoting; ``text`` is what the program itself said, without the prefixes of launchers, loggers and
    terminals (timestamp, rank label, container name, log level).  Both are cut at ``reader.LONGEST`` characters.
    ``source`` is who wrote it: "program", "kernel", "slurm", "kubernetes", "docker", "launcher", "build".
    ``time_s`` is seconds since the epoch where ``clock`` is "wall" (without a zone: as if UTC), since boot where it is
    "boot".  ``times`` counts the same line's repetitions that were folded into it.  ``inside`` is the line as its
    program wrote it, "" where that is ``raw``: what a collector put before each line of it is off.  ``logged`` is
    whether the program itself put something before its text: a logger's time, level or name.
    """

    file: str
    number: int
    text: str
    raw: str = ""
    source: str = "program"
    rank: int | None = None
    host: str = ""
    pid: int | None = None
    time_s: float | None = None
    clock: str = ""
    level: str = ""
    times: int = 1
    inside: str = ""
    logged: bool = False

    @property
    def body(self) -> str:
        """The line as its program wrote it, logger's prefixes and all: the same with and without a collector."""
        return self.inside or self.raw or self.text

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.number}"

    @property
    def process(self) -> tuple[str, str, int | None, int | None]:
        """What tells processes apart as far as the line knows: file, host, rank, pid."""
        return (self.file, self.host, self.rank, self.pid)


@dataclass(frozen=True, slots=True)
class Signature:
    """One wording that software prints; a row of ``signatures/*.jsonl``.

    ``pattern`` is a regular expression searched in ``Line.text``; its named groups are the event's values.  ``anchor``
    is a stretch of text, in small letters, that every line which matches holds: it makes the reader fast.  ``category``
    is an id of ``failures/*.jsonl``, or "" for a line that only informs.  ``traits``:

    - "sticky": a CUDA error after which every later CUDA call of the process fails
    - "cuda": reported by CUDA, cuBLAS, cuDNN, NCCL or torch's use of them, so a sticky error before it explains it
    - "late": tells of somebody else's failure (a time-out, a closed connection, a killed peer)
    - "warning": the program went on after it
    - "order": somebody outside ended the job, which is the cause only of what came after it
    - "device": names the device fault itself rather than the call that met it (an assertion, a sanitizer's report)
    - "states-arch": says itself that the GPU's architecture is not among those that the build serves
    - "prose": may match in the middle of a sentence (else a match that talk leads up to is taken for talk)
    """

    id: str
    category: str
    role: Role
    pattern: str
    anchor: str
    source: str
    seen: str
    traits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """One kind of failure; a row of ``failures/*.jsonl``.

    ``causes`` maps a cause class to a sentence of what it looks like here, the most usual first; ``decide`` are the
    questions that tell them apart, ``next`` commands that answer them, ``fix`` what to do by cause class ("" for all).
    """

    id: str
    title: str
    causes: Mapping[str, str]
    decide: tuple[str, ...]
    next: tuple[str, ...]
    fix: Mapping[str, str]
    source: str
    seen: str


@dataclass(frozen=True, slots=True)
class RuleHypothesis:
    """One hypothesis of a rule; the fields are those of ``Hypothesis``.

    ``because`` may name values of the line ("{device}"); ``over`` is "aftermath" alone for all that fails after a fault
    of a kernel or a lack of memory.
    """

    cause: str
    because: str
    strength: Literal["fallback", "possible", "usual", "likely", "decisive"]
    decide_by: str = ""
    fix: str = ""
    over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """What lines of a failure say of its causes; a row of ``rules/*.jsonl``.

    A line fits whose signature is one of ``signatures`` ("device-busy*" is all that begin so; none: any line of the
    failure), and in whose status (the value "code") the regular expression ``status`` is found.  Of a failure's rules
    the first that fits counts.

    A rule that is ``alone`` needs no other condition: the first such line counts if it can be where the failure began
    ("root"), or whatever its part is ("any").  The first line of the signatures ``beside`` is quoted with it.
    """

    category: str
    says: tuple[RuleHypothesis, ...]
    source: str
    seen: str
    signatures: tuple[str, ...] = ()
    status: str = ""
    alone: Literal["", "root", "any"] = ""
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """The one cause that a line of one signature states; a row of ``statements/*.jsonl``.

    The fields are those of ``Hypothesis``; ``because`` may name values that the signature always has, and "{text}".
    ``proof`` marks a line that states the end of a process or of its storage, so that an error of the GPU elsewhere in
    the log does not make it doubtful.
    """

    signature: str
    cause: str
    because: str
    source: str
    seen: str
    strength: Literal["fallback", "possible", "usual", "likely", "decisive"] = "likely"
    proof: bool = False
    decide_by: str = ""
    fix: str = ""
    next: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wording:
    """The words of a hypothesis that code decides on; a row of ``hypotheses/*.jsonl``.

    The fields are those of ``Hypothesis``; ``because`` names what the code has seen ("{device}", and "{why}" where it
    has more than one sentence).  Without a category it is the first event's.
    """

    id: str
    because: str
    strength: Literal["fallback", "possible", "usual", "likely", "decisive"] = "likely"
    category: str = ""
    cause: str = ""
    decide_by: str = ""
    fix: str = ""
    next: tuple[str, ...] = ()
    over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """A line that a signature knows; ``role`` is the signature's until ``story`` has looked at what came before."""

    line: Line
    signature: Signature
    role: Role
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def category(self) -> str:
        """The signature's."""
        return self.signature.category

    def has(self, trait: str) -> bool:
        """Whether the signature has this trait."""
        return trait in self.signature.traits


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a Python traceback."""

    file: str
    line: int
    function: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Traceback:
    """A Python traceback; frames outermost first.

    ``line`` is that of the exception (``kind`` "RuntimeError", dotted as printed; ``message`` its first lines),
    ``first`` where the traceback begins.  ``within`` says how it hangs on the one before it: "" (alone), "during" (was
    raised while that was handled), "from" (that was its direct cause).  ``telling`` is the line of the message that
    says what it is, where the exception's own line ends with a colon.
    """

    first: Line
    line: Line
    frames: tuple[Frame, ...]
    kind: str
    message: str
    within: str = ""
    telling: Line | None = None


@dataclass(frozen=True, slots=True)
class FileSeen:
    """What was read of one input: ``lines`` and ``bytes`` in all; ``cut`` says why the rest was not read, if so.

    ``head`` and ``tail`` are its first and last lines that are not blank; ``loud`` are lines that sound like an error
    and that no signature knows.  ``near`` are lines beside an error, known or loud, which say what is done about it.
    """

    name: str
    lines: int
    bytes: int
    binary: bool = False
    cut: str = ""
    head: tuple[Line, ...] = ()
    tail: tuple[Line, ...] = ()
    loud: tuple[Line, ...] = ()
    near: tuple[Line, ...] = ()

    @property
    def kept(self) -> tuple[Line, ...]:
        """All lines that are kept, some of them twice."""
        return (*self.head, *self.near, *self.tail, *self.loud)


@dataclass(frozen=True, slots=True)
class Reading:
    """All inputs, read once: events and tracebacks in the order of files and lines."""

    files: tuple[FileSeen, ...]
    events: tuple[Event, ...]
    tracebacks: tuple[Traceback, ...]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One explanation: what failed (``category``), why (``cause``, a cause class), and what the log has for it.

    ``evidence`` are the lines to be quoted, the root first.  ``because`` is one sentence with the observed values.
    ``decide_by`` says what would prove it or refute it.  ``over`` are categories that this one explains away, such as
    the cuBLAS error that follows a device-side assertion.  ``title``, ``fix`` and ``next`` replace
    the failure's own where given.
    """

    category: str
    cause: str
    strength: Strength
    evidence: tuple[Line, ...]
    because: str
    decide_by: str = ""
    fix: str = ""
    next: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """One line of the timeline that a person is shown, with its part in it."""

    line: Line
    role: Role
    what: str


@dataclass(frozen=True, slots=True)
class RankState:
    """What one rank had done in its collectives when a group hung; None where the log does not say."""

    rank: int
    group: str = ""
    enqueued: int | None = None
    completed: int | None = None
    operation: str = ""
    where: str = ""
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """What ``envkit explain`` answers; ``confidence`` is 0 to 1."""

    category: str
    cause: str
    confidence: float
    title: str
    because: str
    evidence: tuple[Mark, ...]
    timeline: tuple[Mark, ...]
    runner_up: Hypothesis | None
    decide_by: str
    next: tuple[str, ...]
    fix: str
    ranks: tuple[RankState, ...] = ()
    files: tuple[FileSeen, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


CAUSES = (
    "version-mismatch", "wrong-build-installed", "library-path-clash", "arch-unsupported", "cpu-arch-unsupported",
    "container-config", "launch-config", "no-gpu-or-driver", "fabric-manager", "driver-firmware-fault",
    "hardware-fault", "gpu-memory-exhausted", "gpu-memory-fragmented", "gpu-kernel-bug", "device-mixup",
    "bad-index-or-label", "precision", "rank-desync", "peer-failure", "network-fabric", "host-resource",
    "corrupt-data", "infra", "program-bug", "unknown-cut-log", "unknown",
)  # fmt: skip
