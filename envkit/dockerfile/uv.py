"""What uv installs: ``uv pip``, ``uv sync`` and the other commands that synchronise a project, ``uv venv``,
``uv python``, ``uv tool``.

The grammar is that of uv's command line reference, the variables those of its page on environment variables.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from envkit.dockerfile import locks, options, pip, project, requirements
from envkit.dockerfile.files import MISSING, NOWHERE, Files, FileText
from envkit.dockerfile.project import Project, table, tables, texts
from envkit.dockerfile.requirements import RequestedPackages, address, holds
from envkit.model import Span
from envkit.patterns import pattern
from envkit.records import replace
from envkit.subjects.dockerfile import Command, Install, Removal, Unread, Word

GRAMMAR = options.grammar("uv")
_VENV = options.grammar("uv venv")
_TELLING = options.names(
    "--torch-backend --index-strategy --target --prefix --no-binary --only-binary --python-platform"
)
# The packages that --torch-backend fetches from PyTorch's own index (uv's guide "Using uv with PyTorch").
_TORCH = options.names(
    """torch torchvision torchaudio torchtext torchao torchdata torchserve torchcsprng torchrec torch-tensorrt
    torchmetrics-pytorch torchcodec fbgemm-gpu pytorch-triton triton torch-xla"""
)
_TORCH_INDEX = "https://download.pytorch.org/whl/"
_NAMED_INDEX = pattern(r"\A[A-Za-z0-9_.-]+=(?=[a-z]+://)")
TOOL = "what a tool gets in an environment of its own is not read"
_PYTHON = pattern(r"(?:\A|python|cpython|pypy|[@/-]|==)([23]\.[0-9]+(?:\.[0-9]+)?)(?![0-9])")


def read(command: Command, files: Files) -> Iterator[Install | Removal | Unread]:
    """What the command installs or removes; nothing where it is no command of uv's."""
    words = command.words[1:]
    if command.program == "uvx":
        yield Unread("uvx", TOOL, command.span, system=True)
        return
    if command.program != "uv":
        module, words = pip.module_of(command)
        if module != "uv":
            return
    outer = options.read(words, GRAMMAR, inner=True)
    if not outer.rest:
        return
    verb, words = outer.rest[0].text, outer.rest[1:]
    command = _moved(command, outer)
    if verb == "pip":
        yield from _pip(command, outer, words, files)
    elif verb == "sync":
        yield from _sync(command, _both(outer, options.read(words, GRAMMAR)), files)
    elif verb in ("add", "remove"):
        yield Unread(f"uv {verb}", "what it makes of the project is not read", command.span)
    elif verb == "run":
        yield from _run(command, outer, words, files)
    elif verb == "venv":
        yield from _venv(command, _both(outer, options.read(words, _VENV)), files)
    elif verb == "python":
        yield from _python(command, options.read(words, GRAMMAR), files)
    elif verb == "tool" and {word.text for word in words[:1]} & {"install", "run", "upgrade"}:
        yield Unread("uv tool", TOOL, command.span, system=True)


LACKING = "uv-lacks"  # in the place of an installer: what the project does not define


def _both(outer: options.ParsedOptions, inner: options.ParsedOptions) -> options.ParsedOptions:
    return options.ParsedOptions((*outer.options, *inner.options), inner.rest)


def _moved(command: Command, given: options.ParsedOptions) -> Command:
    """The command in the directory that ``--directory`` moves it to."""
    moved = given.last("--directory")
    if not moved:
        return command
    return replace(command, cwd=posixpath.normpath(posixpath.join(command.cwd, moved.text)))


def _join(cwd: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(cwd, path)) if cwd and "$" not in path else path


# ---- indexes


def _asked(command: Command, given: options.ParsedOptions, found: Project) -> RequestedPackages:
    """The indexes and options in force: of the command line, the variables and the project, in uv's order."""
    asked, env = RequestedPackages(), command.env
    default = given.last("--default-index") or given.last("--index-url")
    told = default.text if default else env.get("UV_DEFAULT_INDEX") or env.get("UV_INDEX_URL") or ""
    asked.index = address(_url(told)) if told else found.index
    listed = [word.text for word in given.every("--index")]
    listed += env.get("UV_INDEX", "").split()
    listed += found.extra_indexes
    listed += [word.text for word in given.every("--extra-index-url")]
    listed += env.get("UV_EXTRA_INDEX_URL", "").split()
    asked.extra_indexes = list(dict.fromkeys(_url(one) for one in listed))
    asked.find_links = [word.text for word in given.every("--find-links")]
    asked.find_links += [one for one in env.get("UV_FIND_LINKS", "").split(",") if one]
    asked.options = {"--no-cache-dir" if name == "--no-cache" else name for name in given.names()}
    asked.options |= {f"{name}={word.text}" for name in _TELLING for word in given.every(name)}
    for variable, option in (("UV_TORCH_BACKEND", "--torch-backend"), ("UV_INDEX_STRATEGY", "--index-strategy")):
        if env.get(variable) and option not in asked.options:
            asked.options |= {option, f"{option}={env[variable]}"}
    for variable, option in (
        ("UV_NO_CACHE", "--no-cache-dir"),
        ("UV_SYSTEM_PYTHON", "--system"),
        ("UV_NO_BUILD_ISOLATION", "--no-build-isolation"),
    ):
        if options.is_true(env.get(variable, "")):
            asked.options.add(option)
    return asked


def _url(text: str) -> str:
    return _NAMED_INDEX.sub("", text.strip())


def _backend(asked: RequestedPackages) -> None:
    """``--torch-backend=cuNNN`` ties PyTorch's packages to that index; ``auto`` asks the machine, which no text can."""
    backend = next((one.partition("=")[2] for one in asked.options if one.startswith("--torch-backend=")), "")
    if not requirements.build_of(backend) or "$" in backend:
        return
    for at, wanted in enumerate(asked.requirements):
        if wanted.name in _TORCH and not wanted.url:
            asked.requirements[at] = replace(wanted, index=_TORCH_INDEX + backend)


# ---- uv pip


def _pip(
    command: Command, outer: options.ParsedOptions, words: tuple[Word, ...], files: Files
) -> Iterator[Install | Removal | Unread]:
    given = _both(outer, options.read(words, GRAMMAR))
    if not given.rest or "--dry-run" in given.names():
        return
    verb, rest = given.rest[0].text, given.rest[1:]
    if verb not in ("install", "sync", "uninstall"):
        return
    command = _moved(command, given)
    around = files.read("pyproject.toml", command.cwd)
    found = project.read("", command.cwd, files, command.span) if isinstance(around, FileText) else None
    asked = _asked(command, given, found if isinstance(found, Project) else project.UNKNOWN)
    target, python = _pip_target(command, given, asked)
    named = [(word.text, word, False) for word in given.every("--requirement")]
    if verb == "sync":
        named += [(word.text, word, False) for word in rest]
    else:
        for word in pip.command_words(rest):
            pip.add_word(asked, word)
    for word in given.every("--editable"):
        pip.add_word(asked, word, editable=True)
    extras = frozenset(requirements.canonical(word.text) for word in given.every("--extra"))
    plain = []
    for path, word, pins in named:
        if path.rsplit("/", 1)[-1] in ("pyproject.toml", "setup.py", "setup.cfg"):
            one = project.read(posixpath.dirname(path), command.cwd, files, word.span)
            if isinstance(one, Unread):
                asked.unread.append(one)
                continue
            chosen = frozenset(one.optional) if "--all-extras" in given.names() else extras
            asked.requirements += project.needed(one, chosen, (), python)
            asked.unread += one.unread
        else:
            plain.append((path, word, pins))
    for word in given.every("--group"):
        asked.unread.append(Unread(word.text, pip.GROUP, word.span))
    plain += [(word.text, word, True) for word in (*given.every("--constraint"), *given.every("--override"))]
    for variable in ("UV_CONSTRAINT", "UV_OVERRIDE"):
        plain += [(path, command.words[0], True) for path in command.env.get(variable, "").split()]
    pip.add_files(asked, command, plain, files)
    if verb == "uninstall":
        for wanted in asked.requirements:
            if wanted.name:
                yield Removal("uv", wanted.name, wanted.span, target, command.sure)
        yield from asked.unread
        return
    _backend(asked)
    yield from pip.finish(asked, command, target, files, "uv", python)


def _pip_target(command: Command, given: options.ParsedOptions, asked: RequestedPackages) -> tuple[str, str]:
    """The environment of ``uv pip``, and its Python as far as the words name it."""
    chosen = given.last("--python")
    told = chosen.text if chosen else command.env.get("UV_PYTHON", "")
    if told and (chosen or "--system" not in asked.options):
        return f"uv:{told}", _version(told)
    if "--system" in asked.options:
        return "uv:--system", ""
    # The active environment, else the next .venv upwards: what the RUN has activated is not the command's to know.
    active = command.env.get("VIRTUAL_ENV") or command.env.get("CONDA_PREFIX") or "VENV"
    return "uv:" + (active.rstrip("/") or "VENV"), ""


def _version(text: str) -> str:
    """The version that a request for a Python names ("3.12", "python3.12", "cpython-3.12.1-linux-x86_64"), else ""."""
    found = _PYTHON.search(text)
    return found[1] if found and not re.match(r"[<>!~]", text) else ""


# ---- projects


def exports_unknown(command: Command) -> bool:
    """Whether a command sets the environment of uv's project to what only the build knows: a command's output."""
    given = command.assigns.get("UV_PROJECT_ENVIRONMENT")
    exported = command.words[1:] if command.program == "export" else ()
    told = any(not word.sure and word.raw.startswith("UV_PROJECT_ENVIRONMENT=") for word in exported)
    return told or (given is not None and not given.sure)


def _environment(command: Command, directory: str, given: options.ParsedOptions) -> str:
    """The environment that uv synchronises for the project in ``directory``."""
    place = _join(command.cwd, directory) if directory else command.cwd
    active = command.env.get("VIRTUAL_ENV")
    if "--active" in given.names() and active:
        return "uv:" + active.rstrip("/")
    folder = _join(place, command.env.get("UV_PROJECT_ENVIRONMENT") or ".venv")
    return "uv:" + (folder if folder.startswith("/") else "VENV")


def _chosen_python(command: Command, given: options.ParsedOptions, directory: str, files: Files) -> Install | None:
    """The Python that is asked for, by an option, a variable or the project's .python-version."""
    word = given.last("--python") or replace(command.words[0], text=command.env.get("UV_PYTHON", ""))
    asked, span = word.text, word.span
    file = "" if asked else files.read(posixpath.join(directory, ".python-version"), command.cwd)
    if isinstance(file, FileText):
        lines = [line.strip() for line in file.text.splitlines()[:50]]
        number = next((at for at, line in enumerate(lines, 1) if line and not line.startswith("#")), 0)
        if number:
            asked, span = lines[number - 1], Span(file.path, number, 1, number, len(lines[number - 1]) + 1)
    if not asked:
        return None
    target = _environment(command, directory, given)
    return Install("uv", "python", span, asked, _version(asked), target=target, sure=command.sure)


def only_python(specifier: str) -> str:
    """The one minor version of Python that a requires-python lets in, "" where it lets in several or none."""
    fits = [one for one in requirements.PYTHONS if requirements.admits(specifier, one) is not False]
    return fits[0] if specifier and len(fits) == 1 else ""


def _sync(command: Command, given: options.ParsedOptions, files: Files) -> Iterator[Install | Unread]:
    command = _moved(command, given)
    named = given.last("--project")
    directory = named.text if named else command.env.get("UV_PROJECT", "")
    directory = "" if directory == "." else directory
    if given.names() & {"--dry-run", "--help"}:
        return
    span = command.words[0].span
    found = project.read(directory, command.cwd, files, span)
    lock = files.read(posixpath.join(directory, "uv.lock"), command.cwd)
    target = _environment(command, directory, given)
    chosen = _chosen_python(command, given, directory, files)
    python = chosen.version if chosen else ""
    told = found if isinstance(found, Project) else project.UNKNOWN
    requires = told.python
    if chosen:
        yield chosen
    elif only := only_python(requires):
        # With one minor version let in it is that one, whether uv finds it or fetches it.
        yield Install("uv", "python", told.python_span or span, requires, only, target=target, sure=command.sure)
    asked = _asked(command, given, told)
    groups, main = _groups(given, told, command)
    extras = _extras(given, told)
    yield from _undefined(command, given, told, directory, files)
    if isinstance(lock, FileText):
        package = given.last("--package")
        name = requirements.canonical(package.text) if package else told.name
        skipped = {requirements.canonical(word.text) for word in given.every("--no-install-package")}
        walked = _locked(lock, name, extras, groups, main, python, requires, pip.machine_of(command.env))
        if isinstance(walked, str):
            yield Unread(lock.path, walked, span)
        else:
            for one in walked:
                if one.name not in skipped:
                    yield replace(one, options=frozenset(asked.options), target=target, sure=one.sure and command.sure)
    else:
        if told is found:
            asked.requirements = list(project.needed(told, extras - {"*"}, groups, python, main=main))
            asked.unread += told.unread
            yield from pip.finish(asked, command, target, files, "uv", python, requires)
        absent = lock in (NOWHERE, MISSING) and not given.names() & {"--locked", "--frozen"}
        if told is not found or not absent:  # without a lock uv resolves the project by itself
            yield Unread(posixpath.join(directory, "uv.lock"), lock, span)
    if isinstance(found, Unread):
        yield found
    elif main and found.is_package and not given.names() & {"--no-install-project", "--no-install-workspace"}:
        place = _join(command.cwd, directory) or "."
        own = Install("uv", found.name or ".", span, url=place, target=target, sure=command.sure)
        yield replace(own, editable="--no-editable" not in given.names(), options=frozenset(asked.options))


def _undefined(
    command: Command, given: options.ParsedOptions, told: Project, directory: str, files: Files
) -> Iterator[Install]:
    """The extras and groups that a command names and its project does not define, as installs by LACKING."""
    file = files.read(posixpath.join(directory, "pyproject.toml"), command.cwd)
    data = project.toml(file) if isinstance(file, FileText) else ""
    if isinstance(data, str) or not table(data, "project") or given.names() & {"--package", "--all-packages"}:
        return
    if table(data, "tool", "uv", "workspace") or "optional-dependencies" in texts(
        table(data, "project").get("dynamic")
    ):
        return
    groups = {*told.groups, *map(requirements.canonical, table(data, "dependency-groups")), "dev"}
    extras = {*told.optional, *map(requirements.canonical, table(data, "project", "optional-dependencies"))}
    for kind, names, defined in (
        ("extra", ("--extra",), extras),
        ("group", ("--group", "--only-group", "--no-group"), groups),
    ):
        for word in (word for name in names for word in given.every(name)):
            if word.sure and requirements.canonical(word.text) not in defined:
                yield Install(LACKING, f"{kind} {word.text}", word.span, sure=command.sure)


def _extras(given: options.ParsedOptions, found: Project) -> frozenset[str]:
    """The extras that are wanted; "*" for all of a project whose file is not known."""
    extras = frozenset(requirements.canonical(word.text) for word in given.every("--extra"))
    if "--all-extras" in given.names():
        extras = frozenset(found.optional) if found.path else frozenset({"*"})
    return extras - {requirements.canonical(word.text) for word in given.every("--no-extra")}


def _groups(given: options.ParsedOptions, found: Project, command: Command) -> tuple[tuple[str, ...], bool]:
    """The dependency groups that are wanted, and whether the project's own dependencies are."""
    names = given.names()
    only = [requirements.canonical(word.text) for word in given.every("--only-group")]
    if "--only-dev" in names:
        only.append("dev")
    if only:
        return tuple(only), False
    chosen = list(found.default_groups)
    if "--no-default-groups" in names or options.is_true(command.env.get("UV_NO_DEFAULT_GROUPS", "")):
        chosen = []
    if "--all-groups" in names:
        chosen = list(found.groups or chosen)
    if "--no-dev" in names or options.is_true(command.env.get("UV_NO_DEV", "")):
        chosen = [one for one in chosen if one != "dev"]
    chosen += [requirements.canonical(word.text) for word in given.every("--group")]
    without = {requirements.canonical(word.text) for word in given.every("--no-group")}
    return tuple(dict.fromkeys(one for one in chosen if one not in without)), True


def _locked(
    file: FileText,
    name: str,
    extras: frozenset[str],
    groups: Iterable[str],
    main: bool,
    python: str,
    requires: str,
    machine: str,
) -> list[Install] | str:
    """What uv.lock installs for its project: from the project's own table along the edges whose markers hold."""
    listed = locks.packages(file)
    by_name: dict[str, list[locks.Package]] = {}
    for one in listed:
        by_name.setdefault(one.name, []).append(one)
    root = _root(listed, name)
    if root is None:
        return "it names no project of its own" if listed else "it is no lock file of uv's"
    data = root.data()
    optional, grouped = table(data, "optional-dependencies"), table(data, "dev-dependencies")
    if "*" in extras:
        extras = frozenset(optional)
    active = {f"extra-{len(root.name)}-{root.name}-{extra}" for extra in extras}
    active |= {f"group-{len(root.name)}-{root.name}-{group}" for group in groups}
    decided = partial(holds, python=python, machine=machine, extras=frozenset({*active, *extras}), requires=requires)
    starts = [data.get("dependencies")] if main else []
    starts += [*map(optional.get, sorted(extras)), *map(grouped.get, groups)]
    edges = deque((edge, "") for start in starts for edge in tables(start))
    installs: dict[int, Install] = {}
    walked: set[tuple[int, str]] = {(id(root), "")}
    later: deque[tuple[dict[str, object], str]] = deque()
    while edges or later:
        # Edges that are sure come first, so that a package is marked only where every way to it is.
        edge, above = edges.popleft() if edges else later.popleft()
        marker = str(edge.get("marker", ""))
        answer = decided(marker)
        if answer is False:
            continue
        undecided = above if answer else _and(above, marker)
        if answer is None and not above:
            later.append(({**edge, "marker": ""}, marker))
            continue
        package = _package(edge, by_name, decided)
        if package is None:
            continue
        if id(package) not in installs:
            installs[id(package)] = _of_lock(package, undecided)
        wanted = ["", *(requirements.canonical(extra) for extra in texts(edge.get("extra")))]
        for extra in wanted:
            if (id(package), extra) in walked:
                continue
            walked.add((id(package), extra))
            inner = package.data()
            more = inner.get("dependencies") if not extra else table(inner, "optional-dependencies").get(extra)
            (later if undecided else edges).extend((one, undecided) for one in tables(more))
    installs.pop(id(root), None)
    # Of several releases one is installed; where no marker tells which (extras that exclude one another), none is sure.
    times = Counter(one.name for one in installs.values())
    return [replace(one, sure=one.sure and (times[one.name] == 1 or bool(one.marker))) for one in installs.values()]


def _and(above: str, marker: str) -> str:
    """Both markers as one, cut where it is longer than anybody reads."""
    return (f"({above}) and ({marker})" if above else marker)[:500]


def _root(listed: Iterable[locks.Package], name: str) -> locks.Package | None:
    """The project's own package in its lock: the local one of its name, else the one in the lock's own folder."""
    local = [
        one for one in listed if re.search(r'^source = \{ (?:virtual|editable|directory) = "', one.text, re.MULTILINE)
    ]
    roots = [one for one in local if one.name == name]
    roots = roots or [one for one in local if re.search(r'^source = \{ \w+ = "\." \}', one.text, re.MULTILINE)]
    return roots[0] if roots else None


def _package(
    edge: dict[str, object], by_name: dict[str, list[locks.Package]], decided: Callable[[str], bool | None]
) -> locks.Package | None:
    """The package that an edge leads to; ``decided`` tells whether a marker holds."""
    candidates = by_name.get(requirements.canonical(str(edge.get("name", ""))), [])
    if len(candidates) > 1 and edge.get("version"):
        candidates = [one for one in candidates if one.data().get("version") == edge["version"]] or candidates
    if len(candidates) > 1 and edge.get("source"):
        candidates = [one for one in candidates if one.data().get("source") == edge["source"]] or candidates
    if len(candidates) > 1:
        fitting = []
        for one in candidates:
            markers = texts(one.data().get("resolution-markers")) or [""]
            if any(decided(marker) is not False for marker in markers):
                fitting.append(one)
        candidates = fitting or candidates
    return candidates[0] if candidates else None


def _of_lock(package: locks.Package, marker: str) -> Install:
    source = table(package.data(), "source")
    version, local = package.version()
    registry, url = source.get("registry"), ""
    for kind in ("url", "git", "path", "directory", "editable", "virtual"):
        if isinstance(source.get(kind), str):
            url = ("git+" if kind == "git" else "") + str(source[kind])
    told = requirements.archive(url) if url else None
    specifier = f"=={version}" + (f"+{local}" if local else "") if version else ""
    found = Install("uv", package.name, package.span, specifier, version, local or (told[2] if told else ""), url=url)
    index = address(registry) if isinstance(registry, str) else ""
    return replace(found, editable="editable" in source, index=index, locked=True, marker=marker)


def _run(
    command: Command, outer: options.ParsedOptions, words: tuple[Word, ...], files: Files
) -> Iterator[Install | Removal | Unread]:
    """``uv run`` synchronises the project, then runs the rest in its environment."""
    inner = options.read(words, GRAMMAR, inner=True)
    given = _both(outer, inner)
    names = given.names()
    target = _environment(command, "", given)
    if not names & {"--no-sync", "--no-project", "--script"} and not options.is_true(command.env.get("UV_NO_SYNC", "")):
        yield from _sync(command, options.ParsedOptions(given.options, ()), files)
    for word in given.every("--with"):
        yield Unread(word.text, TOOL, word.span, system=True)
    if not inner.rest or "--module" in names or "-m" in names:
        return
    started = replace(command, words=inner.rest)
    if started.program == "uv" and [word.text for word in inner.rest[1:2]] == ["run"]:
        return  # nobody nests them, and nesting has no end
    for one in (*pip.read(started, files), *read(started, files)):
        if isinstance(one, Unread) or "/" in one.target or one.target.startswith("uv:"):
            yield one
        else:
            yield replace(one, target=target)


# ---- Pythons and tools


def _venv(command: Command, given: options.ParsedOptions, files: Files) -> Iterator[Install]:
    """An environment and its Python; version "" where uv takes the one it finds first."""
    place = given.rest[0].text if given.rest else command.env.get("UV_PROJECT_ENVIRONMENT") or ".venv"
    target = "uv:" + _join(command.cwd, place)
    chosen = _chosen_python(command, given, "", files)
    made = chosen or Install("uv", "python", command.words[0].span, sure=command.sure)
    kept = given.names() & {"--system-site-packages", "--seed", "--system", "--clear"}
    yield replace(made, target=target, options=frozenset(kept))


def _python(command: Command, given: options.ParsedOptions, files: Files) -> Iterator[Install]:
    """Pythons that uv downloads ("uv:python"); ``uv python pin`` only says which one later commands take."""
    verb = given.rest[0].text if given.rest else ""
    if verb not in ("install", "pin", "upgrade"):
        return
    words = given.rest[1:]
    kept = frozenset(given.names() & {"--default"})
    for word in words:
        made = Install("uv", "python", word.span, word.text, _version(word.text), target="uv:python")
        yield replace(made, constraint=verb == "pin", options=kept, sure=command.sure)
    if not words and verb == "install":
        chosen = _chosen_python(command, given, "", files)
        if chosen:
            yield replace(chosen, target="uv:python")
