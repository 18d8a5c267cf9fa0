"""Which engine does the work: the one that was asked for, or the one that answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from envkit.engine import Ability, Engine, Say
from envkit.errors import Undecided, UsageError
from envkit.system.files import cache_dir

if TYPE_CHECKING:
    from envkit.engine.docker import DockerEngine

# The modules are imported when an engine is made: Docker's SDK takes a tenth of a second.


def _docker() -> DockerEngine:
    from envkit.engine.docker import DockerEngine

    return DockerEngine(cache_dir())


def _podman() -> Engine:
    from envkit.engine.podman import PodmanEngine

    return PodmanEngine(cache_dir())


def _charliecloud() -> Engine:
    from envkit.engine.charliecloud import CharliecloudEngine

    return CharliecloudEngine(cache_dir())


def _apptainer() -> Engine:
    from envkit.engine.apptainer import ApptainerEngine

    return ApptainerEngine(cache_dir())


def _local() -> Engine:
    from envkit.engine.local import LocalEngine

    return LocalEngine(cache_dir())


_MADE: dict[str, Callable[[], Engine]] = {
    "docker": _docker,
    "podman": _podman,
    "charliecloud": _charliecloud,
    "apptainer": _apptainer,
    "local": _local,
}
ENGINES = (*_MADE, "auto")


def connect(name: str, say: Say) -> Engine:
    """The engine ``name``, or for "auto" the first that answers of Docker, Podman and local; ``say`` is told which and
    why.

    Raises Undecided if one was asked for and does not answer, and UsageError if the docker context that was named does
    not exist, or for a name that is none of ``ENGINES``.
    """
    if name not in ENGINES:
        raise UsageError(f"there is no engine `{name}`", f"one of: {', '.join(ENGINES)}")
    if name == "auto":
        return _first(say)
    if name == "docker":
        made = _docker()
        if not made.usual:
            say(f"the docker engine is {made.where}")
        return made
    return _MADE[name]()


def with_ability(ability: Ability, say: Say) -> Engine:
    """The first engine that answers and has ``ability``; raises what Docker says where none does."""
    failed: Undecided | None = None
    for make in _MADE.values():
        try:
            made = make()
        except Undecided as error:
            failed = failed or error
            continue
        if ability in made.abilities:
            say(f"{failed.message}; using {made.name}" if failed else f"using {made.name} ({made.where})")
            return made
    raise failed or Undecided(f"no engine here can {ability.value}", "start a Docker Engine, or install podman")


def _first(say: Say) -> Engine:
    why = []
    try:
        docker = _docker()
        if not docker.is_podman:
            say(f"using docker, which answers ({docker.where})")
            return docker
        why.append(f"what answers as the docker engine ({docker.where}) is Podman")
    except Undecided as error:
        why.append(error.message)
    try:
        podman = _podman()
        say("; ".join([*why, f"using {podman.where}"]))
        return podman
    except Undecided as error:
        why.append(error.message)
    say("; ".join([*why, "going on with a private virtual environment (--engine local)"]))
    return _local()
