"""Torch and what was asked for beside it, chosen together: the real uv over an index of hand-made wheels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from index import Index, publish_extras
from packaging.requirements import Requirement

from envkit.errors import Unsatisfiable
from envkit.facts import load as load_facts
from envkit.plan import solve, together, wheels
from envkit.plan.lockfile import PARTS, Lock
from envkit.plan.resolve import Choice, feasible, resolve
from envkit.plan.spec import Spec, parse
from envkit.plan.together import Ask, Release, Unreached

weak = partial(solve.lock, may_stay_open=PARTS)

OLD = "2020-01-02T03:04:05.000000Z"


def spec_of(torch: str, *packages: str, text: str = "") -> Spec:
    listed = ", ".join(f'"{each}"' for each in packages)
    return parse(f'torch = "{torch}"\npython = "3.11"\npackages = [{listed}]\n{text}', Path("/srv/job/envkit.toml"))


def published(index: Index, spec: Spec) -> Spec:
    """``spec``, after an index got each torch that the facts allow it, and all that any flavor adds."""
    facts = load_facts()
    for choice in feasible(spec, facts):
        tag = "cp311-cp311-manylinux_2_28_x86_64"
        index.add("torch", str(choice.torch), f"nvidia-cudnn-cu{choice.cuda.major}", tag=tag)
        index.add(f"nvidia-cudnn-cu{choice.cuda.major}", "9.1.0.70")
        publish_extras(index, choice.extras.wheels)
    index.add("setuptools", "80.9.0")
    index.add("uv", wheels.uv_version(), tag="py3-none-manylinux_2_17_x86_64")
    return spec


def held(lock: Lock) -> dict[str, str]:
    return {pin.name: pin.version for pin in lock.wheels}


def test_the_newest_of_what_was_asked_for_chooses_the_torch(index: Index) -> None:
    spec = published(index, spec_of(">=2.6,<2.9", "served"))
    index.add("served", "1.0", "torch")
    index.add("served", "2.0", "torch==2.7.1")
    said: list[str] = []
    made = weak(spec, load_facts(), said.append)
    assert (str(made.torch), held(made)["served"]) == ("2.7.1", "2.0")
    (line,) = (line for line in said if "is taken and not" in line)
    assert line.startswith("torch 2.7.1 for CUDA 12.6 is taken and not 2.8.0:")
    assert "served>=2.0 depends on torch==2.7.1" in line


def test_a_pin_chooses_the_torch(index: Index) -> None:
    spec = published(index, spec_of(">=2.4", "served==1.0"))
    index.add("served", "1.0", "torch==2.5.1")
    index.add("served", "2.0", "torch==2.7.1")
    assert str(weak(spec, load_facts(), [].append).torch) == "2.5.1"


@pytest.mark.slow  # makes whole locks
def test_torchaudio_is_the_one_of_its_torch_though_its_metadata_names_none(index: Index) -> None:
    for torch, versions, expected in (
        ("2.6.0", ("2.6.0", "2.11.0"), ("2.6.0", "2.6.0")),
        # built on the stable interface, and for CUDA 13.0 as its import demands of torch
        (">=2.10", ("2.10.0", "2.11.0"), ("2.14.1", "2.11.0")),
        (">=2.7,<2.9", ("2.7.0", "2.8.0", "2.11.0"), ("2.8.0", "2.8.0")),
    ):
        spec = published(index, spec_of(torch, "torchaudio"))
        for version in versions:
            index.add("torchaudio", version, *([] if version == "2.11.0" else [f"torch=={version}"]))
        made = weak(spec, load_facts(), [].append)
        assert (str(made.torch), held(made)["torchaudio"]) == expected


@pytest.mark.slow  # makes whole locks
def test_a_torchaudio_that_the_facts_keep_back_is_said_to_be_of_another_torch(index: Index) -> None:
    spec = published(index, spec_of("2.10.0", "torchaudio"))
    index.add("torchaudio", "2.10.0", "torch==2.10.0")
    index.add("torchaudio", "2.11.0")
    said: list[str] = []
    assert held(weak(spec, load_facts(), said.append))["torchaudio"] == "2.10.0"
    (line,) = (line for line in said if "is taken and not" in line)
    assert line == "torchaudio 2.10.0 is taken and not 2.11.0: it is for torch 2.11.0, not for 2.10.0"


@pytest.mark.slow  # makes whole locks
def test_a_library_of_another_cuda_chooses_the_torch_of_its_cuda(index: Index) -> None:
    spec = published(index, spec_of(">=2.10,<2.12", "served"))
    index.add("served", "1.0", "torch", "nvidia-cudnn-cu12")
    made = weak(spec, load_facts(), [].append)
    assert (str(made.torch), str(made.cuda), held(made)["served"]) == ("2.10.0", "12.8", "1.0")


@pytest.mark.slow  # makes several whole locks
def test_a_torchaudio_for_another_cuda_than_its_torch_is_refused(index: Index) -> None:
    published(index, spec_of("2.14.1"))
    spec = published(index, spec_of("2.15.0", "torchaudio"))
    index.add("torchaudio", "2.11.0")
    with pytest.raises(Unsatisfiable) as caught:
        weak(spec, load_facts(), [].append)
    assert caught.value.message == "torchaudio 2.11.0 is built for CUDA 13.0, and torch 2.15.0 for CUDA 13.2"
    assert "torch 2.14.1 with CUDA 13.0" in caught.value.nearest


@pytest.mark.slow  # makes whole locks
def test_what_a_package_brings_is_held_to_the_torch_too(index: Index) -> None:
    spec = published(index, spec_of("2.6.0", "voices"))
    index.add("voices", "1.0", "torchaudio")
    index.add("torchaudio", "2.6.0", "torch==2.6.0")
    index.add("torchaudio", "2.11.0")
    assert held(weak(spec, load_facts(), [].append))["torchaudio"] == "2.6.0"


@pytest.mark.slow  # makes several whole locks
def test_a_release_from_years_before_its_torch_is_refused_unless_it_is_pinned(index: Index) -> None:
    published(index, spec_of("2.7.1"))
    spec = published(index, spec_of("2.6.0", "served"))
    index.add("served", "0.2", "torch>=2.0", uploaded=OLD)
    index.add("served", "1.0", "torch==2.7.1")
    with pytest.raises(Unsatisfiable) as caught:
        weak(spec, load_facts(), [].append)
    assert caught.value.message == (
        "the newest served that goes with the rest of the spec is release 0.2 of 2020; torch 2.6.0 is of 2025"
    )
    assert caught.value.chain[0] == "newest: served 1.0"
    assert "served>=1.0 depends on torch==2.7.1" in caught.value.chain[1]
    assert caught.value.nearest == ("torch 2.7.1 with CUDA 12.6", "served 0.2")
    pinned = spec_of("2.6.0", "served==0.2")
    twice = spec_of("2.6.0", "served", "served==0.2")  # as in the files of projects that grew
    below = replace(spec, constraints=("served<1",))
    for meant in (pinned, twice, below):
        assert held(weak(meant, load_facts(), [].append))["served"] == "0.2"
    index.add("another", "1.0")
    for other in ("another<2", "another"):  # neither one that is bounded nor one of today hides it
        with pytest.raises(Unsatisfiable, match="the newest served that goes with the rest"):
            weak(spec_of("2.6.0", other, "served"), load_facts(), [].append)


def test_an_old_release_that_is_the_newest_is_no_offence(index: Index) -> None:
    spec = published(index, spec_of("2.6.0", "finished"))
    index.add("finished", "1.0", uploaded=OLD)
    assert held(weak(spec, load_facts(), [].append))["finished"] == "1.0"


@pytest.mark.slow  # makes whole locks
def test_a_pre_release_is_taken_where_one_is_asked_for(index: Index) -> None:
    spec = published(index, spec_of("2.6.0", "early"))
    index.add("early", "1.0.dev5")
    with pytest.raises(Unsatisfiable, match=r"no early but pre-release 1\.0\.dev5 goes with"):
        weak(spec, load_facts(), [].append)
    assert held(weak(spec_of("2.6.0", "early>=1.0.dev1"), load_facts(), [].append))["early"] == "1.0.dev5"


def test_no_solution_names_the_changes_that_have_one(index: Index) -> None:
    spec = published(index, spec_of(">=2.4", "served==1.0", "other==1.0"))
    index.add("served", "1.0", "torch==2.5.1")
    index.add("served", "2.0", "torch==2.7.1")
    index.add("other", "1.0", "torch==2.7.1")
    with pytest.raises(Unsatisfiable, match="no set of wheels") as caught:
        weak(spec, load_facts(), [].append)
    assert caught.value.nearest == ("served 2.0",)


def without_pytorchs(asked: list[str]) -> together.Solver:
    """A solver that reaches the default index alone, which has every torch and numpy; ``asked`` gets what it is for."""

    def solver(choice: Choice, asked_for: Spec) -> Ask:
        def ask(
            requirements: Sequence[str], constraints: Sequence[str] = (), *, alone: bool = False
        ) -> Mapping[str, Release]:
            asked.append(choice.backend)
            if choice.backend:
                raise Unreached("no answer", "check the network")
            torch = Release("torch", str(choice.torch))
            return {"torch": torch, "numpy": Release("numpy", "2.0.0")}

        return ask

    return solver


@pytest.mark.parametrize("packages", [("numpy",), ()])
def test_an_index_that_is_not_in_reach_is_said_and_the_others_are_solved_over(packages: tuple[str, ...]) -> None:
    """V100: the newest torch with code for it is built for CUDA 12.6, which PyTorch's own index alone has."""
    spec = spec_of(">=2.4", *packages, text='gpus = ["V100"]')
    facts = load_facts()
    assert resolve(spec, facts).backend
    asked: list[str] = []
    said: list[str] = []
    chosen = together.choose(spec, facts, without_pytorchs(asked), said.append)
    assert (chosen.choice.backend, asked) == ("", ["cu126", ""])
    assert said == ["PyTorch's own index is not in reach, so its builds for cu126 are left out"]


@pytest.mark.parametrize("packages", [("numpy",), ()])
def test_where_that_index_alone_has_a_build_it_is_said_which_and_what_keeps_the_others_out(
    packages: tuple[str, ...],
) -> None:
    for wish, cudas, keys in (
        ('driver = "520"', "11.8", "`driver`"),
        ('cuda = "11.8"', "11.8", "`cuda`"),
        ('cuda = "12.6"\ngpus = ["V100"]\ndriver = "570"', "12.6", "`cuda`"),
    ):
        spec = spec_of(">=2.4,<2.7" if "12.6" in wish else ">=2.4", *packages, text=wish)
        with pytest.raises(Unreached) as caught:
            together.choose(spec, load_facts(), without_pytorchs([]), [].append)
        assert caught.value.message == (
            f"only builds for CUDA {cudas} fit the spec, which PyTorch's own index alone has: no answer"
        )
        assert caught.value.fix.startswith(f"check the network, or change {keys}")


def test_torch_alone_asks_no_solver() -> None:
    spec = spec_of(">=2.6")

    def solver(choice: Choice, asked_for: Spec) -> Ask:
        raise AssertionError("nobody was to be asked")

    assert together.choose(spec, load_facts(), solver, [].append).choice == resolve(spec, load_facts())


@pytest.mark.slow  # makes several whole locks
def test_what_a_lock_held_stays_and_its_torch_with_it(index: Index) -> None:
    spec = published(index, spec_of(">=2.6,<2.9", "served"))
    index.add("served", "1.0", "torch==2.6.0")
    first = weak(spec, load_facts(), [].append)
    index.add("served", "2.0", "torch==2.7.1")
    said: list[str] = []
    again = weak(spec, load_facts(), said.append, previous=first)
    assert (str(again.torch), held(again)["served"]) == ("2.6.0", "1.0")
    assert not [line for line in said if line.startswith("served")]
    upgraded = weak(spec, load_facts(), [].append, previous=first, upgrade=("served",))
    assert (str(upgraded.torch), held(upgraded)["served"]) == ("2.7.1", "2.0")


@pytest.mark.slow  # makes whole locks
def test_a_day_counts_for_what_is_asked_for_and_not_for_the_tools_of_envkit(index: Index) -> None:
    spec = published(index, spec_of("2.6.0", "aged", text='exclude-newer = "2025-02-01"'))
    wheels = resolve(spec, load_facts()).extras.wheels.values()
    tools = {Requirement(line).name for lines in wheels for line in lines}
    for file in index.wheels:
        if file.partition("-")[0].replace("_", "-") in tools:
            index.uploaded[file] = "2026-01-02T03:04:05.000000Z"
    index.add("aged", "1.0")
    index.add("aged", "2.0", uploaded="2026-01-02T03:04:05.000000Z")
    made = weak(spec, load_facts(), [].append)
    assert held(made)["aged"] == "1.0"
    assert made.wish["before"] == "2025-02-01"
