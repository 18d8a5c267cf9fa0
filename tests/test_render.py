"""Dockerfiles from locks: the same bytes for the same lock, and every value quoted for where it lands."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from envkit import render
from envkit.engine import buildx
from envkit.engine.docker import DockerEngine
from envkit.lock import Lock, Pin, dump, parse

ROOT = Path(__file__).parent.parent
LOCKS = {path.parent.name: parse(path.read_text(), str(path)) for path in sorted(ROOT.glob("images/*/envkit.lock"))}
SHA = "0123456789abcdef" * 4


def lock(which: str = "torch-2.6-cu124", /, **changes: Any) -> Lock:
    return replace(LOCKS[which], **changes)


def ngc() -> Lock:
    """No image of this base is checked in: torch is NVIDIA's own and nothing is added."""
    return lock(
        "torch-2.6-cu124-pytorch",
        base="ngc",
        image="nvcr.io/nvidia/pytorch:26.07-py3",
        torch="2.13.0a0",
        cuda="13.3",
        python="3.12",
        wheels=(),
        apt=(),
        flavor="runtime",
    )


EVERY = {**LOCKS, "ngc": ngc()}


def stages(text: str) -> list[str]:
    """The parts of a Dockerfile from one FROM to the next."""
    return re.split(r"(?m)^(?=FROM )", text)[1:]


def heredocs(text: str) -> list[tuple[str, list[str]]]:
    """Every heredoc: the instruction that opens it and its lines; fails on one that is not closed."""
    found, lines = [], iter(text.splitlines())
    for line in lines:
        opened = re.search(r'<<"?(\w+)"?', line)
        if opened:
            body = []
            for inner in lines:
                if inner == opened[1]:
                    break
                body.append(inner)
            else:
                raise AssertionError(f"not closed: {line}")
            found.append((line, body))
    return found


def test_all_six_images_are_here() -> None:
    assert len(LOCKS) == 6
    assert {made.base for made in EVERY.values()} == {"wheels", "nvidia", "pytorch", "ngc"}
    assert {made.flavor for made in EVERY.values()} == {"runtime", "devel", "debug"}


@pytest.mark.parametrize("name", EVERY)
def test_the_same_lock_gives_the_same_bytes(name: str) -> None:
    assert render.dockerfile(EVERY[name]) == render.dockerfile(parse(dump(EVERY[name]), "x"))


def test_every_part_of_the_lock_changes_the_bytes() -> None:
    first = render.dockerfile(lock())
    wheels = lock().wheels[1:]
    changed: tuple[dict[str, Any], ...] = (
        {"epoch": 1}, {"driver": "550"}, {"wheels": wheels}, {"apt": ("gcc",)}, {"name": "b"},
        {"digest": f"sha256:{SHA}"},
    )  # fmt: skip
    for changes in changed:
        assert render.dockerfile(lock(**changes)) != first


@pytest.mark.parametrize("name", EVERY)
def test_every_heredoc_is_closed_and_quoted(name: str) -> None:
    """A quoted word keeps the builder from putting variables into the text."""
    text = render.dockerfile(EVERY[name])
    assert all('<<"EOF"' in opening for opening, _ in heredocs(text))
    assert text.count('<<"EOF"') == text.splitlines().count("EOF")


@pytest.mark.parametrize("name", EVERY)
def test_nothing_of_the_context_enters_but_the_lock(name: str) -> None:
    text = render.dockerfile(EVERY[name])
    copies = re.findall(r"(?m)^(?:COPY|ADD) (.*)$", text)
    assert [line for line in copies if not line.startswith("<<")] == ["envkit.lock /usr/share/envkit/envkit.lock"]


@pytest.mark.parametrize("name", EVERY)
def test_no_secret_and_no_host_is_written_down(name: str) -> None:
    text = render.dockerfile(EVERY[name])
    assert "://" not in text
    assert not re.search(r"(?i)password|token|PIP_INDEX|UV_INDEX|UV_DEFAULT_INDEX|--index", text)
    for mount in re.findall(r"type=secret\S*", text):
        assert mount == "type=secret,id=ca,required=false"
    assert not re.search(r"(?m)^ENV .*CERT", text)


@pytest.mark.parametrize("name", [name for name in EVERY if EVERY[name].wheels])
def test_every_wheel_is_installed_by_its_hash(name: str) -> None:
    made = EVERY[name]
    text = render.dockerfile(made)
    bodies = [body for opening, body in heredocs(text) if "requirements.txt" in opening]
    assert bodies == [made.requirements.splitlines()]
    installer = next(body for opening, body in heredocs(text) if "installer.txt" in opening)
    assert installer == [f"uv=={made.installer.version} --hash=sha256:{made.installer.sha256}"]
    installs = [line for line in text.splitlines() if re.search(r"(?:pip|uv pip) install ", line)]
    assert len(installs) == 2
    assert all("--require-hashes" in line and "--no-deps" in line for line in installs)


@pytest.mark.parametrize("name", EVERY)
def test_the_last_stage_holds_no_tool_of_the_build(name: str) -> None:
    last = stages(render.dockerfile(EVERY[name]))[-1]
    assert last.startswith("FROM os\n")
    assert "--from=tools" not in re.sub(r"--mount=\S+", "", last)
    assert "python3-venv" not in last
    assert last.rstrip().endswith('CMD ["python3"]')


@pytest.mark.parametrize("name", EVERY)
def test_the_labels_name_the_lock(name: str) -> None:
    text = render.dockerfile(EVERY[name])
    assert f'io.envkit.lock.sha256="{sha256(dump(EVERY[name]).encode()).hexdigest()}"' in text
    assert f'org.opencontainers.image.base.name="{EVERY[name].image}"' in text


@pytest.mark.parametrize("name", EVERY)
def test_the_gpus_are_asked_for(name: str) -> None:
    assert re.search(
        r"(?m)^ENV .*NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility$",
        render.dockerfile(EVERY[name]),
    )


@pytest.mark.parametrize("name", EVERY)
def test_the_base_is_an_argument_with_the_locked_image(name: str) -> None:
    text = render.dockerfile(EVERY[name])
    assert f"\nARG BASE={EVERY[name].image}\n" in text
    assert stages(text)[0].startswith("FROM ${BASE} AS os\n")


def test_a_pinned_base_is_named_by_its_digest() -> None:
    assert f"\nARG BASE=debian:12@sha256:{SHA}\n" in render.dockerfile(lock(image="debian:12", digest=f"sha256:{SHA}"))


@pytest.mark.parametrize("name", EVERY)
def test_apt_leaves_nothing_behind(name: str) -> None:
    """Lists and archives lie in cache mounts, logs with the time of day in them are removed."""
    text = render.dockerfile(EVERY[name])
    runs = [part for part in re.split(r"(?m)^(?=RUN )", text) if "apt-get install" in part]
    assert len(runs) == text.count("apt-get update")
    for run in runs:
        assert "--no-install-recommends" in run
        assert "target=/var/lib/apt/lists" in run
        assert "target=/var/cache/apt" in run
        assert "/var/log/dpkg.log" in run


def test_a_base_with_torch_is_checked_and_kept() -> None:
    made = EVERY["torch-2.6-cu124-pytorch"]
    text = render.dockerfile(made)
    assert 'assert found == ("3.11", "2.6.0", "12.4"), found' in text
    assert "/opt/venv" not in text
    assert "uv venv" not in text
    assert "python3-venv" not in text
    assert not re.search(r"(?m)^torch==", text)


def test_a_base_that_is_taken_as_it_is_has_no_installer() -> None:
    text = render.dockerfile(ngc())
    assert len(stages(text)) == 2
    assert "pip install" not in text
    assert "apt-get" not in text


def test_a_build_of_another_index_names_its_backend() -> None:
    assert " --torch-backend cu126 " in render.dockerfile(lock(backend="cu126"))
    assert "--torch-backend" not in render.dockerfile(lock(backend=""))


def test_the_debug_image_can_debug() -> None:
    text = render.dockerfile(EVERY["torch-2.6-cu124-debug"])
    assert "PYTHONFAULTHANDLER=1" in text
    assert "/usr/local/bin/compute-sanitizer" in text
    assert "--cap-add SYS_PTRACE" in text
    assert {"gdb", "strace"} <= set(re.findall(r"(?m)^ +([a-z0-9+-]+) \\$", text))
    assert "SYS_PTRACE" not in render.dockerfile(lock())


def test_values_are_quoted_for_where_they_land() -> None:
    """The grammars of spec and lock let none of this through; the template does not rely on them."""
    hostile = 'a"; $(id) \\ ${HOME} `id`'
    text = render.dockerfile(lock(name=hostile))
    written = re.search(r'image\.title=("(?:[^"\\]|\\.)*")', text)
    assert written
    assert re.sub(r"\\(.)", r"\1", written[1][1:-1]) == hostile
    assert not re.search(r"(?<!\\)\$", written[1])
    quoted = render.dockerfile(lock(apt=("g++", "a; id")))
    assert re.search(rf"(?m)^ +{re.escape(shlex.quote('a; id'))} \\$", quoted)
    with pytest.raises(ValueError, match="one line"):
        render.dockerfile(lock(name="a\nRUN id"))


def test_a_hostile_pin_cannot_end_its_heredoc() -> None:
    """No pin that a lock can hold makes a line "EOF": each line is name==version and a hash."""
    made = lock(wheels=(Pin("eof", "0", "EOF-0-py3-none-any.whl", SHA),))
    assert parse(dump(made), "x") == made
    assert [body for opening, body in heredocs(render.dockerfile(made)) if "requirements" in opening] == [
        [f"eof==0 --hash=sha256:{SHA}"]
    ]


def test_the_shell_of_every_run_parses() -> None:
    for made in EVERY.values():
        for opening, body in heredocs(render.dockerfile(made)):
            if "COPY" not in opening:
                done = subprocess.run(
                    ["sh", "-n"], input="\n".join(body) + "\n", text=True, capture_output=True, check=False
                )
                assert (done.returncode, done.stderr) == (0, "")


def test_a_template_does_not_swallow_what_is_missing() -> None:
    with pytest.raises(Exception, match="is undefined"):
        render.template("envkit.toml.j2", {})


def test_the_templates_are_found() -> None:
    assert (render.templates_dir() / "Dockerfile.j2").is_file()


@pytest.mark.engine
@pytest.mark.parametrize("name", EVERY)
def test_buildkit_reads_the_dockerfile(name: str, engine: DockerEngine) -> None:
    """Asked for a stage that is not there, BuildKit reads the whole file, and complains of nothing but that."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Dockerfile").write_text(render.dockerfile(EVERY[name]))
        command = [buildx.client(), "buildx", "build", "--progress=plain", "--target=nosuchstage", folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert re.search(r"target stage \"?nosuchstage\"? could not be found", done.stderr), done.stderr
    assert "parse error" not in done.stderr


@pytest.mark.engine
def test_buildkit_would_tell_of_a_broken_dockerfile(engine: DockerEngine) -> None:
    """The test above can fail."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Dockerfile").write_text(render.dockerfile(lock()).replace("\nEOF\n", "\n"))
        command = [buildx.client(), "buildx", "build", "--progress=plain", "--target=nosuchstage", folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "could not be found" not in done.stderr
