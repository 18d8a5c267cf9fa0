"""What sed, cp and mv of a RUN make of the files that are read afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from envkit.dockerfile.context import Context
from envkit.dockerfile.evaluate import read
from envkit.facts import load
from envkit.subjects.dockerfile import Dockerfile

FACTS = load()
LIST = "numpy==1.26.4\ntorch==2.1.0+cu118\ntorchvision==0.16.0\n"


def built(folder: Path, run: str, text: str = LIST) -> Dockerfile:
    (folder / "requirements.txt").write_text(text)
    script = f"FROM python:3.11\nWORKDIR /app\nCOPY . .\nRUN {run}\n"
    return read(script, "Dockerfile", FACTS, Context(folder))


@pytest.mark.parametrize(
    ("run", "version"),
    [
        ("cp requirements.txt /tmp/list.txt && pip install -r /tmp/list.txt", "2.1.0"),
        ("mkdir x && mv requirements.txt x && pip install -r x/requirements.txt", "2.1.0"),
    ],
)
def test_what_is_copied_is_read_in_its_new_place(tmp_path: Path, run: str, version: str) -> None:
    torch = built(tmp_path, run).torch
    assert torch is not None and torch.version.value == version
    assert torch.span.line == 2  # the lines keep their numbers


@pytest.mark.parametrize(
    "run",
    [
        "sed -i '/torch/d' requirements.txt && pip install -r requirements.txt",
        "sed -i.bak -e '/^torch/d' requirements.txt; pip install -r requirements.txt",
        "sed -Ei 's/torch==2.1.0/torch==2.6.0/' requirements.txt && pip install -r requirements.txt",
        "sed --in-place s/a/b/ /app/requirements.txt && pip install -r requirements.txt",
        "sed '/torch/d' requirements.txt > /tmp/r.txt && pip install -r /tmp/r.txt",
        "sed -i '2,3d' requirements.txt && pip install -r requirements.txt",
        "sed -i '/numpy/a torch==2.6.0' requirements.txt && pip install -r requirements.txt",
        'sed -i "s/2.1.0/$VERSION/" requirements.txt && pip install -r requirements.txt',
        "if [ -e /dev/nvidia0 ]; then sed -i /torch/d requirements.txt; fi; pip install -r requirements.txt",
        "cp /opt/list.txt requirements.txt && pip install -r requirements.txt",
        r"sed -i '/\(t*\)*\(o*\)*/d' requirements.txt && pip install -r requirements.txt",
    ],
)
def test_what_is_not_understood_is_not_read(tmp_path: Path, run: str) -> None:
    dockerfile = built(tmp_path, run)
    assert dockerfile.torch is None and dockerfile.unread


def test_a_lock_that_the_build_makes_anew_is_not_the_one_of_the_context(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n')
    (tmp_path / "uv.lock").write_text(
        'version = 1\n[[package]]\nname = "x"\nversion = "1"\nsource = { virtual = "." }\n'
    )
    dockerfile = built(tmp_path, "uv lock --upgrade && uv sync")
    assert any(one.path == "uv.lock" and "again" in one.why for one in dockerfile.unread)
