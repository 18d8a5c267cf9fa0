"""What the checks of an image share: how torch came up, what it binds, and what its METADATA asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envkit.judging.checks._outcomes import skip_if
from envkit.model import Reason, Unknown
from envkit.subjects import Audit, Image
from envkit.subjects.image import NO_PROMISE, Binding, ExpectedContents, Library, TorchBuild, Wheel
from envkit.subjects.image import Requirement as DistRequirement
from envkit.subjects.imported import ImportEnd, ImportState

OWN_WHEEL = "take the other copy out of LD_LIBRARY_PATH, LD_PRELOAD and sys.path, so that torch finds its own"
REINSTALL = "install what the lock names into a fresh environment: `envkit build`"


def torch_ended(image: Image) -> ImportEnd:
    """How import torch ended; raises Skip where there is no torch and none was promised."""
    ended = image.torch_import.need("how import torch ended")
    skip_if(ended.state is ImportState.ABSENT and not _torch_promised(image), "there is no torch here")
    return ImportEnd(" ".join(ended.split()))  # errors may have several lines


def _torch_promised(image: Image) -> bool:
    """Whether the image was promised to hold a torch."""
    return not image.promise.missing and image.promise.value is not None and bool(image.promise.value.torch)


def cuda_build(image: Image) -> TorchBuild:
    """What torch says of its build; raises Skip for no torch and for a torch without CUDA."""
    torch_ended(image)
    build = image.torch.need("torch's build")
    skip_if(not build.cuda, f"torch {build.version} is built without CUDA")
    return build


def promise_of(image: Image | Audit) -> ExpectedContents:
    """The promise; raises Skip where the image makes none and Unknown where it could not be read."""
    skip_if(image.promise.reason is Reason.NO_PROMISE, NO_PROMISE)
    return image.promise.need("the image's promise")


def told_of(library: Library) -> str:
    """How one library was found and who said its version, for the evidence."""
    owner = f"{library.owner}=={library.owner_version}" if library.owner else "no wheel's RECORD"
    version = f"{library.version} by {library.version_via}" if library.version else "says no version"
    return f"{library.found_via or 'unknown origin'}; {version}; owner {owner}"


def evidence_of(libraries: Sequence[Library]) -> dict[str, str]:
    """Each library's path with how it was found."""
    return {library.path: told_of(library) for library in libraries}


def torchs_bindings(image: Image, name: str) -> tuple[Binding, ...]:
    """What torch's own libraries bind of the family ``name``, else what the process binds."""
    every = [one for one in image.bindings.value or () if one.name == name]
    torchs = tuple(one for one in every if one.caller.startswith(("libtorch", "libc10", "libcaffe2")))
    return torchs or tuple(one for one in every if one.caller == "process")


def bound_copies(image: Image, name: str) -> tuple[Library, ...]:
    """The mapped copies of ``name`` that torch itself binds; all mapped ones where no binding was seen."""
    copies = image.mapped(name)
    paths = {one.path for one in torchs_bindings(image, name)}
    return tuple(copy for copy in copies if copy.path in paths) or copies


def name_in(line: DistRequirement) -> str:
    """The distribution that a line of METADATA asks for, normalised; "" where the line is none."""
    try:
        return str(canonicalize_name(Requirement(line.text).name))
    except InvalidRequirement:
        return ""


def version_of(library: Library) -> str:
    """The version that the library says, else its wheel's; raises Unknown without either."""
    if library.version or library.owner_version:
        return library.version or library.owner_version
    raise Unknown(f"{library.path} reports no version ({library.version_via}) and no wheel owns it")


def pin_of(image: Image, prefix: str) -> tuple[str, str] | None:
    """The distribution and version that torch's METADATA pins, the first name starting with ``prefix``."""
    for line in image.requires.need("what torch's METADATA requires"):
        try:
            wanted = Requirement(line.text)
        except InvalidRequirement:
            continue
        pins = [specifier for specifier in wanted.specifier if specifier.operator == "=="]
        if line.of == "torch" and wanted.name.startswith(prefix) and pins:
            return wanted.name, pins[0].version
    return None


def wheel_of(image: Image | Audit, name: str) -> Wheel | None:
    return next((wheel for wheel in image.wheels.need("the installed distributions") if wheel.name == name), None)


def files_of(image: Image | Audit, owner: str) -> list[Library]:
    """The libraries of the distribution ``owner``, mapped or not, the shortest name, its main one, first."""
    if isinstance(image, Audit):
        every = [
            Library(one.family, one.soname, one.path, owner=one.owner, owner_version=one.owner_version)
            for one in image.objects.value or ()
        ]
    else:
        every = [*(image.libraries.value or ()), *(image.unmapped.value or ())]
    return sorted((lib for lib in every if lib.owner == owner), key=lambda lib: (len(lib.soname), lib.path))


def release_of(library: Library) -> str:
    """The library's release in words: its distribution's, else what it says itself."""
    owned = f"{library.owner} {library.owner_version}" if library.owner else ""
    return owned or (f"version {library.version}" if library.version else "no known version")


def path_and_version(library: Library) -> str:
    """The library's path, and its version in brackets."""
    return f"{library.path} ({library.version or library.owner_version or 'no version'})"


def requirements_of(image: Image | Audit) -> Iterator[tuple[str, Requirement]]:
    """The requirements of torch, and of the metapackage it names with extras, that apply to this image."""
    environment = {
        **{key: str(value) for key, value in default_environment().items()},
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": image.platform.need("the machine"),
        "python_full_version": image.python.need("the Python version"),
        "python_version": ".".join(image.python.need("the Python version").split(".")[:2]),
    }
    lines = image.requires.need("what torch's METADATA requires")
    extras: dict[str, set[str]] = {"torch": set()}
    for of in ("torch", "cuda-toolkit"):
        for line in lines:
            if line.of != of or of not in extras:
                continue
            wanted = Requirement(line.text)
            marker = wanted.marker
            if marker is None or any(marker.evaluate({**environment, "extra": e}) for e in extras[of] | {""}):
                extras.setdefault(wanted.name, set()).update(wanted.extras)
                yield f"{line.of} {line.of_version}", wanted
