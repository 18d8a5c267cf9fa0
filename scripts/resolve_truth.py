"""How many Dockerfiles `envkit check --resolve` follows to the state that real installers leave.

    .venv/bin/python scripts/resolve_truth.py CASES.jsonl [--show] [--only ID] [--exclude-newer DAY]

A case is a line of JSON: `id`, `kind` (quiet, changed, conflict, impossible), `dockerfile`, `files` (texts by path in
the build context), `after` (versions by name, null for what is not there).  What is compared: whether an install ends
the build, and the releases of torch, torchvision and torchaudio after the last step; then whether a finding tells what
the case is about, and whether a quiet one has none.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from envkit import facts as tables
from envkit.dockerfile.context import Context
from envkit.model import Outcome
from envkit.static import ASKED, AskIndex, CheckOptions
from envkit.static.judged import of_dockerfile
from envkit.static.resolved import finished, read_followed
from envkit.subjects.resolved import FAMILY
from envkit.system import files

_TELLING = (
    *("torch-rejected", "torch-installed-twice", "torchvision-mismatch", "package-rejected", "torch-build-missing"),
    *("torch-python-unsupported", "sdist-build-fails", "torch-index-missing", "numpy-too-new"),
)


def public(version: str | None) -> str:
    """A release without its local part; "" for none."""
    return re.split(r"\+", version or "")[0]


def one(line: str, day: str) -> dict[str, Any]:
    """What envkit says of a case, in a process of its own."""
    case, facts = json.loads(line), tables.load()
    ask = AskIndex(300, day, lambda line: None)
    with files.scratch("truth") as folder:
        for name, text in {**case["files"], "Dockerfile": case["dockerfile"]}.items():
            path = folder / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        context = Context(folder, folder / "Dockerfile")
        options = CheckOptions(ask=ask)
        subject = read_followed(case["dockerfile"], "Dockerfile", context, options, facts)
        judged = of_dockerfile(case["dockerfile"], "Dockerfile", context, CheckOptions(), facts)
        again = finished(subject, judged.results, facts)
    records = subject.resolved or ()
    told = [r for r in again.results if r.check in _TELLING and r.outcome is Outcome.FAIL]
    doubt = next((r for r in again.results if r.check == ASKED and r.outcome is Outcome.UNKNOWN), None)
    return {
        "refused": any(each.refused for each in records),
        "unanswered": "; ".join(each.unanswered for each in records if each.unanswered),
        "after": dict(records[-1].after) if records else {},
        "told": [f"{r.check}: {f.message}" for r in told for f in r.findings],
        "offline": [r.check for r in judged.results if r.check in _TELLING and r.outcome is Outcome.FAIL],
        "doubt": doubt.reason if doubt else "",
    }


def main() -> int:
    """Prints a line a kind, and with --show each case that differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", type=Path)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--exclude-newer", default="")
    parser.add_argument("--jobs", type=int, default=4, help="cases at once: most of the time is the index's")
    asked = parser.parse_args()
    count: Counter[tuple[str, str]] = Counter()
    lines = asked.cases.read_text("utf-8").splitlines()
    lines = [line for line in lines if asked.only in ("", json.loads(line)["id"])]
    with ProcessPoolExecutor(asked.jobs) as pool:
        answers = list(pool.map(one, lines, [asked.exclude_newer] * len(lines)))
    for line, said in zip(lines, answers, strict=True):
        case = json.loads(line)
        ends = case["kind"] == "impossible"
        wanted = {name: public(case["after"].get(name)) for name in FAMILY}
        got = {name: public(said["after"].get(name)) for name in FAMILY}
        # What a base holds of which no fact knows the release cannot differ.
        got |= {name: wanted[name] for name in FAMILY if said["after"].get(name) == "" and wanted[name]}
        state = said["refused"] == ends and (ends or wanted == got)
        tells = bool(said["told"]) == (case["kind"] != "quiet")
        offline = bool(said["offline"]) == (case["kind"] != "quiet")
        for kind in (case["kind"], "all"):
            count[kind, "cases"] += 1
            count[kind, "state"] += state
            count[kind, "told"] += tells
            count[kind, "offline"] += offline
            count[kind, "doubt"] += bool(said["doubt"])
        if asked.show and not (state and tells):
            print(f"--- {case['id']} ({case['kind']}) state {'agrees' if state else 'differs'}")
            print(f"    wanted {wanted}, got {got} {'refused' if said['refused'] else ''} {said['unanswered']}")
            for text in (*said["told"], *([f"doubt: {said['doubt']}"] if said["doubt"] else [])):
                print(f"    {text[:300]}")
            sys.stdout.flush()
    print(f"{'kind':12} {'cases':>6} {'state':>6} {'told':>6} {'offline':>8} {'doubt':>6}")
    for kind in sorted({kind for kind, _ in count}, key=lambda kind: (kind == "all", kind)):
        print(f"{kind:12} {count[kind, 'cases']:6} {count[kind, 'state']:6} {count[kind, 'told']:6} "
              f"{count[kind, 'offline']:8} {count[kind, 'doubt']:6}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
