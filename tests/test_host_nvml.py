"""The conversation with NVML: over an implementation that tests can break, and over a real shared library."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from envkit.host import nvml
from envkit.host.nvml import NvmlFault
from envkit.host.observe import read_in_child
from envkit.subjects.host import RowRemap


@dataclass
class Machine:
    """NVML of a machine with healthy GPUs; ``faults`` maps a method, or a method and a GPU, to the error it
    returns.
    """

    gpus: int = 1
    faults: dict[str | tuple[str, int], tuple[int, str]] = field(default_factory=dict)

    def _fail(self, method: str, gpu: int = -1) -> None:
        for key in (method, (method, gpu)):
            if key in self.faults:
                raise NvmlFault(*self.faults[key])

    def start(self) -> None:
        self._fail("start")

    def driver(self) -> str:
        self._fail("driver")
        return "550.54.15"

    def cuda(self) -> int:
        self._fail("cuda")
        return 12040

    def count(self) -> int:
        self._fail("count")
        return self.gpus

    def uuid(self, gpu: int) -> str:
        self._fail("uuid", gpu)
        return f"GPU-{gpu}"

    def name(self, gpu: int) -> str:
        self._fail("name", gpu)
        return "NVIDIA H100 80GB HBM3"

    def pci(self, gpu: int) -> str:
        self._fail("pci", gpu)
        return f"00000000:6{gpu}:00.0"

    def capability(self, gpu: int) -> tuple[int, int]:
        self._fail("capability", gpu)
        return (9, 0)

    def memory(self, gpu: int) -> int:
        self._fail("memory", gpu)
        return 85520809984

    def persistence(self, gpu: int) -> bool:
        self._fail("persistence", gpu)
        return True

    def ecc(self, gpu: int) -> tuple[bool, bool]:
        self._fail("ecc", gpu)
        return (True, False)

    def ecc_uncorrected(self, gpu: int) -> int:
        self._fail("ecc_uncorrected", gpu)
        return 0

    def remap(self, gpu: int) -> tuple[int, int, bool, bool]:
        self._fail("remap", gpu)
        return (1, 2, True, False)

    def recovery(self, gpu: int) -> int:
        self._fail("recovery", gpu)
        return 2

    def mig(self, gpu: int) -> bool:
        self._fail("mig", gpu)
        return False


def test_healthy_machine_is_read_whole() -> None:
    seen = nvml.read(Machine(2))
    assert (seen.ended, seen.driver, seen.cuda, len(seen.gpus)) == ("answered", "550.54.15", "12.4", 2)
    gpu = seen.gpus[1]
    assert gpu.pci.value == "0000:61:00.0"
    assert gpu.sm.value == "sm_90"
    assert (gpu.ecc.value, gpu.ecc_pending.value) == ("on", "off")
    assert gpu.remap.value == RowRemap(True, 1, 2, True, False)
    assert gpu.recovery.value == "node reboot"
    assert gpu.mig.value == "off"


@pytest.mark.parametrize(
    ("method", "code", "name", "ended"),
    [
        ("start", 12, "NVML_ERROR_LIBRARY_NOT_FOUND", "no library"),
        ("start", 9, "NVML_ERROR_DRIVER_NOT_LOADED", "error"),
        ("start", 18, "NVML_ERROR_LIB_RM_VERSION_MISMATCH", "error"),
        ("count", 999, "NVML_ERROR_UNKNOWN", "error"),
    ],
)
def test_error_of_the_whole_is_named_with_its_call(method: str, code: int, name: str, ended: str) -> None:
    seen = nvml.read(Machine(faults={method: (code, name)}))
    assert (seen.ended, seen.code, seen.gpus) == (ended, code, ())
    assert f"{name} ({code})" in seen.detail
    assert seen.detail.startswith("nvml")


def test_error_of_one_value_costs_that_value_alone() -> None:
    seen = nvml.read(Machine(2, {("uuid", 1): (15, "NVML_ERROR_GPU_IS_LOST")}))
    assert seen.ended == "answered"
    assert seen.gpus[0].uuid.value == "GPU-0"
    assert seen.gpus[1].uuid.value is None
    assert "NVML_ERROR_GPU_IS_LOST (15)" in seen.gpus[1].uuid.missing
    assert seen.gpus[1].name.value is not None


@pytest.mark.parametrize("code", [3, 13])
def test_what_gpu_or_driver_lacks_is_unsupported_and_not_lost(code: int) -> None:
    names = ("persistence", "ecc", "ecc_uncorrected", "remap", "recovery", "mig")
    gpu = nvml.read(Machine(faults=dict.fromkeys(names, (code, "n")))).gpus[0]
    assert (gpu.persistence.value, gpu.ecc.value, gpu.recovery.value, gpu.mig.value) == ("unsupported",) * 4
    assert gpu.ecc_uncorrected.value == -1
    assert gpu.remap.value == RowRemap(supported=False)


@pytest.mark.parametrize("name", ["persistence", "ecc", "ecc_uncorrected", "remap", "recovery", "mig"])
def test_other_error_of_a_mode_is_lost_and_never_a_value(name: str) -> None:
    gpu = nvml.read(Machine(faults={name: (4, "NVML_ERROR_NO_PERMISSION")})).gpus[0]
    seen = getattr(gpu, name)
    assert seen.value is None
    assert "NVML_ERROR_NO_PERMISSION" in seen.missing


LIBRARY = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int nvmlInitWithFlags(unsigned f) { %s }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "550.54.15", n); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 12040; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)1; return 0; }
int nvmlDeviceGetUUID(void *h, char *s, unsigned n) { strncpy(s, "GPU-1", n); return 0; }
int nvmlDeviceGetName(void *h, char *s, unsigned n) { return 15; }
int nvmlDeviceGetPersistenceMode(void *h, unsigned *m) { *m = 1; return 0; }
"""


@pytest.fixture
def with_library(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Builds a libnvidia-ml.so.1 whose start does what the C statements say; gives the environment that finds
    it.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")

    def build(start: str) -> dict[str, str]:
        source = tmp_path / "nvml.c"
        source.write_text(LIBRARY % start)
        library = str(tmp_path / "libnvidia-ml.so.1")
        subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", library, str(source)], check=True)
        return {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}

    return build


def test_real_library_in_a_child(with_library: Callable[[str], dict[str, str]]) -> None:
    answer = read_in_child("nvml", ["/"], with_library("return 0;"), 10.0)
    assert answer.ended == ""
    gpu = answer.values["nvml"]["gpus"][0]
    assert answer.values["nvml"]["driver"] == "550.54.15"
    assert gpu["uuid"]["value"] == "GPU-1"
    assert gpu["name"]["value"] is None
    assert "NVML_ERROR_GPU_IS_LOST (15)" in gpu["name"]["missing"]
    assert gpu["persistence"]["value"] == "on"
    assert gpu["ecc"]["value"] == "unsupported"  # this library does not have the function


def test_library_that_refuses_names_its_error(with_library: Callable[[str], dict[str, str]]) -> None:
    answer = read_in_child("nvml", ["/"], with_library("return 18;"), 10.0)
    assert answer.values["nvml"]["ended"] == "error"
    assert "NVML_ERROR_LIB_RM_VERSION_MISMATCH (18)" in answer.values["nvml"]["detail"]


@pytest.mark.parametrize(
    ("start", "ended"),
    [("sleep(600); return 0;", "did not answer within 0.5 s"), ("abort();", "was killed by SIGABRT")],
)
def test_library_that_hangs_or_dies(with_library: Callable[[str], dict[str, str]], start: str, ended: str) -> None:
    answer = read_in_child("nvml", ["/"], with_library(start), 0.5)
    assert (answer.values, answer.ended) == ({}, ended)


def test_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no ELF file")
    answer = read_in_child("nvml", ["/"], {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}, 10.0)
    assert answer.values["nvml"]["ended"] == "no library"
    assert "NVML_ERROR_LIBRARY_NOT_FOUND (12)" in answer.values["nvml"]["detail"]
