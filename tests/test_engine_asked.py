"""What the engine is asked for, where none is: a fake one writes it down."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_docker import FakeDocker
from test_prove import layer

from envkit.engine.docker import DockerEngine
from envkit.errors import EnvkitError, Undecided


def created(docker: FakeDocker, tmp_path: Path) -> list[dict[str, object]]:
    """The containers that a run asked for; this engine lets nobody attach."""
    with pytest.raises(EnvkitError):
        DockerEngine(tmp_path).run("some:image", [], payload=b"x", timeout_s=60, say=lambda line: None)
    return [body for method, path, body in docker.heard if (method, path) == ("POST", "/containers/create")]


def test_a_run_is_asked_for_with_all_its_bounds(docker: FakeDocker, tmp_path: Path) -> None:
    docker.holds("some:image", layer(a=b"a"), volumes=("/data/", "/a b", "/tmp", "/envkit", "/dev/shm", "/data"))
    holder, run = created(docker, tmp_path)
    held, host = holder["HostConfig"], run["HostConfig"]
    assert isinstance(held, dict) and isinstance(host, dict)
    assert [mount["Target"] for mount in held["Mounts"]] == ["/envkit"] and set(held["Tmpfs"]) == {"/data", "/a b"}
    assert host["VolumesFrom"] == ["c1:ro"] and not host.get("Mounts") and not host.get("Binds")
    assert set(host["Tmpfs"]) == {"/data", "/a b", "/tmp"}
    assert all("size=" in options and "nosuid" in options and "nodev" in options for options in host["Tmpfs"].values())
    assert host["LogConfig"]["Type"] == "none" and host["Ulimits"] == [{"Name": "core", "Soft": 1, "Hard": 1}]
    assert host["ReadonlyRootfs"] and host["NetworkMode"] == "none" and host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"] and host["PidsLimit"] == 4096 and host["ShmSize"] == 1 << 30
    health = run["Healthcheck"]
    assert isinstance(health, dict) and health["Test"] == ["NONE"] and not run.get("User")
    removed = [path for method, path, _ in docker.heard if method == "DELETE"]
    assert "/containers/c1" in removed, "what held the files goes before the run starts"


def test_more_volumes_than_any_image_has_are_refused_before_a_container_is_made(
    docker: FakeDocker, tmp_path: Path
) -> None:
    docker.holds("some:image", layer(a=b"a"), volumes=tuple(f"/v{number}" for number in range(65)))
    with pytest.raises(Undecided, match="declares 65 VOLUMEs, more than the 64"):
        DockerEngine(tmp_path).run("some:image", [], payload=b"x", timeout_s=60, say=lambda line: None)
    assert not [path for _, path, _ in docker.heard if path == "/containers/create"]
