"""Why the facts allow no build for a spec: the fewest of its keys that cannot hold together, and the facts that say so.

A refusal is minimal: the smallest set of keys that no candidate meets is what cannot hold together.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from envkit.errors import Unsatisfiable
from envkit.facts import Facts, GpuRow, OsRow, TorchRow
from envkit.plan.request import (
    ALWAYS,
    CHANGE,
    Obstacle,
    Request,
    Weight,
    base_tags,
    cuda_fits,
    listed,
    newest_first,
    of_build,
    of_system,
    on_machine,
    oses_of,
    quoted,
)
from envkit.plan.spec import Base, Platform, Spec
from envkit.records import dataclass
from envkit.versions import Cuda, Driver

_MOST_LINES = 6  # of evidence in a refusal: what fills a screen is not read
_MOST_OF_A_KIND = 3
_OF_SYSTEM = frozenset({"python", "os"})
CHOOSE = f"choose one of the nearest, or {CHANGE}"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One combination and everything that keeps it from meeting the spec."""

    row: TorchRow
    os: OsRow
    platform: Platform
    found: tuple[Obstacle, ...]

    @property
    def wished(self) -> bool:
        """Whether it is what the request names, whatever may be in its way."""
        return all(obstacle.weight is not Weight.REQUEST for obstacle in self.found)


def explain(request: Request) -> Unsatisfiable:
    """The refusal: the fewest keys that no candidate meets, the facts that say so, and the nearest specs that would be
    granted."""
    spec, keys = request.spec, _keys(request)
    candidates = _candidates(request)
    asked = [one for one in candidates if one.wished]
    if not asked:
        kept = _conflict(candidates, tuple(key for key in keys if key in ("packages", "cuda", "torch")))
        message, chain = _unpublished(request)
    else:
        kept = _conflict(candidates, keys)
        # one that the request could move tells more than one that nothing does, and the fewer obstacles the nearer
        best = min(asked, key=lambda one: (not any(ALWAYS < each.keys <= kept for each in one.found), len(one.found)))
        first = max((each for each in best.found if each.keys <= kept), key=_explaining)
        message, chain = first.text + _needs(request, best, first), _evidence(candidates, kept)
        if first.weight is Weight.GPU_DRIVER:
            chain = (str(first),)  # whatever is built of torch, the kernel's driver does not know the GPU
        elif "driver" in kept:
            cuda = best.row.toolkit or best.row.cuda
            chain = (*chain, compat_line(spec, request.facts, request.gpus, cuda, _floor_of(request, best)))
    if kept:
        alone = "cannot be satisfied, whatever else changes" if len(kept) == 1 else "cannot be satisfied together"
        chain = (f"{alone}: {_as_written(request, kept)}", *chain)
    nearest = _nearest(request, candidates)
    fix = CHANGE
    if kept == {"python", "os"} and (having := [row for row in request.facts.oses if row.python == spec.python]):
        named = " or ".join(f'"{row.name}"' for row in having)
        fix = f'for Python {spec.python} set os = {named}, or let python = "auto" choose that of {spec.os}'
    return Unsatisfiable(message, chain, nearest, or_nearest(fix, nearest))


def or_nearest(fix: str, nearest: tuple[str, ...]) -> str:
    """``fix``, and that one of the nearest may be chosen where there are some."""
    if not nearest:
        return fix
    return CHOOSE if fix is CHANGE else f"{fix}, or choose one of the nearest"


def _keys(request: Request) -> tuple[str, ...]:
    """The keys of the spec that a conflict can be between, each kind of GPU for itself.

    What nobody can choose comes first: of two conflicts of one size the earlier one is told.
    """
    spec = request.spec
    given = {
        "driver": bool(spec.drivers),
        "platform": spec.platform is not Platform.AMD64,
        "python": True,
        "os": spec.os != "auto",
        "packages": bool(str(request.beside)),
        "base": spec.base is not Base.WHEELS,
        "tag": bool(spec.tag),
        "cuda": spec.cpu or spec.cuda is not None,
        "torch": True,
    }
    return (*(kind.key for kind in request.kinds), *(key for key, there in given.items() if there))


def _as_written(request: Request, keys: frozenset[str]) -> str:
    """Some keys with their values, as the spec has them."""
    spec = request.spec
    names = [name for kind in request.kinds if kind.key in keys for name in kind.names]
    values = {
        "driver": quoted([str(driver) for driver in spec.drivers]),
        "platform": f'"{spec.platform}"',
        "python": f'"{spec.python}"',
        "os": f'"{spec.os}"',
        "packages": f'["torch{request.beside}"]',
        "base": f'"{spec.base}" with flavor = "{spec.flavor}"',
        "tag": f'"{spec.tag}"',
        "cuda": f'"{spec.build_wish}"',
        "torch": f'"{spec.torch}"',
    }
    shown = [f"gpus = {quoted(names)}"] if names else []
    return listed(shown + [f"{key} = {value}" for key, value in values.items() if key in keys])


def _candidates(request: Request) -> list[_Candidate]:
    """Every build on every system with all that is in its way, the newest first and the default before others."""
    spec = request.spec
    asked = {row.name for row in oses_of(spec, request.facts)}
    found = []
    for row in newest_first(request.facts.torches):
        wished = []
        if row.torch not in request.asked:
            wished.append(_other("torch", row))
        if not request.beside.contains(str(row.torch)):
            wished.append(_other("packages", row))
        if not cuda_fits(spec, row):
            wished.append(_other("cuda", row))
        for platform in dict.fromkeys((spec.platform, Platform.AMD64)):
            builds = [*wished, *of_build(request, row, platform)]
            if platform is not spec.platform:
                builds.append(_other("platform", row))
            for os in request.facts.oses:
                systems = [*of_system(request, row, os, platform)]
                if spec.os != "auto" and os.name not in asked:
                    systems.append(_other("os", os))
                found.append(_Candidate(row, os, platform, (*builds, *systems)))
    return found


def _other(key: str, row: TorchRow | OsRow) -> Obstacle:
    """That a candidate is another one than ``key`` of the request names."""
    return Obstacle(Weight.REQUEST, frozenset({key}), "", row.source, row.seen)


def _conflict(candidates: Iterable[_Candidate], keys: tuple[str, ...]) -> frozenset[str]:
    """The keys that no candidate meets together: the smallest set where two keys suffice, else one without a spare.

    Of several sets of one size the one of the earliest keys.
    """
    ways = {frozenset(obstacle.keys for obstacle in one.found) for one in candidates}

    def blocked(kept: frozenset[str]) -> bool:
        return all(any(needed <= kept for needed in way) for way in ways)

    for size in range(3):
        for some in combinations(keys, size):
            if blocked(frozenset(some)):
                return frozenset(some)
    kept = frozenset(keys)
    for key in reversed(keys):
        if blocked(kept - {key}):
            kept -= {key}
    return kept


def _explaining(obstacle: Obstacle) -> tuple[bool, Weight]:
    """Orders obstacles of one candidate: what the request could move explains more than what it could not."""
    return bool(obstacle.keys), obstacle.weight


def _evidence(candidates: Iterable[_Candidate], kept: frozenset[str]) -> tuple[str, ...]:
    """Facts against ``kept``, at most three of a kind, the newest build first.

    Where there are more, those about builds that the request names go before others.  A build that was only planned is
    told of where the request names it, and then that it is no more than a plan; but not where a system lacks a Python,
    for that forbids every build.
    """
    lines: dict[str, tuple[bool, bool, int, Obstacle]] = {}
    for one in candidates:
        against, planned = [each for each in one.found if each.keys <= kept], one.row.published is not True
        if all(each.weight is not Weight.REQUEST for each in against) and (one.wished or not planned):
            worst = against[0] if planned and not ALWAYS < kept <= _OF_SYSTEM else max(against, key=_explaining)
            lines.setdefault(str(worst), (not one.wished, planned, len(lines), worst))
    kinds: dict[tuple[frozenset[str], Weight], int] = {}
    ranked = []
    for line, (other, planned, place, worst) in sorted(lines.items(), key=lambda item: item[1][:3]):
        nth = kinds[worst.keys, worst.weight] = kinds.get((worst.keys, worst.weight), 0) + 1
        if nth <= _MOST_OF_A_KIND:
            ranked.append((nth, other, planned, place, line))
    return tuple(line for _, line in sorted((place, line) for *_, place, line in sorted(ranked)[:_MOST_LINES]))


def _unpublished(request: Request) -> tuple[str, tuple[str, ...]]:
    """The message and chain for a CUDA that no wished release was built for."""
    spec, facts = request.spec, request.facts
    releases = newest_first(row for row in facts.torches if row.torch in request.releases)
    built = sorted({row.cuda for row in releases if row.published})
    which = f"torch {releases[0].torch} was not" if len(request.releases) == 1 else f"no torch {spec.torch} was"
    message = f"{which} published for CUDA {spec.cuda}; it was for {listed([str(cuda) for cuda in built])}"
    rows = [row for row in releases if row.published][:_MOST_LINES]
    chain = [f"torch {row.name}: CUDA {row.cuda} [{row.source}; seen {row.seen}]" for row in rows]
    others = sorted({row.torch for row in facts.torches if row.published and cuda_fits(spec, row)})
    if others:
        chain.append(f"CUDA {spec.cuda} is available with torch {listed([str(torch) for torch in others])}")
    return message, tuple(chain)


def _needs(request: Request, best: _Candidate, first: Obstacle) -> str:
    """What would serve instead, as the end of a message about kernels, a machine or a tag; empty for another one."""
    row, machine = best.row, best.platform.machine
    if first.keys == {"tag"} and request.spec.base is not Base.WHEELS:
        return f"; these fit the spec: {listed([tag.reference for tag in base_tags(request, row, best.os)])}"
    published = [other for other in request.facts.torches if other.published and on_machine(other, machine)]
    if first.weight is Weight.PUBLISHED and not on_machine(row, machine):
        newer = [other.torch for other in published if other.torch > row.torch]
        return f": CUDA is included from torch {min(newer)} on" if newer else ""
    if first.weight is not Weight.GPU:
        return ""
    serving = [
        other
        for other in published
        if all(request.cover(other, kind.gpu, machine).state in ("sass", "ptx") for kind in request.kinds)
    ]
    if not serving:
        return f": no known build has {'them' if len(request.kinds) == 1 else 'kernels for all of the GPUs'}"
    oldest, newest = min(other.torch for other in serving), newest_first(serving)[0]
    if row.torch < oldest:
        cuda = min(other.cuda for other in serving if other.torch == oldest)
        return f": needs torch >= {oldest} with CUDA >= {cuda}"
    same = sorted({other.cuda for other in serving if other.torch == row.torch})
    if same:
        return f": torch {row.torch} has them for CUDA {listed([str(cuda) for cuda in same])}"
    return f": the {'last' if row.torch > newest.torch else 'newest'} torch with them is {newest.name}"


def _floor_of(request: Request, best: _Candidate) -> Driver | None:
    """The oldest driver that runs the candidate on the declared GPUs."""
    floor = request.floor(best.row)
    states = [request.cover(best.row, kind.gpu, best.platform.machine).state for kind in request.kinds]
    return floor.own if "ptx" in states else floor.compat


def compat_line(
    spec: Spec, facts: Facts, gpus: tuple[tuple[str, GpuRow], ...], cuda: Cuda, floor: Driver | None
) -> str:
    """Whether NVIDIA's forward-compatibility package would help drivers that are too old for ``cuda``, as one line.

    It works on data-center GPUs and on the driver branches that it names (NVIDIA, CUDA compatibility, forward
    compatibility).  That it would serve grants nothing: a lock cannot hold it.
    """
    package = f"cuda-compat-{cuda.major}-{cuda.minor}"
    row = facts.forward_compat(cuda)
    if row is None:
        known = next((one for one in facts.cudas if one.version.upto(2) == cuda.upto(2)), facts.cudas[-1])
        return f"it is not known which drivers NVIDIA's {package} supports [{known.source}; seen {known.seen}]"
    origin = f"[NVIDIA CUDA compatibility, forward compatibility; {row.compat_source}; seen {row.seen}]"
    old = [driver for driver in spec.drivers if floor is None or facts.oldest_release(driver) < floor]
    shown = listed([str(driver) for driver in old])
    not_datacenter = [name for name, gpu in gpus if gpu.datacenter is not True]
    left = [driver for driver in old if driver.major not in (row.compat or ())]
    if not_datacenter:
        known_not = all(gpu.datacenter is False and not gpu.tegra for name, gpu in gpus if name in not_datacenter)
        one = len(not_datacenter) == 1
        are = ("is not" if one else "are not") + ("" if known_not else " known to be") + (" one" if one else "")
        return f"{package} does not help: it is for data-center GPUs, and {listed(not_datacenter)} {are} {origin}"
    if left:
        names = listed([str(branch) for branch in row.compat or ()])
        return f"{package} does not help driver {listed([str(one) for one in left])}: it supports {names} {origin}"
    where = "on the declared GPUs" if gpus else "on data-center GPUs only, and `gpus` names none"
    return f"{package} would support driver {shown} {where}; {_COMPAT_IN[spec.base]} {origin}"


# What envkit can say of the package in its images; whether a container's libcuda is replaced by it is up to the host.
_COMPAT_IN = {
    Base.WHEELS: "no wheel contains it, and neither do envkit's images",
    Base.NVIDIA: "the base image contains it, but it is not known whether the host's container toolkit uses it",
    Base.PYTORCH: "no wheel contains it, and it is not known whether the base image does",
    Base.NGC: "it is not known whether the image contains it",
}


def _nearest(request: Request, candidates: Iterable[_Candidate]) -> tuple[str, ...]:
    """At most three builds that meet all of the spec but torch and CUDA, the fewest and smallest changes first."""
    movable = frozenset({"torch", "cuda"})
    order = {torch: number for number, torch in enumerate(sorted({row.torch for row in request.facts.torches}))}
    ranked = set()
    for one in candidates:
        if all(each.weight is Weight.REQUEST and each.keys <= movable for each in one.found):
            steps = min(abs(order[one.row.torch] - order[torch]) for torch in request.releases)
            changes = len({key for each in one.found for key in each.keys})
            ranked.add((changes, steps, not one.row.default, f"torch {one.row.torch} with CUDA {one.row.cuda}"))
    return tuple(text for *_, text in sorted(ranked)[:3])
