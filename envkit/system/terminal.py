"""What a stream is to its reader: its width, whether it takes colour, and whether a line of it can be written anew."""

from __future__ import annotations

import shutil
import unicodedata
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


class Live(str):
    """A line of progress that gives its place to the next line of any kind, where that can be."""

    __slots__ = ()


def rewrites(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether a line of ``stream`` can be written anew: a terminal does that, but a log of CI keeps each version."""
    return stream.isatty() and not (environ.get("CI") or environ.get("TERM") == "dumb")


def cut(text: str, columns: int) -> str:
    """As much of ``text`` as fits into ``columns``; what is wide in East Asia takes two."""
    used = 0
    for at, letter in enumerate(text):
        used += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if used > columns:
            return text[:at]
    return text
