"""Which torch an install gives, and for which CUDA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from envkit import facts as tables
from envkit.dockerfile.torches import cuda_of, of_install, variant_of, wins
from envkit.model import Observed, Span
from envkit.subjects.dockerfile import Base, Install

FACTS = tables.load()
AT = Span("Dockerfile", 3)
BASE = Base("nvidia/cuda:x", "nvidia/cuda", "x", "", AT, cuda=Observed.of("12.1.0", "tag"))
TORCH = Install("pip", "torch", AT)
WHL = "https://download.pytorch.org/whl"


@pytest.mark.parametrize(
    ("url", "variant"),
    [
        (f"{WHL}/cu118", "cu118"),
        (f"{WHL}/cu118/", "cu118"),
        (f"{WHL}/cpu/torch_stable.html", "cpu"),
        (f"{WHL}/nightly/cu121", "cu121"),
        (f"{WHL}/test/cu126/", "cu126"),
        (f"{WHL}/rocm6.1", "rocm6.1"),
        ("https://mirror.example.com/pytorch-wheels/cu121/", "cu121"),
        (f"{WHL}/cu100/torch-1.0.1-cp37-cp37m-linux_x86_64.whl", "cu100"),
        (f"{WHL}/torch_stable.html", ""),
        ("https://mirror.example.com/simple", ""),
        ("https://wheels.example.org/whl/torch-2.1.0+cu118.html", ""),
    ],
)
def test_an_index_of_torch_says_its_variant(url: str, variant: str) -> None:
    assert variant_of(url) == variant


@pytest.mark.parametrize(
    ("variant", "cuda"),
    [
        ("cu118", "11.8"),
        ("cu92", "9.2"),
        ("cu130", "13.0"),
        ("cpu", "cpu"),
        ("rocm6.1", "rocm6.1"),
        ("", ""),
        ("x", ""),
    ],
)
def test_a_variant_is_a_cuda(variant: str, cuda: str) -> None:
    assert cuda_of(variant) == cuda


@pytest.mark.parametrize(
    ("changes", "version", "cuda"),
    [
        ({"version": "2.1.0"}, "2.1.0", "12.1"),
        ({"version": "2.1.0", "local": "cu118"}, "2.1.0", "11.8"),
        ({"version": "2.1.0", "index": f"{WHL}/cu118"}, "2.1.0", "11.8"),
        ({"index": f"{WHL}/cpu"}, "", "cpu"),
        ({"version": "2.1.0", "extra_indexes": (f"{WHL}/cu118",)}, "2.1.0", "11.8"),
        ({"version": "2.1.0", "extra_indexes": (f"{WHL}/cu124",)}, "2.1.0", "12.1"),
        ({"extra_indexes": (f"{WHL}/cu118",)}, "", ""),
        ({"manager": "uv", "extra_indexes": (f"{WHL}/cu118",)}, "", "11.8"),
        ({}, "", ""),
        ({"version": "2.1.0", "index": "https://wheels.example.com/private"}, "2.1.0", ""),
        ({"version": "2.1.0", "index": "https://mirror.example.com/simple"}, "2.1.0", "12.1"),
        ({"version": "99.0.0"}, "99.0.0", ""),
        ({"version": "2.1.0", "index": f"{WHL}/rocm5.6"}, "2.1.0", ""),
        ({"manager": "source", "version": "2.1.0"}, "2.1.0", "12.1.0"),
        ({"url": "https://example.com/torch.tar.gz"}, "", ""),
    ],
)
def test_version_and_cuda_come_of_the_pin_and_the_indexes(changes: dict[str, Any], version: str, cuda: str) -> None:
    install = replace(TORCH, **changes)
    torch = of_install(install, [install], BASE, FACTS)
    assert (torch.version.value or "", torch.cuda.value or "") == (version, cuda)
    assert torch.cuda.missing or torch.cuda.via


@pytest.mark.parametrize(
    ("near", "cuda"),
    [
        (Install("conda", "pytorch-cuda", AT, specifier="=11.8"), "11.8"),
        (Install("conda", "cudatoolkit", AT, version="11.3"), "11.3"),
        (Install("conda", "cuda-version", AT, specifier="=12.4.*"), "12.4"),
        (Install("conda", "cpuonly", AT), "cpu"),
        (Install("conda", "numpy", AT), ""),
        (Install("conda", "pytorch-cuda", AT, specifier="=11.8", prefix="/other"), ""),
        (Install("pip", "cudatoolkit", AT, version="11.3"), ""),
    ],
)
def test_conda_takes_the_cuda_of_a_package_beside_torch(near: Install, cuda: str) -> None:
    install, other = Install("conda", "torch", AT, version="1.12.1"), Install("conda", "numpy", AT, version="1.26")
    assert (of_install(install, [install, other, near, other], BASE, FACTS).cuda.value or "") == cuda


def test_a_build_string_and_a_label_name_the_cuda_too() -> None:
    built = Install("conda", "torch", AT, version="2.1.0", local="cu118")
    assert of_install(built, [built], BASE, FACTS).cuda.value == "11.8"
    labelled = Install("conda", "torch", AT, version="2.1.0", channels=("nvidia/label/cuda-12.1.0",))
    assert of_install(labelled, [labelled], BASE, FACTS).cuda.value == "12.1"


def test_the_wheels_for_arm_had_no_cuda_for_long() -> None:
    install = replace(TORCH, version="2.5.0")
    assert of_install(install, [install], BASE, FACTS, arm=True).cuda.value == "cpu"
    assert of_install(install, [install], BASE, FACTS).cuda.value == "12.4"


def test_a_pinned_version_wins_only_on_an_index_that_has_it() -> None:
    assert wins(replace(TORCH, version="2.1.0"), "cu118", FACTS)
    assert not wins(replace(TORCH, version="2.1.0"), "cu126", FACTS)
    assert not wins(TORCH, "cu118", FACTS)
    assert wins(replace(TORCH, options=frozenset({"--pre"})), "cu118", FACTS)


def test_the_folder_of_a_wheel_says_the_cuda_where_its_name_does_not() -> None:
    wheel = replace(TORCH, version="1.0.1", url=f"{WHL}/cu100/torch-1.0.1-cp37-cp37m-linux_x86_64.whl")
    assert of_install(wheel, (), BASE, FACTS).cuda.value == "10.0"
    elsewhere = replace(wheel, url="https://example.com/torch-1.0.1-cp37-cp37m-linux_x86_64.whl")
    assert "names no CUDA" in of_install(elsewhere, (), BASE, FACTS).cuda.missing
