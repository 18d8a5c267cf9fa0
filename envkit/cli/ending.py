"""How a run ends: every error becomes one message and an exit code of the contract, and stdout is asked whether it took
the answer."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import click
import typer

from envkit.errors import FAULT, READER_GONE, EnvkitError, Interrupted, Undecided, Unsatisfiable
from envkit.system.terminal import Live, columns, cut, rewrites

_PLAIN_EVERY_S = 30.0  # between live lines where each stays: a log shows that the work goes on
_CLEAR = "\r\x1b[K"  # ECMA-48: EL, from the cursor to the end of the line

_hushed = False  # by --quiet, for one run
_live = False  # whether the terminal's last line is a live one
_plain_at = 0.0  # when the last live line stayed, or the first would have; 0 before


def hush() -> None:
    """Ends the lines of progress; errors and warnings are still printed."""
    global _hushed
    _hushed = True


def say(line: str) -> None:
    """One line of progress on stderr; a ``Live`` one is written anew by the next at a terminal, and elsewhere comes
    twice a minute."""
    global _live, _plain_at
    if _hushed:
        return
    if not isinstance(line, Live):
        warn(line)
    elif rewrites(sys.stderr, os.environ):
        _clear()
        with suppress(OSError, ValueError):
            print(cut(_safe(line), columns(sys.stderr) - 1), end="", file=sys.stderr, flush=True)
        _live = True
    elif time.monotonic() - (_plain_at or time.monotonic()) >= _PLAIN_EVERY_S:
        warn(line)
        _plain_at = time.monotonic()
    else:
        _plain_at = _plain_at or time.monotonic()


def warn(line: str) -> None:
    """One line on stderr that --quiet keeps, without credentials; what an image or another program put into it cannot
    steer the terminal."""
    global _plain_at
    _clear()
    _plain_at = 0.0
    with suppress(OSError, ValueError):  # its reader is gone or its disk is full: progress is no part of a verdict
        print(_safe(line), file=sys.stderr, flush=True)


def _safe(line: str) -> str:
    from envkit.credentials import redacted_text
    from envkit.report.text import visible

    return visible(redacted_text(line))


def _clear() -> None:
    global _live
    if _live:
        _live = False
        with suppress(OSError, ValueError):
            print(_CLEAR, end="", file=sys.stderr, flush=True)


def tell(error: EnvkitError) -> None:
    warn(f"envkit: {error.message}")
    if isinstance(error, Unsatisfiable):
        for fact in error.chain:
            warn(f"  because: {fact}")
        for spec in error.nearest:
            warn(f"  nearest: {spec}")
    if error.fix:
        warn(f"  fix: {error.fix}")


@contextmanager
def exits(style: str) -> Iterator[None]:
    """Inside, wrong input and a fault of envkit end with the codes that ``style`` has for them."""
    from envkit.report import exit_codes

    exit_codes.check(style)
    try:
        yield
    except EnvkitError as error:
        if style == "envkit":
            raise
        tell(error)
        raise typer.Exit(exit_codes.wrong_input(style)) from error
    except (click.exceptions.Exit, click.ClickException):
        raise
    except Exception as error:  # whatever it is, who asked for a style reads a code of that style
        code = failed(error)
        if style == "nagios" and code == FAULT:  # which knows the codes 0 to 3, and shows the first line of stdout
            print("ENVKIT UNKNOWN - an internal error of envkit, see its stderr")
        raise typer.Exit(exit_codes.fault(style) if code == FAULT else code) from error


def _stopped(number: int, frame: FrameType | None) -> None:
    """The first signal stops the run; further ones wait for the cleaning up, every step of which has a budget."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Interrupted(signal.Signals(number).name)


def _dropped(lost: sys.UnraisableHookArgs) -> None:
    """A stop that fell into code whose exceptions Python drops (a callback of a fork, a destructor) comes once more."""
    stop = lost.exc_value
    if not isinstance(stop, Interrupted):
        sys.__unraisablehook__(lost)
        return

    def once_more(number: int, frame: FrameType | None) -> None:
        raise stop

    signal.signal(signal.SIGALRM, once_more)
    signal.setitimer(signal.ITIMER_REAL, 0.01)


def run(command: Callable[[], object]) -> int:
    """Runs ``command`` and gives the exit code; every error becomes a message and a code of the contract."""
    global _hushed
    _hushed = False
    signal.signal(signal.SIGINT, _stopped)
    signal.signal(signal.SIGTERM, _stopped)
    sys.unraisablehook = _dropped
    try:
        command()
        code = 0
    except EnvkitError as error:
        tell(error)
        code = error.code
    except Interrupted as stop:
        warn(f"envkit: stopped by {stop}")
        code = stop.code
    except SystemExit as exit:
        if isinstance(exit.__context__, BrokenPipeError):  # the parser ends with 1 there, which would read as "found"
            code = failed(exit.__context__)
        else:
            code = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 2
    except Exception as error:  # the contract has a code for every end, a fault of envkit itself among them
        code = failed(error)
    _clear()
    return _flushed(code)


STDOUT = "<stdout>"  # the file that errors of writing the answer name


def failed(error: Exception) -> int:
    """The code for what is none of envkit's own errors; said are the world's part in it, or that envkit is at fault."""
    if isinstance(error, OSError):
        from envkit.system.no_room import NoRoom, refusal

        if error.filename == STDOUT:
            return READER_GONE if isinstance(error, BrokenPipeError) else _unanswered(error)
        if known := refusal(error):
            tell(known)
            return known.code
        if isinstance(error, FileNotFoundError) and "usable temporary directory" in str(error):  # tempfile's words
            words = "no folder for temporary files is writable, or their disk is full"
            tell(NoRoom(words, "point TMPDIR at one that is"))
            return NoRoom.code
    if isinstance(error, MemoryError):
        tell(
            Undecided(
                "this machine, or the memory limit of this process, has no memory left", "free some, or raise ulimit -v"
            )
        )
        return Undecided.code
    from envkit.credentials import redacted_text

    _clear()
    with suppress(OSError, ValueError):
        print(redacted_text("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    warn("envkit: this is an internal error of envkit; please report it with the lines above")
    return FAULT


def _unanswered(error: OSError) -> int:
    """Says that stdout takes nothing more; what is left in its buffer, which Python would write again, goes nowhere."""
    warn(f"envkit: the output could not be written to stdout: {error.strerror}")
    warn("  fix: write it to a place with enough space")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 3


def _flushed(code: int) -> int:
    """``code`` once stdout has taken all of the answer; of a verdict that it did not take, the code for having none."""
    try:
        sys.stdout.flush()
    except OSError as error:
        lost = READER_GONE if isinstance(error, BrokenPipeError) else _unanswered(error)
        code = lost if code in (0, 1, 3) else code
    return code


class Answer(io.FileIO):
    """stdout, whose errors say whose they are.  It has a buffer above it even under PYTHONUNBUFFERED: Python without
    one loses what a short write leaves, in silence."""

    def write(self, data: Any, /) -> int:
        _clear()
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STDOUT
            raise
