"""Recorded machines, machines with something taken away, and what a check says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import answers
from machines import without

from envkit import facts
from envkit.judging import judge
from envkit.model import Observed, Result
from envkit.subjects import Host
from envkit.subjects.codec import from_plain
from envkit.subjects.host import Gpu

FACTS = facts.load()
CHECKS = {name: check for name, check in judge.checks().items() if Host in check.subjects}
__all__ = ["CHECKS", "FACTS", "recorded", "said", "with_gpus", "without"]

DATA = Path(__file__).parent / "data/host"


def recorded(name: str) -> Host:
    """The machine that was recorded in ``name``."""
    return from_plain(Host, json.loads((DATA / name).read_text()))


def with_gpus(host: Host, *gpus: Gpu) -> Host:
    """The host with these GPUs in NVML."""
    return replace(host, nvml=Observed.of(replace(host.nvml.need("NVML"), gpus=gpus), "NVML"))


def said(check: str, host: Host) -> Result:
    """What one check says of a host."""
    return answers.judged(check, host)
