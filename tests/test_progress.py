"""Progress of long work: one live line at a terminal, plain lines through a pipe, and no step twice."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from clocks import PATIENCE_S

from envkit.engine.buildx import Progress
from envkit.engine.docker import DockerEngine
from envkit.engine.transfer import Transfer
from envkit.plan.update import suite_wish
from envkit.system.terminal import Live, cut

CLEAR = "\r\x1b[K"


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def at_terminal(code: str, columns: int = 60, **more: str) -> str:
    """What a Python program writes to its stderr, which is a terminal."""
    side, terminal = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=terminal, env={**env, "TERM": "xterm", "COLUMNS": str(columns), **more},
    )  # fmt: skip
    os.close(terminal)
    pieces = []
    while True:
        try:
            piece = os.read(side, 65536)
        except OSError:  # EIO: the last process that had it open is gone
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(side)
    assert process.wait(PATIENCE_S) == 0
    return b"".join(pieces).decode().replace("\r\n", "\n")


def piped(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    return done.stderr


TALK = """
    from envkit.cli.ending import say
    from envkit.system.terminal import Live
    say("locking")
    say(Live("5 MB of 10 MB"))
    say(Live("token=abcdefghijklmnop and a text that is longer than sixty columns are"))
    say("built")
"""


def test_a_live_line_is_written_anew_and_goes_before_a_line_that_stays() -> None:
    said = at_terminal(TALK)
    assert said.startswith(f"locking\n5 MB of 10 MB{CLEAR}token=[hidden] and a text that is longer than sixty")
    assert said.endswith(f"{CLEAR}built\n")
    (long,) = re.findall(r"\x1b\[K(token.*?)\r", said)
    assert len(long) <= 59, "or it would be broken into two, of which only one goes"


@pytest.mark.parametrize("more", [{"CI": "true"}, {"TERM": "dumb"}])
def test_no_line_is_written_anew_where_each_is_kept(more: dict[str, str]) -> None:
    assert at_terminal(TALK, **more) == "locking\nbuilt\n"


def test_through_a_pipe_a_live_line_comes_where_nothing_else_has_for_half_a_minute() -> None:
    assert piped(TALK) == "locking\nbuilt\n"
    slow = TALK.replace("    say(", "    import envkit.cli.ending as e; e._PLAIN_EVERY_S = 0.0\n    say(", 1)
    assert piped(slow).splitlines()[:2] == [
        "locking",
        "token=[hidden] and a text that is longer than sixty columns are",
    ]


def test_wide_letters_take_two_columns() -> None:
    assert (cut("日本語", 4), cut("abc", 2), cut("abc", 5)) == ("日本", "ab", "abc")


def test_bytes_are_those_of_layers_and_of_what_uv_has_downloaded() -> None:
    clock = Clock()
    came = Transfer(clock)
    clock.now += 2.0
    lines = {
        "sha256:ab12 1.05MB / 29.12MB 0.2s": True,
        "sha256:ab12 29.12MB / 29.12MB 1.2s done": True,
        "transferring context: 10.00MB 0.1s done": True,
        "Downloading numpy (16.0MiB)": False,
        " Downloaded scipy": False,
        " Downloaded numpy": True,
        "writing image sha256:ab12 done": False,
        "sha256:ab12 1.2.3MB / 9MB": True,
    }
    assert [came.line(line) for line in lines] == list(lines.values())
    assert came.size == 29_120_000 + 10_000_000 + (16 << 20) and str(came) == "55.9 MB, 27.9 MB/s"
    assert str(Transfer(clock)) == ""


PLAIN = """\
#1 [internal] load build definition from Dockerfile
#1 transferring dockerfile: 271B done
#1 DONE 0.0s
#4 [torch 1/3] FROM docker.io/library/base:1
#4 CACHED
#5 [cuda 2/2] RUN --mount=type=cache,target=/c uv pip install
#6 [torch 2/3] RUN make
#5 0.721 Downloading numpy (16.0MiB)
#5 1.728  Downloaded numpy
#5 DONE 2.0s
#6 DONE 3.8s
#7 [stage-2 3/3] COPY --from=cuda /h /h
#7 DONE 0.0s
#8 exporting to image
#8 exporting layers 1.0s done
#8 DONE 1.1s
"""


def test_each_step_is_told_of_once_with_its_stage_its_time_and_its_bytes() -> None:
    clock = Clock()
    said: list[str] = []
    progress = Progress(said.append, clock=clock)
    for line in PLAIN.splitlines():
        clock.now += 1.0
        progress.line(line)
    assert [line for line in said if not isinstance(line, Live)] == [
        "[torch 1/3] FROM base:1 cached",
        "[cuda 2/2] RUN uv pip install 2.0 s, 16.8 MB, 4.2 MB/s",
        "[torch 2/3] RUN make 3.8 s",
        "[3/3] COPY --from=cuda /h /h 0.0 s",
        "exporting to image 1.1 s",
    ]
    assert [line for line in said if isinstance(line, Live)] == [
        "[torch 1/3] FROM base:1",
        "[cuda 2/2] RUN uv pip install",
        "2 steps, [torch 2/3] RUN make",
        "2 steps, 16.8 MB, 5.6 MB/s: [cuda 2/2] RUN uv pip install",
        "[torch 2/3] RUN make",
        "[3/3] COPY --from=cuda /h /h",
        "exporting to image",
    ]


def test_the_live_line_is_written_ten_times_a_second_at_most() -> None:
    clock = Clock()
    said: list[str] = []
    progress = Progress(said.append, clock=clock)
    progress.line("#5 [a 1/1] RUN x")
    for number in range(1, 101):
        clock.now += 0.01
        progress.line(f"#5 sha256:ab {number}.00MB / 100.00MB 1.0s")
    assert 9 <= len(said) <= 12


def test_a_step_that_begins_right_after_another_word_is_shown_at_once() -> None:
    clock = Clock()
    said: list[str] = []
    progress = Progress(said.append, clock=clock)
    for line in ("#5 [a 1/2] COPY x /x", "#5 DONE 0.0s", "#6 [a 2/2] RUN sleep 5"):
        clock.now += 0.001
        progress.line(line)
    assert said[-1] == "[a 2/2] RUN sleep 5" and isinstance(said[-1], Live)


BUILD = """
    import sys
    from pathlib import Path
    from envkit.cli.ending import say
    from envkit.engine import BuildRequest
    from envkit.engine.docker import DockerEngine
    engine = DockerEngine(Path(sys.argv[2] if len(sys.argv) > 2 else {cache!r}))
    say("built " + engine.build(BuildRequest(Path({context!r}), {tag!r}, 300, no_cache=True), say).tag)
"""
DOCKERFILE = """\
FROM {base} AS files
COPY large /large
RUN sleep 5
FROM {base} AS other
RUN echo other >/other
FROM {base}
COPY --from=files /large /large
COPY --from=other /other /other
"""


@pytest.mark.engine
def test_a_real_build_at_a_terminal_and_through_a_pipe(engine: DockerEngine, tmp_path: Path) -> None:
    """Both say each step once with its stage; the terminal besides what runs and what has come so far, in one line."""
    base = engine.resolve_base(suite_wish("bookworm"), lambda line: None)
    context, tag = tmp_path / "context", f"envkit-test/progress:{uuid.uuid4().hex[:12]}"
    context.mkdir()
    (context / "Dockerfile").write_text(DOCKERFILE.format(base=base.ref))
    code = BUILD.format(context=str(context), tag=tag, cache=str(tmp_path / "cache"))

    def fresh(way: Callable[[str], str]) -> str:
        (context / "large").write_bytes(os.urandom(64 << 20))  # BuildKit is sent what it does not have yet
        try:
            return way(code)
        finally:
            engine.remove(tag)

    log, seen = fresh(piped), fresh(partial(at_terminal, columns=100))
    steps = ("[files 2/3] COPY large /large", "[files 3/3] RUN sleep 5", "[other 2/2] RUN echo other >/other",
             "[2/3] COPY --from=files /large /large", "exporting to image")  # fmt: skip
    for text in (log, re.sub(r"[^\n]*\r\x1b\[K", "", seen)):  # what stays
        for step in steps:
            assert len(re.findall(rf"^{re.escape(step)} [0-9.]+ s$", text, re.M)) == 1, (step, text)
        lines = text.splitlines()
        assert len(set(lines)) == len(lines) and lines[-1] == f"built {tag}"
        assert re.search(r"^load build context [0-9.]+ s, [67][0-9]\.[0-9] MB, [0-9,.]+ MB/s$", text, re.M), text
    live = re.findall(r"([^\n\r\x1b]+)\r\x1b\[K", seen)
    assert any("[files 3/3] RUN sleep 5" in line for line in live), live
    assert all(len(line) < 100 for line in live) and "\x1b" not in log and "\r" not in log
