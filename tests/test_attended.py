"""A program run for the person who waits: streams, exit codes, signals, a terminal of its own, and what is left."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clocks import PATIENCE_S, comes

from envkit.system.attended import attended

RUNNER = """
import sys
from envkit.system.attended import attended
done = attended(sys.argv[1:])
print(f"ended {done.exit} {done.stopped} {done.text!r}", file=sys.stderr)
"""


def ran(*argv: str, stdin: bytes | None = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", RUNNER, *argv]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE_S, check=False)


def python(text: str) -> tuple[str, ...]:
    return sys.executable, "-c", text


def test_both_streams_are_shown_as_they_are_and_kept_together() -> None:
    done = ran("sh", "-c", "echo out; sleep 0.2; echo err >&2; exit 3")
    assert done.stdout == b"out\n"
    assert done.stderr.decode() == "err\nended 3 False 'out\\nerr\\n'\n"


def test_stdin_is_the_programs() -> None:
    assert ran("cat", stdin=b"\x00one\n").stdout == b"\x00one\n"


@pytest.mark.slow  # hundreds of megabytes are printed
def test_what_is_kept_is_bounded() -> None:
    lines = "import sys\nfor number in range(600_000): print('line', number)"
    done = ran(*python(lines))
    assert done.stdout.endswith(b"line 599999\n") and done.stdout.count(b"\n") == 600_000
    assert b"line 0" in done.stderr and b"line 599999" in done.stderr and b"bytes are left out" in done.stderr
    assert len(done.stderr) < 3 << 20


def test_a_signal_is_the_exit() -> None:
    assert b"ended -9 False" in ran(*python("import os; os.kill(os.getpid(), 9)")).stderr


def test_a_program_that_does_not_exist_is_an_error_of_the_system() -> None:
    with pytest.raises(FileNotFoundError):
        attended(["/nowhere/program"])


def test_what_the_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    done = ran("sh", "-c", f"sleep 300 & echo $! > {tmp_path}/pid")
    assert b"ended 0" in done.stderr
    assert comes(lambda: gone(tmp_path / "pid"))


def gone(file: Path) -> bool:
    """Whether the process whose number is in ``file`` has ended."""
    try:
        state = Path("/proc", file.read_text().strip(), "stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return file.exists()
    return state == "Z"


def started(*argv: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RUNNER, *argv]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


WAITS = """
import os, signal, sys, time
from pathlib import Path
def told(number, frame):
    print("told", signal.Signals(number).name, flush=True)
    sys.exit(7)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, told)
# Whole or not at all: whoever sees the file may end this process at once.
Path(sys.argv[1] + ".part").write_text(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_that_envkit_gets_is_passed_on(tmp_path: Path, number: signal.Signals) -> None:
    process = started(*python(WAITS), str(tmp_path / "pid"))
    assert comes(lambda: (tmp_path / "pid").exists())
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out.decode() == f"told {number.name}\n"
    assert "ended 7 True" in err.decode()


def test_nothing_outlives_an_envkit_that_is_killed(tmp_path: Path) -> None:
    process = started(*python(WAITS), str(tmp_path / "pid"))
    assert comes(lambda: (tmp_path / "pid").exists())
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert comes(lambda: gone(tmp_path / "pid"))


def test_who_prints_for_nobody_is_ended() -> None:
    process = started("sh", "-c", "trap 'exit 5' TERM; while :; do echo y; done")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.read(2) == b"y\n"
    process.stdout.close()
    assert b"BrokenPipeError" in process.stderr.read()
    process.stderr.close()
    process.wait(PATIENCE_S)


def on_a_terminal(*argv: str, keys: Callable[[bytes, int], None], size: tuple[int, int] = (30, 97)) -> str:
    """All that a terminal shows of envkit running ``argv``; ``keys`` is called with what it shows so far and may
    type."""
    sized, tell = os.pipe()
    pid, side = pty.fork()
    if pid == 0:
        os.read(sized, 1)  # who is held up after the fork would give the terminal its size too late
        os.execv(sys.executable, [sys.executable, "-c", RUNNER, *argv])
    termios.tcsetwinsize(side, size)
    os.write(tell, b"s")
    os.close(sized)
    os.close(tell)
    shown, deadline = b"", time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline:
            if not select.select([side], [], [], 0.1)[0]:
                continue
            try:
                piece = os.read(side, 1 << 16)
            except OSError:
                break
            shown += piece
            keys(shown, side)
    finally:
        os.close(side)
        os.waitpid(pid, 0)
    return shown.decode()


def typing(answers: dict[bytes, bytes]) -> Callable[[bytes, int], None]:
    """Types the answer to each text once that is shown."""
    left = dict(answers)

    def keys(shown: bytes, side: int) -> None:
        for text in [text for text in left if text in shown]:
            os.write(side, left.pop(text))

    return keys


ASKS = """
import os, sys, time
print("terminals", *map(os.isatty, range(3)), *os.get_terminal_size())
print("got", input("name? "))
try:
    print("wait", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted")
    sys.exit(5)
"""


def test_on_a_terminal_the_program_has_one_and_keys_reach_it() -> None:
    shown = on_a_terminal(*python(ASKS), keys=typing({b"name? ": b"ada\n", b"wait": b"\x03"}))
    assert "terminals True True True 97 30" in shown
    assert "got ada" in shown and "interrupted" in shown
    assert "ended 5 False" in shown  # Ctrl-C was a key, no signal of envkit's


def test_a_terminal_is_left_as_it_was() -> None:
    ask = "import termios; print([oct(word) for word in termios.tcgetattr(0)[:4]])"
    both = f"{RUNNER}\nimport termios; print([oct(word) for word in termios.tcgetattr(0)[:4]])"
    pid, side = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", f"{ask}\n{both}", "true"])
    shown = b""
    while True:
        try:
            shown += os.read(side, 1 << 16)
        except OSError:
            break
    os.close(side)
    os.waitpid(pid, 0)
    before, *_, after = [line for line in shown.decode().splitlines() if line.startswith("[")]
    assert before == after


def test_a_process_that_keeps_the_terminal_does_not_keep_envkit() -> None:
    shown = on_a_terminal("sh", "-c", "trap '' HUP; sleep 300 & echo started", keys=typing({}))
    assert "started" in shown and "ended 0" in shown
