"""Packages put into a spec and taken out of it, as a text: everything else in the file stays as a person wrote it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envkit.dockerfile.files import toml
from envkit.errors import UsageError, nearest
from envkit.plan import inputs
from envkit.plan.spec import Spec, parse

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import Array

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

    def change(held: list[Requirement], array: Array) -> None:
        for one in asked:
            at = next((at for at, other in enumerate(held) if _same(one, other)), None)
            if at is None:
                array.append(str(one))
                held.append(one)
            elif (merged := _merged(held[at], one)) != held[at]:
                array[at] = str(merged)
                held[at] = merged

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
        if name not in own:
            _in_no_file(text, spec, name)
            raise UsageError(
                f"{spec.path} does not ask for {name}{nearest(name, sorted(own))}",
                f"`envkit why {name}` says who brings it, if it is in the lock",
            )
        gone.add(name)

    def change(held: list[Requirement], array: Array) -> None:
        for at in reversed(range(len(held))):
            if _name(held[at]) in gone:
                del array[at]
                del held[at]

    return _edited(text, spec.path, change)


def _name(one: Requirement) -> str:
    return canonicalize_name(one.name)


def _same(one: Requirement, other: Requirement) -> bool:
    return (_name(one), str(one.marker or "")) == (_name(other), str(other.marker or ""))


def _merged(held: Requirement, new: Requirement) -> Requirement:
    """``held`` with the extras of both and the bounds of ``new``, where it has any."""
    merged = Requirement(str(held))
    merged.extras |= new.extras
    merged.specifier = SpecifierSet(str(new.specifier or held.specifier))
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


def _edited(text: str, path: Path, change: Callable[[list[Requirement], Array], None]) -> str:
    """``text`` after ``change`` of its packages and of the array that holds them, which are the same."""
    import tomlkit  # 40 ms
    from tomlkit.exceptions import TOMLKitError
    from tomlkit.items import Array

    by_hand = UsageError(f"{path} is written in a way that envkit cannot change", f"change its `{KEY}` by hand")
    try:
        document: TOMLDocument = tomlkit.parse(text)
        table: Any = document
        if KEY not in table:
            table.add(KEY, tomlkit.array())
        array = table[KEY]
        if not isinstance(array, Array):
            raise by_hand
        held = [Requirement(one.strip()) for one in array]
        change(held, array)
        made = document.as_string()
    except (TOMLKitError, TypeError, IndexError) as error:
        raise by_hand from error
    # what a person wrote is theirs: any other difference than this one is refused
    before, after = toml(text), toml(made)
    if {**before, KEY: 0} != {**after, KEY: 0} or [Requirement(one.strip()) for one in after[KEY]] != held:
        raise by_hand
    return made
