"""What a stream is to its reader: its width, and whether it takes colour."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import TextIO

UNBROKEN = 1_000_000  # columns: no line is broken


def columns(stream: TextIO) -> int:
    """The columns of the terminal that ``stream`` is; of a pipe or a file so many that no sentence is broken, which
    keeps it whole for grep."""
    return shutil.get_terminal_size((100, 24)).columns if stream.isatty() else UNBROKEN


def wants_color(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether ``stream`` is a terminal that nobody asked to keep plain, or somebody asked for colour.

    Of the variables that are not empty, NO_COLOR (no-color.org) goes before FORCE_COLOR (force-color.org), and that
    before what the stream is.  Else plain are pipes, CI and TERM=dumb.
    """
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and not (environ.get("CI") or environ.get("TERM") == "dumb")
