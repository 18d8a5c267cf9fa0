"""Writes the tables of docs/check.md: every check of a file that people write, with its severities and its title.

    python scripts/file_table.py [--check]

The rest of the page is written by hand.  With --check nothing is written, and the exit code is 1 where the tables are
not what they would be, or a page names no severity.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from envkit.judging import judge, pages
from envkit.static.judged import subjects
from envkit.system import files

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "check.md"
HEADING = "## Checks\n"
NAMES = {
    "Dockerfile": "Dockerfiles",
    "Packages": "Requirements, projects, environments and locks",
    "Workload": "Compose files, manifests, development containers, workflows, batch scripts, charts, Makefiles",
    "JobStart": "Starts, with `--start FILE`",
}


def rows(kind: Any) -> list[tuple[str, str, str]]:
    """A row a check of one kind of file: its id with a link, its severities, its title."""
    found = []
    for name in sorted(judge.checks(kind)):
        page = pages.load(name)
        found.append((f"[{name}](../envkit/kb/{name}.md)", page.told.get("severity", ""), page.title))
    return found


def text(tables: dict[str, list[tuple[str, str, str]]]) -> str:
    """All that follows the heading."""
    count = sum(map(len, tables.values()))
    lines = [
        "",
        f"{count}, written by `scripts/file_table.py` from the pages in `envkit/kb`. Each page says why, the fix, the",
        "threshold with its origin, and shows files that fire the check and files, as near to them as can be, that do",
        "not; the tests judge all of them. `envkit explain CHECK` prints a page. [Examples](check_examples.md)",
        "has one of each check of Dockerfiles, beside what hadolint and env-doctor say of it.",
    ]
    for name, table in tables.items():
        lines += ["", f"### {name}", "", "| check | severity | holds when it passes |", "|---|---|---|"]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the tables, or says whether they are current and whole."""
    tables = {NAMES[kind.__name__]: rows(kind) for kind in subjects()}
    bare = [row[0] for table in tables.values() for row in table if not all(row)]
    for name in bare:
        print(f"{name} lacks a column", file=sys.stderr)
    before, heading, after = PAGE.read_text(encoding="utf-8").partition(HEADING)
    if not heading:
        print(f"{PAGE.relative_to(ROOT)} has no heading {HEADING.strip()!r}", file=sys.stderr)
        return 1
    if sys.argv[1:] == ["--check"]:
        return 0 if after == text(tables) and not bare else 1
    files.write(PAGE, before + heading + text(tables))
    print(f"{PAGE.relative_to(ROOT)}: {sum(map(len, tables.values()))} checks")
    return 1 if bare else 0


if __name__ == "__main__":
    sys.exit(main())
