"""Building for CUDA: the toolkit against torch, the GPU and the host compiler; Triton's launcher."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from envkit.facts import Facts
from envkit.logs.causes._readers import of_root
from envkit.logs.causes._setup import hypothesis, in_container, roots_of, unless_only_warned, words_seen
from envkit.logs.causes._stated import shortened
from envkit.logs.causes._worded import worded
from envkit.logs.knowledge import statements
from envkit.logs.records import Event, Hypothesis, Line, Strength
from envkit.logs.story import Story

_ID = "nvcc-torch-cuda-mismatch"
_AFTER = ("not-gpu-env", "insufficient-evidence", "undefined-symbol-abi-mismatch")
_NO_CUDA = (
    "driver-too-old", "driver-library-mismatch", "forward-compat-unsupported", "cuda-init-error-802-fabricmanager",
    "cuda-init-no-device", "cuda-visible-devices-misuse", "gpu-hardware-unknown-error",
    "torch-not-compiled-with-cuda",
)  # fmt: skip
_NO_NVCC = (
    "build-bare-metal", "build-no-nvcc-there", "build-home-no-nvcc", "cmake-toolkit-said", "build-cuda-home",
    "build-nvcc-not-found", "build-nvcc-cannot",
    "build-nvcc-command", "build-nvcc-rust", "build-nvcc-quoted", "build-cuda-path", "build-ptxas",
    "build-nvcc-file", "build-nvcc-failed", "cmake-no-compiler", "cmake-root", "cmake-not-found", "cmake-caffe2",
    "cmake-caffe2-not", "cmake-toolset", "cmake-notfound", "cmake-cudart", "cmake-none-found",
    "header-cuda", "header-cuda-source",
)  # fmt: skip
_OLDER = ("ptxas-arch", "ptxas-target")
_MISMATCH = ("build-mismatch", "build-mismatch-bare", "build-mismatch-deepspeed", "cmake-conflict", "cmake-says")
_ARCH = ("nvcc-arch", "nvcc-arch-option", "build-arch-unknown", "ptxas-instruction", *_OLDER)
_STATED_HOST = ("host-gnu", "host-msvc", "nvcc-host-not-supported", "build-compiler-range", "host-torch-old")
_OLD_HEADER = re.compile(r"fatal error: '?(?P<path>TH[CN]*(?:UNN)?/\w+\.(?:h|cuh|hpp))")
_NUMBER = re.compile(r"(\d+)")
_COMPILER_SAYS = re.compile(r"^  .{0,300}?(?:\)|:\d{1,6}):? (?:fatal )?error\b|^  (?:nvcc|ptxas) fatal ")
_COMPILER_CALL = re.compile(
    r"Command '\['[^']*\b(?:gcc|g\+\+|clang|cc|cl\.exe|tcc)[^']*', .{0,400}(?:main|cuda_utils|launcher)\.c'"
)


def toolkit_of_another_cuda(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """nvcc is of another CUDA major than torch (torch/utils/cpp_extension.py, _check_cuda_version)."""
    for event in [each for each in roots_of(story, _ID) if each.signature.id in _MISMATCH][:1]:
        has = event.values.get("runtime_cuda") or story.value("runtime_cuda")
        torch = event.values.get("cuda") or story.value("cuda")
        cause, because = "version-mismatch", "the toolkit that builds is of another CUDA than torch was built with"
        if event.signature.id.startswith("cmake"):
            cause = "library-path-clash"
            because = "two CUDA toolkits are found: headers and compiler are not of the same one"
        elif has and torch:
            because = f"nvcc is of CUDA {has}, and torch was built with {torch}"
        yield worded("toolkit-of-another-cuda", event, cause=cause, why=because)


def architecture(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """nvcc, or torch's build helper, does not know the architecture (NVCC manual, --gpu-architecture)."""
    for event in [each for each in roots_of(story, _ID) if each.signature.id in _ARCH][:1]:
        asked = event.values.get("arch") or ""
        release = story.value("runtime_cuda")
        by = f"nvcc of CUDA {release}" if release else "this nvcc"
        if event.signature.id in _OLDER:
            target = asked or event.values.get("wanted") or "the architecture that it is asked for"
            because = f"ptxas does not know {target}: it is older than the architecture"
            yield hypothesis(event, "version-mismatch", Strength.DECISIVE, because, over=_AFTER)
            return
        if event.signature.id == "ptxas-instruction":
            because = f"the kernel uses what its target does not have: {shortened(event.line.text)}"
            yield hypothesis(event, "gpu-kernel-bug", Strength.LIKELY, because, over=_AFTER)
            return
        if event.signature.id == "build-arch-unknown":
            because = f"the installed torch does not know the architecture {asked}: it is older than the GPU"
        elif _dropped(asked, facts):
            because = f"{by} has dropped {asked}: the project asks for an architecture that is too old"
        else:
            because = f"{by} does not know {asked}: it is older than the architecture"
        yield hypothesis(event, "arch-unsupported", Strength.DECISIVE, because, over=_AFTER)


def toolkit_missing(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """No nvcc, no headers or no CUDA_HOME: only the runtime is there (torch cpp_extension.py, FindCUDAToolkit)."""
    for event in [each for each in roots_of(story, _ID, *_NO_NVCC) if each.signature.id in _NO_NVCC][:1]:
        cause = "wrong-build-installed" if words_seen(story, "+cpu") else "container-config"
        because = "no CUDA toolkit was found to build with: only the runtime is installed, or CUDA_HOME names no folder"
        if event.signature.id == "cmake-toolset":
            cause, because = "wrong-build-installed", "Visual Studio has no integration of the CUDA toolkit"
        elif event.signature.id.startswith("header-cuda"):
            because = f"the header {event.values['path']} is not installed: only a part of the toolkit is there"
        if event.signature.id.startswith("cmake-") and _configured(story):
            return  # the project goes without
        strength = unless_only_warned(story, event, Strength.LIKELY)
        yield worded("toolkit-missing", event, cause=cause, strength=strength, why=because)


def _configured(story: Story) -> bool:
    """Whether CMake came to its end, whatever it did not find."""
    return words_seen(story, "-- configuring done") and not words_seen(story, "-- configuring incomplete")


def build_settings(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Options and architectures that the compiler or CMake does not take, and a host compiler that is not there."""
    known = statements("compile")
    for event in roots_of(story, _ID):
        if event.signature.id == "cmake-simple" and story.of("cmake-no-compiler"):
            continue  # CMake says so of a compiler that is not there, too
        if says := known.get(event.signature.id):
            told = hypothesis(event, says.cause, Strength.LIKELY, says.because, over=_AFTER)
            quoted = _quoted_by_cmake(event, story) if event.signature.id == "cmake-simple" else []
            yield replace(told, evidence=(*quoted, *told.evidence))
            return


def _quoted_by_cmake(event: Event, story: Story) -> list[Line]:
    """The first error of the compiler that CMake tried, in what it quotes of its output, with the rest of the sentence
    where CMake wrapped it (indented by two, at the width of a terminal)."""
    files = (seen for seen in story.files if seen.name == event.line.file)
    lines = {line.number: line for seen in files for line in seen.kept if line.number > event.line.number}
    first = next((n for n in sorted(lines) if _COMPILER_SAYS.search(lines[n].text)), None)
    if first is None:
        return []
    return [lines[n] for n in (first, first + 1) if n in lines and lines[n].text[:2] == "  "]


def source_of_an_older_torch(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Sources that use what torch no longer has, such as the headers of TH and THC (removed from its source tree)."""
    for event in story.roots:
        if header := _OLD_HEADER.search(event.line.text):
            yield worded("source-of-an-older-torch", event, path=header["path"])
            return


def no_gpu_while_building(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """torch asks the visible GPUs for what to build; with none its list is empty (_get_cuda_arch_flags).

    Why there was none is told elsewhere where the log says it.
    """
    said = [event for event in story.in_category(*_NO_CUDA) if event.signature.id != "no-runtime-found"]
    for trace in story.tracebacks:
        if trace.kind.endswith("IndexError") and trace.frames and trace.frames[-1].function == "_get_cuda_arch_flags":
            over = ("not-gpu-env",) if said else (*_AFTER, "cuda-init-no-device")
            strength = Strength.POSSIBLE if said else Strength.DECISIVE
            beside = story.of("no-runtime-found")[:1]
            yield worded("no-gpu-while-building", trace.line, *beside, strength=strength, over=over)
            return


@of_root("unsupported-gnu-version", "host-gnu", "host-msvc", "nvcc-host-not-supported", "host-torch-old")
def host_compiler(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """The host compiler is one that this nvcc does not take (crt/host_config.h)."""
    gcc = event.values.get("gcc") or story.value("gcc")
    because = "the host compiler is newer than this CUDA supports"
    if compiler := event.values.get("compiler"):
        least = f"{event.values['least']} of it" if event.values.get("least") else "a newer one"
        because = f"the host compiler, {compiler}, is older than torch's headers allow: they need {least}"
    elif event.values.get("what") == "less":
        because = f"the host compiler {gcc or ''} is older than this CUDA needs".replace("  ", " ")
    elif most := event.values.get("most"):
        because = f"the host compiler{f' {gcc}' if gcc else ''} is newer than {most}, the newest that this CUDA takes"
    strength = Strength.DECISIVE if event.signature.id in _STATED_HOST else Strength.LIKELY
    yield worded("host-compiler-not-taken", event, strength=strength, why=because)


def triton_launcher(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Triton compiles a small launcher and links it with libcuda (triton: runtime/build.py, nvidia/driver.py)."""
    found = roots_of(story, "triton-libcuda-not-found", "triton-libcuda", "triton-lcuda")
    # where no signature tells it, the wrapper of a failed call of a compiler does
    event = next(iter(found or (each for each in story.events if _COMPILER_CALL.search(each.line.text))), None)
    if event is None:
        return
    kind = event.signature.id
    header = [each for each in story.of("program-header-missing") if "Python.h" in each.line.text]
    places = story.of("triton-possible")
    if kind == "triton-compiler":
        cause, because = "container-config", "there is no C compiler, and Triton needs one for its launcher"
    elif header and kind not in ("triton-libcuda", "triton-lcuda"):
        event = header[0]
        cause, because = "container-config", "the headers of Python are not installed, and Triton's launcher needs them"
    elif kind == "triton-libcuda" and not places:
        cause = "container-config" if in_container(story) else "no-gpu-or-driver"
        because = "ldconfig knows no libcuda at all: no driver is there, or the container was started without GPUs"
    else:
        cause = "library-path-clash"
        where = f" ({places[0].values['path']})" if places else ""
        because = f"the linker finds no libcuda.so, only the driver's libcuda.so.1{where}"
    if kind == "triton-lcuda" and not words_seen(story, "triton", "inductor", "torch"):
        yield replace(worded("linker-finds-no-library", event, library="libcuda"), category="missing-shared-library")
        return
    yield worded("triton-launcher-not-built", event, *places[:1], cause=cause, strength=Strength.LIKELY, why=because)


def _dropped(asked: str, facts: Facts) -> bool:
    """Whether a toolkit of the facts no longer knows this architecture, which makes it too old rather than too new."""
    number = _capability(asked)
    gone = {_capability(str(row.sm)) for row in facts.archs if row.dropped_in is not None}
    known = [each for each in (_capability(str(row.sm)) for row in facts.archs) if each is not None]
    return number is not None and (number in gone or (bool(known) and number < min(known)))


def _capability(name: str) -> int | None:
    """The number in 'sm_90a' or 'compute_20', of a dotted capability without its dot."""
    found = _NUMBER.search(name.replace(".", ""))
    return int(found[1]) if found else None
