"""What the image under a FROM holds: its reference taken apart, its tag read, the facts asked."""

from __future__ import annotations

import answers
import pytest
from clocks import costs_less
from gathered import gathered
from hypothesis import given
from hypothesis import strategies as st

from envkit.dockerfile.bases import Reference, base, split
from envkit.facts import load
from envkit.model import Observed, Span
from envkit.subjects.dockerfile import Base

FACTS = load()
SPAN = Span("Dockerfile", 1, 6, 1, 20)


def read(reference: str, *, sure: bool = True) -> Base:
    return answers.same("bases", (reference, sure), base(reference, SPAN, FACTS, sure=sure))


def shown(value: Observed[str] | Observed[bool]) -> object:
    """The value, "none" for what is surely not there, "?" for what was not observed."""
    if value.missing:
        return "none" if value.is_unsupported else "?"
    return value.value


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("ubuntu", Reference("", "ubuntu", "", "")),
        ("library/ubuntu:22.04", Reference("", "ubuntu", "22.04", "")),
        ("docker.io/library/python:3.11-slim", Reference("", "python", "3.11-slim", "")),
        ("index.docker.io/nvidia/cuda:x", Reference("", "nvidia/cuda", "x", "")),
        ("localhost:5000/a/b:c", Reference("localhost:5000", "a/b", "c", "")),
        ("localhost/a", Reference("localhost", "a", "", "")),
        ("host:5000/a", Reference("host:5000", "a", "", "")),
        ("nvcr.io/nvidia/cuda:t@sha256:0a", Reference("nvcr.io", "nvidia/cuda", "t", "sha256:0a")),
        ("a@sha256:0a", Reference("", "a", "", "sha256:0a")),
        ("", Reference("", "", "", "")),
        (":", Reference("", "", "", "")),
    ],
)
def test_a_reference_is_taken_apart(reference: str, parts: Reference) -> None:
    assert split(reference) == parts


def test_the_repository_keeps_a_registry_that_is_not_the_default() -> None:
    assert split("nvcr.io/nvidia/pytorch:23.10-py3").repository == "nvcr.io/nvidia/pytorch"
    assert split("docker.io/nvidia/cuda:x").repository == "nvidia/cuda"


# cuda, cudnn, flavor, os, nvcc, compiler
@pytest.mark.parametrize(
    ("tag", "held"),
    [
        ("12.4.1-cudnn-devel-ubuntu22.04", ("12.4.1", "9.1.0.70", "devel", "ubuntu22.04", True, True)),
        ("11.8.0-cudnn8-runtime-ubuntu20.04", ("11.8.0", "8", "runtime", "ubuntu20.04", False, False)),
        ("12.3.2-cudnn9-devel-rockylinux9", ("12.3.2", "9", "devel", "rockylinux9", True, True)),
        ("12.6.3-base-ubi8", ("12.6.3", "none", "base", "ubi8", False, False)),
        ("12.8.1-devel-amzn2023", ("12.8.1", "none", "devel", "amzn2023", True, True)),
        ("12.6.0-devel-cm2", ("12.6.0", "none", "devel", "cm2", True, True)),
        ("13.2.0-cudnn-devel-ubuntu22.04", ("13.2.0", "9", "devel", "ubuntu22.04", True, True)),
        ("10.2-cudnn7-devel-ubuntu18.04", ("10.2", "7", "devel", "ubuntu18.04", True, True)),
        ("9.0-base", ("9.0", "none", "base", "ubuntu16.04", False, False)),
        ("10.1-devel", ("10.1", "none", "devel", "ubuntu18.04", True, True)),
        ("", ("?", "?", "?", "?", "?", "?")),
        ("latest", ("?", "?", "?", "?", "?", "?")),
    ],
)
def test_tags_of_nvidia_cuda(tag: str, held: tuple[object, ...]) -> None:
    found = read(f"nvidia/cuda:{tag}" if tag else "nvidia/cuda")
    values = (found.cuda, found.cudnn, found.flavor, found.os, found.nvcc, found.compiler)
    assert tuple(shown(value) for value in values) == held
    assert found.family == "nvidia"
    if tag[:1].isdigit():
        assert shown(found.torch) == "none"
        assert found.variables["CUDA_VERSION"] == held[0]


@pytest.mark.parametrize("name", ["registry.example/cuda:1.4.0-12.1.1", "registry.example/torch:2.1.0-12.1.1"])
def test_the_release_of_an_image_is_not_its_cuda(name: str) -> None:
    assert shown(read(name).cuda) == "?"


def test_opengl_is_numbered_after_a_library_that_is_not_cuda() -> None:
    found = read("nvidia/opengl:1.2-glvnd-runtime-ubuntu20.04")
    assert [shown(each) for each in (found.cuda, found.cudnn, found.flavor, found.os)] == ["none"] * 3 + ["ubuntu20.04"]


@pytest.mark.parametrize(
    ("tag", "path"),
    [
        ("12.4.1-base-ubuntu22.04", "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"),
        ("12.8.0-base-ubuntu22.04", "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"),
        ("12.8.1-base-ubuntu22.04", "/usr/local/cuda/lib64"),
        ("13.0.0-base-ubuntu24.04", "/usr/local/nvidia/lib:/usr/local/nvidia/lib64:/usr/local/cuda/lib64"),
    ],
)
def test_the_library_path_of_nvidia_cuda_changed_over_time(tag: str, path: str) -> None:
    assert read(f"nvidia/cuda:{tag}").variables["LD_LIBRARY_PATH"] == path


@pytest.mark.parametrize(
    ("tag", "near"),
    [
        ("12.4.1-cudnn8-devel-ubuntu22.04", "12.4.1-cudnn-devel-ubuntu22.04"),  # cuDNN 9 came without its number
        ("12.2.2-cudnn-devel-ubuntu22.04", "12.2.2-cudnn8-devel-ubuntu22.04"),  # and cuDNN 8 never did
        ("12.1-devel-ubuntu22.04", "12.1.1-devel-ubuntu22.04"),  # two numbers
        ("11.8-cudnn8-devel-ubuntu20.04", "11.8.0-cudnn8-devel-ubuntu20.04"),
        ("12.2.0-cudnn8-devel-ubuntu22.04", "12.2.0-devel-ubuntu22.04"),  # a first release without cuDNN
        ("11.6.2-runtime-ubuntu22.04", "11.6.2-runtime-ubuntu20.04"),  # a system that came later
        ("12.4.1-base-centos7", "12.4.1-base-"),  # and one that was dropped
        ("12.2.1-devel-ubuntu22.04", "12.2.2-devel-ubuntu22.04"),  # an update that was passed over
        ("11.3.3-devel-ubuntu20.04", "11.3.1-devel-ubuntu20.04"),  # toolkits that never were
        ("12.7.0-base-ubuntu22.04", "12.8.0-base-ubuntu22.04"),
        ("11.8.0-devel-cudnn8-ubuntu22.04", "11.8.0-cudnn8-devel-ubuntu22.04"),  # wrong order
        ("12.1.1-devel", "12.1.1-devel-"),  # no system
    ],
)
def test_tags_of_nvidia_cuda_that_never_were(tag: str, near: str) -> None:
    found = read(f"nvidia/cuda:{tag}")
    assert found.exists.value is False
    assert any(near in name for name in found.near_tags)


@pytest.mark.parametrize(
    "reference",
    [
        "nvidia/cuda:11.1.0-devel-ubuntu18.04",  # the aliases of that time are not all known
        "nvidia/cuda:11.4.4-devel-ubuntu20.04",  # a toolkit later than the newest image of its minor
        "nvidia/cuda:12.8.2-base-ubuntu24.04",
        "nvidia/cuda:12.9.2-runtime-ubi9",  # known from users alone
        "nvidia/cuda:13.1.0-cudnn-devel-ubuntu24.04",  # the newest of the day when the lists were read
        "nvidia/cuda:13.4.2-cudnn-devel-ubuntu26.04",
        "nvidia/cuda:14.0.0-devel-ubuntu26.04",
        "nvidia/cuda:9.9-devel",
        "nvidia/cuda:devel",
        "registry.example.com/nvidia/cuda:12.1-devel-ubuntu22.04",  # whose tags nobody listed
    ],
)
def test_whether_a_tag_was_published_is_left_open(reference: str) -> None:
    assert shown(read(reference).exists) == "?"


def test_whether_a_tag_was_published_is_not_judged_where_the_reference_is_not_certain() -> None:
    assert shown(read("nvidia/cuda:12.1-devel-ubuntu22.04", sure=False).exists) == "?"
    assert shown(read("nvidia/cuda:12.1-devel-ubuntu22.04").exists) is False


def test_every_known_tag_exists_and_is_read_as_its_row_says() -> None:
    known = 0
    for row in (*FACTS.images, *FACTS.images_old):
        for tag in row.tags:
            found = read(f"{row.image}:{tag}")
            assert found.exists.value is True, tag
            assert found.cuda.value == str(row.cuda), tag
            if row.os is not None:
                assert found.os.value == row.os, tag
            if row.torch is not None:
                assert found.torch.value == str(row.torch), tag
            if row.cudnn is not None and "-cudnn-" in tag:
                assert found.cudnn.value == str(row.cudnn), tag
            if row.retired is not None:
                assert found.retired.value is row.retired, tag
            known += 1
    assert known > 2000


def test_the_lists_of_tags_are_whole_up_to_the_day_they_were_read() -> None:
    versions = {str(version) for version in FACTS.whole_lists}
    assert {"11.0", "11.2.2", "11.8.0", "12.4.1", "12.9.1", "13.0.2"} <= versions
    assert not {"12.9.2", "13.0.3", "13.1.0", "13.2.0", "13.4.2"} & versions


def test_the_latest_tag_of_nvidia_cuda_was_taken_away() -> None:
    assert read("nvidia/cuda").retired.value is True
    assert read("nvidia/cuda:10.2-base").retired.value is True
    assert read("nvidia/cuda:12.4.1-base-ubuntu22.04").retired.value is False


# torch, torch's CUDA, cudnn, flavor, os, python, nvcc, compiler
@pytest.mark.parametrize(
    ("tag", "held"),
    [
        (
            "2.1.0-cuda12.1-cudnn8-runtime",
            ("2.1.0", "12.1", "8", "runtime", "ubuntu20.04", "3.10", False, "?"),
        ),
        ("2.6.0-cuda12.4-cudnn9-devel", ("2.6.0", "12.4", "9", "devel", "ubuntu22.04", "3.11", True, True)),
        ("1.7.1-cuda11.0-cudnn8-runtime", ("1.7.1", "11.0", "8", "runtime", "ubuntu18.04", "3.8", False, False)),
        ("1.4-cuda10.1-cudnn7-devel", ("1.4", "10.1", "7", "devel", "ubuntu16.04", "?", True, True)),
        ("1.1.0-cuda10.0-cudnn7.5-devel", ("1.1.0", "10.0", "7.5", "devel", "ubuntu16.04", "3.6", True, True)),
        ("2.2.2-runtime", ("2.2.2", "?", "?", "?", "ubuntu22.04", "3.10", False, "?")),
        ("latest", ("?", "?", "?", "?", "?", "?", "?", "?")),
        ("", ("?", "?", "?", "?", "?", "?", "?", "?")),
    ],
)
def test_tags_of_pytorch(tag: str, held: tuple[object, ...]) -> None:
    found = read(f"pytorch/pytorch:{tag}".rstrip(":"))
    beside = (found.flavor, found.os, found.python, found.nvcc, found.compiler)
    assert tuple(shown(value) for value in (found.torch, found.torch_cuda, found.cudnn, *beside)) == held
    assert found.variables["PATH"].startswith("/usr/local/nvidia/bin:/usr/local/cuda/bin:/opt/conda/bin:")


@pytest.mark.parametrize(
    ("tag", "exists"),
    [
        ("2.1.2-cuda12.1-cudnn8-runtime", True),
        ("2.6.0-cuda12.1-cudnn9-devel", False),  # not built for it
        ("2.4.0-cuda12.1-cudnn8-runtime", False),  # built with the next cuDNN
        ("2.3.1-cuda12.1-cudnn9-runtime", False),
        ("2.1-cuda12.1-cudnn8-devel", False),  # no patch release
        ("2.1.0-cuda12.1.1-cudnn8-devel", False),  # CUDA with three numbers
        ("2.2.1-cuda11.8-cudnn8-devel", "?"),
        ("1.12.1-cuda11.6-cudnn8-devel", "?"),
        ("1.4-cuda10.1-cudnn7-devel", "?"),
        ("2.99.0-cuda12.1-cudnn8-devel", "?"),
    ],
)
def test_which_tags_of_pytorch_were_published(tag: str, exists: object) -> None:
    found = read(f"pytorch/pytorch:{tag}")
    assert shown(found.exists) == exists or (exists == "?" and found.exists.value is True)
    if exists is False:
        assert any("-cuda" in name for name in found.near_tags)


@pytest.mark.parametrize(
    ("reference", "held"),
    [
        ("nvcr.io/nvidia/pytorch:23.10-py3", ("12.2.2", "ubuntu22.04", "3.10", "2.1.0a0+32f93b1", "12.2", True)),
        ("nvcr.io/nvidia/pytorch:21.10-py3", ("11.4.2", "ubuntu20.04", "3.8", "1.10.0a0+0aef44c", "11.4", True)),
        ("nvcr.io/nvidia/pytorch:20.03-py3", ("10.2.89", "ubuntu18.04", "3.6", "1.5.0a0+8f84ded", "10.2", True)),
        (
            "nvcr.io/nvidia/pytorch:24.05-py3-igpu",
            ("12.4.1", "ubuntu22.04", "3.10", "2.4.0a0+07cecf4168", "12.4", True),
        ),
        ("nvcr.io/nvidia/pytorch:39.01-py3", ("?", "?", "?", "?", "?", True)),
        ("nvcr.io/nvidia/tensorflow:23.05-tf2-py3", ("12.1.1", "ubuntu22.04", "3.10", "none", "none", True)),
        ("nvcr.io/nvidia/tritonserver:24.01-py3", ("12.3.2", "ubuntu22.04", "3.10", "?", "?", "?")),
        ("nvcr.io/nvidia/cuda-dl-base:25.03-cuda12.8-devel-ubuntu24.04", ("12.8", "ubuntu24.04", "?", "?", "?", True)),
        ("nvcr.io/nvidia/l4t-pytorch:r35.2.1-pth2.0-py3", ("?", "ubuntu20.04", "3.8", "2.0.0", "?", True)),
        ("nvcr.io/nvidia/l4t-pytorch:r32.7.1-pth1.10-py3", ("?", "ubuntu18.04", "3.6", "1.10.0", "?", "?")),
        ("nvcr.io/nvidia/l4t-base:r36.2.0", ("none", "ubuntu22.04", "?", "none", "none", False)),
        ("nvcr.io/nvidia/l4t-base:r39.0.0", ("none", "?", "?", "none", "none", False)),
        ("nvcr.io/nvidia/l4t-base:r32.7.1", ("?", "ubuntu18.04", "?", "?", "?", "?")),
        ("nvcr.io/nvidia/digits:21.09-tensorflow-py3", ("11.4.2", "ubuntu20.04", "?", "?", "?", "?")),
        ("nvcr.io/nvidia/caffe:20.03-py3", ("10.2.89", "ubuntu18.04", "?", "?", "?", "?")),
        ("nvcr.io/nvidia/nemo:24.05", ("?", "ubuntu22.04", "3.10", "?", "?", "?")),
        ("nvcr.io/nvidia/isaac-sim:4.5.0", ("?", "ubuntu22.04", "?", "?", "?", "?")),
        ("nvcr.io/nvidia/isaac-sim:5.1.0", ("?", "ubuntu24.04", "?", "?", "?", "?")),
        ("nvcr.io/nvidia/isaac-sim:2023.1.1", ("?", "?", "?", "?", "?", "?")),
    ],
)
def test_images_of_nvidias_own_registry(reference: str, held: tuple[object, ...]) -> None:
    found = read(reference)
    values = (found.cuda, found.os, found.python, found.torch, found.torch_cuda, found.nvcc)
    assert tuple(shown(value) for value in values) == held
    assert found.family == "ngc"


@pytest.mark.parametrize(
    ("reference", "cudnn"),
    [
        ("nvcr.io/nvidia/pytorch:22.05-py3", "8.4.0.27"),
        ("nvcr.io/nvidia/pytorch:22.06-py3", "8"),  # the months before and after agree on it
        ("nvcr.io/nvidia/pytorch:20.03-py3", "?"),  # and here they do not
        ("nvcr.io/nvidia/tritonserver:22.05-py3", "8"),
        ("nvcr.io/nvidia/tritonserver:39.01-py3", "?"),
    ],
)
def test_the_cudnn_of_a_month_of_nvidias_images(reference: str, cudnn: str) -> None:
    assert shown(read(reference).cudnn) == cudnn


@pytest.mark.parametrize(
    ("tag", "os"),
    [
        ("ros:noetic-ros-base-l4t-r32.7.1", "ubuntu18.04"),
        ("pytorch:2.1-r36.2.0", "ubuntu22.04"),
        ("vllm:0.8.6-r36.4-cu128-24.04", "ubuntu24.04"),
        ("ros:humble-desktop-l4t-r39.0.0", "?"),
        ("l4t-pytorch", "?"),
    ],
)
def test_images_for_jetson_name_the_release_of_their_system(tag: str, os: str) -> None:
    found = read(f"dustynv/{tag}")
    assert (found.family, shown(found.os)) == ("other", os)


@pytest.mark.parametrize(
    ("reference", "torch", "python"),
    [
        ("deepspeed/deepspeed:v072_torch112_cu117", "?", "?"),  # 1.1.2 or 1.12
        ("deepspeed/deepspeed:v072_torch1121_cu117", "1.12.1", "?"),
        ("pytorch/torchserve:0.8.2-gpu", "?", "3.9"),
        ("floydhub/pytorch:1.4.0-gpu.cuda10cudnn7-py3.54", "1.4.0", "?"),
        ("floydhub/pytorch:1.4.0-gpu.cuda10cudnn7-py3.5", "1.4.0", "3.5"),
    ],
)
def test_a_number_that_is_no_release_is_not_taken_for_one(reference: str, torch: str, python: str) -> None:
    found = read(reference)
    assert (shown(found.torch), shown(found.python)) == (torch, python)


@pytest.mark.parametrize(
    ("reference", "os"),
    [
        ("node:16-bullseye", "debian11"),
        ("golang:1.19-buster", "debian10"),
        ("node:20", "?"),
        ("amd64/ubuntu:18.04", "ubuntu18.04"),
        ("arm64v8/debian:bookworm", "debian12"),
    ],
)
def test_the_system_in_the_tag_of_an_official_image(reference: str, os: str) -> None:
    assert shown(read(reference).os) == os


# family, os, python, compiler; none of them has CUDA
@gathered(
    [
        ("python:3.11", ("python", "debian13", "3.11", True)),
        ("python:3.11.4-slim-bookworm", ("python", "debian12", "3.11.4", False)),
        ("python:3.10-slim", ("python", "debian13", "3.10", False)),
        ("python:3.9.6-slim", ("python", "debian11", "3.9.6", False)),
        ("python:3.6-alpine", ("python", "alpine", "3.6", False)),
        ("python:3.13.0rc2", ("python", "debian12", "3.13.0", True)),
        ("python@sha256:0a", ("python", "?", "?", True)),
        ("python:3.9-alpine3.18", ("python", "alpine3.18", "3.9", False)),
        ("python:3.13.0rc2-bullseye", ("python", "debian11", "3.13.0", True)),
        ("python:3", ("python", "debian13", "3.14", True)),
        ("python", ("python", "debian13", "3.14", True)),
        ("public.ecr.aws/docker/library/python:3.12-slim", ("python", "debian13", "3.12", False)),
        ("ubuntu:22.04", ("os", "ubuntu22.04", "none", False)),
        ("ubuntu:jammy-20240111", ("os", "ubuntu22.04", "none", False)),
        ("ubuntu", ("os", "ubuntu26.04", "none", False)),
        ("ubuntu:latest", ("os", "ubuntu26.04", "none", False)),
        ("public.ecr.aws/ubuntu/ubuntu:20.04", ("os", "ubuntu20.04", "none", False)),
        ("debian:bookworm-slim", ("os", "debian12", "none", False)),
        ("debian:11.5", ("os", "debian11", "none", False)),
        ("debian:stable-slim", ("os", "debian13", "none", False)),
        ("debian:stable-20240101", ("os", "?", "none", False)),
        ("centos:7.9.2009", ("os", "centos7", "?", False)),
        ("quay.io/centos/centos:stream9", ("os", "centos-stream9", "?", False)),
        ("rockylinux:9.3", ("os", "rockylinux9", "?", False)),
        ("almalinux:8", ("os", "almalinux8", "?", False)),
        ("fedora:39", ("os", "fedora39", "?", False)),
        ("amazonlinux:2", ("os", "amzn2", "?", False)),
        ("alpine:3.18.4", ("os", "alpine3.18", "?", False)),
        ("registry.access.redhat.com/ubi8/ubi:8.9", ("os", "ubi8", "?", False)),
        ("registry.access.redhat.com/ubi9/python-311", ("python", "ubi9", "3.11", "?")),
        ("continuumio/miniconda3:23.5.2-0", ("conda", "debian11", "3.11", False)),
        ("continuumio/miniconda3:4.5.4", ("conda", "debian9", "3.6", False)),
        ("continuumio/miniconda3:4.10.3", ("conda", "debian10", "3.9", False)),
        ("continuumio/miniconda3:4.10.3p1", ("conda", "debian11", "3.9", False)),
        ("continuumio/miniconda3:4.10.3p0-alpine", ("conda", "?", "?", False)),
        ("continuumio/anaconda3:2021.11", ("conda", "debian11", "3.9", "?")),
        ("condaforge/miniforge3", ("conda", "ubuntu24.04", "3.13", False)),
        ("condaforge/mambaforge:22.9.0-1", ("conda", "ubuntu20.04", "3.10", False)),
        ("mambaorg/micromamba:1.5.8-jammy", ("conda", "ubuntu22.04", "?", False)),
        ("mambaorg/micromamba:1.4", ("conda", "debian11", "?", False)),
        ("ghcr.io/astral-sh/uv:python3.12-bookworm-slim", ("python", "debian12", "3.12", False)),
        ("ghcr.io/astral-sh/uv:0.5.1-python3.11-bookworm", ("python", "debian12", "3.11", True)),
        ("ghcr.io/astral-sh/uv:0.5.1", ("other", "?", "?", False)),
        ("mcr.microsoft.com/devcontainers/python:1-3.11-bullseye", ("python", "debian11", "3.11", "?")),
        ("mcr.microsoft.com/devcontainers/base:ubuntu-22.04", ("os", "ubuntu22.04", "?", "?")),
        ("jupyter/scipy-notebook:python-3.11", ("conda", "ubuntu22.04", "3.11", "?")),
        ("quay.io/jupyter/scipy-notebook:2024-10-01", ("conda", "ubuntu24.04", "3.11", "?")),
        ("osrf/ros:kinetic-desktop-full", ("other", "ubuntu16.04", "?", "?")),
        ("ros:melodic-ros-base-stretch", ("other", "debian9", "?", "?")),
        ("ros:jazzy", ("other", "ubuntu24.04", "?", "?")),
        ("ros:rolling", ("other", "?", "?", "?")),
        ("ubuntu:kinetic", ("os", "ubuntu22.10", "none", False)),
        ("node:20", ("other", "?", "?", "?")),
        ("scratch", ("unknown", "none", "none", False)),
    ]
)
def test_images_without_cuda(reference: str, held: tuple[object, ...]) -> None:
    found = read(reference)
    assert (found.family, shown(found.os), shown(found.python), shown(found.compiler)) == held
    assert {shown(value) for value in (found.cuda, found.cudnn, found.torch, found.torch_cuda)} == {"none"}
    assert found.nvcc.value is False
    assert found.scratch == (reference == "scratch")


# cuda, flavor, os, python, torch, torch's CUDA
@pytest.mark.parametrize(
    ("reference", "held"),
    [
        (
            "runpod/pytorch:2.1.0-py3.10-cuda11.8.0-devel-ubuntu22.04",
            ("11.8.0", "devel", "ubuntu22.04", "3.10", "2.1.0", "11.8"),
        ),
        ("runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404", ("12.8.1", "?", "ubuntu24.04", "3.12", "2.8.0", "12.8")),
        (
            "runpod/pytorch:2.1.0-py3.10-cuda11.8.0-devel",
            ("11.8.0", "devel", "ubuntu20.04", "3.10", "2.1.0", "11.8"),
        ),
        ("runpod/base:0.6.2-cuda12.2.0", ("12.2.0", "?", "ubuntu22.04", "?", "?", "?")),
        ("runpod/base:0.6.3-cuda11.1.1", ("11.1.1", "?", "ubuntu20.04", "?", "?", "?")),
        ("rapidsai/base:24.04-cuda12.2-py3.11", ("12.2", "?", "ubuntu22.04", "3.11", "?", "?")),
        ("rapidsai/notebooks:25.12-cuda13-py3.13", ("13.0.2", "?", "ubuntu22.04", "3.13", "?", "?")),
        ("rapidsai/base:25.10-cuda12-py3.13", ("?", "?", "ubuntu22.04", "3.13", "?", "?")),
        ("runpod/pytorch:3.10-2.0.0-117", ("?", "?", "?", "?", "?", "?")),
        (
            "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.1.0-gpu-py310-cu121-ubuntu20.04-ec2",
            ("12.1", "?", "ubuntu20.04", "3.10", "2.1.0", "12.1"),
        ),
        ("harbor.example.com/ml/base:torch2.1-cuda12.1-py310-devel", ("12.1", "devel", "?", "3.10", "2.1", "12.1")),
        ("gpuci/miniconda-cuda:11.3-devel-ubuntu18.04", ("11.3", "devel", "ubuntu18.04", "?", "?", "?")),
        ("mambaorg/micromamba:1.5-jammy-cuda-11.8.0", ("11.8.0", "?", "ubuntu22.04", "?", "none", "?")),
        ("paperspace/gradient-base:pt211-tf215-cudatk120-py311-20240202", ("12.0", "?", "?", "3.11", "2.1.1", "12.0")),
        ("example/app:cu118", ("11.8", "?", "?", "?", "?", "?")),
        ("example/app:cu92-py36", ("9.2", "?", "?", "3.6", "?", "?")),
        ("example/app:cuda12-py3", ("?", "?", "?", "?", "?", "?")),
        ("example/app:1.2.3", ("?", "?", "?", "?", "?", "?")),
        ("example/cudatools:12.1", ("?", "?", "?", "?", "?", "?")),
        ("rocm/pytorch:rocm6.0_ubuntu20.04_py3.9_pytorch_2.1.1", ("none", "?", "ubuntu20.04", "3.9", "2.1.1", "none")),
        (
            "rocm/pytorch:rocm6.4.4_ubuntu24.04_py3.12_pytorch_release_2.7.1",
            ("none", "?", "ubuntu24.04", "3.12", "2.7.1", "none"),
        ),
        ("example/app:1.4-python-2.7", ("?", "?", "?", "2.7", "?", "?")),
        ("example/app:cu92-py27", ("9.2", "?", "?", "2.7", "?", "?")),
        ("example/app:py2", ("?", "?", "?", "?", "?", "?")),
        ("gcr.io/deeplearning-platform-release/pytorch-gpu.1-13", ("?", "?", "?", "?", "1.13", "?")),
        (
            "us-docker.pkg.dev/deeplearning-platform-release/gcr.io/pytorch-cu121.2-2.py310",
            ("12.1", "?", "?", "3.10", "2.2", "12.1"),
        ),
        ("vllm/vllm-openai:v0.6.3", ("12.4.1", "?", "ubuntu22.04", "3.12", "2.4.0", "12.4")),
        ("huggingface/transformers-pytorch-gpu", ("?", "?", "?", "?", "?", "?")),
    ],
)
def test_a_tag_that_says_it_plainly_is_believed(reference: str, held: tuple[object, ...]) -> None:
    found = read(reference)
    values = (found.cuda, found.flavor, found.os, found.python, found.torch, found.torch_cuda)
    assert tuple(shown(value) for value in values) == held
    assert found.family in ("unknown", "other", "conda")


# os, python, torch, whether there is a compiler
@pytest.mark.parametrize(
    ("reference", "held"),
    [
        ("rocm/dev-ubuntu-22.04:6.2", ("ubuntu22.04", "3.10", "none", True)),
        ("rocm/dev-ubuntu-24.04:6.2-complete", ("ubuntu24.04", "3.12", "none", True)),
        ("rocm/dev-ubuntu-22.04", ("ubuntu22.04", "3.10", "none", True)),
        ("rocm/rocm-terminal:6.2", ("?", "?", "?", "?")),
    ],
)
def test_images_of_amd_to_develop_in_are_a_plain_ubuntu(reference: str, held: tuple[object, ...]) -> None:
    found = read(reference)
    assert (shown(found.os), shown(found.python), shown(found.torch), shown(found.compiler)) == held
    assert found.rocm


@pytest.mark.parametrize(
    ("tag", "cuda", "cudnn"),
    [
        ("2.15.0-gpu", "12.2", "8"),
        ("2.9.1-gpu-jupyter", "11.2", "8.1"),
        ("1.15.5-gpu-py3", "10.0", "7"),
        ("latest-gpu", "?", "?"),
        ("2.9.1", "none", "none"),
    ],
)
def test_images_of_tensorflow(tag: str, cuda: str, cudnn: str) -> None:
    found = read(f"tensorflow/tensorflow:{tag}")
    assert (shown(found.cuda), shown(found.cudnn), shown(found.torch)) == (cuda, cudnn, "none")


@pytest.mark.parametrize(
    ("tag", "system", "python"),
    [
        ("2.8.0-gpu-jupyter", "ubuntu20.04", "3.8"),
        ("2.3.2", "ubuntu18.04", "3.6"),
        ("2.1.1-gpu", "ubuntu18.04", "3.6"),
        ("2.1.0-gpu", "ubuntu18.04", "2.7"),
        ("2.1.0-gpu-py3", "ubuntu18.04", "3.6"),
        ("1.15.0", "ubuntu18.04", "2.7"),
        ("1.15.2-gpu", "ubuntu18.04", "3.6"),
        ("1.4.1-devel-gpu-py3", "ubuntu16.04", "3.5"),
        ("2.15.0-gpu", "ubuntu22.04", "3.11"),
        ("latest-gpu", "ubuntu22.04", "3.11"),
        ("latest-gpu-py3", "ubuntu18.04", "3.6"),
        ("nightly-gpu", "?", "?"),
    ],
)
def test_the_system_and_the_python_of_tensorflow(tag: str, system: str, python: str) -> None:
    found = read(f"tensorflow/tensorflow:{tag}")
    assert (shown(found.os), shown(found.python)) == (system, python)


def test_a_part_that_is_not_settled_says_nothing() -> None:
    found = read("nvidia/cuda:${CUDA}-cudnn8-devel-ubuntu22.04", sure=False)
    assert (shown(found.cuda), shown(found.cudnn), shown(found.flavor)) == ("?", "8", "devel")
    assert shown(found.os) == "ubuntu22.04"
    found = read("nvidia/cuda:12.$MINOR.0-base-ubuntu22.04", sure=False)
    assert (shown(found.cuda), shown(found.exists)) == ("?", "?")
    found = read("$IMAGE", sure=False)
    assert (found.family, shown(found.cuda), found.sure) == ("unknown", "?", False)


def test_a_mirror_holds_what_the_original_holds() -> None:
    mirror = read("swr.example.com/ddn-k8s/docker.io/nvidia/cuda:12.1.0-devel-ubuntu22.04")
    assert (mirror.family, mirror.cuda.value, mirror.nvcc.value) == ("nvidia", "12.1.0", True)
    mirror = read("registry.example.com:5000/hub/pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime")
    assert (mirror.family, mirror.torch.value, mirror.python.value) == ("pytorch", "2.6.0", "3.11")
    assert shown(mirror.exists) == "?"


def test_what_is_observed_says_how_and_what_is_not_says_why() -> None:
    found = read("nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04")
    assert found.cuda.via == "tag 12.4.1-cudnn-devel-ubuntu22.04"
    assert "container-images/cuda Dockerfiles" in found.cudnn.via
    found = read("pytorch/pytorch:2.99.0-cuda12.1-cudnn8-runtime")
    assert "2.99.0" in found.python.missing
    assert read("rockylinux").os.missing == "there is no tag"


@given(st.text(max_size=80) | st.from_regex(r"[a-z./:@$]{0,9}(nvidia/cuda|pytorch/pytorch):[-0-9a-z.$]{0,40}"))
def test_no_reference_breaks_it(reference: str) -> None:
    found = read(reference)
    for value in (found.cuda, found.os, found.python, found.torch, found.exists):
        assert bool(value.missing) == (value.value is None)


def test_long_references_cost_little() -> None:
    with costs_less(2):
        for text in (
            "a/" * 100_000,
            "x:" + "cuda-" * 100_000,
            "nvidia/cuda:" + "1." * 100_000,
            "nvidia/cuda:12.1-" + "-" * 100_000,
        ):
            read(text)
        for _ in range(20):
            read("nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04")


# cuda, os, python, torch, torch_cuda
@pytest.mark.parametrize(
    ("reference", "held"),
    [
        ("vllm/vllm-openai:v0.8.3", ("12.4.1", "ubuntu22.04", "3.12", "2.6.0", "12.4")),
        ("vllm/vllm-openai:v0.9.1", ("12.8.1", "ubuntu22.04", "3.12", "2.7.0", "12.8")),
        ("vllm/vllm-openai:latest", ("?", "?", "?", "?", "?")),
        ("lmsysorg/sglang:v0.5.7-cu130-runtime", ("13.0", "?", "?", "2.9.1", "13.0")),
        ("lmsysorg/sglang:v0.5.10-rocm720-mi30x", ("none", "?", "?", "?", "none")),
        ("rayproject/ray:1.6.0-gpu", ("?", "ubuntu18.04", "3.7", "?", "?")),
        ("rayproject/ray:1.6.0-py38", ("?", "ubuntu20.04", "3.8", "?", "?")),
        ("rayproject/ray:1.12.0-py38-gpu", ("?", "?", "3.8", "?", "?")),
        ("rayproject/ray-ml:2.0.1-py39-cu102", ("10.2", "ubuntu18.04", "3.9", "?", "?")),
        ("ghcr.io/huggingface/text-generation-inference:2.0.4", ("12.1.0", "ubuntu22.04", "3.10", "2.3.0", "12.1")),
        ("nvcr.io/nvidia/l4t-ml:r32.7.1-py3", ("?", "ubuntu18.04", "3.6", "1.10.0", "?")),
        ("projectmonai/monai:1.0.0", ("11.7.1", "ubuntu20.04", "3.8", "?", "?")),
        ("horovod/horovod:0.26.1", ("11.3.1", "ubuntu20.04", "3.8", "1.12.1", "11.3")),
        ("horovod/horovod:0.24.0", ("11.2.2", "ubuntu20.04", "3.8", "?", "?")),
        ("nvcr.io/nvidia/tensorrt:24.04-py3", ("12.4.1", "ubuntu22.04", "3.10", "none", "none")),
        ("ghcr.io/nvidia/jax:jax", ("?", "?", "?", "none", "none")),
        ("rocker/ml:4.2.0-cuda11.1", ("11.1", "?", "?", "?", "?")),
        ("rocker/r-ver:4.2.0", ("none", "?", "?", "none", "none")),
        ("tiangolo/uvicorn-gunicorn-fastapi:python3.8", ("none", "?", "3.8", "none", "none")),
        ("ultralytics/ultralytics:latest-jetson-jetpack6", ("?", "ubuntu22.04", "?", "?", "?")),
    ],
)
def test_what_the_facts_know_of_an_image(reference: str, held: tuple[object, ...]) -> None:
    found = read(reference)
    assert tuple(map(shown, (found.cuda, found.os, found.python, found.torch, found.torch_cuda))) == held


@pytest.mark.parametrize(
    ("reference", "system"),
    [
        ("vastai/pytorch:2.2.0-cuda-12.1.1-py310-22.04", "ubuntu22.04"),
        ("team/base:1.0-20.04", "ubuntu20.04"),
        ("team/base:22.04", "?"),
        ("team/base:22.04-py3", "?"),
        ("team/base:v1-23.04", "?"),
    ],
)
def test_a_tag_may_end_with_a_long_term_release_of_ubuntu(reference: str, system: str) -> None:
    assert shown(read(reference).os) == system
