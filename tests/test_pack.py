"""The zip that enters an image: equal bytes, old Pythons, one document, and no life without its client."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import platform
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from clocks import comes, ends
from gathered import gathered
from processes import named

import envkit
from envkit.runner.pack import pack

OLD = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3"))
PYTHONS = [path for path in OLD if int(path.parts[-3].split(".")[1]) >= 8]
TOO_OLD = [path for path in OLD if path not in PYTHONS]


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pack") / "envkit.pyz"
    path.write_bytes(pack())
    path.chmod(0o444)
    return path


def run(*argv: object, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in argv],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
    )


def test_the_same_sources_give_the_same_bytes_whatever_the_clock_and_the_directory_order() -> None:
    first = pack()
    time.sleep(0.01)
    assert hashlib.sha256(first).digest() == hashlib.sha256(pack()).digest()
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        names = archive.namelist()
        assert names == sorted(names)
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert "envkit/payload/probe/inner.py" in names
        assert {"envkit/payload/smoke/kernels/nvrtc_timer.cu", "envkit/payload/smoke/driver_only/add.ptx"} < {*names}
        assert not [name for name in names if "checks" in name or "cli" in name or "companion" in name]
    # It goes into a container at each run: 340 KB take 4 ms, and half of it less than one less.
    assert len(first) <= 1280 * 1024


def test_a_kernel_is_read_out_of_the_zip(pyz: Path) -> None:
    ask = "from envkit.payload.smoke.sources import text_of; print(text_of('driver_only/add.ptx'))"
    assert ".visible .entry ptx_add(" in run(sys.executable, "-S", "-c", ask, PYTHONPATH=str(pyz)).stdout


def sources() -> list[Path]:
    return sorted((Path(envkit.__file__).parent / "payload").rglob("*.py"))


@gathered(sources())
def test_every_member_is_python_3_8_and_imports_the_standard_library_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    at_import = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in at_import:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in names:
            assert name.startswith("envkit.payload") or name.split(".")[0] in sys.stdlib_module_names, name


@pytest.mark.slow  # a whole probe by every Python there is
@pytest.mark.skipif(not PYTHONS, reason="no other Python is installed under ~/.pyenv/versions")
@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])
def test_it_runs_under_other_pythons(pyz: Path, python: Path) -> None:
    assert run(python, pyz, "--help").returncode == 0
    done = run(python, pyz, "probe")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["image"]["python"]["value"] == python.parts[-3]
    assert document["payload_sha256"] == hashlib.sha256(pyz.read_bytes()).hexdigest()
    assert (document["schema"], document["kind"]) == ("envkit.payload/1", "probe")
    assert done.stderr == ""


@pytest.mark.skipif(not TOO_OLD, reason="no Python older than 3.8 is installed under ~/.pyenv/versions")
@pytest.mark.parametrize("python", TOO_OLD, ids=lambda path: path.parts[-3])
def test_an_older_python_is_told_so_and_prints_no_document(pyz: Path, python: Path) -> None:
    done = run(python, pyz, "probe", "--nonce", "n")
    (said,) = [json.loads(line) for line in done.stdout.splitlines() if line]
    assert said["began"]["python"] == python.parts[-3] and said["began"]["libc"].startswith("glibc ")
    assert (said["nonce"], done.returncode, done.stderr) == ("n", 3, "")
    assert run(python, pyz, "probe").stderr.startswith(f"this is Python {python.parts[-3]} on glibc")


def test_the_first_line_says_which_python_it_is(pyz: Path) -> None:
    done = run(sys.executable, pyz, "probe", "--static", "--nonce", "n")
    first, last = [json.loads(line) for line in done.stdout.splitlines() if line]
    assert first["began"] == {"python": platform.python_version(), "libc": " ".join(platform.libc_ver())}
    assert first["nonce"] == last["nonce"] == "n"
    assert last["payload_sha256"] == hashlib.sha256(pyz.read_bytes()).hexdigest()


@pytest.mark.parametrize("words", [[], ["prob"], ["probe", "--budget", "soon"], ["probe", "all"]])
def test_wrong_usage_is_code_2_and_prints_no_document(pyz: Path, words: list[str]) -> None:
    done = run(sys.executable, pyz, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage:" in done.stderr


SLOW_TORCH = "import os, subprocess, sys, time\nsubprocess.Popen(['sleep', '{mark}'], {how})\nopen({flag!r}, 'w')\n"


def slow_environment(directory: Path, mark: str, how: str) -> dict[str, str]:
    """A torch whose import starts a grandchild and then hangs."""
    text = SLOW_TORCH.format(mark=mark, how=how, flag=str(directory / "started")) + "time.sleep(600)\n"
    (directory / "torch.py").write_text(text)
    return {"PYTHONPATH": str(directory)}


def test_a_run_that_is_not_to_watch_its_stdin_goes_on_without_one(pyz: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(1)\nraise ImportError('awake')\n")
    done = subprocess.run(
        [sys.executable, str(pyz), "probe"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "awake" in json.dumps(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("how", ["", "preexec_fn=os.setpgrp"], ids=["same-group", "own-group"])
def test_everything_dies_when_the_client_goes(pyz: Path, tmp_path: Path, how: str) -> None:
    mark = f"98765.{os.getpid()}{len(how)}"
    process = subprocess.Popen(
        [sys.executable, str(pyz), "probe", "--watch-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **slow_environment(tmp_path, mark, how)},
    )
    assert process.stdin is not None
    assert comes((tmp_path / "started").exists)
    assert comes(lambda: named(mark))  # the kernel shows the words of a process a moment after it began
    process.stdin.close()
    assert process.wait(120) == 128 + signal.SIGKILL
    assert process.stdout is not None
    assert process.stdout.read() == b""
    assert comes(lambda: not named(mark)), named(mark)
    process.stdout.close()
    assert process.stderr is not None
    assert b"the client is gone" in process.stderr.read()
    process.stderr.close()


def test_nothing_stays_when_nobody_can_be_told_any_more(pyz: Path, tmp_path: Path) -> None:
    """A client that is killed closes the pipe of stderr too; shared memory has lost its owner then."""
    mark = f"65432.{os.getpid()}"
    shared = Path(f"/dev/shm/sem.mp-{mark}")
    environment = slow_environment(tmp_path, mark, "start_new_session=True")
    torch = tmp_path / "torch.py"
    torch.write_text(f"open({str(shared)!r}, 'w').close()\n" + torch.read_text())
    process = subprocess.Popen(
        [sys.executable, str(pyz), "probe", "--watch-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    assert comes((tmp_path / "started").exists)
    assert comes(lambda: named(mark)) and shared.exists()
    for pipe in (process.stdout, process.stderr, process.stdin):
        assert pipe is not None
        pipe.close()
    assert process.wait(120) == 128 + signal.SIGKILL
    assert not named(mark)
    assert not shared.exists()


def test_everything_dies_on_sigterm_which_a_containers_first_process_must_handle(pyz: Path, tmp_path: Path) -> None:
    mark = f"76543.{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, str(pyz), "probe", "--budget", "100"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **slow_environment(tmp_path, mark, "")},
    )
    assert comes((tmp_path / "started").exists)
    process.terminate()
    assert process.wait(120) == 128 + signal.SIGTERM
    assert comes(lambda: not named(mark)), named(mark)


@pytest.mark.slow  # the budget is waited for
def test_everything_dies_when_the_budget_is_spent(pyz: Path, tmp_path: Path) -> None:
    mark = f"87654.{os.getpid()}"
    started = time.monotonic()
    with ends():
        done = run(sys.executable, pyz, "probe", "--budget", "3", **slow_environment(tmp_path, mark, ""))
    assert done.returncode == 128 + signal.SIGKILL
    assert time.monotonic() - started > 2.5
    assert "budget of 3 s" in done.stderr
    assert comes(lambda: not named(mark)), named(mark)


def test_the_watch_does_not_disturb_a_run_that_ends(pyz: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(pyz), "probe", "--watch-stdin", "--budget=100"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("noise that is not the end\n")
    process.stdin.flush()
    document = json.loads(process.stdout.read().splitlines()[-1])
    assert process.wait(120) == 0
    process.stdin.close()
    process.stdout.close()
    assert document["kind"] == "probe"
