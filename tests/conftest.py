"""Shared fixtures: a real Docker engine, and a small base image with Python in it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from envkit.engine import BaseFound, BaseWish
from envkit.engine.docker import DockerEngine
from envkit.errors import Undecided


def cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envkit"


@pytest.fixture(scope="session")
def engine() -> DockerEngine:
    """A real engine; without one the test is skipped, or fails where ENVKIT_REQUIRE_ENGINE=1 says that one must be."""
    try:
        return DockerEngine(cache_home())
    except Undecided as error:
        if os.environ.get("ENVKIT_REQUIRE_ENGINE") == "1":
            pytest.fail(f"ENVKIT_REQUIRE_ENGINE=1 and {error.message}")
        pytest.skip(error.message)


@pytest.fixture(scope="session")
def python_base(engine: DockerEngine) -> Iterator[BaseFound]:
    """Debian with its own python3, made from packages once a day and then kept in envkit's cache."""
    wish = BaseWish("envkit-test-base:none", "bookworm", "", ("ca-certificates", "python3"), 1700000000)
    said: list[str] = []
    base = engine.resolve_base(wish, said.append)
    fresh = any(line.startswith("loading ") for line in said)
    yield base
    if fresh:
        engine.remove(base.ref)


@pytest.fixture
def tag(engine: DockerEngine) -> Iterator[str]:
    """A name for an image, taken away again."""
    name = f"envkit-test:{uuid.uuid4().hex[:12]}"
    yield name
    engine.remove(name)
