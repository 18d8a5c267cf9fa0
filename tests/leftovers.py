"""What envkit leaves in an engine, told from what other tests have under way in the same engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import docker
from clocks import comes

from envkit.engine.held import RUN_LABEL

_OWN = {"label": f"{RUN_LABEL}=1"}


def containers(images: str, running: bool = False) -> list[str]:
    """The containers, or those that run, that envkit started of an image or of all the images of a repository."""
    api = docker.from_env().api
    ids = {image["Id"] for image in api.images(images)}
    return [entry["Id"] for entry in api.containers(all=not running, filters=_OWN) if entry["ImageID"] in ids]


def volumes() -> set[str]:
    """The volumes of envkit's containers that no container has any more."""
    listed = docker.from_env().api.volumes(filters={**_OWN, "dangling": True})["Volumes"] or []
    return {volume["Name"] for volume in listed}


def volumes_of(container: str) -> set[str]:
    """The volumes that a container has."""
    mounts = docker.from_env().api.inspect_container(container)["Mounts"]
    return {mount["Name"] for mount in mounts if mount["Type"] == "volume"}


def drafts() -> set[str]:
    """The names that images have while they are built."""
    return {tag for image in docker.from_env().api.images("envkit-draft") for tag in image["RepoTags"]}


def processes(images: str) -> set[str]:
    """The processes of a payload in any container but those of other images."""
    api = docker.from_env().api
    others = {entry["Id"] for entry in api.containers(all=True)} - set(containers(images))
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words, group = (folder / "cmdline").read_bytes(), (folder / "cgroup").read_text()
        except OSError:
            continue  # it is gone
        if b"envkit.pyz" in words and "docker" in group and not any(one in group for one in others):
            found.add(f"{folder.name} {words.decode('utf-8', 'replace')}")
    return found


def stay(look: Callable[[], set[str]], before: set[str]) -> set[str]:
    """Of what ``look`` finds beyond ``before``, what is still there after a while."""
    left = look() - before

    def went() -> bool:
        left.intersection_update(look())
        return not left

    comes(went, 0.1)
    return left
