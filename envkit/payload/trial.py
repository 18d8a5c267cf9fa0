"""One trial of the links between nodes: this node's part of a short process group whose all-reduce has an exact answer.

Run as a program, with a JSON object of the keys of `Asked` as its argument.  One process a GPU, or one without a GPU,
meets those of the other nodes at the address that the first node writes into a file all of them see.  Each sums
integers, compares every element with what the sum must be, times the same, and says how NCCL carried it.  The last
line on stdout is the JSON object that `run` describes.  Nothing here judges, and torch is the only package that it
needs.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import json
import os
import re
import signal
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_LOOKED_EVERY_S = 0.05
_GRACE_S = 2.0  # after one process of this node failed: the others, which fail because of it, have their say
_OWN_END_S = 2.0  # before its time is over: a process that gives up by itself says why
_CONNECT_S = 3.0  # for one address; a node has several, of which most are reached at once or never
_MODULUS = 8191  # of the integers that are summed: a hundred thousand processes stay below 2**31
_SMALL = 3  # elements of the first sum
_DETAIL = 600  # characters
_CHANNEL = re.compile(r"Channel \S+ : (\d+)\[[^\]]*\] -> (\d+)\[[^\]]*\].*? via (\S+(?: Libfabric\S*)?)")
_NETWORK = re.compile(r"Using network (.+?)\s*$")


class Asked(NamedTuple):
    """A trial: ``node`` counts its ``nodes`` from 0, ``names`` are other names of this one; ``meet`` is the file of the
    address; ``limit_s`` bounds all of it; ``size`` are bytes of the timed sum, ``repeats`` how often it is timed;
    ``log`` is where NCCL's own log shall be left, "" for nowhere.  ``backend`` is "nccl", "gloo", or "" for nccl where
    torch sees a GPU; ``here`` the number of processes, 0 for one a GPU."""

    nonce: str
    node: int
    nodes: int
    meet: str
    limit_s: float
    names: Sequence[str] = ()
    backend: str = ""
    here: int = 0
    size: int = 0
    repeats: int = 5
    log: str = ""


class Unable(Exception):
    """This node lacks what a trial needs; the text says what."""


def _say(pipe: int, told: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):  # who would read it may have gone
        os.write(pipe, json.dumps(told).encode("utf-8") + b"\n")


def expected(world: int, count: int, device: str) -> tuple[Any, Any, int]:
    """The part of each rank that depends on the element alone, its sum over ``world`` ranks, and the elements."""
    import torch

    base = (torch.arange(count, dtype=torch.int64, device=device) * 31 % _MODULUS).to(torch.int32)
    return base, base * world + sum(rank % 1024 for rank in range(world)), count


def _addresses(names: Sequence[str]) -> list[str]:
    """Names and addresses under which others may reach this machine, the likeliest first."""
    found = [*names, socket.gethostname()]
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return [*dict.fromkeys(each for each in found if not each.startswith("127.")), "127.0.0.1"]


def _default_interface() -> str:
    """The interface of the default route, "lo" without one."""
    with contextlib.suppress(OSError), open("/proc/net/route", encoding="ascii") as file:
        for line in file.read().splitlines()[1:]:
            words = line.split()
            if len(words) > 1 and words[1] == "00000000":
                return words[0]
    return "lo"


def _gloo_interface() -> None:
    """Gloo takes the address of the machine's name, which on Debian is one of the loopback: no other node has it."""
    if os.environ.get("GLOO_SOCKET_IFNAME"):
        return
    try:
        own = socket.gethostbyname(socket.gethostname())
    except OSError:
        own = "127.0.0.1"
    if own.startswith("127."):
        os.environ["GLOO_SOCKET_IFNAME"] = _default_interface()


def _invite(asked: Asked, kind: Mapping[str, Any], seconds: float) -> Any:
    """The store of the first rank, whose address goes into the file that the others look for."""
    import torch.distributed as dist

    limit = datetime.timedelta(seconds=seconds)
    store = dist.TCPStore("0.0.0.0", 0, None, True, limit, wait_for_workers=False)
    store.set("nonce", asked.nonce)
    told = {**kind, "nonce": asked.nonce, "port": store.port, "addresses": _addresses(asked.names)}
    temporary = f"{asked.meet}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(told, file)
    os.replace(temporary, asked.meet)
    return store


def _accept(asked: Asked, kind: Mapping[str, Any], end: float) -> Any:
    """The store of the first rank, reached from here.  Raises TimeoutError where there is no address, or none that
    answers, and ValueError where the first node wants something else."""
    import torch.distributed as dist

    tried: list[str] = []
    while time.monotonic() < end:
        try:
            with open(asked.meet, encoding="utf-8") as file:
                told = json.load(file)
        except FileNotFoundError:
            time.sleep(_LOOKED_EVERY_S)
            continue
        for key, mine in kind.items():
            if told[key] != mine:
                raise ValueError(f"{key}: {told[key]} on the first node, {mine} here")
        for address in told["addresses"]:
            try:
                socket.create_connection((address, told["port"]), timeout=_CONNECT_S).close()
                limit = datetime.timedelta(seconds=max(end - time.monotonic(), 1.0))
                store = dist.TCPStore(address, told["port"], None, False, limit, wait_for_workers=False)
                if store.get("nonce").decode() == asked.nonce:
                    return store
                tried.append(f"{address} (another program)")
            except (OSError, RuntimeError, ValueError) as error:
                tried.append(f"{address} ({str(error).splitlines()[0][:60]})")
        time.sleep(1.0)
    if tried:
        raise TimeoutError(f"the first node was not reached: {', '.join(dict.fromkeys(tried))}")
    raise TimeoutError("the first node named no address")


def transports(lines: Sequence[str], here: int) -> tuple[dict[str, int], dict[str, int], str]:
    """What NCCL's log says of its ways: the channels between nodes by transport, those inside a node, and the network.

    ``here`` is how many ranks each node has.
    """
    across: dict[str, int] = {}
    inside: dict[str, int] = {}
    network = ""
    for line in lines:
        found = _CHANNEL.search(line)
        if found:
            apart = int(found.group(1)) // here != int(found.group(2)) // here
            kind = across if apart else inside
            way = "/".join(part for part in found.group(3).split("/") if not part.isdigit())
            kind[way] = kind.get(way, 0) + 1
        elif "NVLS comm" in line or "Connected NVLS" in line:
            inside["NVLS"] = inside.get("NVLS", 0) + 1
        used = _NETWORK.search(line)
        network = used.group(1) if used else network
    return across, inside, network


def _sum_once(dist: Any, mine: Any, right: Any, settle: Any) -> tuple[int, float]:
    """One all-reduce of a copy of ``mine``: the elements that are wrong, and its seconds."""
    data = mine.clone()
    settle()
    began = time.monotonic()
    dist.all_reduce(data)
    settle()
    took = time.monotonic() - began
    return int((data != right).sum().item()), took


def _rank(asked: Asked, local: int, here: int, backend: str, end: float, at: Callable[[str], None]) -> dict[str, Any]:
    """The part of one process, which calls ``at`` with each stage that it enters; raises what torch raises."""
    import torch
    import torch.distributed as dist

    rank, world = asked.node * here + local, asked.nodes * here
    kind = {"backend": backend, "processes a node": here, "nodes": asked.nodes}
    device = "cpu"
    if backend == "nccl":
        device = f"cuda:{local}"
        torch.cuda.set_device(local)
    else:
        torch.set_num_threads(1)
        _gloo_interface()
    at("meeting")
    store = _invite(asked, kind, end - time.monotonic()) if rank == 0 else _accept(asked, kind, end)
    at("communicator")
    limit = datetime.timedelta(seconds=max(end - time.monotonic(), 1.0))
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=limit)

    def settle() -> None:
        if backend == "nccl":
            torch.cuda.synchronize()

    dist.barrier()
    at("answer")
    wrong = 0
    size = asked.size or (256 << 20 if backend == "nccl" else 16 << 20)
    counts = (_SMALL, size // 4)
    for count in counts:
        base, right, _ = expected(world, count, device)
        mine = base + rank % 1024
        wrong += _sum_once(dist, mine, right, settle)[0]
    at("speed")
    times: list[float] = []
    for _ in range(asked.repeats):
        dist.barrier()
        failed, took = _sum_once(dist, mine, right, settle)
        wrong += failed
        times.append(took)
    dist.barrier()  # nobody takes the connections down while another still uses them
    at("done")
    # By the rule of nccl-tests (doc/PERFORMANCE.md), so that one number holds for any number of ranks.
    moved = 2 * (world - 1) / world * counts[1] * 4
    return {
        "wrong": wrong,
        "elements": _SMALL + counts[1] * (1 + asked.repeats),
        "gbps": round(moved / statistics.median(times) / 1e9, 6),
        "times": [round(one, 6) for one in times],
        "torch": str(torch.__version__),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if backend == "nccl" else "",
        "device": torch.cuda.get_device_name(local) if backend == "nccl" else "",
    }


def _in_child(pipe: int, asked: Asked, local: int, here: int, backend: str, end: float) -> None:
    """The whole life of one process, which ends here: taking gloo down can hang for ever (see smoke/ranks.py)."""
    code = 1
    try:
        answer = _rank(asked, local, here, backend, end, lambda stage: _say(pipe, {"stage": stage}))
        code = 0
    except BaseException as error:
        answer = {"raised": f"{type(error).__name__}: {' '.join(str(error).split())}"[:_DETAIL]}
    _say(pipe, answer)
    os._exit(code)


def _gpus() -> int:
    """How many GPUs torch sees, counted in a child: a process that has touched CUDA must not fork."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        import torch

        os.write(writing, b"%d" % (torch.cuda.device_count() if torch.cuda.is_available() else 0))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    if not told:
        raise Unable("CUDA could not be asked how many GPUs there are")
    return int(told)


def _kind(asked: Asked) -> tuple[str, int]:
    """The backend and the number of processes; raises Unable."""
    try:
        import torch
        import torch.distributed
    except ImportError as error:
        raise Unable(f"torch cannot be imported: {error}") from error
    if not torch.distributed.is_available():
        raise Unable("this torch was built without torch.distributed")
    gpus = _gpus() if asked.backend != "gloo" else 0
    backend = asked.backend or ("nccl" if gpus else "gloo")
    if backend == "nccl" and not torch.distributed.is_nccl_available():
        raise Unable("this torch has no NCCL")
    if backend == "nccl" and gpus < max(asked.here, 1):
        raise Unable(f"{gpus} GPUs are visible, and {max(asked.here, 1)} are asked for")
    return backend, asked.here or (gpus if backend == "nccl" else 1)


def _followed(children: dict[int, tuple[int, int]], end: float, limit_s: float) -> dict[int, dict[str, Any]]:
    """What each process said, by its number on this node, with the last stage that it entered; ``children`` are the
    pipe and the number by process id.  All are ended when ``end`` has come, which is ``limit_s`` after the start."""
    said: dict[int, dict[str, Any]] = {}
    ending = ""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in children:
            pipe, local = children.pop(pid)
            with os.fdopen(pipe, "rb") as file:
                told = [json.loads(line.decode("utf-8")) for line in file.read().splitlines()]
            said[local] = {"stage": "start"}
            for one in told:
                said[local].update(one)
            if not any("stage" not in one for one in told):
                said[local]["raised"] = ending or _ended(status)
            if "raised" in said[local] and not ending:
                end = min(end, time.monotonic() + _GRACE_S)
            continue
        if time.monotonic() > end:
            echo = any("raised" in one for one in said.values())
            ending = "it was ended with the others" if echo else f"it was ended when its {limit_s:g} s were over"
            for left in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)
            end = float("inf")
        time.sleep(_LOOKED_EVERY_S)
    return said


def _ended(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"it was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"it ended with exit code {os.WEXITSTATUS(status)}"


def _blamed(failed: Mapping[int, str]) -> int:
    """The process whose end is the cause: one that was killed, then one that raised; who was ended is an echo."""
    order = ("it was killed", "it ended with", "")
    return min(failed, key=lambda each: (next(at for at, word in enumerate(order) if failed[each].startswith(word))
                                         + 9 * failed[each].startswith("it was ended"), each))  # fmt: skip


@contextlib.contextmanager
def _nccl_log(asked: Asked) -> Iterator[str]:
    """The folder into which NCCL of each process logs its ways; the environment says so until the end."""
    with tempfile.TemporaryDirectory(prefix="envkit-trial-") as folder:
        os.environ.update({
            "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV", "NCCL_DEBUG_FILE": folder + "/%h.%p",
        })  # fmt: skip
        yield folder
        if asked.log:
            with open(asked.log, "w", encoding="utf-8") as file:
                file.write("\n".join(_lines(folder)) + "\n")


def _lines(folder: str) -> list[str]:
    found: list[str] = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            found += file.read(32 << 20).splitlines()
    return found


def run(asked: Asked) -> dict[str, Any]:
    """This node's part.

    ``outcome`` is "passed", "wrong" (elements differ), "failed" or "unable", ``detail`` why, and ``stage`` the last of
    start, meeting (the first node's address), communicator, answer, speed and done that was entered.  ``across`` and
    ``inside`` count NCCL's channels between and inside nodes by transport; ``gbps`` is the bus bandwidth.
    """
    began = time.monotonic()
    end = began + asked.limit_s
    made: dict[str, Any] = {"nonce": asked.nonce, "node": asked.node}
    try:
        backend, here = _kind(asked)
    except Unable as error:
        return {**made, "outcome": "unable", "detail": str(error)[:_DETAIL]}
    made.update({"backend": backend, "here": here})
    with _nccl_log(asked) as folder:
        children: dict[int, tuple[int, int]] = {}
        for local in range(here):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.dup2(2, 1)
                _in_child(writing, asked, local, here, backend, end - _OWN_END_S)
            os.close(writing)
            children[child] = (reading, local)
        said = _followed(children, end, asked.limit_s)
        across, inside, network = transports(_lines(folder), here)
    made.update({"across": across, "inside": inside, "network": network})
    made["seconds"] = round(time.monotonic() - began, 3)
    failed = {local: one["raised"] for local, one in said.items() if "raised" in one}
    if failed:
        local = _blamed(failed)
        which = f"process {local} of {here}: " if here > 1 else ""
        return {**made, "outcome": "failed", "stage": said[local]["stage"], "detail": which + failed[local]}
    first = said[0]
    made.update({key: first[key] for key in ("stage", "elements", "torch", "nccl", "device", "times")})
    made.update({
        "wrong": sum(one["wrong"] for one in said.values()),
        "gbps": min(one["gbps"] for one in said.values()),
    })  # fmt: skip
    return {**made, "outcome": "wrong" if made["wrong"] else "passed", "detail": ""}


def main(argv: Sequence[str]) -> int:
    """Prints what `run` gives for the JSON object in ``argv``."""
    given = Asked(**json.loads(argv[0]))
    with contextlib.redirect_stdout(sys.stderr):  # what torch or a plugin prints is no answer
        made = run(given)
    print(json.dumps(made), flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        sys.exit(1)
