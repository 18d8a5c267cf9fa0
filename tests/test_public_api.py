"""What other people's Python may import of envkit, as a type checker sees it there (docs/versioning.md)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# As a training script would use it, outside of this repository.
SCRIPT = """from envkit import __version__, placement


def fits(model: object, batch: tuple[object, ...]) -> bool:
    checked: placement.Checked = placement.check(model, batch)
    for finding in checked.findings:
        lines: list[str] = [finding.message, finding.fix, finding.where]
        print(*lines, finding.severity.name)
    print(__version__.upper(), str(checked))
    return checked.ok
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the repository, with one cache for all runs: the first reads all that envkit imports."""
    return tmp_path_factory.mktemp("user")


def checked_by_mypy(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(text)
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "train.py"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600)


@pytest.mark.slow  # types all that it imports
def test_a_strictly_typed_script_of_a_user_is_accepted(folder: Path) -> None:
    done = checked_by_mypy(folder, SCRIPT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [("checked.ok", "checked.good", '"Checked" has no attribute "good"'), ("-> bool", "-> str", 'expected "str"')],
)
def test_a_mistake_in_it_is_found(folder: Path, right: str, wrong: str, message: str) -> None:
    """Without envkit/py.typed everything of envkit would be Any, and neither would be."""
    done = checked_by_mypy(folder, SCRIPT.replace(right, wrong))
    assert done.returncode == 1 and message in done.stdout
