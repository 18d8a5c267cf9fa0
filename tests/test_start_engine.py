"""An image's own start on a real engine: each fault of an ENTRYPOINT, CMD, USER or Python start, and its clean twin."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from test_engine_docker import build, write

from envkit import facts
from envkit.engine import ResolvedBase
from envkit.engine.docker import DockerEngine
from envkit.errors import Undecided
from envkit.judging.judge import judge
from envkit.report import summary
from envkit.runner import runner
from envkit.runner.runner import InEngine
from envkit.static import starts

pytestmark = pytest.mark.engine

CHECKS = ("image-start-fails", "image-entrypoint-changes-environment", "image-python-start-changes-environment",
          "image-workdir-closed", "image-python-start-error")  # fmt: skip
STARTS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "data" / "starts.toml").read_text())["start"]


@pytest.mark.parametrize("start", STARTS, ids=[start["name"].replace(" ", "-") for start in STARTS])
def test_each_start_is_judged_as_it_is(
    engine: DockerEngine, python_base: ResolvedBase, tag: str, tmp_path: Path, start: dict[str, Any]
) -> None:
    build(engine, write(tmp_path, f"FROM {python_base.ref}\n{start['image']}"), tag)
    place, command = InEngine(engine, tag, "", ()), tuple(start.get("command", ()))
    if "stops" in start:
        with pytest.raises(Undecided, match=start["stops"]):
            runner.probe(place, lambda line: None, static=True, command=command)
        return
    image = runner.probe(place, lambda line: None, static=True, command=command)
    results = {one.check: one for one in judge(image, facts.load())}
    found = {name: [finding.message for finding in results[name].findings] for name in CHECKS if results[name].findings}
    assert found.keys() == start.get("finds", {}).keys(), (found, image.start)
    for check, words in start.get("finds", {}).items():
        assert len(found[check]) == 1 and words in found[check][0]
    assert start.get("unknown", "") in image.start.missing, image.start.missing
    assert ("required-image-start" in results) == ("unknown" in start), image.start.missing
    if not {"image-start-fails"} & found.keys() and "unknown" not in start:
        process = image.process.need("the process")
        expected = (start.get("python", "/usr/bin/python3"), start.get("folder", "/"))
        assert (process.executable, process.folder) == expected


def test_a_start_of_a_file_is_what_runs(
    engine: DockerEngine, python_base: ResolvedBase, tag: str, tmp_path: Path
) -> None:
    """Variables, user, working folder, mounts and command are the service's, and the image's where it says none."""
    text = "COPY --chmod=755 <<'E' /e.sh\n#!/bin/sh\nexport NCCL_DEBUG=WARN\nexec \"$@\"\nE\n"
    text += 'ENV OMP_NUM_THREADS=8 CUDA_HOME=/cuda\nENTRYPOINT ["/e.sh"]\nCMD ["cat"]\n'
    build(engine, write(tmp_path, f"FROM {python_base.ref}\n{text}"), tag)
    (tmp_path / "src").mkdir()
    (tmp_path / "compose.yaml").write_text(
        "services:\n  train:\n    image: x\n    command: [python3, -u, train.py]\n    working_dir: /src\n"
        "    user: '4321'\n    volumes: ['./src:/src']\n    environment: {OMP_NUM_THREADS: '2', TOKEN: }\n"
    )
    override = starts.override(f"{tmp_path}/compose.yaml#train", facts.load())
    image = runner.probe(InEngine(engine, tag, "", ()), lambda line: None, static=True, override=override)
    process, start = image.process.need("the process"), image.start.need("the start")
    assert (process.uid, process.user, process.folder) == (4321, "", "/src")
    variables = {one.name: one.value for one in process.variables}
    expected = {"OMP_NUM_THREADS": "2", "CUDA_HOME": "/cuda", "NCCL_DEBUG": "WARN"}
    assert {name: variables.get(name) for name in expected} == expected
    assert (start.through, start.unset) == (("/e.sh",), ("TOKEN",))
    assert start.job == ("/e.sh", "python3", "-u", "train.py")
    rows = dict(next(table for table in summary.image(image) if table.title.endswith("starts its job")).rows)
    assert rows["/e.sh changes NCCL_DEBUG"] == "not set to `WARN`"
    assert rows["user"].startswith("without a name, uid 4321")
