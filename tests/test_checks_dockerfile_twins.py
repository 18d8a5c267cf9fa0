"""Faults of Dockerfiles and their clean twins, which differ in one thing that real projects do."""

from __future__ import annotations

import pytest
from written import judged

from envkit.facts import load
from envkit.model import Outcome

FACTS = load()
OLD, NEW = "FROM nvidia/cuda:11.8.0-base-ubuntu22.04\n", "FROM nvidia/cuda:12.1.1-base-ubuntu22.04\n"
MAJOR = "torch-cuda-vs-base-mismatch-major"
LIST = "\n--- requirements.txt ---\nnumpy\ntorch==2.1.0\n"
MAKE = "RUN git clone https://example.com/a/b && cd b && make CUDA_HOME=/usr/local/cuda\n"
SHADOW = "ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64\nRUN apt-get install -y python3-pip && pip3 install torch=={}\n"
CUDA_HOME = "ENV CUDA_HOME=/usr/local/cuda-12.1\n"
INTO = "COPY requirements.txt /app\nRUN pip3 install -r /app/requirements.txt\n" + LIST
STAGE = (
    "FROM alpine AS lists\nCOPY . /src\n{}COPY --from=lists /src/requirements.txt /tmp/\n"
    "RUN pip3 install -r /tmp/requirements.txt\n" + LIST
)
FILTER = "COPY . .\nRUN grep -v {} requirements.txt > some.txt && pip3 install -r some.txt\n" + LIST
EDIT = "COPY . .\nRUN sed -i 's/^{}/#&/' requirements.txt && pip3 install -r requirements.txt\n" + LIST
ONBUILD = "FROM {} AS first\nONBUILD RUN pip3 install torch==2.1.0\nFROM first\n"
NIGHTLY = (
    "FROM python:3.11\nARG URL\nENV URL=${URL}\n"
    'RUN if [ -z "$URL" ]; then pip install torch==2.1.0; else pip install --index-url $URL {}; fi\n'
)


@pytest.mark.parametrize(
    ("check", "fault", "clean"),
    [
        (MAJOR, OLD + INTO, NEW + INTO),
        (MAJOR, STAGE.format(OLD), STAGE.format(NEW)),
        (MAJOR, OLD + FILTER.format("numpy"), OLD + FILTER.format("torch")),
        (MAJOR, OLD + EDIT.format("numpy"), OLD + EDIT.format("torch")),
        (MAJOR, ONBUILD.format(OLD[5:-1]), ONBUILD.format(NEW[5:-1])),
        ("unpinned-base", "FROM osrf/ros:desktop-full\n", "FROM osrf/ros:humble-desktop-full\n"),
        ("unpinned-base", "FROM me/cuda:ros-humble-rmf\n", "FROM me/cuda:jazzy\n"),
        ("nvcc-used-without-devel", OLD + MAKE, OLD + "RUN apt-get install -y cuda-nvcc-11-8\n" + MAKE),
        ("nvcc-used-without-devel", OLD + MAKE, "FROM me/rocm-dev:1.2\n" + MAKE),
        (
            "ld-library-path-shadow",
            "FROM nvidia/cuda:12.1.1-runtime-ubuntu22.04\n" + SHADOW.format("2.0.1"),
            "FROM nvidia/cuda:10.2-runtime-ubuntu18.04\n" + SHADOW.format("2.1.0"),
        ),
        (
            "ld-library-path-shadow",
            "FROM pytorch/pytorch:2.1.2-cuda12.1-cudnn8-devel\n" + SHADOW.format("2.6.0"),
            "FROM pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime\n" + SHADOW.format("2.6.0"),
        ),
    ],
)
def test_a_fault_is_found_and_its_clean_twin_is_not(check: str, fault: str, clean: str) -> None:
    assert judged(check, "dockerfile", fault, FACTS).outcome is Outcome.FAIL
    assert judged(check, "dockerfile", clean, FACTS).outcome in (Outcome.PASS, Outcome.SKIP)


@pytest.mark.parametrize(
    ("check", "open_", "settled"),
    [
        (
            "cuda-paths-not-of-base",
            "FROM me/image:1\n" + CUDA_HOME,
            "FROM me/image:1\nRUN apt-get install -y cuda-toolkit-12-1\n" + CUDA_HOME,
        ),
        (
            "cuda-paths-not-of-base",
            "FROM me/image:1\nRUN apt-get install -y cuda-toolkit-12-4\n" + CUDA_HOME,
            "FROM me/image:1\nRUN apt-get install -y cuda-toolkit-12-1\n" + CUDA_HOME,
        ),
        (
            "torch-python-unsupported",
            "FROM gcr.io/deeplearning-platform-release/tf2-gpu.2-12:m110\nRUN pip install torch==2.0.1\n",
            "FROM gcr.io/deeplearning-platform-release/tf2-gpu.2-12.py310:m110\nRUN pip install torch==2.0.1\n",
        ),
        (
            "nvcc-used-without-devel",
            OLD + "RUN apt-get install -y cuda-nvcc-$(awk -F. x /etc/version)\n" + MAKE,
            OLD + "RUN apt-get install -y cuda-nvcc-11-8\n" + MAKE,
        ),
    ],
)
def test_what_is_not_known_stays_open_until_the_file_says_it(check: str, open_: str, settled: str) -> None:
    assert judged(check, "dockerfile", open_, FACTS).outcome is Outcome.UNKNOWN
    assert judged(check, "dockerfile", settled, FACTS).outcome in (Outcome.PASS, Outcome.SKIP)


def test_a_variable_without_a_value_chooses_no_branch() -> None:
    for asked in ("torch", "torch==2.1.0"):
        found = judged("unpinned-torch", "dockerfile", NIGHTLY.replace("{}", asked), FACTS)
        assert found.outcome is not Outcome.FAIL
