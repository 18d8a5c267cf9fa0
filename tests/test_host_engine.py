"""The Docker Engine's answers, over a real Unix socket with an engine that a test can break."""

from __future__ import annotations

import http.server
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from envkit.host import engine
from envkit.host.root import HostRoot
from envkit.subjects.host import Docker

VERSION = {"Version": "26.1.5", "ApiVersion": "1.45"}
INFO = {
    "Runtimes": {"runc": {"path": "runc"}, "nvidia": {"path": "nvidia-container-runtime"}},
    "DefaultRuntime": "runc",
    "DockerRootDir": "/var/lib/docker",
    "CgroupVersion": "2",
    "SecurityOptions": ["name=seccomp,profile=builtin"],
    "CDISpecDirs": [],
}
NEWER = {
    **INFO,
    "CDISpecDirs": ["/etc/cdi"],
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}, {"Source": "other", "ID": "x"}],
}


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """An engine that answers a path with a status and a body."""

    daemon_threads = True

    def __init__(self, path: Path, bodies: dict[str, tuple[int, bytes]]) -> None:
        self.bodies = bodies
        super().__init__(str(path), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    """Speaks for an Engine."""

    server: Engine

    def do_GET(self) -> None:
        status, body = self.server.bodies[self.path]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "docker.sock"


@pytest.fixture
def served(path: Path) -> Iterator[Engine]:
    with Engine(path, {"/version": (200, json.dumps(VERSION).encode())}) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def test_answers_of_an_older_engine(served: Engine, path: Path) -> None:
    served.bodies["/info"] = (200, json.dumps(INFO).encode())
    docker = engine.ask(f"unix://{path}", installed=True)
    assert (docker.ended, docker.version, docker.api) == ("answered", "26.1.5", "1.45")
    assert (docker.root, docker.cgroup, docker.default_runtime) == ("/var/lib/docker", "2", "runc")
    assert docker.runtimes == ("nvidia", "runc")
    assert docker.cdi_dirs.value == ()
    assert docker.cdi_devices.value is None
    assert "too old" in docker.cdi_devices.missing


def test_devices_of_a_newer_engine(served: Engine, path: Path) -> None:
    served.bodies["/info"] = (200, json.dumps(NEWER).encode())
    docker = engine.ask(f"unix://{path}", installed=True)
    assert docker.cdi_dirs.value == ("/etc/cdi",)
    assert docker.cdi_devices.value == ("nvidia.com/gpu=0",)


def test_podman_in_dockers_place_says_nothing_of_cdi(served: Engine, path: Path) -> None:
    said = {**VERSION, "Components": [{"Name": "Podman Engine", "Version": "4.9.3"}]}
    served.bodies["/version"] = (200, json.dumps(said).encode())
    served.bodies["/info"] = (200, json.dumps({"Runtimes": {"crun": {}}, "Driver": "overlay"}).encode())
    docker = engine.ask(f"unix://{path}", installed=True)
    assert (docker.product, docker.storage) == ("podman", "overlay")
    assert docker.cdi_dirs.value is None


def test_what_the_engine_says_of_itself(served: Engine, path: Path) -> None:
    more = {"OperatingSystem": "Docker Desktop", "Driver": "vfs", "CgroupDriver": "systemd", "Warnings": ["CDI: no"]}
    served.bodies["/info"] = (200, json.dumps({**INFO, **more}).encode())
    path.chmod(0o660)
    docker = engine.ask(f"unix://{path}", installed=True)
    assert (docker.product, docker.system, docker.storage) == ("docker", "Docker Desktop", "vfs")
    assert (docker.cgroup_driver, docker.warnings, docker.mode.value) == ("systemd", ("CDI: no",), 0o660)


@pytest.mark.parametrize(
    "body",
    [(500, b"{}"), (200, b"not json"), (200, b"[]"), (200, b'{"Runtimes": 7}'), (200, b'{"DiscoveredDevices": [7]}')],
    ids=["status", "no json", "no object", "runtimes", "devices"],
)
def test_answer_that_is_none_is_an_error(served: Engine, path: Path, body: tuple[int, bytes]) -> None:
    served.bodies["/info"] = body
    docker = engine.ask(f"unix://{path}", installed=True)
    assert docker.ended == "error"
    assert docker.detail
    assert docker.version == ""


def test_socket_that_is_absent_or_left_behind(path: Path) -> None:
    assert engine.ask(f"unix://{path}", installed=False) == Docker(
        "no socket", "the socket does not exist", f"unix://{path}", False
    )
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert engine.ask(f"unix://{path}", installed=True).ended == "refused"


def test_engine_that_accepts_and_stays_silent_is_hung(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        docker = engine.ask(f"unix://{path}", installed=True, timeout_s=0.2)
    assert docker.ended == "hung"
    assert docker.detail == "no answer within 0.2 s"


def test_endpoint_that_is_not_spoken_here() -> None:
    assert engine.ask("ssh://node", installed=True).ended == "unsupported"


def test_the_socket_of_a_tree_is_looked_for_in_the_tree(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    seen = engine.docker(HostRoot(tmp_path, {})).value
    assert seen is not None and seen.endpoint == f"unix://{tmp_path}/run/docker.sock"


def test_a_context_of_the_tree_that_cannot_be_read_is_not_replaced_by_the_default(tmp_path: Path) -> None:
    seen = engine.docker(HostRoot(tmp_path, {"HOME": "/home/ada", "DOCKER_CONTEXT": "gone"})).value
    assert seen is not None and seen.ended == "error"
    assert seen.detail == "there is no docker context `gone`, which DOCKER_CONTEXT names"


def test_an_address_that_is_none_is_an_error() -> None:
    assert engine.ask("tcp://node:many", installed=True).ended == "error"


def test_installed_by_its_programs(tmp_path: Path) -> None:
    here = HostRoot(tmp_path, {})
    assert not engine.docker(here).need("the engine").installed
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/dockerd").touch()
    assert engine.docker(here).need("the engine").installed
