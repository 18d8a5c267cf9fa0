"""`envkit debug --memory`: snapshots of torch's allocator are read safely, and each cause is told from its twin."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torches
from inline import Envkit
from jsonschema import Draft202012Validator

from envkit import debug
from envkit.debug import measured, measured_text, memory, snapshot
from envkit.debug.measures import Judged, Measured, size
from envkit.debug.records import Verdict

SCHEMA = json.loads(Path(debug.__file__).with_name("measured-1.schema.json").read_text())
GIB, MIB = 1 << 30, 1 << 20
TRAIN, LOSS = "/w/train.py", "/usr/lib/python3/dist-packages/torch/nn/functional.py"


def frames(line: int) -> list[dict[str, Any]]:
    """The stack of an allocation at a line of the program, inside torch, the innermost first as torch has it."""
    return [
        {"filename": LOSS, "line": 9, "name": "relu"},
        {"filename": TRAIN, "line": line, "name": "step"},
        {"filename": TRAIN, "line": 90, "name": "<module>"},
    ]


def block(address: int, bytes_: int, line: int, state: str = "active_allocated") -> dict[str, Any]:
    return {
        "address": address, "size": bytes_, "requested_size": bytes_, "state": state,
        "frames": frames(line) if line else [],
    }  # fmt: skip


def shot(blocks: Sequence[dict[str, Any]], trace: Sequence[dict[str, Any]] = (), **more: Any) -> dict[str, Any]:
    """A snapshot of one segment, as torch.cuda.memory._snapshot has it."""
    whole = sum(each["size"] for each in blocks)
    segment = {
        "device": 0, "address": 0, "total_size": whole, "allocated_size": whole, "active_size": whole, "stream": 0,
        "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "blocks": list(blocks), **more,
    }  # fmt: skip
    return {"segments": [segment], "device_traces": [list(trace)], "allocator_settings": {}}


def usage(**more: Any) -> dict[str, Any]:
    named = {
        "device": 0,
        "allocated": 0,
        "reserved": 0,
        "allocated_peak": 0,
        "reserved_peak": 0,
        "retries": 0,
        "ooms": 0,
    }
    return {**named, "free": 70 * GIB, "total": 80 * GIB, "frameworks": [], "processes": None, **more}


def holder(path: str, length: int, **more: Any) -> dict[str, Any]:
    named = {"path": path, "file": TRAIN, "length": length, "tensors": length, "bytes": 0, "graphs": 0, "nodes": 0}
    return {**named, "lines": [[41, f"{path}.append(score)"]], **more}


def record(
    sizes: Mapping[int, Sequence[dict[str, Any]]],
    holders: Mapping[int, list[dict[str, Any]]] | None = None,
    **more: Any,
) -> memory.Process:
    """A process with a look after each of some steps."""
    looks = [
        {"step": step, "snapshot": f"snapshot-7-{step}.pickle", "holders": (holders or {}).get(step, []), "kept": {},
         **usage(**more.get("usage", {}))}
        for step in sizes
    ]  # fmt: skip
    shots = {f"snapshot-7-{step}.pickle": shot(blocks) for step, blocks in sizes.items()}
    series = [[step, sum(each["size"] for each in blocks), 0] for step, blocks in sizes.items()]
    raw = {"pid": 7, "rank": "", "series": series, "looks": looks, "ooms": [], "steps": ["optimizer", max(sizes)]}
    for oom in more.get("ooms", ()):
        name = f"oom-7-{len(raw['ooms'])}.pickle"
        shots[name] = oom.pop("shot")
        frames_ = [[TRAIN, 90, "<module>"], [TRAIN, 30, "step"]]
        raw["ooms"].append({"device": 0, "total": 80 * GIB, "frames": frames_, "backward": False, "snapshot": name,
                            "holders": [], **oom})  # fmt: skip
    raw.update(more.get("raw", {}))
    return memory.process(raw, shots)


def grows(count: Mapping[int, int], line: int = 38, bytes_: int = 16 * MIB) -> dict[int, list[dict[str, Any]]]:
    """Beside the parameters, so many tensors of a line after each step."""
    base = block(0, GIB, 12)
    return {step: [base, *(block(n * GIB, bytes_, line) for n in range(1, n_ + 1))] for step, n_ in count.items()}


STEPS = {4: 4, 8: 8, 16: 16}


def kinds(judged: Judged) -> list[str]:
    return [each.kind for each in judged.findings]


def test_a_list_that_keeps_graphs_is_named_with_its_line_steps_and_bytes() -> None:
    holders = {step: [holder("history", n, graphs=n, nodes=9 * n)] for step, n in STEPS.items()}
    judged = memory.judge([record(grows(STEPS), holders)], failed=False)
    (found,) = judged.findings
    assert found.kind == "leak-graph"
    assert found.said.startswith(
        "`history` in /w/train.py:41 keeps the graph of 16 steps: 256 MiB, allocated at /w/train.py:38, 16.0 MiB more"
    )
    assert [each.line for each in found.places] == [41, 38] and ".detach()" in found.fix


def test_a_list_of_tensors_is_named_and_told_from_a_graph() -> None:
    holders = {
        step: [holder("self.seen", n, bytes=16 * MIB * n), holder("self", 1, tensors=n)] for step, n in STEPS.items()
    }
    (found,) = memory.judge([record(grows(STEPS), holders)], failed=False).findings
    assert found.kind == "leak-tensors" and "`self.seen` in /w/train.py:41 keeps 16 tensors: 256 MiB" in found.said


def test_lines_that_hold_as_much_are_named_together_and_a_small_one_is_not() -> None:
    """As on an H200 in `callbacks` of served_programs.py: each callback keeps a batch and what came of it."""
    holders = {step: [holder("seen", n, bytes=32 * MIB * n)] for step, n in STEPS.items()}
    small = {at: [{**each, "address": each["address"] + 1} for each in blocks[1:]]
             for at, blocks in grows(STEPS, 40, 2 * MIB).items()}  # fmt: skip
    alike = {at: [{**each, "address": each["address"] + 2} for each in blocks[1:]]
             for at, blocks in grows(STEPS, 39, 12 * MIB).items()}  # fmt: skip
    sizes = {at: [*blocks, *small[at], *alike[at]] for at, blocks in grows(STEPS).items()}
    (found,) = memory.judge([record(sizes, holders)], failed=False).findings
    assert found.kind == "leak-tensors" and [each.line for each in found.places] == [41, 38, 39]
    assert "allocated at /w/train.py:38 and /w/train.py:39, 30.0 MiB more" in found.said


def test_a_running_sum_keeps_the_graph_of_all_steps() -> None:
    holders = {step: [holder("running", 1, graphs=1, nodes=5 * step)] for step in STEPS}
    (found,) = memory.judge([record(grows(STEPS), holders)], failed=False).findings
    assert found.kind == "leak-graph" and "keeps the graph of 16 steps" in found.said


def test_a_growth_without_a_holder_names_the_line_and_says_so() -> None:
    (found,) = memory.judge([record(grows(STEPS))], failed=False).findings
    assert found.kind == "leak" and "allocated at /w/train.py:38 stays: 256 MiB after 16 steps" in found.said
    assert "no variable of the program that envkit can see keeps it" in found.said


@pytest.mark.parametrize(
    "count",
    [
        pytest.param({4: 10, 8: 10, 16: 10}, id="nothing"),
        pytest.param({4: 4, 8: 8, 16: 10}, id="a cache that fills"),
        pytest.param({4: 0, 8: 24, 16: 24}, id="the state of an optimizer"),
        pytest.param({4: 9, 8: 3, 16: 12}, id="batches of other lengths"),
    ],
)
def test_what_does_not_grow_for_good_is_not_called_a_leak(count: dict[int, int]) -> None:
    judged = memory.judge([record(grows(count))], failed=False)
    assert judged == Judged((), judged.tables, (), "")


def test_what_only_moves_from_line_to_line_is_no_leak() -> None:
    moves = {4: grows({4: 16}, 30)[4], 8: grows({8: 8}, 30)[8] + grows({8: 8})[8][1:], 16: grows({16: 16})[16]}
    assert memory.judge([record(moves)], failed=False).findings == ()


def test_a_growth_that_lasts_a_million_steps_is_a_note() -> None:
    judged = memory.judge([record(grows(STEPS, bytes_=512))], failed=False)
    assert judged.findings == () and "grows by 512 bytes a step" in judged.notes[0]


def test_without_three_looks_nothing_is_called_clean() -> None:
    judged = memory.judge([record(grows({4: 1, 8: 1}))], failed=False)
    assert "too few steps were seen" in judged.open
    assert "no process of the command used a GPU" in memory.judge([], failed=False).open


def oom(shot_: dict[str, Any] | None = None, *, asked: int = 4 * GIB, free: int = GIB, **more: Any) -> dict[str, Any]:
    return {
        "asked": asked,
        "free": free,
        "shot": shot_ or shot([block(0, GIB, 12)]),
        "usage": {**usage(free=free, reserved=80 * GIB - free), **more},
    }


FLAT = grows({4: 2, 8: 2, 16: 2})


def failed(*ooms: dict[str, Any], raw: dict[str, Any] | None = None) -> memory.Process:
    return record(FLAT, ooms=ooms, raw=raw or {})


def test_an_out_of_memory_of_one_step_names_the_line_that_holds_most() -> None:
    there = shot([block(n * GIB, 3 * GIB, 31) for n in range(20)] + [block(99 * GIB, GIB, 12)])
    (found,) = memory.judge([failed(oom(there))], failed=True).findings
    assert found.kind == "step-too-large"
    assert "/w/train.py:30 in step asks for 4.0 GiB where 1.0 GiB of 80.0 GiB are free" in found.said
    assert "most is of /w/train.py:31: 60.0 GiB in 20 tensors" in found.said


def test_an_out_of_memory_that_the_program_caught_is_a_note() -> None:
    judged = memory.judge([failed(oom())], failed=False)
    assert judged.findings == () and "an allocation of 4.0 GiB failed at /w/train.py:30" in judged.notes[0]


def test_a_tensor_larger_than_the_gpu_is_told_as_that() -> None:
    assert kinds(memory.judge([failed(oom(asked=99 * GIB))], failed=True)) == ["tensor-too-large"]


def test_another_process_is_named_with_what_it_holds() -> None:
    rows = [{"pid": 7, "bytes": 8 * GIB, "name": "python"}, {"pid": 9, "bytes": 60 * GIB, "name": "serve"}]
    (found,) = memory.judge([failed(oom(processes=rows, reserved=8 * GIB))], failed=True).findings
    assert found.kind == "other-processes" and "9 (serve): 60.0 GiB" in found.said


def test_another_rank_of_the_command_is_not_another_process() -> None:
    rows = [{"pid": 7, "bytes": 8 * GIB, "name": "python"}, {"pid": 8, "bytes": 60 * GIB, "name": "python"}]
    mate = record(FLAT, raw={"pid": 8})
    judged = memory.judge([failed(oom(processes=rows, reserved=8 * GIB)), mate], failed=True)
    assert "other-processes" not in kinds(judged)


def test_unused_memory_in_pieces_is_fragmentation_and_in_one_piece_is_not() -> None:
    pieces = [block(n * GIB, 512 * MIB, 0, "inactive") for n in range(20)] + [block(99 * GIB, GIB, 12)]
    (found,) = memory.judge([failed(oom(shot(pieces)))], failed=True).findings
    assert (
        found.kind == "fragmentation"
        and "10.0 GiB reserved and unused, but in 20 pieces of at most 512 MiB" in found.said
    )
    one = [block(GIB, 10 * GIB, 0, "inactive"), block(99 * GIB, GIB, 12)]
    assert kinds(memory.judge([failed(oom(shot(one)))], failed=True)) == ["step-too-large"]
    private = memory.judge([failed(oom(shot(pieces, segment_pool_id=(0, 1))))], failed=True)
    assert kinds(private) == ["step-too-large"], "the memory of a CUDA graph is for nobody else"


def test_another_framework_in_the_process_is_named() -> None:
    rows = [{"pid": 7, "bytes": 70 * GIB, "name": "python"}]
    said = failed(oom(processes=rows, reserved=8 * GIB, frameworks=["jax"]))
    (found,) = memory.judge([said], failed=True).findings
    assert found.kind == "other-frameworks" and "62.0 GiB are held in this process outside torch (jax)" in found.said


def test_a_fraction_that_was_set_is_named_with_its_line() -> None:
    raw = {"fraction": {"value": 0.1, "place": [TRAIN, 5]}}
    (found,) = memory.judge([failed(oom(free=60 * GIB), raw=raw)], failed=True).findings
    assert found.kind == "fraction" and "10% of it: set_per_process_memory_fraction at /w/train.py:5" in found.said


def test_an_allocator_that_flushed_its_cache_is_told() -> None:
    raw = {"end": usage(retries=3)}
    assert kinds(memory.judge([record(FLAT, raw=raw)], failed=False)) == ["fragmentation"]


def test_the_peak_is_found_by_undoing_the_history() -> None:
    trace = [
        {"action": "alloc", "addr": 5, "size": 7 * MIB, "frames": frames(50)},
        {"action": "alloc", "addr": 6, "size": 2 * MIB, "frames": frames(51)},
        {"action": "free_requested", "addr": 5, "size": 7 * MIB, "frames": []},
        {"action": "free_completed", "addr": 5, "size": 7 * MIB, "frames": []},
        {"action": "segment_free", "addr": 1, "size": MIB, "frames": []},
    ]
    read = snapshot.read(shot([block(6, 2 * MIB, 51), block(7, MIB, 12)], trace), 0)
    assert [(frame.line, bytes_) for frame, bytes_, _ in snapshot.by_line(read.peak)] == [
        (50, 7 * MIB),
        (51, 2 * MIB),
        (12, MIB),
    ]
    assert read.allocated == 3 * MIB and snapshot.read(shot([block(6, MIB, 1)]), 1).live == ()


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/envkit-was-here",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"segments": [Evil()]}),
        pickle.dumps({"segments": Path("x")}),
        pickle.dumps([1, 2]),
        pickle.dumps(shot([]))[:-9],
        b"cos\nsystem\n(S'true'\ntR.",
        b"",
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
    ],
    ids=["command", "class", "list", "cut", "global", "empty", "huge"],
)
def test_a_pickle_that_is_no_snapshot_runs_nothing(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"it is no snapshot|it asks"):
        snapshot.unpickled(data)
    assert not Path("/tmp/envkit-was-here").exists()


@pytest.mark.parametrize(
    "broken", [{"segments": [{}]}, {"segments": [{"device": 0, "blocks": 3}]}, {"segments": [None]}]
)
def test_a_snapshot_of_another_shape_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="it is no snapshot"):
        snapshot.read(broken, 0)


def test_a_record_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="it is no record"):
        memory.process({"pid": 1}, {})


def made(judged: Judged, verdict: Verdict = Verdict.FOUND) -> Measured:
    first = judged.findings[0] if judged.findings else None
    return Measured(
        "memory", ("python", "train.py", "--token", "x"), "", verdict, first.said if first else "",
        first.fix if first else "", judged, 0, "exited", "/w/envkit-debug-1", 3.0, ("memory/output.txt",),
    )  # fmt: skip


def test_the_report_has_the_promised_shape_and_is_the_same_as_text_and_page() -> None:
    holders = {step: [holder("history", n, graphs=n, nodes=9 * n)] for step, n in STEPS.items()}
    report = made(memory.judge([record(grows(STEPS), holders)], failed=False))
    Draft202012Validator(SCHEMA).validate(json.loads(measured_text.document(report)))
    for said in (measured_text.text(report), measured_text.page(report)):
        assert "keeps the graph of 16 steps" in said and "/w/train.py:38" in said
    assert "<script" not in measured_text.page(report) and "after step" not in measured_text.text(report, quiet=True)
    assert measured_text.text(made(Judged(), Verdict.CLEAN)).startswith("CLEAN: nothing grows from step to step")


def test_without_torch_on_a_gpu_nothing_is_called_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("debug", "--memory", "--out", str(tmp_path / "out"))
    with Envkit(capsys) as envkit:
        ended = envkit.split(words, (sys.executable, "-c", "pass"))
    code, out, err = ended.code, ended.out, ended.err
    assert code == 3 and "no process of the command used a GPU through torch's allocator" in out, err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--memory", "--slow", "--", "true"), "cannot be used together"),
        (("--memory", "--ranks", "--", "true"), "have no stages"),
        (("--slow", "--only", "memcheck", "--", "true"), "have no stages"),
        (("--slow", "--precision", "m:f"), "have no stages"),
        (("--slow",), "there is no command"),
        (("--slow", "--", "no-such-program-here"), "there is no program"),
    ],
)
def test_what_does_not_go_together_is_bad_usage(
    words: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with Envkit(capsys) as envkit:
        at = words.index("--") if "--" in words else len(words)
        ended = envkit.split(("debug", *words[:at]), words[at + 1 :] or None)
    assert ended.code == 2 and ended.out == "" and said in ended.err
    assert list(tmp_path.iterdir()) == []


def test_bytes_are_said_in_binary_units() -> None:
    assert [size(each) for each in (0, 1023, 2048, 5.9 * GIB, 120 * GIB)] == [
        "0 bytes",
        "1023 bytes",
        "2.0 KiB",
        "5.9 GiB",
        "120 GiB",
    ]


WALKED = textwrap.dedent(
    """\
    import json, sys
    sys.path.insert(0, sys.argv[1])
    import torch, envkit_holders

    class Replay:
        def __init__(self):
            self.seen = []
            self.last = None
        def add(self, batch):
            self.seen.append(batch)

    replay, plain, history, running = Replay(), [1, 2], [], torch.zeros(())
    weight = torch.ones(3, requires_grad=True)
    def step():
        global running
        batch = torch.ones(3)
        replay.add(batch)
        history.append((weight * batch).sum())
        running = running + (weight * batch).sum()
        local = {"kept": [batch, batch]}
        return envkit_holders.holders(sys._getframe())
    for _ in range(4):
        said = step()
    print(json.dumps(said))
    """
)


@torches.needs_torch
@pytest.mark.slow  # importing torch takes seconds
def test_holders_are_found_by_name_line_and_graph(tmp_path: Path) -> None:
    import subprocess

    program = tmp_path / "train.py"
    program.write_text(WALKED)
    words = [torches.PYTHON, str(program), str(measured.job.COMPANION)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    rows = {each["path"]: each for each in json.loads(done.stdout)["holders"]}
    assert rows["history"]["graphs"] == rows["history"]["length"] == 4
    assert rows["history"]["lines"] == [[18, "history.append((weight * batch).sum())"]]
    assert rows["running"]["nodes"] > 4 and rows["running"]["lines"][0][0] == 19
    assert (rows["replay.seen"]["tensors"], rows["replay.seen"]["graphs"]) == (4, 0)
    assert rows["replay.seen"]["lines"] == [[10, "self.seen.append(batch)"]]
    assert rows["local['kept']"]["tensors"] == 2 and "plain" not in rows


def test_the_reader_takes_what_torch_pickles() -> None:
    kept = io.BytesIO()
    pickle.dump(shot([block(1, MIB, 3)]), kept, protocol=4)
    assert snapshot.read(snapshot.unpickled(kept.getvalue()), 0).allocated == MIB
