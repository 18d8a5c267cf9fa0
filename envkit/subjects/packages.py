"""A file that says which Python packages get installed: requirements, a project, its lock, a conda environment."""

from __future__ import annotations

from dataclasses import field

from envkit.model import Observed, Span
from envkit.records import dataclass
from envkit.subjects.dockerfile import Install, Torch, Unread
from envkit.subjects.resolved import Resolved


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One point in which a lock is not what its spec asks for, or not all of a lock; ``message`` is a clause."""

    message: str
    span: Span


@dataclass(frozen=True, slots=True)
class Packages:
    """One such file with those that it includes.

    ``kind`` is one of static.kinds.KINDS ("requirements", "pyproject", "uv-lock"); that of a lock ends so.
    ``installs`` are what it asks for on Linux; those under extras that nobody chose are not sure.  ``torches`` are
    what they give of torch, in order of installation, ``torch`` in the properties the one that stays.
    ``python`` is the one Python it names, ``pythons`` all that it lets in where it names a range; ``python_span`` where
    it does.
    ``constraints`` marks a file of pins that installs nothing by itself.  ``locked_by`` is the lock file beside a
    project, "" for none.  ``hashed`` and ``bare`` are the requirements with and without hashes of their files.
    ``disagreements`` are a lock's, None where there is no spec beside it; ``spec`` is that spec's name.
    ``leaves_open`` are clauses of what an envkit.lock does not pin.
    ``gpus`` and ``driver`` are what the user says that it must run on.  ``resolved`` is what the package index says of
    the requirements, None where it was not to be asked.
    """

    path: str
    kind: str
    text: str
    installs: tuple[Install, ...] = ()
    unread: tuple[Unread, ...] = ()
    torches: tuple[Torch, ...] = ()
    python: Observed[str] = field(default_factory=Observed)
    pythons: tuple[str, ...] = ()
    python_span: Span | None = None
    constraints: bool = False
    locked_by: str = ""
    hashed: tuple[Install, ...] = ()
    bare: tuple[Install, ...] = ()
    spec: str = ""
    disagreements: tuple[Disagreement, ...] | None = None
    leaves_open: tuple[Disagreement, ...] = ()
    gpus: tuple[str, ...] = ()
    driver: str = ""
    resolved: tuple[Resolved, ...] | None = None

    @property
    def is_lock(self) -> bool:
        """Whether a solver wrote it: its pins agree, and one package may be there in several versions."""
        return self.kind.endswith("lock")

    @property
    def torch(self) -> Torch | None:
        """The torch that stays: pip's where conda and pip both bring one; None where there is none, or where several
        stand side by side and nothing here says which of them is meant.
        """
        last = [torch for torch in self.torches if torch.method != "conda"] or list(self.torches)
        distinct = {(torch.version.value, torch.cuda.value) for torch in last}
        return last[-1] if len(distinct) == 1 else None
