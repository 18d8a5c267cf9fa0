"""Green means proven: what must have been answered for a pass, and on what a verdict says that it stands."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import machines
import pytest
from inline import Envkit

from envkit import facts as tables
from envkit import report
from envkit.doctor import contracts, doctor
from envkit.errors import UsageError
from envkit.judging import judge, required
from envkit.launch import preflight
from envkit.launch.docker_options import job_from
from envkit.model import Coverage, NoGpu, Observed, Outcome, Reason, Report, Result, Span, Subject
from envkit.payload.smoke import TESTS
from envkit.report.covered import behind, left
from envkit.runner import runner
from envkit.subjects import KINDS, Audit, Host, Image, SmokeRun, codec, saved
from envkit.subjects.aoti import AotiRun
from envkit.subjects.aoti import Package as AotiPackage
from envkit.subjects.aoti import Run as AotiEnd
from envkit.subjects.audit import NO_TORCH
from envkit.subjects.dockerfile import Dockerfile
from envkit.subjects.host.expected import Expected, ExpectedGpus
from envkit.subjects.image import NO_PROMISE, Framework, Library, Toolkit, Variable, Wheel
from envkit.subjects.imported import ImportEnd
from envkit.subjects.packages import Packages
from envkit.subjects.placement import End, Group, Placement
from envkit.subjects.precision import Limits, Precision
from envkit.subjects.smoke import SmokeTest
from envkit.subjects.start import JobStart
from envkit.subjects.workload import Workload
from envkit.versions import Sm

DATA = Path(__file__).parent / "data"
FACTS = tables.load()
of = Observed.of


def recorded(kind: str, name: str) -> Any:
    plain = json.loads((DATA / kind / f"{name}.json").read_text())
    return codec.from_plain(KINDS[kind], plain)


def on_gpu(name: str) -> Any:
    kind, plain = saved.document(DATA / "gpu" / f"h100-torch-2.11-cu130-{name}.json")
    return codec.from_plain(KINDS[kind], plain)


TORCH: Image = recorded("image", "torch-2.6-cu124")
NO_FRAMEWORK: Image = recorded("image", "no-torch")
CPU_RUN: SmokeRun = recorded("smoke", "torch-2.6-cu124-cpu")
FOR_GPUS = sum(test.gpu or test.several > 0 for test in TESTS if test.level != "stress")


def verdict(subject: Any, *more: Result) -> int:
    return Report(Subject("x", "x"), (*judge.judge(subject, FACTS), *more)).exit_code()


def jax(ended: str = "done", gpu: str = "no") -> Observed[tuple[Framework, ...]]:
    return of((Framework("jax", "0.5.0", ended, gpu=gpu),), "import")


# The table.


def test_every_kind_of_subject_says_what_must_be_answered() -> None:
    judged = {kind.__name__ for check in judge.checks().values() for kind in check.subjects}
    assert judged | {kind.__name__ for kind in KINDS.values()} == set(required.KINDS)


def test_a_kind_without_an_entry_cannot_be_judged() -> None:
    class Fresh:
        name = "a kind of which nobody has said what a pass of it needs"

    with pytest.raises(KeyError):
        judge.judge(Fresh(), FACTS)


def test_a_question_that_dies_is_open() -> None:
    hostile: Any = replace(TORCH, torch_import=of(ImportEnd("done"), "import"), libraries=of((None,), "maps"))
    assert ("required-image-libraries", Outcome.UNKNOWN) in {
        (one.check, one.outcome) for one in judge.unanswered(hostile)
    }


# Of each kind, a subject in which only trivial things were answered: some checks pass, and it is undecided.
TRIVIAL: dict[str, Any] = {
    "an image without torch that sets LD_LIBRARY_PATH": replace(
        NO_FRAMEWORK, variables=of((Variable("LD_LIBRARY_PATH", "/opt"),), "environ")
    ),
    "an image without torch that sets a variable of NCCL": replace(
        NO_FRAMEWORK, variables=of((Variable("NCCL_SOCKET_IFNAME", "eth0"),), "environ")
    ),
    "an image without torch that has compilers": replace(
        NO_FRAMEWORK, compiler=of("12.2", "gcc"), toolkits=of((Toolkit("PATH", "/usr/bin/nvcc", "12.4"),), "PATH")
    ),
    "an image with a framework that nobody asked for": replace(NO_FRAMEWORK, frameworks=jax()),
    "an image whose torch lists no library of CUDA": replace(
        TORCH,
        promise=Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE),
        libraries=of((Library("torch_cpu", "libtorch_cpu.so", "/x/libtorch_cpu.so"),), "maps"),
    ),
    "an image whose torch binds nothing": replace(
        TORCH, promise=Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE), bindings=of((), "dladdr")
    ),
    "an image whose torch lists no architecture": replace(
        TORCH, torch=of(replace(TORCH.torch.need("torch"), archs=()), "torch")
    ),
    "an audit of files without torch": Audit(
        "files",
        torch=Observed.lost(NO_TORCH, reason=Reason.NO_TORCH),
        promise=Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE),
        wheels=of((Wheel("numpy", "2.0.0"),), "METADATA"),
        variables=of((), "config"),
    ),
    "a smoke run of a test that provokes an error": replace(
        CPU_RUN,
        only=("error-crash",),
        tests=of(tuple(one for one in CPU_RUN.tests.need("tests") if one.name == "error-crash"), "suite"),
    ),
    "a machine of which no place that shows GPUs was seen": machines.without(
        machines.host("bare"), "nvml", "pci_gpus", "device_nodes"
    ),
    "a launch whose image was not seen": machines.launch("h100", {"image": None}),
    "a model of which nothing was followed": Placement("m", how="run", end=of(End("ran"), "child")),
    "a step without results": Precision("m", limits=of(Limits(1e-3, 1e38, 1e-38), "finfo")),
    "a package that was read and not loaded": AotiRun(
        "p",
        package=of(AotiPackage("m.pt2"), "zip"),
        run=of(AotiEnd("not-applicable", "load", "there is no GPU"), "child"),
    ),
    "a Dockerfile of comments": Dockerfile("Dockerfile", "# nothing\n", ()),
    "requirements of nothing": Packages("requirements.txt", "requirements", ""),
    "a compose file without services": Workload("compose.yaml", "compose"),
    "a Dockerfile that starts nothing": JobStart("Dockerfile", "dockerfile", "", Span("Dockerfile", 1)),
}


def trivial() -> dict[str, str]:
    return {name: type(subject).__name__ for name, subject in TRIVIAL.items()}


def test_every_kind_has_a_trivial_subject() -> None:
    assert set(trivial().values()) == set(required.KINDS)


@pytest.mark.parametrize("name", TRIVIAL)
def test_what_answers_only_trivial_questions_is_undecided(name: str) -> None:
    subject = TRIVIAL[name]
    if isinstance(subject, Dockerfile):  # a Dockerfile object always has a stage; its reader says what has none
        from envkit.static import CheckOptions
        from envkit.static.judged import of_text

        results = of_text("dockerfile", subject.text, "Dockerfile", None, CheckOptions(), FACTS).results
        assert Report(Subject("x", "x"), results).exit_code() == 3
        return
    assert verdict(subject) == 3, [one for one in judge.judge(subject, FACTS) if one.outcome is Outcome.FAIL]


@pytest.mark.parametrize(
    "subject",
    [TORCH, CPU_RUN, recorded("image", "torch-2.15-cu132"), machines.host("h100"), machines.launch("h100", {})],
    ids=("torch 2.6", "smoke", "torch 2.15", "host", "launch"),
)
def test_what_answers_all_of_them_passes(subject: Any) -> None:
    assert judge.unanswered(subject) == ()
    assert verdict(subject) == 0


BINDINGS = TORCH.bindings.need("bindings")


@pytest.mark.parametrize(
    "bindings",
    [
        of((), "dladdr"),
        Observed.lost("the process ended"),
        of(tuple(one for one in BINDINGS if one.name == "cupti"), "dladdr"),
        of(tuple(replace(one, path="") for one in BINDINGS), "dladdr"),
    ],
    ids=("none", "not observed", "of another library", "to no file"),
)
def test_a_probe_that_knows_no_binding_of_a_cuda_library_is_undecided(bindings: Any) -> None:
    for image in (TORCH, on_gpu("probe")):
        open_ones = [one.check for one in judge.unanswered(replace(image, bindings=bindings))]
        assert open_ones == ["required-image-bindings"]


@pytest.mark.parametrize(
    "image",
    [
        NO_FRAMEWORK,
        replace(TORCH, torch=of(replace(TORCH.torch.need("torch"), cuda=""), "torch")),
        replace(NO_FRAMEWORK, frameworks=jax(), frameworks_asked=("jax",)),
        replace(NO_FRAMEWORK, frameworks_asked=("none",)),
    ],
    ids=("no torch", "a torch without CUDA", "another framework", "declared to hold none"),
)
def test_what_calls_no_cuda_library_through_torch_needs_no_binding(image: Image) -> None:
    open_ones = {one.check for one in judge.unanswered(replace(image, bindings=of((), "dladdr")))}
    assert "required-image-bindings" not in open_ones


def test_every_recorded_probe_of_a_torch_with_cuda_knows_its_bindings() -> None:
    probes = [recorded("image", path.stem) for path in sorted((DATA / "image").glob("*.json"))]
    for image in (*probes, on_gpu("probe")):
        assert "required-image-bindings" not in {one.check for one in judge.unanswered(image)}


def test_a_finding_outranks_an_open_question() -> None:
    broken = replace(TORCH, torch_import=of(ImportEnd("raised ImportError: libcudnn.so.9"), "import"))
    assert judge.unanswered(broken)
    assert verdict(broken) == 1


# Which framework.


@pytest.mark.parametrize(
    ("asked", "image", "code"),
    [
        (("jax",), replace(NO_FRAMEWORK, frameworks=jax()), 0),
        (("jax",), NO_FRAMEWORK, 3),
        (("jax",), replace(NO_FRAMEWORK, frameworks=jax("hung")), 1),
        (("jax",), replace(NO_FRAMEWORK, frameworks=jax(gpu="")), 3),
        (("vllm",), replace(TORCH, frameworks=of((Framework("vllm", "0.9", "done"),), "import")), 0),
        (("vllm",), replace(TORCH, frameworks=of((), "import")), 3),
        (("jax",), replace(NO_FRAMEWORK, frameworks=jax(gpu="yes"), unmapped=of((), "disk")), 3),
        (("jax",), TORCH, 3),
        (("torch", "jax"), replace(NO_FRAMEWORK, frameworks=jax()), 3),
        (("none",), replace(NO_FRAMEWORK, variables=of((Variable("LD_LIBRARY_PATH", "/opt"),), "environ")), 0),
        (("none",), TORCH, 3),
        (("none",), replace(NO_FRAMEWORK, frameworks=jax()), 3),
        (("none",), replace(NO_FRAMEWORK, torch_import=Observed.lost("hung")), 3),
        (("none",), replace(NO_FRAMEWORK, frameworks=Observed.lost("hung")), 3),
    ],
)
def test_a_probe_proves_the_framework_that_was_asked_for(asked: tuple[str, ...], image: Image, code: int) -> None:
    assert verdict(replace(image, frameworks_asked=asked)) == code


@pytest.mark.parametrize(
    ("asked", "wheels", "open_ones"),
    [
        (("jax",), ("jax", "jaxlib"), 0),
        (("jax",), ("numpy",), 1),
        (("none",), ("numpy",), 0),
        (("none",), ("jax",), 1),
        ((), ("jax",), 1),
    ],
)
def test_an_audit_finds_what_was_asked_for(asked: tuple[str, ...], wheels: tuple[str, ...], open_ones: int) -> None:
    installed = of(tuple(Wheel(name, "1.0") for name in wheels), "METADATA")
    audit = Audit(
        "files", torch=Observed.lost(NO_TORCH, reason=Reason.NO_TORCH), wheels=installed, frameworks_asked=asked
    )
    assert len(judge.unanswered(audit)) == open_ones
    assert len(judge.unanswered(replace(audit, wheels=Observed.lost("unreadable")))) == 1


@pytest.mark.parametrize(
    ("names", "words"),
    [(("jaxx",), "there is no known framework `jaxx`; did you mean `jax`?"), (("none", "jax"), "name frameworks")],
)
def test_a_framework_that_is_none_is_refused(names: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError) as error:
        runner.asked_frameworks(names)
    assert words in f"{error.value.message}; {error.value.fix}"


# An empty name is no name.


@pytest.fixture
def envkit(capsys: pytest.CaptureFixture[str]) -> Iterator[Envkit]:
    with Envkit(capsys) as run:
        yield run


@pytest.mark.parametrize("name", ["", "  "])
@pytest.mark.parametrize(
    "words", [("probe",), ("smoke",), ("preflight", "--level", "probe"), ("audit",), ("debug", "--image")]
)
def test_an_empty_image_is_wrong_input(envkit: Envkit, words: tuple[str, ...], name: str) -> None:
    ended = envkit(*words, name)
    assert (ended.code, ended.out) == (2, "")
    assert re.match(r"envkit: (IMAGE|TARGET|--image) is empty\n  fix: ", ended.err)


@pytest.mark.parametrize("words", [("probe",), ("smoke",), ("up",), ("debug", "--image", "x", "--")])
@pytest.mark.parametrize("gpus", ["", " ", ","])
def test_empty_gpus_are_not_none(envkit: Envkit, words: tuple[str, ...], gpus: str) -> None:
    with pytest.raises(UsageError, match="is not a GPU"):
        runner.default_gpus(gpus)
    if words[0] != "debug":
        assert envkit(*words, "--gpus", gpus).code == 2


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("probe",), "--placement"),
        (("probe", "--aoti", "m.pt2"), "--inputs"),
        (("smoke",), "--inject-fault"),
        (("smoke",), "--sanitize"),
        (("doctor",), "--cuda"),
    ],
)
def test_an_empty_option_does_not_leave_out_what_it_asks_for(
    envkit: Envkit, words: tuple[str, ...], option: str
) -> None:
    ended = envkit(*words, option, "")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"envkit: {option} is empty\n  fix: ")


def test_an_empty_image_ends_by_the_style_that_was_asked_for(envkit: Envkit) -> None:
    assert envkit("preflight", "", "--exit-style", "nagios").code == 3


def test_without_an_image_the_python_at_hand_is_probed_and_without_torch_undecided(envkit: Envkit) -> None:
    ended = envkit("probe", "--gpus", "none", "--format", "json")
    assert ended.code == 3
    said = json.loads(ended.out)
    assert said["subject"]["name"] == sys.executable
    assert {one["outcome"] for one in said["results"] if one["check"] == "required-image-framework"} == {"unknown"}


# On what a verdict stands.


@pytest.mark.parametrize(
    ("subject", "on"),
    [
        (TORCH, Coverage(files=True, cpu=True, no_gpu=NoGpu.ABSENT)),
        (replace(TORCH, devices=of((Sm(9, 0),), "cu")), Coverage(files=True, cpu=True, gpus=("sm_90",))),
        (replace(TORCH, devices=Observed.lost("hung")), Coverage(files=True, cpu=True, no_gpu=NoGpu.OPEN)),
        (CPU_RUN, Coverage(cpu=True, left=FOR_GPUS, no_gpu=NoGpu.ABSENT)),
        (
            replace(CPU_RUN, gpus=of(("NVIDIA H100",), "cu")),
            Coverage(cpu=True, left=FOR_GPUS, no_gpu=NoGpu.UNUSED),
        ),
        (Audit("files"), Coverage(files=True)),
        (Host("dark"), Coverage(files=True, no_gpu=NoGpu.OPEN)),
    ],
)
def test_coverage_is_read_out_of_the_subject(subject: Any, on: Coverage) -> None:
    assert required.covered(subject) == on


def test_a_run_on_a_gpu_names_it_and_what_it_left() -> None:
    on = required.covered(on_gpu("smoke-quick"))
    assert on.computed
    assert (on.gpus, on.left, on.no_gpu) == (("NVIDIA H100 80GB HBM3",), 0, None)
    whole = required.covered(on_gpu("smoke"))
    assert whole.left > 0  # tests of several GPUs on one
    assert behind("PASS", on) == "PASS on CPU and 1 GPU (NVIDIA H100 80GB HBM3)"


def placed(*devices: str, how: str = "run") -> Coverage:
    groups = tuple(Group("parameters", device, "float32", True, 1, 1) for device in devices)
    model = Placement("m", how=how, operations=3, gpus=of(("NVIDIA A", "NVIDIA B"), "cu"), groups=of(groups, "torch"))
    return required.covered(model)


def test_a_model_stands_on_the_gpus_that_it_lies_on() -> None:
    assert placed("cuda:1", "cpu").gpus == ("NVIDIA B",)
    assert placed("cuda").gpus == ("NVIDIA A",)
    assert placed("cuda:0", "cuda:1").computed
    assert placed("cpu").gpus == placed("cuda:0", how="fake").gpus == ()
    assert placed("cpu").no_gpu is NoGpu.UNUSED


def test_a_gpu_that_was_only_seen_is_none_that_computed() -> None:
    on = required.covered(replace(TORCH, devices=of((Sm(9, 0), Sm(9, 0)), "cu")))
    assert behind("PASS", on) == "PASS on files, CPU and 2 GPUs (sm_90)"
    assert left(on) == "nothing was computed on a GPU"


def test_the_machines_gpus_are_not_those_of_a_run_that_saw_none() -> None:
    on = required.covered(machines.host("h100"), TORCH, CPU_RUN)
    assert (on.gpus, on.computed, on.no_gpu) == ((), False, NoGpu.ABSENT)
    assert required.covered(machines.host("h100")).gpus


def test_a_gpu_that_computed_is_named_before_one_that_was_seen() -> None:
    on = required.covered(replace(TORCH, devices=of((Sm(9, 0),), "cu")), on_gpu("smoke-quick"))
    assert (on.gpus, on.computed, on.files) == (("NVIDIA H100 80GB HBM3",), True, True)


def printed(on: Coverage, format: str) -> str:
    made = Report(Subject("image", "x"), (Result("a", Outcome.PASS),), coverage=on)
    return report.render(made, format, width=200)


NO_GPU = Coverage(files=True, cpu=True, left=23, no_gpu=NoGpu.ABSENT)
ON_GPU = Coverage(files=True, cpu=True, gpus=("NVIDIA H100",), computed=True)


def test_the_first_line_says_on_what() -> None:
    line = printed(NO_GPU, "console").splitlines()[0]
    assert line == "PASS on files and CPU: image x: 1 passed; no GPU was here, 23 GPU tests were not run (0.0 s)"
    assert printed(ON_GPU, "console").startswith("PASS on files, CPU and 1 GPU (NVIDIA H100): image x: 1 passed (")


def test_documents_say_on_what() -> None:
    said = json.loads(printed(NO_GPU, "json"))["coverage"]
    assert said == {
        "files": True,
        "cpu": True,
        "gpu": "none",
        "gpus": [],
        "gpu_tests_not_run": 23,
        "no_gpu": "no GPU was here",
    }
    assert json.loads(printed(ON_GPU, "json"))["coverage"]["gpu"] == "computed"
    properties = {one.get("name"): one.get("value") for one in ET.fromstring(printed(NO_GPU, "junit")).iter("property")}
    assert properties["verdict"] == "PASS on files and CPU; no GPU was here, 23 GPU tests were not run"
    assert properties["coverage.gpu_tests_not_run"] == "23"
    assert "<b>PASS</b> on files and CPU: image x</h1>" in printed(NO_GPU, "html")
    assert "23 GPU tests were not run" in printed(NO_GPU, "html")
    nagios = printed(NO_GPU, "nagios")
    assert nagios.startswith(
        "ENVKIT OK - on files and CPU, no GPU was here, 23 GPU tests were not run: 1 checks passed"
    )
    assert " gpus=0 gpu_tests_not_run=23 " in nagios.partition("|")[2]
    metrics = printed(NO_GPU, "prometheus").splitlines()
    for line in ('coverage{kind="image",subject="x",on="gpu"} 0', 'gpu_tests_not_run{kind="image",subject="x"} 23'):
        assert f"envkit_{line}" in metrics


@pytest.mark.parametrize("format", report.FORMATS)
def test_the_name_of_a_gpu_cannot_steer_what_prints_it(format: str) -> None:
    secret = "hf_" + "a" * 34
    text = printed(replace(ON_GPU, gpus=(f"GPU\n::error::x\x1b[31m {secret}",)), format)
    assert "\x1b" not in text
    assert secret not in text
    assert not any(line.startswith("::error") for line in text.splitlines())


# A GPU that is required.


@pytest.mark.parametrize(
    ("subject", "enough"),
    [
        (TORCH, False),
        (replace(TORCH, devices=of((Sm(9, 0),), "cu")), True),
        (replace(TORCH, devices=Observed.lost("hung")), False),
        (CPU_RUN, False),
        (replace(CPU_RUN, gpus=of(("NVIDIA H100",), "cu")), False),
        (on_gpu("smoke-quick"), True),
        (machines.host("h100"), True),
        (machines.host("bare"), False),
        (Audit("files"), False),
        (Placement("m", how="fake", operations=3, gpus=of((), "cu")), False),
    ],
)
def test_a_required_gpu_must_have_had_a_part(subject: Any, enough: bool) -> None:
    assert (required.without_gpu(subject) == ()) is enough


def test_each_part_must_have_had_a_gpu() -> None:
    seen = replace(TORCH, devices=of((Sm(9, 0),), "cu"))
    assert required.without_gpu(Audit("a"), seen, on_gpu("smoke-quick")) == ()
    assert [one.outcome for one in required.without_gpu(Audit("a"), seen, CPU_RUN)] == [Outcome.UNKNOWN]
    assert len(required.without_gpu(TORCH, CPU_RUN)) == 2


def test_a_gpu_on_which_nothing_was_computed_is_not_enough() -> None:
    """Tests that ran there and measured nothing."""
    run = on_gpu("smoke-quick")
    idle = replace(run, tests=of(tuple(replace(test, measures=()) for test in run.tests.value or ()), "suite"))
    assert required.covered(idle).gpus and not required.covered(idle).computed
    assert [one.outcome for one in required.without_gpu(idle)] == [Outcome.UNKNOWN]


def saved_as(folder: Path, kind: str, subject: object) -> Path:
    path = folder / f"{kind}.json"
    path.write_text(saved.text(kind, codec.to_plain(subject)))
    return path


def test_judge_requires_a_gpu_where_that_is_asked(envkit: Envkit, tmp_path: Path) -> None:
    path = saved_as(tmp_path, "smoke", CPU_RUN)
    plain, asked = envkit("judge", path), envkit("judge", path, "--require-gpu")
    assert (plain.code, asked.code) == (0, 3)
    assert plain.out.startswith("PASS on CPU: ")
    assert asked.out.startswith("UNDECIDED on CPU: ")
    assert "required-gpu: a GPU is required, and no test ran on one: no GPU was here" in " ".join(asked.out.split())


@pytest.mark.parametrize("words", [("probe",), ("smoke",), ("up",), ("preflight",)])
def test_a_required_gpu_and_none_exclude_one_another(envkit: Envkit, words: tuple[str, ...]) -> None:
    ended = envkit(*words, "--require-gpu", "--gpus", "none")
    assert ended.code == 2
    assert re.search("fix: (use only one of them|take out)", ended.err)


def test_a_saved_subject_keeps_what_was_asked_for(envkit: Envkit, tmp_path: Path) -> None:
    asked = replace(NO_FRAMEWORK, frameworks=jax(), frameworks_asked=("jax",))
    assert envkit("judge", saved_as(tmp_path, "image", asked)).code == 0
    assert envkit("judge", saved_as(tmp_path, "image", replace(asked, frameworks_asked=()))).code == 3


# A machine without a GPU, as its contract says.


def contract(folder: Path, text: str) -> Path:
    path = folder / "expect.toml"
    path.write_text(text)
    return path


NONE_HERE = Expected(gpus=ExpectedGpus(count=0))


def declared(machine: Host, what: Expected = NONE_HERE) -> Host:
    return replace(machine, expected=of(what, "declared"))


def test_doctor_is_green_where_no_gpu_belongs(envkit: Envkit, tmp_path: Path) -> None:
    path = saved_as(tmp_path, "host", machines.host("bare"))
    ended = envkit("doctor", "--from", path, "--expect", contract(tmp_path, "[gpus]\ncount = 0\n"))
    assert ended.code == 0, ended.out
    assert ended.out.startswith("PASS on files: ")
    assert "no GPU is here, as the contract says" in " ".join(ended.out.split())
    assert envkit("doctor", "--from", path).code == 1


@pytest.mark.parametrize(
    "parts",
    [
        ("nvml", "pci_gpus", "device_nodes"),
        ("pci_gpus",),
        ("driver_gpus",),
        ("device_nodes",),
        ("nvml",),
    ],
    ids=lambda parts: "+".join(parts),
)
def test_a_gpu_where_none_belongs_is_found_whoever_shows_it(parts: tuple[str, ...]) -> None:
    with_gpus = machines.host("h100")
    shown: dict[str, Any] = {name: getattr(with_gpus, name) for name in parts}
    said = {one.check: one.outcome for one in judge.judge(declared(replace(machines.host("bare"), **shown)), FACTS)}
    assert said["host-contract-gpus-mismatch"] is Outcome.FAIL


@pytest.mark.parametrize("name", ["nvml", "pci_gpus", "driver_gpus", "device_nodes"])
def test_that_no_gpu_is_here_needs_every_place(name: str) -> None:
    assert verdict(declared(machines.without(machines.host("bare"), name))) == 3


def test_a_build_host_with_a_driver_and_no_gpu_is_green() -> None:
    with_driver = machines.host("desk")
    parts: dict[str, Any] = {
        name: getattr(with_driver, name) for name in ("driver_libraries", "driver_packages", "toolkit", "cdi")
    }
    said = judge.judge(declared(replace(machines.host("bare"), **parts)), FACTS)
    assert Report(Subject("x", "x"), said).exit_code() == 0, [one for one in said if one.outcome is Outcome.FAIL]


def test_a_contract_can_require_a_gpu(envkit: Envkit, tmp_path: Path) -> None:
    wanted = contract(tmp_path, 'require = ["gpu"]\n')
    assert contracts.load(wanted, judge.checks()).require == ("gpu",)
    dark = saved_as(tmp_path, "host", machines.without(machines.host("h100"), "nvml"))
    ended = envkit("doctor", "--from", dark, "--expect", wanted, "--format", "json")
    assert ended.code == 3
    assert "required-gpu" in {one["check"] for one in json.loads(ended.out)["results"]}
    healthy = saved_as(tmp_path, "host", machines.host("h100"))
    assert envkit("doctor", "--from", healthy, "--expect", wanted).code == 0


@pytest.mark.parametrize("text", ['require = ["cpu"]\n', 'require = ["gpu"]\n[gpus]\ncount = 0\n'])
def test_a_contract_that_requires_nonsense_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"nothing to require|requires a GPU and says"):
        contracts.load(contract(tmp_path, text), judge.checks())


def test_the_report_of_a_machine_names_its_gpus() -> None:
    made, _ = doctor.report(machines.host("h100"), 0.0)
    assert len(made.coverage.gpus) == 8
    assert left(made.coverage) == "nothing was computed on a GPU"


# Before a launch.


@pytest.fixture
def flight(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Report]:
    """A preflight of this Python on a healthy machine, whose probe and smoke run give ``seen`` and ``ran``."""

    def fly(
        job: dict[str, Any], seen: Image, ran: SmokeRun, machine: str = "h100", level: str = "quick", **more: Any
    ) -> Report:
        def probed(*args: Any, **wishes: Any) -> Image:
            return replace(seen, frameworks_asked=wishes.get("frameworks", ()))

        monkeypatch.setattr(preflight, "observe_host", lambda **kind: machines.host(machine))
        monkeypatch.setattr(runner, "probe", probed)
        monkeypatch.setattr(runner, "smoke", lambda *args: ran)
        wish = preflight.PreflightRequest("", job_from(**job), level, **more)
        return preflight.run(wish, lambda: pytest.fail("no engine is needed"), (), lambda line: None)

    return fly


SEEN = replace(TORCH, devices=of((Sm(9, 0),), "cu"))


def gpu_results(made: Report) -> list[str]:
    return [one.reason for one in made.results if one.check == required.GPU]


def test_a_preflight_that_starts_something_needs_a_gpu(flight: Callable[..., Report]) -> None:
    ran = on_gpu("smoke-quick")
    assert gpu_results(flight({}, SEEN, ran)) == []
    assert flight({}, SEEN, ran).coverage.computed
    blind = flight({}, TORCH, CPU_RUN)
    assert len(gpu_results(blind)) == 2
    assert blind.exit_code() == 3
    half = flight({"gpus": "all"}, SEEN, CPU_RUN)
    assert len(gpu_results(half)) == 1
    assert half.exit_code() == 3


def test_a_job_that_gets_no_gpu_needs_none(flight: Callable[..., Report]) -> None:
    made = flight({"gpus": "none"}, TORCH, CPU_RUN)
    assert gpu_results(made) == []
    assert (made.exit_code(), made.coverage.gpus, made.coverage.no_gpu) == (0, (), NoGpu.JOB)
    assert flight({"gpus": "none"}, TORCH, CPU_RUN, machine="bare").exit_code() == 0


def test_the_level_passive_needs_a_gpu_only_if_that_is_asked(flight: Callable[..., Report]) -> None:
    assert gpu_results(flight({}, TORCH, CPU_RUN, machine="bare", level="passive")) == []
    assert gpu_results(flight({}, TORCH, CPU_RUN, machine="bare", level="passive", require_gpu=True))
    assert gpu_results(flight({}, TORCH, CPU_RUN, level="passive", require_gpu=True)) == []


def test_a_contract_without_gpus_is_a_preflight_without_gpus(flight: Callable[..., Report], tmp_path: Path) -> None:
    none_here = contract(tmp_path, "[gpus]\ncount = 0\n")
    wanted = contract(tmp_path / "..", 'require = ["gpu"]\n')
    assert gpu_results(flight({}, TORCH, CPU_RUN, machine="bare", expect=none_here)) == []
    assert gpu_results(flight({"gpus": "all"}, TORCH, CPU_RUN, machine="bare", expect=none_here))
    assert gpu_results(flight({}, TORCH, CPU_RUN, machine="bare", level="passive", expect=wanted))


def test_a_preflight_proves_the_framework_that_was_asked_for(flight: Callable[..., Report]) -> None:
    image = replace(NO_FRAMEWORK, frameworks=jax(), devices=of((Sm(9, 0),), "cu"))
    open_ones = {one.check for one in flight({}, image, on_gpu("smoke-quick")).results if one.reason}
    assert "required-image-framework" in open_ones
    asked = flight({}, image, on_gpu("smoke-quick"), frameworks=("jax",))
    assert "required-image-framework" not in {one.check for one in asked.results}


def test_a_contract_outranks_a_job_without_a_gpu(flight: Callable[..., Report], tmp_path: Path) -> None:
    wanted = contract(tmp_path, 'require = ["gpu"]\n')
    assert flight({"gpus": "none"}, TORCH, CPU_RUN, expect=wanted).exit_code() == 3


def test_judge_holds_a_saved_machine_to_the_contract_that_was_saved_with_it(envkit: Envkit, tmp_path: Path) -> None:
    needs_gpu = declared(machines.without(machines.host("h100"), "nvml"), Expected(require=("gpu",)))
    assert "required-gpu" in envkit("judge", saved_as(tmp_path, "host", needs_gpu)).out
    assert envkit("judge", saved_as(tmp_path, "host", declared(machines.host("bare")))).code == 0


def test_no_contract_waives_a_required_question(tmp_path: Path) -> None:
    for name in sorted(required.ids()):
        with pytest.raises(UsageError, match="does not exist"):
            contracts.load(contract(tmp_path, f'[checks]\nmay_be_unknown = ["{name}"]\n'), judge.checks())


def test_a_run_that_was_not_observed_stands_on_nothing() -> None:
    on = required.covered(SmokeRun("s"))
    assert (on.cpu, on.gpus, on.computed) == (False, (), False)
    assert required.covered(replace(CPU_RUN, tests=of((SmokeTest("gemm-exact", "cuda:0", "raised"),), "s"))).gpus == ()
