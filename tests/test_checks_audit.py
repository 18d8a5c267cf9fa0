"""The audit's checks at their edges; each page shows its fault and its twin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import answers
import pytest

from envkit.model import Observed, Outcome, Reason, Result, Severity
from envkit.subjects import Audit
from envkit.subjects.audit import (
    NO_TORCH,
    Copy,
    DeviceCode,
    DriverFile,
    Edge,
    Secret,
    SharedObject,
    TorchFiles,
    UnresolvedRequirement,
)
from envkit.subjects.image import NO_PROMISE, CudnnSet, ExpectedContents, Overwritten, Requirement, Variable, Wheel
from envkit.versions import Sm

SITE = "/opt/venv/lib/python3.11/site-packages"
MODULE = f"{SITE}/torch/_C.cpython-311-x86_64-linux-gnu.so"


def seen(value: Any) -> Observed[Any]:
    return Observed.of(value, "read")


BARE = Audit(
    "a",
    platform=seen("x86_64"),
    python=seen("3.11.2"),
    torch=seen(TorchFiles("2.6.0+cu124", "12.4", f"{SITE}/torch")),
    code=seen(DeviceCode(f"{SITE}/torch/lib/libtorch_cuda.so", ("sm_80", "sm_90"), ())),
    promise=Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE),
    objects=seen(()),
    unmet=seen(()),
    variables=seen(()),
    copies=seen(()),
    drivers=seen(()),
)


def said(check: str, audit: Audit) -> Result:
    return answers.judged(check, audit)


def shared(
    name: str, owner: str = "torch", *edges: Edge, reached: str = MODULE, others_load: bool = False
) -> SharedObject:
    kind = "wheel" if owner else ""
    path = f"{SITE}/{name}" if owner else f"/opt/x/{name}"
    family = "cudnn_ops" if "cudnn_ops" in name else "torch_cuda" if "torch_cuda" in name else ""
    return SharedObject(path, name.rpartition("/")[2], family, owner, "1", kind, reached, edges, others_load)


TORCH = SharedObject(MODULE, "", "", "torch", "1", "wheel", MODULE)
GONE = Edge("libcublas.so.12", "", "", error="not found", family="cublas")
ODD = Edge("libsox.so", "", "", error="not found")


@pytest.mark.parametrize(
    ("one", "severity"),
    [
        (shared("torch/lib/libtorch_cuda.so", "torch", GONE), Severity.ERROR),
        (shared("torch/lib/libtorch_cuda.so", "torch", ODD, others_load=True), Severity.ERROR),
        # torch opens this one itself, at the first call that needs it
        (shared("torch/lib/libtorch_cuda_linalg.so", "torch", GONE, reached=""), Severity.ERROR),
        (shared("torch/lib/libplugin.so", "torch", ODD, reached=""), Severity.NOTE),
        (shared("x/_x.so", "x", ODD, reached=f"{SITE}/x/_x.so"), Severity.ERROR),
        (shared("x/_x.so", "x", ODD, reached=f"{SITE}/x/_x.so", others_load=True), Severity.NOTE),
        (shared("x/plugin.so", "x", GONE, reached=""), Severity.NOTE),
    ],
)
def test_a_missing_library_weighs_as_what_needs_it(one: SharedObject, severity: Severity) -> None:
    (finding,) = said("audit-library-unresolved", replace(BARE, objects=seen((TORCH, one)))).findings
    assert finding.severity is severity and finding.where == one.path


def test_a_library_that_lies_elsewhere_may_have_been_loaded_before() -> None:
    asking = shared("x/_x.so", "x", GONE, reached=f"{SITE}/x/_x.so")
    there = SharedObject(f"{SITE}/nvidia/cublas/lib/libcublas.so.12", "libcublas.so.12", "cublas", "nvidia-cublas-cu12")
    own = replace(there, owner="x")  # which packages do that open it by path before
    (finding,) = said("audit-library-unresolved", replace(BARE, objects=seen((asking, own)))).findings
    assert finding.severity is Severity.NOTE
    (finding,) = said("audit-library-unresolved", replace(BARE, objects=seen((asking, there)))).findings
    assert finding.severity is Severity.NOTE and "no search leads to it" in finding.message


@pytest.mark.parametrize(
    ("reached", "symbol", "severity"),
    [
        (MODULE, "_ZN3c101xE", Severity.ERROR),
        ("", "_ZN3c101xE", Severity.ERROR),  # opened by torch.ops.load_library
        (MODULE, "__nvJitLinkAddData_12_4", Severity.ERROR),
        ("", "__nvJitLinkAddData_12_4", Severity.WARNING),
    ],
)
def test_unmet_symbols_that_no_import_meets_are_a_warning(reached: str, symbol: str, severity: Severity) -> None:
    one = UnresolvedRequirement("/x.so", "x", "/libc10.so", "symbol", (symbol,), 1, "", reached)
    found = replace(BARE, unmet=seen((one,)), objects=seen((TORCH,)))
    (finding,) = said("audit-unresolved-symbol", found).findings
    assert finding.severity is severity and f"{symbol}, which /libc10.so" in finding.message
    assert said("audit-system-library-too-old", found).outcome is Outcome.UNKNOWN  # the C library was not observed


def test_a_cudnn_that_nothing_binds_is_a_warning() -> None:
    sets = seen((CudnnSet("/opt/cudnn", "", "", ("libcudnn_ops.so.9",), ("libcudnn_ops.so.9",)),))
    (finding,) = said("audit-cudnn-incomplete", replace(BARE, cudnn=sets)).findings
    assert finding.severity is Severity.WARNING and "(no package)" in finding.message


def test_named_and_promised_gpus_are_judged_alike() -> None:
    promise = ExpectedContents("2.6.0", "12.4", (), (Sm(7, 5), Sm(8, 6)))
    audit = replace(BARE, gpus_given=(Sm(12, 0), Sm(9, 0)), promise=Observed.of(promise, "label"))
    findings = said("audit-arch-not-covered", audit).findings
    assert [finding.message.split(":")[0].rpartition(" ")[2] for finding in findings] == ["sm_75", "sm_120"]
    assert said("audit-arch-not-covered", replace(audit, code=Observed.lost("damaged"))).outcome is Outcome.UNKNOWN
    assert (
        said("audit-arch-not-covered", replace(audit, torch=Observed.lost(NO_TORCH, reason=Reason.NO_TORCH))).outcome
        is Outcome.SKIP
    )


def test_a_foreign_object_may_bind_what_it_likes() -> None:
    """What no wheel brought is not held to the wheels' libraries; what a wheel brought, and no import loads, less."""
    ops, stray = shared("nvidia/cudnn/lib/libcudnn_ops.so.9", "nvidia-cudnn-cu12"), "/opt/x/libcudnn_ops.so.9"
    binds = Edge("libcudnn_ops.so.9", stray, "LD_LIBRARY_PATH", "dlopen", "", "cudnn_ops")
    foreign = shared("libcudnn.so.9", "", binds)
    assert said("audit-library-shadowed", replace(BARE, objects=seen((ops, foreign)))).outcome is Outcome.PASS
    for reached, severity in ((MODULE, Severity.ERROR), ("", Severity.WARNING)):
        own = shared("nvidia/cudnn/lib/libcudnn.so.9", "nvidia-cudnn-cu12", binds, reached=reached)
        (finding,) = said("audit-library-shadowed", replace(BARE, objects=seen((ops, own)))).findings
        assert finding.severity is severity and "from /opt/x, by LD_LIBRARY_PATH" in finding.message


def test_what_is_twice_is_counted_without_the_copy_that_stays() -> None:
    copies = (
        Copy("cublas", "/w/libcublas.so.12", 3_000_000_000, "wheel"),
        Copy("cublas", "/w2/libcublas.so.12", 1, "wheel"),
        Copy("cublas", "/usr/local/cuda/lib64/libcublas.so.12", 1_000_000_000, "libcublas-12-4"),
        Copy("cufft", "/usr/local/cuda/lib64/libcufft.so.11", 9, "libcufft-12-4"),
    )
    (finding,) = said("audit-cuda-twice", replace(BARE, copies=seen(copies))).findings
    assert finding.message.startswith("1 CUDA library is in the image more than once, 1.00 GB in all: cublas from")
    assert said("audit-cuda-twice", replace(BARE, copies=seen((copies[0], *copies[3:])))).outcome is Outcome.PASS


def test_a_compat_driver_is_a_note_where_only_data_center_gpus_are_meant() -> None:
    one = DriverFile("/usr/local/cuda/compat/libcuda.so.560.35.03", "compat", "LD_LIBRARY_PATH", "")
    audit = replace(BARE, drivers=seen((one,)))
    for gpus, severity in (
        ((), Severity.WARNING),
        ((Sm(9, 0),), Severity.NOTE),
        ((Sm(9, 0), Sm(8, 6)), Severity.WARNING),
        ((Sm(3, 0),), Severity.WARNING),  # of which no product is known
    ):
        (finding,) = said("audit-compat-registered", replace(audit, gpus_given=gpus)).findings
        assert finding.severity is severity


def test_a_credential_found_is_certain_whatever_could_not_be_read() -> None:
    audit = replace(BARE, secrets=seen((Secret("/x", "a private key"),)), unread=seen(("/root: Permission denied",)))
    result = said("audit-secret-inside", audit)
    assert (result.outcome, result.findings[0].message) == (Outcome.FAIL, "/x holds a private key")


@pytest.mark.parametrize(
    ("change", "outcome", "severity"),
    [
        ({"gpus_given": (Sm(9, 0),)}, Outcome.FAIL, Severity.ERROR),
        ({"promise": Observed.of(ExpectedContents("2.6.0", "12.4", ()), "label")}, Outcome.FAIL, Severity.ERROR),
        ({"promise": Observed.of(ExpectedContents("2.6.0", "", ()), "label")}, Outcome.SKIP, None),
        ({"copies": seen((Copy("cublas", "/x", 1, "wheel"),))}, Outcome.FAIL, Severity.WARNING),
        ({"variables": seen((Variable("NVIDIA_VISIBLE_DEVICES", "all"),))}, Outcome.FAIL, Severity.WARNING),
        ({"variables": seen((Variable("LD_LIBRARY_PATH", "/x"),))}, Outcome.SKIP, None),
        ({}, Outcome.SKIP, None),
    ],
)
def test_a_torch_without_cuda_is_wrong_where_a_gpu_is_wanted(
    change: dict[str, Any], outcome: Outcome, severity: Severity | None
) -> None:
    result = said("audit-cpu-torch", replace(BARE, torch=seen(TorchFiles("2.6.0+cpu", "", "/t")), **change))
    assert result.outcome is outcome
    assert [finding.severity for finding in result.findings] == ([severity] if severity else [])


def test_the_images_checks_of_wheels_judge_an_audit_too() -> None:
    wheels = (Wheel("nvidia-nccl-cu12", "2.20.5"), Wheel("torch", "2.6.0"))
    audit = replace(
        BARE,
        wheels=seen(wheels),
        requires=seen((Requirement("torch", "2.6.0", "nvidia-nccl-cu12==2.21.5; platform_machine == 'x86_64'"),)),
        overwritten=seen((Overwritten(f"{SITE}/libnccl.so.2", ("nvidia-nccl-cu12==2.20.5",), "none of their hashes"),)),
        promise=Observed.of(
            ExpectedContents("2.6.0", "12.4", (Wheel("nvidia-nccl-cu12", "2.21.5"), wheels[1])), "label"
        ),
        objects=seen((shared("nvidia/nccl/lib/libnccl.so.2", "nvidia-nccl-cu12"),)),
    )
    for check, words in (
        ("image-torch-requirement-not-met", f"requires nvidia-nccl-cu12==2.21.5 and 2.20.5 is installed, with {SITE}"),
        ("image-wheels-not-locked", "nvidia-nccl-cu12 2.21.5 is locked and 2.20.5 is installed"),
        ("image-files-overwritten", "libnccl.so.2 is not what its wheel brought"),
    ):
        assert words in said(check, audit).findings[0].message
