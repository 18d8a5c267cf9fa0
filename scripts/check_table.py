"""Writes docs/checks.md: every check of a machine and of a launch, what it reads, its threshold, and its proof.

    python scripts/check_table.py [--check]

All of it comes from the checks and their pages; with --check nothing is written, and the exit code is 1 where the page
is not what it would be, or a check lacks the fault that fires it or the clean twin that does not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from envkit.judging import judge, pages
from envkit.judging.pages import Example
from envkit.subjects import Host, Launch
from envkit.system import files

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "checks.md"


def twin(example: Example) -> str:
    """The clean twin in words: the healthy machine, and what was changed on it that must not fire."""
    data = json.loads(example.text)
    if "on" not in data:
        return f"recorded `{data.get('name', 'machine')}`"
    changes = ", ".join(f"`{path}` {json.dumps(value)}" for path, value in data.items() if path != "on")
    short = changes if len(changes) <= 90 else f"{changes[:87]}..."
    return f"{data['on']}{f' with {short}' if short else ''}"


def rows() -> list[tuple[str, ...]]:
    """A row a check: id, question, what it reads, threshold with its origin, severities, faults, clean twin."""
    found = []
    for name, check in sorted(judge.checks().items()):
        if set(check.subjects) & {Host, Launch}:
            page = pages.load(name)
            faults = "; ".join(one.fault for one in page.examples if one.outcome == "fails")
            twins = "; ".join(twin(one) for one in page.examples if one.outcome == "passes")
            told = (page.told.get(key, "") for key in ("reads", "threshold", "severity"))
            found.append((f"[{name}](../envkit/kb/{name}.md)", page.title, *told, faults, twins))
    return found


def text(table: list[tuple[str, ...]]) -> str:
    """The text of docs/checks.md."""
    heads = (
        "check",
        "holds when it passes",
        "reads",
        "threshold; origin",
        "severity",
        "faults that fire it",
        "clean twin",
    )
    lines = [
        "# The checks of machines and launches",
        "",
        f"Written by `scripts/check_table.py` from the pages in `envkit/kb`: {len(table)} checks. Each fault and each",
        "clean twin is a block of the check's page, and the tests judge every one of them.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
    ]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the page, or says whether it is current and whole."""
    table = rows()
    bare = [row[0] for row in table if not all(row)]
    for name in bare:
        print(f"{name} lacks a column", file=sys.stderr)
    if sys.argv[1:] == ["--check"]:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text(table)
        return 0 if current and not bare else 1
    files.write(PAGE, text(table))
    print(f"{PAGE.relative_to(ROOT)}: {len(table)} checks")
    return 1 if bare else 0


if __name__ == "__main__":
    sys.exit(main())
