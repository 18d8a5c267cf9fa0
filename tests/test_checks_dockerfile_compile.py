"""What a Dockerfile compiles for CUDA, and which compilers are there."""

from __future__ import annotations

import answers
import pytest
from written import Beside, judged

from envkit import facts as tables
from envkit.dockerfile.evaluate import read
from envkit.judging.checks._compiles import compiles, has_compiler, has_nvcc, switched_on, toolkit
from envkit.model import Severity
from envkit.subjects.dockerfile import Dockerfile

FACTS = tables.load()
RUNTIME = "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\n"
DEVEL = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\n"


def evaluated(text: str) -> Dockerfile:
    return answers.same("dockerfiles", text, read(text, "Dockerfile", FACTS, Beside({})))


def made(line: str) -> list[tuple[str, bool, bool]]:
    """What one line in a devel image compiles: name, sure, whether against torch."""
    return [(one.what, one.sure, one.torch_extension) for one in compiles(evaluated(DEVEL + line + "\n"), FACTS)]


@pytest.mark.parametrize(
    ("line", "what", "sure", "torch"),
    [
        ("RUN nvcc -o a a.cu", "nvcc", True, False),
        ("RUN cmake -B build -DGGML_CUDA=ON .", "cmake with GGML_CUDA", True, False),
        ("RUN cmake .. -D WITH_CUDA=ON /opencv", "cmake with WITH_CUDA", False, False),
        ("RUN cmake .. -DCMAKE_CUDA_ARCHITECTURES=86", "cmake with CMAKE_CUDA_ARCHITECTURES", False, False),
        ("RUN make LLAMA_CUBLAS=1", "make with LLAMA_CUBLAS=1", True, False),
        ("RUN GGML_CUDA=1 make -j", "make with GGML_CUDA=1", True, False),
        ("RUN sed -i 's/GPU=0/GPU=1/' Makefile && make", "make with GPU=1 in its Makefile", True, False),
        ("RUN make -j CUDA_HOME=/usr/local/cuda", "make with CUDA_HOME=/usr/local/cuda", False, False),
        ("RUN cargo build --release --features cuda", "cargo with a feature for CUDA", False, False),
        ("RUN pip install flash-attn", "flash-attn", False, True),
        ("RUN FLASH_ATTENTION_FORCE_BUILD=TRUE pip install flash-attn", "flash-attn", True, True),
        ("RUN pip install flash-attn --no-binary flash-attn", "flash-attn", True, True),
        ("RUN uv pip install --system mamba-ssm", "mamba-ssm", False, True),
        ("RUN FORCE_CUDA=1 pip install git+https://github.com/facebookresearch/detectron2", "detectron2", True, True),
        (
            "RUN git clone https://github.com/NVIDIA/apex && cd apex && python3 setup.py install --cuda_ext",
            "apex",
            True,
            True,
        ),
        ("RUN git clone https://x.y/NVIDIA/apex a && pip install --global-option=--cuda_ext ./a", "apex", True, True),
        ("RUN APEX_CUDA_EXT=1 pip install git+https://x.y/NVIDIA/apex", "apex with APEX_CUDA_EXT", True, True),
        ("RUN DS_BUILD_OPS=1 pip install deepspeed", "deepspeed with DS_BUILD_OPS", True, True),
        (
            "RUN DS_BUILD_OPS=1 pip install --extra-index-url https://x.y/whl/cu121 deepspeed",
            "deepspeed with DS_BUILD_OPS",
            True,
            True,
        ),
        ("RUN FORCE_CUDA=1 pip install git+https://x.y/mit-han-lab/torchsparse", "torchsparse", True, True),
        ("RUN CT_CUBLAS=1 pip install ctransformers", "ctransformers with CT_CUBLAS", True, False),
        ("RUN pip install pycuda", "pycuda", True, False),
        (
            "ENV CMAKE_ARGS=-DGGML_CUDA=on\nRUN pip install llama-cpp-python",
            "llama-cpp-python with GGML_CUDA",
            True,
            False,
        ),
    ],
)
def test_what_compiles_is_found(line: str, what: str, sure: bool, torch: bool) -> None:
    assert made(line) == [(what, sure, torch)]


@pytest.mark.parametrize(
    "line",
    [
        "RUN cmake -B build -DGGML_CUDA=OFF .",
        "RUN cmake -B build -DCUDA_STATIC_RUNTIME=ON .",
        "RUN cmake --build build",
        "RUN make",
        "RUN pip install llama-cpp-python",
        "RUN CMAKE_ARGS=-DGGML_CUDA=on pip install llama-cpp-python --extra-index-url https://x.y/whl/cu121",
        "RUN pip install detectron2",
        "RUN pip install git+https://x.y/mit-han-lab/torchsparse",
        "RUN CT_CUBLAS=1 pip install llama-cpp-python",
        "RUN git clone https://x.y/microsoft/DeepSpeed && cd DeepSpeed && python setup.py install --cuda",
        "RUN pip install apex",
        "RUN pip install mmcv -f https://download.openmmlab.com/mmcv/dist/cu121/torch2.1/index.html",
        "RUN pip install deepspeed",
        "RUN FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE pip install flash-attn",
        "RUN pip install numpy .",
        'CMD ["nvcc", "a.cu"]',
        "RUN echo nvcc a.cu",
    ],
)
def test_what_compiles_nothing_is_left_alone(line: str) -> None:
    assert made(line) == []


@pytest.mark.parametrize(
    ("line", "sure"),
    [("nvcc --version", True), ("nvcc --version || true", False), ("nvcc -V; true", False), ("nvcc -V | cat", False)],
)
def test_asking_nvcc_for_its_version_needs_it_only_where_failing_ends_the_build(line: str, sure: bool) -> None:
    (one,) = compiles(evaluated(f"{DEVEL}RUN {line}\n"), FACTS)
    assert (one.asks, one.needs_nvcc, one.sure) == (True, True, sure)


def test_a_stage_that_nothing_needs_compiles_nothing() -> None:
    assert compiles(evaluated(f"{DEVEL}RUN nvcc a.cu\n{RUNTIME}RUN true\n"), FACTS) == ()


@pytest.mark.parametrize(
    ("text", "there"),
    [
        (DEVEL, True),
        (RUNTIME, False),
        ("FROM python:3.11\n", False),
        ("FROM example.com/own:1\n", None),
        (RUNTIME + "RUN apt-get install -y cuda-nvcc-12-4\n", True),
        (RUNTIME + "RUN apt-get install -y cuda-toolkit-12-4\n", True),
        (RUNTIME + "RUN apt-get install -y nvidia-cuda-toolkit\n", True),
        (RUNTIME + "RUN apt-get install -y cuda-cudart-12-4 cuda-libraries-12-4\n", False),
        (RUNTIME + "RUN conda install -y -c nvidia cuda-nvcc\n", True),
        (RUNTIME + "RUN conda install -y cudatoolkit\n", False),
        (RUNTIME + "RUN pip install nvidia-cuda-nvcc-cu12\n", False),
        (RUNTIME + "RUN sh cuda_12.4.1_550.54.15_linux.run --silent --toolkit\n", True),
        (RUNTIME + "RUN if [ -f /x ]; then apt-get install -y cuda-nvcc-12-4; fi\n", None),
        ("FROM example.com/own:1\nRUN apt-get install -y cuda-nvcc-12-4\n", True),
        (f"{DEVEL.strip()} AS d\n{RUNTIME}COPY --from=d /usr/local/cuda /usr/local/cuda\n", True),
        (f"{DEVEL.strip()} AS d\n{RUNTIME}COPY --from=d /usr/local/cuda/lib64 /usr/local/cuda/lib64\n", False),
        (RUNTIME + "COPY --from=nvidia/cuda:12.4.1-devel-ubuntu22.04 /usr/local/cuda /usr/local/cuda\n", True),
    ],
)
def test_nvcc_comes_with_the_base_or_with_what_is_installed(text: str, there: bool | None) -> None:
    dockerfile = evaluated(text)
    assert has_nvcc(dockerfile, len(dockerfile.stages) - 1, None).value is there


def test_nvcc_that_is_installed_later_is_not_there_yet() -> None:
    text = RUNTIME + "RUN nvcc a.cu\nRUN apt-get install -y cuda-nvcc-12-4\n"
    assert judged("nvcc-used-without-devel", "dockerfile", text, FACTS).findings[0].severity is Severity.ERROR


@pytest.mark.parametrize(
    ("text", "there"),
    [
        (DEVEL, True),
        (RUNTIME, False),
        ("FROM python:3.11\n", True),
        ("FROM python:3.11-slim\n", False),
        (RUNTIME + "RUN apt-get install -y gcc\n", True),
        (RUNTIME + "RUN apt-get install -y python3-pip\n", True),
        (RUNTIME + "RUN apt-get install -y --no-install-recommends python3-pip\n", False),
        (RUNTIME + "RUN apt-get install -y --no-install-recommends g++-11\n", True),
        ("FROM python:3.11-alpine\nRUN apk add build-base\n", True),
        (RUNTIME + "RUN conda install -y gxx_linux-64\n", True),
        (RUNTIME + "RUN apt-get install -y gcc && apt-get purge -y gcc\n", None),
        (RUNTIME + "RUN apt-get install -y $PACKAGES\n", None),
        (f"{DEVEL.strip()} AS d\nRUN true\n{RUNTIME}COPY --from=d /app /app\n", False),
    ],
)
def test_a_compiler_comes_with_the_base_or_with_what_is_installed(text: str, there: bool | None) -> None:
    dockerfile = evaluated(text)
    assert has_compiler(dockerfile, len(dockerfile.stages) - 1).value is there


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        (DEVEL, "12.4.1"),
        (RUNTIME + "RUN apt-get install -y cuda-toolkit-11-8\n", "11.8"),
        (DEVEL + "RUN apt-get install -y cuda-toolkit-11-8\n", None),
        (DEVEL + "RUN apt-get install -y cuda-toolkit-12-4\n", "12.4.1"),
        (RUNTIME + "RUN apt-get install -y nvidia-cuda-toolkit\n", None),
        ("FROM python:3.11\nRUN conda install -y cuda-nvcc=12.1\n", "12.1"),
    ],
)
def test_the_toolkit_is_the_bases_or_the_one_that_is_installed(text: str, cuda: str | None) -> None:
    assert toolkit(evaluated(text), 0, None).value == cuda


def test_switches_are_read_with_their_types_and_values() -> None:
    assert switched_on("-DUSE_A=1 -DGGML_CUDA:BOOL=on") == "GGML_CUDA"
    assert switched_on("-DWITH_CUDA=OFF -DCUDA_ARCH_BIN=1") == ""


def test_an_architecture_list_is_judged_by_the_toolkit_of_the_stage_that_compiles() -> None:
    text = (
        "FROM python:3.11 AS base\nENV TORCH_CUDA_ARCH_LIST=9.0\nFROM base\n"
        "RUN apt-get install -y cuda-toolkit-11-7\nRUN nvcc a.cu\n"
    )
    (finding,) = judged("arch-list-unsupported", "dockerfile", text, FACTS).findings
    assert finding.severity is Severity.ERROR
    assert "CUDA 11.7" in finding.message and "9.0" in finding.message


def test_gsplat_that_is_compiled_on_installation_compiles_nothing_at_run_time() -> None:
    text = RUNTIME + "RUN pip install git+https://github.com/nerfstudio-project/gsplat\n"
    assert judged("runtime-cannot-jit", "dockerfile", text, FACTS).outcome == "skip"


EXTENSION = "RUN pip3 install --no-build-isolation git+https://github.com/graphdeco-inria/diff-gaussian-rasterization\n"


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("ENV CUDA_HOME=/usr/local/cuda-11.8", Severity.ERROR),
        ("ENV PATH=/usr/local/cuda-11.8/bin:$PATH", Severity.WARNING),
        ("RUN /usr/local/cuda-11.8/bin/nvcc -V", Severity.ERROR),
        ("RUN make install CUDA=/usr/local/cuda-11.8", Severity.WARNING),
    ],
)
def test_a_folder_that_is_not_there_is_an_error_where_the_build_needs_it(line: str, severity: Severity) -> None:
    text = f"FROM nvidia/cuda:12.1.1-devel-ubuntu22.04\n{line}\nRUN pip3 install torch==2.1.0\n{EXTENSION}"
    (finding,) = judged("cuda-paths-not-of-base", "dockerfile", text, FACTS).findings
    assert finding.severity is severity


def test_a_toolkit_that_is_copied_in_later_is_not_there_yet() -> None:
    copy = "COPY --from=nvidia/cuda:12.4.1-devel-ubuntu22.04 /usr/local/cuda-12.4 /usr/local/cuda-12.4\n"
    use = "RUN nvcc -o a a.cu\n"
    late, soon = (
        judged("nvcc-used-without-devel", "dockerfile", RUNTIME + rest, FACTS) for rest in (use + copy, copy + use)
    )
    assert late.findings and not soon.findings
