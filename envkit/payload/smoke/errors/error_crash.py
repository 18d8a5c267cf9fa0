"""Deaths of every kind, in children that need no GPU: the runner itself must tell each apart and go on."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from envkit.payload.smoke import provoke
from envkit.payload.smoke.bench import Bench

_TEXT = "provoked by the test"
_LOOP_S = 0.35  # the child that never answers; its stack is written before it is killed
_TERMS = 200


def _raise() -> None:
    raise ValueError(_TEXT)


def _loop() -> None:
    while True:
        pass


# Each death, and how it must be told: the kind of end, the signal, and words of the detail.
_DEATHS: dict[str, tuple[Callable[[], object], str, str, str]] = {
    "segfault": (partial(ctypes.string_at, 0), "killed", "SIGSEGV", ""),
    "abort": (os.abort, "killed", "SIGABRT", ""),
    "leave": (partial(os._exit, 3), "garbled", "", "status 3"),
    "raise": (_raise, "raised", "", f"ValueError: {_TEXT}"),
    "loop": (_loop, "hung", "", "no answer"),
}


def _sum() -> int:
    return sum(number * number for number in range(_TERMS))


def _nothing() -> None:
    """The fault that is not planted."""


def run(bench: Bench) -> None:
    """Measures ``reported.wrong`` of five deaths and ``after.wrong``."""
    planted = provoke.planted(bench)
    works: dict[str, Callable[[], Any]] = {name: die if planted else _nothing for name, (die, *_) in _DEATHS.items()}
    loop = {"loop": works.pop("loop")}
    found = {**provoke.ends(works), **provoke.ends(loop, _LOOP_S)}
    for name, (_, ended, signal, detail) in _DEATHS.items():
        ending = found[name]
        right = ending.ended == ended and ending.signal == signal and detail in ending.detail
        provoke.tell(bench, "reported.wrong", right, f"{name}: {provoke.words(ending)}")
    exact = (_TERMS - 1) * _TERMS * (2 * _TERMS - 1) // 6
    provoke.after(bench, lambda: int(_sum() != exact))
