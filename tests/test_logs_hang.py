"""The hang table and flight-recorder files, made up here."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Sequence

import pytest
from fuzzed import examples
from hypothesis import given
from hypothesis import strategies as st

from envkit import facts
from envkit.logs import flight, hang
from envkit.logs.records import Event, Frame, Line, Role, Signature, Traceback
from envkit.logs.story import Story, tell
from envkit.logs.verdict import explain
from tests.logs import reading, story


def _timeout(rank: int, seq: int, enqueued: int, size: int = 64, guid: str = "0(default_pg)") -> str:
    lead = f"[rank{rank}]:[E318 06:30:51.00000000{rank} ProcessGroupNCCL.cpp:616]"
    return (
        f"{lead} [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, "
        f"NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for 600007 milliseconds before timing out.\n"
        f"{lead} [PG ID 0 PG GUID {guid} Rank {rank}] Exception (either an error or timeout) detected by watchdog at "
        f"work: {seq}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {seq - 1}.\n"
    )


def _entry(
    seq: int, op: str = "all_reduce", size: int = 8, state: str = "completed", line: int = 40
) -> dict[str, object]:
    return {
        "process_group": ("0", "default_pg"),
        "collective_seq_id": seq,
        "profiling_name": f"nccl:{op}",
        "input_sizes": [[size]],
        "output_sizes": [[size]],
        "state": state,
        "is_p2p": False,
        "frames": [
            {"name": "all_reduce", "filename": "/env/site-packages/torch/distributed/c10d.py", "line": 1},
            {"name": "step", "filename": "/w/train.py", "line": line},
        ],
    }


def _file(entries: Sequence[dict[str, object]], world: int = 2, rank: int | None = None) -> bytes:
    content: dict[str, object] = {
        "version": "2.4",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}},
        "entries": list(entries),
    }
    if rank is not None:
        content["rank"] = rank
    return pickle.dumps(content, protocol=2)


def _dumps(*files: bytes) -> list[flight.Dump]:
    return [flight.load(io.BytesIO(raw), f"/tmp/nccl_trace_rank_{rank}") for rank, raw in enumerate(files)]


def test_a_table_says_what_each_rank_had_done_and_who_is_silent() -> None:
    rows = hang.table(story("world size: 4\n" + _timeout(0, 610, 616) + _timeout(1, 610, 612) + _timeout(3, 610, 616)))
    told = {row.rank: (row.enqueued, row.completed, row.silent) for row in rows}
    assert told == {0: (616, 609, False), 1: (612, 609, False), 3: (616, 609, False), 2: (None, None, True)}
    assert "ALLREDUCE of 64 elements, work 610" in rows[1].operation
    assert not any(
        row.silent for row in hang.table(story("world size: 2\n" + _timeout(0, 610, 616) + _timeout(1, 610, 616)))
    )


def test_nothing_hung_makes_no_table() -> None:
    assert hang.table(story("world size: 4\nepoch 1 done\n")) == ()


def test_groups_are_not_compared_with_one_another() -> None:
    apart = _timeout(0, 10, 12, guid="1(tp)") + _timeout(1, 99, 99, guid="2(dp)")
    assert hang.differing(hang.first_waits(story(apart))) == ()
    together = _timeout(0, 10, 12) + _timeout(1, 10, 12, size=65)
    assert len(hang.differing(hang.first_waits(story(together)))) == 2


def test_later_time_outs_of_one_rank_queue_behind_its_first() -> None:
    found = hang.first_waits(story(_timeout(0, 12, 12) + _timeout(0, 10, 12) + _timeout(1, 10, 12)))
    assert {(wait.rank, wait.seq) for wait in found} == {(0, 10), (1, 10)}
    assert hang.differing(found) == ()


def test_a_file_is_known_by_its_first_bytes() -> None:
    assert flight.is_dump(_file([_entry(1)])[:4096])
    assert flight.is_dump(json.dumps({"entries": [], "version": "2.4"}).encode())
    assert not flight.is_dump(b'{"message": "entries"}')
    assert not flight.is_dump(pickle.dumps({"weights": 1}, protocol=2))
    assert not flight.is_dump(b"RuntimeError: entries")
    assert not flight.is_dump(b"")


def test_pickle_and_json_say_the_same() -> None:
    plain = {"entries": [_entry(1), _entry(2, state="started")], "pg_config": {"0": {"ranks": [0, 1]}}}
    for protocol in range(2, 6):
        one = flight.load(io.BytesIO(pickle.dumps(plain, protocol=protocol)), "trace_1")
        other = flight.load(io.BytesIO(json.dumps(plain).encode()), "trace_1")
        assert (one.rank, one.entries, one.members) == (1, other.entries, {"0": (0, 1)})
    assert one.entries[1].state == "started" and one.entries[1].frame == "/w/train.py:40 in step"
    assert flight.load(io.BytesIO(_file([], rank=5)), "trace_1").rank == 5


class _Program:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("a pickle was executed",))


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (pickle.dumps({"entries": [_Program()]}, protocol=2), "which no flight recorder writes"),
        (pickle.dumps({"entries": [_Program()]}, protocol=4), "which no flight recorder writes"),
        (b"\x80\x02cbuiltins\nprint\n(X\x07\x00\x00\x00entriestR.", "which no flight recorder writes"),
        (_file([_entry(1)])[:-20], "damaged|exhausted|expected"),
        (b"\x80\x02}(X\x07\x00\x00\x00entriesK\x01K\x02u.", "damaged|argument"),
        (b"\x80\x02h\x07.", "damaged"),
        (b"\x80\x02K\x01", "exhausted|ends before"),
        (pickle.dumps([1, 2], protocol=2), "is not a flight-recorder file"),
        (b'{"entries": [', "is not JSON"),
        (b"[" * 100, "opcode|holds|damaged"),
    ],
)
def test_a_file_that_is_no_plain_dump_is_refused_and_never_run(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        flight.load(io.BytesIO(raw), "trace_0")


def test_a_huge_number_of_a_memo_costs_no_memory() -> None:
    # the C unpickler makes an array as long as the number
    raw = b"\x80\x02}r\xff\xff\xff\xffX\x07\x00\x00\x00entries]s."
    assert flight.load(io.BytesIO(raw), "trace_0").entries == ()


def test_a_value_that_holds_itself_many_times_is_not_spelled_out() -> None:
    laughs: object = "x"
    for _ in range(60):
        laughs = [laughs] * 10
    row = {**_entry(1), "profiling_name": laughs, "process_group": laughs, "input_sizes": laughs, "frames": laughs}
    raw = pickle.dumps({"entries": [row, laughs], "pg_config": {"0": {"ranks": laughs}}}, protocol=2)
    (entry,) = flight.load(io.BytesIO(raw), "trace_0").entries
    assert (entry.operation, entry.group) == ("collective", "0")


def test_a_file_is_read_up_to_its_bound() -> None:
    endless = io.BytesIO(b"{" + b" " * (flight.LARGEST + 1))
    with pytest.raises(ValueError, match="larger than 64 MB"):
        flight.load(endless, "trace_0")


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 255))
@examples(100)
def test_a_damaged_file_is_read_or_refused(noise: bytes, at: int, byte: int) -> None:
    good = bytearray(_file([_entry(1), _entry(2)]))
    good[at % len(good)] = byte
    for raw in (bytes(good), b"\x80\x02" + noise, bytes(good[: at % len(good)]) + noise):
        try:
            flight.load(io.BytesIO(raw), "trace_0")
        except ValueError:
            continue


def test_ranks_in_step_have_no_difference() -> None:
    assert flight.compare(_dumps(_file([_entry(1), _entry(2)]), _file([_entry(1), _entry(2)]))) == ()


def test_the_first_other_size_is_found_with_its_frame() -> None:
    files = _file([_entry(1), _entry(2), _entry(3)], 3), _file([_entry(1), _entry(2, size=9, line=77), _entry(3)], 3)
    (found,) = flight.compare(_dumps(*files, _file([_entry(1), _entry(2), _entry(3)], 3)))
    assert (found.kind, found.seq, found.odd) == ("other-sizes", 2, (1,))
    assert "/w/train.py:77 in step" in found.told


def test_sizes_of_an_all_to_all_may_differ() -> None:
    one, other = (_file([_entry(1, "all_to_all", size)]) for size in (8, 9))
    assert flight.compare(_dumps(one, other)) == ()


def test_another_operation_and_a_rank_that_has_not_come_are_told_apart() -> None:
    (found,) = flight.compare(_dumps(_file([_entry(1), _entry(2)]), _file([_entry(1), _entry(2, "broadcast")])))
    assert (found.kind, found.seq) == ("other-operation", 2)
    (found,) = flight.compare(_dumps(_file([_entry(1), _entry(2, state="started")]), _file([_entry(1, line=12)])))
    assert (found.kind, found.seq, found.odd) == ("not-joined", 2, (1,))
    assert "/w/train.py:12 in step" in found.told


def test_a_forgotten_beginning_says_nothing() -> None:
    assert flight.compare(_dumps(_file([_entry(1), _entry(2), _entry(3)]), _file([_entry(2), _entry(3)]))) == ()


def test_what_all_joined_and_none_finished_is_not_the_programs() -> None:
    stuck = _file([_entry(1), _entry(2, state="started")])
    (found,) = flight.compare(_dumps(stuck, stuck))
    assert (found.kind, found.odd) == ("not-finished", (0, 1))
    answer = explain(tell([flight.reading(_dumps(stuck, stuck))]), facts.load())
    assert (answer.category, answer.cause) == ("nccl-timeout-hang", "network-fabric")


def test_files_and_logs_make_one_answer() -> None:
    dumps = _dumps(_file([_entry(1), _entry(2, state="started")]), _file([_entry(1, line=12)]))
    answer = explain(tell([reading(_timeout(0, 2, 2)), flight.reading(dumps)]), facts.load())
    assert (answer.category, answer.cause) == ("nccl-timeout-hang", "rank-desync")
    assert "rank 1" in answer.because and "/w/train.py:12" in answer.because
    rows = {row.rank: row for row in answer.ranks if row.group == "0"}
    assert (rows[0].enqueued, rows[0].completed, rows[1].enqueued) == (2, 1, 1)


# The table's rules, each on made-up events.


def _event(id: str, rank: int | None = None, **values: str) -> Event:
    line = Line("log", 1, "x", rank=rank)
    return Event(line, Signature(id, "", Role.ROOT, "x", "x", "here", "here"), Role.ROOT, values)


def _story(*events: Event, traces: Sequence[Traceback] = ()) -> Story:
    return Story(events, tuple(traces), ())


_WAIT, _STATE = "c10d-watchdog-timeout", "c10d-watchdog-state"


def test_of_one_wait_the_line_that_tells_the_sizes_counts() -> None:
    short = _event(_WAIT, 0, seq="5", op="ALLREDUCE")
    long = _event(_WAIT, 0, seq="5", op="ALLREDUCE", numel_in="8")
    assert [wait.numel_in for wait in hang.waits(_story(short, long))] == [8]
    assert [wait.numel_in for wait in hang.waits(_story(long, short))] == [8]
    bare = _event(_WAIT, 1)
    assert [wait.rank for wait in hang.waits(_story(bare, long))] == [0]
    assert [wait.rank for wait in hang.waits(_story(bare))] == [1]


def test_a_rank_waits_in_each_of_its_groups() -> None:
    states = [_event(_STATE, 0, seq=seq, guid=guid) for seq, guid in (("5", "1(tp)"), ("9", "2(dp)"))]
    found = hang.first_waits(_story(*states, _event(_WAIT, 0, seq="5"), _event(_WAIT, 0, seq="9")))
    assert [(wait.group, wait.seq) for wait in found] == [("1(tp)", 5), ("2(dp)", 9)]


def test_one_rank_does_not_differ_from_itself_and_what_is_not_said_differs_from_nothing() -> None:
    def differ(*waits: Event) -> int:
        return len(hang.differing(hang.waits(_story(*waits))))

    assert differ(_event(_WAIT, 0, seq="5"), _event(_WAIT, 0, seq="6")) == 0
    assert differ(_event(_WAIT, 0, seq="5"), _event(_WAIT, 1, seq="6")) == 2
    assert differ(_event(_WAIT, 0, seq="5", op="A"), _event(_WAIT, 1, seq="5")) == 0


def test_the_world_is_the_largest_that_is_said_and_believed() -> None:
    assert hang.world(_story(_event("x", world="2"), _event("x", world="8"))) == 8
    assert hang.world(_story(_event("x", world="99999999"))) is None
    assert (
        hang.silent(_story(_event(_WAIT, 0, seq="5"), _event("x", rank=None, world="x"), _event("x", 99999999))) == ()
    )


def test_who_is_named_and_reported_nothing_is_silent() -> None:
    waiting = _event(_WAIT, 0, seq="5")
    assert hang.silent(_story(waiting, _event("x", 3))) == (3,)
    assert hang.silent(_story(waiting, Event(Line("log", 2, "x"), waiting.signature, Role.ROOT, {"rank": "2"}))) == ()
    named = _event("x")
    assert hang.silent(_story(waiting, Event(named.line, named.signature, Role.ROOT, {"rank": "4"}))) == (4,)
    assert hang.silent(_story(waiting, Event(named.line, named.signature, Role.ROOT, {"rank": "88888"}))) == ()
    assert hang.silent(_story(waiting, _event(_STATE, 3), _event("x", 3))) == ()


def test_the_label_of_a_line_is_the_rank_in_the_job() -> None:
    labelled = Event(Line("log", 1, "x", rank=7), _event(_STATE).signature, Role.ROOT, {"rank": "1"})
    assert hang.rank_of(labelled) == 7


def test_states_of_one_rank_add_up() -> None:
    flight_state = _event("flight-state", 0, enqueued="9", completed="8", op="A", where="x.py:1 in f")
    (row,) = hang.table(_story(flight_state, _event("c10d-last-work", 0)))
    assert (row.enqueued, row.completed, row.operation, row.where) == (9, 8, "A", "x.py:1 in f")
    (row,) = hang.table(_story(_event("flight-state", completed="1"), flight_state))  # nobody knows whose the first is
    assert (row.rank, row.completed) == (0, 8)
    (row,) = hang.table(_story(flight_state, _event("flight-state", 0, op="B", where="y.py:2 in g")))
    assert (row.operation, row.where) == ("A", "x.py:1 in f")


def test_rows_stand_by_group_and_rank_with_where_each_rank_was() -> None:
    frames = (Frame("/w/train.py", 7, "step"), Frame("/env/site-packages/torch/x.py", 1, "wait"))
    traces = [
        Traceback(Line("log", 1, "x", rank=rank), Line("log", 9, "x", rank=rank), frames, "E", "") for rank in (0, 2)
    ]
    rows = hang.table(_story(_event(_STATE, 1), _event(_STATE, 0), _event("x", 2), traces=traces))
    assert [(row.rank, row.where, row.silent) for row in rows] == [
        (0, "/w/train.py:7 in step", False),
        (1, "", False),
        (2, "/w/train.py:7 in step", True),
    ]
