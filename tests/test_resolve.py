"""A spec against the facts: what is granted, and that every refusal says why and what would be granted instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzzed import examples
from hypothesis import given
from hypothesis import strategies as st
from test_impossible import taken

from envkit.errors import Unsatisfiable, UsageError
from envkit.facts import Facts
from envkit.facts import load as load_facts
from envkit.plan.resolve import Choice, resolve
from envkit.plan.spec import parse
from envkit.versions import Cuda

FACTS = load_facts()
TABLES = Path(__file__).parent.parent / "envkit" / "facts"


def choose(facts: Facts = FACTS, /, **wish: object) -> Choice:
    table = {"torch": "2.6.0", "python": "3.11", **wish}
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
    return resolve(parse(text, Path("/srv/job/envkit.toml")), facts)


def refused(facts: Facts = FACTS, /, **wish: object) -> Unsatisfiable:
    with pytest.raises(Unsatisfiable) as caught:
        choose(facts, **wish)
    error = caught.value
    assert error.code == 2
    assert error.chain
    said = r"^(cannot be satisfied together|cannot be satisfied, whatever else changes): |^CUDA .* is available with"
    assert all(re.search(rf"\[.+; .*[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}\]$|{said}", fact) for fact in error.chain)
    assert all(fact.isprintable() for fact in error.chain)
    assert len(error.chain) <= 9
    assert len(set(error.chain)) == len(error.chain)
    assert error.message.isprintable()
    assert "nearest" in error.fix if error.nearest else error.fix
    return error


def conflict(error: Unsatisfiable) -> set[str]:
    """The keys that the refusal says cannot be satisfied together."""
    said, _, keys = error.chain[0].partition(": ")
    found = set(re.findall(r"(?:^|, | and )([a-z]+) = ", keys))
    assert found, error.chain[0]
    assert said in ("cannot be satisfied together", "cannot be satisfied, whatever else changes")
    assert said == "cannot be satisfied together" or len(found) == 1
    return found


def grant(nearest: str, **wish: object) -> Choice:
    """What the wish with the refusal's advice taken gives."""
    return choose(**{key: value for key, value in taken(wish, nearest).items() if value is not None})


def test_the_reference_environment() -> None:
    made = choose(cuda="12.4", os="debian12", gpus=["V100", "L4"], driver="550")
    assert (str(made.torch), str(made.cuda), made.cudnn, made.nccl) == ("2.6.0", "12.4", "9.1.0.70", "2.21.5")
    assert (made.os, made.suite, made.backend, made.preinstalled) == ("debian12", "bookworm", "", False)
    assert str(made.driver) == "525.60.13"
    assert [(each.name, str(each.sm), each.by) for each in made.targets] == [
        ("V100", "sm_70", "machine code of sm_70"),
        ("L4", "sm_89", "machine code of sm_86"),
    ]
    assert made.requirements == ("torch==2.6.0", "setuptools")
    assert {"g++", "libpython3-dev"} <= set(made.extras.apt["runtime"])
    assert made.notes == ()


def test_a_build_off_the_default_index_is_named_whole_with_its_backend() -> None:
    made = choose(cuda="12.6")
    assert (made.requirements, made.backend) == (("torch==2.6.0+cu126", "setuptools"), "cu126")


def test_the_default_build_wins_over_a_newer_cuda_of_its_release() -> None:
    made = choose()
    assert (str(made.cuda), made.backend) == ("12.4", "")


def test_the_newest_release_of_a_range_wins() -> None:
    assert str(choose(torch=">=2.4,<2.6").torch) == "2.5.1"
    assert str(choose(torch="2.7").torch) == "2.7.1"


def test_a_patch_of_cuda_means_its_minor() -> None:
    assert str(choose(cuda="12.4.1").cuda) == "12.4"


def test_the_runtime_asks_for_torch_what_its_compilers_import_and_the_packages() -> None:
    made = choose(flavor="debug", packages=["numpy", "einops>=0.8", "Torch>=2"])
    assert made.requirements == ("torch==2.6.0", "setuptools", "numpy", "einops>=0.8")
    assert choose(packages=["numpy", "einops>=0.8", "Torch>=2"]).requirements == made.requirements
    assert choose(packages=["torch>=2", "numpy", "einops>=0.8"]).requirements == made.requirements


def test_the_newest_release_that_the_packages_admit_wins() -> None:
    assert str(choose(torch=">=2.4", packages=["torch<2.6"]).torch) == "2.5.1"


# Notes: what is granted and may still disappoint.


def test_a_gpu_that_torch_serves_and_its_cudnn_does_not_is_told() -> None:
    made = choose(torch="2.5.1", cuda="11.8", gpus=["K80", "V100"])
    assert [each.by for each in made.targets] == ["machine code of sm_37", "machine code of sm_70"]
    (note,) = made.notes
    assert note.startswith("cuDNN 9.1.0.70 has no code for sm_37 (K80) in the library that was examined")
    assert re.search(r"\[.+; seen 20[0-9-]+\]$", note)


def test_cudnn_is_not_spoken_of_where_no_library_of_it_was_read() -> None:
    assert choose(torch="2.3.1", cuda="11.8", gpus=["K80"]).notes == ()
    assert choose(torch="2.11.0", platform="linux/arm64", gpus=["Jetson T5000"]).notes == ()


def test_a_newer_cudnn_under_an_old_gpu(tmp_path: Path) -> None:
    def newer(row: dict[str, object]) -> None:
        if row["torch"] == "2.10.0":
            row["cudnn"] = "9.24.0.43"

    assert choose(torch="2.10.0", gpus=["V100"]).notes == ()
    facts = altered(tmp_path, "torch", newer)
    (note,) = choose(facts, torch="2.10.0", cuda="12.8", gpus=["V100", "T4"]).notes
    assert note.startswith("cuDNN 9.24.0.43 has no code for sm_70 (V100)")


def test_a_cudnn_whose_matrix_begins_above_a_gpu_is_in_the_way(tmp_path: Path) -> None:
    """A build made up for it: the matrix of 9.17.0 begins at capability 7.5, and torch keeps its sm_70."""

    def newer(row: dict[str, object]) -> None:
        if (row["torch"], row["variant"]) == ("2.10.0", "cu128"):
            row["cudnn"] = "9.17.0.29"

    facts = altered(tmp_path, "torch", newer)
    assert choose(facts, torch="2.10.0", cuda="12.8", gpus=["T4"]).notes == ()
    error = refused(facts, torch="2.10.0", cuda="12.8", gpus=["V100"])
    assert error.message.startswith("cuDNN 9.17.0.29 of torch 2.10.0+cu128 is for 7.5-12.0, not for sm_70 (V100)")
    assert "NVIDIA cuDNN support matrix" in error.chain[1]


def test_a_driver_of_an_older_cuda_of_the_same_major_is_told() -> None:
    made = choose(torch="2.11.0", cuda="12.6", driver="535", gpus=["A100"])
    assert str(made.driver) == "525.60.13"
    (note,) = made.notes
    assert note.startswith("driver 535 supports CUDA 12.2 and runs 12.6 only by minor-version compatibility")
    assert choose(torch="2.11.0", cuda="12.6", driver="560").notes == ()


# Explained refusals.


def test_a_cuda_that_this_release_never_had() -> None:
    error = refused(cuda="12.1")
    assert error.message == "torch 2.6.0 was not published for CUDA 12.1; it was for 11.8, 12.4 and 12.6"
    assert len([fact for fact in error.chain if fact.startswith("torch 2.6.0+cu")]) == 3
    assert any(re.match(r"CUDA 12\.1 is available with torch 2\.1\.0.* and 2\.5\.1$", fact) for fact in error.chain)
    assert error.nearest[:2] == ("torch 2.6.0 with CUDA 12.4", "torch 2.6.0 with CUDA 11.8")


def test_a_cuda_that_no_release_of_a_range_had() -> None:
    assert refused(torch=">=2.6,<2.8", cuda="12.1").message.startswith(
        "no torch >=2.6,<2.8 was published for CUDA 12.1"
    )


def test_a_gpu_younger_than_the_build() -> None:
    error = refused(gpus=["RTX 5090"])
    assert error.message == (
        "torch 2.6.0+cu124 has no kernels for sm_120 (RTX 5090): needs torch >= 2.7.0 with CUDA >= 12.8"
    )
    made = grant(error.nearest[0], gpus=["RTX 5090"])
    assert (str(made.torch), str(made.cuda), made.backend) == ("2.7.0", "12.8", "cu128")


@pytest.mark.parametrize(
    ("torch", "cuda", "variant"),
    [
        ("2.7.0", "12.6", ""),
        ("2.8.0", "12.8", ""),
        ("2.9.1", "12.8", ""),
        ("2.10.0", "12.8", ""),
        ("2.11.0", "12.6", "cu126"),
        ("2.14.1", "12.6", "cu126"),
    ],
)
def test_an_old_gpu_is_served_by_the_build_that_kept_it(torch: str, cuda: str, variant: str) -> None:
    made = choose(torch=torch, gpus=["V100"])
    assert (str(made.cuda), made.backend) == (cuda, variant)
    assert made.targets[0].by == "machine code of sm_70"


@pytest.mark.parametrize(
    ("torch", "cuda", "serving"),
    [("2.7.0", "12.8", "11.8 and 12.6"), ("2.9.0", "13.0", "12.6 and 12.8"), ("2.11.0", "12.8", "12.6"),
     ("2.11.0", "13.0", "12.6")],
)  # fmt: skip
def test_an_old_gpu_under_a_build_that_dropped_it(torch: str, cuda: str, serving: str) -> None:
    error = refused(torch=torch, cuda=cuda, gpus=["V100"])
    assert f"has no kernels for sm_70 (V100): torch {torch} has them for CUDA {serving}" in error.message


def test_an_old_gpu_under_a_release_that_dropped_it_names_the_last_one() -> None:
    error = refused(torch="2.15.0", gpus=["V100"])
    assert error.message.endswith(": the last torch with them is 2.14.1+cu126")
    assert conflict(error) == {"gpus", "torch"}


def test_gpus_that_no_build_serves_together() -> None:
    error = refused(gpus=["K80", "RTX 5090", "A100"], torch=">=2.4")
    assert error.nearest == ('gpus without ["K80"]', 'gpus without ["RTX 5090"]')
    assert error.chain[0] == 'cannot be satisfied together: gpus = ["K80", "RTX 5090"]'
    assert error.message.endswith("no known build has kernels for all of the GPUs")
    assert any("sm_37 (K80)" in fact for fact in error.chain[1:])
    assert any("sm_120 (RTX 5090)" in fact for fact in error.chain[1:])
    assert not any("A100" in fact for fact in error.chain)


def test_a_python_that_the_release_has_no_wheels_for() -> None:
    error = refused(python="3.14")
    assert error.message.startswith("torch 2.6.0 has no wheel for Python 3.14: it has cp39,")
    assert error.nearest[0].startswith("torch 2.9.0 ")


def test_a_python_that_no_system_ships() -> None:
    with pytest.raises(UsageError, match=r"no known operating system ships Python 3\.9") as caught:
        choose(python="3.9")
    assert "3.11 (debian12)" in caught.value.fix


def test_a_system_with_another_python() -> None:
    error = refused(os="debian13")
    assert error.message == "debian13 ships Python 3.13, not 3.11 (as debian12 does)"
    assert error.nearest == ('os = "debian12"', 'python = "3.13" with debian13')
    assert conflict(error) == {"os", "python"}
    assert len(error.chain) == 2


def test_where_an_image_does_not_fit_the_wheels_may() -> None:
    error = refused(base="ngc", tag="25.01-py3")
    assert "contains Python 3.12, but the spec says 3.11" in error.message
    assert error.nearest[0] == 'base = "wheels"'
    assert grant(error.nearest[0], base="ngc", tag="25.01-py3").image == "debian:12-slim"


def test_a_system_older_than_the_wheels(tmp_path: Path) -> None:
    def aged(row: dict[str, object]) -> None:
        row["glibc"] = "2.17" if row["name"] == "debian12" else row["glibc"]

    error = refused(altered(tmp_path, "os", aged), torch="2.9.0", os="debian12")
    assert "needs glibc 2.28" in error.message
    assert "debian12 has 2.17" in error.message


def test_a_driver_too_old() -> None:
    error = refused(driver="450")
    assert error.message == "torch 2.6.0+cu124 needs driver 525.60.13 or newer, but the spec declares 450"
    assert refused(torch="2.11.0", driver="550", cuda="13.0").message == (
        "torch 2.11.0+cu130 needs driver 580.65.06 or newer, but the spec declares 550"
    )


def test_the_oldest_driver_of_a_fleet_counts_and_all_are_named() -> None:
    wish: dict[str, object] = {"torch": "2.11.0", "cuda": "13.0"}
    error = refused(**wish, driver=["595.45.04", "535", "550.54.15"])
    assert error.message.endswith("but the spec declares 595.45.04, 535 and 550.54.15")
    assert conflict(error) == {"driver", "cuda"}
    assert 'driver = ["595.45.04", "535", "550.54.15"]' in error.chain[0]
    assert str(choose(**wish, driver=["595.45.04", "580.65.06"]).driver) == "580.65.06"
    for nearest in error.nearest:
        grant(nearest, driver=["595.45.04", "535", "550.54.15"])


def test_a_bare_branch_means_its_oldest_release() -> None:
    assert str(choose(torch="2.11.0", cuda="13.0", driver="580").driver) == "580.65.06"
    assert refused(cuda="12.4", driver="525").message.endswith(
        "but the spec declares 525, and branch 525 begins with 525.53"
    )
    assert str(choose(cuda="12.4", driver="525.60.13").cuda) == "12.4"


# Forward compatibility: it never grants, and is told where a driver is too old.


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"gpus": ["A100", "H100"], "driver": "535"},
         "would support driver 535 on the declared GPUs; no wheel contains it, and neither do envkit's images"),
        ({"gpus": ["A100"], "driver": ["535", "550", "580.65.06"]}, "would support driver 535 and 550 on the declared"),
        ({"gpus": ["A100"], "driver": "525.60.13"},
         "cuda-compat-13-0 does not help driver 525.60.13: it supports 535, 550, 565, 570 and 575"),
        ({"gpus": ["A100"], "driver": ["535", "545"]}, "cuda-compat-13-0 does not help driver 545: it supports 535,"),
        ({"gpus": ["A100", "RTX 4090"], "driver": "535"},
         "cuda-compat-13-0 does not help: it is for data-center GPUs, and RTX 4090 is not one"),
        ({"gpus": ["A100", "GB10", "sm_90"], "driver": "575"}, "and GB10 and sm_90 are not known to be"),
        ({"driver": "535"}, "would support driver 535 on data-center GPUs only, and `gpus` names none"),
        ({"driver": "535", "base": "nvidia", "os": "ubuntu22.04", "python": "3.10"}, "the base image contains it"),
    ],
)  # fmt: skip
def test_what_the_forward_compatibility_package_would_do(wish: dict[str, object], said: str) -> None:
    error = refused(**{"torch": "2.11.0", "cuda": "13.0", **wish})
    assert "needs driver 580.65.06 or newer" in error.message
    assert said in error.chain[-1]
    assert "NVIDIA CUDA compatibility" in error.chain[-1]


def test_a_compat_package_whose_drivers_were_not_read() -> None:
    error = refused(**NGC, driver="550")
    assert error.chain[-1].startswith("it is not known which drivers NVIDIA's cuda-compat-13-3 supports [")


def test_forward_compatibility_is_no_word_where_the_driver_is_not_in_the_way() -> None:
    assert not any("cuda-compat" in fact for fact in refused(gpus=["RTX 5090"], driver="550").chain)


# A driver knows the GPUs from before its branch, as long as NVIDIA keeps them.


def test_a_driver_that_does_not_know_the_gpu() -> None:
    error = refused(torch=">=2.7", gpus=["B200"], driver="550")
    assert error.message == "sm_100 (B200) needs driver branch 570 or newer, but the spec declares 550"
    assert conflict(error) == {"gpus", "driver"}
    assert len(error.chain) == 2 and "driver of CUDA 12.8" in error.chain[1]
    gone = refused(torch=">=2.4", gpus=["V100"], driver="590.44.01")
    assert gone.message == "no driver after branch 580 knows sm_70 (V100), but the spec declares 590.44.01"
    assert 'driver = "580"' in gone.nearest


@pytest.mark.parametrize(
    ("gpus", "driver"),
    [
        (["B200"], "570"),
        (["RTX 4090"], "520.56.06"),  # GeForce's first release of the branch, before that of the toolkit
        (["V100"], "580"),
        (["V100", "B200"], ["550", "595"]),  # a fleet: each machine has its own driver
        (["T4"], "615"),
        (["B200"], None),
    ],
)
def test_a_driver_that_knows_the_gpu(gpus: list[str], driver: object) -> None:
    assert choose(torch=">=2.4", gpus=gpus, **({"driver": driver} if driver else {})).targets


# The conflict is minimal.


@pytest.mark.parametrize(
    ("wish", "keys"),
    [
        ({"gpus": ["RTX 5090"], "driver": "535", "os": "debian12"}, {"gpus", "driver"}),
        ({"gpus": ["RTX 5090"], "driver": "570", "os": "debian12"}, {"gpus", "torch"}),
        ({"torch": "2.9.0", "cuda": "13.0", "gpus": ["V100", "H100"], "driver": "580"}, {"gpus", "cuda"}),
        ({"python": "3.14", "gpus": ["H100"]}, {"python", "torch"}),
        ({"torch": ">=2.7", "driver": "450", "gpus": ["H100"]}, {"driver"}),
        ({"cuda": "12.1", "gpus": ["H100"], "driver": "535"}, {"cuda", "torch"}),
        ({"torch": ">=2.4", "packages": ["torch<2.6"], "gpus": ["B200"]}, {"gpus", "packages"}),
        ({"torch": "2.9", "platform": "linux/arm64", "gpus": ["GH200"], "driver": "580"}, {"platform", "torch"}),
        ({"torch": "2.15.0", "base": "pytorch", "driver": "595"}, {"base", "torch"}),
        # dropping one key after the other ends with three here; two suffice
        ({"torch": "2.4.1", "cuda": "12.4", "python": "3.13", "platform": "linux/arm64"}, {"python", "torch"}),
    ],
)
def test_only_keys_that_matter_are_named(wish: dict[str, object], keys: set[str]) -> None:
    assert conflict(refused(**wish)) == keys


def test_a_conflict_of_three_keys(tmp_path: Path) -> None:
    """Tables made up for it: each of three builds is kept from the wish by another key of it."""

    def three(row: dict[str, object]) -> None:
        change = {
            ("2.9.0", "cu128"): {"pythons": ["cp312"], "archs": ["sm_70"]},
            ("2.10.0", "cu128"): {"pythons": ["cp311"], "archs": ["sm_75"]},
            ("2.11.0", "cu130"): {"pythons": ["cp311"], "archs": ["sm_70"]},
        }.get((str(row["torch"]), str(row["variant"])), {"published": False})
        row.update(change)

    facts = altered(tmp_path, "torch", three)
    wish: dict[str, object] = {"torch": ">=2.8", "gpus": ["V100"], "driver": "550", "python": "3.11", "os": "auto"}
    error = refused(facts, **wish)
    assert conflict(error) == {"gpus", "driver", "python"}
    for said in (
        "2.9.0 has no wheel for Python 3.11",
        "2.10.0+cu128 has no kernels for sm_70",
        "2.11.0+cu130 needs driver",
    ):
        assert len([fact for fact in error.chain if said in fact]) == 1
    assert str(choose(facts, **{**wish, "python": "3.12"}).torch) == "2.9.0"
    assert str(choose(facts, **{**wish, "gpus": ["T4"]}).torch) == "2.10.0"
    assert str(choose(facts, **{**wish, "driver": "580"}).torch) == "2.11.0"


def test_a_conflict_has_no_spare_key() -> None:
    """Every key of a conflict is needed: without it, or with what it says put off, the rest is met."""
    error = refused(torch="2.9.0", cuda="13.0", gpus=["V100"], driver="580", os="debian12")
    assert conflict(error) == {"gpus", "cuda"}
    assert str(choose(torch=">=2", gpus=["V100"], driver="580", os="debian12").torch) == "2.14.1"
    assert str(choose(torch=">=2", cuda="13.0", driver="580", os="debian12").cuda) == "13.0"


def test_ptx_needs_a_driver_as_new_as_its_toolkit(tmp_path: Path) -> None:
    """A build made up for it: machine code for sm_75 and its PTX, which alone serves an A100 (sm_80)."""

    def with_ptx(row: dict[str, object]) -> None:
        if (row["torch"], row["variant"]) == ("2.6.0", "cu124"):
            row["archs"] = row["ptx"] = ["sm_75"]

    facts = altered(tmp_path, "torch", with_ptx)
    needed = facts.driver_min(Cuda("12.4")).own
    assert needed is not None
    wish: dict[str, object] = {"cuda": "12.4", "gpus": ["A100"]}
    made = choose(facts, **wish, driver=str(needed))
    assert (made.targets[0].by, str(made.driver)) == ("PTX of sm_75", str(needed))
    assert str(choose(facts, cuda="12.4", gpus=["T4"], driver="525.60.13").driver) == "525.60.13"
    error = refused(facts, **wish, driver="525.60.13")
    assert f"needs driver {needed} or newer to compile its PTX, but the spec declares 525.60.13" in error.message


def test_names_that_the_facts_do_not_hold() -> None:
    for wish in ({"gpus": ["RTX 9999"]}, {"os": "plan9"}, {"torch": "9.9.9"}, {"torch": ">99"}):
        with pytest.raises(UsageError) as caught:
            choose(**wish)
        assert not isinstance(caught.value, Unsatisfiable)
        assert caught.value.fix


# Base images.

JAMMY = {"base": "nvidia", "os": "ubuntu22.04", "python": "3.10"}


def test_a_runtime_on_nvidia_takes_the_smallest_image() -> None:
    assert choose(**JAMMY).image == "nvidia/cuda:12.4.1-base-ubuntu22.04"


def test_a_devel_on_nvidia_takes_the_one_with_cudnn() -> None:
    assert choose(**JAMMY, flavor="devel").image == "nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04"


@pytest.mark.parametrize(
    "tag",
    ["12.4.0-cudnn-devel-ubuntu22.04", "12.4.0-cudnn9-devel-ubuntu22.04", "12.2.0-cudnn8-devel-ubuntu22.04"],
)
def test_a_tag_that_never_existed(tag: str) -> None:
    error = refused(**JAMMY, flavor="devel", cuda="12.4", tag=tag)
    assert conflict(error) == {"tag"}
    assert len(error.chain) == 2
    assert f"nvidia/cuda:{tag} is not a known tag" in error.message
    assert "nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04" in error.message


def test_a_tag_that_exists_and_does_not_fit() -> None:
    error = refused(**JAMMY, flavor="devel", cuda="12.4", tag="12.2.0-devel-ubuntu22.04")
    assert "nvidia/cuda:12.2.0-devel-ubuntu22.04 does not fit the request" in error.message


def test_a_retired_tag_is_taken_only_where_there_is_no_other(tmp_path: Path) -> None:
    made = choose(**JAMMY, torch="2.5.1", cuda="11.8")
    assert made.image == "nvidia/cuda:11.8.0-base-ubuntu22.04"
    (note,) = made.notes
    assert note.startswith("nvidia/cuda:11.8.0-base-ubuntu22.04 was moved to its publisher's end-of-life folder")
    assert choose(**JAMMY).notes == ()

    def retire(row: dict[str, object]) -> None:
        row["retired"] = row["cuda"] != "12.4.0"

    facts = altered(tmp_path, "image", retire)
    assert choose(facts, **JAMMY).image == "nvidia/cuda:12.4.0-base-ubuntu22.04"
    asked = choose(facts, **JAMMY, tag="12.4.1-base-ubuntu22.04")
    assert (asked.image, len(asked.notes)) == ("nvidia/cuda:12.4.1-base-ubuntu22.04", 1)


def test_a_tag_that_fits_is_taken() -> None:
    made = choose(**JAMMY, flavor="devel", tag="12.4.1-cudnn-devel-ubuntu22.04")
    assert made.image == "nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04"


def test_the_wheels_base_takes_no_tag() -> None:
    assert refused(tag="bookworm").message == "`tag` is bookworm, but base `wheels` takes no tag"


def test_nvidia_has_no_image_of_that_system() -> None:
    error = refused(torch="2.6.0", base="nvidia", os="debian12")
    assert "nvidia/cuda has no known tag for " in error.message


def test_pytorch_images_bring_torch() -> None:
    made = choose(base="pytorch", cuda="12.4", flavor="devel", packages=["einops"])
    assert made.image == "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel"
    assert (made.preinstalled, made.os, made.suite, made.backend) == (True, "", "", "")
    assert made.base_requirements == ("torch==2.6.0",)
    assert made.glibc == min(row.glibc for row in FACTS.oses)
    assert "python3" not in made.extras.apt.get("runtime", ())


def test_a_pytorch_tag_that_was_not_read() -> None:
    error = refused(base="pytorch", flavor="devel", cuda="12.4", tag="2.6.0-cuda12.4-cudnn8-devel")
    assert "pytorch/pytorch:2.6.0-cuda12.4-cudnn8-devel is not a known tag" in error.message
    assert "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel" in error.message


def test_the_system_of_a_pytorch_image_is_not_promised() -> None:
    with pytest.raises(UsageError, match="images of base `pytorch` is not known"):
        choose(base="pytorch", os="debian12")


NGC = {"base": "ngc", "tag": "26.07-py3", "torch": "2.13", "python": "3.12"}


def test_an_ngc_image_as_it_is() -> None:
    made = choose(**NGC, packages=["einops"])
    assert made.row is None
    assert (made.image, str(made.torch), str(made.cuda)) == ("nvcr.io/nvidia/pytorch:26.07-py3", "2.13.0a0", "13.3")
    assert (made.preinstalled, made.requirements, str(made.driver)) == (True, ("einops",), "580.65.06")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"torch": "2.6.0"}, "contains torch 2.13.0a0+9186a08b2c, but the spec says 2.6.0"),
        ({"torch": "<2.13"}, "contains torch"),
        ({"python": "3.10"}, "contains Python 3.12, but the spec says 3.10"),
        ({"cuda": "12.4"}, "contains CUDA 13.3.1, but the spec says 12.4"),
        ({"os": "ubuntu22.04", "python": "3.12"}, "is based on ubuntu24.04, but the spec says ubuntu22.04"),
        ({"driver": "550"}, "needs driver 580.65.06 or newer, but the spec says 550"),
    ],
)
def test_an_ngc_image_that_holds_something_else(change: dict[str, object], said: str) -> None:
    error = refused(**{**NGC, **change})
    assert said in error.message
    for nearest in error.nearest:
        found = re.match(r"tag (\S+) with torch", nearest)
        assert found or re.match(r"(base|os|python|driver) = |torch \S+ with CUDA", nearest), nearest
        assert not found or choose(**{**NGC, **change, "tag": found[1]}).image.endswith(f":{found[1]}")


def test_an_ngc_refusal_names_a_tag_where_there_is_one() -> None:
    assert refused(**{**NGC, "torch": "2.14"}).nearest


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tag": ""}, "does not say which image"),
        ({"tag": "99.01-py3"}, "is not a known image"),
        ({"tag": "26.08-py3"}, "are not fully known"),
        ({"gpus": ["H100"]}, "`gpus` cannot be checked"),
        ({"platform": "linux/arm64"}, "not known whether nvcr.io/nvidia/pytorch has images"),
    ],
)
def test_what_cannot_be_said_of_an_ngc_image(change: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        choose(**{**NGC, **change})


# Contradictions.


@pytest.mark.parametrize("package", ["torch==2.5.1", "Torch<2.6", "torch!=2.6.0"])
def test_a_second_torch_among_the_packages(package: str) -> None:
    error = refused(packages=[package])
    assert error.message == f"`packages` asks for {package}, but `torch` is 2.6.0"
    assert error.nearest[-1] == f'packages without ["{package}"]'


def test_advice_does_not_contradict_the_packages() -> None:
    wish: dict[str, object] = {"cuda": "12.1", "packages": ["torch>=2.6"]}
    error = refused(**wish)
    assert error.nearest
    for nearest in error.nearest:
        grant(nearest, **wish)


# arm64.


def test_arm64_of_a_release_that_has_it() -> None:
    made = choose(torch="2.11.0", platform="linux/arm64", gpus=["H100"])
    assert (str(made.cuda), made.targets[0].by) == ("13.0", "machine code of sm_90")


def test_arm64_of_a_release_whose_arm_wheels_have_no_cuda() -> None:
    error = refused(platform="linux/arm64")
    assert error.message == (
        "the aarch64 wheel of torch 2.6.0 on the default index is CPU-only: CUDA is included from torch 2.11.0 on"
    )
    assert conflict(error) == {"platform", "torch"}
    for nearest in error.nearest:
        grant(nearest, platform="linux/arm64")


def test_arm64_coverage_is_that_of_the_arm_wheel() -> None:
    """The x86_64 wheel of this release has sm_86, the aarch64 one was read to have fewer."""
    row = next(row for row in FACTS.torches if str(row.torch) == "2.4.1" and row.variant == "cu124")
    assert row.archs_aarch64 is not None
    assert len(row.archs_aarch64) == 1
    assert (
        "has no kernels for sm_70" in refused(torch="2.4.1", cuda="12.4", platform="linux/arm64", gpus=["V100"]).message
    )


@pytest.mark.parametrize("wish", [JAMMY, {"base": "pytorch"}])
def test_images_that_were_not_read_for_arm64_are_not_promised(wish: dict[str, object]) -> None:
    assert "linux/arm64" in refused(**wish, torch="2.11.0", platform="linux/arm64", flavor="devel").message


# Unknown is never a yes.


def altered(folder: Path, table: str, change: Callable[[dict[str, object]], None]) -> Facts:
    """The shipped facts with one table changed row by row."""
    for source in TABLES.glob("*.jsonl"):
        lines = source.read_text(encoding="utf-8").splitlines()
        if source.stem == table:
            rows = [json.loads(line) for line in lines]
            for row in rows:
                change(row)
            lines = [json.dumps(row) for row in rows]
        (folder / source.name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return Facts(folder)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (("published",), "was published"),
        (("archs", "ptx"), "is not known"),
        (("pythons",), "has a wheel for Python"),
    ],
)
def test_a_field_that_was_not_read_admits_nothing(tmp_path: Path, fields: tuple[str, ...], said: str) -> None:
    def forget(row: dict[str, object]) -> None:
        row.update(dict.fromkeys(fields))

    error = refused(altered(tmp_path, "torch", forget), gpus=["H100"])
    assert said in error.message
    assert set(error.nearest) <= {'gpus without ["H100"]'}


def test_a_cuda_without_a_driver_row_admits_nothing(tmp_path: Path) -> None:
    def other(row: dict[str, object]) -> None:
        row["cuda"] = "99.9" if row["torch"] == "2.6.0" else row["cuda"]
        row["toolkit"] = None

    error = refused(altered(tmp_path, "torch", other))
    assert "the oldest driver for CUDA 99.9 is not known" in error.message


def test_a_plan_is_told_as_a_plan() -> None:
    chain = refused(torch="2.15.0", gpus=["V100"]).chain
    assert [fact.split(" [")[0] for fact in chain[1:]] == [
        "torch 2.15.0+cu132 has no kernels for sm_70 (V100)",
        "no source confirms that torch 2.15.0+cu134 was published",
        "no source confirms that torch 2.15.0+cu130 was published",
        "it was announced that torch 2.15.0+cu126 would not be published",
    ]


def test_a_system_without_the_python_is_told_alone() -> None:
    chain = refused(torch=">=2.6", python="3.12", os="debian12").chain
    assert [fact.split(" [")[0] for fact in chain] == [
        'cannot be satisfied together: python = "3.12" and os = "debian12"',
        "debian12 ships Python 3.11, not 3.12 (as ubuntu24.04 does)",
    ]


def test_a_planned_build_is_not_offered() -> None:
    planned = [row for row in FACTS.torches if row.published is not True]
    assert planned
    for row in planned:
        error = refused(torch=str(row.torch), cuda=str(row.cuda), python="3.12")
        assert f"torch {row.torch} with CUDA {row.cuda}" not in error.nearest


# Advice is kept.

WISHES = st.fixed_dictionaries(
    {
        "torch": st.sampled_from([*sorted({str(row.torch) for row in FACTS.torches}), ">=2.6", "<2.5", "2.9"]),
        "python": st.sampled_from(["3.10", "3.11", "3.12", "3.13", "3.14"]),
        "cuda": st.sampled_from(["auto", *sorted({str(row.cuda) for row in FACTS.torches}), "12.2"]),
        "os": st.sampled_from(["auto", *(row.name for row in FACTS.oses)]),
        "base": st.sampled_from(["wheels", "wheels", "nvidia", "pytorch"]),
        "flavor": st.sampled_from(["runtime", "devel", "debug"]),
        "platform": st.sampled_from(["linux/amd64", "linux/amd64", "linux/arm64"]),
        "gpus": st.lists(
            st.sampled_from(["V100", "T4", "A100", "L4", "H100", "B200", "RTX 5090", "GTX 1080", "K80"]), max_size=3
        ),
        "driver": st.sampled_from(
            ["", "", "470", "525.60.13", "550", "580", ["595", "535.54.03"], ["595", "580.65.06"]]
        ),
        "packages": st.sampled_from([[], ["numpy"], ["torch>=2.6"]]),
    }
)


@pytest.mark.slow  # random wishes, each refused one solved again with each of its offers
@examples(40)
@given(WISHES)
def test_what_a_refusal_offers_is_granted(wish: dict[str, Any]) -> None:
    try:
        made = choose(**wish)
    except Unsatisfiable:
        error = refused(**wish)
        conflict(error)
        assert len(error.nearest) <= 4
        for nearest in error.nearest:
            grant(nearest, **wish)
        return
    except UsageError:
        return
    assert made.row is not None
    assert made.row.published is True
    assert made.driver
    assert [each.name for each in made.targets] == list(dict.fromkeys(wish["gpus"]))


ANYTHING: dict[str, object] = {
    "torch": ">=2", "cuda": "auto", "os": "auto", "base": "wheels", "platform": "linux/amd64", "gpus": [], "driver": "",
    "packages": [],
}  # fmt: skip


def met(wish: dict[str, Any], keys: set[str], gpus: list[str]) -> bool:
    """Whether these keys of the wish, and those GPUs of it, are met by anything at all."""
    kept = {**ANYTHING, **{key: wish[key] for key in keys if key in ANYTHING}, "flavor": wish["flavor"], "gpus": gpus}
    pythons = [wish["python"]] if "python" in keys else [str(row.python) for row in FACTS.oses]
    for python in pythons:
        try:
            choose(**{**kept, "python": python})
            return True
        except UsageError:
            continue
    return False


@pytest.mark.slow  # random wishes, each solved again without each of its keys
@pytest.mark.nightly
@examples(30)
@given(WISHES)
def test_a_conflict_is_one_and_has_no_spare(wish: dict[str, Any]) -> None:
    """Asked alone, the keys of a refusal are refused; without any one of them, the others are met."""
    try:
        choose(**wish)
        return
    except Unsatisfiable as error:
        refusal = error
    except UsageError:
        return
    keys = conflict(refusal)
    named = re.search(r"gpus = (\[.*?\])", refusal.chain[0])
    gpus: list[str] = json.loads(named[1]) if named else []
    assert set(gpus) <= set(wish["gpus"])
    assert not met(wish, keys, gpus)
    for key in keys - {"gpus"}:
        assert met(wish, keys - {key}, gpus), key
    for gpu in gpus:
        left = [other for other in gpus if FACTS.gpu(other).sm != FACTS.gpu(gpu).sm]
        assert met(wish, keys, left), gpu


def test_the_same_wish_gives_the_same_answer() -> None:
    assert choose(gpus=["H100"]) == choose(gpus=["H100"])


def test_a_base_with_torch_needs_no_index_but_the_default_one() -> None:
    choice = choose(torch="2.6.0", python="3.11", base="pytorch", cuda="12.6")
    assert choice.preinstalled and choice.row is not None and not choice.row.default
    assert choice.requirements[0] == "torch==2.6.0"
    assert choice.base_requirements == ("torch==2.6.0",)
    assert choice.backend == ""
