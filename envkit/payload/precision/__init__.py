"""One step of a model in the dtype that is wanted, beside the numbers that it would have if they were wide.

``precision module:factory`` calls the factory as ``placement`` does and takes one step (forward, loss, backward) in
single precision and one in the wanted dtype, each operation in lock step with its shadow (see ``shadow`` and
``watch``), and two more in single precision, whose bits must be the same.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from envkit.payload import isolate
from envkit.payload.precision import work


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="envkit.pyz precision", description=__doc__)
    parser.add_argument("target", help="module:factory")
    parser.add_argument("--code", default=".", help="folder that the module lies in")
    parser.add_argument("--dtype", choices=work.DTYPES, default="bfloat16")
    parser.add_argument("--autocast", action="store_true", help="run under torch.autocast, and cast nothing before")
    parser.add_argument("--seconds", type=float, default=540.0)
    return parser.parse_args(argv)


def main(argv: list[str]) -> dict[str, Any]:
    """Takes the steps as ``argv`` asks; returns the document."""
    asked = _arguments(argv)
    started = time.monotonic()
    request = work.PrecisionRequest(asked.target, os.path.abspath(asked.code), asked.dtype, asked.autocast)
    heard: dict[str, Any] = {}

    def hear(said: dict[str, Any]) -> None:
        heard.update(said)
        if "stage" in said:
            sys.stderr.write(f"{time.monotonic() - started:.0f} s: {said['stage']}\n")
            sys.stderr.flush()

    task = isolate.Task("precision", "", asked.seconds, lambda say: work.follow(request, say), heard=hear)
    ending = isolate.run_one(task)
    died = (ending.ended, ending.signal, ending.detail)
    ran = ending.value if ending.ended == "ran" else None
    return {
        "target": asked.target,
        "dtype": asked.dtype,
        "autocast": asked.autocast,
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": heard.get("torch"),
        "torch_error": "" if heard.get("torch") else " ".join(filter(None, died)),
        **{name: heard.get(name) for name in ("gpus", "limits", "rounding", "device", "wide", "was")},
        **{name: heard.get(name) for name in ("single", "noisy", "wanted")},
        "ended": ending.ended,
        "signal": ending.signal,
        "detail": ending.detail,
        "stage": str(ran["stage"] if ran else heard.get("stage", "start")),
        "error": ran["error"] if ran else None,
        "stderr_tail": "" if ran and not ran["error"] else ending.stderr_tail,
        "seconds": round(time.monotonic() - started, 3),
    }
