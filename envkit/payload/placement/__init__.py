"""Where a model's tensors live, and the first operation in which two devices or two dtypes meet.

``placement module:factory`` calls the factory and runs the model once, watching every operation.  With a GPU it is a
real run.  Without one the model is put on a GPU that is not there: with torch's fake tensors where this torch can, and
else, or where a fake tensor has no value to give, with tensors on the CPU that remember which device they were put on.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from envkit.payload import isolate
from envkit.payload.placement import work

WAYS = ("auto", *work.HOW)
_LEAST_S = 5.0  # less than that is no time to import torch once more


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="envkit.pyz placement", description=__doc__)
    parser.add_argument("target", help="module:factory")
    parser.add_argument("--code", default=".", help="folder that the module lies in")
    parser.add_argument("--mode", choices=WAYS, default="auto")
    parser.add_argument("--gpus", type=int, default=1, help="how many GPUs are pretended where none is")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--rank-folder", default="", help="folder that the ranks of this job share")
    parser.add_argument("--rank-seconds", type=float, default=30.0)
    return parser.parse_args(argv)


def _follow(request: work.PlacementRequest, budget_s: float) -> tuple[isolate.Ending, dict[str, Any]]:
    """How the child ended, and what it told: the ``facts`` (torch and the GPUs), and the ``stage`` that it reached."""
    told: dict[str, Any] = {"facts": {}, "stage": ""}
    task = isolate.Task("placement", "", budget_s, lambda say: work.follow(request, say), heard=told.update)
    return isolate.run_one(task), told


def _another_way(how: str, followed: dict[str, Any] | None, ending: isolate.Ending) -> str:
    """Why a run with fake tensors must be done another way, empty if it need not: torch stopped it, and neither the
    user's own code nor two devices."""
    if how != "fake" or ending.ended not in ("ran", "raised"):
        return ""
    if followed is None:
        return ending.detail
    error = followed["error"]
    if followed["doubt"]:
        return str(followed["doubt"])
    if not error or followed["refusal"] or error["by_user"] or error["stage"] == "import":
        return ""
    return str(error["message"])


def main(argv: list[str]) -> dict[str, Any]:
    """Follows the model as ``argv`` asks; returns the document."""
    asked = _arguments(argv)
    started = time.monotonic()
    request = work.PlacementRequest(
        asked.target, os.path.abspath(asked.code), asked.mode, asked.gpus, asked.rank_folder, asked.rank_seconds
    )
    ending, told = _follow(request, asked.seconds)
    followed = ending.value if ending.ended == "ran" else None
    tried = []
    how = str(told["facts"].get("how", asked.mode))
    why = _another_way(how, followed, ending) if asked.mode == "auto" else ""
    left = asked.seconds - (time.monotonic() - started)
    if why and left > _LEAST_S:
        sys.stderr.write(f"fake tensors: {why}; following it with tensors on the CPU\n")
        tried.append({"how": how, "why": why})
        ending, told = _follow(request._replace(how="trace"), left)
        followed = ending.value if ending.ended == "ran" else None
        how = "trace"
    return {
        "target": asked.target,
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": told["facts"].get("torch"),
        "torch_error": "" if told["facts"] else " ".join(filter(None, (ending.ended, ending.signal, ending.detail))),
        "gpus": told["facts"].get("gpus"),
        "how": how,
        "ended": ending.ended,
        "signal": ending.signal,
        "detail": ending.detail,
        "stage": followed["stage"] if followed else told["stage"],
        "stderr_tail": "" if followed and not followed["error"] else ending.stderr_tail,
        "followed": followed,
        "tried": tried,
        "seconds": round(time.monotonic() - started, 3),
    }
