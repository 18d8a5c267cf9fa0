"""A core dump that a crash has left: opened beside its program it tells the function, beside another build nothing."""

from __future__ import annotations

import json
import random
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest
from inline import Envkit

from envkit.debug import corefile, cores
from envkit.debug.corefile import CoreFile
from envkit.debug.records import DebugReport, Verdict
from envkit.errors import UsageError
from envkit.payload.companion.envkit_builds import build_id

RECORD = json.loads(
    (Path(__file__).parent / "data" / "gpu" / "h200-torch-2.11-cu130-debug-later.json").read_text(encoding="utf-8")
)
SCHEMA = json.loads((Path(corefile.__file__).parent / "debug-1.schema.json").read_text(encoding="utf-8"))
needs_tools = pytest.mark.skipif(not (shutil.which("gdb") and shutil.which("gcc")), reason="there is no gdb or no gcc")
SOURCE = """\
__attribute__((noinline)) void fill_rows(int *to, long n) { for (long i = 0; i < n; i++) to[i * 1000003] = EACH; }
int load_batch(long n) { int few[4]; fill_rows(few, n); return few[0]; }
"""


def built(folder: Path, each: int = 1) -> Path:
    """A library whose function writes far beyond its buffer; with another ``each`` it is another build."""
    (folder / "rows.c").write_text(SOURCE)
    made = folder / "librows.so"
    flags = ("-g", "-O1", f"-DEACH={each}", "-fPIC", "-shared", "-Wl,--build-id")
    subprocess.run(["gcc", *flags, "-o", made, "rows.c"], cwd=folder, check=True, timeout=60)
    return made


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the core dump of a Python that died in the library beside it."""
    folder = tmp_path_factory.mktemp("crashed")
    code = f"import ctypes; ctypes.CDLL({str(built(folder))!r}).load_batch(ctypes.c_long(1 << 40))"
    argv = ["gdb", "-nx", "--batch", "-iex", "set debuginfod enabled off", "-ex", "run", "-ex", f"gcore {folder}/core"]
    subprocess.run(
        [*argv, "--args", sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True, timeout=120
    )
    return folder


@pytest.fixture
def whole(crashed: Path) -> Iterator[Path]:
    """The same, whose library is put back afterwards."""
    kept = (crashed / "librows.so").read_bytes()
    yield crashed
    (crashed / "librows.so").write_bytes(kept)


def opened(capsys: pytest.CaptureFixture[str], tmp_path: Path, core: Path, *program: str) -> tuple[int, dict[str, str]]:
    words = ["debug", "--core", str(core), "--format", "json", "--out", str(tmp_path / "out")]
    done = Envkit(capsys).split(words, program) if program else Envkit(capsys)(*words)
    report = json.loads(done.out)
    jsonschema.validate(report, SCHEMA)
    assert (tmp_path / "out" / "repro.sh").exists() and (tmp_path / "out" / "report.html").exists()
    return done.code, report


@needs_tools
def test_the_function_that_the_program_died_in_is_told(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = opened(capsys, tmp_path, whole / "core")
    assert (code, report["verdict"], report["exit"]) == (1, "found", -signal.SIGSEGV)
    assert report["cause"] == "the program died of SIGSEGV in `fill_rows` at rows.c:1"
    assert report["command"] == [str(Path(sys.executable).resolve())]


@needs_tools
@pytest.mark.parametrize(("left", "said"), [(None, "is not there"), (2, "is another build")])
def test_beside_another_build_no_function_is_told(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], left: int | None, said: str
) -> None:
    library = whole / "librows.so"
    library.unlink()
    if left:
        built(whole, left)
    code, report = opened(capsys, tmp_path, whole / "core")
    assert (code, report["verdict"]) == (3, "undecided")
    assert report["cause"] == f"the core dump was not written on this machine: {library} {said}"
    assert "--image" in report["fix"] and "fill_rows" not in report["cause"]


@needs_tools
def test_another_program_than_the_dump_s_is_not_taken(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = opened(capsys, tmp_path, whole / "core", shutil.which("gdb") or "")
    assert (code, report["verdict"]) == (3, "undecided") and "fill_rows" not in report["cause"]


def header(kind: int = 4, machine: int = 62) -> bytes:
    return (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, 0, 0, 0, 0)
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no core dump of a 64-bit process"),
        (b"Traceback (most recent call last):\n" * 9, "is no core dump of a 64-bit process"),
        (header(kind=3), "is a program or a library, and no core dump"),
        (b"\x28\xb5\x2f\xfd" + bytes(90), "is packed; unpack it first: zstd -d"),
        (b"\x1f\x8b" + bytes(90), "is packed; unpack it first: gzip -d"),
        (header()[:56] + struct.pack("<HHHH", 9, 0, 0, 0), "is cut off or damaged"),
        (None, "cannot be read: it is a folder"),
        ("missing", "cannot be read: "),
    ],
    ids=str,
)
def test_what_is_no_core_dump_is_said_to_be_none(tmp_path: Path, content: bytes | str | None, said: str) -> None:
    path = tmp_path / "core"
    if content is None:
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        corefile.read(path)
    assert said in f"{error.value.message}; {error.value.fix}"


def test_a_dump_without_notes_names_no_program_and_one_of_the_gpu_needs_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "core").write_bytes(header())
    assert corefile.read(tmp_path / "core") == CoreFile(tmp_path / "core", False)
    done = Envkit(capsys)("debug", "--core", str(tmp_path / "core"), "--out", str(tmp_path / "out"))
    assert done.code == 2 and "does not name its program" in done.err and not (tmp_path / "out").exists()
    (tmp_path / "gpu").write_bytes(header(machine=190))
    assert corefile.read(tmp_path / "gpu") == CoreFile(tmp_path / "gpu", True)


@pytest.mark.parametrize("words", [["--ranks"], ["--slow"], ["--only", "memcheck"], ["--kernel", "k"]], ids=" ".join)
def test_it_runs_nothing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    done = Envkit(capsys)("debug", "--core", "core", *words)
    assert done.code == 2 and "--core opens what a crash has left, and runs nothing" in done.err


@needs_tools
def test_damaged_dumps_are_refused_or_read(whole: Path, tmp_path: Path) -> None:
    data, dice, path = (whole / "core").read_bytes(), random.Random(20261129), tmp_path / "core"
    for number in range(300):
        # the headers and the notes, which lie at the beginning
        broken = bytearray(data[: dice.randrange(64, 40_000)] if number % 2 else data[:40_000])
        for _ in range(dice.randrange(1, 40)):
            broken[dice.randrange(16, len(broken))] = dice.choice((0, 255, dice.randrange(256)))
        path.write_bytes(broken)
        with suppress(UsageError):
            assert isinstance(corefile.read(path), CoreFile)


NOTHING = DebugReport(
    ("python3",), "", Verdict.UNDECIDED, "", "", "", None, (), None, "", (), (), (), None, "", (), "", (), 0.0
)


OF_ROWS = "the program died of SIGSEGV in `sum_rows` at /src/tests/debug/kernels/pooled.cpp:20"
OF_ROTATE = "kernel `rotate` ends with: Warp Invalid Address Space, at /src/tests/debug/later_kernel.py:11, by thread "


@pytest.mark.parametrize(
    ("name", "gpu", "cause", "category"),
    [
        ("gdb pooled", False, OF_ROWS, ""),
        ("cuda-gdb pooled", False, OF_ROWS, ""),
        ("gpu", True, f"{OF_ROTATE}(0,0,0) of block (8,0,0)", "illegal-memory-access"),
    ],
    ids=str,
)
def test_what_the_debuggers_said_of_dumps_from_an_h200_is_told(name: str, gpu: bool, cause: str, category: str) -> None:
    text = RECORD["cores"][name]["text"]
    made = corefile._of_a_gpu(NOTHING, cores.read(text)) if gpu else corefile._of_a_process(NOTHING, text)
    assert (made.verdict, made.cause, made.category) == (Verdict.FOUND, cause, category)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the debugger tells no stack of the core dump"),
        (
            "/envkit-core: Permission denied.\nNo stack.\n",
            "no stack of the core dump: /envkit-core: Permission denied.",
        ),
        (
            "#0  0x1 in wait_all (n=1) at w.c:4\n",
            "tells of no signal: its process may have gone on; it was in `wait_all`",
        ),
        (
            "Program terminated with signal SIGKILL, Killed.\n#0  0x1 in wait_all (n=1) at w.c:4\n",
            "died of SIGKILL in `wait_all` at w.c:4, which somebody sent it",
        ),
        (
            "warning: core file may not match specified executable file.\n#0  0x1 in f () at w.c:4\n",
            "is not of python3",
        ),
    ],
    ids=str,
)
def test_a_dump_that_tells_of_no_crash_is_undecided(text: str, said: str) -> None:
    made = corefile._of_a_process(NOTHING, text)
    assert made.verdict is Verdict.UNDECIDED and said in made.cause


def test_a_file_without_a_build_id_has_none(tmp_path: Path) -> None:
    assert build_id(b"") == build_id(b"#!/bin/sh\n" * 20) == build_id(header()) == ""
    assert build_id(header()[:56] + struct.pack("<HHHH", 9, 0, 0, 0)) == ""
