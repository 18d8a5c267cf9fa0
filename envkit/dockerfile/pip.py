"""What pip installs: ``pip``, ``python -m pip``, ``python setup.py install`` and what brings pip itself.

The grammar is that of ``pip install --help`` and pip's pages on configuration (PIP_ variables) and requirements files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from envkit.dockerfile import options, project, requirements
from envkit.dockerfile.files import ByBuild, Files
from envkit.dockerfile.requirements import RequestedPackages, Requirement
from envkit.patterns import pattern
from envkit.records import dataclass, replace
from envkit.subjects.dockerfile import Command, Install, Removal, Unread, Word

GRAMMAR = options.grammar("pip")
# Options whose value changes what an install means; they are kept as "--name=value" beside the bare name.
_TELLING = (
    *("--target", "--prefix", "--root", "--no-binary", "--only-binary", "--platform", "--python-version"),
    "--upgrade-strategy",
)

_PIP = pattern(r"pip-?([0-9](?:\.[0-9]+)?)?\Z")
_PYTHON = pattern(r"(?:python|pypy)([0-9](?:\.[0-9]+)?)?t?\Z")
_SPELT_PIP = pattern(r"\$\{?\w*pip\w*\}?\Z", re.IGNORECASE)
_SPELT_PYTHON = pattern(r"\$\{?\w*python\w*\}?\Z", re.IGNORECASE)

# OpenMMLab's installer hands everything to pip, and names its own page of wheels for its compiled packages.
_MIM, _MIM_PAGE = "mim", "https://download.openmmlab.com/mmcv/dist/"
_MIM_COMPILED = frozenset({"mmcv", "mmcv-full"})

GROUP = "what a dependency group holds is not read"


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment that a command makes: its path, and the words that choose the Python it is made of (""
    where they are not given); ``system`` where it sees the packages of that Python."""

    path: str
    python: str
    system: bool = False


def read(command: Command, files: Files) -> Iterator[Install | Removal | Unread]:
    """What the command installs or removes; nothing where it is no command of pip's."""
    target, words = started(command)
    if target:
        mim = posixpath.basename(command.words[0].text) == _MIM
        for record in _pip(command, target, words, files):
            if mim and isinstance(record, Install) and record.url:
                continue  # OpenMMLab's projects compile nothing by their setup.py, whichever FORCE_CUDA is set for mmcv
            if mim and isinstance(record, Install) and record.name in _MIM_COMPILED:
                record = replace(record, find_links=(_MIM_PAGE,))
            yield record
        return
    yield from _python(command, files)


def started(command: Command) -> tuple[str, tuple[Word, ...]]:
    """The words that choose pip's Python, and what follows them; ("", ()) where the command does not start pip."""
    first = command.words[0]
    if _named(first.text)[0]:
        return _absolute(first.text, command.cwd), command.words[1:]
    if posixpath.basename(first.text) == _MIM and [word.text for word in command.words[1:2]] == ["install"]:
        return _absolute(posixpath.join(posixpath.dirname(first.text), "pip"), command.cwd), command.words[1:]
    module, rest = module_of(command)
    if module in ("pip", "pip3") or module.startswith("pip._internal"):
        return _absolute(first.text, command.cwd) + " -m pip", rest
    return "", ()


@lru_cache(maxsize=1024)
def _named(first: str) -> tuple[bool, bool]:
    """Whether a command's first word starts pip, and whether a Python."""
    program = first.rsplit("/", 1)[-1]
    return bool(_PIP.match(program) or _SPELT_PIP.match(first)), bool(
        _PYTHON.match(program) or _SPELT_PYTHON.match(first)
    )


def module_of(command: Command) -> tuple[str, tuple[Word, ...]]:
    """The module of ``python -m MODULE`` and the words after it; ("", ()) where the command is something else."""
    if not _named(command.words[0].text)[1]:
        return "", ()
    at = 1
    while at < len(command.words):
        text = command.words[at].text
        if text == "-m" and at + 1 < len(command.words):
            return command.words[at + 1].text, command.words[at + 2 :]
        if text.startswith("-m") and len(text) > 2:
            return text[2:], command.words[at + 1 :]
        if re.match(r"-[bBdEhiIOPqsSuvx]+m\Z", text) and at + 1 < len(command.words):
            return command.words[at + 1].text, command.words[at + 2 :]
        if not text.startswith("-") or text in ("-", "-c"):
            break
        at += 2 if text in ("-W", "-X") else 1
    return "", ()


def _absolute(program: str, cwd: str) -> str:
    """A program named by a relative path, as the rest of the build finds it."""
    relative = cwd and "/" in program and "$" not in program
    return posixpath.normpath(posixpath.join(cwd, program)) if relative else program


def _pip(command: Command, target: str, words: tuple[Word, ...], files: Files) -> Iterator[Install | Removal | Unread]:
    given = options.read(words, GRAMMAR)
    if not given.rest:
        return
    verb = given.rest[0].text
    chosen = given.last("--python")
    if chosen:
        target = chosen.text + " -m pip"
    if verb in ("uninstall", "remove"):
        yield from _uninstall(command, given, target, files)
    if verb != "install" or given.names() & {"--dry-run", "--help", "-h"}:
        return
    asked = RequestedPackages()
    written = _written(command, files, asked)
    if written:
        command = replace(command, env={**written, **command.env})
    configure(asked, command.env)
    _apply(asked, given)
    for word in command_words(given.rest[1:]):
        add_word(asked, word)
    for word in given.every("--editable"):
        add_word(asked, word, editable=True)
    _files(asked, command, given, files)
    for word in given.every("--group"):
        asked.unread.append(Unread(word.text, GROUP, word.span))
    yield from finish(asked, command, target, files, "pip")


def _uninstall(command: Command, given: options.ParsedOptions, target: str, files: Files) -> Iterator[Removal | Unread]:
    asked = RequestedPackages()
    for word in given.rest[1:]:
        add_word(asked, word)
    for word in given.every("--requirement"):
        requirements.follow(asked, word.text, word.span, files, command.cwd, command.env)
    for wanted in asked.requirements:
        if wanted.name:
            yield Removal("pip", wanted.name, wanted.span, target, command.sure)
    yield from asked.unread


def command_words(words: tuple[Word, ...]) -> Iterator[Word]:
    """The words that are requirements; one whose value nobody knows may hold several."""
    return (word for word in words if word.text.strip())


def add_word(asked: RequestedPackages, word: Word, *, editable: bool = False) -> None:
    """Adds the requirement that a word of the command line is, or says that it could not be read."""
    text = word.text
    found = requirements.requirement(text, word.span, editable=editable)
    glob = bool(re.search(r"[*?]", text.partition("[")[0])) and not re.search(r"[=<>~!]", text)
    if found and not (found.url and not found.name and (glob or text.startswith("$"))):
        asked.requirements.append(found)
    elif glob:
        asked.unread.append(Unread(text, "which files it names is not known before the build", word.span))
    elif not word.sure or text.startswith("$") or "$(" in text:
        asked.unread.append(Unread(text, "its value is not known before the build", word.span))


def configure(asked: RequestedPackages, env: Mapping[str, str]) -> None:
    """Applies pip's PIP_ variables; empty ones count as not set, lists are split at blanks."""
    for name, value in env.items():
        if not name.startswith("PIP_") or not value.strip():
            continue
        option = "--" + name[4:].lower().replace("_", "-")
        option = GRAMMAR.aliases.get(option, option)
        if option == "--index-url":
            asked.index = requirements.address(value.strip())
        elif option == "--extra-index-url":
            asked.extra_indexes += value.split()
        elif option == "--find-links":
            asked.find_links += value.split()
        elif option in _TELLING:
            asked.options |= {option, f"{option}={value.strip()}"}
        elif option in GRAMMAR.flags and (
            option == "--no-cache-dir" or options.is_true(value) != (option == "--no-build-isolation")
        ):
            # Any value of PIP_NO_CACHE_DIR disables the cache, "off" and 0 too; PIP_NO_BUILD_ISOLATION takes its
            # effect from a false value (both are said so in pip's own source, for compatibility).
            asked.options.add(option)


def _written(command: Command, files: Files, asked: RequestedPackages) -> dict[str, str]:
    """The PIP_ variables that pip's files of configuration stand for, later ones over earlier (pip, "Configuration").

    A file that the build makes, so that nobody knows what it says, is an index that is not known.
    """
    home, active, named = (command.env.get(name, "") for name in ("HOME", "VIRTUAL_ENV", "PIP_CONFIG_FILE"))
    home = home or "/root"
    paths = ["/etc/pip.conf", f"{home}/.pip/pip.conf", f"{home}/.config/pip/pip.conf"]
    paths += [f"{active}/pip.conf"] if active else []
    found: dict[str, str] = {}
    for path in paths if named == "/dev/null" or not named else [*paths, named]:
        file = files.read(path, command.cwd)
        if isinstance(file, str):
            if isinstance(file, ByBuild):
                asked.extra_indexes.append(f"`{path}`")
            continue
        import configparser

        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(file.text.lstrip("\n"))
        except configparser.Error:
            continue  # pip refuses it, and the build ends there
        for section in ("global", "install"):
            for key, value in parser.items(section) if parser.has_section(section) else ():
                found["PIP_" + key.upper().replace("-", "_")] = value
    return found


def configured(command: Command) -> Mapping[str, str]:
    """The PIP_ variables that ``pip config set`` stands for, in the commands that follow it in the image.

    pip reads variables over its files, so a variable that is set already wins.
    """
    target, words = started(command)
    if not target:
        return {}
    rest = options.read(words, GRAMMAR).rest
    if len(rest) < 4 or rest[0].text != "config" or rest[1].text != "set":
        return {}
    section, dot, key = rest[2].text.partition(".")
    if not dot or section not in ("global", "install", "user", "site") or not rest[3].sure:
        return {}
    return {"PIP_" + key.upper().replace("-", "_"): rest[3].text}


def _apply(asked: RequestedPackages, given: options.ParsedOptions) -> None:
    index = given.last("--index-url")
    if index:
        asked.index = requirements.address(index.text)
    asked.extra_indexes += [word.text for word in given.every("--extra-index-url")]
    asked.find_links += [word.text for word in given.every("--find-links")]
    asked.options |= given.names()
    asked.options |= {f"{name}={word.text}" for name in _TELLING for word in given.every(name)}


def _files(asked: RequestedPackages, command: Command, given: options.ParsedOptions, files: Files) -> None:
    """The requirements and constraints files of the options and of PIP_REQUIREMENT, PIP_CONSTRAINT."""
    named = [(word.text, word, False) for word in given.every("--requirement")]
    named += [(word.text, word, True) for word in given.every("--constraint")]
    for variable, pins in (("PIP_REQUIREMENT", False), ("PIP_CONSTRAINT", True)):
        named += [(path, command.words[0], pins) for path in command.env.get(variable, "").split()]
    add_files(asked, command, named, files)


def add_files(asked: RequestedPackages, command: Command, named: list[tuple[str, Word, bool]], files: Files) -> None:
    """Reads requirements files (and constraints, where the flag says so) into what is asked for."""
    for path, word, pins in named:
        if path in ("-", "/dev/stdin"):
            if command.heredoc:
                requirements.add_text(asked, command.heredoc, word.span.path, files, command.cwd, command.env)
            else:
                asked.unread.append(Unread(path, "what is piped into it is not known before the build", word.span))
        elif "$" in path or path.startswith("<("):
            asked.unread.append(Unread(path, "its name is not known before the build", word.span))
        else:
            requirements.follow(asked, path, word.span, files, command.cwd, command.env, constraint=pins)


def python_of(target: str) -> str:
    """The Python that the words of a target name ("3.11" of "python3.11 -m pip"), "" where they do not."""
    found = re.search(r"(?:python|pip|pypy)-?([0-9]\.[0-9]+)", target)
    return found[1] if found else ""


def machine_of(env: Mapping[str, str]) -> str:
    """The machine that the build is for, as ``platform_machine`` has it."""
    return "aarch64" if env.get("TARGETARCH") == "arm64" else "x86_64"


def finish(
    asked: RequestedPackages,
    command: Command,
    target: str,
    files: Files,
    manager: str,
    python: str = "",
    requires: str = "",
) -> Iterator[Install | Unread]:
    """What is asked for as installs: markers decided, paths made absolute, projects of the context opened.

    ``requires`` is the project's own word on Pythons, which decides markers where ``python`` is not known.
    """
    python, machine = python or python_of(target), machine_of(command.env)
    opened: set[str] = set()
    queue = list(asked.requirements)
    at = 0
    while at < len(queue) and at < requirements.MOST:
        wanted = queue[at]
        at += 1
        answer = requirements.holds(wanted.marker, python, machine, requires=requires)
        if answer is False:
            continue
        if answer and wanted.marker:
            wanted = replace(wanted, marker="")
        if not wanted.url or requirements.archive(wanted.url) or "://" in wanted.url or wanted.url.startswith("git@"):
            yield requirements.install(wanted, asked, manager, target, sure=command.sure)
            continue
        path = wanted.url.removeprefix("file:")
        place = posixpath.normpath(posixpath.join(command.cwd, path) if command.cwd else path)
        if place.endswith((".whl", ".zip", ".gz", ".bz2", ".xz", ".tgz")):
            yield requirements.install(replace(wanted, url=place), asked, manager, target, sure=command.sure)
            continue
        name, own = wanted.name, ""
        more: tuple[Requirement, ...] = ()
        if place not in opened:
            opened.add(place)
            found = project.read(path, command.cwd, files, wanted.span)
            if isinstance(found, Unread):
                asked.unread += () if requirements.says_nothing(found) else (found,)
            else:
                name, own = name or found.name, found.python
                asked.unread += found.unread
                if "--no-deps" not in asked.options:
                    if manager == "pip":
                        # Sources are uv's and poetry's own; what is built for pip does not hold them.
                        found = replace(found, sources={})
                    more = project.needed(found, frozenset(wanted.extras), (), python)
                    if manager == "pip":
                        more = tuple(replace(one, index="") for one in more)
        told = requirements.install(replace(wanted, name=name, url=place), asked, manager, target, sure=command.sure)
        yield replace(told, requires=own, options=told.options | project.built(path, command.cwd, files))
        queue += [replace(one, sure=one.sure and wanted.sure) for one in more]
    for pin in asked.constraints:
        if pin.name and requirements.holds(pin.marker, python, machine, requires=requires) is not False:
            yield requirements.install(pin, asked, manager, target, sure=command.sure, constraint=True)
    yield from asked.unread


# ---- the others


def _python(command: Command, files: Files) -> Iterator[Install | Unread]:
    """``python setup.py install`` and its like, get-pip.py and ensurepip, which bring pip to their Python."""
    if not _named(command.words[0].text)[1]:
        return
    first = _absolute(command.words[0].text, command.cwd)
    module, _ = module_of(command)
    if module == "ensurepip":
        yield Install("pip", "pip", command.words[0].span, target=first + " -m pip", sure=command.sure)
        return
    at = 1
    while at < len(command.words) and command.words[at].text.startswith("-"):
        if command.words[at].text in ("-c", "-m", "-"):
            return
        at += 2 if command.words[at].text in ("-W", "-X") else 1
    if at >= len(command.words):
        return
    script, verbs = command.words[at], [word.text for word in command.words[at + 1 :]]
    file = script.text.rsplit("/", 1)[-1]
    if file == "get-pip.py":
        asked = RequestedPackages()
        for word in command.words[at + 1 :]:
            if not word.text.startswith("-"):
                add_word(asked, word)
        pinned = next((one for one in asked.requirements if one.name == "pip"), Requirement("pip", script.span))
        asked.requirements = [pinned, *(one for one in asked.requirements if one is not pinned)]
        yield from finish(asked, command, first + " -m pip", files, "pip")
        return
    if file != "setup.py" or not {"install", "develop", "build_ext"} & set(verbs):
        return
    directory = posixpath.dirname(script.text)
    place = posixpath.normpath(posixpath.join(command.cwd, directory)) if command.cwd else directory or "."
    editable = "develop" in verbs or "--inplace" in verbs
    own = Install("source", ".", script.span, url=place, editable=editable, target=first + " -m pip", sure=command.sure)
    yield replace(own, options=project.built(directory, command.cwd, files))
    if "--no-deps" in verbs or not {"install", "develop"} & set(verbs):
        return
    found = project.read(directory, command.cwd, files, script.span)
    if isinstance(found, Unread):
        yield from () if requirements.says_nothing(found) else (found,)
        return
    needed = project.needed(replace(found, sources={}), frozenset())
    asked = RequestedPackages(requirements=list(needed), unread=list(found.unread))
    yield from finish(asked, command, first + " -m pip", files, "pip")


_VENV = options.grammar("virtualenv")


def environment(command: Command) -> Environment | None:
    """The virtual environment that ``python -m venv`` or ``virtualenv`` makes, None where the command makes none."""
    module, words = module_of(command)
    python = command.words[0].text
    if command.program in ("virtualenv", "virtualenv3", "pyvenv"):
        words, python = command.words[1:], ""
    elif module not in ("venv", "virtualenv"):
        return None
    given = options.read(words, _VENV)
    chosen = given.last("--python")
    if not given.rest:
        return None
    path = given.rest[-1].text
    if command.cwd and "$" not in path:
        path = posixpath.normpath(posixpath.join(command.cwd, path))
    return Environment(path, chosen.text if chosen else python, "--system-site-packages" in given.names())
