"""What is asked of what an environment can do: open what is opened late, compile, load extensions, write its caches.

What an image needs for what it offers is an error or a warning; what it does not offer is a note or a skip.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if, warning
from envkit.judging.checks._torch import REINSTALL
from envkit.model import Finding, Severity
from envkit.payload.probe import libs
from envkit.subjects.abilities import Abilities, Ability, AbilityEnd, AbilityKind, CacheFolder
from envkit.subjects.image import Image
from envkit.subjects.imported import ImportState

_VIA = "tried in a child"
_FULL = (AbilityKind.COMPILE, AbilityKind.TRITON, AbilityKind.BUILD, AbilityKind.LOADER)
_TORCH_LIBRARY = re.compile(r"lib(?:torch|c10)(?:_\w+)?\.so")


def _abilities(image: Image) -> Abilities:
    skip_if(image.abilities.is_unsupported, "what the environment can do was not asked")
    return image.abilities.need("what the environment can do")


def _tried(image: Image, *kinds: AbilityKind) -> tuple[Ability, ...]:
    """The attempts of some kinds; raises Skip where there are none, and where a driver alone could try them."""
    seen = _abilities(image)
    found = seen.of(*kinds)
    skip_if(not found and kinds[0] in _FULL and seen.level != "full", "it is tried with `--abilities full` alone")
    skip_if(not found, "there is no such thing here")
    drivers = [one for one in found if one.end is AbilityEnd.UNTRIED and one.library]
    skip_if(len(drivers) == len(found), drivers[0].detail if drivers else "")
    return found


def _open_ones(found: Sequence[Ability]) -> None:
    """Raises Unknown where one of the attempts could not be made, for another reason than that no driver is here."""
    doubts = [one for one in found if one.end is AbilityEnd.UNTRIED and not one.library]
    unknown_if(doubts, "; ".join(f"{one.what}: {one.detail}" for one in doubts))


def _proof(one: Ability) -> dict[str, str]:
    return {one.detail or one.end.value: _VIA}


def _because(one: Ability) -> str:
    if one.library and posixpath.basename(one.what) != one.library:
        return f"{one.library} is missing"
    if one.symbol:
        return f"nothing has its symbol {one.symbol}"
    return one.detail


def _of(one: Ability) -> str:
    return f"{posixpath.basename(one.what)} of {one.owner}" if one.owner else one.what


def image_late_library_does_not_open(image: Image) -> Iterator[Finding]:
    """Every library that torch opens only when it is used opens, and the programs that it starts can be started."""
    found = _tried(image, AbilityKind.LIBRARY, AbilityKind.PROGRAM)
    for one in found:
        gone = one.end is AbilityEnd.ABSENT or (one.library and one.library == posixpath.basename(one.what))
        if one.kind is AbilityKind.PROGRAM and one.end in (AbilityEnd.FAILS, AbilityEnd.ABSENT):
            yield warning(
                f"torch starts {one.what} to share tensors between processes, and {_because(one)}",
                one.what,
                _proof(one),
                REINSTALL,
            )
        elif one.end in (AbilityEnd.FAILS, AbilityEnd.ABSENT):
            how = "is not there" if gone else f"does not open: {_because(one)}"
            yield error(f"torch opens {_of(one)} when it is used, and it {how}", one.what, _proof(one), REINSTALL)
    _open_ones(found)


def _kind_of(one: Ability) -> str:
    """A file's folder and its name without digits: a package may bring one file for each release of something."""
    return re.sub(r"\d+", "#", one.what)


def image_extension_does_not_load(image: Image) -> Iterator[Finding]:
    """Every installed extension that calls torch or CUDA, and each in the job's own folders, opens after torch."""
    found = _tried(image, AbilityKind.EXTENSION)
    working = {_kind_of(one) for one in found if one.end is AbilityEnd.WORKS}
    imported = {one.name for one in image.frameworks.value or () if one.ended == "done"}
    for one in found:
        if one.end is not AbilityEnd.FAILS or _kind_of(one) in working or one.owner in imported:
            continue
        ours = _TORCH_LIBRARY.fullmatch(one.library) or libs.is_cuda(libs.family(one.library))
        if one.library and not ours:
            yield note(
                f"{_of(one)} does not load: {_because(one)}",
                one.what,
                _proof(one),
                f"install what brings {one.library}, if the part of the package that needs it is used",
            )
        else:
            yield error(
                f"{_of(one)} does not load: {_because(one)}",
                one.what,
                _proof(one),
                "build it again against the installed torch and CUDA, or take the build that is made for them",
            )
    _open_ones(found)


def image_numpy_unusable(image: Image) -> Iterator[Finding]:
    """A NumPy array becomes a tensor and comes back, where NumPy is installed or promised."""
    (one,) = _tried(image, AbilityKind.NUMPY)
    if one.end is AbilityEnd.FAILS:
        yield error(
            f"torch and NumPy do not work together: {one.detail}",
            "numpy",
            _proof(one),
            "install a NumPy of the major that this torch was built with",
        )
    elif one.end is AbilityEnd.ABSENT:
        promised = image.promise.value.wheels if image.promise.value is not None else ()
        installed = image.wheels.need("the installed distributions")
        who = "was promised" if any(wheel.name == "numpy" for wheel in promised) else "is listed as installed"
        if any(wheel.name == "numpy" for wheel in (*promised, *installed)):
            yield error(f"numpy {who}, and {one.detail}", "numpy", _proof(one), "install numpy again")
        else:
            yield note(
                f"{one.detail}: `tensor.numpy()` and torch.from_numpy raise",
                "numpy",
                _proof(one),
                "install numpy, unless the job does without",
            )
    _open_ones([one])


def image_allocator_settings_refused(image: Image) -> Iterator[Finding]:
    """torch's own parser takes the settings of its allocator that the environment names."""
    found = _tried(image, AbilityKind.ALLOCATOR)
    for one in found:
        if one.end is AbilityEnd.FAILS:
            yield error(
                f"torch refuses {one.what}: {one.detail}",
                one.what.partition("=")[0],
                _proof(one),
                "correct it as PyTorch's notes on CUDA semantics describe, or unset it",
            )
    _open_ones(found)


def image_nvrtc_cannot_compile(image: Image) -> Iterator[Finding]:
    """The NVRTC that torch opens compiles a kernel for each declared GPU."""
    found = _tried(image, AbilityKind.NVRTC)
    for one in found:
        if one.end in (AbilityEnd.FAILS, AbilityEnd.ABSENT):
            yield error(
                f"NVRTC compiles no kernel for {one.what}: {one.detail}",
                one.owner,
                _proof(one),
                "let every user read libnvrtc and its builtins; " + REINSTALL,
            )
    _open_ones(found)


_VARIABLES = {"TRITON_PTXAS_PATH": "ptxas", "TRITON_PTXAS_BLACKWELL_PATH": "ptxas-blackwell"}


def image_ptxas_does_not_run(image: Image) -> Iterator[Finding]:
    """Triton's assembler is there and runs, and so is one that a variable names in its place."""
    found = _tried(image, AbilityKind.PTXAS)
    given = {_VARIABLES[one.owner] for one in found if one.owner in _VARIABLES and one.end is AbilityEnd.WORKS}
    for one in found:
        if one.end is AbilityEnd.ABSENT and one.owner in _VARIABLES:
            yield warning(
                f"{one.owner} names {one.what}, which is not there: Triton takes its own",
                one.owner,
                _proof(one),
                f"correct {one.owner}, or unset it",
            )
        elif one.end in (AbilityEnd.FAILS, AbilityEnd.ABSENT) and posixpath.basename(one.what) not in given:
            only_newest = one.owner not in _VARIABLES and posixpath.basename(one.what) != "ptxas"
            yield (warning if only_newest else error)(
                f"Triton's assembler {one.what} {'is not there' if one.end is AbilityEnd.ABSENT else 'does not run'}: "
                f"{one.detail}",
                one.what,
                _proof(one),
                f"correct {one.owner}" if one.owner in _VARIABLES else "install triton again",
            )
    _open_ones(found)


_FOR = {
    AbilityKind.C: "Triton builds the launchers of its kernels",
    AbilityKind.CPP: "torch.compile builds for the CPU",
}
_BUILDERS = (AbilityKind.C, AbilityKind.CPP, AbilityKind.HEADERS)


def image_host_compiler_does_not_work(image: Image) -> Iterator[Finding]:
    """The host compilers that are there or named compile; where there are none, torch.compile cannot be used."""
    skip_if(image.import_state is ImportState.ABSENT, "there is no torch here")
    found = _tried(image, *_BUILDERS)
    with_triton = bool(_abilities(image).of(AbilityKind.PTXAS))
    imported = image.import_state is ImportState.DONE
    for one in found:
        if one.kind is AbilityKind.HEADERS:
            if one.end in (AbilityEnd.ABSENT, AbilityEnd.FAILS):
                yield warning(
                    f"there is a C compiler and what includes Python.h is not built: {one.detail}",
                    one.what,
                    _proof(one),
                    "install Python's headers (python3-dev): torch.compile and Triton build against them",
                )
        elif one.end is AbilityEnd.FAILS:
            named = f"{one.owner} names `{one.what}`, which" if one.owner in ("CC", "CXX") else one.what
            yield error(
                f"{named} does not compile: {one.detail}",
                one.owner if one.owner in ("CC", "CXX") else one.what,
                _proof(one),
                "install a whole compiler (build-essential) and name no other one, or remove it",
            )
        elif one.end is AbilityEnd.ABSENT and imported and (one.kind is not AbilityKind.C or with_triton):
            yield note(
                f"{one.detail}, with which {_FOR[one.kind]}",
                one.what,
                _proof(one),
                "install it (build-essential), unless no job of this image compiles",
            )
    _open_ones(found)


def image_compile_requirement_broken(image: Image) -> Iterator[Finding]:
    """Every module that torch's METADATA asks for, and that torch.compile imports, can be imported."""
    skip_if(image.import_state is ImportState.ABSENT, "there is no torch here")
    found = _tried(image, AbilityKind.MODULE)
    for one in found:
        if one.end in (AbilityEnd.ABSENT, AbilityEnd.FAILS):
            yield error(
                f"torch requires {one.owner} and `import {one.what}` fails: {one.detail}",
                one.owner,
                _proof(one),
                f"install {one.owner} again: torch.compile and torch.export end without it",
            )
    _open_ones(found)


def image_user_without_name(image: Image) -> Iterator[Finding]:
    """The user has a name, or torch.compile does not ask for it."""
    found = _tried(image, AbilityKind.USER)
    built = any(one.end is AbilityEnd.WORKS for one in _abilities(image).of(AbilityKind.C, AbilityKind.CPP))
    for one in found:
        if one.end is AbilityEnd.FAILS:
            yield (error if built else warning)(
                f"the user, {one.what}, has no name: torch.compile asks for it and ends with {one.detail}",
                one.what,
                _proof(one),
                "make the user in the Dockerfile (`useradd -u`), or set USER or TORCHINDUCTOR_CACHE_DIR",
            )
    _open_ones(found)


_COMPILED = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")  # a kernel that cannot be written is an error of the job


def _uses(image: Image, one: CacheFolder) -> bool:
    """Whether what writes there is installed; a folder that a variable names is meant to be used."""
    names = {wheel.name for wheel in image.wheels.need("the installed distributions")}
    return not one.by or (one.named and one.by == "torch") or one.by in names


def _unwritable(image: Image, one: CacheFolder) -> str:
    """Why the user cannot write there, empty if it can; a read-only file system counts where envkit did not make it."""
    if not one.is_folder:
        return f"{one.nearest} is no folder"
    if not one.writable:
        mode = f" (owner {one.owner_uid}, mode {one.mode})" if one.mode else ""
        return f"the user of the process may not write to {one.nearest}{mode}"
    return f"the file system of {one.nearest} is mounted read-only" if one.read_only and not image.engine else ""


def image_cache_not_writable(image: Image) -> Iterator[Finding]:
    """HOME and the folders that libraries keep their caches in are writable for the user that will run."""
    homes = ""
    for one in _abilities(image).caches:
        why = _unwritable(image, one)
        if not why or not _uses(image, one) or (not one.named and one.variable != "HOME" and homes == why):
            continue
        if one.variable == "HOME":
            homes = why
        if one.by == "huggingface-hub" and one.filled:
            severity = Severity.NOTE  # models that the image holds are read
        else:
            severity = Severity.ERROR if one.named and one.variable in _COMPILED else Severity.WARNING
        subject = f"{one.variable} is {one.path}" if one.named or one.variable == "HOME" else f"{one.path} is a cache"
        yield Finding(
            f"{subject}, and {why}",
            severity,
            one.variable,
            {one.path: "stat, statvfs"},
            f"give the folder to the user in the Dockerfile (`chown`), or set {one.variable} to one that it may write",
        )


def _ends(image: Image, kind: AbilityKind, what: str, fix: str) -> Iterator[Finding]:
    found = _tried(image, kind)
    skip_if(all(one.end is AbilityEnd.ABSENT for one in found), found[0].detail)
    for one in found:
        if one.end is AbilityEnd.FAILS:
            yield error(f"{what.format(one.what)}: {one.detail}", one.what, _proof(one), fix)
    _open_ones(found)


def image_torch_compile_fails(image: Image) -> Iterator[Finding]:
    """torch.compile makes a graph for the CPU by the image's C++ compiler, and it computes right."""
    fix = "look at the findings on the compiler and on torch's requirements"
    yield from _ends(image, AbilityKind.COMPILE, "torch.compile fails on the {}", fix)


def image_triton_cannot_compile(image: Image) -> Iterator[Finding]:
    """Triton compiles a kernel down to machine code for each declared GPU."""
    fix = "install the triton that torch requires: `envkit facts gpu` names the torch for a GPU"
    yield from _ends(image, AbilityKind.TRITON, "Triton makes no machine code for {}", fix)


def image_extension_build_fails(image: Image) -> Iterator[Finding]:
    """An extension of torch can be built, loaded and called where the image has a compiler."""
    fix = "install a whole compiler, ninja and setuptools, or take them all out of a runtime image"
    yield from _ends(image, AbilityKind.BUILD, "an extension of torch in {} cannot be built", fix)


def image_data_loader_fails(image: Image) -> Iterator[Finding]:
    """A data loader with two processes gives all its batches, by fork and by spawn."""
    fix = "look at what it says: limits on processes, shared memory and the temporary folder"
    yield from _ends(image, AbilityKind.LOADER, "a data loader whose processes start by {} fails", fix)
