"""What each flavor of an image holds beside torch: runtime, on it devel, on it debug.

Pure: reads the rows of the tools and touches nothing.  Which package brings a tool of CUDA is a row; which of several
rows fits a build is a rule here, with its source.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping

from packaging.version import Version

from envkit.facts import CudaRow, Facts, OsRow, ToolRow
from envkit.plan.spec import Base, Flavor, Platform, Spec
from envkit.records import dataclass
from envkit.versions import Cuda

# What torch.compile, Triton and AOTInductor call at run time: Inductor's code is C++, Triton builds a launcher in C
# against Python's headers; without them both die in the image (pytorch issues 116696 and 170235).  g++ brings gcc, and
# by way of the headers of its own library those of the C library.  ptxas comes within Triton's wheel.
RUNTIME = ("ca-certificates", "g++", "libpython3-dev", "python3")
# On a base that brings torch and its Python only the compiler can be missing.
_RUNTIME_PREINSTALLED = ("g++",)
# CMake and Ninja from the distribution, which share what they need (libcurl and its kind) with git and gdb.
_DEVEL = ("cmake", "git", "make", "ninja-build")
_DEBUG = ("gdb", "openssh-server", "procps", "strace")
_DEBUG_WHEELS = ("jupyterlab", "py-spy")
# The stage that makes the other layers; envkit brings its own installer, pip is for builds without it.
_TOOLS = ("binutils", "python3-venv")

# NVIDIA's tools, by the layer that holds them, in the order they are looked for.
_DEVEL_TOOLS = ("nvcc",)
_DEBUG_TOOLS = ("compute-sanitizer", "cuda-gdb", "cuobjdump", "nvdisasm", "nsys", "ncu", "cuda-memcheck")
# Of these, what must be of the very CUDA minor of the build: a newer nvcc makes PTX that the build's driver does not
# take, and an older one does not compile the build's headers (NVIDIA, CUDA compatibility; nvcc's own check of them).
_EXACT = ("nvcc", "cuda-headers")
# Packages that hold nothing for a person who wants a CUDA tool, only what nvcc needs of the wheels under Debian's name.
_HEADERS = "cuda-headers"

STAND_IN = "envkit-given"


@dataclass(frozen=True, slots=True)
class Extras:
    """What each flavor needs besides torch and the spec's own packages.

    ``apt`` is layer ("runtime", "devel", "debug", "tools") to names of Debian packages, the spec's own in "runtime";
    ``wheels`` is layer ("devel", "debug") to requirements; ``programs`` are (layer, name, path in site-packages) of
    programs to be put on PATH; ``components`` are those of the Debian archive that the names need; ``missing`` is
    (tool, why) of what this CUDA and system have from no source.  ``given`` are entries of Debian's Provides that a
    stand-in package must have before "devel" is solved or installed, see ``stand_in``.
    """

    apt: Mapping[str, tuple[str, ...]]
    wheels: Mapping[str, tuple[str, ...]]
    programs: tuple[tuple[str, str, str], ...]
    components: tuple[str, ...]
    missing: tuple[tuple[str, str], ...]
    given: tuple[str, ...] = ()


def stand_in(given: tuple[str, ...]) -> str:
    """A paragraph of dpkg's status file for an empty package that provides ``given``; empty for nothing given.

    Debian's CUDA packages depend on a driver, which belongs to the host and would clash with the host's in the image,
    and on a second copy of every CUDA library, which the wheels bring.  The paragraph, after the base's own status,
    keeps both out: of what apt solves, and of what it installs.
    """
    if not given:
        return ""
    return (
        f"Package: {STAND_IN}\n"
        "Status: install ok installed\n"
        "Maintainer: envkit\n"
        "Architecture: all\n"
        "Version: 1\n"
        f"Provides: {', '.join(given)}\n"
        "Description: what the wheels and the host's driver bring in place of Debian packages\n\n"
    )


@functools.lru_cache(maxsize=32)  # of one spec the same is asked for several times
def extras(spec: Spec, facts: Facts, os: OsRow, cuda: Cuda | None, preinstalled: bool) -> Extras:
    """What the flavors of the image for ``spec`` hold on ``os`` around a torch built for ``cuda``; without one, none of
    NVIDIA's tools.

    ``preinstalled`` says that the base brings torch.
    """
    apt: dict[str, set[str]] = {
        "runtime": {*spec.apt, *(_RUNTIME_PREINSTALLED if preinstalled else RUNTIME)},
        "devel": {*_DEVEL},
        "debug": {*_DEBUG},
        "tools": {*_TOOLS},
    }
    wheels: dict[str, list[str]] = {"devel": [], "debug": [*_DEBUG_WHEELS]}
    programs: list[tuple[str, str, str]] = []
    missing: list[tuple[str, str]] = []
    given: list[str] = []
    non_free = False
    for layer, tools in (("devel", _DEVEL_TOOLS), ("debug", _DEBUG_TOOLS)):
        for tool in tools if cuda else ():
            assert cuda is not None
            found = _found(spec, facts, os, cuda, tool)
            if isinstance(found, str):
                missing += [(tool, found)] if found else []
                continue
            if found.how == "wheel":
                wheels[layer] += _requirements(found)
                programs += [(layer, *program) for program in _programs(facts, found)]
                continue
            apt[layer].add(_name(found, cuda))
            given += found.given
            non_free |= found.how == "apt"
            if tool == "nvcc" and found.how == "apt":
                wheels[layer] += _requirements(_best(_rows(facts, os, cuda, _HEADERS, ("wheel",)), cuda))
    apt["debug"] -= apt["devel"]
    return Extras(
        apt={layer: tuple(sorted(names)) for layer, names in apt.items()},
        wheels={layer: _merged(texts) for layer, texts in wheels.items()},
        programs=tuple(programs),
        components=("main", "non-free") if non_free else ("main",),
        missing=tuple(missing),
        given=tuple(dict.fromkeys(given)),
    )


def _found(spec: Spec, facts: Facts, os: OsRow, cuda: Cuda, tool: str) -> ToolRow | str:
    """The row that brings ``tool``, or why none does; an empty reason where the base holds it already."""
    removed = _removed(facts, cuda, tool)
    if removed:
        return removed
    if spec.base is not Base.WHEELS:
        return _of_base(spec, facts, cuda, tool)
    rows = _rows(facts, os, cuda, tool, _sources(spec))
    knowing = [row for row in rows if not _too_new(spec, facts, row)]
    if knowing:
        return _best(knowing, cuda)
    return _too_new(spec, facts, _best(rows, cuda)) if rows else _why(spec, facts, os, cuda, tool)


def _sources(spec: Spec) -> tuple[str, ...]:
    """Where a tool may come from; Debian's packages of CUDA were read for one processor."""
    return ("wheel", "apt") if spec.platform is Platform.AMD64 else ("wheel",)


def _removed(facts: Facts, cuda: Cuda, tool: str) -> str:
    """Why CUDA itself has ``tool`` no more, empty where it has."""
    row = _toolkit(facts, cuda)
    for text in row.removed if row else ():
        found = re.match(rf"{re.escape(tool)} \((.*)\)\Z", text)
        if found:
            return f"CUDA {cuda.upto(2)} has none: {found[1]}"
    return ""


def _toolkit(facts: Facts, cuda: Cuda) -> CudaRow | None:
    """The newest release of the minor of ``cuda``."""
    minor = cuda.upto(2)
    rows = [row for row in facts.cudas if row.version.upto(2) == minor]
    return max(rows, key=lambda row: row.version) if rows else None


def _rows(facts: Facts, os: OsRow, cuda: Cuda, tool: str, sources: tuple[str, ...]) -> list[ToolRow]:
    """The rows of ``tool`` that may serve ``cuda`` on ``os``.

    NVIDIA's tools work across the minors of one major, as the driver lets them (NVIDIA, CUDA compatibility).  What is
    in _EXACT must be of the same minor, and so must a Debian package that puts an nvcc on PATH beside the tool.
    """
    compilers = {row.package for row in facts.tools if row.tool == "nvcc" and row.how == "apt"}
    minor = cuda.upto(2)
    return [
        row
        for row in facts.tools
        if row.tool == tool and row.how in sources and row.os in (None, os.name)
        if row.version is not None and row.cuda_major == cuda.major
        if (tool not in _EXACT and row.package not in compilers) or _minor(row) == minor
    ]


def _best(rows: list[ToolRow], cuda: Cuda) -> ToolRow:
    """The newest one that is not above ``cuda``, else the oldest above it.

    Of the same minor a package goes before a wheel: the package that holds nvcc is there anyway.
    """
    minor = cuda.upto(2)
    below = [row for row in rows if _minor(row) <= minor]
    if below:
        return max(below, key=lambda row: (_minor(row), row.how == "apt", _release(row)))
    return min(rows, key=lambda row: (_minor(row), row.how == "wheel", _release(row)))


def _release(row: ToolRow) -> Version:
    return Version(row.version or "") if row.how == "wheel" else Version("0")


def _minor(row: ToolRow) -> Cuda:
    """The CUDA that a row's package belongs to.

    A wheel's version begins with it.  In Debian's it stands in the part that the packager adds, "...~X.Y.Z-N": Nsight
    counts by years, and other parts of a toolkit by numbers of their own.
    """
    text = row.version or ""
    debian = re.search(r"~([0-9]+\.[0-9]+)\.[0-9]+-", text)
    return Cuda(debian[1] if debian else ".".join(text.split(".")[:2]))


def _requirements(row: ToolRow) -> Iterator[str]:
    """A wheel and what must come with it, each of the row's CUDA minor and not older than what was seen to work."""
    minor = _minor(row)
    yield f"{row.package}=={minor}.*,>={row.version}"
    for text in row.needs:
        named = re.fullmatch(r"([A-Za-z0-9._-]+)(.*)", text)
        if named is None:
            raise ValueError(f"tool {row.tool} needs `{text}`, which is no requirement")
        own = named[2].removeprefix("==") if named[2].startswith("==") else f"{minor}.*"
        floor = f",{named[2]}" if named[2].startswith(">=") else ""
        yield f"{named[1]}=={own}{floor}"


def _merged(texts: list[str]) -> tuple[str, ...]:
    """Requirements without those that say less of a package than another one does."""
    longest: dict[str, str] = {}
    for text in texts:
        name = re.split(r"[=<>,]", text)[0]
        longest[name] = max(longest.get(name, ""), text, key=len)
    return tuple(longest.values())


def _programs(facts: Facts, row: ToolRow) -> Iterator[tuple[str, str]]:
    """The names for PATH of what the wheel of ``row`` holds, nvcc's assembler among them."""
    if row.path and row.path.startswith("nvidia/"):
        yield row.tool, row.path
    if row.tool == "nvcc":
        beside = [other for other in facts.tools if other.tool == "ptxas" and other.package == row.package]
        for path in sorted({other.path for other in beside if other.path})[:1]:
            yield "ptxas", path


def _name(row: ToolRow, cuda: Cuda) -> str:
    """The package's name; NVIDIA's own carry the CUDA version, "X-Y" in the row."""
    return row.package.replace("X-Y", str(cuda.upto(2)).replace(".", "-"))


def _of_base(spec: Spec, facts: Facts, cuda: Cuda, tool: str) -> ToolRow | str:
    """The same for a base of NVIDIA's or with torch inside.

    NVIDIA's images come with NVIDIA's package repository switched on, and a package that is there already costs
    nothing.  PyTorch's development images and NGC's stand on NVIDIA's development image and hold its tools; PyTorch's
    runtime images hold neither tools nor repository.
    """
    wanted = (tool, "apt-nvidia", cuda.major)
    row = next((row for row in facts.tools if (row.tool, row.how, row.cuda_major) == wanted), None)
    if row is None:
        return f"no package of it for CUDA {cuda.upto(2)} was read of"
    if spec.base is Base.NVIDIA:
        return row
    if spec.base is Base.PYTORCH and spec.flavor is Flavor.RUNTIME:
        return "the runtime images of base `pytorch` have neither it nor NVIDIA's package repository"
    if row.in_devel_image:
        return ""
    return f"base `{spec.base}` is not known to hold it, nor to have {_name(row, cuda)} at hand"


def _too_new(spec: Spec, facts: Facts, row: ToolRow) -> str:
    """Why a tool of an older CUDA is of no use for a declared GPU that this CUDA does not know; empty if it is."""
    toolkit = _toolkit(facts, _minor(row))
    for name in spec.gpus:
        gpu = facts.gpu(name)
        if toolkit is not None and gpu.sm > max(toolkit.archs):
            return f"{row.package} {row.version} is of CUDA {_minor(row)}, which does not know {gpu.sm} ({name})"
    return ""


def _why(spec: Spec, facts: Facts, os: OsRow, cuda: Cuda, tool: str) -> str:
    """Why no source has ``tool``, and who has it for this CUDA: another system, or the base with NVIDIA's packages."""
    minor = cuda.upto(2)
    rows = [row for row in facts.tools if row.tool == tool and row.how in _sources(spec) and row.version]
    others = sorted({row.os for row in rows if row.os and row.os != os.name and _minor(row) == minor})
    text = f"neither a wheel nor {os.name} has it for CUDA {minor}"
    if others:
        text += f", {' and '.join(others)} has"
    theirs = [row for row in facts.tools if (row.tool, row.how, row.cuda_major) == (tool, "apt-nvidia", cuda.major)]
    return text + "".join(f"; base `nvidia` takes {_name(row, cuda)} from NVIDIA's packages" for row in theirs[:1])
