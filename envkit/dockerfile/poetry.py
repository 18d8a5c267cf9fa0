"""What poetry installs, and its kin: ``poetry install`` and ``add``, ``pdm``, ``pipenv``.

The rules are those of poetry's pages on its commands, dependency specification and repositories, of PDM's reference,
and of Pipenv's page on Pipfile and Pipfile.lock.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from envkit.dockerfile import locks, options, pip, project, requirements, uv
from envkit.dockerfile.files import Files, FileText
from envkit.dockerfile.project import Project, table, tables, texts
from envkit.dockerfile.requirements import Asked, Requirement, address, canonical, holds
from envkit.subjects.dockerfile import Command, Install, Removal, Unread

_POETRY = options.Grammar(
    options.names(
        """--with --without --only --extras --group --source --python --platform --optional-group --directory
        --project --format --output --dev-group --allow-group"""
    ),
    frozenset(),
    {"E": "--extras", "G": "--group", "C": "--directory", "P": "--project", "e": "--editable", "n": "--no-interaction"},
    {"--dev": "--dev", "--remove-untracked": "--sync"},
)
_PDM = options.Grammar(
    frozenset({"--group", "--with", "--without", "--project", "--lockfile", "--venv", "--override", "--config"}),
    frozenset(),
    {"G": "--group", "p": "--project", "L": "--lockfile", "e": "--editable", "d": "--dev"},
    {"--production": "--prod"},
)
_PIPENV = options.Grammar(
    frozenset(
        {"--python", "--index", "--requirements", "--categories", "--pypi-mirror", "--extra-pip-args", "--editable"}
    ),
    frozenset(),
    {"r": "--requirements", "i": "--index", "e": "--editable", "d": "--dev"},
)


def read(command: Command, files: Files) -> Iterator[Install | Removal | Unread]:
    """What the command installs or removes; nothing where it is no command of poetry's, PDM's or Pipenv's."""
    program, words = command.program, command.words[1:]
    module, after = pip.module_of(command)
    if module in _READERS:
        program, words = module, after
    reader = _READERS.get(program)
    if reader is None:
        return
    grammar, verb_of = reader
    outer = options.read(words, grammar, inner=True)
    if not outer.rest:
        return
    verb, rest = outer.rest[0].text, outer.rest[1:]
    moved = outer.last("--directory")
    if moved:
        command = replace(command, cwd=posixpath.normpath(posixpath.join(command.cwd, moved.text)))
    if verb == "run":
        yield from _run(command, program, rest, files)
        return
    inner = options.read(rest, grammar)
    given = options.Given((*outer.options, *inner.options), inner.rest)
    yield from verb_of(command, verb, given, files)


def _run(command: Command, program: str, rest: tuple[Any, ...], files: Files) -> Iterator[Install | Removal | Unread]:
    """``poetry run pip install ...`` and the like install into the project's environment."""
    if not rest:
        return
    started = replace(command, words=rest)
    target = _target(program, command.env, command.cwd)
    for reader in (pip.read, uv.read):
        for one in reader(started, files):
            if isinstance(one, Unread) or "/" in one.target or ":" in one.target:
                yield one
            else:
                yield replace(one, target=target)


def _target(program: str, env: Mapping[str, str], cwd: str = "") -> str:
    """Where the project's packages go: ":system" after the tool's name where it makes no environment of its own, a
    folder where that is known, else ":venv".
    """
    create, system = ("POETRY_VIRTUALENVS_CREATE", "PDM_USE_VENV"), "PIPENV_SYSTEM"
    if env.get("VIRTUAL_ENV"):
        return f"{program}:{env['VIRTUAL_ENV']}"
    if program == "pipenv" and options.is_true(env.get(system, "")):
        return "pipenv:system"
    if any(name.startswith(program.upper()) and env.get(name, "").lower() in _FALSE for name in create):
        return f"{program}:system"
    inside = program == "pdm" or options.is_true(
        env.get("POETRY_VIRTUALENVS_IN_PROJECT" if program == "poetry" else "PIPENV_VENV_IN_PROJECT", "")
    )
    return f"{program}:{posixpath.join(cwd, '.venv')}" if inside and cwd else f"{program}:venv"


_FALSE = ("false", "0", "no", "off")


def configured(command: Command) -> Mapping[str, str]:
    """The POETRY_ variables that ``poetry config`` stands for, in the commands that follow it in the image
    (``poetry config virtualenvs.create false``).
    """
    words = command.words[1:]
    if command.program != "poetry":
        module, words = pip.module_of(command)
        if module != "poetry":
            return {}
    rest = options.read(words, _POETRY).rest
    if len(rest) < 3 or rest[0].text != "config" or not rest[2].sure or "." not in rest[1].text:
        return {}
    return {"POETRY_" + re.sub(r"[.-]", "_", rest[1].text).upper(): rest[2].text}


# ---- poetry


def _poetry(command: Command, verb: str, given: options.Given, files: Files) -> Iterator[Install | Removal | Unread]:
    target = _target("poetry", command.env, command.cwd)
    if "--dry-run" in given.names() or "--help" in given.names():
        return
    if verb == "remove":
        for word in given.rest:
            yield Removal("poetry", canonical(word.text), word.span, target, command.sure)
    elif verb == "add":
        yield from _poetry_add(command, given, files, target)
    elif verb in ("install", "sync", "update"):
        if "--lock" in given.names():
            return
        yield from _poetry_install(command, given, files, target)


def _list(given: options.Given, name: str) -> list[str]:
    """The values of an option that takes lists, split at commas and blanks."""
    return [canonical(one) for word in given.every(name) for one in re.split(r"[,\s]+", word.text) if one]


def _poetry_add(
    command: Command, given: options.Given, files: Files, target: str
) -> Iterator[Install | Removal | Unread]:
    around = files.read("pyproject.toml", command.cwd)
    found = project.read("", command.cwd, files, command.span) if isinstance(around, FileText) else None
    told = found if isinstance(found, Project) else None
    asked = Asked(index=told.index if told else "", extra_indexes=list(told.extra_indexes) if told else [])
    source = given.last("--source")
    for word in given.rest:
        name, at, version = word.text.partition("@")
        if at and "://" not in name and "+" not in name and not re.search(r"://|\s", version):
            # NAME@CONSTRAINT is poetry's own form: NAME@^1.2, NAME@latest, and NAME@1.2.3, which is exact.
            base = requirements.requirement(name, word.span)
            if base:
                specifier = "" if version == "latest" else version
                pins = project.poetry_pin(specifier)
                asked.requirements.append(replace(base, specifier=specifier, version=pins[0], local=pins[1]))
            continue
        pip.add_word(asked, word, editable="--editable" in given.names())
    if source:
        named = _source(command, source.text, files)
        asked.requirements = [replace(one, index=named) for one in asked.requirements]
    yield from pip.finish(asked, command, target, files, "poetry")


def _source(command: Command, name: str, files: Files) -> str:
    """The address of a source of pyproject.toml, its name where the file does not tell."""
    file = files.read("pyproject.toml", command.cwd)
    data = project.toml(file) if isinstance(file, FileText) else {}
    for one in tables(table(data, "tool", "poetry").get("source")):
        if str(one.get("name", "")).lower() == name.lower() and isinstance(one.get("url"), str):
            return str(one["url"])
    return name


def _poetry_install(command: Command, given: options.Given, files: Files, target: str) -> Iterator[Install | Unread]:
    named = given.last("--project")
    directory = named.text if named else ""
    span, names = command.words[0].span, given.names()
    found = project.read(directory, command.cwd, files, span)
    lock = files.read(posixpath.join(directory, "poetry.lock"), command.cwd)
    told = found if isinstance(found, Project) else None
    if told and told.python:
        only = uv.only_python(told.python)
        # Poetry installs no Python; it refuses those that its project does not let in.
        yield Install(
            "poetry",
            "python",
            told.python_span or span,
            told.python,
            only,
            target=target,
            constraint=True,
            sure=command.sure,
        )
    only_groups = _list(given, "--only")
    if "--only-root" in names:
        main, groups = False, list[str]()
    elif only_groups:
        main, groups = "main" in only_groups, [one for one in only_groups if one != "main"]
    else:
        main, groups = True, list(told.default_groups) if told else ["dev"]
        groups += _list(given, "--with")
        if "--no-dev" in names:
            groups = [one for one in groups if one != "dev"]
        without = set(_list(given, "--without"))
        groups, main = [one for one in groups if one not in without], "main" not in without
    extras = frozenset(_list(given, "--extras"))
    if "--all-extras" in names and told:
        extras = frozenset(told.optional)
    asked = Asked(
        index=told.index if told else "",
        extra_indexes=list(told.extra_indexes) if told else [],
        options={"--no-cache-dir" if name == "--no-cache" else name for name in names},
    )
    machine = pip.machine_of(command.env)
    if isinstance(lock, FileText):
        wanted = _from_lock(lock, told, main, groups, extras, machine)
        if isinstance(wanted, str):
            yield Unread(lock.path, wanted, span)
        else:
            for one in wanted:
                yield replace(
                    one,
                    target=target,
                    options=frozenset(asked.options),
                    sure=command.sure and one.sure,
                    manager="poetry",
                )
    else:
        if told:
            asked.requirements = list(project.needed(told, extras, groups, main=main))
            asked.unread += told.unread
            yield from pip.finish(asked, command, target, files, "poetry", requires=told.python)
        yield Unread(posixpath.join(directory, "poetry.lock"), lock, span)
    if isinstance(found, Unread):
        yield found
    elif found.is_package and "--no-root" not in names and not only_groups:
        place = posixpath.normpath(posixpath.join(command.cwd, directory)) if command.cwd else directory or "."
        yield Install("poetry", found.name or ".", span, url=place, editable=True, target=target, sure=command.sure)


def _from_lock(
    file: FileText, told: Project | None, main: bool, groups: Iterable[str], extras: frozenset[str], machine: str
) -> list[Install] | str:
    """The packages of poetry.lock that these groups and extras bring, in the lock's own order."""
    listed = locks.packages(file)
    if not listed and "[metadata]" not in file.text:
        return "it is no lock file of poetry's"
    wanted_groups = {*groups, *(("main", "default") if main else ())}
    requires = told.python if told else ""
    in_extras = _extra_closure(file, listed, extras)
    chosen: dict[str, list[Install]] = {}
    for package in listed:
        data = package.data()
        if not data:
            continue
        if data.get("optional") is True and package.name not in in_extras:
            continue
        own = texts(data.get("groups")) or texts(data.get("category"))
        if own and not wanted_groups & {canonical(one) for one in own}:
            continue
        marker = _lock_marker(data, wanted_groups)
        answer = holds(marker, "", machine, extras, requires)
        if answer is False:
            continue
        chosen.setdefault(package.name, []).append(_of_lock(package, data, "" if answer else marker))
    return [one for name, several in chosen.items() for one in _fitting(name, several, told, machine)]


def _extra_closure(file: FileText, listed: tuple[locks.Package, ...], extras: frozenset[str]) -> set[str]:
    named = {canonical(extra): members for extra, members in locks.section(file, "extras").items()}
    queue = [canonical(one) for extra in extras for one in texts(named.get(extra))]
    by_name = {package.name: package for package in listed}
    reached: set[str] = set()
    while queue:
        name = queue.pop()
        if name in reached or name not in by_name:
            continue
        reached.add(name)
        queue += [canonical(one) for one in table(by_name[name].data(), "dependencies")]
    return reached


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
    return Install(
        "poetry",
        package.name,
        package.span,
        specifier,
        version,
        local,
        url=url,
        index=index,
        locked=True,
        marker=marker,
    )


def _fitting(name: str, several: list[Install], told: Project | None, machine: str) -> list[Install]:
    """Of several locked versions of one package those that the project's own markers let in; all, unsure, where
    nothing tells them apart."""
    if len(several) == 1:
        return several
    own = [one for one in (*(told.dependencies if told else ()),) if one.name == name]
    held = [one for one in own if holds(one.marker, "", machine, requires=told.python if told else "") is not False]
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


# ---- PDM


def _pdm(command: Command, verb: str, given: options.Given, files: Files) -> Iterator[Install | Removal | Unread]:
    target = _target("pdm", command.env, command.cwd)
    if "--dry-run" in given.names():
        return
    if verb == "remove":
        for word in given.rest:
            yield Removal("pip", canonical(word.text), word.span, target, command.sure)
        return
    if verb == "add":
        asked = Asked()
        for word in (*given.rest, *given.every("--editable")):
            pip.add_word(asked, word)
        yield from pip.finish(asked, command, target, files, "pip")
        return
    if verb not in ("install", "sync"):
        return
    span, names = command.words[0].span, given.names()
    found = project.read("", command.cwd, files, span)
    lock = files.read("pdm.lock", command.cwd)
    told = found if isinstance(found, Project) else None
    groups = list(told.groups) if told else ["dev"]
    if names & {"--prod", "--no-dev"}:
        groups = []
    groups += _list(given, "--group") + _list(given, "--with")
    groups = [one for one in groups if one not in _list(given, "--without")]
    main = "--no-default" not in names
    if isinstance(lock, FileText):
        wanted = _from_lock(lock, told, main, groups, frozenset(groups), pip.machine_of(command.env))
        if isinstance(wanted, str):
            yield Unread(lock.path, wanted, span)
        else:
            for one in wanted:
                yield replace(one, manager="pip", target=target, sure=command.sure and one.sure)
    else:
        if told:
            asked = Asked(extra_indexes=list(told.extra_indexes), unread=list(told.unread))
            asked.requirements = list(project.needed(told, frozenset(groups), groups, main=main))
            yield from pip.finish(asked, command, target, files, "pip", requires=told.python)
        yield Unread("pdm.lock", lock, span)
    if isinstance(found, Unread):
        yield found


# ---- Pipenv


def _pipenv(command: Command, verb: str, given: options.Given, files: Files) -> Iterator[Install | Removal | Unread]:
    names, span = given.names(), command.words[0].span
    target = "pipenv:system" if "--system" in names else _target("pipenv", command.env, command.cwd)
    if verb == "uninstall":
        for word in given.rest:
            yield Removal("pip", canonical(word.text), word.span, target, command.sure)
        return
    if verb not in ("install", "sync", "update"):
        return
    if given.rest or given.every("--requirements") or given.every("--editable"):
        asked = Asked()
        index = given.last("--index")
        asked.index = address(index.text) if index and "://" in index.text else ""
        for word in given.rest:
            pip.add_word(asked, word)
        for word in given.every("--editable"):
            pip.add_word(asked, word, editable=True)
        pip.add_files(asked, command, [(word.text, word, False) for word in given.every("--requirements")], files)
        yield from pip.finish(asked, command, target, files, "pip")
        return
    dev = "--dev" in names
    lock = files.read("Pipfile.lock", command.cwd)
    if isinstance(lock, FileText) and "--skip-lock" not in names:
        yield from _pipfile_lock(command, lock, dev, target)
        return
    file = files.read("Pipfile", command.cwd)
    if not isinstance(file, FileText):
        yield Unread("Pipfile.lock", lock if isinstance(lock, str) else "it is skipped", span)
        yield Unread("Pipfile", file, span)
        return
    data = project.toml(file)
    if isinstance(data, str):
        yield Unread(file.path, data, span)
        return
    named = {
        str(one.get("name", "")): str(one["url"])
        for one in tables(data.get("source"))
        if isinstance(one.get("url"), str)
    }
    addresses = list(named.values())
    asked = Asked(index=address(addresses[0]) if addresses else "")
    places = project.Places(file)
    for part in ("packages", *(("dev-packages",) if dev else ())):
        for package, wanted in list(table(data, part).items())[: requirements.MOST]:
            asked.requirements += _pipfile_one(canonical(package), wanted, named, places)
    yield from pip.finish(asked, command, target, files, "pip")


def _pipfile_one(
    package: str, wanted: object, named: Mapping[str, str], places: project.Places
) -> Iterator[Requirement]:
    body = {"version": wanted} if isinstance(wanted, str) else table(wanted)
    version = (
        str(body.get("version", "")).replace("*", "", 1) if body.get("version") == "*" else str(body.get("version", ""))
    )
    url = str(body.get("file") or body.get("path") or "")
    if isinstance(body.get("git"), str):
        url = f"git+{body['git']}" + (f"@{body['ref']}" if isinstance(body.get("ref"), str) else "")
    marks = [str(body["markers"])] if isinstance(body.get("markers"), str) else []
    marks += [f"{key} {body[key]}" for key in ("sys_platform", "platform_machine") if isinstance(body.get(key), str)]
    told = requirements.requirement(url, places.key(package)) if url else None
    pins = requirements.pin(version)
    yield Requirement(
        package,
        places.key(package),
        version,
        pins[0] or (told.version if told else ""),
        pins[1] or (told.local if told else ""),
        tuple(texts(body.get("extras"))),
        url,
        body.get("editable") is True,
        " and ".join(marks),
        named.get(str(body.get("index", "")), ""),
    )


def _pipfile_lock(command: Command, file: FileText, dev: bool, target: str) -> Iterator[Install | Unread]:
    span = command.words[0].span
    try:
        data = json.loads(file.text)
    except (ValueError, RecursionError):
        yield Unread(file.path, "it is no JSON", span)
        return
    named = {str(one.get("name", "")): str(one.get("url", "")) for one in tables(table(data, "_meta").get("sources"))}
    places = project.Places(file)
    machine = pip.machine_of(command.env)
    for part in ("default", *(("develop",) if dev else ())):
        for package, wanted in list(table(data, part).items())[: requirements.MOST]:
            body = table(wanted)
            specifier, marker = str(body.get("version", "")), str(body.get("markers", ""))
            answer = holds(marker, "", machine)
            if answer is False:
                continue
            version, local = requirements.pin(specifier)
            url = str(body.get("file") or body.get("path") or "")
            if isinstance(body.get("git"), str):
                url = f"git+{body['git']}@{body.get('ref', '')}"
            told = requirements.archive(url) if url else None
            yield Install(
                "pip",
                canonical(package),
                places.find(f'"{package}"'),
                specifier,
                version or (told[1] if told else ""),
                local or (told[2] if told else ""),
                url=url,
                index=address(named.get(str(body.get("index", "")), "")),
                target=target,
                locked=True,
                marker="" if answer else marker,
                sure=command.sure,
            )


_Verb = Callable[[Command, str, options.Given, Files], Iterator[Install | Removal | Unread]]
_READERS: Mapping[str, tuple[options.Grammar, _Verb]] = {
    "poetry": (_POETRY, _poetry),
    "pdm": (_PDM, _pdm),
    "pipenv": (_PIPENV, _pipenv),
}
