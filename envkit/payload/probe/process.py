"""The process that a job's Python is: who runs it, where, with which variables, and what Python runs at its start."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import threading
from typing import Any

from envkit.payload.probe import environ

_MOST = 1 << 16  # bytes of a .pth file; those with code have one line.  Also of what a start prints.
_START_S = 30.0  # of another start of the same Python, which takes 0.05 s
_ERRORS, _LINE = 10, 300  # of a start that are kept, and characters of one


def started_with() -> dict[str, str]:
    """The variables as the kernel gave them to this process, before Python's own start could change any."""
    with open("/proc/self/environ", "rb") as file:
        pairs = (entry.partition(b"=") for entry in file.read().split(b"\0"))
        return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if equals}


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _with_code(path: str) -> bool:
    """Whether a .pth file holds a line that Python runs, as site.addpackage reads them."""
    try:
        with open(path, "rb") as file:
            return any(line.startswith((b"import ", b"import\t")) for line in file.read(_MOST).splitlines())
    except OSError:
        return False


def at_start() -> list[str]:
    """The files that Python ran before its program: sitecustomize, usercustomize, and .pth files with code."""
    found = [getattr(sys.modules.get(name), "__file__", None) for name in ("sitecustomize", "usercustomize")]
    folders = list(site.getsitepackages())
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    for folder in folders:
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        paths = [os.path.join(folder, name) for name in names if name.endswith(".pth")]
        found += [path for path in paths if _with_code(path)]
    return [os.path.realpath(path) for path in found if path]


class AnotherStart:
    """Another start of the job's Python, which says on stderr what of its own start failed.

    Python goes on after a sitecustomize that raises and after a line of a .pth file that does not run, without what
    they were there for.  Begun beside the import of torch it takes no time of its own.
    """

    def __init__(self) -> None:
        self._said: str | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # As multiprocessing starts a Python like this one: -S, -I or -s leave out what would fail.
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        try:
            done = subprocess.run(
                [sys.executable, *flags, "-c", "pass"], env=started_with(),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                timeout=_START_S, check=False,
            )  # fmt: skip
            self._said = done.stderr[:_MOST].decode("utf-8", "replace")
        except (OSError, subprocess.SubprocessError):
            pass

    def errors(self) -> list[str] | None:
        """One line an error, at most ten; None where this start could not begin or did not end within 30 s."""
        self._thread.join()
        return None if self._said is None else _errors(self._said)


def _errors(output: str) -> list[str]:
    found: list[str] = []
    for line in output.splitlines():
        where = re.match(r"(Error (?:in \w+customize|processing line \d+ of .+?))(?:; set PYTHONVERBOSE.*|:)$", line)
        if where:
            found.append(where[1][:_LINE])
        elif found and ": " not in found[-1] and re.match(r" {0,2}[A-Za-z_][\w.]*(:|$)", line):
            found[-1] = f"{found[-1]}: {line.strip()}"[:_LINE]  # the exception, below its traceback or right there
    return list(dict.fromkeys(found))[:_ERRORS]  # a virtual environment reads its .pth files twice


def seen(start: AnotherStart) -> dict[str, Any]:
    """This process, in the words of the subject, with what ``start`` says; raises OSError where /proc is not there."""
    variables = started_with()
    return {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "folder": os.getcwd(),
        "folder_closed": not os.access(".", os.R_OK | os.X_OK),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "user": _name(os.getuid()),
        "home": variables.get("HOME", ""),
        "path": variables.get("PATH", ""),
        "variables": [
            {"name": name, "value": os.fsencode(value).decode("utf-8", "backslashreplace")}
            for name, value in sorted(variables.items())
            if environ.steers(name)
        ],
        "at_start": at_start(),
        "start_errors": start.errors(),
    }
