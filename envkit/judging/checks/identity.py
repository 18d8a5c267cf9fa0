"""What is asked of who is who: what an import finds, what it needs, who may read it, and whose bytes the files hold."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from envkit.facts import Facts
from envkit.judging.checks import _torch
from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if, warning
from envkit.model import Finding, Observed
from envkit.subjects import Audit, Image
from envkit.subjects.image import Library, Search, Shadow, ShadowedBy
from envkit.subjects.imported import ImportState

_OLD = "it was observed by a version that did not look for this"
_SHOWN = 5


def _search(image: Image | Audit) -> Search:
    """What an import finds; raises Skip for a document that is older than the question."""
    skip_if(image.search.is_unsupported, _OLD)
    return image.search.need("the modules on the search path")


def _kind(image: Image | Audit, one: Shadow) -> str:
    """The folder that an import searches too early, in words."""
    folder = posixpath.dirname(one.path)
    return {
        ShadowedBy.SCRIPT: f"in {folder}, the job's own folder",
        ShadowedBy.PYTHONPATH: f"in {folder}, which PYTHONPATH names",
        ShadowedBy.PTH: f"in {folder}, which a .pth file puts first",
        ShadowedBy.USER_SITE: f"in {folder}, the user's own site-packages",
    }.get(one.by, f"in {folder}")


def _release(version: str, path: str) -> str:
    return f"{path} ({version})" if version else path


def _import_fails(image: Image | Audit) -> bool:
    return isinstance(image, Image) and image.import_state is ImportState.RAISED


def image_module_hidden(image: Image | Audit) -> Iterator[Finding]:
    """No file of the job hides a module of the standard library or an installed package."""
    search = _search(image)
    by_place: dict[tuple[str, str], list[Shadow]] = {}
    for one in search.shadows:
        if one.module != "torch":
            by_place.setdefault((posixpath.dirname(one.path), one.hidden_by), []).append(one)
    for shadows in by_place.values():
        first = shadows[0]
        what = "of the standard library" if first.hidden_by is ShadowedBy.STDLIB else "that is installed"
        more = f" and {len(shadows) - _SHOWN} more" if len(shadows) > _SHOWN else ""
        names = ", ".join(one.module for one in shadows[:_SHOWN]) + more
        many = len(shadows) > 1
        breaks = _import_fails(image) or any(one.imported for one in shadows)
        yield (error if breaks else warning)(
            f"{names} {_kind(image, first)}, {'hide the modules' if many else 'hides the module'} {what}: `import "
            f"{first.module}` gives {_release(first.version, first.path)} and not "
            f"{_release(first.hidden_version, first.hidden)}",
            first.path,
            {one.path: f"is found before {one.hidden}" for one in shadows[:10]},
            f"rename {first.path}, or take its folder out of the search path",
        )


def image_torch_hidden(image: Image | Audit) -> Iterator[Finding]:
    """Only one torch lies on the search path, and no other file is called torch."""
    search = _search(image)
    found = [one for one in search.shadows if one.module == "torch"]
    for one in found:
        # A file called torch, or torch's own source, is none that runs; of two installations the first one does.
        whole = bool(one.version) or one.by in (ShadowedBy.SITE, ShadowedBy.USER_SITE)
        yield (warning if whole and not _import_fails(image) else error)(
            f"`import torch` gives {_release(one.version, one.path)} and not "
            f"{_release(one.hidden_version, one.hidden)}: the first is {_kind(image, one)}",
            one.path,
            {one.path: str(one.by), one.hidden: str(one.hidden_by)},
            "remove the one that is not meant" if whole else f"rename {one.path}, or start the job in another folder",
        )


def image_python_dangling(image: Image | Audit) -> Iterator[Finding]:
    """The first Python that PATH names is there."""
    search = _search(image)
    first = {one.target: one for one in reversed(search.dangling)}
    for one in first.values():
        yield error(
            f"{one.path} leads to {one.target}, where nothing is, so that {search.python} runs in its place",
            one.path,
            {one.path: f"a link to {one.target}", search.python: "runs"},
            "make the virtual environment again with a Python that stays in the image (`python -m venv --copies`, "
            "`uv venv`), or copy that Python as well",
        )


# What installers of environments put beside packages without listing it: virtualenv's and uv's own patch of distutils.
_OF_INSTALLERS = re.compile(
    r"_virtualenv\.(pth|py)|_uv_ephemeral_overlay\.pth|__editable__[^/]*\.pth|easy-install\.pth"
)


def image_code_at_start(image: Image | Audit) -> Iterator[Finding]:
    """Every file that Python runs before its program was brought by a package."""
    for one in _search(image).started:
        if not one.owner and not _OF_INSTALLERS.fullmatch(posixpath.basename(one.path)):
            yield note(
                f"every start of {_search(image).python} runs {one.path}, which no package brought",
                one.path,
                {one.path: image.search.via},
                "make sure that it is meant: it can change variables, the search path and what is preloaded",
            )


def _environment(image: Image | Audit) -> dict[str, str]:
    """The values of PEP 508's markers in this image."""
    version = image.python.need("the Python version")
    return {
        **{key: str(value) for key, value in default_environment().items()},
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": image.platform.need("the machine"),
        "python_full_version": version,
        "python_version": ".".join(version.split(".")[:2]),
        "extra": "",
    }


def _needed(image: Image | Audit) -> Iterator[tuple[str, str, Requirement]]:
    """What torch requires of others than NVIDIA, and what that requires: the asking one, the name and the text."""
    environment = _environment(image)
    lines = image.requires.need("what torch's METADATA requires")
    waiting, seen = ["torch"], {"torch"}
    while waiting:
        of = waiting.pop(0)
        for line in lines:
            if line.of != of:
                continue
            try:
                wanted = Requirement(line.text)
            except InvalidRequirement:
                continue
            name = re.sub(r"[-_.]+", "-", wanted.name).lower()
            if name.startswith(("nvidia-", "cuda-", "triton", "pytorch-triton")) and of == "torch":
                if name.startswith(("triton", "pytorch-triton")) and name not in seen:
                    seen.add(name)
                    waiting.append(name)
                continue
            if wanted.marker is not None and not wanted.marker.evaluate(environment):
                continue
            yield f"{of} {line.of_version}", name, wanted
            if name not in seen:
                seen.add(name)
                waiting.append(name)


def _older(version: str, wanted: Requirement) -> bool:
    """Whether a version that does not fit is older than what is asked for rather than newer."""
    floors = [
        Version(one.version.removesuffix(".*")) for one in wanted.specifier if one.operator in ("==", ">=", "~=", ">")
    ]
    return any(Version(version) < floor for floor in floors)


def image_torch_dependency_missing(image: Image | Audit, facts: Facts) -> Iterator[Finding]:
    """Every package that torch requires is there in a version that it takes, and so on for what these require."""
    skip_if(image.modules.is_unsupported, _OLD)
    skip_if(_torch.wheel_of(image, "torch") is None, "no distribution named torch is installed")
    paths = {one.name: one.path for one in image.modules.need("the modules that torch requires")}
    installed: dict[str, list[str]] = {}
    for wheel in image.wheels.need("the installed distributions"):
        installed.setdefault(wheel.name, []).append(wheel.version)
    breaks = {row.package: row for row in facts.dependencies}
    told: set[str] = set()
    asked = False
    for by, name, wanted in _needed(image):
        asked = True
        if name in told:
            continue
        row = breaks.get(name)
        without = f"; {row.needed_by} does not work without it" if row else ""
        source = {f"{name}{wanted.specifier}": f"Requires-Dist of {by}", **({row.needed_by: row.source} if row else {})}
        fix = f"install it: `pip install '{name}{wanted.specifier}'`"
        versions, path = installed.get(name, []), paths.get(name, "")
        if not versions and path:
            told.add(name)
            yield note(
                f"{by} requires {name}{wanted.specifier}, and {path} does not say its version", path, source, fix
            )
        elif not versions or not path:
            told.add(name)
            said = f"{name} {versions[0]} is installed without its files" if versions else "it is not installed"
            yield (error if row else warning)(
                f"{by} requires {name}{wanted.specifier} and {said}{without}", name, source, fix
            )
        elif not any(_fits(version, wanted) for version in versions):
            told.add(name)
            severe = row is not None and _older(versions[0], wanted)
            yield (error if severe else warning)(
                f"{by} requires {name}{wanted.specifier} and {versions[0]} is installed, in {path}",
                path,
                {**source, f"{name}=={versions[0]}": image.wheels.via},
                fix,
            )
    skip_if(not asked, "torch's METADATA asks for no package but NVIDIA's")


def _fits(version: str, wanted: Requirement) -> bool:
    try:
        return wanted.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True  # a package that is numbered in its own way is not compared


def image_file_closed(image: Image | Audit) -> Iterator[Finding]:
    """The user that the image runs as may read every file of torch and CUDA and of what torch needs."""
    skip_if(image.closed.is_unsupported, _OLD)
    found = image.closed.need("the modes of the files")
    for one in found[:_SHOWN]:
        yield error(
            f"{_user(image)} may not {'enter' if one.folder else 'read'} {one.path}: mode {one.mode}, uid {one.uid}"
            + (f"; so it is with {len(found) - 1} more" if one is found[0] and len(found) > _SHOWN else ""),
            one.path,
            {one.path: f"mode {one.mode}, uid {one.uid}, gid {one.gid}"},
            f"chmod -R a+rX {one.path}, or `USER` before the installation in the Dockerfile",
        )


def _user(image: Image | Audit) -> str:
    """The user in words: as the process was, else as the image says."""
    if isinstance(image, Audit):
        return f"the image's user {image.user.value}"
    process = image.process.value
    return f"uid {process.uid}" if process is not None else "the user of the process"


def image_preload_ignored(image: Image | Audit) -> Iterator[Finding]:
    """ld.so loads everything that LD_PRELOAD and /etc/ld.so.preload name."""
    skip_if(image.preloads.is_unsupported, _OLD)
    machine = image.platform.value or ""
    for one in image.preloads.need("what is preloaded"):
        if one.loaded:
            continue
        if not one.found and "/" in one.name:
            why = "it is not there"
        elif one.found and one.machine != machine:
            why = f"it is for {one.machine}" if one.machine else "it is no shared library"
        else:
            why = "no search finds it" if not one.found else "ld.so refused it"
        yield warning(
            f"{one.by} names {one.name}, which is ignored: {why}",
            one.name,
            {one.name: one.by},
            f"correct the path, or take the entry out of {one.by}: every program complains on stderr when it starts",
        )


def image_system_library_changed(image: Image) -> Iterator[Finding]:
    """Debian's libraries of this process hold what their packages brought."""
    skip_if(image.debian.is_unsupported, _OLD)
    for one in image.debian.need("the comparison with Debian's md5sums"):
        yield error(
            f"{one.path} is not what {one.package} brought: its md5 is another one",
            one.path,
            {one.path: f"md5sums of {one.package}"},
            f"apt-get install --reinstall {one.package}",
        )


_WORDS = re.compile(r"[0-9]+")
# libcublas answers for the libcublasLt that it binds; CUPTI counts its interface, and cuFile the toolkit.
_NUMBERED_APART = ("cublas", "cupti", "cufile", "cuda", "nvml")


def image_library_of_other_release(image: Image) -> Iterator[Finding]:
    """A mapped library says the version of the wheel that lists it."""
    judged = False
    mapped: Observed[tuple[Library, ...]] = image.libraries
    for one in mapped.need("the mapped libraries"):
        if one.name in _NUMBERED_APART or not one.version or not one.owner.startswith("nvidia-"):
            continue
        said, listed = _WORDS.findall(one.version), _WORDS.findall(one.owner_version)
        judged = True
        shared = min(len(said), len(listed))
        if said[:shared] != listed[:shared]:
            yield error(
                f"{one.path} says that it is {one.version}, and {one.owner} {one.owner_version} lists it as its own",
                one.path,
                _torch.evidence_of([one]),
                "what the library says is what runs; " + _torch.REINSTALL,
            )
    skip_if(not judged, "no mapped library of a wheel of NVIDIA's says its version")
    unknown_if(image.import_state is not ImportState.DONE, f"import torch {image.torch_import.value}")
