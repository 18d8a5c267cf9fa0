"""Documents of the first formats are read and judged as on the day they were stored."""

from __future__ import annotations

import json
from pathlib import Path

import forked
import pytest
import stored

from envkit.judging import judge, required
from envkit.subjects import KINDS

FILES = stored.files()
ROWS = stored.index()
WRITTEN_BY_SAVE = {"aoti", "audit", "host", "image", "placement", "smoke"}  # the others have no --save


def test_every_file_has_its_row_and_every_row_its_file() -> None:
    schemas = {stored.schema_of(kind).name for kind in stored.OUTPUTS}
    assert set(ROWS) == set(FILES) | schemas


def test_each_kind_that_is_promised_is_there() -> None:
    kept = {json.loads((stored.ROOT / name).read_text())["kind"] for name, kind in FILES.items() if kind == "subject"}
    assert kept == WRITTEN_BY_SAVE < set(KINDS)
    assert {"contract.toml", "envkit.toml", "envkit.lock", "baseline.json", *stored.OUTPUTS} < set(FILES.values())
    verdicts = {row.get("verdict") for row in ROWS.values()}
    assert {"pass", "fail", "undecided"} <= verdicts


@pytest.mark.parametrize("name", sorted(FILES))
def test_nobody_has_edited_it(name: str) -> None:
    assert stored.digest(stored.ROOT / name) == ROWS[name]["sha256"]


@pytest.mark.parametrize("kind", stored.OUTPUTS)
def test_a_schema_stays_as_it_is_for_its_number(kind: str) -> None:
    path = stored.schema_of(kind)
    assert stored.digest(path) == ROWS[path.name]["sha256"]


@pytest.mark.parametrize("name", sorted(FILES))
def test_it_is_judged_as_it_was(name: str) -> None:
    kept = {key: value for key, value in ROWS[name].items() if key not in ("kind", "sha256")}
    now = stored.judged(name, FILES[name])
    ended = {check: outcome for outcome, checks in now.items() if isinstance(checks, list) for check in checks}
    for outcome, checks in kept.items():
        if isinstance(checks, list):
            outcomes = {check: ended.get(stored.today(check)) for check in checks}
            assert outcomes == dict.fromkeys(checks, outcome)
        else:
            assert now[outcome] == checks, outcome


def test_an_old_id_leads_to_a_check_of_today() -> None:
    renamed = json.loads(stored.RENAMED.read_text())
    known = {*judge.checks(), *required.ids()}
    assert set(renamed.values()) <= known
    assert not set(renamed) & known


def test_a_stored_report_gives_an_explanation_its_circumstances(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(stored.LOG)
    for name in ("report.json", "image-without-torch.json"):
        done = forked.envkit("explain", str(log), "--observations", str(stored.FOLDER / name), "--format", "json")
        assert done.returncode == 1, done.stderr
        assert json.loads(done.stdout)["schema"] == "envkit.explain/1"


def test_a_field_that_was_taken_away_would_be_noticed(tmp_path: Path) -> None:
    """The tests above hold only what is read: a document without a needed field is refused, not filled in."""
    document = json.loads((stored.FOLDER / "audit.json").read_text())
    del document["subject"]["name"]
    (tmp_path / "audit.json").write_text(json.dumps(document))
    done = forked.envkit("judge", str(tmp_path / "audit.json"))
    assert done.returncode == 2 and "`name`" in done.stderr
