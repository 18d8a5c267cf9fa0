"""Parts of the companion in this process: the supervisor's books, and what is noted of a torch that is made up here."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import pickle
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clocks import comes

from envkit.debug import job
from envkit.payload.companion import envkit_launches, envkit_ranks, envkit_supervisor
from envkit.payload.companion.envkit_supervisor import Output, Supervisor

# -- the supervisor


def supervisor(folder: Path, *argv: str, **more: Any) -> Supervisor:
    return Supervisor({"folder": str(folder), "argv": list(argv), "budget_s": 20.0, **more})


def test_of_a_flood_the_first_and_the_last_half_are_kept_and_the_gap_is_counted(tmp_path: Path) -> None:
    kept = Output(str(tmp_path / "out"), 4096)
    said = b"".join(b"%07d\n" % number for number in range(40_000))
    for at in range(0, len(said), 1000):
        kept.take(said[at : at + 1000])
    kept.deaf = True
    kept.take(b"what the supervisor ends says nothing of the cause")
    kept.end()
    head, gap, tail = (tmp_path / "out").read_bytes().partition(b"\n[envkit left out ")
    number, _, tail = tail.partition(b" bytes of output here]\n")
    assert head == said[:2048] and gap and said.endswith(tail) and len(tail) >= 2048
    assert int(number) == kept.lost == len(said) - len(head) - len(tail)
    assert kept.bytes == len(said)


def test_what_fits_is_kept_whole(tmp_path: Path) -> None:
    kept = Output(str(tmp_path / "out"), 4096)
    for at in range(2500):
        kept.take(b"%d" % (at % 10))
    assert len(kept.tail) == 1  # bytes one by one share a piece
    kept.end()
    assert (tmp_path / "out").read_bytes() == (b"0123456789" * 250) and kept.lost == 0


def test_a_program_whose_interpreter_is_gone_is_not_started_and_why_is_told(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/nowhere/python\n")
    program.chmod(0o755)
    open_before = set(os.listdir("/proc/self/fd"))
    said = supervisor(tmp_path, str(program)).run()
    assert said == {
        "ended": "not-started", "error": f"No such file or directory: {program}", "exit": None, "seconds": 0.0,
    }  # fmt: skip
    assert set(os.listdir("/proc/self/fd")) == open_before


def test_processes_below_one_are_found_to_any_depth_and_the_dead_are_left_out() -> None:
    script = "sleep 60 & (sleep 60 & echo; wait) & true & exec python3 -c 'import sys, time; time.sleep(60)'"
    child = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout is not None and child.stdout.readline() == b"\n"

        def seen() -> list[str]:
            found = envkit_supervisor.below(child.pid)
            return sorted(envkit_supervisor._text(f"/proc/{pid}/comm").strip() for pid in found)  # it may be gone

        assert comes(lambda: seen() == ["sh", "sleep", "sleep"])  # `true` is a zombie that nobody waits for
        found = envkit_supervisor.below(os.getpid())
        assert found[child.pid].parent == os.getpid() and os.getpid() not in found
    finally:
        os.killpg(child.pid, 9)
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def test_how_busy_a_command_was_is_told_of_the_last_seconds(tmp_path: Path) -> None:
    one, hertz = supervisor(tmp_path, "true"), os.sysconf("SC_CLK_TCK")
    one.looked = 100.0
    assert one.busy() == 0.0
    one.ticks = [(50.0, 0.0), (92.0, 10.0 * hertz), (96.0, 14.0 * hertz), (100.0, 22.0 * hertz)]
    assert one.busy() == 1.5  # what was before the last ten seconds does not count
    one.ticks = [(99.0, 9.0), (100.0, 3.0)]  # who ended took his time along
    assert one.busy() == 0.0
    one.ticks = [(100.0, 3.0), (100.0, 4.0)]
    assert one.busy() == 0.0


def test_only_a_process_with_a_handler_and_a_file_of_the_companion_is_asked_for_its_stacks(tmp_path: Path) -> None:
    one = supervisor(tmp_path, "true")
    number = envkit_supervisor.SIGNAL
    catching = f"import signal, sys, time; signal.signal({number}, print); print(flush=True); sys.stdin.read()"
    plain = "import sys; print(flush=True); sys.stdin.read()"
    for code, caught in ((catching, True), (plain, False)):
        with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1) as child:
            assert child.stdout is not None and child.stdout.readline() == b"\n"
            assert not one.catches(child.pid)
            Path(one.dump(child.pid)).write_text("")
            assert one.catches(child.pid) is caught
            child.communicate(b"")
    assert not one.catches(child.pid)  # it is gone


def test_files_of_processes_that_had_nothing_to_say_are_taken_away(tmp_path: Path) -> None:
    for name, text in (("python-1.txt", ""), ("python-2.txt", "stack"), ("python-3.txt", ""), ("events.jsonl", "")):
        (tmp_path / name).write_text(text)
    supervisor(tmp_path, "true").prune()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl", "output.txt", "python-2.txt"]


def test_native_stacks_are_read_of_processes_that_use_cuda_first_and_of_few(tmp_path: Path) -> None:
    tools = {}
    for name in ("py-spy", "gdb"):
        (tmp_path / name).write_text(f'#!/bin/sh\nfor last; do :; done; echo "{name} $last"\n')
        (tmp_path / name).chmod(0o755)
        tools[name] = str(tmp_path / name)
    most = envkit_supervisor._NATIVE
    every = {str(pid): {"cuda": pid == most + 3, "python": "known" * (pid == 1)} for pid in range(1, most + 4)}
    one = supervisor(tmp_path, "true", tools=tools)
    one.native(every)
    read = {pid: each["native"] for pid, each in every.items() if "native" in each}
    assert list(read) == [*map(str, range(1, most)), str(most + 3)]
    assert read["1"] == "gdb 1\n" and read["2"] == "py-spy 2\ngdb 2\n"
    assert one.ask([str(tmp_path / "none")]) == f"{tmp_path}/none: No such file or directory\n"
    assert supervisor(tmp_path, "true").native({"1": {"cuda": False, "python": ""}}) is None


def test_tools_are_found_on_path_then_in_toolkits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bin/zzcuda-gdb", "compute-sanitizer/zzsanitizer", "own/zzboth", "bin/zzboth"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/own:{os.environ['PATH']}")
    assert envkit_supervisor.find(["zzcuda-gdb", "zzsanitizer", "zzboth", "zznone"], ["sh"]) == {
        "zzcuda-gdb": f"{tmp_path}/bin/zzcuda-gdb",
        "zzsanitizer": f"{tmp_path}/compute-sanitizer/zzsanitizer",
        "zzboth": f"{tmp_path}/own/zzboth",
        "zznone": "",
    }
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    assert envkit_supervisor.find(["zzcuda-gdb"], [])["zzcuda-gdb"] == f"{tmp_path}/bin/zzcuda-gdb"


@pytest.mark.parametrize(
    ("does", "used", "waited", "hung"),
    [
        ("steps", 0.0, 0.0, False),  # a rank has stepped since
        ("waits", 0.0, 0.0, True),
        ("moves", 0.0, 0.0, False),  # another stack: slow, and given longer
        ("reads", 0.0, 0.0, False),  # the same one, and the disk is slow
        ("waits", 5.0, 0.0, False),  # the same one, and it computes
        ("waits", 0.0, 5.0, False),  # it would compute, and others have the processors
        ("waits", 0.0, 0.2, True),  # it wakes now and then, and waits for its turn
    ],
)
def test_ranks_stand_still_where_none_steps_or_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, used: float, waited: float, hung: bool
) -> None:
    clock, hertz = itertools.count(1000.0, 1.0), os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(envkit_supervisor, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    one = supervisor(tmp_path, "true", hang_ends=True)
    one.output.spoke, file, calls = 1000.0, tmp_path / "ranks-host-7.jsonl", itertools.count()
    file.write_text("x")
    assert one.stand_still(20.0) is False

    def sampled(native: bool) -> None:
        number = next(calls)
        stack = f'Current thread 0x1:\n  File "a.py", line {number if does == "moves" else 1} in f\n'
        known = {"cuda": False, "rank": "0", "world": "1", "parent": 1, "doing": ""}
        spent = {"ticks": used * number * hertz, "waited": waited * number * hertz}
        picture = {"python": stack, "state": "D" if does == "reads" else "S", **spent, **known}
        one.samples.append({"after_s": one.listed, "processes": {"7": picture}})

    monkeypatch.setattr(one, "sample", sampled)
    monkeypatch.setattr(one, "cuda", set())
    found = []
    for number in range(40):
        if does == "steps":
            file.write_text("x" * (number + 2))
        found.append(one.stand_still(20.0))
    assert any(found) is hung


# -- ranks


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a rank of two writes into."""
    here = envkit_ranks._Here
    path = tmp_path / "ranks-one-1.jsonl"
    fresh = {"folder": str(tmp_path), "name": "one-1", "written": 0, "calls": 0, "gradients": 0, "failures": 0}
    for name, value in {**fresh, "counts": {}, "told": {}, "modules": [], "pid": os.getpid(), "torch": "/t/"}.items():
        monkeypatch.setattr(here, name, value)
    monkeypatch.setattr(here, "file", os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Parameter:
    """A parameter that can be given its gradient."""

    def __init__(self, requires_grad: bool = True) -> None:
        self.requires_grad = requires_grad
        self.hooks: list[Any] = []

    def register_post_accumulate_grad_hook(self, hook: Any) -> None:
        self.hooks.append(hook)

    def gave(self) -> None:
        for hook in self.hooks:
            hook(self)


class Wrapped:
    """A model under DDP, as far as it is asked."""

    find_unused_parameters = False
    static_graph = True
    require_backward_grad_sync = True
    parameters_to_ignore = ("other",)

    def __init__(self, **named: Parameter) -> None:
        self.module = SimpleNamespace(named_parameters=lambda: list(named.items()))


def test_which_parameters_have_no_gradient_is_told_of_the_backward_that_runs(rank: Path) -> None:
    named = {"a": Parameter(), "b": Parameter(), "frozen": Parameter(False), "other": Parameter()}
    wrapped = Wrapped(**named)
    envkit_ranks._met(wrapped)
    (model,) = envkit_ranks._Here.modules
    named["a"].gave()
    assert (model.backwards, model.left, model.said()["missing"]) == (1, 1, [["b", True]])
    named["b"].gave()  # the first one is whole, and is written down
    named["a"].gave()  # and another begins
    assert (model.backwards, model.left, model.said()["missing_count"]) == (2, 1, 1)
    named["a"].requires_grad = False
    model.tell()
    model.tell()  # twice the same is written once
    assert not named["frozen"].hooks and not named["other"].hooks and envkit_ranks._Here.gradients == 3
    first, whole, half = rows(rank)
    assert first == {
        "e": "model", "m": 0, "kind": "SimpleNamespace", "parameters": 2, "find_unused": False,
    }  # fmt: skip
    assert whole == {"e": "gradients", "m": 0, "backwards": 1, "missing_count": 0}
    assert (half["backwards"], half["missing"], half["frozen"]) == (2, [["b", True]], ["a"])
    assert (half["find_unused"], half["static_graph"], half["syncs"]) == (False, True, True)
    del wrapped
    assert model.said()["missing"] == [["b", None]]  # the model is gone


def test_what_is_sent_is_told_by_shape_elements_type_and_device() -> None:
    def tensor(*shape: int) -> Any:
        numel = 1
        for each in shape:
            numel *= each
        return SimpleNamespace(shape=shape, numel=lambda: numel, dtype="torch.float32", device="cuda:0")

    assert envkit_ranks._shape(tensor(2, 3)) == {
        "shape": [[2, 3]], "numel": 6, "dtype": "float32", "device": "cuda:0",
    }  # fmt: skip
    many = envkit_ranks._shape([tensor(each) for each in range(1, 7)])
    assert many["shape"] == [[1], [2], [3], [4]] and many["numel"] == 21
    assert envkit_ranks._shape([]) == envkit_ranks._shape("text") == {}
    assert len(envkit_ranks._shape(tensor(*[1] * 12))["shape"][0]) == 8


class Groups:
    """torch.distributed.distributed_c10d as far as it is asked; two groups of three ranks, of which this is rank 1."""

    class GroupMember:
        WORLD = None
        NON_GROUP_MEMBER = object()

    def __init__(self) -> None:
        self.default, self.pair = object(), object()
        self._world = SimpleNamespace(
            pg_names={self.default: "0", self.pair: "pair"}, pg_group_ranks={self.pair: {2: 1, 1: 0}}
        )

    def _get_default_group(self) -> object:
        return self.default

    def get_backend(self, group: object) -> str:
        return "gloo" if group is self.pair else "cuda:nccl"

    def get_world_size(self) -> int:
        return 3

    def get_rank(self) -> int:
        return 1


def test_each_collective_is_told_with_its_group_number_and_end(rank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups()
    monkeypatch.setattr(envkit_ranks._Here, "c10d", groups)
    monkeypatch.setattr(envkit_ranks._Here, "nccl", False)

    def all_reduce(tensor: Any, op: Any = "ReduceOp.SUM", group: Any = None, async_op: bool = False) -> str:
        return "work"

    def broadcast(tensor: Any, src: int, group: Any = None) -> None:
        outer(tensor)
        raise RuntimeError("gone")

    def send(tensor: Any, dst: int, group: Any = None) -> None:
        pass

    outer = envkit_ranks._watched("all_reduce", all_reduce)
    cast = envkit_ranks._watched("broadcast", broadcast)
    tensor = SimpleNamespace(shape=(2,), numel=lambda: 2, dtype="torch.int64", device="cpu")
    assert outer(tensor, op="ReduceOp.MAX", async_op=True) == "work"
    with pytest.raises(RuntimeError, match="gone"):
        cast(tensor, 0, group=groups.pair)  # what it calls itself is no call of the program's
    envkit_ranks._watched("send", send)(tensor, dst=2)
    assert outer(tensor, group=groups.GroupMember.NON_GROUP_MEMBER) == "work"  # of which this rank is none
    outer(tensor)
    told = rows(rank)
    assert [row for row in told if row["e"] == "group"] == [
        {"e": "group", "g": "0", "ranks": [0, 1, 2], "backend": "cuda:nccl", "default": True},
        {"e": "group", "g": "pair", "ranks": [1, 2], "backend": "gloo", "default": False},
    ]
    entered = [row for row in told if row["e"] == "in"]
    assert [(row["op"], row["g"], row.get("s"), row["n"]) for row in entered] == [
        ("all_reduce", "0", 1, 1), ("broadcast", "pair", 1, 3), ("send", "0", None, 5), ("all_reduce", "0", 2, 7),
    ]  # fmt: skip
    assert [(row.get("by"), row.get("async"), row.get("peers")) for row in entered] == [
        ("MAX", True, None), (None, None, {"src": 0}), (None, None, {"dst": 2}), (None, None, None),
    ]  # fmt: skip
    assert [(row["n"], row.get("error")) for row in told if row["e"] == "out"] == [
        (1, None), (3, "RuntimeError"), (5, None), (7, None),
    ]  # fmt: skip
    assert all(row["at"][0] == __file__ and row["own"] is None for row in entered)
    assert envkit_ranks._Here.nccl and envkit_ranks._Here.failures == 0


def test_joining_and_leaving_a_group_of_processes_is_told(rank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envkit_ranks._Here, "c10d", Groups())
    monkeypatch.setattr(envkit_ranks._Here, "rank", None)
    monkeypatch.setattr(envkit_ranks._Here, "world", None)

    def init_process_group(backend: str = "", rank: int = -1, world_size: int = -1) -> None:
        assert (envkit_ranks._Here.rank, envkit_ranks._Here.world) == (1, 3)  # known though it may hang here

    def destroy_process_group() -> None:
        pass

    envkit_ranks._watched("init_process_group", init_process_group)(rank=1, world_size=3)
    envkit_ranks._Here.counts["0"] = 4
    envkit_ranks._watched("destroy_process_group", destroy_process_group)()
    assert envkit_ranks._Here.counts == envkit_ranks._Here.told == {}
    told = [(row["e"], row.get("op"), row.get("rank"), row.get("world"), row.get("g")) for row in rows(rank)]
    assert told == [
        ("in", "init_process_group", None, None, None), ("out", None, None, None, None), ("joined", None, 1, 3, None),
        ("in", "destroy_process_group", None, None, None), ("out", None, None, None, None),
    ]  # fmt: skip


def test_a_file_of_a_rank_begins_again_with_what_describes_it(rank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envkit_ranks, "_MOST_BYTES", 200)
    envkit_ranks._Here.told["0"] = {"e": "group", "g": "0"}
    for number in range(12):
        envkit_ranks._write({"e": "beat", "gradients": number})
    old, new = rows(rank.with_name("ranks-one-1.old.jsonl")), rows(rank)
    assert [row["e"] for row in new[:2]] == ["rank", "group"] and new[0]["pid"] == os.getpid()
    beats = [row["gradients"] for row in (*old, *new) if row["e"] == "beat"]
    assert beats == list(range(beats[0], 12)) and old[-1]["e"] == "beat"


def test_a_watcher_that_fails_lets_the_program_alone_after_some_times(rank: Path) -> None:
    calls = Counter[str]()

    def broken() -> None:
        calls["broken"] += 1
        raise ValueError("x" * 500)

    for _ in range(20):
        assert envkit_ranks._guarded(broken) is None
    assert calls["broken"] == envkit_ranks._MOST_FAILURES == len(rows(rank))
    assert envkit_ranks._guarded(lambda: 5) is None
    row = rows(rank)[0]
    assert (row["e"], row["in"], len(row["why"])) == ("trouble", "broken", 300)


def test_where_a_rank_stands_is_written_down_when_nothing_happened_for_a_while_and_not_in_haste(
    rank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock of its own: looks at nothing, gradients that come, then nothing again."""
    here, slept, told = envkit_ranks._Here, [1000.0], []
    monkeypatch.setattr(here, "nccl", False)

    def sleep(seconds: float) -> None:
        slept.append(slept[-1] + seconds)
        if len(slept) in (30, 31, 32, 33):
            here.gradients += 5
        if len(slept) == 60:
            os.close(here.file or -1)
            here.file = None

    monkeypatch.setattr(envkit_ranks, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: slept[-1], time=lambda: 0))
    monkeypatch.setattr(envkit_ranks, "_still", lambda reason, seconds: told.append((reason, slept[-1], seconds)))
    envkit_ranks._attend()
    step, still, again = envkit_ranks._LOOK_S, envkit_ranks._STILL_S, envkit_ranks._AGAIN_S
    assert [reason for reason, _, _ in told] == ["still"] * len(told)
    quiet = step + still  # it looks first after a step, and then it has to stay so
    assert [at - 1000.0 for _, at, _ in told[:3]] == [quiet, quiet + again, quiet + 2 * again]
    assert [seconds for _, _, seconds in told[:3]] == [still, still + again, still + 2 * again]
    assert min(at for _, at, _ in told[3:]) - 1000.0 == 32 * step + still  # 32 looks after the first gradients came
    assert [row["gradients"] for row in rows(rank)] == [5, 15]  # one a second, not one a look


def test_nccls_recorder_is_written_beside_where_it_gives_bytes(rank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native = types.ModuleType("torch._C._distributed_c10d")
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", native)
    monkeypatch.setattr(envkit_ranks._Here, "rank", 3)
    envkit_ranks._flight()  # a torch that has none
    for name, raw, kept in (
        ("_dump_fr_trace", "no bytes", False), ("_dump_fr_trace", b"a", True), ("_dump_nccl_trace", b"b", True),
    ):  # fmt: skip
        monkeypatch.setattr(native, name, lambda raw=raw: raw, raising=False)
        envkit_ranks._flight()
        path = rank.with_name("flight-3.pkl")
        assert path.exists() is kept and (not kept or path.read_bytes() == raw)
    path.unlink()
    monkeypatch.setattr(envkit_ranks._Here, "rank", None)
    envkit_ranks._flight()
    assert not path.exists()


def test_numbers_of_a_launcher_are_read_by_the_first_name_that_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVKIT_A", "no number")
    monkeypatch.setenv("ENVKIT_B", "4")
    monkeypatch.setenv("ENVKIT_C", "5")
    assert envkit_ranks._number("ENVKIT_A", "ENVKIT_B", "ENVKIT_C") == 4
    assert envkit_ranks._number("ENVKIT_A", "ENVKIT_NONE") is None


# -- launches of kernels


def test_a_launch_of_a_wanted_kernel_is_told_once_with_the_lines_that_lead_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    stacks = [[["train.py", 5, "step"]]]
    monkeypatch.setattr(envkit_launches._Watch, "wanted", ("softmax", "gemm"))
    monkeypatch.setattr(envkit_launches._Watch, "tell", lambda event, said: told.append((event, said)))
    monkeypatch.setattr(envkit_launches._Watch, "stack", lambda frame: stacks[-1])
    monkeypatch.setattr(envkit_launches._Watch, "seen", {})

    def launched(symbol: bytes | None, site: int = 0) -> None:
        data = envkit_launches._Data(site=site, symbol=symbol)
        envkit_launches._launched(None, 1, 307, SimpleNamespace(contents=data))

    for symbol, site in ((b"my_softmax_kernel", 0), (b"my_softmax_kernel", 1), (b"copy", 0), (None, 0)):
        launched(symbol, site)
    launched(b"my_softmax_kernel")
    assert told == [("launch", {"kernel": "my_softmax_kernel", "frames": stacks[0]})]
    stacks.append([["train.py", 9, "step"]])
    launched(b"my_softmax_kernel")  # from another line
    assert len(told) == 2
    for number in range(200):
        launched(b"gemm_%d" % number)
    assert len(told) == envkit_launches._MOST


def test_cupti_is_looked_for_beside_the_wheels_then_in_the_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolkit, wheel = tmp_path / "cuda/extras/CUPTI/lib64", tmp_path / "site/nvidia/cuda_cupti/lib"
    for folder in (toolkit, wheel):
        folder.mkdir(parents=True)
        (folder / "libcupti.so.12").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert envkit_launches._library() == str(wheel / "libcupti.so.12")
    monkeypatch.setattr(sys, "path", [])
    assert envkit_launches._library() == str(toolkit / "libcupti.so.12")


# -- memory, on a torch that is made up here


class Tensor:
    """A tensor on a GPU: its bytes, and the node of its graph if it has one."""

    is_cuda = True

    def __init__(self, nbytes: int, node: Any = None, at: int | None = None, grad: Tensor | None = None) -> None:
        self.grad_fn, self.nbytes, self.at, self.grad = node, nbytes, at or id(self), grad

    def untyped_storage(self) -> Any:
        return SimpleNamespace(data_ptr=lambda: self.at, nbytes=lambda: self.nbytes)


class Cuda:
    """torch.cuda with an allocator whose use is told by a list."""

    def __init__(self) -> None:
        self.used = 0
        self.shots = 0
        self.memory = SimpleNamespace(_record_memory_history=lambda *a, **b: None, _snapshot=self.snapshot)

    def snapshot(self) -> dict[str, int]:
        self.shots += 1
        return {"used": self.used}

    def memory_allocated(self) -> int:
        return self.used

    def memory_reserved(self) -> int:
        return 2 * self.used

    def current_device(self) -> int:
        return 0

    def mem_get_info(self, device: int) -> tuple[int, int]:
        return 1000 - self.used, 1000

    def memory_stats(self, device: int) -> dict[str, int]:
        return {"allocated_bytes.all.current": self.used, "num_ooms": 2}

    def get_device_properties(self, device: int) -> Any:
        return SimpleNamespace(name="H100", total_memory=1000)

    def device_count(self) -> int:
        return 1


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module that measures memory, beside a torch with ``Cuda``."""
    monkeypatch.syspath_prepend(str(job.COMPANION))
    before = set(sys.modules)
    module = importlib.import_module("envkit_memory")
    torch = SimpleNamespace(
        Tensor=Tensor, nn=SimpleNamespace(Module=type("Module", (), {})), cuda=Cuda(), __version__="2.6.0"
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    # What variables hold is asked for apart: here it would be all of pytest's.
    monkeypatch.setattr(module.envkit_holders, "holders", lambda frame: {"holders": [], "cut": False})
    module._Here.folder, module._Here.torch = str(tmp_path), torch
    module._forget()
    module._Here.began, module._Here.gpu = os.getpid(), True
    module._Here.looked = module.time.monotonic()
    yield module
    for name in set(sys.modules) - before:
        if name.startswith("envkit_"):
            del sys.modules[name]


def test_memory_is_looked_at_after_steps_that_double_and_few_snapshots_stay(memory: Any, tmp_path: Path) -> None:
    for number in range(1, 1500):
        memory._Here.torch.cuda.used = number
        memory._stepped(number, None)
    said = json.loads((tmp_path / f"memory-{os.getpid()}.json").read_text())
    looked = [look["step"] for look in said["looks"]]
    assert looked == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    kept = [look["snapshot"] for look in said["looks"] if look["snapshot"]]
    assert kept == [f"snapshot-{os.getpid()}-{step}.pickle" for step in (2, 128, 256, 512, 1024)]
    assert {path.name for path in tmp_path.glob("*.pickle")} == set(kept)
    assert pickle.loads((tmp_path / kept[-1]).read_bytes()) == {"used": 1024}
    last = said["looks"][-1]
    assert (last["allocated"], last["ooms"], last["free"], last["total"], last["kept"]) == (1024, 2, -24, 1000, {})
    series = memory._Here.known["series"]
    assert len(series) <= 1000 and {number % 2 for number, _, _ in series[-200:]} == {0}
    assert all(row == [row[0], row[0], 2 * row[0]] for row in series) and said["steps"][1] == 1024


def test_steps_of_another_kind_begin_anew(memory: Any, tmp_path: Path) -> None:
    for number in (1, 2, 3, 1, 2):
        memory._stepped(number, None)
    assert [look["step"] for look in memory._Here.known["looks"]] == [2]
    assert [row[0] for row in memory._Here.known["series"]] == [1, 2]
    assert len(list(tmp_path.glob("*.pickle"))) == 1
    memory._forget()  # a forked child, which has no history of a GPU's memory and may take steps of its own
    memory._Here.began = os.getpid()
    memory._stepped(2, None)
    (look,) = memory._Here.known["looks"]
    assert look["snapshot"] == "" and "total" not in look and look["host"] > 1 << 20
    assert memory._Here.known["series"] == [[2, 0, 0]] and len(list(tmp_path.glob("*.pickle"))) == 1


def test_what_an_optimizer_keeps_is_counted_apart(memory: Any) -> None:
    weight, bias = Tensor(100, grad=Tensor(50)), Tensor(10)
    state = {weight: {"step": 3, "exp_avg": Tensor(100), "exp_avg_sq": Tensor(100)}, bias: 7}
    optimizer = SimpleNamespace(param_groups=[{"params": [weight]}, {"params": [bias]}], state=state)
    assert memory._kept(optimizer) == {"parameters": 110, "gradients": 50, "optimizer": 200}
    assert memory._kept(None) == {}


def test_memory_that_runs_out_is_told_with_the_line_and_the_latest_times_stay(memory: Any, tmp_path: Path) -> None:
    companion = importlib.import_module("envkit_companion")
    memory._Here.stack = companion.stack
    for number in range(5):
        memory._out_of_memory(0, 64 + number, 1000, 8)
    told = json.loads((tmp_path / f"memory-{os.getpid()}.json").read_text())["ooms"]
    assert [each["asked"] for each in told] == [66, 67, 68]
    assert {path.name for path in tmp_path.glob("oom-*")} == {each["snapshot"] for each in told}
    assert len({each["snapshot"] for each in told}) == 3
    last = told[-1]
    assert last["backward"] is False and last["frames"][-1][2] == (
        "test_memory_that_runs_out_is_told_with_the_line_and_the_latest_times_stay"
    )
    assert (last["device"], last["total"], last["free"], last["usage"]["total"]) == (0, 1000, 8, 1000)


def test_a_snapshot_that_is_too_large_is_not_kept_and_told(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_MOST_BYTES", 5)
    assert memory._snapshot("x.pickle") is False
    assert list(tmp_path.glob("x.pickle*")) == []
    (trouble,) = memory._Here.known["trouble"]
    assert "was not kept" in trouble
    for _ in range(50):
        memory._trouble("more")
    assert len(memory._Here.known["trouble"]) == 20


def test_an_end_is_told_once_and_only_by_the_process_that_began(memory: Any, tmp_path: Path) -> None:
    memory._ended(os.getpid() + 1)
    assert "end" not in memory._Here.known
    memory._ended(os.getpid())
    assert json.loads((tmp_path / f"memory-{os.getpid()}.json").read_text())["end"]["total"] == 1000
    assert memory._Here.began == 0


def test_a_fraction_of_the_memory_is_told_with_the_line_that_sets_it(memory: Any) -> None:
    given: list[Any] = []
    module = types.ModuleType("torch.cuda.memory")
    memory._fractions(module)  # a torch without it
    module.set_per_process_memory_fraction = lambda *a, **b: given.append((a, b))  # type: ignore[attr-defined]
    memory._fractions(module)
    module.set_per_process_memory_fraction(0.5, device=1)
    assert given == [((0.5,), {"device": 1})]
    fraction = memory._Here.known["fraction"]
    assert fraction["value"] == 0.5 and fraction["place"][0] == __file__


class Frozen(SimpleNamespace):
    """A node of autograd's graph that can be put into a set."""

    __hash__ = object.__hash__


def test_what_a_variable_holds_is_counted_once_with_its_graph(memory: Any) -> None:
    holders = importlib.import_module("envkit_holders")
    end = Frozen(next_functions=[])
    middle = Frozen(next_functions=[(end, 0), (None, 0)])
    top = Frozen(next_functions=[(middle, 0), (end, 0)])
    shared = Tensor(100)
    walk = holders._Walk(memory._Here.torch)
    value = {"losses": [Tensor(4, top), Tensor(4, middle)], "views": (shared, Tensor(100, at=shared.at)), 3: "text"}
    assert walk.visit(value, "kept", "train.py", 0)[:3] == (4, 108, 2)
    names = ("length", "tensors", "bytes", "graphs", "nodes")
    found = {row["path"]: tuple(row[name] for name in names) for row in walk.found}
    assert found == {"kept['losses']": (2, 2, 8, 2, 3), "kept": (3, 4, 108, 2, 3)}
    assert walk.visit(value, "again", "train.py", 0)[0] == 0  # met already
    value["self"] = value
    assert holders._Walk(memory._Here.torch).visit(value, "ring", "train.py", 0)[0] == 4


def test_the_lines_that_let_a_variable_grow_are_those_of_its_function(memory: Any, tmp_path: Path) -> None:
    holders = importlib.import_module("envkit_holders")
    lines = [
        "kept = []", "def a():", "    kept.append(1)", "    other.append(kept)", "    kept[0] = 1", "    kept += [2]",
        "    kept = kept + [3]", "    kept = 4", "def b(self):", "    self.kept.update(x)", "    kept.pop()",
    ]  # fmt: skip
    (tmp_path / "train.py").write_text("\n".join(lines) + "\n")
    file = str(tmp_path / "train.py")
    assert [number for number, _ in holders._grown(file, "kept", 0, 0)] == [3, 5, 6, 7]
    assert holders._grown(file, "object.kept['x']", 9, 11) == [[10, "self.kept.update(x)"]]
    assert holders._grown(str(tmp_path / "none.py"), "kept", 0, 0) == []
    (tmp_path / "broken.py").write_text("def (\n")
    assert holders._grown(str(tmp_path / "broken.py"), "kept", 0, 0) == []


# -- steps


def test_an_optimizer_that_replaces_the_first_counts_and_those_beside_it_do_not(memory: Any) -> None:
    steps = importlib.import_module("envkit_steps")
    first, beside, new = object(), object(), object()

    def counted(*optimizers: object) -> list[bool]:
        return [steps._counts(each) for each in optimizers]

    assert counted(*(first, beside) * 6) == [True, False] * 6
    assert counted(first, *[beside] * 4, first, *[beside] * 8, first) == [True, *[False] * 4, True, *[False] * 8, True]
    steps._Marks.most_others, steps._Marks.number = 0, 10
    assert counted(*[new] * 7) == [*[False] * 4, *[True] * 3] and steps._Marks.number == 14
    layers = [object() for _ in range(50)]
    assert counted(new, *layers, new, *layers, new) == [True, *[False] * 50, True, *[False] * 50, True]


def test_a_step_is_counted_by_the_latest_kind_that_the_program_has(memory: Any) -> None:
    steps = importlib.import_module("envkit_steps")
    seen: list[tuple[int, Any]] = []
    steps._Marks.step = lambda number, optimizer: seen.append((number, optimizer))
    for of in ("backward", "backward", "batch", "backward", "batch", "optimizer", "batch", "optimizer"):
        steps._mark(of, of)
    assert seen == [
        (1, "backward"), (2, "backward"), (1, "batch"), (2, "batch"), (1, "optimizer"), (2, "optimizer"),
    ]  # fmt: skip
    assert steps.kind() == "optimizer"


def test_of_several_optimizers_the_first_marks_the_steps(memory: Any) -> None:
    steps = importlib.import_module("envkit_steps")
    seen: list[int] = []
    steps._Marks.step = lambda number, optimizer: seen.append(number)
    module = SimpleNamespace(Optimizer=type("Optimizer", (), {"profile_hook_step": staticmethod(lambda step: step)}))
    steps._optimizers(module)
    step = module.Optimizer.profile_hook_step(lambda self: "stepped")
    one, other = object(), object()
    assert [step(each) for each in (one, other, one)] == ["stepped"] * 3
    assert seen == [1, 2]


def test_batches_are_timed_and_the_latest_are_kept(memory: Any) -> None:
    steps = importlib.import_module("envkit_steps")
    following = iter(range(5000))
    module = SimpleNamespace(_BaseDataLoaderIter=type("Iterator", (), {"__next__": lambda self: next(following)}))
    steps._loaders(module)
    batches = module._BaseDataLoaderIter()
    assert [next(batches) for _ in range(5000)] == list(range(5000))
    assert 2048 <= len(steps.loaded()) <= 4096 and all(asked <= came for asked, came in steps.loaded())
    with pytest.raises(StopIteration):
        next(batches)
    assert steps.kind() == "batch"


def test_a_watcher_of_steps_that_fails_tells_and_stops_in_time(memory: Any) -> None:
    steps = importlib.import_module("envkit_steps")
    told: list[str] = []
    steps._Marks.failed = told.append

    def broken(number: int) -> None:
        raise ValueError(f"{number} " + "x" * 400)

    for number in range(20):
        assert steps.guarded_call(broken, number) is None
    assert len(told) == 8 and told[0].startswith("broken: ValueError: 0 x") and len(told[0]) == 300
    assert steps.guarded_call(lambda: 5) is None


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/w/train.py", True),
        ("<string>", False),
        ("/v/lib/python3.11/site-packages/torch/nn.py", False),
        ("/usr/lib/python3/dist-packages/x.py", False),
        (os.__file__, False),
    ],
)
def test_whose_a_file_is(memory: Any, file: str, own: bool) -> None:
    assert importlib.import_module("envkit_steps").is_own(file) is own


def test_the_rank_of_a_process_is_what_its_launcher_says(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = importlib.import_module("envkit_steps")
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert steps.rank() == ""
    monkeypatch.setenv("PMI_RANK", "5")
    monkeypatch.setenv("RANK", "none")
    assert steps.rank() == "5"
    monkeypatch.setenv("RANK", "2")
    assert steps.rank() == "2"


# -- sources of kernels, and where tensors are made


def test_a_kernels_source_is_kept_once_and_compiled_with_its_lines_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(job.COMPANION))
    sources = importlib.import_module("envkit_sources")
    told: list[tuple[str, dict[str, Any]]] = []
    given: list[tuple[Any, ...]] = []

    def compiles(source: str, options: tuple[str, ...] = (), arch: str | None = None) -> str:
        given.append((source, options, arch))
        return "module"

    wrap = sources.wrapping(
        str(tmp_path), lambda event, said: told.append((event, said)), lambda frame: [["a", 1, "f"]]
    )
    for lines in ("", "1"):
        monkeypatch.setenv("ENVKIT_DEBUG_LINES", lines)
        module = types.ModuleType("cupy.cuda.compiler")
        module._compile_module_with_cache = compiles  # type: ignore[attr-defined]
        wrap(module)
        assert module._compile_module_with_cache("__global__ void f() {}", arch="9.0") == "module"
        assert module._compile_module_with_cache(source="__global__ void f() {}", options=("-lineinfo",)) == "module"
        assert module._compile_module_with_cache("int x;") == "module"
    assert [each[1] for each in given] == [(), ("-lineinfo",), (), ("-lineinfo",), ("-lineinfo",), ("-lineinfo",)]
    ((event, said),) = told
    assert event == "source" and said["frames"] == [["a", 1, "f"]]
    assert (tmp_path / said["file"]).read_text() == "__global__ void f() {}"
    empty = types.ModuleType("torch.cuda._utils")
    wrap(empty)
    assert not hasattr(empty, "_nvrtc_compile")
    del sys.modules["envkit_sources"]


def test_a_source_that_cannot_be_kept_does_not_stop_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(job.COMPANION))
    sources = importlib.import_module("envkit_sources")
    wrap = sources.wrapping(str(tmp_path / "gone"), lambda *_: None, lambda frame: [])
    module = types.ModuleType("torch.cuda._utils")
    module._nvrtc_compile = lambda source, nvcc_options=None: source  # type: ignore[attr-defined]
    wrap(module)
    assert module._nvrtc_compile("__global__ void g() {}") == "__global__ void g() {}"
    assert "envkit: a kernel's source was not kept: FileNotFoundError" in capsys.readouterr().err
    del sys.modules["envkit_sources"]


def test_threads_take_turns_more_often_while_the_main_thread_is_looked_at_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(job.COMPANION))
    slow = importlib.import_module("envkit_slow")
    before, during = sys.getswitchinterval(), []

    def slept(seconds: float) -> None:
        during.append(sys.getswitchinterval())
        monkeypatch.setattr(slow._Here, "state", "done")

    monkeypatch.setattr(slow._Here, "state", "lines")
    monkeypatch.setattr(slow.time, "sleep", slept)
    slow._look(os.getpid(), 0)  # there is no thread of this number
    assert during == [pytest.approx(0.0002)] and sys.getswitchinterval() == before
