"""Writes docs/variables.md: what every variable of a job may be, what contradicts what, and from where it is known.

    python scripts/variable_table.py [--check]

All of it comes from the rows of the facts; with --check nothing is written, and the exit code is 1 where the page is
not what it would be.
"""

from __future__ import annotations

import sys
from pathlib import Path

from envkit import facts
from envkit.facts import VariablePairRow, VariableRow
from envkit.system import files

PAGE = Path(__file__).parent.parent / "docs" / "variables.md"
_TYPES = {
    "number flag": "a whole number; yes is any but 0",
    "zero-one flag": "0 or 1",
    "one flag": "1 for yes, 0 for no",
    "word flag": "1, y, yes, t, true, or their opposites",
    "truth flag": "1, true, yes, on, or their opposites",
    "openmp flag": "true or false",
    "openmp-like flag": "true, yes, on, 1, or their opposites",
    "hf flag": "1, ON, YES, TRUE, or their opposites",
    "jax flag": "1, true, yes, on, or their opposites",
    "ucx flag": "y, n, try or auto",
    "set flag": "anything means yes",
    "file": "a file that is there",
    "program": "a program that is there",
    "directory": "a directory that is there",
    "toolkit": "a directory that is there",
    "python home": "where Python is installed",
    "temporary folder": "a directory that is there",
    "folder": "a directory, which is made if it is not there",
    "new file": "a file, which is made",
}


def takes(row: VariableRow) -> str:
    """What a variable may be, in words."""
    if row.form:
        return row.form
    if row.type in _TYPES:
        return _TYPES[row.type]
    if row.values:
        return ", ".join(f"`{value}`" for value in row.values)
    least, most = row.least, row.most
    if least is not None and most is not None:
        return f"{least} to {most}"
    return f"a number, {least} or more" if least is not None else "a number"


def otherwise(row: VariableRow) -> str:
    """What happens with another value, and how much that matters."""
    said = f"{row.otherwise} ({row.severity})" if row.otherwise else "-"
    return said + (f"; left on: {row.costs} ({row.weighs})" if row.costs else "")


def releases(row: VariableRow) -> str:
    """Which releases read it, as far as that is known, and the other name."""
    words = [f"since {row.since}" if row.since else "", f"not in {row.without}" if row.without else ""]
    return ", ".join(filter(None, [*words, f"also `{row.instead}`" if row.instead else ""])) or "-"


def condition(pair: VariablePairRow) -> str:
    """When two variables contradict one another."""
    return " and ".join(f"`{name}` {relation} {other}".strip() for name, relation, other in pair.when)


def line(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def text() -> str:
    """The text of docs/variables.md."""
    known = facts.load()
    heads = ("variable", "read by", "takes", "otherwise", "releases", "source")
    lines = [
        "# Variables",
        "",
        "What a job's environment variables may be. `doctor`, `probe`, `audit` and `preflight` judge them by this one "
        "table: "
        "[host-variable-invalid](../envkit/kb/host-variable-invalid.md), "
        "[image-variable-invalid](../envkit/kb/image-variable-invalid.md), "
        "[launch-variable-invalid](../envkit/kb/launch-variable-invalid.md). A word that only a release which is not "
        "known may have is unknown, not wrong. Made by `scripts/variable_table.py` from `envkit/facts/variable.jsonl`.",
        "",
        line(*heads),
        line(*("---" for _ in heads)),
        *(
            line(f"`{row.name}`", row.of, takes(row), otherwise(row), releases(row), f"{row.source}, {row.seen}")
            for row in known.variables
        ),
        "",
        "## Contradictions",
        "",
        line("when", "what comes of it", "severity", "source"),
        line("---", "---", "---", "---"),
        *(
            line(condition(pair), pair.says, pair.severity, f"{pair.source}, {pair.seen}")
            for pair in known.variable_pairs
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the page, or with --check says whether it is current."""
    made = text()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.exists() and PAGE.read_text("utf-8") == made else 1
    files.write(PAGE, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
