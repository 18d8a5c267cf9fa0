"""Programs that the payload starts: what one printed, and a fresh interpreter that calls a function of the payload."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from subprocess import DEVNULL, PIPE, STDOUT

from envkit.payload import waits

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # a folder or a zip


def told(command: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """The exit code of a command and all that it printed; subprocess's own exceptions where it does not run or end.

    It is ended after ``waits.LONGEST`` times ``timeout_s``: the budget of the caller, which knows of a busy machine,
    comes first.
    """
    done = subprocess.run(command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, timeout=timeout_s * waits.LONGEST)
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()


def interpreter(module: str, function: str, words: Sequence[str] = ()) -> tuple[str, ...]:
    """The command of a fresh interpreter that calls a function of this payload with texts."""
    # "-c" puts the working directory first, where the image's files may bear a module's name
    path = f"sys.path[:] = [{_ROOT!r}] + [entry for entry in sys.path if entry]"
    code = f"import sys; {path}; from {module} import {function}; {function}(*sys.argv[1:])"
    return (sys.executable, "-c", code, *words)
