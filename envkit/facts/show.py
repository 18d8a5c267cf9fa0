"""The facts about one thing, as labelled lines for a person and as plain data for a program."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envkit.errors import UsageError
from envkit.facts import DriverRow, Facts, ImageRow, TorchRow
from envkit.facts.rows import columns
from envkit.records import dataclass
from envkit.versions import ContainerToolkit, Cuda, Cudnn, Driver, Glibc, Nccl, Python, Sm, Torch

TOPICS = (
    "torch", "gpu", "cuda", "driver", "cudnn", "nccl", "image", "os", "tool", "toolkit", "peak", "xid", "package",
)  # fmt: skip

_VERSIONS = (ContainerToolkit, Cuda, Cudnn, Driver, Glibc, Nccl, Python, Sm, Torch)


@dataclass(frozen=True, slots=True)
class Entry:
    """One row, its title, and what follows from it and other tables ("derived" lines).

    ``absent`` names fields that this kind of row cannot have: their None is not an unknown, they are not shown.
    """

    title: str
    row: Any
    derived: tuple[tuple[str, object], ...] = ()
    absent: tuple[str, ...] = ()


def _plain(value: object) -> Any:
    if isinstance(value, _VERSIONS):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    return value


def _text(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(_text(part) for part in value) if value else "none"
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_text(part)}" for name, part in value.items()) if value else "none"
    return str(value)


def _newest_torch(facts: Facts, sm: Sm, tegra: bool) -> str | None:
    published = [row for row in facts.torches if row.published]
    served = [row for row in published if facts.coverage(row, sm, tegra).state in ("sass", "ptx")]
    return max(served, key=lambda row: (row.torch, row.cuda)).name if served else None


def _torch(facts: Facts, query: str) -> list[Entry]:
    def one(row: TorchRow) -> Entry:
        floor = facts.driver_min(row.cuda)
        derived = (("index", row.index), ("oldest driver", floor.compat), ("driver of its CUDA", floor.own))
        return Entry(f"torch {row.name}", row, derived)

    return [one(row) for row in facts.torch(query)]


def _gpu(facts: Facts, query: str) -> list[Entry]:
    row = facts.gpu(query)
    newest = _newest_torch(facts, row.sm, row.tegra)
    arch = next((arch for arch in facts.archs if arch.sm == row.sm), None)
    derived: list[tuple[str, object]] = [("newest torch with code for it (x86_64)", newest or "none known")]
    if arch is not None:
        last = arch.last if arch.dropped_in else "the newest known"
        derived += [("architecture", arch.name), ("first CUDA", arch.first), ("last CUDA", last)]
        derived += [("last driver branch", arch.last_branch)] if arch.last_branch else []
    return [Entry(f"GPU {row.name}", row, tuple(derived))]


def _cuda(facts: Facts, query: str) -> list[Entry]:
    row = facts.cuda(query)
    built = [torch.name for torch in facts.torches if torch.published and torch.cuda == row.version.upto(2)]
    return [Entry(f"CUDA {row.version}", row, (("torch builds", tuple(reversed(built))),))]


def _driver(facts: Facts, query: str) -> list[Entry]:
    text = query.strip().lower().removeprefix("r")
    found: DriverRow | None = None
    if re.fullmatch(r"[0-9]+(\.[0-9]+)*", text):
        found = next((row for row in facts.drivers if row.branch == Driver(text).major), None)
    if found is None:
        branches = ", ".join(str(row.branch) for row in facts.drivers)
        raise UsageError(f"there are no facts about the driver `{query}`", f"known branches: {branches}")
    derived: list[tuple[str, object]] = []
    if "." in text:
        runs = {row.version.major for row in facts.cudas if row.floor <= Driver(text)}
        majors = tuple(f"{major}.x" for major in sorted(runs))
        derived.append(("CUDA by minor-version compatibility", majors))
    return [Entry(f"driver branch {found.branch}", found, tuple(derived))]


def _cudnn(facts: Facts, query: str) -> list[Entry]:
    row = facts.cudnn(query)
    built = tuple(torch.name for torch in reversed(facts.torches) if torch.cudnn == row.version)
    return [Entry(f"cuDNN {row.version}", row, (("torch builds", built),))]


def _nccl(facts: Facts, query: str) -> list[Entry]:
    wanted = query.strip().split(".")
    found = [row for row in facts.nccls if str(row.version).split(".")[: len(wanted)] == wanted]
    if not found:
        newest = ", ".join(str(row.version) for row in facts.nccls[:-4:-1])
        raise UsageError(f"there are no facts about the NCCL `{query}`", f"newest known: {newest}")
    row = found[-1]
    built = tuple(torch.name for torch in reversed(facts.torches) if torch.nccl == row.version)
    return [Entry(f"NCCL {row.version}", row, (("torch builds", built),))]


def _toolkit(facts: Facts, query: str) -> list[Entry]:
    text = query.strip().lower().removeprefix("v")
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)+", text):
        raise UsageError(f"there are no facts about the container toolkit `{query}`", "name a release, such as A.B.C")
    version = ContainerToolkit(text)
    broken = [row for row in facts.toolkit_regressions if row.since <= version]
    broken = [row for row in broken if row.fixed is None or version < row.fixed]
    faults = [row for row in facts.toolkit_faults if version < row.fixed]
    entries = [Entry(f"{row.id} of container toolkit {version}", row) for row in broken]
    entries += [Entry(f"{row.cve} of container toolkit {version}", row) for row in faults]
    if not entries:
        ends = max(row.fixed for row in facts.toolkit_faults)
        raise UsageError(
            f"there are no facts about faults of container toolkit {version}", f"known ones end with {ends}"
        )
    return entries


def _package(facts: Facts, query: str) -> list[Entry]:
    name = re.sub(r"[-_.]+", "-", query.strip().lower())
    rows = facts.torch_needs_of.get(name)
    if not rows:
        near = ", ".join(difflib.get_close_matches(name, list(facts.torch_needs_of), 5)) or "none"
        raise UsageError(f"there are no facts about the torch that `{query}` asks for", f"nearest known: {near}")
    return [
        Entry(f"{row.package} {row.since}" + (f" to {row.until}" if row.until != row.since else ""), row)
        for row in reversed(rows)
    ]


def _absent(row: ImageRow) -> tuple[str, ...]:
    return tuple(name for name in ("os", "torch") if getattr(row, name) is None)


def _image(facts: Facts, query: str) -> list[Entry]:
    found = facts.image_tag(query)
    if found is not None:
        derived = (("flavor", found.flavor), ("has cuDNN", found.cudnn), ("digest", found.digest))
        return [Entry(f"image {found.reference}", found.row, derived, _absent(found.row))]
    name, _, tag = query.partition(":")
    built = [row for row in reversed(facts.ngcs) if row.image == name and row.tag.startswith(tag)]
    if built:
        return [Entry(f"image {row.image}:{row.tag}", row) for row in built]
    entries = [
        Entry(f"image {row.image} CUDA {row.cuda} {row.os or ''}".rstrip(), row, (), _absent(row))
        for row in reversed(facts.images)
        if row.image == name and any(known.startswith(tag) for known in row.tags)
    ]
    if not entries:
        raise UsageError(f"there are no facts about the image `{query}`", f"known images: {', '.join(_images(facts))}")
    return entries


def _os(facts: Facts, query: str) -> list[Entry]:
    row = facts.os(query)
    return [Entry(f"{row.name} ({row.codename})", row)]


def _tool(facts: Facts, query: str) -> list[Entry]:
    found = [row for row in facts.tools if row.tool == query.strip().lower()]
    if not found:
        names = ", ".join(sorted({row.tool for row in facts.tools}))
        raise UsageError(f"there are no facts about the tool `{query}`", f"known tools: {names}")
    return [Entry(f"{row.tool} from {row.how} package {row.package}", row) for row in found]


def _peak(facts: Facts, query: str) -> list[Entry]:
    wanted = query.strip().lower()
    found = [row for row in facts.peaks if wanted in (row.gpu.lower(), *(name.lower() for name in row.names))]
    if not found:
        names = ", ".join(row.gpu for row in facts.peaks)
        raise UsageError(f"there are no facts about the peaks of `{query}`", f"known GPUs: {names}")

    def reached(gpu: str) -> tuple[tuple[str, object], ...]:
        goods = [row for row in facts.goods if row.gpu == gpu]
        return tuple(
            (f"reached: {row.test} {row.measure}", f"{row.value:g} ({row.source}, {row.seen})") for row in goods
        )

    return [Entry(f"peaks of {row.gpu}", row, reached(row.gpu)) for row in found]


def _xid(facts: Facts, query: str) -> list[Entry]:
    text = query.strip().lower().removeprefix("xid").strip()
    row = facts.xid(int(text)) if re.fullmatch(r"[0-9]{1,6}", text) else None
    if row is None:
        raise UsageError(f"there are no facts about the Xid `{query}`", f"known codes: 1 to {facts.xids[-1].code}")
    return [Entry(f"Xid {row.code}: {row.means}", row)]


@dataclass(frozen=True, slots=True)
class Known:
    """What may be asked of a topic: an example of the words, how many rows there are, and the names they go by."""

    topic: str
    ask: str
    rows: int
    names: tuple[str, ...]


def known(facts: Facts) -> tuple[Known, ...]:
    """Every topic in the order of TOPICS, its names newest first where they have an age."""
    named: dict[str, tuple[str, Sequence[Any], Iterable[object]]] = {
        "torch": ("a release, a range or a build", facts.torches, (row.torch for row in reversed(facts.torches))),
        "gpu": ("a product, or a capability such as sm_90", facts.gpus, (row.name for row in reversed(facts.gpus))),
        "cuda": ("a release of the toolkit", facts.cudas, (row.version for row in reversed(facts.cudas))),
        "driver": ("a branch or a release", facts.drivers, (row.branch for row in reversed(facts.drivers))),
        "cudnn": ("a release", facts.cudnns, (row.version for row in reversed(facts.cudnns))),
        "nccl": ("a release", facts.nccls, (row.version for row in reversed(facts.nccls))),
        "image": ("a repository, or one with the beginning of a tag", facts.images + facts.ngcs, _images(facts)),
        "os": ("a distribution's release or codename", facts.oses, (row.name for row in facts.oses)),
        "tool": ("a tool that a flavor brings", facts.tools, sorted({row.tool for row in facts.tools})),
        "toolkit": (
            "a release of the container toolkit",
            facts.toolkit_faults + facts.toolkit_regressions,
            sorted({row.seen_in for row in facts.toolkit_regressions}, reverse=True),
        ),
        "peak": ("a GPU", facts.peaks, (row.gpu for row in facts.peaks)),
        "xid": ("a code", facts.xids, (row.code for row in facts.xids)),
        "package": ("a package that asks for a torch", facts.torch_needs + facts.wide_needs, facts.torch_needs_of),
    }
    return tuple(
        Known(topic, ask, len(rows), tuple(dict.fromkeys(map(str, names))))
        for topic, (ask, rows, names) in named.items()
    )


def _images(facts: Facts) -> list[str]:
    return sorted({row.image for row in facts.images} | {row.image for row in facts.ngcs})


def entries(facts: Facts, topic: str, query: str) -> list[Entry]:
    """What is known of ``query`` under ``topic`` (one of TOPICS), newest first.

    Raises UsageError for another topic, or with the nearest known names when there are no facts.
    """
    readers = {
        "torch": _torch, "gpu": _gpu, "cuda": _cuda, "driver": _driver, "cudnn": _cudnn, "image": _image, "os": _os,
        "tool": _tool, "peak": _peak, "xid": _xid, "nccl": _nccl, "toolkit": _toolkit, "package": _package,
    }  # fmt: skip
    if topic not in readers:
        raise UsageError(f"there is no topic `{topic}`", f"topics: {', '.join(TOPICS)}")
    return readers[topic](facts, query)


def describe(facts: Facts, topic: str, query: str) -> list[tuple[str, str]]:
    """Labelled lines for a person; a line with an empty text begins the next entry.  Raises as ``entries`` does."""
    lines: list[tuple[str, str]] = []
    for entry in entries(facts, topic, query):
        lines.append((entry.title, ""))
        names = [name for name in columns(type(entry.row)) if name not in entry.absent]
        values = [(name, getattr(entry.row, name)) for name in names]
        told = [(name.replace("_", " "), value) for name, value in values if name not in ("note", "source", "seen")]
        texts = [(label, _text(value)) for label, value in [*told, *entry.derived]]
        lines += [(label, text) for label, text in texts if text]
        origin = [pair for pair in values if pair[0] in ("note", "source", "seen") and pair[1]]
        lines += [(label, str(value)) for label, value in origin]
    return lines


def data(facts: Facts, topic: str, query: str) -> list[dict[str, Any]]:
    """The same as JSON-ready data, one object an entry; null is unknown.  Raises as ``entries`` does."""
    return [
        {
            "title": entry.title,
            **{name: _plain(getattr(entry.row, name)) for name in columns(type(entry.row))},
            "derived": {label: _plain(value) for label, value in entry.derived},
        }
        for entry in entries(facts, topic, query)
    ]
