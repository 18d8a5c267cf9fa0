"""The fault corpus: its marker, the bench of a recipe, and the table that a whole run writes.

The corpus takes minutes and real stacks, so it runs only where it is asked for: ``pytest -m faults tests/faults``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import stacks
import table


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--fault-table FILE`` writes what fired and what did not."""
    parser.addoption("--fault-table", metavar="FILE", default="", help="write the table of the fault corpus to FILE")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The corpus stays out of every run that does not name its marker."""
    if "faults" in config.option.markexpr:
        return
    out = [item for item in items if item.get_closest_marker("faults")]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


@pytest.fixture
def bench() -> Iterator[stacks.Bench]:
    """A bench of this test's own."""
    with stacks.bench() as made:
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The totals, the slowest recipes, and the table where one was asked for."""
    runs = table.runs(
        report
        for kind in ("passed", "failed", "error")
        for report in terminalreporter.stats.get(kind, [])
        if "tests/faults/test_faults.py" in report.nodeid
    )
    if not runs:
        return
    terminalreporter.section("fault corpus")
    for line in table.totals(runs):
        terminalreporter.line(line)
    file = config.getoption("--fault-table", default="")
    if file:
        Path(file).write_text(table.page(runs), encoding="utf-8")
        terminalreporter.line(f"wrote {file}")
