"""One report in every format, and what ``explain`` and ``debug`` show at a terminal, compared with the files in
``golden``; run this file to rewrite them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import debugged
import explained
import pytest

from envkit import __version__
from envkit.debug import render as debug_render
from envkit.explain import as_text
from envkit.model import Coverage, Finding, NoGpu, Outcome, Report, Result, Severity, Subject
from envkit.report import FORMATS, Bar, Detail, Table, render

GOLDEN = Path(__file__).parent / "golden"

PACKAGES = "/usr/local/lib/python3.11/site-packages/nvidia"
NO_GPU = "no GPU was given to this run"
NO_GROUP = "the mapped NCCL was not observed: no process group"
SKIPPED = ("smoke-attention", "smoke-conv", "smoke-fft", "smoke-gemm")
REPORT = Report(
    subject=Subject("image", "registry.example/team/train:2024-11"),
    elapsed_s=4.2371,
    results=(
        Result("image-arch-covers-gpu", Outcome.SKIP, reason=NO_GPU),
        Result("image-cublas-not-build", Outcome.PASS),
        Result(
            "image-cudart-mismatch",
            Outcome.FAIL,
            (
                Finding(
                    "torch is built for CUDA 12.4 and binds libcudart 11.8.89 of LD_LIBRARY_PATH",
                    where="/usr/local/cuda-11.8/lib64/libcudart.so.11.0",
                    evidence={
                        "12.4": "torch.version.cuda",
                        "11.8.89": "cudaRuntimeGetVersion of the mapped copy, dladdr",
                    },
                    fix="remove /usr/local/cuda-11.8/lib64 from LD_LIBRARY_PATH",
                ),
            ),
        ),
        Result("image-cudnn-parts-differ", Outcome.PASS),
        Result(
            "image-libraries-twice",
            Outcome.FAIL,
            (
                Finding(
                    "libnccl is mapped from 2 files",
                    Severity.WARNING,
                    evidence={f"{PACKAGES}/nccl/lib/libnccl.so.2": "/proc/self/maps"},
                    fix="pip uninstall nvidia-nccl-cu11\npip install --force-reinstall nvidia-nccl-cu12",
                ),
                Finding("libnvrtc is mapped from 2 files with the same content", Severity.NOTE),
            ),
        ),
        Result("image-nccl-not-build", Outcome.UNKNOWN, reason=NO_GROUP),
        Result("image-python-abi", Outcome.CRASHED, reason="KeyError: 'cp39'"),
        *(Result(name, Outcome.SKIP, reason=NO_GPU) for name in SKIPPED),
        Result("smoke-compile", Outcome.SKIP, reason="no compiler in the image"),
    ),
    observed={"name": "registry.example/team/train:2024-11", "digest": "sha256:0123"},
    coverage=Coverage(files=True, cpu=True, left=4, no_gpu=NoGpu.ABSENT),
)
TABLES = (
    Table(
        "libraries as loaded",
        ("library", "version", "found by", "path"),
        (
            ("cudart", "11.8.89", "ld_library_path", "/usr/local/cuda-11.8/lib64/libcudart.so.11.0"),
            ("cudnn", "9.1.0", "rpath of libtorch_cuda.so", f"{PACKAGES}/cudnn/lib/libcudnn.so.9"),
        ),
    ),
    Table("devices", ("index", "name"), (("0", "NVIDIA H100 80GB HBM3"),)),
)


BARS = (
    Bar("speed-copy copy cuda:0", 2990.0, "GB/s", 3350.0, 2987.0),
    Bar("speed-gemm bf16 cuda:0", 530.0, "TFLOP/s", 989.0),
    Bar("speed-launch graph cuda:0", 3.4, "us"),
)


def rendered(format: str) -> str:
    text = render(REPORT, format, tables=TABLES, bars=BARS, detail=Detail.VERBOSE)
    return text.replace(f'"{__version__}"', '"VERSION"')


def test_every_format_has_a_golden_file() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {*(f"report.{format}" for format in FORMATS), *TEXTS}


@pytest.mark.parametrize("format", FORMATS)
def test_a_report_prints_as_before(format: str) -> None:
    assert rendered(format) == (GOLDEN / f"report.{format}").read_text(encoding="utf-8")


TEXTS: dict[str, Callable[[], str]] = {
    "explain.text": lambda: as_text.render(explained.explanation()),
    "debug-crash.text": lambda: debug_render.text(debugged.crash()),
    "debug-hang.text": lambda: debug_render.text(debugged.hang()),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_for_a_terminal_is_as_before(name: str) -> None:
    assert TEXTS[name]() == (GOLDEN / name).read_text(encoding="utf-8")


def rewrite() -> None:
    for format in FORMATS:
        (GOLDEN / f"report.{format}").write_text(rendered(format), encoding="utf-8")
    for name, text in TEXTS.items():
        (GOLDEN / name).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
