"""Removes a container whose envkit was killed, in a process of its own that is there before it and outlives envkit.

The payload ends itself when envkit goes, but a Python that hangs before it reads the payload, or a program that only
bears its name, does not.  SDK and sockets are imported at that moment alone: until then the process only waits.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

_CREATED_S = 20.0  # an engine under load goes on for seconds with a container that nobody waits for any more
_START = "import sys; sys.path.append(sys.argv[1]); from envkit.engine.undertaker import main; main()"


def command(container: str) -> list[str]:
    """The command line that waits beside envkit for the container of that name; the folder it works in is not searched
    for modules."""
    return [sys.executable, "-P", "-c", _START, str(Path(__file__).parents[2]), container]


def main() -> None:
    """Waits for a line on stdin, which means that all is well, or for its end, which means that envkit is dead."""
    if sys.stdin.readline():
        return
    import docker
    import docker.errors

    deadline = time.monotonic() + _CREATED_S
    while time.monotonic() < deadline:
        with suppress(docker.errors.DockerException, OSError):  # it is not there yet, or no more, or the engine is not
            docker.from_env(timeout=60).api.remove_container(sys.argv[2], v=True, force=True)
            return
        time.sleep(0.5)
