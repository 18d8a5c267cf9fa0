"""Of an operation on two devices the companion names the tensors of its line and where each was made (a real torch)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torches

from envkit.debug.job import COMPANION

# A tensor on "meta" stands for one on a GPU: torch refuses it beside one of the CPU as well.
PROGRAM = """\
import torch
from torch import nn

class Windowed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.window = torch.hann_window(8)  # made here
        self.others = {"first": torch.ones(8)}

    def forward(self, x):
        whole = self.layer(x)
        view = whole[:4]
        return {line}

def main():
    model = Windowed().to("meta")
    batch = torch.ones(8, 8, device="meta")  # given here
    model(batch)

main()
"""


def placed(folder: Path, line: str) -> tuple[dict[str, Any], list[str]]:
    """By name the tensors of the event, and the program's lines."""
    program = folder / "train.py"
    program.write_text(PROGRAM.replace("{line}", line))
    more = {"ENVKIT_DEBUG_FOLDER": str(folder), "ENVKIT_DEBUG_PLACES": "1", "PYTHONPATH": str(COMPANION)}
    done = subprocess.run(
        [torches.PYTHON, str(program)], env={**os.environ, **more}, capture_output=True, text=True, timeout=120
    )
    assert "RuntimeError" in done.stderr
    events = [json.loads(each) for each in (folder / "events.jsonl").read_text().splitlines()]
    (event,) = [each for each in events if each["event"] == "placed"]
    lines = program.read_text().splitlines()
    assert lines[event["line"] - 1].strip() == f"return {line}"
    return {each["name"]: each for each in event["tensors"]}, lines


@torches.needs_torch
@pytest.mark.slow  # importing torch takes seconds
def test_the_tensors_of_the_line_are_named_with_where_they_were_made(tmp_path: Path) -> None:
    found, lines = placed(tmp_path, "view * self.window + self.others['first'] + self.layer(x)[:4]")
    assert found["self.window"]["device"] == "cpu" and found["self.window"]["shape"] == [8]
    assert "# made here" in lines[found["self.window"]["made"][1] - 1]
    assert found["view"]["device"] == found["x"]["device"] == found["self.layer.weight"]["device"] == "meta"
    assert "# given here" in lines[found["x"]["made"][1] - 1]
    assert found["self.others['first']"]["device"] == "cpu"
