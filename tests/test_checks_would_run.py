"""What the checks of drivers and GPUs name in place of what does not run: it runs, by the same checks."""

from __future__ import annotations

import pytest
import written

from envkit import facts as tables
from envkit.judging.checks._would_run import base_for, driver_runs, torch_for
from envkit.model import Outcome
from envkit.versions import Cuda

FACTS = tables.load()


def fix(text: str, check: str) -> str:
    """The fix of the one finding of a check."""
    (finding,) = written.judged(check, "dockerfile", text, FACTS).findings
    return finding.fix


@pytest.mark.parametrize(
    ("driver", "base"),
    [
        ("535", "nvidia/cuda:13.0.0-cudnn-runtime-ubuntu22.04"),
        ("450", "nvidia/cuda:12.2.2-runtime-ubuntu22.04"),
        ("470", "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime"),
    ],
)
def test_the_tag_that_is_named_runs_on_the_driver(driver: str, base: str) -> None:
    """The same question about the image of the fix passes."""
    named = fix(f"#: driver {driver}\nFROM {base}\n", "driver-too-old").rpartition(" ")[2]
    assert named.partition(":")[0] == base.partition(":")[0]
    assert named != base
    again = written.judged("driver-too-old", "dockerfile", f"#: driver {driver}\nFROM {named}\n", FACTS)
    assert again.outcome is Outcome.PASS, named


def test_the_tag_starts_on_a_geforce_too() -> None:
    text = "#: driver 535\n#: gpu RTX 4090\nFROM {}\n"
    named = fix(text.format("nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04"), "driver-too-old").rpartition(" ")[2]
    assert written.judged("driver-too-old", "dockerfile", text.format(named), FACTS).outcome is Outcome.PASS


def test_the_torch_that_is_named_has_code_for_the_gpu_and_runs_on_the_driver() -> None:
    """Of a driver that is older than the newest torch a build for an older CUDA is named."""
    head, text = "#: driver 570\n#: gpu RTX 5090\nFROM python:3.11-slim\n", "RUN pip install torch==2.4.1\n"
    words = fix(head + text, "gpu-arch-not-covered").split()
    assert words[0] == "take" and words[2] == "from"
    asked = f"{head}RUN pip install {words[1]} --index-url {words[3]}\n"
    for check in ("gpu-arch-not-covered", "driver-too-old"):
        assert written.judged(check, "dockerfile", asked, FACTS).outcome is Outcome.PASS, asked


def test_the_same_release_is_kept_where_a_build_of_it_runs() -> None:
    assert torch_for("2.7.0", "525", (), FACTS).startswith("torch==2.7.0+cu1")
    assert torch_for("2.7.0", "", ("no such GPU",), FACTS) == ""


def test_nothing_is_named_where_nobody_knows() -> None:
    base = written.file("dockerfile", "FROM registry.example/team/base:7\n", FACTS)
    assert base.results
    assert not driver_runs(Cuda("99.0"), "535", FACTS)
    assert driver_runs(Cuda("99.0"), "", FACTS)
    from envkit.dockerfile.bases import base as base_of
    from envkit.model import Span

    assert base_for(base_of("registry.example/x:1", Span("Dockerfile", 1), FACTS), "535", FACTS) == ""
    assert base_for(base_of("nvidia/cuda:12.2.2-base-ubuntu22.04", Span("Dockerfile", 1), FACTS), "x", FACTS) == ""
