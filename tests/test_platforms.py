"""docs/platforms.md claims nothing that no recording or test of this repository shows."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/platforms.md"
STATES = ("proven", "expected", "unknown")
COLUMNS = ["state", "what", "where it ran", "driver", "GPU", "Python", "torch", "evidence"]
NO_CLAIM = ("-", "none")


def rows() -> list[dict[str, str]]:
    found = []
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] not in ("state", "---"):
            assert len(cells) == len(COLUMNS), line
            found.append(dict(zip(COLUMNS, cells, strict=True)))
    return found


ROWS = rows()


def evidence(row: dict[str, str]) -> list[Path]:
    """The files that a row names."""
    return [(PAGE.parent / link).resolve() for link in re.findall(r"\]\(([^)]+)\)", row["evidence"])]


def recorded(path: Path) -> dict[str, str]:
    """What a recording says of where it was taken, by the columns of the page."""
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    stated = document.get("recorded", document)
    names = {"driver": "driver", "GPU": "gpu", "Python": "python", "torch": "torch"}
    return {column: stated[name] for column, name in names.items() if stated.get(name)}


RECORDINGS = [(row, path) for row in ROWS for path in evidence(row) if path.suffix == ".json"]
SPECS = [(row, path) for row in ROWS for path in evidence(row) if path.name == "envkit.toml"]


def test_each_row_has_a_state_and_what_is_proven_has_its_evidence() -> None:
    assert {row["state"] for row in ROWS} == set(STATES)
    for row in ROWS:
        assert all(path.exists() for path in evidence(row)), row
        if row["state"] == "proven":
            assert evidence(row), row
        if row["state"] == "unknown":
            assert not evidence(row), row


@pytest.mark.parametrize(("row", "path"), RECORDINGS, ids=lambda each: each.stem if isinstance(each, Path) else "")
def test_a_row_says_what_its_recording_says(row: dict[str, str], path: Path) -> None:
    stated = recorded(path)
    assert stated, "it says nothing of where it was taken"
    for column in ("driver", "GPU", "Python", "torch"):
        if row[column] in NO_CLAIM:
            continue
        assert row[column] == stated[column], column
    # What was computed on a GPU is claimed with that GPU, and what was not with none.
    assert ("GPU" in stated) == (row["GPU"] != "none")


def test_the_system_of_a_recorded_machine_is_the_one_that_is_named() -> None:
    machines = [(row, json.loads(path.read_text("utf-8"))) for row, path in RECORDINGS]
    hosts = [(row, document["subject"]) for row, document in machines if document["kind"] == "host"]
    assert hosts
    for row, host in hosts:
        assert row["where it ran"] == host["os"]["value"]
        assert host["architecture"]["value"] == "x86_64"


def test_a_container_is_claimed_where_the_recording_says_so() -> None:
    for row, path in RECORDINGS:
        where = json.loads(path.read_text("utf-8")).get("recorded", {}).get("where", "")
        if where.startswith("a container of"):
            assert where.startswith(row["where it ran"])


@pytest.mark.parametrize(("row", "path"), SPECS, ids=lambda each: each.parent.name if isinstance(each, Path) else "")
def test_an_image_that_is_proven_is_built_by_the_test_that_is_named(row: dict[str, str], path: Path) -> None:
    spec = tomllib.loads(path.read_text("utf-8"))
    assert (row["Python"], row["torch"]) == (spec["python"], spec["torch"])
    assert row["what"] == f"`up` of a {spec['os'].replace('debian', 'Debian ')} image"
    (test,) = [each for each in evidence(row) if each.suffix == ".py"]
    assert f'"{path.parent.name}"' in test.read_text("utf-8")


def test_every_gpu_that_was_recorded_is_on_the_page() -> None:
    recorded_gpus = {recorded(path)["GPU"] for path in (ROOT / "tests/data/gpu").glob("*.json")}
    assert recorded_gpus == {row["GPU"] for row in ROWS if row["state"] == "proven"} - {"none"}
