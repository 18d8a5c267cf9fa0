"""Wishes that nothing can meet: each is refused with its true reason, and a change that the refusal names has an answer
when it is taken."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from index import Index, asked_by_uv, publish_extras

from envkit.errors import Unsatisfiable, UsageError
from envkit.facts import load
from envkit.plan import solve, wheels
from envkit.plan.lockfile import PARTS
from envkit.plan.resolve import feasible, resolve
from envkit.plan.spec import Spec, parse
from envkit.versions import Torch

FACTS = load()
OLD, LATE = "2020-01-02T03:04:05.000000Z", "2026-01-02T03:04:05.000000Z"
Wish = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """A wish; what its refusal must say, in its message or the chain behind it; and the change that is taken where it
    names none as "nearest", with the words of its fix that do."""

    wish: Wish
    reason: tuple[str, ...]
    change: Wish = field(default_factory=dict)
    fix: str = ""
    wheels: tuple[tuple[str, ...], ...] = ()  # name, version, requirements, and "tag=...", "uploaded=..."


BY_FACTS = {
    # GPUs
    "a GPU that is newer than the torch": Row(
        {"torch": "2.6.0", "gpus": ["RTX 5090"]}, ("no kernels for sm_120 (RTX 5090)", "needs torch >= 2.7.0")
    ),
    "a GPU that is older than the CUDA": Row(
        {"torch": "2.10.0", "gpus": ["V100"], "cuda": "13.0"},
        ("no kernels for sm_70 (V100)", "torch 2.10.0 has them for CUDA 12.6 and 12.8"),
    ),
    "a GPU that is older than the torch": Row(
        {"torch": "2.15.0", "gpus": ["V100"]}, ("no kernels for sm_70 (V100)", "the last torch with them is 2.14.1")
    ),
    "two GPUs that no build serves": Row(
        {"torch": ">=2.4", "gpus": ["GTX 1080", "B300"]}, ("sm_61 (GTX 1080)", "sm_103 (B300)", "no known build")
    ),
    "a GPU that nobody makes": Row(
        {"torch": "2.6.0", "gpus": ["H1000"]}, ("no facts about the GPU `H1000`",), {"gpus": ["H100"]}, "H100"
    ),
    "a GPU and packages that ask for an older torch": Row(
        {"torch": ">=2.4", "packages": ["torch<2.7"], "gpus": ["RTX 5090"]},
        ("no kernels for sm_120", 'packages = ["torch<2.7"]'),
    ),
    "a new GPU in a machine with a driver from before it": Row(
        {"torch": ">=2.7", "gpus": ["RTX 5090"], "driver": "525"}, ("needs driver", "the spec declares 525")
    ),
    "an old GPU in a machine with a driver that has dropped it": Row(
        {"torch": ">=2.4", "gpus": ["V100"], "driver": "595"},
        ("no driver after branch 580 knows sm_70 (V100)", "architecture matrix"),
    ),
    "a fleet of which no driver knows one of its GPUs": Row(
        {"torch": ">=2.4", "gpus": ["A100", "B200"], "driver": ["535", "550"]},
        ("sm_100 (B200) needs driver branch 570 or newer", "declares 535 and 550"),
    ),
    # drivers
    "a driver that is older than the CUDA major": Row(
        {"torch": "2.15.0", "driver": "550"}, ("needs driver 580.65.06 or newer", "declares 550", "cuda-compat")
    ),
    "a driver that runs no torch at all": Row(
        {"torch": ">=2.0", "driver": "390"}, ("declares 390", "whatever else changes")
    ),
    "one old driver in a fleet": Row({"torch": "2.15.0", "driver": ["610", "550"]}, ("declares 610 and 550",)),
    # Python and systems
    "a Python that is newer than the torch": Row(
        {"torch": "2.4.0", "python": "3.14"}, ("torch 2.4.0 has no wheel for Python 3.14", "cp312")
    ),
    "a Python that the torch has left behind": Row(
        {"torch": "2.9.0", "python": "3.8"}, ("torch 2.9.0 has no wheel for Python 3.8", "cp310")
    ),
    "a Python that no distribution ships": Row(
        {"torch": "2.6.0", "python": "3.9"}, ("ships Python 3.9",), {"python": "3.11"}, "3.11 (debian12)"
    ),
    "a distribution with another Python": Row(
        {"torch": "2.6.0", "os": "ubuntu22.04"}, ("ubuntu22.04 ships Python 3.10, not 3.11",)
    ),
    "a distribution that is too old for the torch": Row(
        {"torch": "2.9.0", "python": "3.8", "os": "ubuntu20.04"}, ("no wheel for Python 3.8",)
    ),
    "a distribution that is misspelt": Row(
        {"torch": "2.6.0", "os": "debain12"}, ("operating system `debain12`",), {"os": "debian12"}, "debian12"
    ),
    # CUDA
    "a CUDA that the torch was not built for": Row(
        {"torch": "2.6.0", "cuda": "12.1"}, ("not published for CUDA 12.1; it was for 11.8, 12.4 and 12.6",)
    ),
    "a CUDA that was dropped": Row({"torch": "2.15.0", "cuda": "12.6"}, ("2.15.0+cu126 would not be published",)),
    "a CUDA from before all of the range": Row({"torch": ">=2.4", "cuda": "11.0"}, ("published for CUDA 11.0",)),
    "a CUDA that is newer than any build": Row({"torch": "2.15.0", "cuda": "13.5"}, ("published for CUDA 13.5",)),
    # torch
    "a torch that nobody has released": Row(
        {"torch": "2.99.0"}, ("torch release `2.99.0`",), {"torch": "2.15.0"}, "2.15.0"
    ),
    "a range that nothing is in": Row(
        {"torch": ">=2.6,<2.5"}, ("no torch release that the facts know", ">=2.6,<2.5"), {"torch": ">=2.15.0"}, ">=2.15"
    ),
    "another torch among the packages": Row(
        {"torch": "2.6.0", "packages": ["torch==2.7.0"]}, ("`packages` asks for torch==2.7.0, but `torch` is 2.6.0",)
    ),
    "another torch among the constraints": Row(
        {"torch": "2.6.0", "constraints": ["torch<2.5"]}, ("`constraints` asks for torch<2.5, but `torch` is 2.6.0",)
    ),
    "a torch from before all that can be locked among the packages": Row(
        {"torch": ">=1.12", "packages": ["torch==1.12.1"]},
        ("`packages` asks for torch==1.12.1, and the releases that envkit can lock are 2.0.0 to ",),
    ),
    "packages that ask for no torch together": Row(
        {"torch": ">=2.4", "packages": ["torch<2.6", "torch>=2.7"]}, ("torch<2.6 (`packages`)", "together")
    ),
    "a build written into the key torch": Row(
        {"torch": "2.6.0+cu124"}, ("the build is chosen by `cuda`",), {"torch": "2.6.0", "cuda": "12.4"}, "set `cuda`"
    ),
    # platforms and bases
    "CUDA on arm64 before there was any": Row(
        {"torch": "2.6.0", "platform": "linux/arm64"}, ("the aarch64 wheel of torch 2.6.0", "CPU-only")
    ),
    "a Jetson, for which the index has no build": Row(
        {"torch": "2.6.0", "platform": "linux/arm64", "gpus": ["Jetson AGX Orin"]}, ("CPU-only",)
    ),
    "NVIDIA's base on arm64": Row(
        {"torch": "2.11.0", "python": "3.12", "platform": "linux/arm64", "base": "nvidia"},
        ("no source confirms that base `nvidia` has images for linux/arm64",),
    ),
    "NVIDIA's base on a distribution that it does not have": Row(
        {"torch": "2.6.0", "base": "nvidia"}, ("no known tag for a base image of CUDA 12.4 on debian12",)
    ),
    "a tag of another CUDA": Row(
        {"torch": "2.6.0", "python": "3.10", "base": "nvidia", "tag": "12.1.0-base-ubuntu22.04"},
        ("does not fit the request", "12.4.1-base-ubuntu22.04"),
    ),
    "a tag of another torch": Row(
        {"torch": "2.6.0", "base": "pytorch", "tag": "2.5.1-cuda12.4-cudnn9-runtime"}, ("is not a known tag",)
    ),
    "a tag without a base that has tags": Row({"torch": "2.6.0", "tag": "x"}, ("base `wheels` takes no tag",)),
    "a distribution of an image that does not tell": Row(
        {"torch": "2.6.0", "base": "pytorch", "os": "debian12"}, ("is not known",), {"os": None}, "drop `os`"
    ),
    "an NGC image with another torch": Row(
        {"torch": "2.6.0", "python": "3.12", "base": "ngc", "tag": "25.10-py3"}, ("contains torch 2.9.0a0",)
    ),
    "an NGC image for a newer driver": Row(
        {"torch": ">=2.6", "python": "3.12", "base": "ngc", "tag": "25.10-py3", "driver": "470"},
        ("needs driver 580", "cuda-compat-13-0 does not help driver 470"),
    ),
    "an NGC image that is not said": Row(
        {"torch": ">=2.6", "python": "3.12", "base": "ngc"}, ("does not say which",), {"tag": "26.09-py3"}, "26.09-py3"
    ),
}

X86, CP312 = "manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_x86_64"
BY_SOLVER = {
    "a torchaudio of another torch, though its METADATA names none": Row(
        {"torch": "2.6.0", "packages": ["torchaudio==2.5.1"]},
        ("torchaudio 2.5.1 is for torch 2.5.1, not for 2.6.0",),
        wheels=(("torchaudio", "2.5.1"), ("torchaudio", "2.6.0")),
    ),
    "a torchvision of another torch": Row(
        {"torch": "2.6.0", "packages": ["torchvision==0.20.0"]},
        ("torchvision<=0.20.0 depends on torch==2.5.0", "goes with torch 2.5.0, but `torch` is 2.6.0"),
        wheels=(("torchvision", "0.20.0", "torch==2.5.0"), ("torchvision", "0.21.0", "torch==2.6.0")),
    ),
    "two pins that contradict": Row(
        {"torch": "2.6.0", "packages": ["left==1", "right==1"]},
        ("right<=1 depends on deep==2", "all versions of left depend on deep==1"),
        wheels=(("left", "1", "deep==1"), ("right", "1", "deep==2"), ("right", "2"), ("deep", "1"), ("deep", "2")),
    ),
    "two bounds of one package": Row(
        {"torch": "2.6.0", "packages": ["both<2", "both>=2"]},
        ("you require both<2 and both>=2",),
        wheels=(("both", "1"), ("both", "2")),
    ),
    "a package that requires another torch": Row(
        {"torch": "2.6.0", "packages": ["served==2.0"]},
        ("served>=2.0 depends on torch==2.7.1", "goes with torch 2.7.1, but `torch` is 2.6.0"),
        wheels=(("served", "1.0", "torch==2.6.0"), ("served", "2.0", "torch==2.7.1")),
    ),
    "a package that requires a torch past the range": Row(
        {"torch": ">=2.6,<2.8", "packages": ["ahead"]},
        ("depend on torch==2.8.0", "goes with torch 2.8.0, but `torch` is >=2.6,<2.8"),
        wheels=(("ahead", "1.0", "torch==2.8.0"),),
    ),
    "a package whose torch has no code for the GPU": Row(
        {"torch": ">=2.6", "gpus": ["RTX 5090"], "packages": ["behind==1.0"]},
        ("goes with torch 2.6.0", "no kernels for sm_120 (RTX 5090)"),
        wheels=(("behind", "1.0", "torch==2.6.0"), ("behind", "2.0", "torch==2.8.0")),
    ),
    "what a package brings has no code for the GPU": Row(
        {"torch": ">=2.6", "gpus": ["RTX 5090"], "packages": ["above==1.0"]},
        ("below depend on torch==2.6.0", "no kernels for sm_120 (RTX 5090)"),
        wheels=(("above", "1.0", "below"), ("above", "2.0"), ("below", "1.0", "torch==2.6.0")),
    ),
    "a package whose torch needs a newer driver": Row(
        {"torch": ">=2.6", "driver": "550", "packages": ["fresh==3.0"]},
        ("goes with torch 2.15.0", "needs driver 580.65.06 or newer, but the spec declares 550"),
        wheels=(("fresh", "2.0", "torch==2.8.0"), ("fresh", "3.0", "torch==2.15.0")),
    ),
    "a package whose torch was not built for the CUDA": Row(
        {"torch": ">=2.6", "cuda": "12.4", "packages": ["newer==2.0"]},
        ("goes with torch 2.8.0", "not published for CUDA 12.4"),
        wheels=(("newer", "1.0", "torch==2.6.0"), ("newer", "2.0", "torch==2.8.0")),
    ),
    "a package that the torch in the base is too old for": Row(
        {"torch": "2.6.0", "base": "pytorch", "packages": ["onbase"]},
        ("goes with torch 2.7.1, but `torch` is 2.6.0",),
        wheels=(("onbase", "1.0", "torch==2.7.1"),),
    ),
    "a package without a wheel for this Python": Row(
        {"torch": "2.6.0", "packages": ["fast"]},
        ("fast==1.0 has no wheels with a matching Python implementation tag", "`cp312`"),
        wheels=(("fast", "1.0", f"tag={CP312}"),),
    ),
    "a release without a wheel for this Python": Row(
        {"torch": "2.6.0", "packages": ["quick==2.0"]},
        ("quick==2.0 has no wheels with a matching Python",),
        wheels=(("quick", "1.0"), ("quick", "2.0", f"tag={CP312}")),
    ),
    "a package without a wheel for arm64": Row(
        {"torch": "2.11.0", "platform": "linux/arm64", "packages": ["narrow"]},
        ("narrow", "platform", "`manylinux_2_28_x86_64`"),
        wheels=(("narrow", "1.0", f"tag=cp311-cp311-{X86}"),),
    ),
    "a package for a newer system": Row(
        {"torch": "2.6.0", "packages": ["young"]},
        ("young==1.0 has no wheels with a matching platform tag", "`manylinux_2_39_x86_64`"),
        wheels=(("young", "1.0", "tag=py3-none-manylinux_2_39_x86_64"),),
    ),
    "a package with pre-releases alone": Row(
        {"torch": "2.6.0", "packages": ["early"]},
        ("no early but pre-release 1.0.dev5 goes with the rest of the spec",),
        wheels=(("early", "1.0.dev5"),),
    ),
    "a package from after the day": Row(
        {"torch": "2.6.0", "exclude-newer": "2025-03-01", "packages": ["late"]},
        ("`late` was filtered by `exclude-newer`",),
        wheels=(("late", "1.0", f"uploaded={LATE}"),),
    ),
    "a release from after the day": Row(
        {"torch": "2.6.0", "exclude-newer": "2025-03-01", "packages": ["later==2.0"]},
        ("later==2.0", "`exclude-newer`"),
        wheels=(("later", "1.0"), ("later", "2.0", f"uploaded={LATE}")),
    ),
    "a package that no index has": Row(
        {"torch": "2.6.0", "packages": ["nunpy"]}, ("nunpy was not found in the package registry",)
    ),
    "a release that was never made": Row(
        {"torch": "2.6.0", "packages": ["counted==99"]},
        ("there is no version of counted==99",),
        wheels=(("counted", "1"), ("counted", "2")),
    ),
    "a constraint against what a package needs": Row(
        {"torch": "2.6.0", "packages": ["needy"], "constraints": ["thing<2"]},
        ("needy depend on thing>=2 and thing<2",),
        wheels=(("needy", "2.0", "thing>=2"), ("thing", "1"), ("thing", "2")),
    ),
    "an override that no release meets": Row(
        {"torch": "2.6.0", "packages": ["calm"], "overrides": ["part==3"]},
        ("there is no version of part==3",),
        wheels=(("calm", "1", "part==1"), ("part", "1")),
    ),
    "a package that is years older than its torch": Row(
        {"torch": "2.6.0", "packages": ["aged"]},
        ("release 0.1 of 2020; torch 2.6.0 is of 2025", "aged>=1.0 depends on torch==2.7.1"),
        wheels=(("aged", "0.1", f"uploaded={OLD}"), ("aged", "1.0", "torch==2.7.1")),
    ),
    "an extra whose package requires another torch": Row(
        {"torch": "2.6.0", "packages": ["parted[fast]==1.0"]},
        ("parted[fast]", "torch==2.7.1"),
        wheels=(("parted", "1.0", 'inner; extra == "fast"'), ("parted", "1.1"), ("inner", "1.0", "torch==2.7.1")),
    ),
    "a library of another CUDA": Row(
        {"torch": "2.6.0", "packages": ["nvidia-cublas-cu11", "nvidia-cublas-cu12"]},
        (
            "nvidia-cublas-cu11 11.1 belongs to CUDA 11, torch 2.6.0 to CUDA 12.4",
            "paths as those of nvidia-cublas-cu12",
        ),
        {"packages": ["nvidia-cublas-cu12"]},
        "ask for nvidia-cublas-cu12",
        (("nvidia-cublas-cu11", "11.1"), ("nvidia-cublas-cu12", "12.4")),
    ),
}


def spec_of(wish: Wish) -> Spec:
    held = {"python": "3.11", **wish}
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in held.items() if value is not None)
    return parse(text, Path("/srv/job/envkit.toml"))


def taken(wish: Wish, nearest: str) -> Wish:
    """The wish after a change that a refusal names."""
    both = re.fullmatch(r"(.+) and (torch \S+ with CUDA \S+)", nearest)
    if both:
        return taken(taken(wish, both[1]), both[2])
    if found := re.fullmatch(r"torch (\S+) with CUDA (\S+)", nearest):
        return {**wish, "torch": found[1], "cuda": found[2]}
    if found := re.fullmatch(r"tag (\S+) with torch .*", nearest):
        return {**wish, "tag": found[1]}
    if nearest == "no `tag`":
        return {**wish, "tag": None}
    if found := re.fullmatch(r'(\S+) = "(\S+)"(?: or newer)?(?: with (\S+))?', nearest):
        system = {"os": found[3]} if found[3] else {}
        without = {"tag": None} if found[1] == "base" else {}
        return {**wish, **system, **without, found[1]: found[2]}
    if found := re.fullmatch(r"(\S+) without (\[.*\])", nearest):
        return {**wish, found[1]: [each for each in wish[found[1]] if each not in json.loads(found[2])]}
    found = re.fullmatch(r"(\S+) (\S+)", nearest)
    assert found, f"nobody can take this: {nearest}"
    lines = [re.sub(rf"^({found[1]}(?:\[.*\])?)([=<>].*)?$", rf"\1=={found[2]}", each) for each in wish["packages"]]
    assert lines != wish["packages"]
    return {**wish, "packages": list(dict.fromkeys(lines))}


def held_to(row: Row, error: UsageError) -> list[Wish]:
    """The wishes with each change that the refusal names, after its words were held to the row."""
    chain = error.chain if isinstance(error, Unsatisfiable) else ()
    nearest = error.nearest if isinstance(error, Unsatisfiable) else ()
    said = "\n".join((error.message, *chain))
    assert [each for each in row.reason if each not in said] == [], said
    if row.change:
        assert not nearest and row.fix in error.fix, (nearest, error.fix)
        return [{**row.wish, **row.change}]
    assert nearest, said
    return [taken(row.wish, each) for each in nearest]


@pytest.mark.parametrize("name", BY_FACTS)
def test_the_facts_forbid_it_and_grant_what_they_name_instead(name: str) -> None:
    row = BY_FACTS[name]
    with pytest.raises(UsageError) as caught:
        resolve(spec_of(row.wish), FACTS)
    for wish in held_to(row, caught.value):
        resolve(spec_of(wish), FACTS)


@pytest.fixture(scope="module")
def shelves(tmp_path_factory: pytest.TempPathFactory, pythons: Path) -> Iterator[Index]:
    """An index with every torch that a row may come to, what envkit adds to it, and the packages of all rows."""
    made, folder = Index(), tmp_path_factory.mktemp("shelves")
    made.folder = folder / "wheels"
    made.folder.mkdir()
    shutil.copytree(pythons, folder / "cache")
    for python, machine in (("3.11", "x86_64"), ("3.12", "x86_64"), ("3.11", "aarch64")):
        platform = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[machine]
        tag = f"cp3{python[2:]}"
        for choice in feasible(spec_of({"torch": ">=2.4", "python": python, "platform": platform}), FACTS):
            major = choice.cuda.major
            made.add("torch", str(choice.torch), f"nvidia-cudnn-cu{major}", tag=f"{tag}-{tag}-manylinux_2_28_{machine}")
            made.add(f"nvidia-cudnn-cu{major}", "9.1.0.70")
            publish_extras(made, choice.extras.wheels)
    made.add("setuptools", "80.9.0")
    for machine in ("x86_64", "aarch64"):
        made.add("uv", wheels.uv_version(), tag=f"py3-none-manylinux_2_17_{machine}")
    for row in BY_SOLVER.values():
        for name, version, *more in row.wheels:
            facts = dict(each.split("=", 1) for each in more if re.match("(tag|uploaded)=", each))
            made.add(name, version, *[each for each in more if not re.match("(tag|uploaded)=", each)], **facts)
    with pytest.MonkeyPatch.context() as patched:
        asked_by_uv(made, folder / "cache", patched)
        yield made
    made.server.shutdown()
    made.server.server_close()


lock = partial(solve.lock, facts=FACTS, say=lambda line: None, may_stay_open=PARTS)


@pytest.mark.slow  # a whole lock for each change that is named
@pytest.mark.parametrize("name", BY_SOLVER)
def test_the_packages_forbid_it_and_lock_with_what_is_named_instead(name: str, shelves: Index) -> None:
    row = BY_SOLVER[name]
    with pytest.raises(UsageError) as caught:
        lock(spec_of(row.wish))
    wish, *_ = held_to(row, caught.value)  # each was solved before it was named
    assert spec_of(wish).torch.admits(Torch(str(lock(spec_of(wish)).torch)))


def test_there_are_thirty_of_them_and_more() -> None:
    assert len(BY_FACTS) > 30 and len(BY_SOLVER) > 20
