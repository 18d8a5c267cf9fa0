"""Which torch a package brings along that requires it, where nothing has named a torch yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from envkit.dockerfile.torches import newest_for, nightly, variant_of
from envkit.facts import Facts
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import Commands, together
from envkit.model import Span
from envkit.records import replace
from envkit.subjects.dockerfile import Dockerfile, Install, Torch


def brought_before(
    dockerfile: Dockerfile, one: Install, order: Sequence[Install], commands: Mapping[Span, Commands], facts: Facts
) -> Iterator[tuple[Install, str]]:
    """Each package of ``order``, which come before ``one`` in other commands and go into the same environment, that
    brings a torch along, with the release that it is today."""
    mine = commands.get(one.span, {})
    for by in order:
        place = commands.get(by.span, {})
        if together(mine, place) or (by.prefix and one.prefix and by.prefix != one.prefix):
            continue
        brings = stack.along_with(by, dockerfile, facts)
        if brings is None or (by.specifier and not by.version):
            continue
        beside = [each for each in order if each is by or together(place, commands.get(each.span, {}))]
        if any(stack.held_to_unknown(each, facts) for each in beside):
            continue
        asked = [found for each in beside if (found := stack.along_with(each, dockerfile, facts)) is not None]
        if today := _today(by, asked, facts):
            yield by, today


def newest_of(one: Install, facts: Facts) -> str:
    """The torch that is the newest of its index where only its name or a bound is given, "" where that is not known."""
    plain = one.name == "torch" and one.manager in ("pip", "uv") and one.sure and one.python and not nightly(one)
    if not plain or one.version or one.url or one.locked or one.extra_indexes or one.find_links:
        return ""
    return newest_for(one, variant_of(one.index) or None, facts) if variant_of(one.index) or not one.index else ""


def _today(by: Install, asked: list[Torch], facts: Facts) -> str:
    """The torch that a command brings for packages which require it, "" where that is not determined."""
    exact = next((version for one in asked if (version := stack.said(one.version))), "")
    if exact or by.extra_indexes or by.find_links or not by.python:
        return exact
    if by.index and not variant_of(by.index):
        return ""
    bounds = ",".join(one.install.specifier for one in asked if one.install is not None and one.install.specifier)
    wanted = replace(by, name="torch", version="", specifier=bounds, url="")
    return newest_for(wanted, variant_of(by.index) or None, facts)
