"""The command line: reads the options, calls one function, prints what it gives, and exits by it.

Data goes to stdout, talk to stderr.  Every module that costs time is imported by the verb that needs it, so that
``envkit --help`` costs no more than the parser.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
from contextlib import suppress
from importlib import import_module

from envkit.cli.app import BEFORE_COMMANDS, COMPLETE, app, invoke, parser
from envkit.cli.ending import Answer, run, say

__all__ = ["app", "invoke", "main", "parser", "run", "say"]

# the order of verbs in --help
for _group in ("generate", "exports", "packages", "images", "jobs", "machines", "files", "failures", "completion"):
    import_module(f"{__name__}.{_group}")


def main() -> None:
    """The console script."""
    if sys.stderr is None:  # closed by the caller; what is printed to no file would go to stdout
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout is None:
        say("envkit: stdout is closed, so there is no place for the output")
        sys.exit(3)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(Answer(1, "w", closefd=False)),
        encoding=sys.stdout.encoding,
        errors=sys.stdout.errors,
        line_buffering=bool(sys.stdout.line_buffering),
    )
    argv = sys.argv[1:]
    command: tuple[str, ...] | None = None
    if COMPLETE in os.environ:  # a shell's script asks, where its user pressed the tabulator
        from envkit.cli.completion import answer

        os._exit(run(answer))
    if argv and argv[0] in BEFORE_COMMANDS and "--" in argv:
        at = argv.index("--")
        argv, command = argv[:at], tuple(argv[at + 1 :])
    code = run(lambda: invoke(argv, command))
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)  # taking a hundred modules down takes 60 ms, and frees what the kernel frees anyway
