"""Parts of the payload against a real torch: precision, placement, tests of speed; ``torch_parts.py`` has them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from functools import cache
from pathlib import Path

import pytest
import torches

from envkit import payload

ROOT = Path(payload.__file__).parents[2]
PROGRAM = Path(__file__).with_name("torch_parts.py")
FUNCTIONS = [node for node in ast.parse(PROGRAM.read_text()).body if isinstance(node, ast.FunctionDef)]
# What takes no argument is a check; the others are what checks have in common.
CHECKS = [one.name for one in FUNCTIONS if not one.args.args and one.args.vararg is None]


@cache
def said() -> dict[str, str]:
    """The trace of each check that failed, by one process that imports torch once."""
    done = subprocess.run(
        [torches.PYTHON, str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@torches.needs_torch
@pytest.mark.parametrize("check", CHECKS)
def test_a_part_does_what_torch_does(check: str) -> None:
    assert said()[check] == ""
