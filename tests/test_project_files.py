"""The files by which strangers meet the project say nothing that is not so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import forked
import pytest
import yaml

from envkit import __version__
from envkit.subjects import KINDS

ROOT = Path(__file__).parents[1]
TEMPLATES = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[0-9]-*.yml"))
VERSIONING = (ROOT / "docs/versioning.md").read_text("utf-8")
NEEDED = {"input": {"label"}, "textarea": {"label"}, "markdown": {"value"}}  # of each kind of field


def template(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_an_issue_form_has_what_github_asks_of_one(path: Path) -> None:
    form = template(path)
    assert set(form) == {"name", "description", "labels", "body"}
    assert len(form["description"]) <= 200
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert (
        len({field["id"] for field in fields}) == len({field["attributes"]["label"] for field in fields}) == len(fields)
    )
    for field in form["body"]:
        assert NEEDED[field["type"]] <= set(field["attributes"])


def test_the_commands_that_the_forms_ask_for_exist() -> None:
    named = {
        command
        for path in [*TEMPLATES, *(ROOT / ".github").glob("*.md")]
        for command in re.findall(r"`envkit ([^`]+)`", path.read_text("utf-8"))
    }
    assert "doctor --save machine.json --redact" in named and "judge FILE" in named
    for command in named:
        verb, *words = command.split()
        if verb == "--version":
            continue
        done = forked.envkit(verb, "--help")
        assert done.returncode == 0, command
        assert all(word in done.stdout for word in words if word.startswith("--")), command


def test_what_is_cited_is_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["version"] == __version__
    assert {"cff-version", "message", "title", "authors", "license"} <= set(cited)


def test_each_file_that_holds_a_promise_exists() -> None:
    named = set(re.findall(r"`((?:tests|scripts|\.github|envkit)/[\w./-]+)`", VERSIONING))
    assert len(named) > 8
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_the_saved_kinds_that_are_promised_are_kinds() -> None:
    (line,) = re.findall(r"kinds ((?:`\w+`,? ?)+)", VERSIONING)
    assert set(re.findall(r"\w+", line)) < set(KINDS)
