"""The figures that `scripts/public_logs.py` prints of a part of a corpus."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "scripts" / "public_logs.py"
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
ROWS = (
    ("full", "out-of-memory", "gpu-memory-exhausted", [], True, FULL),
    ("mistaken", "xid-79", "hardware-fault", ["not-gpu-env"], False, "KeyError: 'label'"),
)


def figures(folder: Path, *options: str) -> str:
    """What the script prints of two texts, of which one is labelled so that its first kind is wrong."""
    rows = []
    for id, kind, cause, also, gpu, error in ROWS:
        frames = (
            'Traceback (most recent call last):\n  File "/home/someone/train.py", line 10, in <module>\n    step()\n'
        )
        (folder / f"{id}.txt").write_text(f"{frames}{error}\n")
        row = {"id": id, "category": kind, "cause_class": cause, "also_ok": also, "gpu": gpu}
        rows.append(json.dumps(row))
    (folder / "list.jsonl").write_text("\n".join(rows))
    command = [sys.executable, SCRIPT, "--list", folder / "list.jsonl", "--texts", folder, *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_totals_name_no_single_text(tmp_path: Path) -> None:
    assert "mistaken" in figures(tmp_path)
    assert not any(id in figures(tmp_path, "--totals") for id, *_ in ROWS)


def test_totals_count_what_is_right_by_the_first_label_alone(tmp_path: Path) -> None:
    said = re.findall(r"(?m)^(.+?) +(\d+) of +(\d+) ", figures(tmp_path, "--totals"))
    counted = {question: (int(right), int(asked)) for question, right, asked in said}
    assert (counted["category"], counted["category, strict"]) == ((2, 2), (1, 2))
    assert counted["group: GPU failures"] == (1, 1)
    assert sum(asked for question, (_, asked) in counted.items() if question.startswith("at confidence")) == 2
