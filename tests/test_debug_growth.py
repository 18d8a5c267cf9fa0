"""What grows over a run of `envkit debug --memory` is never called clean: by jumps, by the clock, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from test_debug_memory import GIB, MIB, block, grows, holder, kinds, record, usage

from envkit.debug import growth, memory
from envkit.debug.memory_records import Process


def clock(values: list[int], resident: list[int] | None = None) -> list[list[float]]:
    """Bytes noted each half second."""
    return [[at / 2, value, (resident or [GIB] * len(values))[at]] for at, value in enumerate(values)]


RISES = [GIB + at * 8 * MIB for at in range(40)]
FLAT = [GIB + (at % 5) * 8 * MIB for at in range(40)]
FILLS = [GIB + min(at, 22) * 8 * MIB for at in range(40)]


@pytest.mark.parametrize(
    ("values", "gains"), [(RISES, True), (FLAT, False), (FILLS, False), (RISES[:8], False), (RISES[::-1], False)]
)
def test_a_rise_is_told_from_what_comes_and_goes_or_fills(values: list[int], gains: bool) -> None:
    ran = record(grows({4: 4, 8: 4, 16: 4}), raw={"clock": clock(values)})
    assert bool(growth.gained(ran)) is gains
    assert bool(memory.judge([ran], failed=False).open) is gains


def test_a_rise_that_no_look_explains_is_undecided_and_never_clean() -> None:
    judged = memory.judge([record(grows({4: 4, 8: 4, 16: 4}), raw={"clock": clock(RISES)})], failed=False)
    assert judged.findings == () and judged.open.startswith("the tensors on the GPU grew by ")
    series = [[step, value, 0] for step, value in enumerate(RISES)]
    assert memory.judge([record(grows({4: 4, 8: 4, 16: 4}), raw={"series": series})], failed=False).open


def test_what_grows_by_jumps_is_named_by_its_line_and_holder() -> None:
    sizes = grows({4: 4, 8: 8, 9: 8, 16: 12})
    raw_looks: list[dict[str, Any]] = [
        {"step": step, "snapshot": f"snapshot-7-{step}.pickle", "kept": {},
         "holders": [holder("phases", length)], **usage(allocated=sum(each["size"] for each in sizes[step]))}
        for step, length in {4: 4, 8: 8, 9: 8, 16: 12}.items()
    ]  # fmt: skip
    ran = record(sizes, raw={"clock": clock(RISES), "looks": raw_looks})
    assert growth.grown(ran) is None, "the last three looks see 8, 8 and 12"
    judged = memory.judge([ran], failed=False)
    assert kinds(judged) == ["leak-tensors"] and [each.line for each in judged.findings[0].places] == [41, 38]


def test_tensors_that_get_larger_and_not_more_are_no_finding() -> None:
    sizes = {step: [block(0, GIB, 12), block(GIB, step * 16 * MIB, 38)] for step in (4, 8, 9, 16)}
    sizes[9] = sizes[8]
    looks = [
        {"step": step, "snapshot": f"snapshot-7-{step}.pickle", "kept": {}, "holders": [],
         **usage(allocated=sum(each["size"] for each in blocks))}
        for step, blocks in sizes.items()
    ]  # fmt: skip
    judged = memory.judge([record(sizes, raw={"clock": clock(RISES), "looks": looks})], failed=False)
    assert judged.findings == () and judged.open != ""


def on_host(*held: int, path: str = "seen", more: int = 0, ram: int = 64 * GIB) -> Process:
    """A process without a GPU: so many bytes in a variable at the looks after the steps 8, 16 and 32."""
    looks = [
        {"step": step, "snapshot": "", "kept": {}, "host": GIB + held_ + more * at,
         "holders": [{**holder(path, step), "host": held_}]}
        for at, (step, held_) in enumerate(zip((8, 16, 32), held, strict=True))
    ]  # fmt: skip
    raw = {"pid": 7, "rank": "", "series": [[32, 0, 0]], "looks": looks, "ooms": [], "steps": ["loop", 32]}
    return memory.process({**raw, "ram": ram, "loop": ["/w/train.py", 30]}, {})


def test_a_list_that_grows_in_the_cpu_s_memory_is_named_with_its_line() -> None:
    judged = memory.judge([on_host(8 * MIB, 16 * MIB, 56 * MIB)], failed=False)
    (found,) = judged.findings
    assert found.kind == "leak-host" and found.places[0].line == 41
    assert found.said == (
        "`seen` in /w/train.py:41 keeps 32 tensors and arrays in the CPU's memory: 56.0 MiB, 2.0 MiB more each step"
    )
    assert judged.notes == ("a step is a round of the loop at /w/train.py:30",)


@pytest.mark.parametrize(
    "ran",
    [
        pytest.param(on_host(64 * MIB, 64 * MIB, 64 * MIB), id="nothing"),
        pytest.param(on_host(8 * MIB, 64 * MIB, 72 * MIB), id="a cache that fills"),
        pytest.param(on_host(MIB, 2 * MIB, 4 * MIB, more=64 * MIB), id="something else"),
        pytest.param(on_host(MIB, 2 * MIB, 4 * MIB), id="little"),
    ],
)
def test_what_else_the_cpu_s_memory_does_is_no_finding_and_without_a_gpu_not_clean(ran: Process) -> None:
    judged = memory.judge([ran], failed=False)
    assert judged.findings == () and "no process of the command used a GPU" in judged.open
    assert [table.title for table in judged.tables] == ["after step 32"]


def test_graphs_that_a_list_keeps_in_the_cpu_s_memory_are_named_by_their_nodes() -> None:
    looks = [
        {"step": step, "snapshot": "", "kept": {}, "host": GIB + step * 8 * MIB,
         "holders": [{**holder("outputs", step), "graphs": step, "nodes": 9 * step}, holder("plain", step)]}
        for step in (8, 16, 32)
    ]  # fmt: skip
    raw = {"pid": 7, "rank": "", "series": [[32, 0, 0]], "looks": looks, "ooms": [], "steps": ["loop", 32]}
    (found,) = memory.judge([memory.process(raw, {})], failed=False).findings
    assert found.kind == "leak-host" and found.said == (
        "`outputs` in /w/train.py:41 keeps the graph of 32 steps in the CPU's memory, of which the process has "
        "1.2 GiB, 8.0 MiB more each step"
    )
    assert ".detach()" in found.fix
    steady = {**looks[2], "holders": [{**holder("outputs", 32), "graphs": 32, "nodes": 9 * 16}]}
    assert memory.judge([memory.process({**raw, "looks": [*looks[:2], steady]}, {})], failed=False).findings == ()


def test_the_cpu_s_memory_that_grows_for_no_variable_is_undecided() -> None:
    resident = [GIB + at * 64 * MIB for at in range(40)]
    judged = memory.judge([record(grows({4: 4, 8: 4, 16: 4}), raw={"clock": clock(FLAT, resident)})], failed=False)
    assert judged.findings == () and judged.open.startswith("the CPU's memory grew by ")


def test_room_for_a_million_steps_more_is_a_note() -> None:
    judged = memory.judge([on_host(8 * MIB, 16 * MIB, 56 * MIB, ram=1 << 50)], failed=False)
    assert judged.findings == () and "`seen` in /w/train.py:41 keeps 32" in judged.notes[0]
