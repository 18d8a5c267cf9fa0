"""How the import of a framework ended: apart from Image, whose many records whoever reads no image need not make."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

TORCH, NO_FRAMEWORK = "torch", "none"  # among an image's frameworks_asked


class ImportState(StrEnum):
    """How an import ended."""

    DONE = "done"
    ABSENT = "absent"  # there is no such module
    RAISED = "raised"
    KILLED = "was killed"


class ImportEnd(str):
    """How an import ended, as the probe words it: its state, then the error's text or the signal.

    Raises ValueError for words that begin with no state.
    """

    __slots__ = ("state",)
    state: ImportState

    def __new__(cls, text: str) -> Self:
        """Reads the state at the start of ``text``."""
        made = super().__new__(cls, text)
        found = next((state for state in ImportState if text == state or text.startswith(f"{state} ")), None)
        if found is None:
            raise ValueError(f"no import ends as `{text[:40]}`")
        made.state = found
        return made
