"""Two ranks over gloo of which rank 1 does something for long, named by the first argument, while rank 0 waits for it.

The second argument is for how many seconds; then both go on until the file of the third one is there.  ``deadlock`` is
two ranks of which each waits for a message of the other.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

CASE, SECONDS = sys.argv[1], float(sys.argv[2])
END = time.monotonic() + SECONDS
SEEN = Path(sys.argv[3]) if len(sys.argv) > 3 else None


class Slow:
    """What takes its time to be pickled, as a large state on a slow disk does."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        _pass(self.__class__.__name__)
        return (dict, ())


def _pass(what: str) -> None:
    """Waits for what a slow disk or compiler does, without a processor: until a pipe of nobody has had its time."""
    import select

    reading, writing = os.pipe()
    select.select([reading], [], [], SECONDS)
    os.close(reading)
    os.close(writing)


def _unpickled(what: str) -> str:
    _pass(what)
    return what


class Loaded:
    """What takes its time to be unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (_unpickled, ("state",))


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    """Rows of which the first takes its time."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 0:
            _pass("row")
        return torch.ones(2)


def busy(folder: Path) -> None:
    """What rank 1 does meanwhile."""
    if CASE == "sleeps":
        time.sleep(SECONDS)
    elif CASE == "loads":
        torch.save({"state": Loaded()}, folder / "state.pt")
        torch.load(folder / "state.pt", weights_only=False)
    elif CASE == "saves":
        torch.save({"state": Slow()}, folder / "last.pt")
    elif CASE == "compiles":

        def backend(graph: Any, inputs: Any) -> Any:
            _pass("graph")  # as a compiler of another process does
            return graph

        torch.compile(lambda x: x * 2, backend=backend)(torch.ones(4))
    elif CASE == "prepares":
        next(iter(torch.utils.data.DataLoader(Rows(), batch_size=2)))
    elif CASE == "works":
        while time.monotonic() < END:
            torch.rand(256, 256) @ torch.rand(256, 256)


def main() -> None:
    ranks = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group("gloo", init_method=f"file://{os.environ['MEET']}", **ranks)
    rank, folder = dist.get_rank(), Path(os.environ.get("ENVKIT_DEBUG_FOLDER", "."))
    dist.all_reduce(torch.ones(4))
    message = torch.ones(1)
    if CASE == "deadlock":
        dist.recv(message, src=1 - rank)
        dist.send(message, dst=1 - rank)
    elif CASE == "messages":  # the twin: one sends first
        for step in (rank, 1 - rank):
            (dist.send if step == 0 else dist.recv)(message, 1 - rank)
    elif rank == 1:
        busy(folder)
    dist.all_reduce(torch.ones(4))
    seen = torch.tensor(SEEN is None, dtype=torch.int32)
    while not seen.item():
        time.sleep(0.2)
        seen.fill_(SEEN is not None and rank == 0 and SEEN.exists())
        dist.all_reduce(seen)


main()
# gloo's threads end a process by SIGABRT when Python takes them down at its end, and destroying the group can hang
os._exit(0)
