"""What the files of an image say, on images of a few kilobytes that hold one torch each, sound and with one fault."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torches
from archive import installed
from binaries import CUBIN, PTX, cubin, entry, fat
from clocks import costs_less
from elves import SITE, elf_file, image, no_engine, wheel
from fuzzed import examples
from hypothesis import example, given
from hypothesis import strategies as st

from envkit import facts
from envkit.image import exposed
from envkit.image.audit import environment, linker, observe
from envkit.image.tree import open_tree
from envkit.judging import judge
from envkit.model import Observed, Outcome, Reason, Severity
from envkit.payload import elf
from envkit.subjects import Audit, codec
from envkit.subjects.audit import NO_LIBC, NO_TORCH, Edge, SharedObject
from envkit.subjects.image import NO_PROMISE, ExpectedContents
from envkit.versions import Sm

Files = dict[str, bytes | str]
LIB = "/usr/lib/x86_64-linux-gnu"
PATH = {"Env": ["PATH=/opt/venv/bin:/usr/bin"]}

LIBC = elf_file(soname="libc.so.6", versions=["libc.so.6", "GLIBC_2.2.5", "GLIBC_2.9", "GLIBC_2.36"])
JIT = elf_file(soname="libnvJitLink.so.12", defines=["__nvJitLinkAddData_12_4", "__nvJitLinkComplete_12_4"])
CUDNN = elf_file(
    soname="libcudnn.so.9", runpath="$ORIGIN", undefined=["dlopen"], rodata=b"\0libcudnn_ops.so\0libcudnn_graph.so\0"
)
OPS = elf_file(soname="libcudnn_ops.so.9", needed=["libcudnn_graph.so.9"], runpath="$ORIGIN")
GRAPH = elf_file(soname="libcudnn_graph.so.9", needed=["libc.so.6"])
CODE = fat(entry(CUBIN, 80, cubin(124)), entry(CUBIN, 90, cubin(124)), entry(PTX, 90, b".version", version=(8, 4)))
DIRS = ":".join(f"$ORIGIN/../../nvidia/{name}/lib" for name in ("cudnn", "cusparse", "cuda_runtime")) + ":$ORIGIN"
TORCH: dict[str, bytes] = {
    "torch/__init__.py": b"# torch",
    "torch/version.py": b"__version__ = '2.6.0+cu124'\ncuda: Optional[str] = '12.4'\n",
    "torch/_C.cpython-311-x86_64-linux-gnu.so": elf_file(needed=["libtorch_python.so"], rpath="$ORIGIN/lib"),
    "torch/lib/libtorch_global_deps.so": elf_file(
        soname="libtorch_global_deps.so", needed=["libcudart.so.12"], rpath=DIRS
    ),
    "torch/lib/libtorch_python.so": elf_file(
        soname="libtorch_python.so", needed=["libtorch_cuda.so", "libc10.so"], rpath=DIRS
    ),
    "torch/lib/libtorch_cuda.so": elf_file(
        soname="libtorch_cuda.so",
        needed=["libcudart.so.12", "libcudnn.so.9", "libcusparse.so.12", "libcuda.so.1", "libc.so.6"],
        rpath=DIRS,
        fatbin=CODE,
    ),
    "torch/lib/libc10.so": elf_file(
        soname="libc10.so", defines=["_ZN3c105ErrorC1Ev"], needed=["libc.so.6"], needs={"libc.so.6": ["GLIBC_2.9"]}
    ),
}
RUNTIME = elf_file(soname="libcudart.so.12", needed=["libc.so.6"])
SPARSE = elf_file(
    soname="libcusparse.so.12",
    needed=["libnvJitLink.so.12"],
    runpath="$ORIGIN/../../nvjitlink/lib",
    undefined=["__nvJitLinkAddData_12_4"],
)


def system() -> Files:
    """A merged /usr with a C library, a Python and its virtual environment."""
    return {
        "/lib": "usr/lib",
        "/etc/": b"",
        "/tmp/": b"",
        f"{LIB}/libc.so.6": LIBC,
        "/usr/bin/python3": "python3.11",
        "/usr/bin/python3.11": elf_file(needed=["libc.so.6"]),
        "/opt/venv/bin/python3": "/usr/bin/python3",
        "/opt/venv/pyvenv.cfg": b"home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n",
    }


def stack() -> dict[str, bytes]:
    """torch and the wheels that it needs."""
    return {
        **wheel("torch", "2.6.0", TORCH, ["nvidia-cudnn-cu12==9.1.0.70", "numpy ; extra == 'x'"]),
        **wheel("nvidia-cuda-runtime-cu12", "12.4.127", {"nvidia/cuda_runtime/lib/libcudart.so.12": RUNTIME}),
        **wheel("nvidia-cusparse-cu12", "12.3.1.170", {"nvidia/cusparse/lib/libcusparse.so.12": SPARSE}),
        **wheel("nvidia-nvjitlink-cu12", "12.4.127", {"nvidia/nvjitlink/lib/libnvJitLink.so.12": JIT}),
        **wheel(
            "nvidia-cudnn-cu12",
            "9.1.0.70",
            {
                "nvidia/cudnn/lib/libcudnn.so.9": CUDNN,
                "nvidia/cudnn/lib/libcudnn_ops.so.9": OPS,
                "nvidia/cudnn/lib/libcudnn_graph.so.9": GRAPH,
            },
        ),
    }


def audited(
    folder: Path,
    *more: Mapping[str, bytes | str],
    config: Mapping[str, Any] = PATH,
    without: Sequence[str] = (),
    modes: Mapping[str, int] | None = None,
    commands: Sequence[str] = (),
    architecture: str = "amd64",
    hash_all: bool = False,
) -> Audit:
    """A sound image, with ``more`` layers over it and the paths in ``without`` left out of all layers."""
    layers: list[dict[str, bytes | str]] = [{**system()}, {**stack()}, *map(dict, more)]
    kept = [{path: content for path, content in layer.items() if path not in without} for layer in layers]
    with image(folder, *kept, config=config, modes=modes, commands=commands, architecture=architecture) as tree:
        return observe(
            tree, gpus=(Sm(9, 0),), promise=Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE), hash_all=hash_all
        )


def said(audit: Audit) -> dict[str, list[tuple[Severity, str]]]:
    """What the audit's own checks found, by check; a check that crashed is an error of this test."""
    found: dict[str, list[tuple[Severity, str]]] = {}
    for name, check in judge.checks().items():
        if not name.startswith("audit-"):
            continue
        result = judge.run(check, audit, facts.load())
        assert result.outcome is not Outcome.CRASHED, result
        if result.findings:
            found[name] = [(finding.severity, finding.message) for finding in result.findings]
    return found


def by_path(audit: Audit) -> dict[str, SharedObject]:
    return {one.path: one for one in audit.objects.need("objects")}


def edge(audit: Audit, path: str, name: str) -> Edge:
    return next(each for each in by_path(audit)[f"{SITE}/{path}"].edges if each.name == name)


def test_a_sound_image_is_read_whole_and_nothing_is_found(tmp_path: Path) -> None:
    audit = audited(tmp_path)
    assert said(audit) == {}
    lost = {field.name for field in fields(audit) if getattr(getattr(audit, field.name), "missing", "")}
    assert lost == {"promise", "entrypoint"}
    assert codec.from_plain(Audit, json.loads(json.dumps(codec.to_plain(audit)))) == audit
    assert (audit.platform.value, audit.python.value, audit.libc.value) == ("x86_64", "3.11.2", "glibc 2.36")
    found = audit.interpreter.need("Python")
    assert (found.path, found.machine, found.site) == ("/opt/venv/bin/python3", "x86_64", (SITE,))
    torch, code = audit.torch.need("torch"), audit.code.need("code")
    assert (torch.version, torch.cuda, code.sass, code.ptx) == (
        "2.6.0+cu124", "12.4", ("sm_80", "sm_90"), ("compute_90",),
    )  # fmt: skip
    asked = [(one.of, one.text) for one in audit.requires.need("requires")]
    assert asked == [("torch", "nvidia-cudnn-cu12==9.1.0.70"), ("torch", "numpy ; extra == 'x'")]
    assert [wheel.name for wheel in audit.wheels.need("wheels")][-1] == "torch"
    assert audit.size.value == sum(layer.size for layer in audit.layers.need("layers"))


def test_an_audit_says_what_it_reads(tmp_path: Path) -> None:
    said: list[str] = []
    with image(tmp_path, {**system()}, {**stack()}, config=PATH) as tree:
        observe(tree, gpus=(), promise=Observed.lost(NO_PROMISE), hash_all=True, say=said.append)
    assert said == [
        "reading the installed distributions",
        "hashing the files of torch and CUDA",
        "reading the installed packages",
        "reading the shared objects",
        "following what an import finds",
        "looking for credentials",
    ]


def test_what_a_process_would_bind_is_followed_step_by_step(tmp_path: Path) -> None:
    audit = audited(tmp_path)
    cudnn = edge(audit, "torch/lib/libtorch_cuda.so", "libcudnn.so.9")
    assert (cudnn.path, cudnn.by) == (f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9", "RPATH of libtorch_cuda.so")
    ops = edge(audit, "nvidia/cudnn/lib/libcudnn.so.9", "libcudnn_ops.so.9")
    assert (ops.kind, ops.by) == ("dlopen", "RUNPATH of libcudnn.so.9")
    assert edge(audit, "torch/lib/libtorch_cuda.so", "libcuda.so.1").by == linker.DRIVER
    # libtorch_python was found first by the extension module, whose RPATH all below inherit.
    module = f"{SITE}/torch/_C.cpython-311-x86_64-linux-gnu.so"
    assert by_path(audit)[f"{SITE}/nvidia/cudnn/lib/libcudnn_graph.so.9"].reached == module
    assert edge(audit, "torch/lib/libtorch_python.so", "libc10.so").by == "RPATH of libtorch_python.so"
    assert edge(audit, "torch/lib/libc10.so", "libc.so.6").by == "default directory"


def missing_library(folder: Path) -> Audit:
    return audited(folder, without=[f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12"])


def older_nvjitlink(folder: Path) -> Audit:
    older = elf_file(soname="libnvJitLink.so.12", defines=["__nvJitLinkAddData_12_1"])
    return audited(folder, {f"{SITE}/nvidia/nvjitlink/lib/libnvJitLink.so.12": older})


def private_key(folder: Path) -> Audit:
    return audited(folder, {"/root/.ssh/id_rsa": b"-----BEGIN OPENSSH PRIVATE KEY-----\nTOPSECRET\n"})


def driver_shipped(folder: Path) -> Audit:
    return audited(folder, {"/usr/lib/libcuda.so.1": elf_file(soname="libcuda.so.1")})


def other_cudnn(folder: Path) -> Audit:
    other: Files = {f"/opt/cudnn/lib/{name}": content for name, content in (
        ("libcudnn.so.9", CUDNN), ("libcudnn_ops.so.9", OPS), ("libcudnn_graph.so.9", GRAPH),
    )}  # fmt: skip
    return audited(folder, other, config={"Env": [*PATH["Env"], "LD_LIBRARY_PATH=/opt/cudnn/lib"]})


def incomplete_cudnn(folder: Path) -> Audit:
    return audited(folder, without=[f"{SITE}/nvidia/cudnn/lib/libcudnn_ops.so.9"])


def old_libc(folder: Path) -> Audit:
    return audited(folder, {f"{LIB}/libc.so.6": elf_file(soname="libc.so.6", versions=["libc.so.6", "GLIBC_2.2.5"])})


def extension(*symbols: str) -> bytes:
    return elf_file(needed=["libc10.so"], undefined=symbols, defines=["PyInit_ours"])


def extension_for_another_torch(folder: Path) -> Audit:
    ours = extension("_ZN3c105ErrorC1Ev", "_ZN2at6TensorGoneEv", "_ZNSt6vectorE")
    return audited(folder, wheel("ours", "1.0", {"ours.so": ours}))


def stub_on_path(folder: Path) -> Audit:
    stubs: Files = {"/usr/local/cuda/lib64/stubs/libcuda.so": elf_file(soname="libcuda.so.1")}
    conf = {
        "/etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n",
        "/etc/ld.so.conf.d/c.conf": b"# x\n/usr/local/cuda/lib64/stubs\n",
    }
    return audited(folder, {**stubs, **conf})


def compat_registered(folder: Path) -> Audit:
    compat: Files = {"/usr/local/cuda/compat/libcuda.so.560.35.03": elf_file(soname="libcuda.so.1")}
    return audited(folder, {**compat, "/etc/ld.so.conf": b"/usr/local/cuda/compat\n"})


def cuda_twice(folder: Path) -> Audit:
    return audited(folder, {"/usr/local/cuda/lib64/libcudart.so.12.4.127": RUNTIME})


def other_cuda(folder: Path) -> Audit:
    lib = {"nvidia/cudnn/lib/libcudnn.so.9": CUDNN}
    return audited(folder, wheel("nvidia-cudnn-cu13", "9.1.0.70", lib), without=[
        f"{SITE}/nvidia_cudnn_cu12-9.1.0.70.dist-info/{name}" for name in ("RECORD", "METADATA")
    ])  # fmt: skip


def cpu_torch(folder: Path) -> Audit:
    return audited(folder, {f"{SITE}/torch/version.py": b"__version__ = '2.6.0+cpu'\ncuda: Optional[str] = None\n"})


def other_machine(folder: Path) -> Audit:
    return audited(folder, architecture="arm64")


def open_to_all(folder: Path) -> Audit:
    return audited(folder, {"/opt/venv/bin/tool": b"#!/bin/sh\n"}, modes={"/opt/venv/bin/tool": 0o777})


def old_code(folder: Path) -> Audit:
    old = elf_file(
        soname="libtorch_cuda.so", needed=["libcudart.so.12"], rpath=DIRS, fatbin=fat(entry(CUBIN, 80, cubin(124)))
    )
    return audited(folder, {f"{SITE}/torch/lib/libtorch_cuda.so": old})


E_, W_, N_ = Severity.ERROR, Severity.WARNING, Severity.NOTE


@pytest.mark.parametrize(
    ("plant", "check", "severity", "words"),
    [
        (missing_library, "audit-library-unresolved", E_, "libtorch_global_deps.so need libcudart.so.12: not found"),
        (older_nvjitlink, "audit-unresolved-symbol", E_, "libcusparse.so.12 needs __nvJitLinkAddData_12_4"),
        (private_key, "audit-secret-inside", E_, "/root/.ssh/id_rsa holds a private key"),
        (driver_shipped, "audit-driver-inside", E_, "libcuda.so.1 is part of the image, in /usr/lib"),
        (other_cudnn, "audit-library-shadowed", E_, "libcudnn_graph.so.9, libcudnn_ops.so.9 would come from /opt"),
        (incomplete_cudnn, "audit-cudnn-incomplete", E_, "opens libcudnn_ops.so.9, and it is not there"),
        (old_libc, "audit-system-library-too-old", E_, "libc10.so needs GLIBC_2.9"),
        (extension_for_another_torch, "audit-unresolved-symbol", E_, "ours.so needs _ZN2at6TensorGoneEv, which"),
        (stub_on_path, "audit-stub-on-path", E_, "/usr/local/cuda/lib64/stubs holds stubs (libcuda.so)"),
        (compat_registered, "audit-compat-registered", N_, "/usr/local/cuda/compat holds a forward-compatibility"),
        (cuda_twice, "audit-cuda-twice", W_, "1 CUDA library is in the image more than once"),
        (other_cuda, "audit-library-of-other-cuda", E_, "libcudnn.so.9 is made for CUDA 13"),
        (cpu_torch, "audit-cpu-torch", E_, "torch 2.6.0+cpu is built without CUDA"),
        (other_machine, "audit-other-architecture", N_, "it is for aarch64 and its Python is for x86_64"),
        (open_to_all, "audit-world-writable", W_, "every user may write /opt/venv/bin/tool (PATH)"),
        (old_code, "audit-arch-not-covered", E_, "has no code for sm_90: its library holds sm_80"),
    ],
)
def test_a_planted_fault_is_found_by_its_check(
    plant: Callable[[Path], Audit], check: str, severity: Severity, words: str, tmp_path: Path
) -> None:
    found = said(plant(tmp_path))
    assert any(each is severity and words in message for each, message in found[check]), found


def test_torchs_own_rpath_keeps_a_foreign_library_out(tmp_path: Path) -> None:
    """The outer cuDNN comes by RPATH, which is before LD_LIBRARY_PATH; the inner ones by RUNPATH, which is after."""
    audit = other_cudnn(tmp_path)
    assert edge(audit, "torch/lib/libtorch_cuda.so", "libcudnn.so.9").path.startswith(SITE)
    assert edge(audit, "nvidia/cudnn/lib/libcudnn.so.9", "libcudnn_ops.so.9").by == "LD_LIBRARY_PATH"


def test_what_torch_opens_by_path_is_loaded_before_the_search(tmp_path: Path) -> None:
    older = elf_file(soname="libnvJitLink.so.12", defines=["__nvJitLinkAddData_12_1"])
    stray: Files = {"/opt/old/libnvJitLink.so.12": older}
    config = {"Env": [*PATH["Env"], "LD_LIBRARY_PATH=/opt/old"]}
    assert "audit-library-shadowed" in said(audited(tmp_path, stray, config=config))
    opening = (
        b"def _preload_cuda_deps(folder, name): pass\n"
        b"def _load_global_deps():\n"
        b"    try:\n"
        b"        _preload_cuda_deps('nvjitlink', 'libnvJitLink.so.*[0-9]')\n"
        b"    except OSError:\n"
        b"        _preload_cuda_deps('cusparse', 'libcusparse.so.*[0-9]')\n"
    )
    through_pairs = (
        b"def _preload_cuda_deps(err=None):\n"
        b"    pairs = [('nvjitlink', 'libnvJitLink.so.*[0-9]'), ('cusparse', 'libcusparse.so.*[0-9]')]\n"
        b"    for folder, name in pairs: _preload_cuda_lib(folder, name)\n"
        b"def _load_global_deps():\n"
        b"    try:\n"
        b"        _preload_cuda_deps()\n"
        b"    except OSError:\n"
        b"        raise\n"
    )
    for source in (opening, through_pairs):
        audit = audited(tmp_path, {**stray, f"{SITE}/torch/__init__.py": source}, config=config)
        assert edge(audit, "nvidia/cusparse/lib/libcusparse.so.12", "libnvJitLink.so.12").by == "preload by torch"
        assert "audit-library-shadowed" not in said(audit)


def test_a_plugin_that_nobody_loads_is_a_note_and_so_is_one_module_of_several(tmp_path: Path) -> None:
    rdma = elf_file(needed=["libmlx5.so.1"])
    plugin = wheel("nvidia-cufile-cu12", "1.9", {"nvidia/cufile/lib/libcufile_rdma.so.1": rdma})
    found = said(audited(tmp_path, plugin))["audit-library-unresolved"]
    assert found == [(N_, "libcufile_rdma.so.1 needs libmlx5.so.1: not found; no import loads it")]
    broken = elf_file(needed=["libsox.so"], defines=["PyInit__sox"])
    sound = elf_file(needed=["libc.so.6"], defines=["PyInit__io"])
    for files, severity in (
        ({"sound/_sox.so": broken}, E_),
        ({"sound/_sox.so": broken, "sound/_io.so": sound}, N_),
    ):
        ((found_severity, _),) = said(audited(tmp_path, wheel("sound", "1", files)))["audit-library-unresolved"]
        assert found_severity is severity


# torchaudio's layout: modules without an RPATH, whose own libraries the package opens by path before it imports them;
# one for each release of ffmpeg, of which a system has one or none.
AUDIO_LIBRARY = elf_file(soname="libaudio.so", needed=["libc10.so", "libcudart.so.12"])
AUDIO = {
    "audio/__init__.py": b"from . import _extension\n",
    "audio/_extension/__init__.py": b"""
import os
if os.name == "nt":
    import audio.lib._windows
if os.path.exists("libaudio.so"):
    import torch
    torch.ops.load_library("libaudio.so")
    import audio.lib._audio
def ffmpeg():
    import audio.lib._ffmpeg4
try:
    import audio.lib._sox
except (ImportError, OSError):
    pass
""",
    "audio/lib/libaudio.so": AUDIO_LIBRARY,
    "audio/lib/_audio.so": elf_file(needed=["libaudio.so", "libc10.so"], defines=["PyInit__audio"]),
    "audio/lib/libsoxes.so": elf_file(soname="libsoxes.so", needed=["libsox.so", "libc10.so"]),
    "audio/lib/_sox.so": elf_file(needed=["libsoxes.so"], defines=["PyInit__sox"]),
    "audio/lib/_windows.so": elf_file(needed=["libwin.so"], defines=["PyInit__windows"]),
    "audio/lib/libffmpeg4.so": elf_file(soname="libffmpeg4.so", needed=["libavutil.so.56"]),
    "audio/lib/_ffmpeg4.so": elf_file(needed=["libffmpeg4.so", "libavutil.so.56"], defines=["PyInit__ffmpeg4"]),
}


def severities(audit: Audit) -> dict[str, Severity]:
    """By the library that is missing, how grave the audit takes that to be."""
    found = said(audit).get("audit-library-unresolved", [])
    return {message.partition(": not found")[0].split()[-1]: severity for severity, message in found}


def test_what_a_package_can_go_on_without_is_a_note(tmp_path: Path) -> None:
    found = severities(audited(tmp_path, wheel("audio", "2.6.0", AUDIO)))
    assert set(found) >= {"libsox.so", "libavutil.so.56", "libwin.so"}
    assert set(found.values()) == {N_}


@pytest.mark.parametrize(
    "init",
    [
        b"import audio.lib._ffmpeg4\n",
        b"from audio.lib import _ffmpeg4\n",
        b"from .lib import _ffmpeg4\n",
        b"from .lib._ffmpeg4 import decode\n",
        b"from audio import inner\n",
        b"try:\n    import audio.lib._ffmpeg4\nexcept ImportError as error:\n    raise RuntimeError('no') from error\n",
        b"try:\n    import audio.lib._ffmpeg4\nfinally:\n    x = 1\n",
        b"try:\n    import audio.lib._ffmpeg4\nexcept KeyError:\n    pass\n",
        b"if True:\n    with open('x'):\n        import audio.lib._ffmpeg4\n",
    ],
)
def test_what_its_import_loads_in_any_case_is_an_error(tmp_path: Path, init: bytes) -> None:
    package = {**AUDIO, "audio/__init__.py": init, "audio/inner.py": b"from .lib import _ffmpeg4 as codec\n"}
    found = severities(audited(tmp_path, wheel("audio", "2.6.0", package)))
    assert found["libavutil.so.56"] is E_
    assert found["libsox.so"] is N_


@pytest.mark.parametrize(
    "init",
    [
        b"def load():\n    import audio.lib._ffmpeg4\n",
        b"try:\n    import audio.lib._ffmpeg4\nexcept:\n    pass\n",
        b"try:\n    from .lib import _ffmpeg4\nexcept (OSError, ImportError):\n    _ffmpeg4 = None\n",
        b"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import audio.lib._ffmpeg4\n",
        b"import sys\nif sys.platform == 'win32':\n    import audio.lib._ffmpeg4\n",
        b"import audio.lib._audio\nthis is no Python (\n",
    ],
)
def test_what_its_import_may_do_without_is_none(tmp_path: Path, init: bytes) -> None:
    found = severities(audited(tmp_path, wheel("audio", "2.6.0", {**AUDIO, "audio/__init__.py": init})))
    assert found["libavutil.so.56"] is N_


def test_what_a_needed_module_takes_from_its_own_library_is_followed(tmp_path: Path) -> None:
    """A torchaudio for another CUDA: the module finds its library by path, and that one lacks the runtime."""
    other = elf_file(soname="libaudio.so", needed=["libc10.so", "libcudart.so.13"])
    found = severities(audited(tmp_path, wheel("audio", "2.11.0", {**AUDIO, "audio/lib/libaudio.so": other})))
    assert found["libcudart.so.13"] is E_
    assert found["libavutil.so.56"] is N_


@pytest.mark.parametrize(
    ("package", "path", "needed", "found"),
    [
        ("ext", "ext/core.so", [], False),
        ("ext", "ext/core.so", ["libc10.so"], True),
        ("torch", "torch/core.so", [], True),
    ],
)
def test_what_torch_has_loaded_is_there_for_its_own_modules_and_those_that_link_to_it(
    tmp_path: Path, package: str, path: str, needed: list[str], found: bool
) -> None:
    """A module that no search leads to the CUDA runtime: it is there only where torch was imported before."""
    module = {path: elf_file(needed=[*needed, "libcudart.so.12"], defines=["PyInit_core"])}
    files = {**TORCH, **module} if package == "torch" else module
    version = "2.6.0" if package == "torch" else "1.0"
    lacks = severities(audited(tmp_path, wheel(package, version, files)))
    assert ("libcudart.so.12" not in lacks) is found


def test_triton_keeps_a_library_for_itself_and_torch_takes_the_systems(tmp_path: Path) -> None:
    cupti = elf_file(soname="libcupti.so.12", needed=["libc.so.6"])
    triton = wheel("triton", "3.2.0", {"triton/backends/nvidia/lib/cupti/libcupti.so.12": cupti})
    python = elf_file(
        soname="libtorch_python.so", needed=["libcupti.so.12", "libtorch_cuda.so", "libc10.so"], rpath=DIRS
    )
    system: Files = {
        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12": cupti,
        "/etc/ld.so.conf": b"/usr/local/cuda/extras/CUPTI/lib64\n",
        f"{SITE}/torch/lib/libtorch_python.so": python,
    }
    audit = audited(tmp_path, triton, system)
    assert edge(audit, "torch/lib/libtorch_python.so", "libcupti.so.12").path.startswith("/usr/local/cuda")
    assert "audit-library-shadowed" not in said(audit)
    nvidia = wheel("nvidia-cuda-cupti-cu12", "12.4", {"nvidia/cuda_cupti/lib/libcupti.so.12": cupti})
    ((severity, message),) = said(audited(tmp_path, triton, nvidia, system))["audit-library-shadowed"]
    assert severity is E_ and "libcupti.so.12 would come from /usr/local/cuda/extras/CUPTI/lib64" in message


def test_a_private_copy_that_its_own_package_does_not_get_is_shadowed(tmp_path: Path) -> None:
    fft = elf_file(soname="libcufft.so.11", needed=["libc.so.6"])
    module = elf_file(needed=["libcufft.so.11"], runpath="$ORIGIN/libs", defines=["PyInit_core"])
    files = {"cupyish/core.so": module, "cupyish/libs/libcufft.so.11": fft}
    stray: Files = {"/opt/old/libcufft.so.11": fft}
    config = {"Env": [*PATH["Env"], "LD_LIBRARY_PATH=/opt/old"]}
    ((severity, _),) = said(audited(tmp_path, wheel("cupyish", "1", files), stray, config=config))[
        "audit-library-shadowed"
    ]
    assert severity is W_
    assert "audit-library-shadowed" not in said(audited(tmp_path, wheel("cupyish", "1", files), stray))


def test_a_stubs_directory_on_the_path_counts_where_it_holds_something(tmp_path: Path) -> None:
    stub: Files = {"/usr/local/cuda/lib64/stubs/libcuda.so": elf_file(soname="libcuda.so.1")}
    config = {"Env": [*PATH["Env"], "LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs"]}

    def grave(audit: Audit) -> list[Severity]:
        return [
            one.severity
            for one in judge.run(judge.checks()["image-loader-variables-shadow-cuda"], audit, facts.load()).findings
        ]

    assert grave(audited(tmp_path, config=config)) == [N_]
    assert grave(audited(tmp_path, {"/usr/local/cuda/lib64/stubs/": b""}, config=config)) == [N_]
    assert grave(audited(tmp_path, stub, config=config)) == [E_]
    linked: Files = {"/usr/local/cuda": "cuda-12.4", "/usr/local/cuda-12.4/lib64/stubs/libcuda.so": b"x"}
    assert grave(audited(tmp_path, linked, config=config)) == [E_]


def test_a_python_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    broken = elf_file(needed=["libexpat.so.1"], needs={"libc.so.6": ["GLIBC_2.99"]})
    found = said(audited(tmp_path, {"/usr/bin/python3.11": broken}))
    missing = "python3.11 needs libexpat.so.1: not found; /opt/venv/bin/python3 loads it"
    assert found == {"audit-library-unresolved": [(E_, missing)]}
    old = elf_file(needed=["libc.so.6"], needs={"libc.so.6": ["GLIBC_2.99"]})
    ((severity, message),) = said(audited(tmp_path, {"/usr/bin/python3.11": old}))["audit-system-library-too-old"]
    assert severity is E_ and message.startswith("python3.11 needs GLIBC_2.99 of /usr/lib")


def test_a_library_without_versions_hides_no_other_that_is_too_old(tmp_path: Path) -> None:
    needs = {"libplain.so": ["PLAIN_1"], "libc.so.6": ["GLIBC_2.99"]}
    both: Files = {
        "/usr/bin/python3.11": elf_file(needed=list(needs), needs=needs),
        f"{LIB}/libplain.so": elf_file(soname="libplain.so"),
    }
    assert [severity for severity, _ in said(audited(tmp_path, both))["audit-system-library-too-old"]] == [E_]


def test_an_extension_that_fits_its_torch_lacks_nothing(tmp_path: Path) -> None:
    assert said(audited(tmp_path, wheel("ours", "1.0", {"ours.so": extension("_ZN3c105ErrorC1Ev")}))) == {}


def test_a_virtual_environment_alone_is_judged_by_what_it_brings(tmp_path: Path) -> None:
    """Without a C library the tree is a part of a system: what no wheel brings may lie there."""
    for path, content in {**system(), **stack()}.items():
        if path.startswith("/opt/venv/"):
            at = tmp_path / path.removeprefix("/opt/venv/")
            at.parent.mkdir(parents=True, exist_ok=True)
            at.symlink_to(content) if isinstance(content, str) else at.write_bytes(content)
    (tmp_path / "bin/python3").unlink()
    (tmp_path / "bin/python3").symlink_to(tmp_path / "missing/python3.11")

    def look() -> Audit:
        with open_tree(str(tmp_path), no_engine, lambda line: None) as tree:
            return observe(tree, gpus=(), promise=Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE))

    audit = look()
    assert said(audit) == {} and audit.libc.missing == NO_LIBC and audit.python.value == "3.11.2"
    inside = SITE.removeprefix("/opt/venv/")
    cuda = by_path(audit)[f"/{inside}/torch/lib/libtorch_cuda.so"]
    assert next(one for one in cuda.edges if one.name == "libc.so.6").by == linker.OUTSIDE
    (tmp_path / inside / "nvidia/cudnn/lib/libcudnn.so.9").unlink()
    assert "libtorch_cuda.so needs libcudnn.so.9: not found" in said(look())["audit-library-unresolved"][0][1]


def test_another_environment_is_named_and_not_followed(tmp_path: Path) -> None:
    other = {path.replace("/opt/venv", "/srv/venv"): content for path, content in stack().items()}
    audit = audited(tmp_path, other, without=["/srv/venv" + SITE.removeprefix("/opt/venv") + "/torch/lib/libc10.so"])
    assert audit.interpreter.need("Python").others == ("/srv/venv" + SITE.removeprefix("/opt/venv"),)
    assert list(said(audit)) == ["audit-cuda-twice"]


def test_the_only_environment_is_taken_where_none_is_on_the_path(tmp_path: Path) -> None:
    audit = audited(tmp_path, config={"Env": ["PATH=/usr/sbin"]})
    assert audit.interpreter.need("Python").path == "/opt/venv/bin/python3" and audit.torch.value
    audit = audited(tmp_path, {"/srv/venv/pyvenv.cfg": b"version = 3.11.2\n"}, config={"Env": ["PATH=/usr/sbin"]})
    assert audit.torch.missing == "no python3 is on the image's PATH, and 2 virtual environments are elsewhere"


def test_a_script_in_pythons_place_leaves_open_what_is_installed(tmp_path: Path) -> None:
    audit = audited(tmp_path, {"/usr/bin/python3.11": b"#!/bin/sh\nexec /x/python3\n"})
    assert audit.wheels.missing.startswith("which Python /opt/venv/bin/python3 starts is open: not a 64-bit")
    assert audit.torch.missing == audit.python.missing == audit.wheels.missing


def test_the_systems_python_imports_from_debians_directories(tmp_path: Path) -> None:
    config = {"Env": ["PATH=/usr/bin", "PYTHONPATH=/srv/lib:relative"]}
    info: Files = {
        "/usr/lib/python3/dist-packages/six-1.16.egg-info": b"Metadata-Version: 1.2\nName: six\nVersion: 1.16\n",
        "/usr/local/lib/python3.11/dist-packages/six-1.17.dist-info/METADATA": b"Name: six\nVersion: 1.17\n",
        "/srv/lib/more.pth": b"# x\nimport os\n../extra\n",
        "/srv/extra/ours-1.dist-info/METADATA": b"Name: Ours_x\nVersion: 1\n",
        "/usr/include/python3.11/patchlevel.h": b'#define PY_VERSION "3.11.2"\n',
    }
    audit = audited(tmp_path, info, config=config)
    assert {(one.name, one.version) for one in audit.wheels.need("wheels")} == {("six", "1.17"), ("ours-x", "1")}
    assert audit.python.value == "3.11.2" and audit.torch.missing == NO_TORCH
    assert audit.interpreter.need("Python").others == (SITE,)


@pytest.mark.parametrize(
    ("config", "home"),
    [
        ({}, "/root"),
        ({"User": "0:0"}, "/root"),
        ({"User": "bob:staff"}, "/home/bob"),
        ({"User": "bob", "Env": ["PATH=/usr/bin", "HOME=/srv/bob"]}, "/srv/bob"),
    ],
)
def test_what_a_user_has_installed_lies_in_the_home_of_the_images_user(
    tmp_path: Path, config: dict[str, Any], home: str
) -> None:
    homes = ("/root", "/home/bob", "/srv/bob", "/home/root")
    info: Files = {
        f"{each}/.local/lib/python3.11/site-packages/six-1.{number}.dist-info/METADATA": (
            f"Name: six\nVersion: 1.{number}\n".encode()
        )
        for number, each in enumerate(homes)
    }
    audit = audited(tmp_path, info, config={"Env": ["PATH=/usr/bin"], **config})
    wheels = {(one.name, one.version) for one in audit.wheels.need("wheels")}
    assert wheels == {("six", f"1.{homes.index(home)}")}


def test_without_a_python_nothing_is_installed_and_the_rest_is_read(tmp_path: Path) -> None:
    with image(tmp_path, {f"{LIB}/libc.so.6": LIBC, "/root/.ssh/id_rsa": b"-----BEGIN PRIVATE KEY-----"}) as tree:
        audit = observe(tree, gpus=(), promise=Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE))
    assert (audit.torch.missing, audit.wheels.value, audit.extensions.value) == (NO_TORCH, (), ())
    assert audit.python.missing == "no python3 is on the image's PATH, and no virtual environments are elsewhere"
    assert list(said(audit)) == ["audit-secret-inside"]
    asked = replace(audit, frameworks_asked=("none",))
    assert judge.unanswered(asked) == ()
    assert [one.reason.partition(" (")[0] for one in judge.unanswered(audit)] == [NO_TORCH]


@pytest.mark.parametrize(
    "path",
    [
        "/opt/python3.12",
        "/opt/lib/libpython3.12.so.1.0",
        "/opt/x/site-packages/torch/version.py",
        "/opt/libtorch/lib/libtorch_cuda.so",
        "/srv/app.pex",
    ],
)
def test_a_python_that_path_does_not_name_leaves_open_what_is_installed(tmp_path: Path, path: str) -> None:
    with image(tmp_path, {f"{LIB}/libc.so.6": LIBC, path: b"x"}) as tree:
        audit = observe(tree, gpus=(), promise=Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE))
    assert audit.wheels.value is None and audit.extensions.value is None
    assert len(judge.unanswered(replace(audit, frameworks_asked=("none",)))) == 1


def test_where_a_directory_could_not_be_read_a_python_may_lie_in_it(tmp_path: Path) -> None:
    with image(tmp_path, {f"{LIB}/libc.so.6": LIBC}) as tree:
        assert environment.no_python(tree)
        assert not environment.no_python(replace(tree, unread={"/root": "Permission denied"}))


# Records.


def test_files_that_are_not_what_their_wheel_brought_are_told(tmp_path: Path) -> None:
    path = f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12"
    assert audited(tmp_path).overwritten.value == ()
    changed = RUNTIME[:-1] + b"\xff"
    (found,) = audited(tmp_path, {path: changed}).overwritten.need("overwritten")  # the same size, in a later layer
    assert (found.path, found.owners, found.found) == (
        path, ("nvidia-cuda-runtime-cu12==12.4.127",), "none of their hashes",
    )  # fmt: skip
    (found,) = audited(tmp_path, {path: RUNTIME + b"x"}).overwritten.need("overwritten")
    assert found.found == f"{len(RUNTIME) + 1} bytes, none of their sizes"
    (found,) = audited(tmp_path, without=[path]).overwritten.need("overwritten")
    assert found.found == "the file is missing"


def test_a_change_within_the_wheels_own_layer_is_seen_where_every_file_is_hashed(tmp_path: Path) -> None:
    path = f"{SITE}/torch/__init__.py"
    files = {**system(), **stack(), path: b"# tORCH"}

    def look(hash_all: bool) -> tuple[Any, ...]:
        with image(tmp_path, files, config=PATH) as tree:
            promise: Observed[ExpectedContents] = Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE)
            return observe(tree, gpus=(), promise=promise, hash_all=hash_all).overwritten.need("x")

    assert look(False) == () and [one.path for one in look(True)] == [path]


def test_two_wheels_with_one_path_are_both_its_owners(tmp_path: Path) -> None:
    other = {"nvidia/cuda_runtime/lib/libcudart.so.12": RUNTIME[:-1] + b"\xff"}
    (found,) = audited(tmp_path, wheel("nvidia-cuda-runtime-cu13", "13.0", other)).overwritten.need("overwritten")
    assert found.found == "nvidia-cuda-runtime-cu13==13.0"
    assert found.owners == ("nvidia-cuda-runtime-cu12==12.4.127", "nvidia-cuda-runtime-cu13==13.0")


def test_packages_are_counted_by_the_files_that_are_there(tmp_path: Path) -> None:
    debian: Files = {
        "/var/lib/dpkg/status": installed(("libc6", "2.36-9"))
        + b"\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n",
        "/var/lib/dpkg/info/libc6:amd64.list": b"/.\n/lib\n/lib/x86_64-linux-gnu/libc.so.6\n/usr/share/removed\n",
    }
    audit = audited(tmp_path, debian)
    packages = {one.name: one for one in audit.packages.need("packages")}
    assert "gone" not in packages
    libc = packages["libc6"]
    assert (libc.kind, libc.version, libc.size, libc.files) == ("deb", "2.36-9", len(LIBC), 1)
    torch = packages["torch"]
    assert (torch.kind, torch.size) == ("wheel", sum(map(len, TORCH.values())) + _record_size("torch-2.6.0"))


def test_a_library_lies_with_its_package_or_in_its_folder(tmp_path: Path) -> None:
    owned, bare = "/usr/lib/x86_64-linux-gnu/libcudart.so.12", "/opt/cuda/lib64/libcudart.so.12"
    more: Files = {
        "/var/lib/dpkg/status": installed(("libcudart12", "12.4.127")),
        "/var/lib/dpkg/info/libcudart12:amd64.list": f"/.\n{owned}\n".encode(),
        owned: RUNTIME,
        bare: RUNTIME,
    }
    copies = {one.path: one for one in audited(tmp_path, more).copies.need("copies")}
    brought = f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12"
    assert {path: copies[path].place for path in (owned, bare, brought)} == {
        owned: "libcudart12", bare: "/opt/cuda/lib64", brought: "wheel"
    }  # fmt: skip


def _record_size(info: str) -> int:
    return len(stack()[f"{SITE}/{info}.dist-info/RECORD"])


# The linker's search.


def cache_of(machine: int, *pairs: tuple[str, str]) -> bytes:
    """An ld.so.cache of the newer format behind one of the older, as ldconfig's compatible form has it."""
    old = b"ld.so-1.7.0\0" + struct.pack("<I", 0)
    strings, start = b"", 48 + 24 * len(pairs)
    rows = b""
    for name, path in pairs:
        rows += struct.pack("<iIIIQ", machine, start + len(strings), start + len(strings) + len(name) + 1, 0, 0)
        strings += name.encode() + b"\0" + path.encode() + b"\0"
    return old + struct.pack("<20sIIB3xI12x", b"glibc-ld.so.cache1.1", len(pairs), len(strings), 2, 0) + rows + strings


def test_the_cache_is_read_for_the_right_machine() -> None:
    data = cache_of(0x0303, ("libz.so.1", "/opt/z/libz.so.1"), ("libz.so.1", "/lib/libz.so.1"))
    assert linker.cache(data, "x86_64") == {"libz.so.1": "/opt/z/libz.so.1"}
    assert linker.cache(data, "aarch64") == {}


def test_the_machines_own_cache_names_files_that_are_there() -> None:
    path = Path("/etc/ld.so.cache")
    if not path.exists():
        pytest.skip("this machine has no ld.so.cache")
    found = linker.cache(path.read_bytes(), os.uname().machine)
    assert sum(os.path.exists(each) for each in found.values()) > len(found) / 2 > 2


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6), st.integers(0, 400))
def test_a_damaged_cache_is_refused_or_read(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(cache_of(0x0303, *[(f"lib{n}.so", f"/lib/lib{n}.so") for n in range(6)]))
    for at, value in changes:
        data[at % len(data)] = value
    with suppress(ValueError):
        found = linker.cache(bytes(data[: len(data) - cut]), "x86_64")
        assert len(found) <= 6 and all(isinstance(path, str) for path in found.values())


def test_cache_and_configured_directories_come_before_the_default_ones(tmp_path: Path) -> None:
    far: Files = {"/opt/c/libc.so.6": LIBC, "/etc/ld.so.cache": cache_of(0x0303, ("libc.so.6", "/opt/c/libc.so.6"))}
    found = edge(audited(tmp_path, far), "torch/lib/libc10.so", "libc.so.6")
    assert (found.path, found.by) == ("/opt/c/libc.so.6", "ld.so.cache")
    conf: Files = {"/opt/c/libc.so.6": LIBC, "/etc/ld.so.conf": b"/opt/c\n"}
    assert edge(audited(tmp_path, conf), "torch/lib/libc10.so", "libc.so.6").by == "/etc/ld.so.conf"


def test_a_cache_that_cannot_be_read_leaves_the_bindings_open(tmp_path: Path) -> None:
    audit = audited(tmp_path, {"/etc/ld.so.cache": b"rubbish"})
    assert audit.objects.missing == "/etc/ld.so.cache: it is no ld.so.cache of a known format"


def test_a_library_for_another_machine_is_passed_over_and_a_damaged_one_stops_the_search(tmp_path: Path) -> None:
    config = {"Env": [*PATH["Env"], "LD_LIBRARY_PATH=/opt/x"]}
    for content, path, error in (
        (elf_file(soname="libc.so.6", machine=183), f"{LIB}/libc.so.6", ""),
        (b"INPUT(libc.so.6)", "", "/opt/x/libc.so.6 is damaged: not a 64-bit little-endian ELF file"),
    ):
        audit = audited(tmp_path, {"/opt/x/libc.so.6": content}, config=config)
        found = edge(audit, "torch/lib/libc10.so", "libc.so.6")
        assert (found.path, found.error) == (path, error)


# Credentials.

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n"


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("/home/u/.ssh/id_ed25519", KEY, "a private key"),
        ("/etc/ssl/private/site.pem", KEY, "a private key"),
        ("/srv/x.pem", "-----BEGIN CERTIFICATE-----\n", ""),
        ("/root/.netrc", "machine example.org login me password hunter2\n", "a password for a host"),
        ("/root/.netrc", "machine example.org login me\n", ""),
        ("/etc/pip.conf", "[global]\nindex-url = https://me:hunter2@example.org/simple\n",
         "a password in the address of a package index"),
        ("/etc/pip.conf", "[global]\nindex-url = https://example.org/simple\n", ""),
        ("/etc/pip.conf", "[global]\nindex-url = https://me:${PASS}@example.org/simple\n", ""),
        ("/root/.condarc", "channels:\n  - https://me:hunter2@example.org/c\n",
         "a password in the address of a channel"),
        ("/root/.pypirc", "[pypi]\nusername = __token__\npassword = hunter2\n", "a password for a package index"),
        ("/root/.git-credentials", "https://me:hunter2@example.org\n", "a password for a git host"),
        ("/root/.aws/credentials", "[default]\naws_secret_access_key = hunter2\n", "an AWS key"),
        ("/srv/credentials", "[default]\naws_secret_access_key = hunter2\n", ""),
        ("/root/.docker/config.json", '{"auths": {"example.org": {"auth": "aHVudGVyMg=="}}}', "a login for a registry"),
        ("/root/.docker/config.json", '{"auths": {}}', ""),
        ("/root/.npmrc", "//example.org/:_authToken=hunter2\n", "a token for a package registry"),
        ("/root/.npmrc", "//example.org/:_authToken=${TOKEN}\n", ""),
        ("/root/.cache/huggingface/token", "hunter2", "a Hugging Face token"),
        ("/app/.env", "DEBUG=1\nAPI_KEY=hunter2hunter2\n", "a credential in a file of variables"),
        ("/app/.env", "DEBUG=1\nAPI_KEY=$API_KEY\n", ""),
    ],
)  # fmt: skip
def test_credential_files_are_told_by_name_and_content(path: str, text: str, kind: str) -> None:
    assert exposed.file(path, text) == kind


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("HF_TOKEN", "abcdef", True),
        ("AWS_SECRET_ACCESS_KEY", "abcdef", True),
        ("PIP_INDEX_URL", "https://me:hunter2@example.org/simple", True),
        ("ANYTHING", "hf_" + "a" * 34, True),
        ("DB_PASSWORD", "hunter2", True),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("HF_TOKEN", "", False),
        ("TOKEN_FILE", "token.txt", False),
        ("HF_TOKEN_PATH", "/root/token", False),
        ("GPG_KEY", "A035C8C19219BA821ECEA86B64E628F8D684696D", False),
        ("PIP_INDEX_URL", "https://example.org/simple", False),
    ],
)
def test_credentials_in_variables_are_told_and_switches_are_none(name: str, value: str, found: bool) -> None:
    assert (exposed.variable(name, value) is not None) is found


def test_no_credential_is_ever_recorded(tmp_path: Path) -> None:
    audit = audited(
        tmp_path,
        {"/root/.netrc": b"machine example.org password hunter2\n", "/app/gone.key": KEY.encode() + b"hunter2"},
        {"/app/.wh.gone.key": b""},
        config={
            "Env": [
                *PATH["Env"],
                "HF_TOKEN=hunter2",
                "CUDA_PASSWORD=hunter2",
                "TORCH_MIRROR=https://me:hunter2@example.org",
            ]
        },
        commands=["x", "y", "pip install --index-url https://me:hunter2@example.org x", "API_TOKEN=hunter2 make"],
    )
    found = {one.where: one.kind for one in audit.secrets.need("secrets")}
    assert found == {
        "variable HF_TOKEN": "a credential in a variable",
        "variable CUDA_PASSWORD": "a credential in a variable",
        "variable TORCH_MIRROR": "a password in an address",
        "command of layer 3": "a credential in the image's history",
        "command of layer 4": "a credential in the image's history",
        "/root/.netrc": "a password for a host",
        "/app/gone.key in layer 3, removed by a later layer": "a private key",
    }
    assert "hunter2" not in json.dumps(codec.to_plain(audit)) and "MIIE" not in json.dumps(codec.to_plain(audit))


def test_what_a_package_brings_is_published_and_no_secret(tmp_path: Path) -> None:
    assert said(audited(tmp_path, wheel("server", "1", {"server/test/test.key": KEY.encode()}))) == {}


def test_a_key_among_tests_is_a_note(tmp_path: Path) -> None:
    keys: Files = {f"/usr/lib/python3.11/test/certdata/{name}.pem": KEY.encode() for name in ("a", "b")}
    words = "2 private keys lie in directories of tests, the first is /usr/lib/python3.11/test/certdata/a.pem"
    assert said(audited(tmp_path, keys)) == {"audit-secret-inside": [(N_, words)]}
    token: Files = {"/srv/tests/.netrc": b"machine example.org password hunter2\n"}
    assert said(audited(tmp_path, token))["audit-secret-inside"][0][0] is E_


def test_writable_is_what_others_may_write_on_the_way_to_what_runs(tmp_path: Path) -> None:
    modes = {"/opt/venv": 0o777, "/tmp": 0o1777, "/data": 0o777, "/etc": 0o777}
    audit = audited(tmp_path, {"/opt/venv/": b"", "/data/": b""}, modes=modes)
    assert {one.path: one.mode for one in audit.writable.need("modes")} == {"/opt/venv": "0777", "/etc": "0777"}


# Damage, and real stacks.


@examples(20)
@given(st.integers(0, 1 << 30), st.integers(0, 255))
@example(444, 0)  # device code for an architecture 0
def test_a_damaged_library_is_told_or_read_and_breaks_nothing(at: int, value: int) -> None:
    data = bytearray(TORCH["torch/lib/libtorch_cuda.so"])
    data[at % len(data)] = value
    with tempfile.TemporaryDirectory() as folder:
        audit = audited(Path(folder), {f"{SITE}/torch/lib/libtorch_cuda.so": bytes(data)})
    said(audit)
    assert audit.wheels.value


def test_the_elf_files_of_these_tests_are_such() -> None:
    one = elf.read(LIBC)
    assert one.defines == ("libc.so.6", "GLIBC_2.2.5", "GLIBC_2.9", "GLIBC_2.36") and one.soname == "libc.so.6"
    assert elf.read(TORCH["torch/lib/libc10.so"]).needs == (("libc.so.6", ("GLIBC_2.9",)),)
    assert {one.name for one in elf.symbols(JIT, elf.read(JIT)) if one.defined} == {
        "__nvJitLinkAddData_12_4", "__nvJitLinkComplete_12_4",
    }  # fmt: skip


@torches.needs_torch_for_cuda
def test_a_real_environment_is_sound_and_read_within_the_budget() -> None:
    prefix = Path(torches.PYTHON).parent.parent
    with costs_less(3), open_tree(str(prefix), no_engine, lambda line: None) as tree:
        audit = observe(tree, gpus=(), promise=Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE))
    assert [each for found in said(audit).values() for each in found if each[0] > Severity.NOTE] == []
    assert audit.code.need("torch's code").sass


@pytest.mark.parametrize(
    "record",
    [
        b"torch/a.so,sha256=x\0y,1\n",
        b'"' + b"x" * 200_000 + b"\n",
        b"../../../../../../etc/passwd,sha256=abc,1\n/abs,sha256=abc,-1\n,,\n,sha256=abc,\xc2\xb2\n",
        b"\xff\xfe" * 50,
    ],
)
def test_a_hostile_record_is_told_or_read_and_breaks_nothing(record: bytes, tmp_path: Path) -> None:
    audit = audited(tmp_path, {f"{SITE}/torch-2.6.0.dist-info/RECORD": record})
    assert audit.overwritten.missing == "" and {one.path for one in audit.overwritten.need("x")} <= {
        SITE,
        "/abs",
        f"{SITE}/torch/a.so",
    }
    assert audit.code.value  # the library is there whoever lists it


def test_what_cannot_be_read_is_told_and_leaves_the_answer_open(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        os.seteuid(65534)  # root reads everything
        try:
            _look_at_a_locked_folder(Path(tempfile.mkdtemp()))
        finally:
            os.seteuid(0)
    else:
        _look_at_a_locked_folder(tmp_path)


def _look_at_a_locked_folder(folder: Path) -> None:
    (folder / "locked").mkdir()
    key = folder / "id_rsa"
    key.write_text(KEY)
    key.chmod(0)
    (folder / "locked").chmod(0)
    try:
        with open_tree(str(folder), no_engine, lambda line: None) as tree:
            audit = observe(tree, gpus=(), promise=Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE))
        assert audit.unread.value == ("/id_rsa: Permission denied", "/locked: Permission denied")
        result = judge.run(judge.checks()["audit-secret-inside"], audit, facts.load())
        assert result.outcome is Outcome.UNKNOWN and "the first is /id_rsa" in result.reason
    finally:
        (folder / "locked").chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
