"""Run by a Python with torch: which silent corruptions of its operators the table of operators sees, as JSON on stdout.

    python tests/disturbed.py [--device cuda:0] [--level quick|full] [--only NAME ...] [--suite]

Each corruption of ``disturbances.py`` replaces one operator of torch below autograd, through a mode of the dispatcher,
so that nothing of the suite knows of it.  A first pass without one tells which rows call which operators; then each
corruption is tried on the rows that call its operator, the fastest first, until one is red.  With ``--suite`` each is
tried on a whole run of the smoke suite instead, into whose processes a sitecustomize brings it.

The document has ``sound``, what is red without a corruption, and of each corruption the ``rows`` that went red (with
``--suite`` the checks), how many rows ``called`` its operator, and how often it was ``applied``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]
START = """
import importlib.abc, importlib.util, os, sys
class _Late(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            sys.path.insert(0, os.environ["ENVKIT_DISTURBANCES"])
            import disturbances
            disturbances.Mode(os.environ["ENVKIT_DISTURBED"]).__enter__()
            sys.path.remove(os.environ["ENVKIT_DISTURBANCES"])
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, _Late())
"""


def limits(test: str) -> list[dict[str, Any]]:
    """The rows of the limits of a test; read plainly, for a Python with torch need not have what envkit judges with."""
    files = (ROOT / "envkit/judging/checks/smoke_limits").glob("*.jsonl")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [row for row in rows if row["test"] == test and row.get("severity", "error") == "error"]


def judged(test: str, device: str, measures: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """The measures of a test that are beyond their limits, and those that it lacks."""
    found = []
    for row in rows:
        for name in row["measures"]:
            when = row.get("when", "").replace("*.", name.partition(".")[0] + ".")
            if device.partition(":")[0] not in row["devices"] or (when and measures.get(when) == 0):
                continue
            value = float(measures.get(name, math.nan))
            kept = math.isfinite(value) and row.get("least", 0) <= value <= row.get("most", math.inf)
            found += [] if kept else [f"{test}: {name} {value:.3g}"]
    return found


OPERATORS = limits("operators")


class Table:
    """The rows of the table of operators, each worked by itself."""

    def __init__(self, device: str, level: str) -> None:
        from envkit.payload.smoke.operators import operators

        self.operators, self.device, self.level = operators, device, level
        self.names = [name for name in operators.ROWS if level != "quick" or name not in operators.LONG]

    def red(self, name: str) -> list[str]:
        """What is red of one row: its measures, or the exception that ended it."""
        from envkit.payload.smoke.bench import Bench
        from envkit.payload.smoke.operators.plain import Desk

        bench = Bench(self.device, level=self.level)
        self.operators.ready(bench)
        try:
            self.operators.one(Desk(bench), name)
        except Exception as error:
            return [f"{name} raised {type(error).__name__}: {str(error)[:200]}"]
        measured = bench.measures
        rows = [{**row, "measures": [one for one in row["measures"] if one in measured]} for row in OPERATORS]
        return judged("operators", self.device, {**measured, "whole": 1}, rows)


def by_rows(device: str, level: str, names: list[str], first: dict[str, str]) -> dict[str, Any]:
    import disturbances

    table = Table(device, level)
    calls: dict[str, set[str]] = {}
    seconds: dict[str, float] = {}
    sound = []
    for row in table.names:
        started = time.process_time()
        with disturbances.Listening() as heard:
            sound += table.red(row)
        seconds[row] = time.process_time() - started
        for operator in heard.operators:
            calls.setdefault(operator, set()).add(row)
    found = {}
    for name in names:
        rows = sorted(
            set().union(*(calls.get(one, set()) for one in disturbances.ALL[name].operators)), key=seconds.get
        )
        applied, red, row = 0, [], ""
        for row in rows:
            with disturbances.Mode(name) as mode:
                red = table.red(row)
            applied += mode.applied
            if red:
                break
        found[name] = {"red": red, "row": row if red else "", "called": len(rows), "applied": applied}
    return {"sound": sound, "found": found}


def by_suite(device: str, level: str, names: list[str], first: dict[str, str]) -> dict[str, Any]:
    """As ``by_rows``, of whole runs of the suite, as ``envkit smoke`` starts it."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(START)
        for name in ["", *names]:
            env = {**os.environ, "PYTHONPATH": os.pathsep.join((folder, str(ROOT))), "PYTHONDONTWRITEBYTECODE": "1"}
            env.update({"ENVKIT_DISTURBED": name, "ENVKIT_DISTURBANCES": str(HERE)})
            words = [
                sys.executable,
                "-m",
                "envkit.payload.smoke",
                "--level",
                level,
                *(["--device", "cpu"] * (device == "cpu")),
            ]
            done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=1200, cwd="/")
            assert done.returncode == 0, done.stderr
            document = json.loads(done.stdout)
            red = []
            for test in document["tests"]:
                if test["ended"] == "ran":
                    red += judged(test["name"], test["device"], test["measures"], limits(test["name"]))
                elif test["ended"] != "not-applicable":
                    red.append(f"{test['name']}: {test['ended']} {test['detail'][:100]}")
            found[name] = {"red": red, "seconds": document["seconds"]}
    return {"sound": found.pop("")["red"], "found": found}


def main() -> int:
    """Prints the document."""
    import disturbances
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--level", default="full", choices=("quick", "full"))
    parser.add_argument("--only", nargs="*", default=list(disturbances.ALL), choices=list(disturbances.ALL))
    parser.add_argument("--first", type=Path, help="a table of the row that is to be tried first for each")
    parser.add_argument("--suite", action="store_true")
    asked = parser.parse_args()
    how = by_suite if asked.suite else by_rows
    document = {"torch": str(torch.__version__), "device": asked.device, "level": asked.level}
    first = json.loads(asked.first.read_text()) if asked.first else {}
    document |= how(asked.device, asked.level, asked.only, first)
    document["missed"] = [name for name, one in document["found"].items() if not one["red"]]
    json.dump(document, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
