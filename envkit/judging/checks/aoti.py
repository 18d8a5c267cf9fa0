"""What is asked of an AOTInductor package: whether it was made for this place, takes these inputs, loads and runs.

Each question has one owner: where a package was refused or died for a reason that another check names, the checks of
its end are skipped and say which.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise

from envkit.judging.checks._outcomes import error, skip_if, unknown_if, warning
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects.aoti import AotiRun, Compiler, InputSpec, MappedLibrary, ModelLibrary, Package, Run, Tensor
from envkit.versions import Sm

_REBUILD = "compile the package again on a machine like the one that runs it"
_MADE = "the package's own description"
_GUARD = re.compile(r"input_handles\[(\d+)\]: ((?:unmatched|dim value is too)[^\n]*)")
# What inductor's names of instruction sets stand for among the kernel's flags of a processor: the compiler options
# that torch/_inductor/cpu_vec_isa.py gives for each (_arch_flags).
_ISA = {
    "AVX2": ("avx2", "fma", "f16c"),
    "AVX512": ("avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"),
    "AVX512_VNNI": ("avx512_vnni", "avx512vl"),
    "AMX_TILE": ("amx_tile", "amx_bf16", "amx_int8"),
    "ASIMD": ("asimd",),
    "NEON": ("asimd",),
    "ZVECTOR": ("vx",),
    "VSX": (),  # the kernel lists no such flag where it is part of the architecture
    "INVALID_VEC_ISA": (),
}
# Libraries of which one process must hold one copy: each copy has state of its own, and what one of them made the
# other one frees or looks up.
_ALONE = re.compile(
    r"(lib(?:stdc\+\+|gcc_s|gomp|iomp5|omp|c10|c10_cuda|torch|torch_cpu|torch_cuda|cudart))(?:-[0-9a-f]+)?\.so"
)
_OPENMP = {"libgomp", "libiomp5", "libomp"}
_WORDS = {"import torch": "importing torch", "make the inputs": "making the inputs", "end": "ending"}


def _package(run: AotiRun) -> Package:
    """What the package says; raises Skip where it cannot be read, which aoti-package-damaged tells."""
    package = run.package.need("the package")
    skip_if(package.error, f"the package cannot be read: {package.error}")
    return package


def _device(package: Package) -> str:
    """The device type that the package was made for: the metadata's, else that of its libraries; "" if open."""
    if package.device:
        return package.device
    return _linked_for(package)


def _linked_for(package: Package) -> str:
    """The device whose torch library the model's libraries need; "" where none could be read."""
    read = [one for one in package.libraries if not one.error]
    for device in ("cuda", "xpu"):
        if any(name.startswith(f"libtorch_{device}") for one in read for name in one.needed):
            return device
    return "cpu" if read else ""


def aoti_package_damaged(run: AotiRun) -> Iterator[Finding]:
    """The package is a whole zip, or a library, with a model whose parts can be read."""
    package = run.package.need("the package")
    fix = "copy it again and compare checksums, or " + _REBUILD
    if package.error:
        yield error(f"the package cannot be read: {package.error}", package.path, fix=fix)
    parts = [(library.name, library.error) for library in package.libraries]
    for name, damage in (*parts, *((kernel.name, kernel.error) for kernel in package.kernels)):
        if damage:
            yield error(f"{name} is damaged: {damage}", package.path, fix=fix)


def aoti_other_machine(run: AotiRun) -> Iterator[Finding]:
    """The package was made for this machine's processor."""
    package = _package(run)
    here = run.machine.need("this machine")
    said = {part.name: part.machine for part in package.libraries if part.machine}
    if package.machine:
        said["its metadata"] = package.machine
    unknown_if(not said, "neither the metadata nor a library of the package names a machine")
    for who, machine in said.items():
        if machine != here:
            yield error(f"{who} says that the package is for {machine}, and this machine is {here}",
                          package.path, fix=_REBUILD)  # fmt: skip


def _lacking_isa(run: AotiRun, package: Package) -> list[str]:
    """The flags that the package's instruction sets ask for and this processor lacks; raises Unknown."""
    flags = run.flags.need("the instruction sets of this processor")
    asked = package.isa.split()
    strange = [word for word in asked if word not in _ISA]
    lacking = sorted({flag for word in asked for flag in _ISA.get(word, ()) if flag not in flags})
    if strange and not lacking:
        raise Unknown(f"the package was made for {strange[0]}, which is not a known instruction set")
    return lacking


def aoti_isa_missing(run: AotiRun) -> Iterator[Finding]:
    """This processor has the instruction sets that the package's CPU code was compiled for."""
    package = _package(run)
    skip_if(not package.isa, "the package does not say what instruction sets it was compiled for")
    if package.machine and run.machine.value and package.machine != run.machine.value:
        raise Skip(f"the package is for {package.machine}: aoti-other-machine")
    lacking = _lacking_isa(run, package)
    if lacking:
        yield error(
            f"the package was compiled for {package.isa} and this processor lacks {', '.join(lacking)}: "
            "its first such instruction ends the process with SIGILL",
            package.path,
            fix=f"{_REBUILD}, or limit it with torch._inductor.config.cpp.simdlen",
        )


def _absent_device(run: AotiRun, package: Package) -> Iterator[Finding]:
    """Findings where the package's device is not here; raises Unknown."""
    device = _device(package)
    if device != "cuda":
        return
    gpus = run.gpus.need("the GPUs of this machine")
    made = f" of {_sm(package.capability)}" if package.capability else ""
    if not gpus:
        yield error(
            f"the package was made for a CUDA GPU{made} and no GPU is seen here: {run.gpus.via}",
            package.path,
            fix="give the run a GPU (`--gpus`), ask `envkit doctor` about the host, or compile the package for the CPU",
        )
        return
    wanted = {arch for kernel in package.kernels for arch in kernel.archs}
    if not wanted and package.capability:
        wanted = {_sm(package.capability)}
    for sm in sorted(Sm.parse(arch) for arch in wanted):
        cannot_run = sorted({str(gpu) for gpu in gpus if not gpu.runs(sm)})
        if cannot_run:
            # The package runs on one device: that another one beside it cannot run it is worth a word only.
            some = len(cannot_run) < len(set(gpus))
            yield Finding(
                f"the package holds machine code for {sm}, which a GPU of {' or '.join(cannot_run)} cannot run",
                Severity.WARNING if some else Severity.ERROR,
                where=package.path,
                fix="compile it on a GPU of that kind, or with aot_inductor.emit_multi_arch_kernel",
            )


def _sm(capability: str) -> str:
    """ "90" as "sm_90"."""
    return capability if capability.startswith("sm_") else f"sm_{capability}"


def aoti_no_such_device(run: AotiRun) -> Iterator[Finding]:
    """A GPU of this machine can run the package's machine code."""
    package = _package(run)
    device = _device(package)
    unknown_if(not device, "neither the metadata nor a library of the package names a device")
    skip_if(device not in ("cpu", "cuda"), f"the package was made for {device}")
    yield from _absent_device(run, package)
    named = package.capability or any(kernel.archs for kernel in package.kernels)
    if device == "cuda" and run.gpus.value and not named:
        raise Unknown("the package does not say for which compute capability its machine code is")


def aoti_cubin_missing(run: AotiRun) -> Iterator[Finding]:
    """Every file of machine code that the model loads is there."""
    package = _package(run)
    skip_if(_device(package) != "cuda", "the package is not for CUDA")
    present = {kernel.name for kernel in package.kernels}
    for library in package.libraries:
        missing = sorted({posixpath.basename(name) for name in library.kernels} - present)
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            where = "in the package" if package.form == "pt2" else "where it looks for it"
            yield error(f"{library.name} loads {missing[0]}{more}, which is not {where}",
                          package.path, fix="package all files that aot_compile returned")  # fmt: skip


def aoti_wrong_runner_class(run: AotiRun) -> Iterator[Finding]:
    """The runner that loads the package is the one that its libraries were linked for."""
    package = _package(run)
    linked = _linked_for(package)
    unknown_if(not linked, "the package holds no compiled library that can be read")
    if package.device and package.device != linked:
        yield error(
            f"the metadata says {package.device}, so the loader takes AOTIModelContainerRunner"
            f"{package.device.capitalize()}, and the library was linked for {linked}",
            package.path,
            fix=f"{_REBUILD}; load it with AOTIModelContainerRunner{linked.capitalize()} meanwhile",
        )
    if run.runner and run.runner != linked:
        yield error(
            f"AOTIModelContainerRunner{run.runner.capitalize()} was asked for and the library was linked for {linked}",
            package.path,
            fix=f"use AOTIModelContainerRunner{linked.capitalize()}",
        )


def _stem(path: str) -> str:
    """ "libstdc++.so.6.0.30" as "libstdc++.so.6": what DT_NEEDED calls the file."""
    match = re.match(r"(.+?\.so(?:\.\d+)?)", posixpath.basename(path))
    return match[1] if match else posixpath.basename(path)


def _unmet(run: AotiRun, package: Package) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Library of the model, provider, the versions that no mapped copy defines, and the copy; raises Unknown."""
    mapped = run.mapped.need("the mapped libraries")
    for library in package.libraries:
        for needs in library.needs:
            copies = [one for one in mapped if _stem(one.path) == needs.library and one.defines]
            if not copies:
                # not mapped by its name, so the linker looks for it itself; what it finds, aoti-library-symbol-missing
                continue
            first = copies[0]  # the linker takes what is mapped first under a name
            lacking = tuple(version for version in needs.versions if version not in first.defines)
            if lacking:
                yield library.name, needs.library, lacking, first.path


def aoti_library_symbol_missing(run: AotiRun) -> Iterator[Finding]:
    """The process that imported torch has every symbol and version that the package's libraries need."""
    package = _package(run)
    unknown_if(not package.libraries, "the package holds no compiled library")
    found = list(_unmet(run, package))
    for library, provider, lacking, copy in found:
        yield error(
            f"{library} needs {', '.join(lacking)} of {provider}, which {copy}, mapped by this process, lacks",
            package.path,
            {copy: "mapped when torch was imported", provider: "DT_VERNEED"},
            f"compile it with the C++ compiler that fits {copy}, or let the process find a newer {provider} first",
        )
    linked = run.link.need("what the dynamic linker says of the package's libraries")
    if linked.error and not found:
        yield error(
            f"the dynamic linker refuses the package's library: {' '.join(linked.error.split())}",
            package.path,
            {linked.error: run.link.via},
            "install what it names, or load the package with the torch that it was compiled with",
        )


def _carrying(package: Package) -> ModelLibrary | None:
    """The first library of the package that exports a libstdc++ of its own."""
    return next((library for library in package.libraries if library.carries), None)


def _shared_runtime(mapped: tuple[MappedLibrary, ...]) -> str:
    """The shared libstdc++ that the process holds, "" if it holds none."""
    return next((one.path for one in mapped if posixpath.basename(one.path).startswith("libstdc++.so")), "")


def _linker_here(run: AotiRun) -> Compiler | None:
    """The compiler that inductor would take here, where it links libstdc++ statically."""
    first = next(iter(run.compilers.value or ()), None)
    return first if first is not None and first.links == "inside" else None


def _own_runtime(run: AotiRun, package: Package) -> str:
    """The cause that a C++ runtime inside the package is, in words; empty where the process does not hold two."""
    library = _carrying(package)
    shared = _shared_runtime(run.mapped.value or ())
    if library is None or not shared:
        return ""
    here = _linker_here(run)
    kind = "the script " if here is not None and here.script else ""
    by = f", as {kind}{here.path} here does" if here is not None else ""
    return (
        f"the package carries its own C++ runtime beside {shared} of the process: "
        f"{library.name} was linked with -static-libstdc++{by}"
    )


def _fails_to_load(ended: Run | None) -> bool:
    return ended is not None and ended.stage == "load" and ended.ended in ("raised", "killed", "hung")


def aoti_cxx_runtime_inside(run: AotiRun) -> Iterator[Finding]:
    """The package's library takes its C++ runtime from the process and brings none of its own."""
    package = _package(run)
    unknown_if(not package.libraries, "the package holds no compiled library")
    unknown_if(any(library.error for library in package.libraries), "a library of the package cannot be read")
    library = _carrying(package)
    if library is None:
        return
    carried = f"{library.name} exports its own C++ runtime ({', '.join(library.carries)} and more, {library.std} names)"
    if run.mapped.value is None:
        raise Unknown(f"{carried}, and it is not known whether the process holds another: {run.mapped.missing}")
    shared = _shared_runtime(run.mapped.value)
    if not shared:
        return
    ended = run.run.value
    fails = _fails_to_load(ended)
    how = "whether it loads with both was not seen"
    if fails:
        how = "std::locale of one looks up the facets of the other"
    elif ended is not None and ended.stage in ("run", "unload", "end"):
        how = "it loaded with both this time"
    evidence = {shared: run.mapped.via, ", ".join(library.carries): "the library's dynamic symbols"}
    evidence.update({_compiler_words(one): "a library linked with it" for one in run.compilers.value or ()})
    yield Finding(
        f"{carried}, and the process holds {shared}: {how}",
        Severity.ERROR if fails else Severity.WARNING,
        where=package.path,
        evidence=evidence,
        fix=_relink(run),
    )


def _compiler_words(one: Compiler) -> str:
    links = {"inside": ", which links libstdc++ into what it makes", "shared": ", which links libstdc++ shared"}
    script = " (a script)" if one.script else ""
    return f"{one.path}{script}: {one.version or one.error or 'no version'}{links.get(one.links, '')}"


def _relink(run: AotiRun) -> str:
    """What to do about a C++ runtime inside a package."""
    fit = next((one.path for one in run.compilers.value or () if one.links == "shared"), "")
    if not fit:
        return "package it again with a C++ compiler (CXX) that links libstdc++ shared, without -static-libstdc++"
    if _linker_here(run) is None:
        return f"package it again with a C++ compiler that links libstdc++ shared, as {fit} here does"
    return f"set CXX={fit}, which links libstdc++ shared, and package it again"


def _inputs(run: AotiRun) -> tuple[Tensor, ...]:
    """The inputs given; raises Skip where there were none to give."""
    if not run.inputs.missing and run.inputs.value is not None:
        return run.inputs.value
    if run.factory:
        run.inputs.need(f"what {run.factory} gives")
    raise Skip(f"the package was not run: {run.inputs.missing}")


def _device_faults(run: AotiRun, package: Package, given: tuple[Tensor, ...]) -> Iterator[Finding]:
    for at, tensor in enumerate(given):
        spec = package.inputs[at] if at < len(package.inputs) else None
        wanted = spec.device if spec is not None and spec.device else _device(package)
        kind = tensor.device.partition(":")[0]
        if not wanted or kind == wanted:
            continue
        if not tensor.shape and kind == "cpu" and not (spec is not None and spec.device):
            continue  # a number in a tensor may stay on the host; without the package's word it is no fault
        named = f" ({tensor.name})" if tensor.name else ""
        yield error(
            f"input {at}{named} is on {tensor.device} and the package was made for {wanted}",
            package.path,
            {tensor.device: run.inputs.via, wanted: _said_by(package, spec)},
            f"move it before the call: {tensor.name or 'the tensor'}.to({wanted!r})",
        )


def _said_by(package: Package, spec: InputSpec | None) -> str:
    if spec is not None and spec.device:
        return "the package's own check of this input"
    return "AOTI_DEVICE_KEY" if package.device else "DT_NEEDED of the model's library"


def aoti_device_differs(run: AotiRun) -> Iterator[Finding]:
    """Every input is on the device that the package was made for."""
    package = _package(run)
    given = _inputs(run)
    unknown_if(not _device(package), "neither the metadata nor a library of the package names a device")
    yield from _device_faults(run, package, given)


def _refusal(run: Run) -> tuple[int, str] | None:
    """The input that the package's own checks refused, and their words."""
    found = _GUARD.search(f"{run.detail}\n{run.stderr_tail}")
    return (int(found[1]), found[2].strip().rstrip(".")) if found else None


def _differences(tensor: Tensor, spec: InputSpec) -> list[str]:
    """What the package's description of an input and the tensor given say differently."""
    if spec.shape is None:
        return []
    said = [f"is {tensor.dtype} and the package takes {spec.dtype}"] if tensor.dtype != spec.dtype else []
    if len(tensor.shape) != len(spec.shape):
        return [*said, f"has {len(tensor.shape)} dimensions and the package takes {len(spec.shape)}"]
    for at, size in enumerate(tensor.shape):
        fixed = spec.shape[at]
        least, most = (bounds[at] if bounds else None for bounds in (spec.least, spec.most))
        if fixed is not None and size != fixed:
            said.append(f"has {size} in dimension {at} and the package takes {fixed}")
        elif (least is not None and size < least) or (most is not None and size > most):
            bound = f"at least {least}" if least is not None and size < least else f"at most {most}"
            said.append(f"has {size} in dimension {at} and the package takes {bound}")
    strides = spec.stride or ()
    if not said and len(strides) == len(tensor.stride):
        wrong = [at for at, wanted in enumerate(strides) if wanted is not None and wanted != tensor.stride[at]]
        if wrong:
            laid = "x".join("any" if one is None else str(one) for one in strides)
            said.append(f"is laid out with strides {'x'.join(map(str, tensor.stride))} and the package takes {laid}")
    return said


def _mismatches(run: AotiRun, package: Package, given: tuple[Tensor, ...]) -> Iterator[Finding]:
    fix = f"give the inputs the form of the example inputs of torch.export, or {_REBUILD} with dynamic shapes"
    if package.inputs and len(given) != len(package.inputs):
        yield error(f"{len(given)} tensors were given and the package takes {len(package.inputs)}",
                      package.path, fix=fix)  # fmt: skip
        return
    told = set()
    for at, (tensor, spec) in enumerate(zip(given, package.inputs, strict=False)):
        for difference in _differences(tensor, spec):
            told.add(at)
            yield error(f"input {at} ({tensor.name or spec.name}) {difference}", package.path,
                          {difference: "the package's own check of this input"}, fix)  # fmt: skip
    ended = run.run.value
    refused = _refusal(ended) if ended is not None else None
    if refused is not None and refused[0] not in told and "device type" not in refused[1]:
        at, words = refused
        name = f" ({given[at].name})" if at < len(given) else ""
        yield error(f"the package refuses input {at}{name}: {words}", package.path,
                      {words: run.run.via}, fix)  # fmt: skip


def _guarded(package: Package) -> bool:
    return any(library.guards for library in package.libraries)


def aoti_input_mismatch(run: AotiRun) -> Iterator[Finding]:
    """Every input has the type, the shape and the layout that the package was compiled for."""
    package = _package(run)
    given = _inputs(run)
    faults = list(_mismatches(run, package, given))
    if faults and not run.factory:
        raise Unknown(f"inputs made from {_MADE} do not fit: {faults[0].message}")
    yield from faults
    if faults:
        return
    unknown_if(any(library.error for library in package.libraries), "a library of the package cannot be read")
    skip_if(not _guarded(package), "the package cannot check its inputs: aoti-no-guards")
    ended = run.run.need("how the run ended")
    unknown_if(ended.ended != "done", f"the package did not run to its end: {_end(ended)}")


def aoti_no_guards(run: AotiRun) -> Iterator[Finding]:
    """The package can check its inputs."""
    package = _package(run)
    unknown_if(not package.libraries, "the package holds no compiled library")
    unknown_if(any(library.error for library in package.libraries), "a library of the package cannot be read")
    if not _guarded(package):
        yield warning(
            "the package does not check its inputs: a wrong type, shape or layout gives garbage without an error",
            package.path,
            fix="compile it with a torch that generates checks behind AOTI_RUNTIME_CHECK_INPUTS, or with"
            " aot_inductor.debug_compile for a test",
        )


def _end(ended: Run) -> str:
    """How a run ended, in words."""
    doing = _WORDS.get(ended.stage, f"{ended.stage}ing" if ended.stage in ("load", "unload") else "running")
    if ended.ended == "killed":
        return f"{ended.signal} while {doing}"
    return f"{ended.ended} while {doing}{f': {_line(ended.detail)}' if ended.detail else ''}"


def _line(text: str) -> str:
    return " ".join(text.split())[:400].rstrip(". ")


def _copies(mapped: tuple[MappedLibrary, ...]) -> Iterator[tuple[str, str]]:
    """Libraries of which the process holds two copies, and OpenMP runtimes beside one another: name and words."""
    seen: dict[str, list[MappedLibrary]] = {}
    for one in mapped:
        match = _ALONE.match(posixpath.basename(one.path))
        if match:
            seen.setdefault(match[1], []).append(one)
    for name, copies in seen.items():
        if len(copies) > 1:
            yield name, f"the process holds {len(copies)} copies of {name}: {' and '.join(one.path for one in copies)}"
    runtimes = [one.path for name in sorted(_OPENMP & set(seen)) for one in seen[name][:1]]
    if len(runtimes) > 1:
        yield "libgomp", f"the process holds {len(runtimes)} OpenMP runtimes: {' and '.join(runtimes)}"


def _preloads(run: AotiRun) -> Iterator[str]:
    for variable in run.variables.value or ():
        if variable.name in ("LD_PRELOAD", "LD_AUDIT") and variable.value:
            yield f"{variable.name}={variable.value} puts its own functions before the libraries'"


def _borrowed(run: AotiRun, package: Package) -> Iterator[str]:
    """A function of the C++ library that the package's code got from another library, where the process died, in words.

    Such functions are compiled into every library that uses them, and the dynamic linker may give all callers one of
    the copies: between two compiler versions its objects can be laid out differently.
    """
    mine = {library.name for library in package.libraries} | {posixpath.basename(package.path)}
    named = [frame for frame in (run.trail.value.frames if run.trail.value else ()) if frame.function]
    for frame, caller in pairwise(named):
        name = posixpath.basename(frame.path)
        lends = name not in mine and not name.startswith(("libstdc++", "libc.so"))
        if lends and frame.function.startswith("std::") and posixpath.basename(caller.path) in mine:
            yield (
                f"the package's code called {frame.function} of {name}, instead of its own: "
                "the two were compiled by C++ compilers with different copies of it"
            )
            return


def _trail(run: AotiRun) -> str:
    """Where the process died, in words; empty where that was not seen."""
    trail = run.trail.value
    if trail is None or not trail.frames:
        return ""
    parts: list[str] = []
    for frame in trail.frames:
        name = posixpath.basename(frame.path) or "no file's code"
        part = f"{frame.function} of {name}" if frame.function else f"{name}+{frame.offset:#x}"
        if not parts or parts[-1].rpartition(" of ")[2].partition("+")[0] != name:
            parts.append(part)
        elif frame.function and " of " not in parts[-1]:
            parts[-1] = f"{parts[-1].partition('+')[2]} below {frame.function} of {name}"
    return ", called from ".join(parts[:4])


def _causes(run: AotiRun, ended: Run, package: Package) -> list[str]:
    """The likely causes of a death that the observations support, the likeliest first."""
    own = _own_runtime(run, package)
    causes = [*_of_signal(run, ended, package), *_of_libraries(run, package)]
    if own and _fails_to_load(ended):
        causes.append(own)
    causes += [*_of_mapped(run, package), *_of_link(run), *_borrowed(run, package)]
    trail = _trail(run)
    if ended.ended == "killed" and trail:
        causes.append(f"it crashed in {trail}")
    causes += [words for name, words in _copies(run.mapped.value or ()) if name in _OPENMP]
    if own and not _fails_to_load(ended):
        causes.append(own)
    return [*causes, *_preloads(run)]


def _of_signal(run: AotiRun, ended: Run, package: Package) -> Iterator[str]:
    """What the signal says together with the runner, the room on disk and the processor."""
    scratch = run.scratch.value
    if ended.signal == "SIGKILL":
        yield "SIGKILL comes from outside: memory ran out, or somebody sent it"
    linked_for = _linked_for(package)
    if run.runner and linked_for and run.runner != linked_for:
        yield f"the runner for {run.runner} loaded a library that was linked for {linked_for}"
    if ended.signal == "SIGBUS" and scratch is not None and scratch.free < 2 * package.size:
        yield f"SIGBUS means a truncated mapped file: {scratch.path} had {scratch.free} bytes free"
    if ended.signal == "SIGILL" and run.flags.value is not None:
        try:
            lacking = _lacking_isa(run, package)
        except Unknown:
            lacking = []
        if lacking:
            yield f"the package was compiled for {package.isa} and this processor lacks {', '.join(lacking)}"


def _of_libraries(run: AotiRun, package: Package) -> Iterator[str]:
    """Libraries of the package that are damaged or made for another machine."""
    here = run.machine.value
    for library in package.libraries:
        if library.error:
            yield f"{library.name} is damaged: {library.error}"
        elif here and library.machine and library.machine != here:
            yield f"{library.name} is for {library.machine}"


def _of_mapped(run: AotiRun, package: Package) -> Iterator[str]:
    """Versions that a mapped library lacks, and libraries that are mapped twice."""
    if run.mapped.value is not None:
        for name, provider, lacking, copy in _unmet(run, package):
            yield f"{name} needs {lacking[0]} of {provider} and {copy} lacks it"
        yield from (words for name, words in _copies(run.mapped.value) if name not in _OPENMP)


def _of_link(run: AotiRun) -> Iterator[str]:
    """What opening the library alone showed."""
    linked = run.link.value
    if linked is not None and linked.died:
        yield f"dlopen of its library alone ends the process ({linked.died}), before torch calls it"
    if linked is not None and linked.error:
        yield f"the dynamic linker says: {_line(linked.error)}"


def aoti_crashed(run: AotiRun) -> Iterator[Finding]:
    """Loading and running the package ends neither by a signal nor at its budget."""
    package = _package(run)
    ended = run.run.need("how the run ended")
    skip_if(ended.ended == "not-applicable", ended.detail)
    unknown_if(ended.ended == "garbled", f"the process that ran the package left no answer: {_line(ended.detail)}")
    if ended.ended not in ("killed", "hung"):
        return
    unknown_if(ended.stage == "import torch", f"the package was not reached: {_end(ended)}")
    causes = _causes(run, ended, package)
    trail = _trail(run)
    says = f"; likely cause: {causes[0]}" if causes else "; nothing observed explains it"
    evidence = {f"runner-up: {cause}": "observed" for cause in causes[1:4]}
    if trail:
        evidence[f"crashed in {trail}"] = run.trail.via
    for compiler in (run.compilers.value or ())[:1]:
        evidence[_compiler_words(compiler)] = "the C++ compiler here"
    stack = _python_stack(ended.stderr_tail)
    if stack:
        evidence[stack] = "faulthandler"
    yield error(
        f"the package ends the process: {_end(ended)}{says}",
        package.path,
        evidence,
        _relink(run)
        if causes and causes[0] == _own_runtime(run, package)
        else f"fix the cause that the message names; if the package came from elsewhere, {_REBUILD} and with the "
        "same torch",
    )


def _python_stack(tail: str) -> str:
    """The first lines of faulthandler's stack, on one line."""
    at = max(tail.rfind("Current thread"), tail.rfind("(most recent call first)"))
    lines = [line.strip() for line in tail[at:].splitlines()[1:6] if line.strip().startswith("File ")]
    return "; ".join(lines) if at >= 0 else ""


def aoti_raised(run: AotiRun) -> Iterator[Finding]:
    """Loading and running the package raises nothing."""
    package = _package(run)
    ended = run.run.need("how the run ended")
    skip_if(ended.ended == "not-applicable", ended.detail)
    skip_if(ended.ended in ("killed", "hung", "garbled"), f"the package raised nothing: {_end(ended)}; aoti-crashed")
    skip_if(ended.ended == "loaded", f"the package was loaded and not run: {ended.detail}")
    if ended.ended != "raised":
        return
    unknown_if(ended.stage == "import torch", f"the package was not reached: {_end(ended)}")
    for other, faults in _explanations(run, package, ended):
        skip_if(faults, f"{other} names the reason")
    said = _printed(ended.stderr_tail)
    own = _own_runtime(run, package) if _fails_to_load(ended) else ""
    yield error(
        f"the package ends the call: {_end(ended)}"
        + (f"; it printed: {said}" if said else "")
        + (f"; likely cause: {own}" if own else ""),
        package.path,
        {_line(ended.detail): run.run.via},
        _relink(run) if own else "read its output; load it with the torch that it was compiled with",
    )


def _explanations(run: AotiRun, package: Package, ended: Run) -> Iterator[tuple[str, bool]]:
    """The checks that may own what was raised, and whether they find something."""
    given = run.inputs.value or ()
    try:
        yield "aoti-no-such-device", any(True for _ in _absent_device(run, package))
    except Unknown:
        yield "aoti-no-such-device", False
    if ended.stage == "run":
        yield "aoti-device-differs", any(True for _ in _device_faults(run, package, given))
        yield "aoti-input-mismatch", any(True for _ in _mismatches(run, package, given))
    if ended.stage == "load":
        linked = run.link.value
        yield "aoti-library-symbol-missing", linked is not None and bool(linked.error)


def _printed(tail: str) -> str:
    """What the package wrote before the exception: the line that torch's wrapper turns into "API call failed"."""
    found = re.findall(r"^(?:Error|Exception)[^\n:]*: ([^\n]+)$", tail, re.MULTILINE)
    return _line(found[0]) if found else ""
