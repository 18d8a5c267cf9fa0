"""NCCL flight-recorder files: what each rank had issued, and where the ranks first differ.

torch writes one file a rank when a collective times out (TORCH_NCCL_DUMP_ON_TIMEOUT, TORCH_NCCL_TRACE_BUFFER_SIZE):
a pickle of plain containers made by its C++ Pickler, or JSON (torch/csrc/distributed/c10d/FlightRecorder).
A pickle is a program; here its operations are read one by one and only those that make plain values are carried out.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import PurePath
from typing import BinaryIO

import msgspec

from envkit.logs.knowledge import signatures
from envkit.logs.records import Event, FileSeen, Line, Reading, Signature
from envkit.records import dataclass

LARGEST = 64 << 20
"""Bytes of one file; torch's default buffer of 2000 entries with their frames takes about 4 MB."""

_MOST_STEPS = 6_000_000  # operations of one pickle: seconds of reading, and ten times a default buffer
_MOST_ENTRIES = 200_000
_KEYS = (b"pg_config", b"pg_status", b"entries", b"nccl_comm_state", b"comm_lib_version", b"collective_seq_id")
_PROTOCOLS = range(2, 6)
_HEAD = 4096
_UNEQUAL = re.compile(r"all_?to_?all|send|recv|gather(?!_base)|scatter(?!_base)|coalesced", re.IGNORECASE)
_DONE = "completed"
_Plain = object
# frames between the program and NCCL: torch's, and those of `envkit debug`'s companion
_BETWEEN = re.compile(r"[/\\]torch[/\\]|[/\\]envkit_ranks\.py\Z")


@dataclass(frozen=True, slots=True)
class Entry:
    """One collective or send that a rank issued.

    ``seq`` is its number among the collectives of its group; ``state`` is "scheduled", "started" or "completed";
    ``frame`` is the innermost Python frame outside of torch.
    """

    index: int
    group: str
    seq: int
    operation: str
    inputs: str
    outputs: str
    state: str
    pointwise: bool
    frame: str


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank's file; ``members`` are the ranks of each group where the file says so, ``rank`` None if no one says."""

    name: str
    rank: int | None
    entries: tuple[Entry, ...]
    members: Mapping[str, tuple[int, ...]]
    bytes: int


@dataclass(frozen=True, slots=True)
class Difference:
    """The first collective of a group at which its ranks are not together.

    ``kind`` is "other-operation", "other-sizes", "not-joined" or "not-finished"; ``odd`` are the ranks that differ from
    most, or that have not come; ``frames`` is where each of the named ranks was when it issued its collective there (or
    its last one before).
    """

    group: str
    seq: int
    kind: str
    operation: str
    odd: tuple[int, ...]
    told: str
    frames: Mapping[int, str]
    at: Mapping[int, int]


def is_dump(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a flight-recorder file; the first 4 kB are enough."""
    start = head[:_HEAD]
    if len(start) > 2 and start[0] == 0x80 and start[1] in _PROTOCOLS:
        return any(key in start for key in _KEYS)
    return start.lstrip()[:1] == b"{" and re.search(rb'"(?:' + b"|".join(_KEYS) + rb')"\s{0,9}:', start) is not None


def load(stream: BinaryIO, name: str) -> Dump:
    """Reads one rank's file; the rank is that in the file, else the number at the end of its name.

    Raises ValueError, with the reason, for a file that is too large, cut short, not of plain values or not a dump.
    """
    raw = stream.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise ValueError(f"{name} is larger than {LARGEST >> 20} MB")
    content = _json(raw, name) if raw.lstrip()[:1] == b"{" else _unpickled(raw, name)
    if not isinstance(content, dict) or not any(key.decode() in content for key in _KEYS):
        raise ValueError(f"{name} is not a flight-recorder file")
    listed = content.get("entries")
    rows = listed[:_MOST_ENTRIES] if isinstance(listed, list) else []
    entries = tuple(_entry(index, row) for index, row in enumerate(rows) if isinstance(row, dict))
    number = content.get("rank")
    rank = number if isinstance(number, int) and not isinstance(number, bool) else _rank_of(name)
    return Dump(name, rank, entries, dict(_members(content.get("pg_config"))), len(raw))


def compare(dumps: Sequence[Dump]) -> tuple[Difference, ...]:
    """The first difference of each group, the one that most ranks are missing from first.

    A rank whose file has no such number yet has not come; one whose file begins later has forgotten it, which says
    nothing.  Sizes are compared only where they must be equal.  An unfinished collective that all have joined is
    "not-finished": the program is in step, the transport or a device is not.
    """
    by_rank = {dump.rank: dump for dump in dumps if dump.rank is not None}
    groups = dict.fromkeys(entry.group for dump in by_rank.values() for entry in dump.entries if not entry.pointwise)
    found = [difference for group in groups if (difference := _first(group, by_rank))]
    return tuple(sorted(found, key=lambda each: (each.kind == "not-finished", -len(each.odd))))


def reading(dumps: Sequence[Dump]) -> Reading:
    """What the files say as events, so that they take their place beside the logs of the same job."""
    known = {row.id: row for row in signatures() if row.id in ("flight-state", "flight-difference")}
    events = [
        _event(known["flight-state"], dump.name, number, text) for dump in dumps for number, text in _states(dump)
    ]
    by_rank = {dump.rank: dump for dump in dumps if dump.rank is not None}
    for each in compare(dumps):
        witness = next((rank for rank in each.odd if rank in by_rank), next(iter(by_rank)))
        text = f"flight recorder: group {each.group} collective {each.seq}: {each.kind}; {each.told}"
        events.append(_event(known["flight-difference"], by_rank[witness].name, each.at.get(witness, 1), text))
    files = tuple(FileSeen(dump.name, len(dump.entries), dump.bytes, binary=True) for dump in dumps)
    return Reading(files, tuple(events), ())


def _event(signature: Signature, name: str, number: int, text: str) -> Event:
    match = re.search(signature.pattern, text)
    values = {key: value for key, value in match.groupdict().items() if value} if match else {}
    rank = values.get("rank")
    line = Line(name, number, text, text, rank=int(rank) if rank else None)
    return Event(line, signature, signature.role, values)


def _states(dump: Dump) -> Iterator[tuple[int, str]]:
    if dump.rank is None:
        return
    groups: dict[str, list[Entry]] = {}
    for entry in dump.entries:
        if not entry.pointwise:
            groups.setdefault(entry.group, []).append(entry)
    for group, entries in groups.items():
        done = max((entry.seq for entry in entries if entry.state == _DONE), default=entries[0].seq - 1)
        stuck = next((entry for entry in entries if entry.state != _DONE), entries[-1])
        yield (
            stuck.index + 1,
            f"flight recorder: rank {dump.rank} group {group} last enqueued {entries[-1].seq} last completed {done} "
            f"at {stuck.operation} in {stuck.frame or 'a place not recorded'}",
        )


def _first(group: str, by_rank: Mapping[int, Dump]) -> Difference | None:
    issued = {
        rank: {entry.seq: entry for entry in dump.entries if entry.group == group and not entry.pointwise}
        for rank, dump in by_rank.items()
    }
    members = next((dump.members[group] for dump in by_rank.values() if group in dump.members), ())
    # a member whose file has nothing of the group has not come; one without a file is not known
    there = [rank for rank in by_rank if issued[rank] or rank in members]
    started = [rank for rank in there if issued[rank]]
    if len(there) < 2 or not started:
        return None
    begins = max(min(issued[rank]) for rank in started)
    ends = max(max(issued[rank]) for rank in started)
    for seq in range(begins, min(ends, begins + _MOST_ENTRIES) + 1):
        here = {rank: issued[rank][seq] for rank in there if seq in issued[rank]}
        if difference := _apart(group, seq, here, there, issued):
            return difference
    return None


def _apart(
    group: str, seq: int, here: Mapping[int, Entry], there: Sequence[int], issued: Mapping[int, Mapping[int, Entry]]
) -> Difference | None:
    operations = _split(here, lambda entry: entry.operation)
    sizes = _split(here, lambda entry: "" if _UNEQUAL.search(entry.operation) else f"{entry.inputs} to {entry.outputs}")
    absent = tuple(rank for rank in there if rank not in here and max(issued[rank], default=-1) < seq)
    unfinished = [entry for entry in here.values() if entry.state != _DONE]
    most = max(operations, key=lambda name: len(operations[name]), default="")
    if len(operations) > 1:
        kind, odd, told = "other-operation", _odd(operations), _listed(operations)
    elif len(sizes) > 1:
        kind, odd, told = "other-sizes", _odd(sizes), f"{most} with {_listed(sizes)}"
    elif absent:
        where = "; ".join(f"rank {rank} was last in {_last_frame(issued[rank], seq)}" for rank in absent[:3])
        kind, odd, told = "not-joined", absent, f"{most} was never issued by rank {_numbers(absent)}; {where}"
    elif unfinished:
        kind, odd = "not-finished", tuple(rank for rank, entry in here.items() if entry.state != _DONE)
        told = f"{most} was issued by all and not finished by rank {_numbers(odd)}"
    else:
        return None
    frames = {rank: here[rank].frame if rank in here else _last_frame(issued[rank], seq) for rank in there}
    if kind in ("other-operation", "other-sizes") and odd and frames.get(odd[0]):
        told += f"; rank {odd[0]} in {frames[odd[0]]}"
    at = {rank: _near(issued[rank], seq) for rank in there}
    return Difference(group, seq, kind, most, odd, told, frames, at)


def _split(here: Mapping[int, Entry], key: Callable[[Entry], str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for rank, entry in here.items():
        found.setdefault(key(entry), []).append(rank)
    return found


def _odd(split: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    most = max(split, key=lambda name: len(split[name]))
    return tuple(rank for name, ranks in split.items() if name != most for rank in ranks)


def _listed(split: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{name} on rank {_numbers(ranks)}" for name, ranks in list(split.items())[:4])


def _numbers(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"


def _last_frame(entries: Mapping[int, Entry], before: int) -> str:
    earlier = [seq for seq in entries if seq < before]
    return (entries[max(earlier)].frame if earlier else "") or "a place not recorded"


def _near(entries: Mapping[int, Entry], seq: int) -> int:
    earlier = [number for number in entries if number <= seq]
    return entries[max(earlier)].index + 1 if earlier else 1


def _entry(index: int, row: Mapping[object, object]) -> Entry:
    group = row.get("process_group")
    name = _text(group[0]) if isinstance(group, list | tuple) and group else _text(group) or _text(row.get("pg_id"))
    return Entry(
        index,
        (re.sub(r"\s", "_", name) or "0")[:80],
        _number(row.get("collective_seq_id", row.get("seq_id"))),
        (re.sub(r"\s", "_", _text(row.get("profiling_name"))) or "collective").removeprefix("nccl:")[:80],
        _sizes(row.get("input_sizes")),
        _sizes(row.get("output_sizes")),
        _text(row.get("state"))[:40],
        row.get("is_p2p") is True,
        _frame(row.get("frames")),
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else 0


def _text(value: object) -> str:
    """Text, or a number as text; of anything else nothing, for a pickle can nest a value in itself without end."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(_number(value))
    return value if isinstance(value, str) else ""


def _sizes(value: object) -> str:
    """At most 8 tensors of 8 dimensions, as they are written in Python."""
    if not isinstance(value, list | tuple):
        return ""
    tensors = [tensor for tensor in value[:8] if isinstance(tensor, list | tuple)]
    return "[" + ", ".join("[" + ", ".join(str(_number(each)) for each in tensor[:8]) + "]" for tensor in tensors) + "]"


def _frame(value: object) -> str:
    """The innermost frame that is not torch's own, for torch's collectives all begin in the same file."""
    if not isinstance(value, list | tuple):
        return ""
    frames = [frame for frame in value[:200] if isinstance(frame, dict)]
    own = [frame for frame in frames if not _BETWEEN.search(_text(frame.get("filename"))[:300])]
    for frame in (own or frames)[:1]:
        place = f"{_text(frame.get('filename'))[:160]}:{_number(frame.get('line'))}"
        return re.sub(r"[\x00-\x1f\x7f]", "?", f"{place} in {_text(frame.get('name'))[:80]}")
    return ""


def _members(value: object) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The ranks of each group; torch writes them as the text of a list."""
    if not isinstance(value, dict):
        return
    for name, about in list(value.items())[:10_000]:
        ranks = about.get("ranks") if isinstance(about, dict) else None
        listed = re.findall(r"\d{1,7}", ranks[:1_000_000]) if isinstance(ranks, str) else ranks
        if isinstance(listed, list | tuple):
            yield (
                re.sub(r"\s", "_", _text(name))[:80],
                tuple(int(digits) for rank in listed if (digits := _text(rank)).isdigit() and len(digits) < 8),
            )


def _rank_of(name: str) -> int | None:
    found = re.search(r"(\d{1,6})(?:\.\w{1,6})?$", PurePath(name).name)
    return int(found.group(1)) if found else None


def _json(raw: bytes, name: str) -> _Plain:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} is not JSON: {error}") from error


_MARK = object()
_CONSTANTS: Mapping[str, _Plain] = {
    "NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": (), "MARK": _MARK,
}  # fmt: skip
_VALUES = frozenset(
    ["BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"]
)


def _unpickled(raw: bytes, name: str) -> _Plain:
    """The plain value of a pickle, or ValueError at the first operation that makes anything else."""
    stack: list[_Plain] = []
    memo: dict[int, _Plain] = {}
    try:
        for step, (code, argument, at) in enumerate(pickletools.genops(BytesIO(raw))):
            if step > _MOST_STEPS:
                raise ValueError(f"{name} holds more than {_MOST_STEPS} steps")
            if code.name == "STOP":
                return stack.pop()
            if not _carried_out(code.name, argument, stack, memo):
                raise ValueError(f"{name} holds `{code.name}` at byte {at}, which no flight recorder writes")
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} is damaged: {error}") from error
    raise ValueError(f"{name} ends before its value does")


def _carried_out(code: str, argument: object, stack: list[_Plain], memo: dict[int, _Plain]) -> bool:
    if code in _VALUES:
        stack.append(argument)
    elif code in ("BINGET", "LONG_BINGET") and isinstance(argument, int):
        stack.append(memo[argument])
    elif code in ("BINPUT", "LONG_BINPUT") and isinstance(argument, int):
        memo[argument] = stack[-1]
    elif code == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif code in _CONSTANTS:
        stack.append(_CONSTANTS[code])

    elif code == "EMPTY_DICT":
        stack.append({})
    elif code == "EMPTY_LIST":
        stack.append([])

    elif code in ("SETITEM", "APPEND"):
        _filled(stack, [stack.pop() for _ in range(2 if code == "SETITEM" else 1)][::-1])
    elif code in ("SETITEMS", "APPENDS"):
        _filled(stack, _since_mark(stack))
    elif code == "TUPLE":
        stack.append(tuple(_since_mark(stack)))
    elif code in ("TUPLE1", "TUPLE2", "TUPLE3"):
        count = int(code[-1])
        stack.append(tuple([stack.pop() for _ in range(count)][::-1]))
    else:
        return code in ("PROTO", "FRAME")
    return True


def _since_mark(stack: list[_Plain]) -> list[_Plain]:
    found = []
    while (value := stack.pop()) is not _MARK:
        found.append(value)
    return found[::-1]


def _filled(stack: list[_Plain], values: list[_Plain]) -> None:
    """Puts values into the dictionary or list on top; a key must be plain text or a number, or it is not plain data."""
    top = stack[-1]
    if isinstance(top, dict):
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str | int):
                raise TypeError("a key is neither text nor a number")
            top[key] = value
    elif isinstance(top, list):
        top.extend(values)
    else:
        raise TypeError("a value is put into what is no container")
