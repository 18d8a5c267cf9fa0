"""What of a project goes into its image, laid out for a build: its files, its wheel, and what labels say of it.

files/          what [image] copy names
wheel/          the wheel, and wheels.txt, the line that an installer takes it by
labels.json     labels of the image
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from envkit.dockerfile.context import Context
from envkit.dockerfile.files import toml
from envkit.engine import Say
from envkit.errors import UsageError
from envkit.plan import project, project_tree
from envkit.plan.indexes import Indexes
from envkit.plan.lockfile import Lock
from envkit.plan.package import FILE
from envkit.plan.project import ProjectWheel
from envkit.plan.project_tree import LeftOut
from envkit.plan.spec import Spec
from envkit.system import files

STAGE = "project"  # of the Dockerfile, whose place the folder takes
WHEELS = "wheel/wheels.txt"
LABELS = "labels.json"
_FILES = "files"
_OCI = "org.opencontainers.image."
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")  # SHA-1 or SHA-256
_REF = re.compile(r"ref: (refs/(?:(?!\.\.?(?:/|\Z))[\w.+@-]+/)*(?!\.\.?\Z)[\w.+@-]+)")
# SPDX 2.3, annex D, in characters; of longer texts ("license" was a file's text once) nobody wants a label
_LICENSE = re.compile(r"[A-Za-z0-9.+() -]{1,100}")


def wanted(lock: Lock) -> bool:
    """Whether something of the project goes into an image of ``lock``."""
    return lock.project is not None or bool(lock.inside.copy)


def stage(spec: Spec, lock: Lock, target: Path, say: Say, indexes: Indexes) -> None:
    """Fills the empty folder ``target``, and says what was left out.

    Raises UsageError for a file that is not there or cannot be read, and what building the wheel does.
    """
    folder, left_out = spec.path.parent, LeftOut()
    made = project.wheel(spec, lock.project, say, indexes, left_out) if lock.project else None
    if made:
        (target / "wheel").mkdir()
        (target / "wheel" / made.file).write_bytes(made.data)
        (target / WHEELS).write_text(made.requirement, encoding="utf-8")
    if lock.inside.copy:
        (target / _FILES).mkdir()
        left_out = LeftOut()  # of the wheel they are the same, and more: a .dockerignore is none of its business
        rules = Context(folder, folder / "Dockerfile").rules()
        project_tree.copy(folder, lock.inside.copy, target / _FILES, rules, left_out)
    for line in left_out.said():
        say(line)
    (target / LABELS).write_text(json.dumps(_labels(spec, made)), encoding="utf-8")


def labels(staged: Path) -> Mapping[str, str]:
    """The labels that ``stage`` wrote; raises UsageError where the folder is none of its."""
    try:
        read = json.loads(files.content(staged / LABELS))
        return {str(name): str(value) for name, value in read.items()}
    except (OSError, ValueError, AttributeError) as error:
        said = f"{staged} does not contain the project that the lock names"
        raise UsageError(said, "fill the folder again with `envkit vendor`") from error


def _labels(spec: Spec, made: ProjectWheel | None) -> dict[str, str]:
    """What OCI's annotations say of the project (OCI image specification, "Pre-Defined Annotation Keys")."""
    found = {}
    if made:
        found[f"{_OCI}version"] = made.version
    if commit := revision(spec.path.parent):
        found[f"{_OCI}revision"] = commit
    with suppress(OSError, ValueError, RecursionError):
        table = toml(files.content(spec.path.parent / (spec.project or ".") / FILE).decode()).get("project", {})
        license = table.get("license") if isinstance(table, dict) else None
        text = license.get("text") if isinstance(license, dict) else license
        if isinstance(text, str) and _LICENSE.fullmatch(text.strip()):
            found[f"{_OCI}licenses"] = text.strip()
    return found


def revision(folder: Path) -> str:
    """The commit that the nearest repository at or above ``folder`` has checked out, "" where that is not known.

    Read from the repository's own files (gitrepository-layout(5)): git itself would obey the tree's configuration.
    Whether files have changed since is not known that way.
    """
    for above in (folder.resolve(), *folder.resolve().parents):
        place = above / ".git"
        if place.is_file():  # a working tree beside others, or a submodule
            found = re.fullmatch(r"gitdir: ([^\n]+)\n?", _text(place))
            place = above / found[1] if found else place
        if (place / "HEAD").is_file():
            return _checked_out(place)
    return ""


def _checked_out(place: Path) -> str:
    head = _text(place / "HEAD").strip()
    ref = _REF.fullmatch(head)
    if ref is None:
        return head if _COMMIT.fullmatch(head) else ""
    common = place / (_text(place / "commondir").strip() or ".")
    for folder in (place, common):
        said = _text(folder / ref[1]).strip()
        if _COMMIT.fullmatch(said):
            return said
    packed = re.search(rf"(?m)^({_COMMIT.pattern}) {re.escape(ref[1])}$", _text(common / "packed-refs"))
    return packed[1] if packed else ""


def _text(path: Path) -> str:
    try:
        return files.content(path).decode()
    except (OSError, ValueError):
        return ""
