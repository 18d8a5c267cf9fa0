"""Holds `envkit check` against public Dockerfiles that were read and judged by hand.

    python scripts/public_dockerfiles.py --texts DIR [--set tune|held|all] [--rule ID] [--field NAME]

tests/data/public_dockerfiles.jsonl lists repository, path, commit and the expectation of each; the texts themselves
are not in this repository.  What DIR lacks is fetched into it from GitHub: DIR/ID/Dockerfile, and below DIR/ID/ctx the
files of its build context that its commands name.  Prints how many of each field are right, and of each rule how many
of the places that any expert would name were found and how many findings nobody expected.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envkit import facts as tables
from envkit.dockerfile.context import Context
from envkit.dockerfile.tree import NoContext
from envkit.facts import Facts
from envkit.model import Outcome, Severity
from envkit.static import CheckOptions
from envkit.static.judged import FIELDS, of_dockerfile
from envkit.system import files

LIST = Path(__file__).parent.parent / "tests" / "data" / "public_dockerfiles.jsonl"
_RAW = "https://raw.githubusercontent.com"
_FETCH_S = 30.0


@dataclass
class Figures:
    """What was counted; ``lines`` tell of each miss and each alarm."""

    right: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    wanted: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    alarms: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    lines: list[tuple[str, str]] = field(default_factory=list)


def entries(part: str) -> list[dict[str, Any]]:
    """The entries of one part of the list: "tune" was looked at while developing, "held" was not."""
    rows = [json.loads(line) for line in LIST.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if part in ("all", row["part"])]


def fetch(entry: dict[str, Any], texts: Path) -> Path | None:
    """The folder with the texts of an entry, None where they cannot be had."""
    folder = texts / entry["id"]
    if (folder / "Dockerfile").exists():
        return folder
    top = f"{_RAW}/{entry['repo']}/{entry['commit']}"
    wanted = {"Dockerfile": f"{top}/{entry['path']}"}
    beside = "" if entry["context"] in (".", "") else f"{entry['context']}/"
    wanted |= {f"ctx/{name}": f"{top}/{beside}{name}" for name in entry["files"]}
    for name, url in wanted.items():
        try:
            with urllib.request.urlopen(url, timeout=_FETCH_S) as answer:
                text = answer.read().decode("utf-8", "replace")
        except (urllib.error.URLError, TimeoutError) as error:
            print(f"{entry['id']}: {url}: {error}", file=sys.stderr)
            return None
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        files.write(folder / name, text)
    return folder


def agree(name: str, expected: str | None, said: str | None) -> bool:
    """Whether a field is right: "12.4" and "12.4.1" are the same CUDA, one said more exactly."""
    if expected == said:
        return True
    if not expected or not said or name not in ("base_cuda", "torch_version"):
        return False
    one, two = expected.split("."), said.split(".")
    return one[: len(two)] == two or two[: len(one)] == one


def judge(entry: dict[str, Any], folder: Path, facts: Facts, figures: Figures) -> None:
    """Counts one entry."""
    text = (folder / "Dockerfile").read_bytes().decode("utf-8", "replace")
    beside = (folder / "ctx").is_dir()
    context = Context(folder / "ctx") if beside else NoContext()
    judged = of_dockerfile(text, entry["id"], context, CheckOptions(), facts)
    expected = {**entry["expect"], **(entry.get("expect_with_context", {}) if beside else {})}
    for name in FIELDS:
        if name in entry.get("unsure", ()):
            continue
        figures.asked[name] += 1
        if agree(name, expected.get(name), judged.observed[name]):
            figures.right[name] += 1
        else:
            said = f"{expected.get(name)} expected, {judged.observed[name]} said ({judged.observed['origins'][name]})"
            figures.lines.append((name, f"{entry['id']} {name}: {said}"))
    must = {*entry["must"], *(entry.get("must_with_context", ()) if beside else ())}
    said_by = {result.check: result.findings for result in judged.results if result.outcome is Outcome.FAIL}
    for rule in must:
        figures.wanted[rule] += 1
        if rule in said_by:
            figures.found[rule] += 1
        else:
            figures.lines.append((rule, f"{entry['id']} lacks {rule} ({entry['why']})"))
    for rule in said_by.keys() - must - set(entry["may"]):
        figures.alarms[rule] += 1
        worst = max(finding.severity for finding in said_by[rule])
        figures.errors[rule] += worst is Severity.ERROR
        first = said_by[rule][0]
        said = f"{worst.name.lower()}, {rule}: {first.where} {first.message}"
        figures.lines.append((rule, f"{entry['id']} alarm, {said}"))
    for result in judged.results:
        if result.outcome is Outcome.CRASHED:
            figures.lines.append((result.check, f"{entry['id']} crashed {result.check}: {result.reason}"))


def main() -> int:
    """Prints the figures; exit code 1 where a check crashed or texts are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--set", choices=["tune", "held", "all"], default="tune")
    parser.add_argument("--rule")
    parser.add_argument("--field")
    asked = parser.parse_args()
    facts, figures, missing = tables.load(), Figures(), 0
    chosen = entries(asked.set)
    for entry in chosen:
        folder = fetch(entry, asked.texts)
        if folder is None:
            missing += 1
        else:
            judge(entry, folder, facts, figures)
    print(f"{len(chosen) - missing} Dockerfiles, {missing} not to be had")
    for name in FIELDS:
        right, asked_for = figures.right[name], figures.asked[name]
        print(f"{name:24} {right}/{asked_for} {right / max(1, asked_for):.3f}")
    for rule in sorted(figures.wanted | figures.alarms):
        alarms = f"{figures.alarms[rule]} unexpected, {figures.errors[rule]} of them errors"
        print(f"{rule:38} {figures.found[rule]}/{figures.wanted[rule]} found, {alarms}")
    print(f"all rules: {figures.found.total()}/{figures.wanted.total()} found, {figures.alarms.total()} unexpected")
    for topic, line in figures.lines:
        if topic in (asked.rule, asked.field) or " crashed " in line:
            print(line)
    return 1 if missing or any(" crashed " in line for _, line in figures.lines) else 0


if __name__ == "__main__":
    sys.exit(main())
