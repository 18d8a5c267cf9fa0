"""The checks of compilers at their edges; each fault beside its clean twin stands on the check's page."""

from __future__ import annotations

from dataclasses import replace

import answers
import pytest

from envkit import facts
from envkit.model import Observed, Outcome, Result, Severity
from envkit.subjects import Image
from envkit.subjects.image import Assembler, DriverSeen, Toolkit, TorchBuild
from envkit.subjects.imported import ImportEnd

FACTS = facts.load()


def image(
    *toolkits: tuple[str, str],
    cuda: str = "12.4",
    compiler: str = "gcc 12.2.0",
    assemblers: tuple[Assembler, ...] = (),
    driver: str = "13.0",
) -> Image:
    build = TorchBuild(f"2.6.0+{cuda}", cuda, 0, "", (), "/opt/venv/torch")
    found = tuple(Toolkit(via, f"/{via.strip('/')}/bin/nvcc", version) for via, version in toolkits)
    return Image(
        "i",
        torch_import=Observed.of(ImportEnd("done"), "import"),
        torch=Observed.of(build, "torch._C"),
        toolkits=Observed.of(found, "nvcc --version"),
        compiler=Observed.of(compiler, "c++ -dumpfullversion"),
        assemblers=Observed.of(assemblers, "ptxas --version"),
        driver=Observed.of(DriverSeen("/libcuda.so.1", init=0, cuda=driver), "dlopen"),
    )


def one(check: str, subject: Image) -> Result:
    return answers.judged(check, subject)


@pytest.mark.parametrize(
    ("toolkits", "severities"),
    [
        ([("CUDA_HOME", "12.4.131")], []),
        ([("CUDA_HOME", "12.6.85")], [Severity.NOTE]),
        ([("CUDA_HOME", "13.0.88")], [Severity.ERROR]),
        ([("CUDA_PATH", "11.8.89")], [Severity.ERROR]),
        ([("PATH", "13.0.88")], [Severity.WARNING]),
        ([("/usr/local/cuda", "13.0.88")], [Severity.WARNING]),
        ([("CUDA_HOME", "12.4.131"), ("PATH", "13.0.88")], [Severity.WARNING]),
        ([("CUDA_HOME", "12.4.131"), ("PATH", "12.4.99")], []),
        ([("CUDA_HOME", "12.4.131"), ("/usr/local/cuda", "13.0.88")], []),
        ([("PATH", "12.4.131"), ("nvidia-cuda-nvcc", "13.5.37")], []),
        ([("/usr/local/cuda", "13.0.88"), ("CUDA_HOME", "12.4.131")], []),
    ],
)
def test_the_nvcc_that_a_build_takes_is_judged(toolkits: list[tuple[str, str]], severities: list[Severity]) -> None:
    result = one("image-nvcc-of-other-cuda", image(*toolkits))
    assert [finding.severity for finding in result.findings] == severities
    assert result.outcome is (Outcome.FAIL if severities else Outcome.PASS)


def test_a_cpu_torch_asks_for_no_cuda_and_two_toolkits_are_told_all_the_same() -> None:
    assert one("image-nvcc-of-other-cuda", image(("CUDA_HOME", "13.0.88"), cuda="")).outcome is Outcome.PASS
    two = image(("CUDA_HOME", "13.0.88"), ("PATH", "12.4.131"), cuda="")
    (finding,) = one("image-nvcc-of-other-cuda", two).findings
    assert [word for word in ("13.0.88", "12.4.131", "CUDA_HOME", "PATH") if word not in finding.message] == []


def test_a_cuda_home_without_a_compiler_matters_only_beside_one_with() -> None:
    gone = Toolkit("CUDA_HOME", "/usr/local/cuda/bin/nvcc", "", "No such file or directory")
    alone = replace(image(), toolkits=Observed.of((gone,), "nvcc --version"))
    assert one("image-nvcc-of-other-cuda", alone).outcome is Outcome.SKIP
    other = Toolkit("PATH", "/usr/bin/nvcc", "12.4.131")
    (finding,) = one("image-nvcc-of-other-cuda", replace(image(), toolkits=Observed.of((gone, other), "nvcc"))).findings
    assert (finding.severity, finding.where) == (Severity.WARNING, gone.path)


@pytest.mark.parametrize(
    ("nvcc", "compiler", "outcome"),
    [
        ("12.4.131", "gcc 13.9.0", Outcome.PASS),
        ("12.4.131", "gcc 14.1.0", Outcome.FAIL),
        ("12.4.131", "clang 17.0.6", Outcome.PASS),
        ("12.4.131", "clang 18.1.0", Outcome.FAIL),
        ("11.7.99", "clang 14.0.0", Outcome.UNKNOWN),
        ("99.1.1", "gcc 12.2.0", Outcome.UNKNOWN),
        ("12.4.131", "", Outcome.SKIP),
    ],
)
def test_the_host_compiler_is_held_to_its_nvccs_bound(nvcc: str, compiler: str, outcome: Outcome) -> None:
    result = one("image-compiler-not-supported-by-nvcc", image(("CUDA_HOME", nvcc), compiler=compiler))
    assert result.outcome is outcome, result


def assembler(version: str, owner: str = "triton") -> Assembler:
    return Assembler("/site/triton/bin/ptxas", version, owner, "" if version else "Permission denied")


@pytest.mark.parametrize(
    ("versions", "driver", "outcome"),
    [
        (["12.4.99"], "12.2", Outcome.PASS),
        (["12.9.86", "13.4.59"], "13.0", Outcome.PASS),
        (["12.9.86", "13.4.59"], "12.8", Outcome.FAIL),
        (["", "13.4.59"], "12.8", Outcome.FAIL),
        (["", "12.4.99"], "12.8", Outcome.UNKNOWN),
        (["12.4.99"], "", Outcome.UNKNOWN),
        ([], "12.8", Outcome.SKIP),
    ],
)
def test_an_assembler_of_a_newer_major_is_a_warning(versions: list[str], driver: str, outcome: Outcome) -> None:
    brought = tuple(assembler(version) for version in versions)
    result = one("image-assembler-newer-than-driver", image(assemblers=brought, driver=driver))
    assert result.outcome is outcome
    assert {finding.severity for finding in result.findings} <= {Severity.WARNING}


def test_an_assembler_that_no_package_owns_is_named_by_its_variable() -> None:
    (finding,) = one(
        "image-assembler-newer-than-driver", image(assemblers=(assembler("13.0.88", ""),), driver="12.8")
    ).findings
    assert "ptxas of TRITON_PTXAS_PATH is of CUDA 13.0" in finding.message
