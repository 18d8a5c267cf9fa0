"""Which engine does the work: the one that was asked for, or the one that answers."""

from __future__ import annotations

from envkit.engine import Engine, Say
from envkit.errors import Undecided, UsageError
from envkit.system.files import cache_dir

ENGINES = ("docker", "local", "auto")


def connect(name: str, say: Say) -> Engine:
    """The engine ``name``: "docker", "local", or "auto" for Docker if it answers and local otherwise.

    Raises Undecided if Docker was asked for and does not answer, and UsageError if the docker context that was named
    does not exist, or for a name that is none of ``ENGINES``.
    """
    if name not in ENGINES:
        raise UsageError(f"there is no engine `{name}`", f"one of: {', '.join(ENGINES)}")
    if name == "local":
        from envkit.engine.local import LocalEngine

        return LocalEngine(cache_dir())
    try:
        from envkit.engine.docker import DockerEngine
        from envkit.engine.endpoint import SOCKET

        made = DockerEngine(cache_dir())
        if made.endpoint.host != SOCKET:
            say(f"the docker engine is {made.where}")
        return made
    except Undecided as error:
        if name == "docker":
            raise
        say(f"{error.message}; going on with a private virtual environment (--engine local)")
        return connect("local", say)
