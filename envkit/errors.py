"""The errors a user can cause or meet; each is one sentence and its fix.

EnvkitError
├── UsageError        exit 2: the input is wrong and the user can fix it
│   └── Unsatisfiable exit 2: the spec is well-formed and the facts forbid it
└── Undecided         exit 3: the world did not answer (no engine, no network, a full disk)

Interrupted           exit 130: Ctrl-C or SIGTERM, after everything was cleaned up; no Exception, so that nothing
                      that handles errors can swallow it

Whatever else ends a run is a fault of envkit itself, exit FAULT.  A run whose reader went away (`envkit ... | head -1`)
has no verdict and ends with READER_GONE.
"""

from __future__ import annotations

import difflib

FAULT = 70  # EX_SOFTWARE of sysexits.h: a scheduler tells it from 3, an answer that the machine did not give
READER_GONE = 141  # 128 and SIGPIPE: what a shell says of any program that wrote into a closed pipe

_SHOWN = 200  # characters of a value that a message repeats


class EnvkitError(Exception):
    """Base of all errors with a message for the user; ``fix`` says what to do, ``code`` is the exit code."""

    code = 3

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class UsageError(EnvkitError):
    """The input is missing, malformed or contradicts itself."""

    code = 2


class Unsatisfiable(UsageError):
    """No combination meets the spec; ``chain`` is the facts that forbid it, ``nearest`` what comes closest."""

    def __init__(self, message: str, chain: tuple[str, ...], nearest: tuple[str, ...], fix: str = "") -> None:
        super().__init__(message, fix)
        self.chain = chain
        self.nearest = nearest


class Undecided(EnvkitError):
    """Something outside envkit failed, so that no answer can be given."""

    code = 3


class Interrupted(BaseException):
    """The user or the system stopped the run."""

    code = 130


def nearest(word: str, known: list[str]) -> str:
    """ "; did you mean `x`?" for the closest known word, empty if none is close."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def one_line(text: str) -> str:
    """``text`` fit for one line of a message: escapes for what is not printable, and no more than a line of it."""
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
