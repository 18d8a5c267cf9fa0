"""Child processes: their output, their budgets, and that they are never left behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from clocks import comes
from processes import gone

from envkit.errors import Interrupted, Undecided
from envkit.system import proc


def python(body: str, *, timeout_s: float = 60, stdin: str | None = None, hold_stdin: bool = False) -> proc.Completed:
    return proc.run([sys.executable, "-c", body], timeout_s=timeout_s, stdin=stdin, hold_stdin=hold_stdin)


def test_streams_exit_and_lines() -> None:
    lines: list[str] = []
    run = proc.run(
        [sys.executable, "-c", "import sys; print('out'); print('a\\nb', file=sys.stderr); sys.exit(4)"],
        timeout_s=60,
        on_line=lines.append,
    )
    assert (run.exit, run.stdout, run.stderr, lines) == (4, "out\n", "a\nb\n", ["a", "b"])


@pytest.mark.parametrize("without", [False, True])
def test_the_end_is_known_where_a_process_has_no_handle_too(monkeypatch: pytest.MonkeyPatch, without: bool) -> None:
    if without:
        monkeypatch.delattr(os, "pidfd_open")
    assert python("import time; time.sleep(0.2); print('end')").stdout == "end\n"
    run = python("import time; time.sleep(600)", timeout_s=0.3)
    assert (run.timed_out, run.exit) == (True, -signal.SIGTERM)


def test_stdin_is_given_or_empty() -> None:
    body = "import sys; print(repr(sys.stdin.read()))"
    assert python(body, stdin="word").stdout == "'word'\n"
    assert python(body).stdout == "''\n"


def test_stdin_that_nobody_reads_is_no_error() -> None:
    assert python("pass", stdin="x" * 1_000_000).exit == 0
    assert python("import sys; sys.exit(5)", stdin="x" * 1_000_000, hold_stdin=True).exit == 5


def test_held_stdin_stays_open() -> None:
    body = "import select, sys; print(sys.stdin.readline(), select.select([sys.stdin], [], [], 0.5)[0])"
    assert python(body, stdin="word\n", hold_stdin=True).stdout == "word\n []\n"


def test_budget_ends_the_whole_group() -> None:
    run = proc.run(["sh", "-c", "sleep 600 & echo $!; wait"], timeout_s=3)
    assert run.timed_out and run.exit == -signal.SIGTERM
    assert comes(lambda: gone(int(run.stdout)))


def test_a_child_ends_once_it_shall_stop() -> None:
    asked: list[int] = []

    def stop() -> bool:
        asked.append(len(asked))
        return len(asked) == 3

    run = proc.run([sys.executable, "-c", "import time; time.sleep(600)"], timeout_s=60, stop=stop)
    assert (run.timed_out, run.exit, len(asked)) == (True, -signal.SIGTERM, 3)


def test_a_child_that_nobody_stops_has_its_whole_budget() -> None:
    run = proc.run([sys.executable, "-c", "print('done')"], timeout_s=60, stop=lambda: False)
    assert (run.timed_out, run.exit, run.stdout) == (False, 0, "done\n")
    assert proc.run([sys.executable, "-c", "import time; time.sleep(600)"], timeout_s=1, stop=lambda: False).timed_out


def test_missing_program() -> None:
    with pytest.raises(FileNotFoundError):
        proc.run(["envkit-no-such-program"], timeout_s=5)


def test_sigterm_raises_and_the_handler_comes_back() -> None:
    former = signal.getsignal(signal.SIGTERM)

    def terminated() -> None:
        with proc.sigterm_raises():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(600)

    with pytest.raises(Interrupted, match="SIGTERM"):
        terminated()
    assert signal.getsignal(signal.SIGTERM) is former


def test_a_handler_that_is_there_already_stays() -> None:
    """The command line has one of its own, with its own words and a deaf ear for a second signal."""
    met: list[int] = []
    former = signal.signal(signal.SIGTERM, lambda number, frame: met.append(number))
    try:
        with proc.sigterm_raises():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
    finally:
        signal.signal(signal.SIGTERM, former)
    assert met == [signal.SIGTERM]


def test_work_beside_runs_at_once_and_hands_over_what_it_made_or_raised() -> None:
    both = threading.Barrier(2, timeout=120)

    def meet() -> int:
        both.wait()  # neither gets further without the other
        return 7

    def fail() -> int:
        both.wait()
        raise Undecided("no answer")

    one, other = proc.beside(meet), proc.beside(fail)
    assert (one(), one()) == (7, 7)
    with pytest.raises(Undecided, match="no answer"):
        other()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_in_work_beside_is_never_taken_for_a_result() -> None:
    def fault() -> int:
        raise ZeroDivisionError("a fault")

    with pytest.raises(RuntimeError, match="ended without a result"):
        proc.beside(fault)()


@pytest.mark.parametrize("dies", [False, True])
def test_a_program_that_outlives_envkit_hears_whether_it_was_killed(tmp_path: Path, dies: bool) -> None:
    heard = tmp_path / "heard"
    waits = [sys.executable, "-c", f"import sys; open({str(heard)!r}, 'w').write(repr(sys.stdin.readline()))"]
    end = "os.kill(0 - os.getpgrp(), 9)" if dies else "pass"
    code = f"import os\nfrom envkit.system import proc\nwith proc.outlived_by({waits!r}):\n    {end}\n"
    done = proc.run([sys.executable, "-c", code], timeout_s=60, cwd=Path(__file__).parent.parent)
    assert done.exit == (-9 if dies else 0), done.stderr
    assert comes(lambda: heard.exists() and heard.read_text())
    assert heard.read_text() == ("''" if dies else "'\\n'")


@pytest.mark.parametrize("deaf", [False, True], ids=["obeys", "ignores-sigterm"])
def test_a_reader_of_progress_that_fails_ends_the_child_and_is_heard(deaf: bool) -> None:
    """The child would sleep for ten minutes, and its budget is as long: only its end lets the test go on."""
    body = f"""
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if {deaf} else signal.SIG_DFL)
print(os.getpid(), file=sys.stderr, flush=True)
for number in range(20000):
    print("line", number, file=sys.stderr, flush=True)
time.sleep(600)
"""
    heard: list[str] = []

    def gone_away(line: str) -> None:
        heard.append(line)
        if len(heard) == 2:
            raise BrokenPipeError("nobody reads this")

    with pytest.raises(BrokenPipeError, match="nobody reads this"):
        proc.run([sys.executable, "-c", body], timeout_s=600, on_line=gone_away, grace_s=1)
    assert len(heard) == 2 and gone(int(heard[0]))


def test_a_child_that_floods_stdout_is_ended_and_gives_no_answer() -> None:
    with pytest.raises(Undecided) as caught:
        proc.run(["/bin/sh", "-c", "while :; do echo a line of a flood; done"], timeout_s=600, most_bytes=1 << 20)
    assert caught.value.message == "/bin/sh printed more than 1 MiB" and caught.value.fix
    assert python("print('x' * 1_000_000)").stdout == "x" * 1_000_000 + "\n"  # what is within the limit is whole


def test_of_a_flood_on_stderr_the_beginning_and_the_end_are_kept() -> None:
    lines: list[str] = []
    run = proc.run(
        [sys.executable, "-c", "import os, sys; sys.stderr.write(''.join(f'line {n}\\n' for n in range(400_000)))"],
        timeout_s=600,
        on_line=lines.append,
    )
    assert len(run.stderr) < 2_200_000 and len(lines) == 400_000
    assert run.stderr.startswith("line 0\nline 1\n") and run.stderr.endswith("line 399998\nline 399999\n")
    (between,) = [line for line in run.stderr.splitlines() if line and not line.startswith("line")]
    left_out = int(between.removeprefix("(").partition(" ")[0])
    whole = sum(len(f"line {number}\n") for number in range(400_000))
    assert left_out + len(run.stderr) - len(between) - 2 == whole


def test_a_line_without_an_end_comes_in_pieces() -> None:
    lines: list[str] = []
    proc.run([sys.executable, "-c", "import os; os.write(2, b'x' * 300_000)"], timeout_s=60, on_line=lines.append)
    assert max(map(len, lines)) == 65536 and sum(map(len, lines)) == 300_000


def test_stdin_that_a_sleeping_child_does_not_read_ends_with_the_budget() -> None:
    assert python("import time; time.sleep(600)", stdin="x" * 1_000_000, timeout_s=1).timed_out


def test_a_child_is_started_where_path_leads_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert python("print(7)").stdout == "7\n"


KILLED = """
import os, sys, threading, time
from envkit.system import proc
body = '''
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if {deaf} else signal.SIG_DFL)
inner = os.fork()
os.write(2, b"%d" % os.getpid() + bytes([10]))
time.sleep(600)
'''
pids = []
def heard(line):
    pids.append(line)
    if len(pids) == 2:
        print(*pids, flush=True)
        os.kill(os.getpid(), 9)
threading.Thread(target=lambda: proc.run([sys.executable, "-c", body], timeout_s=600, on_line=heard)).start()
"""


@pytest.mark.parametrize("deaf", [False, True], ids=["obeys", "ignores-sigterm"])
def test_a_killed_envkit_takes_its_childs_whole_group_with_it(deaf: bool) -> None:
    """The child was started in a thread, as `beside` does."""
    code = KILLED.replace("{deaf}", str(deaf))
    done = proc.run([sys.executable, "-c", code], timeout_s=60, cwd=Path(__file__).parent.parent)
    pids = [int(word) for word in done.stdout.split()]
    assert done.exit == -9 and len(pids) == 2
    limit = time.monotonic() + 120
    while not all(map(gone, pids)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert all(map(gone, pids))


def test_a_thread_that_ends_does_not_take_the_child_of_another_with_it() -> None:
    """The kernel's PR_SET_PDEATHSIG would: it comes when the thread goes that started the child."""
    one = proc.beside(lambda: python("import time; time.sleep(1); print('whole')"))
    proc.beside(lambda: python("pass"))()
    assert one().stdout == "whole\n"


def test_no_child_runs_python_code_between_fork_and_exec() -> None:
    """It can deadlock where envkit has threads.  The payload's processes have one thread when they do it."""
    here = Path(proc.__file__).parent
    files = [file for file in here.rglob("*.py") if "payload" not in file.parts]
    assert [str(file) for file in files if "preexec_fn=" in file.read_text()] == []
