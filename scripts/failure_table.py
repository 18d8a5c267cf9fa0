"""Writes docs/failures.md: the kinds of failure that `envkit explain` knows, their causes and what tells them apart.

    python scripts/failure_table.py [--check]

All of it comes from the rows in envkit/logs; with --check nothing is written, and the exit code is 1 where the page is
not what it would be, or a kind of failure has no cause, no question, no next step or no fix.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from envkit.logs import names
from envkit.logs.knowledge import failures, signatures
from envkit.logs.records import CAUSES, Failure
from envkit.system import files

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "failures.md"


def row(found: Failure, wordings: int) -> tuple[str, ...]:
    """Its id, title, causes, what tells them apart, and how many wordings lead to it."""
    causes = "; ".join(f"**{cause}**: {text}" for cause, text in found.causes.items())
    return (f"`{found.id}`", found.title, causes, "; ".join(found.decide), str(wordings))


def text() -> str:
    """The text of docs/failures.md."""
    known = failures()
    wordings = Counter(signature.category for signature in (*signatures(), *names.kinds()))
    heads = ("kind of failure", "what it is", "causes, the most usual first", "what tells them apart", "wordings")
    lines = [
        "# The kinds of failure",
        "",
        f"Written by `scripts/failure_table.py` from the rows in `envkit/logs`: {len(known)} kinds of failure,",
        f"{sum(wordings.values())} wordings, {len(CAUSES)} cause classes. `envkit explain ID` prints one of them with",
        "its commands, its fixes by cause, and its source.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
    ]
    for name in sorted(known):
        cells = (" ".join(cell.replace("|", "\\|").split()) for cell in row(known[name], wordings[name]))
        lines.append("| " + " | ".join(cells) + " |")
    classes = Counter(cause for found in known.values() for cause in found.causes)
    lines += ["", "## Cause classes", "", "| cause class | kinds of failure that can have it |", "|---|---|"]
    lines += [f"| {cause} | {classes[cause]} |" for cause in CAUSES]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the page, or says whether it is current and whole."""
    bare = [each.id for each in failures().values() if not (each.causes and each.decide and each.next and each.fix)]
    for name in bare:
        print(f"{name} lacks its causes, questions, next steps or fixes", file=sys.stderr)
    if sys.argv[1:] == ["--check"]:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text()
        return 0 if current and not bare else 1
    files.write(PAGE, text())
    print(f"{PAGE.relative_to(ROOT)}: {len(failures())} kinds of failure")
    return 1 if bare else 0


if __name__ == "__main__":
    sys.exit(main())
