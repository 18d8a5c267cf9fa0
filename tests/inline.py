"""envkit's command line within the process of the tests; `forked` is for what ends or changes its process."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest

from envkit import cli


@dataclass(frozen=True)
class Ended:
    """What a command line left: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    def document(self, schema: Mapping[str, Any]) -> Any:
        """Its stdout as JSON, held to the schema."""
        found = json.loads(self.out)
        jsonschema.validate(found, schema)
        return found


class Envkit:
    """Runs command lines that begin with ``first``; within ``with``, and signal handlers come back afterwards."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *first: str) -> None:
        self.capsys, self.first = capsys, first

    def __enter__(self) -> Envkit:
        self.handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.handlers.items():
            signal.signal(number, handler)

    def __call__(self, *words: object) -> Ended:
        return self.split([*self.first, *map(str, words)])

    def split(self, words: Sequence[str], command: tuple[str, ...] | None = None) -> Ended:
        """The whole command line, and apart from it what stands behind ``--``."""
        self.capsys.readouterr()
        code = cli.run(lambda: cli.invoke(words, command))
        told = self.capsys.readouterr()
        assert "Traceback" not in told.err, told.err
        return Ended(code, told.out, told.err)
