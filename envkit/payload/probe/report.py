"""What an observed process tells, line by line, so that a crash loses only what was not yet seen."""

from __future__ import annotations

import json
import os

LATE = "loading "  # what a step of the late loads is announced with


def observed(value: object, via: str) -> dict[str, object]:
    """A field that was seen."""
    return {"value": value, "via": via, "missing": ""}


def lost(why: str) -> dict[str, object]:
    """A field that was not seen, with the reason."""
    return {"value": None, "via": "", "missing": why}


class Pipe:
    """Writes one line a field."""

    def __init__(self, number: int) -> None:
        self._file = os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace")

    def send(self, line: dict[str, object]) -> None:
        """Writes ``line`` at once."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def doing(self, what: str) -> None:
        """Says what comes next, for the case that it never ends."""
        self.send({"doing": what})

    def field(self, name: str, value: dict[str, object]) -> None:
        """One observed or lost field."""
        self.send({"field": name, "observed": value})
