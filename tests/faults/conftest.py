"""The fault corpus: its marker, the bench of a recipe, and the table that a whole run writes.

The corpus takes minutes and real stacks, so it runs only where it is asked for: ``pytest -m faults tests/faults``.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import scenes
import stacks
import table

from envkit.system import proc


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--fault-table FILE`` writes what fired and what did not."""
    parser.addoption(
        "--fault-table",
        metavar="FILE",
        default="",
        help="write the table of the fault corpus to FILE, where what is not run keeps its row",
    )
    parser.addoption(
        "--fault-stacks",
        action="store_true",
        help="make all stacks at once, beside the first tests, and keep them in memory",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begins to make the stacks, in the process that the workers hang on."""
    if config.getoption("--fault-stacks", default=False) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Maker(), "envkit-fault-stacks")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> scenes.Together | None:
    """``--dist loadscope`` means here that tests of one run are of one scope."""
    return (
        scenes.Together(config, log)
        if config.option.dist == "loadscope" and "faults" in config.option.markexpr
        else None
    )


class Maker:
    """A process beside the tests makes the stacks and holds them in memory.

    A test whose stack is not there yet waits for its lock.
    """

    def __init__(self) -> None:
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)

    def work(self) -> None:
        """A stack that could not be made says why in the first test that makes it itself."""
        words = [sys.executable, str(Path(__file__).with_name("stacks.py"))]
        proc.run(words, timeout_s=3600.0, env=dict(os.environ), stop=self.over.is_set)

    def pytest_sessionstart(self) -> None:
        """Begins."""
        self.thread.start()

    def pytest_sessionfinish(self) -> None:
        """Ends it, and what it runs; CI does not come back for the stacks, and needs the room."""
        self.over.set()
        self.thread.join()
        if os.environ.get("ENVKIT_REQUIRE_ENGINE") == "1":
            shutil.rmtree(stacks.cache(), ignore_errors=True)


def urgency(item: pytest.Item) -> int:
    """Who begins: what needs the first stack alone while the others are made, then what takes long by itself."""
    others = [name for name in stacks.RELEASES if name != "t26"]
    if item.path.name == "test_precision_steps.py" and not any(name in item.name for name in others):
        return 0
    return 1 if item.path.name == "test_smoke.py" else 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The corpus stays out of every run that does not name its marker."""
    if "faults" in config.option.markexpr:
        items.sort(key=urgency)
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
        page = Path(file)
        before = table.known(page.read_text("utf-8")) if page.exists() else {}
        page.write_text(table.page({**before, **runs}), encoding="utf-8")
        terminalreporter.line(f"wrote {file}")
