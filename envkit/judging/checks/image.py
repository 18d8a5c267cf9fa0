"""What is asked of an image: whether the libraries that torch binds are those it was built and promised with.

Order of doubt: where torch is no part of the image its questions are skipped; where it cannot be imported that is one
finding, and a check falls back on what torch's METADATA asks for before it says that it does not know.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence

from packaging.specifiers import Specifier
from packaging.version import InvalidVersion, Version

from envkit.facts import Facts
from envkit.judging.checks import _torch
from envkit.judging.checks._given import FIX, must_see
from envkit.judging.checks._outcomes import error, note, or_skip, or_unknown, skip_if, unknown_if, warning
from envkit.judging.checks._torch_fit import newer_than_facts
from envkit.model import Finding, Reason, Severity, Skip, Unknown
from envkit.subjects import Audit, Image
from envkit.subjects.image import NO_RECORD, Binding, ExpectedContents, Library, Overwritten, TorchBuild
from envkit.subjects.imported import ImportState
from envkit.versions import Cuda, Cudnn, Nccl, Sm


def image_torch_import_fails(image: Image) -> Iterator[Finding]:
    """``import torch`` ends well in a process with the image's own environment."""
    ended = _torch.torch_ended(image)
    if ended.state is ImportState.DONE:
        return
    if ended.state is ImportState.KILLED:
        raise Unknown(f"import torch {ended}, by the image or by this machine (its processor, its memory)")
    if ended.state is ImportState.ABSENT:
        promise = _torch.promise_of(image)
        yield error(
            f"torch {promise.torch} was promised and there is no module named torch",
            "torch",
            {"absent": image.torch_import.via},
            _torch.REINSTALL,
        )
        return
    yield error(
        f"import torch {ended}",
        "torch",
        {ended: image.torch_import.via},
        "look at the findings beside this one for the library that does not fit; " + _torch.REINSTALL,
    )


def _other_build(image: Image, build: TorchBuild, promise: ExpectedContents) -> Iterator[Finding]:
    has, wanted = build.version.partition("+")[0], promise.torch.partition("+")[0]
    if Version(has) != Version(wanted):
        yield error(
            f"torch {wanted} was promised and torch {build.version} is imported",
            build.path,
            {build.version: "torch.__version__", wanted: image.promise.via},
            _torch.REINSTALL,
        )
    if promise.cuda and not build.cuda:
        yield error(
            f"CUDA {promise.cuda} was promised and torch {build.version} is built without CUDA: it runs on the CPU",
            build.path,
            {"None": "torch.version.cuda", promise.cuda: image.promise.via},
            "install torch from the index of the promised CUDA; " + _torch.REINSTALL,
        )
    elif promise.cuda and Cuda(promise.cuda).upto(2) != Cuda(build.cuda).upto(2):
        yield error(
            f"CUDA {promise.cuda} was promised and torch {build.version} is built for CUDA {build.cuda}",
            build.path,
            {build.cuda: "torch.version.cuda", promise.cuda: image.promise.via},
            "install torch from the index of the promised CUDA; " + _torch.REINSTALL,
        )
    elif not promise.cuda and build.cuda:
        yield warning(
            f"a torch without CUDA was promised and torch {build.version} is built for CUDA {build.cuda}",
            build.path,
            {build.cuda: "torch.version.cuda"},
            _torch.REINSTALL,
        )


def image_torch_differs_from_lock(image: Image) -> Iterator[Finding]:
    """The torch that runs is the promised release, built for the promised CUDA, and the locked wheel's own."""
    promise = _torch.promise_of(image)
    skip_if(not promise.torch, "no torch was promised")
    if _torch.torch_ended(image).state is ImportState.ABSENT:
        yield error(f"torch {promise.torch} was promised and there is none", "torch", {}, _torch.REINSTALL)
        return
    build = image.torch.need("torch's build")
    others = list(_other_build(image, build, promise))
    yield from others
    if others or all(wheel.name != "torch" for wheel in promise.wheels):
        return
    own = [lib for lib in image.libraries.need("the mapped libraries") if lib.name in ("torch_cpu", "c10")]
    unknown_if(not own, "neither libtorch_cpu nor libc10 is mapped, so it is not known which torch was imported")
    strange = next((lib for lib in own if lib.owner != "torch"), None)
    if strange is not None:
        yield error(
            f"torch {build.version} is imported from {build.path}, and {strange.path} is not a file of the "
            "locked wheel",
            strange.path,
            _torch.evidence_of([strange]),
            "take the other torch out of PYTHONPATH, .pth files and the user's site-packages; " + _torch.REINSTALL,
        )


def image_cudart_mismatch(image: Image) -> Iterator[Finding]:
    """The CUDA runtime that torch binds has the major it was built with, and no older minor."""
    build = _torch.cuda_build(image)
    wanted = Cuda(build.cuda).upto(2)
    copies = _torch.bound_copies(image, "cudart")
    unknown_if(not copies, "no libcudart is mapped, though torch is built with CUDA: it may be linked statically")
    for copy in copies:
        unknown_if(not copy.version, f"{copy.path} does not say its version: {copy.version_via}")
        has = Cuda(copy.version)
        if has.major == wanted.major and has >= wanted:
            continue
        how = "another major" if has.major != wanted.major else "older"
        yield error(
            f"torch {build.version} is built with CUDA {wanted} and binds libcudart {has} from {copy.path}, {how}",
            copy.path,
            {**_torch.evidence_of([copy]), str(wanted): "torch.version.cuda"},
            _torch.OWN_WHEEL,
        )


def _cudnn_fits(has: Cudnn, built: Cudnn) -> bool:
    return has.major == built.major and has.minor >= built.minor


def _from_pin(image: Image, prefix: str, family: str) -> tuple[str, str, str, str, dict[str, str]]:
    """The pinned version, the found one, its path, how to say it and the evidence, where torch did not come up.

    Raises Unknown if METADATA pins nothing or nothing of the family is there.
    """
    lacking = f"torch's build was not observed ({image.torch.missing}) and its METADATA pins no {prefix}"
    name, wanted = or_unknown(_torch.pin_of(image, prefix), lacking)
    mapped = image.mapped(family)
    if mapped:
        library = mapped[0]
        has, path, evidence = _torch.version_of(library), library.path, _torch.evidence_of([library])
        what = f"{family} {has} is mapped from {path}"
    else:
        wheel = or_unknown(_torch.wheel_of(image, name), f"no {family} library is mapped and {name} is not installed")
        files = _torch.files_of(image, name)
        has, path = wheel.version, files[0].path if files else name
        evidence = {**_torch.evidence_of(files[:1]), f"{name}=={has}": "importlib.metadata"}
        what = f"{name} {has} is installed with {path}"
    return wanted, has, path, what, {**evidence, f"{name}=={wanted}": "Requires-Dist of torch"}


def _unlike_pin(image: Image, family: str, name: str, fits: Callable[[str, str], bool]) -> Finding:
    """The library that is there and does not fit the one that torch's METADATA pins, where torch did not come up.

    Raises Unknown where it fits, for what torch binds was not seen, or where one of the two is not known.
    """
    pinned, has, path, what, evidence = _from_pin(image, f"nvidia-{family}", family)
    if fits(has, pinned):
        raise Unknown(
            f"import torch {_torch.torch_ended(image)}; {what}, which fits, but what torch binds was not seen"
        )
    wheel = _torch.wheel_of(image, "torch")
    torch = f"torch {wheel.version}" if wheel else "torch"
    message = f"{what}, and {torch} is built with {name} {pinned}"
    return error(message, path, evidence, _torch.REINSTALL)


def _nccl_fits(has: Nccl, built: Nccl) -> bool:
    return has.major == built.major and has.upto(2) >= built.upto(2)


def image_cudnn_older_than_build(image: Image) -> Iterator[Finding]:
    """The cuDNN that torch binds has the major it was built with and no older minor; the patch is free."""
    ended = _torch.torch_ended(image)
    if ended.state is not ImportState.DONE:
        yield _unlike_pin(image, "cudnn", "cuDNN", lambda has, pinned: _cudnn_fits(Cudnn(has), Cudnn(pinned)))
        return
    build = _torch.cuda_build(image)
    skip_if(not build.cudnn, f"torch {build.version} is built without cuDNN")
    wanted = Cudnn.from_int(build.cudnn)
    copies = _torch.bound_copies(image, "cudnn")
    unknown_if(not copies, "no libcudnn is mapped, though torch is built with cuDNN: it may be linked statically")
    for copy in copies:
        has = Cudnn(_torch.version_of(copy))
        if not _cudnn_fits(has, wanted):
            yield error(
                f"torch {build.version} is built with cuDNN {wanted} and binds cuDNN {has} from {copy.path}",
                copy.path,
                {**_torch.evidence_of([copy]), str(wanted): "torch._C._cudnn.getCompileVersion"},
                f"install the cuDNN wheel that torch requires ({wanted} or a later minor of its major)",
            )


def image_cudnn_mixed(image: Image) -> Iterator[Finding]:
    """All parts of cuDNN come from one directory and one release."""
    _torch.cuda_build(image)
    parts = [lib for lib in image.libraries.need("the mapped libraries") if lib.name.split("_")[0] == "cudnn"]
    skip_if(not parts, "no cuDNN is mapped")
    late = {step.what: step.error for step in image.late.need("what torch loads late") if "cudnn" in step.what}
    failed = [f"{what} {error}" for what, error in late.items() if error]
    directories = {posixpath.dirname(lib.path) for lib in parts}
    releases = {(lib.owner, lib.owner_version) for lib in parts}
    said = {lib.version for lib in parts if lib.version}
    if len(directories) > 1 or len(releases) > 1 or len(said) > 1:
        shim = next((lib for lib in parts if lib.name == "cudnn"), parts[0])
        odd = next(
            (
                lib
                for lib in parts
                if (posixpath.dirname(lib.path), lib.owner_version)
                != (posixpath.dirname(shim.path), shim.owner_version)
                or (lib.version and shim.version and lib.version != shim.version)
            ),
            parts[-1],
        )
        yield error(
            f"cuDNN is mixed: {shim.soname} of {_torch.release_of(shim)} from {posixpath.dirname(shim.path)} with "
            f"{odd.soname} of {_torch.release_of(odd)} from {posixpath.dirname(odd.path)}",
            odd.path,
            _torch.evidence_of(parts),
            _torch.OWN_WHEEL,
        )
    elif not said and releases == {("", "")}:
        raise Unknown("no part of cuDNN says its version and no wheel owns one")
    elif failed or not late:
        raise Unknown(f"cuDNN's sub-libraries could not be loaded: {'; '.join(failed) or 'nothing was tried'}")


_OPENMP = ("gomp", "iomp5", "omp")


def _who_binds(bindings: Sequence[Binding]) -> str:
    """Which file each caller gets, libtorch_cuda.so named before the others."""
    callers: dict[str, list[str]] = {}
    for one in sorted(bindings, key=lambda one: one.caller != "libtorch_cuda.so"):
        callers.setdefault(one.path, []).append(one.caller)
    return "; ".join(
        f"{names[0]} and {len(names) - 1} others bind {path}" if len(names) > 1 else f"{names[0]} binds {path}"
        for path, names in callers.items()
    )


def image_library_twice(image: Image) -> Iterator[Finding]:
    """No library of CUDA is mapped from two files."""
    ended = _torch.torch_ended(image)
    families: dict[str, list[Library]] = {}
    for library in image.libraries.need("the mapped libraries"):
        if library.name not in _OPENMP:  # wheels carry copies of their own, under other sonames
            families.setdefault(library.name, []).append(library)
    clean = True
    for name, copies in families.items():
        paths = {copy.path for copy in copies}
        if len(paths) < 2:
            continue
        clean = False
        bindings = [one for one in image.bindings.need("what torch binds") if one.name == name]
        binds = _who_binds(bindings) or "neither is bound by torch"
        same = len({copy.soname for copy in copies}) < len(copies)
        yield Finding(
            f"{name} is mapped twice, from {' and '.join(_torch.path_and_version(copy) for copy in copies)}; {binds}",
            Severity.ERROR if same else Severity.WARNING,
            copies[-1].path,
            {
                **_torch.evidence_of(copies),
                **{f"{one.caller}: {one.symbol}": f"dladdr: {one.path}" for one in bindings},
            },
            "find what opens the second copy (LD_PRELOAD, another package's import, a .pth file) and remove it",
        )
    if clean and ended.state is not ImportState.DONE:
        raise Unknown(f"import torch {ended}, so that not all libraries were mapped")
    unknown_if(not families, "torch was imported and none of its libraries is mapped")


_CUDA_NUMBERED = ("cublas", "cublasLt", "nvrtc", "nvjitlink")  # numbered as their toolkit; others have own majors


def _made_for(library: Library) -> Iterator[tuple[int, str]]:
    """The CUDA majors that a library says it is made for, and who says so."""
    head, ending, number = library.owner.rpartition("-cu")
    if head and ending and number.isdigit():
        yield int(number), f"the name of {library.owner}"
    if library.name in _CUDA_NUMBERED and library.version:
        yield int(library.version.partition(".")[0]), library.version_via
    if library.built_with:
        yield int(library.built_with.partition(".")[0]), library.built_with_via


def image_library_of_other_cuda(image: Image) -> Iterator[Finding]:
    """No mapped library was made for another CUDA major than torch."""
    build = _torch.cuda_build(image)
    major = Cuda(build.cuda).major
    said = False
    for library in image.libraries.need("the mapped libraries"):
        claims = list(_made_for(library))
        said = said or bool(claims)
        made_for, via = next((claim for claim in claims if claim[0] != major), (major, ""))
        if made_for != major:
            yield error(
                f"torch {build.version} is built with CUDA {build.cuda} and {library.path} is made for CUDA {made_for} "
                f"({_torch.release_of(library)})",
                library.path,
                {**_torch.evidence_of([library]), f"CUDA {made_for}": via, build.cuda: "torch.version.cuda"},
                f"remove the wheels for CUDA {made_for} and reinstall torch's own; " + _torch.REINSTALL,
            )
    unknown_if(not said, "no mapped library says which CUDA it is made for: they may be linked statically")


def image_nccl_older_than_build(image: Image) -> Iterator[Finding]:
    """The NCCL that torch binds is of the major it was built with and not older."""
    ended = _torch.torch_ended(image)
    if ended.state is not ImportState.DONE:
        yield _unlike_pin(image, "nccl", "NCCL", lambda has, pinned: _nccl_fits(Nccl(has), Nccl(pinned)))
        return
    build = _torch.cuda_build(image)
    skip_if(not build.nccl, f"torch {build.version} is built without NCCL")
    wanted = Nccl(build.nccl)
    copies = _torch.bound_copies(image, "nccl")
    if not copies:
        pin = _torch.pin_of(image, "nvidia-nccl")
        if pin is not None:
            raise Unknown(f"no libnccl is mapped, though torch requires {pin[0]}")
        raise Skip("no libnccl is mapped: torch has NCCL linked in")
    for copy in copies:
        has = Nccl(_torch.version_of(copy))
        if _nccl_fits(has, wanted):
            continue
        yield error(
            f"torch {build.version} is built with NCCL {wanted} and binds NCCL {has} from {copy.path}",
            copy.path,
            {**_torch.evidence_of([copy]), str(wanted): "torch.cuda.nccl.version"},
            f"install the NCCL wheel that torch requires ({wanted})",
        )


def image_wheels_not_locked(image: Image | Audit) -> Iterator[Finding]:
    """The installed distributions are the locked ones, and no further NVIDIA wheel is there."""
    promise = _torch.promise_of(image)
    found: dict[str, list[str]] = {}
    for wheel in image.wheels.need("the installed distributions"):
        found.setdefault(wheel.name, []).append(wheel.version)
    locked = {wheel.name: wheel.version for wheel in promise.wheels}
    if not locked and not (promise.whole and any(name.startswith("nvidia-") for name in found)):
        raise Skip("the lock in the label pins no wheel")
    decisive = _decisive(image)
    for name, version in sorted(locked.items()):
        versions = found.get(name, [])
        drifted = error if decisive is None or name in decisive or name.startswith(_OF_GPUS) else warning
        if not versions:
            yield drifted(
                f"{name} {version} is locked and not installed",
                name,
                {f"{name}=={version}": image.promise.via},
                _torch.REINSTALL,
            )
        elif any(not _same_version(one, version) for one in versions):  # two, if an installation was cut short
            files = _torch.files_of(image, name)
            where = files[0].path if files else name
            yield drifted(
                f"{name} {version} is locked and {' and '.join(versions)} is installed"
                + (f", with {where}" if files else ""),
                where,
                {f"{name}=={versions[0]}": image.wheels.via, f"{name}=={version}": image.promise.via},
                _torch.REINSTALL,
            )
    for name in sorted(set(found) - set(locked)) if promise.whole else ():
        if name.startswith("nvidia-"):
            yield error(
                f"{name} {found[name][0]} is installed and not locked",
                name,
                {f"{name}=={found[name][0]}": image.wheels.via},
                "remove it, or add it to the specification and lock again: `envkit lock`",
            )


_NAMED = 10  # packages in one message
_OF_GPUS = ("nvidia-", "cuda-", "triton", "pytorch-triton")  # the names of wheels that torch binds or compiles with


_SEEDS = ("pip", "setuptools", "wheel")  # with which virtual environments are made; they add nothing to a job


def _decisive(image: Image | Audit) -> frozenset[str] | None:
    """The distributions whose drift may break torch: itself and what it requires, in all that is installed; None where
    that was not observed."""
    if image.requires.missing or image.requires.value is None:
        return None
    named = (_torch.name_in(line) for line in image.requires.value if line.of == "torch")
    return frozenset(("torch", *named))


def image_packages_added(image: Image | Audit) -> Iterator[Finding]:
    """No package was installed on top of those that the lock names."""
    promise = _torch.promise_of(image)
    skip_if(not promise.whole, "the base image brought packages of its own, which the lock does not name")
    seen = image.wheels.need("the installed distributions")
    unknown_if(not seen, "no installed distribution was seen")
    known = {promise.project, *_SEEDS, *(wheel.name for wheel in promise.wheels)}
    found = [wheel for wheel in seen if wheel.name not in known]
    # what is of NVIDIA is no mere addition: see `image-wheels-not-locked`
    added = sorted({f"{wheel.name} {wheel.version}" for wheel in found if not wheel.name.startswith("nvidia-")})
    if added:
        more = f" and {len(added) - _NAMED} more" if len(added) > _NAMED else ""
        some = f"{len(added)} packages are" if len(added) > 1 else "1 package is"
        yield note(
            f"{some} installed and not in the lock: {', '.join(added[:_NAMED])}{more}",
            "the environment",
            {"==".join(one.split(" ", 1)): image.wheels.via for one in added},
            "to have them pinned and solved together with torch: `envkit add NAME`, then build",
        )


def image_lock_not_fully_pinned(image: Image | Audit) -> Iterator[Finding]:
    """The lock of the image pins its base and its Debian packages, so that another build gets the same."""
    for clause in or_skip(_torch.promise_of(image).unpinned, "what the lock does not pin was not recorded"):
        yield warning(
            clause,
            "the lock",
            {clause: image.promise.via},
            "lock again with `envkit lock --upgrade` where an engine, a registry and a Debian mirror answer; "
            "Debian packages can be pinned only on a plain Debian base",
        )


def _same_version(one: str, other: str) -> bool:
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other


def image_torch_newer_than_facts(image: Image | Audit, facts: Facts) -> Iterator[Finding]:
    """The installed torch is not newer than the facts."""
    wheel = _torch.wheel_of(image, "torch")
    if wheel is None:
        raise Skip("no distribution named torch is installed")
    misfit = newer_than_facts(wheel.version, facts)
    if misfit:
        yield note(misfit.message, "torch", misfit.facts, misfit.fix)


def image_torch_requirement_not_met(image: Image | Audit) -> Iterator[Finding]:
    """The NVIDIA wheels and triton are those that torch's own METADATA asks for."""
    skip_if(_torch.wheel_of(image, "torch") is None, "no distribution named torch is installed")
    seen: set[tuple[str, str]] = set()
    for by, wanted in _torch.requirements_of(image):
        name = wanted.name.lower().replace("_", "-").replace(".", "-")
        if not name.startswith(("nvidia-", "cuda-", "triton", "pytorch-triton")) or (by, str(wanted)) in seen:
            continue
        seen.add((by, str(wanted)))
        wheels = [wheel for wheel in image.wheels.need("the installed distributions") if wheel.name == name]
        if not wheels:
            yield error(
                f"{by} requires {name}{wanted.specifier} and it is not installed",
                name,
                {f"{name}{wanted.specifier}": f"Requires-Dist of {by}"},
                _torch.REINSTALL,
            )
        for wheel in wheels:  # two, if an installation was cut short
            if wanted.specifier.contains(wheel.version, prereleases=True):
                continue
            files = _torch.files_of(image, name)
            where = files[0].path if files else name
            yield Finding(
                f"{by} requires {name}{wanted.specifier} and {wheel.version} is installed"
                + (f", with {where}" if files else ""),
                Severity.WARNING if _is_newer(wheel.version, list(wanted.specifier)) else Severity.ERROR,
                where,
                {f"{name}=={wheel.version}": image.wheels.via, f"{name}{wanted.specifier}": f"Requires-Dist of {by}"},
                _torch.REINSTALL,
            )
    skip_if(not seen, "torch's METADATA asks for no wheel of NVIDIA's and for no triton")


def _is_newer(version: str, specifiers: Sequence[Specifier]) -> bool:
    pins = [Version(one.version.removesuffix(".*")) for one in specifiers if one.operator == "=="]
    has = Version(version)
    return bool(pins) and all(has > pin and has.release[0] == pin.release[0] for pin in pins)


# What torch/lib holds for torch's own tests alone.
_FOR_TESTS = re.compile(r"lib\w*_test\.so|libbackend_with_compiler\.so")


def _ends_programs(one: Overwritten) -> bool:
    """Whether a library that is missing is one of torch's own, some of which it opens only when they are called."""
    folder, name = posixpath.split(one.path)
    return folder.endswith("/torch/lib") and not _FOR_TESTS.fullmatch(name) and one.owners[0].startswith("torch==")


def _is_library(one: Overwritten) -> bool:
    return ".so" in posixpath.basename(one.path)


def _overwritten_library(one: Overwritten, mapped: Library | None) -> Finding:
    name = posixpath.basename(one.path)
    if one.found == "the file is missing":
        return Finding(
            f"{name} is missing: {' and '.join(one.owners)} should bring {one.path}",
            Severity.ERROR if _ends_programs(one) else Severity.WARNING,
            one.path,
            {one.path: "RECORD, stat"},
            _torch.REINSTALL,
        )
    found = f"is of {one.found}" if "==" in one.found else f"has {one.found}"
    lists = f"{' and '.join(one.owners)} {'both list it' if len(one.owners) > 1 else 'lists it'}"
    return error(
        f"{name} is not what its wheel brought: {lists}, and the file at {one.path} {found}",
        one.path,
        {one.path: _torch.told_of(mapped) if mapped else "RECORD", **dict.fromkeys(one.owners, "RECORD")},
        "remove every wheel that lists the file, then install the one that torch requires",
    )


def image_files_overwritten(image: Image | Audit) -> Iterator[Finding]:
    """The files of torch and of the CUDA wheels are those their RECORD lists."""
    files = image.overwritten.need("the comparison of files with RECORD")
    wheels = image.wheels.need("the installed distributions")
    # NVML's bindings are plain Python under an NVIDIA name; they are there on hosts without any CUDA library.
    names = {wheel.name for wheel in wheels} - {"nvidia-ml-py"}
    if not files and not any(name == "torch" or name.startswith("nvidia-") for name in names):
        raise Skip("no wheel of torch or of CUDA is installed")
    bare = sorted(owner for one in files if one.found == NO_RECORD for owner in one.owners)
    files = tuple(one for one in files if one.found != NO_RECORD)
    changed = [one for one in files if _is_library(one) and one.found != "the file is missing"]
    unknown_if(bare and not changed, f"{' and '.join(bare)} lists no files in a RECORD to compare with")
    by_path = {lib.path: lib for lib in image.libraries.value or ()} if isinstance(image, Image) else {}
    yield from (_overwritten_library(one, by_path.get(one.path)) for one in files if _is_library(one))
    others = [one for one in files if not _is_library(one)]
    if others:
        yield warning(
            f"{len(others)} other files are not what their wheels brought, the first {others[0].path} of "
            f"{' and '.join(others[0].owners)}",
            others[0].path,
            {one.path: one.found for one in others[:10]},
            _torch.REINSTALL,
        )


def image_arch_not_covered(image: Image, facts: Facts) -> Iterator[Finding]:
    """torch holds machine code, or PTX that its driver can compile, for every GPU it was declared for or meets.

    Declared GPUs and present ones are judged alike; which are present may stay open where some were declared.
    """
    build = _torch.cuda_build(image)
    declared = () if image.promise.reason is Reason.NO_PROMISE else image.promise.need("the image's promise").gpus
    here = image.devices.value or () if declared else image.devices.need("the devices at hand")
    gpus = (*declared, *here)
    skip_if(not gpus, f"no GPU was declared and none is here ({image.devices.via})")
    unknown_if(not build.archs, f"torch {build.version} does not list its architectures")
    sass = [Sm.parse(arch) for arch in build.archs if arch.startswith("sm_")]
    ptx = [Sm.parse(arch) for arch in build.archs if arch.startswith("compute_")]
    tegra = {row.sm for row in facts.archs if row.tegra}
    for gpu in sorted(set(gpus)):
        if any(gpu.runs(arch, gpu in tegra) for arch in sass) or any(gpu.compiles(arch) for arch in ptx):
            continue
        yield error(
            f"torch {build.version} has no code for {gpu}: it is built for {' '.join(build.archs)}",
            build.path,
            {
                " ".join(build.archs): "torch._C._cuda_getArchFlags",
                str(gpu): image.promise.via if gpu in declared else image.devices.via,
            },
            f"take a torch that is built for {gpu}: `envkit facts gpu {gpu}` names them",
        )


def image_gpu_not_seen(image: Image) -> Iterator[Finding]:
    """A run that was given GPUs sees them."""
    least = must_see(image.gpus_given)
    seen = image.devices.need("the devices at hand")
    given = " and ".join(image.gpus_given)
    if len(seen) < least:
        yield error(
            f"the run was given GPU {given} and sees {len(seen) or 'none'} ({image.devices.via})",
            evidence={" ".join(map(str, seen)) or "none": image.devices.via, given: "given by envkit"},
            fix=FIX,
        )
