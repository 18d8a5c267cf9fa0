"""What single releases of packages want, by the tables: a file that is told, and one as near to it as can be that is
not."""

from __future__ import annotations

import pytest
import written

from envkit import facts
from envkit.model import Outcome

FACTS = facts.load()
PAIRS = {
    "a driver of a branch that was not read": (
        "driver-too-old",
        "#: driver 551.78\nFROM nvidia/cuda:12.8.1-cudnn-runtime-ubuntu22.04\n",
        "#: driver 580.65.06\nFROM nvidia/cuda:12.8.1-cudnn-runtime-ubuntu22.04\n",
    ),
    "a cuDNN that no image of the CUDA has": (
        "base-tag-never-existed",
        "FROM nvidia/cuda:11.1-cudnn7-devel\n",
        "FROM nvidia/cuda:11.1.1-cudnn8-devel-ubuntu20.04\n",
    ),
    "no compiler beside a torch of before 2025-12": (
        "runtime-cannot-jit",
        "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\nRUN pip install vllm==0.7.3\n",
        "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\nRUN pip install vllm==0.7.3\n",
    ),
    "kernels that flashinfer compiles": (
        "runtime-cannot-jit",
        "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nRUN apt-get update && apt-get install -y gcc python3-pip\n"
        'RUN pip3 install "sglang[all]==0.4.3"\n',
        "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN apt-get update && apt-get install -y gcc python3-pip\n"
        'RUN pip3 install "sglang[all]==0.4.3"\n',
    ),
    "a source that has wheels too": (
        "sdist-build-fails",
        "FROM python:3.10\nRUN pip install xformers==0.0.22 --no-binary xformers\n",
        "FROM python:3.10\nRUN pip install xformers==0.0.22\n",
    ),
    "a source with CUDA code": (
        "nvcc-used-without-devel",
        "FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04\nRUN apt-get update && apt-get install -y git python3-pip\n"
        "RUN pip3 install git+https://github.com/PanQiWei/AutoGPTQ.git@v0.4.1\n",
        "FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04\nRUN apt-get update && apt-get install -y git python3-pip\n"
        "RUN BUILD_CUDA_EXT=0 pip3 install git+https://github.com/PanQiWei/AutoGPTQ.git@v0.4.1\n",
    ),
    "NVIDIA's own torch under a package that asks for a release": (
        "torch-installed-twice",
        "FROM nvcr.io/nvidia/pytorch:24.02-py3\nRUN pip install vllm==0.4.3\n",
        "FROM nvcr.io/nvidia/pytorch:24.10-py3\nRUN pip install vllm==0.6.3\n",
    ),
    "a build for the CPU with a local version on ARM": (
        "torch-build-missing",
        "FROM --platform=linux/arm64 python:3.11-slim\n"
        "RUN pip install torch==2.3.1+cpu -f https://download.pytorch.org/whl/torch_stable.html\n",
        "FROM --platform=linux/arm64 python:3.11-slim\n"
        "RUN pip install torch==2.6.0+cpu --index-url https://download.pytorch.org/whl/cpu\n",
    ),
    "a page of wheels that ends before": (
        "torch-index-missing",
        "FROM pytorch/pytorch:2.0.0-cuda11.7-cudnn8-devel\n"
        "RUN pip install detectron2 -f https://dl.fbaipublicfiles.com/detectron2/wheels/cu118/torch2.0/index.html\n",
        "FROM pytorch/pytorch:1.10.0-cuda11.3-cudnn8-devel\n"
        "RUN pip install detectron2 -f https://dl.fbaipublicfiles.com/detectron2/wheels/cu113/torch1.10/index.html\n",
    ),
    "the newest source for an old Python": (
        "package-refused",
        "FROM python:3.8\nRUN pip install git+https://github.com/huggingface/transformers\n",
        "FROM python:3.8\nRUN pip install git+https://github.com/huggingface/transformers@v4.30.0\n",
    ),
    "a clone of the newest source for an old Python": (
        "package-refused",
        "FROM python:3.6\nRUN git clone https://github.com/facebookresearch/detectron2 /d && pip install -e /d\n",
        "FROM python:3.6\nRUN git clone https://github.com/facebookresearch/detectron2 /d && cd /d && "
        "git checkout v0.5 && pip install -e /d\n",
    ),
    "architectures that a source names": (
        "arch-list-unsupported",
        "FROM nvcr.io/nvidia/pytorch:25.08-py3\nRUN pip install --no-build-isolation causal-conv1d==1.5.2\n",
        "FROM nvcr.io/nvidia/pytorch:25.08-py3\nRUN pip install --no-build-isolation causal-conv1d==1.6.0\n",
    ),
    "GPUs that a package's wheel has no code for": (
        "gpu-arch-not-covered",
        "#: gpu RTX 5090\nFROM nvidia/cuda:12.8.1-devel-ubuntu22.04\nRUN apt-get update && apt-get install -y "
        "python3-pip\nRUN pip3 install lmdeploy==0.9.2\n",
        "#: gpu RTX 4090\nFROM nvidia/cuda:12.8.1-devel-ubuntu22.04\nRUN apt-get update && apt-get install -y "
        "python3-pip\nRUN pip3 install lmdeploy==0.9.2\n",
    ),
    "a torch that transformers takes for none": (
        "torch-rejected",
        "FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime\nRUN pip install transformers==4.57.1\n",
        "FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime\nRUN pip install transformers==4.40.0\n",
    ),
}
PAIRS |= {
    "a package without wheels for musl": (
        "package-refused",
        "FROM python:3.12-alpine\nRUN pip install tensorflow==2.18.0\n",
        "FROM python:3.12-slim\nRUN pip install tensorflow==2.18.0\n",
    ),
    "a library by its bare name": (
        "framework-libraries-missing",
        "FROM nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu20.04\nRUN apt-get update && apt-get install -y python3-pip\n"
        "RUN pip3 install bitsandbytes==0.37.2\n",
        "FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu20.04\nRUN apt-get update && apt-get install -y python3-pip\n"
        "RUN pip3 install bitsandbytes==0.37.2\n",
    ),
    "a nightly build that no index lists": (
        "torch-build-missing",
        "FROM python:3.10\nRUN pip install torch==2.1.0.dev20230822+cu118 --index-url "
        "https://download.pytorch.org/whl/nightly/cu118\n",
        "FROM python:3.10\nRUN pip install torch==2.1.0.dev20230822+cu118 --index-url https://example.com/wheels/\n",
    ),
    "a page of wheels that ends before, of a package whose source an index has": (
        "torch-index-missing",
        "FROM pytorch/pytorch:2.5.0-cuda12.1-cudnn9-devel\n"
        "RUN pip install mmcv==2.2.0 -f https://download.openmmlab.com/mmcv/dist/cu121/torch2.5.0/index.html\n",
        "FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-devel\n"
        "RUN pip install mmcv==2.1.0 -f https://download.openmmlab.com/mmcv/dist/cu121/torch2.1/index.html\n",
    ),
    "NVIDIA's own torch under a package that asks for a release at least": (
        "torch-installed-twice",
        "FROM nvcr.io/nvidia/pytorch:23.10-py3\nRUN pip install vllm==0.2.2\n",
        "FROM nvcr.io/nvidia/pytorch:23.10-py3\nRUN pip install accelerate==0.24.0\n",
    ),
    "a source that asks nvcc for its version": (
        "nvcc-used-without-devel",
        "FROM python:3.12\nRUN pip install flashinfer-python==0.2.8\n",
        "FROM nvidia/cuda:12.8.1-devel-ubuntu24.04\nRUN apt-get update && apt-get install -y python3-pip\n"
        "RUN pip3 install --break-system-packages flashinfer-python==0.2.8\n",
    ),
    "get-pip.py by the file of standard input": (
        "pip-too-new",
        "FROM ubuntu:16.04\nRUN apt-get update && apt-get install -y curl python3\n"
        "RUN curl -sS https://bootstrap.pypa.io/get-pip.py | python3.5 /dev/stdin\n",
        "FROM ubuntu:16.04\nRUN apt-get update && apt-get install -y curl python3\n"
        "RUN curl -sS https://bootstrap.pypa.io/pip/3.5/get-pip.py | python3.5 /dev/stdin\n",
    ),
}
LISTS = {
    "a nightly build that no index lists": (
        "packages-torch-build-missing",
        "--index-url https://download.pytorch.org/whl/nightly/cu128\ntorch==2.7.0.dev20250311+cu128\n",
        "--index-url https://download.pytorch.org/whl/cu128\ntorch==2.7.0+cu128\n",
    ),
    "a torch that transformers takes for none": (
        "packages-torch-rejected",
        "torch==2.0.1\ntransformers==4.57.1\n",
        "torch==2.2.0\ntransformers==4.57.1\n",
    ),
    "GPUs that a package's wheel has no code for": (
        "packages-gpu-arch-not-covered",
        "#: gpu RTX 5090\nlmdeploy==0.9.2\n",
        "#: gpu H100\nlmdeploy==0.9.2\n",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_dockerfile_is_told_and_its_twin_is_not(name: str) -> None:
    check, fault, twin = PAIRS[name]
    assert written.judged(check, "dockerfile", fault, FACTS).outcome is Outcome.FAIL
    assert written.judged(check, "dockerfile", twin, FACTS).outcome in (Outcome.PASS, Outcome.SKIP)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_told_and_its_twin_is_not(name: str) -> None:
    check, fault, twin = LISTS[name]
    assert written.judged(check, "requirements", fault, FACTS).outcome is Outcome.FAIL
    assert written.judged(check, "requirements", twin, FACTS).outcome in (Outcome.PASS, Outcome.SKIP)


def test_a_driver_between_branches_is_not_judged_where_it_may_do() -> None:
    """551 speaks no newer CUDA than 555 does, which is not to say that it speaks that one."""
    file = "#: driver 551.78\nFROM nvidia/cuda:12.5.1-runtime-ubuntu22.04\n"
    assert written.judged("driver-too-old", "dockerfile", file, FACTS).outcome is Outcome.UNKNOWN
