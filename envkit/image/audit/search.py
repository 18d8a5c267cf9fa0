"""What the image's Python would find when a job imports something, and a Python on PATH that is gone."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial

from envkit.image.audit import environment, imports
from envkit.image.audit.linker import is_file, text
from envkit.image.tree import DEFAULT_PATH, Tree, Unreadable, variables
from envkit.payload.probe import paths, wheels
from envkit.payload.probe.paths import Place
from envkit.subjects import codec
from envkit.subjects.image import DanglingLink, NeededModule, Search, Shadow, StartFile

_PYTHON = re.compile(r"python[0-9.]*\Z")
_PTH_MOST = 1 << 16


def reader(tree: Tree) -> paths.Reader:
    """How the folders of a tree are read."""
    inside: defaultdict[str, list[str]] = defaultdict(list)
    for path in tree.entries:
        folder, _, name = path.rpartition("/")
        inside[folder or "/"].append(name)
    return paths.Reader(lambda folder: inside.get(tree.real(folder), []), tree.real, partial(_data, tree))


def _data(tree: Tree, path: str) -> bytes:
    try:
        return bytes(tree.data(path)[: 1 << 20])
    except Unreadable:
        return b""


def job_folder(tree: Tree) -> str:
    """The folder that the image's command puts first on the search path, "" where the image names no command.

    That of the script, else the working folder, from which a person starts one by hand.
    """
    config = tree.config
    if not config:
        return ""
    workdir = str(config.get("WorkingDir") or "/")
    words = [str(word) for part in ("Entrypoint", "Cmd") for word in config.get(part) or ()]
    for at, word in enumerate(words):
        if _PYTHON.match(posixpath.basename(word)):
            script = next((one for one in words[at + 1 :] if not one.startswith("-")), "")
            kinds = words[at + 1 : words.index(script, at + 1)] if script else []
            if script and not {"-m", "-c"} & set(kinds):
                return posixpath.normpath(posixpath.join(workdir, posixpath.dirname(script)))
    return workdir


def _standard(tree: Tree, python: environment.Pythons) -> list[str]:
    """The folders of the standard library, none where it lies outside the tree."""
    real = tree.real(python.found.path)
    minor = ".".join(python.version.split(".")[:2])
    if not real or not minor:
        return []
    prefix = posixpath.dirname(posixpath.dirname(real))
    return [f"{prefix.rstrip('/')}/lib/python{minor}", f"{prefix.rstrip('/')}/lib/python{minor}/lib-dynload"]


def places(tree: Tree, python: environment.Pythons) -> list[Place]:
    """The search path in its order: the job's folder, PYTHONPATH, the standard library, the sites."""
    folder = job_folder(tree)
    given = [one for one in variables(tree.config).get("PYTHONPATH", "").split(":") if one.startswith("/")]
    user = tree.real(f"{environment.home(tree)}/.local")
    found = [Place(tree.real(folder), paths.SCRIPT)] if folder and tree.real(folder) else []
    found += [Place(real, paths.PYTHONPATH) for real in map(tree.real, given) if real]
    found += [Place(real, paths.STDLIB) for real in map(tree.real, _standard(tree, python)) if real]
    known = {place.folder for place in found}
    for site in python.found.site:
        if site not in known:
            by = paths.USER_SITE if user and site.startswith(f"{user}/") else paths.SITE
            found.append(Place(site, by))
    return found


def search(tree: Tree, python: environment.Pythons, owned: Collection[str]) -> Search:
    """What an import finds; ``owned`` are the files that a package brought."""
    folders, read = places(tree, python), reader(tree)
    shadows = [codec.from_plain(Shadow, row) for row in paths.hidden(folders, read)]
    imported: frozenset[str] = frozenset()
    if any(one.module != "torch" for one in shadows):
        standard = tuple(place.folder for place in folders if place.by == paths.STDLIB)
        base = next((one for one in python.found.site if is_file(tree, f"{one}/torch/__init__.py")), "")
        imported = imports.always(tree, base, "torch", standard or ("/nowhere",)) if base else imported
    told = (replace(one, imported=one.module in imported) for one in shadows)
    started = tuple(StartFile(path, "a package" if path in owned else "") for path in _started(tree, folders))
    return Search(python.found.path, tuple(told), tuple(dangling(tree, python.found.path)), started)


def _started(tree: Tree, folders: list[Place]) -> Iterator[str]:
    """The .pth files with code, and sitecustomize and usercustomize where they lie."""
    for place in folders:
        if place.by == paths.SCRIPT:
            continue
        for name in ("sitecustomize.py", "usercustomize.py"):
            if is_file(tree, f"{place.folder}/{name}"):
                yield tree.real(f"{place.folder}/{name}")
        for path in sorted(tree.entries) if place.by in (paths.SITE, paths.USER_SITE) else ():
            if path.endswith(".pth") and posixpath.dirname(path) == place.folder and is_file(tree, path):
                lines = text(tree, path, _PTH_MOST).splitlines()
                if any(line.startswith(("import ", "import\t")) for line in lines):
                    yield path


def dangling(tree: Tree, python: str) -> Iterator[DanglingLink]:
    """The links called python3 or python that PATH names before ``python`` and that lead nowhere in a whole image."""
    if not tree.config:
        return  # a folder's links may lead to the system around it
    for name in ("python3", "python"):
        gone: list[DanglingLink] = []
        for folder in variables(tree.config).get("PATH", DEFAULT_PATH).split(":"):
            path = posixpath.normpath(f"{folder}/{name}") if folder.startswith("/") else ""
            if not path:
                continue
            if is_file(tree, path):
                yield from gone
                break
            real = tree.real(posixpath.dirname(path))
            entry = tree.entries.get(f"{real.rstrip('/')}/{name}") if real else None
            if entry is not None and entry.kind == "link":
                gone.append(DanglingLink(path, entry.link))


def needed(dists: list[environment.Dist]) -> frozenset[str]:
    """The distributions that torch requires, as the probe tells them."""
    lines = {dist.name: dist.requires for dist in dists}
    return wheels.needed(lambda name: lines.get(name, ()))


def modules(tree: Tree, python: environment.Pythons, dists: list[environment.Dist]) -> tuple[NeededModule, ...]:
    """Where the modules lie that torch requires."""
    by_name, read = {dist.name: dist for dist in dists}, reader(tree)
    names = needed(dists)
    found = [paths.modules(place.folder, read) for place in places(tree, python)]
    told = []
    for name in sorted(names):
        dist = by_name.get(name)
        own = [one for one in map(_first, dist.record.splitlines()) if one] if dist is not None else []
        if own and dist is not None:
            path = next((f"{dist.base}/{one}" for one in own if tree.real(f"{dist.base}/{one}")), "")
        else:
            module = name.replace("-", "_")
            path = next((each[module] for each in found if module in each), dist.base if dist is not None else "")
        told.append(NeededModule(name, path))
    return tuple(told)


def _first(line: str) -> str:
    """The path in a line of RECORD that is a module of the distribution itself, else ""."""
    path = line.partition(",")[0]
    is_module = path.endswith("/__init__.py") or ("/" not in path and path.endswith((".py", ".so")))
    return path if is_module and path.count("/") < 2 else ""
