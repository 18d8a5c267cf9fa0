"""Asks questions in a forked child, so that a crash or a hang costs one answer and nothing else."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from envkit.payload import waits, watchdog

_LOOK_S = 0.1  # how often it is looked what the child waits for


def how_it_died(status: int) -> str:
    """A wait status in words: "was killed by SIGSEGV" or "exited with code 3"."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"was killed by signal {number}"
    return f"exited with code {os.WEXITSTATUS(status)}"


def _answer(questions: Sequence[Callable[[], Any]], pipe: int) -> None:
    # Who asked may die before it has the answer, and a hung child would hold all its pipes open.
    watchdog.die_with_parent()
    faulthandler.disable()  # an expected crash needs no traceback on stderr
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # and must leave no core file in the image
    for question in questions:
        try:
            said = {"answer": question()}
        except Exception as error:  # a failed question is data
            said = {"error": f"{type(error).__name__}: {error}"}
        data = json.dumps(said).encode() + b"\n"
        while data:
            data = data[os.write(pipe, data) :]


class Questions:
    """Questions on their way: a forked child works at them in a row while this process goes on.

    The child has every library that this process has mapped, at the same place; what it does stays in it.  The answers
    must be JSON.  ``budget_s`` is for each and counts from here, without the time in which the child waited for a
    processor.
    """

    def __init__(self, first: Callable[[], Any], budget_s: float, more: Sequence[Callable[[], Any]] = ()) -> None:
        questions = [first, *more]
        self._count, self._budget_s = len(questions), budget_s
        self._clock, self._waited = waits.Waits(), 0.0
        self._deadline = time.monotonic() + budget_s
        self._reading, writing = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            try:
                os.close(self._reading)
                _answer(questions, writing)
            finally:
                os._exit(0)
        os.close(writing)

    def _says_more(self) -> bool:
        """Whether the child says something, or ends, within its budget."""
        while not select.select([self._reading], [], [], _LOOK_S)[0]:
            looked = self._clock.since([self._child])
            self._waited += looked.get(self._child, 0.0)
            late_s = time.monotonic() - self._deadline
            if looked and late_s >= min(self._waited, (waits.LONGEST - 1) * self._budget_s):
                return False
        return True

    def _lines(self) -> tuple[list[bytes], bool]:
        """The whole lines that came, and whether one took longer than the budget."""
        data, count = b"", 0
        while count < self._count:
            if not self._says_more():
                return data.split(b"\n")[:-1], True
            chunk = os.read(self._reading, 65536)
            if not chunk:
                break
            data += chunk
            if b"\n" in chunk:
                count += chunk.count(b"\n")
                self._deadline, self._waited = time.monotonic() + self._budget_s, 0.0
        return data.split(b"\n")[:-1], False

    def answers(self) -> list[tuple[Any, str]]:
        """For each question the answer and "", or None and why there is none; to be called once.

        The list ends with the first question that the child did not survive.
        """
        lines, hung = self._lines()
        os.close(self._reading)
        if hung:
            os.kill(self._child, signal.SIGKILL)
        _, status = os.waitpid(self._child, 0)
        answers: list[tuple[Any, str]] = []
        for line in lines[: self._count]:
            try:
                said = json.loads(line.decode())
            except ValueError:
                break  # the question wrote into our pipe: what follows is not to be trusted
            answers.append((said.get("answer"), said.get("error", "")))
        if len(answers) < self._count:
            answers.append((None, f"did not end within {self._budget_s:g} s" if hung else how_it_died(status)))
        return answers

    def answer(self) -> tuple[Any, str]:
        """The answer to the only question."""
        return self.answers()[0]


def ask(question: Callable[[], Any], budget_s: float = 60.0) -> tuple[Any, str]:
    """The answer and "", or None and why there is none, waited for at once."""
    return Questions(question, budget_s).answer()


def ask_all(questions: Sequence[Callable[[], Any]], budget_s: float = 60.0) -> list[tuple[Any, str]]:
    """As ``ask``, for several questions and ``budget_s`` for each.

    One child answers them in a row and another one goes on behind a question that killed it: forking a process that
    has mapped torch takes 14 ms, most questions microseconds.
    """
    answers: list[tuple[Any, str]] = []
    while len(answers) < len(questions):
        answers += Questions(questions[len(answers)], budget_s, questions[len(answers) + 1 :]).answers()
    return answers
