"""The measured fields of the torch table are what the package index says today; without network it is skipped."""

from __future__ import annotations

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from envkit.facts import load

SCRIPT = Path(__file__).parent.parent / "scripts" / "make_torch_rows.py"


@cache
def script() -> ModuleType:
    """scripts/make_torch_rows.py as a module."""
    spec = importlib.util.spec_from_file_location("make_torch_rows", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@cache
def why_unreachable() -> str:
    """Empty when the index answers."""
    why: str = script().reachable()
    return why


RELEASES = ("2.0.0", "2.6.0", "2.11.0", "2.15.0")


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """What the index says of RELEASES; one takes nine seconds, so they are asked side by side."""
    if why_unreachable():
        pytest.skip(f"the package index is out of reach: {why_unreachable()}")
    with ThreadPoolExecutor(len(RELEASES)) as pool:
        return dict(zip(RELEASES, pool.map(script().measure, RELEASES), strict=True))


@pytest.mark.slow  # the index is asked for nine seconds
@pytest.mark.parametrize("release", RELEASES)
def test_row_agrees_with_the_index(release: str, measured: dict[str, Any]) -> None:
    row = script().default_row(load(), release)
    assert script().differences(measured[release], row) == []


def test_a_wrong_row_is_told() -> None:
    row = script().default_row(load(), "2.6.0")
    texts = {"torch": "2.6.0", "cuda": "12.4", "cudnn": "9.1.0.70", "nccl": "2.21.5", "toolkit": None}
    measured = script().Measured(
        **texts,
        triton=row.triton,
        requires_python=row.requires_python,
        pythons=row.pythons,
        platform=row.platform,
    )
    assert script().differences(measured, row) == []
    (told,) = script().differences(replace(measured, cudnn="9.5.1.17"), row)
    assert "cudnn is 9.5.1.17 on the index and 9.1.0.70 in the table" in told
    assert len(script().differences(replace(measured, toolkit="12.4.1", pythons=("cp312",)), row)) == 2


def test_requirements_by_role() -> None:
    pins = script()._pins(
        [
            'nvidia-cuda-runtime-cu12==12.4.127; platform_system == "Linux"',
            'nvidia-cudnn-cu12==9.1.0.70; platform_system == "Linux"',
            "cuda-toolkit[cublas,cudart]==13.0.2",
            'triton~=3.8.0; platform_system == "Linux"',
            'triton==1.0; extra == "old"',
            "sympy==1.13.1",
        ]
    )
    assert pins == {"runtime": "==12.4.127", "cudnn": "==9.1.0.70", "toolkit": "==13.0.2", "triton": "~=3.8.0"}
