"""Several ranks of one job: what each of them wrote down of its collectives and gradients, and why they stand still.

The companion (``envkit/payload/companion/envkit_ranks.py``) writes the files; this reads and judges them.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from envkit.debug import job, stacks
from envkit.debug.job import CommandRun
from envkit.debug.records import PythonFrame, RankRow
from envkit.logs import flight
from envkit.payload.companion.envkit_doing import SLEEPS, WORKING
from envkit.records import dataclass

HANG_AFTER_S = 10.0
"""Seconds without a step of any rank after which they are suspected; a step of a training job takes seconds at most."""

_LARGEST = 4 << 20  # of one file; the companion begins again after one
_UNEQUAL = ("all_to_all", "all_to_all_single", "new_group", "barrier", "monitored_barrier")
_OBJECTS = ("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list")
_EQUAL = {"all_reduce", "broadcast", "reduce"}  # operations whose tensors have one size on all ranks
_RECEIVES = ("recv", "irecv")
_SENDS = ("send", "isend")
_MEET = "order sends and receives so that each send meets its receive, or use batch_isend_irecv"
_GPU_WAITS = ("synchronize", "item", "cpu", "tolist", "wait", "_wait", "numpy", "to", "elapsed_time")
_MOST = 4  # ranks or names that a sentence spells out


@dataclass(frozen=True, slots=True)
class Call:
    """A collective, or a message between two ranks, that a rank has entered.

    ``seq`` counts the collectives of its group on this rank from 1; 0 for messages.  ``at`` is the innermost frame
    outside of torch, ``own`` the innermost outside of all packages.  ``left`` says that the call returned, which with
    NCCL means that it was issued.
    """

    number: int
    op: str
    group: str = ""
    seq: int = 0
    shape: tuple[tuple[int, ...], ...] = ()
    numel: int | None = None
    dtype: str = ""
    by: str = ""
    peers: Mapping[str, int] = field(default_factory=dict)
    at: PythonFrame | None = None
    own: PythonFrame | None = None
    device: str = ""
    left: bool = False

    @property
    def place(self) -> PythonFrame | None:
        """Where the program itself made the call."""
        return self.own or self.at

    @property
    def said(self) -> str:
        """The operation with its sizes."""
        sizes = " and ".join(f"[{', '.join(map(str, each))}]" for each in self.shape[:2])
        root = "".join(f" {name} {rank}" for name, rank in self.peers.items())
        return f"{self.op}{root}" + (f" of {sizes} {self.dtype}" if sizes else "")


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: its ranks in the job, and what carries it."""

    name: str
    ranks: tuple[int, ...]
    backend: str
    default: bool


@dataclass(frozen=True, slots=True)
class Model:
    """A model under DDP on one rank: ``missing`` are parameters that gave no gradient in backward number ``backwards``,
    each with whether it required one then (None: not known)."""

    kind: str
    parameters: int
    backwards: int
    missing: Mapping[str, bool | None]
    missing_count: int
    frozen: tuple[str, ...] = ()
    find_unused: bool = False
    syncs: bool = True


@dataclass(frozen=True, slots=True)
class Rank:
    """All that is known of one rank.

    ``main`` is its main thread's stack, the innermost frame last, and ``doing`` what it does by it, in the supervisor's
    words; ``raised`` is the exception that ended it and ``raised_in`` its frames; ``ended`` that its program came to
    its end, which Python wrote before it took itself down, and ``gone`` that its process is no more.
    """

    rank: int
    world: int
    pid: int
    host: str
    joined: bool = False
    restart: int = 0
    groups: Mapping[str, Group] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()
    models: tuple[Model, ...] = ()
    main: tuple[PythonFrame, ...] = ()
    raised: str = ""
    raised_in: tuple[PythonFrame, ...] = ()
    raised_at: float = 0.0
    exit: int | None = None
    ended: bool = False
    gone: bool = False
    doing: str = ""

    @property
    def open(self) -> Call | None:
        """The call that it has entered and not left."""
        return next((call for call in reversed(self.calls) if not call.left), None)

    @property
    def where(self) -> PythonFrame | None:
        """The program's own line that it stands at."""
        return stacks.own_line(self.main)

    def issued(self, group: str) -> dict[int, Call]:
        """Its collectives of a group by their number."""
        return {call.seq: call for call in self.calls if call.group == group and call.seq}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why the ranks stand still or failed, in one sentence, with the failure's category and class and what to do."""

    cause: str
    cause_class: str
    fix: str
    next: tuple[str, ...] = ()
    category: str = "nccl-timeout-hang"


# -- reading


def read(ran: CommandRun) -> tuple[Rank, ...]:
    """The ranks of a run in their order; of a rank that was started again, its last process."""
    best: dict[int, tuple[tuple[int, bool, int], Rank]] = {}
    failed = [event for event in ran.events if event.get("event") == "exception" and event.get("pid")]
    raised = {int(event["pid"]): event for event in failed}
    exits = {child.pid: child.exit for child in ran.children()}
    sampled = ran.samples[-1]["processes"] if ran.samples else {}
    paths = sorted(ran.folder.glob("ranks-*.jsonl"))
    for path in paths:
        if path.name.endswith(".old.jsonl"):
            continue
        rows = [*_rows(path.with_name(f"{path.stem}.old.jsonl")), *_rows(path)]
        still = next(iter(_rows(path.with_name(path.name.replace("ranks-", "still-", 1).removesuffix("l")))), {})
        rank = _rank(rows, still)
        if rank is None:
            continue
        local = any(event.get("event") == "start" and event.get("pid") == rank.pid for event in ran.events)
        rank = _completed(rank, sampled, raised, exits, local and (bool(sampled) or ran.ended == "exited"))
        order = (rank.restart, bool(rank.calls), -len(best) if not rank.calls else 0)
        if rank.rank not in best or order > best[rank.rank][0]:
            best[rank.rank] = (order, rank)
    return tuple(best[number][1] for number in sorted(best))


def dumps(folder: Path) -> tuple[flight.Dump, ...]:
    """The flight-recorder files that the ranks wrote; one that cannot be read says nothing."""
    found = []
    for path in sorted(folder.glob("flight-*.pkl")):
        try:
            with job.plain_file(path) as file:
                found.append(flight.load(file, path.name))
        except (OSError, ValueError):
            continue
    return tuple(found)


def _rows(path: Path) -> list[Mapping[str, Any]]:
    try:
        with job.plain_file(path) as file:
            lines = file.read(_LARGEST).splitlines()
    except OSError:
        return []
    rows: list[Mapping[str, Any]] = []
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue  # a process that was killed while it wrote, or somebody else's text
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _rank(rows: Sequence[Mapping[str, Any]], still: Mapping[str, Any]) -> Rank | None:
    heads = [row for row in rows if row.get("e") in ("rank", "joined")]
    number = next((row["rank"] for row in reversed(heads) if isinstance(row.get("rank"), int)), None)
    if number is None:
        return None
    first = next(row for row in rows if row.get("e") == "rank")
    world = next((row["world"] for row in reversed(heads) if isinstance(row.get("world"), int)), 0)
    left = {row.get("n") for row in rows if row.get("e") == "out"}
    groups = {
        str(row["g"]): Group(str(row["g"]), tuple(row["ranks"]), str(row["backend"]), bool(row["default"]))
        for row in rows
        if row.get("e") == "group"
    }
    calls = {row["n"]: _call(row, row["n"] in left) for row in rows if row.get("e") == "in"}
    main: Mapping[str, Any] = next((each for each in still.get("threads", ()) if each.get("main")), {})
    # What was written at the end of the process, or while it raised, shows no place of the program.
    last = calls[max(calls)] if calls else None
    now = last is None or still.get("calls") == last.number + last.left
    frames = stacks.frames(main.get("frames", ())) if still.get("reason") == "still" and now else ()
    return Rank(
        rank=number,
        world=int(world),
        pid=int(first.get("pid") or 0),
        host=str(first.get("host") or ""),
        joined=any(row.get("e") == "joined" for row in rows) or bool(groups),
        restart=int(first.get("restart") or 0),
        groups=groups,
        calls=tuple(calls[key] for key in sorted(calls)),
        models=_models(rows, still),
        main=frames,
        ended=(ended := any(row.get("e") == "end" for row in rows)),
        gone=ended,
    )


def _call(row: Mapping[str, Any], left: bool) -> Call:
    at, own = (stacks.frames([row[name]])[0] if row.get(name) else None for name in ("at", "own"))
    return Call(
        number=int(row["n"]),
        op=str(row.get("op")),
        group=str(row.get("g", "")),
        seq=int(row.get("s", 0)),
        shape=tuple(tuple(each) for each in row.get("shape", ())),
        numel=row.get("numel"),
        dtype=str(row.get("dtype", "")),
        by=str(row.get("by", "")),
        peers=dict(row.get("peers", {})),
        at=at,
        own=own,
        device=str(row.get("device", "")),
        left=left,
    )


def _models(rows: Sequence[Mapping[str, Any]], still: Mapping[str, Any]) -> tuple[Model, ...]:
    """The models by their order on this rank, each as it was written down last."""
    found: dict[int, Mapping[str, Any]] = {}
    for row in rows:
        if row.get("e") in ("model", "gradients"):
            known = {**found.get(row["m"], {"backwards": 0, "missing_count": 0}), "missing": (), **row}
            found[row["m"]] = known
    for number, row in enumerate(still.get("modules", ())):
        if row["backwards"] >= found.get(number, row)["backwards"]:
            found[number] = {**found.get(number, {}), **row}
    return tuple(_model(found[number]) for number in sorted(found))


def _model(row: Mapping[str, Any]) -> Model:
    return Model(
        kind=str(row.get("kind", "a model")),
        parameters=int(row.get("parameters") or 0),
        backwards=int(row["backwards"]),
        missing={str(name): needs for name, needs in row["missing"]},
        missing_count=int(row["missing_count"]),
        frozen=tuple(row.get("frozen", ())),
        find_unused=bool(row.get("find_unused")),
        syncs=row.get("syncs") is not False,
    )


def _completed(
    rank: Rank,
    sampled: Mapping[str, Any],
    raised: Mapping[int, Mapping[str, Any]],
    exits: Mapping[int, int],
    local: bool,
) -> Rank:
    """The rank with what the supervisor saw of its process and what its Python said when it raised."""
    seen = sampled.get(str(rank.pid)) if local else None
    if seen is not None:
        threads = stacks.threads(str(seen.get("python", "")))
        rank = replace(rank, main=threads[-1] if threads else rank.main, gone=False, doing=str(seen.get("doing", "")))
    elif local:
        rank = replace(rank, gone=True, main=())
    said = raised.get(rank.pid)
    if said:
        words = f"{said.get('kind')}: {str(said.get('message')).splitlines()[0] if said.get('message') else ''}"
        at, where = float(said.get("time") or 0.0), stacks.frames(said.get("frames", ()))
        rank = replace(rank, raised=words.rstrip(": ")[:300], raised_in=where, raised_at=at)
    return replace(rank, exit=exits.get(rank.pid))


# -- judging


def told(ranks: Sequence[Rank], found: Sequence[flight.Dump], hung: bool) -> Diagnosis | None:
    """Why the ranks stand still (``hung``) or why the command failed, as far as the ranks themselves tell; else None.

    What differs between the ranks comes first, for whatever else is seen then follows from it: a rank that raised after
    a mismatch, a rank that waits elsewhere.
    """
    if not ranks:
        return None
    differs = _gradients(ranks, hung) or _order(ranks)
    if differs or not hung:
        return differs or _left(ranks) or _torn_down(ranks, hung)
    waits = (
        _torn_down(ranks, hung)
        or _gone(ranks)
        or _absent(ranks)
        or _messages(ranks)
        or _behind(ranks)
        or _unanswered(ranks)
    )
    return waits or _recorded(ranks, found) or _apart(ranks) or _same(ranks)


def unended(ranks: Sequence[Rank], seconds: float, stood_s: float, hang_after_s: float) -> str:
    """Why a job whose time was up after ``seconds`` may go on all the same; "" where it stood still for no such reason.

    ``stood_s`` is how long no rank had made a step then; below ``hang_after_s`` nobody is suspected.
    """
    if stood_s < hang_after_s:
        return f"the command had not ended after {seconds:.0f} s, and its ranks still made steps"
    busy = [rank for rank in ranks if rank.doing in WORKING]
    if not busy:
        return ""
    said = "; ".join(_stands(rank) for rank in busy[:_MOST])
    return f"the command had not ended after {seconds:.0f} s, and its ranks may go on: {said}"


def corrupted(ranks: Sequence[Rank]) -> Diagnosis | None:
    """The first collective that differs between the ranks of a job that came to its end all the same: its results are
    not what any rank asked for.  Sizes count where an operation wants them equal."""
    return _order(ranks, ended_well=True)


def _gradients(ranks: Sequence[Rank], hung: bool) -> Diagnosis | None:
    """Parameters under DDP that gave a gradient on some ranks and not on others, or on none."""
    for index in range(max((len(rank.models) for rank in ranks), default=0)):
        shared = {rank.rank: rank.models[index] for rank in ranks if len(rank.models) > index}
        # DDP waits for a gradient of each parameter of a model that has been through a backward pass
        models = {number: model for number, model in shared.items() if model.backwards and not model.find_unused}
        if not models:
            continue
        latest = max(model.backwards for model in models.values())
        lacking = _lacking(ranks, models, latest)
        given: dict[str, list[int]] = {}
        for number, model in models.items():
            for name in {name for names in lacking.values() for name in names}:
                if name not in model.missing and model.missing_count == len(model.missing):
                    given.setdefault(name, []).append(number)
        guilty = {
            number: wrong
            for number, names in lacking.items()
            if (wrong := [name for name in names if name in given or models[number].missing[name] is False])
        }
        if guilty:
            return _unequal(ranks, models, guilty, given, hung)
        everywhere = sorted(set.intersection(*map(set, lacking.values()))) if lacking else []
        if everywhere and any(_INCOMPLETE in rank.raised for rank in ranks):
            return _unused(next(iter(models.values())), everywhere, latest)
    return None


def _lacking(ranks: Sequence[Rank], models: Mapping[int, Model], latest: int) -> dict[int, list[str]]:
    """The parameters of each rank's model that surely give no gradient in backward ``latest``.

    A rank that is a step behind, or still at it, may yet give the rest; what is frozen never comes, and where torch
    itself complains that something did not come, all of it did not.
    """
    lacking: dict[int, list[str]] = {}
    for rank in ranks:
        model = models.get(rank.rank)
        if model is not None and model.syncs:
            whole = model.backwards == latest and not _in_backward(rank)
            sure = whole or _INCOMPLETE in rank.raised
            lacking[rank.rank] = [name for name, needs in model.missing.items() if sure or needs is False]
    return lacking


_INCOMPLETE = "Expected to have finished reduction in the prior iteration"  # torch, reducer.cpp
_FIX_UNUSED = (
    "use every parameter in the loss, or pass find_unused_parameters=True to DistributedDataParallel, or set "
    "requires_grad=False before it is wrapped"
)
_FIX_FROZEN = (
    "freeze before DistributedDataParallel wraps the model, and the same parameters on all ranks; where what is used "
    "differs by rank or step, pass find_unused_parameters=True"
)
_FIX_BRANCH = (
    "take the same branch on all ranks, or pass find_unused_parameters=True to DistributedDataParallel, or add the "
    "unused outputs to the loss times zero; static_graph=True fits only where the same parameters stay unused"
)


def _unused(model: Model, names: Sequence[str], latest: int) -> Diagnosis:
    count = f"({model.missing_count} of {model.parameters} parameters)"
    cause = f"no rank gave a gradient for {_names(names)} of {model.kind} in backward {latest} {count}"
    return Diagnosis(f"{cause}, which DDP waits for", "rank-desync", _FIX_UNUSED, category="not-gpu-env")


def _unequal(
    ranks: Sequence[Rank],
    models: Mapping[int, Model],
    guilty: Mapping[int, Sequence[str]],
    given: Mapping[str, Sequence[int]],
    hung: bool,
) -> Diagnosis:
    # The more ranks say the same the shorter the sentence.
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, names in guilty.items():
        alike.setdefault(tuple(names), []).append(number)
    said = []
    frozen = False
    for names, numbers in list(alike.items())[:_MOST]:
        model = models[numbers[0]]
        states = {model.missing.get(name) for name in names}
        frozen = frozen or states == {False}
        how = "frozen there: requires_grad is False" if states == {False} else "not used there"
        how = "frozen or not used there" if len(states) > 1 else how
        others = sorted({number for name in names for number in given.get(name, ())})
        how += f"; {_ranks(others)} gave {'it' if len(names) == 1 else 'them'}" if others else ""
        what = f"{_names(names)} of {model.kind} in backward {model.backwards}"
        said.append(f"{_ranks(numbers)} gave no gradient for {what} ({how})")
    waits = f"; {_standing(ranks)}" if hung else _failed(ranks)
    cause = "; ".join(said) + ", so that DDP's reduction of it does not complete" + waits
    return Diagnosis(cause, "rank-desync", _FIX_FROZEN if frozen else _FIX_BRANCH)


def _in_backward(rank: Rank) -> bool:
    """Whether it stands in a backward pass, or raised in one, so that gradients may still have come."""
    frames = rank.raised_in or rank.main
    return any("/torch/" in frame.file and frame.function in ("backward", "_engine_run_backward") for frame in frames)


_FIX_ORDER = "let all ranks issue the same collectives with the same sizes in the same order"


def _order(ranks: Sequence[Rank], ended_well: bool = False) -> Diagnosis | None:
    """The first collective of a group that is not the same on all its ranks."""
    for group in _groups(ranks):
        members = [rank for rank in ranks if rank.issued(group.name)]
        if ended_well and any(rank.groups.get(group.name, group).ranks != group.ranks for rank in members):
            continue  # groups that only share their name
        lists = {rank.rank: rank.issued(group.name) for rank in members}
        if len(lists) < 2:
            continue
        # What a rank no longer has in its file says nothing.
        first = max(min(each) for each in lists.values())
        for seq in range(first, max(max(each) for each in lists.values()) + 1):
            here = {number: each[seq] for number, each in lists.items() if seq in each}
            if len(here) < 2:
                break
            found = _differing(here)
            if found and ended_well and found[0] == "sizes" and not {call.op for call in here.values()} <= _EQUAL:
                continue
            if found:
                return _desync(group, seq, *found, ranks)
    return None


def _differing(here: Mapping[int, Call]) -> tuple[str, dict[str, list[int]], Mapping[int, Call]] | None:
    """What of a collective differs between ranks, who has which, and the calls."""

    def size(call: Call) -> str:
        if call.op in _UNEQUAL or call.op in _OBJECTS or call.numel is None:
            return ""
        return f"{call.numel} elements of {call.dtype}"

    def root(call: Call) -> str:
        return "".join(f"{name} {rank}" for name, rank in call.peers.items())

    for what, key in (
        ("operations", lambda call: call.op),
        ("sizes", size),
        ("roots", root),
        ("reductions", lambda call: call.by),
    ):
        split: dict[str, list[int]] = {}
        for number, call in here.items():
            split.setdefault(key(call), []).append(number)
        split.pop("", None)
        if len(split) > 1:
            return what, split, here
    return None


def _desync(
    group: Group,
    seq: int,
    what: str,
    split: Mapping[str, Sequence[int]],
    here: Mapping[int, Call],
    ranks: Sequence[Rank],
) -> Diagnosis:
    said = []
    for key, numbers in sorted(split.items(), key=lambda each: list(each[1]))[:_MOST]:
        call = here[numbers[0]]
        more = f" ({key})" if what == "reductions" else ""
        said.append(f"{_ranks(numbers)} {'calls' if len(numbers) == 1 else 'call'} {call.said}{more}{_at(call.place)}")
    fixes = {
        "operations": _FIX_ORDER + ": no collective under a condition that ranks see differently",
        "sizes": "give the collective the same sizes and type on all ranks: pad, or exchange the sizes first",
        "roots": "give the collective the same src or dst on all ranks",
        "reductions": "give the collective the same op on all ranks",
    }
    cause = f"collective {seq} of {_name(group)} is not the same on all ranks, their {what} differ: {'; '.join(said)}"
    follow = "TORCH_DISTRIBUTED_DEBUG=DETAIL lets torch compare the collectives and raise at the first that differs"
    return Diagnosis(cause + _failed(ranks), "rank-desync", fixes[what], (follow,))


_FIX_TEARDOWN = (
    "end each rank without it once the work is saved and all have met: dist.barrier(), then sys.stdout.flush() and "
    "os._exit(0)"
)


def _torn_down(ranks: Sequence[Rank], hung: bool) -> Diagnosis | None:
    """A job over gloo that has done its work, and whose rank hangs or aborts while torch takes gloo's threads down.

    ProcessGroupGloo's destructor joins its threads while it holds Python's lock, and one of them may want that lock. On
    busy processors most jobs with it hang in destroy_process_group, and a quarter of those that do not call it abort at
    their end (https://github.com/pytorch/pytorch/issues/190489).
    """
    caught = [
        rank
        for rank in ranks
        if (hung and (call := rank.open) and call.op == "destroy_process_group")
        or (not hung and rank.ended and rank.exit == -signal.SIGABRT and rank.open is None)
    ]
    groups = _groups(ranks)
    done = all(
        len({max(rank.issued(group.name), default=0) for rank in ranks if rank.rank in group.ranks}) == 1
        for group in groups
    )
    others = all(rank in caught or (rank.gone and not rank.exit) for rank in ranks)
    whole = len(ranks) == max(rank.world for rank in ranks)
    gloo = any("gloo" in group.backend and group.default for group in groups)
    if not (caught and done and others and whole and gloo) or any(rank.raised for rank in ranks):
        return None
    who, call = _ranks([rank.rank for rank in caught]), caught[0].open
    if hung:
        does = f"{'does' if len(caught) == 1 else 'do'} not come out of destroy_process_group"
        how = f"{who} {does}{_at(call.place if call else None)}"
    else:
        how = f"{who} aborted after the program had come to its end"
    why = "all ranks had done the same collectives, and what fails is how torch takes gloo's threads down"
    return Diagnosis(f"{how}: {why}", "program-bug", _FIX_TEARDOWN, category="not-gpu-env")


def _gone(ranks: Sequence[Rank]) -> Diagnosis | None:
    """A rank that raised or ended while others wait."""
    left = [rank for rank in ranks if rank.gone]
    there = [rank for rank in ranks if not rank.gone]
    if not left or not there:
        return None
    left.sort(key=lambda rank: (not rank.raised, rank.raised_at))
    first = left[0]
    if first.raised:
        own = stacks.own_line(first.raised_in)
        cause = f"rank {first.rank} ended with {first.raised}{_at(own)} and the others wait for it: {_standing(there)}"
        return Diagnosis(cause, "peer-failure", "fix what the rank that ended raised; the others only wait for it")
    how = f"exited with status {first.exit}" if first.exit else "came to its end"
    last = first.calls[-1] if first.calls else None
    after = f" after {last.said}{_at(last.place)}" if last and last.op != "destroy_process_group" else ""
    cause = f"{_ranks([rank.rank for rank in left])} {how}{after} and the others wait: {_standing(there)}"
    if first.exit:
        return Diagnosis(cause, "peer-failure", "see why that rank ended; the others only wait for it")
    return Diagnosis(cause, "rank-desync", _FIX_STEPS)


_LOST = re.compile(r"closed by peer|reset by peer|Broken pipe|remote process")
_FIX_STEPS = (
    "let all ranks take the same number of steps (drop_last and a DistributedSampler of equal parts, or "
    "`with model.join():`), and end none before the last collective of all"
)


def _left(ranks: Sequence[Rank]) -> Diagnosis | None:
    """A rank that came to its end in good order and before the others, which then lost it."""
    lost = [rank for rank in ranks if _LOST.search(rank.raised)]
    early = [rank for rank in ranks if rank.gone and not rank.raised and not rank.exit]
    if not lost or not early:
        return None
    most = max(len(rank.calls) for rank in lost)
    early = [rank for rank in early if len(rank.calls) < most or _backwards(rank) < max(map(_backwards, lost))]
    if not early:
        return None
    last = early[0].calls[-1] if early[0].calls else None
    after = f" after {last.said}{_at(last.place)}" if last else ""
    did = f"{_ranks([rank.rank for rank in early])} came to its end{after}, before the others were done"
    return Diagnosis(f"{did}{_failed(ranks)}{_at(stacks.own_line(lost[0].raised_in))}", "rank-desync", _FIX_STEPS)


def _backwards(rank: Rank) -> int:
    return max((model.backwards for model in rank.models), default=0)


def _absent(ranks: Sequence[Rank]) -> Diagnosis | None:
    """Ranks that never joined the group that others wait to form."""
    waiting = [rank for rank in ranks if (call := rank.open) and call.op == "init_process_group"]
    if not waiting:
        return None
    world = max(rank.world for rank in ranks)
    known = {rank.rank: rank for rank in ranks}
    never = [number for number in range(world) if number not in known][:64]
    late = [rank for rank in ranks if not rank.joined and rank not in waiting]
    call = waiting[0].open
    head = (
        f"{len(waiting)} of {world} ranks wait in init_process_group{_at(call.place if call else None)} "
        f"({_ranks([rank.rank for rank in waiting])})"
    )
    if late:
        where = "; ".join(_stands(rank) for rank in late[:_MOST])
        fix = "look at what the late rank does at its line"
        return Diagnosis(f"{head} and have no answer of the others: {where}", "peer-failure", fix)
    if never:
        fix = "start all ranks that WORLD_SIZE counts, or set it to the number that is started"
        return Diagnosis(f"{head}, and {_ranks(never)} did not start here", "launch-config", fix)
    fix = "see that all ranks have the same MASTER_ADDR and MASTER_PORT, reach it, and that no other job uses the port"
    return Diagnosis(f"{head}, which is all of them", "network-fabric", fix)


def _messages(ranks: Sequence[Rank]) -> Diagnosis | None:
    """A rank that waits for a message of one that waits itself."""
    by_rank = {rank.rank: rank for rank in ranks}
    for rank in ranks:
        call = rank.open
        if call is None or call.op not in ("send", "recv", *_RECEIVES):
            continue
        peer = by_rank.get(next(iter(call.peers.values()), -1))
        if peer is None:
            continue
        verb = "from" if call.op in _RECEIVES else "to"
        answer = peer.open
        there = f"waits in {answer.said}{_at(answer.place)}" if answer else f"is{_at(peer.where)}"
        cause = f"rank {rank.rank} waits in {call.op} {verb} rank {peer.rank}{_at(call.place)}, and that rank {there}"
        return Diagnosis(cause, "program-bug", _MEET)
    return None


def _unanswered(ranks: Sequence[Rank]) -> Diagnosis | None:
    """A message that was asked for and never sent: with NCCL the call returns, and what hangs is a later one.

    What batch_isend_irecv sends is not counted, so a job that uses it is left alone.
    """
    if any(call.op == "batch_isend_irecv" for rank in ranks for call in rank.calls):
        return None
    for rank in ranks:
        for peer in ranks:
            asked = [call for call in rank.calls if call.op in _RECEIVES and call.peers.get("src") == peer.rank]
            sent = [call for call in peer.calls if call.op in _SENDS and call.peers.get("dst") == rank.rank]
            if len(asked) > len(sent) and len({call.group for call in asked}) == 1:
                call, done = asked[len(sent)], f"sent {len(sent)}" if sent else "sent none"
                cause = (
                    f"rank {rank.rank} asked for a message of rank {peer.rank} with {call.op}{_at(call.place)}, and "
                    f"that rank {done} and {_waits(peer)}"
                )
                return Diagnosis(cause, "program-bug", _MEET)
    return None


def _waits(rank: Rank) -> str:
    asks = [call for call in rank.calls if call.op in _RECEIVES]
    call = rank.open or (asks[-1] if asks else None)
    last = f", after {asks[-1].op}{_at(asks[-1].place)}" if asks and call is not asks[-1] else ""
    return f"waits in {call.said}{_at(call.place)}{last}" if call else f"is{_at(rank.where)}"


def _behind(ranks: Sequence[Rank]) -> Diagnosis | None:
    """Ranks that have not come to a collective, or to a backward pass, that others have reached."""
    by_rank = {rank.rank: rank for rank in ranks}
    for group in _groups(ranks):
        members = [by_rank[number] for number in group.ranks if number in by_rank]
        last = {rank.rank: max(rank.issued(group.name), default=0) for rank in members}
        if not last or min(last.values()) == max(last.values()):
            continue
        least = min(last.values())
        late = [rank for rank in members if last[rank.rank] == least]
        call = next(found for rank in members if (found := rank.issued(group.name).get(least + 1)))
        came = [rank for rank in members if last[rank.rank] > least]
        return _late(f"{call.said}, collective {least + 1} of {_name(group)}{_at(call.place)}", came, late)
    steps = {rank.rank: rank.models[0].backwards for rank in ranks if rank.models}
    if len(set(steps.values())) > 1:
        least = min(steps.values())
        late = [rank for rank in ranks if steps.get(rank.rank) == least]
        came = [rank for rank in ranks if steps.get(rank.rank, 0) > least]
        return _late(f"DDP's reduction of backward {least + 1}{_at(came[0].where)}", came, late)
    return None


def _late(what: str, came: Sequence[Rank], late: Sequence[Rank]) -> Diagnosis:
    where = "; ".join(_stands(rank) for rank in late[:_MOST])
    absent = f"{_ranks([rank.rank for rank in late])} {'has' if len(late) == 1 else 'have'} not come there"
    wait = "waits" if len(came) == 1 else "wait"
    cause = f"{_ranks([rank.rank for rank in came])} {wait} in {what}, and {absent}: {where}"
    fix = (
        "look at what the rank that has not come does at its line: end it, bound it in time, or let all ranks do it "
        "between the same two collectives"
    )
    return Diagnosis(cause, "peer-failure" if not any(rank.open for rank in late) else "rank-desync", fix)


def _recorded(ranks: Sequence[Rank], found: Sequence[flight.Dump]) -> Diagnosis | None:
    """What NCCL's flight recorder has that Python does not see."""
    for each in flight.compare(found):
        if each.kind != "not-finished":
            odd = f" ({_ranks(each.odd)} apart)" if each.odd else ""
            cause = f"by NCCL's flight recorder collective {each.seq} of group {each.group} differs between ranks"
            return Diagnosis(f"{cause}: {each.told}{odd}; {_standing(ranks)}", "rank-desync", _FIX_ORDER)
    return None


def _apart(ranks: Sequence[Rank]) -> Diagnosis | None:
    """Ranks that wait inside torch where Python sees no collective, and ranks that stand in code of another."""
    came = [rank for rank in ranks if rank.open or (rank.main and "/torch/" in rank.main[-1].file)]
    late = [rank for rank in ranks if rank.main and rank not in came]
    if not came or not late:
        return None
    call, inner = came[0].open, came[0].main[-1] if came[0].main else None
    what = call.said if call else f"torch's {inner.function}" if inner else ""
    return _late(f"{what}{_at(call.place if call else came[0].where)}", came, late)


def _same(ranks: Sequence[Rank]) -> Diagnosis | None:
    """All ranks in the same collective: what carries it does not."""
    world = max(rank.world for rank in ranks)
    calls = [rank.open for rank in ranks]
    first = calls[0]
    joined = [call for call in calls if call and first and (call.group, call.seq) == (first.group, first.seq)]
    group = next((found for rank in ranks if first and (found := rank.groups.get(first.group))), None)
    if first and group and len(joined) == len(ranks) and len(ranks) == min(world, len(group.ranks)):
        what = f"{first.said}, collective {first.seq} of {_name(group)}{_at(first.place)}"
        head = f"all {len(ranks)} ranks wait in {what}"
        return _transport(head, group.backend, ranks)
    group = next((each for each in _groups(ranks) if each.default), None)
    counts = {max(rank.issued(group.name), default=0) for rank in ranks} if group else set()
    waits = all(any(frame.function in _GPU_WAITS for frame in rank.main[-3:]) for rank in ranks)
    if group and "nccl" in group.backend and len(counts) == 1 and waits and len(ranks) == world:
        head = f"all {len(ranks)} ranks wait for their GPUs after the same collectives: {_standing(ranks)}"
        return _transport(head, group.backend, ranks)
    return None


def _transport(head: str, backend: str, ranks: Sequence[Rank]) -> Diagnosis:
    """What to try where all ranks are together, in the order of how often it is at fault (NCCL user guide,
    troubleshooting: peer-to-peer access behind an IOMMU or ACS within a machine, interfaces and InfiniBand between)."""
    hosts = {rank.host for rank in ranks}
    if "nccl" not in backend:
        fix = "set GLOO_SOCKET_IFNAME to the interface that the machines share, and open its ports between them"
        return Diagnosis(f"{head}, with the same sizes: {backend} does not carry the data", "network-fabric", fix)
    within = "NCCL_P2P_DISABLE=1: if it runs, peer-to-peer access between the GPUs is broken (IOMMU, PCIe ACS, a VM)"
    shared = "NCCL_SHM_DISABLE=1: if it runs, shared memory is (too small a /dev/shm in a container)"
    between = [
        "NCCL_SOCKET_IFNAME=the interface that the machines share: NCCL may have taken docker0 or one without a route",
        "NCCL_IB_DISABLE=1: if it runs, InfiniBand or RoCE is at fault (GID index, MTU, a port that is down)",
    ]
    tries = [*between, within] if len(hosts) > 1 else [within, shared]
    follow = (*tries, "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,P2P shows the transport that was chosen")
    cause = f"{head}, in the same order with the same sizes: the transport between them carries no data"
    return Diagnosis(cause, "network-fabric", f"try {tries[0]}", follow)


# -- words


def _groups(ranks: Sequence[Rank]) -> list[Group]:
    found = {name: group for rank in ranks for name, group in rank.groups.items()}
    return sorted(found.values(), key=lambda group: not group.default)


def _name(group: Group) -> str:
    return "the default group" if group.default else f"group {group.name} ({_ranks(group.ranks)})"


def _ranks(numbers: Iterable[int]) -> str:
    listed = sorted(numbers)
    if len(listed) == 1:
        return f"rank {listed[0]}"
    shown = ", ".join(map(str, listed[:8])) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")
    return f"ranks {shown}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


def _at(frame: PythonFrame | None) -> str:
    return f" at {frame.place} in {frame.function}" if frame else ""


def _stands(rank: Rank) -> str:
    call = rank.open
    if call:
        return f"rank {rank.rank} is in {call.said}{_at(call.place)}"
    inner, own = rank.main[-1] if rank.main else None, rank.where
    if own is None or inner is None:
        return f"rank {rank.rank} has ended" if rank.gone else f"where rank {rank.rank} is was not seen"
    within = f", in {inner.function} of {Path(inner.file).name}" if inner != own else ""
    does = rank.doing if rank.doing in (*WORKING, SLEEPS) else "is"
    return f"rank {rank.rank} {does} at {own.place} in {own.function}{within}"


def _standing(ranks: Sequence[Rank]) -> str:
    more = f"; and {len(ranks) - _MOST} more" if len(ranks) > _MOST else ""
    return "; ".join(_stands(rank) for rank in ranks[:_MOST]) + more


def _failed(ranks: Sequence[Rank]) -> str:
    raised = sorted((rank for rank in ranks if rank.raised), key=lambda rank: rank.raised_at)
    return f"; rank {raised[0].rank} ended with {raised[0].raised}" if raised else ""


def rows(ranks: Sequence[Rank]) -> tuple[RankRow, ...]:
    """A row for each rank of the job, those without a trace included, as far as 4096."""
    known = {rank.rank: rank for rank in ranks}
    world = min(4096, max((rank.world for rank in ranks), default=0))
    return tuple(
        _row(known[number]) if number in known else RankRow(number, "", 0, "silent")
        for number in sorted({*range(world), *known})
    )


def _row(rank: Rank) -> RankRow:
    last = rank.calls[-1] if rank.calls else None
    state = "raised" if rank.raised else "ended" if rank.gone else "waits" if rank.open else "elsewhere"
    return RankRow(
        rank=rank.rank,
        host=rank.host,
        pid=rank.pid,
        state=state,
        operation=last.said if last else "",
        group=last.group if last else "",
        seq=last.seq if last else 0,
        called=last.place if last else None,
        device=next((call.device for call in reversed(rank.calls) if call.device), ""),
        main=rank.main,
        backwards=_backwards(rank),
        missing=tuple(name for model in rank.models for name in model.missing),
        raised=rank.raised,
    )


def lines(table: Sequence[RankRow]) -> tuple[str, ...]:
    """The ranks side by side, one line for each, ranks that say the same on one."""
    told: dict[str, list[int]] = {}
    for row in table:
        own = stacks.own_line(row.main)
        said = [row.state if row.state != "raised" else f"ended with {row.raised}"]
        if row.operation:
            number = f" ({row.seq} of group {row.group})" if row.seq else ""
            said.append(f"{'in' if row.state == 'waits' else 'last'} {row.operation}{number}{_at(row.called)}")
        if own and row.state not in ("waits", "raised"):
            said.append(f"stands{_at(own)}")
        if row.backwards:
            said.append(f"backward {row.backwards}" + (f" without {_names(row.missing)}" if row.missing else ""))
        told.setdefault(", ".join(said), []).append(row.rank)
    return tuple(f"{_ranks(numbers)}: {said}" for said, numbers in told.items())
