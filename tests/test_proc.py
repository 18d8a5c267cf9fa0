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

from envkit import proc
from envkit.errors import Interrupted, Undecided


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
    code = f"import os\nfrom envkit import proc\nwith proc.outlived_by({waits!r}):\n    {end}\n"
    done = proc.run([sys.executable, "-c", code], timeout_s=60, cwd=Path(__file__).parent.parent)
    assert done.exit == (-9 if dies else 0), done.stderr
    assert comes(lambda: heard.exists() and heard.read_text())
    assert heard.read_text() == ("''" if dies else "'\\n'")
