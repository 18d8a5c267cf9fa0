"""The workflows of .github, held to what they run: actionlint and zizmor, which CI runs, do not know what is here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from envkit.payload.begin import OLDEST

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github"
WORKFLOWS = sorted((FOLDER / "workflows").glob("*.yml"))


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return found


def steps() -> Iterator[dict[str, Any]]:
    for path in WORKFLOWS:
        for job in jobs(path).values():
            yield from job["steps"]


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / "action.yml"], ids=lambda path: path.stem)
def test_every_action_is_pinned_by_its_commit_with_the_version_beside_it(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        assert re.search(r"uses: [\w.-]+(/[\w.-]+)+@[0-9a-f]{40} # v\d+(\.\d+)+$", line), line


def test_one_action_is_used_in_one_version() -> None:
    pins: dict[str, set[str]] = {}
    for path in [*WORKFLOWS, ROOT / "action.yml"]:
        for name, pin in re.findall(r"uses: ([\w./-]+)@(\S+ # \S+)", path.read_text()):
            pins.setdefault(name, set()).add(pin)
    assert {name: found for name, found in pins.items() if len(found) > 1} == {}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_job_may_do_more_than_it_says(path: Path) -> None:
    assert yaml.safe_load(path.read_text())["permissions"] == {}
    for name, job in jobs(path).items():
        assert job["permissions"] and job["timeout-minutes"] <= 30, name
        writes = {scope for scope, may in job["permissions"].items() if may == "write"}
        assert not writes or path.stem == "release", name
        # What may sign or publish runs nothing of this repository.
        assert not writes or not any("run" in step or "checkout" in step["uses"] for step in job["steps"]), name


def test_what_they_run_is_here() -> None:
    targets = set(re.findall(r"^([\w./$()-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [step["run"] for step in steps() if "run" in step]
    for command in commands:
        words = command.split()
        if words[0] == "make":
            assert {word.replace(".venv", "$(VENV)") for word in words[1:]} <= targets, command
        for word in words:
            if word.startswith(("scripts/", "tests/", ".github/")) or word == "action.yml":
                assert (ROOT / word).exists(), command
    assert {"make lint", "make unit", "make docs"} <= set(commands)


def test_the_pythons_are_those_that_are_promised() -> None:
    found = jobs(FOLDER / "workflows" / "tests.yml")
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    pythons = found["unit"]["strategy"]["matrix"]["python"]
    assert pythons[0] == oldest
    assert pythons == [f"3.{minor}" for minor in range(int(oldest.split(".")[1]), 15)]
    given = [step["with"]["python-version"] for step in found["payload"]["steps"] if "with" in step and "id" in step]
    assert given == [".".join(map(str, OLDEST))]


def test_the_programs_that_lint_the_workflows_are_pinned() -> None:
    lines = (FOLDER / "requirements.txt").read_text().splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    assert pinned and all(re.fullmatch(r"[\w-]+==[\d.]+", line) for line in pinned)


def test_dependabot_looks_at_every_list_of_versions() -> None:
    updates = yaml.safe_load((FOLDER / "dependabot.yml").read_text())["updates"]
    looked = {
        (each["package-ecosystem"], folder)
        for each in updates
        for folder in each.get("directories") or [each["directory"]]
    }
    assert looked == {("github-actions", "/"), ("pip", "/"), ("pip", "/.github")}
