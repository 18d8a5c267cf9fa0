"""envkit's command line in a process of its own that has nothing to import: a fork of the tests' own.

Exit code, streams, signals, environment, working directory and `exec` are as in `python -m envkit`, which takes half a
second of a processor more for each call.  What Python itself reads as it starts (PYTHON*, the locale) stays as the
tests have it.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, NoReturn

from envkit import cli

_SIGNALS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGALRM: signal.SIG_DFL}


def envkit(
    *argv: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes = b"",
    timeout: float = 60,
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
    before: Callable[[], object] | None = None,
) -> subprocess.CompletedProcess[str]:
    """What ``subprocess.run`` gives for these words; ``env`` is the whole environment.

    A stream that is given takes what the process writes there; ``before`` is called in the process before envkit is:
    limits of the kernel, a fault.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        pid = os.fork()
        if pid == 0:
            _begin(argv, env, cwd, (given, stdout or out, stderr or err), before)
        code = _ended(pid, timeout)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["envkit", *argv], code, out.read().decode(), err.read().decode())


def _ended(pid: int, timeout: float) -> int:
    """The exit code of a child; one that does not end in time is killed, and the test fails."""
    watch = os.pidfd_open(pid)
    try:
        if not select.select([watch], [], [], timeout)[0]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise subprocess.TimeoutExpired("envkit", timeout)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(watch)


def _begin(
    argv: tuple[str, ...],
    env: Mapping[str, str] | None,
    cwd: Path | None,
    streams: tuple[IO[bytes], ...],
    before: Callable[[], object] | None,
) -> NoReturn:
    """In the fork: a process as Python would have begun it, then the console script, which ends it."""
    try:
        atexit._clear()  # what the tests do at their end is theirs
        for number, handler in _SIGNALS.items():
            signal.signal(number, handler)
        for number, stream in enumerate(streams):
            os.dup2(stream.fileno(), number)
        sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
        if cwd is not None:
            os.chdir(cwd)
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
            tempfile.tempdir = None  # it is looked for where this environment says
        if before is not None:
            before()
        sys.argv = ["envkit", *argv]
        cli.main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(70)  # main() itself has ended the process
