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

from envkit import files
from envkit.errors import UsageError


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def child(code: str, *argv: object, wrap: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` with ``files``, ``errors``, ``Path`` and ``argv`` at hand."""
    head = "import sys\nfrom pathlib import Path\nfrom envkit import errors, files\nargv = sys.argv[1:]\n"
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
        "from envkit import proc\n"
        "text = 'x' * 300_000_000\n"
        "print('ready', flush=True)\n"
        "try:\n"
        "    with proc.sigterm_raises(): files.write(Path(argv[0]), text)\n"
        "except errors.Interrupted: sys.exit(130)\n"
    )
    head = "import sys\nfrom pathlib import Path\nfrom envkit import errors, files\nargv = sys.argv[1:]\n"
    with subprocess.Popen([sys.executable, "-c", head + code, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert comes(lambda: left(tmp_path) != ["a"], 0.001)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 130
    assert path.read_text() == "old"
    assert left(tmp_path) == ["a"]
