"""Every argument is looked at before any work: a bad one costs no lock, no download, no build and no container."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main
from fake_docker import FakeDocker
from inline import Envkit

from envkit import cli
from envkit.errors import Undecided, UsageError
from envkit.runner import asked, runner
from envkit.system import proc

ROOT = Path(__file__).resolve().parents[1]
STACK = ROOT / "images" / "torch-2.6-cu124"
IMAGE = "some/image:1"
PYTHON = ("--python", sys.executable)
MODEL = (*PYTHON, "--placement", "model:make")

# What stands before the option, so that the verb would have work to do, and the bad values.  SPEC stands for a spec of
# the test's own, without a lock.
LINKS = ("--fleet", "runs", "--hosts", "n1,n2", "--node", "n1", "--links", "pairs", "--python", sys.executable)
BAD: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("init", "torch"): ((), ("newest", "")),
    ("init", "gpu"): ((), ("Voodoo 3", "")),
    ("completion", "shell"): ((), ("tcsh", "")),
    ("lock", "engine"): (("SPEC",), ("nonsense", "")),
    ("lock", "upgrade_package"): (("LOCKED", "--engine", "none"), ("no-such-package",)),
    ("lock", "allow_unpinned"): (("SPEC",), ("nonsense", "", "os,base")),
    ("add", "packages"): (("--spec", "SPEC"), ("torch", "a b", "./nothing.whl")),
    ("add", "engine"): (("numpy", "--spec", "SPEC"), ("nonsense", "")),
    ("add", "allow_unpinned"): (("numpy", "--spec", "SPEC"), ("nonsense", "")),
    ("remove", "packages"): (("--spec", "SPEC"), ("torch", "no-such-package")),
    ("remove", "engine"): (("numpy", "--spec", "SPEC"), ("nonsense", "")),
    ("remove", "allow_unpinned"): (("numpy", "--spec", "SPEC"), ("nonsense", "")),
    ("why", "package"): (("--spec", "LOCKED"), ("no-such-package",)),
    ("why", "format"): (("torch", "--spec", "LOCKED"), ("yaml", "")),
    ("tree", "depth"): (("LOCKED",), ("-1", "many")),
    ("tree", "format"): (("LOCKED",), ("yaml", "")),
    ("outdated", "engine"): (("LOCKED",), ("nonsense", "")),
    ("outdated", "format"): (("LOCKED",), ("yaml", "")),
    ("render", "kind"): (("LOCKED",), ("kubernetes", "")),
    ("render", "flavor"): (("LOCKED",), ("nonsense",)),
    ("base", "suite"): ((), ("nonsense", "../bookworm")),
    ("base", "engine"): ((), ("nonsense", "", "local")),
    ("build", "engine"): (("SPEC",), ("nonsense", "")),
    ("build", "tag"): (("SPEC",), ("Not A Name", "team/Upper:1", "a:b:c", "x@sha256:" + "0" * 64, "-", "a" * 300)),
    ("build", "flavor"): (("SPEC",), ("nonsense",)),
    ("build", "apt_mirror"): (
        ("SPEC",),
        ("not a url", "ftp://mirror/debian", "http://", "http://x/{what}", "http://x/'"),
    ),
    ("build", "allow_unpinned"): (("SPEC",), ("nonsense", "")),
    ("vendor", "allow_unpinned"): (("NEW", "SPEC"), ("nonsense", "")),
    ("up", "allow_unpinned"): (("SPEC",), ("nonsense", "")),
    ("vendor", "engine"): (("NEW", "SPEC"), ("nonsense", "")),
    ("up", "engine"): (("SPEC",), ("nonsense", "")),
    ("up", "gpus"): (("SPEC",), ("foo", "", "-1", "0,foo", "0,0", "1.5", "9999", "0;true")),
    ("up", "tag"): (("SPEC",), ("Not A Name", "a:b:c")),
    ("up", "flavor"): (("SPEC",), ("nonsense",)),
    ("up", "format"): (("SPEC",), ("yaml", "")),
    ("up", "fail_on"): (("SPEC",), ("fatal", "")),
    ("diff", "old"): ((), ("missing.lock missing.lock",)),
    ("diff", "new"): ((), ("LOCKED missing.toml",)),
    ("diff", "engine"): (("LOCKED", "LOCKED"), ("nonsense",)),
    ("diff", "format"): (("LOCKED", "LOCKED"), ("yaml",)),
    ("audit", "target"): ((), ("./missing",)),
    ("audit", "gpu"): ((IMAGE,), ("Voodoo 3",)),
    ("audit", "framework"): ((IMAGE,), ("pandas", "")),
    ("audit", "engine"): ((str(ROOT / "envkit"),), ("nonsense",)),
    ("audit", "format"): ((IMAGE,), ("yaml",)),
    ("audit", "fail_on"): ((IMAGE,), ("fatal",)),
    ("probe", "placement"): (PYTHON, ("no factory", "model", "")),
    ("probe", "inputs"): ((*PYTHON, "--aoti", str(STACK / "envkit.lock")), ("no function", "model")),
    ("probe", "command"): ((IMAGE,), ("python 'train.py", "")),
    ("probe", "start"): ((IMAGE,), ("./missing.yaml", str(STACK / "envkit.lock"), "")),
    ("probe", "framework"): ((IMAGE,), ("pandas", "")),
    ("probe", "how"): (MODEL, ("nonsense",)),
    ("probe", "abilities"): (PYTHON, ("some", "")),
    ("probe", "engine"): ((IMAGE,), ("nonsense", "")),
    ("probe", "gpus"): ((IMAGE,), ("foo", "", "9999", "0,0")),
    ("probe", "format"): ((IMAGE,), ("yaml",)),
    ("probe", "fail_on"): ((IMAGE,), ("fatal",)),
    ("smoke", "level"): ((IMAGE,), ("nonsense", "")),
    ("smoke", "minutes"): ((IMAGE, "--level", "stress"), ("-1", "nan", "inf", "many")),
    ("smoke", "only"): ((IMAGE,), ("nonsense",)),
    ("smoke", "exclude"): ((IMAGE,), ("nonsense",)),
    ("smoke", "engine"): ((IMAGE,), ("nonsense", "")),
    ("smoke", "gpus"): ((IMAGE,), ("foo", "", "9999")),
    ("smoke", "injected_fault"): ((IMAGE,), ("nonsense",)),
    ("smoke", "sanitize"): ((IMAGE,), ("nonsense",)),
    ("smoke", "format"): ((IMAGE,), ("yaml",)),
    ("smoke", "fail_on"): ((IMAGE,), ("fatal",)),
    ("doctor", "cuda"): ((), ("twelve",)),
    ("doctor", "budget"): ((), ("0", "-1", "nan", "inf", "much")),
    ("doctor", "format"): ((), ("yaml",)),
    ("doctor", "fail_on"): ((), ("fatal",)),
    ("doctor", "exit_style"): ((), ("pbs",)),
    ("explain", "logs"): ((), ("missing.log",)),
    ("explain", "kernel_log"): ((), ("missing.log",)),
    ("explain", "rank"): ((), ("nonsense", "x=y")),
    ("explain", "hosts"): ((__file__, "--run", "missing"), ("n[", "n1,n1", "n1")),
    ("explain", "timeline"): ((__file__,), ("-1", "many")),
    ("explain", "format"): ((__file__,), ("yaml",)),
    ("preflight", "framework"): ((IMAGE,), ("pandas", "")),
    ("preflight", "level"): ((IMAGE,), ("nonsense",)),
    ("preflight", "gpus"): ((IMAGE,), ("foo", "-3")),
    ("preflight", "way"): ((IMAGE,), ("nonsense",)),
    ("preflight", "nodes"): ((IMAGE,), ("0", "-1", "many")),
    ("preflight", "ranks"): ((IMAGE,), ("0", "-1", "many")),
    ("preflight", "workers"): ((IMAGE,), ("-1", "many")),
    ("preflight", "env"): ((IMAGE,), ("=value", "a b=c")),
    ("preflight", "shm_size"): ((IMAGE,), ("much", "-1g")),
    ("preflight", "memory"): ((IMAGE,), ("much", "-1g")),
    ("preflight", "ipc"): ((IMAGE,), ("nonsense",)),
    ("preflight", "network"): ((IMAGE,), ("nonsense net",)),
    ("preflight", "ulimit"): ((IMAGE,), ("nonsense", "memlock=much")),
    ("preflight", "pids_limit"): ((IMAGE,), ("-2", "many")),
    ("preflight", "cpus"): ((IMAGE,), ("-1", "nan", "inf", "many")),
    ("preflight", "user"): ((IMAGE,), ("a b",)),
    ("preflight", "volume"): ((IMAGE,), ("nonsense", "/a:b")),
    ("preflight", "tmpfs"): ((IMAGE,), ("relative",)),
    ("preflight", "checkpoint"): ((IMAGE,), ("relative",)),
    ("preflight", "checkpoint_size"): ((IMAGE,), ("much",)),
    ("preflight", "may_be_unknown"): ((IMAGE,), ("nonsense",)),
    ("preflight", "budget"): ((IMAGE,), ("-1", "nan", "inf", "much")),
    ("preflight", "engine"): ((IMAGE,), ("nonsense", "")),
    ("preflight", "format"): ((IMAGE,), ("yaml",)),
    ("preflight", "fail_on"): ((IMAGE,), ("fatal",)),
    ("preflight", "exit_style"): ((IMAGE,), ("pbs",)),
    ("preflight", "fleet"): ((IMAGE,), ("a folder and no nodes", "-")),
    ("preflight", "hosts"): ((IMAGE, "--fleet", "runs"), ("n[", "a b", "n1,n1", "./missing")),
    ("preflight", "count"): ((IMAGE, "--fleet", "runs"), ("0", "-1", "many", "1000000")),
    ("preflight", "node"): ((IMAGE, "--fleet", "runs", "--hosts", "n[1-2]"), ("n3", "../n1")),
    ("preflight", "spares"): (
        (IMAGE, "--fleet", "runs", "--hosts", "n[1-2]", "--node", "n1", "--", "true"),
        ("-1", "2", "many"),
    ),
    ("preflight", "may_differ"): ((IMAGE,), ("driver",)),
    ("preflight", "links"): (("--fleet", "runs", "--hosts", "n1,n2"), ("all", "")),
    ("preflight", "trial_budget"): (LINKS, ("-1", "4", "nan", "inf", "much")),
    ("preflight", "link_floor"): (LINKS, ("-1", "nan", "inf", "much")),
    ("render", "image"): (("LOCKED", "--as", "compose", "-o", "-", "--", "true"), ("Not A Name", "a@b")),
    ("render", "gpus"): (("LOCKED", "--as", "compose", "-o", "-", "--", "true"), ("foo", "9999", "-1")),
    ("render", "nodes"): (("LOCKED", "--as", "compose", "-o", "-", "--", "true"), ("0", "many")),
    ("render", "env"): (("LOCKED", "--as", "compose", "-o", "-", "--", "true"), ("=value", "a b=c", "a-b=c")),
    ("render", "volume"): (("LOCKED", "--as", "compose", "-o", "-", "--", "true"), ("nonsense", "/a:b")),
    ("render", "shm_size"): (("LOCKED", "--as", "compose", "-o", "-", "--", "true"), ("much", "-1g")),
    ("render", "memory"): (("LOCKED", "--as", "compose", "-o", "-", "--", "true"), ("much", "-1g")),
    ("render", "user"): (("LOCKED", "--as", "compose", "-o", "-", "--", "true"), ("a b", "name", "99999999999")),
    ("render", "workdir"): (("LOCKED", "--as", "compose", "-o", "-", "--", "true"), ("relative",)),
    ("push", "ref"): ((), ("Not A Name", "a:b:c", "a@sha256:1")),
    ("sbom", "flavor"): (("LOCKED", "--no-licenses"), ("nonsense",)),
    ("sbom", "output"): (("LOCKED", "--no-licenses"), ("/no/such/folder/x.json", "/")),
    ("push", "index"): (("a/b:1", "LOCKED"), ("Not A Name", "a/b:1", "a@b")),
    ("push", "engine"): (("a/b:1", "LOCKED"), ("nonsense",)),
    ("push", "tag"): (("a/b:1", "LOCKED"), ("Not A Name",)),
    ("push", "flavor"): (("a/b:1", "LOCKED"), ("nonsense",)),
    ("run", "engine"): (("LOCKED", "--", "true"), ("nonsense", "")),
    ("run", "gpus"): (("LOCKED", "--", "true"), ("foo", "", "9999")),
    ("run", "tag"): (("LOCKED", "--", "true"), ("Not A Name", "a:b:c")),
    ("run", "flavor"): (("LOCKED", "--", "true"), ("nonsense",)),
    ("run", "env"): (("LOCKED", "--", "true"), ("=value", "a b=c")),
    ("run", "volume"): (("LOCKED", "--", "true"), ("nonsense", "/a:b")),
    ("run", "publish"): (("LOCKED", "--", "true"), ("nonsense", "80:0", "70000:80", "host:80:80")),
    ("run", "network"): (("LOCKED", "--", "true"), ("nonsense net",)),
    ("run", "shm_size"): (("LOCKED", "--", "true"), ("much", "-1g")),
    ("run", "ipc"): (("LOCKED", "--", "true"), ("nonsense",)),
    ("run", "ulimit"): (("LOCKED", "--", "true"), ("nonsense", "memlock=much")),
    ("run", "memory"): (("LOCKED", "--", "true"), ("much", "-1g")),
    ("run", "user"): (("LOCKED", "--", "true"), ("a b", "name", "1000:name", "-1", "99999999999")),
    ("run", "workdir"): (("LOCKED", "--", "true"), ("relative",)),
    ("shell", "engine"): (("LOCKED", "--print"), ("nonsense", "")),
    ("shell", "gpus"): (("LOCKED", "--print"), ("foo", "", "9999")),
    ("shell", "tag"): (("LOCKED", "--print"), ("Not A Name", "a:b:c")),
    ("shell", "flavor"): (("LOCKED", "--print"), ("nonsense",)),
    ("shell", "env"): (("LOCKED", "--print"), ("=value", "a b=c")),
    ("shell", "volume"): (("LOCKED", "--print"), ("nonsense", "/a:b")),
    ("shell", "publish"): (("LOCKED", "--print"), ("nonsense", "80:0", "70000:80", "host:80:80")),
    ("shell", "network"): (("LOCKED", "--print"), ("nonsense net",)),
    ("shell", "shm_size"): (("LOCKED", "--print"), ("much", "-1g")),
    ("shell", "ipc"): (("LOCKED", "--print"), ("nonsense",)),
    ("shell", "ulimit"): (("LOCKED", "--print"), ("nonsense", "memlock=much")),
    ("shell", "memory"): (("LOCKED", "--print"), ("much", "-1g")),
    ("shell", "user"): (("LOCKED", "--print"), ("a b", "name", "1000:name", "-1", "99999999999")),
    ("shell", "workdir"): (("LOCKED", "--print"), ("relative",)),
    ("debug", "env"): (("--image", IMAGE, "--", "true"), ("=value", "a b=c")),
    ("debug", "user"): (("--image", IMAGE, "--", "true"), ("a b", "name", "-1")),
    ("debug", "workdir"): (("--image", IMAGE, "--", "true"), ("relative",)),
    ("debug", "gpus"): (("--image", IMAGE, "--", "true"), ("foo", "", "9999")),
    ("debug", "engine"): (("--image", IMAGE, "--", "true"), ("nonsense", "", "local")),
    ("debug", "network"): (("--image", IMAGE, "--", "true"), ("nonsense net",)),
    ("debug", "volume"): (("--image", IMAGE, "--", "true"), ("nonsense", "/a:b")),
    ("debug", "budget"): (("--", "true"), ("0", "-1", "nan", "inf", "much")),
    ("debug", "stage_timeout"): (("--", "true"), ("0", "-1", "nan", "inf")),
    ("debug", "hang_after"): (("--ranks", "--", "true"), ("0", "-1", "nan")),
    ("debug", "stall_timeout"): (("--", "true"), ("-1", "nan", "inf")),
    ("debug", "only"): (("--", "true"), ("nonsense",)),
    ("debug", "skip"): (("--", "true"), ("nonsense",)),
    ("debug", "kernel"): (("--", "true"), ("", " ")),
    ("debug", "precision"): (PYTHON, ("no factory", "model")),
    ("debug", "dtype"): ((*PYTHON, "--precision", "model:make"), ("nonsense",)),
    ("debug", "format"): (("--", "true"), ("yaml",)),
    ("check", "start"): ((), ("./missing.yaml", str(STACK / "envkit.lock"), "")),
    ("check", "gpu"): ((str(STACK / "Dockerfile"),), ("Voodoo 3",)),
    ("check", "driver"): ((str(STACK / "Dockerfile"),), ("newest",)),
    ("check", "resolve_budget"): ((str(STACK / "Dockerfile"), "--resolve"), ("0", "-1", "nan", "inf", "much")),
    ("check", "exclude_newer"): ((str(STACK / "Dockerfile"), "--resolve"), ("yesterday", "2026-13-01", "-x")),
    ("check", "since"): ((str(STACK / "Dockerfile"),), ("no-such-branch", "..", "-x")),
    ("check", "only"): ((str(STACK / "Dockerfile"),), ("nonsense",)),
    ("check", "format"): ((str(STACK / "Dockerfile"),), ("yaml",)),
    ("check", "fail_on"): ((str(STACK / "Dockerfile"),), ("fatal",)),
    ("check", "paths"): ((), ("missing/Dockerfile",)),
    ("judge", "format"): (("missing.json",), ("yaml",)),
    ("judge", "fail_on"): (("missing.json",), ("fatal",)),
    ("drain", "hosts"): (("missing",), ("n[", "n1,n1", "n1")),
    ("drain", "may_differ"): (("missing",), ("driver",)),
    ("drain", "fail_on"): (("missing",), ("fatal",)),
    ("judge", "hosts"): (("missing.json",), ("n[", "n1,n1", "n1")),
    ("judge", "may_differ"): (("missing.json",), ("driver",)),
    ("facts", "topic"): ((), ("nonsense",)),
    ("facts", "query"): (("gpu",), ("Voodoo 3",)),
    ("facts", "format"): (("torch", "2.6.0"), ("yaml",)),
}
# Only the engine, or what is examined, can say whether these are right; and a file is told of in test_attack_files.
# What stands on stdin may have any name.
FREE = {
    ("probe", "image"),
    ("smoke", "image"),
    ("preflight", "image"),
    ("debug", "image"),
    ("preflight", "device"),
    ("preflight", "cap_add"),
    ("render", "output"),
    ("check", "stdin_filename"),
}


def values() -> dict[tuple[str, str], click.Parameter]:
    """All that takes a value which is no path."""
    group = typer.main.get_group(cli.app)
    return {
        (verb, str(each.name)): each
        for verb, command in group.commands.items()
        for each in command.params
        if not (isinstance(each, click.Option) and each.is_flag) and not isinstance(each.type, click.Path)
    }


def test_every_argument_has_a_row() -> None:
    assert values().keys() == BAD.keys() | FREE


class Idle(FakeDocker):
    """An engine that holds an image and is to be asked for no work."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        super().__init__(folder)
        self.holds(IMAGE, b"")

    def answer(self, method: str, path: str, words: dict[str, str], body: bytes) -> tuple[int, Any]:
        if method != "GET":
            self.asked.append(f"{method} {path}")
        return super().answer(method, path, words, body)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Idle]:
    made = Idle(tmp_path / "docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{made.folder}/s")
    monkeypatch.setenv("PATH", f"{made.folder}/bin:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec").mkdir()
    (tmp_path / "spec" / "envkit.toml").write_text('torch = "2.6.0"\npython = "3.11"\n')
    (tmp_path / "locked").mkdir()
    for name in ("envkit.toml", "envkit.lock"):
        (tmp_path / "locked" / name).write_bytes((STACK / name).read_bytes())
    yield made
    made.close()


@pytest.mark.parametrize("verb", sorted({verb for verb, _ in BAD}))
def test_a_bad_argument_is_refused_before_any_work(
    verb: str, engine: Idle, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    known, wrong = values(), []
    stand_ins = {"SPEC": "spec", "LOCKED": "locked", "NEW": "new"}
    before = sorted(tmp_path.rglob("*"))
    with Envkit(capsys) as envkit:
        for (of, name), (around, bad) in BAD.items():
            each = known[of, name]
            for value in bad if of == verb else ():
                words = [stand_ins.get(word, word) for word in around]
                given = [stand_ins.get(word, word) for word in value.split(" ")] if verb == "diff" else [value]
                option = [each.opts[0], value] if isinstance(each, click.Option) else given
                at = words.index("--") if "--" in words else len(words)
                command = tuple(words[at + 1 :]) if "--" in words else None
                done = envkit.split([verb, *words[:at], *option], command)
                said = [line for line in done.err.splitlines() if not line.startswith("  ")]
                if done.code != 2 or not said or "probing" in done.err or "running" in done.err:
                    wrong.append(f"{verb} {name} {value!r}: {done.code} {done.out[:200]} {done.err[-400:]}")
    assert wrong == [], "\n".join(wrong)
    assert (engine.asked, engine.builds()) == ([], [])
    assert sorted(tmp_path.rglob("*")) == before


# What takes a value.
EMPTY = sorted(
    (verb, str(each.name))
    for verb, command in typer.main.get_group(cli.app).commands.items()
    for each in command.params
    if not (isinstance(each, click.Option) and each.is_flag)
)


@pytest.mark.parametrize("verb", sorted({verb for verb, _ in EMPTY}))
@pytest.mark.parametrize("nothing", ["", " "])
def test_an_empty_value_is_wrong_input(
    verb: str, nothing: str, engine: Idle, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """An unset variable names nothing: neither the current folder nor what would be without the option."""
    params = typer.main.get_group(cli.app).commands[verb].params
    before, wrong = sorted(tmp_path.rglob("*")), []
    needed = [each for each in params if isinstance(each, click.Argument)]
    with Envkit(capsys) as envkit:
        for each in params:
            if (verb, str(each.name)) not in EMPTY:
                continue
            if isinstance(each, click.Option):
                words = [*("spec" for one in needed if one.required), each.opts[0], nothing]
            else:
                words = (
                    ["spec"] * needed.index(each)
                    + [nothing]
                    + ["spec"] * sum(one.required for one in needed[needed.index(each) + 1 :])
                )
            done = envkit.split([verb, *words], None)
            said = [line for line in done.err.splitlines() if not line.startswith("  ")]
            if done.code != 2 or len(said) != 1 or "is empty" not in said[0] or done.out:
                wrong.append(f"{verb} {each.name}: {done.code} {done.out[:100]} {done.err[-300:]}")
    assert wrong == [], "\n".join(wrong)
    assert (engine.asked, engine.builds()) == ([], [])
    assert sorted(tmp_path.rglob("*")) == before


# GPUs.


@pytest.mark.parametrize(
    ("count", "gpus", "sentence"),
    [
        (8, "99", "there is no GPU 99: this machine has 8 GPUs, numbered 0 to 7"),
        (8, "0,8", "there is no GPU 8: this machine has 8 GPUs, numbered 0 to 7"),
        (1, "1", "there is no GPU 1: this machine has 1 GPU, numbered 0"),
        (0, "99", "GPU 99 cannot be used: this machine has no NVIDIA GPU"),
        (0, "all", "GPUs cannot be used: this machine has no NVIDIA GPU"),
    ],
)
def test_a_gpu_that_is_not_there_is_told_as_what_it_is(
    monkeypatch: pytest.MonkeyPatch, engine: Idle, count: int, gpus: str, sentence: str
) -> None:
    from envkit.engine.choice import connect

    monkeypatch.setattr(asked, "_gpus_here", lambda: count)
    with pytest.raises(UsageError) as caught:
        runner.are_here(runner.default_gpus(gpus), connect("docker", print))
    assert caught.value.message == sentence and caught.value.fix


@pytest.mark.parametrize(("count", "gpus"), [(8, "7"), (8, "all"), (0, "none"), (None, "3"), (1, "0"), (8, "GPU-5a6b")])
def test_a_gpu_that_may_be_there_passes(monkeypatch: pytest.MonkeyPatch, count: int | None, gpus: str) -> None:
    monkeypatch.setattr(asked, "_gpus_here", lambda: count)
    runner.are_here(runner.default_gpus(gpus))


def test_what_an_engine_on_another_machine_has_is_not_judged_by_this_one(
    monkeypatch: pytest.MonkeyPatch, engine: Idle
) -> None:
    from envkit.engine.choice import connect

    monkeypatch.setattr(asked, "_gpus_here", lambda: 0)
    connected = connect("docker", print)
    assert not connected.elsewhere()
    monkeypatch.setattr(connected, "_info", {"Name": "another"})
    assert connected.elsewhere()
    runner.are_here(("3",), connected)


# Pythons.


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_python_is_one(tmp_path: Path) -> None:
    assert runner.interpreter(Path(sys.executable)) == Path(sys.executable)
    wraps = script(tmp_path / "wraps", f'#!/bin/sh\necho talk\nexec "{sys.executable}" "$@"\n')
    assert runner.interpreter(wraps) == wraps  # what it says first is no answer, and none of the payload's either


NOT_PYTHON = {
    "text": ("plain words\n", 0o644, "permission denied"),
    "text that may be run": ("plain words\n", 0o755, "exec format error"),
    "empty": ("", 0o755, "exec format error"),
    "no shebang's program": ("#!/no/such/program\n", 0o755, "does not exist"),
    "says nothing": ("#!/bin/sh\n", 0o755, "is not a Python: asked to print one word, it ended with exit code 0"),
    "garbage": (
        "#!/bin/sh\nhead -c 3000 /dev/urandom\nexit 3\n",
        0o755,
        "is not a Python: asked to print one word, it ended",
    ),
    "flood": (
        "#!/bin/sh\nwhile :; do echo y; done\n",
        0o755,
        "is not a Python: asked to print one word, it printed more",
    ),
    "fails": ("#!/bin/sh\necho no such option >&2\nexit 2\n", 0o755, "exit code 2 and printed `no such option`"),
}


@pytest.mark.slow  # starts envkit once for each verb and kind of file
@pytest.mark.parametrize("what", NOT_PYTHON)
@pytest.mark.parametrize("verb", [("probe",), ("smoke",), ("probe", "--placement", "a:b"), ("preflight",)])
def test_what_is_no_python_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, what: str, verb: tuple[str, ...]
) -> None:
    text, mode, sentence = NOT_PYTHON[what]
    file = tmp_path / "file"
    file.write_text(text)
    file.chmod(mode)
    with Envkit(capsys) as envkit:
        done = envkit(*verb, "--python", file)
    lines = done.err.splitlines()
    assert done.code == 2 and sentence in lines[0] and lines[1].startswith("  fix: ") and len(lines) == 2, done.err


def test_a_python_that_fails_is_told_by_the_run_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = script(tmp_path / "broken", "#!/bin/sh\necho 'Fatal Python error: init_fs_encoding' >&2\nexit 1\n")
    with Envkit(capsys) as envkit:
        done = envkit("probe", "--python", broken)
    assert done.code == 3 and "before it ran a line of the payload: Fatal Python error" in done.err


def test_a_python_that_hangs_is_undecided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runner, "_PYTHON_S", 1.0)
    with pytest.raises(Undecided, match="did not answer within 1 s"):
        runner.interpreter(script(tmp_path / "hangs", "#!/bin/sh\nsleep 600\n"))


# Names of images, and addresses.


@pytest.mark.parametrize(
    "tag", ["a", "team/stack:1", "host.example:5000/team/stack-x__y.z:V1.2_3", "localhost/a:latest"]
)
def test_names_that_engines_take(tag: str) -> None:

    from envkit.build import possible

    possible.can_be_built(f"linux/{'amd64' if os.uname().machine == 'x86_64' else 'arm64'}", tag)


@pytest.mark.parametrize(
    "address",
    [
        "https://mirror.example/debian",
        "http://user:p%40ss@mirror.example:8080/{archive}/{date}",
        "http://[::1]:3142/snapshot/{archive}/{date}/",
    ],
)
def test_addresses_of_archives(address: str) -> None:

    from envkit.build import possible

    possible.can_be_built(f"linux/{'amd64' if os.uname().machine == 'x86_64' else 'arm64'}", "", address)


def test_another_machines_platform_is_refused_before_the_lock(
    engine: Idle, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = "linux/arm64" if os.uname().machine == "x86_64" else "linux/amd64"
    (tmp_path / "spec" / "envkit.toml").write_text(f'torch = "2.6.0"\npython = "3.11"\nplatform = "{other}"\n')
    with Envkit(capsys) as envkit:
        for verb in ("build", "up"):
            done = envkit(verb, "spec")
            assert done.code == 2 and re.search(f"{other}, this machine is", done.err), done.err
    assert engine.asked == [] and not (tmp_path / "spec" / "envkit.lock").exists()


# Folders to fill.


def test_a_folder_that_cannot_be_filled_is_refused_before_any_download(
    engine: Idle, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    places = {
        "file": "already exists",
        "full": "already exists",
        "file/new": "is not a folder",
        "x" * 300: "file name too",
    }
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o500)
        places["closed/new"] = "may not be written to"
    elif Path("/sys").is_dir():
        places["/sys/new"] = "cannot be filled: operation not permitted"
    with Envkit(capsys) as envkit:
        for place, sentence in places.items():
            done = envkit("vendor", place, "spec")
            assert done.code == 2 and sentence in done.err.splitlines()[0], done.err
    assert engine.asked == [] and not (tmp_path / "spec" / "envkit.lock").exists()


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ("nr_inodes=1", 3, "the disk is full: {} was not filled"),
        ("ro", 2, "{} cannot be filled: read-only file system"),
    ],
    ids=["full", "read-only"],
)
def test_a_full_or_read_only_disk_is_told_before_any_download(
    engine: Idle, tmp_path: Path, options: str, code: int, sentence: str
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounts = f'mount -t tmpfs -o {options} none {disk} && exec "$@"'
    apart = ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", mounts, "sh"]
    if proc.run([*apart, "true"], timeout_s=60).exit != 0:
        pytest.skip("this machine gives no mount namespace")
    command = [sys.executable, "-m", "envkit", "vendor", f"{disk}/new", "spec"]
    done = proc.run([*apart, *command], timeout_s=120, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path)
    assert (done.exit, done.stderr.splitlines()[0]) == (code, "envkit: " + sentence.format(f"{disk}/new"))
    assert engine.asked == []
