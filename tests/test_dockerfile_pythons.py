"""Which Python a word means, after what a build did before."""

from __future__ import annotations

import pytest

from envkit.dockerfile.instructions import Text
from envkit.dockerfile.pythons import PATH, Python, Pythons
from envkit.dockerfile.shell import commands
from envkit.dockerfile.system import Trail, remember
from envkit.model import Observed, Span
from envkit.subjects.dockerfile import Base, Install

AT = Span("Dockerfile", 1)


def base(family: str, python: str = "") -> Base:
    said = Observed.of(python, "tag") if python else Observed[str].lost("the tag does not say")
    return Base("x", "x", "", "", AT, family=family, python=said)


def after(script: str, family: str = "nvidia", python: str = "", distro: str = "3.10") -> Pythons:
    """The state after a script, on a base of a family."""
    state = Pythons()
    state.begin(base(family, python), distro)
    trail = Trail()
    for command in commands(Text.of(script, "Dockerfile"), {"PATH": PATH}, "/w").commands:
        state.take(command, {"PATH": PATH}, "", trail)
        trail = remember(command, trail)
    return state


def apt(state: Pythons, *names: str) -> Pythons:
    for name in names:
        state.add(Install("apt", name, AT))
    return state


@pytest.mark.parametrize(
    ("packages", "program", "version"),
    [
        (("python3", "python3-pip"), "python3", "3.10"),
        (("python3", "python3-pip"), "pip3", "3.10"),
        (("python3-pip",), "pip", "3.10"),
        (("python3",), "python", ""),
        (("python-is-python3",), "python", "3.10"),
        (("python3.9",), "python3.9", "3.9"),
        (("python3.9",), "/usr/bin/python3.9", "3.9"),
        (("python3.9", "python3-pip"), "pip3", "3.10"),
        ((), "python3", ""),
        (("software-properties-common",), "python3", "3.10"),
        (("python3-numpy",), "python3", "3.10"),
        (("lsb-release",), "python3", "3.10"),
        (("software-properties-common",), "pip3", ""),
        (("curl",), "python3", ""),
    ],
)
def test_a_distribution_has_its_own_python3_and_those_with_a_number(
    packages: tuple[str, ...], program: str, version: str
) -> None:
    assert apt(after("true"), *packages).look(program, {"PATH": PATH}).version == version


@pytest.mark.parametrize(
    "script",
    [
        "ln -sf /usr/bin/python3.9 /usr/bin/python3",
        "update-alternatives --install /usr/bin/python3 python3 /usr/bin/python3.9 1",
        "cd /usr/bin && ln -sf python3.9 python3",
    ],
)
def test_a_link_makes_another_python_the_one_that_python3_means(script: str) -> None:
    state = after(script)
    apt(state, "python3", "python3-pip", "python3.9")
    assert state.look("python3", {"PATH": PATH}).version == "3.9"


def test_get_pip_brings_a_pip_of_the_python_that_ran_it() -> None:
    state = apt(after("true"), "python3", "python3.11")
    for command in commands(Text.of("python3.11 get-pip.py", "Dockerfile"), {"PATH": PATH}, "/w").commands:
        state.take(command, {"PATH": PATH}, "")
    assert state.look("pip", {"PATH": PATH}).version == "3.11"
    assert state.look("python3", {"PATH": PATH}).version == "3.10"


@pytest.mark.parametrize(
    ("script", "program", "expected"),
    [
        ("python -m venv /venv", "/venv/bin/pip", Python("3.11", "/venv")),
        ("python -m venv env", "/w/env/bin/python", Python("3.11", "/w/env")),
        ("virtualenv -p python3.9 /venv", "/venv/bin/python", Python("3.9", "/venv")),
        ("uv venv --python 3.12 /venv", "/venv/bin/python", Python("3.12", "/venv")),
        ("uv venv", "/w/.venv/bin/python", Python("3.11", "/w/.venv")),
    ],
)
def test_a_virtual_environment_has_the_python_it_was_made_of(script: str, program: str, expected: Python) -> None:
    assert after(script, "python", "3.11").look(program, {"PATH": PATH}) == expected


def test_the_first_folder_of_path_wins() -> None:
    state = after("python -m venv /venv", "python", "3.11")
    assert state.look("pip", {"PATH": f"/venv/bin:{PATH}"}).prefix == "/venv"
    assert state.look("pip", {"PATH": f"{PATH}:/venv/bin"}).prefix == "/usr/local"


def test_the_first_python_that_pyenv_installs_is_its_own_until_it_is_told() -> None:
    path = {"PATH": f"/root/.pyenv/shims:{PATH}"}
    state = Pythons()
    state.begin(base("nvidia"), "3.10")
    for version in ("3.11.9", "3.12.1"):
        options = frozenset({"--pyenv"})
        target = f"/root/.pyenv/versions/{version}"
        state.add(Install("source", "python", AT, version=version, target=target, options=options))
    assert state.look("python", path) == Python("3.11", "/root/.pyenv")
    for command in commands(Text.of("pyenv global 3.12.1", "Dockerfile"), path, "/w").commands:
        state.take(command, path, "", Trail())
    assert state.look("python", path) == Python("3.12", "/root/.pyenv")


def test_an_environment_of_conda_is_known_by_name_and_by_folder() -> None:
    state = after("true", "conda")
    state.add(Install("conda", "python", AT, specifier="=3.9", target="conda:proj"))
    state.add(Install("conda", "python", AT, version="3.8", target="conda:/env"))
    assert state.environment("proj") == "/opt/conda/envs/proj"
    assert state.look("pip", {"PATH": PATH}, active="/opt/conda/envs/proj") == Python("3.9", "/opt/conda/envs/proj")
    assert state.look("/env/bin/python", {"PATH": PATH}) == Python("3.8", "/env")


def test_an_installer_of_conda_says_the_python_in_its_name() -> None:
    state = after("true")
    state.add(Install("source", "miniconda", AT, local="py39", target="/root/mc"))
    assert state.look("pip", {"PATH": f"/root/mc/bin:{PATH}"}) == Python("3.9", "/root/mc")


def test_uv_takes_the_one_python_that_is_there_by_its_number() -> None:
    assert apt(after("true", distro="3.12"), "python3.12").found({"PATH": PATH}) == "3.12"
    assert apt(after("true", distro="3.12"), "python3.12", "python3.9").found({"PATH": PATH}) == ""


def test_a_copy_for_another_stage_is_a_state_of_its_own() -> None:
    state = after("python -m venv /venv", "python", "3.11")
    other = state.copy()
    assert other == state
    other.prefixes["/x"] = "3.9"
    other.links["/usr/bin/x"] = "y"
    other.priorities["/usr/bin/x"] = 1
    assert other != state
    assert "/x" not in state.prefixes and "/usr/bin/x" not in state.links


def test_uv_pip_takes_the_virtual_environment_that_path_begins_with() -> None:
    state = after("uv venv /opt/venv")
    step = commands(Text.of("uv pip install x", "Dockerfile"), {"PATH": f"/opt/venv/bin:{PATH}"}, "/app").commands[0]
    install = Install("uv", "x", AT, target="uv:VENV")
    assert state.locate(install, step, step.env, "").prefix == "/opt/venv"
    assert state.locate(install, step, {"PATH": PATH}, "").prefix == "/app/.venv"


@pytest.mark.parametrize(("specifier", "version"), [(">=3.10", ""), ("=3.10", "3.10"), (">=3.10,<3.11", "3.10")])
def test_of_an_open_end_conda_takes_a_python_that_the_text_does_not_say(specifier: str, version: str) -> None:
    state = Pythons()
    state.add(Install("conda", "python", AT, specifier, target="conda:a"))
    assert state.prefixes == {"/opt/conda/envs/a": version}


@pytest.mark.parametrize(
    ("made", "version"),
    [("uv venv /opt/venv", "3.10"), ("uv venv --seed /opt/venv", "3.12"), ("python3.12 -m venv /opt/venv", "3.12")],
)
def test_an_environment_that_uv_makes_has_no_pip_of_its_own(made: str, version: str) -> None:
    state = apt(after(f"uv python install 3.12\n{made} {'--python 3.12' if 'uv' in made else ''}"), "python3-pip")
    env = {"PATH": f"/opt/venv/bin:{PATH}"}
    assert state.look("pip", env).version == version
    assert state.look("python", env) == Python("3.12", "/opt/venv")


def test_lsb_release_is_a_shell_script_in_newer_systems() -> None:
    assert apt(after("true", distro="3.12"), "lsb-release").look("python3", {"PATH": PATH}).version == ""


def test_an_image_whose_python_is_python2_has_its_own_python3_too() -> None:
    state = after("true", "other", "2.7", "3.6")
    assert [state.look(each, {"PATH": PATH}).version for each in ("python", "pip", "python3")] == ["2.7", "2.7", ""]
    assert apt(state, "python3").look("python3", {"PATH": PATH}).version == "3.6"
