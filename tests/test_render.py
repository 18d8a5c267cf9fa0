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

from envkit.build import render
from envkit.engine import buildx
from envkit.engine.docker import DockerEngine
from envkit.plan.flavors import stand_in
from envkit.plan.lockfile import Deb, Lock, Pin, debs_in_order, dump, in_order, parse
from envkit.system import files

ROOT = Path(__file__).parent.parent
REFERENCE = parse((ROOT / "images" / "torch-2.6-cu124" / "envkit.lock").read_text(), "torch-2.6-cu124")
SHA = "0123456789abcdef" * 4


def lock(**changes: Any) -> Lock:
    return replace(REFERENCE, **changes)


def pin(name: str, layer: str = "runtime") -> Pin:
    return Pin(name, "1.0", f"{name.replace('-', '_')}-1.0-py3-none-any.whl", SHA, 1, layer)


def every() -> dict[str, Lock]:
    """A lock of each base, with each default flavor, with and without what a lock may lack."""
    preinstalled = {"preinstalled": True, "suite": "", "digest": "", "origin": "", "archive": "", "debs": ()}
    devel = in_order((*REFERENCE.wheels, pin("nvidia-cuda-nvcc", "devel")))
    return {
        "wheels": lock(),
        "stand-in": lock(
            image="debian:13-slim", suite="trixie", flavor="debug", components=("main", "contrib", "non-free"),
            given=("libcuda1", "nvidia-cuda-toolkit (= 12.4.1~)"),
            debs=debs_in_order((*REFERENCE.debs, Deb("nvidia-cuda-gdb", "12.4.127~12.4-1", "amd64", SHA, 1, "debug"))),
        ),
        "nvcc": lock(
            flavor="devel", wheels=devel, missing=(),
            programs=(
                ("devel", "nvcc", "nvidia/cuda_nvcc/bin/nvcc"), ("devel", "ptxas", "nvidia/cuda_nvcc/bin/ptxas"),
                ("debug", "py-spy", ""),
            ),
        ),
        "by name": lock(archive="", debs=(), digest="", origin=""),
        "nvidia": lock(
            base="nvidia", image="nvidia/cuda:12.4.1-devel-ubuntu22.04", suite="", digest="", origin="", archive="",
            debs=(), python="3.10", os="ubuntu22.04", flavor="devel",
        ),
        "pytorch": lock(
            base="pytorch", image="pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel",
            wheels=(pin("einops"), pin("py-spy", "debug")), flavor="devel", **preinstalled,
        ),
        "ngc": lock(
            base="ngc", image="nvcr.io/nvidia/pytorch:26.07-py3", torch="2.13.0a0", cuda="13.3", python="3.12",
            wheels=(), apt={}, programs=(), **preinstalled,
        ),
    }  # fmt: skip


EVERY = every()


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


@pytest.mark.parametrize("name", EVERY)
def test_the_same_lock_gives_the_same_bytes(name: str) -> None:
    assert render.dockerfile(EVERY[name]) == render.dockerfile(parse(dump(EVERY[name]), "x"))


def test_every_part_of_the_lock_changes_the_bytes() -> None:
    first = render.dockerfile(lock())
    wheels = lock().wheels[1:]
    changed: tuple[dict[str, Any], ...] = (
        {"epoch": 1}, {"driver": "550"}, {"wheels": wheels}, {"apt": {"runtime": ("gcc",)}}, {"name": "b"},
        {"digest": f"sha256:{SHA}"}, {"debs": lock().debs[1:]}, {"archive": "2026-01-01T00:00:00Z"},
        {"flavor": "devel"}, {"components": ("main", "contrib")}, {"given": ("libcuda1",)}, {"missing": ()},
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
def test_no_secret_and_no_host_is_written_down(name: str) -> None:
    text = render.dockerfile(EVERY[name])
    assert set(re.findall(r"://([^/\s:'\"]*)", text)) <= {"127.0.0.1"}
    assert not re.search(r"PIP_INDEX|UV_INDEX|UV_DEFAULT_INDEX|--index|--trusted-host", text)
    # The debug image's own scripts speak of Jupyter's token and of sshd's passwords.
    carried = {line for opening, body in heredocs(text) if "COPY" in opening for line in body}
    assert not re.search(r"(?i)password|token", "\n".join(line for line in text.splitlines() if line not in carried))
    for mount in re.findall(r"type=secret\S*", text):
        assert mount in ("type=secret,id=ca,required=false", "type=secret,id=index,required=false")
    assert not re.search(r"(?m)^ENV .*CERT", text)


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


# Groups: the layers of wheels.


def names(group: render.Group) -> list[str]:
    return [line.partition("==")[0] for line in group.requirements.splitlines()]


def test_what_changes_least_comes_first() -> None:
    wheels = (
        "einops", "numpy", "jinja2", "nvidia-cublas-cu12", "nvidia-cudnn-cu12", "nvidia-cusparselt-cu12",
        "nvidia-cusparse-cu12", "nvidia-nccl-cu12", "nvidia-nvshmem-cu12", "torch", "triton",
    )  # fmt: skip
    made = render.groups(lock(wheels=(*map(pin, wheels), pin("nvidia-x", "devel"), pin("py-spy", "debug"))))
    assert [(group.stage, names(group)) for group in made] == [
        ("cuda", [name for name in wheels if name.startswith("nvidia-")]),
        ("triton", ["triton"]),
        ("torch", ["torch"]),
        ("torch-needs", ["jinja2"]),
        ("packages", ["einops", "numpy"]),
        ("devel-wheels", ["nvidia-x"]),
        ("debug-wheels", ["py-spy"]),
    ]
    assert [group.layer for group in made] == [*["runtime"] * 5, "devel", "debug"]
    assert [group.stage for group in made if not group.apart] == ["cuda"]


@pytest.mark.parametrize("name", EVERY)
def test_every_wheel_is_in_one_group_with_its_hash(name: str) -> None:
    made = EVERY[name]
    lines = [line for group in render.groups(made) for line in group.requirements.splitlines()]
    assert sorted(lines) == sorted(made.requirements.splitlines())
    assert all(group.requirements for group in render.groups(made))


def test_a_base_with_torch_gets_its_wheels_in_place() -> None:
    runtime, debug = render.groups(EVERY["pytorch"])
    assert (runtime.stage, runtime.layer, runtime.apart, names(runtime)) == ("wheels", "runtime", False, ["einops"])
    assert (debug.stage, debug.layer, names(debug)) == ("debug-wheels", "debug", ["py-spy"])
    assert render.groups(EVERY["ngc"]) == ()


def test_a_program_goes_with_the_wheels_of_its_layer_if_it_lies_inside_one() -> None:
    by_layer = {group.layer: group.programs for group in render.groups(EVERY["nvcc"])}
    assert by_layer == {
        "runtime": (),
        "devel": (("nvcc", "nvidia/cuda_nvcc/bin/nvcc"), ("ptxas", "nvidia/cuda_nvcc/bin/ptxas")),
        "debug": (),
    }


def test_the_packages_of_a_spec_leave_the_layers_below_alone() -> None:
    more = (*REFERENCE.wheels, pin("einops"))
    before, after = render.groups(REFERENCE), render.groups(lock(wheels=more))
    assert [one.stage for one, other in zip(before, after, strict=True) if one != other] == ["packages"]


# Stages and targets.


def stage(text: str, name: str) -> str:
    """The stage ``name`` of a Dockerfile."""
    (found,) = [part for part in stages(text) if re.match(rf"FROM \S+ AS {re.escape(name)}\n", part)]
    return found


def parents(text: str) -> dict[str, str]:
    """By stage what it stands on; fails on a stage that is named twice."""
    found = [re.match(r"FROM (\S+)(?: AS (\S+))?\n?", part) for part in stages(text)]
    pairs = [(match[2] or "", match[1]) for match in found if match]
    assert len(dict(pairs)) == len(pairs) == len(found)
    return dict(pairs)


@pytest.mark.parametrize("name", EVERY)
def test_each_flavor_stands_on_the_one_before_and_the_last_line_names_the_default(name: str) -> None:
    text = render.dockerfile(EVERY[name])
    above = parents(text)
    large = "os" if EVERY[name].preinstalled else "cuda"
    assert (above["runtime"], above["devel"], above["debug"]) == (large, "runtime", "devel")
    assert above[large] == ("${BASE}" if large == "os" else "os")
    assert (above["os"], above["tools"]) == ("${BASE}", "${BASE}")
    assert text.endswith(f"\nFROM {EVERY[name].flavor}\n")
    assert above[""] == EVERY[name].flavor


@pytest.mark.parametrize("name", EVERY)
def test_every_stage_that_is_read_from_is_there_before(name: str) -> None:
    seen: set[str] = set()
    for part in stages(render.dockerfile(EVERY[name])):
        for used in re.findall(r"(?:--from=|[,:]from=)([a-z-]+)", part):
            assert used in seen, part
        match = re.match(r"FROM (\S+)(?: AS (\S+))?", part)
        assert match
        assert match[1] in (*seen, "scratch", "${BASE}")
        seen.add(match[2] or "")


@pytest.mark.parametrize("name", EVERY)
def test_nothing_of_the_context_enters_but_the_lock(name: str) -> None:
    text = render.dockerfile(EVERY[name])
    copies = re.findall(r"(?m)^(?:COPY|ADD) (.*)$", text)
    assert [line for line in copies if not line.startswith(("<<", "--from="))] == []
    binds = {mount for mount in re.findall(r"--mount=(\S+)", text) if "type=bind" in mount and "from=" not in mount}
    assert binds == {"type=bind,source=envkit.lock,target=/envkit.lock"}


@pytest.mark.parametrize("name", EVERY)
def test_no_tool_of_the_build_enters_the_image(name: str) -> None:
    """Only what a stage has put under /out is copied, and what the tools are made of is mounted for a step."""
    made = EVERY[name]
    text = render.dockerfile(made)
    of_the_image = {"os", "runtime", "devel", "debug"}
    tools = {deb.name for deb in made.debs if deb.layer == "tools"} - {
        deb.name for deb in made.debs if deb.layer != "tools"
    }
    for each in of_the_image:
        part = stage(text, each)
        assert all(" /out/ /" in line for line in part.splitlines() if line.startswith("COPY"))
        assert not re.search(rf"(?m)^ +(?:{'|'.join(map(re.escape, tools)) or 'nothing'})=", part)
        assert '<<"EOF"' not in part


@pytest.mark.parametrize("name", EVERY)
def test_the_wheels_are_listed_for_the_stage_that_installs_them(name: str) -> None:
    made = EVERY[name]
    text = render.dockerfile(made)
    installer = next(body for opening, body in heredocs(text) if "/installer.txt" in opening)
    assert installer == [f"uv=={made.installer.version} --hash=sha256:{made.installer.sha256}"]
    lists = [body for opening, body in heredocs(text) if "/wheels.txt" in opening]
    assert lists == [group.requirements.splitlines() for group in render.groups(made)]
    for group in render.groups(made):
        steps = re.findall(rf"from={group.stage}-list,[^#]*?assemble\.py wheels /list/wheels\.txt (\w+)", text)
        assert steps == ["out" if group.apart else "system" if made.preinstalled else "venv"]
    assert re.search(r"pip install .*--no-deps --require-hashes", text)


@pytest.mark.parametrize("name", EVERY)
def test_the_base_is_an_argument_with_the_locked_image(name: str) -> None:
    text = render.dockerfile(EVERY[name])
    assert f"\nARG BASE={EVERY[name].image}\n" in text


def test_a_registrys_digest_is_named_and_that_of_a_base_from_packages_is_not() -> None:
    """No registry knows the hash of a tree that is made from packages."""
    pinned = {"image": "nvidia/cuda:12", "digest": f"sha256:{SHA}"}
    assert f"\nARG BASE=nvidia/cuda:12@sha256:{SHA}\n" in render.dockerfile(lock(**pinned, suite="", origin="registry"))
    assert "\nARG BASE=nvidia/cuda:12\n" in render.dockerfile(lock(**pinned, suite="bookworm", origin="packages"))


def packages(part: str) -> list[str]:
    """What the steps of a stage install."""
    steps = re.findall(r"sh /steps/apt\.sh (.*?[^\\])\n", part + "\n", re.DOTALL)
    words = [shlex.split(step.replace("\\\n", " ")) for step in steps]
    return [word for step in words for word in step[3 if step[0] == "--unpack" else 2 :]]


@pytest.mark.parametrize("flavor", ["runtime", "devel", "debug", "tools"])
def test_debian_packages_come_by_version_and_where_the_lock_has_none_by_name(flavor: str) -> None:
    part = "os" if flavor == "runtime" else flavor
    exact = [f"{deb.name}={deb.version}" for deb in REFERENCE.debs if deb.layer == flavor]
    assert exact
    text = render.dockerfile(REFERENCE)
    if flavor == "tools":  # those that the image has as well, for its base may hold them; the rest where it is needed
        held = packages(stage(text, "os"))
        exact, rest = [deb for deb in exact if deb in held], [deb for deb in exact if deb not in held]
        assert exact and rest
        assert packages(stage(text, "download")) == rest
    assert packages(stage(text, part)) == exact
    assert packages(stage(render.dockerfile(EVERY["by name"]), part)) == list(REFERENCE.apt[flavor])


def test_layers_of_debian_packages_bear_the_archives_time_and_no_change_of_a_wheel_touches_them() -> None:
    assert render.apt_epoch(lock(archive="2026-11-15T08:12:33Z")) == 1794730353
    assert render.apt_epoch(lock(archive="", epoch=7)) == 7
    old, new = (stages(render.dockerfile(lock(epoch=epoch, wheels=wheels)))
                for epoch, wheels in ((7, REFERENCE.wheels), (8, REFERENCE.wheels[1:])))  # fmt: skip
    assert [part for part in old if part.startswith(("FROM ${BASE} AS os", "FROM ${BASE} AS tools"))] == [
        part for part in new if part.startswith(("FROM ${BASE} AS os", "FROM ${BASE} AS tools"))
    ]


def test_components_of_the_archive_are_switched_on_above_the_runtime_alone() -> None:
    text = render.dockerfile(EVERY["stand-in"])
    assert "'contrib non-free'" in stage(text, "debug")
    assert "'contrib non-free'" not in stage(text, "os") + stage(text, "tools")
    assert "non-free" not in render.dockerfile(REFERENCE)


def test_a_stand_in_package_is_written_down_before_what_needs_it() -> None:
    text = render.dockerfile(EVERY["stand-in"])
    (body,) = [body for opening, body in heredocs(text) if "/stand-in" in opening]
    assert "\n".join(body).strip() == stand_in(EVERY["stand-in"].given).strip()
    assert "nvidia-cuda-toolkit (= 12.4.1~)" in "\n".join(body)
    devel = stage(text, "devel")
    assert 0 < devel.index("/var/lib/dpkg/status") < devel.index("/steps/apt.sh")
    assert "stand-in" not in render.dockerfile(REFERENCE)


@pytest.mark.parametrize("name", EVERY)
def test_cuda_home_is_laid_out_for_the_wheels_and_again_where_nvcc_comes(name: str) -> None:
    """torch's own compiler looks there for headers and libraries; a base that brings torch has a CUDA of its own."""
    made = EVERY[name]
    text = render.dockerfile(made)
    own = [each for each in ("os", "cuda", "runtime", "devel", "debug") if each in parents(text)]
    steps = [each for each in own for _ in range(stage(text, each).count("sh /list/cuda-home "))]
    nvcc = not made.preinstalled and "nvcc" not in dict(made.missing)
    assert steps == ["cuda"] * (not made.preinstalled) + ["devel"] * nvcc
    assert ("CUDA_HOME=/usr/local/cuda " in stage(text, "runtime")) is ("cuda-home" in parents(text))
    assert ("cuda-home" in parents(text)) is not made.preinstalled


def test_one_of_the_locks_above_has_nvcc() -> None:
    text = render.dockerfile(EVERY["nvcc"])
    assert "sh /list/cuda-home " in stage(text, "devel")
    assert "--program nvcc nvidia/cuda_nvcc/bin/nvcc" in stage(text, "devel-wheels")


def test_a_base_with_torch_is_checked_and_kept() -> None:
    text = render.dockerfile(EVERY["pytorch"])
    assert 'assert found == ("3.11", "2.6.0", "12.4"), found' in stage(text, "os")
    assert "venv" not in parents(text)
    assert "PATH=/opt/venv" not in text
    assert not re.search(r"(?m)^torch==", text)
    assert "assert found" not in render.dockerfile(REFERENCE)


def test_a_build_of_another_index_names_its_backend() -> None:
    text = render.dockerfile(lock(backend="cu126"))
    assert text.count(" --uv=--torch-backend=cu126") == len(render.groups(REFERENCE))
    assert "--torch-backend" not in render.dockerfile(lock(backend=""))


def test_what_debugs_is_in_the_debug_target_alone() -> None:
    text = render.dockerfile(REFERENCE)
    assert "PYTHONFAULTHANDLER=1" in stage(text, "debug")
    assert any(each.startswith("gdb=") for each in packages(stage(text, "debug")))
    for each in ("os", "runtime", "devel"):
        assert "PYTHONFAULTHANDLER" not in stage(text, each)
        assert not any(each.startswith("gdb=") for each in packages(stage(text, each)))


def test_a_tool_that_no_source_has_is_named_with_the_reason() -> None:
    text = render.dockerfile(lock(missing=(("nvcc", "nobody has it"),)))
    assert "\n# not here: nvcc, nobody has it\n" in text


def test_a_hostile_pin_cannot_end_its_heredoc() -> None:
    """No pin that a lock can hold makes a line "EOF": each line is name==version and a hash."""
    made = lock(wheels=(Pin("eof", "0", "EOF-0-py3-none-any.whl", SHA),))
    assert parse(dump(made), "x") == made
    assert [body for opening, body in heredocs(render.dockerfile(made)) if "wheels" in opening] == [
        [f"eof==0 --hash=sha256:{SHA}"]
    ]


def test_values_are_quoted_for_where_they_land() -> None:
    """The grammars of spec and lock let none of this through; the template does not rely on them."""
    hostile = 'a"; $(id) \\ ${HOME} `id`'
    text = render.dockerfile(lock(name=hostile))
    written = re.search(r'image\.title=("(?:[^"\\]|\\.)*")', text)
    assert written
    assert re.sub(r"\\(.)", r"\1", written[1][1:-1]) == hostile
    assert not re.search(r"(?<!\\)\$", written[1])
    quoted = render.dockerfile(lock(archive="", apt={"runtime": ("g++", "a; id"), "tools": ("b",)}))
    assert re.search(rf"(?m)^ +{re.escape(shlex.quote('a; id'))}$", quoted)
    with pytest.raises(ValueError, match="one line"):
        render.dockerfile(lock(name="a\nRUN id"))


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
    assert (files.shipped("templates") / "Dockerfile.j2").is_file()


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
