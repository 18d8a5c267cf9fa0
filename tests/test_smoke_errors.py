"""The tests that provoke errors, as far as they need no GPU: their helpers, the deaths of children, and how a run of
them is judged."""

from __future__ import annotations

import os
import resource
import zipfile
from pathlib import Path

import pytest

from envkit.judging import judge
from envkit.judging.checks._smoke import judged, limits
from envkit.model import Finding, Observed, Unknown
from envkit.payload import programs
from envkit.payload.isolate import Ending, NotApplicable
from envkit.payload.smoke import errors, provoke, sanitize
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.case import Case
from envkit.payload.smoke.errors import error_aoti_dies_at_load, error_crash, error_debugger, error_sanitizer
from envkit.subjects.smoke import SmokeRun, SmokeTest

HEAD = "========= COMPUTE-SANITIZER\n"
BY = "=========     by thread (63,0,0) in block (0,0,0)\n=========\n"
ONE = "========= ERROR SUMMARY: 1 error\n"


@pytest.mark.parametrize(
    ("text", "errors", "first"),
    [
        (
            "========= Invalid __global__ write of size 4 bytes\n"
            "=========     at beyond(unsigned int *)+0x90 in beyond.cu:6\n" + BY + ONE,
            1,
            "Invalid __global__ write of size 4 bytes: beyond(unsigned int *) at beyond.cu:6",
        ),
        (
            "========= Invalid __shared__ read of size 2 bytes\n"
            "=========     at 0x160 in /src/a.cu:16:half_kernel(int*)\n"
            + BY
            + "========= Target application returned an error\n========= ERROR SUMMARY: 12 errors\n",
            12,
            "Invalid __shared__ read of size 2 bytes: half_kernel(int*) at /src/a.cu:16",
        ),
        (
            "========= Invalid __global__ read of size 16 bytes\n=========     at gemm_kernel+0x20\n" + BY + ONE,
            1,
            "Invalid __global__ read of size 16 bytes: gemm_kernel",
        ),
        (
            "========= Error: Race reported between Write access at race(int *, int *)+0x80 in race.cu:6\n"
            "=========     and Read access at race(int *, int *)+0x190 in race.cu:8 [36 hazards]\n=========\n"
            "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n",
            1,
            "Race reported between Write access: race(int *, int *) at race.cu:6",
        ),
        (
            "========= Warning: Race reported between Read access at race+0x80 in race.cu:6\n=========\n"
            "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n",
            0,
            "",
        ),
        (
            "========= Uninitialized __global__ memory read of size 4 bytes\n"
            "=========     at unset+0x70 in unset.cu:5\n" + BY + ONE,
            1,
            "Uninitialized __global__ memory read of size 4 bytes: unset at unset.cu:5",
        ),
        (
            "========= Barrier error detected. Divergent thread(s) in warp.\n"
            "=========     at barrier+0x70 in barrier.cu:7\n" + BY + ONE,
            1,
            "Barrier error detected. Divergent thread(s) in warp.: barrier at barrier.cu:7",
        ),
        ("========= ERROR SUMMARY: 0 errors\n", 0, ""),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", 0, ""),
        ("a program's own line\n========= ERROR SUMMARY: 0 errors\n", 0, ""),
        ("========= ERROR SUMMARY: 0 errors\n" + HEAD + "========= ERROR SUMMARY: 2 errors\n", 2, ""),
    ],
)
def test_a_log_of_the_sanitizer_is_read(text: str, errors: int, first: str) -> None:
    report = sanitize.read(HEAD + text)
    assert (report.errors, report.first) == (errors, first)
    assert report.raw == HEAD + text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "its log is empty"),
        (HEAD, "COMPUTE-SANITIZER"),
        (
            HEAD + "========= Error: No attachable process found. compute-sanitizer timed-out.\n",
            "No attachable process",
        ),
        (
            HEAD
            + "========= Error: Target application terminated before first instrumented API call\n"
            + "========= ERROR SUMMARY: 0 errors\n",
            "terminated before first instrumented",
        ),
        (
            HEAD + '========= Device not supported. Please refer to the "Supported Devices" section\n',
            "Device not supported",
        ),
    ],
)
def test_a_log_that_says_nothing_is_no_clean_one(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sanitize.read(text)


def test_the_sanitizer_is_taken_from_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    words = sanitize.command("initcheck", ("python3", "-c", "pass"), "/tmp/log")
    assert words[:3] == (str(tool), "--tool", "initcheck")
    assert words[-3:] == ("python3", "-c", "pass")
    assert words[words.index("--log-file") + 1] == "/tmp/log"


def test_the_sanitizer_is_taken_from_the_toolkit_or_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    if not sanitize.found("compute-sanitizer"):  # unless the machine of the test has a toolkit
        with pytest.raises(NotApplicable, match="no compute-sanitizer"):
            sanitize.command("memcheck", ("true",), "log")
    (tmp_path / "cuda" / "bin").mkdir(parents=True)
    tool = tmp_path / "cuda" / "bin" / "compute-sanitizer"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert sanitize.found("compute-sanitizer") == str(tool)
    assert sanitize.found("no-tool-of-this-name") == ""


@pytest.mark.parametrize(("injected_fault", "wrong"), [("", 0.0), ("fault", 5.0)])
def test_every_death_of_a_child_is_told_apart(injected_fault: str, wrong: float) -> None:
    bench = Bench("cpu", injected_fault)
    error_crash.run(bench)
    assert bench.measures == {"reported.wrong": wrong, "after.wrong": 0.0}
    assert ("segfault: killed SIGSEGV" in bench.detail) is not bool(injected_fault)


def test_a_child_gets_its_environment_and_leaves_no_core() -> None:
    def look() -> list[str]:
        core = resource.getrlimit(resource.RLIMIT_CORE)[0]
        names = ("CUDA_LAUNCH_BLOCKING", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION")
        return [str(core), *(os.environ.get(name, "") for name in names)]

    assert provoke.ends({"look": look}, 10.0, {"CUDA_LAUNCH_BLOCKING": "1"})["look"].value == ["0", "1", "0"]
    assert provoke.ends({"look": look}, 10.0)["look"].value == ["0", "", "0"]
    assert "CUDA_ENABLE_COREDUMP_ON_EXCEPTION" not in os.environ


def test_what_a_child_says_is_heard_before_it_hangs() -> None:
    heard: list[object] = []

    def work(say: object) -> None:
        assert callable(say)
        say("launching")
        while True:
            pass

    ending = provoke.heard_end(work, 0.6, heard.append)
    assert (ending.ended, heard) == ("hung", ["launching"])


def test_the_process_after_a_fault_must_end_well() -> None:
    bench = Bench("cpu")
    provoke.tell(bench, "reported.wrong", True, "the fault")
    with pytest.raises(RuntimeError, match=r"killed SIGABRT.*the fault"):
        provoke.after(bench, os.abort)

    def lacking() -> int:
        raise NotApplicable("there is no libnvrtc")

    with pytest.raises(NotApplicable, match="no libnvrtc"):
        provoke.after(bench, lacking)
    provoke.after(bench, lambda: 3)
    assert bench.measures["after.wrong"] == 3.0


def test_words_of_an_end_are_one_line() -> None:
    ending = Ending("raised", "RuntimeError: CUDA error:\ntwo lines", cuda="710 cudaErrorAssert")
    assert provoke.words(ending) == "raised 710 cudaErrorAssert RuntimeError: CUDA error: two lines"


@pytest.mark.parametrize("tool", sanitize.TOOLS)
def test_the_planted_line_is_the_marked_one(tool: str) -> None:
    source = error_sanitizer._SOURCES[tool].split("\n")
    numbers = error_sanitizer.lines(tool)
    assert numbers
    assert all("// here" in source[number - 1] for number in numbers)
    program = error_sanitizer._Program(tool, True, "cuda:0")
    said = {"errors": 1, "first": f"something: {program.kernel}+0x20 at {program.kernel}.cu:{numbers[0]}"}
    assert error_sanitizer._named(said, program)
    for wrong in (
        {**said, "errors": 0},
        {**said, "first": f"something: {program.kernel} at {program.kernel}.cu:{max(numbers) + 1}"},
        {**said, "first": ""},
    ):
        assert not error_sanitizer._named(wrong, program)


def test_a_tool_has_seen_the_kernel_only_where_it_says_so() -> None:
    table = "  envkit_watched (1, 1, 1)x(32, 1, 1), Context 1, Stream 7, Device 0\n"
    assert error_debugger.saw("nsys", table)
    assert error_debugger.saw("ncu", table + "    sm__cycles_elapsed.max        cycle        4,123\n")
    assert not error_debugger.saw("ncu", table)
    assert not error_debugger.saw("ncu", table + "    sm__cycles_elapsed.max        cycle        0\n")
    assert not error_debugger.saw("cuda-gdb", "No CUDA kernels.")


@pytest.mark.parametrize(
    "said",
    [
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
        "warning: ptrace: Operation not permitted",
    ],
)
def test_a_refusal_is_told_by_its_line(said: str) -> None:
    assert error_debugger.refusal(f"before\n{said}\nafter") == said
    assert error_debugger.refusal("==ERROR== No kernels were profiled.") == ""


@pytest.mark.parametrize("tool", error_debugger.TOOLS)
def test_no_command_holds_the_name_that_it_must_find(tool: str) -> None:
    argv = programs.interpreter(error_debugger.__name__, "launch", ["cuda:0", "1"])
    for command in error_debugger.commands(tool, f"/bin/{tool}", argv, "/tmp/report"):
        assert command[0] == f"/bin/{tool}"
        assert not any("envkit_watched" in word for word in command)


def test_a_package_holds_its_library_where_each_release_looks(tmp_path: Path) -> None:
    path = tmp_path / "provoke.pt2"
    error_aoti_dies_at_load.package(str(path), b"\x7fELF")
    with zipfile.ZipFile(path) as archive:
        places = [name for name in archive.namelist() if name.endswith(".so")]
        assert places == [
            "provoke/data/aotinductor/model/provoke.wrapper.so",
            "data/aotinductor/model/provoke.wrapper.so",
        ]
        assert {archive.read(name) for name in places} == {b"\x7fELF"}


def _run(case: Case, measures: dict[str, float], injected_fault: str = "") -> SmokeRun:
    device = "cuda:0" if case.gpu else "cpu"
    gpus = ("a GPU",) if case.gpu else ()
    test = SmokeTest(case.name, device, "ran", measures=measures, injected_fault=injected_fault)
    return SmokeRun(
        "run",
        gpus=Observed.of(gpus, "x"),
        tests=Observed.of((test,), "x"),
        only=(case.name,),
        injected_fault=injected_fault,
    )


def _healthy(name: str) -> dict[str, float]:
    rows = limits()[name]
    return {measure: float(row.least or 0) for row in rows for measure in row.measures}


@pytest.mark.parametrize("case", errors.CASES, ids=lambda case: case.name)
def test_each_measure_of_a_error_is_bounded(case: Case) -> None:
    healthy = _healthy(case.name)
    if case.name == "error-debugger":
        healthy.update({f"{tool}.offered": 1.0 for tool in error_debugger.TOOLS})
    assert "after.wrong" in healthy
    assert not list(judged(case.name, _run(case, healthy)))
    for measure in (name for name in healthy if name.endswith(".wrong")):
        found = list(judged(case.name, _run(case, {**healthy, measure: 1.0})))
        assert [isinstance(one, Finding) and measure in one.message for one in found] == [True], measure
        less = {name: value for name, value in healthy.items() if name != measure}
        assert [measure in one.message for one in judged(case.name, _run(case, less))] == [True]


@pytest.mark.parametrize("case", errors.CASES, ids=lambda case: case.name)
def test_a_error_that_does_not_miss_its_fault_is_blind(case: Case) -> None:
    assert "fault" in case.faults
    healthy = {**_healthy(case.name), **{f"{tool}.offered": 1.0 for tool in error_debugger.TOOLS}}
    with pytest.raises(Unknown, match="does not see the injected fault"):
        list(judged(case.name, _run(case, healthy, "fault")))


def test_every_error_has_its_check() -> None:
    assert {f"smoke-{case.name}" for case in errors.CASES} <= set(judge.checks(SmokeRun))


def test_a_debugger_that_goes_on_with_random_addresses_was_not_refused() -> None:
    warning = "warning: Error disabling address space randomization: Operation not permitted"
    assert error_debugger.refusal(warning + "\n[Inferior 1 exited normally]") == ""
    refused = "ptrace: Operation not permitted."
    assert error_debugger.refusal(f"{warning}\n{refused}\n") == refused


def test_a_death_while_a_library_is_loaded_is_told_by_its_signal_and_a_torn_one_by_the_linker() -> None:
    told = error_aoti_dies_at_load._told
    assert told("dies", Ending("killed", signal="SIGSEGV"))
    assert not told("dies", Ending("killed", signal="SIGKILL")) and not told("dies", Ending("ran", signal="SIGSEGV"))
    assert told("torn", Ending("raised", "RuntimeError: in dlopen: file too short"))
    assert not told("torn", Ending("raised", "RuntimeError: no such file"))
    assert not told("torn", Ending("killed", signal="SIGSEGV"))
