"""What is asked of an image's files: whether its libraries would be found, fit and serve, and what should not be there.

Nothing of the image was run, so a finding says what the files make ld.so, Python and CUDA do, not what was seen.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from envkit.facts import Facts, served
from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if, warning
from envkit.model import Finding, Reason, Severity, Skip, Unknown
from envkit.subjects import Audit
from envkit.subjects.audit import NO_LIBC, NO_TORCH, DriverFile, Edge, SharedObject, TorchFiles, UnresolvedRequirement
from envkit.versions import Cuda, Sm

_REINSTALL = "install what the lock names into a fresh environment: `envkit build`"
_SHOWN = 5


def _torch(audit: Audit) -> TorchFiles:
    """What torch's files say; raises Skip where there is no torch."""
    skip_if(audit.torch.reason is Reason.NO_TORCH, NO_TORCH)
    return audit.torch.need("torch's version")


def _cuda_torch(audit: Audit) -> TorchFiles:
    torch = _torch(audit)
    skip_if(not torch.cuda, f"torch {torch.version} is built without CUDA")
    return torch


def _whose(one: SharedObject) -> str:
    return f"{one.owner}=={one.owner_version}" if one.owner else "no package"


def _some(names: Iterable[str]) -> str:
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more


def audit_library_unresolved(audit: Audit) -> Iterator[Finding]:
    """Every library that an import loads is found by the search of ld.so."""
    objects = audit.objects.need("the libraries that the shared objects need")
    skip_if(not objects, "no shared object of CUDA or torch was found, and no other lacks a library")
    torch = {one.path for one in objects if one.owner == "torch"}
    named = {one.soname: one for one in objects if one.soname}
    missing: dict[tuple[str, str, Severity], list[tuple[SharedObject, Edge]]] = {}
    for one in objects:
        for edge in one.edges:
            if edge.error:
                of_torch = one.reached in torch or (one.owner == "torch" and bool(edge.family))
                severity = Severity.ERROR
                if not of_torch and (not one.reached or one.others_load or edge.name in named):
                    severity = Severity.NOTE
                missing.setdefault((edge.name, edge.error, severity), []).append((one, edge))
    for (name, why, severity), asking in missing.items():
        names = list(dict.fromkeys(posixpath.basename(one.path) for one, _ in asking))
        reached = next((one.reached for one, _ in asking if one.reached), "")
        after = f"{reached} loads {'it' if len(names) == 1 else 'them'}" if reached else "no import loads it"
        lies = f"; {named[name].path} has that name and no search leads to it" if name in named else ""
        yield Finding(
            f"{_some(names)} {'needs' if len(names) == 1 else 'need'} {name}: {why}; {after}{lies}",
            severity,
            asking[0][0].path,
            {one.path: f"of {_whose(one)}; {edge.kind}" for one, edge in asking[:10]},
            f"{'reinstall' if asking[0][1].family else 'install'} the package that brings {name}",
        )


def _unmet(audit: Audit, kind: str) -> tuple[UnresolvedRequirement, ...]:
    found = audit.unmet.need("what the shared objects ask of their libraries")
    return tuple(one for one in found if one.kind == kind)


def audit_unresolved_symbol(audit: Audit) -> Iterator[Finding]:
    """What cuSPARSE, cuSOLVER and extensions of torch take from nvJitLink and torch by name is defined there."""
    found = _unmet(audit, "symbol")
    objects = audit.objects.need("the libraries that the shared objects need")
    if not found and not any(edge.family for one in objects for edge in one.edges):
        raise Skip("no shared object links to CUDA or torch")
    for one in found:
        yield Finding(
            f"{posixpath.basename(one.path)} needs {one.what[0]}"
            + (f" and {one.count - 1} more" if one.count > 1 else "")
            + f", which {one.provider} does not define",
            # What links to torch and is no module is opened by torch.ops.load_library.
            Severity.ERROR if one.reached or one.what[0].startswith("_Z") else Severity.WARNING,
            one.path,
            {**dict.fromkeys(one.what, "undefined in its .dynsym"), one.provider: "the file that it would bind"},
            f"reinstall {one.owner or 'it'} in a release built for what is installed, or the library it was built for",
        )


def audit_system_library_too_old(audit: Audit) -> Iterator[Finding]:
    """The system's C and C++ libraries define every version that the installed shared objects ask for."""
    found = _unmet(audit, "version")
    skip_if(not found and audit.libc.reason is Reason.NO_LIBC, NO_LIBC)
    for one in found:
        newest = f", whose newest is {one.newest}" if one.newest else ""
        yield Finding(
            f"{posixpath.basename(one.path)} needs {_some(one.what)} of {one.provider}{newest}",
            Severity.ERROR if one.reached else Severity.NOTE,
            one.path,
            {**dict.fromkeys(one.what, "DT_VERNEED"), **({one.newest: "DT_VERDEF"} if one.newest else {})},
            "take a newer base image, or a release of the package that was built for an older one",
        )
    if not found:
        audit.libc.need("the C library")


def audit_cudnn_incomplete(audit: Audit) -> Iterator[Finding]:
    """Every cuDNN library that one of them opens by name lies beside it."""
    sets = audit.cudnn.need("the cuDNN libraries")
    skip_if(not sets, "no cuDNN library is here")
    objects = audit.objects.need("the libraries that the shared objects need")
    used = {posixpath.dirname(one.path) for one in objects if one.reached}
    for one in sets:
        if one.missing:
            owner = f"{one.owner}=={one.owner_version}" if one.owner else "no package"
            yield Finding(
                f"cuDNN in {one.directory} ({owner}) opens {_some(one.missing)}, and "
                f"{'it is' if len(one.missing) == 1 else 'they are'} not there",
                Severity.ERROR if one.directory in used else Severity.WARNING,
                one.directory,
                dict.fromkeys(one.missing, "strings of the libraries beside it"),
                "reinstall it, or take another release: `envkit facts cudnn`",
            )


def audit_arch_not_covered(audit: Audit, facts: Facts) -> Iterator[Finding]:
    """torch's library holds machine code, or PTX that a driver compiles, for every GPU that was named or promised."""
    torch = _cuda_torch(audit)
    named = dict.fromkeys(audit.gpus_given, "named by the user")
    if audit.promise.reason is not Reason.NO_PROMISE:
        named.update(dict.fromkeys(audit.promise.need("the image's promise").gpus, audit.promise.via))
    skip_if(not named, "no GPU was named, and the image promises none")
    code = audit.code.need("torch's device code")
    sass, ptx = [Sm.parse(arch) for arch in code.sass], [Sm.parse(arch) for arch in code.ptx]
    tegra = {row.sm for row in facts.archs if row.tegra}
    said = " ".join((*code.sass, *code.ptx))
    for gpu, via in sorted(named.items()):
        if served(sass, ptx, gpu, gpu in tegra).state == "none":
            yield error(
                f"torch {torch.version} has no code for {gpu}: its library holds {said}",
                code.path,
                {said: audit.code.via, str(gpu): via},
                f"take a torch that is built for {gpu}: `envkit facts gpu {gpu}` names them",
            )


def _of_torch(one: SharedObject) -> bool:
    return one.owner == "torch" or one.owner.startswith("nvidia-")


def audit_library_shadowed(audit: Audit) -> Iterator[Finding]:
    """What the wheels' libraries ask for is taken from the wheels, where these have it."""
    objects = audit.objects.need("the libraries that the shared objects need")
    wheels: dict[str, set[str]] = {}
    private: dict[tuple[str, str], set[str]] = {}
    for one in objects:
        if one.owner_kind == "wheel" and one.family:
            for name in (one.soname, posixpath.basename(one.path)):
                private.setdefault((one.owner, name), set()).add(one.path)
                if _of_torch(one):
                    wheels.setdefault(name, set()).add(one.path)
    skip_if(not private, "no wheel brings a library of CUDA or torch")
    caught: dict[tuple[str, str], list[tuple[SharedObject, str]]] = {}
    brought: dict[tuple[str, str], set[str]] = {}
    for one in objects:
        for edge in one.edges:
            own = wheels.get(edge.name) or private.get((one.owner, edge.name))
            if one.owner_kind == "wheel" and edge.family and edge.path and own and edge.path not in own:
                caught.setdefault((posixpath.dirname(edge.path), edge.by), []).append((one, edge.name))
                brought.setdefault((posixpath.dirname(edge.path), edge.by), set()).update(own)
    for (directory, by), asking in sorted(caught.items()):
        names = sorted({name for _, name in asking})
        askers = sorted({posixpath.basename(one.path) for one, _ in asking})
        yield Finding(
            f"{_some(names)} would come from {directory}, by {by}, for {_some(askers)}, although the wheels bring "
            f"{'it' if len(names) == 1 else 'them'}",
            Severity.ERROR if any(one.reached and _of_torch(one) for one, _ in asking) else Severity.WARNING,
            directory,
            dict.fromkeys(sorted(brought[directory, by]), "brought by a wheel"),
            f"take {directory} out of {by}, or remove the libraries there",
        )


_OWN = re.compile(r"/(?:site|dist)-packages/triton/")  # the CUPTI of Triton's profiler, which opens it by its path


def audit_cuda_twice(audit: Audit) -> Iterator[Finding]:
    """The image holds the CUDA libraries once."""
    copies = [copy for copy in audit.copies.need("the CUDA libraries on disk") if not _OWN.search(copy.path)]
    skip_if(not copies, "no CUDA library is here")
    doubled: dict[str, list[str]] = {}
    wasted = 0
    for family in sorted({copy.family for copy in copies}):
        places = {copy.place for copy in copies if copy.family == family}
        sizes = {place: sum(c.size for c in copies if c.family == family and c.place == place) for place in places}
        kept = "wheel" if "wheel" in places else max(sizes, key=lambda place: (sizes[place], place))
        for place in places - {kept}:
            doubled.setdefault(place, []).append(family)
            wasted += sizes[place]
    if doubled:
        count = len({family for families in doubled.values() for family in families})
        where = ", ".join(f"{_some(families)} from {place}" for place, families in sorted(doubled.items())[:_SHOWN])
        yield warning(
            f"{count} CUDA {'library is' if count == 1 else 'libraries are'} in the image more than once, "
            f"{wasted / 1e9:.2f} GB in all: {where}",
            next(copy.path for copy in copies if copy.place in doubled),
            {copy.path: f"{copy.size} bytes, {copy.place}" for copy in copies if copy.place in doubled},
            "build on a base image without CUDA's libraries, since the wheels bring them",
        )


_NUMBERED = ("cudart", "cublas", "cublasLt", "nvrtc", "nvjitlink")  # their sonames carry the toolkit's major


def audit_library_of_other_cuda(audit: Audit) -> Iterator[Finding]:
    """Nothing that torch loads, and nothing that links to torch, is made for another CUDA major than torch."""
    torch = _cuda_torch(audit)
    major = Cuda(torch.cuda).major
    objects = audit.objects.need("the libraries that the shared objects need")
    modules = {one.path for one in objects if one.owner == "torch"}
    said = False
    for one in objects:
        links = one.owner == "torch" or any(edge.family.startswith(("torch", "c10")) for edge in one.edges)
        if one.reached not in modules and not links:
            continue
        made: dict[int, str] = {}
        suffix = re.search(r"-cu([0-9]+)\Z", one.owner)
        if suffix:
            made[int(suffix[1])] = f"the name of {one.owner}"
        for edge in one.edges:
            number = re.search(r"\.so\.([0-9]+)", edge.name)
            if edge.family in _NUMBERED and number:
                made.setdefault(int(number[1]), f"it needs {edge.name}")
        said = said or bool(made)
        for other in sorted(set(made) - {major}):
            yield error(
                f"torch {torch.version} is built with CUDA {torch.cuda} and {one.path} is made for CUDA {other}: "
                f"{made[other]}",
                one.path,
                {f"CUDA {other}": made[other], torch.cuda: audit.torch.via},
                f"remove what is made for CUDA {other}; " + _REINSTALL,
            )
    unknown_if(not said, "no library of torch's process says which CUDA it is made for: they may be linked statically")


def _driver_files(audit: Audit, kind: str) -> list[DriverFile]:
    return [one for one in audit.drivers.need("the driver's libraries in the image") if one.kind == kind]


def _names(files: list[DriverFile]) -> str:
    return _some(posixpath.basename(one.path) for one in files)


def _by_directory(files: list[DriverFile]) -> dict[str, list[DriverFile]]:
    found: dict[str, list[DriverFile]] = {}
    for one in files:
        found.setdefault(posixpath.dirname(one.path), []).append(one)
    return found


def audit_driver_inside(audit: Audit) -> Iterator[Finding]:
    """The image brings no library of the driver."""
    for directory, files in sorted(_by_directory(_driver_files(audit, "driver")).items()):
        owners = sorted({one.owner for one in files if one.owner})
        searched = next((one.searched for one in files if one.searched), "")
        yield Finding(
            f"{_names(files)} {'is' if len(files) == 1 else 'are'} part of the image, in {directory}"
            + (f", which ld.so searches ({searched})" if searched else ""),
            Severity.ERROR if searched else Severity.NOTE,
            directory,
            {one.path: f"of {one.owner}" if one.owner else "no package lists it" for one in files},
            f"remove {_some(owners)} from the image" if owners else "remove them: the engine brings the host's",
        )


def audit_stub_on_path(audit: Audit) -> Iterator[Finding]:
    """No directory with stub libraries is searched at run time."""
    for directory, files in sorted(_by_directory(_driver_files(audit, "stub")).items()):
        searched = next((one.searched for one in files if one.searched), "")
        if searched:
            yield error(
                f"{directory} holds stubs ({_names(files)}) and ld.so searches it ({searched})",
                directory,
                {one.path: searched for one in files},
                f"take {directory} out of {searched}; name it with -L or LIBRARY_PATH where programs are linked",
            )


def audit_compat_registered(audit: Audit, facts: Facts) -> Iterator[Finding]:
    """No forward-compatibility driver is searched always."""
    found = [one for one in _driver_files(audit, "compat") if one.searched]
    gpus = audit.gpus_given or (audit.promise.value.gpus if audit.promise.value else ())
    fitting = bool(gpus) and all(
        (rows := [row for row in facts.gpus if row.sm == gpu]) and all(row.datacenter for row in rows) for gpu in gpus
    )
    for directory, files in sorted(_by_directory(found).items()):
        yield Finding(
            f"{directory} holds a forward-compatibility driver ({_names(files)}) and ld.so always searches it "
            f"({files[0].searched})",
            Severity.NOTE if fitting else Severity.WARNING,
            directory,
            {one.path: one.searched for one in files},
            f"take {directory} out of {files[0].searched}: the container toolkit registers it on machines that need it",
        )


def audit_secret_inside(audit: Audit) -> Iterator[Finding]:
    """No credential is a part of the image: not in a file, a variable, a command, or a layer below."""
    secrets = audit.secrets.need("the search for credentials")
    tests = [one for one in secrets if one.for_tests]
    if tests:
        yield note(
            f"{len(tests)} private {'key lies' if len(tests) == 1 else 'keys lie'} in directories of tests, "
            f"the first is {tests[0].where}",
            tests[0].where,
            {one.where: one.kind for one in tests[:10]},
            "leave out the tests, or make sure that the keys protect nothing",
        )
    for one in (each for each in secrets if not each.for_tests):
        yield error(
            f"{one.where} holds {one.kind}",
            one.where,
            {one.where: one.kind},
            "revoke it, and pass the new one to the build as a secret mount and to the container as a file or variable",
        )
    unread = audit.unread.need("which files could not be read")
    if unread:
        raise Unknown(f"{len(unread)} files or directories could not be read, the first is {unread[0]}")


def audit_world_writable(audit: Audit) -> Iterator[Finding]:
    """Nothing that is run, imported or searched for libraries may be written by every user."""
    found = audit.writable.need("the modes of the files")
    by_reason: dict[str, list[str]] = {}
    for one in found:
        by_reason.setdefault(one.why, []).append(one.path)
    modes = {one.path: one.mode for one in found}
    for why, paths in sorted(by_reason.items()):
        yield warning(
            f"every user may write {_some(paths)} ({why})",
            paths[0],
            {path: f"mode {modes[path]}" for path in paths[:10]},
            "remove the write permission of others: chmod -R o-w",
        )


def audit_cpu_torch(audit: Audit) -> Iterator[Finding]:
    """torch is built with CUDA where the image is made for GPUs."""
    torch = _torch(audit)
    if torch.cuda:
        return
    copies = audit.copies.need("the CUDA libraries on disk")
    names = [one.name for one in audit.variables.need("the image's variables") if one.name.startswith("NVIDIA_")]
    promised = audit.promise.value is not None and bool(audit.promise.value.gpus or audit.promise.value.cuda)
    asked = "a GPU was named" if audit.gpus_given else "CUDA was promised" if promised else ""
    holds = f"the image holds {copies[0].path}" if copies else f"the image sets {_some(names)}" if names else ""
    if not asked and not holds:
        raise Skip(f"torch {torch.version} is built without CUDA, and nothing in the image asks for a GPU")
    yield Finding(
        f"torch {torch.version} is built without CUDA and runs on the CPU, though {asked or holds}",
        Severity.ERROR if asked else Severity.WARNING,
        torch.path,
        {"None": audit.torch.via},
        "install torch from the index of the CUDA that the image is for; " + _REINSTALL,
    )


def audit_other_architecture(audit: Audit) -> Iterator[Finding]:
    """The Python in the image is for the machine that the image's configuration names."""
    platform = audit.platform.need("the image's architecture")
    machine = audit.interpreter.need("the image's Python").machine
    skip_if(not machine, "its Python program is outside the image")
    if machine != platform:
        yield note(
            f"the image says it is for {platform} and its Python is for {machine}",
            audit.interpreter.need("the image's Python").path,
            {platform: audit.platform.via, machine: "ELF header"},
            "build with --platform, or fix the manifest: an engine chooses the image by the architecture that it "
            "declares",
        )
