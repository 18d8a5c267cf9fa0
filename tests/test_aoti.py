"""Packages put together by hand, packages of a real torch, and what their loading does to the process that tries it."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torches
from clocks import costs_less
from elves import elf_file

from envkit import facts as tables
from envkit.errors import Undecided, UsageError
from envkit.image import aoti as documents
from envkit.judging.judge import judge
from envkit.model import Outcome, Result, Severity
from envkit.payload import aoti
from envkit.payload.aoti import compilers, crash, package
from envkit.runner import runner
from envkit.subjects.aoti import AotiRun

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
FOLDER = "m/data/aotinductor/model/"

SOURCE = """
    inputs_info_[0].name = "arg0_1";
    inputs_info_[1].name = "s";
        ss << "input_handles[0]: unmatched dtype, "
           << "expected: " << arg0_1_expected_dtype << "(at::kBFloat16), "
        ss << "input_handles[0]: dim value is too small at 0, "
           << "expected it to be >= 2, " << "but got: "
        ss << "input_handles[0]: dim value is too large at 0, "
           << "expected to be <= 64, " << "but got: "
        ss << "input_handles[0]: unmatched dim value at 1, "
           << "expected: 8, " << "but got: " << arg0_1_size[1]
        ss << "input_handles[0]: unmatched stride value at 1, "
           << "expected: 1, " << "but got: " << arg0_1_stride[1]
        ss << "input_handles[0]: unmatched device type, "
        << "expected: " << arg0_1_expected_device_type << "1(cuda), "
"""


def packed(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def cubin(flags: int, version: int) -> bytes:
    """The header of machine code for a GPU, as elf.h lays it out."""
    return (
        b"\x7fELF\x02\x01\x01"
        + bytes([51, version])
        + bytes(7)
        + struct.pack("<HHIQQQI", 2, 190, 1, 0, 0, 0, flags)
        + bytes(16)
    )


def interpreter() -> bytes:
    return Path(sys.executable).resolve().read_bytes()


def said(path: Path, model: str = "") -> dict[str, Any]:
    return package.read(str(path), model)[0]


def test_what_a_package_says_is_read(tmp_path: Path) -> None:
    meta = {
        "AOTI_DEVICE_KEY": "cuda",
        "AOTI_MACHINE": "x86_64",
        "AOTI_CPU_ISA": "AVX2",
        "AOTI_COMPUTE_CAPABILITY": "90",
    }
    library = interpreter()
    file = packed(
        tmp_path / "m.pt2",
        {
            FOLDER + "a.kernel_metadata.json": json.dumps({**meta, "AOTI_DEVICE_KEY": "cpu"}).encode(),
            FOLDER + "a.wrapper_metadata.json": json.dumps(meta).encode(),
            FOLDER + "a.wrapper.so": library,
            FOLDER + "a.wrapper.cpp": SOURCE.encode(),
            FOLDER + "k.cubin": cubin(0x005A055A, 7),
            "m/data/aotinductor/other/b.so": library,
        },
    )
    found, places = package.read(str(file))
    assert found["error"] == ""
    assert (found["device"], found["machine"], found["isa"], found["capability"]) == ("cuda", "x86_64", "AVX2", "90")
    assert (found["model"], found["models"]) == ("model", ["model", "other"])
    assert found["kernels"] == [{"name": "k.cubin", "archs": ["sm_90"], "error": ""}]
    first, second = found["inputs"]
    assert first == {
        "name": "arg0_1", "dtype": "bfloat16", "device": "cuda", "shape": [None, 8], "least": [2, None],
        "most": [64, None], "stride": [None, 1],
    }  # fmt: skip
    assert (second["name"], second["shape"]) == ("s", None)
    ((name, (start, size)),) = places.items()
    assert name == "a.wrapper.so"
    assert file.read_bytes()[start : start + size] == library
    assert said(file, "other")["model"] == "other"
    assert "holds no model 'x'" in said(file, "x")["error"]


@pytest.mark.parametrize(
    ("flags", "version", "arch"),
    # As ptxas of three toolkits wrote them for these architectures.
    [(0x00500550, 7, "sm_80"), (0x005A0D5A, 7, "sm_90a"), (0x0600640A, 8, "sm_100a"), (0x06007802, 8, "sm_120")],
)
def test_machine_code_names_its_architecture(flags: int, version: int, arch: str) -> None:
    assert package.kernel_arch(memoryview(cubin(flags, version))) == arch


@pytest.mark.parametrize("wrong", [b"", b"\x7fELF", interpreter()[:64]])
def test_what_is_no_machine_code_for_a_gpu_is_said(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="no machine code"):
        package.kernel_arch(memoryview(wrong))


def bomb(path: Path) -> None:
    packed(path, {FOLDER + "a.so": bytes(64 << 20)}, zipfile.ZIP_DEFLATED)


def flipped(path: Path) -> None:
    packed(path, {FOLDER + "a.so": b"x" * 1000})
    data = bytearray(path.read_bytes())
    data[500] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path) -> None:
    packed(path, {FOLDER + "a.so": b"x" * 1000})
    path.write_bytes(path.read_bytes()[:600])


def displaced(path: Path) -> None:
    """A zip whose table sends the reader to another place than the member's."""
    packed(path, {FOLDER + "a.so": b"x" * 1000})
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 42 : at + 46] = struct.pack("<I", 40)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: path.write_bytes(b"version https://git-lfs"), "begins with b'version '"),
        (lambda path: path.write_bytes(b"PK\x03\x04" + bytes(range(200))), "no whole zip"),
        (lambda path: packed(path, {"m/weights/w": b"1"}), "holds no AOTInductor model"),
        (lambda path: packed(path, {"../" + FOLDER + "a.so": b"1"}), "leads out of the package"),
        (lambda path: packed(path, {FOLDER + "a_metadata.json": b"{"}), "holds no JSON"),
        (lambda path: packed(path, {FOLDER + "a_metadata.json": b"[1]"}), "holds no object"),
        (bomb, "a zip bomb"),
        (flipped, "does not have its checksum"),
        (cut, "no whole zip"),
        (displaced, "the zip is damaged"),
        (lambda path: path.mkdir(), "cannot be read"),
    ],
)
def test_a_package_that_cannot_be_read_says_why(tmp_path: Path, make: Callable[[Path], object], words: str) -> None:
    file = tmp_path / "m.pt2"
    make(file)
    with costs_less(2):
        assert words in said(file)["error"]


def test_a_package_with_any_byte_changed_is_read_or_refused(tmp_path: Path) -> None:
    meta = {FOLDER + "a_metadata.json": b'{"AOTI_DEVICE_KEY": "cpu"}', FOLDER + "a.cpp": SOURCE.encode()}
    whole = packed(tmp_path / "whole.pt2", {**meta, FOLDER + "k.cubin": cubin(0, 7)}).read_bytes()
    refused = 0
    for at in range(len(whole)):
        file = tmp_path / "m.pt2"
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xA5]) + whole[at + 1 :])
        refused += bool(said(file)["error"])
    # What may change unseen is what says nothing: times, versions, the second copy of a name or a size.
    assert len(whole) / 2 < refused < len(whole)


def test_a_library_that_is_none_is_the_librarys_fault(tmp_path: Path) -> None:
    found = said(packed(tmp_path / "m.pt2", {FOLDER + "a.so": interpreter()[:100]}))
    assert found["error"] == ""
    assert found["libraries"][0]["error"]


def test_kernels_are_named_by_the_librarys_data(tmp_path: Path) -> None:
    data = interpreter()
    found = package.library("a.so", memoryview(data + b"\0"))
    assert (found["kernels"], found["guards"]) == ([], "")
    assert package.library("a.so", memoryview(data))["needed"]


@needs_compiler
def test_names_and_guards_in_read_only_data_are_seen(tmp_path: Path) -> None:
    file = library(
        tmp_path,
        'const char* a = "/tmp/x/abc.cubin"; const char* b = ".cubin";'
        'const char* c = "AOTI_RUNTIME_CHECK_INPUTS"; const char* d = "input_handles[0]: unmatched dtype, ";',
    )
    found = said(file)
    assert (found["form"], found["kernels"]) == ("so", [])
    assert found["libraries"][0]["kernels"] == ["/tmp/x/abc.cubin"]
    assert found["libraries"][0]["guards"] == "variable"


LOCALE = '#include <locale>\nextern "C" int f() { return std::locale() == std::locale::classic(); }\n'
STATIC = "-static-libstdc++"
HIDING = "-Wl,--exclude-libs,libstdc++.a"


@pytest.mark.slow  # a C++ compiler at work
@needs_compiler
@pytest.mark.parametrize(
    ("words", "carries", "needs"), [((), False, True), ((STATIC,), True, False), ((STATIC, HIDING), False, False)]
)
def test_a_cpp_runtime_inside_a_library_is_seen(
    tmp_path: Path, words: tuple[str, ...], carries: bool, needs: bool
) -> None:
    (tmp_path / "a.cpp").write_text(LOCALE)
    command = ["g++", "-shared", "-fPIC", "-o", f"{tmp_path}/a.so", f"{tmp_path}/a.cpp", *words]
    subprocess.run(command, check=True, timeout=60)
    found = said(tmp_path / "a.so")["libraries"][0]
    assert ("std::locale::classic()" in found["carries"]) == carries
    assert any(name.startswith("libstdc++") for name in found["needed"]) == needs
    assert (found["std"] > 1000) == carries


def wrapper(folder: Path, *words: str) -> Path:
    """A script in place of g++ that adds words to every link of a shared library."""
    file = folder / "bin" / "g++"
    file.parent.mkdir(parents=True)
    compiler = shutil.which("g++")
    link = f'case " $* " in *" -shared "*) exec {compiler} "$@" {" ".join(words)} ;; esac\n'
    file.write_text(f'#!/bin/sh\n{link}exec {compiler} "$@"\n')
    file.chmod(0o755)
    return file


def seen_compilers(cxx: Path | str, path: str = "/usr/bin") -> list[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", str(cxx))
        patch.setenv("PATH", path)
        found: list[dict[str, Any]] = compilers.observe()["value"]
        return found


@pytest.mark.slow  # a C++ compiler at work twice
@needs_compiler
def test_a_compiler_that_links_its_runtime_in_is_tried_and_told(tmp_path: Path) -> None:
    static = wrapper(tmp_path, STATIC)
    first, second = seen_compilers(static)[:2]
    assert (first["path"], first["script"], first["links"], first["error"]) == (str(static), True, "inside", "")
    assert (second["path"], second["links"]) == ("/usr/bin/g++", "shared")
    assert second["version"]


@pytest.mark.slow  # a C++ compiler at work three times
@needs_compiler
def test_a_compiler_that_links_shared_is_enough(tmp_path: Path) -> None:
    (only,) = seen_compilers("g++")
    assert (only["links"], only["error"]) == ("shared", "")
    hiding = wrapper(tmp_path, STATIC, HIDING)
    assert [one["links"] for one in seen_compilers(hiding)][:2] == ["", "shared"]


def test_a_compiler_that_makes_nothing_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\necho 'g++: fatal error: no input files' >&2\nexit 1\n")
    broken.chmod(0o755)
    (only,) = seen_compilers(broken, str(tmp_path)) if not Path("/usr/bin/g++").exists() else seen_compilers(broken)[:1]
    assert (only["version"], only["links"], only["error"]) == ("", "", "g++: fatal error: no input files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", "no-such-compiler")
        assert compilers.observe()["via"] == "no-such-compiler is not in PATH"


def library(folder: Path, source: str, name: str = "a.so") -> Path:
    (folder / "a.c").write_text(source)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / name, folder / "a.c"], check=True, timeout=60)
    return folder / name


# A torch of a few lines, so that what a loader does to its process is tried in a second.
TORCH = """
import types, ctypes, os
__version__, version = "0", types.SimpleNamespace(cuda=None)
compiled_with_cxx11_abi = lambda: True
class no_grad:
    def __enter__(self): pass
    def __exit__(self, *end): pass
class Tensor: pass
class dtype: pass
"""


def fake(folder: Path, loader: str) -> Path:
    """A folder for PYTHONPATH with a torch whose load_package is ``loader``."""
    files = {
        "torch/__init__.py": TORCH,
        "torch/utils/__init__.py": "",
        "torch/utils/_pytree.py": "def tree_flatten(x): return [], None\n",
        "torch/_inductor/__init__.py": "",
        "torch/_inductor/package.py": f"import ctypes, os, time\ndef load_package(path, model):\n    {loader}\n",
        "facs.py": "def nothing(): return ()\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def tried(file: Path, path: Path, python: str = sys.executable, timeout_s: float = 120, **options: Any) -> AotiRun:
    """What is seen of ``file`` by a Python that looks into ``path`` first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(path))
        return runner.aoti(runner.LocalPython(Path(python)), lambda line: None, file, timeout_s=timeout_s, **options)


def results(run: AotiRun) -> dict[str, Result]:
    return {result.check: result for result in judge(run, tables.load())}


def only(run: AotiRun, check: str) -> str:
    """The message of the one finding of a check."""
    (finding,) = results(run)[check].findings
    return finding.message


@pytest.fixture(scope="module")
def quick_compiler(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A g++ that has made its library once and for all: each run compiles one, most of the time of a test."""
    real = shutil.which("g++")
    if not real:
        return ""
    folder = tmp_path_factory.mktemp("compiler")
    subprocess.run(
        [real, "-shared", "-fPIC", "-x", "c++", "-", "-o", folder / "made.so"], input=LOCALE.encode(), check=True
    )
    version = subprocess.run([real, "--version"], capture_output=True, text=True, check=True).stdout
    (folder / "version").write_text(version)
    file = folder / "g++"
    file.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec cat {folder}/version\n'
        f'for last; do :; done\nexec cp {folder}/made.so "$last"\n'
    )
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def plain(tmp_path: Path, quick_compiler: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose library is this interpreter: whole, and never loaded by the torch of these tests."""
    if quick_compiler:
        monkeypatch.setenv("CXX", quick_compiler)
    meta = json.dumps({"AOTI_DEVICE_KEY": "cpu"}).encode()
    return packed(
        tmp_path / "m.pt2", {FOLDER + "a.wrapper_metadata.json": meta, FOLDER + "a.wrapper.so": interpreter()}
    )


@pytest.mark.parametrize(
    ("loader", "ended", "words"),
    [
        ("ctypes.string_at(8)", "killed", "SIGSEGV while loading"),
        ("os.abort()", "killed", "SIGABRT while loading"),
        ("os.kill(os.getpid(), 9)", "killed", "SIGKILL comes from outside"),
        ("time.sleep(600)", "hung", "no answer within 2 s"),
    ],
)
def test_a_package_that_ends_the_process_is_a_finding(
    tmp_path: Path, plain: Path, loader: str, ended: str, words: str
) -> None:
    run = tried(plain, fake(tmp_path / "site", loader), timeout_s=20 if ended == "hung" else 120)
    assert run.run.value is not None
    assert (run.run.value.ended, run.run.value.stage) == (ended, "load")
    assert words in only(run, "aoti-crashed")
    assert results(run)["aoti-raised"].outcome is Outcome.SKIP


def test_the_trail_names_the_library_that_died(tmp_path: Path, plain: Path) -> None:
    run = tried(plain, fake(tmp_path / "site", "ctypes.string_at(8)"))
    if run.trail.value is None:
        pytest.skip(run.trail.missing)
    assert run.trail.value.signal == "SIGSEGV"
    assert any(
        frame.path.endswith(("libc.so.6", "libpython3.so")) or frame.function for frame in run.trail.value.frames
    )
    assert "it crashed in" in " ".join(results(run)["aoti-crashed"].findings[0].evidence)


def test_a_package_that_raises_is_a_finding(tmp_path: Path, plain: Path) -> None:
    loader = "os.write(2, b'Error: the real reason\\n'); raise RuntimeError('API call failed')"
    run = tried(plain, fake(tmp_path / "site", loader))
    assert run.run.value is not None
    assert run.run.value.detail == "RuntimeError: API call failed"
    assert run.run.value.stderr_tail.startswith("Error: the real reason\n")


def test_a_package_that_runs_is_done(tmp_path: Path, plain: Path) -> None:
    site = fake(tmp_path / "site", "return lambda: ()")
    run = tried(plain, site, inputs="facs:nothing", code=site)
    assert run.run.value is not None
    assert (run.run.value.ended, run.factory) == ("done", "facs:nothing")
    assert run.torch.value is not None
    assert run.torch.value.path == str(site / "torch")
    assert results(run)["aoti-crashed"].outcome is Outcome.PASS


def test_a_function_that_raises_leaves_the_load_judged(tmp_path: Path, plain: Path) -> None:
    site = fake(tmp_path / "site", "return lambda: ()")
    run = tried(plain, site, inputs="facs:absent", code=site)
    assert run.run.value is not None
    assert run.run.value.ended == "loaded"
    assert "facs:absent raised AttributeError" in results(run)["aoti-device-differs"].reason


def test_without_torch_the_package_is_still_judged(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "site" / "torch").mkdir(parents=True)
    missing = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    (tmp_path / "site" / "torch" / "__init__.py").write_text(missing)
    found = results(tried(plain, tmp_path / "site"))
    assert found["aoti-package-damaged"].outcome is Outcome.PASS
    assert found["aoti-crashed"].reason == "there is no torch here"
    assert found["aoti-library-symbol-missing"].outcome is Outcome.UNKNOWN


def test_what_is_not_there_is_a_usage_error(tmp_path: Path, plain: Path) -> None:
    here = runner.this_python()
    for file, options, words in (
        (tmp_path / "none.pt2", {}, "there is no package"),
        (plain, {"code": tmp_path / "none"}, "there is no folder"),
        (plain, {"inputs": "os.system"}, "names no function"),
        (plain, {"runner": "tpu"}, "there is no runner"),
    ):
        with pytest.raises(UsageError, match=words):
            runner.aoti(here, lambda line: None, file, **options)  # type: ignore[arg-type]  # options of several types


@pytest.mark.parametrize(
    "change",
    [{"kind": "probe"}, {"aoti": None}, {"aoti": {}}, {"schema": "x"}],
)
def test_a_document_that_does_not_fit_is_none(change: dict[str, Any]) -> None:
    with pytest.raises(Undecided, match="malformed"):
        documents.read({"schema": "envkit.payload/1", "kind": "aoti", **change}, AotiRun("x"), "m.pt2")


def test_a_child_that_lives_leaves_no_trail() -> None:
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("the registers of this machine are not known")
    source = "from envkit.payload.aoti import crash; print(crash.trace(lambda: None))"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, cwd=Path(crash.__file__).parents[3]
    )
    if "Operation not permitted" in done.stderr:
        pytest.skip("ptrace is forbidden here")
    assert done.stdout.strip() == "{'signal': '', 'frames': []}"


def test_the_function_at_a_place_of_a_file_is_named(tmp_path: Path) -> None:
    """By the segment that the place lies in, not by another that is loaded elsewhere."""
    data = bytearray(elf_file(defines=["solve_step"]))  # at the addresses 64 to 71, as in the file
    struct.pack_into("<I", data, 64 + 56, 1)  # the second header becomes a loaded segment too
    struct.pack_into("<Q", data, 64 + 56 + 16, 1 << 20)
    path = tmp_path / "lib.so"
    path.write_bytes(data)
    assert [crash.function(str(path), offset) for offset in (63, 64, 71, 72)] == ["", "solve_step", "solve_step", ""]


MODEL = """
import sys, torch, torch._inductor
class Layer(torch.nn.Module):
    def forward(self, x, scale):
        return torch.relu(x) * scale["k"]
given = (torch.ones(6, 8), {"k": torch.ones(8)})
torch._inductor.aoti_compile_and_package(torch.export.export(Layer(), given), package_path=sys.argv[1])
"""
FACTORIES = """
import torch
def right(): return torch.ones(6, 8), {"k": torch.ones(8)}
def type_(): return torch.ones(6, 8).double(), {"k": torch.ones(8)}
def shape(): return torch.ones(5, 8), {"k": torch.ones(8)}
def layout(): return torch.ones(8, 6).t(), {"k": torch.ones(8)}
"""


def made(folder: Path, **environment: str) -> Path:
    """A package of the real torch, and beside it the functions that make its inputs."""
    (folder / "facs.py").write_text(FACTORIES)
    command = [torches.PYTHON, "-c", MODEL, str(folder / "m.pt2")]
    steered = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, env=steered)
    if done.returncode:
        pytest.skip(f"this torch makes no package: {done.stderr.strip().splitlines()[-1]}")
    return folder / "m.pt2"


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of the real torch, made with this machine's compiler as it is."""
    return made(tmp_path_factory.mktemp("aoti"))


def edited(source: Path, target: Path, change: Callable[[str, bytes], bytes]) -> Path:
    with zipfile.ZipFile(source) as archive:
        return packed(target, {name: change(name, archive.read(name)) for name in archive.namelist()})


def keys(**values: str) -> Callable[[str, bytes], bytes]:
    def change(name: str, data: bytes) -> bytes:
        return json.dumps({**json.loads(data), **values}).encode() if name.endswith("_metadata.json") else data

    return change


def in_place_of_the_library(library: Path) -> Callable[[str, bytes], bytes]:
    return lambda name, data: library.read_bytes() if name.endswith(".so") else data


# Documents of packages made with a wrapper that adds -static-libstdc++ ("env") and with /usr/bin/g++ ("usr"), run with
# the inputs that the last word names: what must be found, by check.  PLACE.PACKAGE-INPUTS.json.
DOCUMENTS = Path(__file__).parent / "data" / "aoti"
RUNTIME = ("exports its own C++ runtime", "libstdc++.so.6: std::locale of one looks up the facets of the other")
FOUND: dict[str, dict[str, tuple[str, ...]]] = {
    "cpu-env-cpu": {"aoti-cxx-runtime-inside": RUNTIME},
    "cpu-usr-cpu": {},
    "cpu-usr-double_cpu": {"aoti-input-mismatch": ("input 0 (args[0]) is float64 and the package takes float32",)},
    "cpu-usr-cuda": {
        "aoti-device-differs": (
            "input 0 (args[0]) is on cuda:0 and the package was made for cpu",
            "input 1 (args[1]) is on cuda:0 and the package was made for cpu",
        )
    },
    "cuda-env-cuda": {"aoti-cxx-runtime-inside": RUNTIME},
    "cuda-env-cpu": {
        "aoti-cxx-runtime-inside": RUNTIME,
        "aoti-device-differs": ("input 0 (args[0]) is on cpu and the package was made for cuda",),
    },
    "cuda-usr-cuda": {},
    "cuda-usr-own": {},
    "cuda-usr-cpu": {
        "aoti-device-differs": (
            "input 0 (args[0]) is on cpu and the package was made for cuda",
            "input 1 (args[1]) is on cpu and the package was made for cuda",
        )
    },
    "cuda-usr-mixed": {"aoti-device-differs": ("input 1 (args[1]) is on cpu and the package was made for cuda",)},
    "cuda-usr-double": {"aoti-input-mismatch": ("input 0 (args[0]) is float64 and the package takes float32",)},
    "cuda-usr-layout": {"aoti-input-mismatch": ("input 0 (args[0]) is laid out with strides 1x16",)},
}


@pytest.mark.parametrize("file", sorted(DOCUMENTS.glob("*.json")), ids=lambda file: file.stem)
def test_a_kept_document_is_judged_as_it_was_seen(file: Path) -> None:
    kept = json.loads(file.read_text("utf-8"))
    place, _, name = file.stem.partition(".")
    run = documents.read(kept, AotiRun(place, factory=kept["asked"]["inputs"]), "m.pt2")
    found = results(run)
    failed = {check: "\n".join(one.message for one in said.findings) for check, said in found.items() if said.findings}
    for check, words in FOUND[name].items():
        assert [each for each in words if each not in failed.get(check, "")] == [], failed
    if not FOUND[name]:
        assert failed == {}
        assert found["aoti-crashed"].outcome is found["aoti-raised"].outcome is Outcome.PASS
    if "-env-" in name:
        ended = failed.get("aoti-crashed", "") + failed.get("aoti-raised", "")
        assert "likely cause: the package carries its own C++ runtime beside" in ended
        assert found["aoti-cxx-runtime-inside"].findings[0].fix.startswith("set CXX=/usr/bin/g++")


@torches.needs_torch
def test_a_real_package_runs(real: Path) -> None:
    run = tried(real, real.parent, torches.PYTHON, inputs="facs:right", code=real.parent)
    assert run.run.value is not None
    assert run.run.value.ended == "done", run.run.value
    assert [one.shape for one in run.run.value.outputs] == [(6, 8)]
    assert run.inputs.value is not None
    assert [one.name for one in run.inputs.value] == ["args[0]", "args[1]['k']"]
    wrong = {name for name, result in results(run).items() if result.outcome not in (Outcome.PASS, Outcome.SKIP)}
    assert wrong <= {"aoti-no-guards"}


@torches.needs_torch
@pytest.mark.parametrize(
    ("factory", "words"),
    [("type_", "float64 and the package takes float32"), ("shape", "has 5 in dimension 0"), ("layout", "strides 1x6")],
)
def test_a_real_package_refuses_wrong_inputs(real: Path, factory: str, words: str) -> None:
    run = tried(real, real.parent, torches.PYTHON, inputs=f"facs:{factory}", code=real.parent)
    found = results(run)
    if found["aoti-no-guards"].outcome is Outcome.FAIL:
        assert found["aoti-input-mismatch"].outcome is Outcome.SKIP
        return
    assert words in only(run, "aoti-input-mismatch")
    assert found["aoti-raised"].outcome is Outcome.SKIP


@torches.needs_torch
@pytest.mark.parametrize(
    ("values", "check", "words"),
    [
        ({"AOTI_DEVICE_KEY": "cuda"}, "aoti-wrong-runner-class", "linked for cpu"),
        ({"AOTI_MACHINE": "s390x"}, "aoti-other-machine", "s390x"),
        ({"AOTI_CPU_ISA": "ZVECTOR"}, "aoti-isa-missing", "lacks vx"),
    ],
)
def test_a_real_package_with_other_metadata(
    real: Path, tmp_path: Path, values: dict[str, str], check: str, words: str
) -> None:
    run = tried(edited(real, tmp_path / "m.pt2", keys(**values)), tmp_path, torches.PYTHON)
    assert words in only(run, check)


@torches.needs_torch
@needs_compiler
@pytest.mark.parametrize(
    ("source", "check", "words"),
    [
        ("__attribute__((constructor)) static void c(void) { *(volatile int*)8 = 1; }", "aoti-crashed", "SIGSEGV"),
        ("extern int nowhere(void); int f(void) { return nowhere(); }", "aoti-library-symbol-missing", "nowhere"),
    ],
)
def test_a_real_torch_with_a_library_of_ours(real: Path, tmp_path: Path, source: str, check: str, words: str) -> None:
    change = in_place_of_the_library(library(tmp_path, source))
    run = tried(edited(real, tmp_path / "m.pt2", change), tmp_path, torches.PYTHON)
    assert words in only(run, check)


@torches.needs_torch
@needs_compiler
@pytest.mark.parametrize("hidden", [False, True])
def test_a_real_package_with_a_cpp_runtime_of_its_own(tmp_path: Path, hidden: bool) -> None:
    cxx = wrapper(tmp_path, STATIC, *((HIDING,) if hidden else ()))
    run = tried(made(tmp_path, CXX=str(cxx)), tmp_path, torches.PYTHON, inputs="facs:right", code=tmp_path)
    assert run.torch.value is not None
    assert run.run.value is not None
    found = results(run)
    if hidden:
        assert run.run.value.ended == "done"
        assert found["aoti-cxx-runtime-inside"].outcome is Outcome.PASS
        return
    assert "exports its own C++ runtime" in only(run, "aoti-cxx-runtime-inside")
    if run.run.value.ended in ("raised", "killed"):  # it depends on the release of torch
        ended = "aoti-raised" if run.run.value.ended == "raised" else "aoti-crashed"
        assert "likely cause: the package carries its own C++ runtime" in only(run, ended)
    else:
        assert run.run.value.ended == "done"
        assert [finding.severity for finding in found["aoti-cxx-runtime-inside"].findings] == [Severity.WARNING]


def test_the_words_of_a_run_are_one_package_and_known_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert aoti._arguments(["m.pt2", "--seconds", "5"]) == aoti._arguments(["--seconds", "5", "m.pt2"])
    words = aoti._arguments(["m.pt2", "--runner", "cpu"])
    assert (words.package, words.runner, words.model, words.seconds) == ("m.pt2", "cpu", "", aoti.BUDGET_S)
    for wrong in ([], ["m.pt2", "n.pt2"], ["--unknown", "m.pt2"], ["m.pt2", "--seconds"], ["m.pt2", "--run", "cpu"]):
        with pytest.raises(SystemExit):
            aoti._arguments(wrong)
        assert "aoti: error" in capsys.readouterr().err


def test_where_no_model_is_named_it_is_the_usual_one_else_the_first() -> None:
    assert package._chosen(["alpha", "model"], "") == "model"
    assert package._chosen(["alpha", "beta"], "") == "alpha"
    assert package._chosen(["alpha", "model"], "alpha") == "alpha"
    for models, wanted, words in (([], "", "no AOTInductor model"), (["alpha"], "beta", "its models are alpha")):
        with pytest.raises(package.Broken, match=words):
            package._chosen(models, wanted)


def test_of_the_metadata_the_wrappers_counts_and_the_kernels_fills_in() -> None:
    kernel = ("a.kernel_metadata.json", b'{"device": "cpu", "isa": "AVX2", "number": 3}')
    wrapper = ("z.wrapper_metadata.json", b'{"device": "cuda"}')
    assert package._metadata([kernel, wrapper]) == {"device": "cuda", "isa": "AVX2"}
    for text, words in ((b"{", "no JSON"), (b"[]", "no object"), (b"\xff", "no JSON")):
        with pytest.raises(package.Broken, match=words):
            package._metadata([wrapper, ("a.json", text)])


def test_a_kernel_of_a_bare_library_that_is_gone_hides_none_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.cubin"
    kept.write_bytes(cubin(0x005A055A, 7))
    monkeypatch.setattr(package, "library", lambda name, data: {"kernels": [str(tmp_path / "gone.cubin"), str(kept)]})
    said: dict[str, Any] = {"libraries": [], "kernels": []}
    package._read_library(str(tmp_path / "m.so"), memoryview(b""), said)
    assert said["kernels"] == [{"name": "kept.cubin", "archs": ["sm_90"], "error": ""}]


def test_a_trail_is_made_of_the_words_of_the_stack_that_lie_behind_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that are no code, code that no call precedes, then returns; and no more than so many frames."""
    words = [5, 0x1100, 0x9999, *range(0x1200, 0x1300), 7]
    stack = struct.pack(f"<{len(words)}Q", *words) + b"\x01"
    place = SimpleNamespace(path="/lib/m.so", begin=0x1000, offset=0x40)

    def memory(pid: int, at: int, size: int) -> bytes:
        return stack if at == 0x7000 else b"called" if at + 7 >= 0x1200 else b"others"

    monkeypatch.setattr(crash, "_code", lambda pid: ())
    monkeypatch.setattr(crash, "_registers", lambda pid, machine: (0x1010, 0x7000))
    monkeypatch.setattr(crash, "_at", lambda places, word: place if 0x1000 <= word < 0x2000 else None)
    monkeypatch.setattr(crash, "_memory", memory)
    monkeypatch.setattr(crash, "_called", lambda code: code == b"called")
    monkeypatch.setattr(crash, "function", lambda path, offset: f"f{offset:x}")
    frames = crash._trail(1, "x86_64")
    assert frames[:3] == [
        {"path": "/lib/m.so", "offset": offset, "function": f"f{offset:x}"} for offset in (0x50, 0x240, 0x241)
    ]
    assert len(frames) == crash._FRAMES
    plain = crash._trail(1, "aarch64")  # whose calls are not told by the bytes before
    assert [frame["offset"] for frame in plain[:3]] == [0x50, 0x140, 0x240]
