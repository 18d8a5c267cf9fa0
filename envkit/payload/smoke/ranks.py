"""Ranks: one function in several guarded processes that talk through torch.distributed, and a monitor that says who is
silent when they stop.

Each rank is forked from a process that has imported torch and never touched CUDA, one rank a GPU with NCCL, or two on
the CPU with gloo.  They meet in a file, so no network is needed.  Each rank leaves a note in a folder before and after
every step that all ranks take together; ``watch`` reads the notes from outside, where a hanging GPU cannot stop it, and
tells which rank did not come, which did something else, and where the others wait.

In a training script of one's own: ``notes = Notes(folder, rank)``, ``with notes.step("all_reduce", "1024 float32"):``
around each collective, and ``watch(folder, size, patience_s, seconds)`` in a process beside the job.
"""

from __future__ import annotations

import contextlib
import datetime
import glob
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from envkit.payload import cuda_error, isolate, waits
from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

GLOO_RANKS = 2
_TICK_S = 0.05
_GRACE_S = 1.5  # after the first rank failed: the others, which fail because of it, have their say
_PATIENCE_S = 25.0  # the first collective builds the connections, which takes seconds on a machine of many GPUs
_NOBODY = "no rank is in a step"
_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8  # linux/if.h
# Multicast over NVLink needs the fabric manager's cooperation and can take a shared machine's GPUs out of service.
_NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


class RanksFailed(cuda_error.Failed):
    """Ranks did not come to their end, perhaps for the CUDA error of the first that met one."""


class Notes:
    """What one rank says of its progress: a line before and after each step that all ranks take together."""

    def __init__(self, folder: str, rank: int, settle: Callable[[], None] | None = None) -> None:
        """``settle`` waits for what a step began, as torch.cuda.synchronize does.  Raises OSError."""
        self.path = _notes(folder, rank)
        self.settle = settle
        self.number = 0

    def _add(self, note: dict[str, Any]) -> None:
        line = json.dumps({**note, "at": time.time()}).encode("utf-8") + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, line)  # one write of one line: a reader sees it wholly or not at all
        finally:
            os.close(file)

    @contextlib.contextmanager
    def step(self, name: str, what: str = "") -> Iterator[None]:
        """Encloses one step; ``name`` and ``what`` (size and type, say) must be alike on all ranks.

        Raises OSError where the note cannot be written.
        """
        self.number += 1
        self._add({"enter": self.number, "name": name, "what": what})
        yield
        if self.settle is not None:
            self.settle()
        self._add({"leave": self.number})

    def left(self, why: str = "") -> None:
        """Says that this rank is at its end; ``why`` if it should not be."""
        self._add({"left": why})


class Diagnosis(NamedTuple):
    """Why ranks do not go on.

    ``kind``: "" (all came to their end), "late" (``ranks`` did not come to a step in which others wait), "disagree"
    (they do something else than the others), "ended" (they ended with an error), "stuck" (all are inside one step) or
    "idle" (none is inside any).  ``step`` is the number of the step, ``seconds`` how long the monitor watched, and
    ``waited`` how many of them a rank waited for a processor.
    """

    kind: str = ""
    ranks: tuple[int, ...] = ()
    step: int = 0
    text: str = ""
    seconds: float = 0.0
    waited: float = 0.0


class _Position(NamedTuple):
    """Where a rank is: the last step it entered, and whether it is still inside; ``left`` is None while it goes on."""

    number: int
    inside: bool
    left: str | None


def _notes(folder: str, rank: int) -> str:
    return os.path.join(folder, f"rank-{rank}.notes")


def read(folder: str, size: int) -> list[list[dict[str, Any]]]:
    """The notes of each rank in the order it wrote them; none for a rank that wrote none.  Raises ValueError."""
    found: list[list[dict[str, Any]]] = []
    for rank in range(size):
        try:
            with open(_notes(folder, rank), "rb") as file:
                found.append([json.loads(line.decode("utf-8")) for line in file.read().split(b"\n")[:-1]])
        except FileNotFoundError:
            found.append([])
    return found


def _place(notes: Sequence[Mapping[str, Any]]) -> _Position:
    number, inside, left = 0, False, None
    for note in notes:
        if "enter" in note:
            number, inside = note["enter"], True
        elif "leave" in note:
            inside = False
        elif left is None or not left:
            left = note["left"]
    return _Position(number, inside, left)


def named(ranks: Sequence[int]) -> str:
    """The ranks in words: "rank 1", "ranks 0, 2 and 3"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return "ranks " + ", ".join(map(str, ranks[:-1])) + f" and {ranks[-1]}"


def _titles(said: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[int, str]]:
    """What each rank called each of its steps."""
    return [
        {note["enter"]: f"{note['name']} {note['what']}".strip() for note in notes if "enter" in note} for notes in said
    ]


def _disagreement(titles: Sequence[Mapping[int, str]]) -> Diagnosis | None:
    """The first step that ranks call differently; who is in the minority is to blame, all of them where none is."""
    for number in sorted({number for each in titles for number in each}):
        groups: dict[str, list[int]] = {}
        for rank, each in enumerate(titles):
            if number in each:
                groups.setdefault(each[number], []).append(rank)
        if len(groups) > 1:
            most = max(len(ranks) for ranks in groups.values())
            largest = [title for title, ranks in groups.items() if len(ranks) == most]
            odd = [rank for title, ranks in groups.items() if len(largest) > 1 or title != largest[0] for rank in ranks]
            ways = "; ".join(f"{named(ranks)} in {title!r}" for title, ranks in groups.items())
            return Diagnosis("disagree", tuple(sorted(odd)), number, f"at step {number} the ranks disagree: {ways}")
    return None


def _last_seen(place: _Position, titles: Mapping[int, str]) -> str:
    seen = "said nothing yet"
    if place.number:
        where = f"step {place.number} ({titles[place.number]})"
        seen = f"is still inside {where}" if place.inside else f"was last seen leaving {where}"
    if place.left:
        return f"{seen} and ended: {place.left}"
    return f"{seen} and then left" if place.left is not None else seen


def diagnose(said: Sequence[Sequence[Mapping[str, Any]]]) -> Diagnosis:
    """Why the ranks with these notes do not go on, supposing that they do not."""
    titles = _titles(said)
    odd = _disagreement(titles)
    if odd is not None:
        return odd
    places = [_place(notes) for notes in said]
    ended = [rank for rank, place in enumerate(places) if place.left]
    if all(place.left is not None for place in places) and not ended:
        return Diagnosis()
    top = max(place.number for place in places)
    late = [rank for rank, place in enumerate(places) if place.number < top]
    title = next((each[top] for each in titles if top in each), "")
    if late:
        others = [rank for rank in range(len(said)) if rank not in late]
        seen = "; ".join(f"rank {rank} {_last_seen(places[rank], titles[rank])}" for rank in late)
        verb = "waits" if len(others) == 1 else "wait"
        return Diagnosis("late", tuple(late), top, f"{named(others)} {verb} in step {top} ({title}): {seen}")
    if ended:
        killed = [rank for rank in ended if "killed" in (places[rank].left or "")]
        blamed = killed or ended  # whose process died is the cause; an exception may be its echo on another rank
        seen = "; ".join(f"rank {rank} {_last_seen(places[rank], titles[rank])}" for rank in blamed)
        return Diagnosis("ended", tuple(blamed), top, seen)
    return _at_one_step(places, top, title)


def _at_one_step(places: Sequence[_Position], top: int, title: str) -> Diagnosis:
    """As ``diagnose``, of ranks that all entered the step ``top`` and of which none ended with an error."""
    inside = [rank for rank, place in enumerate(places) if place.inside]
    if len(inside) == len(places):
        text = f"all {len(places)} ranks are inside step {top} ({title}) and none comes out"
        return Diagnosis("stuck", (), top, text)
    if inside:
        out = [rank for rank in range(len(places)) if rank not in inside]
        text = f"{named(inside)} did not come out of step {top} ({title}), which {named(out)} left"
        return Diagnosis("late", tuple(inside), top, text)
    return Diagnosis("idle", (), top, f"{_NOBODY}; the last was {top} ({title})" if top else "no rank said anything")


def watch(
    folder: str, size: int, patience_s: float, seconds: float, grace_s: float = _GRACE_S, above: Sequence[int] = ()
) -> Diagnosis:
    """Follows the notes of ``size`` ranks until all have left, or says why they do not go on.

    It waits ``patience_s`` without a new note, ``grace_s`` after one rank ended with an error or did something else
    than the others, and ``seconds`` in all; time in which a process below those in ``above`` (process ids) waited for a
    processor counts for none of these.  It needs nothing of the ranks but their notes.  Raises OSError where the
    folder cannot be read.
    """
    started = began = moved = time.monotonic()
    failed: float | None = None
    before: list[int] = []
    clock, waited = waits.Waits(), 0.0
    while True:
        waited += max(clock.since(above).values(), default=0.0)
        now = time.monotonic() - waited
        said = read(folder, size)
        counts = [len(notes) for notes in said]
        if counts != before:
            before, moved = counts, now
        left = [_place(notes).left for notes in said]
        if failed is None and (any(left) or _disagreement(_titles(said)) is not None):
            failed = now
        spent = now - moved >= patience_s or now - began >= seconds or (failed is not None and now - failed >= grace_s)
        if spent or all(one is not None for one in left):
            return diagnose(said)._replace(seconds=round(time.monotonic() - started, 3), waited=round(waited, 3))
        time.sleep(_TICK_S)


class Rank(NamedTuple):
    """One rank's place among ``size``, its bench (of its own, on ``device``) and its notes."""

    rank: int
    size: int
    device: str
    backend: str
    bench: Bench
    notes: Notes

    def step(self, name: str, what: str = "") -> contextlib.AbstractContextManager[None]:
        """Encloses what all ranks do together; what it began on a GPU has ended when it is left."""
        return self.notes.step(name, what)


class Outcome(NamedTuple):
    """How each rank ended, and what the monitor found."""

    endings: tuple[isolate.Ending, ...]
    diagnosis: Diagnosis


ENDED_WITH_OTHERS = isolate.Ending("hung", "it was ended with the others")


class _Over(Exception):
    """The monitor has spoken: the ranks that are left will not come to an end."""


def only_loopback() -> bool:
    """Whether no network interface but the loopback is up."""
    for folder in glob.glob("/sys/class/net/*"):
        try:
            with open(os.path.join(folder, "flags"), encoding="ascii") as file:
                flags = int(file.read(), 16)
            with open(os.path.join(folder, "operstate"), encoding="ascii") as file:
                state = file.read().strip()
        except (OSError, ValueError):
            continue
        if flags & _IFF_UP and not flags & _IFF_LOOPBACK and state != "down":
            return False
    return True


def surroundings(loopback: bool) -> dict[str, str]:
    """Variables that ranks of one machine need where nobody set them: the loopback where there is nothing else, and no
    multicast over NVLink."""
    wanted = dict(_NO_MULTICAST)
    if loopback:
        wanted.update({"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"})
    return {name: value for name, value in wanted.items() if name not in os.environ}


def _one(
    rank: int, size: int, backend: str, folder: str, bench: Bench, work: Callable[[Rank], Any], end_s: float
) -> Any:
    import torch.distributed as dist

    device = f"cuda:{rank}" if backend == "nccl" else "cpu"
    if backend == "nccl":
        torch.cuda.set_device(rank)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // size))
    notes = Notes(folder, rank, torch.cuda.synchronize if backend == "nccl" else None)
    mine = Bench(device, bench.injected_fault, bench.targets, folder, bench.gpus, bench.level)
    with notes.step("init_process_group"):
        store = dist.FileStore(os.path.join(folder, "store"), size)
        limit = datetime.timedelta(seconds=end_s)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    said = work(Rank(rank, size, device, backend, mine, notes))
    with notes.step("farewell"):  # nobody takes the connections down while another still uses them
        dist.barrier()
    # Taking gloo down joins its threads while it holds Python's lock, and one of them may want that lock: about one
    # process in fifteen stays there for ever (torch's ProcessGroupGloo destructor).  The process leaves without it.
    if backend != "gloo":
        dist.destroy_process_group()
    return {"measures": mine.measures, "detail": mine.detail, "said": said}


def run(
    bench: Bench,
    work: Callable[[Rank], Any],
    size: int,
    backend: str,
    folder: str,
    seconds: float,
    environ: Mapping[str, str],
    patience_s: float = _PATIENCE_S,
    grace_s: float = _GRACE_S,
    timeout_s: float = 600.0,
) -> Outcome:
    """Calls ``work`` in ``size`` ranks and gives their ends, as JSON values, and the monitor's finding.

    ``folder`` must be empty: the ranks meet there.  ``timeout_s`` is torch's own for a collective.  The calling process
    must not have touched CUDA, nor computed on several threads.  What is left of the ranks after ``seconds``, or
    after the monitor spoke, is killed.
    """
    set_here = {**surroundings(only_loopback()), **environ}
    endings = [ENDED_WITH_OTHERS for _ in range(size)]
    found: list[Diagnosis] = []

    def perform(rank: int, _: Callable[[Any], None]) -> Any:
        os.environ.update(set_here)
        return _one(rank, size, backend, folder, bench, work, timeout_s)

    def monitor(_: Callable[[Any], None]) -> Any:
        return list(watch(folder, size, patience_s, seconds - 1.0, grace_s, (os.getppid(),)))

    def done(task: isolate.Task, ending: isolate.Ending) -> None:
        if task.name == "monitor":
            if ending.ended == "ran":
                kind, ranks, *rest = ending.value
                found.append(Diagnosis(kind, tuple(ranks), *rest))
            else:
                found.append(Diagnosis("stuck", (), 0, f"the monitor itself {ending.ended}: {ending.detail}"))
            raise _Over  # whoever has not left by now will not
        endings[int(task.name)] = ending
        how = "" if ending.ended == "ran" else f"{ending.ended}: {ending.detail[:300]}"
        how = f"killed by {ending.signal}" if ending.ended == "killed" else how
        Notes(folder, int(task.name)).left(how)  # said here, so that no rank is taken for gone before its end is known

    tasks = [[isolate.Task(str(rank), str(rank), seconds, partial(perform, rank))] for rank in range(size)]
    # the ranks' budgets are stretched where they wait for a processor, and the monitor must be there to speak
    tasks.append([isolate.Task("monitor", "", seconds * waits.LONGEST, monitor)])
    with contextlib.suppress(_Over):
        isolate.run(tasks, seconds * waits.LONGEST, done)
    return Outcome(tuple(endings), found[0] if found else Diagnosis("stuck", (), 0, "the monitor did not answer"))


def kind(bench: Bench) -> tuple[str, int]:
    """The backend and the number of ranks on this machine: one a GPU with NCCL, or two on the CPU with gloo.

    Raises NotApplicable where this torch has no such backend.
    """
    import torch.distributed as dist

    if not dist.is_available():
        bench.not_applicable("this torch was built without torch.distributed")
    if bench.gpus >= 2:
        if not dist.is_nccl_available():
            bench.not_applicable("this torch was built without NCCL")
        return "nccl", bench.gpus
    if not dist.is_gloo_available():
        bench.not_applicable("fewer than two GPUs are here, and this torch was built without gloo")
    return "gloo", GLOO_RANKS


def failure(outcome: Outcome) -> RanksFailed | None:
    """What went wrong, as one sentence, or None where every rank came to its end."""
    bad = [(rank, ending) for rank, ending in enumerate(outcome.endings) if ending.ended != "ran"]
    if not bad:
        return None
    # what the monitor saw first; then the end of a rank that it blames, or of any that had its own
    own = [one for one in bad if one[1] is not ENDED_WITH_OTHERS]
    words = [outcome.diagnosis.text]
    for rank, ending in ([one for one in own if one[0] in outcome.diagnosis.ranks] or own)[:1]:
        how = (f"rank {rank}", ending.ended, ending.signal, ending.cuda, ending.detail)
        words.append(" ".join(filter(None, how)))
    return RanksFailed("; ".join(filter(None, words)), next((one.cuda for _, one in bad if one.cuda), ""))


def together(bench: Bench, work: Callable[[Rank], Any], seconds: float = 50.0) -> tuple[str, list[Any]]:
    """Calls ``work`` in a rank on every GPU, or in two on the CPU; the backend, and what each returned.

    The measures of the ranks come into ``bench`` with the backend's name before them, of each the worst of all ranks;
    ``ranks`` says how many there were, ``nccl.offered`` and ``gloo.offered`` which of the two it was.  Raises
    NotApplicable where a rank did, RanksFailed where one did not come to its end.
    """
    backend, size = kind(bench)
    folder = tempfile.mkdtemp(prefix="ranks-", dir=bench.folder())
    outcome = run(bench, work, size, backend, folder, seconds, {})
    for ending in outcome.endings:
        if ending.ended == "not-applicable":
            bench.not_applicable(ending.detail)
    failed = failure(outcome)
    if failed is not None:
        raise failed
    declare(bench, backend, size)
    for ending in outcome.endings:
        for name, value in ending.value["measures"].items():
            bench.note(f"{backend}.{name}", value)
    told = outcome.endings[0].value["detail"]
    bench.detail = "; ".join(filter(None, (bench.detail, told)))
    return backend, [ending.value["said"] for ending in outcome.endings]


def declare(bench: Bench, backend: str, size: int) -> None:
    """Says by measures and in words which backend was used, so that a run on the CPU claims nothing of NCCL."""
    bench.note("ranks", size)
    for name in ("nccl", "gloo"):
        bench.note(name + ".offered", int(name == backend))
    if backend == "gloo":
        bench.detail = f"{size} processes on the CPU with gloo: nothing is said about NCCL"
