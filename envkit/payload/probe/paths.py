"""Where this Python imports from: which module hides another one, a first Python that is gone, code run at the start.

Files are listed and nothing is imported.  ``audit`` asks the same of the files of an image, so the search itself takes
what lists a folder as an argument.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from envkit.payload import begin

SCRIPT, PYTHONPATH, PTH, USER_SITE = "script folder", "PYTHONPATH", ".pth file", "user site"
STDLIB, SITE = "standard library", "site"
_ENDINGS = (".py", ".so", ".pyc")
# Imported before any folder of the job's is on the path, or a part of the interpreter: nothing can hide these.
_AT_START = {
    "abc", "codecs", "encodings", "genericpath", "io", "os", "posixpath", "site", "stat", "zipimport",
    "_collections_abc", "_sitebuiltins",
}  # fmt: skip
# What is there to be replaced (Python, module site); the standard library of Debian's Python holds a file of this name.
_HOOKS = {"sitecustomize", "usercustomize"}
# Of the standard library what no program imports, and what wheels put beside their own module by mistake.
_IDLE = {"test", "idlelib", "turtledemo", "turtle", "this", "antigravity", "lib2to3", "pydoc_data"}
_STRAY = {
    "test", "tests", "testing", "example", "examples", "doc", "docs", "script", "scripts", "tool", "tools",
    "benchmark", "benchmarks", "util", "utils", "setup", "conftest", "build", "src", "data", "samples", "config",
}  # fmt: skip
# What a search path that is a whole site-packages may not hide; its other packages are other releases on purpose.
OF_TORCH = {"torch", "triton", "numpy", "torchvision", "torchaudio"}


class Place(NamedTuple):
    """One entry of the search path and how it came there, one of the words above."""

    folder: str
    by: str


class Reader(NamedTuple):
    """How folders are read: the names in one, where a path leads ("" if nowhere), and the bytes of a file."""

    names: Callable[[str], Iterable[str]]
    real: Callable[[str], str]
    data: Callable[[str], bytes]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _data(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return b""


HERE = Reader(_names, lambda path: os.path.realpath(path) if os.path.exists(path) else "", _data)


def modules(folder: str, reader: Reader) -> dict[str, str]:
    """The modules that an import would find in ``folder`` by name, each with its file or its package's folder.

    A folder without __init__ is no more than a part of a namespace package: any module further on is found before it.
    """
    found: dict[str, str] = {}
    for name in sorted(reader.names(folder), key=lambda one: (not one.endswith(".py"), one)):
        stem, dot, rest = name.partition(".")
        if not stem.isidentifier():
            continue
        if dot and ("." + rest).endswith(_ENDINGS):
            if rest in ("py", "so", "pyc", "abi3.so") or rest.startswith("cpython-"):
                found.setdefault(stem, f"{folder}/{name}")
        elif not dot:
            inner = set(reader.names(f"{folder}/{name}"))
            if any(one == "__init__.py" or (one.startswith("__init__.") and one.endswith(_ENDINGS)) for one in inner):
                found[name] = f"{folder}/{name}"  # a package comes before a file of its name
    return found


def _alike(one: str, other: str, reader: Reader) -> bool:
    """Whether both are the same module: equal files, or packages most of whose files have the same names.

    A project's own source lies beside its script and is often installed as well.
    """
    files = one.endswith(_ENDINGS), other.endswith(_ENDINGS)
    if all(files):
        return reader.data(one) == reader.data(other)
    if any(files):
        return False
    names = set(reader.names(one)) - {"__pycache__"}, set(reader.names(other)) - {"__pycache__"}
    return 2 * len(names[0] & names[1]) > len(names[0] | names[1])


def _version(folder: str, module: str, reader: Reader) -> str:
    """The version that the .dist-info beside a module names, empty where none is of its name."""
    start = f"{module.lower()}-"
    for name in reader.names(folder):
        if name.lower().startswith(start) and name.endswith(".dist-info"):
            return name[len(start) : -len(".dist-info")]
    return ""


def hidden(places: list[Place], reader: Reader) -> Iterator[dict[str, str]]:
    """Each module that a folder of the job's, of PYTHONPATH or of the user's own site hides, and what it hides.

    And each further torch on the path.  Of one name only the first pair is told.
    """
    every = [(place, modules(place.folder, reader)) for place in places]
    later_than: set[str] = set()
    for at, (place, own) in enumerate(every):
        whole = any(name.endswith(".dist-info") for name in reader.names(place.folder))
        for name in sorted(set(own) - later_than):
            other = next(((late, found[name]) for late, found in every[at + 1 :] if name in found), None)
            if other is None or other[1] == own[name]:
                continue
            late, path = other
            if not _counts(name, place.by, late.by, whole) or reader.real(own[name]) == reader.real(path):
                continue
            if name != "torch" and late.by != STDLIB and _alike(own[name], path, reader):
                continue
            versions = _version(place.folder, name, reader), _version(late.folder, name, reader)
            if name != "torch" and versions[0] and versions[0] == versions[1]:
                continue  # one release, installed twice
            yield {
                "module": name,
                "path": own[name],
                "by": place.by,
                "version": versions[0],
                "hidden": path,
                "hidden_by": late.by,
                "hidden_version": versions[1],
            }
        later_than |= set(own)


def _counts(name: str, by: str, late: str, whole: bool) -> bool:
    """Whether a module of this name found by ``by`` may not hide the one found later by ``late``.

    ``whole`` says that the first one's folder holds installed distributions.
    """
    if name == "torch":
        return True
    if late == STDLIB:
        return by in (SCRIPT, PYTHONPATH, PTH) and name not in _IDLE | _AT_START | _HOOKS
    if late not in (SITE, USER_SITE) or by in (SITE, STDLIB):
        return False
    if by == USER_SITE or whole:
        return name in OF_TORCH
    return name not in _STRAY


def places(folder: str | None) -> list[Place]:
    """The search path of a job whose folder is ``folder``, None where it has none; without what is no folder.

    The rest is the path that this process began with.  What comes before the standard library and is not of PYTHONPATH
    was put there by the code of a .pth file.
    """
    user = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    given = os.environ.get("PYTHONPATH", "") if not sys.flags.ignore_environment else ""
    named = {os.path.abspath(one) for one in given.split(":") if one}
    standard = {os.path.dirname(os.path.abspath(os.__file__))}
    standard |= {f"{one}/lib-dynload" for one in standard}
    found: list[Place] = []
    if folder is not None and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        found.append(Place(os.path.realpath(folder or "."), SCRIPT))
    later = PTH
    for one in begin.GIVEN[1:]:
        path = os.path.abspath(one)
        if not one or not os.path.isdir(path) or any(path == place.folder for place in found):
            continue
        by = PYTHONPATH if path in named else STDLIB if path in standard else USER_SITE if path == user else later
        later = SITE if by == STDLIB else later
        found.append(Place(path, by))
    return found


def finder(search: list[Place]) -> Callable[[str], str]:
    """A function from a module's name to where the ``search`` finds it, "" if nowhere."""
    every = [modules(place.folder, HERE) for place in search]
    return lambda name: next((found[name] for found in every if name in found), "")


def unhideable() -> set[str]:
    """The modules that are a part of this interpreter, which no file can hide."""
    return set(sys.builtin_module_names)


def shadows(folder: str | None) -> list[dict[str, str]]:
    """What ``hidden`` tells of this Python with the job's ``folder``."""
    own = unhideable()
    return [row for row in hidden(places(folder), HERE) if row["module"] not in own]


def dangling() -> list[dict[str, str]]:
    """The links called python3 or python on PATH that lead nowhere, so that PATH went on to this interpreter."""
    found: list[dict[str, str]] = []
    running = os.path.realpath(sys.executable)
    for name in ("python3", "python"):
        gone: list[dict[str, str]] = []
        for folder in os.environ.get("PATH", "").split(":"):
            path = os.path.join(folder, name)
            if folder and os.path.islink(path) and not os.path.exists(path):
                gone.append({"path": path, "target": os.readlink(path)})
            elif os.access(path, os.X_OK) and os.path.isfile(path):
                found += gone if os.path.realpath(path) == running else []
                break
    return found
