"""The table of the corpus: what fired, what stayed quiet, and how long it took.

``python tests/faults/table.py`` writes docs/faults.md without a run: what was not run keeps what the page says of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from catalogue import CATALOGUE, FAULTS, TITLES, UNPLANTED
from stacks import RELEASES

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
Runs = Mapping[tuple[str, str], tuple[bool, float]]  # (test, recipe or stack) -> passed, seconds
FIRES, QUIET, CLEAN = "test_it_fires", "test_its_twin_is_quiet", "test_a_clean_stack_has_no_finding"


def runs(reports: Iterable[pytest.TestReport]) -> Runs:
    """What the reports of a session say, by test and parameter; a failed setup counts as a failure."""
    found: dict[tuple[str, str], tuple[bool, float]] = {}
    for report in reports:
        named = re.search(r"::(\w+)\[(.*)\]", report.nodeid)
        if named and (report.when == "call" or report.failed):
            found[named[1], named[2]] = report.passed, report.duration
    return found


def known(text: str) -> dict[tuple[str, str], tuple[bool, float]]:
    """What a page says was run, in the form of Runs; the seconds of a recipe stand with its first run."""
    found: dict[tuple[str, str], tuple[bool, float]] = {}
    rows = (re.split(r"(?<!\\) \| ", line[2:-2]) for line in text.splitlines() if line.startswith("| "))
    cells = [tuple(cell.replace("\\|", "|") for cell in row) for row in rows]
    recipes = {row[:3] + row[5:6]: row for row in cells if len(row) == 8}
    for fault in FAULTS:
        row = recipes.get((fault.probe, f"`{fault.check}`", fault.words, fault.twin_words))
        for test, said, seconds in ((FIRES, row[4], float(row[7])), (QUIET, row[6], 0.0)) if row else ():
            if said != "not run":
                found[test, fault.name] = said == "yes", seconds
    stacks = {f"torch {release}": name for name, release in RELEASES.items()}
    for row in cells:
        if len(row) == 4 and row[0] in stacks and row[2] != "not run":
            found[CLEAN, f"{stacks[row[0]]}-{row[1]}"] = row[2] == "yes", float(row[3])
    return found


def _said(ran: Runs, test: str, name: str) -> str:
    return "not run" if (test, name) not in ran else "yes" if ran[test, name][0] else "**no**"


def _seconds(ran: Runs, *keys: tuple[str, str]) -> str:
    return f"{sum(ran[key][1] for key in keys if key in ran):.1f}"


def _count(ran: Runs, test: str) -> tuple[int, int]:
    of = [passed for (name, _), (passed, _) in ran.items() if name == test]
    return sum(of), len(of)


def totals(ran: Runs) -> list[str]:
    """Recall, false alarms and the slowest, a line each."""
    fired, planted = _count(ran, FIRES)
    quiet, twins = _count(ran, QUIET)
    clean, stacks = _count(ran, CLEAN)
    slowest = sorted(ran.items(), key=lambda item: -item[1][1])[:5]
    return [
        f"recall: {fired} of {planted} planted faults found",
        f"false alarms: {twins - quiet} on {twins} clean twins, {stacks - clean} on {stacks} runs over clean stacks",
        "slowest: " + ", ".join(f"{name} {seconds:.1f} s" for (_, name), (_, seconds) in slowest),
    ]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page(ran: Runs) -> str:
    """docs/faults.md."""
    lines = [
        "# The fault corpus",
        "",
        "Each probe of the catalogue is shown a real stack that has its fault, and a clean twin that nearly has it.",
        "The real command line runs on both: the check must name what was planted, and must pass on the twin.",
        "This page is written by `make faults`; `tests/faults/` holds the recipes.",
        "",
        f"- probes: {sum(not isinstance(told, str) for told in CATALOGUE.values())} of {len(CATALOGUE)} implemented, "
        "the others declined with the reason below",
        *(f"- {line}" for line in totals(ran)[:2]),
        "",
        "## Recipes",
        "",
        _row("probe", "check", "planted", "severity", "fired", "clean twin", "quiet", "seconds"),
        _row(*["---"] * 8),
    ]
    for fault in FAULTS:
        lines.append(
            _row(
                fault.probe,
                f"`{fault.check}`",
                fault.words,
                fault.severity,
                _said(ran, FIRES, fault.name),
                fault.twin_words,
                _said(ran, QUIET, fault.name),
                _seconds(ran, (FIRES, fault.name), (QUIET, fault.name)),
            )
        )
    lines += ["", "## Clean stacks", ""]
    lines += [_row("stack", "verb", "no finding above a note", "seconds"), _row(*["---"] * 4)]
    for name, release in RELEASES.items():
        for verb in ("probe", "audit"):
            key = CLEAN, f"{name}-{verb}"
            lines.append(_row(f"torch {release}", verb, _said(ran, *key), _seconds(ran, key)))
    lines += ["", "## Probes", "", _row("probe", "what it finds", "checks"), _row(*["---"] * 3)]
    for probe, told in CATALOGUE.items():
        text = told if isinstance(told, str) else ", ".join(f"`{check}`" for check in told)
        text += "".join(f"; no recipe for `{check}`: {why}" for check, why in UNPLANTED.items() if check in told)
        lines.append(_row(probe, TITLES[probe], text))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(known(PAGE.read_text("utf-8"))), encoding="utf-8")
