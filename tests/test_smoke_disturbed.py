"""Silent corruptions of torch's operators, brought in from outside: the table of operators sees every one.

``python tests/disturbed.py --device cuda:0 --level full`` does the same on a GPU.  ENVKIT_EVERY_OPERATOR=1 also tries
each at the level full, and on whole runs of the suite; that takes an hour of two cores.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torches

PROGRAM = Path(__file__).with_name("disturbed.py")
# By corruption: the row that saw it, and is tried first.  A row's name that is no longer right costs time alone.
FIRST = Path(__file__).parent / "data" / "smoke_disturbed.json"
FEWEST = 150  # that are met and seen in any release of torch; one takes apart what another has a kernel for
every_operator = pytest.mark.skipif(
    "ENVKIT_EVERY_OPERATOR" not in os.environ, reason="ENVKIT_EVERY_OPERATOR is not set"
)


def disturbed(*words: str) -> Any:
    done = subprocess.run(
        [torches.PYTHON, str(PROGRAM), "--first", str(FIRST), *words],
        capture_output=True,
        text=True,
        timeout=14_400,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def all_seen(said: Any) -> None:
    assert said["sound"] == []
    assert [name for name, one in said["found"].items() if one["applied"] and not one["red"]] == []
    # a corruption that raises is none that is silent
    assert [name for name, one in said["found"].items() if any(" raised " in each for each in one["red"])] == []
    assert len(said["found"]) - len(said["missed"]) >= FEWEST


@torches.needs_torch
@pytest.mark.nightly  # a minute of a processor and more
def test_the_level_quick_sees_each_corruption_of_an_operator() -> None:
    all_seen(disturbed("--level", "quick"))


@torches.needs_torch
@every_operator
def test_the_level_full_sees_each_corruption_of_an_operator() -> None:
    all_seen(disturbed("--level", "full"))


@torches.needs_torch
@every_operator
def test_a_whole_run_of_the_suite_goes_red_under_each_corruption() -> None:
    said = disturbed("--level", "quick", "--suite")
    assert said["sound"] == []
    assert len(said["found"]) - len(said["missed"]) >= FEWEST
