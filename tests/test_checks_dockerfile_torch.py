"""Judgements on torch, CUDA and drivers in Dockerfiles that the pages do not show: near misses, places, severities."""

from __future__ import annotations

import pytest
from written import judged

from envkit import facts as tables
from envkit.model import Outcome, Result, Severity

FACTS = tables.load()
MAJOR = "torch-cuda-vs-base-mismatch-major"
MINOR = "torch-cuda-vs-base-mismatch-minor"
RASTERIZER = "git+https://github.com/graphdeco-inria/diff-gaussian-rasterization"


def said(check: str, text: str) -> Result:
    return judged(check, "dockerfile", text, FACTS)


def words_at(text: str, result: Result) -> str:
    """What the first finding points at."""
    span = result.findings[0].span
    assert span is not None and span.line == span.end_line
    return text.splitlines()[span.line - 1][span.column - 1 : span.end_column - 1]


def test_a_finding_stands_on_the_requirement_and_names_the_row_that_says_its_cuda() -> None:
    text = "FROM nvidia/cuda:11.8.0-base-ubuntu22.04\nRUN pip3 install numpy torch==2.1.0 einops\n"
    result = said(MAJOR, text)
    assert words_at(text, result) == "torch==2.1.0"
    row = next(row for row in FACTS.torch_builds("2.1.0") if row.default)
    assert any(row.source in why and row.seen in why for why in result.findings[0].evidence.values())
    assert "https://download.pytorch.org/whl/cu118" in result.findings[0].fix


def test_the_base_of_the_stage_that_compiles_is_the_one_to_speak_of() -> None:
    text = (
        "FROM nvidia/cuda:11.8.0-devel-ubuntu22.04 AS build\n"
        "RUN python3 -m venv /opt/venv\n"
        "RUN /opt/venv/bin/pip install torch==2.1.0\n"
        f"RUN /opt/venv/bin/pip install --no-build-isolation {RASTERIZER}\n"
        "FROM ubuntu:22.04\n"
        "COPY --from=build /opt/venv /opt/venv\n"
    )
    result = said(MAJOR, text)
    assert [finding.severity for finding in result.findings] == [Severity.ERROR]
    assert "nvidia/cuda:11.8.0-devel-ubuntu22.04" in result.findings[0].message


@pytest.mark.parametrize(
    ("more", "severity"),
    [
        (f"RUN pip3 install --no-build-isolation {RASTERIZER}", Severity.ERROR),
        (
            f"RUN apt-get install -y cuda-toolkit-12-1 && pip3 install --no-build-isolation {RASTERIZER}",
            Severity.WARNING,
        ),
        (f'RUN if [ -n "$X" ]; then pip3 install --no-build-isolation {RASTERIZER}; fi', Severity.WARNING),
        ("RUN pip3 install flash-attn --no-build-isolation", Severity.WARNING),
        ("RUN nvcc --version", Severity.WARNING),
        ("RUN nvcc -o /usr/bin/app app.cu", Severity.WARNING),
    ],
)
def test_another_major_is_an_error_only_where_torch_surely_refuses_the_compiler(more: str, severity: Severity) -> None:
    text = f"FROM nvidia/cuda:11.8.0-devel-ubuntu22.04\nARG X\nRUN pip3 install torch==2.1.0\n{more}\n"
    assert [finding.severity for finding in said(MAJOR, text).findings] == [severity]


@pytest.mark.parametrize(
    ("requirements", "outcome"),
    [
        ("torch", Outcome.FAIL),  # every newest one is for a later major
        ("'torch>=2.8.0'", Outcome.FAIL),
        ("'torch<2.1'", Outcome.PASS),  # the newest of them is for a CUDA 11, and none will be newer
        ("torch torchvision==0.15.2", Outcome.PASS),  # it asks for a torch of its time, for a CUDA 11
        ("torch xformers==0.0.22", Outcome.PASS),
        ("torch --index-url https://wheels.example.com/ours", Outcome.UNKNOWN),
        ("torch -r more.txt", Outcome.UNKNOWN),
    ],
)
def test_a_release_left_open_is_judged_only_where_all_that_may_come_agree(requirements: str, outcome: Outcome) -> None:
    text = (
        "FROM nvidia/cuda:11.8.0-base-ubuntu22.04\n"
        f"RUN apt-get update && apt-get install -y python3-pip\nRUN pip3 install {requirements}\n"
    )
    assert said(MAJOR, text).outcome is outcome


def test_a_later_major_than_todays_newest_proves_nothing() -> None:
    text = (
        "FROM nvidia/cuda:13.0.2-base-ubuntu24.04\nRUN apt-get update && apt-get install -y python3-venv\n"
        "RUN python3 -m venv /v && /v/bin/pip install torch\n"
    )
    assert said(MAJOR, text).outcome is Outcome.UNKNOWN
    assert said(MINOR, text).outcome is Outcome.SKIP  # the doubt about the major stands for it


@pytest.mark.parametrize(("cuda", "outcome"), [("12.4.1", Outcome.PASS), ("11.8.0", Outcome.FAIL)])
def test_no_release_to_come_is_for_a_python_that_torch_has_left_behind(cuda: str, outcome: Outcome) -> None:
    text = (
        f"FROM nvidia/cuda:{cuda}-base-ubuntu20.04\nRUN apt-get update && apt-get install -y python3-pip\n"
        "RUN pip3 install torch\n"
    )
    assert said(MAJOR, text).outcome is outcome


def test_uv_without_a_driver_takes_the_build_for_the_cpu() -> None:
    text = "FROM nvidia/cuda:12.4.1-base-ubuntu22.04\nRUN uv pip install --system --torch-backend={} torch==2.6.0\n"
    assert said("cpu-torch-in-cuda-image", text.format("auto")).outcome is Outcome.FAIL
    assert said("cpu-torch-in-cuda-image", text.format("cu124")).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("torch==2.1.0", Outcome.PASS),
        ("torch==2.1.0+cu118 -f https://download.pytorch.org/whl/torch_stable.html", Outcome.FAIL),
        ("torch==2.1.0 --index-url https://download.pytorch.org/whl/cu118", Outcome.PASS),  # the version is there
        ("--force-reinstall torch==2.1.0 --index-url https://download.pytorch.org/whl/cu118", Outcome.FAIL),
        ("'torch<2.1'", Outcome.FAIL),
        ("'torch>=2.0'", Outcome.PASS),
    ],
)
def test_the_base_keeps_its_torch_where_pip_would(line: str, outcome: Outcome) -> None:
    result = said(
        "torch-installed-twice", f"FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime\nRUN pip install {line}\n"
    )
    assert result.outcome is outcome, result


@pytest.mark.parametrize(
    ("base", "outcome"),
    [
        ("huggingface/transformers-pytorch-gpu:latest", Outcome.FAIL),  # it moves with the releases of torch
        ("huggingface/transformers-pytorch-gpu:4.18.0", Outcome.PASS),  # of that time, perhaps the same
        ("someone/something:latest", Outcome.PASS),
    ],
)
def test_a_moving_image_of_torch_has_a_newer_one(base: str, outcome: Outcome) -> None:
    assert said("torch-installed-twice", f"FROM {base}\nRUN pip3 install torch==1.10.0+cu113\n").outcome is outcome


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        ('CMD ["python3", "serve.py"]', Outcome.PASS),
        ("CMD LD_LIBRARY_PATH=/usr/local/cuda/compat python3 serve.py", Outcome.FAIL),
        ("RUN LD_LIBRARY_PATH=/usr/local/cuda/compat python3 -c 1", Outcome.PASS),
        ("RUN echo 'export LD_LIBRARY_PATH=/usr/local/cuda/compat' >> /root/.bashrc", Outcome.FAIL),
        ("RUN echo /usr/local/cuda/compat | tee /etc/ld.so.conf.d/compat.conf", Outcome.FAIL),
        ("RUN ls /usr/local/cuda/compat", Outcome.PASS),
        ("RUN rm -rf /usr/local/cuda/compat && ldconfig", Outcome.PASS),
    ],
)
def test_what_holds_at_every_start_counts_as_registered(command: str, outcome: Outcome) -> None:
    text = f"FROM nvidia/cuda:12.4.1-base-ubuntu22.04\n{command}\n"
    assert said("cuda-compat-registered", text).outcome is outcome


@pytest.mark.parametrize(
    ("package", "severity"),
    [
        ("nvidia-driver-535-server", Severity.ERROR),
        ("nvidia-headless-535", Severity.ERROR),
        ("libcuda1", Severity.ERROR),
        ("cuda-drivers-550", Severity.ERROR),
        ("xserver-xorg-video-nvidia-535", Severity.ERROR),
        ("cuda", Severity.WARNING),
        ("cuda-runtime-12-4", Severity.WARNING),
        ("cuda-toolkit-12-4", None),
        ("cuda-libraries-12-4", None),
        ("cuda-nvcc-12-4", None),
        ("cuda-compat-12-4", None),
        ("cuda-keyring", None),
        ("nvidia-container-toolkit", None),
        ("libnvidia-container-tools", None),
        ("libnvidia-egl-wayland1", None),
        ("nvidia-cuda-dev", None),
        ("nvidia-settings", None),
    ],
)
def test_a_driver_is_told_from_what_only_has_its_name(package: str, severity: Severity | None) -> None:
    result = said("driver-in-image", f"FROM ubuntu:22.04\nRUN apt-get update && apt-get install -y {package}\n")
    assert [finding.severity for finding in result.findings] == ([] if severity is None else [severity])


def test_two_lines_for_one_driver_are_one_finding_each_line_one() -> None:
    text = "FROM ubuntu:22.04\nRUN apt-get install -y nvidia-driver-535 nvidia-utils-535\n"
    assert len(said("driver-in-image", text).findings) == 1


@pytest.mark.parametrize(
    ("wishes", "image", "severity"),
    [
        ("#: driver 535", "nvidia/cuda:12.4.1-base-ubuntu22.04", None),  # a branch that the image lists
        ("#: driver 545", "nvidia/cuda:12.4.1-base-ubuntu22.04", Severity.ERROR),  # one that it does not
        ("#: driver 550", "nvidia/cuda:12.4.1-base-ubuntu22.04", None),
        ("#: driver 545", "nvidia/cuda:12.4.1-base-ubuntu22.04\nENV NVIDIA_DISABLE_REQUIRE=true", None),
        ("#: driver 545", "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime", None),  # built on Ubuntu, requires nothing
        # The image lists the branch, from CUDA 12.5 on for no GeForce and no TITAN, before that for them too.
        ("#: driver 550\n#: gpu RTX 4090", "nvidia/cuda:12.6.3-base-ubuntu22.04", Severity.ERROR),
        ("#: driver 550\n#: gpu TITAN RTX", "nvidia/cuda:12.6.3-base-ubuntu22.04", Severity.ERROR),
        ("#: driver 550\n#: gpu H100\n#: gpu Quadro RTX 8000", "nvidia/cuda:12.6.3-base-ubuntu22.04", None),
        ("#: driver 560\n#: gpu RTX 4090", "nvidia/cuda:12.6.3-base-ubuntu22.04", None),
        ("#: driver 535\n#: gpu RTX 4090", "nvidia/cuda:12.4.1-base-ubuntu22.04", None),
        ("#: driver 545", "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel", Severity.ERROR),
        ("#: driver 450.80.02", "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime", Severity.ERROR),
    ],
)
def test_what_the_base_requires_of_a_driver(wishes: str, image: str, severity: Severity | None) -> None:
    result = said("driver-too-old", f"{wishes}\nFROM {image}\n")
    assert [finding.severity for finding in result.findings] == ([] if severity is None else [severity]), result


def test_a_gpu_that_nobody_knows_hides_no_other() -> None:
    text = "#: gpu RTX 5090\n#: gpu Voodoo 3\nFROM python:3.11\nRUN pip install torch==2.6.0\n"
    result = said("gpu-arch-not-covered", text)
    assert result.outcome is Outcome.FAIL and len(result.findings) == 1 and "Voodoo" in result.reason


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("RUN pip3 install onnxruntime-gpu==1.20.1 torch==2.5.1", False),  # torch brings the cuDNN that it loads
        ("RUN pip3 install 'onnxruntime-gpu[cuda,cudnn]==1.21.0'", False),
        ("RUN pip3 install tensorflow==2.18.0", True),
        ("RUN pip3 install 'tensorflow[and-cuda]==2.18.0'", False),
        ("RUN pip3 install tensorflow==2.15.0", False),
        ("RUN pip3 install tensorflow", False),  # which one comes hangs on the Python
        ("RUN pip3 install ctranslate2==4.5.0 nvidia-cudnn-cu12==9.1.0.70", False),
    ],
)
def test_a_framework_meets_the_cudnn_of_the_base_or_another(lines: str, found: bool) -> None:
    result = said("cudnn-mismatch", f"FROM nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04\n{lines}\n")
    assert any(finding.severity is Severity.ERROR for finding in result.findings) is found, result


def test_a_second_cuda_is_told_once_however_often_it_is_installed() -> None:
    text = "FROM nvidia/cuda:12.4.1-base-ubuntu22.04\n" + 2 * "RUN apt-get install -y cuda-toolkit-11-8\n"
    assert len(said("duplicate-cuda", text).findings) == 1


def test_a_smaller_base_is_named_only_where_it_exists() -> None:
    text = "FROM nvidia/cuda:{}\nRUN pip3 install torch==2.1.0\n"
    known = said("duplicate-cuda", text.format("12.1.1-cudnn8-devel-ubuntu22.04")).findings[0].fix
    other = said("duplicate-cuda", text.format("12.1.9-cudnn8-devel-ubuntu22.04")).findings[0].fix
    assert "12.1.1-base-ubuntu22.04" in known and "12.1.9" not in other


_CUDA_12 = "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nRUN apt-get update && apt-get install -y python3-pip git\n"


@pytest.mark.parametrize(
    ("build", "outcome"),
    [
        ("git clone https://github.com/Comfy-Org/ComfyUI a && pip3 install -r a/requirements.txt", Outcome.FAIL),
        ("git clone https://github.com/MIC-DKFZ/HD-BET a && cd a && pip3 install -e .", Outcome.FAIL),
        (
            "git clone https://github.com/MIC-DKFZ/HD-BET a && cd a && git checkout master && pip3 install -e .",
            Outcome.FAIL,
        ),
        (
            "git clone https://github.com/MIC-DKFZ/HD-BET a && cd a && git checkout 1a2b3c4 && pip3 install -e .",
            Outcome.UNKNOWN,
        ),
        ("git clone -b v1 https://github.com/MIC-DKFZ/HD-BET a && cd a && pip3 install -e .", Outcome.UNKNOWN),
        ("git clone https://github.com/MIC-DKFZ/another a && cd a && pip3 install -e .", Outcome.UNKNOWN),
        ("pip3 install git+https://github.com/Sanster/IOPaint", Outcome.FAIL),
        ("pip3 install iopaint", Outcome.FAIL),
        ("pip3 install iopaint torch==2.5.1", Outcome.PASS),
    ],
)
def test_what_much_used_projects_ask_of_torch_is_known_at_their_newest_state_alone(
    build: str, outcome: Outcome
) -> None:
    for check in (MAJOR, "unpinned-torch"):
        assert said(check, f"{_CUDA_12}RUN {build}\n").outcome is outcome, check


CU124 = "FROM python:3.11\nRUN pip install torch==2.6.0 --index-url https://download.pytorch.org/whl/cu124\n"
RUNPOD = "FROM runpod/pytorch:2.8.0-py3.11-cuda12.8.1-cudnn-devel-ubuntu22.04\n"
TWICE, REJECTED = "torch-installed-twice", "package-rejected"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{CU124}RUN pip install sympy==1.12 accelerate==1.3.0\n", TWICE),
        (f"{CU124}RUN pip install triton==3.1.0 'peft<1'\n", TWICE),
        (f"{CU124}RUN pip install 'triton<3.2' accelerate==1.3.0\n", TWICE),
        (f"{RUNPOD}RUN pip install triton==3.3.1 accelerate\n", TWICE),
        ("FROM python:3.11\nRUN pip install torch --index-url https://download.pytorch.org/whl/cu118\n"
         "RUN pip install sympy==1.12 accelerate==1.3.0\n", TWICE),
        (f"{CU124}RUN pip install sympy==1.13.1 accelerate==1.3.0\n", ""),
        (f"{CU124}RUN pip install sympy==1.12 numpy\n", REJECTED),  # nothing has pip resolve torch
        (f"{CU124}RUN pip install --no-deps sympy==1.12 accelerate==1.3.0\n", REJECTED),
        (f"{CU124}RUN python -m venv /opt/venv && /opt/venv/bin/pip install sympy==1.12 accelerate==1.3.0\n", ""),
        (f"{RUNPOD}RUN pip install 'triton>=3.3.0,<3.4.0'\n", REJECTED),
        (f"{RUNPOD}RUN pip install triton==3.3.1\n", REJECTED),
        (f"{CU124}RUN pip install triton==3.1.0\n", REJECTED),
        (f"{RUNPOD}RUN pip install triton==3.4.0\n", ""),
        (f"{RUNPOD}RUN pip install 'triton>=3.3'\n", ""),
        (f"{RUNPOD}RUN pip install triton==3.3.1 && pip install torch==2.7.1\n", TWICE),  # the last has its own
        ("FROM nvcr.io/nvidia/pytorch:24.08-py3\nRUN pip install triton==3.3.1\n", ""),  # NVIDIA's own build
        (f"{RUNPOD}RUN python -m venv /opt/venv && /opt/venv/bin/pip install triton==3.3.1\n", ""),
    ],
)  # fmt: skip
def test_what_is_pinned_against_the_torch_that_is_there(text: str, told: str) -> None:
    for check in (TWICE, REJECTED):
        wanted = [Severity.WARNING] if check == told else []
        assert [one.severity for one in said(check, text).findings] == wanted, check
