"""What an image requires of a machine by NVIDIA_REQUIRE_*, evaluated as nvidia-container-cli does.

Grammar (libnvidia-container, src/cli/dsl.c and configure.c; nvidia-container-toolkit, internal/config/image): a
requirement is alternatives between spaces, an alternative is conditions between commas, a condition is a property, an
operator and a value.  All variables must be met, by each GPU that the container gets.  Alternatives are tried from
left to right and the first that holds ends it, so that nonsense behind it is never read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from envkit.patterns import pattern
from envkit.records import dataclass

_PREFIX, _CUDA, _JETPACK = "NVIDIA_REQUIRE_", "NVIDIA_REQUIRE_CUDA", "NVIDIA_REQUIRE_JETPACK"
_DISABLE, _LEGACY = "NVIDIA_DISABLE_REQUIRE", "CUDA_VERSION"
_TRUE = ("1", "t", "T", "TRUE", "true", "True")  # what Go's strconv.ParseBool takes for true
_CONDITION = pattern(r"([^<>=!]+)([<>=!]+)(.+)\Z")
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_NUMBERS = pattern(r"[0-9]+(?:\.+[0-9]+)*\.*\Z")
_LEGACY_FORM = pattern(r"v?([0-9]+)(?:\.([0-9]+))?(?:\.[0-9]+)?(?:[-+].*)?\Z")
_VERSIONS = ("cuda", "driver", "arch")


class InvalidExpression(ValueError):
    """A requirement that nvidia-container-cli calls an invalid expression, and for which it refuses the container."""


@dataclass(frozen=True, slots=True)
class Properties:
    """What a requirement asks about: versions as NVIDIA writes them, each None where nothing is asked of it.

    ``arch`` and ``brand`` are those of one GPU, None where the container gets none; a condition on what is None holds,
    as it does for nvidia-container-cli.  ``brand`` is NVML's, in any spelling.
    """

    cuda: str | None
    driver: str | None
    arch: str | None
    brand: str | None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement and the variable that makes it."""

    variable: str
    text: str


def disabled(environment: Mapping[str, str]) -> bool:
    """Whether NVIDIA_DISABLE_REQUIRE turns every requirement off."""
    return environment.get(_DISABLE, "") in _TRUE


def requirements(environment: Mapping[str, str]) -> Iterator[Requirement]:
    """The requirements of a container's whole environment, disabled or not; those for JetPack are left out.

    An image that has CUDA_VERSION and no NVIDIA_REQUIRE_CUDA is of the old kind, which requires that CUDA's minor.
    Raises InvalidExpression for a CUDA_VERSION that is no version.
    """
    for name, text in sorted(environment.items()):
        if name.startswith(_PREFIX) and not name.startswith(_JETPACK):
            yield Requirement(name, text)
    legacy = environment.get(_LEGACY, "")
    if legacy and not environment.get(_CUDA, ""):
        found = _LEGACY_FORM.match(legacy)
        if found is None:
            raise InvalidExpression(f"{_LEGACY} is `{legacy}`, which is no version")
        yield Requirement(_LEGACY, f"cuda>={int(found[1])}.{int(found[2] or 0)}")


def same_brand(one: str, other: str) -> bool:
    """Whether two spellings name one brand: case, spaces, dashes and a leading NVIDIA before a word do not matter."""
    return _brand(one) == _brand(other)


def _brand(text: str) -> str:
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    short = plain.removeprefix("nvidia")
    # "NVIDIA" and "NVIDIA RTX" are brands of their own; of the virtual ones images write the short form
    return plain if short in ("", "rtx") else short


def compare(one: str, operator: str, other: str) -> bool:
    """Whether version ``one`` stands to ``other`` as ``operator`` says; missing numbers count as zero.

    Raises InvalidExpression for what is no version.
    """
    for text in (one, other):
        if not _NUMBERS.match(text):
            raise InvalidExpression(f"`{text}` is no version")
    mine, theirs = ([int(part) for part in text.split(".") if part] for text in (one, other))
    length = max(len(mine), len(theirs))
    left, right = (tuple(parts + [0] * (length - len(parts))) for parts in (mine, theirs))
    return _OPERATORS[operator](left, right)


def _holds(condition: str, about: Properties) -> bool:
    parts = _CONDITION.match(condition)
    if parts is None:
        raise InvalidExpression(f"`{condition}` is no condition")
    name, operator, value = parts[1].lower(), parts[2], parts[3]
    if operator == "!":  # the reader of libnvidia-container compares as many characters as there are
        operator = "!="
    if operator not in _OPERATORS:
        raise InvalidExpression(f"`{operator}` in `{condition}` is no operator")
    if name in _VERSIONS:
        has = {"cuda": about.cuda, "driver": about.driver, "arch": about.arch}[name]
        return has is None or compare(has, operator, value)
    if name != "brand":
        raise InvalidExpression(f"`{parts[1]}` in `{condition}` is no property")
    if about.brand is None:
        return True
    if operator not in ("=", "!="):
        raise InvalidExpression(f"`{condition}` orders brands")
    return same_brand(about.brand, value) == (operator == "=")


def met(text: str, about: Properties) -> bool:
    """Whether the requirement ``text`` holds; an empty one does.  Raises InvalidExpression as nvidia-container-cli
    refuses."""
    outcome = True
    for alternative in text.split(" "):
        if not alternative:
            continue
        for condition in alternative.split(","):
            if condition:
                outcome = _holds(condition, about)
                if not outcome:
                    break
        else:  # none of its conditions failed: a term of commas alone leaves what was said before
            return outcome
    return outcome


def asks(text: str) -> frozenset[str]:
    """The properties that ``text`` names, in lower case, whatever else is wrong with it."""
    conditions = (one for alternative in text.split(" ") for one in alternative.split(","))
    return frozenset(found[1].lower() for one in conditions if (found := _CONDITION.match(one)))
