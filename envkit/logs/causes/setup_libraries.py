"""Libraries that are missing, of another version, found at the wrong place, or of a build without CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._setup import (
    gpus_listed,
    hypothesis,
    in_container,
    roots_of,
    started_without_gpus,
    unless_only_warned,
    words_seen,
)
from envkit.logs.records import Event, Hypothesis, Strength
from envkit.logs.story import Story

_MISSING = "missing-shared-library"
_SYMBOL = "undefined-symbol-abi-mismatch"
_AFTER = ("not-gpu-env", "insufficient-evidence", "torch-not-compiled-with-cuda", "cuda-init-no-device")
_AFTER_ABI = (*_AFTER, _MISSING)
_DRIVER_SIDE = re.compile(r"^(?:lib)?(?:cuda|nvidia-[\w-]+|nvcuvid)\.(?:so|dll)|^nvcuda\.dll|^libdxcore")
_TORCH_SIDE = re.compile(r"^lib(?:torch|c10|caffe2)")
_ROCM = re.compile(r"^lib(?:torch_hip|c10_hip|amdhip|rocblas|MIOpen|hip\w*|hsa-\w+|rccl)", re.IGNORECASE)
_SPLIT = re.compile(r"^libtorch_cuda_(?:cu|cpp)")
_CUDNN_PART = re.compile(r"^libcudnn_")
_MAJOR = re.compile(r"\.so\.(\d+)|64_(\d+)\.dll")
_CUDA_MIXED = re.compile(r"nvJitLink|cublasLt|cusparse|cublas|cudnn|cusolver|cufft|curand|nvrtc|cudart|cuda[A-Z]", re.I)
_TORCH_NAME = re.compile(r"c10|at[0-9]|2at|torch|caffe2|THP|THC|_ZN3c10|_ZNK3c10")
_OTHER_ROWS = ("lib-tf", "lib-ort", "lib-not-loaded", "lib-jax")
_OTHERS = ("onnxruntime", "ctranslate2", "faster_whisper", "tensorflow", "paddle", "cupy", "jax", "mxnet")
_MAC = ("/users/", "macosx", "macos", "darwin", "apple silicon", "mps")


def missing_library(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The loader found no such library; its name tells whose it is (ld.so(8))."""
    found = roots_of(story, _MISSING, "lib-gpu", "lib-cudnn-any", "lib-cudnn-load", "lib-nvrtc-builtins")
    if not found:
        return
    event = found[0]
    library = event.values.get("lib") or ""
    strength = unless_only_warned(story, event, Strength.LIKELY)
    if event.signature.id.startswith("lib-tf") and (story.of("lib-tf-ignore") or story.of("tf-no-drivers")):
        strength = Strength.FALLBACK  # TensorFlow says the same on every machine without a GPU
    if library and _DRIVER_SIDE.search(library):
        yield _driver_side(story, event, library, strength)
    elif event.signature.id.startswith("lib-bnb"):
        yield from _bitsandbytes(story, event, strength)
    elif _ROCM.search(library):
        yield hypothesis(
            event, "wrong-build-installed", strength, f"{library} is of ROCm: a build for AMD is installed", over=_AFTER
        )
    elif _TORCH_SIDE.search(library):
        yield _torch_side(story, event, library, strength)
    elif _CUDNN_PART.search(library) or event.signature.id in ("lib-nvrtc-builtins", "lib-cudnn-windows"):
        yield hypothesis(
            event,
            "library-path-clash",
            strength,
            f"{library} is not where the loader looks, or another copy of its family is found first",
            decide_by="is it below site-packages/nvidia, and that folder not on the loader's path?",
            over=(*_AFTER, "cudnn-not-initialized"),
        )
    else:
        yield from _toolkit_side(story, event, library, strength)


def other_abi(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A symbol or a version of it is missing in the library that was found (ld.so(8))."""
    found = roots_of(story, _SYMBOL, "symbol-undefined", "symbol-linktime", "symbol-xformers")
    if not found:
        return
    event = found[0]
    strength = unless_only_warned(story, event, Strength.LIKELY)
    yield next(told for read in _ABI if (told := read(story, event, strength)) is not None)


def _other_tensorrt(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    if not event.signature.id.startswith("tensorrt-other"):
        return None
    found_of, read_by = event.values.get("found"), event.values.get("wanted")
    pair = f": it is of {found_of} and {read_by} reads it" if found_of else ""
    return hypothesis(
        event,
        "version-mismatch",
        strength,
        f"the engine file was built by another release of TensorRT{pair}",
        fix="build the engine again with the TensorRT that loads it",
        over=_AFTER_ABI,
    )


def _other_nccl(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    symbol = event.values.get("symbol") or ""
    if not symbol.startswith(("nccl", "pnccl")):
        return None
    return hypothesis(
        event,
        "version-mismatch",
        strength,
        f"the NCCL that is loaded lacks {symbol}: it is older than torch needs",
        category="nccl-version-mismatch",
        over=(_SYMBOL, *_AFTER_ABI),
    )


def _other_runtime(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    version = event.values.get("version") or ""
    if not version.startswith(("GLIBC_", "GLIBCXX_", "CXXABI_", "GCC_")):
        return None
    return _runtime_side(event, version, event.values.get("path") or "", strength, _AFTER_ABI)


def _package_of_other_torch(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    if event.signature.id not in ("symbol-xformers", "symbol-operator", "symbol-no-operator", "symbol-vision-ops"):
        return None
    return hypothesis(
        event,
        "version-mismatch",
        strength,
        f"{_package(event)} was built for another torch than the installed {story.value('torch') or 'one'}",
        decide_by="do the versions of both packages belong together, and their CUDA (pip list)?",
        over=_AFTER_ABI,
    )


def _extension_of_other_torch(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    symbol, path = event.values.get("symbol") or "", event.values.get("path") or ""
    if not _TORCH_NAME.search(symbol):
        return None
    # a copy in ~/.local is found before that of the environment
    shadowed = "/.local/" in path and not words_seen(story, "/.local/lib/python3", "pip3] torch")
    return hypothesis(
        event,
        "library-path-clash" if shadowed else "version-mismatch",
        strength,
        f"{_base(path) or 'the extension'} was compiled against another torch than the installed "
        f"{story.value('torch') or 'one'}: it misses {_cut(symbol)}",
        over=_AFTER_ABI,
    )


def _mixed_cuda(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    symbol, library, path = (event.values.get(name) or "" for name in ("symbol", "lib", "path"))
    if not _CUDA_MIXED.search(f"{symbol} {library}"):
        return None
    extension = bool(path) and not _CUDA_MIXED.search(_base(path)) and "torch/lib" not in path
    wrong = extension and not library
    wants = _cut(symbol or event.values.get("version") or "")
    return hypothesis(
        event,
        "version-mismatch" if wrong or event.signature.id == "link-undefined" else "library-path-clash",
        strength,
        f"CUDA libraries of different releases meet: {_base(path) or 'a library'} wants {wants}"
        + (f" of {library}" if library else ""),
        decide_by="from which folder does each of them come (LD_LIBRARY_PATH, the system, site-packages/nvidia)?",
        over=_AFTER_ABI,
    )


def _other_dll(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    if not event.signature.id.startswith("symbol-dll"):
        return None
    strange = not words_seen(story, "cuda", "torch", "nvidia")
    return hypothesis(
        event,
        "version-mismatch",
        Strength.POSSIBLE if strange else strength,
        f"{event.values.get('module') or 'the module'} needs a DLL that is missing or of another version",
        decide_by="which of its DLLs is missing (Dependencies, dumpbin /dependents)?",
        over=() if strange else _AFTER_ABI,
    )


def _other_binary(story: Story, event: Event, strength: Strength) -> Hypothesis:
    gpu = words_seen(story, "torch", "cuda", "nvidia", "tensorflow", "jax")
    missing = event.values.get("symbol") or event.values.get("version") or ""
    return hypothesis(
        event,
        "version-mismatch",
        min(strength, Strength.LIKELY if gpu else Strength.POSSIBLE),
        f"a binary was built against another version of a library than the one loaded: {_cut(missing)}"
        if missing
        else "sources or binaries are for another torch than the installed one",
        over=_AFTER_ABI if gpu else (),
    )


# of the readings of a missing symbol the first that is one counts; the last always is
_ABI = (
    _other_tensorrt,
    _other_nccl,
    _other_runtime,
    _package_of_other_torch,
    _extension_of_other_torch,
    _mixed_cuda,
    _other_dll,
    _other_binary,
)


def cpu_build(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A build without CUDA is asked for it (torch/cuda/__init__.py)."""
    found = roots_of(story, "torch-not-compiled-with-cuda", "cpu-torch")
    if not found:
        return
    event = found[0]
    strength = unless_only_warned(story, event, Strength.DECISIVE)
    torch = story.value("torch") or ""
    mac = words_seen(story, *_MAC)
    yield hypothesis(
        event,
        "no-gpu-or-driver" if mac else "wrong-build-installed",
        min(strength, Strength.LIKELY) if mac else strength,
        "the platform has no CUDA, and the program asks for it"
        if mac
        else f"the installed build{f' {torch}' if torch else ''} has no CUDA: {_cut(event.line.text.strip())}",
        over=(*_AFTER, _SYMBOL),
    )


def numpy_abi(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Extensions compiled for NumPy 1 under NumPy 2 (NumPy 2.0 migration guide)."""
    ids = ("symbol-numpy", "symbol-numpy-size", "symbol-numpy-abi", "symbol-numpy-multiarray", "symbol-numpy-away")
    found = [event for event in story.roots if event.signature.id in ids]
    if not found:
        return
    event = found[0]
    yield hypothesis(
        event,
        "version-mismatch",
        unless_only_warned(story, event, Strength.LIKELY),
        "an extension was compiled for another NumPy than the installed one",
        fix="pin numpy below the major that the extension does not know, or take a newer release of the extension",
        over=("insufficient-evidence",),
    )


def unbuilt_extension(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """An extension that torch compiles when it is first used is not there: its build failed, here or on another rank.

    torch/utils/cpp_extension.py: one process builds, the others wait and import what it left.
    """
    for event in story.of("lib-extension-unbuilt")[:1]:
        yield hypothesis(
            event,
            "unknown-cut-log",
            Strength.POSSIBLE,
            f"{_base(event.values['path'])} was never built: the process that compiled it failed, and the compiler's "
            "words are not in this log",
            decide_by="what the compiler said in the log of the first rank, or with MAX_JOBS=1 and one process",
        )


def plain_library(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A library that is none of CUDA's is not installed where this ran (ld.so(8))."""
    for event in (each for each in story.roots if each.signature.id == "lib-any"):
        yield hypothesis(
            event,
            "container-config",
            unless_only_warned(story, event, Strength.LIKELY),
            f"{event.values['lib']} is not installed here, and it is no library of CUDA or torch",
            decide_by="which package of the system or of the environment holds it?",
            fix="install the package that holds the library in the image or the environment",
        )
        return


def resolver(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """pip, uv or conda found no set of versions that fits."""
    found = [event for event in story.roots if event.signature.id.startswith("resolve-")]
    if not found:
        return
    strong = [event for event in found if not event.has("warning")]
    event = (strong or found)[0]
    package = event.values.get("package") or event.values.get("what") or "the packages"
    yield hypothesis(
        event,
        "version-mismatch",
        unless_only_warned(story, event, Strength.LIKELY) if strong else Strength.FALLBACK,
        f"the resolver found no versions that fit together: {_cut(package)}",
        decide_by="does the index serve this version for this Python, platform and CUDA?",
        fix="ask for versions that belong together, from the index of their CUDA, on a Python they have wheels for",
    )


def _driver_side(story: Story, event: Event, library: str, strength: Strength) -> Hypothesis:
    without = started_without_gpus(story, event)
    if without is not None:
        return hypothesis(
            event,
            "container-config",
            strength,
            f"{library} belongs to the driver, and the container was started without GPUs",
            more=(without,),
            over=_AFTER,
        )
    if in_container(story) or gpus_listed(story) is not None:
        return hypothesis(
            event,
            "container-config",
            strength,
            f"{library} belongs to the driver and comes into a container from the host: this one was given no GPU",
            decide_by="does nvidia-smi work in the container?",
            over=_AFTER,
        )
    return hypothesis(
        event,
        "no-gpu-or-driver",
        strength,
        f"{library} belongs to the driver, and none is installed where this ran",
        decide_by="did it run in a container started without GPUs, or on a machine without a driver?",
        over=_AFTER,
    )


def _torch_side(story: Story, event: Event, library: str, strength: Strength) -> Hypothesis:
    if library.startswith(("libc10_cuda", "libtorch_cuda.")):
        cause, because = "wrong-build-installed", f"{library} is missing: torch has no CUDA, the extension has"
    elif _SPLIT.search(library):
        cause = "version-mismatch"
        because = f"{library} is of an older torch: the extension was built against another one than is installed"
    elif library.startswith(("libc10.", "libtorch.", "libtorch_cpu", "libtorch_python")):
        cause = "library-path-clash"
        because = f"{library} is not on the loader's path: torch is imported after the extension, or is not installed"
    else:
        cause, because = "version-mismatch", f"{library} is not part of the installed torch"
    return hypothesis(event, cause, strength, because, over=_AFTER)


def _toolkit_side(story: Story, event: Event, library: str, strength: Strength) -> Iterator[Hypothesis]:
    wants = _major(library)
    torch_cuda = story.value("cuda") or ""
    has = torch_cuda.split(".")[0] if torch_cuda else ""
    trace = story.traceback_of(event.line)
    last = trace.frames[-1].file if trace is not None and trace.frames else ""
    frames = trace.frames if trace is not None else ()
    loaded = "ctypes/__init__.py" in last and any("/torch/__init__.py" in frame.file for frame in frames)
    own = loaded or "/torch/__init__.py" in last or "/torch/_" in last
    named = library or "a library of CUDA"
    if own:
        yield hypothesis(
            event,
            "library-path-clash",
            strength,
            f"torch does not find {named}, which a wheel beside it should hold",
            decide_by="is the nvidia-* wheel that holds it installed, complete, and in the same environment?",
            over=_AFTER,
        )
    elif event.signature.id.startswith(_OTHER_ROWS) or words_seen(story, *_OTHERS):
        yield hypothesis(
            event,
            "version-mismatch",
            strength,
            f"{named} is not there in the version that the program was built for",
            decide_by="which CUDA and cuDNN does this release of the program need, and which are installed?",
            over=_AFTER,
        )
    else:
        beside = f" and torch is built for CUDA {torch_cuda}" if has and has != wants else ""
        yield hypothesis(
            event,
            "wrong-build-installed",
            strength,
            f"the extension was built for a CUDA whose {named} is not installed{beside}",
            decide_by="is torch.version.cuda of the library's major? then it is the path, else the build",
            over=_AFTER,
        )


def _bitsandbytes(story: Story, event: Event, strength: Strength) -> Iterator[Hypothesis]:
    cause = "library-path-clash"
    because = "bitsandbytes does not find the CUDA runtime, or has no binary for it"
    if event.signature.id in ("lib-bnb-cuda", "lib-bnb-configured", "lib-bnb-required"):
        cause, because = "wrong-build-installed", "bitsandbytes has no binary for the installed CUDA"
    elif event.signature.id == "lib-bnb-gpu":
        cause, because = "no-gpu-or-driver", "bitsandbytes finds no driver"
    yield hypothesis(event, cause, strength, because, over=_AFTER)


def _runtime_side(event: Event, version: str, path: str, strength: Strength, after: tuple[str, ...]) -> Hypothesis:
    needs = event.values.get("by") or "a binary"
    if version.startswith("GLIBC_"):
        return hypothesis(
            event,
            "version-mismatch",
            strength,
            f"{_base(needs)} was built on a newer system: it needs {version} of the C library",
            decide_by="`ldd --version` tells the system's C library",
            fix="use a system (an image) whose C library is as new, or a build for this one (manylinux, from source)",
            over=after,
        )
    return hypothesis(
        event,
        "library-path-clash",
        strength,
        f"{_base(needs)} needs {version}, and {path} is found before a newer libstdc++",
        decide_by="does the environment hold a newer libstdc++.so.6 than the one found?",
        fix="install libstdcxx-ng in the environment and let its lib folder come first, or take the system's copy away",
        over=after,
    )


def _package(event: Event) -> str:
    if event.signature.id == "symbol-xformers":
        return "xformers"
    symbol = event.values.get("symbol") or event.values.get("module") or "torchvision"
    return symbol.split("::")[0]


def _major(library: str) -> str:
    found = _MAJOR.search(library)
    return (found[1] or found[2]) if found else ""


def _base(path: str) -> str:
    return path.strip().replace("\\", "/").rsplit("/", 1)[-1]


def _cut(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."
