"""`envkit debug --image` in real containers without a GPU: Docker Engine, and Podman as root and as an ordinary user.

A file of the driver's name that a program maps stands in for the driver, and a small one for torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from clocks import PATIENCE_S
from test_debug_boxed import installed
from test_debug_common import CALLS, TORCH
from test_engine_podman import Way, saved, way

from envkit.engine import BaseRequest, ResolvedBase
from envkit.engine.docker import DockerEngine

__all__ = ["saved", "way"]  # fixtures
pytestmark = pytest.mark.engine
DRIVER = "import mmap; file = open('/w/libcuda.so.1'); held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n"
WAITS = "import threading; threading.Event().wait()"
CRASHES = "import ctypes; ctypes.string_at(0)"


def written(folder: Path) -> Path:
    """A folder with a program whose fourth line makes the first nan, for containers that see it as /w."""
    folder.mkdir(parents=True)
    (folder / "libcuda.so.1").write_bytes(b"x" * 4096)
    begins = installed(folder, TORCH).replace(str(folder), "/w").strip() + "; " + DRIVER
    program = "import time; time.sleep(1.5)  # until the supervisor has looked at what it maps\n"
    program += CALLS["overflow"][0] + "\nraise FloatingPointError('the loss is nan')\n"
    (folder / "program.py").write_text(begins + program)
    for each in [folder, *folder.rglob("*")]:
        each.chmod(0o755 if each.is_dir() else 0o644)
    return folder


def debugged(python: Sequence[str], engine: str, image: str, out: Path, *words: str) -> dict[str, Any]:
    """The report of a command in containers of an image."""
    line = [
        *python,
        "-m",
        "envkit",
        "debug",
        "--engine",
        engine,
        "--image",
        image,
        "--gpus",
        "none",
        "--network",
        "none",
    ]
    done = subprocess.run(
        [*line, "--format", "json", "--out", str(out), *words],
        capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode in (1, 3), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_call_that_made_the_first_nan_is_named_in_containers_of_docker(
    python_base: ResolvedBase, tmp_path: Path
) -> None:
    program = written(tmp_path / "w")
    words = ("--volume", f"{program}:/w:ro", "--user", "1000:1000", "--", "python3", "/w/program.py")
    report = debugged([sys.executable], "docker", python_base.ref, tmp_path / "out", *words)
    assert [step["stage"] for step in report["steps"] if step["ran"]] == ["as-is", "numbers"]
    assert "the first nan comes out of `sub` at /w/program.py:4 in <module>" in report["cause"]


@pytest.fixture(scope="module")
def with_gdb(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A saved image with Python and gdb."""
    wish = BaseRequest("envkit-test-gdb:none", "bookworm", "", ("ca-certificates", "python3", "gdb"), 1700000000)
    base = engine.resolve_base(wish, lambda line: None)
    path = tmp_path_factory.mktemp("gdb") / "image.tar"
    tag = f"envkit-test-gdb:{os.getpid()}"
    subprocess.run(["docker", "tag", base.ref, tag], check=True, capture_output=True)
    subprocess.run(["docker", "save", "--output", str(path), tag], check=True, capture_output=True)
    for each in (path, path.parent, path.parent.parent):
        each.chmod(0o755)
    yield path
    engine.remove(tag)
    engine.remove(base.ref)


@pytest.mark.nightly  # an image with gdb is made from the archives
def test_gdb_and_numbers_in_containers_of_podman_as_root_and_as_an_ordinary_user(way: Way, with_gdb: Path) -> None:
    podman = [*way.prefix, "podman", "--log-level=error"]
    (way.folder / "image.tar").write_bytes(with_gdb.read_bytes())
    (way.folder / "image.tar").chmod(0o644)
    loaded = subprocess.run(
        [*podman, "load", "--quiet", "--input", str(way.folder / "image.tar")],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True, cwd="/",
    )  # fmt: skip
    image = loaded.stdout.strip().rpartition(" ")[2]
    try:
        program, python = written(way.folder / "w"), way.python()

        def told(name: str, *words: str) -> dict[str, Any]:
            return debugged(python, "podman", image, way.folder / "out" / name, *words)

        for user in ("0:0", "1000:1000"):
            words = ("--user", user, "--stage-timeout", "8", "--", "python3", "-c", WAITS)
            (each,) = told(f"hang-{user[0]}", *words)["hang"]
            assert each["threads"][-1][-1]["function"] == "wait"
            assert "PyThread_acquire_lock_timed" in each["native"] and "detached]" in each["native"]
        said = told("crash", "--", "python3", "-c", CRASHES)["cause"]
        assert "; it died in " in said and "`ffi_call` of " in said
        said = told("numbers", "--volume", f"{program}:/w:ro", "--", "python3", "/w/program.py")["cause"]
        assert "the first nan comes out of `sub` at /w/program.py:4 in <module>" in said
    finally:
        subprocess.run([*podman, "rmi", "--force", image], capture_output=True, check=False, cwd="/")


@pytest.mark.parametrize(("network", "own"), [("none", True), ("", False)])
def test_a_container_without_a_network_finds_itself_by_its_name(
    engine: DockerEngine, python_base: ResolvedBase, network: str, own: bool
) -> None:
    """As torchrun asks for its host; where there is a network the engine gives the name, and an address of it."""
    asks = "import socket; print(socket.gethostbyname(socket.gethostname()))"
    argv = ["python3", "-c", asks]
    said = engine.follow(python_base.ref, argv, mounts={}, network=network, timeout_s=PATIENCE_S, say=print)
    assert said.exit == 0 and said.stdout.startswith("127.") is own
