"""Faults that the files show, with nothing run: what the linker would take, what is inside, what is built for whom."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from hashlib import sha256
from pathlib import Path

from fault import Case, Fault, auditing, probing, whole
from recipes_driver import on_gpu
from recipes_libraries import of, swapped
from stacks import Bench, Stack, pristine, wheel

NVJITLINK = "nvidia/nvjitlink/lib/libnvJitLink.so.12"


# extensions


def _extension(bench: Bench, stack: str, cudart: str) -> Case:
    made = bench.stack(stack)
    name = bench.extension(made, "code=sm_80", cudart)
    return probing(made, str(made.site / name), "13")


def _own_extension(bench: Bench) -> Case:
    """One that needs the runtime of torch's own major."""
    return _extension(bench, "t211", "shared")


def _extension_on(bench: Bench, sm: str) -> Case:
    made = bench.stack("t211")
    name = bench.extension(made, f"code=sm_{sm}", "shared")
    return on_gpu(bench, made, str(made.site / name), "sm_90", cuda="13000")


def _ptx(bench: Bench, cuda: str) -> Case:
    """torch for CUDA 13.0 with an extension that holds code for 8.0 and its PTX, and a driver that knows ``cuda``."""
    made = bench.stack("t211")
    name = bench.extension(made, "code=[compute_80,sm_80]", "shared")
    return on_gpu(bench, made, str(made.site / name), "PTX", "sm_90", cuda=cuda)


# the linker


def saved(bench: Bench, root: Path, variables: dict[str, str]) -> Path:
    """``root`` as a saved image of one layer whose configuration holds ``variables``."""
    layer = bench.folder / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(root, ".")
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [f"{name}={value}" for name, value in variables.items()]},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha256(layer.read_bytes()).hexdigest()]},
        "history": [{"created_by": "COPY . /"}],
    }
    manifest = [{"Config": "config.json", "RepoTags": ["fault:latest"], "Layers": ["layer.tar"]}]
    path = bench.folder / "image.tar"
    with tarfile.open(path, "w") as tar:
        for name, document in (("manifest.json", manifest), ("config.json", config)):
            data = json.dumps(document).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        tar.add(layer, "layer.tar")
    layer.unlink()
    return path


def _image(bench: Bench, search: str) -> Case:
    """An image with the wheels of cuSPARSE and nvJitLink, an older nvJitLink in /opt, and ``search`` as its path."""
    root = bench.folder / "root"
    venv = Stack(root / "venv")
    (root / "venv" / pristine("t26").site.relative_to(pristine("t26").root)).mkdir(parents=True)
    (root / "venv/bin").mkdir()
    shutil.copy(pristine("t26").python, root / "venv/bin/python3")
    shutil.copy(pristine("t26").root / "pyvenv.cfg", root / "venv/pyvenv.cfg")
    for name in ("nvidia-cusparse-cu12", "nvidia-nvjitlink-cu12"):
        venv.lay(pristine("t26"), name)
    (root / "opt/older").mkdir(parents=True)
    shutil.copy(of("t24", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"), root / "opt/older/libnvrtc.so.12")
    older = wheel("nvidia-nvjitlink-cu12==12.1.105").site / NVJITLINK
    (root / "opt/jit").mkdir()
    shutil.copy(older, root / "opt/jit" / older.name)
    env = {"PATH": "/venv/bin", "LD_LIBRARY_PATH": search}
    return auditing(saved(bench, root, env), "/opt/jit", "libnvJitLink.so.12", "LD_LIBRARY_PATH")


def _older_nvjitlink(bench: Bench) -> Case:
    stack = bench.stack("t26")
    stack.swap("nvidia-nvjitlink-cu12", wheel("nvidia-nvjitlink-cu12==12.1.105"))
    return auditing(stack.root, "/libnvJitLink.so.12", "__nvJitLink")


def _newer_nvjitlink(bench: Bench) -> Case:
    return auditing(swapped(bench, "t26", "nvidia-nvjitlink-cu12", "t24").root)


def _cusparse_of_13(bench: Bench) -> Case:
    stack = bench.stack("t26")
    name = "nvidia/cusparse/lib/libcusparse.so.12"
    stack.put(name, of("t211", "nvidia/cu13/lib/libcusparse.so.12"))
    return auditing(stack.root, name, "libnvJitLink.so.13")


def _cusparse_of_12(bench: Bench) -> Case:
    return auditing(swapped(bench, "t24", "nvidia-cusparse-cu12", "t26").root)


def _abi(bench: Bench, symbol: str) -> Case:
    """An extension that links torch and takes ``symbol`` from it."""
    stack = bench.stack("t26")
    code = f'extern int wanted(void) __asm__("{symbol}");\nint PyInit_fault(void) {{ return wanted(); }}\n'
    flags = [f"-L{stack.site}/torch/lib", "-Wl,--no-as-needed", "-l:libc10.so", "-Wl,--unresolved-symbols=ignore-all"]
    stack.put("envkit_fault/fault.so", bench.library("fault.so", code, *flags))
    stack.package("envkit_fault", "1", "envkit_fault/fault.so")
    return auditing(stack.root, "envkit_fault/fault.so", symbol)


SYSTEM = (
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libutil.so.1",
    "libgcc_s.so.1",
    "libz.so.1",
)


def _system(bench: Bench, oldest: bool) -> Case:
    """torch 2.15 in a system whose C++ library is this machine's, or one that ends at GLIBCXX_3.4.11."""
    stack = bench.stack("t215")
    folder = stack.root / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (stack.root / "lib64").unlink(missing_ok=True)
    for name in (*SYSTEM, "libstdc++.so.6", "ld-linux-x86-64.so.2"):
        shutil.copy(Path("/usr/lib/x86_64-linux-gnu", name), folder / name)
    if oldest:
        versions = "".join(f"GLIBCXX_3.4.{minor} {{ }};\n" for minor in range(1, 12)) + "CXXABI_1.3 { };\n"
        script = bench.write("versions", "GLIBCXX_3.4 { global: nothing; local: *; };\n" + versions)
        made = bench.library("old/libstdc++.so.6", "int nothing;\n", f"-Wl,--version-script={script}")
        (folder / "libstdc++.so.6").unlink()
        shutil.copy(made, folder / "libstdc++.so.6")
    return auditing(stack.root, "libstdc++.so.6", "GLIBCXX_3.4")


# what an image should not hold


def _without_cuda(bench: Bench) -> Case:
    """torch's own word for its build says that there is no CUDA, and NVIDIA's wheels are there."""
    stack = bench.stack("t26")
    text = (stack.site / "torch/version.py").read_text()
    assert "'12.4'" in text
    stack.write("torch/version.py", text.replace("'12.4'", "None"))
    return auditing(stack.root, "torch 2.6.0")


def _shipped(bench: Bench, name: str) -> Case:
    """A driver library lies in the image as ``name``."""
    stack = bench.stack("t26")
    target = stack.root / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy((bench.driver("made") / "libcuda.so.1").resolve(), target)
    return auditing(stack.root, f"/{name}")


def _registered(bench: Bench, folder: str, kept: bool) -> Case:
    """A driver library lies in ``folder``, which ld.so.conf names only if it is ``kept`` there."""
    stack = bench.stack("t26")
    target = stack.root / folder / "libcuda.so.570.86.15"
    target.parent.mkdir(parents=True)
    shutil.copy((bench.driver("made") / "libcuda.so.1").resolve(), target)
    (target.parent / "libcuda.so.1").symlink_to(target.name)
    conf = stack.root / "etc/ld.so.conf.d/cuda.conf"
    conf.parent.mkdir(parents=True)
    (stack.root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    conf.write_text(f"/{folder}\n" if kept else "/usr/local/cuda/lib64\n")
    return auditing(stack.root, f"/{folder}", "libcuda.so")


FAULTS = (
    Fault(
        "A06",
        "image-extension-other-cuda",
        "an extension that needs libcudart.so.13 lies beside a torch for CUDA 12.4",
        lambda bench: _extension(bench, "t26", "shared"),
        "it lies beside a torch for CUDA 13.0",
        _own_extension,
        also=frozenset({"image-extension-does-not-load"}),
    ),
    Fault(
        "A06",
        "image-extension-other-cuda",
        "an extension that carries the CUDA runtime of 13.0 lies beside a torch for CUDA 12.4",
        lambda bench: _extension(bench, "t26", "static"),
        "one that shares it lies beside a torch for CUDA 13.0",
        _own_extension,
        variant="static",
    ),
    Fault(
        "A07",
        "audit-library-shadowed",
        "an image's LD_LIBRARY_PATH names a folder with another nvJitLink",
        lambda bench: _image(bench, "/opt/jit"),
        "it names a folder with another libnvrtc, which nothing there asks for",
        lambda bench: _image(bench, "/opt/older"),
        severity="warning",  # no module of this image imports what is shadowed
        also=frozenset({"audit-unresolved-symbol", "audit-cuda-twice"}),
        twin_also=frozenset({"audit-cuda-twice"}),
    ),
    Fault(
        "A08",
        "audit-stub-on-path",
        "ld.so.conf names the toolkit's folder of stubs",
        lambda bench: _registered(bench, "usr/local/cuda/lib64/stubs", True),
        "the folder is there and ld.so.conf names another",
        lambda bench: _registered(bench, "usr/local/cuda/lib64/stubs", False),
    ),
    Fault(
        "A08",
        "audit-compat-registered",
        "ld.so.conf names the folder of a forward-compatibility driver",
        lambda bench: _registered(bench, "usr/local/cuda/compat", True),
        "the folder is there and ld.so.conf names another",
        lambda bench: _registered(bench, "usr/local/cuda/compat", False),
        severity="warning",
    ),
    Fault(
        "B07",
        "audit-unresolved-symbol",
        "cuSPARSE 12.3 with nvJitLink 12.1",
        _older_nvjitlink,
        "cuSPARSE 12.3 with nvJitLink 12.9",
        _newer_nvjitlink,
        also=frozenset({"image-torch-requirement-not-met"}),
        twin_also=frozenset({"image-torch-requirement-not-met"}),
        variant="nvjitlink",
    ),
    Fault(
        "B10",
        "audit-library-of-other-cuda",
        "libcusparse.so.12 of CUDA 13 in the place of that of CUDA 12: the SONAME is the same",
        _cusparse_of_13,
        "libcusparse.so.12 of a later CUDA 12",
        _cusparse_of_12,
        also=frozenset({"image-files-overwritten"}),
        twin_also=frozenset({"image-torch-requirement-not-met"}),
    ),
    Fault(
        "B16",
        "audit-system-library-too-old",
        "the system's C++ library ends at GLIBCXX_3.4.11",
        lambda bench: _system(bench, True),
        "the system's C++ library is that of this machine",
        lambda bench: _system(bench, False),
    ),
    Fault(
        "B17",
        "audit-unresolved-symbol",
        "an extension takes a symbol from torch that this torch does not define",
        lambda bench: _abi(bench, "_ZN3c1019envkit_never_thereEv"),
        "it takes one that this torch defines",
        lambda bench: _abi(bench, "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"),
        variant="extension",
    ),
    Fault(
        "C01",
        "audit-arch-not-covered",
        "torch 2.15 is asked for a GPU of capability 7.0",
        lambda bench: auditing(pristine("t215").root, "sm_70", more=("--gpu", "sm_70")),
        "torch 2.15 is asked for a GPU of capability 8.9, which runs the code for 8.6",
        lambda bench: auditing(pristine("t215").root, more=("--gpu", "sm_89")),
    ),
    Fault(
        "C02",
        "image-extension-arch-not-covered",
        "an extension with code for 8.0 alone meets a GPU of capability 9.0",
        lambda bench: _extension_on(bench, "80"),
        "an extension with code for 9.0 meets it",
        lambda bench: _extension_on(bench, "90"),
    ),
    Fault(
        "C03",
        "image-ptx-newer-than-driver",
        "an extension has only PTX of CUDA 13.0 for this GPU, and the driver knows CUDA 12.8",
        lambda bench: _ptx(bench, "12080"),
        "the driver knows CUDA 13.0",
        lambda bench: _ptx(bench, "13000"),
        also=frozenset({"image-driver-too-old", "image-assembler-newer-than-driver"}),
    ),
    Fault(
        "D05",
        "audit-driver-inside",
        "libcuda.so.1 is a part of the image",
        lambda bench: _shipped(bench, "usr/lib/x86_64-linux-gnu/libcuda.so.1"),
        "only a stub to link against is, in a folder that nobody searches",
        lambda bench: _shipped(bench, "usr/local/cuda/lib64/stubs/libcuda.so"),
    ),
    Fault(
        "F07",
        "audit-cpu-torch",
        "torch says that it is built without CUDA, in an image with NVIDIA's wheels",
        _without_cuda,
        "it says that it is built for CUDA 12.4",
        whole("t26"),
        severity="warning",
        also=frozenset({"image-files-overwritten"}),
    ),
)
