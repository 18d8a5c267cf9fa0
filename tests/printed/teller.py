"""Prints a text as a program would that takes its time: what a driver or a service says in the place of one.

    python teller.py said.txt

``{t:%H:%M:%S}`` in a line becomes the time, ``{+30}`` alone on a line lets 30 s pass on this clock without waiting,
and ``@for 20 TEXT`` prints TEXT twenty times, with its number for ``%i%`` and a falling number for ``%r%``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path


def lines(text: str) -> Iterator[str]:
    """What is printed, line by line."""
    passed = timedelta()
    for line in text.strip("\n").split("\n"):
        if wait := re.fullmatch(r"\{\+([\d.]+)\}", line):
            passed += timedelta(seconds=float(wait[1]))
            continue
        times, line = (int((found := line[5:].partition(" "))[0]), found[2]) if line.startswith("@for ") else (1, line)
        for place in range(times):
            passed += timedelta(seconds=0.013 if times == 1 else 1.7)
            now = datetime.now(UTC) + passed
            said = line.replace("%i%", str(place + 1)).replace("%r%", f"{2.7 / (1 + place * 0.13):.4f}")
            yield re.sub(r"\{t:([^}]*)\}", lambda found, now=now: now.strftime(found[1]), said)


if __name__ == "__main__":
    for line in lines(Path(sys.argv[1]).read_text()):
        print(line, flush=True)
