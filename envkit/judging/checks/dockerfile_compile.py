"""What a Dockerfile compiles for CUDA, and whether what that takes is there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts, GpuPackageRow
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._compiles import (
    CudaBuildStep,
    asking_for_a_gpu,
    compiles,
    has_compiler,
    has_nvcc,
    toolkit,
    without_headers,
)
from envkit.judging.checks._dockerfile import JETSON, need_stages, reached, worth_on
from envkit.judging.checks._outcomes import error, found, skip_if, unknown_if, warning
from envkit.judging.checks._torch_fit import cited
from envkit.model import Finding, Observed, Severity, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Command, Dockerfile, Install
from envkit.versions import Cuda, Sm


def nvcc_used_without_devel(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """What calls nvcc while the image is built finds one."""
    need_stages(dockerfile)
    skip_if(stack.rocm(dockerfile), "the image is not for NVIDIA GPUs")
    wanting = [one for one in compiles(dockerfile, facts) if one.needs_nvcc]
    skip_if(not wanting, "nothing here compiles CUDA code while the image is built")
    doubt, worst = "", Severity.WARNING
    for one, there in _course(dockerfile, wanting):
        if there.missing:
            doubt = doubt or f"whether nvcc is installed for {one.what} is not known: {there.missing}"
            worst = max(worst, worth_on(dockerfile.stages[one.stage].base)) if one.sure else worst
        elif not there.value:
            yield _no_nvcc(dockerfile, one, there, facts)
    unknown_if(doubt, doubt, worst)


def _course(dockerfile: Dockerfile, wanting: list[CudaBuildStep]) -> Iterator[tuple[CudaBuildStep, Observed[bool]]]:
    """Each place with whether nvcc is there; it comes and stays, so between two alike places all are like them."""
    for stage in sorted({one.stage for one in wanting}):
        parts = [[one for one in wanting if one.stage == stage]]
        while parts:
            part = parts.pop()
            first, last = (has_nvcc(dockerfile, stage, one.at or one.span) for one in (part[0], part[-1]))
            if (first.value, first.missing) == (last.value, last.missing):
                yield from ((one, first) for one in part)
            elif len(part) == 2:
                yield from zip(part, (first, last), strict=True)
            else:
                parts += [part[len(part) // 2 :], part[: len(part) // 2]]


def _no_nvcc(dockerfile: Dockerfile, one: CudaBuildStep, there: Observed[bool], facts: Facts) -> Finding:
    base = dockerfile.stages[one.stage].base
    does = "is called" if one.what == "nvcc" else "calls nvcc" if one.sure else "calls nvcc if it has to compile"
    shown = base.reference or "the base"
    evidence = {f"no nvcc in {shown}": there.via or "nothing installs it", one.what: one.span.place}
    return found(
        f"{one.what} {does} while the image is built, and {shown} has no nvcc",
        one.span,
        Severity.ERROR if one.sure else Severity.WARNING,
        _nvcc_fix(dockerfile, one, facts),
        evidence,
    )


def _nvcc_fix(dockerfile: Dockerfile, one: CudaBuildStep, facts: Facts) -> str:
    base = dockerfile.stages[one.stage].base
    flavor = base.flavor.value or ""
    if flavor and flavor != "devel" and base.family in ("nvidia", "pytorch"):
        better = f"{base.repository}:{re.sub(rf'{flavor}(?=-|$)', 'devel', base.tag)}"
        return f"build this in a stage FROM {better}, and copy the result into the image that runs"
    row = facts.gpu_package(one.what)
    if row is not None and row.build == "source" and "wheel" in row.note:
        return "install a wheel that its publisher has built, or build it in a stage FROM an nvidia/cuda devel image"
    return "build this in a stage FROM an nvidia/cuda devel image of torch's CUDA, or install cuda-nvcc before it"


def cuda_memcheck_on_12plus(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """cuda-memcheck is not asked for where the CUDA has it no longer."""
    need_stages(dockerfile)
    places = list(_memchecks(dockerfile))
    skip_if(not places, "nothing here names cuda-memcheck")
    doubt = ""
    for stage, span, package in places:
        named = re.search(r"-(\d+)-(\d+)$", package)
        if named:
            cuda = Observed.of(f"{named[1]}.{named[2]}", f"{package} at {span.place}")
        else:
            cuda = toolkit(dockerfile, stage, span)
        if cuda.missing or cuda.value is None:
            doubt = doubt or f"the CUDA that {span.place} works with was not observed: {cuda.missing}"
            continue
        gone = _without_memcheck(cuda.value, facts)
        if gone is not None:
            what = f"{package} is installed" if package else "cuda-memcheck is called"
            yield error(
                f"{what}, which CUDA {cuda.value} no longer has",
                span,
                {f"CUDA {cuda.value}": cuda.via, "cuda-memcheck was removed": gone},
                "use compute-sanitizer, which takes the same options and lies in cuda-sanitizer-<major>-<minor>",
            )
    unknown_if(doubt, doubt)


def _memchecks(dockerfile: Dockerfile) -> Iterator[tuple[int, Span, str]]:
    """Where cuda-memcheck is called or installed: stage, place, the package ("" for a call)."""
    for index, step in reached(dockerfile):
        if step.name in ("CMD", "ENTRYPOINT", "HEALTHCHECK") and index not in dockerfile.lineage:
            continue
        for command in step.commands:
            for word in command.words[:1]:
                if command.sure and word.text.rsplit("/", 1)[-1] == "cuda-memcheck":
                    yield index, word.span, ""
        for install in step.installs:
            if install.sure and re.fullmatch(r"cuda-memcheck(?:-\d+-\d+)?", install.name):
                yield index, install.span, install.name


def _without_memcheck(cuda: str, facts: Facts) -> str | None:
    """The row that says that the CUDA lacks cuda-memcheck, None where none does."""
    wanted = Cuda(cuda)
    rows = [row for row in facts.cudas if row.version.upto(2) <= wanted.upto(2)]
    if rows and any(gone.startswith("cuda-memcheck") for gone in rows[-1].removed):
        return f"CUDA {rows[-1].version} [{cited(rows[-1])}]"
    return None


# ---------------------------------------------------------------- architectures

_LISTS = ("TORCH_CUDA_ARCH_LIST", "CMAKE_CUDA_ARCHITECTURES", "CUDAARCHS", "TCNN_CUDA_ARCHITECTURES")
_DOTTED = pattern(r"(?<![\w.])(\d{1,2}\.\d[af]?)(?:\+PTX)?(?![\w.])")
_PLAIN = pattern(r"(?<![\w.])(\d{2,3}[af]?)(?:-real|-virtual)?(?![\w.])")
_NAMED = pattern(r"(?<![\w+])([A-Z][a-z]+)(?![\w+])")
_FLAG = pattern(r"(?:compute|sm)_(\d{2,3}[af]?)")
_OPTION = pattern(r"-D(CMAKE_CUDA_ARCHITECTURES|TORCH_CUDA_ARCH_LIST)(?::\w+)?=(.*)", re.DOTALL)


def arch_list_unsupported(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """Every GPU architecture that is named for compiling is one that the toolkit's nvcc can target."""
    need_stages(dockerfile)
    natives = list(_natives(dockerfile))
    for span in natives:
        yield warning(
            "native stands for the GPU of the machine that compiles, and the build of an image sees none",
            span,
            fix="name the architectures, such as -DCMAKE_CUDA_ARCHITECTURES=80;90",
        )
    places = list(_arch_places(dockerfile, facts))
    made = compiles(dockerfile, facts)
    sources = list(_of_sources(dockerfile, made, facts))
    yield from (each for each in sources if each is not None)
    unnamed = list(_unnamed(dockerfile, made, facts))
    yield from unnamed
    skip_if(
        not places and not natives and not sources and not unnamed, "nothing here names architectures to compile for"
    )
    doubt, worst = "", Severity.WARNING
    judged = 0
    users = _users(dockerfile, made)
    toolkits: dict[int, Observed[str]] = {}
    for stage, name, span, wanted in places:
        first = users.get(stage)
        if stage not in toolkits:
            toolkits[stage] = toolkit(dockerfile, first.stage, first.at) if first else toolkit(dockerfile, stage, None)
        cuda = toolkits[stage]
        archs = facts.nvcc_archs(cuda.value) if cuda.value and not cuda.missing else None
        if archs is None:
            if first is not None:
                known = cuda.missing or f"no fact tells what nvcc of CUDA {cuda.value} can target"
                doubt = doubt or f"which architectures {span.place} may name is not known: {known}"
                worst = Severity.ERROR if first.sure else worst
            continue
        judged += 1
        lacking = [label for label, sms in wanted if sms and not any(sm in archs for sm in sms)]
        if lacking:
            yield _unsupported(name, span, lacking, cuda, archs, first)
    unknown_if(doubt, doubt, worst)
    skip_if(
        not judged and not natives and not sources and not unnamed, "there is no CUDA toolkit, and nothing compiles"
    )


def _of_sources(dockerfile: Dockerfile, made: tuple[CudaBuildStep, ...], facts: Facts) -> Iterator[Finding | None]:
    """For each package whose own list of architectures is known: what its oldest one is to the toolkit, None where that
    compiles for it."""
    versions = {(one.span, one.name): one.version for one in dockerfile.installs}
    for one in made:
        row = facts.source_arch(one.what, versions.get((one.span, one.what), ""))
        cuda = toolkit(dockerfile, one.stage, one.at) if row is not None else None
        archs = facts.nvcc_archs(cuda.value) if cuda is not None and cuda.value and not cuda.missing else None
        if row is None or cuda is None or archs is None:
            continue
        if row.arch in archs:
            yield None
            continue
        release = f"{one.what} {versions[one.span, one.what]}"
        yield found(
            f"{release} is compiled for {row.arch} on any machine, which nvcc of CUDA {cuda.value} cannot compile for",
            one.span,
            Severity.ERROR if one.sure else Severity.WARNING,
            f"take a release of {one.what} after {row.until}, or an older CUDA",
            {f"CUDA {cuda.value}": cuda.via, f"{release} names {row.arch}": cited(row)},
        )


def _unnamed(dockerfile: Dockerfile, made: tuple[CudaBuildStep, ...], facts: Facts) -> Iterator[Finding]:
    """Each package that is compiled for the GPUs which torch finds, where nothing names others: a build sees none.

    Images that are not NVIDIA's, PyTorch's or a distribution's may bring the variable, and a build may be lent a GPU.
    """
    for one in made:
        build = facts.package_builds.get(one.what.partition(" with ")[0])
        stage = dockerfile.stages[one.stage]
        variable = build.arch_list if build is not None else one.arch_list
        if not variable or not one.sure or (one.env or {}).get(variable):
            continue
        if stage.base.family not in ("nvidia", "pytorch", "os", "python", "conda") or _lent(dockerfile, one, variable):
            continue
        there = has_nvcc(dockerfile, one.stage, one.at or one.span)
        if there.missing or not there.value:
            continue  # nvcc-used-without-devel has what is told of it
        name = build.name if build is not None else f"what {one.what} makes"
        yield warning(
            f"{name} is compiled for the GPUs that torch finds where {variable} is not set, and the build of an image "
            "sees none",
            one.span,
            {f"{name}: {variable}": cited(build) if build is not None else "torch.utils.cpp_extension, CUDAExtension"},
            f'name the architectures before it, such as `ENV {variable}="{_example(variable)}"`',
        )


_EXAMPLE = (Sm.parse("80"), Sm.parse("90"))


def _example(name: str) -> str:
    """Architectures as a variable takes them: torch's with a point between their numbers."""
    point = "." if name == "TORCH_CUDA_ARCH_LIST" else ""
    return ";".join(f"{sm.major}{point}{sm.minor}" for sm in _EXAMPLE)


def _lent(dockerfile: Dockerfile, one: CudaBuildStep, variable: str) -> bool:
    """Whether a stage speaks of the variable in a way that its value is not known, or lends its RUNs a GPU."""
    place = one.at or one.span
    steps = [
        step
        for index in dockerfile.stages[one.stage].line
        for step in dockerfile.stages[index].steps
        if index != one.stage or step.span.path != place.path or step.span.line <= place.line
    ]  # what is set later comes too late
    words = (word.text for step in steps for command in step.commands for word in command.raw_words)
    return (
        any(variable in step.value for step in steps)
        or any(flag.startswith("--device") for step in steps for flag in step.flags)
        or any(variable in word for word in words)
    )


# ---------------------------------------------------------------- extensions without CUDA


def extension_without_cuda(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """An extension of torch that the build makes from its source for an image with CUDA has its CUDA code.  Source: the
    setup.py of each: CUDA code where torch.cuda.is_available(), or FORCE_CUDA=1."""
    need_stages(dockerfile)
    skip_if(stack.rocm(dockerfile), "the image is not for NVIDIA GPUs")
    torch = dockerfile.torch
    skip_if(torch is not None and torch.cuda.value == "cpu", "torch is its build for the CPU")
    asked = 0
    told: set[str] = set()
    for one, forced in asking_for_a_gpu(dockerfile, facts):
        base = dockerfile.stages[one.stage].base
        if base.family not in ("nvidia", "pytorch") or JETSON.search(base.reference) or not base.sure:
            continue
        asked += 1
        if forced or one.what in told:
            continue
        there = has_nvcc(dockerfile, one.stage, one.at or one.span)
        if there.missing:
            continue
        build = facts.package_builds[one.what]
        told.add(one.what)
        later = _set_later(dockerfile, "FORCE_CUDA", one)
        evidence = {f"{one.what}: {build.note}": cited(build)}
        if later is not None:
            evidence["FORCE_CUDA is set after it"] = later.place
        devel = "" if there.value else ", in a devel image, whose nvcc it takes"
        yield warning(
            f"{one.what} makes CUDA code where torch finds a GPU, and the build of an image finds none, so that it "
            "runs on the CPU alone",
            one.span,
            evidence,
            f"set FORCE_CUDA=1 and TORCH_CUDA_ARCH_LIST before it{devel}",
        )
    skip_if(not asked, "no extension that needs a GPU for its CUDA code is built from its source")


def _set_later(dockerfile: Dockerfile, name: str, one: CudaBuildStep) -> Span | None:
    """Where a later step of the stage sets a variable."""
    place = one.at or one.span
    for step in dockerfile.steps_of(one.stage):
        for each in step.settings:
            if each.name == name and (each.span.line, each.span.column) > (place.line, place.column):
                return each.span
    return None


def _natives(dockerfile: Dockerfile) -> Iterator[Span]:
    """Where CMake is told to compile for the GPU that is there.  Source: CMake, "CUDA_ARCHITECTURES"; colmap issue
    1822."""
    for index, step in reached(dockerfile):
        jetson = JETSON.search(dockerfile.stages[index].base.reference)  # whose builds see the GPU
        for command in step.commands if step.name == "RUN" and jetson is None else ():
            for word in command.words[1:] if command.program == "cmake" and command.sure else ():
                if word.sure and re.fullmatch(r"-DCMAKE_CUDA_ARCHITECTURES(?::\w+)?=native", word.text):
                    yield word.span


def _users(dockerfile: Dockerfile, made: tuple[CudaBuildStep, ...]) -> dict[int, CudaBuildStep]:
    """By stage, the first place that compiles in it or in a stage FROM it, a sure one where there is one."""
    found: dict[int, CudaBuildStep] = {}
    for stage in sorted({one.stage for one in made}):
        here = [one for one in made if one.stage == stage and not one.asks]
        best = next((one for one in here if one.sure), here[0] if here else None)
        for index in dockerfile.stages[stage].line if best is not None else ():
            if best is not None and (index not in found or (best.sure and not found[index].sure)):
                found[index] = best
    return found


def _unsupported(
    name: str, span: Span, lacking: list[str], cuda: Observed[str], archs: tuple[Sm, ...], one: CudaBuildStep | None
) -> Finding:
    severity = Severity.NOTE if one is None else Severity.ERROR if one.sure else Severity.WARNING
    plain = [sm for sm in archs if not sm.suffix]
    evidence = {
        f"CUDA {cuda.value}": cuda.via,
        f"nvcc of it: {plain[0]} to {plain[-1]}": "facts, tables cuda and cuda_old",
    }
    if one is not None:
        evidence[one.what] = one.span.place
    return found(
        f"{name} names {', '.join(lacking)}, which nvcc of CUDA {cuda.value} cannot compile for "
        f"(it knows {', '.join(str(sm) for sm in plain)})",
        span,
        severity,
        f"remove {', '.join(lacking)}, or use a CUDA release that supports it",
        evidence,
    )


Wanted = tuple[tuple[str, tuple[Sm, ...]], ...]


def _arch_places(dockerfile: Dockerfile, facts: Facts) -> Iterator[tuple[int, str, Span, Wanted]]:
    """Where architectures are named: stage, the variable or option, the exact place, what is wanted."""
    said: set[tuple[int, str, Wanted]] = set()
    for index, step in reached(dockerfile):
        settings = step.settings if step.name != "LABEL" else ()
        named = [(each.name, each.span, each.value) for each in settings if each.name in _LISTS and each.value]
        if step.name == "RUN":
            named += [one for command in step.commands if command.sure for one in _of_command(command)]
        for name, span, value in named:
            wanted = _wanted(name, value, facts)
            if wanted and (index, name, wanted) not in said:
                said.add((index, name, wanted))
                yield index, name, span, wanted


def _of_command(command: Command) -> Iterator[tuple[str, Span, str]]:
    """What one command names: the variable or option, its place, its value."""
    for name, word in command.assigns.items():
        if name in _LISTS and word.sure:
            yield name, word.span, word.text
    if command.program == "export":
        for word in command.words[1:]:
            name, equals, value = word.text.partition("=")
            if equals and name in _LISTS and word.sure:
                yield name, word.span, value
    if command.program == "cmake":
        for word in command.words[1:]:
            option = _OPTION.match(word.text)
            if option and word.sure:
                yield option[1], word.span, option[2]
    if command.program == "nvcc":
        for word in command.words[1:]:
            if word.sure and _FLAG.search(word.text):
                yield "nvcc", word.span, word.text


def _wanted(name: str, value: str, facts: Facts) -> Wanted:
    """The architectures that a value names, each with those of which one is enough."""
    found_: dict[str, tuple[Sm, ...]] = {}
    if name == "nvcc":
        for text in _FLAG.findall(value):
            found_[f"sm_{text}"] = (Sm.parse(text),)
    elif name == "TORCH_CUDA_ARCH_LIST":
        for text in _DOTTED.findall(value):
            found_[text] = (Sm.parse(text),)
        for text in _NAMED.findall(value):
            sms = tuple(row.sm for row in facts.archs if row.name == text and not row.tegra)
            if sms:
                found_[text] = sms
    else:
        for text in _PLAIN.findall(value):
            found_[text] = (Sm.parse(text),)
    return tuple(found_.items())


# ---------------------------------------------------------------- what compiles when the image runs


def runtime_cannot_jit(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """What compiles kernels while the image runs finds the compilers it needs."""
    need_stages(dockerfile)
    wanting = list(_compiling(dockerfile, facts))
    skip_if(not wanting, "nothing that this image installs is known to compile while it runs")
    last = len(dockerfile.stages) - 1
    compiler, nvcc = has_compiler(dockerfile, last), has_nvcc(dockerfile, last, None)
    own = facts.os_python(stack.said(dockerfile.base.os))
    doubt = ""
    lacking: list[tuple[Install, GpuPackageRow, str]] = []
    for install, row in wanting:
        for needed, there, what in ((row.compiler, compiler, "C compiler"), (row.nvcc, nvcc, "nvcc")):
            if not needed:
                continue
            if there.missing and what == "C compiler" and _made_for(dockerfile.base, install):
                continue  # who publishes an image to serve it has run it
            if there.missing:
                doubt = doubt or f"whether the image has a {what} for {install.name} is not known: {there.missing}"
            elif not there.value:
                lacking.append((install, row, what))
                break
        else:
            if row.compiler and not doubt and (via := without_headers(dockerfile, install, own)):
                yield _no_headers(install, row, via)
    for install, row, what in lacking:
        fix = (
            "install gcc and Python's headers in the stage that runs (apt-get install build-essential python3-dev)"
            if what == "C compiler"
            else "take a devel image for the stage that runs, or compile it while the image is built"
        )
        yield warning(
            f"{install.name} compiles while the image runs, and the image has no {what}",
            install.span,
            {
                f"no {what}": (compiler if what == "C compiler" else nvcc).via or "nothing installs it",
                f"{install.name} compiles": cited(row),
            },
            fix,
        )
    unknown_if(doubt and not lacking, doubt)


def _made_for(base: Base, install: Install) -> bool:
    """Whether the base is named after the package (vllm/vllm-openai)."""
    return install.name in re.split(r"[/_.-]", base.repository.lower())


def _no_headers(install: Install, row: GpuPackageRow, via: str) -> Finding:
    return warning(
        f"{install.name} compiles while the image runs, and the image has no headers of Python {install.python}",
        install.span,
        {
            f"no headers of Python {install.python}": via,
            f"{install.name} compiles": cited(row),
            "what it compiles includes Python.h": "triton/runtime/build.py; torch/utils/cpp_extension.py",
        },
        f"install Python's headers in the stage that runs (apt-get install python{install.python}-dev)",
    )


def _compiling(dockerfile: Dockerfile, facts: Facts) -> Iterator[tuple[Install, GpuPackageRow]]:
    """The packages of the image that compile while it runs, each once."""
    seen: set[str] = set()
    for install in dockerfile.installs:
        if install.constraint or not install.sure or install.name in seen:
            continue
        if install.manager not in ("pip", "uv", "poetry", "conda") or install.name == "triton":
            continue  # triton comes with every torch; who uses it is what matters
        row = facts.gpu_package(install.name, install.version)
        if row is not None and row.build == "jit" and (row.compiler or row.nvcc) and row.own is not False:
            if any(one.sure and one.span == install.span for one in compiles(dockerfile, facts)):
                continue  # its kernels are compiled on installation
            seen.add(install.name)
            yield install, row
