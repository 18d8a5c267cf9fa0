"""Where native code died: what gdb wrote is read, real crashes are told by function, and what lives is not blamed."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from inline import Envkit
from test_debug_learned import DEVICE, decided, session_of, state_of, why

from envkit import debug
from envkit.debug import native
from envkit.debug.job import CommandRun
from envkit.debug.stages import StagePlan

CRASH = """\
process 7 is executing new program: /usr/bin/python3.11

Program received signal SIGSEGV, Segmentation fault.
0x00007f7f15f991a7 in boom (n=1) at /w/boom.cpp:2
#0  0x00007f7f15f991a7 in boom (n=1) at /w/boom.cpp:2
#1  0x00007f7f15f8ef7a in ?? () from /lib/x86_64-linux-gnu/libffi.so.8
#2  0x00007f7f15f8eb0d in ffi_call () from /lib/x86_64-linux-gnu/libffi.so.8
#3  0x0000000000517fc3 in _PyObject_MakeTpCall ()
"""
ABORT = """\
Thread 1 "python3" received signal SIGABRT, Aborted.
#0  __pthread_kill_implementation (threadid=<optimized out>, signo=signo@entry=6) at ./nptl/pthread_kill.c:44
#1  0x00007f8c7d3a5f4f in __pthread_kill_internal (signo=6, threadid=<optimized out>) at ./nptl/pthread_kill.c:78
#2  0x00007f8c7d356fb2 in __GI_raise (sig=sig@entry=6) at ../sysdeps/posix/raise.c:26
#3  0x00007f8c7d341472 in __GI_abort () at ./stdlib/abort.c:79
#4  0x00007f8c7cc9d919 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#5  0x00007f8c7cca8e85 in std::terminate() () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007f8c7cca90d8 in __cxa_throw () from /lib/x86_64-linux-gnu/libstdc++.so.6
#7  0x00007f8c7cf1e198 in ext::boom(at::Tensor const&) () from /w/ext.so
"""
STRLEN = """\
Program received signal SIGSEGV, Segmentation fault.
#0  __strlen_evex () at ../sysdeps/x86_64/multiarch/strlen-evex.S:79
#1  0x00007f7847d2e197 in ?? () from /usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so
#2  0x00007f7847d11f7a in ffi_call () from /lib/x86_64-linux-gnu/libffi.so.8
#3  0x00007f7847d2e197 in read_name (at=0x0) at name.cpp:12
"""
NAMELESS = """\
Thread 1 "python3" received signal SIGSEGV, Segmentation fault.
#0  0x00007fdda77a1efa in ?? () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007fdda6e50b16 in ?? () from /lib/x86_64-linux-gnu/libffi.so.8
#2  0x00007fdda6e4d3ef in ffi_call () from /lib/x86_64-linux-gnu/libffi.so.8
#3  0x0000000000548fb5 in _PyObject_MakeTpCall ()
"""


@pytest.mark.parametrize(
    ("text", "signal", "said"),
    [
        (CRASH, "SIGSEGV", "in `boom` at /w/boom.cpp:2"),
        (ABORT, "SIGABRT", "in `ext::boom(at::Tensor const&)` of /w/ext.so"),
        (STRLEN, "SIGSEGV", "in `__strlen_evex`, called by `read_name` at name.cpp:12"),
        (STRLEN.split("#1")[0], "SIGSEGV", "in `__strlen_evex` at ../sysdeps/x86_64/multiarch/strlen-evex.S:79"),
        (
            NAMELESS,
            "SIGSEGV",
            "in a function of /lib/x86_64-linux-gnu/libc.so.6 without a name, called by `ffi_call` of "
            "/lib/x86_64-linux-gnu/libffi.so.8",
        ),
        (CRASH, "SIGABRT", ""),
        ("[Inferior 1 (process 7) exited normally]\nNo stack.\n", "SIGSEGV", ""),
        ("Program received signal SIGSEGV, Segmentation fault.\n#0  " + "f" * 9000 + " (" * 9000, "SIGSEGV", ""),
        ("", "SIGSEGV", ""),
    ],
)
def test_what_gdb_wrote_is_read(text: str, signal: str, said: str) -> None:
    assert native.sentence(native.frames(text, signal)) == said


def test_the_stage_is_for_a_command_that_died_itself_and_of_no_kernel(tmp_path: Path) -> None:
    tools = {"gdb": "/gdb"}
    plan = decided(state_of(tmp_path, "x", tools, exit=-11), "native")
    assert isinstance(plan, StagePlan) and plan.around is not None and plan.environ == {"SHELL": "/bin/sh"}
    argv = plan.around(("a b", "c"), "/f")
    assert argv[0] == "/gdb" and argv[-4:] == ("--args", "env", "a b", "c") and "set logging file /f/gdb.log" in argv
    for exit_ in (0, 1, -9, -15, None):
        assert why(state_of(tmp_path, "x", tools, exit=exit_), "native")[0] is False
    assert why(state_of(tmp_path, DEVICE, tools, exit=-6), "native") == (False, "the GPU's part of it is told")
    assert why(state_of(tmp_path, "x", {}, exit=-11), "native") == (
        False, "there is no gdb to say where native code died",
    )  # fmt: skip


def test_what_gdb_said_goes_into_the_cause(tmp_path: Path) -> None:
    session = session_of(tmp_path, state_of(tmp_path, "x", {"gdb": "/gdb"}, exit=-11))
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "gdb.log").write_text(CRASH)
    ran = CommandRun(folder, "exited", 0, 1.0)
    assert debug._learn(session, "native", ran) == "it died in `boom` at /w/boom.cpp:2"
    assert debug._report(session).cause.endswith("; it died in `boom` at /w/boom.cpp:2")
    (folder / "gdb.log").write_text("")
    session.state = replace(session.state, native="")
    assert debug._learn(session, "native", ran) == "under gdb it did not die of that"
    assert "it died" not in debug._report(session).cause


@pytest.mark.skipif(not shutil.which("gdb"), reason="there is no gdb")
def test_a_real_crash_is_told_by_its_function_and_its_twin_is_not_blamed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import ctypes; ctypes.string_at(ctypes.c_char_p(b'a') if {} else 0)"
    done = Envkit(capsys).split(["debug", "--out", "crash"], (sys.executable, "-c", code.format(0)))
    assert done.code == 1 and "FOUND: the command died of SIGSEGV (-11) at " in done.out
    assert "; it died in " in done.out
    done = Envkit(capsys).split(["debug", "--out", "clean"], (sys.executable, "-c", code.format(1)))
    assert done.code == 0 and "it died" not in done.out and "died of no fault of native code" in done.out


def test_templates_of_the_c_plus_plus_library_are_named_with_the_program_that_called_them() -> None:
    text = "Program received signal SIGSEGV, Segmentation fault.\n"
    text += "#0  0x1 in std::vector<int>::push_back(int&&) () from /w/ext.so\n#1  0x2 in grow (n=1) at /w/ext.cpp:9\n"
    said = native.sentence(native.frames(text, "SIGSEGV"))
    assert said == "in `std::vector<int>::push_back(int&&)`, called by `grow` at /w/ext.cpp:9"
    assert native.runtime_inside(native.frames(text, "SIGSEGV")) == ""
