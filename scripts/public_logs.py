"""Holds `envkit explain` against public failure logs that were read and judged by hand.

    python scripts/public_logs.py --texts DIR [--list FILE.jsonl] [--category ID] [--verbose]
        [--part tune|held|later|unseen|beyond|novel|further|common|endings|anew|newest|strange|last|sight|glance
        |foreign|abroad|market|street|noisy|outlived|all] [--totals]

The list names of each log its id, where it is from, and what an expert expects: category and cause class (with those
that are right as well), the lines to be quoted, whether the loudest line misleads, and whether the GPU environment is
at fault at all.  The texts are not in this repository, and of the lines to be quoted only hashes are
(``evidence_sha256``: the first 16 digits of each line's, white space as one blank; a list of your own may say
``evidence``).  A text is DIR/ID.log, DIR/ID.txt or DIR/ID.txt.gz, or DIR/ID/* where several files belong together.
Prints the shares that are right and one line for each that is not; with ``--totals``, for a part whose single answers
nobody is to see, the strict shares and those by group and confidence in place of these.  Exits 1 where one is missing.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import msgspec

from envkit import facts as tables
from envkit.facts import Facts
from envkit.logs.reader import Input, read
from envkit.logs.records import Explanation, Role
from envkit.logs.story import Story, tell
from envkit.logs.verdict import explain, weigh

LIST = Path(__file__).parent.parent / "tests" / "data" / "public_logs.jsonl"
_INNOCENT = "not-gpu-env"
_OPEN = "insufficient-evidence"


@dataclass(frozen=True)
class Expected:
    """What an expert said of one log; ``part`` is "tune" where it was looked at while developing."""

    id: str
    category: str
    cause_class: str
    evidence: tuple[str, ...] = ()
    evidence_sha256: tuple[str, ...] = ()
    also_ok: tuple[str, ...] = ()
    cause_also_ok: tuple[str, ...] = ()
    misleading: bool = False
    gpu: bool = True
    part: str = "tune"
    why: str = ""


@dataclass
class Figures:
    """What was counted: ``right`` of ``asked``, by question."""

    right: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)

    def count(self, question: str, right: bool) -> bool:
        """Count one answer, and hand it back."""
        self.asked[question] += 1
        self.right[question] += right
        return right


def expectations(path: Path) -> list[Expected]:
    """The rows of a list; raises OSError or msgspec.MsgspecError on one that cannot be read."""
    lines = path.read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Expected) for line in lines if line.strip()]


def texts_of(entry: Expected, folder: Path) -> list[Path]:
    """The files of a log, none where they are missing."""
    for ending in ("log", "txt", "txt.gz"):
        if (single := folder / f"{entry.id}.{ending}").is_file():
            return [single]
    return sorted(path for path in (folder / entry.id).glob("*") if path.is_file())


def story_of(paths: Iterable[Path]) -> Story:
    """The files read together."""
    with ExitStack() as stack:
        inputs = [Input(path.name, stack.enter_context(path.open("rb"))) for path in paths]
        return tell([read(inputs)])


def quoted(wanted: str, given: Iterable[str]) -> bool:
    """Whether one of the given lines is the wanted one or a part of it, or the other way round, but for white space."""
    sought = " ".join(wanted.split())
    return any(line and (sought in line or line in sought) for line in (" ".join(each.split()) for each in given))


def known_by_hash(wanted: Iterable[str], given: Iterable[str]) -> bool:
    """Whether one of the given lines is one of those that the hashes are of."""
    return not set(wanted).isdisjoint(sha256(" ".join(each.split()).encode()).hexdigest()[:16] for each in given)


def _lines(answer: Explanation, *roles: Role) -> Iterator[str]:
    for mark in answer.evidence:
        if not roles or mark.role in roles:
            yield mark.line.raw


def hold(entry: Expected, answer: Explanation, figures: Figures) -> str:
    """Count how one answer stands to what was expected; returns the miss in words, "" where there is none."""
    category = figures.count("category", answer.category in (entry.category, *entry.also_ok))
    cause = figures.count("cause class", answer.cause in (entry.cause_class, *entry.cause_also_ok))
    if entry.misleading:
        figures.count("misleading", category and cause)
    innocent = not entry.gpu or entry.category == _INNOCENT
    alarm = innocent and not category and answer.category != _OPEN
    if innocent:
        figures.count("false alarms", alarm)
        figures.count("not told, of the innocent", answer.category == _OPEN and not category)
    line = True
    if entry.evidence or entry.evidence_sha256:

        def told(*roles: Role) -> bool:
            given = list(_lines(answer, *roles))
            return known_by_hash(entry.evidence_sha256, given) or any(quoted(each, given) for each in entry.evidence)

        line = figures.count("evidence, any role", told())
        figures.count("evidence, as root", told(Role.ROOT))
    wrong = []
    if not category:
        wrong.append(f"{'FALSE ALARM ' if alarm else ''}{answer.category} for {entry.category}")
    if not cause:
        wrong.append(f"{answer.cause} for {entry.cause_class}")
    if not line:
        lines = " | ".join(mark.line.text[:100] for mark in answer.evidence) or "nothing"
        wrong.append(f"quotes {lines}, not {entry.evidence[0][:100] if entry.evidence else 'what the expert does'}")
    return "; ".join(wrong)


def hold_strictly(entry: Expected, answer: Explanation, figures: Figures) -> None:
    """Count an answer by the first of what is right alone, and, by all of it, by its group and its confidence."""
    figures.count("category, strict", answer.category == entry.category)
    figures.count("cause class, strict", answer.cause == entry.cause_class)
    right = answer.category in (entry.category, *entry.also_ok)
    right = right and answer.cause in (entry.cause_class, *entry.cause_also_ok)
    group = "GPU failures" if entry.gpu else "end well" if entry.category == _OPEN else "other failures"
    figures.count(f"group: {group}", right)
    figures.count(f"at confidence {answer.confidence:.2f}", right)


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", type=Path, default=LIST)
    parser.add_argument("--texts", type=Path, required=True)
    opened = ("tune", "held", "later", "unseen", "beyond", "novel", "further", "common", "endings", "anew", "newest")
    parts = (
        *opened,
        "strange",
        "last",
        "sight",
        "glance",
        "foreign",
        "abroad",
        "market",
        "street",
        "noisy",
        "outlived",
    )
    parser.add_argument("--part", choices=(*parts, "all"), default="all")
    parser.add_argument("--category", help="only the logs that an expert puts there")
    parser.add_argument("--totals", action="store_true", help="totals alone, no single answer")
    parser.add_argument("--verbose", action="store_true", help="the hypotheses of each miss, in their order")
    chosen = parser.parse_args()
    known: Facts = tables.load()
    figures = Figures()
    missing, slowest, begun = 0, (0.0, ""), time.monotonic()
    for entry in expectations(chosen.list):
        if chosen.part not in ("all", entry.part) or chosen.category not in (None, entry.category):
            continue
        paths = texts_of(entry, chosen.texts)
        if not paths:
            missing += 1
            print(f"{entry.id:8} its text is missing")
            continue
        before = time.monotonic()
        story = story_of(paths)
        answer = explain(story, known)
        miss = hold(entry, answer, figures)
        slowest = max(slowest, (time.monotonic() - before, entry.id))
        if chosen.totals:
            hold_strictly(entry, answer, figures)
            continue
        if miss:
            print(f"{entry.id:8} {'misleading: ' if entry.misleading else ''}{miss}")
        if miss and chosen.verbose:
            print(f"         expert: {entry.why}")
            for guess in weigh(story, known):
                first = guess.evidence[0].text[:90] if guess.evidence else "-"
                print(f"         {guess.strength.name.lower():9} {guess.category} / {guess.cause}: {first}")
    print()
    for question, asked in sorted(figures.asked.items()) if chosen.totals else figures.asked.items():
        print(f"{question:26} {figures.right[question]:4} of {asked:4}  {figures.right[question] / asked:6.1%}")
    if not chosen.totals:
        print(f"{time.monotonic() - begun:.1f} s, the slowest {slowest[1]} {slowest[0]:.2f} s")
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
