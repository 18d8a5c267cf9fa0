"""scripts/read_needs.py: requirements out of repositories, locks and wheels made here, and their rows."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "read_needs.py"


@cache
def script() -> Any:
    """scripts/read_needs.py as a module."""
    spec = importlib.util.spec_from_file_location("read_needs", SCRIPT)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        check=True,
        capture_output=True,
    )


def commit(folder: Path, files: Mapping[str, str], tag: str = "") -> None:
    """A state of a repository that holds these files alone, with a tag."""
    folder.mkdir(exist_ok=True, parents=True)
    if not (folder / ".git").exists():
        git(folder, "init", "-q")
    for old in [each for each in folder.iterdir() if each.is_file()]:
        old.unlink()
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "state")
    if tag:
        git(folder, "tag", tag)


# Requirements


@pytest.mark.parametrize(
    ("lines", "torch"),
    [
        (["torch>=2,<3", "numpy"], "<3,>=2"),
        (["Torch"], ""),
        (["numpy"], None),
        (["torch-geometric"], None),
        (['torch; extra == "gpu"'], None),
        (['torch>=2; sys_platform == "darwin"'], None),
        (['torch>=2; platform_machine == "x86_64"'], ">=2"),
        (['torch; python_version >= "3.8"'], ""),
    ],
)
def test_what_requirements_ask_of_torch(lines: list[str], torch: str | None) -> None:
    assert script().needed(lines)[0].get("torch") == torch


@pytest.mark.parametrize("lines", [['torch; python_version < "3.11"'], ["torch>=1.6<1.8"]])
def test_what_the_python_decides_or_nobody_can_read_is_no_answer(lines: list[str]) -> None:
    with pytest.raises(script().Unread):
        script().needed(lines)


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ("^1.8", ["torch >=1.8,<2"]),
        ("^0.3.1", ["torch >=0.3.1,<0.4"]),
        ("~2.1.0", ["torch >=2.1.0,<2.2"]),
        ("*", ["torch "]),
        ("2.1.0", ["torch ==2.1.0"]),
        ({"version": ">=2", "optional": True}, []),
        ({"git": "https://example.org/torch"}, ["torch "]),
        ({"version": ">=2", "markers": 'sys_platform == "linux"'}, ['torch >=2; sys_platform == "linux"']),
        ([{"version": ">=2", "python": ">=3.11"}], ['torch >=2; python_version >= "3.11"']),
    ],
)
def test_an_entry_of_poetrys_is_a_requirement(asked: object, lines: list[str]) -> None:
    assert script().poetrys("torch", asked) == lines


# A project

PROJECT = '[project]\nname = "Sep_arator"\nversion = "{}"\ndependencies = ["torch{}"]\n'
FORMS = {
    "pyproject": {"pyproject.toml": PROJECT.format("1.0", ">=2")},
    "poetry": {
        "pyproject.toml": '[tool.poetry]\nname = "sep-arator"\n'
        '[tool.poetry.dependencies]\npython = "^3.10"\ntorch = ">=2"\n'
    },
    "dynamic": {
        "pyproject.toml": '[project]\nname = "sep-arator"\ndynamic = ["dependencies"]\n'
        '[tool.setuptools.dynamic]\ndependencies = { file = ["base.txt"] }\n',
        "base.txt": "torch>=2  # here\n-r other.txt\n",
    },
    "cfg": {"setup.cfg": "[metadata]\nname = sep-arator\n[options]\ninstall_requires =\n    torch>=2\n    tqdm\n"},
    "literal": {
        "setup.py": 'from setuptools import setup\nNEEDS = ["torch>=2"]\n'
        'setup(name="sep-arator", install_requires=NEEDS)\n'
    },
    "list": {
        "setup.py": 'import setuptools\ndef read(path):\n    return open(path).read().split()\n'
        'setuptools.setup(name="sep-arator", install_requires=read("requirements.txt"))\n',
        "requirements.txt": "torch>=2\n",
    },
    "own function": {
        "setup.py": 'from setuptools import setup\ndef load():\n    name = "requirements.txt"\n'
        '    return [line.strip() for line in open(name)]\n'
        'setup(name="sep-arator", install_requires=load())\n',
        "requirements.txt": "torch>=2\n",
    },
    "adds": {
        "setup.py": 'from setuptools import setup\nNEEDS = ["torch>=2"]\nif older:\n    NEEDS += ["typing"]\n'
        'setup(name="sep-arator", install_requires=NEEDS)\n'
    },
    "table": {
        "setup.py": 'from setuptools import setup\nneeds = {"install": ["torch>=2"], "train": ["tqdm"]}\n'
        'setup(name="sep-arator", install_requires=needs["install"])\n'
    },
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_project_says_what_it_requires(tmp_path: Path, form: str) -> None:
    commit(tmp_path / "a", FORMS[form], "v1.0")
    said: list[str] = []
    rows = script().of_tags(tmp_path / "a", said.append)
    assert [(name, version, needs["torch"]) for name, version, needs, _ in rows] == [("sep-arator", "1.0", ">=2")], said


@pytest.mark.parametrize(
    "setup",
    [
        'setup(name="a", install_requires=ask())\n',
        'needs = ["numpy"]\nneeds += ["torch"]\nsetup(name="a", install_requires=needs)\n',
        'needs = ["numpy"]\nneeds.append("torch")\nsetup(name="a", install_requires=needs)\n',
        'needs = ["numpy"]\nneeds += ask()\nsetup(name="a", install_requires=needs)\n',
        "print()\n",
    ],
)
def test_a_setup_that_computes_its_requirements_is_not_read(tmp_path: Path, setup: str) -> None:
    commit(tmp_path / "a", {"setup.py": setup}, "1.0")
    said: list[str] = []
    assert script().of_tags(tmp_path / "a", said.append) == []
    assert said


def test_a_release_is_a_final_one_and_of_the_name_of_today(tmp_path: Path) -> None:
    commit(tmp_path / "a", {"pyproject.toml": PROJECT.replace("Sep_arator", "earlier").format("0.9", "")}, "v0.9.0")
    commit(tmp_path / "a", {"pyproject.toml": PROJECT.format("1.0", ">=1")}, "v1.0rc1")
    commit(tmp_path / "a", {"pyproject.toml": PROJECT.format("1.0", ">=2")}, "release-1.0")
    commit(tmp_path / "a", {"pyproject.toml": PROJECT.format("1.1", ">=3")})
    rows = script().of_tags(tmp_path / "a", print)
    assert [(version, needs["torch"]) for _, version, needs, _ in rows] == [("1.0", ">=2"), ("1.1", ">=3")]


# Locks and wheels

LOCKS = {
    "poetry.lock": '[[package]]\nname = "Speaker_ID"\nversion = "2.0"\n[package.dependencies]\ntorch = ">=2"\n',
    "pdm.lock": '[[package]]\nname = "speaker-id"\nversion = "2.0"\ndependencies = ["torch>=2"]\n',
    "uv.lock": '[[package]]\nname = "speaker-id"\nversion = "2.0"\nsource = { registry = "index" }\n'
    'dependencies = [{ name = "torch" }]\n',
    "pixi.lock": "packages:\n- pypi: https://example.org/a.whl\n  name: speaker-id\n  version: 2.0\n"
    "  requires_dist:\n  - torch>=2\n  - tqdm ; extra == 'a'\n  requires_python: '>=3.9'\n",
}


@pytest.mark.parametrize("name", LOCKS)
def test_each_lock_says_what_the_packages_in_it_require(name: str) -> None:
    ((package, version, needs, _),) = script().of_lock(name, LOCKS[name])
    assert (package, version, needs) == ("speaker-id", "2.0", {"torch": "" if name == "uv.lock" else ">=2"})


def test_what_a_fork_of_a_lock_decides_is_left_out() -> None:
    forked = LOCKS["uv.lock"].replace('name = "torch"', """name = "torch", marker = "extra == 'extra-1-a-gpu'" """)
    assert list(script().of_lock("uv.lock", forked)) == []


def test_the_versions_of_a_lock_are_read_through_its_history(tmp_path: Path) -> None:
    commit(tmp_path / "a", {"poetry.lock": LOCKS["poetry.lock"]})
    commit(tmp_path / "a", {"poetry.lock": LOCKS["poetry.lock"].replace("2.0", "3.0")})
    assert {row[1] for row, _ in script().of_locks(tmp_path / "a")} == {"2.0", "3.0"}


def test_wheels_in_a_folder_say_it_by_their_metadata(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "speaker_id-2.0-py3-none-any.whl", "w") as archive:
        archive.writestr("speaker_id-2.0.dist-info/METADATA", "Name: speaker-id\nRequires-Dist: torch>=2\n")
    (tmp_path / "broken-1.0-py3-none-any.whl").write_text("no archive")
    assert [row[:3] for row in script().of_wheels(tmp_path)] == [("speaker-id", "2.0", {"torch": ">=2"})]


# The table


def held(*releases: tuple[str, str, dict[str, str], set[str]]) -> Any:
    found = script().Gathered()
    for name, version, needs, names in releases:
        found.add((name, version, needs, frozenset(names)), 0, "here", "2026-01-02")
    return found


def table(found: Any, newest: Mapping[str, str] | None = None) -> dict[str, Any]:
    rows = script().rows(found, {"near"}, {"torch"}, newest or {})
    return {row["package"]: row["torch"] or row["numpy"] for row in rows}


def test_releases_that_agree_stand_in_one_run_unless_one_between_was_not_read() -> None:
    same = [("a", version, {"torch": ">=2"}, {"torch"}) for version in ("1.0", "1.10", "1.9")]
    assert table(held(*same)) == {"a": [["1.0", "1.10", ">=2"]]}
    between = ("a", "1.9.5", script().UNREAD, set())
    assert table(held(*same, between)) == {"a": [["1.0", "1.9", ">=2"], ["1.10", "1.10", ">=2"]]}
    dropped = ("a", "2.0", {}, set())
    assert table(held(*same, dropped)) == {"a": [["1.0", "1.10", ">=2"], ["2.0", "2.0", None]]}


def test_what_comes_through_another_package_is_told_two_levels_deep() -> None:
    rows = table(
        held(
            ("a", "1.0", {}, {"b"}),
            ("b", "1.0", {}, {"c"}),
            ("c", "1.0", {"torch": ">=2"}, {"torch"}),
            ("d", "1.0", {}, {"near", "tqdm"}),
            ("e", "1.0", {}, {"tqdm"}),
        )
    )
    assert rows == {
        "a": [["1.0", "1.0", "*b"]],
        "b": [["1.0", "1.0", "*c"]],
        "c": [["1.0", "1.0", ">=2"]],
        "d": [["1.0", "1.0", "*near"]],
    }


def test_of_a_newer_release_lower_bounds_alone_are_taken_over() -> None:
    one = held(("a", "1.0", {"torch": "<3,>=2"}, {"torch"}), ("b", "1.0", {"torch": "==2.1"}, {"torch"}))
    assert table(one, {"a": "1.1", "b": "1.1"}) == {
        "a": [["1.0", "1.0", "<3,>=2"], ["1.1", "1.1", ">=2"]],
        "b": [["1.0", "1.0", "==2.1"], ["1.1", "1.1", ""]],
    }
    assert table(one, {"a": "0.9"}) == {}  # not released, or of another's name


def test_rows_that_are_added_leave_those_of_other_packages_as_they_are() -> None:
    rows = [{"package": "a", "torch": []}, {"package": "c", "torch": []}]
    fresh = [{"package": "b", "torch": [1]}, {"package": "c", "torch": [2]}]
    assert script().beside(fresh, rows) == [rows[0], *fresh]


@pytest.mark.parametrize(
    ("asked", "alone"),
    [(">=2", True), (">=2.0,<3", True), ("==2.1.0", True), ("<3,>=1.26", False), (">=1.20", False), ("<2", False)],
)
def test_whether_numpy_2_alone_will_do(asked: str, alone: bool) -> None:
    assert script().two_alone(asked) is alone
    rows = table(held(("a", "1.0", {"numpy": asked}, {"numpy"})))
    assert rows == ({"a": [["1.0", "1.0", asked]]} if alone else {})
