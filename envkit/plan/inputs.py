"""What a project's own files ask for: requirements files and pyproject.toml, as the requirements of a spec.

pip's format of requirements files, PEP 621 (dependencies and extras), PEP 735 (dependency groups), and of [tool.uv] the
constraints, the overrides and the age.  A wheel that a requirements file names by its path or address is pinned by its
hash; what else would come from elsewhere than the index (a folder, a repository, an archive) is refused with its name,
for it could not be pinned.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from envkit.dockerfile.files import toml
from envkit.errors import UsageError, nearest, one_line
from envkit.plan import given, indexes, uv_project
from envkit.plan.given import GivenWheel
from envkit.records import dataclass
from envkit.system import files

ANY = "3"  # in place of a Python that is still to be chosen
_PYTHONS = tuple(f"3.{minor}" for minor in range(8, 30))  # what a marker is tried with then
FILES = (".txt", ".in")  # what names a file where a requirement could stand too
_DEEPEST = 20  # files that name one another
_COMMENT = re.compile(r"(?:^|\s)#.*\Z")
_OPTIONS = re.compile(r"\s--?(?:hash|global-option|config-settings?)\b.*\Z", re.DOTALL)
_FILE = re.compile(r"(?:-(r|c)\s*|--(requirement|constraint)[\s=]+)(\S.*)\Z")
_INDEX = re.compile(r"(?:-i\s*|--(?:extra-)?index-url[\s=]+|-f\s*|--find-links[\s=]+)(\S.*)\Z")
_HARMLESS = re.compile(r"--(?:prefer-binary|only-binary|no-binary|require-hashes|trusted-host|use-feature)\b")
_WHEEL = re.compile(r"(?P<what>(?:[A-Za-z0-9][^@/:;]*@\s*)?[^\s;]+\.whl(?:#\S+)?)\s*(?:;\s*(?P<marker>.+))?")
_HASH = re.compile(r"--hash[=\s]sha256:([0-9a-f]{64})\b")
_DIRECT = re.compile(r"(?:-e\b|--editable\b|\.{0,2}/|\.\Z|[a-z+]+://|git\+)")


@dataclass(frozen=True, slots=True)
class Asked:
    """PEP 508 requirements: what is asked for, what holds for whatever is taken, and what stands in place of what
    packages ask for; ``before`` is the day (ISO 8601) from which on releases do not count, and ``python`` a
    specifier of the Pythons that will do, each "" for none; ``given`` are wheels that files name by path or address.
    """

    packages: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    before: str = ""
    python: str = ""
    index: str = ""
    extra_index: tuple[str, ...] = ()
    given: tuple[GivenWheel, ...] = ()

    def __add__(self, other: Asked) -> Asked:
        return Asked(
            self.packages + other.packages,
            self.constraints + other.constraints,
            self.overrides + other.overrides,
            self.before or other.before,
            self.python or other.python,
            self.index or other.index,
            tuple(dict.fromkeys(self.extra_index + other.extra_index)),
            tuple(dict.fromkeys(self.given + other.given)),
        )


def requirement(text: str, where: str) -> str:
    """``text`` as a requirement by name; raises UsageError that names ``where`` it stands for anything else."""
    try:
        found = Requirement(text)
    except InvalidRequirement as error:
        said = one_line(str(error).splitlines()[0])
        raise UsageError(f"{where} holds `{one_line(text)}`: {said}", "write name==version") from error
    if "===" in str(found.specifier):
        raise UsageError(f"{where} holds `{one_line(text)}`: === compares text, not versions", "write name==version")
    if found.url:
        raise UsageError(f"{where} holds a URL for {found.name}", "name it as name==version from an index")
    return str(found)


def of_file(path: Path, python: str, machine: str, *, constraints: bool = False, depth: int = 0) -> Asked:
    """What a requirements file asks for, and the files that it names; ``constraints`` says that it bounds only.

    Raises UsageError for what cannot be read and for a line that cannot be pinned.
    """
    if depth > _DEEPEST:
        raise UsageError(
            f"{path} is named by {_DEEPEST} files in a row", "let the files not name one another in a circle"
        )
    text = files.text(path, "name a requirements file, from the folder of the spec")
    asked, whole = Asked(), text.replace("\r\n", "\n").replace("\\\n", " ")
    for line in (_COMMENT.sub("", each).strip() for each in whole.split("\n")):
        if not line or _HARMLESS.match(line):
            continue
        if found := _FILE.match(line):
            bounds = constraints or (found[1] or found[2])[0] == "c"
            asked += of_file(path.parent / found[3].strip(), python, machine, constraints=bounds, depth=depth + 1)
        elif found := _INDEX.match(line):
            asked += _index(path, line, found[1].strip())
        elif not constraints and (found := _WHEEL.fullmatch(_OPTIONS.sub("", line).strip())):
            asked += _given(path, line, found["what"], found["marker"] or "", python, machine)
        elif _DIRECT.match(line):
            raise UsageError(
                f"{path} holds `{_shown(line)}`, which no index has", "name it as name==version, or drop it"
            )
        elif line.startswith("-"):
            raise UsageError(f"{path} holds the option `{_shown(line)}`", "drop it; an index is named by `index`")
        else:
            one = _applying(requirement(_OPTIONS.sub("", line).strip(), str(path)), python, machine)
            asked += Asked(constraints=one) if constraints else Asked(one)
    return asked


def _given(path: Path, line: str, what: str, marker: str, python: str, machine: str) -> Asked:
    """The wheel that a line of a requirements file names by its path, from the folder of that file on, or address."""
    hashes = _HASH.findall(line)
    if "#" not in what and len(hashes) == 1:
        what += f"#sha256={hashes[0]}"
    wheel = given.read(what, str(path))
    if wheel is None:
        raise UsageError(f"{path} holds `{_shown(line)}`, which is no wheel's name", "correct it, or drop it")
    by_name = f"{wheel.requirement}; {marker}" if marker else wheel.requirement
    asked = _applying(requirement(by_name, str(path)), python, machine)
    return Asked(asked, given=(given.hashed(wheel, path.parent),)) if asked else Asked()


def _index(path: Path, line: str, address: str) -> Asked:
    """The index that a line of a requirements file names; that of torch's builds is chosen by `cuda`."""
    from envkit.dockerfile.requirements import build_of  # few files name one, and what reads Dockerfiles comes along

    if build_of(address):
        return Asked()
    if line.startswith(("-f", "--find-links")):
        raise UsageError(f"{path} names a page of links", "name its wheels in `packages`, or an index in `extra-index`")
    address = indexes.address(str(path), address)
    return Asked(extra_index=(address,)) if line.startswith("--extra") else Asked(index=address)


def _shown(line: str) -> str:
    """A line's beginning, for an address may hold credentials."""
    return one_line(re.sub(r"//[^/@]*@", "//", line))[:80]


def _applying(text: str, python: str, machine: str) -> tuple[str, ...]:
    """The requirement, or none if its marker says that the target needs none; torch without its build.

    `cuda` chooses the build, so that "+cuXYZ" behind the release of torch or one of its kin says nothing here.
    """
    one = Requirement(text)
    target = {
        "sys_platform": "linux", "os_name": "posix", "platform_system": "Linux", "platform_machine": machine,
        "implementation_name": "cpython", "platform_python_implementation": "CPython", "extra": "",
    }  # fmt: skip
    fits = {
        one.marker is None
        or one.marker.evaluate({**target, "python_version": each, "python_full_version": f"{each}.0"})
        for each in (_PYTHONS if python == ANY else (python,))
    }
    if fits == {False}:
        return ()
    if canonicalize_name(one.name) in uv_project.KIN:
        if False in fits:
            raise UsageError(f"which {one.name} is asked for depends on the Python: `{text}`", "write `python` out")
        one.marker = None
        one.specifier = SpecifierSet(re.sub(r"\+[A-Za-z0-9.]+", "", str(one.specifier)))
    return (str(one),)


def of_project(
    folder: Path,
    extras: Sequence[str],
    groups: Sequence[str],
    python: str,
    machine: str,
    given: Collection[str] = (),
) -> Asked:
    """What the project in ``folder`` depends on, with these of its extras and dependency groups; the versions in a
    uv.lock beside it are constraints.

    Raises UsageError for a project without fixed dependencies, an unknown extra or group, another Python, and a
    dependency that uv takes from elsewhere than an index, but for ``given``, whose wheels the spec names.
    """
    path, target = folder / "pyproject.toml", (python, machine)
    try:
        table = toml(files.text(path, "name the folder of a pyproject.toml"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {one_line(str(error))}", "fix the line named above") from error
    project, uv = _table(table, "project"), _table(_table(table, "tool"), "uv")
    if not project:
        raise UsageError(f"{path} has no [project]", "name its dependencies in a requirements file: `requirements`")
    for key in ("dependencies", "optional-dependencies"):
        if key in project.get("dynamic", ()):
            raise UsageError(f"{path}: `{key}` is dynamic", "name the requirements file that they come from")
    _right_python(path, project.get("requires-python", ""), python)
    lines = [*_texts(path, project, "dependencies")]
    optional = _table(project, "optional-dependencies")
    for extra in _own_extras(path, str(project.get("name", "")), optional, extras):
        lines += _texts(path, optional, extra)
    for group in groups:
        lines += _group(path, _table(table, "dependency-groups"), group, ())
    own = canonicalize_name(str(project.get("name", "")))
    named = [Requirement(requirement(line, str(path))) for line in lines]
    kept = [one for one in named if canonicalize_name(one.name) != own]
    uv_project.sources(path, uv, {canonicalize_name(one.name) for one in kept}, given)
    index, extra_index = uv_project.named_indexes(path, uv)
    locked = [text for line in uv_project.held(folder, own, extras, groups, given) for text in _applying(line, *target)]
    if python != ANY:  # the markers have had their say
        locked = [text.partition(";")[0] for text in locked]
    packages = [text for one in kept for text in _applying(str(one), *target)]
    return Asked(
        tuple(dict.fromkeys(packages)),
        (*(requirement(line, str(path)) for line in _texts(path, uv, "constraint-dependencies")), *locked),
        tuple(requirement(line, str(path)) for line in _texts(path, uv, "override-dependencies")),
        str(uv.get("exclude-newer", "")),
        str(project.get("requires-python", "")),
        index,
        extra_index,
    )


def _table(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = table.get(key, {})
    return found if isinstance(found, Mapping) else {}


def _texts(path: Path, table: Mapping[str, Any], key: str) -> list[str]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise UsageError(f"{path}: `{key}` must be a list of texts", f'write {key} = ["...", "..."]')
    return found


def _right_python(path: Path, wanted: object, python: str) -> None:
    try:
        fits = python == ANY or admits_python(str(wanted), python)
        SpecifierSet(str(wanted))
    except InvalidSpecifier as error:
        raise UsageError(
            f"{path}: `requires-python` is {one_line(repr(wanted))}", "write a version specifier"
        ) from error
    if not fits:
        raise UsageError(f"{path} requires Python {wanted}, but `python` is {python}", "change `python`")


def admits_python(wanted: str, python: str) -> bool:
    """Whether a release of this Python (major and minor) meets the specifier."""
    return SpecifierSet(wanted).contains(python) or SpecifierSet(wanted).contains(f"{python}.99")


def _own_extras(path: Path, name: str, optional: Mapping[str, Any], extras: Sequence[str]) -> list[str]:
    """The extras, and those that they name of the project itself ("all" asks for "NAME[train,eval]")."""
    known = {canonicalize_name(extra): extra for extra in optional}
    wanted, found = list(extras), []
    while wanted:
        extra = canonicalize_name(wanted.pop(0))
        if extra not in known:
            near = nearest(extra, list(known))
            raise UsageError(f"{path} has no extra `{extra}`{near}", f"known: {', '.join(optional) or 'none'}")
        if known[extra] not in found:
            found.append(known[extra])
            for line in _texts(path, optional, known[extra]):
                one = Requirement(requirement(line, str(path)))
                wanted += sorted(one.extras) if canonicalize_name(one.name) == canonicalize_name(name) else []
    return found


def _group(path: Path, groups: Mapping[str, Any], name: str, above: tuple[str, ...]) -> list[str]:
    """The requirements of a dependency group and of those that it includes (PEP 735)."""
    known = {canonicalize_name(each): each for each in groups}
    key = canonicalize_name(name)
    if key not in known or key in above or not isinstance(groups[known[key]], list):
        why = "includes itself" if key in above else "is no list" if key in known else "does not exist"
        near = nearest(key, list(known)) if key not in known else ""
        raise UsageError(f"{path}: dependency group `{one_line(name)}` {why}{near}", "change the group")
    lines: list[str] = []
    for each in groups[known[key]]:
        if isinstance(each, str):
            lines.append(each)
        elif isinstance(each, Mapping) and isinstance(each.get("include-group"), str):
            lines += _group(path, groups, each["include-group"], (*above, key))
        else:
            raise UsageError(f"{path}: dependency group `{name}` holds {one_line(repr(each))}", "write a requirement")
    return lines


def bounds(entries: Sequence[str], key: str, folder: Path, python: str, machine: str) -> tuple[str, ...]:
    """Requirements of a list that holds requirements, or names of files with them (FILES)."""
    found: list[str] = []
    for entry in entries:
        if entry.endswith(FILES):
            found += of_file(folder / entry, python, machine, constraints=True).constraints
        else:
            found += _applying(requirement(entry, f"`{key}`"), python, machine)
    return tuple(found)
