"""Parts of a test in processes of their own, forked one after another from the test's process.

The process of the test itself must not have touched CUDA, nor computed with several threads: a fork carries neither
over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any

from envkit.payload import cuda_error, isolate
from envkit.payload.smoke.bench import Bench


class Ended(cuda_error.Failed):
    """A part of a test did not come to its end."""

    def __init__(self, text: str, ending: isolate.Ending) -> None:
        super().__init__(text, ending.cuda)
        self.ending = ending


def try_part(task: isolate.Task) -> isolate.Ending:
    """How one part ends; its last words are repeated on stderr unless it ran."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a part that dies is told and leaves no file
    ending = isolate.run_one(task)
    if ending.ended != "ran":
        sys.stderr.write(ending.stderr_tail)
        sys.stderr.flush()
    return ending


def part(task: isolate.Task, why: Callable[[], str] = str) -> Any:
    """What one part returns.

    Raises isolate.NotApplicable where the part does, Ended for every other end but "ran"; ``why`` is asked for the
    reason of a death or an exception, and may know none.
    """
    ending = try_part(task)
    if ending.ended == "ran":
        return ending.value
    if ending.ended == "not-applicable":
        raise isolate.NotApplicable(ending.detail)
    reason = why() if ending.ended in ("raised", "killed") else ""
    because = f", because {reason}" if reason else ""
    if ending.ended == "raised":
        raise Ended(f"{task.name} failed{because}: {ending.detail}", ending)
    if ending.ended == "killed":
        raise Ended(f"{task.name} ended its process with {ending.signal}{because}", ending)
    raise Ended(f"{task.name} {ending.ended}: {ending.detail}", ending)


def take(bench: Bench, said: dict[str, Any]) -> None:
    """Adds the measures and the detail of a part's own bench to the test's."""
    bench.measures.update(said["measures"])
    bench.detail = said["detail"] or bench.detail


def told(bench: Bench) -> dict[str, Any]:
    """What a part sends home of its bench.  JSON as Python writes it carries NaN."""
    return {"measures": bench.measures, "detail": bench.detail}


@contextlib.contextmanager
def one_at_a_time(path: str) -> Iterator[None]:
    """Holds the lock file ``path``, which a process that dies lets go."""
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def own_folder(bench: Bench, name: str) -> str:
    """A folder below the run's for one test, on one device, under one injected fault."""
    words = (name, bench.device.replace(":", ""), bench.injected_fault)
    folder = os.path.join(bench.folder(), "-".join(filter(None, words)))
    os.makedirs(folder, exist_ok=True)
    return folder
