"""Docker's SDK and its HTTP library, imported when one of their names is first used, and what their exceptions mean.

To import them takes 0.1 s, a third of what `envkit run` takes without a preflight, and a run that goes well asks the
engine what ``wire`` asks.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from envkit.engine.trouble import explain, forbidden, no_engine, words_of
from envkit.errors import EnvkitError, Undecided, UsageError

__all__ = ["asking", "docker", "engine_error", "requests"]

if TYPE_CHECKING:
    import docker
    import docker.errors
    import docker.types
    import docker.utils.socket
    import requests
    import requests.exceptions
else:

    class _Later:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module(self._name), name)

    docker, requests = _Later("docker"), _Later("requests")


def engine_error(error: Exception) -> EnvkitError:
    """What an SDK exception means for the user."""
    text = str(error.explanation or error) if isinstance(error, docker.errors.APIError) else words_of(error)
    if "permission denied" in text.lower():
        return forbidden(text)
    if isinstance(error, docker.errors.APIError):
        if "invalid reference format" in text:  # it was never asked for the image
            return UsageError(f"no image can have this name: {text.strip().rstrip('.')}", "check the name")
        if "bind source path does not exist" in text:  # a mount that was seen here a moment ago
            said = f"the docker engine does not see this machine's files: {text.strip().rstrip('.')}"
            return Undecided(said, "use the docker engine of this machine (DOCKER_HOST, docker context)")
        known = explain([text], where="the engine's store")
        return known or Undecided(f"the docker engine refused: {text.strip().rstrip('.')}", "see the engine's log")
    return no_engine(text)


@contextmanager
def asking(*let_through: type[Exception]) -> Iterator[None]:
    """Turns the SDK's exceptions into envkit's, but for those that the caller reads itself."""
    try:
        yield
    except let_through:
        raise
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        raise engine_error(error) from error
