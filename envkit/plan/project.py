"""The project of a spec as a wheel: built as those of source releases are, see `sources`, from a copy of its folder.

What that takes is pinned in the lock; the wheel itself is made anew by each build of an image, from the files as they
are then, and installed by its hash.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


def lock(spec: Spec, python: Python, held: Project | None, resolve: Resolve, say: Say, indexes: Indexes) -> Project:
    """What the lock of ``spec`` says of its project, which is built once to learn it; what building it takes stays as
    in ``held``.

    Raises Unsatisfiable for a project that makes no wheel of plain Python, Undecided where the index does not serve.
    """
    name = spec.package[0]
    folder = folder_of(spec)
    pins = held.requires if held and held.name == name else None
    runs = Python(held.python) if held and pins is not None else python
    say(f"building the project {name}")
    made, own, pins = _built(folder, name, runs, pins, resolve, say, indexes, LeftOut())
    return Project(name, str(own), pins, _roots(folder, made))


def wheel(spec: Spec, project: Project, say: Say, indexes: Indexes, left_out: LeftOut) -> ProjectWheel:
    """The wheel of the project as it is now, built with what the lock pins; ``left_out`` learns what was left behind.

    Raises what ``lock`` does.
    """

    def unasked(python: Python, lines: Sequence[str]) -> tuple[Pin, ...]:
        raise AssertionError("the lock says what it is built with")

    folder = folder_of(spec)
    say(f"building the project {project.name}")
    made, _, _ = _built(folder, project.name, Python(project.python), project.requires, unasked, say, indexes, left_out)
    return made


def _built(
    folder: Path,
    name: str,
    python: Python,
    held: tuple[str, ...] | None,
    resolve: Resolve,
    say: Say,
    indexes: Indexes,
    left_out: LeftOut,
) -> tuple[ProjectWheel, Python, tuple[str, ...]]:
    try:
        with proc.scratch_folder() as room:
            source = room / "source"
            source.mkdir()
            project_tree.copy(folder, ["."], source, left_out=left_out)
            path, own, pins = sources.built_in(room, source, python, held, resolve, say, indexes)
            return ProjectWheel(path.name, sources.normalised(path, name, "")), own, pins
    except Failed as error:
        known = sources.explained(error.lines)
        why = f"{error.why} ({known})" if known else error.why
        raise Unsatisfiable(
            f"the project {name} in {folder} makes no wheel of plain Python: {why}",
            error.lines,
            (),
            f"mend its build; {OFF}",
        ) from error


def _roots(folder: Path, made: ProjectWheel) -> tuple[str, ...]:
    """Where the modules of the wheel lie in the project, as folders from its own on; nothing where one is not found."""
    with zipfile.ZipFile(io.BytesIO(made.data)) as packed:
        tops = {name.partition("/")[0] for name in packed.namelist()}
    modules = sorted(top for top in tops if not top.endswith((".dist-info", ".data")))
    below = sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    found = []
    for module in modules:
        root = next((root for root in (".", "src", *below) if (folder / root / module).exists()), "")
        if not root or not re.fullmatch(r"[A-Za-z0-9._+-]+", root):
            return ()
        found.append(root)
    return tuple(dict.fromkeys(found))
