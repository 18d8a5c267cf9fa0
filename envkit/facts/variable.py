"""The table of what a job's environment variables may be: how each program reads its own."""

from __future__ import annotations

from envkit.facts.rows import Sourced
from envkit.records import dataclass


@dataclass(frozen=True, slots=True)
class VariableRow(Sourced):
    """One variable, or as "PYTORCH_ALLOC_CONF:key" one setting of torch's allocator.

    ``of`` is the program that reads it ("torch", "nccl", "openmp").  ``type`` says how that reads it; the types are the
    keys of ``judging.variables.TYPES`` and the flags those of ``judging.variables.FLAGS``.  ``form`` words the values
    for a person where ``values`` does not list them; for a pattern ``values`` holds the regular expression.  ``least``
    and ``most`` bound a number, both included.  ``open`` marks a list that later releases lengthen.

    ``costs`` says what it costs a job that the variable was left set to a value of ``on`` (for a flag: yes; "*": to
    anything), and ``weighs`` how much that matters; both None where it costs nothing.  ``since`` is the first release
    of ``of`` that reads the variable, ``without`` the newest known not to, ``instead`` the other name under which it is
    read.  ``otherwise`` is what happens with a value that it does not take, ``severity`` how much that matters.
    """

    name: str
    of: str
    type: str
    form: str | None
    values: tuple[str, ...]
    least: int | None
    most: int | None
    open: bool
    on: tuple[str, ...]
    costs: str | None
    weighs: str | None
    since: str | None
    without: str | None
    instead: str | None
    otherwise: str
    severity: str


@dataclass(frozen=True, slots=True)
class VariablePairRow(Sourced):
    """Variables that contradict one another: each condition of ``when`` holds (variable, relation, other side).

    The relations are the keys of ``judging.variables.RELATIONS``.  ``says`` is what comes of it, ``fix`` what to do.
    """

    id: str
    when: tuple[tuple[str, str, str], ...]
    says: str
    severity: str
    fix: str
