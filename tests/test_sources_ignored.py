"""What git ignores and tracks, as envkit reads it from the repository's files; git itself says whether that is so."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from envkit.static.ignored import Ignored, patterns
from envkit.static.walk import below


def git(folder: Path, *words: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    argv = ["git", "-C", str(folder), "-c", "protocol.file.allow=always", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True, env=env).stdout


def lay(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("FROM ubuntu:24.04\n")


def by_git(root: Path) -> list[str]:
    listed = git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    return sorted(name for name in set(listed) if name.endswith("Dockerfile"))


def by_envkit(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path, _ in below(root)]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


NAMES = ("a", "ab", "b", "build", ".env", "a b", "x[1]", "sub")
STEPS = ("a", "a*", "*", "**", "?", "[ab]", "[!a]", "[^b]", "[a-c]*", "build", "b", "*b", "sub", "\\a", ".*", "x[[]1]")


def random_pattern(dice: random.Random) -> str:
    steps = [dice.choice(STEPS) for _ in range(dice.choice((1, 1, 1, 2, 2, 3)))]
    if dice.random() < 0.2:
        steps.append("Dockerfile")
    ends = dice.choice(("", "", "", "/", " ", "/*", "/**"))
    return dice.choice(("", "", "", "!", "!")) + dice.choice(("", "", "/", "**/")) + "/".join(steps) + ends


@pytest.mark.parametrize("seed", range(8))
def test_random_patterns_leave_out_what_git_leaves_out(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    git(tmp_path, "init", "-q", "repo")
    root = tmp_path / "repo"
    for _ in range(20):
        folders = [dice.choice(NAMES) for _ in range(dice.randrange(5))]
        lay(root, "/".join([*folders, dice.choice(("Dockerfile", "a.Dockerfile", "ab.Dockerfile"))]))
    folders = [root, *(path for path in root.rglob("*") if path.is_dir() and ".git" not in path.parts)]
    for round in range(15):
        for folder in folders:
            (folder / ".gitignore").unlink(missing_ok=True)
            if folder == root or dice.random() < 0.2:
                lines = [random_pattern(dice) for _ in range(dice.randrange(1, 6))]
                (folder / ".gitignore").write_text("".join(f"{line}\n" for line in lines))
        said = {str(each.relative_to(root)): each.read_text() for each in root.rglob(".gitignore")}
        assert by_envkit(root) == by_git(root), (seed, round, said)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("# a/\n\\#x/\n", ["a", "b"]),
        ("a/\r\nb/\r\n", ["#x"]),
        ("\ufeffa/\n", ["#x", "b"]),
        ("*\n!*/\n!b/Dockerfile\n", ["b"]),
        ("*\n!b\n", []),
        ("/*\n!/b\n", ["b"]),
        ("a\\\nb\n", ["#x", "a"]),
        ("[\nb\n", ["#x", "a"]),
        ("\n \n/\n!\n", ["#x", "a", "b"]),
        ("a/**\nb/**/Dockerfile\n", ["#x"]),
    ],
)
def test_odd_lines_mean_what_they_mean_to_git(tmp_path: Path, text: str, left: list[str]) -> None:
    git(tmp_path, "init", "-q", "repo")
    root = tmp_path / "repo"
    lay(root, *(f"{name}/Dockerfile" for name in ("a", "b", "#x")))
    (root / ".gitignore").write_bytes(text.encode())
    assert by_git(root) == [f"{name}/Dockerfile" for name in left]
    assert by_envkit(root) == by_git(root)


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("format", ["sha1", "sha256"])
def test_what_the_index_lists_is_kept_though_it_is_ignored(tmp_path: Path, version: str, format: str) -> None:
    git(tmp_path, "init", "-q", f"--object-format={format}", "repo")
    root = tmp_path / "repo"
    lay(root, "out/Dockerfile", "out/deep/er/Dockerfile", "out/deep/er/b.Dockerfile", "out/\u00fc b/Dockerfile")
    lay(root, "out/untracked.Dockerfile", "Dockerfile", "x" * 200 + "/Dockerfile")
    (root / ".gitignore").write_text("out/\n")
    tracked = [str(path.relative_to(root)) for path in root.rglob("*Dockerfile") if "untracked" not in path.name]
    git(root, "add", "-f", *tracked)
    if version == "3":
        git(root, "add", "-N", "-f", "out/deep/er/b.Dockerfile")
        git(root, "update-index", "--skip-worktree", "out/deep/er/Dockerfile")
    git(root, "update-index", "--index-version", version)
    assert by_envkit(root) == sorted(tracked) == by_git(root)
    assert sorted(Ignored(root).tracked("out")) == sorted(name for name in tracked if name.startswith("out/"))


def test_the_general_patterns_of_the_repository_and_of_its_user_count(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "repo")
    root = tmp_path / "repo"
    lay(root, "a/Dockerfile", "b/Dockerfile", "c/Dockerfile")
    (root / ".git" / "info" / "exclude").write_text("a/\n")
    (tmp_path / "config" / "git").mkdir(parents=True)
    (tmp_path / "config" / "git" / "ignore").write_text("b/\nc/\n")
    (root / ".gitignore").write_text("!c/\n")
    assert by_envkit(root) == ["c/Dockerfile"]


def test_a_linked_work_tree_and_a_submodule_have_rules_and_index_of_their_own(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "repo")
    root = tmp_path / "repo"
    lay(root, "Dockerfile", "out/Dockerfile")
    (root / ".gitignore").write_text("out/\n")
    git(root, "add", "-f", ".gitignore", "Dockerfile", "out/Dockerfile")
    git(root, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "a")
    git(root, "worktree", "add", "-q", str(tmp_path / "linked"))
    git(tmp_path, "init", "-q", "outer")
    git(tmp_path / "outer", "submodule", "--quiet", "add", str(root), "inner")
    (root / ".git" / "info" / "exclude").write_text("ex/\n")
    for place in (tmp_path / "linked", tmp_path / "outer" / "inner"):
        lay(place, "out/new.Dockerfile", "ex/Dockerfile")
        assert by_envkit(place) == by_git(place)
    assert by_envkit(tmp_path / "linked") == ["Dockerfile", "out/Dockerfile"]
    lay(tmp_path / "outer", "Dockerfile")
    assert by_envkit(tmp_path / "outer") == ["Dockerfile"], "a repository within is its own"


def test_a_split_or_damaged_index_lists_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "repo")
    root = tmp_path / "repo"
    lay(root, "Dockerfile", "out/Dockerfile")
    (root / ".gitignore").write_text("out/\n")
    git(root, "add", "-f", ".")
    whole = (root / ".git" / "index").read_bytes()
    dice = random.Random(7)
    for _ in range(300):
        data = bytearray(whole[: dice.randrange(len(whole))] if dice.random() < 0.5 else whole)
        for _ in range(dice.randrange(4) if data else 0):
            data[dice.randrange(len(data))] = dice.randrange(256)
        (root / ".git" / "index").write_bytes(data)
        assert "Dockerfile" in by_envkit(root)
    (root / ".git" / "index").write_bytes(b"DIRC\0\0\0\2\xff\xff\xff\xff" + whole[12:])
    assert "Dockerfile" in by_envkit(root)


def test_the_number_of_steps_of_a_pattern_is_bounded() -> None:
    text = b"*a" * 900 + b"*b\n" + b"?*" * 900 + b"/*b\n"
    for pattern in patterns(text):
        assert not pattern.matches("a" * 250, False)  # a backtracking search would not come back
    assert len(patterns(b"*\n" * 100_000)) <= 2_000
    assert len(patterns(b"a\n" * 100_000)) <= 5_000
