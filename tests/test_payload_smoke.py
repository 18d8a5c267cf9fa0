"""The suite as a program: what it says with no torch, with a broken one, and, where there is one, with a real one."""

from __future__ import annotations

import json
import mmap
import os
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torches

from envkit import facts, payload
from envkit.image.smoke import read
from envkit.judging import judge
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.payload import cuda_error, shared_memory, smoke
from envkit.payload.smoke import TESTS, bench
from envkit.payload.smoke.case import LEVELS, SUITE, Case, chosen, devices
from envkit.payload.smoke.compilers import triton_targets
from envkit.runner.pack import pack
from envkit.subjects.smoke import SmokeRun

ROOT = Path(payload.__file__).parents[2]
# Tests of one device that import torch in common; a test of several has its own way to do without a GPU.
WITH_TORCH = [test for test in TESTS if test.cpu and not test.several and test.start == "fork"]
ON_CPU = [test for test in TESTS if test.cpu and not test.several]


def suite(*words: str, python: str = sys.executable, path: Path | None = None, root: Path = ROOT, **env: str) -> Any:
    """The document of one run; ``path`` comes before everything on the way to torch."""
    where = os.pathsep.join(str(entry) for entry in (path, root) if entry)
    done = subprocess.run(
        [python, "-m", "envkit.payload.smoke", *words],
        capture_output=True,
        text=True,
        timeout=1200,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": where, "PYTHONDONTWRITEBYTECODE": "1", **env},
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "schema": "envkit.payload/1", "kind": "smoke"}


def ends(document: Any) -> dict[tuple[str, str], str]:
    return {(test["name"], test["device"]): test["ended"] for test in document["tests"]}


def fake_torch(folder: Path, source: str) -> Path:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(source)
    return folder


def found(run: SmokeRun, name: str) -> list[Finding]:
    check = judge.checks()["smoke-" + name]
    return list(check.judge(run, facts.load()) if check.wants_facts else check.judge(run))


def only(tests: list[Any]) -> list[str]:
    return [word for test in tests for word in ("--only", test.name)]


def test_worse_keeps_nan() -> None:
    nan = float("nan")
    assert bench.worse(1.0, 2.0) == bench.worse(2.0, 1.0) == 2.0
    assert bench.worse(nan, 1.0) != bench.worse(nan, 1.0)
    assert bench.worse(1.0, nan) != bench.worse(1.0, nan)


def test_numbers_that_json_does_not_know_travel_as_text() -> None:
    values = {"a": float("nan"), "b": float("inf"), "c": float("-inf"), "d": 1.0}
    assert bench.travelling(values) == {"a": "nan", "b": "inf", "c": "-inf", "d": 1.0}


def test_python_without_torch_is_not_applicable_for_torch(tmp_path: Path) -> None:
    missing = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    document = suite("--device", "cpu", *only(WITH_TORCH), path=fake_torch(tmp_path, missing))
    assert set(ends(document)) == {(test.name, "cpu") for test in WITH_TORCH}
    assert set(ends(document).values()) == {"not-applicable"}
    run = read(document, SmokeRun("x"))
    with pytest.raises(Skip, match="no torch"):
        found(run, "gemm-exact")
    with pytest.raises(Skip, match="no torch"):
        found(run, "import-leaves-cuda-alone")


@pytest.mark.parametrize(
    ("source", "ended", "words"),
    [
        ("raise ImportError('libcudnn.so: undefined symbol: x')", "raised", "undefined symbol"),
        ("raise ModuleNotFoundError('No module named sympy', name='sympy')", "raised", "sympy"),
        ("import os; os.kill(os.getpid(), 11)", "killed", "SIGSEGV"),
        ("import time; time.sleep(600)", "hung", "no answer within"),
        ("import os; os._exit(0)", "garbled", "without its document"),
    ],
)
def test_a_torch_that_cannot_be_imported_fails_every_test_of_it_and_one_that_dies_leaves_them_open(
    tmp_path: Path, source: str, ended: str, words: str
) -> None:
    broken = fake_torch(tmp_path, source + "\n")
    document = suite("--device", "cpu", "--import-seconds", "1", *only(WITH_TORCH), path=broken)
    assert set(ends(document).values()) == {ended}
    assert words in document["torch_error"]
    run = read(document, SmokeRun("x", level="full", suite=SUITE))
    for test in WITH_TORCH:
        if ended != "raised":
            with pytest.raises(Unknown, match=f"import torch .*{words}"):
                found(run, test.name)
        else:
            (finding,) = found(run, test.name)
            assert words in finding.message


def test_a_torch_that_touches_cuda_when_imported_is_told(tmp_path: Path) -> None:
    source = "import types\n__version__ = '0'\ncuda = types.SimpleNamespace(is_initialized=lambda: True)\n"
    document = suite("--device", "cpu", "--only", "fft", path=fake_torch(tmp_path, source))
    assert document["cuda_before_fork"] is True
    (finding,) = found(read(document, SmokeRun("x")), "import-leaves-cuda-alone")
    assert "initialised CUDA" in finding.message
    assert ends(document) == {("fft", "cpu"): "raised"}


@pytest.mark.parametrize("given", [{}, {"OMP_WAIT_POLICY": "active"}])
def test_threads_that_wait_sleep_unless_the_image_says_otherwise(tmp_path: Path, given: dict[str, str]) -> None:
    source = "import os\nraise ImportError(os.environ['OMP_WAIT_POLICY'])\n"
    document = suite("--device", "cpu", "--only", "fft", path=fake_torch(tmp_path, source), **given)
    assert given.get("OMP_WAIT_POLICY", "passive") in document["torch_error"]


def test_a_fresh_interpreter_takes_no_module_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')\n")
    pyz = tmp_path / "payload" / "envkit.pyz"
    pyz.parent.mkdir()
    pyz.write_bytes(pack())
    words = [sys.executable, str(pyz), "smoke", "--only", "dataloader", "--device", "cpu"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    (test,) = json.loads(done.stdout.splitlines()[-1])["tests"]
    assert "the wrong json" not in test["stderr_tail"]
    assert test["ended"] in ("not-applicable", "ran"), test


def test_a_driver_that_is_there_and_broken_is_no_absence(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    document = suite("--device", "cuda", LD_LIBRARY_PATH=str(tmp_path))
    assert document["gpus"] is None
    assert "file too short" in document["gpus_error"]
    quick = [test for test in TESTS if test.gpu and test.level == "quick"]
    known = {place: ended for place, ended in ends(document).items() if place[1] != "cpu"}
    assert known == {(test.name, "cuda"): "raised" for test in quick}
    for test in quick:
        (finding,) = found(read(document, SmokeRun("x")), test.name)
        assert "the driver could not be asked" in finding.message


def test_a_wrong_word_is_a_usage_error() -> None:
    words = [sys.executable, "-m", "envkit.payload.smoke", "--only", "nonsense"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 2
    assert "nonsense" in done.stderr


def test_an_architecture_is_a_number(tmp_path: Path) -> None:
    for wrong in ("sm_90", "9.0", "9", "90a", "-1"):
        words = [sys.executable, "-m", "envkit.payload.smoke", "--sm=" + wrong, "--only", "fft"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert done.returncode == 2
        assert "is no compute capability" in done.stderr


def cubin(
    kernel: str = "add", flags: int = 0x5A0D5A, abi: int = 7, machine: int = 190, code: bytes = b"\1" * 16
) -> bytes:
    """An ELF file as ptxas writes it, as far as it is read: a section of names and one of code."""
    names = b"\0.shstrtab\0.text." + kernel.encode() + b"\0"
    sections = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, 3, 0, 0, 64, len(names), 0, 0, 1, 0),
        (11, 1, 6, 0, 64 + len(names), len(code), 0, 0, 1, 0),
    ]
    at = 64 + len(names) + len(code)
    head = struct.pack(
        "<4s5B7x2HI3QI6H", b"\x7fELF", 2, 1, 1, 51, abi, 2, machine, 1, 0, 0, at, flags, 64, 0, 0, 64, len(sections), 1
    )
    return head + names + code + b"".join(struct.pack("<2I4Q2I2Q", *section) for section in sections)


@pytest.mark.parametrize(
    ("flags", "abi", "expected"),
    [
        (0x5A0D5A, 7, "sm_90"),  # Triton 3.0 to 3.6, sm_90a
        (0x590559, 7, "sm_89"),
        (0x900640A, 8, "sm_100"),  # Triton 3.4, sm_100a
        (0x9005A04, 8, "sm_90"),  # Triton 3.9, sm_90a
        (0x9007902, 8, "sm_121"),
    ],
)
def test_the_architecture_of_machine_code_is_read_from_its_flags(flags: int, abi: int, expected: str) -> None:
    assert triton_targets.architecture(cubin(flags=flags, abi=abi), "add") == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no 64-bit ELF file"),
        (b"\x7fELF\x01" + cubin()[5:], "no 64-bit ELF file"),
        (cubin(machine=62), "machine is 62"),
        (cubin(abi=0), "ABI version 0"),
        (cubin(kernel="dot"), "no code for the kernel add"),
        (cubin(kernel="add2"), "no code for the kernel add"),
        (cubin(code=b""), "code for the kernel add is empty"),
        (cubin(code=b"\0" * 16), "code for the kernel add is empty"),
        (cubin()[:-1], "table of sections is not whole"),
        (cubin()[:64], "table of sections is not whole"),
    ],
)
def test_what_is_no_machine_code_is_told(content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        triton_targets.architecture(content, "add")


def test_the_target_of_ptx_is_read_without_its_suffix() -> None:
    assert triton_targets.named_target("//\n.version 8.7\n.target sm_90a\n.address_size 64") == "sm_90"
    assert triton_targets.named_target(".target sm_120, debug") == "sm_120"
    assert triton_targets.named_target("// .target sm_90") == ""


def test_a_compiler_is_lacking_only_where_none_is_named(tmp_path: Path) -> None:
    code = "from envkit.payload.smoke.compilers.lacking import lacking_cpp; print(lacking_cpp('x builds'))"

    def said(**env: str) -> str:
        words = [sys.executable, "-c", code]
        done = subprocess.run(
            words, capture_output=True, text=True, cwd=ROOT, env={"PATH": str(tmp_path), **env}, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert said() == "x builds with g++, which is not in PATH"
    assert "g++" not in said(CXX="/no/such/compiler")  # the build says so itself
    (tmp_path / "g++").write_text("#!/bin/sh\n")
    (tmp_path / "g++").chmod(0o755)
    assert "g++" not in said()


@torches.needs_torch
def test_what_was_switched_off_is_no_compiled_model() -> None:
    words = ("--device", "cpu", "--only", "torch-compile")
    run = read(suite(*words, python=torches.PYTHON, TORCHDYNAMO_DISABLE="1"), SmokeRun("x"))
    messages = [finding.message for finding in found(run, "torch-compile")]
    assert messages == [
        "torch-compile: graphs.compiled is 0, below its limit of 1",
        "torch-compile: objects.mapped is 0, below its limit of 1",
    ]


@torches.needs_triton
def test_a_gpu_that_no_compiler_knows_is_told_and_the_others_are_made() -> None:
    document = suite("--device", "cpu", "--only", "triton-targets", "--sm", "89", "--sm", "999", python=torches.PYTHON)
    run = read(document, SmokeRun("x", gpus_promised=("sm_89", "sm_999")))
    errors = [finding.where for finding in found(run, "triton-targets") if finding.severity is Severity.ERROR]
    assert errors == ["sm_999"]
    (test,) = run.tests.need("the tests")
    assert (test.ended, test.measures["sm_89.add.offered"], test.measures["made"]) == ("ran", 1.0, 2.0)


@torches.needs_torch
def test_a_sound_torch_passes_every_test_of_the_cpu() -> None:
    document = suite("--device", "cpu", python=torches.PYTHON)
    run = read(document, SmokeRun("x"))
    assert run.cuda_before_fork.value is False
    for test in ON_CPU:
        if test.level == "quick":
            assert found(run, test.name) == []


@torches.needs_torch
def test_the_suite_runs_from_a_zip_and_leaves_the_image_alone(tmp_path: Path) -> None:
    archive = tmp_path / "payload.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(ROOT / "envkit" / "__init__.py", "envkit/__init__.py")
        for path in (ROOT / "envkit" / "payload").rglob("*.py"):
            file.write(path, path.relative_to(ROOT))
    two = ("--only", "dataloader", "--only", "sparse")  # one in a fresh interpreter, one forked
    document = suite("--device", "cpu", *two, python=torches.PYTHON, root=archive)
    assert ends(document) == {("dataloader", "cpu"): "ran", ("sparse", "cpu"): "ran"}
    assert sorted(os.listdir(tmp_path)) == ["payload.pyz"]


FREIVALDS = """
import torch
from envkit.payload.smoke.gemm.gemm_exact import wrong_in_product
random = torch.Generator().manual_seed(1)
left = torch.randint(-9, 10, (300, 200), generator=random)
right = torch.randint(-9, 10, (200, 250), generator=random)
for change in (0.0, 1.0, -1.0, 0.5, float("nan"), float("inf")):
    product = (left @ right).float()
    product[17, 249] += change
    print(wrong_in_product(left, right, product, random))
product = (left @ right).float()
product[3], product[5] = product[5].clone(), product[3].clone()
print(wrong_in_product(left, right, product, random))
print(wrong_in_product(left, right, torch.zeros(300, 250), random))
"""


@torches.needs_torch
def test_freivalds_sees_one_element() -> None:
    done = subprocess.run([torches.PYTHON, "-c", FREIVALDS], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.stdout.split() == ["0", "1", "1", "1", "1", "1", "2", "300"], done.stderr


def test_a_test_runs_on_every_gpu_or_else_where_it_means_something() -> None:
    both, gpu, cpu = Case("a"), Case("b", cpu=False), Case("c", gpu=False)
    assert (devices(both, 0), devices(both, 2)) == (("cpu",), ("cuda:0", "cuda:1"))
    assert (devices(gpu, 0), devices(gpu, 1)) == (("cuda",), ("cuda:0",))
    assert (devices(cpu, 0), devices(cpu, 3)) == (("cpu",), ("cpu",))
    assert devices(Case("d", several=2), 0) == devices(Case("d", several=2), 8) == ("gpus",)


def test_full_holds_quick_and_stress_what_loads_a_gpu() -> None:
    tests = (Case("q"), Case("f", level="full", stress=True), Case("s", level="stress"))
    names = {level: [case.name for case in chosen(tests, level)] for level in LEVELS}
    assert names == {"quick": ["q"], "full": ["q", "f"], "stress": ["f", "s"]}
    assert [case.name for case in chosen(tests, "quick", ("s", "q"), ("q",))] == ["s"]


def test_of_several_rounds_the_worst_counts() -> None:
    first = {"ended": "ran", "seconds": 1.0, "rounds": 1, "measures": {"x.wrong": 0.0, "y.gbs": 5.0, "z.worst": "nan"}}
    second = {"ended": "ran", "seconds": 1.0, "measures": {"x.wrong": 2.0, "y.gbs": 4.0, "z.worst": 0.0}}
    kept = smoke._rounds(first, second)
    assert (kept["measures"], kept["rounds"]) == ({"x.wrong": 2.0, "y.gbs": 4.0, "z.worst": "nan"}, 2)
    died = smoke._rounds(kept, {"ended": "killed", "seconds": 1.0, "detail": "", "measures": {}})
    assert (died["ended"], died["rounds"], died["detail"]) == ("killed", 3, "in round 3: ")
    assert smoke._rounds(died, {**second, "detail": ""})["ended"] == "killed"


def test_what_must_be_alone_waits_for_the_others(tmp_path: Path) -> None:
    setting = smoke.Setting(1, (), str(tmp_path), 2, "quick")
    shared, lone = smoke.Job(Case("a"), "cuda:0"), smoke.Job(Case("b", alone=True), "cuda:0")
    with smoke._turn(shared, setting), smoke._turn(shared, setting):
        code = "import fcntl,os,sys\nfd = os.open(sys.argv[1], os.O_RDWR)\nfcntl.flock(fd, 2 | 4)"
        busy = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "lock-cuda-0")], capture_output=True, text=True
        )
        assert "BlockingIOError" in busy.stderr
    with smoke._turn(lone, setting) as waited:
        assert waited < 1.0
    several = smoke.Job(Case("c", several=2), "gpus")
    with smoke._turn(several, setting):
        assert {path.name for path in tmp_path.iterdir()} == {"lock-cuda-0", "lock-cuda-1"}


def test_shared_memory_that_nobody_uses_is_removed_and_what_is_used_or_older_stays() -> None:
    mine = Path("/dev/shm", f"torch_{os.getpid()}_test")
    used = Path("/dev/shm", f"nccl-{os.getpid()}")
    other = Path("/dev/shm", f"envkit-test-{os.getpid()}")
    try:
        for path in (mine, used, other):
            path.write_bytes(b"x" * 4096)
        with used.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
            assert mine.name not in shared_memory.sweep(time.time() + 60)
            removed = shared_memory.sweep(time.time() - 5)
        assert mine.name in removed and not {used.name, other.name} & set(removed)
        assert (mine.exists(), used.exists(), other.exists()) == (False, True, True)
    finally:
        for path in (mine, used, other):
            path.unlink(missing_ok=True)


def test_an_extra_file_without_tests_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def other(bench): pass\n")
    assert "no function whose name begins with smoke_" in suite("--device", "cpu", "--test-file", str(file))["refused"]
    file.write_text("def smoke_(\n")
    assert suite("--device", "cpu", "--test-file", str(file))["refused"]


def test_errors_that_are_none_of_cuda_have_no_code() -> None:
    assert cuda_error.code_of(ValueError("CUDA out of luck")) == (0, "")
    told = type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried to allocate 3 GiB")
    assert cuda_error.code_of(told)[0] == 2
    fault = RuntimeError("cuCtxSynchronize returned 700")
    fault.cuda_code, fault.cuda_name = 700, "CUDA_ERROR_ILLEGAL_ADDRESS"  # type: ignore[attr-defined]
    assert cuda_error.code_of(fault) == (700, "CUDA_ERROR_ILLEGAL_ADDRESS")


STUB = """import types
__version__ = '0'
cuda = types.SimpleNamespace(is_initialized=lambda: False)
def set_num_threads(count): pass
"""


def test_an_installed_package_brings_its_own_tests(tmp_path: Path) -> None:
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[envkit.smoke]\nmine-sum = mine:check\n")
    (tmp_path / "mine.py").write_text(
        "def check(bench):\n    bench.count('sum.wrong', 0 if bench.device == 'cpu' else 1)\n"
    )
    document = suite("--device", "cpu", "--exclude", "error-crash", path=fake_torch(tmp_path, STUB))
    (own,) = [test for test in document["tests"] if test["name"] == "extra-mine-sum"]
    assert (own["ended"], own["measures"]) == ("ran", {"sum.wrong": 0.0})
    assert found(read(document, SmokeRun("x")), "extra") == []


def test_a_file_of_ones_own_is_judged_by_its_own_limits(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def smoke_far(bench):\n    bench.limit('far', 0.5)\n    bench.note('far', 0.7)\n")
    words = ("--device", "cpu", "--only", "fft", "--test-file", str(file))
    run = read(suite(*words, path=fake_torch(tmp_path, STUB)), SmokeRun("x", only=("fft",)))
    (finding,) = found(run, "extra")
    assert finding.message == "extra-smoke_far: far is 0.7, above its limit of 0.5"
