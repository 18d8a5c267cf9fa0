"""The image checks replayed on recorded images, each fault beside its twin, and on small subjects at the edges."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import answers
import pytest
from gathered import gathered

from envkit import facts
from envkit.judging import judge
from envkit.judging.checks._torch import pin_of
from envkit.model import Observed, Outcome, Reason, Result, Severity
from envkit.subjects import Image, codec
from envkit.subjects.image import (
    NO_PROMISE,
    NO_RECORD,
    Binding,
    ExpectedContents,
    Framework,
    LateLoad,
    Library,
    Overwritten,
    Requirement,
    TorchBuild,
    Wheel,
)
from envkit.subjects.imported import ImportEnd
from envkit.versions import Sm

DATA = Path(__file__).parent / "data" / "image"
SITE = "/opt/venv/lib/python3.11/site-packages"
HEALTHY = ("torch-2.6-cu124", "torch-2.15-cu132")


def recorded(name: str) -> Image:
    return codec.from_plain(Image, json.loads((DATA / f"{name}.json").read_text()))


# What is asked of torch and its libraries; the checks of driver, toolchain and extensions have tests of their own.
MODULES = {f"envkit.judging.checks.{name}" for name in ("image", "libraries", "frameworks")}
CHECKS = frozenset(name for name, check in judge.checks().items() if check.judge.__module__ in MODULES)


def results(image: Image) -> dict[str, Result]:
    return {result.check: result for result in judge.judge(image, facts.load(), CHECKS)}


def one(check: str, image: Image) -> Result:
    return answers.judged(check, image)


def message(check: str, image: Image) -> str:
    result = one(check, image)
    assert result.outcome is Outcome.FAIL, result
    return result.findings[0].message


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_torch_passes_every_check_whatever_versions_it_holds(name: str) -> None:
    said = results(recorded(name))
    assert {result.outcome for result in said.values()} == {Outcome.PASS, Outcome.SKIP}
    skipped = {check.removeprefix("image-") for check, result in said.items() if result.outcome is Outcome.SKIP}
    assert skipped == {name for name, _ in LACKS}
    assert len(said) == 29


def test_the_healthy_newest_torch_really_holds_many_cuda_versions() -> None:
    versions = {lib.version for lib in recorded("torch-2.15-cu132").libraries.need("libraries") if lib.owner != "torch"}
    assert {"13.2", "13.5", "13.4.1", "12.7.10", "12.2.0"} <= versions


def test_an_image_without_torch_is_skipped_throughout() -> None:
    assert {result.outcome for result in results(recorded("no-torch")).values()} == {Outcome.SKIP}


@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        (
            "torch-2.6-cudnn-8",
            "image-cudnn-older-than-build",
            ("8.9.2.26", "9.1.0.70", f"{SITE}/nvidia/cudnn/lib/libcudnn.so.8"),
        ),
        (
            "torch-2.6-cudnn-8",
            "image-torch-requirement-not-met",
            ("8.9.2.26", "==9.1.0.70", f"{SITE}/nvidia/cudnn/lib/libcudnn.so.8"),
        ),
        ("torch-2.6-cudnn-8", "image-wheels-not-locked", ("nvidia-cudnn-cu12", "8.9.2.26", "9.1.0.70")),
        ("torch-2.6-cudnn-8", "image-torch-import-fails", ("ImportError", "libcudnn.so.9")),
        (
            "torch-2.6-cudnn-9.0",
            "image-cudnn-older-than-build",
            ("9.0.0", "9.1.0", f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"),
        ),
        (
            "torch-2.15-nccl-cu12",
            "image-files-overwritten",
            ("nvidia-nccl-cu12==2.20.5", "nvidia-nccl-cu13==2.30.7", f"{SITE}/nvidia/nccl/lib/libnccl.so.2"),
        ),
        (
            "torch-2.15-nccl-cu12",
            "image-nccl-older-than-build",
            ("2.20.5", "2.30.7", f"{SITE}/nvidia/nccl/lib/libnccl.so.2"),
        ),
        ("torch-2.15-nccl-cu12", "image-wheels-not-locked", ("nvidia-nccl-cu12", "2.20.5", "not locked")),
        ("torch-2.6-cudnn-mixed", "image-cudnn-mixed", ("9.1.0.70", "9.5.1", "/opt/other", SITE)),
        (
            "torch-2.6-cudart-preloaded",
            "image-cudart-mismatch",
            ("12.1", "12.4", "/opt/other/", "libcudart"),
        ),
        (
            "torch-2.6-cublaslt-older",
            "image-cublas-mismatch",
            ("12.4.5.8", "12.1.3", "/opt/other/libcublasLt.so.12"),
        ),
        ("torch-2.6-cublaslt-older", "image-library-from-elsewhere", ("nvidia-cublas-cu12", "/opt/other/")),
        ("torch-2.6-cudart-preloaded", "image-library-from-elsewhere", ("nvidia-cuda-runtime-cu12", "/opt/other/")),
        (
            "torch-2.15-cudart-twice",
            "image-library-twice",
            ("/opt/other/libcudart.so.13", SITE, "libtorch_cuda.so and 6 others bind"),
        ),
    ],
)
def test_a_recorded_fault_is_named_with_library_path_and_versions(
    name: str, check: str, words: tuple[str, ...]
) -> None:
    text = message(check, recorded(name))
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("*.json") if path.stem not in HEALTHY))
def test_no_recorded_fault_is_green_and_no_check_breaks_on_it(name: str) -> None:
    said = results(recorded(name))
    assert Outcome.CRASHED not in {result.outcome for result in said.values()}
    if name != "no-torch":
        assert Outcome.FAIL in {result.outcome for result in said.values()}


def test_a_second_major_beside_torchs_own_is_a_warning_and_says_which_one_torch_binds() -> None:
    (finding,) = one("image-library-twice", recorded("torch-2.15-two-majors")).findings
    assert finding.severity.name == "WARNING"
    assert f"libtorch_cuda.so and 5 others bind {SITE}/nvidia/cu13/lib/libcudart.so.13" in finding.message
    assert "process binds /opt/other/libcudart.so.12" in finding.message


def test_the_evidence_says_how_the_library_came_in() -> None:
    (finding,) = one("image-cudart-mismatch", recorded("torch-2.6-cudart-preloaded")).findings
    assert any("LD_PRELOAD" in how for how in finding.evidence.values())
    (finding,) = one("image-cudnn-mixed", recorded("torch-2.6-cudnn-mixed")).findings
    assert sum("LD_LIBRARY_PATH" in how for how in finding.evidence.values()) == 7


# Each field taken away in turn, and the checks that then do not know; all others judge by what they saw.
BOUND = {
    "cublas-mismatch",
    "cudart-mismatch",
    "cudnn-mixed",
    "cudnn-older-than-build",
    "cupti-crashes",
    "library-from-elsewhere",
    "library-of-other-cuda",
    "library-older-than-pinned",
    "nccl-older-than-build",
    "nvrtc-builtins-mismatch",
}
LACKS = {  # no GPU was given, there is no driver, and no framework
    (name, Outcome.SKIP)
    for name in (
        "gpu-not-seen",
        "cupti-crashes",
        "framework-broken",
        "framework-built-for-other-torch",
        "framework-library-clash",
        "framework-without-gpu",
    )
}
FRAMEWORKS = {
    "framework-broken",
    "framework-built-for-other-torch",
    "framework-library-clash",
    "framework-without-gpu",
}
REQUIRED = {"library-from-elsewhere", "library-older-than-pinned", "torch-requirement-not-met"}
MAPPED = {"known-bad-combination", "library-twice", "openmp-twice", "torch-differs-from-lock"}
INSTALLED = {
    "files-overwritten",
    "frameworks-twice",
    "library-from-elsewhere",
    "torch-requirement-not-met",
    "torch-newer-than-facts",
    "packages-added",
    "wheels-not-locked",
}
TORCH = BOUND | {"arch-not-covered", "known-bad-combination", "torch-differs-from-lock"}
NEEDED = {
    "torch_import": TORCH | {"library-twice", "openmp-twice", "torch-import-fails"},
    "torch": TORCH,
    "libraries": BOUND | MAPPED,
    "late": {"cudnn-mixed"},
    "wheels": INSTALLED | {"known-bad-combination"},
    "requires": REQUIRED,
    "python": REQUIRED,
    "platform": REQUIRED,
    "libc": set(),
    "unmapped": set(),  # names files in messages, and the builtins beside an NVRTC where none is mapped
    "bindings": {"library-from-elsewhere"},  # the others judge every mapped copy without them
    "devices": set(),  # the declared GPUs are judged
    "overwritten": {"files-overwritten"},
    "promise": {
        "arch-not-covered",
        "lock-not-fully-pinned",
        "packages-added",
        "torch-differs-from-lock",
        "wheels-not-locked",
    },
    "frameworks": FRAMEWORKS | {"openmp-twice"},
    "cudnn": {"cudnn-incomplete"},
    **{field: set() for field in ("variables", "driver", "toolkits", "compiler", "assemblers", "extensions")},
    **{field: set() for field in ("search", "modules", "closed", "preloads", "debian", "content")},  # their pages
    **{field: set() for field in ("process", "start", "abilities")},  # tests/test_start.py, and their pages
}


def not_green(image: Image) -> dict[str, Outcome]:
    """The checks that do not pass, without their common prefix and those that skip what a healthy image lacks."""
    said = {check.removeprefix("image-"): result.outcome for check, result in results(image).items()}
    return {name: end for name, end in said.items() if end is not Outcome.PASS and (name, end) not in LACKS}


@gathered(product(HEALTHY, sorted(NEEDED)))
def test_what_was_not_observed_is_unknown_and_never_a_pass(name: str, field: str) -> None:
    gone: dict[str, Any] = {field: Observed.lost("the probe died")}
    needed = NEEDED[field] | ({"nvrtc-builtins-mismatch"} if (field, name) == ("unmapped", HEALTHY[0]) else set())
    assert not_green(replace(recorded(name), **gone)) == dict.fromkeys(needed, Outcome.UNKNOWN)


def test_every_observed_field_is_taken_away_once() -> None:
    ours = {"name", "digest", "gpus_given", "frameworks_asked", "engine", "newer_fields"}
    assert set(NEEDED) == {field.name for field in fields(Image)} - ours


# Each list emptied in turn, as of a probe that saw nothing and says so: whoever compared with it must not pass.
EMPTIED = {
    "libraries": (BOUND | MAPPED) - {"cupti-crashes"},
    "late": {"cudnn-mixed"},
    "wheels": INSTALLED,
    "requires": REQUIRED,
    "cudnn": {"cudnn-incomplete"},
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("field", sorted(EMPTIED))
def test_a_list_that_came_empty_leaves_nothing_green_that_needs_it(name: str, field: str) -> None:
    emptied: dict[str, Any] = {field: Observed.of((), "an empty list")}
    assert set(not_green(replace(recorded(name), **emptied))) == EMPTIED[field]


# Each family of libraries taken away in turn.
FAMILIES = {
    "cudart": {"cudart-mismatch"},
    "cudnn": {"cudnn-older-than-build"},
    "nccl": {"nccl-older-than-build"},
    "cublas": {"cublas-mismatch"},
    "every": (BOUND | MAPPED) - {"cupti-crashes"},
    "torch": {"torch-differs-from-lock"},
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_library_that_was_not_seen_is_no_pass(name: str, family: str) -> None:
    image = recorded(name)
    gone = {"every": {""}, "torch": {"torch_cpu", "c10"}}.get(family, {family})
    left = tuple(lib for lib in image.libraries.need("libraries") if lib.name not in gone and "" not in gone)
    assert set(not_green(replace(image, libraries=Observed.of(left, "maps")))) == FAMILIES[family]


@pytest.mark.slow  # everything is judged once for each wheel
@pytest.mark.parametrize("name", HEALTHY)
def test_each_wheel_that_was_not_seen_is_no_pass(name: str) -> None:
    image = recorded(name)
    wheels = image.wheels.need("wheels")
    for gone in image.promise.need("promise").wheels:
        left = Observed.of(tuple(wheel for wheel in wheels if wheel.name != gone.name), "metadata")
        assert "wheels-not-locked" in not_green(replace(image, wheels=left)), gone


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("version", "", "torch-differs-from-lock"),
        ("cuda", "", "torch-differs-from-lock"),
        ("cudnn", 0, "cudnn-older-than-build"),
        ("nccl", "", "nccl-older-than-build"),
        ("archs", (), "arch-not-covered"),
    ],
)
@pytest.mark.parametrize("name", HEALTHY)
def test_each_part_of_torchs_build_that_is_empty_is_no_pass(name: str, field: str, value: Any, check: str) -> None:
    image = recorded(name)
    changed: dict[str, Any] = {field: value}
    assert check in not_green(replace(image, torch=Observed.of(replace(image.torch.need("t"), **changed), "torch")))


def test_a_second_torch_of_the_same_version_is_told_by_the_files_that_are_mapped() -> None:
    image = recorded("torch-2.6-cu124")
    libs = tuple(
        replace(lib, path=lib.path.replace(SITE, "/src"), owner="", owner_version="") if lib.owner == "torch" else lib
        for lib in image.libraries.need("libraries")
    )
    second = replace(image, libraries=Observed.of(libs, "maps"))
    assert "/src/torch/lib/" in message("image-torch-differs-from-lock", second)
    unlocked = replace(image.promise.need("p"), wheels=(), whole=False)  # the base brought its own torch
    assert (
        one("image-torch-differs-from-lock", replace(second, promise=Observed.of(unlocked, "l"))).outcome
        is Outcome.PASS
    )


@pytest.mark.parametrize(("whole", "outcome"), [(False, Outcome.SKIP), (True, Outcome.FAIL)])
def test_a_lock_without_wheels_proves_nothing(whole: bool, outcome: Outcome) -> None:
    empty = Observed.of(ExpectedContents("", "", (), whole=whole), "label")
    assert one("image-wheels-not-locked", replace(recorded("torch-2.6-cu124"), promise=empty)).outcome is outcome
    bare = image(promise=empty, wheels=Observed.of((Wheel("pip", "1"),), "metadata"))
    assert one("image-wheels-not-locked", bare).outcome is Outcome.SKIP


def test_a_wheel_that_is_installed_twice_is_judged_twice() -> None:
    lines = Observed.of((Requirement("torch", "2.6.0", "nvidia-cudnn-cu12 (==9.1.0.70)"),), "METADATA")
    both = tuple(Wheel("nvidia-cudnn-cu12", version) for version in ("9.1.0.70", "8.9.2.26"))
    found = image(requires=lines, wheels=Observed.of((Wheel("torch", "2.6.0"), *both), "metadata"))
    assert "8.9.2.26 is installed" in message("image-torch-requirement-not-met", found)


def test_torch_without_a_record_cannot_be_compared() -> None:
    bare = Overwritten("/usr/lib/python3/dist-packages", ("torch==2.6.0",), NO_RECORD)
    gone = Overwritten("/s/libnccl.so.2", ("nvidia-nccl-cu12==2",), "the file is missing")
    changed = Overwritten("/s/libnccl.so.2", ("nvidia-nccl-cu12==2",), "none of their hashes")
    wheels = Observed.of((Wheel("torch", "2.6.0"),), "metadata")
    for files, outcome in (((bare,), "unknown"), ((bare, gone), "unknown"), ((bare, changed), "fail")):
        found = image(overwritten=Observed.of(files, "RECORD"), wheels=wheels)
        assert one("image-files-overwritten", found).outcome == outcome


def test_a_gpu_at_hand_is_judged_beside_the_declared_ones() -> None:
    found = image(promise=promised(gpus=(Sm(9, 0),)), devices=Observed.of((Sm(12, 0),), "driver"))
    assert "no code for sm_120" in message("image-arch-not-covered", found)


@pytest.mark.parametrize(
    ("given", "seen", "outcome"),
    [
        ((), (), Outcome.SKIP),
        (("all",), (Sm(9, 0),), Outcome.PASS),
        (("all",), (), Outcome.FAIL),
        (("0", "1"), (Sm(9, 0),), Outcome.FAIL),
        (("all",), None, Outcome.UNKNOWN),
    ],
)
def test_gpus_that_were_given_must_be_seen(
    given: tuple[str, ...], seen: tuple[Sm, ...] | None, outcome: Outcome
) -> None:
    devices: Observed[Any] = Observed.lost("803") if seen is None else Observed.of(seen, "driver")
    found = replace(recorded("torch-2.6-cu124"), devices=devices, gpus_given=given)
    assert one("image-gpu-not-seen", found).outcome is outcome


def build(cuda: str = "12.4", archs: tuple[str, ...] = ("sm_80", "sm_90"), cudnn: int = 90100) -> TorchBuild:
    return TorchBuild("2.6.0", cuda, cudnn, "2.21.5", archs, "/t")


def image(**fields: Observed[Any]) -> Image:
    seen: dict[str, Any] = {
        "torch_import": Observed.of(ImportEnd("done"), "import"),
        "torch": Observed.of(build(), "torch"),
        "promise": Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE),
        "bindings": Observed.of((), "dlsym"),
        "late": Observed.of((LateLoad("cudnnGraphVersionCheck"),), "dlopen"),
        "python": Observed.of("3.11.7", "t"),
        "platform": Observed.of("x86_64", "t"),
        **fields,
    }
    return replace(Image("small"), **seen)


def libraries(*found: Library) -> Observed[Any]:
    return Observed.of(tuple(found), "maps")


def promised(**fields: Any) -> Observed[Any]:
    return Observed.of(replace(ExpectedContents("2.6.0", "12.4", ()), **fields), "label")


@pytest.mark.parametrize(
    ("has", "outcome"),
    [
        ("12.4", Outcome.PASS),
        ("12.9", Outcome.PASS),
        ("12.1", Outcome.FAIL),
        ("13.0", Outcome.FAIL),
        ("11.8", Outcome.FAIL),
    ],
)
def test_cudart_may_be_newer_within_the_major_only(has: str, outcome: Outcome) -> None:
    found = image(libraries=libraries(Library("cudart", "libcudart.so.12", "/a", has)))
    assert one("image-cudart-mismatch", found).outcome is outcome


@pytest.mark.parametrize(
    ("has", "outcome"),
    [
        ("9.1.0", Outcome.PASS),
        ("9.1.9", Outcome.PASS),
        ("9.26.0", Outcome.PASS),
        ("9.0.9", Outcome.FAIL),
        ("8.9.7", Outcome.FAIL),
        ("10.2.0", Outcome.FAIL),
        ("", Outcome.UNKNOWN),
    ],
)
def test_cudnn_needs_the_same_major_and_no_older_minor(has: str, outcome: Outcome) -> None:
    found = image(libraries=libraries(Library("cudnn", "libcudnn.so.9", "/a", has)))
    assert one("image-cudnn-older-than-build", found).outcome is outcome


@pytest.mark.parametrize(
    ("has", "outcome"),
    [("2.21.5", Outcome.PASS), ("2.21.1", Outcome.PASS), ("2.30.7", Outcome.PASS), ("2.20.5", Outcome.FAIL)],
)
def test_nccl_may_be_newer(has: str, outcome: Outcome) -> None:
    found = image(libraries=libraries(Library("nccl", "libnccl.so.2", "/a", has)))
    assert one("image-nccl-older-than-build", found).outcome is outcome


def test_only_the_bound_copy_of_two_is_compared_with_the_build() -> None:
    old, own = (
        Library("cudart", "libcudart.so.12", "/old", "12.1"),
        Library("cudart", "libcudart.so.12", "/own", "12.4"),
    )
    bound = {
        path: image(
            libraries=libraries(old, own),
            bindings=Observed.of((Binding("cudart", "cudaRuntimeGetVersion", "libtorch_cuda.so", path),), "dladdr"),
        )
        for path in ("/old", "/own")
    }
    assert one("image-cudart-mismatch", bound["/old"]).outcome is Outcome.FAIL
    assert one("image-cudart-mismatch", bound["/own"]).outcome is Outcome.PASS
    assert one("image-library-twice", bound["/own"]).outcome is Outcome.FAIL


def test_a_cudnn_whose_parts_could_not_be_loaded_is_unknown() -> None:
    shim = libraries(Library("cudnn", "libcudnn.so.9", "/d/libcudnn.so.9", "9.1.0"))
    died = Observed.of((LateLoad("cudnnOpsVersionCheck", "was killed by SIGSEGV"),), "dlopen")
    result = one("image-cudnn-mixed", image(libraries=shim, late=died))
    assert result.outcome is Outcome.UNKNOWN
    assert "SIGSEGV" in result.reason


@pytest.mark.parametrize(
    ("archs", "gpu", "outcome"),
    [
        (("sm_80", "sm_86"), "sm_89", Outcome.PASS),
        (("sm_80", "sm_90"), "sm_120", Outcome.FAIL),
        (("sm_80", "compute_90"), "sm_120", Outcome.PASS),
        (("sm_90a",), "sm_90", Outcome.PASS),
        (("sm_90a",), "sm_100", Outcome.FAIL),
        (("sm_90",), "sm_86", Outcome.FAIL),
        (("sm_80",), "sm_87", Outcome.FAIL),  # an embedded GPU runs only its own code
        ((), "sm_90", Outcome.UNKNOWN),
    ],
)
def test_declared_gpus_are_held_against_the_build(archs: tuple[str, ...], gpu: str, outcome: Outcome) -> None:
    found = image(torch=Observed.of(build(archs=archs), "torch"), promise=promised(gpus=(Sm.parse(gpu),)))
    assert one("image-arch-not-covered", found).outcome is outcome


def test_present_devices_stand_in_for_declared_ones_and_none_at_all_is_a_skip() -> None:
    assert one("image-arch-not-covered", image(devices=Observed.of((Sm(12, 0),), "driver"))).outcome is Outcome.FAIL
    assert one("image-arch-not-covered", image(devices=Observed.of((), "no driver"))).outcome is Outcome.SKIP
    assert one("image-arch-not-covered", image()).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("promise", "has", "word"),
    [
        (promised(torch="2.7.0"), build(), "torch 2.7.0 was promised"),
        (promised(cuda="11.8"), build(), "CUDA 11.8 was promised"),
        (promised(), build(cuda=""), "without CUDA"),
        (promised(cuda=""), build(), "a torch without CUDA was promised"),
    ],
)
def test_another_torch_than_the_promised_one_is_named(promise: Observed[Any], has: TorchBuild, word: str) -> None:
    assert word in message("image-torch-differs-from-lock", image(promise=promise, torch=Observed.of(has, "torch")))


def test_a_promised_torch_that_is_absent_fails_and_an_unpromised_one_is_skipped() -> None:
    absent = Observed.of(ImportEnd("absent"), "import")
    lost: Observed[Any] = Observed.lost("absent")
    assert (
        one("image-torch-import-fails", image(torch_import=absent, torch=lost, promise=promised())).outcome
        is Outcome.FAIL
    )
    assert one("image-torch-import-fails", image(torch_import=absent, torch=lost)).outcome is Outcome.SKIP


def test_a_torch_for_the_cpu_has_no_cuda_questions() -> None:
    found = results(image(torch=Observed.of(build(cuda=""), "torch"), libraries=libraries()))
    for check in (
        "image-cudart-mismatch",
        "image-cudnn-mixed",
        "image-nccl-older-than-build",
        "image-arch-not-covered",
    ):
        assert found[check].outcome is Outcome.SKIP


@pytest.mark.parametrize(
    ("library", "outcome"),
    [
        (Library("nccl", "libnccl.so.2", "/a", "2.21.5", owner="nvidia-nccl-cu13"), Outcome.FAIL),
        (Library("nccl", "libnccl.so.2", "/a", "2.21.5", owner="nvidia-nccl-cu12"), Outcome.PASS),
        (Library("cublas", "libcublas.so.13", "/a", "13.1.0"), Outcome.FAIL),
        (Library("cusolver", "libcusolver.so.11", "/a", "11.6.1"), Outcome.UNKNOWN),
        (Library("cuda", "libcuda.so.1", "/a", "13.1"), Outcome.UNKNOWN),
        (Library("cublas", "libcublas.so.12", "/a", "12.4.5"), Outcome.PASS),
    ],
)
def test_a_library_for_another_cuda_major_is_found_by_wheel_or_version(library: Library, outcome: Outcome) -> None:
    assert one("image-library-of-other-cuda", image(libraries=libraries(library))).outcome is outcome


def test_the_lock_is_compared_wheel_by_wheel() -> None:
    locked = promised(wheels=(Wheel("torch", "2.6.0+cu124"), Wheel("numpy", "2.0"), Wheel("triton", "3.2.0")))
    wheels = (
        Wheel("torch", "2.6.0+cu124"),
        Wheel("numpy", "2.0.0"),
        Wheel("pip", "25"),
        Wheel("nvidia-x-cu12", "1"),
    )
    found = one("image-wheels-not-locked", image(promise=locked, wheels=Observed.of(wheels, "metadata")))
    assert [finding.message for finding in found.findings] == [
        "triton 3.2.0 is locked and not installed",
        "nvidia-x-cu12 1 is installed and not locked",
    ]


@pytest.mark.parametrize(
    ("installed", "severity"),
    [("9.1.0.70", ""), ("9.5.1.17", "WARNING"), ("9.0.0.312", "ERROR"), ("10.0.0.1", "ERROR"), ("", "ERROR")],
)
def test_torchs_own_requirements_are_evaluated_for_the_image(installed: str, severity: str) -> None:
    lines = (
        Requirement("torch", "2.6.0", 'nvidia-cudnn-cu12 (==9.1.0.70) ; platform_machine == "x86_64"'),
        Requirement("torch", "2.6.0", 'nvidia-nccl-cu12 (==2.21.5) ; platform_machine == "aarch64"'),
        Requirement("torch", "2.6.0", 'triton (==3.2.0) ; extra == "compile"'),
    )
    wheels = (Wheel("torch", "2.6.0"), *((Wheel("nvidia-cudnn-cu12", installed),) if installed else ()))
    found = image(requires=Observed.of(lines, "METADATA"), wheels=Observed.of(wheels, "metadata"))
    assert [f.severity.name for f in one("image-torch-requirement-not-met", found).findings] == (
        [severity] if severity else []
    )


def test_a_requirement_that_cannot_be_read_hides_none_behind_it() -> None:
    said = (
        ("torch", "no requirement at all!"),
        ("other", "nvidia-cudnn-cu12 (==1)"),
        ("torch", "nvidia-cudnn-cu12 (==9.1)"),
    )
    lines = tuple(Requirement(of, "2.6.0", text) for of, text in said)
    assert pin_of(image(requires=Observed.of(lines, "METADATA")), "nvidia-cudnn") == ("nvidia-cudnn-cu12", "9.1")


def test_a_missing_library_is_a_warning_and_a_changed_one_an_error() -> None:
    files = (
        Overwritten("/s/libnccl.so.2", ("nvidia-nccl-cu13==2.30.7",), "the file is missing"),
        Overwritten("/s/libcudnn.so.9", ("nvidia-cudnn-cu13==9.1",), "none of their hashes"),
        Overwritten("/s/nccl.h", ("nvidia-nccl-cu13==2.30.7",), "none of their hashes"),
    )
    wheels = Observed.of((Wheel("nvidia-nccl-cu13", "2.30.7"),), "metadata")
    result = one("image-files-overwritten", image(overwritten=Observed.of(files, "RECORD"), wheels=wheels))
    assert [finding.severity.name for finding in result.findings] == ["WARNING", "ERROR", "WARNING"]


@pytest.mark.parametrize(
    "ended",
    [
        "raised RuntimeError: 0 active drivers ([]). There should only be one.",
        "raised RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "raised RuntimeError: No CUDA GPUs are available",
        "raised ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
        "raised OSError: libnvidia-ml.so.1: cannot open shared object file: No such file or directory",
        "raised AssertionError: libcuda.so cannot found!\nPlease make sure GPU is created",
        "raised pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found",
        "raised cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorNoDevice: no CUDA-capable device is detected",
        "raised CUDARuntimeError: CUDA driver version is insufficient for CUDA runtime version",
        "raised RuntimeError: Failed to infer device type",
    ],
)
def test_an_import_that_wants_a_gpu_says_nothing_where_none_is(ended: str) -> None:
    def judged(ended: str, devices: tuple[Sm, ...] = (), given: tuple[str, ...] = ()) -> Result:
        seen = Observed.of((Framework("bitsandbytes", "0.45.3", ended),), "import in a child")
        image = Image("i", frameworks=seen, devices=Observed.of(devices, "the driver"), gpus_given=given)
        return judge.run(judge.checks()["image-framework-broken"], image, facts.load())

    alone = judged(ended)
    assert alone.outcome is Outcome.UNKNOWN and "no GPU was given" in alone.reason
    assert judged(ended, given=("all",)).outcome is Outcome.FAIL
    assert judged(ended, devices=(Sm(9, 0),)).outcome is Outcome.FAIL
    for other in (
        "raised ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        "raised RuntimeError: operator torchvision::nms does not exist",
        "raised ImportError: libcuda_helper.so.1: cannot open shared object file: No such file or directory",
        "raised AssertionError: Torch not compiled with CUDA enabled",
        "was killed by SIGSEGV",
    ):
        assert judged(other).outcome is Outcome.FAIL, other


def test_a_library_of_torchs_own_that_is_gone_is_an_error() -> None:
    def severity(path: str, owner: str) -> Severity:
        gone = Overwritten(path, (owner,), "the file is missing")
        seen = Observed.of((Wheel("torch", "2.6.0"),), "importlib.metadata")
        image = Image("i", wheels=seen, overwritten=Observed.of((gone,), "RECORD"))
        (finding,) = judge.run(judge.checks()["image-files-overwritten"], image, facts.load()).findings
        return finding.severity

    for name in ("libtorch_cuda_linalg.so", "libcaffe2_nvrtc.so", "libshm.so", "libtorch_cpu.so"):
        assert severity(f"/s/torch/lib/{name}", "torch==2.6.0") is Severity.ERROR, name
    for name in ("libjitbackend_test.so", "libbackend_with_compiler.so"):
        assert severity(f"/s/torch/lib/{name}", "torch==2.6.0") is Severity.WARNING, name
    assert severity("/s/nvidia/nvshmem/lib/nvshmem_transport_ucx.so.3", "nvidia-nvshmem-cu12==3.3") is Severity.WARNING
