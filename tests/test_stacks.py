"""The stacks that people run: their specs, their rows and the page agree; and what a stack showed is told as it was."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from datetime import date, timedelta
from pathlib import Path
from types import ModuleType

import pytest
from gathered import gathered

from envkit import facts
from envkit.errors import UsageError
from envkit.plan.resolve import feasible
from envkit.plan.spec import parse
from envkit.system.proc import Completed

ROOT = Path(__file__).parents[1]


def _script() -> ModuleType:
    found = importlib.util.spec_from_file_location("stacks", ROOT / "scripts" / "stacks.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["stacks"] = module  # msgspec looks up the names of a row's types there
    found.loader.exec_module(module)
    return module


stacks = _script()
TABLES = stacks.tables()
ROWS = stacks.rows()
FIELDS = {
    "vision", "audio", "speech", "LLM training", "LLM serving", "diffusion", "graphs", "RL", "JAX beside torch", "TVM",
    "ONNX Runtime", "science",
}  # fmt: skip
TODAY = date(2026, 3, 31)


# The table.


def test_there_are_stacks_of_every_field_for_old_and_new_gpus() -> None:
    assert len(TABLES) >= 40
    assert {table["field"] for table in TABLES.values()} >= FIELDS
    assert {"3.10", "3.11", "3.12", "3.13"} <= {table["python"] for table in TABLES.values()}
    assert {"V100", "T4", "A100", "H100", "B200"} <= {gpu for table in TABLES.values() for gpu in table["gpus"]}
    assert sum(bool(table.get("nightly")) for table in TABLES.values()) == 10


@gathered(TABLES)
def test_a_stack_is_a_spec_that_the_facts_allow(name: str) -> None:
    spec = parse(stacks.envkit_toml(name, TABLES[name]), Path(name) / "envkit.toml")
    assert next(iter(feasible(spec, facts.load())), None) is not None
    assert TABLES[name]["import"]


def test_rows_are_of_the_stacks_as_they_are() -> None:
    assert list(ROWS) == [name for name in TABLES if name in ROWS], "run `make stacks`"
    other = [name for name, row in ROWS.items() if row.spec != stacks.digest(TABLES[name])]
    assert not other, f"run `python scripts/stacks.py {' '.join(other)}`"


@gathered(ROWS.values())
def test_a_row_says_how_far_its_stack_came(row: stacks.Row) -> None:
    assert row.torch or row.fault.startswith("lock: ")
    assert bool(row.torch) == bool(row.wheels) == bool(row.python) == bool(row.cuda)
    assert not row.gb or row.probe or row.fault
    if row.good:
        assert row.imported == tuple(TABLES[row.name]["import"]) and row.taken


def test_the_page_is_that_of_the_rows() -> None:
    assert stacks.PAGE.read_text(encoding="utf-8") == stacks.page(ROWS, TABLES)


# What a stack showed.


def test_modules_are_imported_each_by_itself(tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text("print('noise'); raise SystemExit('no GPU')")
    env = {**os.environ, "PYTHONPATH": ""}
    bare = stacks.imports(Path(sys.executable), ["json", "no_such_module", "xml.dom"], env)
    assert bare == (
        ("json", "xml.dom"),
        "import of no_such_module: ModuleNotFoundError: No module named 'no_such_module'",
    )


def test_a_module_that_ends_the_process_is_a_fault_and_so_are_those_behind_it(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexport PYTHONPATH="{tmp_path}"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "deadly.py").write_text("import os, sys; print('last words', file=sys.stderr); os._exit(9)")
    imported, fault = stacks.imports(python, ["json", "deadly", "xml"], dict(os.environ))
    assert imported == ("json",)
    assert fault == "import of deadly: last words"


def test_a_probe_that_did_not_pass_names_its_first_fault() -> None:
    results = [
        {"check": "a", "outcome": "pass", "reason": "", "findings": []},
        {"check": "u", "outcome": "unknown", "reason": "not seen", "findings": []},
        {"check": "w", "outcome": "fail", "reason": "", "findings": [{"severity": "warning", "message": "old"}]},
        {"check": "b", "outcome": "fail", "reason": "", "findings": [{"severity": "error", "message": "two of them"}]},
    ]
    told = json.dumps({"verdict": "fail", "results": results})
    assert stacks.probed(Completed((), 1, told, "")) == ("fail, 1 checks", "probe: b: two of them")
    told = json.dumps({"verdict": "undecided", "results": results[:3]})
    assert stacks.probed(Completed((), 3, told, "")) == ("undecided, 1 checks", "probe: u: not seen")
    told = json.dumps({"verdict": "pass", "results": results[:1]})
    assert stacks.probed(Completed((), 0, told, "")) == ("pass, 1 checks", "")
    said = stacks.probed(Completed((), 3, "", "reading\nerror: there is no such image\n  fix: name one"))
    assert said == ("", "probe: error: there is no such image fix: name one")


def test_only_a_good_row_of_the_same_spec_counts_and_only_for_some_days() -> None:
    table = {"torch": "2.6.0"}
    good = stacks.Row("a", stacks.digest(table), TODAY, torch="2.6.0", imported=("x",), probe="pass, 9 checks")
    cases = {
        "good": (good, []),
        "none": (None, ["a"]),
        "old": (stacks.msgspec.structs.replace(good, day=TODAY - timedelta(30)), ["a"]),
        "other spec": (stacks.msgspec.structs.replace(good, spec="0"), ["a"]),
        "fault": (stacks.msgspec.structs.replace(good, fault="import of x: no"), ["a"]),
        "locked only": (stacks.msgspec.structs.replace(good, imported=(), probe=""), ["a"]),
    }
    for said, (row, names) in cases.items():
        held = {"a": row} if row else {}
        assert stacks.due(["a"], {"a": table}, held, 30, TODAY) == names, said


def test_one_run_at_a_time(tmp_path: Path) -> None:
    left = tmp_path / "envkit" / "venvs" / "of-a-killed-run"
    left.mkdir(parents=True)
    first = stacks.Bench(tmp_path)
    assert not left.exists()
    with pytest.raises(UsageError, match="another run is at work"):
        stacks.Bench(tmp_path)
    assert first.engine.name == "local"
