"""What Docker and Podman say of an image in the same words, and what follows from it before a container is made."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from envkit.engine import DeclaredStart
from envkit.errors import Undecided, one_line

RUN_LABEL = "io.envkit.run"  # on every container envkit starts
OWNER_LABEL = "io.envkit.container"  # on a volume of such a run: the name of the container it is made for
TREE_LABEL = "io.envkit.base.sha256"  # on a bootstrapped base: the hash of its file tree

_MOST_VOLUMES = 64  # of one image; public ones declare up to five
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}  # as an engine says them -> as an image does


def declared(config: Mapping[str, Any]) -> DeclaredStart:
    """The ENTRYPOINT, CMD, ENV, USER and WORKDIR of an image with this "Config"."""
    return DeclaredStart(
        tuple(config.get("Entrypoint") or ()),
        tuple(config.get("Cmd") or ()),
        dict(entry.partition("=")[::2] for entry in config.get("Env") or ()),
        str(config.get("User") or ""),
        str(config.get("WorkingDir") or ""),
    )


def same_platform(image: str, facts: Mapping[str, Any], system: str, processor: str) -> None:
    """Raises Undecided for an image of another platform than the engine's, which an emulator might run and no GPU would
    serve."""
    own = (system, _PROCESSORS.get(processor, processor))
    given = (str(facts.get("Os", "")), str(facts.get("Architecture", "")))
    if all(own) and all(given) and own != given:
        raise Undecided(
            f"the image {image} is for {one_line('/'.join(given))} and this engine runs {'/'.join(own)}",
            f"build or pull it for this machine (--platform {'/'.join(own)}), or run envkit on a machine of that kind",
        )


def volumes(image: str, facts: Mapping[str, Any]) -> list[str]:
    """The VOLUMEs that ``image`` declares; raises Undecided for more than any image has."""
    found = sorted({posixpath.normpath(path) for path in (facts.get("Config") or {}).get("Volumes") or ()})
    if len(found) > _MOST_VOLUMES:
        raise Undecided(
            f"the image {image} declares {len(found)} VOLUMEs, more than the {_MOST_VOLUMES} that a run mounts",
            "declare the one folder that holds them all",
        )
    return found
