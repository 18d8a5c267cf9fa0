"""The checks of compiled extensions, beyond the examples of their pages: severities, doubts, and both subjects."""

from __future__ import annotations

from typing import Any

import answers
import pytest

from envkit.judging.judge import checks
from envkit.model import Observed, Outcome, Reason, Result, Severity
from envkit.subjects import Audit, Image
from envkit.subjects.audit import NO_TORCH, TorchFiles
from envkit.subjects.image import NO_PROMISE, ExpectedContents, Extension, TorchBuild
from envkit.subjects.imported import ImportEnd
from envkit.versions import Sm

CHECKS = checks()
ARCH, OTHER = "image-extension-arch-not-covered", "image-extension-other-cuda"


def extension(
    name: str = "_C.so",
    owner: str = "kernels",
    cudart: str = "libcudart.so.12",
    built_with: str = "12.4",
    sass: tuple[str, ...] = ("sm_80", "sm_90"),
    ptx: tuple[str, ...] = (),
    for_torch: bool = True,
) -> Extension:
    return Extension(f"/site/{owner}/{name}", owner, "1.0", cudart, built_with, sass, ptx, for_torch)


def promised(*gpus: str) -> Observed[ExpectedContents]:
    if not gpus:
        return Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE)
    return Observed.of(ExpectedContents("2.6.0", "12.4", (), tuple(map(Sm.parse, gpus))), "the image's label")


def here(*gpus: str) -> Observed[tuple[Sm, ...]]:
    return Observed.of(tuple(map(Sm.parse, gpus)), "cuDeviceGetAttribute")


TORCH = Observed.of(TorchBuild("2.6.0+cu124", "12.4", 90100, "2.21.5", ("sm_80",), "/site/torch"), "torch._C")


def image(*extensions: Extension, gpus: tuple[str, ...] = (), devices: Observed[Any] | None = None) -> Image:
    seen = here() if devices is None else devices
    return Image("x", torch=TORCH, extensions=Observed.of(extensions, "RECORD"), promise=promised(*gpus), devices=seen)


def audit(*extensions: Extension, gpus: tuple[str, ...] = (), given: tuple[str, ...] = ()) -> Audit:
    torch = Observed.of(TorchFiles("2.6.0+cu124", "12.4", "/site/torch"), "version.py")
    found = Observed.of(extensions, "RECORD")
    return Audit("x", torch=torch, extensions=found, promise=promised(*gpus), gpus_given=tuple(map(Sm.parse, given)))


def said(check: str, subject: Image | Audit) -> Result:
    return answers.judged(check, subject)


def severities(result: Result) -> list[Severity]:
    return [one.severity for one in result.findings]


@pytest.mark.parametrize(
    ("sass", "ptx", "gpu", "outcome"),
    [
        (("sm_80",), (), "sm_86", Outcome.PASS),
        (("sm_86",), (), "sm_80", Outcome.FAIL),
        (("sm_80",), (), "sm_90", Outcome.FAIL),
        ((), ("compute_80",), "sm_90", Outcome.PASS),
        ((), ("compute_90",), "sm_80", Outcome.FAIL),
        (("sm_90a",), ("compute_90a",), "sm_90", Outcome.PASS),
        (("sm_90a",), ("compute_90a",), "sm_100", Outcome.FAIL),
        (("sm_80",), (), "sm_87", Outcome.FAIL),  # an embedded GPU runs only code made for it
        (("sm_100f",), (), "sm_100", Outcome.PASS),
        (("sm_100f",), (), "sm_103", Outcome.UNKNOWN),
        (("sm_103f",), (), "sm_100", Outcome.FAIL),  # a family begins with the GPU it is named after
        (("sm_100f",), (), "sm_120", Outcome.FAIL),
    ],
)
def test_code_serves_a_gpu_as_torchs_does(
    sass: tuple[str, ...], ptx: tuple[str, ...], gpu: str, outcome: Outcome
) -> None:
    one = extension(sass=sass, ptx=ptx)
    assert said(ARCH, image(one, gpus=(gpu,))).outcome is outcome
    assert said(ARCH, image(one, devices=here(gpu))).outcome is outcome
    assert said(ARCH, audit(one, gpus=(gpu,))).outcome is outcome
    assert said(ARCH, audit(one, given=(gpu,))).outcome is outcome


def test_a_finding_names_the_file_the_gpu_and_who_said_so() -> None:
    (finding,) = said(ARCH, image(extension(ptx=("compute_90",)), gpus=("sm_75", "sm_90"))).findings
    assert finding.severity is Severity.ERROR and finding.where == "/site/kernels/_C.so"
    assert finding.message == "kernels 1.0 has no code for sm_75: _C.so is built for sm_80 sm_90 compute_90"
    assert finding.evidence["sm_75"] == "the image's label" and "TORCH_CUDA_ARCH_LIST=7.5" in finding.fix


def test_declared_and_present_gpus_are_both_judged() -> None:
    result = said(ARCH, image(extension(), gpus=("sm_90",), devices=here("sm_75")))
    assert [one.evidence["sm_75"] for one in result.findings] == ["cuDeviceGetAttribute"]


def test_which_gpus_are_here_may_stay_open_where_some_were_declared() -> None:
    lost: Observed[Any] = Observed.lost("the driver hung")
    assert said(ARCH, image(extension(), gpus=("sm_90",), devices=lost)).outcome is Outcome.PASS
    assert said(ARCH, image(extension(), devices=lost)).outcome is Outcome.UNKNOWN


def test_what_another_file_of_the_distribution_has_is_a_note() -> None:
    special = extension("_fa3_C.so", sass=("sm_90a",))
    result = said(ARCH, image(extension(), special, gpus=("sm_80",)))
    assert severities(result) == [Severity.NOTE] and "1 of 2 files of kernels 1.0" in result.findings[0].message
    strangers = said(ARCH, image(extension(), extension("_fa3_C.so", "other", sass=("sm_90a",)), gpus=("sm_80",)))
    assert severities(strangers) == [Severity.ERROR]
    unowned = (extension("a.so", ""), extension("b.so", "", sass=("sm_70",)))
    assert severities(said(ARCH, audit(*unowned, gpus=("sm_80",)))) == [Severity.ERROR]


def test_an_error_outranks_a_doubt_and_a_note_does_not() -> None:
    doubt = extension("f.so", "family", sass=("sm_100f",))
    assert said(ARCH, image(doubt, extension(), gpus=("sm_103",))).outcome is Outcome.FAIL
    note = (extension("a.so", sass=("sm_103",)), extension("b.so", sass=("sm_90",)))
    assert said(ARCH, image(doubt, *note, gpus=("sm_103",))).outcome is Outcome.UNKNOWN


def test_files_without_device_code_are_not_asked_for_it() -> None:
    host_only = extension("host.so", sass=(), ptx=())
    assert said(ARCH, image(host_only, gpus=("sm_90",))).outcome is Outcome.SKIP
    assert said(ARCH, image(host_only, extension(), gpus=("sm_90",))).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (extension(), []),
        (extension(cudart=""), []),
        (extension(built_with="13.0"), []),  # the runtime it needs decides, not the compiler
        (extension(cudart="libcudart.so.11.0"), [Severity.ERROR]),
        (extension(cudart="libcudart.so.13"), [Severity.ERROR]),
        (extension(cudart="libcudart-9335f6a2.so.11.0"), [Severity.ERROR]),
        (extension(cudart="libcudart.so.13", for_torch=False), [Severity.WARNING]),
        (extension(cudart="static"), [Severity.NOTE]),
        (extension(cudart="static", built_with="13.0"), [Severity.ERROR]),
        (extension(cudart="static", built_with="11.8", for_torch=False), [Severity.WARNING]),
        (extension(cudart="static", built_with="", sass=(), for_torch=False), [Severity.NOTE]),
    ],
)
def test_another_major_is_found(one: Extension, found: list[Severity]) -> None:
    for subject in (image(one, extension(owner="whole")), audit(one, extension(owner="whole"))):
        assert severities(said(OTHER, subject)) == found


def test_a_runtime_within_the_file_is_named_with_its_release() -> None:
    (finding,) = said(OTHER, image(extension(cudart="static", built_with="13.0"))).findings
    assert finding.message == (
        "_C.so of kernels 1.0 carries a CUDA runtime of its own, of CUDA 13.0, torch 2.6.0+cu124 is built for CUDA 12.4"
    )
    assert finding.evidence["13.0"] == "cubins of the file"


@pytest.mark.parametrize(
    "one", [extension(cudart="static", built_with=""), extension(cudart="libcudart.so", built_with="")]
)
def test_a_runtime_of_unknown_major_is_a_doubt(one: Extension) -> None:
    result = said(OTHER, image(one))
    assert result.outcome is Outcome.UNKNOWN and "_C.so of kernels 1.0" in result.reason


def test_one_file_for_each_cuda_is_no_fault() -> None:
    every = [
        extension(f"k{major}.so", cudart=f"libcudart.so.{major}", for_torch=False) for major in ("11.0", "12", "13")
    ]
    assert said(OTHER, image(*every)).outcome is Outcome.PASS
    assert severities(said(OTHER, image(every[0], every[2]))) == [Severity.WARNING, Severity.WARNING]


def test_no_torch_and_a_torch_without_cuda_are_skipped() -> None:
    absent = Image(
        "x", torch_import=Observed.of(ImportEnd("absent"), "import"), extensions=Observed.of((extension(),), "RECORD")
    )
    assert said(OTHER, absent).outcome is Outcome.SKIP
    bare = Audit(
        "x", torch=Observed.lost(NO_TORCH, reason=Reason.NO_TORCH), extensions=Observed.of((extension(),), "RECORD")
    )
    assert said(OTHER, bare).outcome is Outcome.SKIP
    cpu = TorchBuild("2.6.0+cpu", "", 0, "", (), "/site/torch")
    without = Image("x", torch=Observed.of(cpu, "torch._C"), extensions=Observed.of((extension(),), "RECORD"))
    assert said(OTHER, without).outcome is Outcome.SKIP
    assert said(OTHER, Image("x", extensions=Observed.of((extension(),), "RECORD"))).outcome is Outcome.UNKNOWN
