"""What `podman build` is asked, word by word, and what is made of its words; the podman is a fake program."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from fake_podman import ID, INFO, FakePodman, quiet, refused, with_info

from envkit.engine import BuildRequest, podman_build, podman_cli
from envkit.engine.podman import PodmanEngine
from envkit.errors import Undecided, UsageError
from envkit.system.terminal import Live

IMAGE = "job:1"
LIMITS = podman_cli.limits()


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePodman:
    return FakePodman(tmp_path / "fake", monkeypatch)


@pytest.fixture
def engine(podman: FakePodman, tmp_path: Path) -> PodmanEngine:
    made = PodmanEngine(tmp_path / "cache")
    podman.forget()
    return made


STEPS = """[1/2] STEP 1/2: FROM base
--> 0f0f
[2/2] STEP 1/3: FROM base
[2/2] STEP 2/3: RUN --mount=type=bind,from=a,target=/a make
working
--> Using cache 0f0f
[2/2] STEP 3/3: COPY x /x
[2/2] COMMIT job:1
Getting image source signatures
Successfully tagged job:1
"""


@pytest.fixture
def context(tmp_path: Path) -> Path:
    made = tmp_path / "context"
    made.mkdir()
    (made / "Dockerfile").write_text('FROM base AS one\nRUN true\nFROM base\nCOPY <<"EOF" /x\nbody\nEOF\n')
    (made / "link").symlink_to("nowhere")
    return made


def will_build(podman: FakePodman, **more: Any) -> None:
    keeps = 'for last; do :; done; rm -rf "$D/context"; cp -a "$last" "$D/context"'
    podman.on("'build '*", does=f'{keeps}; echo sha256:{ID} > "$(value --iidfile=)"', **more)


def test_a_build_is_asked_for_word_by_word(
    podman: FakePodman, engine: PodmanEngine, context: Path, tmp_path: Path
) -> None:
    will_build(podman, out=STEPS)
    podman.holds(ID, Size=11)
    said: list[str] = []
    built = engine.build(BuildRequest(context, IMAGE, 60), said.append)
    assert (built.id, built.tag, built.size_bytes) == (ID, IMAGE, 11) and 0 <= built.seconds < 60
    (line,) = podman.lines("build")
    assert line[4].startswith("--iidfile=")
    assert [*line[:4], *line[5:-1]] == ["build", "--format=docker", "--pull=never", f"--tag={IMAGE}", *LIMITS]
    live = [line for line in said if isinstance(line, Live)]
    assert live == ["[2/3] RUN make", "[3/3] COPY x /x"]
    assert [re.sub(r"[0-9.]+ s$", "N s", line) for line in said if line not in live] == [
        "[2/3] RUN make cached", "[3/3] COPY x /x N s",
    ]  # fmt: skip
    copied = podman.folder / "context"
    assert sorted(path.name for path in copied.iterdir()) == [".envkit-steps", "Dockerfile", "link"]
    assert "EOF" not in (copied / "Dockerfile").read_text() and "AS one" not in (copied / "Dockerfile").read_text()
    assert [path.read_text() for path in (copied / ".envkit-steps").iterdir()] == ["body\n"]
    assert (copied / "link").is_symlink() and not Path(line[-1]).exists(), "the copy of the context goes"
    request = BuildRequest(
        context, IMAGE, 60, target="one", args={"B": "2", "A": "1"}, labels={"l": "m"},
        secrets={"ca": tmp_path / "ca"}, contexts={"given": tmp_path}, offline=True, no_cache=True, passing=True,
    )  # fmt: skip
    podman.forget()
    draft = engine.build(request, quiet).tag
    assert draft.startswith("envkit-draft:")
    (line,) = podman.lines("build")
    assert [*line[:4], *line[5:-1]] == [
        "build", "--format=docker", "--pull=never", f"--tag={draft}", "--no-cache", "--network=none", "--target=one",
        "--build-arg=A=1", "--build-arg=B=2", f"--build-context=given={tmp_path}", "--label=l=m",
        f"--secret=id=ca,src={tmp_path}/ca", *LIMITS,
    ]  # fmt: skip


def test_an_overlay_store_gets_a_step_that_no_cache_has_and_vfs_is_warned_of(
    tmp_path: Path, context: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "FROM base AS one\nRUN true\nFROM base\nRUN --mount=type=bind,from=one,target=/one true\n"
    (context / "Dockerfile").write_text(text)
    for driver, fresh in (("overlay", True), ("vfs", False)):
        said = copy.deepcopy(INFO)
        said["store"]["graphDriverName"] = driver
        fake, engine = with_info(tmp_path, monkeypatch, said)
        will_build(fake)
        fake.holds(ID)
        lines: list[str] = []
        engine.build(BuildRequest(context, IMAGE, 60), lines.append)
        assert (fake.folder / "context" / ".envkit-steps" / "fresh").exists() is fresh
        assert bool(lines) is not fresh and all("has the driver vfs" in line for line in lines)


def test_what_podman_cannot_attest_is_refused_before_it_builds(
    podman: FakePodman, engine: PodmanEngine, context: Path
) -> None:
    refused(UsageError, lambda: engine.build(BuildRequest(context, IMAGE, 60, provenance=True), quiet))
    assert podman.lines() == []


def failing(
    podman: FakePodman, engine: PodmanEngine, context: Path, out: str, err: str = "", exit: int = 1
) -> Undecided:
    podman.on("'build '*", out, err=err, exit=exit)
    with pytest.raises(Undecided) as caught:
        engine.build(BuildRequest(context, IMAGE, 60), quiet)
    return caught.value


def test_a_step_that_fails_is_shown_with_its_end(podman: FakePodman, engine: PodmanEngine, context: Path) -> None:
    output = "".join(f"line {number}\n" for number in range(31))
    end = 'Error: building at STEP "RUN make": while running runtime: exit status 3\n'
    error = failing(podman, engine, context, f"STEP 1/2: FROM base\nbefore\nSTEP 2/2: RUN make\n{output}{end}")
    shown = "\n".join(f"line {number}" for number in range(1, 31))
    assert error.message == f"the step [2/2] RUN make ended with exit code 3\n```\n{shown}\n```"
    end = 'Error: error building at STEP "COPY x /": no such thing.\n'
    error = failing(podman, engine, context, f"STEP 1/2: FROM base\nSTEP 2/2: COPY x /\n{end}")
    assert error.message == "the step [2/2] COPY x / failed: no such thing"
    assert error.fix == "fix the step, or what it calls, and run again; finished steps are kept"


def test_a_failure_of_the_world_is_named(podman: FakePodman, engine: PodmanEngine, context: Path) -> None:
    text = 'STEP 1/1: RUN make\nx509: certificate signed by nobody\nError: building at STEP "RUN make": exit status 1\n'
    assert failing(podman, engine, context, text).message.startswith("a server's certificate was not trusted: x509")
    error = failing(podman, engine, context, "", "Error: write: no space left on device\n")
    assert "podman's store /nowhere/storage" in error.message
    assert failing(podman, engine, context, "", "Error: odd\n").message == "podman refused: odd"
    assert failing(podman, engine, context, "", exit=4).message == "podman refused: exit code 4"


@pytest.mark.slow
def test_a_build_without_an_end_names_its_step(podman: FakePodman, engine: PodmanEngine, context: Path) -> None:
    podman.on("'build '*", does="echo 'STEP 1/1: RUN make'; sleep 60")
    with pytest.raises(Undecided) as caught:
        engine.build(BuildRequest(context, IMAGE, 0.4), quiet)
    assert caught.value.message == "the build did not end within 0 s in the step [1/1] RUN make"
    podman.on("'build '*", does="sleep 60")
    with pytest.raises(Undecided) as caught:
        engine.build(BuildRequest(context, IMAGE, 0.4), quiet)
    assert caught.value.message == "the build did not end within 0 s"


def test_a_long_step_is_cut_and_the_key_of_a_mount_is_not_shown() -> None:
    said: list[str] = []
    progress = podman_build.Progress(said.append)
    progress.line("STEP 1/9: RUN " + "x" * 200 + "\n")
    progress.line(f"STEP 2/9: RUN : {'0f' * 8}; make  it")
    progress.line("STEP 3/9: ENV A=b")
    long = ("[1/9] RUN " + "x" * 200)[:100]
    assert [line for line in said if isinstance(line, Live)] == [long, "[2/9] RUN make it"]
    assert said[1].startswith(f"{long} ") and said[3].startswith("[2/9] RUN make it ") and len(said) == 4
    assert progress.step == "[3/9] ENV A=b"
    for line in ("STEP 1/2: FROM base AS cuda", "STEP 2/2: RUN a", "STEP 1/2: FROM base", "STEP 2/2: RUN b"):
        progress.line(line)
    live = [line for line in said if isinstance(line, Live)]
    assert live[2:] == ["[cuda 2/2] RUN a", "[2/2] RUN b"]
