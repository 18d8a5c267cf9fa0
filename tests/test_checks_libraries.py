"""The checks of what a process binds, at the edges that no page shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import answers
import pytest

from envkit import facts
from envkit.judging.checks._torch import bound_copies
from envkit.model import Observed, Outcome, Reason, Result
from envkit.subjects import Image
from envkit.subjects.image import NO_PROMISE, Binding, ExpectedContents, Framework, Library, TorchBuild, Wheel
from envkit.subjects.imported import ImportEnd
from envkit.versions import Sm

FACTS = facts.load()


def image(*libraries: Library, **fields: Observed[Any]) -> Image:
    """An image with a torch for CUDA 12.4 that maps ``libraries``."""
    build = TorchBuild("2.6.0", "12.4", 90100, "2.21.5", ("sm_90",), "/t")
    seen: dict[str, Any] = {
        "torch_import": Observed.of(ImportEnd("done"), "import"),
        "torch": Observed.of(build, "torch"),
        "promise": Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE),
        "libraries": Observed.of(libraries, "maps"),
        "bindings": Observed.of((), "dlsym"),
        "wheels": Observed.of((), "METADATA"),
        "devices": Observed.of((), "no driver"),
        "frameworks": Observed.of((), "import"),
        **fields,
    }
    return replace(Image("small"), **seen)


def one(check: str, subject: Image) -> Result:
    return answers.judged(check, subject)


CUDART = (Library("cudart", "libcudart.so.12", "/own", "12.4"), Library("cudart", "libcudart.so.12", "/old", "11.8"))


@pytest.mark.parametrize(
    ("bindings", "paths"),
    [
        ((("process", "/old"), ("libtorch_cuda.so", "/own")), {"/own"}),
        ((("process", "/old"), ("extension.so", "/own")), {"/old"}),
        ((("extension.so", "/old"),), {"/own", "/old"}),
        ((("libtorch_cuda.so", "/own"), ("libc10_cuda.so", "/old")), {"/own", "/old"}),
        ((), {"/own", "/old"}),
    ],
)
def test_torchs_own_callers_say_what_torch_binds(bindings: tuple[tuple[str, str], ...], paths: set[str]) -> None:
    rows = tuple(Binding("cudart", "cudaMalloc", caller, path) for caller, path in bindings)
    subject = image(*CUDART, bindings=Observed.of(rows, "relocations"))
    assert {copy.path for copy in bound_copies(subject, "cudart")} == paths


@pytest.mark.parametrize(
    ("built_with", "outcome"), [("12.9", Outcome.PASS), ("13.0", Outcome.FAIL), ("", Outcome.UNKNOWN)]
)
def test_the_cuda_that_a_library_was_built_with_outranks_the_name_of_nobody(built_with: str, outcome: Outcome) -> None:
    cudnn = Library("cudnn", "libcudnn.so.9", "/usr/lib/libcudnn.so.9", "9.10.2", built_with=built_with)
    assert one("image-library-of-other-cuda", image(cudnn)).outcome is outcome


def test_a_wheels_name_does_not_hide_what_the_file_says() -> None:
    named = Library("nccl", "libnccl.so.2", "/n", "2.21.5", owner="nvidia-nccl-cu12", built_with="13.0")
    assert one("image-library-of-other-cuda", image(named)).outcome is Outcome.FAIL


def library(name: str, version: str) -> Library:
    return Library(name, f"lib{name}.so", f"/l/lib{name}.so", version)


TORCH_29 = Observed.of(TorchBuild("2.9.1+cu128", "12.8", 91002, "2.27.5", ("sm_90",), "/t"), "torch")
BLACKWELL = Observed.of((Sm(10, 0),), "driver")
TWO = Observed.of((Sm(9, 0), Sm(9, 0)), "driver")
# a subject for each row of known_bad, and the same one made sound
BAD: dict[str, tuple[Image, Image]] = {
    "cublas-tensor-memory": (
        image(library("cublas", "13.1.0"), devices=BLACKWELL),
        image(library("cublas", "13.2.0"), devices=BLACKWELL),
    ),
    "cudnn-reordered-enum": (
        image(library("cudnn", "9.10.0")),
        image(library("cudnn", "9.10.1")),
    ),
    "cudnn-plan-on-several-gpus": (
        image(library("cudnn", "9.10.0"), library("cublasLt", "12.9.1"), devices=TWO, torch=TORCH_29),
        image(library("cudnn", "9.8.0"), library("cublasLt", "12.8.4"), devices=TWO),
    ),
    "cudnn-cu13-incomplete": (
        image(library("c10", ""), wheels=Observed.of((Wheel("nvidia-cudnn-cu13", "9.20.0.48"),), "METADATA")),
        image(library("c10", ""), wheels=Observed.of((Wheel("nvidia-cudnn-cu13", "9.21.0.82"),), "METADATA")),
    ),
    "torch-conv3d-memory": (
        image(library("cudnn", "9.10.2"), torch=TORCH_29),
        image(library("cudnn", "9.15.1"), torch=TORCH_29),
    ),
}


def test_every_row_of_the_table_has_its_fault_and_its_twin_here() -> None:
    assert set(BAD) == {row.id for row in FACTS.known_bad}


@pytest.mark.parametrize("row", sorted(BAD))
def test_each_known_fault_is_found_and_its_twin_is_green(row: str) -> None:
    bad, sound = BAD[row]
    result = one("image-known-bad-combination", bad)
    assert any(row in finding.evidence for finding in result.findings), result
    assert one("image-known-bad-combination", sound).outcome is Outcome.PASS


def test_declared_gpus_count_as_present_ones() -> None:
    promise = Observed.of(ExpectedContents("2.6.0", "12.4", (), (Sm(10, 0),)), "label")
    subject = image(library("cublas", "12.9.0"), promise=promise, devices=Observed.lost("the driver died"))
    assert one("image-known-bad-combination", subject).outcome is Outcome.FAIL


def test_an_openmp_runtime_that_a_package_brings_is_found_beside_torchs() -> None:
    gomp, copy = library("gomp", ""), Library("gomp", "libgomp.so.1", "/s/libgomp.so.1")
    intel = Library("iomp5", "libiomp5.so", "/i/libiomp5.so")
    for more, outcome in (((copy,), Outcome.PASS), ((intel,), Outcome.FAIL), ((), Outcome.PASS)):
        package = Framework("xformers", "1", "done", libraries=more)
        subject = image(gomp, frameworks=Observed.of((package,), "import"))
        assert one("image-openmp-twice", subject).outcome is outcome
    assert one("image-library-twice", image(library("c10", ""), gomp, copy)).outcome is Outcome.PASS
