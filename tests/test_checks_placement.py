"""What the placement checks say of models built here: each way a run can end, each thing found, and the doubts."""

from __future__ import annotations

from dataclasses import replace

import answers
import pytest

from envkit import facts, placement
from envkit.judging import judge
from envkit.model import Finding, Observed, Outcome, Report, Result, Severity, Subject
from envkit.subjects.placement import (
    End,
    Fork,
    Group,
    Line,
    MisplacedState,
    Operand,
    Placement,
    Rank,
    RankGpu,
    Refusal,
    Stop,
)

FACTS = facts.load()


def end(stage: str = "backward", stop: Stop | None = None, ended: str = "ran", detail: str = "") -> Observed[End]:
    return Observed.of(End(ended, stage, detail, "SIGSEGV" if ended == "killed" else "", stop), "its process")


def group(device: str = "cuda:0", what: str = "parameters", trained: bool = True, name: str = "fc.weight") -> Group:
    return Group(what, device, "float32", trained, 1, 16, (name,))


CLEAN = Placement(
    "python3",
    target="train:example",
    how="run",
    python=Observed.of("3.11.2", "sys.version_info"),
    torch=Observed.of("2.11.0+cu130", "torch.__version__"),
    gpus=Observed.of(("NVIDIA H100",), "torch.cuda.get_device_name"),
    end=end(),
    groups=Observed.of((group(),), "named_parameters"),
    lines=Observed.of((), "the dispatcher"),
    forks=Observed.of((), "os.register_at_fork"),
    astray=Observed.of((), "optimizer.state"),
    operations=35,
    gpus_given=("all",),
)
STOPPED = replace(CLEAN, end=end("forward", Stop("forward", "RuntimeError: oom", "train.py:3", "", "fc")))


def said(check: str, model: Placement) -> Result:
    return answers.judged(f"placement-{check}", model)


def test_a_clean_run_is_green() -> None:
    outcomes = {result.check: result.outcome for result in judge.judge(CLEAN, FACTS)}
    skipped = {name for name, outcome in outcomes.items() if outcome is Outcome.SKIP}
    assert skipped == {"placement-frozen-split", "placement-ranks-share-gpu"}
    assert set(outcomes.values()) == {Outcome.PASS, Outcome.SKIP}


@pytest.mark.parametrize("check", ["two-devices", "dtype-mix", "host-copies", "host-waits-for-gpu", "fork-after-cuda"])
def test_a_run_that_stopped_proves_nothing_absent(check: str) -> None:
    assert said(check, STOPPED).outcome is Outcome.UNKNOWN
    assert "RuntimeError: oom" in said(check, STOPPED).reason
    other = Refusal("dtypes" if check == "two-devices" else "devices", "addmm", "train.py:3")
    if check != "dtype-mix" or other.kind != "dtypes":
        assert said(check, replace(STOPPED, refusal=other)).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("ended", ["killed", "hung", "garbled", "raised"])
@pytest.mark.parametrize(("stage", "check"), [("factory", "factory-failed"), ("forward", "forward-failed")])
def test_every_death_is_a_finding_at_its_stage(ended: str, stage: str, check: str) -> None:
    model = replace(CLEAN, end=end(stage, ended=ended, detail="so it went"))
    (finding,) = said(check, model).findings
    assert ("SIGSEGV" if ended == "killed" else "so it went") in finding.message
    other = "forward-failed" if stage == "factory" else "factory-failed"
    assert said(other, model).outcome is (Outcome.UNKNOWN if stage == "factory" else Outcome.PASS)


@pytest.mark.parametrize("how", ["fake", "trace"])
def test_without_a_gpu_what_torch_raises_is_a_doubt_and_what_the_code_raises_is_not(how: str) -> None:
    for stage, check in (("factory", "factory-failed"), ("forward", "forward-failed")):
        torch = replace(CLEAN, how=how, end=end(stage, Stop(stage, "RuntimeError: CUDA error", "train.py:3")))
        assert said(check, torch).outcome is Outcome.UNKNOWN
        assert "at train.py:3" in said(check, torch).reason
        code = replace(torch, end=end(stage, Stop(stage, "ValueError: no", "train.py:3", by_user=True)))
        assert said(check, code).outcome is Outcome.FAIL
        assert said(check, replace(torch, how="run")).outcome is Outcome.FAIL
    module = replace(CLEAN, how=how, end=end("import", Stop("import", "ModuleNotFoundError: timm")))
    assert said("factory-failed", module).findings[0].message.startswith("the module of train:example raised")


def test_operators_without_a_rule_are_a_doubt_only_where_the_rules_are_ours() -> None:
    strange = replace(CLEAN, unjudged=("mylib::scan",))
    assert said("two-devices", replace(strange, how="trace")).outcome is Outcome.UNKNOWN
    assert said("two-devices", strange).outcome is Outcome.PASS


def test_tensors_are_named_once_by_device() -> None:
    weight = Operand("w", "cuda:0", "float32")
    tensors = (weight, Operand("", "cpu", "float32", (2, 3)), weight)
    met = Refusal("devices", "mm", "train.py:3", "y = x @ w", "fc", "", tensors)
    (finding,) = said("two-devices", replace(STOPPED, refusal=met)).findings
    assert finding.message == "mm meets cuda:0 (w) and cpu (a tensor of shape [2, 3])"
    assert (finding.where, list(finding.evidence)) == ("train.py:3 in fc", ["y = x @ w"])


def test_where_torch_names_no_tensors_its_own_sentence_is_told_without_the_calls_name() -> None:
    own = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    for message in (f"{own} (when checking argument for argument mat1 in method wrapper_CUDA_addmm)", own, f"{own}."):
        met = Refusal("devices", "", "train.py:3", message=message)
        (finding,) = said("two-devices", replace(STOPPED, refusal=met)).findings
        assert finding.message == own
        assert list(finding.evidence) == [message]


@pytest.mark.parametrize(
    ("results", "ok", "text"),
    [
        (
            (Result("a", Outcome.PASS), Result("b", Outcome.SKIP, reason="no GPU")),
            True,
            "every operation of the model has its tensors on one device and in one dtype",
        ),
        (
            (
                Result("a", Outcome.FAIL, (Finding("b lies on the CPU", Severity.WARNING),)),
                Result("c", Outcome.FAIL, (Finding("mm meets two devices", Severity.ERROR, "t.py:3", fix="move b"),)),
                Result("d", Outcome.UNKNOWN, reason="it stopped"),
                Result("e", Outcome.SKIP, reason="no GPU"),
            ),
            False,
            "error: t.py:3: mm meets two devices\n  fix: move b\nwarning: b lies on the CPU",
        ),
        (
            (
                Result("a", Outcome.UNKNOWN, reason="it stopped"),
                Result("b", Outcome.FAIL, (Finding("b lies on the CPU", Severity.WARNING),)),
                Result("c", Outcome.UNKNOWN, reason="it stopped"),
                Result("d", Outcome.CRASHED, reason="a fault of the check"),
                Result("e", Outcome.SKIP, reason="no GPU"),
            ),
            False,
            "warning: b lies on the CPU\nunknown: a fault of the check\nunknown: it stopped",
        ),
    ],
    ids=["clean", "an error", "doubts"],
)
def test_a_checked_model_as_text(results: tuple[Result, ...], ok: bool, text: str) -> None:
    checked = placement.Checked(Report(Subject("placement", "Net"), results), CLEAN)
    assert (checked.ok, str(checked)) == (ok, text)


def test_a_split_that_the_freezing_explains_is_told_once() -> None:
    frozen = (group("cpu", trained=False, name="enc.weight"), group())
    model = replace(CLEAN, groups=Observed.of(frozen, "v"))
    assert said("frozen-split", model).findings[0].severity is Severity.WARNING
    assert said("state-split", model).outcome is Outcome.PASS
    mixed = replace(CLEAN, groups=Observed.of((*frozen, group("cpu", name="head.weight")), "v"))
    assert said("state-split", mixed).outcome is Outcome.FAIL
    declared = replace(model, declared_map=True)
    assert said("frozen-split", declared).outcome is Outcome.PASS


def test_state_astray_is_one_finding() -> None:
    lost = tuple(MisplacedState(f"w{number}", "exp_avg", "cpu", "cuda:0") for number in range(3))
    (finding,) = said("state-split", replace(CLEAN, astray=Observed.of(lost, "v"))).findings
    assert finding.message.endswith("w0 lies on cpu, the parameter on cuda:0, and so do 2 more")


def test_many_lines_are_cut_and_counted() -> None:
    lines = tuple(Line("device to host", "to", f"train.py:{number}", count=2, bytes=8) for number in range(25))
    findings = said("host-copies", replace(CLEAN, lines=Observed.of(lines, "v"))).findings
    assert findings[0].message == "train.py:0 copies from device to host with to 2 times in one run (8 bytes)"
    assert findings[-1].message == "5 more lines do so" and len(findings) == 21


def test_a_wait_is_told_once_and_not_where_a_copy_is_told() -> None:
    lines = (
        Line("wait", "", "train.py:1"), Line("wait", "item", "train.py:1"),
        Line("wait", "", "train.py:2"), Line("host to device", "to", "train.py:2"),
    )  # fmt: skip
    (finding,) = said("host-waits-for-gpu", replace(CLEAN, lines=Observed.of(lines, "v"))).findings
    assert finding.message == "train.py:1 makes the host wait for the GPU with item once in one run"


def test_a_data_loader_that_forks_is_a_note() -> None:
    forks = (Fork("train.py:1", by="a data loader"), Fork("train.py:2"))
    found = said("fork-after-cuda", replace(CLEAN, forks=Observed.of(forks, "v"))).findings
    assert [finding.severity for finding in found] == [Severity.NOTE, Severity.WARNING]


def ranks(*entries: Rank) -> Placement:
    return replace(CLEAN, ranks=Observed.of(entries, "v"), ranks_asked=True)


def rank(number: int, gpu: str | None, host: str = "a", world: int = 2) -> Rank:
    return Rank(number, number, world, host, "0,1", 2, () if gpu is None else (RankGpu("cuda:0", gpu),))


def test_ranks() -> None:
    check = "ranks-share-gpu"
    assert said(check, ranks(rank(0, "u1"), rank(1, "u2"))).outcome is Outcome.PASS
    assert said(check, ranks(rank(0, "u1"), rank(1, "u1"))).outcome is Outcome.FAIL
    # A PCI address is a name within one machine only.
    assert said(check, ranks(rank(0, "0000:17:00"), rank(1, "0000:17:00", "b"))).outcome is Outcome.PASS
    assert said(check, ranks(rank(0, "0000:17:00"), rank(1, "0000:17:00"))).outcome is Outcome.FAIL
    assert said(check, ranks(rank(0, ""), rank(1, ""))).outcome is Outcome.UNKNOWN
    assert said(check, ranks(rank(0, None), rank(1, None))).outcome is Outcome.SKIP
    assert said(check, ranks(rank(0, "u1"), rank(1, None))).findings[0].message.startswith("rank 1 works on no GPU")
    assert said(check, ranks(rank(0, "u1", world=1))).outcome is Outcome.SKIP
    assert said(check, ranks(rank(0, "u1"))).outcome is Outcome.UNKNOWN
    assert "do not agree" in said(check, ranks(rank(0, "u1"), rank(1, "u2", world=1))).findings[0].message
