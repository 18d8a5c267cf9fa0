"""Asks a question in a forked child, so that a crash or a hang costs the answer and nothing else."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from typing import Any


def how_it_died(status: int) -> str:
    """A wait status in words: "was killed by SIGSEGV" or "exited with code 3"."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"was killed by signal {number}"
    return f"exited with code {os.WEXITSTATUS(status)}"


def _answer(question: Callable[[], Any], pipe: int) -> None:
    faulthandler.disable()  # an expected crash needs no traceback on stderr
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # and must leave no core file in the image
    try:
        said = {"answer": question()}
    except Exception as error:  # a failed question is data
        said = {"error": f"{type(error).__name__}: {error}"}
    data = json.dumps(said).encode()
    while data:
        data = data[os.write(pipe, data) :]


def ask(question: Callable[[], Any], budget_s: float = 60.0) -> tuple[Any, str]:
    """The answer and "", or None and why there is none.

    The child has every library that this process has mapped, at the same place; what it does stays in it.  The answer
    must be JSON.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _answer(question, writing)
        finally:
            os._exit(0)
    os.close(writing)
    deadline = time.monotonic() + budget_s
    data = b""
    hung = False
    while True:
        if not select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
            hung = True
            break
        chunk = os.read(reading, 65536)
        if not chunk:
            break
        data += chunk
    os.close(reading)
    if hung:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if hung:
        return None, f"did not end within {budget_s:g} s"
    try:
        said = json.loads(data.decode())
    except ValueError:
        return None, how_it_died(status)
    return said.get("answer"), said.get("error", "")
