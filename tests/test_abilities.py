"""What a probe tries of an environment: how each end is told, without torch and without a GPU."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envkit.payload import abilities, cuda_error
from envkit.payload.abilities import (
    ABSENT,
    FAILS,
    UNTRIED,
    WORKS,
    Attempt,
    caches,
    full,
    in_torch,
    nvrtc,
    tools,
    try_all,
)
from envkit.payload.isolate import NotApplicable
from envkit.payload.smoke.bench import Bench
from envkit.subjects.abilities import AbilityEnd, AbilityKind
from envkit.subjects.codec import from_plain
from envkit.subjects.image import Image

ROOT = Path(__file__).parent.parent


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def dying(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("work", "end", "detail"),
    [
        (lambda: None, WORKS, ""),
        (lambda: "12.4", WORKS, "12.4"),
        (raising(ValueError("two\nlines")), FAILS, "ValueError: two lines"),
        (raising(SystemExit("torch is broken")), FAILS, "SystemExit: torch is broken"),
        (raising(abilities.Absent("there is none")), ABSENT, "there is none"),
        (raising(abilities.Untried("not here")), UNTRIED, "not here"),
        (raising(cuda_error.Failed("no GPU", "35 cudaErrorInsufficientDriver")), UNTRIED, "Failed: no GPU"),
        (dying(signal.SIGSEGV), FAILS, "was killed by SIGSEGV"),
        (dying(signal.SIGKILL), UNTRIED, "its process was killed by SIGKILL"),
        (lambda: os._exit(3), FAILS, "it exited with status 3"),
    ],
    ids=["works", "says", "raises", "exits", "absent", "untried", "cuda", "segv", "kill", "leaves"],
)
def test_an_end_is_told_by_its_word(work: Callable[[], Any], end: str, detail: str) -> None:
    (row,) = try_all([Attempt("module", "it", work)], 30.0)
    assert (row["end"], row["kind"], row["what"]) == (end, "module", "it")
    assert row["detail"].startswith(detail)
    assert not row["detail"] or detail


def test_what_hangs_is_ended_within_its_budget_and_the_others_are_told() -> None:
    rows = try_all(
        [Attempt("module", "a", lambda: time.sleep(60), budget_s=0.3), Attempt("module", "b", lambda: None)], 9
    )
    assert [row["end"] for row in rows] == [FAILS, WORKS]
    assert rows[0]["detail"].startswith("no answer within")


def test_the_processor_time_of_an_attempt_and_of_its_children_is_told() -> None:
    burn = "import time; t = time.process_time()\nwhile time.process_time() - t < 0.2: pass"
    (row,) = try_all(
        [Attempt("module", "it", lambda: subprocess.run([sys.executable, "-c", burn], check=True) and None)], 60
    )
    assert row["cpu_s"] >= 0.2


@pytest.mark.parametrize(
    ("said", "library", "symbol"),
    [
        (
            "OSError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
            "libcudart.so.11.0",
            "",
        ),
        ("OSError: /a/b/libx.so: cannot open shared object file: No such file or directory", "libx.so", ""),
        ("OSError: /a/ops.so: undefined symbol: _ZN3c105ErrorE", "", "_ZN3c105ErrorE"),
        ("/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /a/ops.so)", "", "GLIBCXX_3.4.32"),
        ("OSError: libx.so: cannot open shared object file: Permission denied", "", ""),
        ("OSError: /a/libx.so: file too short", "", ""),
    ],
)
def test_what_the_linker_lacks_is_read_out_of_its_message(said: str, library: str, symbol: str) -> None:
    assert abilities.lacking(said) == {"library": library, "symbol": symbol}


def test_the_words_of_payload_and_subject_are_the_same() -> None:
    assert {WORKS, FAILS, ABSENT, UNTRIED} == set(AbilityEnd)
    made = {"level": "quick", "tried": [abilities.row(kind, "it", WORKS) for kind in AbilityKind], "caches": []}
    image = from_plain(Image, {"name": "it", "abilities": {"value": made, "via": "children", "missing": ""}})
    assert [one.kind for one in image.abilities.need("them").tried] == list(AbilityKind)


# Caches.

MINE, OTHER = 1000, 4321


def status(uid: int, gid: int, mode: int) -> os.stat_result:
    return os.stat_result((stat.S_IFDIR | mode, 1, 1, 1, uid, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("uid", "groups", "mode", "may"),
    [
        (MINE, {MINE}, 0o755, True),
        (MINE, {MINE}, 0o555, False),
        (MINE, {MINE}, 0o077, False),  # the owner's bits alone count
        (OTHER, {MINE}, 0o775, True),
        (OTHER, {MINE}, 0o757, False),  # and then the group's
        (OTHER, {OTHER}, 0o755, False),
        (OTHER, {OTHER}, 0o1777, True),
        (OTHER, {OTHER}, 0o776, False),  # a folder that may not be entered
        (0, {0}, 0o000, True),
    ],
)
def test_who_may_write_is_read_from_owner_and_mode(uid: int, groups: set[int], mode: int, may: bool) -> None:
    assert caches.may_write(status(MINE, MINE, mode), uid, groups) is may


def test_a_folder_that_is_not_there_is_judged_by_the_nearest_that_is(tmp_path: Path) -> None:
    me = os.getuid()
    found = caches.folder("HF_HOME", str(tmp_path / "a/b"), True, "huggingface-hub", me, {os.getgid()})
    assert (found["nearest"], found["exists"], found["writable"], found["filled"]) == (
        str(tmp_path),
        False,
        True,
        False,
    )
    (tmp_path / "a").write_text("")
    found = caches.folder("HF_HOME", str(tmp_path / "a"), True, "", me, {os.getgid()})
    assert (found["is_folder"], found["writable"]) == (False, False)
    (tmp_path / "c").mkdir(mode=0o755)
    found = caches.folder("HF_HOME", str(tmp_path / "c"), True, "", me + 1, {os.getgid() + 1})
    assert (found["writable"], found["mode"], found["owner_uid"]) == (False, "0755", me)


def test_what_the_kernel_shows_takes_no_cache() -> None:
    """Root may write in /proc by its mode, and can make nothing there."""
    for path in ("/proc/triton", "/sys/triton"):
        found = caches.folder("TRITON_CACHE_DIR", path, True, "triton", 0, {0})
        assert (found["writable"], found["is_folder"]) == (False, True)
    assert caches.folder("TRITON_CACHE_DIR", "/process/triton", True, "triton", 0, {0})["writable"]


def test_folders_are_those_of_the_variables_and_else_below_home(tmp_path: Path) -> None:
    found = {one["variable"]: one for one in caches.seen({"HOME": str(tmp_path), "TRITON_CACHE_DIR": "/tmp/triton"})}
    assert found["TRITON_CACHE_DIR"]["path"] == "/tmp/triton" and found["TRITON_CACHE_DIR"]["named"]
    assert found["HF_HOME"]["path"] == str(tmp_path / ".cache/huggingface") and not found["HF_HOME"]["named"]
    assert found["HOME"]["path"] == str(tmp_path)
    assert "XDG_CACHE_HOME" not in found
    found = {one["variable"]: one for one in caches.seen({"HOME": "/h", "XDG_CACHE_HOME": "/x"})}
    assert found["HF_HOME"]["path"] == "/x/huggingface"


# Tools.


def script(folder: Path, name: str, text: str, mode: int = 0o755) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return path


def test_an_assembler_says_its_release(tmp_path: Path) -> None:
    good = script(tmp_path, "ptxas", "echo 'Cuda compilation tools, release 12.4, V12.4.131'")
    assert tools._ptxas(str(good)) == "12.4"
    with pytest.raises(abilities.Absent):
        tools._ptxas(str(tmp_path / "none"))
    with pytest.raises(RuntimeError, match="names no release: hello"):
        tools._ptxas(str(script(tmp_path, "other", "echo hello")))
    with pytest.raises(RuntimeError, match="does not run"):
        tools._ptxas(str(script(tmp_path, "shut", "", 0o644)))
    with pytest.raises(abilities.Absent):
        tools._ptxas(str(tmp_path))


def test_compilers_are_those_that_triton_and_inductor_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    assert (tools.c_compiler(), tools.cpp_compiler()) == (([], "PATH"), ([], "PATH"))
    clang = script(tmp_path, "clang", "")
    assert tools.c_compiler() == ([str(clang)], "PATH")
    gcc = script(tmp_path, "gcc", "")
    assert tools.c_compiler() == ([str(gcc)], "PATH")
    monkeypatch.setenv("CC", "ccache gcc")
    monkeypatch.setenv("CXX", "g++ -m64")
    assert (tools.c_compiler(), tools.cpp_compiler()) == ((["ccache", "gcc"], "CC"), (["g++", "-m64"], "CXX"))


def test_a_compiler_that_fails_is_told_by_its_first_error(tmp_path: Path) -> None:
    said = "In file included from made.c:1:\\nmade.c:1:10: fatal error: stdlib.h: No such file\\n"
    text = f"printf '{said}' >&2; exit 1"
    with pytest.raises(RuntimeError, match=r"ended with 1: made\.c:1:10: fatal error: stdlib"):
        tools._compile([str(script(tmp_path, "cc", text))], "", ".c")
    with pytest.raises(OSError, match=r"made\.so"):  # it says that it worked and made nothing
        tools._compile([str(script(tmp_path, "cc", "exit 0"))], "", ".c")
    with pytest.raises(RuntimeError, match="does not run"):
        tools._compile([str(tmp_path / "none")], "", ".c")


# Extensions and libraries.


def test_a_module_is_known_by_its_file_name() -> None:
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    assert in_torch._module_of("ops" + suffix) == "ops"
    assert in_torch._module_of("_C.abi3.so") == "_C"
    assert in_torch._module_of("libx.so") == "libx"
    assert in_torch._module_of("ops.cpython-27-x86_64-linux-gnu.so") == ""  # of another Python
    assert in_torch._module_of("libx.so.1") == ""
    assert in_torch._module_of("7z.so") == ""


@pytest.mark.parametrize(
    ("path", "late"),
    [
        ("/s/torch/lib/libtorch_cuda_linalg.so", True),
        ("torch/lib/libtorch_cuda_linalg.so", True),  # as RECORD spells it
        ("/s/torch/lib/libbackend_with_compiler.so", False),
        ("/s/torch/lib/libc10d_cuda_test.so", False),
        ("/s/torch/lib/libtorch.py", False),
        ("/s/nvidia/cudnn/lib/libcudnn_adv.so.9", True),
        ("/s/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.4", True),
        ("/s/nvidia/cu13/lib/libnvrtc.alt.so.13", False),
        ("/s/nvidia/cublas/lib/libnvblas.so.12", False),
    ],
)
def test_what_torch_opens_late_is_known_by_its_place_and_family(path: str, late: bool) -> None:
    assert in_torch._late(path) is late


def test_a_job_s_own_folder_is_read_as_far_as_its_modules_lie(tmp_path: Path) -> None:
    for name in (
        "a.so",
        "pkg/b.so",
        "pkg/one/two/three/c.so",
        "pkg/one/two/three/four/d.so",
        ".git/e.so",
        "env/lib/f.so",
        "build/g.so",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "env/pyvenv.cfg").touch()
    found = {os.path.relpath(path, tmp_path) for path in in_torch._files(str(tmp_path), False)}
    assert found == {"a.so", "pkg/b.so", "pkg/one/two/three/c.so"}
    for name in ("torch/lib/x.so", "other/lib/deep/er/and/deeper/y.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    installed = {os.path.relpath(path, tmp_path) for path in in_torch._files(str(tmp_path), True)}
    assert "torch/lib/x.so" not in installed
    assert "other/lib/deep/er/and/deeper/y.so" in installed


def test_a_torch_without_nvrtc_is_not_asked_for_it(tmp_path: Path) -> None:
    assert nvrtc.of(str(tmp_path)) == ("", "")
    assert list(nvrtc.attempts(str(tmp_path), [], [90])) == []


# The whole, with a torch that does nothing.


def observe(folder: Path, *words: str) -> dict[str, Any]:
    """The field ``abilities`` of a probe of this Python with the modules in ``folder``."""
    code = "import json, sys; from envkit.payload.probe import outer; print(json.dumps(outer.main(sys.argv[1:])))"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"},
        stdin=subprocess.DEVNULL,
        cwd=folder,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["image"]["abilities"]
    return found


@pytest.fixture
def plain_torch(tmp_path: Path) -> Path:
    """A module torch that can do nothing, in a folder of its own."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("__version__ = '0'\n")
    return tmp_path


def test_a_level_says_what_is_tried(plain_torch: Path) -> None:
    found = observe(plain_torch, "--abilities", "quick")
    kinds = {row["kind"] for row in found["value"]["tried"]}
    assert {"c-compiler", "c++-compiler", "numpy", "user-name"} <= kinds
    assert not kinds & {"torch-compile", "data-loader", "library", "nvrtc"}
    assert found["value"]["level"] == "quick"
    for words in (("--abilities", "none"), (), ("--static", "--abilities", "quick")):
        assert observe(plain_torch, *words)["reason"] == "unsupported"


def test_a_torch_that_ends_its_process_leaves_what_needs_none(plain_torch: Path) -> None:
    (plain_torch / "torch/__init__.py").write_text("raise ImportError('no')\n")
    kinds = {row["kind"] for row in observe(plain_torch, "--abilities", "quick")["value"]["tried"]}
    assert "c-compiler" in kinds and "numpy" not in kinds


def test_settings_are_given_to_the_parser_that_this_torch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    for name in in_torch._SETTINGS:  # which it changes, in a child of its own
        monkeypatch.setenv(name, "")

    def without_gpu(value: str) -> None:
        if "backend:" in value:
            raise cuda_error.Failed("no GPU", "35 cudaErrorInsufficientDriver")
        heard.append(value)

    core = type(sys)("torch._C")
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    monkeypatch.setitem(sys.modules, "torch._C", core)
    with pytest.raises(abilities.Untried):
        in_torch._settings("PYTORCH_CUDA_ALLOC_CONF", "a:1")
    core._cuda_cudaCachingAllocator_set_allocator_settings = heard.append  # type: ignore[attr-defined]
    in_torch._settings("PYTORCH_CUDA_ALLOC_CONF", "a:1")
    del core._cuda_cudaCachingAllocator_set_allocator_settings  # type: ignore[attr-defined]
    core._accelerator_setAllocatorSettings = heard.append  # type: ignore[attr-defined]
    in_torch._settings("PYTORCH_ALLOC_CONF", "b:1")
    core._accelerator_setAllocatorSettings = without_gpu  # type: ignore[attr-defined]
    in_torch._settings("PYTORCH_ALLOC_CONF", "c:[1,2],backend:cudaMallocAsync")
    assert heard == ["a:1", "b:1", "c:[1,2]"]
    assert (os.environ.get("PYTORCH_ALLOC_CONF"), os.environ.get("PYTORCH_CUDA_ALLOC_CONF")) == ("c:[1,2]", None)


@pytest.mark.parametrize(
    ("cuda", "newer", "read"),
    [(None, True, ()), ("12.4", False, in_torch._SETTINGS[:1]), ("13.0", True, in_torch._SETTINGS)],
)
def test_settings_are_those_that_this_torch_reads(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, newer: bool, read: tuple[str, ...]
) -> None:
    core = SimpleNamespace(_accelerator_setAllocatorSettings=print) if newer else SimpleNamespace()
    torch: Any = SimpleNamespace(version=SimpleNamespace(cuda=cuda), _C=core)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert in_torch._variables() == read


def test_a_folder_without_a_file_is_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "networkz").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(abilities.Absent, match="has no __init__"):
        tools._import("networkz")
    with pytest.raises(abilities.Absent, match="no module named nothing_such"):
        tools._import("nothing_such")


# What takes long.


def as_compiler_test(monkeypatch: pytest.MonkeyPatch, name: str, run: Callable[[Bench], None]) -> None:
    """Has ``run`` be the suite's own test of this name."""
    monkeypatch.setitem(sys.modules, f"envkit.payload.smoke.compilers.{name}", SimpleNamespace(run=run))


def test_a_test_of_the_suite_ends_as_an_ability_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(bench: Bench) -> None:
        bench.not_applicable("there is no compiler")

    def wrong(detail: str) -> Callable[[Bench], None]:
        def run(bench: Bench) -> None:
            bench.count("sums.wrong", 2)
            bench.count("fine.wrong", 0)
            bench.count("last.wrong", 1)
            bench.note("wrong.seconds", 5)
            bench.detail = detail

        return run

    as_compiler_test(monkeypatch, "cpp_extension", lacking)
    with pytest.raises(abilities.Absent, match="there is no compiler") as told:
        full._test("cpp_extension", Bench("cpu"))
    assert isinstance(told.value.__cause__, NotApplicable)
    for detail, said in (("", "sums.wrong, last.wrong is not as it should be"), ("g++ said no", "g++ said no")):
        as_compiler_test(monkeypatch, "cpp_extension", wrong(detail))
        with pytest.raises(RuntimeError) as failed:
            full._test("cpp_extension", Bench("cpu"))
        assert str(failed.value) == said
    as_compiler_test(monkeypatch, "cpp_extension", lambda bench: bench.count("sums.wrong", 0))
    bench = Bench("cpu")
    assert full._test("cpp_extension", bench) is bench


@pytest.mark.parametrize(("graphs", "objects", "works"), [(1, 1, True), (0, 1, False), (1, 0, False)])
def test_a_compile_that_fell_back_to_eager_has_failed(
    monkeypatch: pytest.MonkeyPatch, graphs: int, objects: int, works: bool
) -> None:
    def run(bench: Bench) -> None:
        assert (bench.device, bench.scratch) == ("cpu", "/scratch")
        bench.note("graphs.compiled", graphs)
        bench.note("objects.mapped", objects)

    as_compiler_test(monkeypatch, "torch_compile", run)
    if works:
        full._compile("/scratch")
    else:
        with pytest.raises(RuntimeError, match="fell back to eager"):
            full._compile("/scratch")


@pytest.mark.parametrize(
    ("made", "detail", "said"), [(1, "", ""), (0, "", "no kernel was made for sm_90"), (1, "x", "x")]
)
def test_a_kernel_of_triton_that_was_not_made_has_failed(
    monkeypatch: pytest.MonkeyPatch, made: int, detail: str, said: str
) -> None:
    def run(bench: Bench) -> None:
        assert tuple(bench.targets) == ("sm_90",)
        bench.note("made", made)
        bench.detail = detail

    as_compiler_test(monkeypatch, "triton_targets", run)
    if not said:
        full._triton("/scratch", "sm_90")
        return
    with pytest.raises(RuntimeError) as failed:
        full._triton("/scratch", "sm_90")
    assert str(failed.value) == said


def test_gpus_are_the_declared_ones_else_the_newest_that_torch_has_code_for(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["sm_50 sm_90 sm_100 compute_120 sm_90a"]
    core = SimpleNamespace(_cuda_getArchFlags=lambda: flags[0])
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=core))
    assert full._targets([]) == ["sm_100"]
    assert full._targets([80, 90]) == ["sm_80", "sm_90"]
    flags[0] = ""
    assert full._targets([90]) == []  # built for no GPU
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=SimpleNamespace()))
    assert full._targets([90]) == []


def test_each_thing_that_takes_long_has_a_folder_of_its_own(tmp_path: Path) -> None:
    rows = [(one.kind, one.what) for one in full._attempts(str(tmp_path), ["sm_80", "sm_90"])]
    assert rows == [
        ("torch-compile", "cpu"), ("triton-compile", "sm_80"), ("triton-compile", "sm_90"),
        ("extension-build", "C++"), ("data-loader", "fork"), ("data-loader", "spawn"),
    ]  # fmt: skip
    assert {path.name for path in tmp_path.iterdir()} == {"inductor", "sm_80", "sm_90", "extension"}


def test_a_loader_that_fails_is_told_by_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(code: int, text: str) -> None:
        monkeypatch.setattr(full.programs, "told", lambda argv, budget_s: (code, text))

    said(0, "noise")
    full._loader("fork")
    for text, last in (
        ("Traceback\nValueError: no \nat exit", "ValueError: no"), ("one\ntwo", "two"), ("", "it said nothing"),
    ):  # fmt: skip
        said(1, text)
        with pytest.raises(RuntimeError) as failed:
            full._loader("spawn")
        assert str(failed.value) == last
