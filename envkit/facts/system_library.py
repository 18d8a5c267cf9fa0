"""The table `system_library`: what wheels load of the system and do not hold."""

from __future__ import annotations

from envkit.facts.rows import Sourced
from envkit.records import dataclass


@dataclass(frozen=True, slots=True)
class SystemLibraryRow(Sourced):
    """A ``library`` of the system that the wheels of ``package`` load ``when`` ("when it is imported") and do not hold:
    its soname, or what a person calls it.  ``brought_by`` are packages of Debian and Ubuntu that bring it, themselves
    or by what they depend on, first the one to install."""

    package: str
    library: str
    when: str
    brought_by: tuple[str, ...]
