"""Files that people write (Dockerfiles, requirements, compose files, manifests): which they are, and what checks say
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any

from envkit.model import Finding, Result
from envkit.records import dataclass
from envkit.subjects.dockerfile import Base

ASKED = "index-asked"  # stands in reports for what --resolve asked of the package index; no check is named so
READ = "file-read"  # stands in reports for a file that could not be read, or whose reader crashed; no check is named so


@dataclass(frozen=True, slots=True)
class AskIndex:
    """That the package index is asked: within ``budget_s`` seconds for each file, ``before`` a day ("" for today), and
    ``say`` hears of each question."""

    budget_s: float
    before: str
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What the user says beside the files.

    ``gpus`` and ``driver`` are what the images must run on; ``context`` is the build context, None for the folder of
    each Dockerfile; ``bases`` describe images that nobody else knows, by reference.  ``strict`` keeps every doubt.
    ``on_stdin`` is the file whose text is on stdin and not where its name says, "-" where it has no name.
    ``ask`` asks the package index what installs bring, None for nobody.
    """

    gpus: tuple[str, ...] = ()
    driver: str = ""
    context: Path | None = None
    bases: Mapping[str, Base] = field(default_factory=dict)
    strict: bool = False
    on_stdin: str = "-"
    ask: AskIndex | None = None


@dataclass(frozen=True, slots=True)
class JudgedFile:
    """One file with what its checks say.

    ``kind`` is one of kinds.KINDS; ``text`` what was judged; ``observed`` the fields of the contract where the kind has
    them.  ``unreadable`` is a clause that says why it could not be read, "" where it was.
    """

    path: str
    kind: str
    text: str = ""
    results: tuple[Result, ...] = ()
    observed: Mapping[str, Any] = field(default_factory=dict)
    unreadable: str = ""

    @property
    def lines(self) -> Sequence[str]:
        """The lines as spans count them: only a newline ends one, as for BuildKit."""
        return _lines(self.text)

    def line_of(self, finding: Finding) -> str:
        """The line that a finding begins on, without blanks around it; "" for a place in another file or none."""
        span = finding.span
        lines = self.lines
        if span is None or span.path != self.path or not 0 < span.line <= len(lines):
            return ""
        return lines[span.line - 1].strip()


@lru_cache(4)  # reports ask once a finding
def _lines(text: str) -> Sequence[str]:
    return tuple(text.split("\n"))
