"""Core dumps of an H200 and of the CPU beside it, written without envkit, and what `envkit debug --core` said of them.

`tests/debug/cores_on_gpu.py` wrote and opened them, on the machine itself, where cuda-gdb is the only debugger, and in
containers of Docker Engine, one for the program and another for the debugger.  It ran the `native` stage with cuda-gdb
alone and the `profile` stage with the nsys of Debian's nsight-systems, too.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from inline import Envkit
from test_debug_corefile import crashed, needs_tools, opened, whole
from test_debug_learned import session_of, state_of

from envkit import debug
from envkit.debug import corefile, cores, native
from envkit.debug.job import CommandRun
from envkit.debug.records import DebugReport, Verdict

__all__ = ["crashed", "whole"]  # fixtures
RECORD = json.loads((Path(__file__).parent / "data" / "gpu" / "h200-torch-2.11-cu130-debug-cores.json").read_text())
DUMPS = RECORD["dumps"]
KERNELS = {
    "oob": ("scale_rows", "kernels/oob.cu:6"),
    "whole": ("scale_rows", "kernels/oob.cu:6"),
    "laden": ("scale_rows", "kernels/oob.cu:6"),
    "misaligned": ("add_quads", "kernels/misaligned.cu:5"),
    "tritoned": ("rotate", "later_kernel.py:11"),
    "oob/image": ("scale_rows", "kernels/oob.cu:6"),
    "laden/image": ("scale_rows", "kernels/oob.cu:6"),
    "misaligned/image": ("add_quads", "kernels/misaligned.cu:5"),
}


def test_the_record_says_where_and_when_it_ran() -> None:
    assert RECORD["recorded"] == {
        "gpu": "NVIDIA H200", "driver": "580.159.04", "torch": "2.11.0+cu130", "date": "2026-11-29", "python": "3.12",
        "where": "the machine's own Python, and (/image) a container of Docker Engine 26.1.5 with CDI",
    }  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_a_gpus_core_dump_that_was_left_names_the_kernel_and_its_line(name: str) -> None:
    kernel, place = KERNELS[name]
    told = DUMPS[name]["gpu"]
    assert told["code"] == 1 and told["report"]["verdict"] == "found"
    assert told["report"]["cause"].startswith(f"kernel `{kernel}` ")
    assert f" at /src/tests/debug/{place}, by thread (" in told["report"]["cause"]
    fault = cores.read(told["text"])
    assert fault and (fault.kernel, fault.place.where) == (kernel, f"/src/tests/debug/{place}")
    assert (told["report"]["image"] or "").startswith("gpu-host/base" if name.endswith("/image") else "")


def test_a_dump_from_a_container_says_the_same_outside_of_it() -> None:
    both = DUMPS["oob/image"]
    assert both["bare"]["report"]["cause"] == both["gpu"]["report"]["cause"] and both["bare"]["report"]["image"] is None


@pytest.mark.parametrize("name", ["clean", "race", "clean/image", "race/image"])
def test_where_no_kernel_failed_there_is_no_dump(name: str) -> None:
    assert DUMPS[name]["left"] == {} and DUMPS[name]["exit"] == (1 if name.startswith("race") else 0)


@pytest.mark.parametrize("name", ["labels", "labels/image"])
def test_an_assertion_of_a_kernel_of_torch_is_told_with_the_whole_name(name: str) -> None:
    fault = cores.read(DUMPS[name]["gpu"]["text"])
    assert fault and (fault.kind, fault.problem) == ("Warp Assert", "assert")
    assert "(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*" in fault.kernel
    assert "fails an assertion" in DUMPS[name]["gpu"]["report"]["cause"]
    assert DUMPS[name]["gpu"]["report"]["category"] == "device-side-assert"


def test_a_kernel_of_cublas_is_read_from_a_dump_in_its_image() -> None:
    fault = cores.read(DUMPS["halves/image"]["gpu"]["text"])
    assert fault and fault.kernel.startswith("nvjet_sm90_") and fault.problem == "out of bounds"


def test_a_dump_without_the_memory_is_small_and_the_older_variable_leaves_none_of_it_out() -> None:
    older, now = DUMPS["laden-older"], DUMPS["laden"]  # beside a tensor of 2 GiB
    (large,), (small,) = (list(each["left"].values()) for each in (older, now))
    assert large["size"] > 2 << 30 and small["size"] < 4_000_000 and now["memory"] == 0
    assert older["gpu"]["report"]["cause"] == now["gpu"]["report"]["cause"], "it tells as much"
    flags = cores.environ("/f/")["CUDA_COREDUMP_GENERATION_FLAGS"].split(",")
    assert "skip_global_memory" in flags and "skip_abort" in flags and now["exit"] == 1, "the process goes on"


@pytest.mark.parametrize(("name", "function", "line"), [("pooled", "sum_rows", 20), ("refused", "check_width", 38)])
def test_the_cpus_core_dump_of_a_process_with_cuda_is_read_by_cuda_gdb_and_in_its_image(
    name: str, function: str, line: int
) -> None:
    for inside in ("", "/image"):
        told = DUMPS[name + inside]["core"]
        assert told["code"] == 1 and told["report"]["verdict"] == "found"
        assert f" in `{function}` at /src/tests/debug/kernels/pooled.cpp:{line}" in told["report"]["cause"]
    assert DUMPS[name]["core"]["seconds"] < 60


def of_a_process(text: str) -> DebugReport:
    made = corefile._told(
        corefile.CoreFile(Path("core"), False, "/usr/bin/python3"), "/usr/bin/python3", debug.job.LocalMachine(),
        CommandRun(Path(), "exited", 0, 1.0), (),
    )  # fmt: skip
    return corefile._of_a_process(made, text)


def test_abort_in_the_first_process_of_a_container_is_no_segmentation_fault() -> None:
    """Its signal does not end that process, and the instruction behind it does, by SIGSEGV."""
    text = DUMPS["refused/image"]["core"]["text"]
    assert "Program terminated with signal SIGSEGV" in text and "#0  0x" in text and " in abort () " in text
    made = of_a_process(text)
    assert made.exit == -6 and made.cause.startswith("the program died of SIGABRT in `check_width` at ")
    other = of_a_process(DUMPS["pooled/image"]["core"]["text"])
    assert other.exit == -11 and other.cause.startswith("the program died of SIGSEGV in `sum_rows` at ")


def only(folder: Path, name: str, text: str) -> str:
    """A PATH with one program and a shell."""
    folder.mkdir()
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    (folder / "sh").symlink_to("/bin/sh")
    return str(folder)


@needs_tools
def test_where_cuda_gdb_alone_is_there_it_opens_the_cpus_core_dump(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gdb = shutil.which("gdb")
    monkeypatch.setenv("PATH", only(tmp_path / "bin", "cuda-gdb", f'#!/bin/sh\nexec {gdb} "$@"\n'))
    code, report = opened(capsys, tmp_path, whole / "core")
    assert code == 1 and report["cause"] == "the program died of SIGSEGV in `fill_rows` at rows.c:1"


def test_a_debugger_that_cannot_start_is_told_by_its_own_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "gdb: error while loading shared libraries: libx.so.4: cannot open shared object file"
    monkeypatch.setenv("PATH", only(tmp_path / "bin", "cuda-gdb", f"#!/bin/sh\necho '{said}' >&2\nexit 127\n"))
    from test_debug_corefile import header

    (tmp_path / "gpu").write_bytes(header(machine=190))
    done = Envkit(capsys)("debug", "--core", str(tmp_path / "gpu"), "--format", "json", "--out", str(tmp_path / "out"))
    report = json.loads(done.out)
    assert (done.code, report["verdict"]) == (3, "undecided")
    assert report["cause"] == f"the debugger does not run on this machine: {said}"


@pytest.mark.parametrize("name", ["pooled", "staged", "refused", "flushed"])
def test_the_native_stage_with_cuda_gdb_alone_tells_function_and_line(name: str) -> None:
    case = RECORD["native"][name]
    ran = {step["stage"]: step for step in case["report"]["steps"]}
    assert case["code"] == 1 and list(ran) == ["as-is", "native"] and "gdb" not in case["versions"]
    assert ran["native"]["found"].startswith("it died in `") and "kernels/pooled.cpp:" in ran["native"]["found"]
    log = next(text for file, text in case["files"].items() if file.endswith("gdb.log"))
    assert "kernels/pooled.cpp:" in log and native.listed(log)


def test_a_gdb_that_cannot_start_is_not_said_to_have_seen_no_crash(tmp_path: Path) -> None:
    session = session_of(tmp_path, state_of(tmp_path, "", {"gdb": "/gdb"}, exit=-11))
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "output.txt").write_text("gdb: error while loading shared libraries: libx.so.4\n\n")
    found = debug._learn(session, "native", CommandRun(folder, "exited", 127, 0.1))
    assert found == "gdb does not run: gdb: error while loading shared libraries: libx.so.4"
    found = debug._learn(session, "native", CommandRun(folder, "exited", 0, 0.1))
    assert found == "under gdb it did not die of that"


def test_nsys_of_debian_counts_the_kernels_of_a_command_that_goes_on() -> None:
    case = RECORD["profile"]
    ran = {step["stage"]: step for step in case["report"]["steps"]}
    assert list(ran) == ["as-is", "profile"] and case["report"]["verdict"] == "undecided"
    assert "99.2,5125762254,1828," in ran["profile"]["found"] and "sm80_xmma_gemm_f32f32" in ran["profile"]["found"]


@pytest.mark.parametrize(
    ("ended", "text", "said"),
    [
        ("timed-out", "[1/1] [====96%  ] profile.nsys-rep\n", "nsys had not written its report when the stage's time"),
        ("exited", "Couldn't find CudaGpuInfoDumper\n", "nsys left no report: Couldn't find CudaGpuInfoDumper"),
        ("exited", "", "nsys left no report"),
    ],
)
def test_why_nsys_left_no_report_is_told(tmp_path: Path, ended: str, text: str, said: str) -> None:
    session = session_of(tmp_path, state_of(tmp_path, "", {"nsys": "/nsys"}))
    folder = tmp_path / "profile"
    folder.mkdir()
    (folder / "output.txt").write_text(text)
    assert debug._learn(session, "profile", CommandRun(folder, ended, None, 1.0)).startswith(said)


def test_the_kernel_that_takes_the_time_is_read_from_what_nsys_counts(tmp_path: Path) -> None:
    counted = next(text for file, text in RECORD["profile"]["files"].items() if "counted" in file)
    (tmp_path / "counted.txt").write_text(counted)
    nsys = only(tmp_path / "bin", "nsys", f"#!/bin/sh\ncat {tmp_path}/counted.txt\n")
    session = session_of(tmp_path, state_of(tmp_path, "", {"nsys": f"{nsys}/nsys"}))
    folder = tmp_path / "profile"
    folder.mkdir()
    (folder / "profile.nsys-rep").write_text("")
    found = debug._learn(session, "profile", CommandRun(folder, "exited", 0, 1.0))
    assert found.startswith("most of the GPU's time by nsys: 99.2% in `sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize")
    assert Verdict.UNDECIDED.value == RECORD["profile"]["report"]["verdict"]
