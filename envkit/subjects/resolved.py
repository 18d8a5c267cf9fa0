"""What an installer makes of one command of a Dockerfile, as the package index says it: a part of Dockerfile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from envkit.model import Span
from envkit.records import dataclass

FAMILY = ("torch", "torchvision", "torchaudio")


@dataclass(frozen=True, slots=True)
class Dist:
    """A distribution that is installed: ``version`` with its local part, "" where it is not known; ``requires`` are the
    lines of its METADATA, empty where nobody read it; ``by`` is what installed it, as a sentence names it."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    by: str = ""


Environment = Mapping[str, Dist]  # by canonical name


@dataclass(frozen=True, slots=True)
class Change:
    """One distribution that comes (``old`` "") or takes the place of another release.

    ``because`` says who asks for it, a clause for each step on the way from the command; empty for what the command
    names itself (``named``).  ``before`` is what installed the old one, and ``span`` the place
    of the package that brings it.
    """

    name: str
    old: str
    new: str
    because: tuple[str, ...] = ()
    named: bool = False
    before: str = ""
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Unmet:
    """A distribution that stays although it asks for another release of ``needs`` than the one that is ``there`` after
    the command."""

    name: str
    version: str
    asks: str
    needs: str
    there: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What was not followed, and a clause that says why; ``span`` is where it is asked for.  ``matters``: it may ask
    for torch, so that the answer could be another one."""

    name: str
    why: str
    span: Span
    matters: bool = True


@dataclass(frozen=True, slots=True)
class Resolved:
    """What came of one command at ``span``.

    ``said_by`` names the index and its day.  ``refused`` is the installer's reason for which nothing can be installed,
    ``unanswered`` why there is no answer; each "" elsewhere.  ``fix`` is a way out that the index knows, "" for none.
    ``spans`` are the places of its requirements, and ``after`` the releases of torch and its kin that are there then.
    """

    manager: str
    span: Span
    prefix: str
    said_by: str
    changes: tuple[Change, ...] = ()
    unmet: tuple[Unmet, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    refused: str = ""
    about_torch: bool = False
    unanswered: str = ""
    fix: str = ""
    spans: frozenset[Span] = frozenset()
    after: Mapping[str, str] = field(default_factory=dict)
