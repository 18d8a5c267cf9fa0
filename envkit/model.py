"""The nouns of a verdict: every check makes these, every report prints them.

A check can end in five ways, never merged: the fault is absent (pass), present (fail), the question does not
apply (skip), the answer could not be had (unknown), or the check itself died (crashed).  Only the first is green.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from enum import Enum, IntEnum, StrEnum
from typing import Any, Generic, TypeVar

from envkit.records import dataclass

T = TypeVar("T")


class Severity(IntEnum):
    """How much a finding matters; ``--fail-on`` names the lowest one that makes the exit code 1."""

    NOTE = 1
    WARNING = 2
    ERROR = 3


class Outcome(StrEnum):
    """How one check ended."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"
    UNKNOWN = "unknown"
    CRASHED = "crashed"


class Verdict(StrEnum):
    """How a whole report ended."""

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"


class Skip(Exception):
    """Raised by a check whose question does not apply to this subject; the text is the reason."""


class Unknown(Exception):
    """Raised by a check that needed a value which was not observed; the text is the reason.

    ``at_most`` is the severity of the worst finding that the value could have led to, and ``about`` the file that was
    not read and would have settled it, "" where the doubt has another reason.
    """

    def __init__(self, reason: str, at_most: Severity = Severity.ERROR, about: str = "") -> None:
        """Takes what a person reads and what the doubt is worth."""
        super().__init__(reason)
        self.at_most = at_most
        self.about = about


class ValueState(Enum):
    """What an observation holds: a value, the certainty that there is none to have, or neither."""

    VALUE = "value"
    UNSUPPORTED = "unsupported"
    MISSING = "missing"


class Reason(StrEnum):
    """A reason for the absence of a value that a decision depends on; ``Observed.missing`` words it for a person.

    A saved document holds these words.  Most reasons need none of them: no rule tells those apart.
    """

    UNSUPPORTED = "unsupported"  # the thing itself has no such value: no doubt, and nothing to judge
    NO_TORCH = "no-torch"  # there is no torch where it was looked for
    NO_LIBC = "no-libc"  # the tree is a part of a system, without its C library
    NO_PROMISE = "no-promise"  # the image carries no label of envkit's
    NOT_IMPORTED = "not-imported"  # no test imported torch in the process that would have told
    READER_DIED = "reader-died"  # what read it hung or was killed
    NONSENSE = "nonsense"  # the source said what cannot be
    NEWER = "newer"  # a document says it in words that only a newer version knows
    NEWER_ON_DEFAULT_INDEX = "newer-on-default-index"  # an extra index has builds of torch older than the default's


@dataclass(frozen=True, slots=True)
class Observed(Generic[T]):
    """A value and how it was found, or no value and why not; never a default in place of a value.

    ``via`` names the source ("/proc/driver/nvidia/version", "nvmlDeviceGetName", "dladdr").  ``missing`` is empty
    exactly when a value was observed.  ``via`` and ``missing`` are for people: rules ask for ``state`` and ``reason``.
    """

    value: T | None = None
    via: str = ""
    missing: str = "not observed"
    reason: Reason | None = None

    @staticmethod
    def of(value: T, via: str) -> Observed[T]:
        """The observation of ``value`` by way of ``via``."""
        return Observed(value, via, "")

    @staticmethod
    def lost(why: str, via: str = "", reason: Reason | None = None) -> Observed[T]:
        """The absence of an observation, in words and, where a rule depends on it, by its reason."""
        return Observed(None, via, why, reason)

    @staticmethod
    def unsupported(via: str = "") -> Observed[T]:
        """The certainty, by way of ``via``, that the thing itself has no such value."""
        return Observed(None, via, "not supported", Reason.UNSUPPORTED)

    @property
    def state(self) -> ValueState:
        """Whether there is a value, and if not, whether there is one to have."""
        if not self.missing and self.value is not None:
            return ValueState.VALUE
        return ValueState.UNSUPPORTED if self.reason is Reason.UNSUPPORTED else ValueState.MISSING

    @property
    def is_unsupported(self) -> bool:
        """Whether the thing itself has no such value."""
        return self.state is ValueState.UNSUPPORTED

    def absence(self, via: str | None = None) -> Observed[Any]:
        """The absence of this value as that of another one, which depends on it (and was looked for by ``via``)."""
        return Observed(None, self.via if via is None else via, self.missing, self.reason)

    def need(self, what: str) -> T:
        """The value; raises Unknown when it was not observed.

        ``what`` names the value for a person ("the loaded driver").
        """
        if self.missing or self.value is None:
            raise Unknown(f"{what} was not observed: {self.missing or 'no value'}")
        return self.value


_KEYS = {item.name for item in fields(Observed)}


def is_observation(plain: object) -> bool:
    """Whether plain data has the form of an Observed; one without a ``reason`` leaves that key out."""
    return isinstance(plain, Mapping) and _KEYS - {"reason"} <= plain.keys() <= _KEYS


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a text file: lines and columns count from 1 in characters, ``end_column`` is the one after the last.

    ``path`` is as the user named the file.
    """

    path: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0

    @property
    def place(self) -> str:
        """Path and line, the form of ``Finding.where``."""
        return f"{self.path}:{self.line}"

    def __str__(self) -> str:
        """The form editors and compilers use: path, line, column."""
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Edit:
    """What a safe fix writes in place of a span; an empty span (end = start) inserts."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, here, now.

    ``message`` is one sentence with the observed values; ``evidence`` maps an observed value to how it was found.
    ``span`` is where a file says it, for reports that show the line; ``edits`` fix it without changing what else the
    file means, all of them together or none.
    """

    message: str
    severity: Severity = Severity.ERROR
    where: str = ""
    evidence: Mapping[str, str] = field(default_factory=dict)
    fix: str = ""
    span: Span | None = None
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What one check said of one subject; ``reason`` says why it was skipped, unknown or broken.

    ``at_most`` and ``about`` say of one that is unknown what ``Unknown`` says.
    """

    check: str
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    at_most: Severity = Severity.ERROR
    about: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a failure that names no finding, or a finding that is no failure."""
        if (self.outcome is Outcome.FAIL) != bool(self.findings):
            raise ValueError(f"{self.check}: outcome {self.outcome} with {len(self.findings)} findings")

    def is_open(self, fail_on: Severity) -> bool:
        """Whether it leaves undecided what exits by ``fail_on``: it crashed, or its answer could have been that bad."""
        return self.outcome is Outcome.CRASHED or (self.outcome is Outcome.UNKNOWN and self.at_most >= fail_on)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a report is about: a kind ("image", "host", "smoke", "up") and a name a person knows it by."""

    kind: str
    name: str


class NoGpu(StrEnum):
    """Why no GPU had a part in what was judged."""

    ABSENT = "no GPU was here"
    UNUSED = "a GPU was here and was not used"
    OPEN = "whether a GPU was here is not known"
    JOB = "the job gets no GPU"
    CONTRACT = "no GPU is here, as the contract says"


@dataclass(frozen=True, slots=True)
class Coverage:
    """On what a verdict stands; derived from subjects alone.

    ``files``: something that lies there was read; ``cpu``: something of it ran.  ``gpus`` are the GPUs that answered,
    by their names where those are known, and ``computed`` says whether anything was computed on them.  ``left`` counts
    the tests that were asked for and that no GPU ran.  ``no_gpu`` is why no GPU had a part, None where some had, and
    where none is ever needed (files).
    """

    files: bool = False
    cpu: bool = False
    gpus: tuple[str, ...] = ()
    computed: bool = False
    left: int = 0
    no_gpu: NoGpu | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What envkit prints, saves and exits by.  ``elapsed_s`` is wall time in seconds."""

    subject: Subject
    results: tuple[Result, ...]
    elapsed_s: float = 0.0
    observed: Mapping[str, Any] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)

    def exit_code(self, fail_on: Severity = Severity.ERROR) -> int:
        """0: judged and nothing at or above ``fail_on``; 1: found; 3: undecided.

        Undecided means that a value was needed and not observed, that a check crashed, or that nothing was judged.
        A finding outranks a doubt: what was found is certain whatever else stayed open.  A doubt whose every answer
        is below ``fail_on`` leaves the code as it is: the answer could not have changed it.
        """
        said = {result.outcome for result in self.results}
        open_ = any(one.is_open(fail_on) for one in self.results)
        if any(finding.severity >= fail_on for result in self.results for finding in result.findings):
            return 1
        if open_ or not said & {Outcome.PASS, Outcome.FAIL}:
            return 3
        return 0

    def verdict(self, fail_on: Severity = Severity.ERROR) -> Verdict:
        """The exit code as a word."""
        return {0: Verdict.PASS, 1: Verdict.FAIL, 3: Verdict.UNDECIDED}[self.exit_code(fail_on)]
