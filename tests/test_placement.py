"""A model followed with and without torch: its devices, its dtypes, its lines, and factories that fail in every way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torches
from nightly import at_night

from envkit import facts, payload
from envkit.errors import UsageError
from envkit.image.placement import read
from envkit.judging import judge
from envkit.model import Outcome, Result
from envkit.payload import isolate
from envkit.payload import placement as followed
from envkit.payload.placement import ranks, work
from envkit.runner import runner
from envkit.subjects.codec import from_plain, to_plain
from envkit.subjects.placement import Placement

ROOT = Path(payload.__file__).parents[2]
MODELS = Path(__file__).parent / "data" / "placement"


def quiet(line: str) -> None:
    pass


def follow(name: str, how: str = "auto", seconds: float = 120) -> Placement:
    """The model that the factory ``name`` of the test's models makes, on a GPU that is not there."""
    here = runner.LocalPython(Path(torches.PYTHON))
    return runner.placement(here, f"models:{name}", quiet, MODELS, how, timeout_s=seconds)


def judged(model: Placement) -> dict[str, Result]:
    return {result.check.removeprefix("placement-"): result for result in judge.judge(model, facts.load())}


def line(marker: str) -> str:
    """The place of a marked line of the models."""
    lines = (MODELS / "models.py").read_text("utf-8").splitlines()
    return next(f"models.py:{number}" for number, text in enumerate(lines, 1) if text.endswith(f"# here: {marker}"))


# Without torch.


CLEAN = {"error": None, "refusal": None, "doubt": ""}
STOPPED = {"message": "no kernel", "by_user": False, "stage": "forward"}


@pytest.mark.parametrize(
    ("how", "ended", "answer", "why"),
    [
        ("fake", "ran", CLEAN, ""),
        ("fake", "ran", {**CLEAN, "doubt": "a state"}, "a state"),
        ("fake", "ran", {**CLEAN, "error": STOPPED}, "no kernel"),
        ("fake", "ran", {**CLEAN, "error": STOPPED, "refusal": {"line": 1}}, ""),
        ("fake", "ran", {**CLEAN, "error": {**STOPPED, "by_user": True}}, ""),
        ("fake", "ran", {**CLEAN, "error": {**STOPPED, "stage": "import"}}, ""),
        ("fake", "raised", None, "in the child"),
        ("fake", "hung", None, ""),
        ("trace", "ran", {**CLEAN, "doubt": "a state"}, ""),
    ],
)
def test_when_fake_tensors_do_not_do(how: str, ended: str, answer: dict[str, Any] | None, why: str) -> None:
    ending = isolate.Ending(ended, "in the child", value=answer)
    assert followed._another_way(how, answer, ending) == why


def test_the_answers_that_a_factory_may_give() -> None:
    def model() -> None:
        pass

    assert work.given((model, 1)) == work.FactoryResult(model, (1,), {})
    assert work.given((model, (1, 2))) == work.FactoryResult(model, (1, 2), {})
    assert work.given([model, {"x": 1}]) == work.FactoryResult(model, (), {"x": 1})
    assert work.given((model, ((1,), {"x": 2}))) == work.FactoryResult(model, (1,), {"x": 2})
    assert work.given((model, (1, {"x": 2}))) == work.FactoryResult(model, (1, {"x": 2}), {})
    made = work.given({"model": model, "inputs": [1], "optimizer": "o", "loss": "l"})
    assert made == work.FactoryResult(model, (1,), {}, "o", "l")
    for wrong in (model, (model,), (1, 2), {"inputs": 1}):
        with pytest.raises(work.BadFactoryResult, match="the factory"):
            work.given(wrong)


def test_a_python_without_torch_leaves_the_run_unknown(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch to be found here')")
    code = "import json, sys; from envkit.payload import placement; print(json.dumps(placement.main(sys.argv[1:])))"
    done = subprocess.run(
        [sys.executable, "-c", code, "m:f", "--seconds", "30"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    document = json.loads(done.stdout)
    assert (document["torch"], document["ended"], document["stage"]) == (None, "raised", "import torch")
    asked = Placement("p", target="m:f")
    model = read({**document, "schema": "envkit.payload/1", "kind": "placement"}, asked)
    outcomes = {result.outcome for result in judged(model).values()}
    assert outcomes == {Outcome.UNKNOWN, Outcome.SKIP}
    assert "no torch to be found here" in judged(model)["two-devices"].reason


SEALED = {"schema": "envkit.payload/1", "kind": "placement"}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, "none of schema"),
        ({"schema": "envkit.payload/1", "kind": "probe"}, "none of schema"),
        ({**SEALED, "target": "other:f"}, "answers for 'other:f'"),
        ({**SEALED, "target": "m:f", "seconds": "x"}, "does not fit"),
        ({**SEALED, "target": "m:f", "torch": "t", "how": "h", "ended": "ran"}, "does not fit"),
    ],
)
def test_a_document_that_does_not_fit_is_not_observed(document: dict[str, Any], why: str) -> None:
    model = read(document, Placement("p", "d", "m:f", gpus_given=("all",), ranks_asked=True))
    assert why in model.end.missing
    assert (model.name, model.digest, model.gpus_given, model.ranks_asked) == ("p", "d", ("all",), True)


def test_what_a_run_did_not_reach_says_where_it_ended() -> None:
    told = {"torch": "2.6.0", "how": "fake", "ended": "raised", "stage": "forward", "followed": {"groups": []}}
    model = read({**SEALED, "target": "m:f", **told}, Placement("p", target="m:f"))
    assert model.groups.value == () and model.lines.missing == "it ended in the stage forward"


def test_a_wish_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    here = runner.LocalPython(Path(sys.executable))
    for target in ("train", "train:", "a b:c", "a;b:c", "--code:x"):
        with pytest.raises(UsageError, match="is not of the form module:factory"):
            runner.placement(here, target, quiet)
    with pytest.raises(UsageError, match="no mode 'guess'"):
        runner.placement(here, "m:f", quiet, how="guess")
    with pytest.raises(UsageError, match="no folder"):
        runner.placement(here, "m:f", quiet, tmp_path / "gone")
    with pytest.raises(UsageError, match="no folder"):
        runner.placement(here, "m:f", quiet, rank_folder=tmp_path / "gone")


def test_every_way_is_known_to_the_reader() -> None:
    assert set(followed.WAYS) == {"auto", *work.HOW}


STANDIN = """
from types import SimpleNamespace
import os
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
    current_device = staticmethod(lambda: int(os.environ["STANDIN_CURRENT"]))
    get_device_properties = staticmethod(lambda index: SimpleNamespace(uuid=f"uuid-{index}"))
"""
RANK = """
import json, sys
from envkit.payload.placement import ranks
groups = [{"what": "parameters", "device": each} for each in sys.argv[3:]]
print(json.dumps(ranks.exchange(ranks.mine(groups), sys.argv[1], float(sys.argv[2]))))
"""


def told(folder: Path, torch: Path, current: tuple[str, str], budget: str = "20") -> list[Any]:
    """What two ranks, or the first of two, tell each other; each is a process with a stand-in for torch."""
    shared = folder / "ranks"
    shared.mkdir()
    (torch / "torch.py").write_text(STANDIN)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(shared), budget],
            env={
                **os.environ,
                "PYTHONPATH": f"{torch}{os.pathsep}{ROOT}",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "CUDA_VISIBLE_DEVICES": "0,1",
                "STANDIN_CURRENT": index,
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, index in enumerate(filter(None, current))
    ]
    return [json.loads(each.communicate(timeout=60)[0]) for each in started]


def with_ranks(entries: Any) -> Result:
    end = {"value": {"ended": "ran", "stage": "backward"}, "via": "v", "missing": ""}
    ranks_told = {"value": entries, "via": "v", "missing": ""}
    plain = {"name": "p", "how": "run", "end": end, "ranks": ranks_told, "ranks_asked": True}
    return judged(from_plain(Placement, plain))["ranks-share-gpu"]


def test_two_ranks_on_one_gpu_are_named(tmp_path: Path) -> None:
    one, other = told(tmp_path, tmp_path, ("0", "0"))
    assert one == other and [each["rank"] for each in one] == [0, 1]
    result = with_ranks(one)
    assert result.findings[0].message == "ranks 0 and 1 work on the same GPU uuid-0"
    assert "CUDA_VISIBLE_DEVICES" in result.findings[0].evidence.values()


def test_ranks_on_a_gpu_each_pass(tmp_path: Path) -> None:
    one, _ = told(tmp_path, tmp_path, ("0", "1"))
    assert with_ranks(one).outcome is Outcome.PASS


def test_a_rank_that_does_not_answer_leaves_it_open(tmp_path: Path) -> None:
    (one,) = told(tmp_path, tmp_path, ("0", ""), "0.3")
    result = with_ranks(one)
    assert (result.outcome, result.reason) == (Outcome.UNKNOWN, "rank 1 did not answer")


def test_half_a_file_of_another_rank_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "rank-1.json").write_text('{"rank": 1')
    own = {"rank": 0, "world": 2}
    assert ranks.exchange(own, str(tmp_path), 0.2) == [own]


# With torch.

BETWEEN = "a tensor of shape [3, 8]"
# Each run imports torch, and what both ways share is seen by the first.
each_way: Callable[[Any], Any] = pytest.mark.parametrize("how", ["auto", *at_night(("trace",))])


@torches.needs_torch
@pytest.mark.parametrize(
    ("name", "check", "where", "message"),
    [
        ("cpu_input", "two-devices", "inputs", "addmm meets cuda:0 (one.bias, one.weight) and cpu (input 0)"),
        ("two_gpus", "two-devices", "second", f"addmm meets cuda:1 (two.bias, two.weight) and cuda:0 ({BETWEEN})"),
        ("embedding", "two-devices", "index", "embedding meets cuda:0 (table.weight) and cpu (input 0)"),
        ("frozen_mixed", "two-devices", "frozen", "addmm meets cpu (frozen.bias, frozen.weight) and cuda:0 (input 0)"),
        ("half_float", "dtype-mix", "second", f"addmm meets float16 (two.bias, two.weight) and float32 ({BETWEEN})"),
    ],
)
@each_way
def test_what_meets_is_named_with_its_line(name: str, check: str, where: str, message: str, how: str) -> None:
    result = judged(follow(name, how))[check]
    assert [finding.message for finding in result.findings] == [message]
    assert result.findings[0].where.startswith(line(where) + " in ")


@torches.needs_torch
@pytest.mark.parametrize(
    "name",
    ["clean", "moved", "called_cuda", "context", "embedding_clean", "half_clean", "autocast", "frozen_clean"],
)
@each_way
def test_a_clean_twin_is_green(name: str, how: str) -> None:
    model = follow(name, how)
    results = judged(model)
    assert {result.outcome for result in results.values()} <= {Outcome.PASS, Outcome.SKIP}, results
    for check in ("two-devices", "dtype-mix", "factory-failed", "forward-failed", "state-split", "host-copies"):
        assert results[check].outcome is Outcome.PASS
    assert {group.device for group in model.groups.need("") if group.what == "outputs"} == {"cuda:0"}
    assert from_plain(Placement, to_plain(model)) == model


@torches.needs_torch
@pytest.mark.parametrize("how", ["auto", "trace"])
def test_what_torch_lets_mix_is_no_finding(how: str) -> None:
    model = follow("allowed", how)
    results = judged(model)
    doubt = how == "trace" and bool(model.unjudged)
    assert set(model.unjudged) <= {"aten::index_fill_"}, "what an assignment by index may become"
    assert results["two-devices"].outcome is (Outcome.UNKNOWN if doubt else Outcome.PASS)
    assert results["state-split"].outcome is Outcome.PASS
    copies = [finding.where for finding in results["host-copies"].findings]
    assert copies == [line("read"), line("write")], "an index on the host is carried over"


@torches.needs_torch
def test_a_library_of_layers_is_followed() -> None:
    assert judged(follow("library"))["two-devices"].outcome is Outcome.PASS
    found = judged(follow("library_lstm"))["two-devices"].findings
    assert found[0].where.endswith(" in recurrent") and "recurrent.weight_ih_l0" in found[0].message


@torches.needs_torch
def test_a_frozen_part_elsewhere_and_its_copies_are_told() -> None:
    results = judged(follow("frozen"))
    assert "frozen parameters lie on cpu (frozen.weight" in results["frozen-split"].findings[0].message
    copies = [finding.where for finding in results["host-copies"].findings]
    assert line("carried") in copies and len(copies) == 2
    assert results["state-split"].outcome is Outcome.PASS


@torches.needs_torch
def test_waits_and_copies_are_told_with_their_lines() -> None:
    results = judged(follow("reader"))
    assert [finding.where for finding in results["host-waits-for-gpu"].findings] == [line("item"), line("mask")]
    assert [finding.where for finding in results["host-copies"].findings] == [line("copy")]


@torches.needs_torch
def test_an_optimizer_made_before_the_move_is_told() -> None:
    result = judged(follow("optimizer"))["state-split"]
    assert result.findings[0].message == (
        "the optimizer's exp_avg of one.weight lies on cpu, the parameter on cuda:0, and so do 7 more"
    )


@torches.needs_torch
def test_a_fork_after_cuda_is_told() -> None:
    result = judged(follow("forks"))["fork-after-cuda"]
    assert [finding.where for finding in result.findings] == [line("fork")]
    assert judged(follow("forks_without_cuda"))["fork-after-cuda"].outcome is not Outcome.FAIL


@torches.needs_torch
@pytest.mark.parametrize("how", ["fake", "trace"])
def test_a_move_to_where_a_tensor_lies_is_none_and_the_dtype_is_kept(how: str) -> None:
    model = follow("moves", how)
    assert judged(model)["forward-failed"].outcome is Outcome.PASS, model


@torches.needs_torch
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", "the factory of models:raises raised ValueError: no such checkpoint: best.pt"),
        (
            "wrong_answer",
            "the factory of models:wrong_answer raised BadFactoryResult: the factory returned Linear",
        ),
        ("dies", "the factory of models:dies was killed by SIGKILL"),
        ("exits", "the factory of models:exits ended its process: it exited with status 3"),
        ("quits", "the factory of models:quits raised SystemExit: done"),
        ("absent", "the module of models:absent raised AttributeError: module 'models' has no attribute 'absent'"),
    ],
)
def test_a_factory_that_fails_is_told_in_one_sentence(name: str, message: str) -> None:
    results = judged(follow(name))
    assert results["factory-failed"].findings[0].message.startswith(message)
    assert results["two-devices"].outcome is Outcome.UNKNOWN


@torches.needs_torch
def test_a_factory_that_hangs_is_stopped() -> None:
    result = judged(follow("hangs", "trace", seconds=80))["factory-failed"]
    assert "models:hangs did not end: no answer within" in result.findings[0].message
    assert "in hangs" in next(iter(result.findings[0].evidence)), "the stack shows where it stood"


@torches.needs_torch
def test_a_factory_that_floods_its_output_is_followed() -> None:
    assert judged(follow("floods"))["two-devices"].outcome is Outcome.PASS


@torches.needs_torch
def test_what_torch_raises_without_a_gpu_is_no_finding() -> None:
    result = judged(follow("shape"))["forward-failed"]
    assert result.outcome is Outcome.UNKNOWN and line("shape") in result.reason


@torches.needs_torch
@pytest.mark.parametrize(
    ("name", "check", "where", "message"),
    [
        ("two_gpus", "two-devices", "second", f"addmm meets meta (two.bias, two.weight) and cpu ({BETWEEN})"),
        ("half_float", "dtype-mix", "second", f"addmm meets float16 (two.bias, two.weight) and float32 ({BETWEEN})"),
        ("shape", "forward-failed", "shape", "the forward raised RuntimeError: shape '[7]' is invalid for input"),
    ],
)
def test_a_real_run_is_refused_by_torch_itself(
    name: str, check: str, where: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACEMENT_GPU", "cpu")
    monkeypatch.setenv("PLACEMENT_OTHER", "meta")
    model = follow(name, "run")
    (finding,) = judged(model)[check].findings
    assert finding.message.startswith(message) and finding.where.startswith(line(where))


@torches.needs_torch
def test_a_real_run_goes_back_through_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACEMENT_GPU", "cpu")
    for name in ("optimizer", "clean", "library"):
        model = follow(name, "run")
        assert (model.how, model.backward) == ("run", "ran")
        assert judged(model)["forward-failed"].outcome is Outcome.PASS
        assert judged(model)["host-copies"].outcome is Outcome.SKIP


@torches.needs_torch
@pytest.mark.parametrize("how", ["auto", "trace"])
def test_what_the_models_own_code_catches_is_not_what_ended_it(how: str) -> None:
    assert judged(follow("copes", how))["two-devices"].outcome is Outcome.PASS
    results = judged(follow("copes_not", how))
    assert results["two-devices"].outcome is Outcome.UNKNOWN
    (finding,) = results["forward-failed"].findings
    assert (finding.message, finding.where) == ("the forward raised KeyError: 'another reason'", line("another"))


@torches.needs_torch
def test_the_folder_of_the_user_is_left_as_it_was() -> None:
    follow("clean")
    assert [path.name for path in MODELS.iterdir()] == ["models.py"]


API = """
import json, sys
import torch
from torch import nn
from envkit import placement

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout()
    def forward(self, x):
        return self.drop(self.norm(self.fc(x)))  # line 11

net = Net()
net.fc.weight.grad = torch.ones(4, 4)
before = {key: value.clone() for key, value in net.state_dict().items()}
seed = torch.get_rng_state()
good = placement.check(net, torch.randn(3, 4))
seed_kept = not torch.equal(seed, torch.get_rng_state())  # randn above drew, the check did not
seed = torch.get_rng_state()
bad = placement.check(net, (torch.randn(3, 4).half(),))
meta = placement.check(net, {"x": torch.randn(3, 4, device="meta")})
broken = placement.check(net, torch.randn(3, 5))
lazy = placement.check(nn.LazyLinear(3), torch.randn(3, 4))
print(json.dumps({
    "good": [good.ok, str(good), [f.message for f in good.findings]],
    "bad": [bad.ok, str(bad)], "meta": [meta.ok, str(meta)], "broken": [broken.ok, str(broken)],
    "lazy": [lazy.ok, str(lazy)],
    "same": all(torch.equal(before[key], value) for key, value in net.state_dict().items()),
    "training": net.training and net.norm.training, "grad": float(net.fc.weight.grad.sum()),
    "none": net.fc.bias.grad is None, "seed": seed_kept,
}))
"""


@torches.needs_torch
def test_a_script_can_check_its_model_and_nothing_changes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(API.lstrip("\n"))
    where = os.pathsep.join([str(ROOT), str(Path(msgspec.__file__).parents[1])])
    done = subprocess.run(
        [torches.PYTHON, str(script)],
        env={**os.environ, "PYTHONPATH": where},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if "No module named 'msgspec" in done.stderr:
        pytest.skip("the Python with torch cannot use this Python's packages")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["good"] == [True, "every operation of the model has its tensors on one device and in one dtype", []]
    assert said["bad"][0] is False
    at = "error: train.py:11 in fc: "
    assert said["bad"][1].startswith(at + "addmm meets float32 (fc.bias, fc.weight) and float16 (input 0)")
    assert said["meta"][0] is False and "meets cpu (fc.bias, fc.weight) and meta (input 0)" in said["meta"][1]
    assert said["broken"][0] is False and at + "the forward raised RuntimeError" in said["broken"][1]
    assert said["lazy"][0] is False and "lazy parameters" in said["lazy"][1]
    assert (said["same"], said["training"], said["grad"], said["none"], said["seed"]) == (True, True, 16.0, True, True)
