"""The probe against small fakes of torch and CUDA, compiled here, and the reader of its document."""

from __future__ import annotations

import base64
import compileall
import ctypes
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torches
from clocks import ends
from recorded_images import as_printed

from envkit import facts
from envkit.errors import Undecided
from envkit.image.probe import OURS, read
from envkit.judging import judge
from envkit.model import Observed, Outcome, Reason
from envkit.payload.probe import content, inner, libs, maps, origin, outer, present, report, wheels
from envkit.payload.probe.ask import ask, ask_all
from envkit.runner.pack import pack
from envkit.subjects import Image, codec
from envkit.subjects.image import NO_PROMISE, NO_RECORD, ExpectedContents
from envkit.versions import Sm

DATA = Path(__file__).parent / "data" / "image"
ROOT = Path(__file__).parent.parent
NONE: Observed[ExpectedContents] = Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE)
needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The payload as it is sent: one zip."""
    path = tmp_path_factory.mktemp("payload") / "envkit.pyz"
    path.write_bytes(pack())
    return path


@pytest.fixture(scope="module")
def payload(pyz: Path) -> Path:
    """The same unpacked and compiled: out of the zip each run compiles it, most of the time of many a test."""
    with zipfile.ZipFile(pyz) as archive:
        archive.extractall(pyz.with_suffix(""))
    compileall.compile_dir(pyz.with_suffix(""), quiet=2)
    return pyz.with_suffix("")


def probe(pyz: Path, python: str = sys.executable, **env: str) -> Image:
    """The image that a real run of the payload describes."""
    done = subprocess.run(
        [python, str(pyz), "probe"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
    )
    return read(json.loads(done.stdout.splitlines()[-1]), "here", "", NONE)


# ask


@pytest.mark.parametrize(
    ("question", "answer", "why"),
    [
        (lambda: [1, "two"], [1, "two"], ""),
        (lambda: 1 / 0, None, "ZeroDivisionError: division by zero"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), None, "was killed by SIGSEGV"),
        (lambda: os._exit(3), None, "exited with code 3"),
        (lambda: os._exit(0), None, "exited with code 0"),
        (lambda: ctypes.string_at(0), None, "was killed by SIGSEGV"),
    ],
)
def test_a_question_costs_at_most_its_answer(question: Callable[[], Any], answer: object, why: str) -> None:
    assert ask(question, 20.0) == (answer, why)


def test_a_crash_among_many_questions_costs_only_its_own_answer() -> None:
    crash: Callable[[], Any] = lambda: ctypes.string_at(0)  # noqa: E731  # a question is a callable
    questions: list[Callable[[], Any]] = [os.getpid, crash, os.getpid, lambda: 1 / 0, os.getpid, crash]
    answers = ask_all(questions, 20.0)
    assert [bool(why) for _, why in answers] == [False, True, False, True, False, True]
    first, second, third = (answers[index][0] for index in (0, 2, 4))
    assert first != second == third != os.getpid()  # a new child behind the crash and no other
    assert ask_all([]) == []


def test_each_question_has_the_whole_budget_and_one_that_hangs_is_ended() -> None:
    with ends():
        answers = ask_all([lambda: time.sleep(0.7)] * 3 + [lambda: time.sleep(600), lambda: 5], 2.0)
        assert answers == [(None, "")] * 3 + [(None, "did not end within 2 s"), (5, "")]


def test_a_question_that_hangs_is_ended_within_its_budget() -> None:
    with ends():
        assert ask(lambda: time.sleep(600), 0.3) == (None, "did not end within 0.3 s")


# the linker


def test_a_symbol_resolves_to_the_file_that_holds_it() -> None:
    assert "libc" in os.path.basename(maps.resolves("getpid"))
    assert maps.resolves("no_such_symbol_anywhere") == ""


RPATH = origin.Searches("libtorch_cuda.so", ("libcudart.so.12",), ("/t/../nvidia/lib",), ())
RUNPATH = origin.Searches("libcusparse.so.12", ("libnvJitLink.so.12",), (), ("/n",))
SHIM = origin.Searches("libcudnn.so.9", ("libc.so.6",), (), ("/c",))


@pytest.mark.parametrize(
    ("path", "entries", "how"),
    [
        ("/t/../nvidia/lib/libcudart.so.12", (), "rpath of libtorch_cuda.so"),
        ("/t/../nvidia/lib/libcudart.so.12", ("/t/../nvidia/lib",), "rpath of libtorch_cuda.so"),
        ("/n/libnvJitLink.so.12", (), "runpath of libcusparse.so.12"),
        ("/n/libnvJitLink.so.12", ("/n",), "LD_LIBRARY_PATH"),
        ("/l/libcudnn_graph.so.9", ("/l",), "LD_LIBRARY_PATH"),
        ("/c/libcudnn_graph.so.9", (), "dlopen, runpath of libcudnn.so.9"),
        ("/early/libcudart.so.12", (), "mapped before torch"),
        ("/opened/libcudart.so.12", (), "ctypes in x.py"),
        ("/usr/lib/libcudart.so.12", (), "default directory"),
        ("/nowhere/libcudart.so.12", (), "unknown"),
    ],
)
def test_how_a_library_came_in_follows_the_linkers_order(path: str, entries: tuple[str, ...], how: str) -> None:
    opened = {"/opened/libcudart.so.12": "ctypes in x.py"}
    earlier = [RPATH, RUNPATH, SHIM]
    assert origin.derive(path, earlier, {"/early/libcudart.so.12"}, opened, entries) == how


@pytest.mark.parametrize(
    ("file", "family"),
    [
        ("libcudart.so.12", "cudart"),
        ("libcudart-d0da41ae.so.11.0", "cudart"),
        ("libcudart.41118559.so.12", "cudart"),
        ("libcudnn_ops.0d2a9b3c.so.9", "cudnn_ops"),
        ("libcudart.now.so.12", ""),
        ("libcublasLt.so.13", "cublasLt"),
        ("libcudnn_engines_runtime_compiled.so.9", "cudnn_engines_runtime_compiled"),
        ("libnvrtc-builtins.so.13.2", "nvrtc-builtins"),
        ("libnvJitLink.so.12", "nvjitlink"),
        ("libnvToolsExt.so.1", "nvtx"),
        ("libcuda.so.1", "cuda"),
        ("libtorch_cuda.so", "torch_cuda"),
        ("libgomp-a34b3233.so.1", "gomp"),
        ("libiomp5.so", "iomp5"),
        ("libcurl.so.4", ""),
        ("libcudart.txt", ""),
    ],
)
def test_a_file_name_gives_its_family(file: str, family: str) -> None:
    assert libs.family("/any/" + file) == family


def giving(*numbers: int, code: int = 0) -> Any:
    """A C function that writes ``numbers`` through its last pointers and returns ``code``."""
    pointer = ctypes.POINTER(ctypes.c_int)

    def body(*cells: Any) -> int:
        for cell, number in zip(cells, numbers, strict=True):
            cell[0] = number
        return code

    return ctypes.CFUNCTYPE(ctypes.c_int, *[pointer] * len(numbers))(body)


@pytest.mark.parametrize(
    ("family", "function", "version"),
    [
        ("cudart", giving(12040), "12.4"),
        ("cudart", giving(13020), "13.2"),
        ("cuda", giving(11080), "11.8"),
        ("cudnn", ctypes.CFUNCTYPE(ctypes.c_size_t)(lambda: 90100), "9.1.0"),
        ("cudnn", ctypes.CFUNCTYPE(ctypes.c_size_t)(lambda: 92600), "9.26.0"),
        ("cudnn", ctypes.CFUNCTYPE(ctypes.c_size_t)(lambda: 8902), "8.9.2"),
        ("nccl", giving(22105), "2.21.5"),
        ("nccl", giving(2708), "2.7.8"),
        ("nvrtc", giving(13, 2), "13.2"),
        (
            "cublas",
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int))(
                lambda part, cell: cell.__setitem__(0, (12, 4, 5)[part]) or 0
            ),
            "12.4.5",
        ),
    ],
)
def test_a_version_is_decoded_as_its_header_says(family: str, function: Any, version: str) -> None:
    assert libs.ASKED[family][1](function) == version


def test_a_refused_version_is_no_version() -> None:
    with pytest.raises(libs.Refused, match="returned 35"):
        libs.ASKED["cudart"][1](giving(0, code=35))


def test_a_library_that_borrows_the_symbol_is_not_asked() -> None:
    libc = next(path for path in maps.mapped() if os.path.basename(path).startswith("libc.so"))
    said = libs.LibraryVersion(via="it does not define cudaRuntimeGetVersion")
    assert libs.versions([("cudart", libc)]) == [said]


# wheels


def record(base: Path, name: str, version: str, files: dict[str, bytes]) -> wheels.Dist:
    """A distribution whose RECORD lists ``files``; they are written too."""
    lines = []
    for file, data in files.items():
        (base / file).parent.mkdir(parents=True, exist_ok=True)
        (base / file).write_bytes(data)
        sha256 = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{file},sha256={sha256},{len(data)}")
    info = base / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("\n".join([*lines, f"{info.name}/RECORD,,"]))
    return wheels.Dist(name, version, str(info))


def test_a_file_of_two_wheels_names_both_and_the_one_it_is_of(tmp_path: Path) -> None:
    library = "nvidia/nccl/lib/libnccl.so.2"
    new = record(tmp_path, "nvidia-nccl-cu13", "2.30.7", {library: b"new!", "nvidia/__init__.py": b""})
    old = record(tmp_path, "nvidia-nccl-cu12", "2.20.5", {library: b"old.", "nvidia/__init__.py": b""})
    (found,) = content.compared([new, old]).differing
    assert found == {
        "path": str(tmp_path / library),
        "owners": ["nvidia-nccl-cu13==2.30.7", "nvidia-nccl-cu12==2.20.5"],
        "found": "nvidia-nccl-cu12==2.20.5",
    }
    owned = wheels.owners([new, old])
    assert wheels.owner_of(str(tmp_path / library), owned, {}) == ("nvidia-nccl-cu12", "2.20.5")


def test_a_distribution_of_the_cuda_stack_without_a_record_is_told(tmp_path: Path) -> None:
    bare = wheels.Dist("torch", "2.6.0", str(tmp_path / "torch-2.6.0.dist-info"))
    other = wheels.Dist("numpy", "2.0", str(tmp_path / "numpy-2.0.dist-info"))
    (found,) = content.compared([bare, other]).differing
    assert found == {"path": str(tmp_path), "owners": ["torch==2.6.0"], "found": NO_RECORD}


def test_size_is_compared_of_all_files_and_the_hash_of_what_is_newer_than_its_record(tmp_path: Path) -> None:
    files = {
        "torch/a.py": b"aa",
        "torch/lib/libsettled.so": b"bb",
        "torch/lib/libchanged.so": b"cc",
        "torch/lib/libtouched.so": b"cc",
        "torch/gone.h": b"d",
    }
    torch = record(tmp_path, "torch", "2.6.0", {**files, "torch/lib/libgone.so": b"ee"})
    other = record(tmp_path, "numpy", "2.0", {"numpy/n.so": b"xx"})
    assert content.compared([torch, other]).differing == []
    (tmp_path / "torch/a.py").write_bytes(b"longer")
    for file in ("torch/lib/libsettled.so", "torch/lib/libchanged.so", "numpy/n.so"):
        (tmp_path / file).write_bytes(b"??")
    later = os.stat(os.path.join(torch.info, "RECORD")).st_mtime + 60
    for file in ("torch/lib/libchanged.so", "torch/lib/libtouched.so"):
        os.utime(tmp_path / file, (later, later))
    (tmp_path / "torch/gone.h").unlink()
    (tmp_path / "torch/lib/libgone.so").unlink()
    found = {Path(str(one["path"])).name: one["found"] for one in content.compared([torch, other]).differing}
    assert found == {
        "a.py": "6 bytes, none of their sizes",
        "libchanged.so": "none of their hashes",
        "libsettled.so": "none of their hashes",
        "libgone.so": "the file is missing",
    }


def test_a_quoted_line_of_a_record_is_one_file_and_no_other_line_is_taken_apart(tmp_path: Path) -> None:
    info = tmp_path / "torch-2.6.0.dist-info"
    info.mkdir()
    lines = ['"v/a,b.so",sha256=one,2', '"v/c ""d"".so",sha256=two,3', "v/e.so,sha256=three,4", "v/f.so,,"]
    (info / "RECORD").write_text("\n".join(lines))
    found = wheels.entries(wheels.Dist("torch", "2.6.0", str(info)), lambda name: True)
    assert [(os.path.basename(entry.path), entry.sha256, entry.size) for entry in found] == [
        ("a,b.so", "one", 2),
        ('c "d".so', "two", 3),
        ("e.so", "three", 4),
    ]


def test_distributions_are_those_that_an_import_would_find(tmp_path: Path) -> None:
    record(tmp_path / "first", "Some_Thing", "1.0", {})
    record(tmp_path / "second", "some.thing", "2.0", {})
    dist = record(tmp_path / "second", "torchvision", "0.21.0", {"v/a,b.so": b"", "v/libcudart.so.12": b"x"})
    with open(os.path.join(dist.info, "METADATA"), "a", encoding="utf-8") as file:
        file.write("Requires-Dist: torch==2.6.0\nRequires-Dist: numpy\n\nRequires-Dist: of the description\n")
    (tmp_path / "second" / "broken-1.dist-info").mkdir()
    (tmp_path / "second" / "old.egg-info").write_text("Metadata-Version: 1.1\nName: old\nVersion: 3\n")
    found = wheels.distributions([str(tmp_path / name) for name in ("first", "none", "second", "first")])
    assert [(one.name, one.version) for one in found] == [
        ("old", "3"),
        ("some-thing", "1.0"),
        ("torchvision", "0.21.0"),
    ]
    assert [one["text"] for one in wheels.requirements(found, frozenset())] == ["torch==2.6.0"]
    (path,) = wheels.owners(found)
    assert path.endswith("second/v/libcudart.so.12")
    (told,) = wheels.on_disk(wheels.owners(found))
    assert (told["name"], told["owner"], told["owner_version"]) == ("cudart", "torchvision", "0.21.0")


def test_a_real_environment_has_the_distributions_that_importlib_finds() -> None:
    names = {wheels.normalise(one.metadata["Name"]): one.version for one in metadata.distributions()}
    assert {one.name: one.version for one in wheels.distributions()} == names


# the observed process, with a torch of our own

BOUND = ("cublas-mismatch", "cudnn-mixed", "known-bad-combination", "library-from-elsewhere", "openmp-twice")


def with_torch(directory: Path, text: str) -> dict[str, str]:
    (directory / "torch.py").write_text(text)
    return {"PYTHONPATH": str(directory)}


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        (
            "raise ImportError('libcudnn.so.9: cannot open\\n  shared object')",
            "raised ImportError: libcudnn.so.9",
        ),
        ("import no_such_thing", "raised ModuleNotFoundError: No module named 'no_such_thing'"),
        ("import sys; sys.exit(4)", "raised SystemExit: 4"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "was killed by SIGILL"),
        ("import ctypes; ctypes.string_at(0)", "was killed by SIGSEGV"),
    ],
)
def test_a_torch_that_fails_to_import_is_a_finding_and_the_rest_is_still_told(
    payload: Path, tmp_path: Path, text: str, ended: str
) -> None:
    record(tmp_path, "nvidia-nccl-cu13", "2.30.7", {"nvidia/nccl/lib/libnccl.so.2": b"new!"})
    record(tmp_path, "nvidia-nccl-cu12", "2.20.5", {"nvidia/nccl/lib/libnccl.so.2": b"old."})
    image = probe(payload, **with_torch(tmp_path, text))
    assert image.torch_import.need("ending").startswith(ended)
    assert image.torch.missing
    assert image.python.need("python") == ".".join(str(part) for part in sys.version_info[:3])
    assert {"nvidia-nccl-cu12", "nvidia-nccl-cu13"} <= {wheel.name for wheel in image.wheels.need("wheels")}
    (overwritten,) = image.overwritten.need("files")
    assert overwritten.found == "nvidia-nccl-cu12==2.20.5"
    (result,) = judge.judge(image, facts.load(), frozenset({"image-torch-import-fails"}))
    assert result.outcome is (Outcome.UNKNOWN if ended.startswith("was killed") else Outcome.FAIL)
    assert "\n" not in result.reason + "".join(finding.message for finding in result.findings)


def test_noise_on_stdout_and_an_exit_behind_our_back_do_not_become_observations(pyz: Path, tmp_path: Path) -> None:
    forged = json.dumps({"schema": "envkit.payload/1", "kind": "probe", "image": {}})
    noise = f"import os; print({forged!r}, flush=True); os._exit(0)"
    image = probe(pyz, **with_torch(tmp_path, noise))
    for lost in (image.torch_import, image.torch, image.libraries):
        assert lost.missing == "the observed process exited with code 0 while import torch"
    said = {result.check for result in judge.judge(image, facts.load()) if result.outcome is Outcome.PASS}
    assert not said & {f"image-{name}" for name in ("torch-import-fails", "cudart-mismatch", "library-twice", *BOUND)}
    assert image.wheels.need("wheels")  # another process saw them


def test_without_torch_the_image_is_still_described(pyz: Path, tmp_path: Path) -> None:
    image = probe(pyz, PYTHONPATH=str(tmp_path))
    if sys.executable == torches.PYTHON:
        pytest.skip("this Python has torch")
    assert image.torch_import.need("ending") == "absent"
    assert image.wheels.need("wheels")
    assert image.platform.need("machine") == os.uname().machine


C_SOURCES = {
    "libcudart.so.12": "int cudaRuntimeGetVersion(int *v) { *v = %(cudart)d; return 0; }",
    "libcupti.so.12": "int cuptiGetVersion(unsigned *v) { return *(volatile int *)0; }",
    "libnccl.so.2": "int ncclGetVersion(int *v) { return 3; }",
    "libcudnn_graph.so.9": "unsigned long cudnnGetVersion(void) { return 90100; }",
    "libcudnn_ops.so.9": "const unsigned cudnn_ops_infer_version = 0x090100; int dead(void) { return 0; }",
    "libcudnn.so.9": """#include <dlfcn.h>
#include <stdlib.h>
unsigned long cudnnGetVersion(void) { return 90100; }
int cudnnGraphVersionCheck(void) { return dlopen("libcudnn_graph.so.9", 1) ? 0 : 7; }
int cudnnOpsVersionCheck(void) { return dlopen("libcudnn_ops.so.9", 1) ? 0 : 7; }
int cudnnAdvVersionCheck(void) { abort(); }""",
    "libtorch_cuda.so": """int cudaRuntimeGetVersion(int *);
unsigned long cudnnGetVersion(void);
unsigned long use(int *v) { return cudaRuntimeGetVersion(v) + cudnnGetVersion(); }""",
}
FAKE_TORCH = """import ctypes, os
here = os.path.dirname(os.path.abspath(__file__))
for name in ("libcupti.so.12", "libnccl.so.2", "libcudnn.so.9"):
    ctypes.CDLL(os.path.join(here, "nvidia", "lib", name))
ctypes.CDLL(os.path.join(here, "lib", "libtorch_cuda.so"))
__version__ = "2.6.0+cu124"
class version: cuda = "12.4"
class _C:
    _has_cudnn = True
    class _cudnn:
        getCompileVersion = staticmethod(lambda: (9, 1, 0))
    _cuda_getArchFlags = staticmethod(lambda: "sm_80 compute_90")
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """C libraries that behave as CUDA's do in the ways that matter here; each names the others from where it lies."""
    folder = tmp_path_factory.mktemp("cuda")
    lib, own = folder / "nvidia" / "lib", folder / "lib"
    lib.mkdir(parents=True)
    own.mkdir()
    for name, text in C_SOURCES.items():
        target = (own if "torch" in name else lib) / name
        compile_library(target, text % {"cudart": 12040} if "cudart" in name and "torch" not in name else text, lib)
    return folder


@pytest.fixture
def fake_cuda(tmp_path: Path, compiled: Path) -> Path:
    """A directory of this test's own with a torch.py and these libraries."""
    shutil.copytree(compiled, tmp_path, dirs_exist_ok=True)
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    return tmp_path


def compile_library(target: Path, text: str, lib: Path) -> None:
    search = ["-Wl,--disable-new-dtags,-rpath,$ORIGIN/../nvidia/lib", f"-L{lib}"]
    extra = [*search, "-l:libcudart.so.12", "-l:libcudnn.so.9"] if "torch" in target.name else []
    extra += ["-Wl,--enable-new-dtags,-rpath,$ORIGIN"] if target.name == "libcudnn.so.9" else []
    subprocess.run(
        [
            "cc",
            "-shared",
            "-fPIC",
            "-o",
            target,
            f"-Wl,-soname,{target.name}",
            "-x",
            "c",
            "-",
            "-x",
            "none",
            *extra,
        ],
        input=text,
        text=True,
        check=True,
        timeout=60,
    )


@needs_compiler
def test_what_is_mapped_bound_and_said_is_told_with_how(pyz: Path, fake_cuda: Path) -> None:
    image = probe(pyz, PYTHONPATH=str(fake_cuda))
    found = {lib.name: lib for lib in image.libraries.need("libraries")}
    lib = os.path.realpath(fake_cuda / "nvidia" / "lib")
    assert image.torch.need("build").archs == ("sm_80", "compute_90")
    assert image.torch.need("build").cudnn == 90100
    assert (found["cudart"].version, found["cudart"].version_via) == ("12.4", "cudaRuntimeGetVersion")
    assert found["cudart"].found_via == "rpath of libtorch_cuda.so"
    assert found["cudart"].path == f"{lib}/libcudart.so.12"
    assert found["cupti"].version_via == "cuptiGetVersion was not called: without a driver it crashes"
    assert (found["nccl"].version, found["nccl"].version_via) == ("", "ncclGetVersion returned 3")
    assert found["cudnn"].found_via.startswith("ctypes in ")
    assert found["cudnn_graph"].found_via == "dlopen, runpath of libcudnn.so.9"
    assert (found["cudnn_ops"].version, found["cudnn_ops"].version_via) == (
        "9.1.0",
        "cudnn_ops_infer_version",
    )
    late = {step.what: step.error for step in image.late.need("late")}
    assert late["cudnnAdvVersionCheck"] == "was killed by SIGABRT"
    assert late["cudnnGraphVersionCheck"] == ""
    bound = {(one.name, one.caller): one.path for one in image.bindings.need("bindings")}
    assert bound["cudart", "libtorch_cuda.so"] == f"{lib}/libcudart.so.12"


@needs_compiler
def test_a_late_load_that_kills_the_process_is_named_and_costs_only_itself(payload: Path, fake_cuda: Path) -> None:
    image = probe(payload, PYTHONPATH=str(fake_cuda))
    errors = {step.what: step.error for step in image.late.need("late")}
    assert errors == {
        "cudnnGraphVersionCheck": "",
        "cudnnOpsVersionCheck": "",
        "cudnnAdvVersionCheck": "was killed by SIGABRT",
    }
    assert image.torch_import.need("ending") == "done"
    assert {"cudnn_graph", "cudnn_ops"} <= {lib.name for lib in image.libraries.need("libraries")}


HANGS = ("int cudnnOpsVersionCheck(void) { return dlopen", "int cudnnOpsVersionCheck(void) { for (;;) pause(); dlopen")


@needs_compiler
def test_a_late_load_that_hangs_is_ended_within_its_own_budget_and_the_rest_is_told(fake_cuda: Path) -> None:
    lib = fake_cuda / "nvidia" / "lib"
    hanging = C_SOURCES["libcudnn.so.9"].replace(*HANGS).replace("#include <stdlib.h>", "#include <unistd.h>")
    compile_library(lib / "libcudnn.so.9", hanging.replace("abort();", "return 0;"), lib)
    with ends():
        found = observe(fake_cuda, late_s=3.0)
    assert found["late"]["value"] == [
        {"what": "cudnnGraphVersionCheck", "error": ""},
        {"what": "cudnnOpsVersionCheck", "error": "did not end within 3 s"},
    ]
    assert found["torch_import"]["value"] == "done"
    assert {"cudart", "cudnn", "cudnn_graph"} <= {one["name"] for one in found["libraries"]["value"]}
    assert found["bindings"]["value"]
    assert [name for name in inner.FIELDS if found[name]["missing"]] == ["abilities"]  # which nobody asked for


@needs_compiler
def test_what_torch_maps_is_told_where_every_late_load_dies(fake_cuda: Path) -> None:
    lib = fake_cuda / "nvidia" / "lib"
    names = ("Graph", "Ops", "Cnn", "Adv")
    dying = "".join(f"int cudnn{name}VersionCheck(void) {{ abort(); }}\n" for name in names)
    source = f"#include <stdlib.h>\nunsigned long cudnnGetVersion(void) {{ return 90100; }}\n{dying}"
    compile_library(lib / "libcudnn.so.9", source, lib)
    found = observe(fake_cuda)
    errors = {step["what"]: step["error"] for step in found["late"]["value"]}
    assert errors == dict.fromkeys([f"cudnn{name}VersionCheck" for name in names[:3]], "was killed by SIGABRT")
    assert {"cudart", "cudnn", "nccl"} <= {one["name"] for one in found["libraries"]["value"]}


def observe(torch: Path, late_s: float = 30.0) -> dict[str, Any]:
    """All fields as the payload's outer process puts them together, with the torch in the directory ``torch``."""
    code = f"import json; from envkit.payload.probe import outer; print(json.dumps(outer.observe(False, {late_s})))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{torch}:{ROOT}"},
        stdin=subprocess.DEVNULL,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@needs_compiler
def test_a_second_copy_is_told_as_present_with_its_release_and_how_it_would_be_found(
    payload: Path, fake_cuda: Path
) -> None:
    """The wheel's is bound through RPATH; the other one lies in LD_LIBRARY_PATH under a full file name."""
    other = fake_cuda / "other"
    other.mkdir()
    shutil.copy(fake_cuda / "nvidia" / "lib" / "libcudart.so.12", other / "libcudart.so.12.8.90")
    (other / "libcudart.so.12").symlink_to("libcudart.so.12.8.90")
    (other / "libcudnn_graph.so.9").symlink_to("gone")
    image = probe(payload, PYTHONPATH=str(fake_cuda), LD_LIBRARY_PATH=str(other))
    (bound,) = image.mapped("cudart")
    assert (bound.version, bound.found_via) == ("12.4", "rpath of libtorch_cuda.so")
    here = [lib for lib in image.unmapped.need("unmapped") if lib.path.startswith(os.path.realpath(other))]
    assert [(lib.name, lib.version, lib.version_via, lib.found_via, lib.owner) for lib in here] == [
        ("cudart", "12.8.90", "its file name", "on disk, in LD_LIBRARY_PATH", "")
    ]
    assert bound.path not in {lib.path for lib in image.unmapped.need("unmapped")}
    said = {result.check for result in judge.judge(image, facts.load()) if result.outcome is Outcome.FAIL}
    assert "image-library-twice" not in said


@needs_compiler
def test_cupti_is_asked_where_there_is_a_driver_and_its_crash_is_told(payload: Path, fake_cuda: Path) -> None:
    compile_library(fake_cuda / "libcuda.so.1", "int cuInit(int f) { return 100; }", fake_cuda)
    image = probe(payload, PYTHONPATH=str(fake_cuda), LD_LIBRARY_PATH=str(fake_cuda))
    (cupti,) = image.mapped("cupti")
    assert (cupti.version, cupti.version_via) == ("", "cuptiGetVersion was killed by SIGSEGV")
    (result,) = judge.judge(image, facts.load(), frozenset({"image-cupti-crashes"}))
    assert result.outcome is Outcome.FAIL
    assert {lib.version for lib in image.mapped("cudart")} == {"12.4"}  # asked after the crash or before


@needs_compiler
def test_each_caller_binds_the_copy_that_its_own_table_holds(payload: Path, fake_cuda: Path) -> None:
    second = fake_cuda / "second"
    second.mkdir()
    compile_library(second / "libcudart.so.12", C_SOURCES["libcudart.so.12"] % {"cudart": 12080}, second)
    extension = fake_cuda / "libextension.so"
    text = "int cudaRuntimeGetVersion(int *); int use(int *v) { return cudaRuntimeGetVersion(v); }"
    link = ["-x", "c", "-", "-x", "none", f"-L{second}", "-l:libcudart.so.12"]
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(extension), *link], input=text, text=True, check=True, timeout=60
    )
    with (fake_cuda / "torch.py").open("a") as file:
        # ld.so takes the second copy for the extension, which asks for a name that it has opened under another path
        file.write(f"ctypes.CDLL({str(second / 'libcudart.so.12')!r}); ctypes.CDLL({str(extension)!r})\n")
    image = probe(payload, PYTHONPATH=str(fake_cuda))
    own = os.path.realpath(fake_cuda / "nvidia" / "lib" / "libcudart.so.12")
    bound = {one.caller: one for one in image.bindings.need("bindings") if one.name == "cudart"}
    assert (bound["libtorch_cuda.so"].path, bound["libtorch_cuda.so"].via) == (own, "relocation")
    assert bound["libtorch_cuda.so"].symbol == "cudaRuntimeGetVersion"
    extension_binds = bound["libextension.so"]  # the first of the soname
    assert (extension_binds.path, extension_binds.via) == (own, "relocation")
    assert {lib.version for lib in image.mapped("cudart")} == {"12.4", "12.8"}


def test_static_alone_imports_nothing_and_says_so(pyz: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    done = subprocess.run(
        [sys.executable, str(pyz), "probe", "--static"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    image = read(json.loads(done.stdout.splitlines()[-1]), "here", "", NONE)
    assert not (tmp_path / "imported").exists()
    assert image.wheels.need("wheels")
    assert not image.overwritten.missing
    for lost in (image.torch_import, image.libraries, image.bindings, image.frameworks):
        assert "torch was not imported" in lost.missing


def test_nccls_version_text_names_its_cuda(tmp_path: Path) -> None:
    for text, cuda in ((b"NCCL version 2.21.5+cuda12.4\0", "12.4"), (b"NCCL version %s\0", ""), (b"", "")):
        (tmp_path / "libnccl.so.2").write_bytes(b"\0" * len(text) + text)
        assert libs.nccl_tag(str(tmp_path / "libnccl.so.2")) == cuda
    assert libs.nccl_tag(str(tmp_path / "none")) == ""


@needs_compiler
def test_ld_library_path_mixes_cudnn_but_does_not_replace_what_rpath_finds(payload: Path, fake_cuda: Path) -> None:
    other = fake_cuda / "other"
    other.mkdir()
    for name in ("libcudart.so.12", "libcudnn_graph.so.9"):
        shutil.copy(fake_cuda / "nvidia" / "lib" / name, other / name)
    image = probe(payload, PYTHONPATH=str(fake_cuda), LD_LIBRARY_PATH=str(other))
    found = {lib.name: lib for lib in image.libraries.need("libraries")}
    assert found["cudart"].found_via == "rpath of libtorch_cuda.so"
    assert (found["cudnn_graph"].found_via, found["cudnn_graph"].path) == (
        "LD_LIBRARY_PATH",
        os.path.realpath(other / "libcudnn_graph.so.9"),
    )
    (result,) = judge.judge(image, facts.load(), frozenset({"image-cudnn-mixed"}))
    assert result.outcome is Outcome.FAIL


@needs_compiler
def test_a_copy_preloaded_from_elsewhere_is_the_one_bound(payload: Path, fake_cuda: Path) -> None:
    early = fake_cuda / "libcudart.so.12"
    compile_library(early, C_SOURCES["libcudart.so.12"] % {"cudart": 12010}, fake_cuda)
    image = probe(payload, PYTHONPATH=str(fake_cuda), LD_PRELOAD=str(early))
    (cudart,) = image.mapped("cudart")
    assert (cudart.version, cudart.found_via) == ("12.1", "LD_PRELOAD")
    assert {one.path for one in image.bindings.need("b") if one.name == "cudart"} == {os.path.realpath(early)}
    (result,) = judge.judge(image, facts.load(), frozenset({"image-cudart-mismatch"}))
    assert [word for word in ("12.4", "12.1", str(early)) if word not in result.findings[0].message] == []


@needs_compiler
def test_a_driver_gives_its_devices_and_a_dying_one_costs_only_them(payload: Path, tmp_path: Path) -> None:
    driver = """int cuInit(int f) { %s return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 9 - d : d ? 6 : 0; return 0; }"""
    library = tmp_path / "libcuda.so.1"
    compile_library(library, driver % "", tmp_path)
    image = probe(payload, LD_LIBRARY_PATH=str(tmp_path), PYTHONPATH=str(tmp_path))
    assert image.devices.need("devices") == (Sm(9, 0), Sm(8, 6))
    library.unlink()
    compile_library(library, driver % "*(volatile int *)0 = 1;", tmp_path)
    image = probe(payload, LD_LIBRARY_PATH=str(tmp_path), PYTHONPATH=str(tmp_path))
    assert image.devices.missing == "asking the driver for its devices: was killed by SIGSEGV"
    assert image.wheels.need("wheels")
    library.write_bytes(b"")
    image = probe(payload, LD_LIBRARY_PATH=str(tmp_path), PYTHONPATH=str(tmp_path))
    assert "file too short" in image.devices.missing  # it exists but cannot be loaded: no absence


# copies outside wheels


def test_libraries_outside_wheels_are_found_where_the_linker_looks_and_owned_by_their_package(tmp_path: Path) -> None:
    system, toolkit = tmp_path / "system", tmp_path / "cuda-12.8" / "lib64"
    for directory, names in (
        (system, ("libcudnn.so.9.14.0", "libnccl.so.2", "libcuda.so.1", "libz.so.1", "libcudart.so.12")),
        (toolkit, ("libcudart.so.12.8.90", "libcudart_static.a")),
    ):
        directory.mkdir(parents=True)
        for name in names:
            (directory / name).touch()
    (system / "libcudnn.so.9").symlink_to("libcudnn.so.9.14.0")
    named = ("libcudnn.so.9", "libnccl.so.2", "libcuda.so.1", "libz.so.1", "libcudart.so.12", "libcufft.so.11")
    cache = tmp_path / "ld.so.cache"
    cache.write_bytes(b"glibc-ld.so.cache1.1\0" + b"".join(f"{n}\0{system / n}\0".encode() for n in named))
    info = tmp_path / "dpkg" / "info"
    info.mkdir(parents=True)
    (info / "libcudnn9-cuda-12.list").write_text(f"/.\n{system}/libcudnn.so.9.14.0\n{system}/libcudnn.so.9\n")
    (info / "libnccl2:amd64.list").write_text(f"/.\n{system}/libnccl.so.2\n")
    status = "Package: libcudnn9-cuda-12\nVersion: 9.14.0.64-1\n\nPackage: libnccl2\nVersion: 2.28.3-1+cuda12.9\n"
    (tmp_path / "dpkg" / "status").write_text(status)
    wheels_own = {str(system / "libcudart.so.12")}
    asked = (str(cache), (str(tmp_path / "cuda*/lib64"),), str(tmp_path / "dpkg"))
    found = present.libraries(wheels_own, *asked)
    rows = [
        (one["name"], one["version"], one.get("owner"), one.get("owner_version"), one["found_via"]) for one in found
    ]
    assert rows == [
        ("cudart", "12.8.90", None, None, "on disk, in a toolkit's directory"),
        ("cudnn", "9.14.0", "libcudnn9-cuda-12", "9.14.0.64-1", "on disk, in ld.so.cache"),
        ("nccl", "", "libnccl2", "2.28.3-1+cuda12.9", "on disk, in ld.so.cache"),
    ]
    assert [one["path"] for one in found][1] == str(system / "libcudnn.so.9.14.0")


def test_where_no_library_lies_outside_wheels_dpkg_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "info").mkdir()
    (tmp_path / "info" / "libnccl2.list").write_text(f"{tmp_path}/libnccl.so.2\n")
    cache = tmp_path / "cache"
    cache.write_bytes(f"\0{tmp_path}/libnccl.so.2\0".encode())

    def opened() -> list[str]:
        code = (
            "import sys; from envkit.payload.probe import present\n"
            "opened = []; sys.addaudithook(lambda event, words: event == 'open' and opened.append(str(words[0])))\n"
            f"present.libraries(set(), {str(cache)!r}, (), {str(tmp_path)!r}); print(*opened, sep='\\n')"
        )
        env = {"PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
        return [os.path.basename(path) for path in done.stdout.split()]

    assert opened() == ["cache"]
    (tmp_path / "libnccl.so.2").touch()
    assert opened() == ["cache", "libnccl2.list", "status"]


@pytest.mark.parametrize("owned", [None, {}, {"/w/libcudart.so.12": ["nvidia-cuda-runtime-cu12", "12.4.127"]}])
def test_a_mapped_library_is_owned_by_what_the_other_process_read_and_by_nothing_unread(
    owned: dict[str, list[str]] | None,
) -> None:
    mapped = {"name": "cudart", "path": "/w/libcudart.so.12 (deleted)", "owner": "", "owner_version": ""}
    lies = [{"name": "cudart", "path": path} for path in ("/w/libcudart.so.12", "/usr/lib/libcudart.so.12")]
    found: dict[str, Any] = {"libraries": report.observed([mapped], "x"), "unmapped": report.observed(lies, "x")}
    outer.tell_owners(found, owned, "it was killed by SIGKILL")
    if owned is None:
        assert found["libraries"]["missing"] == "whose files the mapped libraries are: it was killed by SIGKILL"
        return
    (library,) = found["libraries"]["value"]
    assert [library["owner"], library["owner_version"]] == owned.get("/w/libcudart.so.12", ["", ""])
    assert [one["path"] for one in found["unmapped"]["value"]] == ["/usr/lib/libcudart.so.12"]


JUDGES = ("image", "libraries", "frameworks")


@torches.needs_torch
def test_a_real_healthy_torch_passes_every_check(pyz: Path) -> None:
    image = probe(pyz, torches.PYTHON)
    # What a torch is built with is its own; the toolkit and the driver are this machine's.
    mine = {name for name, check in judge.checks().items() if check.judge.__module__.split(".")[-1] in JUDGES}
    said = {result.check: result.outcome for result in judge.judge(image, facts.load(), frozenset(mine))}
    unpromised = {"image-torch-differs-from-lock", "image-wheels-not-locked"}
    assert {check for check, outcome in said.items() if outcome is Outcome.SKIP} >= unpromised
    assert set(said.values()) <= {Outcome.PASS, Outcome.SKIP}
    owned = [lib for lib in image.libraries.need("libraries") if lib.owner.startswith("nvidia-")]
    assert len(owned) >= (10 if torches.IS_FOR_CUDA else 0)
    assert [lib.path for lib in owned if lib.found_via == "unknown"] == []


# the reader


def document() -> dict[str, Any]:
    """A document as the payload prints it, from a recorded image."""
    plain = json.loads((DATA / "torch-2.6-cu124.json").read_text())
    return {
        "schema": "envkit.payload/1",
        "kind": "probe",
        "image": as_printed(plain),
        "elapsed_s": 1.0,
        "payload_sha256": "",
    }


def test_a_document_becomes_the_image_with_its_name_digest_and_promise() -> None:
    promise = Observed.of(ExpectedContents("2.6.0", "12.4", (), (Sm(9, 0),)), "label")
    image = read(document(), "mine", "sha256:0", promise)
    assert (image.name, image.digest, image.promise) == ("mine", "sha256:0", promise)
    assert codec.from_plain(Image, codec.to_plain(image)) == image
    assert image.libraries.need("libraries")[0].found_via


def test_the_payload_and_the_subject_have_the_same_fields() -> None:
    assert set(inner.FIELDS) == {field.name for field in fields(Image)} - OURS


def broken(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    made = document()
    change(made)
    return made


@pytest.mark.parametrize(
    "bad",
    [
        {},
        broken(lambda d: d.update(schema="envkit.payload/2")),
        broken(lambda d: d.update(kind="smoke")),
        broken(lambda d: d.update(image=[])),
        broken(lambda d: d["image"].pop("late")),
        broken(lambda d: d["image"].update(extra={"value": 1, "via": "", "missing": ""})),
        broken(lambda d: d["image"].update(promise={"value": None, "via": "", "missing": "x"})),
        broken(lambda d: d["image"].update(wheels=[])),
        broken(lambda d: d["image"]["wheels"].update(value=None)),
        broken(lambda d: d["image"]["wheels"].update(missing="and yet there")),
        broken(lambda d: d["image"]["torch"]["value"].pop("cudnn")),
        broken(lambda d: d["image"]["torch"]["value"].update(cudnn="9.1")),
        broken(lambda d: d["image"]["devices"].update(value=["sm_x"])),
        broken(lambda d: d["image"]["libraries"]["value"][0].update(path=7)),
    ],
)
def test_a_garbled_document_is_undecided_and_shows_its_tail(bad: dict[str, Any]) -> None:
    with pytest.raises(Undecided, match="malformed") as caught:
        read(bad, "mine", "", NONE)
    assert "it ends with `" in caught.value.message
    assert len(caught.value.message) < 900
