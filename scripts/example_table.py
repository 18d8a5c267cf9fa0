"""Writes docs/check_examples.md: for each check of Dockerfiles an example, what envkit says of it, and what others say.

    python scripts/example_table.py [--check] [--hadolint PROGRAM --env-doctor PROGRAM]

The example is the first block of the check's page that fails.  hadolint and env-doctor are asked where their programs
are named: of that file, and of the page's first block that passes, so that what they say of both is told from what they
say of the fault.  tests/data/check_others.json keeps their answers (codes of rules, severities and lines, no words of
theirs).  With --check nothing is written, and the exit code is 1 where the page is not what it would be.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from envkit import facts as tables
from envkit.judging import judge, pages
from envkit.judging.pages import Example
from envkit.subjects.dockerfile import Dockerfile
from envkit.system import files

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
written = import_module("written")  # what the tests make of a page's blocks

PAGE, OTHERS = ROOT / "docs" / "check_examples.md", ROOT / "tests" / "data" / "check_others.json"
ASK_S = 60.0
_FILE = re.compile(r"^--- (\S+) ---$", re.MULTILINE)
_OPTIONS = re.compile(r"(?:#: .+\n)*")
_MARKS = {"\u274c": "error", "\u26a0": "warning", "\u2139": "note"}


def blocks(check: str) -> tuple[Example, Example | None]:
    """The first example that fails, and the first that passes."""
    shown = [one for one in pages.load(check).examples if one.kind == "dockerfile"]
    fails = next(one for one in shown if one.outcome == "fails")
    return fails, next((one for one in shown if one.outcome in ("passes", "skips")), None)


def laid(text: str, folder: Path) -> Path:
    """The Dockerfile of a block, with what lies beside it."""
    main, *others = _FILE.split(_OPTIONS.sub("", text, count=1))
    for name, body in zip(others[::2], others[1::2], strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(body.lstrip("\n"))
    (folder / "Dockerfile").write_text(main)
    return folder


def hadolint(program: str, folder: Path) -> list[str]:
    """The codes of its rules, each once."""
    done = subprocess.run(
        [program, "--no-fail", "-f", "json", "Dockerfile"], cwd=folder, capture_output=True, text=True, timeout=ASK_S
    )
    return sorted({one["code"] for one in json.loads(done.stdout)})


def env_doctor(program: str, folder: Path) -> list[str]:
    """The severity of each thing that it says, with the instruction that it says it of."""
    done = subprocess.run(
        [program, "dockerfile", "Dockerfile"], cwd=folder, capture_output=True, text=True, timeout=ASK_S
    )
    lines, found, severity = (folder / "Dockerfile").read_text().splitlines(), [], ""
    for row in done.stdout.splitlines():
        severity = next((name for mark, name in _MARKS.items() if row.startswith(mark) and "(" in row), severity)
        at = re.match(r"Line (\d+):", row)
        if at and severity:
            found.append(f"{severity} at {lines[int(at[1]) - 1].split()[0]}")
        if row.startswith("SUMMARY"):
            break
    return found


def asked(check: str, programs: tuple[str, str]) -> dict[str, dict[str, list[str]]]:
    """What both say of the fault alone, and of the fault and its twin alike."""
    said: dict[str, dict[str, list[str]]] = {}
    for name, ask, program in (("hadolint", hadolint, programs[0]), ("env-doctor", env_doctor, programs[1])):
        answers = []
        for block in blocks(check):
            with tempfile.TemporaryDirectory() as folder:
                answers.append(ask(program, laid(block.text, Path(folder))) if block is not None else [])
        fault, twin = answers
        said[name] = {"fault": [one for one in fault if one not in twin], "both": [one for one in fault if one in twin]}
    return said


def section(check: str, others: dict[str, dict[str, dict[str, list[str]]]]) -> list[str]:
    """The part of the page that is about one check."""
    block, facts = blocks(check)[0], tables.load()
    result = written.judged(check, "dockerfile", block.text, facts)
    lines = ["", f"### {check}", "", f"{block.fault[:1].upper()}{block.fault[1:]}:", "", "```dockerfile"]
    lines += [block.text.rstrip("\n"), "```", ""]
    lines += [f"- envkit, {finding.severity.name.lower()}: {finding.message}" for finding in result.findings]
    for name in ("hadolint", "env-doctor"):
        said = others[check][name]
        words = f"{', '.join(said['fault'])}" if said["fault"] else "nothing of the fault"
        alike = f"; of the clean file as well: {', '.join(said['both'])}" if said["both"] else ""
        lines.append(f"- {name}: {words}{alike}")
    return lines


def text() -> str:
    """The whole page."""
    known = json.loads(OTHERS.read_text(encoding="utf-8"))
    names = sorted(judge.checks(Dockerfile))
    silent = {
        name: sum(not known["checks"][one][name]["fault"] for one in names) for name in ("hadolint", "env-doctor")
    }
    versions = f"hadolint {known['hadolint']} and env-doctor {known['env-doctor']}"
    lines = [
        "# Examples of the checks of Dockerfiles",
        "",
        f"The first example of each check's page, what envkit says of it, and what {versions} said",
        f"of the same file on {known['asked']}. What they say of the page's first clean file as well is no answer to",
        "the fault and stands apart; what is left may be about another thing in the file. hadolint judges style, not",
        f"versions. Of the {len(names)} faults hadolint says nothing of {silent['hadolint']}, env-doctor of "
        f"{silent['env-doctor']}.",
        "Written by `scripts/example_table.py`; the tests hold envkit's words to what it says.",
    ]
    for name in names:
        lines += section(name, known["checks"])
    return "\n".join(lines) + "\n"


def main() -> int:
    """Asks, where programs are named, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--hadolint", default="")
    parser.add_argument("--env-doctor", default="")
    parser.add_argument(
        "--asked", default="", help="the day and the versions: DAY HADOLINT ENV-DOCTOR, separated by blanks"
    )
    given = parser.parse_args()
    if given.hadolint and given.env_doctor:
        day, first, second = given.asked.split()
        found = {name: asked(name, (given.hadolint, given.env_doctor)) for name in sorted(judge.checks(Dockerfile))}
        answers = {"asked": day, "hadolint": first, "env-doctor": second, "checks": found}
        OTHERS.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page = text()
    if given.check:
        return int(page != PAGE.read_text(encoding="utf-8"))
    files.write(PAGE, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
