"""What this Python's torch maps and binds, observed in a child that is started as a user's process would be."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from typing import Any

from envkit.payload.probe import inner
from envkit.payload.probe.ask import how_it_died

_BUDGET_S = 300.0  # importing torch from a cold network disk has been seen to take minutes
_END_S = 10  # from the last line to the end of the process


def _command() -> list[str]:
    """The child's command line: this interpreter with the image's own environment, neither -I nor -E."""
    if sys.argv[0].endswith(".pyz"):
        return [sys.executable, os.path.abspath(sys.argv[0])]
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    start = f"import sys; sys.path.insert(0, {tree!r}); from envkit.payload import main; main.main(sys.argv[1:])"
    return [sys.executable, "-c", start]


def _run(extra: list[str], budget_s: float) -> tuple[dict[str, Any], str]:
    """The fields that the child reported, and how it failed, if it did."""
    reading, writing = os.pipe()
    child = subprocess.Popen(
        [*_command(), "probe", "--inner", str(writing), *extra],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),  # whatever an import prints must not reach our document
        pass_fds=(writing,),
    )
    os.close(writing)
    deadline = time.monotonic() + budget_s
    data = b""
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(reading, 1 << 16)
        if not chunk:
            break
        data += chunk
    hung = time.monotonic() >= deadline
    if hung:
        child.kill()
    os.close(reading)
    try:
        code = child.wait(_END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        code, hung = child.wait(), True
    found: dict[str, Any] = {}
    doing, ended = "starting", False
    for raw in data.decode("utf-8", "replace").splitlines():
        try:
            line = json.loads(raw)
        except ValueError:
            continue  # the last line of a process that died while writing it
        if not isinstance(line, dict):
            continue  # something else wrote into the pipe; a field that this cost is missing below
        doing = line.get("doing", doing)
        ended = ended or "end" in line
        if "field" in line:
            found[line["field"]] = line["observed"]
    if ended:
        return found, ""
    how = f"did not end within {budget_s:g} s" if hung else how_it_died(-code if code < 0 else code << 8)
    if doing == "import torch" and code < 0 and not hung:
        found["torch_import"] = inner.observed(how, "wait status")
    return found, f"the observed process {how} while {doing}"


def main(argv: list[str]) -> dict[str, Any]:
    """The document of a probe: every field of the image, observed or lost with the reason."""
    started = time.monotonic()
    found, failed = _run([], _BUDGET_S)
    if failed and "overwritten" not in found:
        again, _ = _run(["--no-torch"], _BUDGET_S)
        for name in inner.fields():
            if name in again:
                found.setdefault(name, again[name])
    for name in inner.fields():
        found.setdefault(name, inner.lost(failed or "it was not reported"))
    return {"image": found, "elapsed_s": round(time.monotonic() - started, 3)}
