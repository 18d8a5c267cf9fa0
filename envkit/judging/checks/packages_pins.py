"""What is asked of the pins of a list of packages: that they can be installed together, and are what was locked."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.dockerfile.requirements import allows
from envkit.judging.checks import _by_index as by_index
from envkit.judging.checks._outcomes import error, found, or_skip, skip_if, warning
from envkit.judging.checks._packages import need_torch, sure
from envkit.model import Finding, Severity, Skip
from envkit.subjects.dockerfile import Install
from envkit.subjects.packages import Packages


def packages_hashes_partial(packages: Packages) -> Iterator[Finding]:
    """Either all requirements have hashes or none: one hash makes pip ask for all of them."""
    skip_if(packages.kind != "requirements", "only requirements files hold hashes line by line")
    skip_if(not packages.hashed and not packages.bare, "the file names no package")
    if not packages.hashed:
        return
    for one in packages.bare:
        what = f"{one.name}{one.specifier}" if one.name != "." else one.url
        yield error(
            f"{what} has no hash and {len(packages.hashed)} other line{'s' if len(packages.hashed) > 1 else ''} do, so "
            "that pip refuses the file"
            if not one.editable
            else f"{what} is editable and can have no hash, and other lines have one, so that pip refuses the file",
            one.span,
            {"a line with a hash": packages.hashed[0].span.place},
            "compile the file again with `pip-compile --generate-hashes` or `uv pip compile --generate-hashes`",
        )


def packages_conflicting_pins(packages: Packages) -> Iterator[Finding]:
    """No package is asked for twice in ways that exclude each other.  Source: PEP 440; pip's resolver refuses them."""
    if packages.is_lock or packages.kind == "spec":
        raise Skip("a lock may hold one package in several versions, each for its machines")
    by_name: dict[tuple[str, str], list[Install]] = {}
    for one in sure(packages):
        if one.name != "." and not one.marker:
            by_name.setdefault(("conda" if one.manager == "conda" else "pip", one.name), []).append(one)
    skip_if(not by_name, "the file names no package")
    told = False
    for (_, name), listed in by_name.items():
        pins = [one for one in listed if one.version]
        for later in listed:
            first = next((one for one in pins if one is not later and _exclude(one, later)), None)
            if first is None or (later.version and listed.index(first) > listed.index(later)):
                continue
            yield error(
                f"{name}{later.specifier} excludes {name}{first.specifier} of line {first.span.line}, so that nothing "
                "can be installed",
                later.span,
                {f"{name}{first.specifier}": first.span.place},
                "keep one of the lines",
            )
            told = True
    if not told:
        yield from by_index.refused(packages)


def _exclude(pin: Install, other: Install) -> bool:
    """Whether an exact pin and another requirement of the same package cannot both hold."""
    if other.version:
        differ = (pin.version, pin.local) != (other.version, other.local)
        return differ and (pin.version != other.version or bool(pin.local and other.local))
    if not other.specifier or pin.manager == "conda" or other.url:
        return False
    return allows(other.specifier, pin.version) is False


def packages_torch_twice(packages: Packages) -> Iterator[Finding]:
    """One environment gets torch from conda or from pip, not from both: pip's replaces files of conda's."""
    skip_if(packages.kind != "conda", "only a conda environment has two installers")
    torches = [one for one in sure(packages, "torch") if not one.constraint]
    if not torches:
        need_torch(packages)
    conda = next((one for one in torches if one.manager == "conda"), None)
    pip = next((one for one in torches if one.manager != "conda"), None)
    if conda is None or pip is None:
        return
    kept = not pip.version or (pip.version == conda.version and not pip.local)
    yield found(
        f"torch{pip.specifier} from pip comes on top of pytorch{conda.specifier} from conda"
        + (
            ", which stays if it satisfies pip's requirement"
            if kept
            else " and replaces it, with another set of CUDA libraries"
        ),
        pip.span,
        Severity.NOTE if kept else Severity.WARNING,
        "drop one of the two",
        {f"pytorch{conda.specifier}": conda.span.place},
    )


def packages_lock_stale(packages: Packages) -> Iterator[Finding]:
    """The lock answers the spec beside it.  Source: the spec that the lock was made for (envkit lock)."""
    skip_if(packages.kind != "lock", "the file is no envkit.lock")
    for one in or_skip(packages.disagreements, "there is no envkit.toml beside the lock"):
        yield error(one.message, one.span, {packages.spec: "read beside the lock"}, "lock again with `envkit lock`")


def packages_lock_not_fully_pinned(packages: Packages) -> Iterator[Finding]:
    """The lock pins its base and its Debian packages.  Source: what the lock holds (envkit lock)."""
    skip_if(packages.kind != "lock", "the file is no envkit.lock")
    for one in packages.leaves_open:
        yield warning(
            one.message,
            one.span,
            {"the lock": one.span.place},
            "lock again with `envkit lock --upgrade` where an engine, a registry and a Debian mirror are "
            "reachable; packages "
            "can be pinned only on a plain Debian base",
        )
