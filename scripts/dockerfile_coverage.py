"""Measures which statements of the Dockerfile evaluator public Dockerfiles need.

    python scripts/dockerfile_coverage.py FOLDER... [--check] [--missed FILE]

Each FOLDER is a checkout of a public repository.  Every Dockerfile below it is evaluated twice, with its own folder
and with the repository's root as build context (with --check it is judged too, as `envkit check` does, because the
checks ask the readers of package managers as well).  Prints one row a file of envkit/dockerfile: statements, the
share that ran, and the functions of which no statement ran.  A construct that no public file needs is a candidate to
be left unread.

Needs the package `coverage` (7.x), which is no dependency of envkit: `uv pip install coverage`.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOM = Path(__file__).parent.parent / "envkit" / "dockerfile"


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method: where its definition begins, where it ends, and the statements of its body."""

    name: str
    first: int
    last: int
    body: frozenset[int]


@dataclass(frozen=True, slots=True)
class Row:
    """What one file of the room has, and what of it ran."""

    name: str
    statements: int
    reached: int
    never: tuple[Function, ...]


def dockerfiles(folder: Path) -> Iterator[Path]:
    """The Dockerfiles below a folder by their names, as `envkit check` takes them; links are not followed."""
    from envkit.static import kinds

    for path in sorted(folder.rglob("*")):
        if kinds.by_name(path.name) == "dockerfile" and path.is_file() and not path.is_symlink():
            yield path


def evaluate(folders: Iterable[Path], judged: bool) -> tuple[int, list[str]]:
    """Evaluates every Dockerfile of the folders: how many, and one line for each that raised."""
    from envkit import facts as tables
    from envkit.dockerfile import evaluate as evaluator
    from envkit.dockerfile.context import Context
    from envkit.static import CheckOptions
    from envkit.static.judged import of_dockerfile

    facts, count, broken = tables.load(), 0, []
    for folder in folders:
        for path in dockerfiles(folder):
            text = path.read_bytes().decode("utf-8", "replace")
            count += 1
            for root in dict.fromkeys((path.parent, folder)):
                try:
                    if judged:
                        of_dockerfile(text, str(path), Context(root, path), CheckOptions(), facts)
                    else:
                        evaluator.read(text, str(path), facts, Context(root, path))
                except Exception as error:  # the report of a bug: which file, and what was raised
                    broken.append(f"{path.relative_to(folder.parent)}: {type(error).__name__}: {error}")
    return count, broken


def functions(path: Path, statements: frozenset[int]) -> list[Function]:
    """The functions of a module in the order of their definitions, those inside others too."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            last = node.end_lineno or node.lineno
            body = frozenset(line for line in statements if node.body[0].lineno <= line <= last)
            found.append(Function(node.name, node.lineno, last, body))
    return sorted(found, key=lambda each: each.first)


def row(path: Path, statements: frozenset[int], missed: frozenset[int]) -> Row:
    """The row of one file; a function inside one that never ran is not named again."""
    never: list[Function] = []
    for each in functions(path, statements):
        inside = bool(never) and each.last <= never[-1].last
        if each.body and each.body <= missed and not inside:
            never.append(each)
    return Row(path.name, len(statements), len(statements - missed), tuple(never))


def measure(folders: list[Path], judged: bool) -> tuple[list[Row], int, list[str], dict[str, frozenset[int]]]:
    """The rows of all files of the room, the number of Dockerfiles, what was raised, and the lines missed by file.

    Raises ModuleNotFoundError where `coverage` is not installed.
    """
    coverage = importlib.import_module("coverage")
    meter = coverage.Coverage(data_file=None, include=[f"{ROOM}/*"], config_file=False)
    meter.start()
    count, broken = evaluate(folders, judged)
    meter.stop()
    rows, missed_by = [], {}
    for path in sorted(ROOM.glob("*.py")):
        _, statements, _, missed, _ = meter.analysis2(str(path))
        if statements:
            rows.append(row(path, frozenset(statements), frozenset(missed)))
            missed_by[path.name] = frozenset(missed)
    return rows, count, broken, missed_by


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table, the total last."""
    lines = ["| file | statements | reached | functions that never ran |", "|---|---|---|---|"]
    for each in rows:
        never = ", ".join(f"{one.name} ({one.first}-{one.last})" for one in each.never) or "none"
        lines.append(f"| {each.name} | {each.statements} | {each.reached / each.statements:.0%} | {never} |")
    statements, reached = sum(each.statements for each in rows), sum(each.reached for each in rows)
    count = sum(len(each.never) for each in rows)
    lines.append(f"| all | {statements} | {reached / max(1, statements):.0%} | {count} |")
    return "\n".join(lines)


def main() -> int:
    """Prints the table; exit code 1 where the evaluator raised or no Dockerfile was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--check", action="store_true", help="run the checks too")
    parser.add_argument("--missed", metavar="FILE", help="also print the lines of this file that did not run")
    asked = parser.parse_args()
    started = time.monotonic()
    rows, count, broken, missed = measure([folder.resolve() for folder in asked.folders], asked.check)
    print(table(rows))
    print(f"\n{count} Dockerfiles of {len(asked.folders)} folders, {time.monotonic() - started:.0f} s")
    for line in broken:
        print(f"raised: {line}")
    if asked.missed:
        print(*sorted(missed[asked.missed]))
    return 1 if broken or not count else 0


if __name__ == "__main__":
    sys.exit(main())
