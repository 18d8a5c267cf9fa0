"""Libraries that are missing, of another version, found at the wrong place, or of a build without CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._readers import of_root
from envkit.logs.causes._setup import gpus_listed, in_container, started_without_gpus, unless_only_warned, words_seen
from envkit.logs.causes._worded import worded
from envkit.logs.records import Event, Hypothesis, Strength
from envkit.logs.story import Story

_MISSING = "missing-shared-library"
_SYMBOL = "undefined-symbol-abi-mismatch"
_CPU = "torch-not-compiled-with-cuda"
_CPU_OR_NO_GPU = ("accelerator-none", "jax-unknown-backend", "jax-cuda-not-known")
_AFTER = ("not-gpu-env", "insufficient-evidence", _CPU, "cuda-init-no-device")
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
_OWN_PART = re.compile(
    r"cannot import name '(?P<name>_\w{1,60})' from (?:partially initialized module )?'[\w.]{1,100}'"
)
_RUNS = re.compile(r"[\\/]python(3\.\d{1,2})[\\/]")
_ELSEWHERE = ("lib-nvrtc-builtins", "lib-nvrtc-builtins-code", "lib-cudnn-windows")
_OTHERS = ("onnxruntime", "ctranslate2", "faster_whisper", "tensorflow", "paddle", "cupy", "jax", "mxnet")
_MAC = ("/users/", "macosx", "macos", "darwin", "apple silicon", "mps")


@of_root(_MISSING, "lib-gpu", "lib-cudnn-any", "lib-cudnn-load", "lib-nvrtc-builtins")
def missing_library(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """The loader found no such library; its name tells whose it is (ld.so(8))."""
    library = event.values.get("lib") or ""
    strength = unless_only_warned(story, event, Strength.LIKELY)
    if event.signature.id.startswith("lib-tf") and (story.of("lib-tf-ignore") or story.of("tf-no-drivers")):
        strength = Strength.FALLBACK  # TensorFlow says the same on every machine without a GPU
    if "nvidia-ml" in library and story.of("nvml-library", "nvml-library-name"):
        return  # NVML's own words follow: there is no driver
    if event.signature.id == "lib-truncated":
        # an engine makes an empty file where it is to put the driver's
        of_driver = _DRIVER_SIDE.search(library)
        yield worded(
            "driver-library-not-given" if of_driver else "library-cut-short", event, strength=strength, library=library
        )
    elif library and _DRIVER_SIDE.search(library):
        yield _driver_side(story, event, library, strength)
    elif event.signature.id.startswith("lib-link"):
        yield worded("linker-finds-no-library", event, strength=strength, library=f"lib{library}")
    elif event.signature.id == "lib-bnb-cget" and (said := story.of("lib-bnb-none")):
        why = "bitsandbytes was built without CUDA, as it says, and the program uses it all the same"
        cpu = "wrong-build-installed"
        yield Hypothesis(_CPU, cpu, Strength.LIKELY, (said[0].line, event.line), why, over=(_MISSING, "not-gpu-env"))
    elif event.signature.id.startswith("lib-bnb"):
        yield _bitsandbytes(event, strength)
    elif _ROCM.search(library):
        yield worded("library-of-rocm", event, strength=strength, library=library)
    elif _TORCH_SIDE.search(library):
        yield _torch_side(event, library, strength)
    elif _CUDNN_PART.search(library) or event.signature.id in _ELSEWHERE:
        yield worded("library-found-elsewhere", event, strength=strength, library=library or "libnvrtc-builtins.so")
    else:
        yield from _toolkit_side(story, event, library, strength)


@of_root(_SYMBOL, "symbol-undefined", "symbol-linktime", "symbol-xformers")
def other_abi(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """A symbol or a version of it is missing in the library that was found (ld.so(8))."""
    strength = unless_only_warned(story, event, Strength.LIKELY)
    yield next(told for read in _ABI if (told := read(story, event, strength)) is not None)


def _other_tensorrt(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    if not event.signature.id.startswith("tensorrt-other"):
        return None
    found_of, read_by = event.values.get("found"), event.values.get("wanted")
    pair = f": it is of {found_of} and {read_by} reads it" if found_of else ""
    return worded("engine-of-another-tensorrt", event, strength=strength, pair=pair)


def _other_nccl(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    symbol = event.values.get("symbol") or ""
    if not symbol.startswith(("nccl", "pnccl")):
        return None
    return worded("nccl-older-than-torch", event, strength=strength, symbol=symbol)


def _other_runtime(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    version = event.values.get("version") or ""
    needs, path = _base(event.values.get("by") or "a binary"), event.values.get("path") or ""
    if version.startswith("GLIBC_"):
        return worded("system-too-old", event, strength=strength, over=_AFTER_ABI, needs=needs, version=version)
    if not version.startswith(("GLIBCXX_", "CXXABI_", "GCC_")):
        return None
    return worded(
        "older-libstdcxx-first", event, strength=strength, over=_AFTER_ABI, needs=needs, version=version, path=path
    )


def _package_of_other_torch(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    if event.signature.id not in ("symbol-xformers", "symbol-operator", "symbol-no-operator", "symbol-vision-ops"):
        return None
    torch = story.value("torch") or "one"
    return worded("package-of-another-torch", event, strength=strength, package=_package(event), torch=torch)


def _extension_of_other_torch(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    symbol, path = event.values.get("symbol") or "", event.values.get("path") or ""
    if not _TORCH_NAME.search(symbol):
        return None
    # a copy in ~/.local is found before that of the environment
    shadowed = "/.local/" in path and not words_seen(story, "/.local/lib/python3", "pip3] torch")
    cause = "library-path-clash" if shadowed else "version-mismatch"
    path, torch, symbol = _base(path) or "the extension", story.value("torch") or "one", _cut(symbol)
    return worded(
        "extension-of-another-torch", event, cause=cause, strength=strength, path=path, torch=torch, symbol=symbol
    )


def _mixed_cuda(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    symbol, library, path = (event.values.get(name) or "" for name in ("symbol", "lib", "path"))
    if not _CUDA_MIXED.search(f"{symbol} {library}"):
        return None
    extension = bool(path) and not _CUDA_MIXED.search(_base(path)) and "torch/lib" not in path
    wrong = (extension and not library) or event.signature.id == "link-undefined"
    cause = "version-mismatch" if wrong else "library-path-clash"
    who = _base(path) or "a library"
    wants = _cut(symbol or event.values.get("version") or "") + (f" of {library}" if library else "")
    return worded("cuda-libraries-mixed", event, cause=cause, strength=strength, who=who, wants=wants)


def _other_dll(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    if not event.signature.id.startswith("symbol-dll"):
        return None
    known = words_seen(story, "cuda", "torch", "nvidia")
    least, over = strength if known else Strength.POSSIBLE, _AFTER_ABI if known else ()
    module = event.values.get("module") or "the module"
    return worded("dll-missing-or-other", event, strength=least, over=over, module=module)


def _other_binary(story: Story, event: Event, strength: Strength) -> Hypothesis:
    gpu = words_seen(story, "torch", "cuda", "nvidia", "tensorflow", "jax")
    most, over = Strength.LIKELY if gpu else Strength.POSSIBLE, _AFTER_ABI if gpu else ()
    why = "sources or binaries are for another torch than the installed one"
    if missing := event.values.get("symbol") or event.values.get("version"):
        why = f"a binary was built against another version of a library than the one loaded: {_cut(missing)}"
    return worded("binary-of-another-library", event, strength=min(strength, most), over=over, why=why)


# of the readings of a missing symbol the first that is one counts; the last always is
_ABI = (
    _other_tensorrt, _other_nccl, _other_runtime, _package_of_other_torch, _extension_of_other_torch, _mixed_cuda,
    _other_dll, _other_binary,
)  # fmt: skip


@of_root("torch-not-compiled-with-cuda", "cpu-torch")
def cpu_build(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """A build without CUDA is asked for it (torch/cuda/__init__.py)."""
    strength = unless_only_warned(story, event, Strength.DECISIVE)
    if words_seen(story, *_MAC):
        why = "the platform has no CUDA, and the program asks for it"
        most = min(strength, Strength.LIKELY)
        yield worded("build-without-cuda", event, cause="no-gpu-or-driver", strength=most, why=why)
        return
    torch = story.value("torch")
    if event.signature.id in _CPU_OR_NO_GPU and not words_seen(story, "+cpu"):
        strength = min(strength, Strength.USUAL)  # a build for CUDA says so of a machine without a GPU, too
    if any(other.category == "cuda-init-no-device" for other in story.before(event)):
        strength = min(strength, Strength.POSSIBLE)  # its plugin for CUDA is there, and could not start
    why = f"the installed build{f' {torch}' if torch else ''} has no CUDA: {_cut(event.line.text.strip())}"
    yield worded("build-without-cuda", event, cause="wrong-build-installed", strength=strength, why=why)


def numpy_abi(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Extensions compiled for NumPy 1 under NumPy 2 (NumPy 2.0 migration guide)."""
    ids = ("symbol-numpy", "symbol-numpy-size", "symbol-numpy-abi", "symbol-numpy-multiarray", "symbol-numpy-away")
    for event in [each for each in story.roots if each.signature.id in ids][:1]:
        yield worded("extension-of-another-numpy", event, strength=unless_only_warned(story, event, Strength.LIKELY))


def unbuilt_extension(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """An extension that torch compiles when it is first used is not there: its build failed, here or on another rank.

    torch/utils/cpp_extension.py: one process builds, the others wait and import what it left.
    """
    for event in story.of("lib-extension-unbuilt")[:1]:
        yield worded("extension-never-built", event, path=_base(event.values["path"]))


def part_for_another_python(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A package does not find its own compiled part, whose file is there and named after another Python.

    The import system takes files of its own tag alone (PEP 3149), and takes a name that is not there for a circle.
    """
    for trace in story.tracebacks:
        asked = _OWN_PART.search(trace.message)
        if asked is None or not trace.kind.endswith("ImportError"):
            continue
        lines = [line for seen in story.files for line in (*seen.head, *seen.tail, *seen.loud)]
        part = re.compile(rf"\b{re.escape(asked['name'])}\.(?:cpython-|cp)(?P<tag>3\d{{1,2}})-")
        there = next(((line, found) for line in lines if (found := part.search(line.text))), None)
        runs = _RUNS.search("\n".join(frame.file for frame in trace.frames))
        if there is not None and (runs is None or runs[1].replace(".", "") != there[1]["tag"]):
            yield worded("part-for-another-python", trace.line, there[0], name=there[1][0] + "...")
            return


def plain_library(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A library that is none of CUDA's is not installed where this ran (ld.so(8))."""
    for event in [each for each in story.roots if each.signature.id == "lib-any"][:1]:
        strength = unless_only_warned(story, event, Strength.LIKELY)
        yield worded("plain-library-missing", event, strength=strength, lib=event.values["lib"])


def resolver(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """pip, uv or conda found no set of versions that fits."""
    found = [event for event in story.roots if event.signature.id.startswith("resolve-")]
    if not found:
        return
    event = next((each for each in found if not each.has("warning")), found[0])
    package = _cut(event.values.get("package") or event.values.get("what") or "the packages")
    sure = not event.has("warning")
    strength = unless_only_warned(story, event, Strength.LIKELY) if sure else Strength.FALLBACK
    yield worded("no-versions-fit", event, strength=strength, package=package)


def _driver_side(story: Story, event: Event, library: str, strength: Strength) -> Hypothesis:
    without = started_without_gpus(story, event)
    if without is not None:
        return worded("driver-library-without-gpus", event, without, strength=strength, library=library)
    if in_container(story) or gpus_listed(story) is not None:
        return worded("driver-library-not-given", event, strength=strength, library=library)
    return worded("driver-library-missing", event, strength=strength, library=library)


def _torch_side(event: Event, library: str, strength: Strength) -> Hypothesis:
    if library.startswith(("libc10_cuda", "libtorch_cuda.")):
        return worded("torch-without-cuda-library", event, strength=strength, library=library)
    if _SPLIT.search(library):
        return worded("library-of-older-torch", event, strength=strength, library=library)
    if library.startswith(("libc10.", "libtorch.", "libtorch_cpu", "libtorch_python")):
        return worded("torch-library-not-on-path", event, strength=strength, library=library)
    return worded("library-not-in-torch", event, strength=strength, library=library)


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
        yield worded("wheel-library-not-found", event, strength=strength, named=named)
    elif event.signature.id.startswith(_OTHER_ROWS) or words_seen(story, *_OTHERS):
        yield worded("library-of-another-version", event, strength=strength, named=named)
    else:
        beside = f" and torch is built for CUDA {torch_cuda}" if has and has != wants else ""
        yield worded("extension-of-another-cuda", event, strength=strength, named=named, beside=beside)


def _bitsandbytes(event: Event, strength: Strength) -> Hypothesis:
    if event.signature.id in ("lib-bnb-cuda", "lib-bnb-configured", "lib-bnb-required"):
        return worded("bitsandbytes-of-another-cuda", event, strength=strength)
    return worded("bitsandbytes-without-runtime", event, strength=strength)


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
