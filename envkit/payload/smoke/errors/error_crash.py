"""Deaths of every kind, in children that need no GPU: the runner itself must tell each apart and go on."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from envkit.payload.smoke import provoke
from envkit.payload.smoke.bench import Bench

_TEXT = "provoked by the test"
_LOOP_S = 0.35  # the child that never answers; its stack is written before it is killed
_TERMS = 200


def _segfault() -> None:
    ctypes.string_at(0)


def _raise() -> None:
    raise ValueError(_TEXT)


def _loop() -> None:
    while True:
        pass


def _leave() -> None:
    os._exit(3)


_DEATHS: dict[str, Callable[[], None]] = {
    "segfault": _segfault,
    "abort": os.abort,
    "leave": _leave,
    "raise": _raise,
    "loop": _loop,
}
# How each must be told: the kind of end, the signal, and words of the detail.
_EXPECTED = {
    "segfault": ("killed", "SIGSEGV", ""),
    "abort": ("killed", "SIGABRT", ""),
    "leave": ("garbled", "", "status 3"),
    "raise": ("raised", "", f"ValueError: {_TEXT}"),
    "loop": ("hung", "", "no answer"),
}


def _sum() -> int:
    return sum(number * number for number in range(_TERMS))


def _nothing() -> None:
    """The fault that is not planted."""


def run(bench: Bench) -> None:
    """Measures ``reported.wrong`` of five deaths and ``after.wrong``."""
    works: dict[str, Callable[[], Any]] = dict(_DEATHS) if provoke.planted(bench) else dict.fromkeys(_DEATHS, _nothing)
    loop = {"loop": works.pop("loop")}
    found = {**provoke.ends(works), **provoke.ends(loop, _LOOP_S)}
    for name, (ended, signal, detail) in _EXPECTED.items():
        ending = found[name]
        right = ending.ended == ended and ending.signal == signal and detail in ending.detail
        provoke.tell(bench, "reported.wrong", right, f"{name}: {provoke.words(ending)}")
    exact = (_TERMS - 1) * _TERMS * (2 * _TERMS - 1) // 6
    provoke.after(bench, lambda: int(_sum() != exact))
