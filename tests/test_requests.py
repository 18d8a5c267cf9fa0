"""What a caller in Python gets who says nothing: a request asks for nothing beyond what its required fields say."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from envkit.build.draft import _torch_of
from envkit.cli.fleets import words_of_examination
from envkit.debug import DebugRequest
from envkit.engine import BuildRequest, JobRequest
from envkit.errors import Undecided
from envkit.explain.explain import ExplainRequest
from envkit.launch.preflight import PreflightRequest
from envkit.static import CheckOptions
from envkit.static.check import CheckRequest, answer, config_of

REQUESTS = (BuildRequest, JobRequest, DebugRequest, ExplainRequest, PreflightRequest, CheckOptions, CheckRequest)


@pytest.mark.parametrize("request_type", REQUESTS, ids=lambda one: str(one.__name__))
def test_no_switch_is_on_by_itself(request_type: type[BuildRequest]) -> None:
    switches = {each.name: each.default for each in fields(request_type) if isinstance(each.default, bool)}
    assert switches and not any(switches.values()), switches


def test_a_check_of_nothing_is_no_pass_unless_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(Undecided):
        answer(CheckRequest((str(tmp_path),)), config_of(CheckRequest()))
    assert answer(CheckRequest((str(tmp_path),), if_any=True), config_of(CheckRequest())).judged == ()


@pytest.mark.parametrize(
    ("lines", "torch"),
    [
        (
            "--index-url https://x/cu124\n-r more.txt\n\n# torch==1.0\nnumpy==2.0\ntorch==2.6.0+cu124  # pinned\n",
            "2.6.0",
        ),
        ("Torch>=2.4,<2.7\n", "<2.7,>=2.4"),
        ("torch\ntorchvision==0.21.0\n", ""),
        ("", ""),
    ],
)
def test_what_a_requirements_file_says_of_torch_is_found_behind_other_lines(lines: str, torch: str) -> None:
    assert _torch_of(lines) == torch


def test_the_words_of_an_examination_are_those_that_are_not_the_nodes_own() -> None:
    words = [
        "--gpus",
        "all",
        "--fleet",
        "/shared",
        "--quiet",
        "-f",
        "json",
        "--budget=5",
        "--level",
        "full",
        "--frames",
    ]
    assert words_of_examination([*words, "--strict"]) == ("--gpus", "all", "--level", "full", "--strict")
