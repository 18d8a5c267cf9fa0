"""Which torch an installer may take beside a package: by its pin, or by each release that its bounds let in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from packaging.version import InvalidVersion, Version

from envkit.dockerfile.requirements import allows
from envkit.facts import Facts, TorchNeedRow
from envkit.facts.pairs import goes_with
from envkit.judging.checks._torch_fit import cited
from envkit.records import dataclass
from envkit.subjects.dockerfile import Install
from envkit.versions import Torch

MATES = ("torchvision", "torchaudio")
_HELD_FROM_ABOVE = ("==", "<", "~", "^")


@dataclass(frozen=True, slots=True)
class Want:
    """What one install asks of torch: ``admits`` a release, ``asked`` in words, ``because`` where that stands."""

    install: Install
    asked: str
    admits: Callable[[str], bool]
    because: str

    @property
    def named(self) -> str:
        """The package as a sentence names it."""
        one = self.install
        return f"{one.name} {one.version}" if one.version else f"{one.name}{one.specifier}"


def want_of(one: Install, facts: Facts) -> Want | None:
    """What ``one`` asks of the torch beside it, where its installer heeds that and the facts know it for each release
    that it may take.  Of a name alone the installer takes a release that fits, so that it wants nothing.

    Source: Requires-Dist of the releases.
    """
    free = one.url or one.constraint or one.locked or one.marker or not one.sure or "--no-deps" in one.options
    if free or one.manager not in ("pip", "uv") or not one.specifier:
        return None
    if one.name == "torch":
        readable = not one.local and allows(one.specifier, "1.0") is not None
        return Want(one, f"torch{one.specifier}", _under(one.specifier), one.span.place) if readable else None
    return _of_mate(one, facts) if one.name in MATES else _of_rows(one, facts)


def excluding(wants: Sequence[Want], facts: Facts) -> tuple[Want, Want] | None:
    """Two of ``wants``, of different packages, that no release of torch serves both of, also none that is to come."""
    if len(wants) < 2:
        return None
    mentioned = {number for want in wants for number in _named(want.asked)}
    releases = [*(str(row.torch) for row in facts.torches_all if row.default), *sorted(mentioned), _TO_COME]
    # What asks for the same is asked once.
    served: dict[frozenset[str], Want] = {}
    for want in wants:
        served.setdefault(frozenset(release for release in releases if want.admits(release)), want)
    for at, (mine, one) in enumerate(served.items()):
        for theirs, other in tuple(served.items())[:at]:
            if mine.isdisjoint(theirs) and one.install.name != other.install.name:
                return other, one
    return None


_TO_COME = "999.0"


def _named(text: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)+", text)


def _under(specifier: str) -> Callable[[str], bool]:
    return lambda release: allows(specifier, release) is not False


def open_above(specifier: str) -> bool:
    """Whether a specifier lets in what will be released."""
    return not any(part.strip().startswith(_HELD_FROM_ABOVE) for part in specifier.split(","))


def _of_rows(one: Install, facts: Facts) -> Want | None:
    """By the table of who asks for which torch."""
    if one.version:
        row = facts.torch_need(one.name, one.version)
        return Want(one, f"torch{row.torch}", _under(row.torch), cited(row)) if row is not None and row.torch else None
    table = facts.torch_needs_of.get(one.name, ())
    rows = [row for row in table if _lets_in(one.specifier, row)]
    if not rows or any(not row.torch for row in rows) or not _bounded_below(one.specifier, table[0].since):
        return None
    asked = [row.torch or "" for row in rows]
    later = _after(asked[-1:], facts) if open_above(one.specifier) else None
    first, last = f"torch{asked[0]}", f"torch{asked[-1]}"
    return Want(one, first if len(set(asked)) == 1 else f"{first} to {last}", _any_of(asked, later), cited(rows[-1]))


def _bounded_below(specifier: str, first: str) -> bool:
    """Whether a specifier lets in no release before the first that was read."""
    lowest = (part.strip() for part in specifier.split(","))
    bounds = [_named(part) for part in lowest if part.startswith((">", "==", "~="))]
    return any(bound and Version(bound[0]) >= Version(first) for bound in bounds)


def _lets_in(specifier: str, row: TorchNeedRow) -> bool:
    """Whether a specifier may let in a release of a row: one of its ends, or one between them that it names itself."""
    try:
        inner = [bound for bound in _named(specifier) if Version(row.since) <= Version(bound) <= Version(row.until)]
    except InvalidVersion:
        return True
    return bool(inner) or any(allows(specifier, end) is not False for end in (row.since, row.until))


def _any_of(asked: Iterable[str], later: str | None) -> Callable[[str], bool]:
    each = tuple(asked)

    def admits(release: str) -> bool:
        known = any(allows(specifier, release) is not False for specifier in each)
        return known or (later is not None and Version(release) > Version(later))

    return admits


def _after(asked: Iterable[str], facts: Facts) -> str:
    """The newest torch that is known to serve: releases to come may ask for any after it."""
    each = tuple(asked)
    fitting = [str(row.torch) for row in facts.torches_all if any(allows(one, str(row.torch)) for one in each)]
    return fitting[-1] if fitting else "0"


def _of_mate(one: Install, facts: Facts) -> Want | None:
    """By the pairs of torch with torchvision and torchaudio."""
    pairs = {
        mate: row.torch
        for row in facts.torches_all
        for mate in (row.torchvision if one.name == "torchvision" else row.torchaudio) or ()
    }
    mates = [one.version] if one.version in pairs else [each for each in pairs if allows(one.specifier, each)]
    if not mates or one.local:
        return None
    newest = max(pairs[mate] for mate in mates)
    open_ = open_above(one.specifier)

    def admits(release: str) -> bool:
        fits = any(goes_with(one.name, mate, Torch(release), facts) is not False for mate in mates)
        return fits or (open_ and Torch(release) > newest)

    first = min(pairs[mate] for mate in mates)
    asked = f"torch {first}" if first == newest and not open_ else f"torch {first} or newer"
    return Want(one, asked, admits, f"facts: the pairs of torch and {one.name}")
