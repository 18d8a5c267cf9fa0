"""Extensions in an environment of hand-made libraries: what is listed, whose runtime each calls, what is left out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torches
from binaries import CUBIN, PTX, cubin, entry, fat, library

from envkit.payload import elf
from envkit.payload.probe import extensions, wheels

CODE = fat(entry(CUBIN, 90, cubin(124)), entry(PTX, 90, b"x", version=(8, 4)))
IMPORTS = b"\0dlopen\0dlvsym\0nftw\0shm_open\0"
OWN_TEXT = b"cudaErrorCudartUnloading\0/cudart.shm.%x.%x\0"


def runtime(data: bytes) -> str:
    return extensions.runtime(memoryview(data), elf.read(data))


def installed(site: Path, name: str, files: dict[str, bytes], listed: bool = True) -> wheels.Dist:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    lines = []
    for path, data in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
        lines.append(f"{path},sha256=x,{len(data)}\n")
    (info / "RECORD").write_text("".join(lines) if listed else "")
    return wheels.Dist(name, "1.0", str(info))


def test_an_extension_is_told_with_its_owner_and_its_code(tmp_path: Path) -> None:
    data = library(("libc10.so", "libcudart.so.12", "libc.so.6"), __dot__nv_fatbin=CODE)
    dist = installed(
        tmp_path, "kernels", {"kernels/_C.cpython-311-x86_64-linux-gnu.so": data, "kernels/x.so.txt": b"x"}
    )
    assert extensions.extensions([dist]) == [
        {
            "path": str(tmp_path / "kernels/_C.cpython-311-x86_64-linux-gnu.so"),
            "owner": "kernels",
            "owner_version": "1.0",
            "cudart": "libcudart.so.12",
            "built_with": "12.4",
            "sass": ["sm_90"],
            "ptx": ["compute_90"],
            "for_torch": True,
        }
    ]


@pytest.mark.parametrize("name", ["torch", "triton", "pytorch-triton", "nvidia-cudnn-cu12", "cuda-bindings"])
def test_what_is_torchs_or_nvidias_is_no_extension(name: str, tmp_path: Path) -> None:
    assert extensions.extensions([installed(tmp_path, name, {"x/_C.so": library(__dot__nv_fatbin=CODE)})]) == []


def test_a_copy_of_a_cuda_library_within_a_wheel_is_no_extension(tmp_path: Path) -> None:
    data = library(__dot__nv_fatbin=CODE, __dot__dynstr=IMPORTS, __dot__rodata=OWN_TEXT)
    files = {"k.libs/libcudart-0b13c8d4.so.12.4.99": data, "k.libs/libcublas.so.12": data, "k/_C.so": data}
    told = extensions.extensions([installed(tmp_path, "k", files)])
    assert [one["path"] for one in told] == [str(tmp_path / "k/_C.so")]


def test_what_calls_no_cuda_cannot_be_read_or_is_gone_is_none(tmp_path: Path) -> None:
    files = {
        "a/_C.so": library(("libc.so.6",)),
        "a/text.so": b"INPUT(libx.so.1)\n",
        "a/empty.so": b"",
        "a/gone.so": b"x",
    }
    dist = installed(tmp_path, "a", files)
    (tmp_path / "a/gone.so").unlink()
    assert extensions.extensions([dist]) == []
    assert (
        extensions.extensions([installed(tmp_path, "b", {"b/_C.so": library(__dot__nv_fatbin=CODE)}, listed=False)])
        == []
    )


def test_a_file_that_two_names_lead_to_is_told_once(tmp_path: Path) -> None:
    data = library(__dot__nv_fatbin=CODE)
    dist = installed(tmp_path, "a", {"a/libk.so.1": data, "a/libk.so": data})
    (tmp_path / "a/libk.so").unlink()
    (tmp_path / "a/libk.so").symlink_to("libk.so.1")
    assert [one["path"] for one in extensions.extensions([dist])] == [str(tmp_path / "a/libk.so.1")]


def test_damaged_device_code_is_told_with_the_files_name(tmp_path: Path) -> None:
    dist = installed(tmp_path, "a", {"a/_C.so": library(__dot__nv_fatbin=CODE[:-8])})
    with pytest.raises(ValueError, match=r"a/_C\.so: a fat binary at"):
        extensions.extensions([dist])


def test_without_a_section_table_the_needed_runtime_still_counts(tmp_path: Path) -> None:
    data = bytearray(library(("libcudart.so.13",)))
    data[40:48] = bytes(8)
    (told,) = extensions.extensions([installed(tmp_path, "a", {"a/_C.so": bytes(data)})])
    assert (told["cudart"], told["sass"], told["built_with"], told["for_torch"]) == ("libcudart.so.13", [], "", False)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (library(("libcudart.so.11.0",)), "libcudart.so.11.0"),
        (library(("libcudart-9335f6a2.so.12",)), "libcudart-9335f6a2.so.12"),
        (library(("libc.so.6",), __dot__dynstr=IMPORTS, __dot__rodata=OWN_TEXT), "static"),
        (library(__dot__dynstr=b"\0my_dlvsym\0my_nftw\0shm_open\0", __dot__rodata=OWN_TEXT), "static"),
        # a shared runtime is the one that is called, whatever texts there are
        (library(("libcudart.so.12",), __dot__dynstr=IMPORTS, __dot__rodata=OWN_TEXT), "libcudart.so.12"),
        # calls the driver alone
        (library(("libcuda.so.1",), __dot__nv_fatbin=CODE), ""),
        # lists CUDA's error names, as libtorch_cuda_linalg.so does
        (library(__dot__dynstr=IMPORTS, __dot__rodata=b"cudaErrorCudartUnloading\0cudaRuntimeGetVersion\0"), ""),
        # has the text and imports nothing that a runtime imports: a tool that looks for it, as this one does
        (library(__dot__dynstr=b"\0dlopen\0nftw\0shm_open\0", __dot__rodata=OWN_TEXT), ""),
        (library(("libcudart_other.so",)), ""),
    ],
)
def test_the_runtime_that_a_file_calls(data: bytes, found: str) -> None:
    assert runtime(data) == found


@torches.needs_torch
def test_a_real_environment_of_torch_alone_has_none_and_costs_little() -> None:
    code = """
import time
from envkit.payload.probe import extensions, wheels
extensions.extensions(wheels.distributions())
took = []
for _ in range(5):  # the least of five is what a loaded machine cannot raise
    dists, begun = wheels.distributions(), time.process_time()
    found = extensions.extensions(dists)
    took.append(time.process_time() - begun)
print(len(dists), found, min(took) < 0.1)
"""
    root = str(Path(elf.__file__).parent.parent.parent)
    done = subprocess.run(
        [torches.PYTHON, "-c", code], env={"PYTHONPATH": root}, check=True, capture_output=True, text=True
    ).stdout.split(maxsplit=1)
    assert int(done[0]) > 5 and done[1] == "[] True\n"


@torches.needs_torch
def test_the_runtimes_of_real_libraries_are_told_apart() -> None:
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    site = Path(subprocess.run([torches.PYTHON, "-c", code], check=True, capture_output=True, text=True).stdout.strip())
    found = {}
    for path in (*site.glob("nvidia/*/lib/*.so*"), *site.glob("torch/lib/*.so")):
        data = elf.mapped(str(path))
        found[path.name.split(".")[0]] = extensions.runtime(data, elf.read(data))
    assert {found[name] for name in ("libcublas", "libcusparse", "libcudnn_ops", "libnccl")} == {"static"}
    assert {found[name] for name in ("libcudnn", "libnvJitLink")} == {""}
    torchs = {found[name] for name in ("libtorch_cuda", "libtorch_cuda_linalg", "libc10_cuda")}
    assert len(torchs) == 1 and torchs.pop().startswith("libcudart.so.")
