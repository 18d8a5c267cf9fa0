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
