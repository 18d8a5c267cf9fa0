"""Whatever lies where a file is expected, the answer comes at once, in one sentence, and in little memory.

What must not happen: a pipe or a socket is waited for, a device or a file of ten gigabytes is read, a link that leads
in a circle ends in a traceback.  Every option that names a file has a row; one without a row fails the first test.
"""

from __future__ import annotations

import os
import resource
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
import typer.main
from fake_docker import FakeDocker
from forked import envkit

from envkit import cli

ROOT = Path(__file__).resolve().parents[2]
LOCKED = ROOT / "images" / "torch-2.6-cu124"
MEMORY = 2 << 30  # bytes that a run may map beyond what the tests have
PYTHON = ("--python", sys.executable)
MODEL = ("--placement", "model:make")
NO_RUN = str(ROOT / "docs")  # a folder in which no node has left anything
NODE = ("preflight", "--level", "passive", "--fleet", "runs", "--hosts", "n1", "--node", "n1")

Words = Callable[[str], list[str]]

# By verb and parameter: the command line with the odd file in it.
FILES: dict[tuple[str, str], Words] = {
    ("lock", "spec"): lambda odd: ["lock", odd, "--engine", "none"],
    ("render", "spec"): lambda odd: ["render", odd],
    ("render", "env_file"): lambda odd: ["render", str(LOCKED), "--as", "compose", "--env-file", odd],
    ("sbom", "spec"): lambda odd: ["sbom", odd],
    ("push", "spec"): lambda odd: ["push", "127.0.0.1:1/x", odd],
    ("add", "spec"): lambda odd: ["add", "numpy", "--spec", odd],
    ("remove", "spec"): lambda odd: ["remove", "numpy", "--spec", odd],
    ("why", "spec"): lambda odd: ["why", "numpy", "--spec", odd],
    ("tree", "spec"): lambda odd: ["tree", odd],
    ("outdated", "spec"): lambda odd: ["outdated", odd],
    ("build", "spec"): lambda odd: ["build", odd],
    ("vendor", "spec"): lambda odd: ["vendor", f"{odd}.new", odd],
    ("up", "spec"): lambda odd: ["up", odd],
    ("probe", "python"): lambda odd: ["probe", "--python", odd],
    ("smoke", "python"): lambda odd: ["smoke", "--python", odd],
    ("smoke", "extra"): lambda odd: ["smoke", *PYTHON, "--test-file", odd],
    ("doctor", "expect"): lambda odd: ["doctor", "--expect", odd],
    ("doctor", "saved"): lambda odd: ["doctor", "--from", odd],
    ("explain", "beside"): lambda odd: ["explain", __file__, "--observations", odd],
    ("explain", "run"): lambda odd: ["explain", __file__, "--run", odd],
    ("preflight", "host"): lambda odd: ["preflight", "--level", "passive", "--host", odd],
    ("preflight", "python"): lambda odd: ["preflight", "--level", "passive", "--python", odd],
    ("preflight", "expect"): lambda odd: ["preflight", "--level", "passive", "--expect", odd],
    ("preflight", "env_file"): lambda odd: ["preflight", "--level", "passive", "--env-file", odd],
    ("run", "spec"): lambda odd: ["run", odd, "--", "true"],
    ("run", "env_file"): lambda odd: ["run", str(LOCKED), "--env-file", odd, "--", "true"],
    ("shell", "spec"): lambda odd: ["shell", "--print", odd],
    ("shell", "env_file"): lambda odd: ["shell", "--print", str(LOCKED), "--env-file", odd],
    ("debug", "core"): lambda odd: ["debug", "--core", odd],
    ("debug", "python"): lambda odd: ["debug", "--precision", "model:make", "--python", odd],
    ("check", "host"): lambda odd: ["check", str(LOCKED / "Dockerfile"), "--host", odd],
    ("check", "baseline"): lambda odd: ["check", str(LOCKED / "Dockerfile"), "--baseline", odd],
    ("check", "fleet"): lambda odd: ["check", str(LOCKED / "Dockerfile"), "--fleet", odd],
    ("check", "config"): lambda odd: ["check", str(LOCKED / "Dockerfile"), "--config", odd],
    ("judge", "saved"): lambda odd: ["judge", odd],
    ("judge", "also"): lambda odd: ["judge", NO_RUN, "--hosts", "n1", "--also", odd],
    ("judge", "contract"): lambda odd: ["judge", NO_RUN, "--hosts", "n1", "--contract", odd],
    ("preflight", "contract"): lambda odd: [*NODE, "--contract", odd],
    ("drain", "run"): lambda odd: ["drain", odd],
    ("drain", "also"): lambda odd: ["drain", NO_RUN, "--hosts", "n1", "--also", odd],
    ("drain", "contract"): lambda odd: ["drain", NO_RUN, "--hosts", "n1", "--contract", odd],
}
# As text of the command line, what is a file or something else.
NAMES: dict[tuple[str, str], Words] = {
    ("check", "paths"): lambda odd: ["check", odd],
    ("audit", "target"): lambda odd: ["audit", odd],
    ("diff", "old"): lambda odd: ["diff", odd, odd],
}
PACKAGES: dict[tuple[str, str], Words] = {
    ("probe", "aoti"): lambda odd: ["probe", *PYTHON, "--aoti", odd],
}
LOGS: dict[tuple[str, str], Words] = {
    ("explain", "logs"): lambda odd: ["explain", odd],
    ("explain", "kernel_log"): lambda odd: ["explain", "--kernel-log", odd],
    ("explain", "rank"): lambda odd: ["explain", "--rank", f"0={odd}"],
}
FOLDERS: dict[tuple[str, str], Words] = {
    ("build", "vendored"): lambda odd: ["build", str(LOCKED), "--from", odd],
    ("probe", "code"): lambda odd: ["probe", *PYTHON, *MODEL, "--code", odd],
    ("probe", "ranks"): lambda odd: ["probe", *PYTHON, *MODEL, "--ranks", odd],
    ("doctor", "root"): lambda odd: ["doctor", "--root", odd],
    ("debug", "code"): lambda odd: ["debug", "--precision", "model:make", *PYTHON, "--code", odd],
    ("check", "context"): lambda odd: ["check", str(LOCKED / "Dockerfile"), "--context", odd],
    ("init", "directory"): lambda odd: ["init", odd],
    ("vendor", "directory"): lambda odd: ["vendor", odd, str(LOCKED)],
    ("debug", "out"): lambda odd: ["debug", "--out", odd, "--", "true"],
    ("judge", "out"): lambda odd: ["judge", NO_RUN, "--hosts", "n1", "--out", odd],
    ("judge", "segments"): lambda odd: ["judge", NO_RUN, "--hosts", "n1", "--segment-health-check", odd],
}
WRITTEN: dict[tuple[str, str], Words] = {
    ("build", "output"): lambda odd: ["build", str(LOCKED), "--output", odd],
    ("up", "report"): lambda odd: ["up", str(LOCKED), "--report", odd],
    ("audit", "save"): lambda odd: ["audit", str(ROOT), "--save", odd],
    ("probe", "save"): lambda odd: ["probe", *PYTHON, "--static", "--save", odd],
    ("smoke", "save"): lambda odd: ["smoke", *PYTHON, "--save", odd],
    ("doctor", "save"): lambda odd: ["doctor", "--save", odd],
    ("preflight", "report"): lambda odd: ["preflight", "--report", odd],
    ("preflight", "termination"): lambda odd: [*NODE, "--termination-log", odd],
    ("check", "write_baseline"): lambda odd: ["check", str(LOCKED / "Dockerfile"), "--write-baseline", odd],
}


def parameters() -> dict[tuple[str, str], click.Parameter]:
    group = typer.main.get_group(cli.app)
    return {(verb, str(each.name)): each for verb, command in group.commands.items() for each in command.params}


def test_every_option_that_names_a_file_has_a_row() -> None:
    paths = {key for key, each in parameters().items() if isinstance(each.type, click.Path)}
    assert paths == {*FILES, *PACKAGES, *FOLDERS, *WRITTEN}
    assert {*NAMES, *LOGS} <= {*parameters()}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Odd files by kind."""
    place = tmp_path_factory.mktemp("odd")
    os.mkfifo(place / "pipe")
    (place / "loop").symlink_to("loop")
    (place / "folder").mkdir()
    (place / "file").write_text("{")
    with (place / "huge").open("wb") as file:
        file.truncate(10 << 30)
        file.seek(0)
        file.write(b"x")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(place / "socket"))
        kinds = {name: str(place / name) for name in ("pipe", "loop", "folder", "huge", "socket")}
        kinds |= {"device": "/dev/zero", "below-a-file": str(place / "file" / "x"), "long": str(place / ("x" * 300))}
        # Plain files by their kind: one waits for the kernel, the other opens and cannot be read.
        odd = {"kernel-log": "/proc/kmsg", "memory": "/proc/self/mem"}
        kinds |= {kind: name for kind, name in odd.items() if os.path.exists(name)}
        if os.geteuid() != 0:
            (place / "secret").write_text("x")
            (place / "secret").chmod(0)
            kinds["unreadable"] = str(place / "secret")
        yield kinds


@contextmanager
def little_memory() -> Iterator[None]:
    """What is forked within may map little more memory than this process has."""
    former = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, former)


@pytest.fixture
def surroundings(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment with an engine that holds nothing."""
    engine = FakeDocker(tmp_path / "engine")
    path = f"{engine.folder / 'bin'}:{os.environ['PATH']}"
    yield {**os.environ, "PATH": path, "DOCKER_HOST": f"unix://{engine.folder / 's'}", "TMPDIR": str(tmp_path)}
    assert engine.builds() == []
    engine.close()


KERNEL = ("kernel-log", "memory")
CASES = {
    "files": (FILES, ()),
    "names": (NAMES, ("folder",)),  # which each of them takes
    "packages": (PACKAGES, ("huge", *KERNEL)),  # which a package may be; what torch cannot read is a finding
    "logs": (LOGS, ("pipe", "huge")),  # a log may come through a pipe and be large
    "folders": (FOLDERS, ("folder", "long")),
    "written": (WRITTEN, ("device", "huge", *KERNEL)),  # a device takes what is written, and a file is replaced
}


@pytest.mark.slow  # starts envkit once for each argument and kind of file
@pytest.mark.parametrize("what", CASES)
def test_an_odd_file_is_one_sentence_at_once(
    what: str, odd: dict[str, str], surroundings: dict[str, str], tmp_path: Path
) -> None:
    rows, fine = CASES[what]
    wrong = []
    with little_memory():
        for (verb, parameter), words in rows.items():
            for kind in odd.keys() - {*fine}:
                done = envkit(*words(odd[kind]), env=surroundings, cwd=tmp_path, timeout=120)
                said = [line for line in done.stderr.splitlines() if line.startswith("envkit: ")]
                sound = done.returncode in (2, 3) and len(said) == 1 and not said[0].endswith(".")
                if not sound or "Traceback" in done.stderr or "Errno" in said[0] or len(done.stderr) > 4000:
                    wrong.append(f"{verb} {parameter} {kind}: {done.returncode} {done.stderr[-1000:]}")
    assert wrong == [], "\n".join(wrong)
    assert stat.S_ISFIFO(os.stat(odd["pipe"]).st_mode)
    assert not Path(odd["below-a-file"]).exists()


def test_a_lock_beside_a_spec_is_read_as_carefully(odd: dict[str, str], tmp_path: Path) -> None:
    """It is named by nobody on the command line: a clone brings it."""
    spec = tmp_path / "envkit.toml"
    spec.write_bytes((LOCKED / "envkit.toml").read_bytes())
    for kind, path in odd.items():
        lock = tmp_path / "envkit.lock"
        lock.unlink(missing_ok=True)
        lock.symlink_to(path)
        with little_memory():
            done = envkit("lock", "--check", str(spec), cwd=tmp_path, timeout=120)
        expected = (1, "") if kind == "long" else (2, "envkit.lock cannot be read: ")
        if kind != "long":  # leads nowhere, so that there is no lock
            assert done.returncode == 2 and expected[1] in done.stderr, (kind, done)
        assert "Traceback" not in done.stderr, done.stderr


def test_a_device_of_the_kernel_is_not_waited_for(tmp_path: Path) -> None:
    """As a log, it would be read for ever without a word, and what is read is gone for its other readers."""
    if not os.access("/proc/kmsg", os.R_OK):
        pytest.skip("/proc/kmsg may not be read here")
    (tmp_path / "link").symlink_to("/proc/kmsg")
    for words in (["/proc/kmsg"], ["--kernel-log", "/proc/kmsg"], ["--rank", "0=/proc/kmsg"], [str(tmp_path / "link")]):
        done = envkit("explain", *words, timeout=60)
        assert done.returncode == 2 and "device of the kernel that never ends" in done.stderr, done
        assert "dmesg" in done.stderr and "Traceback" not in done.stderr
