"""What the checks of a package say where its page's examples do not reach: borders, ranks and doubts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from envkit.judging.checks import aoti as checks
from envkit.model import Finding, Observed, Severity, Skip, Unknown
from envkit.subjects.aoti import (
    AotiRun,
    Compiler,
    Frame,
    InputSpec,
    Kernel,
    LinkResult,
    MappedLibrary,
    ModelLibrary,
    Needs,
    Package,
    Run,
    Scratch,
    Tensor,
    Trail,
)
from envkit.subjects.image import Variable
from envkit.versions import Sm

CPU = ModelLibrary("m.so", machine="x86_64", needed=("libtorch_cpu.so",), guards="variable")
CUDA = replace(CPU, needed=("libtorch_cpu.so", "libtorch_cuda.so"), kernels=("/x/k.cubin",))
SPEC = InputSpec("x", "float32", "cpu", (None, 8), (2, None), (64, None), (8, 1))
ONE = Tensor("args[0]", "float32", "cpu", (6, 8), (8, 1))


def seen(value: Any) -> Observed[Any]:
    return Observed.of(value, "a test")


def run(package: Package, **fields: Any) -> AotiRun:
    return AotiRun("x", package=seen(package), **{key: seen(value) for key, value in fields.items()})


def package(*libraries: ModelLibrary, **fields: Any) -> Package:
    return Package("m.pt2", form="pt2", libraries=libraries or (CPU,), **fields)


def died(signal: str = "SIGSEGV", stage: str = "load") -> Run:
    return Run("killed", stage, signal=signal)


def crash(subject: AotiRun) -> Finding:
    (finding,) = checks.aoti_crashed(subject)
    return finding


@pytest.mark.parametrize(
    ("gpus", "archs", "severities"),
    [
        ((Sm(9, 0),), ("sm_90a",), []),
        ((Sm(10, 0),), ("sm_90a",), [Severity.ERROR]),
        ((Sm(8, 9),), ("sm_80",), []),
        ((Sm(8, 0),), ("sm_89",), [Severity.ERROR]),
        ((Sm(8, 0), Sm(9, 0)), ("sm_90",), [Severity.WARNING]),
    ],
)
def test_machine_code_goes_by_the_rule_of_binaries(
    gpus: tuple[Sm, ...], archs: tuple[str, ...], severities: list[Severity]
) -> None:
    made = package(CUDA, device="cuda", kernels=(Kernel("k.cubin", archs),))
    assert [each.severity for each in checks.aoti_no_such_device(run(made, gpus=gpus))] == severities


def test_the_device_is_that_of_the_libraries_where_the_metadata_is_silent() -> None:
    given = (replace(ONE, device="cpu"),)
    (finding,) = checks.aoti_device_differs(run(package(CUDA), inputs=given))
    assert finding.message == "input 0 (args[0]) is on cpu and the package was made for cuda"
    assert list(checks.aoti_device_differs(run(package(CUDA), inputs=(replace(ONE, device="cuda:1"),)))) == []


def test_a_number_on_the_host_is_a_fault_only_where_the_package_says_so() -> None:
    number = replace(ONE, shape=(), stride=())
    assert list(checks.aoti_device_differs(run(package(CUDA), inputs=(number,)))) == []
    spec = InputSpec("x", "float32", "cuda", (), (), (), ())
    assert len(list(checks.aoti_device_differs(run(package(CUDA, inputs=(spec,)), inputs=(number,))))) == 1
    host = InputSpec("x", "float32", "cpu", (), (), (), ())
    assert list(checks.aoti_device_differs(run(package(CUDA, inputs=(host,)), inputs=(number,)))) == []


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (ONE, []),
        (replace(ONE, shape=(64, 8)), []),
        (replace(ONE, shape=(65, 8)), ["has 65 in dimension 0 and the package takes at most 64"]),
        (replace(ONE, shape=(1, 8)), ["has 1 in dimension 0 and the package takes at least 2"]),
        (replace(ONE, shape=(6, 9)), ["has 9 in dimension 1 and the package takes 8"]),
        (replace(ONE, shape=(8,)), ["has 1 dimensions and the package takes 2"]),
        (replace(ONE, stride=(1, 6)), ["is laid out with strides 1x6 and the package takes 8x1"]),
        (replace(ONE, dtype="int64", shape=(6, 9)), ["is int64", "has 9 in dimension 1"]),
    ],
)
def test_an_input_is_compared_with_its_description(tensor: Tensor, words: list[str]) -> None:
    ended = Run("raised" if words else "done", "run" if words else "end", "RuntimeError: x")
    subject = replace(run(package(inputs=(SPEC,)), inputs=(tensor,), run=ended), factory="f:g")
    found = [finding.message for finding in checks.aoti_input_mismatch(subject)]
    assert len(found) == len(words)
    assert all(word in message for word, message in zip(words, found, strict=True))


def test_inputs_that_envkit_made_are_no_fault_of_the_user() -> None:
    subject = run(package(inputs=(SPEC,)), inputs=(replace(ONE, dtype="int8"),), run=Run("raised", "run"))
    with pytest.raises(Unknown, match="inputs made from the package's own description do not fit"):
        list(checks.aoti_input_mismatch(subject))


def test_the_number_of_inputs_is_compared() -> None:
    subject = replace(run(package(inputs=(SPEC,)), inputs=(ONE, ONE), run=Run("raised", "run")), factory="f:g")
    (finding,) = checks.aoti_input_mismatch(subject)
    assert finding.message == "2 tensors were given and the package takes 1"


def test_a_guard_of_the_device_belongs_to_the_device() -> None:
    ended = Run(
        "raised", "run", "RuntimeError: input_handles[0]: unmatched device type, expected: 11(cuda), but got: 0"
    )
    subject = replace(run(package(CUDA), inputs=(ONE,), run=ended, gpus=(Sm(9, 0),)), factory="f:g")
    with pytest.raises(Unknown):
        list(checks.aoti_input_mismatch(subject))
    with pytest.raises(Skip, match="aoti-device-differs names the reason"):
        list(checks.aoti_raised(subject))


OLD = MappedLibrary("/opt/conda/lib/libstdc++.so.6.0.28", "import torch", ("GLIBCXX_3.4.28",))
NEW = MappedLibrary("/usr/lib/libstdc++.so.6", "load", ("GLIBCXX_3.4.28", "GLIBCXX_3.4.30"))
ASKING = replace(CPU, needs=(Needs("libstdc++.so.6", ("GLIBCXX_3.4.30",)),))
BOUND = LinkResult()


@pytest.mark.parametrize(("mapped", "found"), [((OLD, NEW), 1), ((NEW, OLD), 0), ((NEW,), 0)])
def test_the_first_copy_of_a_library_serves_everybody(mapped: tuple[MappedLibrary, ...], found: int) -> None:
    assert len(list(checks.aoti_library_symbol_missing(run(package(ASKING), mapped=mapped, link=BOUND)))) == found


@pytest.mark.parametrize(
    ("signal", "fields", "cause"),
    [
        ("SIGSEGV", {"mapped": (OLD, NEW), "package": ASKING}, "m.so needs GLIBCXX_3.4.30 of libstdc++.so.6"),
        ("SIGSEGV", {"mapped": (OLD, NEW)}, "the process holds 2 copies of libstdc++"),
        ("SIGSEGV", {"link": LinkResult("", "killed SIGSEGV")}, "dlopen of its library alone ends the process"),
        ("SIGILL", {"flags": ("avx2",), "isa": "AVX512"}, "this processor lacks avx512bw"),
        ("SIGKILL", {}, "memory ran out"),
        ("SIGBUS", {"scratch": Scratch("/tmp", 100, True)}, "/tmp had 100 bytes free"),
        ("SIGSEGV", {"machine": "aarch64"}, "m.so is for x86_64"),
        ("SIGSEGV", {"variables": (Variable("LD_PRELOAD", "/x/libjemalloc.so"),)}, "LD_PRELOAD=/x/libjemalloc.so"),
        ("SIGSEGV", {}, "nothing observed explains it"),
    ],
)
def test_a_death_has_the_cause_that_was_seen(signal: str, fields: dict[str, Any], cause: str) -> None:
    library = fields.pop("package", CPU) if "package" in fields else CPU
    made = package(library, isa=fields.pop("isa", "") if "isa" in fields else "", size=1 << 20)
    assert cause in crash(run(made, run=died(signal), **fields)).message


def test_the_runner_up_is_in_the_evidence() -> None:
    subject = run(package(), run=died(), mapped=(OLD, NEW), link=LinkResult("", "killed SIGSEGV"))
    finding = crash(subject)
    assert "2 copies of libstdc++" in finding.message
    assert any(key.startswith("runner-up: dlopen of its library alone") for key in finding.evidence)


def test_a_room_that_is_large_enough_is_no_cause() -> None:
    subject = run(package(size=100), run=died("SIGBUS"), scratch=Scratch("/tmp", 1 << 30, True))
    assert "bytes free" not in crash(subject).message


def test_the_wrong_runner_is_the_likeliest_cause() -> None:
    subject = replace(run(package(), run=died("SIGBUS"), link=LinkResult("", "killed SIGBUS")), runner="cuda")
    assert "the runner for cuda loaded a library that was linked for cpu" in crash(subject).message


def test_two_openmp_runtimes_rank_behind_the_trail() -> None:
    trail = Trail("SIGSEGV", (Frame("/x/libtorch_cpu.so", 16, "at::native::foo()"), Frame("/t/m.so", 32, "run_impl")))
    mapped = (MappedLibrary("/t/libgomp-a34b3233.so.1", "import torch"), MappedLibrary("/usr/lib/libgomp.so.1", "load"))
    finding = crash(run(package(), run=died(), trail=trail, mapped=mapped))
    cause = "it crashed in at::native::foo() of libtorch_cpu.so, called from run_impl of m.so"
    assert f"likely cause: {cause}" in finding.message
    assert any("2 copies of libgomp" in key for key in finding.evidence)


def test_a_borrowed_function_of_the_cpp_library_is_named() -> None:
    name = "std::__detail::_Scanner<char>::_M_advance()"
    trail = Trail("SIGSEGV", (Frame("/x/libtorch_cpu.so", 16, name), Frame("/t/m.so", 32, "parse_device_str")))
    borrowed = crash(run(package(), run=died(), trail=trail)).message
    assert f"called {name} of libtorch_cpu.so, instead of its own" in borrowed
    own = Trail("SIGSEGV", (Frame("/t/m.so", 16, name), Frame("/t/m.so", 32, "parse_device_str")))
    assert "instead of its own" not in crash(run(package(), run=died(), trail=own)).message


def test_what_a_package_printed_is_told_beside_what_was_raised() -> None:
    ended = Run("raised", "run", "RuntimeError: API call failed", stderr_tail="x\nError: CUDA driver error: 222\n")
    (finding,) = checks.aoti_raised(run(package(), run=ended, inputs=(ONE,)))
    assert finding.message.endswith("it printed: CUDA driver error: 222")


@pytest.mark.parametrize(
    "check",
    [check for name, check in vars(checks).items() if name.startswith("aoti_") and name != "aoti_package_damaged"],
)
def test_of_a_package_that_cannot_be_read_nothing_else_is_asked(check: Any) -> None:
    with pytest.raises(Skip, match="cannot be read: it is empty"):
        list(check(run(Package("m.pt2", error="it is empty"))))


INSIDE = replace(CPU, carries=("std::locale::classic()", "__cxa_throw"), std=3908)
SHARED = MappedLibrary("/usr/lib/libstdc++.so.6", "import torch")
WRAPPER = Compiler("/opt/gcc/bin/g++", "g++ 13", True, "inside")
PLAIN = Compiler("/usr/bin/g++", "g++ 11", False, "shared")
CAUSE = "the package carries its own C++ runtime beside /usr/lib/libstdc++.so.6 of the process"


@pytest.mark.parametrize(
    ("ended", "severity", "words"),
    [
        (died(), Severity.ERROR, "std::locale of one looks up the facets of the other"),
        (Run("raised", "load"), Severity.ERROR, "std::locale of one looks up the facets of the other"),
        (Run("hung", "load"), Severity.ERROR, "std::locale of one looks up the facets of the other"),
        (Run("done", "end"), Severity.WARNING, "it loaded with both this time"),
        (Run("raised", "run"), Severity.WARNING, "it loaded with both this time"),
        (died(stage="run"), Severity.WARNING, "it loaded with both this time"),
        (Run("loaded", "end"), Severity.WARNING, "it loaded with both this time"),
        (Run("not-applicable", "import torch"), Severity.WARNING, "whether it loads with both was not seen"),
    ],
)
def test_two_cpp_runtimes_are_as_grave_as_what_was_seen(ended: Run, severity: Severity, words: str) -> None:
    subject = run(package(INSIDE), mapped=(SHARED,), run=ended)
    (finding,) = checks.aoti_cxx_runtime_inside(subject)
    assert finding.severity is severity
    assert words in finding.message
    assert "std::locale::classic(), __cxa_throw and more, 3908 names" in finding.message


def test_a_cpp_runtime_inside_needs_another_one_to_clash_with() -> None:
    alone = run(package(INSIDE), mapped=(MappedLibrary("/t/libtorch_cpu.so", "import torch"),), run=Run("done", "end"))
    assert list(checks.aoti_cxx_runtime_inside(alone)) == []
    assert list(checks.aoti_cxx_runtime_inside(run(package(CPU), mapped=(SHARED,)))) == []
    with pytest.raises(Unknown, match="it is not known whether the process holds another"):
        list(checks.aoti_cxx_runtime_inside(run(package(INSIDE))))
    with pytest.raises(Unknown, match="cannot be read"):
        list(checks.aoti_cxx_runtime_inside(run(package(INSIDE, replace(CPU, error="cut")), mapped=(SHARED,))))


@pytest.mark.parametrize(
    ("compilers", "fix"),
    [
        ((WRAPPER, PLAIN), "set CXX=/usr/bin/g++, which links libstdc++ shared, and package it again"),
        ((PLAIN,), "package it again with a C++ compiler that links libstdc++ shared, as /usr/bin/g++ here does"),
        ((WRAPPER,), "package it again with a C++ compiler (CXX) that links libstdc++ shared"),
        ((), "package it again with a C++ compiler (CXX) that links libstdc++ shared"),
    ],
)
def test_the_fix_names_a_compiler_that_was_tried(compilers: tuple[Compiler, ...], fix: str) -> None:
    subject = run(package(INSIDE), mapped=(SHARED,), run=died(), compilers=compilers)
    (finding,) = checks.aoti_cxx_runtime_inside(subject)
    assert finding.fix.startswith(fix)
    assert crash(subject).fix == finding.fix


def test_a_cpp_runtime_inside_is_the_cause_of_a_death() -> None:
    subject = run(package(INSIDE), mapped=(SHARED,), run=died(), compilers=(WRAPPER, PLAIN))
    message = crash(subject).message
    assert f"SIGSEGV while loading; likely cause: {CAUSE}" in message
    assert "m.so was linked with -static-libstdc++, as the script /opt/gcc/bin/g++ here does" in message
    other = crash(run(package(INSIDE), mapped=(SHARED,), run=died(), compilers=(PLAIN,)))
    assert "-static-libstdc++" in other.message
    assert "here does" not in other.message


def test_after_a_load_that_went_well_a_cpp_runtime_inside_is_a_runner_up() -> None:
    trail = Trail("SIGSEGV", (Frame("/t/m.so", 16, "planted()"),))
    finding = crash(run(package(INSIDE), mapped=(SHARED,), run=died(stage="run"), trail=trail))
    assert "likely cause: it crashed in planted() of m.so" in finding.message
    assert any(CAUSE in key for key in finding.evidence)


def test_a_cpp_runtime_inside_is_the_cause_of_what_was_raised() -> None:
    ended = Run("raised", "load", "RuntimeError: API call failed", stderr_tail="Error: std::bad_cast\n")
    (finding,) = checks.aoti_raised(run(package(INSIDE), mapped=(SHARED,), run=ended))
    assert f"it printed: std::bad_cast; likely cause: {CAUSE}" in finding.message
    later = replace(ended, stage="run")
    (plain,) = checks.aoti_raised(run(package(INSIDE), mapped=(SHARED,), run=later))
    assert "likely cause" not in plain.message
