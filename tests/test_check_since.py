"""`envkit check --since`: what differs from a commit, read from real repositories of git's as data."""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from inline import Envkit

from envkit.errors import UsageError
from envkit.static import since
from envkit.static.since import _applied, _Broken, _Commit, _inflated

DOCKERFILE = "FROM python:3.11-slim\nCOPY requirements.txt .\nRUN pip install --no-cache-dir -r requirements.txt\n"
WHO = ("-c", "user.name=a", "-c", "user.email=a@example.org")


@pytest.fixture
def envkit(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Envkit]:
    monkeypatch.chdir(tmp_path)
    with Envkit(capsys, "check", "--quiet") as run:
        yield run


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *WHO, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def repository(folder: Path, *options: str) -> None:
    """Two Dockerfiles with a list each, on main."""
    git(folder, "init", "-q", "-b", "main", *options)
    for name, listed in (("a", "requirements.txt"), ("b", "other-requirements.txt")):
        (folder / name).mkdir()
        (folder / name / "Dockerfile").write_text(DOCKERFILE.replace("requirements.txt", listed))
        (folder / name / listed).write_text("numpy\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")


def test_nothing_changed_is_nothing_to_judge(envkit: Envkit, tmp_path: Path) -> None:
    repository(tmp_path)
    assert envkit("--since", "main").code == 0


def test_a_changed_list_is_judged_with_the_dockerfile_that_installs_it(envkit: Envkit, tmp_path: Path) -> None:
    """The finding of the list is given, the other Dockerfile is not judged; without --since both are."""
    repository(tmp_path)
    (tmp_path / "a" / "requirements.txt").write_text("torch>=2.0\n")
    (tmp_path / "b" / "Dockerfile").touch()
    ended = envkit("--since", "main", "--fail-on", "warning")
    assert ended.code == 1 and "unpinned-torch" in ended.out
    found = since.changed(tuple((path, "") for path in sorted(tmp_path.glob("[ab]/*"))), "main")
    assert [path.relative_to(tmp_path).as_posix() for path, _ in found] == ["a/Dockerfile", "a/requirements.txt"]


@pytest.mark.parametrize("change", ["a script", "a new file", "a file that is gone", "a project"])
def test_what_a_dockerfile_hangs_on(tmp_path: Path, change: str) -> None:
    repository(tmp_path)
    (tmp_path / "a" / "setup.sh").write_text("pip install torch==2.6.0\n")
    (tmp_path / "a" / "Dockerfile").write_text(
        "FROM python:3.11-slim\nCOPY . /app\nRUN sh setup.sh && pip install /app\n"
    )
    (tmp_path / "a" / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\n')
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "two")
    paths = ((tmp_path / "a" / "Dockerfile", "dockerfile"), (tmp_path / "b" / "Dockerfile", "dockerfile"))
    assert not since.changed(paths, "main")
    if change == "a script":
        (tmp_path / "a" / "setup.sh").write_text("pip install torch==2.5.0\n")
    elif change == "a new file":
        (tmp_path / "setup.sh").write_text("true\n")
    elif change == "a file that is gone":
        (tmp_path / "a" / "setup.sh").unlink()
    else:
        project = tmp_path / "a" / "pyproject.toml"
        project.write_text(project.read_text() + 'dependencies = ["torch"]\n')
        paths = (*paths, (project, "pyproject"))
    assert paths[0] in since.changed(paths, "main")
    assert paths[1] not in since.changed(paths, "main")


@pytest.mark.parametrize("options", [(), ("--object-format=sha256",)])
def test_objects_are_read_as_git_reads_them(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Loose ones and those of packs, whole and as chains of deltas: every file of every commit has git's own name."""
    repository(tmp_path, *options)
    text = [f"line {number} of a list that changes a little each time\n" for number in range(400)]
    for number in range(12):
        text[number * 30] = f"changed {number}\n"
        (tmp_path / "a" / "long.txt").write_text("".join(text))
        (tmp_path / f"new{number}").mkdir()
        (tmp_path / f"new{number}" / "requirements.txt").write_text(f"torch==2.{number}.0\n")
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", str(number))
    git(tmp_path, "tag", "-a", "-m", "a tag", "v1", "HEAD~3")
    for packed in (False, True):
        if packed:
            git(tmp_path, "gc", "-q", "--aggressive")
        for word in ("HEAD", "main", "v1", git(tmp_path, "rev-parse", "HEAD~7").strip()):
            commit = _Commit.of(tmp_path, word)
            listed = git(tmp_path, "ls-tree", "-r", "-z", word).split("\0")[:-1]
            assert len(listed) >= 8
            for row in listed:
                name, path = row.split()[2], row.partition("\t")[2]
                assert commit.blob(path) == name, (word, path)
                kind, data = commit.objects.read(name)
                assert (kind, commit.objects.name("blob", data)) == ("blob", name)
            assert commit.blob("gone/requirements.txt") == ""


def test_a_linked_work_tree_and_borrowed_objects(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    repository(first)
    git(first, "worktree", "add", "-q", "-b", "side", "../side")
    git(tmp_path, "clone", "-q", "--shared", "first", "second")
    for folder in ("side", "second"):
        assert (
            _Commit.of(tmp_path / folder, "main").blob("a/Dockerfile")
            == git(first, "rev-parse", "main:a/Dockerfile")[:-1]
        )


@pytest.mark.parametrize("word", ["nope", "../HEAD", "0" * 40, "HEAD~1", "-x", "main:a"])
def test_a_commit_that_is_not_there_is_refused(envkit: Envkit, tmp_path: Path, word: str) -> None:
    repository(tmp_path)
    ended = envkit(f"--since={word}")
    assert (ended.code, ended.out) == (2, "") and "has no commit" in ended.err and "fix:" in ended.err, ended


def test_outside_of_a_repository(envkit: Envkit, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    ended = envkit("--since", "main")
    assert ended.code == 2 and "lies in no git repository" in ended.err, ended


def test_damaged_objects_are_refused(tmp_path: Path) -> None:
    """A delta that leads out of its base, and one that says another size; an object that inflates without end."""
    assert _applied(b"abc", b"\x03\x03\x90\x03") == b"abc"
    for delta in (b"\x04\x03\x90\x03", b"\x03\x09\x90\x03"):
        with pytest.raises(_Broken):
            _applied(b"abc", delta)
    with pytest.raises(_Broken):
        _inflated(zlib.compress(bytes((1 << 26) + 1)))
    repository(tmp_path)
    git(tmp_path, "gc", "-q")
    (pack,) = (tmp_path / ".git" / "objects" / "pack").glob("*.pack")
    pack.unlink()
    os.mkfifo(pack)  # whose reading would wait for a writer
    with pytest.raises(UsageError, match="no plain file"):
        _Commit.of(tmp_path, "main")
    head = tmp_path / ".git" / "objects"
    name = git(tmp_path, "rev-parse", "main").strip()
    (head / name[:2]).mkdir(exist_ok=True)
    (head / name[:2] / name[2:]).write_bytes(b"no zlib")
    with pytest.raises(UsageError, match="has no commit"):
        _Commit.of(tmp_path, "main")
