"""The images that are checked in: spec, lock and Dockerfile answer one another, and the facts agree with the wheels."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from envkit import lock as locks
from envkit import render
from envkit.facts import Facts
from envkit.facts import load as load_facts
from envkit.lock import Lock
from envkit.resolve import resolve
from envkit.spec import Spec
from envkit.spec import load as load_spec

ROOT = Path(__file__).parent.parent / "images"
NAMES = sorted(path.parent.name for path in ROOT.glob("*/envkit.toml"))


def spec(name: str) -> Spec:
    return load_spec(ROOT / name)


def lock(name: str) -> Lock:
    found = locks.load(spec(name))
    assert found is not None, f"the lock of {name} answers another spec"
    return found


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts()


def test_the_images_are_here() -> None:
    assert "torch-2.6-cu124" in NAMES
    assert len(NAMES) >= 6
    assert sorted(path.name for path in ROOT.iterdir() if path.is_dir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_lock_answers_the_spec(name: str) -> None:
    assert lock(name).name == name
    text = (ROOT / name / "envkit.lock").read_text()
    assert locks.dump(locks.parse(text, name)) == text


@pytest.mark.parametrize("name", NAMES)
def test_the_dockerfile_is_the_rendered_lock(name: str) -> None:
    assert (ROOT / name / "Dockerfile").read_text() == render.dockerfile(lock(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_facts_still_choose_what_is_locked(name: str, facts: Facts) -> None:
    choice, held = resolve(spec(name), facts), lock(name)
    for key in ("torch", "cuda", "cudnn", "nccl", "triton", "os", "image", "suite", "backend", "driver", "apt"):
        assert getattr(held, key) == getattr(choice, key), key
    assert held.preinstalled == choice.preinstalled
    assert held.gpus == tuple((target.name, str(target.sm), target.by) for target in choice.targets)
    assert held.tools == tuple((tool.tool, tool.path or "") for tool in choice.tools)


@pytest.mark.parametrize("name", NAMES)
def test_every_requirement_is_pinned_at_a_version_that_meets_it(name: str, facts: Facts) -> None:
    pinned = {pin.name: pin.version for pin in lock(name).wheels}
    choice = resolve(spec(name), facts)
    for requirement in choice.requirements:
        wanted, _, version = requirement.partition("==")
        if wanted == "torch" and choice.preinstalled:
            assert wanted not in pinned
            continue
        assert wanted in pinned
        assert version in ("", pinned[wanted])


@pytest.mark.parametrize("name", NAMES)
def test_the_facts_agree_with_the_wheels_that_torch_asked_for(name: str) -> None:
    held = lock(name)
    for library in ("cudnn", "nccl"):
        pinned = [pin.version for pin in held.wheels if pin.name.startswith(f"nvidia-{library}-")]
        if held.preinstalled:
            assert pinned == []
        else:
            assert pinned == [getattr(held, library)], library


@pytest.mark.parametrize("name", NAMES)
def test_torch_and_triton_are_the_ones_that_were_chosen(name: str) -> None:
    held = lock(name)
    pinned = {pin.name: pin.version for pin in held.wheels}
    if held.preinstalled:
        assert not {"torch", "triton"} & set(pinned)
        return
    assert Version(pinned["torch"]).public == held.torch
    assert SpecifierSet(held.triton).contains(pinned["triton"])


@pytest.mark.parametrize("name", NAMES)
def test_no_library_of_another_cuda_is_pinned(name: str) -> None:
    held = lock(name)
    other = {"12": "-cu13", "13": "-cu12"}[held.cuda.split(".")[0]]
    assert [pin.name for pin in held.wheels if pin.name.endswith(other)] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_wheel_is_what_its_file_says_and_runs_on_the_target(name: str) -> None:
    held = lock(name)
    machine = spec(name).platform.machine
    for pin in (*held.wheels, held.installer):
        file_name, version, _, tags = parse_wheel_filename(pin.file)
        assert (str(file_name), str(version)) == (pin.name, pin.version)
        assert any(tag.platform == "any" or tag.platform.endswith(machine) for tag in tags), pin.file
        cp = f"cp{held.python.replace('.', '')}"
        assert any(tag.interpreter in (cp, "py3") or tag.abi == "abi3" for tag in tags), pin.file
    assert [pin.name for pin in held.wheels] == sorted({pin.name for pin in held.wheels})


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_an_image_tells_its_torch_and_cuda(name: str) -> None:
    held = lock(name)
    assert name.startswith(f"torch-{'.'.join(held.torch.split('.')[:2])}-cu{held.cuda.replace('.', '')}")


@pytest.mark.parametrize("name", NAMES)
def test_the_folder_holds_nothing_else(name: str) -> None:
    assert sorted(path.name for path in (ROOT / name).iterdir()) == ["Dockerfile", "envkit.lock", "envkit.toml"]
    assert tomllib.loads((ROOT / name / "envkit.toml").read_text())["torch"]
