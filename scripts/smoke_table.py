"""Writes docs/smoke.md: every smoke test, what holds when it passes, and where each of its injected faults was seen.

    python scripts/smoke_table.py [--check]

The injected faults' columns come from the recorded runs in tests/data, judged again; with --check nothing is written,
and the exit code is 1 where the page is not what it would be.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from envkit import facts
from envkit.judging import judge, pages
from envkit.model import Severity
from envkit.payload.smoke import TESTS
from envkit.subjects import SmokeRun
from envkit.subjects.codec import from_plain
from envkit.system import files

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "smoke.md"
DATA = ROOT / "tests" / "data"
RUNS = {
    "CPU": ("smoke/torch-2.6-cu124-cpu-inject-fault-all.json",),
    "H100": (
        "gpu/h100-torch-2.11-cu130-smoke-inject-fault-all.json",
        "gpu/h100-torch-2.11-cu130-smoke-inject-fault-rest.json",
    ),
    "2 x H200": ("gpu/h200x2-torch-2.11-cu130-smoke-inject-fault-all.json",),
}


def seen() -> dict[str, dict[str, dict[str, bool]]]:
    """By run, test and injected fault: whether the test went red on every device that it ran on."""
    found: dict[str, dict[str, dict[str, bool]]] = {}
    checks = judge.checks()
    known = facts.load()
    for place, path in ((place, DATA / name) for place, names in RUNS.items() for name in names):
        document = json.loads(path.read_text(encoding="utf-8"))
        run = from_plain(SmokeRun, document.get("subject", document))
        for test in run.tests.need("the tests"):
            if test.ended == "not-applicable":
                continue
            result = judge.run(checks[f"smoke-{test.name}"], run, known)
            red = test.device in {one.where for one in result.findings if one.severity is Severity.ERROR}
            blind = f"{test.injected_fault} on {test.device}" in result.reason
            kinds = found.setdefault(place, {}).setdefault(test.name, {})
            kinds[test.injected_fault] = kinds.get(test.injected_fault, True) and red and not blind
    return found


def page() -> str:
    """The text of docs/smoke.md."""
    told = seen()
    lines = [
        "# The smoke tests",
        "",
        "Written by `scripts/smoke_table.py` from the recorded runs in `tests/data`. A fault injected into a test",
        "must turn it red. `yes`: seen on every device of that run. `-`: that run does not have the test.",
        "",
        f"| test | level | where | holds when it passes | injected faults | {' | '.join(RUNS)} |",
        f"|---|---|---|---|---|{'---|' * len(RUNS)}",
    ]
    for case in TESTS:
        places = ["CPU"] * case.cpu + ["GPU"] * (case.gpu and not case.several)
        places += [f"{case.several} GPUs"] if case.several else []
        says = pages.load(f"smoke-{case.name}").title
        cells = []
        for place in RUNS:
            kinds = told.get(place, {}).get(case.name, {})
            missed = [kind for kind in case.faults if not kinds.get(kind, False)]
            cells.append("-" if not kinds else "no: " + ", ".join(missed) if missed else "yes")
        row = (f"`{case.name}`", case.level, ", ".join(places), says, ", ".join(case.faults), *cells)
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """The exit code."""
    text = page()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    files.write(PAGE, text)
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
