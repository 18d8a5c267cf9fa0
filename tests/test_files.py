"""A file is written whole or not at all, whatever happens to the disk, the folder or the process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from clocks import comes

from envkit.errors import UsageError
from envkit.system import files


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def child(code: str, *argv: object, wrap: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` with ``files``, ``errors``, ``Path`` and ``argv`` at hand."""
    head = (
        "import sys\nfrom pathlib import Path\nfrom envkit import errors\nfrom envkit.system import files\n"
        "argv = sys.argv[1:]\n"
    )
    command = [*wrap, sys.executable, "-c", head + code, *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_new_file_is_one_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    files.write(path, "größe\n")
    assert path.read_bytes() == "größe\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert left(tmp_path) == ["a.toml"]


def test_a_folder_that_cannot_be_made_is_told_in_a_sentence(tmp_path: Path) -> None:
    assert files.folder(tmp_path / "a" / "b").is_dir() and files.folder(tmp_path / "a").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file/bases cannot be made: Not a directory"):
        files.folder(tmp_path / "file" / "bases")


def test_an_old_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "a"
    files.write(path, "old")
    with path.open() as reader:
        files.write(path, "new")
        assert reader.read() == "old"  # who had it open keeps what it had
    assert path.read_text() == "new"
    assert left(tmp_path) == ["a"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to("target")
    files.write(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """A file in the place of /dev/null or /dev/stdout would take it away from the whole machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files.write(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert left(tmp_path) == ["pipe"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: No such file or directory") as caught:
        files.write(tmp_path / "none" / "a", "x")
    assert str(tmp_path / "none") in caught.value.fix


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(UsageError, match="cannot be written"):
        files.write(tmp_path / "f" / "a", "x")


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        files.write(tmp_path / "a", "x")
    assert left(tmp_path) == ["a"]
    assert left(tmp_path / "a") == []


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    """As a user that no mode bit lets through, for root writes everywhere."""
    tmp_path.chmod(0o755)
    drop = "import os\nif os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    locked = Path("/proc/self/task")  # nobody, root included, makes files there
    done = child(
        drop + "try: files.write(Path(argv[0]), 'x')\nexcept errors.UsageError as error: print(error.message)",
        locked / "a",
    )
    assert "cannot be written" in done.stdout, done.stderr


def test_a_file_size_limit_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: files.write(Path(argv[0]), 'x' * 5000)\n"
        "except errors.EnvkitError as error: print(error.message); sys.exit(error.code)\n"
    )
    done = child(code, path)
    assert done.returncode == 2, done.stderr
    assert f"{path} cannot be written: File too large" in done.stdout
    assert path.read_text() == "old"
    assert left(tmp_path) == ["a"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A file system of 64 KiB, in a mount namespace of its own."""
    can = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "none", str(tmp_path)], capture_output=True, check=False
    )
    if can.returncode != 0:
        pytest.skip(f"no file system of one's own here: {can.stderr.decode().strip()}")
    code = (
        "folder = Path(argv[0])\n"
        "files.write(folder / 'a', 'old')\n"
        "try: files.write(folder / 'a', 'x' * 200_000)\n"
        "except errors.Undecided as error: print(error.message); print(error.fix)\n"
        "print((folder / 'a').read_text(), sorted(path.name for path in folder.iterdir()))\n"
    )
    mount = 'mount -t tmpfs -o size=64k none "$1" && shift && exec "$@"'
    done = child(code, tmp_path, wrap=("unshare", "-rm", "sh", "-c", mount, "sh", str(tmp_path)))
    assert done.returncode == 0, done.stderr
    message, fix, rest = done.stdout.splitlines()
    assert message == f"the disk is full: {tmp_path / 'a'} was not written"
    assert str(tmp_path) in fix
    assert rest == "old ['a']"


@pytest.mark.slow  # 300 MB, to be caught at it
def test_a_signal_on_the_way_leaves_the_old_file_and_nothing_beside(tmp_path: Path) -> None:
    """A real SIGTERM, as soon as the temporary file is there; a big text takes long enough to be caught at it."""
    path = tmp_path / "a"
    path.write_text("old")
    code = (
        "from envkit.system import proc\n"
        "text = 'x' * 300_000_000\n"
        "print('ready', flush=True)\n"
        "try:\n"
        "    with proc.sigterm_raises(): files.write(Path(argv[0]), text)\n"
        "except errors.Interrupted: sys.exit(130)\n"
    )
    head = (
        "import sys\nfrom pathlib import Path\nfrom envkit import errors\nfrom envkit.system import files\n"
        "argv = sys.argv[1:]\n"
    )
    with subprocess.Popen([sys.executable, "-c", head + code, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert comes(lambda: left(tmp_path) != ["a"], 0.001)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 130
    assert path.read_text() == "old"
    assert left(tmp_path) == ["a"]


# Temporary folders.

OWNER = """
import os, time
from envkit.system import files
with files.scratch("lock") as folder, files.scratch("vendor", Path(argv[0])) as other:
    (folder / "inner").mkdir()
    (folder / "inner" / "file").write_text("x" * 1000)
    (folder / "link").symlink_to(argv[1])
    (folder / "inner" / "link").symlink_to(argv[1])
    print(folder, other, flush=True)
    time.sleep(600)
"""
NEXT = """
with files.scratch("build") as folder, files.scratch("vendor", Path(argv[0])) as other:
    print(folder, other)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place for temporary files of the processes that a test starts."""
    made = tmp_path / "tmp"
    made.mkdir()
    monkeypatch.setenv("TMPDIR", str(made))
    return made


def owner(*argv: object) -> tuple[subprocess.Popen[str], Path, Path]:
    """A run that has made its folders, and the folders."""
    head = "import sys\nfrom pathlib import Path\nargv = sys.argv[1:]\n"
    command = [sys.executable, "-c", head + OWNER, *map(str, argv)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    one, other = process.stdout.readline().split()
    return process, Path(one), Path(other)


def test_what_a_killed_run_left_goes_with_the_next_and_what_a_living_one_has_stays(tmp_path: Path, place: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("stays")
    beside = tmp_path / "beside"
    beside.mkdir()
    living, its, its_other = owner(beside, precious)
    killed, left_one, left_other = owner(beside, precious)
    killed.kill()
    killed.communicate()
    assert left_one.is_dir() and left_other.is_dir()
    try:
        assert child(NEXT, beside).returncode == 0
        assert (left(place), left(beside)) == ([its.name], [its_other.name])
        assert (its / "inner" / "file").is_file() and (precious / "file").read_text() == "stays"
        assert stat.S_IMODE(its.stat().st_mode) == 0o700
    finally:
        living.kill()
        living.communicate()
    assert child(NEXT, beside).returncode == 0 and (left(place), left(beside)) == ([], [])
    assert (precious / "file").read_text() == "stays"


def test_a_lock_counts_for_processes_that_do_not_see_the_owner(tmp_path: Path, place: Path) -> None:
    """As in two containers that share /tmp: there the owner's process number is nobody's, or another's."""
    apart = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine gives no PID namespace")
    living, its, _ = owner(tmp_path, tmp_path)
    try:
        done = child("with files.scratch('build'): pass", wrap=apart)
        assert done.returncode == 0, done.stderr
        assert left(place) == [its.name]
    finally:
        living.kill()
        living.communicate()


def test_what_only_looks_like_a_folder_of_envkits_stays(tmp_path: Path, place: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("stays")
    digits = "0123456789abcdef"
    (place / f"envkit-lock-{digits}").symlink_to(precious)
    (place / f"envkit-apt-{digits}").write_text("a file")
    for name in (f"envkit-LOCK-{digits}", f"envkit-lock-{digits}0", f"my-envkit-lock-{digits}", "envkit-lock-mine"):
        (place / name).mkdir()
        (place / name / "file").touch()
    open_to_others = place / f"envkit-base-{digits}"
    open_to_others.mkdir()
    open_to_others.chmod(0o777)
    before = left(place)
    assert child(NEXT, tmp_path).returncode == 0
    assert left(place) == before and (precious / "file").read_text() == "stays"


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's folder can be made by root alone")
def test_another_users_folder_stays(tmp_path: Path, place: Path) -> None:
    foreign = place / "envkit-lock-0123456789abcdef"
    foreign.mkdir(mode=0o700)
    os.chown(foreign, 4711, 4711)
    assert child(NEXT, tmp_path).returncode == 0
    assert left(place) == [foreign.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_folder_in_which_something_is_mounted_stays(tmp_path: Path, place: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("stays")
    inner = place / "envkit-base-0123456789abcdef" / "inner"
    inner.mkdir(parents=True)
    inner.parent.chmod(0o700)
    code = (
        "import subprocess\nsubprocess.run(['mount', '--bind', argv[1], argv[2]], check=True)\n"
        "with files.scratch('build'): pass"
    )
    done = child(code, tmp_path, precious, inner, wrap=("unshare", "--mount"))
    if "permission denied" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("this machine lets nobody mount")
    assert done.returncode == 0, done.stderr
    assert (precious / "file").read_text() == "stays" and inner.is_dir()


def test_runs_that_begin_and_end_beside_one_another_keep_their_folders(tmp_path: Path, place: Path) -> None:
    """Each clears up whatever it finds, while the others make, lock and remove their own."""
    code = """
for number in range(200):
    files._clear.cache_clear()
    with files.scratch("lock") as folder:
        (folder / "file").write_text("mine")
        assert (folder / "file").read_text() == "mine"
"""
    head = "import sys\nfrom pathlib import Path\nfrom envkit.system import files\n"
    runs = [subprocess.Popen([sys.executable, "-c", head + code], stderr=subprocess.PIPE, text=True) for _ in range(4)]
    ends = [run.communicate(timeout=300)[1] for run in runs]
    assert ends == [""] * 4 and left(place) == []


def test_threads_that_go_on_while_a_run_ends_leave_no_folder(tmp_path: Path, place: Path) -> None:
    """As at a stop: the main thread clears up while others make folders, write into them, and begin again."""
    code = """
import atexit, os, threading, time
from contextlib import suppress
def work():
    while True:
        with files.scratch("lock") as folder:
            for number in range(50):
                with suppress(FileNotFoundError):
                    (folder / str(number)).mkdir()
threading.excepthook = lambda lost: None
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
while not any(os.scandir(os.environ["TMPDIR"])):
    time.sleep(0.001)
atexit._run_exitfuncs()
time.sleep(0.05)
os._exit(0)
"""
    for _ in range(5):
        done = child(code)
        assert (done.returncode, done.stderr, left(place)) == (0, "", [])


def test_every_temporary_folder_of_envkits_own_process_is_made_by_one_function() -> None:
    here = Path(files.__file__).parent
    others = [file for file in here.rglob("*.py") if "payload" not in file.parts and file.name != "files.py"]
    named = ("mkdtemp", "TemporaryDirectory", "NamedTemporaryFile", "mkstemp")
    assert [(str(file), name) for file in others for name in named if name in file.read_text()] == []
