"""Two pins that do not fit end a build only where the pip that runs has a resolver."""

from __future__ import annotations

import pytest
from written import judged

from envkit.facts import load
from envkit.model import Severity

FACTS = load()
PAIR = "torch==2.0.1 xformers==0.0.18\n"
FOCAL = "FROM nvidia/cuda:11.8.0-devel-ubuntu20.04\nRUN apt-get update && apt-get install -y python3-pip\n"


@pytest.mark.parametrize(
    "text",
    [
        FOCAL + "RUN pip3 install " + PAIR,
        FOCAL + "RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install " + PAIR,
        "FROM python:3.8\nRUN pip install pip==20.2.4\nRUN pip install " + PAIR,
        "FROM python:3.9\nRUN pip install -U 'pip<20.3'\nRUN pip install " + PAIR,
        "FROM python:3.8.5\nRUN pip install " + PAIR,
        "FROM tensorflow/tensorflow:2.8.0-gpu\nRUN pip install " + PAIR,
        "FROM continuumio/miniconda3:4.9.2\nRUN pip install " + PAIR,
        "FROM pytorch/pytorch:1.9.0-cuda11.1-cudnn8-runtime\nRUN pip install " + PAIR,
        "FROM registry.example/team/base:7-py3.8\nRUN pip install " + PAIR,
    ],
)
def test_an_old_or_unknown_pip_is_no_error(text: str) -> None:
    """pip before 20.3 installs both, and what is not known is not said to end the build."""
    (finding,) = judged("torch-rejected", "dockerfile", text, FACTS).findings
    assert finding.severity is Severity.WARNING
    assert "20.3" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        FOCAL + "RUN pip3 install --upgrade pip && pip3 install " + PAIR,
        FOCAL + "RUN curl https://bootstrap.pypa.io/pip/3.8/get-pip.py | python3\nRUN pip install " + PAIR,
        FOCAL + "RUN pip3 install uv && uv pip install --system " + PAIR,
        "FROM python:3.8\nRUN pip install " + PAIR,
        "FROM python:3.9\nRUN pip install -U 'pip<24'\nRUN pip install " + PAIR,
        "FROM registry.example/team/base:7-py3.10\nRUN pip install " + PAIR,
        "FROM continuumio/miniconda3:23.5.2-0\nRUN pip install " + PAIR,
        "FROM pytorch/pytorch:1.13.1-cuda11.6-cudnn8-runtime\nRUN pip install " + PAIR,
        "FROM debian:11\nRUN apt-get update && apt-get install -y python3-pip\nRUN pip3 install " + PAIR,
    ],
)
def test_a_pip_with_the_resolver_ends_the_build(text: str) -> None:
    """It refuses the two."""
    (finding,) = judged("torch-rejected", "dockerfile", text, FACTS).findings
    assert finding.severity is Severity.ERROR
    assert finding.message.endswith("refuses the two and the build ends here")


NVIDIAS = "FROM nvcr.io/nvidia/pytorch:{month}-py3\n"


@pytest.mark.parametrize(
    ("month", "steps", "severity", "words"),
    [
        ("25.03", "RUN pip install torchvision==0.21.0", Severity.ERROR, "pip refuses and the build ends here"),
        ("25.03", 'ENV PIP_CONSTRAINT=""\nRUN pip install torchvision==0.21.0', Severity.WARNING, "in its place"),
        ("25.03", "RUN uv pip install --system torchvision==0.21.0", Severity.WARNING, "puts another in its place"),
        ("24.07", "RUN pip install vllm==0.5.4", Severity.WARNING, "or refuses where the image's constraints hold"),
        ("26.03", "RUN pip install vllm==0.11.0", Severity.WARNING, "or refuses where the image's constraints hold"),
        ("24.01", "RUN pip install vllm==0.5.4", None, ""),  # where pip replaces it, as torch-installed-twice says
        ("25.03", "RUN pip install --no-deps torchvision==0.21.0", None, ""),
        ("25.03", "RUN pip install timm==1.0.9", None, ""),  # which any torch is enough for
        ("25.03", "RUN pip install torch==2.6.0 torchvision==0.21.0", None, ""),
    ],
)
def test_what_comes_of_another_torch_in_nvidias_images(
    month: str, steps: str, severity: Severity | None, words: str
) -> None:
    """Their constraints hold torch from one month on; of others nobody read it, and uv does not heed them."""
    found = judged("torch-rejected", "dockerfile", NVIDIAS.format(month=month) + steps + "\n", FACTS).findings
    assert [each.severity for each in found] == ([severity] if severity else [])
    assert not found or words in found[0].message


BESIDE = "FROM python:3.11\nRUN {first}\nRUN {second}\n"


@pytest.mark.parametrize(
    ("first", "second", "severity"),
    [
        ("pip install torch==2.3.0", 'pip install "jax[cuda12]==0.4.30"', Severity.ERROR),
        ("pip install torch==2.3.0", 'pip install "jax[cuda12-local]==0.4.30"', None),
        ("pip install torch==2.3.0", 'pip install --no-deps "jax[cuda12]==0.4.30"', None),
        ("pip install torch==2.3.0", 'pip install "jax[cuda12]==0.4.30" && pip install torch==2.4.0', None),
        ("pip install vllm==0.6.3", 'pip install "tensorflow[and-cuda]==2.17.0"', Severity.ERROR),
        ("pip install vllm==0.6.3", "pip install tensorflow==2.17.0", None),
        ("pip install torch==2.6.0", 'pip install "tensorflow[and-cuda]==2.20.0"', Severity.WARNING),  # for its NCCL
        ("pip install torch==2.6.0", 'pip install "tensorflow[and-cuda]==2.15.0"', Severity.ERROR),
        ('pip install "tensorflow[and-cuda]==2.15.0"', "pip install torch==2.6.0", Severity.WARNING),
        ("pip install torch==2.9.0", 'pip install "tensorflow[and-cuda]==2.20.0"', None),
    ],
)
def test_nvidias_wheels_of_two_commands(first: str, second: str, severity: Severity | None) -> None:
    """The later command replaces those of the first, where no later one brings what fits both; torch does not load
    without the major of cuDNN that it is linked to."""
    found = judged("package-rejected", "dockerfile", BESIDE.format(first=first, second=second), FACTS).findings
    assert [each.severity for each in found if "nvidia-" in each.message] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("first", "second", "fires"),
    [
        ("torch --index-url https://download.pytorch.org/whl/cu121", "whisperx", True),  # whose newest torch is too old
        ("torch", "whisperx", True),  # which holds torch from above
        ("torch --index-url https://download.pytorch.org/whl/cu121", "whisperx==3.5.0", True),
        ("torch", "whisperx==3.5.0", False),
        ("torch", "--no-deps whisperx", False),
        ("torch --index-url https://mirror.example/wheels", "whisperx", False),  # of which nobody knows what it holds
        ("torch==2.8.0", "whisperx==3.8.6", False),
        ("nvidia-modelopt", "torch==2.6.0", True),  # the newest of which brings today's torch
        ("nvidia-modelopt==0.31.0", "torch==2.6.0", False),  # which asks for torch in an extra alone
    ],
)
def test_a_torch_without_a_release_that_bounds_exclude(first: str, second: str, fires: bool) -> None:
    """What its index gives today is known, and what it may give later too where bounds are held from above."""
    text = f"FROM python:3.11\nRUN pip install {first}\nRUN pip install {second}\n"
    assert bool(judged("torch-installed-twice", "dockerfile", text, FACTS).findings) is fires
