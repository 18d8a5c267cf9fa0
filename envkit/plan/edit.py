"""Packages put into a spec and taken out of it, as a text: everything else in the file stays as a person wrote it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envkit.dockerfile.files import toml
from envkit.errors import UsageError, nearest
from envkit.plan import inputs
from envkit.plan.spec import Spec, parse

KEY = "packages"


def added(text: str, spec: Spec, wanted: Sequence[str]) -> str:
    """The spec ``text``, whose files ``spec`` was read with, asking for ``wanted`` too.

    Of a package that it asks for already, under the same marker, the new bounds replace the old ones and extras are
    added; a bare name changes nothing.  Raises UsageError for what is no requirement by name, for torch, and for a
    package that one of the spec's files asks for.
    """
    asked = [Requirement(inputs.requirement(one, "the command line")) for one in wanted]
    for one in asked:
        if _name(one) == "torch":
            raise UsageError("torch is no package of `packages`", "write its release or range under the key `torch`")
        _in_no_file(text, spec, _name(one))

    def change(held: list[str]) -> None:
        for one in asked:
            at = next((at for at, line in enumerate(held) if _same(one, _read(line))), None)
            if at is None:
                held.append(str(one))
            elif (merged := _merged(held[at], one)) != Requirement(held[at]):
                held[at] = str(merged)

    return _edited(text, spec.path, change)


def removed(text: str, spec: Spec, names: Sequence[str]) -> str:
    """The spec ``text`` without the packages ``names``, whatever their bounds and extras.

    Raises UsageError for a package that it does not ask for, or that one of its files does.
    """
    own = {_name(Requirement(one)): one for one in parse(text, spec.path).packages}
    gone = set()
    for written in names:
        name = _name(Requirement(inputs.requirement(written, "the command line")))
        if name == "torch":
            raise UsageError("torch is the base of every lock and cannot be removed", "change the key `torch`")
        if any(one.partition("==")[0] == name for one in spec.build):
            raise UsageError(f"{spec.path} has {name} compiled", "take it out of its `build` by hand")
        if name not in own:
            _in_no_file(text, spec, name)
            raise UsageError(
                f"{spec.path} does not ask for {name}{nearest(name, sorted(own))}",
                f"`envkit why {name}` says who brings it, if it is in the lock",
            )
        gone.add(name)

    def change(held: list[str]) -> None:
        left = [line for line in held if (one := _read(line)) is None or _name(one) not in gone]
        if len(left) == len(held):  # what is asked for by a file or an address
            raise _by_hand(spec.path)
        held[:] = left

    return _edited(text, spec.path, change)


def _name(one: Requirement) -> str:
    return canonicalize_name(one.name)


def _read(line: str) -> Requirement | None:
    """The requirement that an entry of the list is, None for one of another kind."""
    try:
        return Requirement(line.strip())
    except InvalidRequirement:
        return None


def _same(one: Requirement, other: Requirement | None) -> bool:
    return other is not None and (_name(one), str(one.marker or "")) == (_name(other), str(other.marker or ""))


def _merged(held: str, new: Requirement) -> Requirement:
    """``held`` with the extras of both and the bounds of ``new``, where it has any."""
    merged = Requirement(held)
    merged.extras |= new.extras
    merged.specifier = SpecifierSet(str(new.specifier or merged.specifier))
    return merged


def _in_no_file(text: str, spec: Spec, name: str) -> None:
    """Raises UsageError where a file that the spec names asks for the package: that file is another tool's too."""
    own = parse(text, spec.path)
    target = str(own.python), own.platform.machine
    files: list[tuple[str, Callable[[], inputs.Asked]]] = [
        (file, lambda file=file: inputs.of_file(spec.path.parent / file, *target))  # type: ignore[misc]
        for file in own.requirements
    ]
    if own.project:
        files.append((str(Path(own.project, "pyproject.toml")), lambda: _of_project(own)))
    for file, read in files:
        for line in read().packages:
            if _name(Requirement(line)) == name:
                raise UsageError(
                    f"{file} asks for {line}, and not {spec.path}", f"change {file}, then run `envkit lock`"
                )


def _of_project(own: Spec) -> inputs.Asked:
    folder = own.path.parent / own.project
    return inputs.of_project(folder, own.extras, own.groups, str(own.python), own.platform.machine)


def _edited(text: str, path: Path, change: Callable[[list[str]], None]) -> str:
    """``text`` after ``change`` of the list of its packages, the only difference."""
    import tomlkit  # 40 ms
    from tomlkit.exceptions import TOMLKitError
    from tomlkit.items import Array

    try:
        document = tomlkit.parse(text)
        table = _spec_in(document, path)
        if KEY not in table:
            table[KEY] = tomlkit.array()
        array = table[KEY]
        if not isinstance(array, Array):
            raise _by_hand(path)
        held = [str(line) for line in array]
        was = list(held)
        change(held)
        for at in reversed([at for at, line in enumerate(was) if line not in held and len(held) < len(was)]):
            del array[at]
            del was[at]
        for at, line in enumerate(held):
            if at >= len(was):
                array.append(line)
            elif was[at] != line:
                array[at] = line
        made = document.as_string()
    except (TOMLKitError, TypeError, KeyError, IndexError) as error:
        raise _by_hand(path) from error
    # what a person wrote is theirs: any other difference is refused
    before, after = toml(text), toml(made)
    listed = _spec_in(after, path).pop(KEY)
    _spec_in(before, path).pop(KEY, None)
    if before != after or listed != held:
        raise _by_hand(path)
    return made


def _by_hand(path: Path) -> UsageError:
    return UsageError(f"{path} is written in a way that envkit cannot change", f"change its `{KEY}` by hand")


def _spec_in(document: Any, path: Path) -> Any:
    """The table that is the spec."""
    return document["tool"]["envkit"] if path.name == "pyproject.toml" else document
