"""Removes a container whose envkit was killed, in a process of its own that is there before it and outlives envkit.

The payload ends itself when envkit goes, but a Python that hangs before it reads the payload, or a program that only
bears its name, does not.  What that takes, the folders of installed packages first, is read at that moment alone: until
then the process only waits, and its start costs every run as little as a Python can.
"""

from __future__ import annotations

import os
import sys
import time

LOST = "lost"  # what it is told where the engine is gone and the container may not be
BACK_S = 600.0  # an engine is started again by its service in seconds, or by a person
_CREATED_S = 20.0  # an engine under load goes on for seconds with a container that nobody waits for any more


def command(container: str, podman: str = "") -> list[str]:
    """The command line that waits beside envkit for the container of that name, of the engine that docker's
    configuration names or of the program ``podman``; the folder it works in is not searched for modules."""
    return [sys.executable, "-P", "-S", __file__, container, podman]


def holder_of(container: str) -> str:
    """The name of the container that held the files of another until that was made."""
    return f"{container}-files"


def main() -> None:
    """Waits for a line on stdin, which means that all is well, or for its end, which means that envkit is dead.  At the
    line ``LOST`` it goes on without envkit, until the engine is back."""
    heard = sys.stdin.readline()
    lost = heard == f"{LOST}\n"
    if heard and not lost:
        return
    if lost and os.fork():
        os._exit(0)
    import site

    site.main()
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    _, container, podman = sys.argv
    deadline = time.monotonic() + (BACK_S if lost else _CREATED_S)
    while time.monotonic() < deadline:
        if podman:
            gone = _removed_by(podman, container)
        else:
            gone = all([_removed(container, absent=lost), _removed(holder_of(container), absent=True)])
        if gone:
            break
        time.sleep(2.0 if lost else 0.5)
    if not podman:
        _remove_volumes(container)


def _remove_volumes(container: str) -> None:
    """Removes what is left of the volumes that were made for ``container``, of which it and its holder are gone.

    A holder that the engine was removing when envkit was killed leaves its volumes to the other container, which may
    be gone by then.  Those of other runs stay: the engine makes a volume before the container that takes it.
    """
    import docker.errors

    from envkit.engine.endpoint import client, endpoint
    from envkit.engine.held import OWNER_LABEL
    from envkit.errors import EnvkitError

    try:
        api = client(endpoint(os.environ), 60).api
        for volume in api.volumes(filters={"label": f"{OWNER_LABEL}={container}", "dangling": True})["Volumes"] or ():
            api.remove_volume(volume["Name"])
    except (docker.errors.DockerException, OSError, EnvkitError):
        return  # the engine is not there, or somebody else removes them


def _removed_by(podman: str, container: str) -> bool:
    from envkit.system import proc

    if proc.run([podman, "container", "exists", container], timeout_s=60).exit:
        return False
    words = ["rm", "--force", "--time", "0", "--volumes", "--ignore", container]
    return proc.run([podman, "--log-level=error", *words], timeout_s=60).exit == 0


def _removed(container: str, absent: bool) -> bool:
    """Whether the container is gone; ``absent``: also if there is none, which may still be made else."""
    import docker.errors

    from envkit.engine.endpoint import client, endpoint
    from envkit.errors import EnvkitError

    try:
        client(endpoint(os.environ), 60).api.remove_container(container, v=True, force=True)
    except docker.errors.NotFound:
        return absent
    except (docker.errors.DockerException, OSError, EnvkitError):
        return False  # its removal is under way, or the engine is not there
    return True


if __name__ == "__main__":
    main()
