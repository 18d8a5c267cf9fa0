"""What a doubt is worth: undecided where its answer could change the exit code, else open, and shown all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import written
from gathered import gathered
from inline import Envkit

from envkit import facts
from envkit.judging import doubts, judge, pages
from envkit.model import Outcome, Report, Result, Severity, Subject

UNREAD = "RUN python3 -m fetch && pip install --no-cache-dir -r there.txt\n"
MOVING = "FROM registry.example/team/base:latest\n"
PRIVATE = "FROM registry.example/team/base:7\n"
PLAIN = "FROM python:3.11-slim-bookworm\n"
PIP = "RUN apt-get update && apt-get install -y python3-pip\n"
CUDA = f"FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\n{PIP}"
CUDNN = f"FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04\n{PIP}"
TORCH = "RUN pip install torch==2.6.0\n"
VISION = "RUN pip install torchvision==0.21.0\n"
CLONED = "RUN git clone https://github.com/a/b /b && pip install -r /b/requirements.txt\n"
DOWNLOADED = "RUN pip install -r https://a.example/requirements.txt\n"
# A check, a file in which its doubt could be an error, and a twin in which it could be a warning at most, or nothing.
PAIRS = {
    "torchvision pinned beside what was not read": (
        "torchvision-mismatch", f"{PLAIN}{VISION}{UNREAD}", f"{PLAIN}{UNREAD}",
    ),
    "torchvision pinned beside a list of other people's": (
        "torchvision-mismatch",
        f"{PLAIN}{VISION}{UNREAD}",
        f"{PLAIN}{VISION}{CLONED}",
    ),
    "a base with cuDNN": ("cudnn-mismatch", f"{CUDNN}{UNREAD}", f"{CUDA}{UNREAD}"),
    "a base with cuDNN beside a torch that is known": ("cudnn-mismatch", f"{CUDNN}{UNREAD}", f"{CUDNN}{TORCH}{UNREAD}"),
    "torchvision pinned beside a list of the project's own and one that the build downloads": (
        "torchvision-mismatch", f"{PLAIN}{VISION}{DOWNLOADED}{UNREAD}", f"{PLAIN}{VISION}{DOWNLOADED}",
    ),
    "torchvision pinned beside a list in the base": (
        "torchvision-mismatch", f"{PLAIN}{VISION}{UNREAD}", f"{PLAIN}{VISION}RUN pip install -r /opt/list.txt\n",
    ),
    "the loader's path": (
        "ld-library-path-shadow",
        f"{PLAIN}ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64\n{UNREAD}",
        f"{PLAIN}ENV LD_LIBRARY_PATH=/opt/app/lib\n{UNREAD}",
    ),
    "a base without cuDNN before the loader's path": (
        "ld-library-path-shadow",
        f"{CUDNN}ENV LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu\n{UNREAD}",
        f"{PLAIN}ENV LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu\n{UNREAD}",
    ),
    "CUDA_HOME": (
        "cuda-paths-not-of-base",
        f"{PRIVATE}ENV CUDA_HOME=/usr/local/cuda-11.8\n",
        f"{PRIVATE}ENV PATH=/usr/local/cuda-11.8/bin:$PATH\n",
    ),
    "nvcc that is called": (
        "nvcc-used-without-devel",
        f"{MOVING}RUN nvcc -o a a.cu\n",
        f"{MOVING}RUN pip install --no-build-isolation flash-attn==2.5.0\n",
    ),
    "nvcc in a base that may be another one tomorrow": (
        "nvcc-used-without-devel", f"{MOVING}RUN nvcc -o a a.cu\n", f"{PRIVATE}RUN nvcc -o a a.cu\n",
    ),
    "a base without a tag": (
        "torch-python-unsupported", f"FROM someones/base\n{TORCH}", f"FROM someones/base@sha256:{'0' * 64}\n{TORCH}",
    ),
    "the Python of a base that an argument gives": (
        "torch-python-unsupported", f"ARG BASE\nFROM $BASE\n{TORCH}", f"{PRIVATE}{TORCH}",
    ),
    "architectures that are compiled for": (
        "arch-list-unsupported",
        f"{PRIVATE}ENV TORCH_CUDA_ARCH_LIST=12.0\nRUN nvcc -o a a.cu\n",
        f"{PRIVATE}ENV TORCH_CUDA_ARCH_LIST=12.0\nRUN pip install --no-build-isolation flash-attn==2.5.0\n",
    ),
    "an extension that is compiled": (
        "torch-cuda-vs-base-mismatch-major",
        f"{PRIVATE}ENV FORCE_CUDA=1\nRUN pip install torch==2.6.0 && "
        "git clone https://github.com/NVlabs/tiny-cuda-nn && cd tiny-cuda-nn/bindings/torch && "
        "python setup.py install\n",
        f"{PRIVATE}RUN pip install torch==2.6.0\n",
    ),
}  # fmt: skip


@pytest.fixture
def envkit(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Envkit]:
    """Runs `envkit check` with these words in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    with Envkit(capsys, "check") as run:
        yield run


@gathered(PAIRS)
def test_a_doubt_that_could_be_an_error_stays_and_its_twin_is_open(name: str) -> None:
    check, harm, harmless = PAIRS[name]
    result = written.judged(check, "dockerfile", harm, facts.load())
    assert (result.outcome, result.at_most) == (Outcome.UNKNOWN, Severity.ERROR), result
    twin = written.judged(check, "dockerfile", harmless, facts.load())
    assert not twin.is_open(Severity.ERROR), twin
    assert twin.outcome in (Outcome.UNKNOWN, Outcome.SKIP), twin


@gathered(doubts.WORST)
def test_no_finding_of_a_check_is_worse_than_its_doubt_is_said_to_be(check: str) -> None:
    worst = doubts.WORST[check]
    assert check in judge.checks()
    assert re.fullmatch(r"[a-z].*[^.]", worst.why), "the reason is a clause"
    for block in pages.load(check).examples:
        for finding in written.judged(check, block.kind, block.text, facts.load()).findings:
            assert finding.severity <= worst.severity, (block.fault, finding.message)


def test_the_exit_code_is_3_only_where_the_answer_could_change_it(envkit: Envkit, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"{PLAIN}{UNREAD}")
    found = envkit("Dockerfile")
    assert found.code == 0
    assert "open[" in found.out
    assert "there.txt was not read" in found.out, "the doubt is shown"
    assert found.out.endswith("PASS: 1 file: nothing found, 1 open\n")
    assert envkit("--fail-on", "warning", "Dockerfile").code == 3
    assert envkit("--strict", "Dockerfile").code == 3
    assert envkit("--gpu", "H100", "Dockerfile").code == 3, "whether it runs there is what was asked"
    assert envkit("--driver", "550", "Dockerfile").code == 3
    (tmp_path / "envkit.toml").write_text('[check.severity]\nmissing-nvidia-env = "error"\n')
    assert envkit("Dockerfile").code == 3, "the doubt of a check weighs what its finding does"


def test_a_torch_that_came_after_the_facts_leaves_a_file_decided() -> None:
    later = f"{PLAIN}RUN pip install torch==2.99.0 --index-url https://download.pytorch.org/whl/cu121\n"
    result = written.judged("torch-build-missing", "dockerfile", later, facts.load())
    assert (result.outcome, result.at_most) == (Outcome.UNKNOWN, Severity.WARNING)


def test_many_files_are_as_undecided_as_the_worst(envkit: Envkit, tmp_path: Path) -> None:
    (tmp_path / "a.Dockerfile").write_text(f"{PLAIN}{UNREAD}")
    (tmp_path / "b.Dockerfile").write_text(f"{PLAIN}RUN pip install --no-cache-dir numpy==2.2.0\n")
    assert envkit("a.Dockerfile", "b.Dockerfile").code == 0
    (tmp_path / "b.Dockerfile").write_text(f"{CUDNN}{UNREAD}")
    assert envkit("a.Dockerfile", "b.Dockerfile").code == 3


def test_a_file_that_was_not_read_is_one_doubt_and_strict_keeps_each(envkit: Envkit, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"{CUDNN}{UNREAD}")
    found = envkit("Dockerfile")
    assert found.out.count("there.txt was not read") == 1
    assert "undecided[cudnn-mismatch]" in found.out, "the one that could be an error"
    assert envkit("--strict", "Dockerfile").out.count("there.txt was not read") > 1
    # Where its owner has accepted that one, the next worst has the doubt.
    (tmp_path / "Dockerfile").write_text(f"# envkit ignore-file=cudnn-mismatch\n{CUDNN}{UNREAD}")
    left = envkit("Dockerfile").out
    assert "open[" in left
    assert left.count("there.txt was not read") == 1


def test_the_doubt_that_is_kept_is_the_worst_and_others_are_not_touched() -> None:
    low = Result("a", Outcome.UNKNOWN, reason="x", at_most=Severity.WARNING, about="f")
    high = Result("b", Outcome.UNKNOWN, reason="y", about="f")
    own = Result("c", Outcome.UNKNOWN, reason="z", at_most=Severity.NOTE)
    passed = Result("d", Outcome.PASS)
    kept = doubts.once((low, high, own, passed))
    assert kept[1:] == (high, own, passed)
    assert (kept[0].outcome, kept[0].reason) == (Outcome.SKIP, "f was not read: b has the doubt")
    assert all(one.is_open(Severity.ERROR) for one in doubts.every((low, high, own)))


def test_a_crash_is_never_open_alone() -> None:
    crashed = Result("a", Outcome.CRASHED, reason="KeyError", at_most=Severity.NOTE)
    passed = Result("b", Outcome.PASS)
    assert Report(Subject("dockerfile", "x"), (crashed, passed)).exit_code() == 3


def test_junit_is_red_as_the_exit_code_is(envkit: Envkit, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"{PLAIN}{UNREAD}")
    for words, errors in (((), "0"), (("--strict",), None)):
        suite = ElementTree.fromstring(envkit("--format", "junit", *words, "Dockerfile").out).find("testsuite")
        assert suite is not None
        assert (suite.get("errors") == "0") == (errors == "0")


def test_a_finding_of_several_lines_is_shown_once_with_its_lines(envkit: Envkit, tmp_path: Path) -> None:
    run = "RUN apt-get update && apt-get install -y git\n"
    (tmp_path / "Dockerfile").write_text(f"FROM debian:bookworm-slim\n{run}{run}{run}")
    found = envkit("--only", "apt-lists-left", "Dockerfile")
    assert found.out.count("note[apt-lists-left]") == 1
    assert "= also: lines 3, 4\n" in found.out
    assert "3 notes" in found.out
    listed = envkit("--only", "apt-lists-left", "--format", "github", "Dockerfile").out
    assert listed.count("title=apt-lists-left") == 3
