"""Writes images/README.md, the page that lists the images: what is in each, what it runs on, what it misses.

    python scripts/make_images.py           writes the page
    python scripts/make_images.py --check   compares it with what would be written, exit 1 on a difference

Everything on the page is read: from the specs and locks beside it, from the facts, and from images/built.json, which
holds the sizes of images that were really built and is kept by hand:

    {"torch-X.Y-cuZ": {"runtime": {"gb": 5.9, "day": "YYYY-MM-DD"}}}

"gb" is what the engine says of the image, in 10^9 bytes, uncompressed.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from envkit.errors import EnvkitError, UsageError
from envkit.facts import Facts, ToolRow, load
from envkit.plan import lockfile as locks
from envkit.plan import spec as specs
from envkit.plan.lockfile import FLAVORS, Lock
from envkit.plan.resolve import resolve
from envkit.plan.spec import Base, Spec
from envkit.system import files
from envkit.versions import Cuda

IMAGES = Path(__file__).parent.parent / "images"

_DEVEL = ("nvcc",)  # the tools of CUDA that the flavor devel is for; all others come with debug


@dataclass(frozen=True, slots=True)
class Size:
    """What an image of one flavor measured, in 10^9 bytes, and when."""

    gb: float
    day: date


@dataclass(frozen=True, slots=True)
class Entry:
    """One folder: its spec, its lock, and by flavor the sizes of the images that were built of it."""

    spec: Spec
    lock: Lock
    sizes: Mapping[str, Size]


def entries(folder: Path) -> tuple[Entry, ...]:
    """Every image under ``folder``, oldest torch first.

    Raises UsageError for a lock that answers another spec and for a size of what is not there.
    """
    sizes = built(folder / "built.json")
    found = []
    for path in sorted(folder.glob("*/envkit.toml")):
        spec = specs.load(path.parent)
        lock = locks.load(spec)
        if lock is None:
            raise UsageError(f"{path.parent.name} has no lock that answers its spec", "run `make images`")
        found.append(Entry(spec, lock, sizes.get(path.parent.name, {})))
    strays = sorted(set(sizes) - {entry.spec.path.parent.name for entry in found})
    if strays:
        raise UsageError(f"built.json has the size of {strays[0]}, which is no image here", "take it out")
    return tuple(sorted(found, key=lambda entry: (entry.lock.torch, entry.lock.name)))


def built(path: Path) -> Mapping[str, Mapping[str, Size]]:
    """The measured sizes by image and flavor; raises UsageError for what is none."""
    found: dict[str, dict[str, Size]] = {}
    try:
        for name, rows in json.loads(path.read_text(encoding="utf-8")).items():
            for flavor, row in rows.items():
                if flavor not in FLAVORS or set(row) != {"gb", "day"} or not 0 < row["gb"] < 1000:
                    raise ValueError(f"{name} {flavor} is {row}")
                found.setdefault(name, {})[flavor] = Size(float(row["gb"]), date.fromisoformat(row["day"]))
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{path} holds no sizes: {error}", "write gb and day of each flavor that was built") from error
    return found


def tools(entry: Entry, facts: Facts) -> Mapping[str, str]:
    """Each tool of CUDA that NVIDIA packages, and whether the image has it: "here", "base" (in the base already) or
    "missing".

    Raises UsageError where the lock does not account for one.
    """
    lock = entry.lock
    missing = {tool for tool, _ in lock.missing}
    programs = {tool for _, tool, _ in lock.programs}
    packages = {name.partition("=")[0] for names in lock.apt.values() for name in names}
    cuda = lock.cuda
    assert cuda is not None  # no image of envkit's is for CPUs
    found = {}
    for tool in dict.fromkeys(row.tool for row in facts.tools if row.how == "apt-nvidia"):
        rows = [row for row in facts.tools if row.tool == tool and row.cuda_major == cuda.major]
        if tool in missing:
            found[tool] = "missing"
        elif tool in programs or packages & {_package(row, cuda) for row in rows}:
            found[tool] = "here"
        elif entry.spec.base is not Base.WHEELS and any(row.in_devel_image for row in rows):
            found[tool] = "base"
        else:
            raise UsageError(f"the lock of {lock.name} does not say where {tool} is", "run `make images`")
    return found


def _package(row: ToolRow, cuda: Cuda) -> str:
    """The Debian package of a row; NVIDIA's own carry the CUDA version."""
    return row.package.replace("X-Y", str(cuda.upto(2)).replace(".", "-"))


def page(found: Sequence[Entry], facts: Facts) -> str:
    """The text of the page."""
    header = (
        "image", "torch", "CUDA", "cuDNN", "NCCL", "Python", "OS", "oldest driver", "GPUs declared",
        "devel tools of CUDA", "debug tools of CUDA", "wheels to download", "Debian packages to download",
        "size when built",
    )  # fmt: skip
    lines = [
        "# Images",
        "",
        "Written by `scripts/make_images.py`; `make images` locks, renders and lists them all.",
        "",
        "Each folder holds a spec, its lock and the Dockerfile that was rendered from it, with the targets `runtime`,",
        "`devel` (on top of it compilers and headers) and `debug` (on top of that debuggers and profilers).",
        "`envkit up images/torch-2.6-cu124` builds and proves one; `--flavor` chooses another target than the spec's,",
        "which is named behind each image.",
        "",
        _row(header),
        _row(["---"] * len(header)),
        *(_row(_cells(entry, facts)) for entry in found),
        "",
        "- Oldest driver: what the build needs on the GPUs declared; a fleet's own is declared in the spec.",
        "- Three numbers are those of runtime / devel / debug, each with what the flavors below it hold.",
        "- GB are 10^9 bytes; \"not said\" where the index gave no sizes when the lock was made.",
        "- Why a tool is missing stands in the head of the Dockerfile.",
        *_common(found, facts),
        *_by_tag(found),
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(entry: Entry, facts: Facts) -> tuple[str, ...]:
    lock = entry.lock
    held = tools(entry, facts)
    name = entry.spec.path.parent.name
    return (
        f"[{name}]({name}/envkit.toml) ({lock.flavor})",
        str(lock.torch),
        str(lock.cuda),
        lock.cudnn or "not known",
        lock.nccl or "not known",
        str(lock.python),
        lock.os or "its base's",
        str(lock.driver or "not known"),
        ", ".join(gpu for gpu, _, _ in lock.gpus) or "none",
        _tools({tool: state for tool, state in held.items() if tool in _DEVEL}),
        _tools({tool: state for tool, state in held.items() if tool not in _DEVEL}),
        _wheels(lock),
        _debs(lock),
        _built(entry.sizes),
    )


def _tools(held: Mapping[str, str]) -> str:
    """What is there, what the base brings, what is missing."""
    words = {"here": "", "base": "in the base: ", "missing": "missing: "}
    groups = {state: [tool for tool, found in held.items() if found == state] for state in words}
    return "; ".join(words[state] + ", ".join(names) for state, names in groups.items() if names)


def _wheels(lock: Lock) -> str:
    """How many wheels each flavor holds, and their bytes if all are known."""
    counted, summed = [], []
    for flavor in FLAVORS:
        pins, _ = locks.upto(lock, flavor)
        counted.append(str(len(pins)))
        summed.append(f"{sum(pin.size for pin in pins) / 1e9:.1f}" if all(pin.size for pin in pins) else "")
    size = f"{' / '.join(summed)} GB" if all(summed) else "size not said"
    return f"{' / '.join(counted)}; {size}"


def _debs(lock: Lock) -> str:
    """The same of the Debian packages, which a base that is no plain Debian leaves to its own archive."""
    if not lock.archive:
        return "by name, not pinned"
    counted, summed = [], []
    for flavor in FLAVORS:
        _, debs = locks.upto(lock, flavor)
        counted.append(str(len(debs)))
        summed.append(f"{sum(deb.size for deb in debs) / 1e9:.2f}")
    return f"{' / '.join(counted)}; {' / '.join(summed)} GB"


def _built(sizes: Mapping[str, Size]) -> str:
    told = [f"{flavor} {sizes[flavor].gb:.1f} GB ({sizes[flavor].day})" for flavor in FLAVORS if flavor in sizes]
    return ", ".join(told) or "not measured"


def _common(found: Sequence[Entry], facts: Facts) -> list[str]:
    """What all of them hold besides, and what none has."""
    told = []
    extras = [resolve(entry.spec, facts).extras for entry in found]
    for flavor in FLAVORS:
        asked = [{*extra.apt.get(flavor, ()), *extra.wheels.get(flavor, ())} for extra in extras]
        names = sorted(asked[0].intersection(*asked[1:])) if asked else []
        told += [f"- All have in {flavor}: {', '.join(names)}."] if names else []
    lacking = [{tool for tool, _ in entry.lock.missing} for entry in found]
    none = sorted(lacking[0].intersection(*lacking[1:])) if lacking else []
    return told + ([f"- None has: {', '.join(none)}."] if none else [])


def _by_tag(found: Sequence[Entry]) -> list[str]:
    """The images whose base is named by its tag alone, because no registry answered when they were locked."""
    names = [entry.lock.name for entry in found if not entry.lock.digest]
    if not names:
        return []
    return [
        f"- The base is named by its tag alone in: {', '.join(names)}.",
        "  A lock made where a registry answers names it by digest.",
    ]


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` prints where it differs; 1 when it does, 2 when it cannot be made."""
    parser = argparse.ArgumentParser(description="write images/README.md")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args(arguments)
    path = IMAGES / "README.md"
    try:
        text = page(entries(IMAGES), load())
    except EnvkitError as error:
        print(f"{error.message}\n  fix: {error.fix}", file=sys.stderr)
        return 2
    if not options.check:
        files.write(path, text)
        return 0
    now = path.read_text(encoding="utf-8") if path.exists() else ""
    told = list(difflib.unified_diff(now.splitlines(), text.splitlines(), "now", "new", lineterm="", n=0))
    print("\n".join(told) if told else f"{path.name} is current")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
