"""A tensor shared with a spawned process, by CUDA IPC or shared memory: what that one writes is read here, and the
other way round."""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_ELEMENTS = (1 << 18) + 3
_FACTOR, _ADDED = 3, 7
_WAIT_S = 600.0  # far above what it takes: the budget of the whole test, which knows of a busy machine, ends a hang


def other(connection: Any, device: str) -> None:
    """The other process: changes what it is given in place, and gives a tensor of its own, which lives until told."""
    torch.set_num_threads(1)
    if device != "cpu":
        torch.cuda.set_device(device)
    given = connection.recv()
    own = given.flip(0).clone()
    given.mul_(_FACTOR).add_(_ADDED)
    if device != "cpu":
        torch.cuda.synchronize()
    connection.send(own)
    del given
    connection.recv()
    del own


def _answer(connection: Any, process: Any) -> Any:
    if not connection.poll(_WAIT_S):
        raise AssertionError(f"the other process said nothing within {_WAIT_S:.0f} s")
    try:
        return connection.recv()
    except EOFError:
        process.join(_WAIT_S)
        raise AssertionError(f"the other process exited with status {process.exitcode} and without an answer") from None


def run(bench: Bench) -> None:
    """Measures ``written.wrong`` (elements written there), ``returned.wrong`` (elements made there) and
    ``status.wrong`` (the other process did not leave with status 0)."""
    import torch.multiprocessing

    context = torch.multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    data = torch.randint(-(2**20), 2**20, (_ELEMENTS,), generator=bench.random(), dtype=torch.int32)
    shared = data.to(bench.device, copy=True)
    if bench.on_gpu:
        torch.cuda.set_device(bench.device)
        torch.cuda.synchronize()
    process = context.Process(target=other, args=(theirs, bench.device), daemon=True)
    process.start()
    theirs.close()
    ours.send(shared)
    early = shared.cpu().clone() if bench.injected_fault == "order" else None
    returned = _answer(ours, process)
    bench.exact("written.wrong", shared if early is None else early, data * _FACTOR + _ADDED)
    bench.exact("returned.wrong", returned, data.flip(0))
    del returned
    ours.send("done")
    process.join(_WAIT_S)
    bench.count("status.wrong", int(process.exitcode != 0))
