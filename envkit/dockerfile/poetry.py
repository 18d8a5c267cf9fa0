"""What poetry installs: ``poetry install``, ``sync``, ``update``, ``add`` and ``run``.

The rules are those of poetry's pages on its commands, dependency specification and repositories.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from envkit.dockerfile import locks, options, pip, project, requirements, uv
from envkit.dockerfile.files import Files, FileText
from envkit.dockerfile.project import Project, table, texts
from envkit.dockerfile.requirements import RequestedPackages, Requirement, address, canonical, holds
from envkit.records import replace
from envkit.subjects.dockerfile import Command, Install, Removal, Unread

_POETRY = options.grammar("poetry")


def read(command: Command, files: Files) -> Iterator[Install | Removal | Unread]:
    """What the command installs or removes; nothing where it is no command of poetry's."""
    words = command.words[1:]
    if command.program != "poetry":
        module, words = pip.module_of(command)
        if module != "poetry":
            return
    outer = options.read(words, _POETRY, inner=True)
    if not outer.rest:
        return
    verb, rest = outer.rest[0].text, outer.rest[1:]
    moved = outer.last("--directory")
    if moved:
        command = replace(command, cwd=posixpath.normpath(posixpath.join(command.cwd, moved.text)))
    if verb == "run":
        yield from _run(command, rest, files)
        return
    inner = options.read(rest, _POETRY)
    given = options.ParsedOptions((*outer.options, *inner.options), inner.rest)
    yield from _poetry(command, verb, given, files)


def _run(command: Command, rest: tuple[Any, ...], files: Files) -> Iterator[Install | Removal | Unread]:
    """``poetry run pip install ...`` and the like install into the project's environment."""
    if not rest:
        return
    started = replace(command, words=rest)
    target = _target(command.env, command.cwd)
    for reader in (pip.read, uv.read):
        for one in reader(started, files):
            if isinstance(one, Unread) or "/" in one.target or ":" in one.target:
                yield one
            else:
                yield replace(one, target=target)


def _target(env: Mapping[str, str], cwd: str = "") -> str:
    """Where the packages go: "poetry:" with "system" (no environment of its own), a known folder, or "venv"."""
    if env.get("VIRTUAL_ENV"):
        return f"poetry:{env['VIRTUAL_ENV']}"
    if env.get("POETRY_VIRTUALENVS_CREATE", "").lower() in _FALSE:
        return "poetry:system"
    if cwd and options.is_true(env.get("POETRY_VIRTUALENVS_IN_PROJECT", "")):
        return f"poetry:{posixpath.join(cwd, '.venv')}"
    return "poetry:venv"


_FALSE = ("false", "0", "no", "off")


def configured(command: Command) -> Mapping[str, str]:
    """The POETRY_ variables that ``poetry config`` stands for, in the commands that follow it in the image."""
    words = command.words[1:]
    if command.program != "poetry":
        module, words = pip.module_of(command)
        if module != "poetry":
            return {}
    rest = options.read(words, _POETRY).rest
    if len(rest) < 3 or rest[0].text != "config" or not rest[2].sure or "." not in rest[1].text:
        return {}
    return {"POETRY_" + re.sub(r"[.-]", "_", rest[1].text).upper(): rest[2].text}


def _poetry(
    command: Command, verb: str, given: options.ParsedOptions, files: Files
) -> Iterator[Install | Removal | Unread]:
    target = _target(command.env, command.cwd)
    if "--dry-run" in given.names() or "--help" in given.names():
        return
    if verb == "remove":
        for word in given.rest:
            yield Removal("poetry", canonical(word.text), word.span, target, command.sure)
    elif verb == "add":
        yield Unread("poetry add", "what it makes of the project is not read", command.span)
    elif verb in ("install", "sync", "update"):
        if "--lock" in given.names():
            return
        yield from _poetry_install(command, given, files, target)


def _list(given: options.ParsedOptions, name: str) -> list[str]:
    """The values of an option that takes lists, split at commas and blanks."""
    return [canonical(one) for word in given.every(name) for one in re.split(r"[,\s]+", word.text) if one]


def _poetry_install(
    command: Command, given: options.ParsedOptions, files: Files, target: str
) -> Iterator[Install | Unread]:
    named = given.last("--project")
    directory = named.text if named else ""
    span, names = command.words[0].span, given.names()
    found = project.read(directory, command.cwd, files, span)
    lock = files.read(posixpath.join(directory, "poetry.lock"), command.cwd)
    told = found if isinstance(found, Project) else project.UNKNOWN
    if told.python:
        only = uv.only_python(told.python)
        # Poetry installs no Python; it refuses those that its project does not let in.
        python = Install("poetry", "python", told.python_span or span, told.python, only, target=target)
        yield replace(python, constraint=True, sure=command.sure)
    main, groups = _groups(given, told)
    extras = frozenset(_list(given, "--extras"))
    if "--all-extras" in names:
        extras = frozenset(told.optional)
    asked = RequestedPackages(
        index=told.index,
        extra_indexes=list(told.extra_indexes),
        options={"--no-cache-dir" if name == "--no-cache" else name for name in names},
    )
    machine = pip.machine_of(command.env)
    if isinstance(lock, FileText):
        wanted = _from_lock(lock, told, main, groups, extras, machine)
        if isinstance(wanted, str):
            yield Unread(lock.path, wanted, span)
        else:
            for one in wanted:
                sure = command.sure and one.sure
                yield replace(one, target=target, options=frozenset(asked.options), sure=sure)
    else:
        if told is found:
            asked.requirements = list(project.needed(told, extras, groups, main=main))
            asked.unread += told.unread
            yield from pip.finish(asked, command, target, files, "poetry", requires=told.python)
        yield Unread(posixpath.join(directory, "poetry.lock"), lock, span)
    if isinstance(found, Unread):
        yield found
    elif found.is_package and "--no-root" not in names and not _list(given, "--only"):
        place = posixpath.normpath(posixpath.join(command.cwd, directory)) if command.cwd else directory or "."
        yield Install("poetry", found.name or ".", span, url=place, editable=True, target=target, sure=command.sure)


def _groups(given: options.ParsedOptions, told: Project) -> tuple[bool, list[str]]:
    """Whether the project's own dependencies are wanted, and the groups beside them."""
    names = given.names()
    if "--only-root" in names:
        return False, []
    if only := _list(given, "--only"):
        return "main" in only, [one for one in only if one != "main"]
    groups = [*told.default_groups, *_list(given, "--with")]
    without = set(_list(given, "--without"))
    left_out = {*without, *(["dev"] if "--no-dev" in names else [])}
    return "main" not in without, [one for one in groups if one not in left_out]


def _from_lock(
    file: FileText, told: Project, main: bool, groups: Iterable[str], extras: frozenset[str], machine: str
) -> list[Install] | str:
    """The packages of poetry.lock that these groups and extras bring, in the lock's own order."""
    listed = locks.packages(file)
    if not listed and "[metadata]" not in file.text:
        return "it is no lock file of poetry's"
    wanted_groups = {*groups, *(("main", "default") if main else ())}
    chosen: dict[str, list[Install]] = {}
    for package in listed:
        data = package.data()
        if not data:
            continue
        optional = data.get("optional") is True
        if optional and not extras:
            continue
        own = texts(data.get("groups")) or texts(data.get("category"))
        if own and not wanted_groups & {canonical(one) for one in own}:
            continue
        marker = _lock_marker(data, wanted_groups)
        answer = holds(marker, "", machine, extras, told.python)
        if answer is False:
            continue
        found = _of_lock(package, data, "" if answer else marker)
        # Which of the optional packages an extra brings is not read.
        chosen.setdefault(package.name, []).append(replace(found, sure=not optional))
    return [one for name, several in chosen.items() for one in _fitting(name, several, told, machine)]


def _lock_marker(data: dict[str, Any], groups: set[str]) -> str:
    marker = data.get("markers", data.get("marker", ""))
    if isinstance(marker, dict):
        for_groups = [text for group, text in marker.items() if canonical(group) in groups and isinstance(text, str)]
        return " or ".join(f"({text})" for text in for_groups)
    return marker if isinstance(marker, str) else ""


def _of_lock(package: locks.Package, data: dict[str, Any], marker: str) -> Install:
    source = table(data, "source")
    kind, address_ = str(source.get("type", "")), str(source.get("url", ""))
    version, local = package.version()
    url, index = "", ""
    if kind == "git":
        reference = source.get("reference") or source.get("resolved_reference")
        url = f"git+{address_}" + (f"@{reference}" if isinstance(reference, str) else "")
    elif kind in ("url", "file", "directory"):
        url = address_
        told = requirements.archive(url)
        local = local or (told[2] if told else "")
    elif address_:
        index = address(address_)
    specifier = f"=={version}" + (f"+{local}" if local else "") if version else ""
    found = Install("poetry", package.name, package.span, specifier, version, local, url=url, index=index)
    return replace(found, locked=True, marker=marker)


def _fitting(name: str, several: list[Install], told: Project, machine: str) -> list[Install]:
    """Of several locked versions those that the project's markers let in; all, unsure, where none tells them apart."""
    if len(several) == 1:
        return several
    own = [one for one in told.dependencies if one.name == name]
    held = [one for one in own if holds(one.marker, "", machine, requires=told.python) is not False]
    fitting = [one for one in several if any(_same(one, wanted) for wanted in held)]
    if len(fitting) == 1:
        return fitting
    if all(one.marker for one in several):
        return several
    return [replace(one, sure=False) for one in fitting or several]


def _same(locked: Install, wanted: Requirement) -> bool:
    if wanted.url:
        return locked.url == wanted.url
    if wanted.index and address(wanted.index) != locked.index:
        return False
    if wanted.version:
        return locked.version == wanted.version and (not wanted.local or locked.local == wanted.local)
    return not locked.url
