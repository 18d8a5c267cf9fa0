"""Faults of Dockerfiles and their clean twins, which differ in one thing that real projects do."""

from __future__ import annotations

import pytest
from written import judged

from envkit.facts import load
from envkit.model import Outcome, Severity

FACTS = load()
OLD, NEW = "FROM nvidia/cuda:11.8.0-base-ubuntu22.04\n", "FROM nvidia/cuda:12.1.1-base-ubuntu22.04\n"
MAJOR = "torch-cuda-vs-base-mismatch-major"
LIST = "\n--- requirements.txt ---\nnumpy\ntorch==2.1.0\n"
MAKE = "RUN git clone https://example.com/a/b && cd b && make CUDA_HOME=/usr/local/cuda\n"
SHADOW = "ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64\nRUN apt-get install -y python3-pip && pip3 install torch=={}\n"
CUDA_HOME = "ENV CUDA_HOME=/usr/local/cuda-12.1\n"
INTO = "COPY requirements.txt /app\nRUN pip3 install -r /app/requirements.txt\n" + LIST
STAGE = (
    "FROM alpine AS lists\nCOPY . /src\n{}COPY --from=lists /src/requirements.txt /tmp/\n"
    "RUN pip3 install -r /tmp/requirements.txt\n" + LIST
)
FILTER = "COPY . .\nRUN grep -v {} requirements.txt > some.txt && pip3 install -r some.txt\n" + LIST
EDIT = "COPY . .\nRUN sed -i 's/^{}/#&/' requirements.txt && pip3 install -r requirements.txt\n" + LIST
ONBUILD = "FROM {} AS first\nONBUILD RUN pip3 install torch==2.1.0\nFROM first\n"
INDEX = "--index-url https://download.pytorch.org/whl/cu118"
RUNTIME = "FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04\nRUN apt-get install -y python3-pip\n"
FIRST = RUNTIME + f"RUN pip3 install torch {INDEX}\n"
BOTH = RUNTIME + f"RUN pip3 install torch==2.1.0 torchvision==0.16.0 {INDEX}\n"
PLAIN = "RUN pip3 install torch==2.1.0\n"
CONF = "\n--- pip.conf ---\n[global]\n{} = https://download.pytorch.org/whl/cu118\n"
MATE = "torchvision-mismatch"
PYTHON = "torch-python-unsupported"
BUILD = (
    "FROM ubuntu:20.04\nRUN wget https://www.python.org/ftp/python/{0}.1/Python-{0}.1.tgz && tar xzf Python-{0}.1.tgz"
    " && cd Python-{0}.1 && ./configure && make altinstall\nRUN python{0} -m pip install torch==2.1.0\n"
)
ALTERNATIVE = (
    "FROM ubuntu:20.04\nRUN apt-get install -y python{0} python3-pip && update-alternatives --install /usr/bin/python3"
    " python3 /usr/bin/python{0} 1\nRUN python3 -m pip install torch==2.1.0\n"
)
DEADSNAKES = (
    "FROM ubuntu:20.04\nRUN add-apt-repository ppa:deadsnakes/ppa && apt-get install -y python{0} && curl -sS"
    " https://bootstrap.pypa.io/get-pip.py | python{0}\nRUN pip install torch==2.1.0\n"
)
PYENV = (
    "FROM ubuntu:20.04\nENV PATH=/root/.pyenv/shims:/root/.pyenv/bin:$PATH\nRUN curl https://pyenv.run | bash"
    " && pyenv install {0}.1 && pyenv global {0}.1\nRUN pip install torch==2.1.0\n"
)
CONDA = (
    "FROM example.com/ml/miniconda3:1\nRUN conda create -n e python={0} -y\n"
    'SHELL ["/bin/bash", "-c"]\nRUN source activate e && pip install torch==2.1.0\n'
)
NIGHTLY = (
    "FROM python:3.11\nARG URL\nENV URL=${URL}\n"
    'RUN if [ -z "$URL" ]; then pip install torch==2.1.0; else pip install --index-url $URL {}; fi\n'
)


NEWEST_CONDA = (
    "FROM ubuntu:22.04\nADD https://repo.anaconda.com/miniconda/Miniconda3-latest-Linux-x86_64.sh /tmp/c.sh\n"
    "RUN bash /tmp/c.sh -b -p /opt/conda\nENV PATH=/opt/conda/bin:$PATH\n"
)
SLIM = "FROM python:3.11-slim-bookworm\n"
ARCHICONDA = (
    "FROM nvcr.io/nvidia/l4t-ml:r35.2.1-py3\n"
    "RUN wget https://github.com/Archiconda/build-tools/releases/download/0.2.3/Archiconda3-0.2.3-Linux-aarch64.sh && "
    "bash Archiconda3-0.2.3-Linux-aarch64.sh -b -p /opt/archiconda3\nENV PATH=/opt/archiconda3/bin:$PATH\n"
)


@pytest.mark.parametrize(
    ("check", "fault", "clean"),
    [
        (MAJOR, OLD + INTO, NEW + INTO),
        (MAJOR, STAGE.format(OLD), STAGE.format(NEW)),
        (MAJOR, OLD + FILTER.format("numpy"), OLD + FILTER.format("torch")),
        (MAJOR, OLD + EDIT.format("numpy"), OLD + EDIT.format("torch")),
        (MAJOR, ONBUILD.format(OLD[5:-1]), ONBUILD.format(NEW[5:-1])),
        ("unpinned-base", "FROM osrf/ros:desktop-full\n", "FROM osrf/ros:humble-desktop-full\n"),
        ("unpinned-base", "FROM me/cuda:ros-humble-rmf\n", "FROM me/cuda:jazzy\n"),
        ("nvcc-used-without-devel", OLD + MAKE, OLD + "RUN apt-get install -y cuda-nvcc-11-8\n" + MAKE),
        ("nvcc-used-without-devel", OLD + MAKE, "FROM me/rocm-dev:1.2\n" + MAKE),
        (
            "ld-library-path-shadow",
            "FROM nvidia/cuda:12.1.1-runtime-ubuntu22.04\n" + SHADOW.format("2.5.1"),
            "FROM nvidia/cuda:10.2-runtime-ubuntu18.04\n" + SHADOW.format("2.1.0"),
        ),
        (
            "ld-library-path-shadow",
            "FROM pytorch/pytorch:2.1.2-cuda12.1-cudnn8-devel\n" + SHADOW.format("2.5.0"),
            "FROM pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime\n" + SHADOW.format("2.5.0"),
        ),
        # The cuDNN of an image of TensorFlow is known to its minor.
        (
            "cudnn-mismatch",
            "FROM tensorflow/tensorflow:2.10.0-gpu\nRUN pip install jaxlib==0.4.1+cuda11.cudnn86\n",
            "FROM tensorflow/tensorflow:2.12.0-gpu\nRUN pip install jaxlib==0.4.1+cuda11.cudnn86\n",
        ),
        # Python 3.10 has ended, and which transformers is the last for it is known.
        (
            "torch-rejected",
            "FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime\nRUN pip install transformers accelerate\n",
            "FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime\nRUN pip install transformers accelerate\n",
        ),
        # A JSON form hands its script to a shell whichever options stand before -c.
        (
            "miniconda-too-new",
            NEWEST_CONDA + 'RUN ["/bin/bash", "-i", "-c", "conda create -y -n x python=3.10"]\n',
            NEWEST_CONDA + 'RUN ["/bin/bash", "-i", "-c", "conda create -y -n x -c conda-forge --override-channels"]\n',
        ),
        ("framework-libraries-missing", f"{SLIM}RUN pip install opencv-python\n", f"{SLIM}RUN pip install PyQt5\n"),
        (
            "framework-libraries-missing",
            f"{SLIM}COPY --from=alpine /etc/motd /srv/motd\nRUN pip install opencv-python\n",
            f"{SLIM}COPY --from=debian /usr/lib /usr/lib\nRUN pip install opencv-python\n",
        ),
        # Archiconda has Python 3.7, and what its pip refuses takes no torch's place.
        (
            "torch-python-unsupported",
            ARCHICONDA + "RUN pip3 install ./torch-1.13.0-cp38-cp38-linux_aarch64.whl\n",
            ARCHICONDA + "RUN pip3 install ./torch-1.13.0-cp37-cp37m-linux_aarch64.whl\n",
        ),
        (
            "torch-installed-twice",
            ARCHICONDA + "RUN pip3 install ./torch-1.13.0-cp37-cp37m-linux_aarch64.whl\n",
            ARCHICONDA + "RUN pip3 install ./torch-1.13.0-cp38-cp38-linux_aarch64.whl\n",
        ),
        # What an index has given stays, unless the installer is asked to upgrade.
        (MAJOR, FIRST + "RUN pip3 install -U torch\n", FIRST + "RUN pip3 install torch\n"),
        (MAJOR, FIRST + "RUN pip3 install -U 'torch>=2'\n", FIRST + "RUN pip3 install 'torch>=2' numpy\n"),
        (MAJOR, RUNTIME + PLAIN, FIRST.replace("torch -", "torch==2.1.0 -") + PLAIN),
        ("unpinned-torch", RUNTIME + "RUN pip3 install torch~=2.1\n", RUNTIME + "RUN pip3 install torch==2.1.0\n"),
        ("unpinned-torch", RUNTIME + "RUN pip3 install torch~=2.1.0\n", RUNTIME + "RUN pip3 install torch===2.1.0\n"),
        # A single equals sign is none of pip, which refuses it: that it leaves something open is not told.
        (
            "unpinned-torch",
            RUNTIME + "RUN pip3 install 'torch<2.2,>=2.1'\n",
            RUNTIME + "RUN pip3 install torch=2.1.0\n",
        ),
        # The builds of torch and torchvision, whose releases go together.
        (
            MATE,
            "FROM python:3.11\nRUN pip install torch==2.1.0+cpu -f https://download.pytorch.org/whl/cpu\n"
            "RUN pip install torchvision==0.16.0\n",
            "FROM python:3.11\nRUN pip install torch==2.1.0+cpu -f https://download.pytorch.org/whl/cpu\n"
            "RUN pip install torchvision==0.16.0 --index-url https://download.pytorch.org/whl/cpu\n",
        ),
        (
            MATE,
            RUNTIME + f"RUN pip3 install torch==2.1.0 {INDEX}\nRUN pip3 install torchvision==0.16.0\n",
            RUNTIME + f"RUN pip3 install torchvision==0.16.0\nRUN pip3 install torch==2.1.0 {INDEX}\n",
        ),
        (MATE, BOTH + "RUN pip3 install -U torchvision==0.16.0\n", BOTH + "RUN pip3 install torchvision==0.16.0\n"),
        # Indexes of variables and of pip's files.
        (MAJOR, RUNTIME + PLAIN, RUNTIME + "ENV PIP_INDEX_URL=https://download.pytorch.org/whl/cu118\n" + PLAIN),
        (MAJOR, RUNTIME + PLAIN, RUNTIME + "COPY pip.conf /etc/\n" + PLAIN + CONF.format("index-url")),
        (MAJOR, RUNTIME + PLAIN, RUNTIME + "COPY pip.conf /root/.pip/\n" + PLAIN + CONF.format("extra-index-url")),
        (
            MAJOR,
            RUNTIME + "COPY pip.conf /cfg\n" + PLAIN + CONF.format("index-url"),
            RUNTIME + "COPY pip.conf /cfg\nENV PIP_CONFIG_FILE=/cfg/pip.conf\n" + PLAIN + CONF.format("index-url"),
        ),
        *(
            (PYTHON, text.format("3.13"), text.format("3.10"))
            for text in (BUILD, ALTERNATIVE, DEADSNAKES, PYENV, CONDA)
        ),
    ],
)
def test_a_fault_is_found_and_its_clean_twin_is_not(check: str, fault: str, clean: str) -> None:
    assert judged(check, "dockerfile", fault, FACTS).outcome is Outcome.FAIL
    assert judged(check, "dockerfile", clean, FACTS).outcome in (Outcome.PASS, Outcome.SKIP)


@pytest.mark.parametrize(
    ("check", "open_", "settled"),
    [
        (
            "cuda-paths-not-of-base",
            "FROM me/image:1\n" + CUDA_HOME,
            "FROM me/image:1\nRUN apt-get install -y cuda-toolkit-12-1\n" + CUDA_HOME,
        ),
        (
            "cuda-paths-not-of-base",
            "FROM me/image:1\nRUN apt-get install -y cuda-toolkit-12-4\n" + CUDA_HOME,
            "FROM me/image:1\nRUN apt-get install -y cuda-toolkit-12-1\n" + CUDA_HOME,
        ),
        (
            "torch-python-unsupported",
            "FROM gcr.io/deeplearning-platform-release/tf2-gpu.2-12:m110\nRUN pip install torch==2.0.1\n",
            "FROM gcr.io/deeplearning-platform-release/tf2-gpu.2-12.py310:m110\nRUN pip install torch==2.0.1\n",
        ),
        (
            MAJOR,
            RUNTIME + "RUN curl -o /etc/pip.conf https://example.com/pip.conf\n" + PLAIN,
            RUNTIME
            + "RUN printf '[global]\\nindex-url=https://download.pytorch.org/whl/cu118\\n' > /etc/pip.conf\n"
            + PLAIN,
        ),
        (
            PYTHON,
            CONDA.format("3.10").replace("&&", "&& true\nRUN"),
            CONDA.format("3.10").replace("e &&", "e && true\nRUN conda run -n e"),
        ),
        (
            "nvcc-used-without-devel",
            OLD + "RUN apt-get install -y cuda-nvcc-$(awk -F. x /etc/version)\n" + MAKE,
            OLD + "RUN apt-get install -y cuda-nvcc-11-8\n" + MAKE,
        ),
    ],
)
def test_what_is_not_known_stays_open_until_the_file_says_it(check: str, open_: str, settled: str) -> None:
    assert judged(check, "dockerfile", open_, FACTS).outcome is Outcome.UNKNOWN
    assert judged(check, "dockerfile", settled, FACTS).outcome in (Outcome.PASS, Outcome.SKIP)


def test_a_variable_without_a_value_chooses_no_branch() -> None:
    for asked in ("torch", "torch==2.1.0"):
        found = judged("unpinned-torch", "dockerfile", NIGHTLY.replace("{}", asked), FACTS)
        assert found.outcome is not Outcome.FAIL


def test_builds_that_do_not_go_together_are_an_error() -> None:
    text = RUNTIME + f"RUN pip3 install torch==2.1.0 {INDEX}\nRUN pip3 install torchvision==0.16.0\n"
    (finding,) = judged(MATE, "dockerfile", text, FACTS).findings
    assert finding.severity is Severity.ERROR
    assert finding.message == "torchvision 0.16.0 is built for CUDA 12.1 and torch 2.1.0 for CUDA 11.8"
