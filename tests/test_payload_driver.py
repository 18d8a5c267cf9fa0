"""What the probe sees of a driver, shown with a stand-in for libcuda and NVML; the variables and compilers it reads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clocks import ends

from envkit.payload.probe import driver, environ, present, toolchain, wheels

SOURCE = Path(__file__).parent / "faults" / "libcuda.c"
ROOT = Path(__file__).parent.parent
VERSION = "580.65.06"
needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the stand-in, under the names and links that the real driver has."""
    folder = tmp_path_factory.mktemp("driver")
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        file = folder / name.replace(".so.1", f".so.{VERSION}")
        command = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{name}"]
        subprocess.run([*command, "-o", file, SOURCE], check=True, timeout=60)
        (folder / name).symlink_to(file.name)
    return folder


def seen(
    folder: Path | str, budget_s: float = 60.0, owner: str = "", **said: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields ``devices`` and ``driver`` as a process sees them whose linker looks into ``folder`` first."""
    code = (
        "import json; from envkit.payload.probe.driver import DriverProbe; "
        f"print(json.dumps(DriverProbe({budget_s!r}).collect(lambda path: {owner!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(folder), **said},
    )
    devices, found = json.loads(done.stdout)
    return devices, found["value"]


@needs_compiler
def test_a_driver_that_starts_is_seen_with_its_file_its_cuda_its_devices_and_nvml(stand_in: Path) -> None:
    devices, found = seen(stand_in, STANDIN_DEVICES="2", STANDIN_SM="86", STANDIN_CUDA="12040", STANDIN_NVML_GPUS="3")
    assert devices == {"value": ["sm_86", "sm_86"], "via": "cuDeviceGetAttribute", "missing": ""}
    assert found["library"] == os.path.realpath(stand_in / "libcuda.so.1")
    assert (found["init"], found["cuda"], found["file"], found["load_error"]) == (0, "12.4", VERSION, "")
    assert (found["count"], found["nvml_count"], found["nvml"]) == (2, 3, VERSION)
    assert found["in_cache"] is False


@needs_compiler
@pytest.mark.parametrize("code", [3, 34, 35, 100, 802, 803, 804, 999])
def test_a_code_of_cuinit_is_told_and_is_no_count(stand_in: Path, code: int) -> None:
    devices, found = seen(stand_in, STANDIN_INIT=str(code))
    assert (found["init"], found["count"]) == (code, None)
    if code == 100:
        assert devices == {"value": [], "via": "cuInit returned 100, no device", "missing": ""}
    else:
        assert devices["value"] is None
        assert devices["missing"] == f"asking the driver for its devices: cuInit returned {code}"
    assert found["cuda"] == ("" if code == 34 else "13.2")


@needs_compiler
def test_a_driver_that_dies_or_hangs_is_an_answer(stand_in: Path) -> None:
    devices, found = seen(stand_in, STANDIN_INIT="crash")
    assert (found["init"], found["load_error"]) == (None, "cuInit was killed by SIGSEGV")
    assert devices["missing"] == "asking the driver for its devices: was killed by SIGSEGV"
    assert found["cuda"] == "13.2"  # what was asked before is not lost
    with ends():
        devices, found = seen(stand_in, budget_s=1.5, STANDIN_INIT="hang", STANDIN_NVML="hang")
    assert (found["init"], found["load_error"]) == (None, "cuInit did not end within 1.5 s")
    assert found["nvml"] == "did not end within 1.5 s"
    assert devices["value"] is None


@needs_compiler
@pytest.mark.parametrize(
    ("how", "words"),
    [("18", "nvmlInit returned 18"), ("999", "nvmlInit returned 999"), ("crash", "was killed by SIGSEGV")],
)
def test_what_nvml_says_instead_of_a_version_is_told(stand_in: Path, how: str, words: str) -> None:
    _, found = seen(stand_in, STANDIN_NVML=how)
    assert (found["nvml"], found["nvml_count"]) == (words, None)
    assert found["init"] == 0


def test_a_library_that_cannot_be_loaded_is_no_absence(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    devices, found = seen(tmp_path)
    assert (found["library"], found["init"]) == ("", None)
    assert "file too short" in found["load_error"]
    assert "file too short" in devices["missing"]


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a driver")
def test_an_absent_driver_gives_no_devices_with_the_linkers_words(tmp_path: Path) -> None:
    devices, found = seen(tmp_path)
    assert devices["value"] == []
    assert devices["via"] == found["load_error"]
    assert found["load_error"].startswith("libcuda.so.1: cannot open shared object file")
    assert found["in_cache"] is None
    assert found["nvml"].startswith("libnvidia-ml.so.1: cannot open shared object file")


@needs_compiler
def test_the_owner_is_the_wheel_that_brought_the_library(stand_in: Path) -> None:
    assert seen(stand_in, owner="cuda-in-a-wheel")[1]["owner"] == "cuda-in-a-wheel"
    assert seen(stand_in)[1]["owner"] == ""


@needs_compiler
@pytest.mark.parametrize("kind", ["stubs", "compat"])
def test_stubs_and_compat_directories_on_the_library_path_are_told(stand_in: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "lib64" / kind
    folder.mkdir(parents=True)
    shutil.copy(stand_in / f"libcuda.so.{VERSION}", folder / "libcuda.so.595.45.04")
    (folder / "libcuda.so.1").symlink_to("libcuda.so.595.45.04")
    _, found = seen(f"{folder}:{stand_in}")
    assert found["library"] in found[kind]
    assert found["library"].endswith("libcuda.so.595.45.04")
    assert found["library"] not in found["compat" if kind == "stubs" else "stubs"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n", "535.183.01"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n", "580.65.06"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build\nGCC 12.2.0\n",
            "580.65.06",
        ),
        ("banana 1.2.3", ""),
    ],
)
def test_the_modules_version_is_read_from_its_own_line(tmp_path: Path, text: str, version: str) -> None:
    (tmp_path / "version").write_text(text)
    assert driver.module_version(str(tmp_path / "version")) == version
    assert driver.module_version(str(tmp_path / "none")) == ""


def test_the_cache_names_a_library_also_through_a_link(tmp_path: Path) -> None:
    file = tmp_path / "libcuda.so.580.65.06"
    file.touch()
    (tmp_path / "libcuda.so.1").symlink_to(file)
    cache = tmp_path / "cache"
    cache.write_bytes(b"glibc-ld.so.cache1.1\0libcuda.so.1\0" + os.fsencode(tmp_path / "libcuda.so.1") + b"\0")
    assert driver.in_cache(str(file), str(cache))
    assert not driver.in_cache("/elsewhere/libcuda.so.1", str(cache))
    assert not driver.in_cache(str(file), str(tmp_path / "none"))


def test_a_debian_package_owns_what_its_list_names_whole(tmp_path: Path) -> None:
    path = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    (tmp_path / "info").mkdir()
    (tmp_path / "info" / "libother.list").write_text(f"/.\n{path}.2\n")
    assert present.debian_owners([path], str(tmp_path)) == {}
    (tmp_path / "info" / "libcuda1:amd64.list").write_text(f"/.\n{path}\n")
    assert present.debian_owners([path], str(tmp_path)) == {path: ("libcuda1", "")}
    (tmp_path / "info" / "libcuda1:amd64.list").write_text("/.\n/lib/x86_64-linux-gnu/libcuda.so.1\n")
    status = "Package: libcuda\nVersion: 1\n\nPackage: libcuda1\nStatus: install ok installed\nVersion: 580.65.06-0\n"
    (tmp_path / "status").write_text(status)
    assert present.debian_owners([path], str(tmp_path)) == {path: ("libcuda1", "580.65.06-0")}


# The variables


@pytest.mark.parametrize(
    "name",
    [
        "LD_LIBRARY_PATH",
        "CUDA_HOME",
        "NCCL_DEBUG",
        "PYTHONPATH",
        "TRITON_PTXAS_PATH",
        "PYTORCH_CUDA_ALLOC_CONF",
        "OMP_NUM_THREADS",
    ],
)
def test_what_steers_is_recorded(name: str) -> None:
    assert environ.steers(name)


@pytest.mark.parametrize(
    "name",
    [
        "HOME",
        "PATH",
        "AWS_REGION",
        "TF_CLI_CONFIG_FILE",
        "NVIDIA_API_KEY",
        "TORCH_HUB_TOKEN",
        "CUDA_PASSWORD",
        "MY_CUDA_HOME",
    ],
)
def test_nothing_else_and_no_secret_is_recorded(name: str) -> None:
    assert not environ.steers(name)
    assert environ.variables({name: "x"}) == []


def test_variables_come_by_name_and_bytes_that_are_no_text_are_escaped() -> None:
    found = environ.variables({"NCCL_DEBUG": "INFO", "CUDA_HOME": "/a\udcff", "HOME": "/root"})
    assert found == [
        {"name": "CUDA_HOME", "value": "/a\\xff", "leads": "absent"},
        {"name": "NCCL_DEBUG", "value": "INFO"},
    ]


# The compilers


def program(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def dist(folder: Path, name: str, *files: str) -> wheels.Dist:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))
    return wheels.Dist(name, "1.0", str(info))


def nvcc(path: Path, version: str) -> Path:
    short = ".".join(version.split(".")[:2])
    return program(path, f"echo 'Cuda compilation tools, release {short}, V{version}'")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment in which only what a test puts into its bin is found."""
    for name in ("CUDA_HOME", "CUDA_PATH", "CXX", "CC", "NVCC_CCBIN", "CUDAHOSTCXX", "TRITON_PTXAS_PATH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def test_each_way_to_an_nvcc_is_a_row_in_torchs_order(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = nvcc(bare / "home" / "bin" / "nvcc", "13.2.86")
    on_path = nvcc(bare / "bin" / "nvcc", "11.8.89")
    wheel = nvcc(bare / "site" / "nvidia" / "cu13" / "bin" / "nvcc", "13.5.37")
    monkeypatch.setenv("CUDA_HOME", str(bare / "home"))
    monkeypatch.setenv("CUDA_PATH", str(bare / "nowhere"))
    found = toolchain.Tools([dist(bare / "site", "nvidia-cuda-nvcc", "nvidia/cu13/bin/nvcc")]).toolkits()
    rows = [(one["via"], one["path"], one["version"]) for one in found if one["via"] != "/usr/local/cuda"]
    assert rows == [
        ("CUDA_HOME", str(home), "13.2.86"),
        ("CUDA_PATH", str(bare / "nowhere" / "bin" / "nvcc"), ""),
        ("PATH", str(on_path), "11.8.89"),
        ("nvidia-cuda-nvcc", str(wheel), "13.5.37"),
    ]
    assert [one["error"] for one in found if not one["version"]] == ["No such file or directory"]


def test_a_compiler_that_fails_or_talks_otherwise_has_no_version(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare / "bin" / "nvcc", "echo no licence", "exit 3")
    monkeypatch.setenv("CUDA_HOME", str(program(bare / "home" / "bin" / "nvcc", "echo hello").parent.parent))
    errors = {one["via"]: one["error"] for one in toolchain.Tools([]).toolkits()}
    assert errors["PATH"] == "ended with 3: no licence"
    assert errors["CUDA_HOME"] == "its output names no release"


def test_assemblers_are_those_of_packages_and_of_tritons_variable(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ("triton/backends/nvidia/bin/ptxas", "triton/backends/nvidia/bin/ptxas-blackwell")
    for file, version in zip(files, ("12.9.86", "13.4.59"), strict=True):
        nvcc(bare / "site" / file, version)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(nvcc(bare / "own" / "ptxas", "12.0.140")))
    found = toolchain.Tools(
        [dist(bare / "site", "triton", *files, "triton/x.py"), dist(bare, "other", files[0])]
    ).assemblers()
    assert [(Path(one["path"]).name, one["owner"], one["version"]) for one in found] == [
        ("ptxas", "triton", "12.9.86"),
        ("ptxas-blackwell", "triton", "13.4.59"),
        ("ptxas", "", "12.0.140"),
    ]


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (["[ $1 = --version ] && echo 'g++ (Debian 12.2.0-14) 12.2.0' || echo 12.2.0"], "gcc 12.2.0"),
        (["[ $1 = --version ] && echo 'Debian clang version 19.1.7 (3)' || { echo unknown; exit 1; }"], "clang 19.1.7"),
        (["[ $1 = --version ] && echo 'g++ 4.8.5' || echo 4.8.5"], "gcc 4.8.5"),
    ],
)
def test_the_host_compiler_says_what_it_is(bare: Path, lines: list[str], value: str) -> None:
    program(bare / "bin" / "c++", *lines)
    said = toolchain.Tools([]).compiler()
    assert (said["value"], said["missing"]) == (value, "")
    assert said["via"].endswith("by PATH")


def test_the_host_compiler_is_the_one_that_a_variable_names(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare / "bin" / "c++", "echo 12.2.0")
    mine = program(bare / "mine", "echo 14.1.0")
    monkeypatch.setenv("CXX", f"ccache {mine} -m64")
    assert toolchain.Tools([]).compiler() == {
        "value": "gcc 14.1.0",
        "via": f"{mine} -dumpfullversion, by $CXX",
        "missing": "",
    }
    monkeypatch.setenv("CXX", str(bare / "gone"))
    missing = toolchain.Tools([]).compiler()
    assert missing["value"] is None
    assert missing["missing"] == f"asking {bare / 'gone'} for its version: No such file or directory"


def test_without_a_compiler_none_is_observed(bare: Path) -> None:
    said = toolchain.Tools([]).compiler()
    assert (said["value"], said["missing"]) == ("", "")
    assert toolchain.Tools([]).assemblers() == []
    assert [one for one in toolchain.Tools([]).toolkits() if one["via"] != "/usr/local/cuda"] == []
