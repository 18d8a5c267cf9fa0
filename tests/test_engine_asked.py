"""What the engine is asked for, where none is: a fake one writes it down."""

from __future__ import annotations

import errno
import io
import os
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest
from fake_docker import FakeDocker
from test_prove import layer

from envkit.debug.container import Container
from envkit.debug.job import COMPANION
from envkit.engine import BaseRequest
from envkit.engine.docker import DockerEngine
from envkit.engine.held import TREE_LABEL
from envkit.engine.store import sees_trusted
from envkit.errors import EnvkitError, Undecided, UsageError


def quiet(line: str) -> None:
    pass


def created(docker: FakeDocker, tmp_path: Path, mounts: dict[str, Path] | None = None) -> list[dict[str, object]]:
    """The containers that a run asked for; this engine lets nobody attach."""
    with pytest.raises(EnvkitError):
        DockerEngine(tmp_path).run("some:image", [], payload=b"x", mounts=mounts, timeout_s=60, say=quiet)
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
    (laid,) = docker.put
    with tarfile.open(fileobj=io.BytesIO(laid)) as archive:
        (entry,) = archive.getmembers()
        file = archive.extractfile(entry)
        assert (entry.name, entry.mode) == ("envkit.pyz", 0o444) and file is not None and file.read() == b"x"


def test_a_compiler_is_given_a_container_with_all_its_bounds(docker: FakeDocker, tmp_path: Path) -> None:
    docker.holds("some:image", layer(a=b"a"))
    (tmp_path / "given.tar").write_bytes(b"what is compiled")
    given, made = tmp_path / "given.tar", tmp_path / "made.tar"
    with pytest.raises(EnvkitError):  # this engine lets nobody attach
        DockerEngine(tmp_path).compile("some:image", ["python3", "x"], given, made, timeout_s=60, say=quiet)
    (run,) = [body for method, path, body in docker.heard if (method, path) == ("POST", "/containers/create")]
    host = run["HostConfig"]
    assert isinstance(host, dict)
    assert [(mount["Target"], mount["Type"], mount.get("Source")) for mount in host["Mounts"]] == [
        ("/work", "volume", None)
    ]
    assert set(host["Tmpfs"]) == {"/tmp"} and "size=" in host["Tmpfs"]["/tmp"] and not host.get("Binds")
    assert host["LogConfig"]["Type"] == "none" and host["Ulimits"] == [{"Name": "core", "Soft": 1, "Hard": 1}]
    assert host["ReadonlyRootfs"] and host["NetworkMode"] == "none" and host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"] and host["PidsLimit"] == 4096
    assert not host.get("DeviceRequests") and not run.get("Env")
    assert docker.put == [b"what is compiled"] and not made.exists()
    assert "DELETE" in {method for method, _, _ in docker.heard}


def test_a_mount_is_read_only_and_one_of_what_is_not_there_is_refused(docker: FakeDocker, tmp_path: Path) -> None:
    docker.holds("some:image", layer(a=b"a"))
    _, run = created(docker, tmp_path, {"/m": tmp_path})
    host = run["HostConfig"]
    assert isinstance(host, dict)
    assert host["Mounts"] == [{"Target": "/m", "Source": str(tmp_path), "Type": "bind", "ReadOnly": True}]
    with pytest.raises(UsageError, match=r"there is no .*/gone"):
        DockerEngine(tmp_path).run(
            "some:image", [], payload=b"x", mounts={"/m": tmp_path / "gone"}, timeout_s=60, say=quiet
        )


def test_a_base_that_envkit_made_is_told_from_an_image_that_was_built_on_it(docker: FakeDocker, tmp_path: Path) -> None:
    tree, more = layer(a=b"a"), layer(b=b"b")
    made, digest = f"sha256:{sha256(tree).hexdigest()}", f"sha256:{'1' * 64}"
    docker.holds("some:base", tree, labels={TREE_LABEL: made}, digest=digest)
    docker.holds("on:it", tree, more, labels={TREE_LABEL: made}, digest=digest)
    engine = DockerEngine(tmp_path)
    found = [engine.resolve_base(BaseRequest(ref), quiet) for ref in ("some:base", "on:it")]
    assert [(base.how, base.sha256) for base in found] == [("bootstrapped", made), ("local", digest)]


def test_trusted_attributes_are_seen_by_whoever_may_set_them(tmp_path: Path) -> None:
    try:
        os.setxattr(tmp_path, "trusted.envkit", b"1")
        may = True
    except OSError as error:
        if error.errno != errno.EPERM:
            pytest.skip(f"no attributes on this file system: {error}")
        may = False
    assert sees_trusted() is may


def test_more_volumes_than_any_image_has_are_refused_before_a_container_is_made(
    docker: FakeDocker, tmp_path: Path
) -> None:
    docker.holds("some:image", layer(a=b"a"), volumes=tuple(f"/v{number}" for number in range(65)))
    with pytest.raises(Undecided, match="declares 65 VOLUMEs, more than the 64"):
        DockerEngine(tmp_path).run("some:image", [], payload=b"x", timeout_s=60, say=quiet)
    assert not [path for _, path, _ in docker.heard if path == "/containers/create"]


def test_a_command_under_debug_may_write_its_files_and_not_the_companion(docker: FakeDocker, tmp_path: Path) -> None:
    docker.holds("some:image", layer(a=b"a"))
    place = Container(DockerEngine(tmp_path), "some:image", (), quiet).at(tmp_path)
    with pytest.raises(EnvkitError):
        place.keep(tmp_path / "job.json", 60)
    (asked,) = [body for method, path, body in docker.heard if (method, path) == ("POST", "/containers/create")]
    writable = {mount["Source"]: not mount["ReadOnly"] for mount in asked["HostConfig"]["Mounts"]}
    assert writable == {str(tmp_path): True, str(COMPANION): False}
