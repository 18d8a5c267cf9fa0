"""The project of a spec as a wheel: built as those of source releases are, see `sources`, from a copy of its folder.

What that takes is pinned in the lock, which runs nothing of the project; the wheel itself is made anew by each build of
an image, from the files as they are then, and installed by its hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.utils import parse_wheel_filename

from envkit.errors import Unsatisfiable
from envkit.plan import project_tree, sources
from envkit.plan.indexes import Indexes
from envkit.plan.lockfile import Pin, Project
from envkit.plan.package import OFF
from envkit.plan.project_tree import LeftOut
from envkit.plan.sources import Failed
from envkit.plan.spec import Spec
from envkit.records import dataclass
from envkit.system import proc
from envkit.versions import Python

Say = Callable[[str], None]
# The pins that requirements of a build come to for a Python of this machine.
Resolve = Callable[[Python, Sequence[str]], tuple[Pin, ...]]


@dataclass(frozen=True, slots=True)
class ProjectWheel:
    """The wheel of a project: its file name and content."""

    file: str
    data: bytes

    @property
    def version(self) -> str:
        """The version of the project."""
        return str(parse_wheel_filename(self.file)[1])

    @property
    def requirement(self) -> str:
        """The line by which an installer takes this very file."""
        name = parse_wheel_filename(self.file)[0]
        return f"{name}=={self.version} --hash=sha256:{hashlib.sha256(self.data).hexdigest()}\n"


def folder_of(spec: Spec) -> Path:
    """Where the project of a spec lies."""
    return spec.path.parent / spec.project


def lock(spec: Spec, python: Python, held: Project | None, resolve: Resolve) -> Project:
    """What the lock of ``spec`` says of its project; what building it takes stays as in ``held``.

    It is read from pyproject.toml: a lock runs nothing of the project, which may be somebody else's.  Raises
    Unsatisfiable for a project that says nothing that can be built, Undecided where the index does not serve.
    """
    name = spec.package[0]
    folder = folder_of(spec)
    roots = _roots(folder, name)
    if held and held.name == name:
        return Project(name, held.python, held.requires, roots)
    try:
        own, pins = sources.pinned_for(folder, python, resolve)
    except Failed as error:
        raise _refused(name, folder, error) from error
    return Project(name, str(own), pins, roots)


def wheel(spec: Spec, project: Project, say: Say, indexes: Indexes, left_out: LeftOut) -> ProjectWheel:
    """The wheel of the project as it is now, built with what the lock pins; ``left_out`` learns what was left behind.

    Raises what ``lock`` does.
    """

    def unasked(python: Python, lines: Sequence[str]) -> tuple[Pin, ...]:
        raise AssertionError("the lock says what it is built with")

    folder = folder_of(spec)
    say(f"building the project {project.name}")
    try:
        with proc.scratch_folder() as room:
            source = room / "source"
            source.mkdir()
            project_tree.copy(folder, ["."], source, left_out=left_out)
            python = Python(project.python)
            path, _, _ = sources.built_in(room, source, python, project.requires, unasked, say, indexes)
            return ProjectWheel(path.name, sources.normalised(path, project.name, ""))
    except Failed as error:
        raise _refused(project.name, folder, error) from error


def _refused(name: str, folder: Path, error: Failed) -> Unsatisfiable:
    known = sources.explained(error.lines)
    why = f"{error.why} ({known})" if known else error.why
    return Unsatisfiable(
        f"the project {name} in {folder} makes no wheel of plain Python: {why}",
        error.lines,
        (),
        f"mend its build, and name all that it needs under `requires` of [build-system]; {OFF}",
    )


def _roots(folder: Path, name: str) -> tuple[str, ...]:
    """Where the modules of the project lie, as folders from its own on: where build backends look for them without
    more words, for a module of the project's name or all that is in src.  Nothing where it is not there."""
    module = re.sub(r"[-_.]+", "_", name)
    below = sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    if (folder / "src").is_dir():
        return ("src",)
    for root in (".", *below):
        there = (folder / root / module, folder / root / f"{module}.py")
        if any(each.exists() for each in there) and re.fullmatch(r"[A-Za-z0-9._+-]+", root):
            return (root,)
    return ()
