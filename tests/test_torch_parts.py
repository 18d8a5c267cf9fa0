"""Parts of the payload against a real torch: precision and placement in ``torch_parts.py``, and in ``gpu_parts.py``
tests of the suite that only a GPU runs."""

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
PROGRAMS = ("torch_parts.py", "gpu_parts.py")


def checks(program: str) -> list[str]:
    """The functions of a program that take nothing, which are its checks."""
    body = ast.parse(Path(__file__).with_name(program).read_text()).body
    return [one.name for one in body if isinstance(one, ast.FunctionDef) and not (one.args.args or one.args.vararg)]


@cache
def said(program: str) -> dict[str, str]:
    """The trace of each check that failed, by one process that imports torch once."""
    done = subprocess.run(
        [torches.PYTHON, str(Path(__file__).with_name(program))],
        capture_output=True,
        text=True,
        timeout=600,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@torches.needs_torch
@pytest.mark.parametrize(("program", "check"), [(name, check) for name in PROGRAMS for check in checks(name)])
def test_a_part_does_what_it_says(program: str, check: str) -> None:
    assert said(program)[check] == ""
