"""`make run` in a checkout of its own, with a program in envkit's place that writes what `envkit up` writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = "images/torch-2.6-cu124"
# Writes a lock and a Dockerfile beside the spec, the report where --report points, and its own arguments to a file.
STANDIN = """#!/bin/sh
printf '%s\\n' "$@" > {arguments}
[ "$1" = up ] && [ -f "$2/envkit.toml" ] && echo changed >> "$2/envkit.lock" && echo FROM x > "$2/Dockerfile" || exit 2
while [ "$#" -gt 1 ]; do
    [ "$1" = --report ] && echo '{{}}' > "$2"
    shift
done
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git checkout of what `make run` uses, in which nothing has to be installed first."""
    folder = tmp_path / "checkout"
    (folder / "scripts").mkdir(parents=True)
    shutil.copytree(ROOT / SPEC, folder / SPEC)
    for name in ("Makefile", ".gitignore", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/run.ready").touch()
    for name, text in (
        (".venv/bin/envkit", STANDIN.format(arguments=tmp_path / "arguments")),
        ("scripts/bootstrapper", ""),
    ):
        (folder / name).write_text(text or "#!/bin/sh\n")
        (folder / name).chmod(0o755)
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=120)
    return folder


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return subprocess.run(
        ["make", "run", "VENV=.venv", *words], cwd=folder, env=clean, capture_output=True, text=True, timeout=120
    )


def status(folder: Path) -> str:
    words = ["git", "status", "--porcelain", "--untracked-files=all"]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("named", [(), (f"SPEC={SPEC}/envkit.toml",), (f"SPEC={SPEC}/",)])
def test_make_run_changes_no_file_under_git(checkout: Path, named: tuple[str, ...]) -> None:
    locked = (checkout / SPEC / "envkit.lock").read_bytes()
    for _ in range(2):  # the second time the folder is there
        done = make(checkout, *named)
        assert done.returncode == 0, done.stderr
        assert status(checkout) == ""
        out = checkout / "build/torch-2.6-cu124"
        assert {each.name for each in out.iterdir()} == {"Dockerfile", "envkit.lock", "envkit.toml", "report.json"}
        assert (out / "envkit.lock").read_bytes() == locked + b"changed\n"  # it begins with the lock that is checked in
        assert json.loads((out / "report.json").read_text()) == {}
        assert "--refresh-os" in (checkout.parent / "arguments").read_text().split()


def test_a_spec_without_a_lock_is_built_too(checkout: Path) -> None:
    (checkout / "mine").mkdir()
    shutil.copy(checkout / SPEC / "envkit.toml", checkout / "mine")
    done = make(checkout, "SPEC=mine")
    assert done.returncode == 0, done.stderr
    assert (checkout / "build/mine/envkit.lock").read_text() == "changed\n"


def test_a_spec_that_does_not_exist_is_named(checkout: Path) -> None:
    done = make(checkout, "SPEC=no/such/folder")
    assert done.returncode != 0 and "no/such/folder/envkit.toml" in done.stderr
    assert not (checkout.parent / "arguments").exists()
