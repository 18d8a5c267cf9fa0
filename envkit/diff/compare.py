"""What a change from one environment to another means: which GPUs and drivers fall out, which libraries move.

Pure: it compares two locks, two wishes or two observed images with what the facts know, and touches nothing.  Nothing
that differs stays unsaid: what has no meaning of its own here is named by its field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any, Protocol

from packaging.version import Version

from envkit.errors import UsageError
from envkit.facts import ArchRow, Facts, GpuRow, TorchRow, served
from envkit.model import Observed
from envkit.plan.lockfile import Deb, Lock, Pin
from envkit.plan.resolve import Choice, resolve, settled
from envkit.plan.spec import Spec
from envkit.records import dataclass
from envkit.subjects.image import Image, Library, TorchBuild
from envkit.subjects.imported import ImportState
from envkit.versions import Cuda, Driver, Sm

_Code = tuple[tuple[Sm, ...] | None, tuple[Sm, ...] | None]  # machine code and PTX, None where they were not read

_NO_TORCH = "none"
_GPUS = 4  # products named beside a capability


class Weight(IntEnum):
    """How much a change asks of those who use the environment; it orders the output."""

    PLAIN = 1
    NOTABLE = 2
    BREAKING = 3


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: ``text`` is one clause with the values, ``old`` and ``new`` those alone, empty for none.

    ``kind`` is stable for programs: "architecture", "driver", "cuda", "torch", "python", "platform", "os", "glibc",
    "library", "wheel-added", "wheel-removed", "wheel-changed", "deb-added", "deb-removed", "deb-changed", "gpu",
    "tool", "base", "flavor", "archive", "wish", "not-observed", and "field" for what has no meaning of its own.
    """

    kind: str
    text: str
    old: str
    new: str
    weight: Weight


@dataclass(frozen=True, slots=True)
class _Stack:
    """What locks, choices and images have in common; a text is empty where it is not known.

    ``code`` is the machine code and the PTX in torch's build.
    """

    torch: str
    cuda: str
    python: str
    machine: str
    os: str
    glibc: str
    driver: str
    code: _Code
    gpus: tuple[tuple[str, Sm], ...] = ()
    drivers: tuple[str, ...] = ()

    @property
    def cpu(self) -> bool:
        """Whether its torch is known to be built without CUDA."""
        return self.torch not in ("", _NO_TORCH) and not self.cuda


def locks(old: Lock, new: Lock, facts: Facts) -> tuple[Change, ...]:
    """What the change from one lock to another means, the weightiest first; none for the same content.

    A lock's name is no content.
    """
    if replace(old, name="") == replace(new, name=""):
        return ()
    before, after = _of_lock(old, facts), _of_lock(new, facts)
    changes = [*_stacks(before, after, facts), *_gpus(before, after)]
    changes += _wheels(old.wheels, new.wheels, before, after, facts)
    for family, name in _KNOWN_WITHOUT_WHEEL.items():
        if not _has(old, family) or not _has(new, family):
            changes += _moved(family, getattr(old, name), getattr(new, name), before, after, facts)
    changes += _debs(old.debs, new.debs)
    changes += _tools(old, new)
    changes += _base(old, new)
    for name in (field.name for field in fields(Lock)):
        if name not in _SAID:
            kind = "wish" if name == "wish" else "field"
            changes += _rest(_WORDS.get(name, name), getattr(old, name), getattr(new, name), kind)
    if not changes:
        # Something below the grain of all the above: say at least where.
        changes = [
            Change("field", f"{field.name} differs", "", "", Weight.PLAIN)
            for field in fields(Lock)
            if field.name != "name" and getattr(old, field.name) != getattr(new, field.name)
        ]
    return together(changes)


_WORDS = {"inside": "image"}  # where a lock calls a table of the spec by another name
# Fields of a lock that have words of their own above; the name is no content.
_SAID = {
    "name", "torch", "variant", "cuda", "cudnn", "nccl", "triton", "python", "os", "platform", "base", "flavor",
    "image", "digest", "driver", "gpus", "archive", "debs", "wheels", "programs", "missing",
}  # fmt: skip


def specs(old: Spec, new: Spec, facts: Facts) -> tuple[Change, ...]:
    """What the change from one wish to another means: what is asked, and what the facts then choose.

    A wish that they forbid is itself a change, unless both are forbidden for the same reason.
    """
    changes: list[Change] = []
    for field in fields(Spec):
        if field.name not in ("path", "name"):
            changes += _rest(f"spec {field.name}", getattr(old, field.name), getattr(new, field.name), "wish")
    before, refused_before = _resolved(old, facts)
    after, refused_after = _resolved(new, facts)
    if before is not None and after is not None:
        stacks = _of_choice(old, before, facts), _of_choice(new, after, facts)
        changes += [*_stacks(*stacks, facts), *_gpus(*stacks)]
        for family, name in _KNOWN_WITHOUT_WHEEL.items():
            changes += _moved(family, getattr(before, name), getattr(after, name), *stacks, facts)
        for field in fields(Choice):
            if field.name not in _SAID_OF_CHOICE:
                changes += _rest(field.name, getattr(before, field.name), getattr(after, field.name))
    elif refused_before != refused_after:
        sides = (("first", refused_before, Weight.NOTABLE), ("second", refused_after, Weight.BREAKING))
        for which, refused, weight in sides:
            if refused:
                text = f"the {which} spec cannot be met: {refused}"
                changes.append(Change("wish", text, refused_before, refused_after, weight))
    return together(changes)


# The fields by which a lock and a choice know the version of a library that no wheel of theirs brings.
_KNOWN_WITHOUT_WHEEL = {"nvidia-cudnn": "cudnn", "nvidia-nccl": "nccl", "triton": "triton"}
_SAID_OF_CHOICE = {"row", "torch", "cuda", "cudnn", "nccl", "triton", "os", "glibc", "driver", "targets"}


def images(old: Image, new: Image, facts: Facts) -> tuple[Change, ...]:
    """What differs between two images as their processes show them: torch's build, loaded libraries, distributions.

    An image's name is no content, and neither are its engine and the GPUs of the machine on which it was observed; what
    its wheels ask for and leave unmapped goes with them.  What was observed in one image only, or in neither, is a
    change, for two unknowns are not the same; only two records of one digest that agree in full are.
    """
    if old.digest and replace(old, name="", engine="") == replace(new, name="", engine=""):
        return ()
    changes: list[Change] = []
    stacks = _of_image(old, facts), _of_image(new, facts)
    changes += _stacks(*stacks, facts)
    changes += _unseen(old, new)
    if old.torch_import.value and new.torch_import.value:
        changes += _rest("import torch", old.torch_import.value, new.torch_import.value, "torch", Weight.BREAKING)
    if old.libraries.value is not None and new.libraries.value is not None:
        changes += _libraries(old, new, *stacks, facts)
        if _NO_TORCH not in (stacks[0].torch, stacks[1].torch):
            changes += _bindings(old, new)
    if old.wheels.value is not None and new.wheels.value is not None:
        changes += _wheels(old.wheels.value, new.wheels.value, *stacks, facts)
    if old.torch.value and new.torch.value:
        changes += _rest("torch is compiled with cuDNN", old.torch.value.cudnn, new.torch.value.cudnn)
        changes += _rest("torch is compiled with NCCL", old.torch.value.nccl, new.torch.value.nccl)
    for label, name in (("late loads", "late"), ("overwritten files", "overwritten")):
        before, after = getattr(old, name).value, getattr(new, name).value
        if before is not None and after is not None and _NO_TORCH not in (stacks[0].torch, stacks[1].torch):
            changes += _rest(label, before, after, weight=Weight.NOTABLE)
    changes += _rest("image digest", old.digest, new.digest)
    return together(changes)


def together(*groups: Iterable[Change]) -> tuple[Change, ...]:
    """The changes of all groups, the weightiest first and else in the order given, each text once."""
    found: dict[str, Change] = {}
    for change in (change for group in groups for change in group):
        said = found.get(change.text)
        if said is None or said.weight < change.weight:
            found[change.text] = change
    return tuple(sorted(found.values(), key=lambda change: -change.weight))


def _code(row: TorchRow | None, machine: str) -> _Code:
    if row is None or machine not in ("x86_64", "aarch64"):
        return None, None
    return (row.archs, row.ptx) if machine == "x86_64" else (row.archs_aarch64, row.ptx_aarch64)


def _torch_name(torch: Version, variant: str) -> str:
    return f"{torch}+{variant}" if variant and not torch.local else str(torch)


def _glibc(os: str, facts: Facts) -> str:
    row = next((row for row in facts.oses if row.name == os), None)
    return str(row.glibc) if row else ""


def _of_lock(lock: Lock, facts: Facts) -> _Stack:
    machine = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}.get(lock.platform, lock.platform)
    row = next((row for row in facts.torches if (str(row.torch), row.variant) == (str(lock.torch), lock.variant)), None)
    drivers = lock.wish.get("drivers", ())
    return _Stack(
        torch=_torch_name(lock.torch, lock.variant),
        cuda=str(lock.cuda or ""),
        python=str(lock.python),
        machine=machine,
        os=lock.os,
        glibc=_glibc(lock.os, facts),
        driver=str(lock.driver or ""),
        code=_code(row, machine) if lock.cuda else ((), ()),
        gpus=tuple((name, Sm.parse(sm)) for name, sm, _ in lock.gpus),
        drivers=(drivers,) if isinstance(drivers, str) and drivers else tuple(drivers),
    )


def _resolved(spec: Spec, facts: Facts) -> tuple[Choice | None, str]:
    try:
        return resolve(spec, facts), ""
    except UsageError as error:
        return None, error.message


def _of_choice(spec: Spec, choice: Choice, facts: Facts) -> _Stack:
    return _Stack(
        torch=_torch_name(choice.torch, choice.variant),
        cuda=str(choice.cuda or ""),
        python=str(settled(spec, facts)[0].python),
        machine=spec.platform.machine,
        os=choice.os,
        glibc=_glibc(choice.os, facts),
        driver=str(choice.driver or ""),
        code=_code(choice.row, spec.platform.machine) if choice.cuda else ((), ()),
        gpus=tuple((target.name, target.sm) for target in choice.targets),
        drivers=tuple(map(str, spec.drivers)),
    )


def _of_image(image: Image, facts: Facts) -> _Stack:
    build = image.torch.value
    floor = facts.driver_min(Cuda(build.cuda)).compat if build and _cuda(build.cuda) else None
    return _Stack(
        torch=build.version if build else _NO_TORCH if image.import_state is ImportState.ABSENT else "",
        cuda=build.cuda if build else "",
        python=image.python.value or "",
        machine=image.platform.value or "",
        os="",
        glibc=(image.libc.value or "").removeprefix("glibc "),
        driver=str(floor or ""),
        code=_own_code(build) if build else (None, None),
        gpus=tuple((str(sm), sm) for sm in image.promise.value.gpus) if image.promise.value else (),
    )


def _own_code(build: TorchBuild) -> _Code:
    """Machine code and PTX as torch lists them; neither where it lists something that is no architecture."""
    try:
        archs = tuple(Sm.parse(text) for text in build.archs if not text.startswith("compute_"))
        return archs, tuple(Sm.parse(text) for text in build.archs if text.startswith("compute_"))
    except ValueError:
        return None, None


def _cuda(text: str) -> Cuda | None:
    """The CUDA that a version of two numbers or more begins with; None for anything else."""
    found = re.match(r"[0-9]+\.[0-9]+(?=\.|\Z)", text)
    return Cuda(found[0]) if found else None


def _stacks(old: _Stack, new: _Stack, facts: Facts) -> Iterator[Change]:
    if all(stack.torch not in ("", _NO_TORCH) for stack in (old, new)):  # without torch nothing of it can move
        yield from _architectures(old, new, facts)
        yield from _driver(old, new, facts)
        yield from _fleet(old, new, facts)
        yield from _cudas(old.cuda, new.cuda)
    yield from _pair("torch", "torch", old.torch, new.torch, Weight.BREAKING)
    same_minor = old.python.split(".")[:2] == new.python.split(".")[:2]
    yield from _pair("python", "python", old.python, new.python, Weight.NOTABLE if same_minor else Weight.BREAKING)
    yield from _pair("platform", "machine", old.machine, new.machine, Weight.BREAKING)
    yield from _pair("os", "operating system", old.os, new.os, Weight.BREAKING)
    yield from _pair("glibc", "glibc", old.glibc, new.glibc, Weight.BREAKING)


def _pair(kind: str, label: str, old: str, new: str, weight: Weight) -> Iterator[Change]:
    if old != new:
        yield Change(kind, f"{label} {old or 'not known'} -> {new or 'not known'}", old, new, weight)


def _cudas(old: str, new: str) -> Iterator[Change]:
    if old == new:
        return
    if old.split(".")[0] == new.split(".")[0]:
        yield Change("cuda", f"CUDA {old} -> {new}", old, new, Weight.NOTABLE)
    else:
        text = f"CUDA {old or 'none'} -> {new or 'none'}, another major: extensions must be built again"
        yield Change("cuda", text, old, new, Weight.BREAKING)


def _driver(one: _Stack, other: _Stack, facts: Facts) -> Iterator[Change]:
    """The oldest driver that serves, and the branches between the two floors."""
    old, new = one.driver, other.driver
    if old == new:
        return
    before, after = (stack.driver or ("none" if stack.cpu else "not known") for stack in (one, other))
    text = f"minimum driver {before} -> {after}"
    if not old or not new:
        yield Change("driver", text, old, new, Weight.NOTABLE if other.cpu else Weight.BREAKING)
        return
    low, high = sorted((Driver(old), Driver(new)))
    below = [row for row in facts.drivers if (row.latest < high if row.latest else row.branch < high.major)]
    between = [row for row in below if row.branch >= low.major]
    raised = Driver(new) > Driver(old)
    if between:
        first, last = between[0].branch, between[-1].branch
        which = f"branches {first} to {last}" if first != last else f"branch {first}"
        kept = [str(row.branch) for row in between if row.kind == "LTS"]
        among = f", the long-term {' and '.join(kept)} among them" if kept and first != last else ""
        text += f": {which} {'fall out' if raised else 'come in'}{among}"
    yield Change("driver", text, old, new, Weight.BREAKING if raised else Weight.NOTABLE)


def _fleet(old: _Stack, new: _Stack, facts: Facts) -> Iterator[Change]:
    """The drivers that one side declares and only the other side's minimum refuses.

    A bare branch is its oldest release, as it is for the solver.
    """
    if old.driver and new.driver:
        for driver in map(Driver, dict.fromkeys((*old.drivers, *new.drivers))):
            oldest = facts.oldest_release(driver)
            if Driver(old.driver) <= oldest < Driver(new.driver):
                text = f"driver {driver}, declared, is too old for it"
                yield Change("driver", text, str(driver), "", Weight.BREAKING)
            elif Driver(new.driver) <= oldest < Driver(old.driver):
                text = f"driver {driver}, declared, is new enough for it"
                yield Change("driver", text, "", str(driver), Weight.NOTABLE)


_WAYS = {"sass": "machine code", "ptx": "PTX", "none": "none", "unknown": "unknown"}


def _served(code: _Code, sm: Sm, tegra: bool) -> tuple[str, Sm | None]:
    """How code serves a GPU, in this module's words, and the architecture that does."""
    covered = served(*code, sm, tegra)
    return _WAYS[covered.state], covered.by


def _architectures(old: _Stack, new: _Stack, facts: Facts) -> Iterator[Change]:
    """The capabilities whose code comes, goes or changes its kind; those of declared GPUs first."""
    if old.code == new.code and (old.code[0] is not None or old.torch == new.torch):
        return
    if not old.cuda and not new.cuda:
        return
    if new.cpu:
        yield Change(
            "architecture", f"torch {new.torch} is built without CUDA: it runs on no GPU", "", "", Weight.BREAKING
        )
        return
    unread = [stack.torch or "not observed" for stack in (old, new) if stack.code[0] is None]
    if unread:
        text = f"the machine code of torch {' and '.join(unread)} was not read: what is dropped or gained is not known"
        yield Change("architecture", text, "", "", Weight.NOTABLE)
        return
    declared = {sm for _, sm in (*old.gpus, *new.gpus)}

    def served(stack: _Stack, row: ArchRow) -> tuple[str, Sm | None]:
        if row.tegra and stack.machine == "x86_64":
            return "none", None  # a Tegra GPU sits on no such machine
        return _served(stack.code, row.sm, row.tegra)

    for row in sorted(facts.archs, key=lambda row: row.sm not in declared):
        before, by_before = served(old, row)
        after, by_after = served(new, row)
        if (before, by_before) == (after, by_after):
            continue
        names = _products(row.sm, old, new, facts)
        which = f"{row.sm} ({names})" if names else str(row.sm)
        weight = Weight.NOTABLE
        if "unknown" in (before, after):
            text = f"whether {which} is served is known of one side only"
        elif after == "none":
            text, weight = f"drops {which}", Weight.BREAKING
        elif before == "none":
            text = f"gains {which}" + (" as PTX, which its driver must compile" if after == "PTX" else "")
        elif before != after:
            text = f"{which} goes from {before} to {after}"
        else:
            text = f"{which} runs {after} of {by_before} -> {by_after}"
        yield Change("architecture", text, str(by_before or ""), str(by_after or ""), weight)


def _products(sm: Sm, old: _Stack, new: _Stack, facts: Facts) -> str:
    """The GPUs of a capability: the declared ones as they were declared, then the data-centre ones, then others."""
    declared = [name for name, capability in (*old.gpus, *new.gpus) if capability == sm and name != str(sm)]
    known = {row.name for name in declared if (row := _product(name, facts))}
    others = [row for row in facts.gpus if row.sm == sm and row.name not in known]
    names = list(dict.fromkeys(declared)) + [row.name for row in sorted(others, key=lambda row: not row.datacenter)]
    more = f" and {len(names) - _GPUS} more" if len(names) > _GPUS else ""
    return ", ".join(names[:_GPUS]) + more


def _product(name: str, facts: Facts) -> GpuRow | None:
    try:
        return facts.gpu(name)
    except UsageError:  # a lock may name a GPU of newer facts
        return None


def _gpus(old: _Stack, new: _Stack) -> Iterator[Change]:
    for name, sm in old.gpus:
        if (name, sm) not in new.gpus:
            yield Change("gpu", f"no longer declares {name} ({sm})", name, "", Weight.NOTABLE)
    for name, sm in new.gpus:
        if (name, sm) not in old.gpus:
            yield Change("gpu", f"declares {name} ({sm})", "", name, Weight.NOTABLE)


class _Installed(Protocol):
    """A distribution, as a lock pins it or as an image has it."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...


# The libraries that a stack most often breaks by, as their makers write them; others go by their package's name.
_LABELS = {"nvidia-cudnn": "cuDNN", "nvidia-nccl": "NCCL", "nvidia-nvjitlink": "nvJitLink", "triton": "Triton"}
_LOADED = {"cudnn": "nvidia-cudnn", "nccl": "nvidia-nccl", "nvjitlink": "nvidia-nvjitlink"}


def _family(name: str) -> str:
    """A distribution's name without the CUDA line: packages that NVIDIA renamed from one line to the next are one."""
    return re.sub(r"-cu[0-9]+\Z", "", name)


def _has(lock: Lock, family: str) -> bool:
    return any(_family(pin.name) == family for pin in lock.wheels)


def _by_family(wheels: Iterable[_Installed]) -> dict[str, _Installed]:
    """Distributions by family; a second one of a family stands under its own name."""
    found: dict[str, _Installed] = {}
    for wheel in wheels:
        family = _family(wheel.name)
        found[wheel.name if family in found else family] = wheel
    return found


def _wheels(
    old: Iterable[_Installed], new: Iterable[_Installed], before: _Stack, after: _Stack, facts: Facts
) -> Iterator[Change]:
    mine, theirs = _by_family(old), _by_family(new)
    for family in sorted(mine.keys() | theirs.keys()):
        first, second = mine.get(family), theirs.get(family)
        versions = first.version if first else "", second.version if second else ""
        if family.startswith(("nvidia-", "cuda-")) or family in ("triton", "pytorch-triton"):
            yield from _moved(family, *versions, before, after, facts)
        elif first is None or second is None:
            verb, kind = ("adds", "wheel-added") if first is None else ("removes", "wheel-removed")
            yield Change(kind, f"{verb} {family} {versions[0] or versions[1]}", *versions, Weight.PLAIN)
        elif versions[0] != versions[1] and family != "torch":  # torch has words of its own
            yield Change("wheel-changed", f"{family} {versions[0]} -> {versions[1]}", *versions, Weight.PLAIN)
        if isinstance(first, Pin) and isinstance(second, Pin):
            yield from _pins(first, second)


def _pins(old: Pin, new: Pin) -> Iterator[Change]:
    """What differs between two pins besides the version."""
    if old.layer != new.layer:
        text = f"{new.name} moves from layer {old.layer} to {new.layer}"
        yield Change("wheel-changed", text, old.layer, new.layer, Weight.PLAIN)
    if old.version != new.version or old == replace(new, layer=old.layer):
        return
    if old.file != new.file:
        text = f"{new.name} {new.version} is another file: {old.file} -> {new.file}"
        yield Change("wheel-changed", text, old.file, new.file, Weight.PLAIN)
    elif old.sha256 != new.sha256:
        text = f"{new.name} {new.version} has another content under the same file name: sha256 {old.sha256[:12]} -> "
        yield Change("wheel-changed", text + new.sha256[:12], old.sha256, new.sha256, Weight.NOTABLE)
    else:
        text = f"{new.name} {new.version}: its recorded size or its wheels for other platforms differ"
        yield Change("wheel-changed", text, "", "", Weight.PLAIN)


def _moved(family: str, old: str, new: str, before: _Stack, after: _Stack, facts: Facts) -> Iterator[Change]:
    """A GPU package's step, by name, with what is known of it."""
    if old == new:
        return
    label = _LABELS.get(family, family)
    weight = Weight.NOTABLE if family in _LABELS else Weight.PLAIN
    text = f"{label} {old} -> {new}" if old and new else f"{'adds' if new else 'removes'} {label} {old or new}"
    # whose version begins with that of their CUDA toolkit (read in the indexes of the packages)
    numbered = family.startswith("nvidia-cuda-") or family in ("nvidia-nvjitlink", "nvidia-nvtx", "cuda-toolkit")
    if numbered and (note := _other_cuda(old, new, before.cuda, after.cuda)):
        text, weight = text + note, Weight.NOTABLE
    if family == "nvidia-cudnn" and old and new:
        note, breaks = _cudnn(old, new, before, after, facts)
        text, weight = text + note, Weight.BREAKING if breaks else weight
    yield Change("library", text, old, new, weight)


def _other_cuda(old: str, new: str, torch_old: str, torch_new: str) -> str:
    """That a library is of another CUDA than torch, or is so no more."""

    def strays(version: str, torch: str) -> bool:
        mine, theirs = _cuda(version), _cuda(torch)
        return mine is not None and theirs is not None and mine != theirs

    if strays(new, torch_new):
        return f", of CUDA {_cuda(new)} beside torch's {torch_new}"
    if strays(old, torch_old) and new:
        return f", of torch's own CUDA {torch_new} again"
    return ""


def _cudnn(old: str, new: str, before: _Stack, after: _Stack, facts: Facts) -> tuple[str, bool]:
    """Where cuDNN's machine code begins, if that moves, and whether it leaves a declared GPU without any code."""
    mine, theirs = _cudnn_code(old, before.cuda, facts), _cudnn_code(new, after.cuda, facts)
    if not mine or not theirs or not mine[0] or not theirs[0] or min(mine[0]) == min(theirs[0]):
        return "", False
    note = f" (no SASS below {min(theirs[0])}, before none below {min(mine[0])}"
    without = [(name, sm) for name, sm in after.gpus if _served(theirs, sm, False)[0] == "none"]
    lost = [name for name, sm in without if _served(mine, sm, False)[0] != "none"]
    return f"{note}: {', '.join(lost)} left without)" if lost else f"{note})", bool(lost)


def _cudnn_code(version: str, cuda: str, facts: Facts) -> _Code | None:
    try:
        row = facts.cudnn(version)
    except UsageError:
        return None
    line = f"cu{cuda.split('.')[0]}"
    archs = (row.archs or {}).get(line)
    return (archs, (row.ptx or {}).get(line)) if archs is not None else None


def _debs(old: Iterable[Deb], new: Iterable[Deb]) -> Iterator[Change]:
    def by_place(debs: Iterable[Deb]) -> dict[tuple[str, str, bool], Deb]:
        return {(deb.name, deb.arch, deb.layer == "tools"): deb for deb in debs}

    mine, theirs = by_place(old), by_place(new)
    for place in sorted(mine.keys() | theirs.keys()):
        first, second = mine.get(place), theirs.get(place)
        name = f"{place[0]}{' of the build stage' if place[2] else ''}"
        if first is None or second is None:
            verb, kind = ("adds", "deb-added") if first is None else ("removes", "deb-removed")
            versions = first.version if first else "", second.version if second else ""
            yield Change(kind, f"{verb} {name} {versions[0] or versions[1]}", *versions, Weight.PLAIN)
            continue
        if first.version != second.version:
            text = f"{name} {first.version} -> {second.version}"
            yield Change("deb-changed", text, first.version, second.version, Weight.PLAIN)
        elif first.sha256 != second.sha256:
            text = f"{name} {second.version} has another content: sha256 {first.sha256[:12]} -> {second.sha256[:12]}"
            yield Change("deb-changed", text, first.sha256, second.sha256, Weight.NOTABLE)
        elif first.size != second.size:
            text = f"{name} {second.version}: its recorded size {first.size} -> {second.size}"
            yield Change("deb-changed", text, str(first.size), str(second.size), Weight.PLAIN)
        if first.layer != second.layer:
            text = f"{name} moves from layer {first.layer} to {second.layer}"
            yield Change("deb-changed", text, first.layer, second.layer, Weight.PLAIN)


def _tools(old: Lock, new: Lock) -> Iterator[Change]:
    for layer, name, path in old.programs:
        if (layer, name, path) not in new.programs:
            yield Change("tool", f"removes the tool {name} from {layer}", path, "", Weight.PLAIN)
    for layer, name, path in new.programs:
        if (layer, name, path) not in old.programs:
            yield Change("tool", f"adds the tool {name} to {layer}", "", path, Weight.PLAIN)
    before, after = dict(old.missing), dict(new.missing)
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            yield Change("tool", f"lacks {name}: {after[name]}", "", after[name], Weight.NOTABLE)
        elif name not in after:
            yield Change("tool", f"no longer lacks {name}", before[name], "", Weight.NOTABLE)
        elif before[name] != after[name]:
            text = f"lacks {name} for another reason: {after[name]}"
            yield Change("tool", text, before[name], after[name], Weight.PLAIN)


def _base(old: Lock, new: Lock) -> Iterator[Change]:
    yield from _pair("base", "base", old.base, new.base, Weight.NOTABLE)
    yield from _pair("base", "base image", old.image, new.image, Weight.NOTABLE)
    if old.digest != new.digest:
        before, after = (digest[: len("sha256:") + 12] or "not seen" for digest in (old.digest, new.digest))
        text = f"base digest {before} -> {after}"
        yield Change("base", text, old.digest, new.digest, Weight.PLAIN)
    yield from _pair("archive", "apt archive of", old.archive, new.archive, Weight.PLAIN)
    yield from _pair("flavor", "default flavor", old.flavor, new.flavor, Weight.PLAIN)


def _unseen(old: Image, new: Image) -> Iterator[Change]:
    """What an image did not show, for which no comparison can speak."""
    torchless = old.import_state is new.import_state is ImportState.ABSENT
    for name, label in _OBSERVED:
        if torchless and name in _OF_TORCH:
            continue
        before: Observed[Any] = getattr(old, name)
        after: Observed[Any] = getattr(new, name)
        reasons = before.missing, after.missing
        if all(reasons):
            text = f"{label} observed in neither: {' / '.join(dict.fromkeys(reasons))}"
        elif any(reasons):
            which = "first" if reasons[0] else "second"
            text = f"{label} not observed in the {which}: {reasons[0] or reasons[1]}"
        else:
            continue
        yield Change("not-observed", text, *reasons, Weight.NOTABLE)


_OBSERVED = (
    ("python", "Python was"),
    ("platform", "the machine was"),
    ("wheels", "the installed distributions were"),
    ("libc", "the C library was"),
    ("torch_import", "the import of torch was"),
    ("torch", "torch's build was"),
    ("libraries", "the loaded libraries were"),
    ("bindings", "what torch's callers bind was"),
    ("late", "what torch loads late was"),
    ("overwritten", "overwritten files were"),
)
_OF_TORCH = ("torch", "libraries", "bindings", "late")  # rightly absent where there is no torch


def _version(library: Library) -> str:
    """What a library says of itself, in the longer form of its distribution where the two agree."""
    said, owned = library.version, library.owner_version
    agree = owned == said or owned.startswith(f"{said}.")
    return owned if owned and (agree or "." not in said) else said or "of no known version"


def _follows(library: Library, of: Image, beside: Image, both: bool) -> bool:
    """Whether a library only shares the fate of its distribution, which is then said: its version, or that there is one
    in one image alone where ``both`` is False."""
    family, version = _family(library.owner), library.owner_version
    if not family or _version(library) != version or beside.wheels.value is None:
        return False
    own = any((_family(wheel.name), wheel.version) == (family, version) for wheel in of.wheels.value or ())
    return own and any(_family(wheel.name) == family for wheel in beside.wheels.value) is both


def _libraries(before: Image, after: Image, old_stack: _Stack, new_stack: _Stack, facts: Facts) -> Iterator[Change]:
    """The mapped libraries, family by family: version, number of copies, whose they are, where they lie.

    A library that just comes, goes and moves with its distribution is said with that.
    """
    old, new = before.libraries.value or (), after.libraries.value or ()
    for name in sorted({library.name for library in (*old, *new)}):
        mine = [library for library in old if library.name == name]
        theirs = [library for library in new if library.name == name]
        both = bool(mine and theirs)
        alike = len(mine) == len(theirs) and len({_family(lib.owner) for lib in (*mine, *theirs)}) == 1
        follows = all(_follows(library, before, after, both) for library in mine) and (alike or not both)
        follows = follows and all(_follows(library, after, before, both) for library in theirs)
        versions = _listed(map(_version, mine)), _listed(map(_version, theirs))
        if not both or versions[0] != versions[1]:
            yield from _versions_moved(name, versions, (len(mine), len(theirs)), follows, old_stack, new_stack, facts)
        else:
            yield from _same_version_moved(name, versions, mine, theirs)


def _versions_moved(
    name: str,
    versions: tuple[str, str],
    copies: tuple[int, int],
    follows: bool,
    old_stack: _Stack,
    new_stack: _Stack,
    facts: Facts,
) -> Iterator[Change]:
    """A library that comes, goes or has another version; ``follows`` says that its distribution does the same."""
    family = _LOADED.get(name, "")
    label = _LABELS.get(family, name)
    weight = Weight.NOTABLE if family else Weight.PLAIN
    if not all(copies):
        if not follows:
            text = f"{'loads' if copies[1] else 'no longer loads'} {label} {versions[0] or versions[1]}"
            yield Change("library", text, *versions, weight)
        return
    number = f", {copies[0]} -> {copies[1]} copies" if copies[0] != copies[1] else ""
    if family and not number:
        yield from _moved(family, *versions, old_stack, new_stack, facts)
        return
    text = f"{label} {versions[0]} -> {versions[1]}{number}"
    if name in ("cudart", "nvrtc"):
        text += _other_cuda(*versions, old_stack.cuda, new_stack.cuda)
        yield Change("library", text, *versions, Weight.NOTABLE)
    elif not follows:
        yield Change("library", text, *versions, Weight.NOTABLE if number else weight)


def _same_version_moved(
    name: str, versions: tuple[str, str], mine: Sequence[Library], theirs: Sequence[Library]
) -> Iterator[Change]:
    """A library of one version in both images: how many there are, whose they are, where they lie."""
    said = f"{_LABELS.get(_LOADED.get(name, ''), name)} {versions[0]}"
    owners = [_listed(library.owner or library.path for library in libraries) for libraries in (mine, theirs)]
    paths = [sorted(map(_place, libraries)) for libraries in (mine, theirs)]
    if len(mine) != len(theirs):
        text, weight = f"{said} is loaded {len(mine)} -> {len(theirs)} times", Weight.NOTABLE
    elif owners[0] != owners[1]:
        text, weight = f"{said} is of {owners[0]} -> {owners[1]}", Weight.NOTABLE
    elif paths[0] != paths[1]:
        text, weight = f"{said} lies in {', '.join(paths[0])} -> {', '.join(paths[1])}", Weight.PLAIN
    else:
        return
    yield Change("library", text, *versions, weight)


def _bindings(old: Image, new: Image) -> Iterator[Change]:
    """Of whom each caller gets a library, where that is another distribution's or another file outside of them."""

    def givers(image: Image) -> dict[tuple[str, str, str], str]:
        owners = {library.path: _family(library.owner) for library in image.libraries.value or ()}
        bound = image.bindings.value or ()
        return {(one.name, one.symbol, one.caller): owners.get(one.path) or one.path for one in bound}

    mine, theirs = givers(old), givers(new)
    for key in sorted(mine.keys() | theirs.keys()):
        first, second = mine.get(key, "nowhere"), theirs.get(key, "nowhere")
        if first != second:
            name, symbol, caller = key
            text = f"{caller} gets {name} ({symbol}) from {first} -> {second}"
            # A caller that stops or begins to link a library is a matter of torch's build, which is said already.
            weight = Weight.NOTABLE if key in mine and key in theirs else Weight.PLAIN
            yield Change("library", text, first, second, weight)


def _place(library: Library) -> str:
    """The folder of a library, whatever Python's release in it."""
    return re.sub(r"/python3\.[0-9]+/", "/python3/", library.path.rpartition("/")[0])


def _listed(items: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(sorted(items)))


def _rest(name: str, old: object, new: object, kind: str = "field", weight: Weight = Weight.PLAIN) -> Iterator[Change]:
    """The difference of two values of any shape, taken apart until it is short."""
    if old == new or (old is None and new is None):
        return
    if type(old) is type(new) and is_dataclass(old) and not isinstance(old, type):
        for field in fields(old):
            yield from _rest(f"{name} {field.name}", getattr(old, field.name), getattr(new, field.name), kind, weight)
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({str(key) for key in (*old, *new)}):
            yield from _rest(f"{name} {key}", old.get(key, ""), new.get(key, ""), kind, weight)
    elif isinstance(old or (), (tuple, list)) and isinstance(new or (), (tuple, list)):
        yield from _rest_of_lists(name, _items(old), _items(new), kind, weight)
    elif name == "epoch" and isinstance(old, int) and isinstance(new, int):
        before, after = _day(old), _day(new)
        yield Change(kind, f"time stamps of {before} -> {after}", before, after, weight)
    else:
        before, after = _brief(old), _brief(new)
        yield Change(kind, f"{name} {before or 'none'} -> {after or 'none'}", before, after, weight)


def _rest_of_lists(
    name: str, old: Sequence[object], new: Sequence[object], kind: str, weight: Weight
) -> Iterator[Change]:
    mine, theirs = [_brief(item) for item in old], [_brief(item) for item in new]
    gone = ", ".join(item for item in mine if item not in theirs)
    come = ", ".join(item for item in theirs if item not in mine)
    if gone:
        yield Change(kind, f"{name}: drops {gone}", gone, "", weight)
    if come:
        yield Change(kind, f"{name}: adds {come}", "", come, weight)
    if not gone and not come:
        yield Change(kind, f"{name}: the same in another order or number", "", "", weight)


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, (tuple, list)) else ()


def _brief(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, (tuple, list)):
        return " ".join(_brief(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return " ".join(filter(None, (_brief(getattr(value, field.name)) for field in fields(value))))
    return str(value)


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
