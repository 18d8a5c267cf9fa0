"""envkit.toml to a Spec: parsed once, checked once, and never trusted again as text.

Every value that can reach a template or a command line is held to a grammar here, so that nothing a spec says can
become an instruction of a Dockerfile or a flag of a program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envkit.dockerfile.files import toml
from envkit.errors import UsageError, nearest, one_line
from envkit.plan import given, image_table, indexes, inputs, package
from envkit.plan.given import GivenWheel
from envkit.plan.image_table import ImageTable, RawImage
from envkit.plan.inputs import Asked
from envkit.records import dataclass
from envkit.system import files
from envkit.system.typed_toml import fit
from envkit.versions import Cuda, Driver, Python, Torch

Kind = TypeVar("Kind", bound=StrEnum)

# One component of a repository name (OCI distribution specification): its separators never stand side by side.
NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*\Z")
# Debian Policy 5.6.1 for the name, 5.6.12 for a version behind "="; a dash at the end would tell apt-get to remove.
APT = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.](?:=[A-Za-z0-9.+:~-]*[A-Za-z0-9.+:~])?\Z")
ANY_PYTHON = Python(inputs.ANY)
_TAG = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,127})?\Z")
PROJECT = "pyproject.toml"
CPU = "cpu"  # the value of `cuda` for a build without it
_LONGEST = 200  # characters of one value; the longest requirements with markers are half of it
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}\Z")
_EXTRA = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?\Z")


class Base(StrEnum):
    """Where the operating system and CUDA come from."""

    WHEELS = "wheels"
    NVIDIA = "nvidia"
    PYTORCH = "pytorch"
    NGC = "ngc"


class Flavor(StrEnum):
    """What the image is for: running, building extensions, or finding faults."""

    RUNTIME = "runtime"
    DEVEL = "devel"
    DEBUG = "debug"


class Platform(StrEnum):
    """The platforms for which torch publishes CUDA wheels."""

    AMD64 = "linux/amd64"
    ARM64 = "linux/arm64"

    @property
    def machine(self) -> str:
        """The platform as uname and wheel tags name it."""
        return {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}[self.value]


class TorchWish:
    """The releases of torch that a person asks for: one ("X.Y.Z", "==X.Y.Z"), all that begin alike ("X.Y", "==X.Y"), or
    a specifier's.

    Raises ValueError for a text that is none of these.
    """

    __slots__ = ("_beginning", "_range", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        plain = re.fullmatch(r"(?:== *)?([0-9]+(?:\.[0-9]+)*)", text)
        self._beginning = Torch(plain[1]) if plain else None
        if not text or "===" in text:  # === compares text, not versions
            raise ValueError(f"`{text}` is not a release or a range")
        # its error is a ValueError, and a bare number has at most three parts
        self._range = None if re.fullmatch(r"[0-9]+(\.[0-9]+){0,2}", text) else SpecifierSet(text)

    def admits(self, release: Torch) -> bool:
        """Whether this release is one of them."""
        if self._beginning is not None:
            return release.upto(len(self._beginning.parts)) == self._beginning
        return self._range is not None and self._range.contains(str(release))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TorchWish) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Spec:
    """What a person wrote.

    ``cuda`` None means the newest that fits, or with ``cpu`` a build without CUDA; ``gpus`` are product names or
    capabilities as typed; ``packages`` are PEP 508 requirements by name; ``drivers`` are all those of the fleet,
    releases or bare branches.  ``guard``: the image looks whether its GPUs work before it runs its command.
    ``requirements`` are files, and ``project`` a folder with ``extras`` and ``groups``, which `load` reads and adds to
    ``packages``, ``constraints`` (which hold for all that is taken), ``overrides`` (in place of what packages ask for)
    and ``before`` (the day, ISO 8601, from which on releases do not count).  ``index`` and ``extra_index`` are
    addresses without credentials, see `indexes`.  ``any_python`` says that `resolve.settled` chooses ``python``, which
    is ANY_PYTHON until then, within ``requires``, the specifier of the project.  ``given`` are wheels named by file or
    address, which stand in ``packages`` too, and ``wheels`` what a lock says of them.  ``build`` are releases
    ("name==version", the name normalised) that are compiled from their source; they stand in ``packages`` too.
    ``package`` is the project itself, where it is installed: its name, then what building it requires.  ``image`` is
    what else of the project an image holds, and how its containers start.
    """

    path: Path
    name: str
    torch: TorchWish
    cuda: Cuda | None
    python: Python
    os: str
    base: Base
    flavor: Flavor
    platform: Platform
    packages: tuple[str, ...]
    apt: tuple[str, ...]
    gpus: tuple[str, ...]
    drivers: tuple[Driver, ...]
    tag: str = ""
    guard: bool = False
    requirements: tuple[str, ...] = ()
    project: str = ""
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    before: str = ""
    index: str = ""
    extra_index: tuple[str, ...] = ()
    any_python: bool = False
    requires: str = ""
    given: tuple[GivenWheel, ...] = ()
    wheels: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    cpu: bool = False
    package: tuple[str, ...] = ()
    image: ImageTable = image_table.NOTHING

    @property
    def build_wish(self) -> str:
        """The key `cuda` as a person writes it."""
        return CPU if self.cpu else str(self.cuda or "auto")

    @property
    def names_files(self) -> bool:
        """Whether `gathered` has files to read."""
        listed = (*self.constraints, *self.overrides)
        paths = any(not wheel.remote for wheel in self.given)
        return bool(paths or self.requirements or self.project or any(entry.endswith(inputs.FILES) for entry in listed))

    @property
    def driver(self) -> Driver | None:
        """The oldest driver of the fleet by number, None where none is declared."""
        return min(self.drivers, default=None)


class RawSpec(msgspec.Struct, kw_only=True, rename="kebab"):
    """The spec as a person writes it: its keys and their kinds."""

    name: str | None = None
    torch: str
    cuda: str = "auto"
    python: str
    os: str = "auto"
    base: str = Base.WHEELS.value
    tag: str = ""
    flavor: str = Flavor.RUNTIME.value
    platform: str = Platform.AMD64.value
    packages: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    project: str = ""
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    exclude_newer: str = ""
    index: str = ""
    extra_index: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    driver: str | tuple[str, ...] = ""
    guard: bool = False
    image: RawImage = RawImage()


def load(path: Path) -> Spec:
    """The spec in the file ``path``, or in the directory ``path``: its envkit.toml, or else [tool.envkit] of its
    pyproject.toml; with what the files that it names ask for.

    Raises UsageError for a missing file, broken TOML, an unknown key or a value outside its grammar, in any of them.
    """
    if os.path.isdir(path):  # unlike Path.is_dir, no error for a name that no file can have
        folder = path
        path = folder / "envkit.toml"
        if not os.path.lexists(path) and _in_project(folder / PROJECT):
            path = folder / PROJECT
    try:
        text = files.text(path, "check the file and its permissions")
    except UsageError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise UsageError(
            f"there is no spec at {path}", "name an envkit.toml, or write one with `envkit init`"
        ) from None
    return gathered(parse(text, path))


def _in_project(path: Path) -> bool:
    """Whether a pyproject.toml has the table that is a spec."""
    try:
        return "envkit" in toml(path.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError, RecursionError, AttributeError):
        return False


def _of_pyproject(table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The spec in [tool.envkit]; the project beside it is the spec's, unless it says otherwise."""
    tool = table.get("tool", {})
    held = tool.get("envkit") if isinstance(tool, dict) else None
    if not isinstance(held, dict):
        raise UsageError(f"{path} has no table [tool.envkit]", "write it there, or name an envkit.toml")
    own = {"project": "."} if isinstance(table.get("project"), dict) else {}
    return {**own, **held}


def gathered(spec: Spec) -> Spec:
    """The spec with what its requirements files and its project ask for, as they are now."""
    folder, target = spec.path.parent, (str(spec.python), spec.platform.machine)
    asked, named = Asked(), {wheel.name for wheel in spec.given}
    for name in spec.requirements:
        asked += inputs.of_file(folder / name, *target)
    if spec.project:
        asked += inputs.of_project(folder / spec.project, spec.extras, spec.groups, *target, named)
        spec = replace(spec, package=package.of(folder / spec.project))
    overrides = inputs.bounds(spec.overrides, "overrides", folder, *target) + asked.overrides
    if any(canonicalize_name(Requirement(text).name) == "torch" for text in overrides):
        raise UsageError("`overrides` holds torch", "say it by the key `torch`")
    wheels = tuple(dict.fromkeys((*(given.hashed(wheel, folder) for wheel in spec.given), *asked.given)))
    names = [*(wheel.name for wheel in wheels), *(text.partition("==")[0] for text in spec.build)]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UsageError(f"{twice} is given twice, as a wheel or by `build`", "name it in one place")
    return replace(
        spec,
        given=wheels,
        wheels=tuple(wheel.said for wheel in wheels),
        index=spec.index or asked.index,
        extra_index=tuple(dict.fromkeys(spec.extra_index + asked.extra_index)),
        packages=tuple(dict.fromkeys(spec.packages + asked.packages)),
        constraints=inputs.bounds(spec.constraints, "constraints", folder, *target) + asked.constraints,
        overrides=overrides,
        before=spec.before or (asked.before and _day("exclude-newer", asked.before)),
        requires=asked.python if spec.any_python else "",
    )


_REQUIRED = {
    "torch": '`torch = "..."` with a release, or with a range (>=..., <...) of which the newest that fits is taken',
    "python": '`python = "auto"` for the newest that torch and the packages have wheels for, or with a version',
}


def parse(text: str, path: Path) -> Spec:
    """The spec in ``text``; ``path`` names it in messages and gives its default name."""
    try:
        table = toml(text)
    except (ValueError, RecursionError) as error:  # the two others: a number or a nesting past what Python reads
        raise UsageError(f"{path} is not TOML: {one_line(str(error))}", "fix the line named above") from error
    if path.name == PROJECT:
        table = _of_pyproject(table, path)
    # [check] are the settings of `envkit check`, which reads and checks them itself.
    table = {key: value for key, value in table.items() if key != "check"}
    for key, line in _REQUIRED.items():
        if key not in table:
            raise UsageError(f"{path} has no `{key}`", f"add a line {line}")
    written = fit(table, RawSpec, str(path))
    name = _default_name(path) if written.name is None else written.name
    read = {item: given.read(item, "packages") for item in written.packages}
    wheels = tuple(wheel for wheel in read.values() if wheel)
    build = _compiled(written, {wheel.name for wheel in wheels})
    return Spec(
        path=path,
        name=_word("name", name, NAME, "lower-case letters, digits, dots and dashes"),
        torch=_torch(_plain("torch", written.torch)),
        cuda=_cuda(_plain("cuda", written.cuda)),
        cpu=_cpu(written),
        python=ANY_PYTHON if written.python == "auto" else _python(_plain("python", written.python)),
        any_python=written.python == "auto",
        os=_word("os", written.os, _PLAIN, "a name like debian12, or auto"),
        base=_choice("base", written.base, Base),
        flavor=_choice("flavor", written.flavor, Flavor),
        platform=_choice("platform", written.platform, Platform),
        packages=tuple(
            wheel.requirement if wheel else inputs.requirement(_plain("packages", item), "`packages`")
            for item, wheel in read.items()
        )
        + build,
        build=build,
        given=wheels,
        wheels=tuple(wheel.said for wheel in wheels if wheel.sha256),
        requirements=tuple(_plain("requirements", item) for item in written.requirements),
        project=_plain("project", written.project),
        extras=_of_project(written, "extras", written.extras),
        groups=_of_project(written, "groups", written.groups),
        constraints=tuple(_plain("constraints", item) for item in written.constraints),
        overrides=tuple(_plain("overrides", item) for item in written.overrides),
        before=_day("exclude-newer", _plain("exclude-newer", written.exclude_newer)) if written.exclude_newer else "",
        index=indexes.address("index", written.index) if written.index else "",
        extra_index=tuple(indexes.address("extra-index", item) for item in written.extra_index),
        apt=tuple(_apt(_plain("apt", item)) for item in written.apt),
        gpus=tuple(_gpu(_plain("gpus", item)) for item in written.gpus),
        drivers=_drivers(written.driver),
        tag=_word("tag", written.tag, _TAG, "a tag of the base image"),
        guard=_guard(written),
        image=image_table.read(written.image),
    )


def _compiled(written: RawSpec, given: set[str]) -> tuple[str, ...]:
    """The releases that are to be compiled, each once, and none of which there is a ``given`` wheel; only where the
    lock pins the torch and says for which GPUs."""
    found: dict[str, str] = {}
    for item in written.build:
        text = inputs.requirement(_plain("build", item), "`build`")
        one = Requirement(text)
        exact = [bound.version for bound in one.specifier if bound.operator == "==" and "*" not in bound.version]
        name = canonicalize_name(one.name)
        if len(exact) != len(one.specifier) or len(exact) != 1 or one.extras or one.marker:
            raise UsageError(f"`build` holds `{text}`, which is not one release", "write name==version alone")
        if name == "torch":
            raise UsageError("`build` holds torch", "only the key `torch` selects it, and its wheel")
        if name in given:
            raise UsageError(
                f"`build` has {name} compiled, and `packages` names a wheel of it", "leave one of them out"
            )
        if found.setdefault(name, exact[0]) != exact[0]:
            raise UsageError(f"`build` holds two releases of {name}", "leave one of them out")
    if found and written.base != Base.WHEELS:
        raise UsageError("`build` compiles against a torch that the lock pins", 'set base = "wheels"')
    if found and not written.gpus and written.cuda.strip() != CPU:
        said = "`build` compiles for the GPUs that the spec names, and `gpus` names none"
        raise UsageError(said, 'name them, for example gpus = ["A100", "H100"]')
    return tuple(f"{name}=={version}" for name, version in found.items())


def _guard(written: RawSpec) -> bool:
    """Whether the image gets a guard; only where its entry point and its Python are envkit's own to choose."""
    if written.guard and written.base != Base.WHEELS:
        raise UsageError("`guard` is true, but the base has an entry point of its own", 'set base = "wheels"')
    if written.guard and written.flavor == Flavor.DEBUG:
        raise UsageError("`guard` is true, but a debug image has no guard", "set another `flavor`, or guard = false")
    return written.guard


def _default_name(path: Path) -> str:
    def joined(found: re.Match[str]) -> str:
        return found[0] if found[0] in (".", "_", "-") else "-"

    raw = re.sub(r"[^a-z0-9]+", joined, Path(os.path.realpath(path)).parent.name.lower())
    return raw[:64].strip("._-") or "image"


def _plain(key: str, text: str) -> str:
    """The text without blanks around it; refuses what no value needs and what could begin a line of its own."""
    text = text.strip()
    if len(text) > _LONGEST or not text.isprintable():
        raise UsageError(f"`{key}` holds `{one_line(text)}`", f"at most {_LONGEST} printable characters, in one line")
    return text


def _word(key: str, text: str, grammar: re.Pattern[str], expected: str) -> str:
    value = _plain(key, text)
    if not grammar.match(value):
        raise UsageError(f"`{key}` is `{value}`; expected {expected}", f"change `{key}`")
    return value


def _choice(key: str, text: str, kind: type[Kind]) -> Kind:
    value = _plain(key, text)
    known = [member.value for member in kind]
    if value not in known:
        raise UsageError(f"`{key}` is `{value}`{nearest(value, known)}", f"one of: {', '.join(known)}")
    return kind(value)


def _torch(text: str) -> TorchWish:
    if "+" in text:
        raise UsageError(
            f"`torch` is `{text}`; the build is chosen by `cuda`", "drop what follows the + and set `cuda`"
        )
    try:
        return TorchWish(text)
    except ValueError as error:
        raise UsageError(
            f"`torch` is `{text}`, which is not a release or a range", "write a release or a range"
        ) from error


def _cuda(text: str) -> Cuda | None:
    if text in ("auto", CPU):
        return None
    try:
        version = Cuda(text)
    except ValueError:
        version = Cuda("0")
    if len(version.parts) not in (2, 3):
        raise UsageError(f"`cuda` is `{text}`", '`cuda` is "auto", "cpu", or a version of two or three numbers')
    return version


def _cpu(written: RawSpec) -> bool:
    """Whether torch is to be a build without CUDA; refuses the keys that then contradict it."""
    if written.cuda.strip() != CPU:
        return False
    meant = "a build of torch without CUDA"
    for key, value in (("gpus", written.gpus), ("driver", written.driver), ("guard", written.guard)):
        if value:
            raise UsageError(f"`cuda` is `{CPU}`, {meant}, and `{key}` is about GPUs", f"drop `{key}`, or `cuda`")
    if written.base != Base.WHEELS:
        said = f"`cuda` is `{CPU}`, {meant}, and the images of base `{one_line(written.base)}` hold CUDA"
        raise UsageError(said, 'set base = "wheels", or drop `cuda`')
    return True


def _python(text: str) -> Python:
    try:
        version = Python(text)
    except ValueError:
        version = Python("0")
    if version.major != 3 or not re.fullmatch(r"3\.(0|[1-9][0-9]{0,2})", text):
        raise UsageError(f"`python` is `{text}`", 'write the major and minor version, as in "3.11", or "auto"')
    return version


def _drivers(written: str | tuple[str, ...]) -> tuple[Driver, ...]:
    """One driver as text or several as a list, each once; an empty text is none."""
    if isinstance(written, str):
        text = _plain("driver", written)
        return (_driver(text),) if text else ()
    return tuple(dict.fromkeys(_driver(_plain("driver", item)) for item in written))


def _driver(text: str) -> Driver:
    try:
        return Driver(text)
    except ValueError:
        raise UsageError(
            f"`driver` is `{text}`", "write the driver's number or branch as nvidia-smi shows it"
        ) from None


def _of_project(written: RawSpec, key: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of extras or groups, which only a project has."""
    if names and not written.project:
        raise UsageError(f"`{key}` without `project` names nothing", 'add project = "."')
    return tuple(_word(key, name, _EXTRA, "a name of the project's") for name in names)


def _day(key: str, text: str) -> str:
    try:
        return date.fromisoformat(text[:10]).isoformat()
    except ValueError:
        raise UsageError(f"`{key}` is `{one_line(text)}`, which is no day", "write a day as YYYY-MM-DD") from None


def _apt(text: str) -> str:
    if not APT.match(text):
        raise UsageError(f"`apt` holds `{text}`, which is not a Debian package name", "write name or name=version")
    return text


def _gpu(text: str) -> str:
    if not _PLAIN.match(text):
        raise UsageError(f"`gpus` holds `{text}`", 'write a product name ("RTX 4090") or a capability ("sm_90")')
    return text
