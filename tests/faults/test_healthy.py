"""No healthy environment has a finding above a note."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault import Case, failed, report
from healthy import ENVIRONMENTS, IMAGES, Environment, HealthyImage
from stacks import Bench
from test_engine_docker import build, write

from envkit.engine import ResolvedBase
from envkit.engine.docker import DockerEngine

NIGHTLY = pytest.mark.nightly


def is_quiet(case: Case, codes: tuple[int, ...]) -> None:
    """Fails where ``case`` has a finding above a note, a check that crashed, or another exit code."""
    code, results = report(case)
    said = failed(results, "warning")
    unknown = {name: one["reason"] for name, one in results.items() if one["outcome"] in ("unknown", "crashed")}
    assert (said, code in codes) == ({}, True), (said, code, unknown)
    assert [name for name, one in results.items() if one["outcome"] == "crashed"] == []


@pytest.mark.faults
@pytest.mark.parametrize(
    "environment", [pytest.param(one, id=one.name, marks=NIGHTLY if one.nightly else ()) for one in ENVIRONMENTS]
)
def test_a_healthy_environment_is_quiet(environment: Environment, bench: Bench) -> None:
    is_quiet(environment.make(bench), (0,))


@pytest.mark.engine
@pytest.mark.faults
@pytest.mark.parametrize(
    "image", [pytest.param(one, id=one.name, marks=NIGHTLY if one.nightly else ()) for one in IMAGES]
)
def test_a_healthy_image_is_quiet(
    engine: DockerEngine, python_base: ResolvedBase, tag: str, tmp_path: Path, image: HealthyImage
) -> None:
    build(engine, write(tmp_path, f"FROM {python_base.ref}\n{image.text}"), tag)
    words = ("probe", tag, "--gpus", "none", "--framework", "none")
    is_quiet(Case(words), (3,) if image.open else (0,))


def test_there_are_enough_of_them_and_each_has_a_name() -> None:
    names = [one.name for one in (*ENVIRONMENTS, *IMAGES)]
    assert len(names) == len(set(names)) >= 45
    assert len([one for one in (*ENVIRONMENTS, *IMAGES) if not one.nightly]) <= 14
