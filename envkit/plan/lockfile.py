"""envkit.lock: everything that goes into an image, by content.

The lock names the base image by digest, each wheel and each Debian package with its exact version and sha256, the
moment of the Debian archive they come from, and the installer; one lock serves the three flavors.  It holds no host
name: a wheel is its file name and its hash, wherever it is fetched from.  Its last lines are a seal: a lock is written
by `envkit lock` alone, so that what it says is what was solved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import structs
from packaging.requirements import Requirement
from packaging.version import Version

from envkit.dockerfile.files import toml
from envkit.errors import UsageError, one_line
from envkit.plan import image_table, indexes
from envkit.plan.image_table import ImageTable, RawImage
from envkit.plan.inputs import admits_python
from envkit.plan.spec import APT, CPU, NAME, Base, Flavor, Platform, Spec
from envkit.records import dataclass
from envkit.system import files
from envkit.versions import Cuda, Driver, Python

FORMAT = 2

FLAVORS = tuple(flavor.value for flavor in Flavor)  # each is built on the one before
TOOLS = "tools"  # a build stage that stays out of the image
LAYERS = (*FLAVORS, TOOLS)


@dataclass(frozen=True, slots=True)
class Pin:
    """One wheel: the distribution's normalised name, its version, the file's name and its sha256 (hex).

    ``size`` is the download in bytes, 0 where the index does not say.  ``layer`` is the first flavor that holds it,
    "tools" for the installer.  ``others`` are (file, sha256) of the same release's wheels for the other platforms.
    """

    name: str
    version: str
    file: str
    sha256: str
    size: int = 0
    layer: str = "runtime"
    others: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Deb:
    """One Debian package that the image gets on top of its base, or that replaces one of the base.

    ``arch`` is Debian's name of the processor, or "all"; ``size`` is the download in bytes; ``layer`` is one of LAYERS.
    """

    name: str
    version: str
    arch: str
    sha256: str
    size: int
    layer: str


@dataclass(frozen=True, slots=True)
class Source:
    """What a wheel of the lock was built from, because no index has one: the distribution's name, the source archive's
    file name, sha256 (hex) and size in bytes, the version of the Python that built it, and what was installed for that,
    as requirement lines with a hash each.

    ``compiled`` is empty for plain Python.  Else the wheel was compiled against the lock's torch, in its devel flavor:
    for these GPUs, as torch's TORCH_CUDA_ARCH_LIST names them, or for none ("cpu"); ``needs`` is then what its METADATA
    requires, for another machine may not have the wheel.
    """

    name: str
    file: str
    sha256: str
    size: int
    python: str
    requires: tuple[str, ...]
    compiled: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Project:
    """The project that images hold as a wheel, which each build of an image makes anew from the files as they are then.

    ``python`` and ``requires`` are as in Source.  ``roots`` are the folders, from the project's own on, from which
    Python imports the same modules as from the wheel, empty where there is none.
    """

    name: str
    python: str
    requires: tuple[str, ...]
    roots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lock:
    """What was chosen and pinned; ``wish`` is what the spec asked for when it was.

    ``cuda`` is None for a build of torch without CUDA, which needs no driver, and whose ``variant`` is "cpu".
    ``cudnn``, ``nccl`` and ``triton`` are empty and ``driver`` is None where the facts do not know them.  ``flavor`` is
    the default target; like ``name`` it is today's spec's.  ``image`` is the reference the Dockerfile starts from,
    ``suite`` the Debian suite that can stand in for it where no registry is reached, ``digest`` the content of the base
    that the Debian packages were solved against, empty if none was seen; ``origin`` says what that is the digest of:
    "registry", a manifest, or "packages", a tree made from them.  ``backend`` names PyTorch's own index ("cuXYZ",
    "cpu") for builds that the default index does not hold.  ``preinstalled`` means that the base brings torch and the
    wheels are what is added to it.  ``epoch`` is the newest upload time among the wheels, in seconds since 1970.
    ``archive`` is the date of the Debian archive that ``debs`` are from (UTC, ISO 8601), empty if the packages are
    locked by name only; ``components`` are the parts of the archive that they need, ``apt`` the names asked for, by
    layer.  ``gpus`` are (name as declared, capability, how the build covers it); ``programs`` (layer, program, path in
    site-packages) of the tools that came as wheels; ``missing`` (tool, why) the tools that no source had.  ``given`` is
    what a stand-in package provides (entries of Debian's Provides) on which ``debs`` were solved, see flavors.py.
    ``guard``, which is today's spec's too, means that payload/guard.py is the entry point of runtime and devel images.
    ``derived`` says that the facts did not have this torch, and what the lock says of it is from its METADATA alone.
    ``wheels`` and ``debs`` are in the order of LAYERS, then by name; ``sources`` are of the wheels that were built.
    ``project`` is the spec's own, None where it is not installed; ``inside`` is today's spec's table [image].
    """

    name: str
    wish: Mapping[str, str | tuple[str, ...]]
    torch: Version
    variant: str
    cuda: Cuda | None
    cudnn: str
    nccl: str
    triton: str
    python: Python
    os: str
    platform: str
    base: str
    flavor: str
    image: str
    suite: str
    digest: str
    origin: str
    backend: str
    preinstalled: bool
    driver: Driver | None
    epoch: int
    archive: str
    components: tuple[str, ...]
    gpus: tuple[tuple[str, str, str], ...]
    apt: Mapping[str, tuple[str, ...]]
    debs: tuple[Deb, ...]
    programs: tuple[tuple[str, str, str], ...]
    missing: tuple[tuple[str, str], ...]
    installer: Pin
    wheels: tuple[Pin, ...]
    given: tuple[str, ...] = ()
    guard: bool = False
    derived: bool = False
    sources: tuple[Source, ...] = ()
    project: Project | None = None
    inside: ImageTable = image_table.NOTHING

    @property
    def requirements(self) -> str:
        """The wheels of all flavors as pip and uv read them, each with its hash."""
        return requirements(self.wheels)

    @property
    def unindexed(self) -> frozenset[str]:
        """The wheels that no index has: those that are built from source and those that the spec names by file or
        address."""
        named = self.wish.get("wheels", ())
        given = {pin.name for pin in self.wheels if f"{pin.file} {pin.sha256}" in named}
        return frozenset(one.name for one in self.sources) | given


def requirements(pins: Iterable[Pin]) -> str:
    """Requirement lines with hashes, in the order given."""
    return "".join(f"{pin.name}=={pin.version} --hash=sha256:{pin.sha256}\n" for pin in pins)


def built_for(lock: Lock) -> str:
    """What a lock's torch computes with, in words."""
    return f"CUDA {lock.cuda}" if lock.cuda else "the CPU"


# What torch's METADATA asks for besides CUDA.  A change of the spec's own packages leaves these layers alone.
TORCH_NEEDS = frozenset(
    ("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "setuptools", "sympy", "typing-extensions")
)


def torch_alone(lock: Lock) -> Lock:
    """The lock's runtime and devel flavors without the packages of the spec: what compiles against its torch."""
    own = {"torch", "triton", *TORCH_NEEDS}
    runtime, devel, _ = FLAVORS
    kept = [
        pin
        for pin in lock.wheels
        if pin.layer == devel or (pin.layer == runtime and (pin.name in own or pin.name.startswith("nvidia-")))
    ]
    return replace(lock, wheels=tuple(kept), sources=(), guard=False, project=None, inside=image_table.NOTHING)


def upto(lock: Lock, flavor: str) -> tuple[tuple[Pin, ...], tuple[Deb, ...]]:
    """The wheels and the Debian packages of an image of ``flavor``: its own and those of the flavors below it."""
    held = FLAVORS[: FLAVORS.index(flavor) + 1]
    return tuple(pin for pin in lock.wheels if pin.layer in held), tuple(deb for deb in lock.debs if deb.layer in held)


def in_order(pins: Iterable[Pin]) -> tuple[Pin, ...]:
    """The wheels as a lock holds them: by layer, then by name."""
    return tuple(sorted(pins, key=lambda pin: (LAYERS.index(pin.layer), pin.name)))


def debs_in_order(debs: Iterable[Deb]) -> tuple[Deb, ...]:
    """The Debian packages as a lock holds them: by layer, then by name."""
    return tuple(sorted(debs, key=lambda deb: (LAYERS.index(deb.layer), deb.name)))


# How firmly.

PARTS = ("os", "base")  # what a lock may leave open, if somebody says so; wheels are always pinned

OPEN, MADE, PINNED = 0, 1, 2


def strength(lock: Lock) -> dict[str, int]:
    """How firmly a lock holds each of PARTS.

    "os", the Debian packages: PINNED with versions and hashes, or where none is asked for; OPEN by name alone.
    "base": PINNED by a registry's digest, which any build takes; MADE by the hash of a tree made from packages, which
    `envkit build` makes again; OPEN by a tag alone.
    """
    named = any(lock.apt.values())
    digest = "@sha256:" in lock.image or (lock.digest and lock.origin == "registry")
    return {
        "os": OPEN if named and not lock.archive else PINNED,
        "base": PINNED if digest else MADE if lock.digest else OPEN,
    }


def unpinned(lock: Lock) -> dict[str, str]:
    """What a lock leaves open, a clause for each such part."""
    held = strength(lock)
    count = sum(map(len, lock.apt.values()))
    said = {
        "os": f"the {count} Debian packages asked for stand in the lock by name alone, and each build takes that day's",
        "base": f"the base {lock.image} stands in the lock by its tag alone, and each build takes what that names then",
    }
    return {part: said[part] for part in PARTS if held[part] == OPEN}


def unverified(lock: Lock) -> str:
    """The clause that says what nobody has verified of a lock, "" where that is nothing."""
    if not lock.derived:
        return ""
    return (
        f"the facts do not have torch {lock.torch}: its CUDA, cuDNN, NCCL, triton and Pythons are those of its "
        "METADATA, and its architectures were not read"
    )


def weaker(lock: Lock, old: Lock) -> tuple[str, ...]:
    """The parts that ``lock`` holds less firmly than ``old`` does, which starts from the same base."""
    if lock.image.partition("@")[0] != old.image.partition("@")[0]:
        return ()
    now, then = strength(lock), strength(old)
    return tuple(part for part in PARTS if now[part] < then[part])


# The spec.


def spec_items(spec: Spec) -> dict[str, str | tuple[str, ...]]:
    """What a spec asks of a lock, whatever its comments, order, name and place; the flavor is no part of it, for one
    lock serves all of them."""
    return {
        "torch": str(spec.torch),
        "cuda": spec.build_wish,
        "python": "auto" if spec.any_python else str(spec.python),
        "os": spec.os,
        "base": spec.base.value,
        "tag": spec.tag,
        "platform": spec.platform.value,
        "packages": tuple(sorted(spec.packages)),
        "apt": tuple(sorted(spec.apt)),
        "gpus": tuple(sorted(spec.gpus)),
        "drivers": tuple(sorted(str(driver) for driver in spec.drivers)),
        # a lock without one of these reads as it did before there were any
        **({"constraints": tuple(sorted(spec.constraints))} if spec.constraints else {}),
        **({"overrides": tuple(sorted(spec.overrides))} if spec.overrides else {}),
        **({"before": spec.before} if spec.before else {}),
        **({"wheels": tuple(sorted(spec.wheels))} if spec.wheels else {}),
        **({"build": tuple(sorted(spec.build))} if spec.build else {}),
        **({"project": spec.package} if spec.package else {}),
        **({"indexes": named} if (named := indexes.digest(spec.index, spec.extra_index)) else {}),
    }


def problems(spec: Spec, lock: Lock) -> list[str]:
    """Where the spec asks for something else than the lock was made for, a sentence each; empty if nowhere."""

    def shown(value: str | tuple[str, ...]) -> str:
        return (", ".join(value) if isinstance(value, tuple) else value) or "none"

    def said(key: str) -> str:
        if key == "indexes":  # of which a hash is kept
            return "the spec names other indexes than the lock was made with"
        now, then = shown(items.get(key, "")), shown(lock.wish.get(key, ""))
        return f"the spec asks for {key} {now}, the lock was made for {then}"

    items = spec_items(spec)
    if spec.requires and not admits_python(spec.requires, str(lock.python)):
        items["python"] = spec.requires
    return [said(key) for key in dict.fromkeys((*items, *lock.wish)) if items.get(key) != lock.wish.get(key)]


# The text.

_TEXTS = (
    "name", "torch", "variant", "cuda", "cudnn", "nccl", "triton", "python", "os", "platform", "base", "flavor",
    "image", "suite", "digest", "origin", "backend", "driver", "archive",
)  # fmt: skip


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a JSON string without DEL is a TOML basic string


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else _quote(text)


def _inline(**values: str | int) -> str:
    pairs = (f"{key} = {_quote(value) if isinstance(value, str) else value}" for key, value in values.items())
    return "{ " + ", ".join(pairs) + " }"


def _texts(values: Iterable[str]) -> str:
    return f"[{', '.join(_quote(value) for value in values)}]"


def _wheel_line(pin: Pin) -> str:
    row = _inline(version=pin.version, size=pin.size, file=pin.file, sha256=pin.sha256)
    return f"{_key(pin.name)} = {row}\n"


def dump(lock: Lock) -> str:
    """The lock as TOML, one line a wheel and a Debian package, and its seal: the same text for the same lock."""
    lines = ["# Written by `envkit lock`.  To change it, change envkit.toml and lock again.\n"]
    lines += [f"# NOT PINNED ({part}): {clause}.\n" for part, clause in unpinned(lock).items()]
    lines += [f"# DERIVED, NOT VERIFIED: {clause}.\n"] if (clause := unverified(lock)) else []
    if strength(lock)["base"] == MADE:
        made = "`envkit build` makes the base of the digest below"
        lines.append(f"# {made}; a plain `docker build` of the Dockerfile takes {lock.image} by its tag.\n")
    lines.append(f"format = {FORMAT}\n")
    texts = {key: str(getattr(lock, key) or "") for key in _TEXTS} | ({} if lock.cuda else {"cuda": CPU})
    lines += [f"{key} = {_quote(text)}\n" for key, text in texts.items()]
    lines.append(f"components = {_texts(lock.components)}\n")
    lines.append(f"given = {_texts(lock.given)}\n")
    lines.append(f"preinstalled = {str(lock.preinstalled).lower()}\n")
    lines.append(f"epoch = {lock.epoch}\n")
    # a lock without one of these reads as it did before there were any
    lines += [f"{key} = true\n" for key in ("guard", "derived") if getattr(lock, key)]
    for title, rows in (
        ("gpus", [_inline(name=name, sm=sm, by=by) for name, sm, by in lock.gpus]),
        ("programs", [_inline(layer=layer, name=name, path=path) for layer, name, path in lock.programs]),
        ("missing", [_inline(name=name, why=why) for name, why in lock.missing]),
    ):
        lines.append(f"{title} = [\n" + "".join(f"  {row},\n" for row in rows) + "]\n")
    lines.append("\n# What the spec asked for.\n[wish]\n")
    for key, value in lock.wish.items():
        lines.append(f"{key} = {_texts(value) if isinstance(value, tuple) else _quote(value)}\n")
    lines.append("\n# The Debian packages asked for, by the layer that needs them; below what they come to.\n[apt]\n")
    lines += [f"{layer} = {_texts(lock.apt[layer])}\n" for layer in LAYERS if layer in lock.apt]
    lines += ["\n[installer]\n", _wheel_line(lock.installer)]
    for layer in FLAVORS:
        pins = [pin for pin in lock.wheels if pin.layer == layer]
        lines += [f"\n[wheels.{layer}]\n", *map(_wheel_line, pins)] if pins else []
    for layer in LAYERS:
        debs = [deb for deb in lock.debs if deb.layer == layer]
        lines += [f"\n[debs.{layer}]\n"] if debs else []
        for deb in debs:
            row = _inline(version=deb.version, arch=deb.arch, size=deb.size, sha256=deb.sha256)
            lines.append(f"{_key(deb.name)} = {row}\n")
    lines += ["\n# What wheels that no index has were built from, and with.\n[sources]\n"] if lock.sources else []
    for one in lock.sources:
        row = _inline(file=one.file, sha256=one.sha256, size=one.size, python=one.python)
        more = f", compiled = {_quote(one.compiled)}, needs = {_texts(one.needs)}" if one.compiled else ""
        lines.append(f"{_key(one.name)} = {row.removesuffix(' }')}, requires = {_texts(one.requires)}{more} }}\n")
    if own := lock.project:
        lines += ["\n# The project itself, of which each build of an image makes a wheel, and with what.\n[project]\n"]
        lines += [f"{key} = {_quote(getattr(own, key))}\n" for key in ("name", "python")]
        lines += [f"{key} = {_texts(getattr(own, key))}\n" for key in ("requires", "roots")]
    if lock.inside != image_table.NOTHING:
        lines += ["\n# What else an image holds, and how its containers start.\n[inside]\n"]
        lines += image_table.lines(lock.inside)
    elsewhere = [pin for pin in lock.wheels if pin.others]
    lines += ["\n# The same releases' wheels for the other platforms.\n[others]\n"] if elsewhere else []
    for pin in elsewhere:
        rows = [_inline(file=file, sha256=digest) for file, digest in pin.others]
        lines.append(f"{_key(pin.name)} = [{', '.join(rows)}]\n")
    return seal("".join(lines) + "\n")


# The values: a lock may come from elsewhere with a seal of its own, and what it says goes into a Dockerfile.


def _like(grammar: str) -> msgspec.Meta:
    return msgspec.Meta(pattern=rf"^(?:{grammar})\Z")


_NUMBERS = r"[0-9]+(?:\.[0-9]+)*"
_Name = Annotated[str, _like(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")]
_Version = Annotated[str, _like(r"[0-9][A-Za-z0-9.!+_-]*")]
_File = Annotated[str, _like(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*\.whl")]
_Sha256 = Annotated[str, _like(r"[0-9a-f]{64}")]
_CAPABILITY = r"[0-9]{1,2}\.[0-9][af]?(?:\+PTX)?"
_Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]  # bytes; no file of an index is near it
_Plain = Annotated[str, _like(r"[A-Za-z0-9 ._+:/~=-]*")]
_Program = Annotated[str, _like(r"[a-z][a-z0-9-]*")]
# Debian Policy 5.6.1, 5.6.12 (an upstream version holds no colon) and 5.6.8; a dash at the end of name=version would
# tell apt-get to remove.
_Deb = Annotated[str, _like(r"[a-z0-9][a-z0-9+.-]+")]
_DebVersion = Annotated[str, _like(r"(?:[0-9]{1,9}:)?[A-Za-z0-9](?:[A-Za-z0-9.+~-]*[A-Za-z0-9.+~])?")]
_DebArch = Annotated[str, _like(r"[a-z0-9]+(?:-[a-z0-9]+)*")]
_Asked = Annotated[str, _like(APT.pattern)]
# shown to a person and compared, never rendered
_Said = Annotated[str, _like(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,400}")]
_PinnedLine = Annotated[
    str, _like(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?==[0-9][A-Za-z0-9.!+_-]* --hash=sha256:[0-9a-f]{64}")
]
_BELOW = r"\.|(?!\.\.?(?:/|\Z))[A-Za-z0-9._+-]+(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9._+-]+)*"  # a folder below another
_InImage = Literal["runtime", "devel", "debug"]
_Layer = Literal["runtime", "devel", "debug", "tools"]


class _Wheel(msgspec.Struct):
    version: _Version
    size: _Size
    file: _File
    sha256: _Sha256


class _Other(msgspec.Struct):
    file: _File
    sha256: _Sha256


class _SourceRow(msgspec.Struct):
    file: Annotated[str, _like(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*\.(?:tar\.gz|zip)")]
    sha256: _Sha256
    size: _Size
    python: Annotated[str, _like(r"3\.[0-9]{1,3}")]
    requires: tuple[_PinnedLine, ...]
    # without the key it was not compiled
    compiled: Annotated[str, _like(rf"cpu|{_CAPABILITY}(?:;{_CAPABILITY})*")] = ""
    needs: tuple[_Said, ...] = ()


class _ProjectRow(msgspec.Struct):
    name: _Name
    python: Annotated[str, _like(r"3\.[0-9]{1,3}")]
    requires: tuple[_PinnedLine, ...]
    roots: tuple[Annotated[str, _like(_BELOW)], ...]


class _DebRow(msgspec.Struct):
    version: _DebVersion
    arch: _DebArch
    size: _Size
    sha256: _Sha256


class _Gpu(msgspec.Struct):
    name: _Plain
    sm: Annotated[str, _like(r"sm_[0-9]{2,3}[af]?")]
    by: _Plain


class _Tool(msgspec.Struct):
    layer: _Layer
    name: _Program
    path: Annotated[  # never up, never absolute
        str, _like(r"(?:(?!\.)[A-Za-z0-9._+-]+(?:/(?!\.)[A-Za-z0-9._+-]+)*)?")
    ]


class _Missing(msgspec.Struct):
    name: _Program
    why: Annotated[str, _like(r"[A-Za-z0-9 ,;._+:/()'`~=-]*")]  # for a comment or a quoted label, and for no shell


class _Wish(msgspec.Struct):
    torch: _Said
    cuda: _Said
    python: _Said
    os: _Said
    base: _Said
    tag: _Said
    platform: _Said
    packages: tuple[_Said, ...]
    apt: tuple[_Said, ...]
    gpus: tuple[_Said, ...]
    drivers: tuple[_Said, ...]
    constraints: tuple[_Said, ...] | msgspec.UnsetType = msgspec.UNSET
    overrides: tuple[_Said, ...] | msgspec.UnsetType = msgspec.UNSET
    before: _Said | msgspec.UnsetType = msgspec.UNSET
    wheels: tuple[_Said, ...] | msgspec.UnsetType = msgspec.UNSET
    build: tuple[_Said, ...] | msgspec.UnsetType = msgspec.UNSET
    project: tuple[_Said, ...] | msgspec.UnsetType = msgspec.UNSET
    indexes: _Said | msgspec.UnsetType = msgspec.UNSET


class _Written(msgspec.Struct, kw_only=True):
    """A lock as its file has it; a key that it does not have is of a later envkit and says nothing here."""

    format: int
    name: Annotated[str, _like(NAME.pattern)]  # of an image and its volumes: one with "/" in front would be a folder
    torch: _Version
    variant: _Plain
    cuda: Annotated[str, _like(f"{_NUMBERS}|{CPU}")]
    cudnn: _Plain
    nccl: _Plain
    triton: _Plain
    python: Annotated[str, _like(r"3\.[0-9]{1,3}")]
    os: _Plain
    platform: Platform
    base: Base
    flavor: Flavor
    image: Annotated[str, _like(r"[a-z0-9][a-z0-9._/:-]*(?::[A-Za-z0-9._-]+)?(?:@sha256:[0-9a-f]{64})?")]
    suite: Annotated[str, _like(r"[a-z]*")]
    digest: Annotated[str, _like(r"(?:sha256:[0-9a-f]{64})?")]
    origin: Literal["", "packages", "registry"]
    backend: Annotated[str, _like(r"(?:cu[0-9]+|cpu)?")]
    driver: Annotated[str, _like(f"(?:{_NUMBERS})?")]
    archive: Annotated[str, _like(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?")]
    preinstalled: bool
    epoch: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]  # what a zip, a gzip header and 32-bit tools can all hold
    components: tuple[Annotated[str, _like(r"[a-z]+(?:-[a-z]+)*")], ...]
    # Debian Policy 7.5: a name, or one with the version it stands for.
    given: tuple[Annotated[str, _like(r"[a-z0-9][a-z0-9+.-]+(?: \(= [A-Za-z0-9.+:~-]+\))?")], ...]
    gpus: tuple[_Gpu, ...]
    apt: dict[_Layer, tuple[_Asked, ...]]
    programs: tuple[_Tool, ...]
    missing: tuple[_Missing, ...]
    installer: Annotated[dict[_Name, _Wheel], msgspec.Meta(min_length=1, max_length=1)]
    wish: _Wish
    wheels: dict[_InImage, dict[_Name, _Wheel]] = {}
    debs: dict[_Layer, dict[_Deb, _DebRow]] = {}
    others: dict[_Name, tuple[_Other, ...]] = {}
    guard: bool = False
    derived: bool = False
    sources: dict[_Name, _SourceRow] = {}
    project: _ProjectRow | None = None
    inside: RawImage = RawImage()


# The reading.

# of what msgspec says: a pattern that tells a person nothing, and the place, which comes first here
_FORM = re.compile(r" matching regex '.*'\Z")
_PLACE = re.compile(r"(.*) - at `\$\.(.*)`", re.DOTALL)


def parse(text: str, where: str) -> Lock:
    """The lock in ``text``; raises UsageError naming ``where`` if it is not one of this format, or if it was edited
    after it was written."""
    text = text.replace("\r\n", "\n")  # git may have been told to write a text file so
    try:
        table = toml(text)
    except (ValueError, RecursionError) as error:  # the two others: a number or a nesting past what Python reads
        _unbroken(text, where)
        raise UsageError(f"{where} is not TOML: {one_line(str(error))}", "write it again with `envkit lock`") from error
    if "seal" not in table and table.get("format", FORMAT) != FORMAT:
        found = one_line(repr(table["format"]))
        raise UsageError(f"{where} has format {found}, not {FORMAT}", "write it again with `envkit lock`")
    _unbroken(text, where)
    try:
        written = msgspec.convert(table, _Written)
        if written.format != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        return _lock(written)
    except (msgspec.ValidationError, ValueError) as error:
        why = _FORM.sub(" as envkit writes it", _PLACE.sub(r"`\2`: \1", str(error)))
        raise UsageError(
            f"{where} is not an envkit lock: {one_line(why)}", "write it again with `envkit lock`"
        ) from error


_TYPES: Mapping[str, Callable[[str], Any]] = {
    "torch": Version,
    "cuda": lambda text: None if text == CPU else Cuda(text),
    "python": Python,
}


def _lock(written: _Written) -> Lock:
    others = {name: tuple((one.file, one.sha256) for one in rows) for name, rows in written.others.items()}
    wheels = [_pin(*row, layer, others) for layer, rows in written.wheels.items() for row in rows.items()]
    held = {pin.name for pin in wheels}
    if len(held) != len(wheels):
        raise ValueError("a wheel stands in two layers")
    if stray := sorted(set(others) - held):
        raise ValueError(f"others has {stray[0]!r}, which is no wheel of it")
    if stray := sorted(set(written.sources) - held):
        raise ValueError(f"sources has {stray[0]!r}, which is no wheel of it")
    if written.archive:
        datetime.fromisoformat(written.archive)  # raises ValueError for a day that no calendar has
    (installer,) = written.installer.items()
    debs = [
        Deb(name, row.version, row.arch, row.sha256, row.size, layer)
        for layer, rows in written.debs.items()
        for name, row in rows.items()
    ]
    return Lock(
        **{key: _TYPES.get(key, str)(getattr(written, key)) for key in _TEXTS if key != "driver"},
        driver=Driver(written.driver) if written.driver else None,
        wish={key: value for key, value in structs.asdict(written.wish).items() if value is not msgspec.UNSET},
        preinstalled=written.preinstalled,
        epoch=written.epoch,
        components=written.components,
        given=written.given,
        gpus=tuple(map(structs.astuple, written.gpus)),
        apt={layer: written.apt[layer] for layer in LAYERS if layer in written.apt},
        debs=debs_in_order(debs),
        programs=tuple(map(structs.astuple, written.programs)),
        missing=tuple(map(structs.astuple, written.missing)),
        installer=_pin(*installer, TOOLS, {}),
        wheels=in_order(wheels),
        guard=written.guard,
        derived=written.derived,
        sources=tuple(map(_source, written.sources.items())),
        project=Project(*structs.astuple(written.project)) if written.project else None,
        inside=_inside(written.inside),
    )


def _inside(row: RawImage) -> ImageTable:
    try:
        return image_table.read(row)
    except UsageError as error:
        raise ValueError(error.message) from error


def _source(item: tuple[str, _SourceRow]) -> Source:
    name, row = item
    for text in row.needs:
        Requirement(text)  # raises a ValueError
    return Source(name, *structs.astuple(row))


def _pin(name: str, row: _Wheel, layer: str, others: Mapping[str, tuple[tuple[str, str], ...]]) -> Pin:
    return Pin(name, row.version, row.file, row.sha256, row.size, layer, others.get(name, ()))


# The seal.

_SHORT = 4  # hex digits a line: one edit in 65536 is named a line late, and refused all the same
_A_ROW = 20


def _digests(lines: Iterable[str]) -> list[str]:
    """For each line the sha256 of the text up to its end."""
    running, found = sha256(), []
    for line in lines:
        running.update(line.encode("utf-8", "surrogatepass") + b"\n")
        found.append(running.hexdigest())
    return found


def _sealed(body: Sequence[str]) -> list[str]:
    """The lines ``body`` and their seal."""
    digests = _digests(body)
    links = [digest[:_SHORT] for digest in digests]
    rows = [f'  "{" ".join(links[start : start + _A_ROW])}",' for start in range(0, len(links), _A_ROW)]
    whole = digests[-1] if digests else sha256().hexdigest()
    return [*body, "# The text above as it was written: all of it, and up to each line.", "[seal]",
            f'sha256 = "{whole}"', "lines = [", *rows, "]"]  # fmt: skip


def seal(body: str) -> str:
    """The text ``body`` with its seal below it."""
    return "".join(line + "\n" for line in _sealed(body.removesuffix("\n").split("\n")))


def _unbroken(text: str, where: str) -> None:
    """Raises UsageError with the number of the first line of ``text`` that is not as it was written."""
    lines = text.removesuffix("\n").split("\n")
    wholes = {found[1] for line in lines if (found := re.fullmatch(r'sha256 = "([0-9a-f]{64})"', line))}
    rows = [line for line in lines if re.fullmatch(r'  "[0-9a-f]{4}(?: [0-9a-f]{4})*",', line)]
    links = [link for row in rows for link in row[3:-2].split()]
    if not wholes and not links:
        raise UsageError(f"{where} has no checksum at its end, as every lock must", "write it again with `envkit lock`")
    digests = _digests(lines)
    body = next((number for number, digest in enumerate(digests, 1) if digest in wholes), 0)
    number = 0 if body else _first(links, [digest[:_SHORT] for digest in digests[: len(links)]])
    if not number:  # the text is whole; is its seal?
        sealed = _sealed(lines[: body or len(links)])
        number = _first(sealed, lines)
    if number:
        raise UsageError(f"{where} was edited by hand at line {number}", "write it again with `envkit lock`")


def _first(sealed: Sequence[str], now: Sequence[str]) -> int:
    """The number of the first of two texts' lines that differ, 0 if none does."""
    if sealed == now:
        return 0
    pairs = enumerate(zip(sealed, now, strict=False), 1)
    return next((number for number, (one, other) in pairs if one != other), min(len(sealed), len(now)) + 1)


# The file.


def path_of(spec: Spec) -> Path:
    """Where the lock of a spec lies: beside it."""
    return spec.path.with_name("envkit.lock")


def save(lock: Lock, path: Path) -> None:
    """Writes the lock whole or not at all."""
    files.write(files.beside(path.parent, path.name), dump(lock))


def read(spec: Spec) -> Lock | None:
    """The lock beside ``spec`` whatever it was made for, with the spec's name, flavor, guard and image; None if none.

    Raises UsageError for a lock that cannot be read.
    """
    path = path_of(spec)
    try:
        text = files.text(path, "check the file and its permissions", files.MOST_BYTES)
    except UsageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    found = parse(text, str(path))
    return replace(found, name=spec.name, flavor=spec.flavor.value, guard=spec.guard, inside=spec.image)


def load(spec: Spec) -> Lock | None:
    """The lock beside ``spec`` if it answers this very spec, None if there is none or the spec has changed.

    Raises UsageError for a lock that cannot be read.
    """
    found = read(spec)
    return found if found is not None and not problems(spec, found) else None
