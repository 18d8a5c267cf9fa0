"""The engine without an engine, with a wheel made here: real uv, no network."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from clocks import PATIENCE_S, comes

from envkit.engine import BaseRequest, BuildRequest, BuiltImage
from envkit.engine.local import ISOLATION_LABEL, LocalEngine
from envkit.errors import Undecided, UsageError

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def quiet(line: str) -> None:
    pass


def wheel(directory: Path, version: str) -> Path:
    """A wheel of the package ``tiny`` that knows its version and has a console script."""
    path = directory / f"tiny-{version}-py3-none-any.whl"
    info = f"tiny-{version}.dist-info"
    files = {
        "tiny.py": f"VERSION = '{version}'\n\ndef main():\n    print(VERSION)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntiny = tiny:main\n",
    }
    rows = [f"{info}/RECORD,,"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(text)}")
        archive.writestr(f"{info}/RECORD", "\n".join(rows) + "\n")
    return path


def context(directory: Path, version: str = "1.0", digest: str = "") -> Path:
    """A context whose requirements name the wheel by its hash (or by ``digest``)."""
    directory.mkdir(exist_ok=True)
    made = wheel(directory, version)
    digest = digest or hashlib.sha256(made.read_bytes()).hexdigest()
    (directory / "requirements.txt").write_text(
        f"--no-index\n--find-links {directory}\ntiny=={version} --hash=sha256:{digest}\n"
    )
    return directory


@pytest.fixture
def local(tmp_path: Path) -> LocalEngine:
    return LocalEngine(tmp_path / "root")


def build(engine: LocalEngine, where: Path, tag: str, python: str = PYTHON) -> BuiltImage:
    return engine.build(BuildRequest(where, tag, 120, args={"PYTHON": python}, labels={"a": "b"}), quiet)


SAY = b"import sys, tiny\nprint(tiny.VERSION, sys.argv[1:], sys.prefix)\nprint('talk', file=sys.stderr)\nsys.exit(3)\n"


def test_a_python_that_this_machine_lacks_is_named(
    local: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    with pytest.raises(Undecided, match=r"^this machine has no Python 3\.7\.1, and uv could not get one: ") as caught:
        build(local, context(tmp_path / "c"), "one:1", python="3.7.1")
    assert caught.value.fix == "install python3.7.1, or use --engine docker"
    assert not list((tmp_path / "root" / "venvs").glob(".making-*"))


def test_build_then_run(local: LocalEngine, tmp_path: Path) -> None:
    built = build(local, context(tmp_path / "c"), "one:1")
    assert built.id.startswith("venv:") and built.size_bytes > 1000
    assert local.labels("one:1") == {"a": "b", ISOLATION_LABEL: "none"}
    said: list[str] = []
    run = local.run("one:1", ["probe"], payload=SAY, timeout_s=60, say=said.append)
    version, rest = run.stdout.strip().split(" ", 1)
    assert (run.exit, version, said) == (3, "1.0", ["talk"])
    assert "['probe', '--watch-stdin']" in rest and str(tmp_path / "root" / "venvs") in rest


def test_console_scripts_survive_the_rename(local: LocalEngine, tmp_path: Path) -> None:
    built = build(local, context(tmp_path / "c"), "one:1")
    script = tmp_path / "root" / "venvs" / built.id.removeprefix("venv:") / "bin" / "tiny"
    assert subprocess.run([script], capture_output=True, text=True, check=True).stdout == "1.0\n"


def test_same_requirements_are_installed_once(local: LocalEngine, tmp_path: Path) -> None:
    first = build(local, context(tmp_path / "c"), "one:1")
    said: list[str] = []
    second = local.build(BuildRequest(tmp_path / "c", "two:1", 60, args={"PYTHON": PYTHON}), said.append)
    assert second.id == first.id and len(said) == 1 and "is here already" in said[0]
    local.remove("one:1")
    assert local.run("two:1", [], payload=SAY, timeout_s=60, say=quiet).exit == 3
    local.remove("two:1")
    assert not list((tmp_path / "root" / "venvs").glob("*/bin"))
    with pytest.raises(UsageError, match="no environment two:1"):
        local.labels("two:1")


def test_wheel_that_is_not_the_locked_one(local: LocalEngine, tmp_path: Path) -> None:
    build(local, context(tmp_path / "good"), "one:1")
    with pytest.raises(Undecided, match="is not the one the lock holds"):
        build(local, context(tmp_path / "bad", digest="0" * 64), "one:1")
    assert local.run("one:1", [], payload=SAY, timeout_s=60, say=quiet).stdout.startswith("1.0 ")
    assert not list((tmp_path / "root" / "venvs").glob(".making-*"))


@pytest.mark.slow  # several virtual environments
def test_ruin_of_a_killed_build_is_made_anew(local: LocalEngine, tmp_path: Path) -> None:
    built = build(local, context(tmp_path / "c"), "one:1")
    venv = tmp_path / "root" / "venvs" / built.id.removeprefix("venv:")
    (venv / "envkit-complete.json").unlink()
    with pytest.raises(UsageError, match="no environment one:1"):
        local.run("one:1", [], payload=SAY, timeout_s=60, say=quiet)
    (venv.parent / f".making-{venv.name}" / "venv").mkdir(parents=True)
    build(local, tmp_path / "c", "one:1")
    assert local.run("one:1", [], payload=SAY, timeout_s=60, say=quiet).exit == 3


def test_two_at_once_make_one(local: LocalEngine, tmp_path: Path) -> None:
    context(tmp_path / "c")
    made: list[str] = []
    both = [
        threading.Thread(target=lambda tag=tag: made.append(build(local, tmp_path / "c", tag).id))
        for tag in ("one:1", "two:1")
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(made) == 2 and len(set(made)) == 1


def test_no_requirements_and_no_python(local: LocalEngine, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"requirements\.txt does not exist"):
        build(local, tmp_path, "one:1")
    with pytest.raises(UsageError, match="which python"):
        build(local, context(tmp_path / "c"), "one:1", python="")


def test_run_has_a_budget_and_sees_no_gpu(local: LocalEngine, tmp_path: Path) -> None:
    build(local, context(tmp_path / "c"), "one:1")
    body = b"import os, time\nprint(repr(os.environ['CUDA_VISIBLE_DEVICES']), flush=True)\ntime.sleep(600)\n"
    run = local.run("one:1", [], payload=body, timeout_s=3, say=quiet)
    assert run.timed_out and run.stdout == "''\n" and run.exit == -signal.SIGTERM
    chosen = local.run("one:1", [], payload=body, gpus=("1", "0"), timeout_s=3, say=quiet)
    assert chosen.stdout == "'1,0'\n"


def test_stdin_stays_open_while_envkit_lives(local: LocalEngine, tmp_path: Path) -> None:
    build(local, context(tmp_path / "c"), "one:1")
    body = b"import select, sys\nprint(select.select([sys.stdin], [], [], 0.5)[0])\n"
    assert local.run("one:1", [], payload=body, timeout_s=60, say=quiet).stdout == "[]\n"


DRIVER = """
import sys
import time
from pathlib import Path
from envkit.engine.local import LocalEngine
LocalEngine(Path(sys.argv[1])).run("one:1", [], payload=Path(sys.argv[2]).read_bytes(), timeout_s=600, say=print)
"""


def test_payload_dies_with_a_killed_envkit(local: LocalEngine, tmp_path: Path) -> None:
    build(local, context(tmp_path / "c"), "one:1")
    file = tmp_path / "payload.py"
    # Deaf to SIGTERM, so that only the end of its stdin can end it.
    file.write_text(
        "import os, signal, sys, threading\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), file=sys.stderr, flush=True)\n"
        "os.read(0, 1)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", DRIVER, str(tmp_path / "root"), str(file)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    folder = Path(os.readlink(f"/proc/{pid}/cwd"))
    watch = os.pidfd_open(pid)
    process.kill()
    process.wait(120)
    assert select.select([watch], [], [], PATIENCE_S)[0], "the payload outlived envkit"
    os.close(watch)
    process.stdout.close()
    assert comes(lambda: not folder.exists()), "the folder of the run outlived envkit"


def test_base_is_this_machine(local: LocalEngine) -> None:
    found = local.resolve_base(BaseRequest("debian:bookworm-slim", "bookworm"), quiet)
    assert (found.how, found.sha256) == ("local", "") and ":" in found.ref


def test_what_only_an_image_has_is_refused(local: LocalEngine, tmp_path: Path) -> None:
    build(local, context(tmp_path / "c"), "one:1")
    saved = tmp_path / "base.tar"
    for ask, told in (
        (lambda: local.layers("one:1"), "has no layers"),
        (lambda: local.file("one:1", "/etc/os-release"), "is no image"),
        (lambda: local.save("one:1", saved), "is no image"),
        (lambda: local.load(saved, BaseRequest("debian:bookworm-slim", "bookworm")), "needs a container engine"),
    ):
        with pytest.raises(UsageError, match=told) as caught:
            ask()
        assert "--engine docker" in caught.value.fix
    assert not saved.exists()


def test_removed_python_is_told(local: LocalEngine, tmp_path: Path) -> None:
    build(local, context(tmp_path / "c"), "one:1")
    record = json.loads(next((tmp_path / "root" / "tags").glob("*.json")).read_text())
    assert record["tag"] == "one:1"
    (tmp_path / "root" / "venvs" / record["venv"] / "bin" / "python3").unlink()
    with pytest.raises(Undecided, match="has no python3"):
        local.run("one:1", [], payload=SAY, timeout_s=60, say=quiet)
