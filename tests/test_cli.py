"""The command line as a person meets it: verbs, exit codes, messages, and what is left when it is stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import machines
import pytest
from archive import installed
from clocks import comes
from fake_docker import FakeDocker
from index import Index, Publish
from inline import Ended, Envkit
from processes import children
from test_prove import content_id, layer

from envkit import __version__, cli
from envkit.build.render import dockerfile as render
from envkit.errors import FAULT, READER_GONE, EnvkitError, Interrupted, Undecided, Unsatisfiable, UsageError
from envkit.facts import load as load_facts
from envkit.facts.show import TOPICS
from envkit.plan import apt
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import Lock
from envkit.plan.resolve import resolve
from envkit.plan.spec import load as load_spec
from envkit.runner.runner import FLAVOR_LABEL, LOCK_LABEL
from envkit.subjects.codec import to_plain

ROOT = Path(__file__).parent.parent
DATA = Path(__file__).parent / "data"
IMAGES = ROOT / "images"
VERBS = (
    "init", "lock", "render", "push", "sbom", "base", "build", "vendor", "up", "diff", "check", "audit", "probe",
    "smoke", "doctor", "preflight", "drain", "explain", "debug", "judge", "facts", "completion",
)  # fmt: skip


@pytest.fixture
def envkit(capsys: pytest.CaptureFixture[str]) -> Iterator[Envkit]:
    with Envkit(capsys) as run:
        yield run


def spawn(*words: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "envkit", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def saved(folder: Path, kind: str, name: str) -> Path:
    """A recorded subject as --save writes it."""
    if name.startswith("healthy "):
        subject = to_plain(machines.host(name.removeprefix("healthy ")))
    else:
        subject = json.loads((DATA / kind / f"{name}.json").read_text())
    path = folder / f"{kind}-{name}.json"
    path.write_text(json.dumps({"schema": "envkit.subject/1", "kind": kind, "subject": subject}))
    return path


def wish(folder: Path, text: str = "") -> Path:
    path = folder / "envkit.toml"
    path.write_text('torch = "2.6.0"\npython = "3.11"\n' + text)
    return path


def told(ended: Ended, code: int) -> str:
    """The message of a refusal: data nowhere, one message line, a fix."""
    assert ended.code == code, ended.err
    assert ended.out == ""
    first, *rest = [line for line in ended.err.splitlines() if line.startswith("envkit: ")]
    assert rest == []
    assert not first.endswith(".")
    assert "\n  fix: " in ended.err
    return first.removeprefix("envkit: ")


# Help.


def test_help_lists_every_verb(envkit: Envkit) -> None:
    ended = envkit("--help")
    assert ended.code == 0
    for verb in VERBS:
        assert re.search(rf"(?m)^  {verb} ", ended.out)
    assert ended.err == ""


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, envkit: Envkit) -> None:
    ended = envkit(verb, "-h")
    assert ended.code == 0
    assert f"Usage: envkit {verb}" in ended.out or f" {verb} " in ended.out.splitlines()[0]
    assert ended.err == ""


def test_the_version(envkit: Envkit) -> None:
    assert envkit("--version") == Ended(0, f"envkit {__version__}\n", "")


def test_no_verb_is_wrong_usage(envkit: Envkit) -> None:
    assert envkit().code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("frobnicate",), ("judge",), ("judge", "a", "b"), ("--nope",), ("lock", "--nope"),
        ("doctor", "--budget", "soon"), ("doctor", "--budget"), ("check", "--fix=yes"),
    ],
)  # fmt: skip
def test_wrong_words_are_one_sentence_and_exit_2(words: tuple[str, ...], envkit: Envkit) -> None:
    ended = envkit(*words)
    told(ended, 2)
    assert len(ended.err.splitlines()) == 2


def test_the_parser_of_one_verb_says_what_that_of_all_says() -> None:
    every = cli.parser("")
    assert len(every.commands) > 10
    told = every.to_info_dict(click.Context(every, **every.context_settings))
    for verb in every.commands:
        alone = cli.parser(verb)
        assert alone.to_info_dict(click.Context(alone, **alone.context_settings)) == {
            **told,
            "commands": {verb: told["commands"][verb]},
        }
        assert alone.context_settings == every.context_settings
    assert cli.parser("no-such").commands.keys() == every.commands.keys()


def test_help_loads_neither_docker_nor_nvml_nor_templates() -> None:
    code = (
        "import sys\nfrom envkit import cli\ncode = cli.run(lambda: cli.invoke(['--help']))\n"
        "print(sorted({'docker', 'pynvml', 'jinja2', 'msgspec', 'rich'} & set(sys.modules)), code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1] == "[] 0", done.stderr


# Judging what was recorded.


@pytest.mark.parametrize(
    ("kind", "name", "code", "verdict"),
    [
        ("image", "torch-2.6-cu124", 0, "pass"),
        ("image", "torch-2.15-cu132", 0, "pass"),
        ("image", "torch-2.6-cudnn-8", 1, "fail"),
        ("image", "torch-2.15-cudart-twice", 1, "fail"),
        ("image", "no-torch", 3, "undecided"),
        ("host", "healthy h100", 0, "pass"),
        ("host", "healthy bare", 1, "fail"),
        ("host", "h100-of-an-older-envkit", 3, "undecided"),
        ("smoke", "torch-2.6-cu124-cpu", 0, "pass"),
        ("smoke", "torch-2.6-cu124-cpu-inject-fault-all", 1, "fail"),
    ],
)
def test_the_exit_code_is_the_verdict(
    kind: str, name: str, code: int, verdict: str, tmp_path: Path, envkit: Envkit
) -> None:
    path = saved(tmp_path, kind, name)
    # A recorded smoke run takes a third of a second to write in any format; the other subjects are written in all.
    for format in ("console", "json") if kind == "smoke" else ("console", "junit", "html", "json"):
        ended = envkit("judge", path, "--format", format)
        assert ended.code == code, ended.out
        assert ended.err == ""
    document = json.loads(ended.out)
    assert (document["schema"], document["verdict"]) == ("envkit.report/1", verdict)
    assert not document.get("observed")
    whole = json.loads(envkit("judge", path, "--format", "json", "--observed").out)
    assert whole["observed"]["name"] == json.loads(path.read_text())["subject"]["name"]


def test_nothing_observed_is_never_green(tmp_path: Path, envkit: Envkit) -> None:
    for kind in ("host", "image", "smoke"):
        path = tmp_path / f"{kind}.json"
        path.write_text(
            json.dumps({"schema": "envkit.subject/1", "kind": kind, "subject": {"name": "x", "digest": ""}})
        )
        assert envkit("judge", path).code == 3


def test_fail_on_moves_the_line(tmp_path: Path, envkit: Envkit) -> None:
    path = saved(tmp_path, "image", "torch-2.6-cudnn-8")
    codes = [envkit("judge", path, "--fail-on", word).code for word in ("note", "warning", "error", "ERROR")]
    assert codes[-1] == codes[-2] == 1
    assert codes == sorted(codes, reverse=True)
    message = told(envkit("judge", path, "--fail-on", "fatal"), 2)
    assert message == "there is no severity `fatal`"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema": "envkit.subject/1", "kind": "cat", "subject": {}}',
        b'{"schema": "envkit.subject/1", "kind": [], "subject": {}}',
        b'{"schema": "envkit.subject/1", "kind": {"a": 1}, "subject": {}}',
        b'{"schema": "envkit.subject/1", "kind": "host"}',
        b'{"schema": "envkit.subject/1", "kind": "host", "subject": 7}',
        b'{"schema": "envkit.subject/1", "kind": "image", "subject": {"name": 7}}',
        b'{"schema": "envkit.subject/2", "kind": "host", "subject": {}}',
        b'{"kind": "host", "subject": {"name": "x"}}',
    ],
)
def test_what_was_not_saved_cannot_be_judged(content: bytes, tmp_path: Path, envkit: Envkit) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    ended = envkit("judge", path)
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert ended.err.startswith("envkit: ")


def test_a_missing_file_cannot_be_judged(tmp_path: Path, envkit: Envkit) -> None:
    assert "none.json cannot be read" in told(envkit("judge", tmp_path / "none.json"), 2)


@pytest.mark.parametrize(
    "words",
    [
        ("judge", "x.json"), ("probe",), ("smoke",), ("doctor",),
        ("up", str(IMAGES / "torch-2.6-cu124"), "--engine", "local"),
    ],
)  # fmt: skip
def test_a_format_that_does_not_exist_is_told_before_any_work(words: tuple[str, ...], envkit: Envkit) -> None:
    ended = envkit(*words, "--format", "yaml")
    assert told(ended, 2) == "there is no format `yaml`"
    assert "console, json, junit" in ended.err


# Locking and rendering.


def test_a_missing_spec(tmp_path: Path, envkit: Envkit) -> None:
    for verb in ("lock", "render", "build", "up"):
        message = told(envkit(verb, tmp_path), 2)
        assert message == f"there is no spec at {tmp_path / 'envkit.toml'}"


def test_an_unknown_key(tmp_path: Path, envkit: Envkit) -> None:
    message = told(envkit("lock", wish(tmp_path, 'pakages = ["numpy"]\n')), 2)
    assert message.endswith("unknown key `pakages`; did you mean `packages`?")


def test_a_refused_lock_says_why_and_what_is_near(tmp_path: Path, envkit: Envkit) -> None:
    ended = envkit("lock", wish(tmp_path, 'cuda = "12.1"\n'))
    assert told(ended, 2) == "torch 2.6.0 was not published for CUDA 12.1; it was for 11.8, 12.4 and 12.6"
    assert len(re.findall(r"(?m)^  because: .*CUDA ", ended.err)) >= 3
    assert re.findall(r"(?m)^  nearest: (.*)$", ended.err)[0] == "torch 2.6.0 with CUDA 12.4"
    assert os.listdir(tmp_path) == ["envkit.toml"]


def test_a_lock_that_answers_is_kept(tmp_path: Path, envkit: Envkit) -> None:
    folder = tmp_path / "torch-2.6-cu124"
    folder.mkdir()
    for name in ("envkit.toml", "envkit.lock"):
        (folder / name).write_bytes((IMAGES / "torch-2.6-cu124" / name).read_bytes())
    before = (folder / "envkit.lock").stat().st_mtime_ns
    ended = envkit("lock", folder)
    assert (ended.code, (folder / "envkit.lock").stat().st_mtime_ns) == (0, before)
    assert "the lock is up to date with this spec" in ended.err
    assert "torch 2.6.0 for CUDA 12.4" in ended.out


def test_an_index_out_of_reach_is_undecided(tmp_path: Path, envkit: Envkit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    ended = envkit("lock", wish(tmp_path), "--engine", "none")
    assert " cannot be reached: " in told(ended, 3)
    assert not (tmp_path / "envkit.lock").exists()


def test_render_needs_a_lock(tmp_path: Path, envkit: Envkit) -> None:
    message = told(envkit("render", wish(tmp_path)), 2)
    assert message.endswith("envkit.lock does not exist")
    (tmp_path / "envkit.lock").write_bytes((IMAGES / "torch-2.6-cu124" / "envkit.lock").read_bytes())
    ended = envkit("render", tmp_path)
    assert told(ended, 2).endswith("envkit.lock is for another spec")
    assert "envkit lock" in ended.err


def test_render_prints_the_checked_in_dockerfile(envkit: Envkit) -> None:
    ended = envkit("render", IMAGES / "torch-2.6-cu124", "-o", "-")
    assert ended == Ended(0, (IMAGES / "torch-2.6-cu124" / "Dockerfile").read_text(), "")


def test_render_writes_where_it_is_told(tmp_path: Path, envkit: Envkit) -> None:
    out = tmp_path / "D"
    ended = envkit("render", IMAGES / "torch-2.6-cu124", "-o", out)
    assert (ended.code, ended.out) == (0, f"{out}\n")
    assert out.read_text() == (IMAGES / "torch-2.6-cu124" / "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("kind", "name", "word"),
    [
        ("dockerfile", "Dockerfile", "AS runtime"),
        ("compose", "compose.yaml", "services"),
        ("devcontainer", ".devcontainer/devcontainer.json", "defaultInterpreterPath"),
        ("apptainer", "torch-2.6-cu124.def", "%post"),
    ],
)
def test_what_runs_the_image_elsewhere_is_written_beside_the_spec(
    kind: str, name: str, word: str, tmp_path: Path, envkit: Envkit
) -> None:
    reference(tmp_path)
    path = tmp_path / REFERENCE / name
    assert envkit("render", path.parents[name.count("/")], "--as", kind) == Ended(0, f"{path}\n", "")
    assert envkit("render", tmp_path / REFERENCE, "--as", kind, "-o", "-").out == path.read_text()
    assert word in path.read_text()


def test_a_kind_of_output_that_does_not_exist(envkit: Envkit) -> None:
    message = told(envkit("render", IMAGES / REFERENCE, "--as", "helm"), 2)
    assert message == "there is no output `helm`"


def test_an_output_that_cannot_be_written_leaves_nothing(tmp_path: Path, envkit: Envkit) -> None:
    ended = envkit("render", IMAGES / "torch-2.6-cu124", "-o", tmp_path / "none" / "D")
    assert "cannot be written" in told(ended, 2)
    assert os.listdir(tmp_path) == []


def test_a_file_size_limit_leaves_the_old_file_whole(tmp_path: Path) -> None:
    out = tmp_path / "D"
    out.write_text("old")
    code = (
        "import resource, sys\nfrom envkit import cli\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        f"sys.exit(cli.run(lambda: cli.invoke(['render', {str(IMAGES / 'torch-2.6-cu124')!r}, '-o', {str(out)!r}])))\n"
    )
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert "cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert (out.read_text(), os.listdir(tmp_path)) == ("old", ["D"])


# Locking again.

REFERENCE = "torch-2.6-cu124"
WISH = 'torch = "2.6.0"\npython = "3.11"\n'


def reference(folder: Path, **changes: Any) -> Lock:
    """The reference spec in ``folder`` with its lock, which is ``changes`` away from the one that is checked in."""
    job = folder / REFERENCE
    job.mkdir(parents=True)
    (job / "envkit.toml").write_bytes((IMAGES / REFERENCE / "envkit.toml").read_bytes())
    made = replace(locks.parse((IMAGES / REFERENCE / "envkit.lock").read_text(), REFERENCE), **changes)
    locks.save(made, job / "envkit.lock")
    return made


def versions(folder: Path) -> dict[str, str]:
    made = locks.parse((folder / "envkit.lock").read_text(), "envkit.lock")
    return {pin.name: pin.version for pin in made.wheels}


def test_a_check_says_whether_spec_and_lock_agree_and_changes_nothing(tmp_path: Path, envkit: Envkit) -> None:
    path = wish(tmp_path)
    assert envkit("lock", path, "--check") == Ended(1, f"{tmp_path / 'envkit.lock'} does not exist\n", "")
    assert os.listdir(tmp_path) == ["envkit.toml"]
    reference(tmp_path)
    job = tmp_path / REFERENCE
    assert envkit("lock", job, "--check") == Ended(0, "", "")
    before = (job / "envkit.lock").read_bytes()
    spec = job / "envkit.toml"
    spec.write_text(spec.read_text().replace('["numpy"]', '["numpy", "einops"]').replace('"550"', '"580"'))
    ended = envkit("lock", job, "--check")
    assert (ended.code, ended.err) == (1, "")
    assert ended.out.splitlines() == [
        "the spec asks for packages einops, numpy, the lock was made for numpy",
        "the spec asks for drivers 580, the lock was made for 550",
    ]
    assert (job / "envkit.lock").read_bytes() == before


def test_a_check_of_a_lock_that_was_edited_is_wrong_input(tmp_path: Path, envkit: Envkit) -> None:
    reference(tmp_path)
    path = tmp_path / REFERENCE / "envkit.lock"
    path.write_text(path.read_text().replace('torch = "2.6.0"', 'torch = "2.5.0"', 1))
    before = path.read_bytes()
    assert re.search(r"was edited by hand at line \d+$", told(envkit("lock", path.parent, "--check"), 2))
    assert path.read_bytes() == before


@pytest.mark.slow  # five locks, which test_solve makes without a command line
def test_a_lock_is_made_again_as_far_as_it_is_asked(
    tmp_path: Path, envkit: Envkit, index: Index, published: Publish
) -> None:
    published("2.6.0", "3.11", "nvidia-cudnn-cu12", "numpy")
    index.add("numpy", "2.2.0")
    job = wish(tmp_path, 'packages = ["numpy"]\n').parent
    weak = ("--engine", "none", "--allow-unpinned", "os", "--allow-unpinned", "base")
    first = envkit("lock", job, *weak)
    assert first.code == 0, first.err
    assert "Debian packages by name, base debian:12-slim" in first.out
    index.add("numpy", "2.3.0")
    index.add("setuptools", "81.0.0")

    def after(*words: str) -> tuple[str, str]:
        ended = envkit("lock", job, *weak, *words)
        assert ended.code == 0, ended.err
        found = versions(job)
        return found["numpy"], found["setuptools"]

    assert after() == ("2.2.0", "80.9.0")
    assert after("--refresh-os") == ("2.2.0", "80.9.0")
    assert after("-P", "numpy", "--refresh-os") == ("2.3.0", "80.9.0")
    index.add("numpy", "2.4.0")
    assert after("--upgrade-package", "setuptools") == ("2.3.0", "81.0.0")
    assert after("--upgrade") == ("2.4.0", "81.0.0")
    before = (job / "envkit.lock").read_bytes()
    message = told(envkit("lock", job, "--engine", "none", "-P", "nunpy"), 2)
    assert message == "the lock contains no nunpy to upgrade; did you mean `numpy`?"
    assert (job / "envkit.lock").read_bytes() == before


@pytest.mark.usefixtures("no_mirrors")
def test_the_base_that_the_engine_holds_is_locked(
    tmp_path: Path, envkit: Envkit, published: Publish, docker: FakeDocker
) -> None:
    published("2.6.0", "3.11", "nvidia-cudnn-cu12")
    docker.holds("debian:12-slim", b"", digest="sha256:" + "d" * 64)
    docker.files["/var/lib/dpkg/status"] = installed(("libc6", "2.36"))
    message = told(envkit("lock", wish(tmp_path), "--engine", "docker"), 3)
    assert message == "apt-get has no Debian mirror configured on this machine; the Debian packages would not be pinned"
    assert not (tmp_path / "envkit.lock").exists()
    ended = envkit("lock", wish(tmp_path), "--engine", "docker", "--allow-unpinned", "os")
    assert ended.code == 0, ended.err
    made = locks.parse((tmp_path / "envkit.lock").read_text(), "envkit.lock")
    assert (made.digest, made.origin) == ("sha256:" + "d" * 64, "registry")
    assert re.search(r"NOT PINNED \(os\): .*: apt-get has no Debian mirror configured", ended.err)


@pytest.mark.usefixtures("no_mirrors")
def test_up_says_in_quiet_too_what_its_new_lock_does_not_pin(
    tmp_path: Path, envkit: Envkit, published: Publish, docker: FakeDocker
) -> None:
    published("2.6.0", "3.11", "nvidia-cudnn-cu12")
    docker.holds("debian:12-slim", BASE, digest="sha256:" + "d" * 64)
    docker.files["/var/lib/dpkg/status"] = installed(("libc6", "2.36"))
    docker.will_make(ONE)
    ended = envkit("up", wish(tmp_path), "--allow-unpinned", "os", "--gpus", "none", "-q", "--report", tmp_path / "r")
    assert (tmp_path / "envkit.lock").exists(), ended.err
    told_lines = [line for line in ended.err.splitlines() if "NOT PINNED" in line]
    assert len(told_lines) == 1 and told_lines[0].startswith("NOT PINNED (os): "), ended.err
    assert "base debian:12-slim" not in ended.err.replace(told_lines[0], "")


# Building, over an engine that the test plays.

BASE = layer(os=b"debian")
ONE = (BASE, layer(a=b"1", b=b"2"))
OTHER = (BASE, layer(a=b"1", b=b"3"))


@pytest.fixture
def job(tmp_path: Path, docker: FakeDocker) -> Path:
    """The reference spec and its lock, on a base that the engine has from a registry."""
    made = reference(tmp_path, origin="registry")
    docker.holds(made.image, BASE, digest=made.digest)
    docker.will_make(ONE)
    return tmp_path / REFERENCE


def option(docker: FakeDocker, name: str) -> list[str]:
    """The values of one option of the client, build by build."""
    words = (word for build in docker.builds() for word in build["argv"])
    return [word.partition("=")[2] for word in words if word.startswith(f"--{name}=")]


def test_a_build_prints_the_image_and_says_how_to_run_it(job: Path, envkit: Envkit, docker: FakeDocker) -> None:
    ended = envkit("build", job)
    assert (ended.code, ended.out) == (0, f"envkit/{REFERENCE}:latest {content_id(ONE)}\n")
    assert "run your code in it: envkit run " in ended.err and "--device nvidia.com/gpu=all: " in ended.err
    assert "SYS_PTRACE" not in ended.err
    assert option(docker, "target") == ["runtime"]
    assert docker.builds()[0]["context"] == ["Dockerfile", "envkit.lock", "requirements.txt"]
    assert (job / "Dockerfile").read_text() == render(locks.parse((job / "envkit.lock").read_text(), "x"))
    assert not any(word in docker.builds()[0]["argv"] for word in ("--no-cache", "--network=none"))


def test_a_flavor_a_tag_no_cache_and_a_mirror_reach_the_build(job: Path, envkit: Envkit, docker: FakeDocker) -> None:
    ended = envkit("build", job, "--flavor", "debug", "-t", "mine:7", "--no-cache", "--apt-mirror", "http://m.invalid/")
    assert (ended.code, ended.out) == (0, f"mine:7 {content_id(ONE)}\n")
    assert "--cap-add SYS_PTRACE: " in ended.err
    (build,) = docker.builds()
    assert {"--target=debug", "--no-cache", "--build-arg=APT_MIRROR=http://m.invalid/"} <= set(build["argv"])
    assert "mine:7" in docker.names()


@pytest.mark.parametrize("verb", ["build", "up"])
def test_a_flavor_that_does_not_exist_is_told_before_any_work(verb: str, job: Path, envkit: Envkit) -> None:
    ended = envkit(verb, job, "--flavor", "deubg")
    assert told(ended, 2) == "there is no flavor `deubg`; did you mean `debug`?"
    assert "one of: runtime, devel, debug" in ended.err
    assert sorted(os.listdir(job)) == ["envkit.lock", "envkit.toml"]


def test_a_failed_build_is_undecided(job: Path, envkit: Envkit, docker: FakeDocker) -> None:
    docker.will_make()
    ended = envkit("build", job)
    assert (ended.code, ended.out) == (3, "")
    assert not any(name.startswith("envkit/") for name in docker.names())


def test_a_verified_build_is_0_if_both_are_the_same_and_1_if_not(job: Path, envkit: Envkit, docker: FakeDocker) -> None:
    same = envkit("build", job, "--verify")
    assert same.code == 0, same.err
    first, *layers, last = same.out.splitlines()
    assert first == f"envkit/{REFERENCE}:latest {content_id(ONE)}"
    assert [line.split(" sha256:")[0] for line in layers] == ["layer 1", "layer 2"]
    assert last == "both builds are the same"
    assert all("--no-cache" in build["argv"] for build in docker.builds())
    assert not any("verify" in name for name in docker.names())
    (docker.folder / "builds.jsonl").unlink()
    docker.will_make(ONE, OTHER)
    differing = envkit("build", job, "--verify")
    assert differing.code == 1, differing.err
    *_, why, last = differing.out.splitlines()
    assert why.startswith("differs: layer 2: b: ")
    assert last == "the two builds are NOT the same"


def test_a_verified_build_needs_layers(
    job: Path, envkit: Envkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert "has no layers to compare" in told(envkit("build", job, "--verify", "--engine", "local"), 2)


@pytest.mark.parametrize("other", [("--output", "image.tar"), ("--verify",)], ids=str)
def test_a_build_with_an_attestation_is_neither_saved_nor_compared(
    job: Path, envkit: Envkit, other: tuple[str, ...]
) -> None:
    assert "makes every build another image" in told(envkit("build", job, "--provenance", *other), 2)


@pytest.mark.parametrize("options", [("--output", "image.tar"), ("--provenance",)], ids=str)
def test_without_an_image_none_is_saved_or_attested(job: Path, envkit: Envkit, options: tuple[str, ...]) -> None:
    assert "makes no image to save or to attest" in told(envkit("build", job, "--engine", "local", *options), 2)


def vendored(folder: Path, made: Lock) -> Path:
    """What `envkit vendor` would save of a lock with one wheel and one Debian package."""
    held = folder / "vendored"
    (held / "wheels").mkdir(parents=True)
    (held / "debs").mkdir()
    content = b"a wheel, a package"
    digest = sha256(content).hexdigest()
    (wheel,) = (pin for pin in made.wheels if pin.name == "numpy")
    small = replace(
        made,
        wheels=(replace(wheel, sha256=digest),),
        installer=replace(made.installer, sha256=digest),
        debs=(replace(made.debs[0], sha256=digest),),
    )
    locks.save(small, held / "envkit.lock")
    for name in (f"wheels/{wheel.file}", f"wheels/{made.installer.file}", f"debs/{apt.file_of(made.debs[0])}"):
        (held / name).write_bytes(content)
    (held / "base.tar").write_bytes(b"a base")
    return held


def test_a_build_from_what_was_vendored_has_no_network(
    job: Path, envkit: Envkit, docker: FakeDocker, tmp_path: Path
) -> None:
    held = vendored(tmp_path, locks.parse((job / "envkit.lock").read_text(), "x"))
    ended = envkit("build", job, "--from", held)
    assert ended.code == 0, ended.err
    (build,) = docker.builds()
    assert "--network=none" in build["argv"]
    assert f"--build-context=vendor={held}" in build["argv"]
    assert "--build-arg=BASE=loaded:base" in build["argv"]
    assert ["base.tar", "debs", "envkit.lock", "wheels"] in build["folders"]
    assert not (job / "Dockerfile").exists()  # which is of another lock


def test_what_was_vendored_is_compared_with_its_lock(
    job: Path, envkit: Envkit, docker: FakeDocker, tmp_path: Path
) -> None:
    held = vendored(tmp_path, locks.parse((job / "envkit.lock").read_text(), "x"))
    (wheel,) = (held / "wheels").glob("numpy-*")
    wheel.write_bytes(b"another wheel")
    assert f"does not contain what its lock says: wheels/{wheel.name}" in told(envkit("build", job, "--from", held), 2)
    message = told(envkit("build", job, "--from", tmp_path / "none"), 2)
    assert message == f"{tmp_path / 'none'} contains no envkit.lock"
    assert docker.builds() == []


# Differences.


def test_a_diff_is_0_for_the_same_and_1_for_a_change(tmp_path: Path, envkit: Envkit) -> None:
    made = reference(tmp_path / "a")
    older = (replace(pin, version="1.0.0") if pin.name == "numpy" else pin for pin in made.wheels)
    reference(tmp_path / "b", wheels=tuple(older))
    one, other = (tmp_path / name / REFERENCE / "envkit.lock" for name in "ab")
    assert envkit("diff", one, one).code == 0
    ended = envkit("diff", one, other)
    assert (ended.code, ended.err) == (1, "")
    assert re.search(r"(?m)^  numpy \S+ -> 1\.0\.0", ended.out)
    document = json.loads(envkit("diff", one, other, "-f", "json").out)
    assert "numpy" in json.dumps(document)
    assert envkit("diff", one, one, "-f", "json").code == 0


def test_specs_and_saved_probes_are_compared_too(tmp_path: Path, envkit: Envkit) -> None:
    folders = []
    for name, cuda in (("a", "12.4"), ("b", "12.6")):
        (tmp_path / name).mkdir()
        folders.append(wish(tmp_path / name, f'cuda = "{cuda}"\n').parent)
    ended = envkit("diff", *folders)
    assert ended.code == 1, ended.err
    assert "12.4 -> 12.6" in ended.out
    assert envkit("diff", folders[0], folders[0] / "envkit.toml").code == 0
    probes = [saved(tmp_path, "image", name) for name in ("torch-2.6-cu124", "torch-2.6-cudnn-8")]
    assert envkit("diff", *probes).code == 1


def test_images_are_compared_by_their_locks_and_layers(envkit: Envkit, docker: FakeDocker, tmp_path: Path) -> None:
    text = locks.dump(reference(tmp_path))
    for name, content in (("one:1", ONE), ("same:1", ONE), ("other:1", OTHER)):
        docker.holds(name, *content, labels={LOCK_LABEL: text, FLAVOR_LABEL: "runtime"})
    assert envkit("diff", "one:1", "same:1").code == 0
    ended = envkit("diff", "one:1", "other:1")
    assert ended.code == 1, ended.err
    assert "layer 2: b: " in ended.out
    quiet = envkit("diff", "one:1", "other:1", "-q")
    assert ended.err and (quiet.code, quiet.out, quiet.err) == (1, ended.out, "")
    assert "has no image none:1" in told(envkit("diff", "one:1", "none:1"), 2)


def test_what_cannot_be_compared_is_wrong_input(tmp_path: Path, envkit: Envkit) -> None:
    reference(tmp_path)
    held = tmp_path / REFERENCE / "envkit.lock"
    assert told(envkit("diff", held, held.parent), 2) == f"{held} is a lock, {held.parent} a spec"
    assert "none.lock cannot be read" in told(envkit("diff", held, tmp_path / "none.lock"), 2)
    assert told(envkit("diff", held, held, "-f", "junit"), 2) == "there is no format `junit`"
    for content in ("{", "[]", '{"schema": "envkit.subject/1", "kind": "host"}'):
        (tmp_path / "x.json").write_text(content)
        told(envkit("diff", tmp_path / "x.json", tmp_path / "x.json"), 2)


# init.


def test_init_writes_a_spec_that_resolves_and_never_overwrites(tmp_path: Path, envkit: Envkit) -> None:
    ended = envkit("init", tmp_path)
    path = tmp_path / "envkit.toml"
    assert ended == Ended(0, f"{path}\n", "")
    written = path.read_text()
    facts = load_facts()
    choice = resolve(load_spec(path), facts)
    assert str(choice.torch) == str(max(row.torch for row in facts.torches if row.default))
    assert "already exists" in told(envkit("init", tmp_path), 2)
    assert path.read_text() == written


@pytest.mark.parametrize("commented", ["driver"])
def test_what_init_leaves_commented_out_parses_too(commented: str, tmp_path: Path, envkit: Envkit) -> None:
    envkit("init", tmp_path)
    path = tmp_path / "envkit.toml"
    text = path.read_text()
    assert f"# {commented} = " in text
    path.write_text(text.replace(f"# {commented} = ", f"{commented} = "))
    assert resolve(load_spec(path), load_facts()).torch


@pytest.mark.parametrize(
    ("lines", "torch", "cuda"),
    [
        ("torch==2.6.0  # pinned\neinops\n--index-url https://index.invalid\n", "2.6.0", "auto"),
        ("Torch[opt-einsum]>=2.6,<2.9\n", "<2.9,>=2.6", "auto"),
        ("torchvision==0.21.0\n", "", "auto"),
        ("", "", "auto"),
        ("torch==2.13.0+cpu\n", "2.13.0", "cpu"),
        ("--extra-index-url https://download.pytorch.org/whl/cpu\ntorch==2.6.0\n", "2.6.0", "cpu"),
        ("numpy\ntorch==2.6.0+cu124\n", "2.6.0", "12.4"),
        ("-i https://download.pytorch.org/whl/cu130\ntorch>=2.11,<2.12\n", "<2.12,>=2.11", "13.0"),
        ("torch-geometric==2.8.0+cpu\n", "", "auto"),
    ],
)
def test_init_names_the_requirements_that_are_there(
    tmp_path: Path, envkit: Envkit, lines: str, torch: str, cuda: str
) -> None:
    (tmp_path / "requirements.txt").write_text(lines)
    assert envkit("init", tmp_path).code == 0
    spec = tomllib.loads((tmp_path / "envkit.toml").read_text())
    assert (spec["requirements"], spec["cuda"]) == (["requirements.txt"], cuda)
    bare = tmp_path / "bare"
    assert envkit("init", bare).code == 0
    assert spec["torch"] == torch or (not torch and f'torch = "{spec["torch"]}"' in (bare / "envkit.toml").read_text())
    assert tomllib.loads((bare / "envkit.toml").read_text())["requirements"] == []


def test_init_where_no_folder_can_be_made(tmp_path: Path, envkit: Envkit) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be made" in told(envkit("init", tmp_path / "file" / "none"), 2)


# Facts.


@pytest.mark.parametrize(
    ("topic", "query", "word"),
    [
        ("torch", "2.6.0", "torch 2.6.0+cu124"),
        ("gpu", "RTX 4090", "sm_89"),
        ("cuda", "12.4", "CUDA 12.4"),
        ("driver", "550", "driver branch 550"),
        ("cudnn", "9.1", "cuDNN 9.1"),
        ("image", "nvidia/cuda:12.4.1-base-ubuntu22.04", "12.4.1"),
        ("os", "debian12", "bookworm"),
        ("tool", "py-spy", "py-spy"),
        ("peak", "NVIDIA H200", "peaks of H200 SXM"),
        ("nccl", "2.32", "NCCL 2.32.3"),
        ("toolkit", "1.20.0", "cuinit-unknown"),
        ("package", "vllm", "vllm 0.10.0 to 0.10.1.1"),
    ],
)
def test_facts_name_their_source(topic: str, query: str, word: str, envkit: Envkit) -> None:
    ended = envkit("facts", topic, query)
    assert (ended.code, ended.err) == (0, "")
    assert word in ended.out
    assert re.search(r"(?m)^  source: .+", ended.out)
    rows = json.loads(envkit("facts", topic, query, "-f", "json").out)
    assert rows
    assert all(row["source"] and row["seen"] for row in rows)


def test_the_topics_are_all_tried_above() -> None:
    named = "torch gpu cuda driver cudnn nccl image os tool toolkit peak xid package"
    assert set(TOPICS) == set(named.split())


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("query", ["zzz", "$(id)", "\\"])
def test_facts_about_nothing_known_say_so(topic: str, query: str, envkit: Envkit) -> None:
    ended = envkit("facts", topic, query)
    assert (ended.code, ended.out) == (2, "")
    assert "there are no facts about" in ended.err


def test_a_topic_or_format_that_does_not_exist(envkit: Envkit) -> None:
    assert told(envkit("facts", "weather", "x"), 2) == "there is no topic `weather`"
    assert told(envkit("facts", "os", "debian12", "-f", "xml"), 2) == "there is no format `xml`"


# Probe and smoke of this Python.


def test_an_image_and_a_python_are_one_too_many(envkit: Envkit) -> None:
    assert told(envkit("probe", "debian:12", "--python", "/usr/bin/python3"), 2)


def test_a_probe_is_saved_and_judged_to_the_same_code(tmp_path: Path, envkit: Envkit) -> None:
    path = tmp_path / "here.json"
    first = envkit("probe", "--save", path, "--format", "json")
    again = envkit("judge", path, "--format", "json")
    assert first.code == again.code
    assert json.loads(first.out)["results"] == json.loads(again.out)["results"]


def test_a_smoke_test_that_does_not_exist(envkit: Envkit) -> None:
    assert told(envkit("smoke", "--only", "gem"), 2) == "there is no smoke test `gem`"
    assert told(envkit("smoke", "--inject-fault", "rust"), 2) == "there is no kind of injected fault `rust`"


def test_an_engine_that_does_not_exist(envkit: Envkit) -> None:
    assert told(envkit("probe", "debian:12", "--engine", "moby"), 2) == "there is no engine `moby`"


def test_an_engine_that_does_not_answer_is_undecided(
    envkit: Envkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    ended = envkit("probe", "debian:12")
    told(ended, 3)
    assert "--engine local" in ended.err


# Errors become codes.


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("a", "b"), 2),
        (Unsatisfiable("a", ("c",), ("d",), "b"), 2),
        (Undecided("a", "b"), 3),
        (EnvkitError("a", "b"), 3),
        (Interrupted("SIGINT"), 130),
        (OSError(28, "No space left on device"), 3),
        (FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"), 3),
        (OSError(27, "File too large"), 3),
        (OSError(30, "Read-only file system", "/srv/x"), 3),
        (OSError(122, "Disk quota exceeded"), 3),
        (PermissionError(13, "Permission denied", "/srv/x"), FAULT),
        (MemoryError(), 3),
        (EOFError("a stream ended"), FAULT),
        (BrokenPipeError(32, "Broken pipe"), FAULT),  # of an engine, say: stdout has its reader
        (SystemExit(), 0),
        (SystemExit(0), 0),
        (SystemExit("text"), 2),
    ],
)
def test_errors_have_their_codes(error: BaseException, code: int, envkit: Envkit) -> None:
    def fail() -> None:
        raise error

    assert cli.run(fail) == code


def test_a_fault_of_envkit_is_never_found_or_green(envkit: Envkit, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a fault")

    assert cli.run(fail) == FAULT == 70
    told = capsys.readouterr().err
    assert "ZeroDivisionError: a fault" in told and told.splitlines()[-1].startswith(
        "envkit: this is an internal error of envkit"
    )


# The outside world.


@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_is_told_or_survived(closed: int) -> None:
    shell = f'exec "$0" -m envkit facts torch ">=2" {closed}>&-'
    done = subprocess.run(["sh", "-c", shell, sys.executable], capture_output=True, text=True, timeout=60, check=False)
    if closed == 1:
        assert (done.returncode, done.stderr.count("\n")) == (3, 1) and "stdout is closed" in done.stderr
    else:
        assert done.returncode == 0 and "torch" in done.stdout


def test_no_folder_for_temporary_files_is_one_sentence(envkit: Envkit, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    assert cli.run(fail) == 3
    told = capsys.readouterr().err
    assert "TMPDIR" in told and "Traceback" not in told


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_went_away_is_not_found_or_green(unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "envkit", "facts", "torch", ">=2", "-f", "json"],
            stdout=gone, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (READER_GONE, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_stdout_is_not_green(unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "envkit", "--version"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert done.returncode == 3
    assert "the output could not be written to stdout: No space left on device\n  fix: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def silent_index() -> Iterator[str]:
    """An index that takes a request and never answers: whoever asks it waits."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        taken: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    taken.append(listener.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/simple"
        for each in taken:
            each.close()


@pytest.mark.parametrize(("number", "times"), [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGINT, 3)])
def test_a_signal_in_a_long_step_ends_all_of_it(
    number: signal.Signals, times: int, tmp_path: Path, silent_index: str
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    job = tmp_path / "job"
    job.mkdir()
    process = spawn(
        "lock",
        wish(job),
        "--engine",
        "none",
        UV_DEFAULT_INDEX=silent_index,
        UV_CACHE_DIR=str(tmp_path / "uv"),
        TMPDIR=str(scratch),
    )
    assert comes(lambda: children(process.pid), 0.01), "the solver did not start"
    started = children(process.pid)
    time.sleep(0.2)
    for _ in range(times):
        process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert f"stopped by {number.name}" in err
    assert "Traceback" not in err
    # The dead are gone once their new parent has taken note.
    assert comes(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), 0.05)
    assert list(scratch.glob("envkit-*")) == []
    assert os.listdir(job) == ["envkit.toml"]


def test_the_lock_of_a_wish_is_found_beside_it() -> None:
    assert locks.path_of(load_spec(IMAGES / "torch-2.6-cu124")).is_file()


def test_a_line_of_progress_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    cli.say("probe: \x1b]0;owned\x07\rPASS: image: all good\x9b2J")
    assert capsys.readouterr().err == "probe: \\x1b]0;owned\\x07\\x0dPASS: image: all good\\x9b2J\n"
