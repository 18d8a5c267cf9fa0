"""The compilers' tests of the suite, as far as they need neither torch nor GPU: what lacks, what dies, what is red."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from envkit.judging import judge
from envkit.judging.checks._smoke import limits
from envkit.model import Finding, Observed, Skip
from envkit.payload import isolate
from envkit.payload.smoke import compilers
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import (
    aoti_runner_cpp,
    compile_gpu,
    extensions,
    lacking,
    nvcc_axpy,
    packages,
    stages,
    triton_autotune,
)
from envkit.payload.smoke.compilers.torch_compile import mapped_below
from envkit.payload.smoke.compilers.triton_autotune import CONFIGS, TOO_LARGE, TRAP, TuningResult
from envkit.subjects.smoke import SmokeRun, SmokeTest

CRASH = isolate.Ending("raised", "AcceleratorError: CUDA error: trap", cuda="719 cudaErrorLaunchFailure")


@pytest.fixture
def environ() -> Iterator[dict[str, str]]:
    """The environment, put back afterwards."""
    before = dict(os.environ)
    yield before
    os.environ.clear()
    os.environ.update(before)


def program(folder: Path, name: str, text: str = "exit 0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def run_of(name: str, device: str, ended: str = "ran", **fields: Any) -> SmokeRun:
    test = SmokeTest(name, device, ended, **fields)
    gpus = ("NVIDIA H100 80GB HBM3",) if device.startswith("cuda:") else ()
    return SmokeRun("x", gpus=Observed(gpus, "made up", ""), tests=Observed((test,), "made up", ""), level="full")


def found(run: SmokeRun) -> list[Finding]:
    assert run.tests.value is not None
    return list(judge.checks(SmokeRun)["smoke-" + run.tests.value[0].name].judge(run))


def good(name: str) -> dict[str, float]:
    """Measures on the right side of every limit of a test."""
    return {measure: limit.least or 0.0 for limit in limits()[name] for measure in limit.measures} | {
        measure: 1.0 for limit in limits()[name] for measure in limit.measures if limit.least and limit.least <= 1
    }


def test_every_test_has_a_check_and_a_limit_for_each_of_its_devices() -> None:
    for case in compilers.CASES:
        assert callable(judge.checks(SmokeRun)["smoke-" + case.name].judge)
        bounded = {device for limit in limits()[case.name] for device in limit.devices}
        assert bounded == {"cuda"} if not case.cpu else "cpu" in bounded


@pytest.mark.parametrize(
    "case", [case for case in compilers.CASES if case.name != "triton-targets"], ids=lambda c: c.name
)
def test_each_limit_turns_its_test_red_and_no_other_number_does(case: Any) -> None:
    device = "cpu" if case.cpu else "cuda:0"
    measures = good(case.name)
    for limit in limits()[case.name]:
        measures |= {limit.when.replace("*", name.partition(".")[0]): 1.0 for name in limit.measures if limit.when}
    assert found(run_of(case.name, device, measures=measures)) == []
    for limit in limits()[case.name]:
        for name in limit.measures:
            bad = limit.most * 2 + 1 if limit.most is not None else (limit.least or 0) - 1
            for wrong in ({name: bad}, {name: "nan"}):
                (finding, *_) = found(run_of(case.name, device, measures={**measures, **wrong}))
                assert name in finding.message
            without = {each: value for each, value in measures.items() if each != name}
            assert any(name in finding.message for finding in found(run_of(case.name, device, measures=without)))


def test_a_type_that_the_gpu_does_not_offer_is_not_asked_for_its_numbers() -> None:
    measures = {name: value for name, value in good("triton-dot").items() if name.startswith("fp16")}
    measures |= {"fp16.offered": 1.0, "bf16.offered": 0.0, "tf32.offered": 0.0}
    assert found(run_of("triton-dot", "cuda:0", measures=measures)) == []


def test_a_test_without_its_compiler_is_skipped() -> None:
    with pytest.raises(Skip, match="nvcc"):
        found(
            run_of("nvcc-axpy", "cuda:0", "not-applicable", detail="the program is built with nvcc, which is not there")
        )


def test_a_part_gives_what_it_returns() -> None:
    assert stages.part(isolate.Task("adding", "cpu", 20.0, lambda _: 1 + 1)) == 2


def test_a_part_that_dies_says_of_what_and_why() -> None:
    task = isolate.Task("loading", "cpu", 20.0, lambda _: os.kill(os.getpid(), signal.SIGSEGV))
    with pytest.raises(stages.Ended, match="loading ended its process with SIGSEGV, because of two"):
        stages.part(task, lambda: "of two runtimes")
    with pytest.raises(stages.Ended, match=r"with SIGSEGV$"):
        stages.part(task)


def test_a_part_passes_on_a_cuda_error_and_what_it_lacks(capfd: pytest.CaptureFixture[str]) -> None:
    class Fault(RuntimeError):
        cuda_code, cuda_name = 700, "cudaErrorIllegalAddress"

    def faulty(_: object) -> None:
        raise Fault("an illegal access")

    def unfit(_: object) -> None:
        raise isolate.NotApplicable("no nvcc")

    with pytest.raises(stages.Ended, match="computing failed: Fault: an illegal access") as caught:
        stages.part(isolate.Task("computing", "cpu", 20.0, faulty))
    assert caught.value.cuda_code == 700
    assert caught.value.cuda_name == "cudaErrorIllegalAddress"
    assert "Traceback" in capfd.readouterr().err
    with pytest.raises(isolate.NotApplicable, match="no nvcc"):
        stages.part(isolate.Task("building", "cpu", 20.0, unfit))


def test_a_part_that_hangs_is_ended() -> None:
    with pytest.raises(stages.Ended, match="waiting hung: no answer within"):
        stages.part(isolate.Task("waiting", "cpu", 0.5, lambda _: signal.pause()))


def test_folders_of_tests_devices_and_injected_faults_are_apart(tmp_path: Path) -> None:
    benches = [Bench("cuda:0", scratch=str(tmp_path)), Bench("cuda:1", scratch=str(tmp_path))]
    benches.append(Bench("cuda:0", "ulp", scratch=str(tmp_path)))
    folders = {stages.own_folder(bench, name) for bench in benches for name in ("a", "b")}
    assert len(folders) == 6
    assert all(Path(folder).is_dir() for folder in folders)


def test_nvcc_is_looked_for_where_torch_looks(tmp_path: Path, environ: dict[str, str]) -> None:
    in_home = program(tmp_path / "home" / "bin", "nvcc")
    in_path = program(tmp_path / "path", "nvcc")
    for name in ("CUDA_PATH", "NVCC_CCBIN"):
        os.environ.pop(name, None)
    os.environ.update(CUDA_HOME=str(tmp_path / "home"), PATH=str(tmp_path / "path"))
    assert lacking.nvcc() == str(in_home)
    os.environ["CUDA_HOME"] = str(tmp_path / "nothing")
    assert lacking.nvcc() == str(in_path)
    assert "g++" in lacking.lacking_nvcc("it is built")
    program(tmp_path / "path", "g++")
    assert lacking.lacking_nvcc("it is built") == ""


def test_a_toolkit_is_found_behind_a_wrapper(tmp_path: Path) -> None:
    (tmp_path / "cuda" / "bin").mkdir(parents=True)
    said = f"#$ _SPACE_= \n#$ TOP={tmp_path}/cuda/bin/..\n#$ LD_LIBRARY_PATH=/x\n"
    root = nvcc_axpy.toolkit(said)
    assert root == os.path.realpath(tmp_path / "cuda")
    assert nvcc_axpy.toolkit("nvcc fatal") == ""
    assert nvcc_axpy.cublas(root) == nvcc_axpy.cublas("") == ""
    (tmp_path / "cuda" / "include").mkdir()
    (tmp_path / "cuda" / "include" / "cublas_v2.h").touch()
    assert nvcc_axpy.cublas(root) == ""
    library = tmp_path / "cuda" / "targets" / "x86_64-linux" / "lib"
    library.mkdir(parents=True)
    (library / "libcublas.so").touch()
    assert nvcc_axpy.cublas(root) == os.path.join(root, "targets", "x86_64-linux", "lib")


def test_a_program_that_names_its_cuda_error_is_told_by_it(tmp_path: Path) -> None:
    failing = program(tmp_path, "fails", "echo 'cuda: 209 cudaErrorNoKernelImageForDevice' >&2; exit 3")
    with pytest.raises(stages.Ended, match="the program ended with status 3") as caught:
        nvcc_axpy.must("the program", [str(failing)], 20.0)
    assert (caught.value.cuda_code, caught.value.cuda_name) == (209, "cudaErrorNoKernelImageForDevice")
    dying = program(tmp_path, "dies", "kill -SEGV $$")
    with pytest.raises(stages.Ended, match="signal 11: it said nothing") as caught:
        nvcc_axpy.must("the program", [str(dying)], 20.0)
    assert caught.value.cuda_code == 0
    assert nvcc_axpy.must("it", [str(program(tmp_path, "works", "echo done"))], 20.0) == "done"


def test_the_standard_is_the_one_that_torch_builds_with() -> None:
    text = "extra_compile_args={{'cxx': ['-g', '-std=c++23']}}\n    common_cflags += ['-std=c++{}', '-fPIC']\n"
    assert [aoti_runner_cpp.standard(text.format(year)) for year in (17, 20)] == ["17", "20"]
    assert aoti_runner_cpp.standard("") == "17"


def test_of_a_failed_build_the_errors_are_told() -> None:
    said = "[1/2] c++\nFAILED: main.o\na.cpp:1:2: error: no\na.cpp:1:2: error: no\n  note: x\nninja: stopped.\n"
    assert extensions.essence(said) == "a.cpp:1:2: error: no"
    assert extensions.essence("a\nlast\n") == "last"


def test_machine_code_is_counted_wherever_it_lies(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("x.cubin", "a/b/y.cubin", "a/z.ptx"):
        (tmp_path / name).touch()
    assert compile_gpu.made_below(str(tmp_path)) == 2


def test_only_shared_objects_below_the_folder_count_as_mapped(tmp_path: Path) -> None:
    (tmp_path / "kernel.so").write_bytes(b"code")
    (tmp_path / "table.bin").write_bytes(b"data")
    files = [(tmp_path / name).open("rb") for name in ("kernel.so", "table.bin")]
    views = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for file in files]
    assert mapped_below(str(tmp_path)) == 1
    for each in (*views, *files):
        each.close()
    assert mapped_below(str(tmp_path)) == 0


def test_a_package_whose_files_tell_nothing_names_no_reason(tmp_path: Path) -> None:
    (tmp_path / "p.pt2").write_bytes(b"PK")
    assert packages.why_deadly(str(tmp_path / "p.pt2")) == ""


def attempts(deadly: set[int], refused: set[int], ending: isolate.Ending = CRASH) -> tuple[Any, list[list[int]]]:
    """An attempt at configurations of which some end the process, and the numbers that each one was given."""
    seen: list[list[int]] = []

    def attempt(waiting: list[int], heard: Callable[[Any], None]) -> isolate.Ending:
        seen.append(waiting)
        for number in waiting:
            heard({"begins": number})
            if number in deadly:
                return ending
            heard({"refused": number} if number in refused else {"ran": number, "wrong": 0})
        return isolate.Ending("ran")

    return attempt, seen


def sorted_out(deadly: set[int], refused: set[int], ending: isolate.Ending = CRASH) -> dict[str, float]:
    bench = Bench("cuda:0")
    triton_autotune.judge(bench, triton_autotune.sort(attempts(deadly, refused, ending)[0], len(CONFIGS)))
    return bench.measures


TRAP_AT, LARGE_AT = CONFIGS.index(TRAP), CONFIGS.index(TOO_LARGE)


def test_a_tune_goes_on_behind_what_ends_its_process() -> None:
    attempt, seen = attempts({0, 3, 4}, {6})
    tried = triton_autotune.sort(attempt, 8)
    assert seen == [list(range(8)), list(range(1, 8)), [4, 5, 6, 7], [5, 6, 7]]
    assert tried == TuningResult({1: 0, 2: 0, 5: 0, 7: 0}, {6}, {0: CRASH, 3: CRASH, 4: CRASH})


def test_a_tune_that_ends_before_it_begins_is_told_and_not_repeated() -> None:
    with pytest.raises(stages.Ended, match="no configuration was begun with"):
        triton_autotune.sort(lambda *_: isolate.Ending("killed", signal="SIGSEGV"), 3)
    with pytest.raises(isolate.NotApplicable, match="no triton"):
        triton_autotune.sort(lambda *_: isolate.Ending("not-applicable", "no triton"), 3)


def test_what_a_tune_should_have_met_and_did_not_is_counted() -> None:
    clean = {"configs.ran": 10.0, "configs.wrong": 0.0, "large.accepted": 0.0, "trap.missed": 0.0, "trap.unnamed": 0.0}
    assert sorted_out({TRAP_AT}, {LARGE_AT}) == clean
    assert sorted_out(set(), {LARGE_AT}) == {**clean, "trap.missed": 1.0, "trap.unnamed": 1.0}
    assert sorted_out({TRAP_AT}, set()) == {**clean, "large.accepted": 1.0}
    assert sorted_out({TRAP_AT, 0}, {LARGE_AT}) == {**clean, "configs.ran": 9.0}
    assert sorted_out({TRAP_AT}, {LARGE_AT}, isolate.Ending("killed", signal="SIGABRT")) == {
        **clean,
        "trap.unnamed": 1.0,
    }


def test_every_test_of_the_group_runs_beside_the_others_of_its_device() -> None:
    assert all(case.builds for case in compilers.CASES)
