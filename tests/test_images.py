"""The images that are checked in: spec, lock, Dockerfile and page answer one another, and the facts agree with them."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from envkit.build import render
from envkit.credentials import redacted_text
from envkit.engine import buildx
from envkit.engine.docker import DockerEngine
from envkit.errors import UsageError
from envkit.facts import Facts, TorchRow
from envkit.facts import load as load_facts
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import FLAVORS, Lock
from envkit.plan.resolve import Choice, resolve
from envkit.plan.spec import Spec
from envkit.plan.spec import load as load_spec
from envkit.versions import Torch

ROOT = Path(__file__).parent.parent / "images"
SCRIPT = ROOT.parent / "scripts" / "make_images.py"
NAMES = sorted(path.parent.name for path in ROOT.glob("*/envkit.toml"))
OLDEST = Torch("2.4")  # the first release of the matrix

# Locked where no registry answered, so their bases are named by tag alone.  Whoever locks them beside a registry takes
# them out of here.
BY_TAG = {"torch-2.6-cu124-nvidia-devel", "torch-2.6-cu124-pytorch"}

INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENV", "FROM", "LABEL", "RUN", "WORKDIR"}

# What a host is called: a scheme, or a name with one of the endings under which packages and images are served.
HOST = re.compile(r"://|\b(?!org\.opencontainers\b)[a-z0-9-]+\.(?:com|org|net|io|dev|cn|edu|cloud)\b(?!\.)")
# The address that Jupyter of the debug flavor prints, on the machine itself.
OWN_ADDRESS = 'say "http://127.0.0.1:$jupyter_port/lab$shown"'

# Private keys, cloud and forge tokens by their documented beginnings, and credentials in an address.
SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}|\bglpat-[A-Za-z0-9_-]{20}"
    r"|\bhf_[A-Za-z0-9]{30}|\bnvapi-[A-Za-z0-9_-]{20}|://[^/\s:@]+:[^/\s@$]+@"
)

EACH = pytest.mark.parametrize("name", NAMES)


@cache
def script() -> ModuleType:
    """scripts/make_images.py as a module."""
    spec = importlib.util.spec_from_file_location("make_images", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@cache
def spec(name: str) -> Spec:
    return load_spec(ROOT / name)


@cache
def lock(name: str) -> Lock:
    found = locks.load(spec(name))
    assert found is not None, f"the lock of {name} answers another spec"
    return found


@cache
def choice(name: str) -> Choice:
    return resolve(spec(name), load_facts())


@cache
def dockerfile(name: str) -> str:
    return (ROOT / name / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts()


def parsed(text: str) -> tuple[list[str], dict[tuple[str, str], list[str]]]:
    """The instructions of a Dockerfile, each in one line, and its heredocs by stage and target.

    Fails on a heredoc that is not closed.
    """
    instructions: list[str] = []
    heredocs: dict[tuple[str, str], list[str]] = {}
    stage, lines = "", iter(text.splitlines())
    for first in lines:
        if not first or first.startswith("#"):
            continue
        line = first
        while line.endswith("\\"):
            line = line[:-1] + next(lines)
        instructions.append(line)
        if line.startswith("FROM "):
            stage = line.split(" AS ")[-1]
        opened = re.search(r'<<"?(\w+)"?', line)
        if opened:
            body = heredocs.setdefault((stage, line.split()[-1]), [])
            for inner in lines:
                if inner == opened[1]:
                    break
                assert not re.match(r"(COPY|RUN) .*<<", inner), f"not closed: {line}"
                body.append(inner)
            else:
                raise AssertionError(f"not closed: {line}")
    return instructions, heredocs


def stages(instructions: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """(base, name, instructions) of each stage."""
    starts = [number for number, line in enumerate(instructions) if line.startswith("FROM ")]
    for start, end in pairwise((*starts, len(instructions))):
        base, _, name = instructions[start].removeprefix("FROM ").partition(" AS ")
        yield base, name, instructions[start + 1 : end]


def installed(instructions: list[str]) -> Iterator[tuple[str, str, str, list[str]]]:
    """(stage, date, components, packages) of each step that installs Debian packages."""
    for _, name, steps in stages(instructions):
        for line in steps:
            words = shlex.split(line) if "/steps/apt.sh" in line and line.startswith("RUN ") else []
            if words:
                rest = words[words.index("/steps/apt.sh") + 1 :]
                date, components, *packages = rest[1:] if rest[0] == "--unpack" else rest
                yield name, date, components, packages


def newest_patches(facts: Facts) -> list[TorchRow]:
    """The newest patch release of every minor from OLDEST on, as the default index has it."""
    newest: dict[Torch, TorchRow] = {}
    for row in facts.torches:
        if row.default and row.published and row.torch >= OLDEST:
            minor = Torch(".".join(str(part) for part in row.torch.parts[:2]))
            newest[minor] = max(newest.get(minor, row), row, key=lambda row: row.torch)
    return list(newest.values())


# The matrix.


def test_the_folders_are_the_images() -> None:
    assert sorted(path.name for path in ROOT.iterdir() if path.is_dir()) == NAMES
    assert sorted(path.name for path in ROOT.iterdir() if path.is_file()) == ["README.md", "built.json"]


def test_every_torch_has_an_image_of_its_newest_patch_and_default_cuda(facts: Facts) -> None:
    wanted = newest_patches(facts)
    assert len(wanted) >= 12
    for row in wanted:
        major, minor, *_ = row.torch.parts
        name = f"torch-{major}.{minor}-{row.variant}"
        assert name in NAMES, f"no image of torch {row.torch}"
        held = lock(name)
        assert (str(held.torch), held.variant, held.base) == (str(row.torch), row.variant, "wheels")


def test_every_base_and_flavor_but_ngc_is_shown() -> None:
    assert {lock(name).base for name in NAMES} == {"wheels", "nvidia", "pytorch"}
    assert {lock(name).flavor for name in NAMES} == set(FLAVORS)


@EACH
def test_the_folder_holds_nothing_else(name: str) -> None:
    assert sorted(path.name for path in (ROOT / name).iterdir()) == ["Dockerfile", "envkit.lock", "envkit.toml"]
    text = (ROOT / name / "envkit.toml").read_text()
    assert tomllib.loads(text)["torch"]
    assert [line.startswith("#") for line in text.splitlines()].count(True) == 1
    assert spec(name).gpus
    assert spec(name).drivers


@EACH
def test_the_name_of_an_image_tells_its_torch_and_cuda(name: str) -> None:
    held = lock(name)
    assert name.startswith(f"torch-{'.'.join(str(held.torch).split('.')[:2])}-cu{str(held.cuda).replace('.', '')}")


# Spec, lock and facts.


@EACH
def test_the_lock_answers_the_spec(name: str) -> None:
    text = (ROOT / name / "envkit.lock").read_text()
    held = locks.parse(text, name)
    assert locks.problems(spec(name), held) == []
    assert (held.name, held.flavor) == (name, spec(name).flavor.value)
    assert locks.dump(held) == text


@EACH
def test_the_facts_still_choose_what_is_locked(name: str) -> None:
    chosen, held = choice(name), lock(name)
    for key in ("torch", "cuda", "cudnn", "nccl", "triton", "os", "image", "suite", "backend", "driver"):
        assert getattr(held, key) == getattr(chosen, key), key
    for key in ("programs", "missing", "components", "given"):
        assert getattr(held, key) == getattr(chosen.extras, key), key
    assert dict(held.apt) == {layer: names for layer, names in chosen.extras.apt.items() if names}
    assert held.preinstalled == chosen.preinstalled
    assert held.gpus == tuple((target.name, str(target.sm), target.by) for target in chosen.targets)


@EACH
def test_every_requirement_is_pinned_at_a_version_that_meets_it(name: str) -> None:
    chosen, held = choice(name), lock(name)
    pinned = {pin.name: pin for pin in held.wheels}
    wanted = {"runtime": chosen.requirements, **chosen.extras.wheels}
    for layer, requirements in wanted.items():
        for requirement in requirements:
            asked = Requirement(requirement)
            if chosen.preinstalled and requirement in chosen.base_requirements:
                assert asked.name not in pinned  # the base holds it
                continue
            assert asked.specifier.contains(pinned[asked.name].version, prereleases=True), requirement
            assert FLAVORS.index(pinned[asked.name].layer) <= FLAVORS.index(layer)


@EACH
def test_the_facts_agree_with_the_wheels_that_torch_asked_for(name: str) -> None:
    held = lock(name)
    for library in ("cudnn", "nccl"):
        pinned = [pin.version for pin in held.wheels if pin.name.startswith(f"nvidia-{library}-")]
        assert pinned == ([] if held.preinstalled else [getattr(held, library)]), library


@EACH
def test_torch_and_triton_are_the_ones_that_were_chosen(name: str) -> None:
    held = lock(name)
    pinned = {pin.name: pin.version for pin in held.wheels}
    if held.preinstalled:
        assert not {"torch", "triton"} & set(pinned)
        return
    assert Version(pinned["torch"]).public == str(held.torch)
    assert SpecifierSet(held.triton).contains(pinned["triton"])


@EACH
def test_no_library_of_another_cuda_is_pinned(name: str) -> None:
    held = lock(name)
    other = {"12": "-cu13", "13": "-cu12"}[str(held.cuda.major)]
    assert [pin.name for pin in held.wheels if pin.name.endswith(other)] == []


@EACH
def test_every_wheel_is_what_its_file_says_and_runs_on_the_target(name: str) -> None:
    held = lock(name)
    machine = spec(name).platform.machine
    for pin in (*held.wheels, held.installer):
        file_name, version, _, tags = parse_wheel_filename(pin.file)
        assert (str(file_name), str(version)) == (pin.name, pin.version)
        assert any(tag.platform == "any" or tag.platform.endswith(machine) for tag in tags), pin.file
        cp = f"cp{str(held.python).replace('.', '')}"
        assert any(tag.interpreter in (cp, "py3") or tag.abi == "abi3" for tag in tags), pin.file
    assert held.wheels == locks.in_order(held.wheels)
    assert len({pin.name for pin in held.wheels}) == len(held.wheels)


@EACH
def test_the_debian_packages_asked_for_are_solved_where_the_base_is_plain_debian(name: str) -> None:
    held = lock(name)
    assert bool(held.archive) == (held.base == "wheels"), "no archive was in reach when it was locked"
    if not held.archive:
        assert held.debs == ()
        return
    for layer, names in held.apt.items():
        deep = FLAVORS.index(layer) if layer in FLAVORS else len(FLAVORS)
        solved = {deb.name for deb in held.debs if deb.layer == layer or deb.layer in FLAVORS[:deep]}
        # ca-certificates and a few more may be in the base; what is asked for by name else must be there
        assert set(names) - solved <= {"ca-certificates"}, layer


# The Dockerfiles.


@EACH
def test_the_dockerfile_is_the_rendered_lock(name: str) -> None:
    assert (ROOT / name / "Dockerfile").read_bytes() == render.dockerfile(lock(name)).encode()


@EACH
def test_the_base_is_pinned(name: str) -> None:
    held = lock(name)
    (base,) = re.findall(r"(?m)^ARG BASE=(\S+)$", dockerfile(name))
    assert base.partition("@")[0] == held.image
    by_digest = re.fullmatch(r"[a-z0-9./_-]+:[A-Za-z0-9._-]+@sha256:[0-9a-f]{64}", base) is not None
    by_suite = bool(held.suite) and re.fullmatch(r"sha256:[0-9a-f]{64}", held.digest) is not None
    assert (not by_digest and not by_suite) == (name in BY_TAG), base


@EACH
def test_every_debian_package_has_its_version(name: str) -> None:
    held = lock(name)
    instructions, _ = parsed(dockerfile(name))
    found = {stage: (date, components, packages) for stage, date, components, packages in installed(instructions)}
    layer_of = {"os": "runtime", "tools": "tools", "devel": "devel", "debug": "debug"}
    if more := found.pop("download", None):  # the tools that serve only the installer's installation
        assert more[:2] == found["tools"][:2]
        found["tools"] = (*more[:2], [*found["tools"][2], *more[2]])
    assert {layer_of[stage] for stage in found} == set(held.apt)
    for stage, (date, components, packages) in found.items():
        layer = layer_of[stage]
        assert date == str(render.apt_epoch(held))
        extra = set() if components == "-" else set(components.split())
        assert extra == (set(held.components) - {"main"} if layer in ("devel", "debug") else set())
        if held.archive:
            assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+=[0-9][A-Za-z0-9.+:~-]*", package) for package in packages)
            assert sorted(packages) == sorted(f"{deb.name}={deb.version}" for deb in held.debs if deb.layer == layer)
        else:
            assert sorted(packages) == sorted(held.apt[layer])


@EACH
def test_every_requirement_line_has_a_hash(name: str) -> None:
    held = lock(name)
    _, heredocs = parsed(dockerfile(name))
    lists = {stage: lines for (stage, target), lines in heredocs.items() if target == "/wheels.txt"}
    (installer,) = (lines for (_, target), lines in heredocs.items() if target == "/installer.txt")
    listed = [line for lines in (*lists.values(), installer) for line in lines]
    for line in listed:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][A-Za-z0-9.+!_-]* --hash=sha256:[0-9a-f]{64}", line), line
    pins = (*held.wheels, held.installer)
    assert sorted(listed) == sorted(f"{pin.name}=={pin.version} --hash=sha256:{pin.sha256}" for pin in pins)


@EACH
def test_three_targets_each_on_the_one_before(name: str) -> None:
    instructions, _ = parsed(dockerfile(name))
    found = {stage: base for base, stage, _ in stages(instructions)}
    large = "os" if lock(name).preinstalled else "cuda"
    assert (found["runtime"], found["devel"], found["debug"]) == (large, "runtime", "devel")
    assert instructions[-1] == f"FROM {spec(name).flavor.value}"


@EACH
def test_every_stage_that_is_named_is_there_before(name: str) -> None:
    instructions, _ = parsed(dockerfile(name))
    assert {line.split()[0] for line in instructions} <= INSTRUCTIONS
    known: list[str] = []
    for base, stage, steps in stages(instructions):
        assert base in ("scratch", "${BASE}", *known)
        for step in steps:
            used = re.findall(r"(?:--from=|,from=)([a-z0-9-]+)", step)
            assert set(used) <= set(known), step
        known.append(stage)
    assert len(set(known)) == len(known)


@EACH
def test_the_tools_stage_stays_out_of_the_image(name: str) -> None:
    instructions, _ = parsed(dockerfile(name))
    bases = {stage: base for base, stage, _ in stages(instructions)}
    stage, seen = "debug", []
    while stage in bases:
        seen.append(stage)
        stage = bases[stage]
    large = [] if lock(name).preinstalled else ["cuda"]
    assert seen == ["debug", "devel", "runtime", *large, "os"]


@EACH
def test_no_host_is_named(name: str) -> None:
    for file in ("Dockerfile", "envkit.lock"):
        lines = (ROOT / name / file).read_text().splitlines()
        assert [line for line in lines if HOST.search(line) and line.strip() != OWN_ADDRESS] == []


@EACH
def test_nothing_looks_like_a_secret(name: str) -> None:
    for file in ("Dockerfile", "envkit.lock", "envkit.toml"):
        text = (ROOT / name / file).read_text()
        assert SECRET.search(text) is None
        if file != "Dockerfile":  # whose scripts name variables that will hold a token
            assert redacted_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "RUN pip install --index-url https://index.example/simple torch",
        "FROM nvcr.io/nvidia/pytorch:26.07-py3",
        "deb mirror.example.org main",
    ],
)
def test_a_host_would_be_found(text: str) -> None:
    assert HOST.search(text)


@pytest.mark.parametrize(
    "text",
    ["-----BEGIN OPENSSH PRIVATE KEY-----", "AKIA" + "A" * 16, "ghp_" + "a" * 36, "hf_" + "a" * 34, "x://me:pw@host/"],
)
def test_a_secret_would_be_found(text: str) -> None:
    assert SECRET.search(text)


def test_an_open_heredoc_would_be_found() -> None:
    text = dockerfile("torch-2.6-cu124")
    for broken in (text[: text.rindex("\nEOF\n")], text.replace("\nEOF\n", "\n", 1)):
        with pytest.raises(AssertionError, match="not closed"):
            parsed(broken)


# The page.


def test_the_page_is_current() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "README.md is current\n"), done.stdout + done.stderr


def test_the_page_lists_every_image_once_and_by_the_order_of_torch(facts: Facts) -> None:
    found = script().entries(ROOT)
    assert sorted(entry.lock.name for entry in found) == NAMES
    assert [entry.lock.torch for entry in found] == sorted(entry.lock.torch for entry in found)
    rows = [line for line in script().page(found, facts).splitlines() if line.startswith("|")]
    assert len(rows) == len(NAMES) + 2
    assert len({row.count(" | ") for row in rows}) == 1
    for row, entry in zip(rows[2:], found, strict=True):
        assert f"[{entry.lock.name}]({entry.lock.name}/envkit.toml)" in row
        assert str(entry.lock.torch) in row and str(entry.lock.driver) in row


def test_the_page_says_where_each_tool_is(facts: Facts) -> None:
    found = {entry.lock.name: script().tools(entry, facts) for entry in script().entries(ROOT)}
    for name, tools in found.items():
        assert {tool for tool, state in tools.items() if state == "missing"} == {
            tool for tool, _ in lock(name).missing if tool in tools
        }
    assert found["torch-2.6-cu124"]["nvcc"] == "missing"
    assert set(found["torch-2.6-cu124-debug"].values()) == {"here"}
    assert found["torch-2.6-cu124-pytorch"]["nvcc"] == "base"
    assert found["torch-2.15-cu132"]["nvcc"] == "here"


def test_a_tool_that_nothing_accounts_for_is_refused(facts: Facts) -> None:
    entry = next(entry for entry in script().entries(ROOT) if entry.lock.name == "torch-2.6-cu124")
    with pytest.raises(UsageError, match=r"does not say where [a-z-]+ is"):
        script().tools(replace(entry, lock=replace(entry.lock, missing=())), facts)


def test_sizes_are_told_only_where_all_are_known(facts: Facts) -> None:
    entry = next(entry for entry in script().entries(ROOT) if entry.lock.name == "torch-2.6-cu124")
    sized = tuple(replace(pin, size=10**8) for pin in entry.lock.wheels)
    runtime = sum(pin.layer == "runtime" for pin in sized)
    row = script().page([replace(entry, lock=replace(entry.lock, wheels=sized))], facts)
    assert f"{runtime / 10:.1f} / {runtime / 10:.1f} / {len(sized) / 10:.1f} GB" in row
    partly = (replace(sized[0], size=0), *sized[1:])
    assert "; size not said" in script().page([replace(entry, lock=replace(entry.lock, wheels=partly))], facts)


def copied(folder: Path, *, built: object) -> Path:
    """A folder with the reference image and these sizes."""
    shutil.copytree(ROOT / "torch-2.6-cu124", folder / "torch-2.6-cu124")
    (folder / "built.json").write_text(json.dumps(built))
    return folder


def test_a_measured_size_is_told_with_its_day(tmp_path: Path, facts: Facts) -> None:
    sizes = {"torch-2.6-cu124": {"debug": {"gb": 7.25, "day": "2026-11-21"}, "runtime": {"gb": 6, "day": "2026-11-20"}}}
    (entry,) = script().entries(copied(tmp_path, built=sizes))
    text = script().page([entry], facts)
    assert "| runtime 6.0 GB (2026-11-20), debug 7.2 GB (2026-11-21) |" in text
    assert "not measured" not in text


@pytest.mark.parametrize(
    "sizes",
    [
        {"torch-2.6-cu124": {"runtime": {"gb": -1, "day": "2026-11-21"}}},
        {"torch-2.6-cu124": {"runtime": {"gb": 5, "day": "yesterday"}}},
        {"torch-2.6-cu124": {"runtime": {"gb": "5", "day": "2026-11-21"}}},
        {"torch-2.6-cu124": {"runtime": {"gb": 5}}},
        {"torch-2.6-cu124": {"tools": {"gb": 5, "day": "2026-11-21"}}},
        {"torch-0.1": {"runtime": {"gb": 5, "day": "2026-11-21"}}},
        {"torch-2.6-cu124": 5},
        [],
    ],
)
def test_a_size_that_is_none_is_refused(tmp_path: Path, sizes: object) -> None:
    with pytest.raises(UsageError, match=r"holds no sizes|is no image here"):
        script().entries(copied(tmp_path, built=sizes))


def test_a_lock_of_another_spec_is_refused(tmp_path: Path) -> None:
    path = copied(tmp_path, built={}) / "torch-2.6-cu124" / "envkit.toml"
    path.write_text(path.read_text().replace('"550"', '"570"'))
    with pytest.raises(UsageError, match="has no lock that answers its spec"):
        script().entries(tmp_path)


# What BuildKit makes of them.


@pytest.mark.engine
@EACH
def test_buildkit_reads_the_dockerfile_and_makes_its_steps(name: str, engine: DockerEngine) -> None:
    """The stage holds what the other steps run; it needs no base, and no file reaches the image store."""
    command = [buildx.client(), "buildx", "build", "--progress=plain", "--target=steps", "--output=type=cacheonly"]
    done = subprocess.run([*command, ROOT / name], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARN" not in done.stderr
