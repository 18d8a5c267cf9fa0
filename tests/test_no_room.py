"""A disk that is full, a limit on a file's size, a read-only folder: one sentence that names the place, code 2 or 3,
nothing lost and nothing half-written.  On real file systems of 128 KiB, in mount namespaces of their own.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import forked
import pytest
from index import Index, Publish

from envkit.engine import debian
from envkit.errors import Undecided
from envkit.system import no_room, proc
from envkit.system.proc import Completed

IMAGE = Path(__file__).parent.parent / "images" / "torch-2.6-cu124"
LIMIT = 512  # bytes: `ulimit -f 1`
NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000  # <linux/sched.h>: CLONE_NEWNS, CLONE_NEWUSER
# $1 the folder, $2 what it is to become, $3 where its files come from.
SETUP = """
mount --make-rprivate /
[ $2 = limited ] || mount -t tmpfs -o size=128k none "$1"
cp -r "$3"/. "$1"
[ $2 != full ] || head -c 1000000 /dev/zero > "$1/fill" 2>/dev/null || :
[ $2 != readonly ] || mount -o remount,ro "$1"
"""


@dataclass(frozen=True)
class Ended:
    """The exit code and the streams of a run, and what lay in the folder before and after it."""

    code: int
    out: str
    err: str
    before: dict[str, bytes]
    after: dict[str, bytes]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def within(
    tmp_path: Path, state: str, *argv: object, before: Callable[[], object] | None = None, **environment: str
) -> Ended:
    """Runs envkit while the folder ``place`` is "full", "readonly" or, for files above 512 bytes, "limited"."""
    place, given, kept = tmp_path / "place", tmp_path / "given", tmp_path / "kept"
    for folder in (place, given):
        folder.mkdir(exist_ok=True)
    words = [str(word).replace("PLACE", str(place)) for word in argv]
    env = {**os.environ, **{name: value.replace("PLACE", str(place)) for name, value in environment.items()}}
    if state == "limited":  # no error comes of a compiled module that is cut short, and half of it would stay
        env["PYTHONDONTWRITEBYTECODE"] = "1"
    told = tmp_path / "told.json"
    pid = os.fork()
    if pid == 0:  # whose mounts are its own and go with it
        try:
            alone()
            subprocess.run(["sh", "-eu", "-c", SETUP, "sh", place, state, given], check=True, timeout=60)
            told.write_text(json.dumps(run(words, env, limit if state == "limited" else before)))
            if state == "full":
                (place / "fill").unlink()
            shutil.copytree(place, kept, symlinks=True)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)
    assert os.waitpid(pid, 0)[1] == 0
    return Ended(*json.loads(told.read_text()), contents(given), contents(kept))


def alone() -> None:
    """Gives this process mounts of its own; without root it is root in a user namespace of its own."""
    user, group = os.geteuid(), os.getegid()
    flags = NEW_MOUNTS if user == 0 else NEW_MOUNTS | NEW_USER
    if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if user != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            Path(f"/proc/self/{name}").write_text(text)


def limit() -> None:
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))


def run(words: list[str], env: dict[str, str], before: Callable[[], object] | None) -> tuple[int, str, str]:
    """envkit's exit code and streams, which are pipes: a limit on a file's size does not hold for them."""
    pipes = [os.pipe() for _ in range(2)]
    for read, _ in pipes:
        fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, 1 << 20)  # what it says fits, so that nobody has to read meanwhile
    out, err = (os.fdopen(write, "wb") for _, write in pipes)
    code = forked.envkit(*words, env=env, timeout=300, stdout=out, stderr=err, before=before).returncode
    said = []
    for (read, _), written in zip(pipes, (out, err), strict=True):
        written.close()
        with os.fdopen(read, encoding="utf-8") as stream:
            said.append(stream.read())
    return code, said[0], said[1]


@pytest.fixture(scope="module", autouse=True)
def mounts() -> None:
    pid = os.fork()
    if pid == 0:
        try:
            alone()
            subprocess.run(["mount", "-t", "tmpfs", "none", "/mnt"], check=True, timeout=60)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)
    if os.waitpid(pid, 0)[1] != 0:
        pytest.skip("no file system may be mounted here")


def one_sentence(ended: Ended, *names: str) -> None:
    """A refusal: one line and its fix, which name the place; the files are what they were."""
    assert ended.code in (2, 3), ended.err
    assert "Traceback" not in ended.err
    (line,) = [line for line in ended.err.splitlines() if line.startswith("envkit: ")]
    assert any(name in line for name in names), line
    assert not line.endswith(".")
    assert "\n  fix: " in ended.err
    assert {name: ended.after.get(name) for name in ended.before} == ended.before
    assert [name for name in ended.after if name not in ended.before and not name.startswith("debug/")] == []


# What is written where somebody said.

WRITERS = [
    ("init", "PLACE"),
    ("render", IMAGE, "-o", "PLACE/Dockerfile"),
    ("render", IMAGE, "--as", "compose", "-o", "PLACE/compose.yaml"),
    ("doctor", "--budget", "2", "--save", "PLACE/host.json"),
    ("probe", "--static", "--save", "PLACE/probe.json"),
    ("audit", IMAGE, "--save", "PLACE/audit.json"),
    ("check", "PLACE/Dockerfile", "--fix"),
    ("check", "PLACE/Dockerfile", "--write-baseline", "PLACE/baseline.json"),
    ("preflight", "--level", "passive", "--report", "PLACE/report.json"),
    ("debug", "--out", "PLACE/debug", "--", sys.executable, "-c", "raise SystemExit('x' * 100000)"),
]


@pytest.mark.slow  # starts envkit once for each verb and kind of limit
@pytest.mark.parametrize("state", ["full", "limited", "readonly"])
@pytest.mark.parametrize("words", WRITERS, ids=lambda words: " ".join(map(str, words[:1] + words[-1:]))[:40])
def test_what_does_not_fit_is_told_and_nothing_is_lost(words: tuple[object, ...], state: str, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "Dockerfile").write_text(
        "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\n" + "# a comment\n" * 60
        + "RUN pip install --extra-index-url https://download.pytorch.org/whl/cu124 torch\n"
        + "RUN apt-get update && apt-get install -y git\n"
    )  # fmt: skip
    ended = within(tmp_path, state, *words)
    # The limit holds for every file, and the first one that a probe writes is a temporary one.
    one_sentence(ended, str(tmp_path / "place"), *([tempfile.gettempdir()] if state == "limited" else []))


@pytest.mark.parametrize("state", ["full", "readonly"])
def test_a_lock_that_does_not_fit_leaves_the_old_one(state: str, tmp_path: Path, published: Publish) -> None:
    published("2.6.0", "3.11", "nvidia-cudnn-cu12")
    given = tmp_path / "given"
    given.mkdir()
    (given / "envkit.toml").write_text('torch = "2.6.0"\npython = "3.11"\n')
    (given / "envkit.lock").write_bytes((IMAGE / "envkit.lock").read_bytes())
    weak = ("--engine", "none", "--allow-unpinned", "os", "--allow-unpinned", "base")
    ended = within(tmp_path, state, "lock", "PLACE", *weak)
    one_sentence(ended, str(tmp_path / "place"))


# Where temporary files go, and caches.


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="this machine has no apt-get")
@pytest.mark.parametrize("state", ["full", "readonly", "limited"])
@pytest.mark.parametrize("variable", ["TMPDIR", "UV_CACHE_DIR", "XDG_CACHE_HOME"])
@pytest.mark.usefixtures("no_mirrors")
def test_a_lock_without_room_for_its_work_is_no_conflict_and_loses_nothing(
    variable: str, state: str, tmp_path: Path, published: Publish, index: Index
) -> None:
    """The solver that cannot write is not told as one that found no solution."""
    published("2.6.0", "3.11", "nvidia-cudnn-cu12", "numpy")
    index.add("numpy", "2.2.0")
    job = tmp_path / "job"
    job.mkdir()
    for name in ("envkit.toml", "envkit.lock"):
        (job / name).write_bytes((IMAGE / name).read_bytes())
    before = contents(job)
    ended = within(tmp_path, state, "lock", job, "--upgrade", "--engine", "none", **{variable: "PLACE"})
    assert ended.code in (2, 3), ended.err
    assert "Traceback" not in ended.err and "no set of wheels" not in ended.err
    assert ended.err.count("envkit: ") == 1 and "\n  fix: " in ended.err
    assert contents(job) == before


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="this machine has no apt-get")
def test_an_apt_get_that_cannot_write_is_not_taken_for_one_without_mirrors(tmp_path: Path) -> None:
    """Which is how a full TMPDIR once replaced 156 pinned packages by names."""

    def asks() -> None:
        try:
            debian.sources("bookworm")
        except Undecided as error:
            print(type(error).__name__, error.message, flush=True)
        os._exit(0)

    ended = within(tmp_path, "full", before=asks, TMPDIR="PLACE")
    assert ended.out.startswith("NoRoom the disk is full: apt-get could not write to "), (ended.out, ended.err)
    assert str(tmp_path / "place") in ended.out


@pytest.mark.slow  # starts envkit twice for each verb
@pytest.mark.parametrize(
    "words", [("check", IMAGE), ("doctor", "--budget", "2"), ("probe", "--static"), ("facts", "x")]
)
def test_a_verb_that_needs_no_room_says_the_same_without(words: tuple[object, ...], tmp_path: Path) -> None:
    plain = forked.envkit(*map(str, words), timeout=300)
    ended = within(tmp_path, "full", *words, TMPDIR="PLACE")
    assert (ended.code, "Traceback" in ended.err) == (plain.returncode, False), ended.err


# How it is known.


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EFBIG, "the limit on a file's size is reached"),
        (errno.EROFS, "the file system is read-only"),
    ],
)
def test_a_write_of_envkits_own_names_its_place(number: int, cause: str, tmp_path: Path) -> None:
    named = no_room.refusal(OSError(number, os.strerror(number), "/srv/a"))
    assert named is not None and named.message.startswith(cause) and named.message.endswith(" to /srv/a")
    bare = no_room.refusal(OSError(number, os.strerror(number)), (tmp_path,))
    assert bare is not None and bare.message.endswith(f" to {tmp_path}") and bare.fix
    assert no_room.refusal(OSError(errno.EACCES, "Permission denied")) is None


def test_a_process_that_may_open_no_more_files_says_its_limit() -> None:
    found = no_room.refusal(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert found is not None and found.message == f"this process may have {most} files open, and needs more"
    assert "ulimit -n" in found.fix


def ended(text: str, exit: int = 1) -> Completed:
    return Completed(("x",), exit, "", text)


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (ended("E: Unable to mkstemp /t/x.1 - mkstemp (28: No space left on device)", 100), "full: x could.* /t/x.1"),
        (ended("error: failed to open file `/c/a`: File too large (os error 27)"), "size is reached.* to /c/a"),
        (ended("Disk quota exceeded (os error 122)"), "quota is used up: x could not write to /p"),
        (ended("cp: cannot create regular file '/r/a': Read-only file system"), "read-only: x could not write to /r/a"),
        (ended("", -signal.SIGXFSZ), "size is reached.*: x could not write to /p"),
    ],
)
def test_a_program_without_room_is_known_by_its_words_or_its_signal(done: Completed, said: str) -> None:
    import re

    found = no_room.refused(done, "x", ("/p",))
    assert found is not None and re.search(said, found.message), found


@pytest.mark.parametrize(
    "done",
    [
        ended("No space left on device", 0),  # it went on
        ended("No solution found when resolving dependencies: because a==1 and b==2 need files of another disk"),
        ended("", -signal.SIGKILL),
        ended(""),
    ],
)
def test_what_is_no_want_of_room_is_not_taken_for_one(done: Completed) -> None:
    assert no_room.refused(done, "x") is None


def test_a_child_at_the_limit_is_known_by_its_signal(tmp_path: Path) -> None:
    """Python ignores SIGXFSZ and its children do not, so that they die without a word."""
    shell = 'ulimit -f 1; exec head -c 100000 /dev/zero > "$0"'
    done = proc.run(["sh", "-c", shell, str(tmp_path / "x")], timeout_s=60)
    assert (done.exit, done.stderr) == (-signal.SIGXFSZ, "")
    assert no_room.refused(done, "head") is not None
