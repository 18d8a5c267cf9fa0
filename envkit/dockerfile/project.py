"""A Python project of the build context: what pyproject.toml and setup.py say that it needs."""

from __future__ import annotations

import ast
import posixpath
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from envkit.dockerfile import requirements
from envkit.dockerfile.files import Files, FileText
from envkit.dockerfile.files import toml as toml_of
from envkit.dockerfile.requirements import RequestedPackages, Requirement, canonical
from envkit.model import Span
from envkit.patterns import pattern
from envkit.records import dataclass
from envkit.subjects.dockerfile import BUILDS, Unread

_KEY = pattern(r"[ \t]*[\"']?([A-Za-z0-9][A-Za-z0-9._-]*)[\"']?[ \t]*=")
LARGEST = 512 * 1024  # characters of a project file; what people write is a hundredth of it


@dataclass(frozen=True, slots=True)
class Source:
    """Where a package comes from instead of the usual indexes; ``marker``, ``extra`` and ``group`` say when."""

    index: str = ""
    url: str = ""
    marker: str = ""
    extra: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Project:
    """What a project says of itself.  ``poetry`` marks the tables of poetry; ``indexes`` are those asked for every
    package, first the one that replaces the default one ("" if none does)."""

    name: str = ""
    path: str = ""
    python: str = ""
    python_span: Span | None = None
    dependencies: tuple[Requirement, ...] = ()
    optional: Mapping[str, tuple[Requirement, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[Requirement, ...]] = field(default_factory=dict)
    default_groups: tuple[str, ...] = ()
    sources: Mapping[str, tuple[Source, ...]] = field(default_factory=dict)
    index: str = ""
    extra_indexes: tuple[str, ...] = ()
    unread: tuple[Unread, ...] = ()
    is_package: bool = True
    backend: str = ""


UNKNOWN = Project(default_groups=("dev",))  # one whose file cannot be read: what tools take for granted


def table(value: object, *keys: str) -> dict[str, Any]:
    """The table under the keys, empty where there is none or something else."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def texts(value: object) -> list[str]:
    """The strings of a list, the one of a single string."""
    if isinstance(value, str):
        return [value]
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def tables(value: object) -> list[dict[str, Any]]:
    """The tables of a list, the one of a single table."""
    if isinstance(value, dict):
        return [value]
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def toml(file: FileText) -> dict[str, Any] | str:
    """The file's tables, or a clause that says why they are not readable."""
    if len(file.text) > LARGEST:
        return f"it is larger than {LARGEST // 1024} KiB"
    try:
        return toml_of(file.text)
    except ValueError as error:
        return f"it is no TOML ({str(error)[:80]})"
    except RecursionError:
        return "its tables are nested too deeply"


class Places:
    """Finds where a file says a text: TOML's reader keeps no positions."""

    __slots__ = ("_at", "_keys", "_lines", "path", "text")

    def __init__(self, file: FileText) -> None:
        self.path, self.text = file.path, file.text
        self._at = 0
        self._lines: list[int] | None = None
        self._keys: dict[str, Span] | None = None

    def find(self, literal: str) -> Span:
        """Where the text stands; mostly after the one asked for before, for files are read in order."""
        at = self.text.find(literal, self._at)
        if at < 0:
            at = self.text.find(literal)
        if at < 0 or not literal:
            return Span(self.path, 1)
        self._at = at
        if self._lines is None:
            self._lines = [-1, *(found.start() for found in re.finditer("\n", self.text))]
        line = bisect_left(self._lines, at)
        column = at - self._lines[line - 1]
        return Span(self.path, line, column, line, column + len(literal))

    def key(self, name: str) -> Span:
        """The first line that gives the key a value."""
        if self._keys is None:
            self._keys = {}
            for number, line in enumerate(self.text.split("\n"), 1):
                found = _KEY.match(line)
                if found:
                    begin = found.start(1) + 1
                    span = Span(self.path, number, begin, number, max(len(line.rstrip()), begin) + 1)
                    self._keys.setdefault(canonical(found[1]), span)
        return self._keys.get(name, Span(self.path, 1))


def read(directory: str, cwd: str, files: Files, span: Span) -> Project | Unread:
    """The project in ``directory`` as the container names it (relative to ``cwd``), read from the first of its files
    that says what it needs; Unread with the reason where none could be read.
    """
    path = posixpath.join(directory, "pyproject.toml") if directory not in ("", ".") else "pyproject.toml"
    file = files.read(path, cwd)
    if isinstance(file, FileText):
        data = toml(file)
        if isinstance(data, str):
            return Unread(file.path, data, span)
        told = _pyproject(data, Places(file), directory, cwd, files)
        dynamic = "dependencies" in texts(table(data, "project").get("dynamic"))
        if (table(data, "project") and not dynamic) or table(data, "tool", "poetry") or told.dependencies:
            return told
        if table(data, "tool", "flit", "metadata"):
            return replace(told, unread=(*told.unread, Unread(file.path, "flit's own tables are not read", span)))
        old = _setup(directory, cwd, files, span)
        if isinstance(old, Unread):
            if not dynamic:
                return told
            why = "its dependencies are dynamic, and setup.py and setup.cfg do not tell them"
            return replace(told, unread=(*told.unread, Unread(file.path, why, span))) if not told.unread else told
        return replace(
            told,
            name=told.name or old.name,
            dependencies=old.dependencies,
            optional=told.optional or old.optional,
            python=told.python or old.python,
            unread=(*told.unread, *old.unread),
        )
    old = _setup(directory, cwd, files, span)
    return Unread(path, file, span) if isinstance(old, Unread) else old


def _all(values: object, places: Places) -> tuple[Requirement, ...]:
    read = (requirements.requirement(text, places.find(text)) for text in texts(values)[:2000])
    return tuple(filter(None, read))


def _pyproject(data: dict[str, Any], places: Places, directory: str, cwd: str, files: Files) -> Project:
    project, uv, poetry = table(data, "project"), table(data, "tool", "uv"), table(data, "tool", "poetry")
    unread: list[Unread] = []
    name = project.get("name")
    dependencies = _all(project.get("dependencies"), places)
    optional = {
        canonical(extra): _all(wanted, places) for extra, wanted in table(project, "optional-dependencies").items()
    }
    dynamic = table(data, "tool", "setuptools", "dynamic")
    if not dependencies and "dependencies" in dynamic:
        asked = _listed_in(dynamic.get("dependencies"), directory, places, files, cwd)
        dependencies = tuple(asked.requirements)
        unread += asked.unread
    for extra, body in table(dynamic, "optional-dependencies").items():
        optional[canonical(extra)] = tuple(_listed_in(body, directory, places, files, cwd).requirements)
    raw_groups = {canonical(group): body for group, body in table(data, "dependency-groups").items()}
    groups = {group: _group(raw_groups, group, places, set()) for group in raw_groups}
    if texts(uv.get("dev-dependencies")):
        groups["dev"] = (*groups.get("dev", ()), *_all(uv.get("dev-dependencies"), places))
    asked_for = uv.get("default-groups", ["dev"])
    chosen = tuple(groups) if asked_for == "all" else tuple(canonical(group) for group in texts(asked_for))
    index, extra_indexes, named = _uv_indexes(uv)
    sources = {
        canonical(package): tuple(_uv_source(one, named) for one in tables(where))
        for package, where in table(uv, "sources").items()
    }
    python, build = project.get("requires-python"), table(data, "build-system")
    found = Project(canonical(name) if isinstance(name, str) else "", places.path, unread=tuple(unread))
    if python:
        span = places.key("requires-python")
        found = replace(found, python=python if isinstance(python, str) else "", python_span=span)
    found = replace(found, dependencies=dependencies, optional=optional, groups=groups, default_groups=chosen)
    found = replace(found, sources=sources, index=index, extra_indexes=extra_indexes)
    is_package = bool(build) and uv.get("package") is not False
    found = replace(found, is_package=is_package, backend=str(build.get("build-backend", "")))
    return _poetry(poetry, found, places) if poetry else found


def _listed_in(body: object, directory: str, places: Places, files: Files, cwd: str) -> RequestedPackages:
    """What the requirements files of one of setuptools' dynamic keys ask for."""
    asked = RequestedPackages()
    for one in texts(table(body).get("file")):
        requirements.follow(asked, posixpath.join(directory, one), places.find(one), files, cwd, {})
    return asked


def _group(groups: dict[str, Any], name: str, places: Places, seen: set[str]) -> tuple[Requirement, ...]:
    """A dependency group with those that it includes (PEP 735)."""
    seen.add(name)
    found = list(_all(groups.get(name), places))
    for one in tables(groups.get(name)):
        included = one.get("include-group")
        if isinstance(included, str) and len(seen) < 100 and canonical(included) not in seen:
            found += _group(groups, canonical(included), places, seen)
    return tuple(found)


def _uv_indexes(uv: dict[str, Any]) -> tuple[str, tuple[str, ...], dict[str, str]]:
    index, extra, named = "", [], {}
    for one in tables(uv.get("index")):
        url, name = one.get("url"), one.get("name")
        if not isinstance(url, str):
            continue
        if isinstance(name, str):
            named[name] = url
        if one.get("default") is True:
            index = requirements.address(url)
        elif one.get("explicit") is not True:
            extra.append(url)
    old = uv.get("index-url") or table(uv, "pip").get("index-url")
    if isinstance(old, str):
        index = requirements.address(old)
    extra += texts(uv.get("extra-index-url")) + texts(table(uv, "pip").get("extra-index-url"))
    return index, tuple(extra), named


def _uv_source(one: dict[str, Any], named: Mapping[str, str]) -> Source:
    def word(key: str) -> str:
        value = one.get(key)
        return value if isinstance(value, str) else ""

    url = word("url") or word("path")
    if word("git"):
        reference = word("rev") or word("tag") or word("branch")
        url = f"git+{word('git').removeprefix('git+')}" + (f"@{reference}" if reference else "")
    index = named.get(word("index"), "") if word("index") else ""
    return Source(index, url, word("marker"), canonical(word("extra")), canonical(word("group")))


def _poetry(poetry: dict[str, Any], found: Project, places: Places) -> Project:
    """Poetry's own tables, beside [project] or without it."""
    index, extra, named = _poetry_sources(poetry)
    dependencies: list[Requirement] = []
    optional = dict(found.optional)
    python, python_span = found.python, found.python_span
    by_extra = {
        canonical(name): [canonical(member) for member in texts(members)]
        for name, members in table(poetry, "extras").items()
    }
    pinned = {canonical(package): wanted for package, wanted in table(poetry, "dependencies").items()}
    for package, wanted in list(pinned.items())[:2000]:
        if package == "python":
            if isinstance(wanted, str):
                python, python_span = python or wanted, places.key("python")
            continue
        is_optional = isinstance(wanted, dict) and wanted.get("optional") is True
        for needs in _poetry_dependency(package, wanted, named, places):
            for extra_name, members in by_extra.items():
                if is_optional and package in members:
                    optional[extra_name] = (*optional.get(extra_name, ()), needs)
            if not is_optional:
                dependencies.append(needs)
    # [project] holds what is needed, [tool.poetry.dependencies] where it comes from.
    told = {beside.name: beside for beside in dependencies}
    own = tuple(
        replace(needs, index=told[needs.name].index, url=needs.url or told[needs.name].url)
        if needs.name in told
        else needs
        for needs in found.dependencies
    )
    groups, chosen = _poetry_groups(poetry, found, named, places)
    own_name, is_package = poetry.get("name"), poetry.get("package-mode") is not False
    name = found.name or (canonical(own_name) if isinstance(own_name, str) else "")
    chosen, extra = list(dict.fromkeys(chosen)), list(dict.fromkeys((*found.extra_indexes, *extra)))
    found = replace(found, name=name, python=python, python_span=python_span, is_package=is_package)
    found = replace(found, dependencies=own or tuple(dependencies), optional=optional, groups=groups)
    found = replace(found, default_groups=tuple(chosen), index=index or found.index, extra_indexes=tuple(extra))
    return replace(found, backend=found.backend or "poetry")


def _poetry_groups(
    poetry: dict[str, Any], found: Project, named: Mapping[str, str], places: Places
) -> tuple[dict[str, tuple[Requirement, ...]], list[str]]:
    """The dependency groups with the project's own, and those that are installed unless somebody says otherwise."""
    groups = dict(found.groups)
    chosen = list(found.groups)
    old_dev = table(poetry, "dev-dependencies")
    raw = {group: (table(body, "dependencies"), body) for group, body in table(poetry, "group").items()}
    for group, (wanted_all, body) in {**raw, **({"dev": (old_dev, {})} if old_dev else {})}.items():
        listed = [
            needs
            for package, wanted in list(wanted_all.items())[:2000]
            for needs in _poetry_dependency(canonical(package), wanted, named, places)
        ]
        groups[canonical(group)] = (*groups.get(canonical(group), ()), *listed)
        if table(body).get("optional") is not True:
            chosen.append(canonical(group))
    return groups, chosen


def _poetry_sources(poetry: dict[str, Any]) -> tuple[str, list[str], dict[str, str]]:
    """The index that stands for the default one, those beside it, and all by name."""
    named: dict[str, str] = {}
    index, extra = "", []
    for one in tables(poetry.get("source")):
        url, name, priority = one.get("url"), one.get("name"), one.get("priority")
        if not isinstance(name, str) or not isinstance(url, str):
            continue
        named[name.lower()] = url
        if one.get("default") is True or priority == "default":
            index = requirements.address(url)
        elif priority not in ("explicit", "supplemental"):
            extra.append(url)
    return index, extra, named


def poetry_pin(specifier: str) -> tuple[str, str]:
    """Version and local version that one of poetry's constraints pins: a bare version is an exact one there."""
    text = specifier.strip()
    if re.match(r"[0-9]", text) and "," not in text and "*" not in text and "|" not in text:
        return requirements.pin("==" + text)
    return requirements.pin(text)


def _poetry_dependency(package: str, wanted: object, named: Mapping[str, str], places: Places) -> Iterable[Requirement]:
    span = places.key(package)
    if isinstance(wanted, str):
        yield Requirement(package, span, wanted, *poetry_pin(wanted))
        return
    for one in tables(wanted):
        constraint, source = one.get("version"), one.get("source")
        specifier = constraint if isinstance(constraint, str) else ""
        marks = [f"({one['markers']})"] if isinstance(one.get("markers"), str) else []
        if one.get("platform") in ("linux", "darwin", "win32"):
            marks.append(f"sys_platform == '{one['platform']}'")
        for clause in str(one.get("python", "")).split(","):
            compared = re.match(r"\s*(<=|>=|<|>|==|!=)\s*([0-9.*]+)\s*\Z", clause)
            if compared:
                marks.append(f"python_version {compared[1]} '{compared[2]}'")
        url = _uv_source(one, {}).url
        pins = poetry_pin(specifier)
        told = requirements.requirement(url, span) if url else None
        extras = tuple(canonical(extra) for extra in texts(one.get("extras")))
        version, local = pins[0] or (told.version if told else ""), pins[1] or (told.local if told else "")
        index = named.get(source.lower(), "") if isinstance(source, str) else ""
        needs = Requirement(package, span, specifier, version, local, extras, url, one.get("develop") is True)
        yield replace(needs, marker=" and ".join(marks), index=index)


# ---- setup.py


def _setup(directory: str, cwd: str, files: Files, span: Span) -> Project | Unread:
    """What setup.py and setup.cfg say; of what both say setuptools takes setup.py's word."""
    base = directory if directory not in ("", ".") else ""
    path = posixpath.join(base, "setup.py")
    script, config = files.read(path, cwd), files.read(posixpath.join(base, "setup.cfg"), cwd)
    told = _setup_cfg(config, base, cwd, files) if isinstance(config, FileText) else None
    if isinstance(script, str):
        return told if told is not None else Unread(path, script, span)
    found = _setup_py(script, base, cwd, files)
    if told is None:
        return found
    return replace(
        found,
        name=found.name or told.name,
        python=found.python or told.python,
        dependencies=found.dependencies or told.dependencies,
        optional={**told.optional, **found.optional},
        unread=(*found.unread, *told.unread),
    )


def _setup_cfg(file: FileText, directory: str, cwd: str, files: Files) -> Project | None:
    """What setup.cfg says in setuptools' sections, None where it has none of them."""
    from configparser import ConfigParser, Error  # few projects have one

    begin, sections = Span(file.path, 1), ConfigParser(interpolation=None, strict=False)
    if len(file.text) > LARGEST:
        return Project(path=file.path, unread=(Unread(file.path, "it is too large for a setup.cfg", begin),))
    try:
        sections.read_string(file.text)
    except Error:
        return Project(path=file.path, unread=(Unread(file.path, "it cannot be parsed", begin),))
    if not {"metadata", "options"} & set(sections.sections()):
        return None
    places, asked = Places(file), RequestedPackages()
    dependencies = _lines(
        sections.get("options", "install_requires", fallback=""), asked, places, directory, cwd, files
    )
    optional: dict[str, tuple[Requirement, ...]] = {}
    if sections.has_section("options.extras_require"):
        for extra, wanted in sections.items("options.extras_require"):
            optional[canonical(extra)] = _lines(wanted, asked, places, directory, cwd, files)
    name, python = (
        sections.get(*where, fallback="") for where in (("metadata", "name"), ("options", "python_requires"))
    )
    found = Project(canonical(name), file.path, python.strip(), None, dependencies, optional)
    return replace(found, unread=tuple(asked.unread), backend="setuptools")


def _lines(
    text: str, asked: RequestedPackages, places: Places, directory: str, cwd: str, files: Files
) -> tuple[Requirement, ...]:
    """The requirements of one key of setup.cfg: a line each, or those of the files that "file:" names."""
    if not text.strip().startswith("file:"):
        return _all([line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")], places)
    listed = RequestedPackages()
    for name in re.split(r"[,\s]+", text.strip().removeprefix("file:").strip()):
        requirements.follow(listed, posixpath.join(directory, name), places.find(name), files, cwd, {})
    asked.unread += listed.unread
    return tuple(listed.requirements)


def _names_and_setup(tree: ast.Module) -> tuple[dict[str, ast.expr], list[str], ast.Call | None]:
    """The names that a module assigns, its strings, and its last call of setup()."""
    names: dict[str, ast.expr] = {}
    call: ast.Call | None = None
    constants: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            names[node.target.id] = node.value
        elif isinstance(node, ast.Call):
            function = node.func
            called = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            if called == "setup":
                call = node
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            constants.append(node.value)
    return names, constants, call


def _setup_py(file: FileText, directory: str, cwd: str, files: Files) -> Project:
    """What setup.py passes to setup() as literals, also through names of the module and their sums."""
    begin = Span(file.path, 1)
    if len(file.text) > LARGEST:
        return Project(path=file.path, unread=(Unread(file.path, "it is too large for a setup.py", begin),))
    try:
        tree = ast.parse(file.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Project(path=file.path, unread=(Unread(file.path, "it is no Python that can be parsed", begin),))
    names, constants, call = _names_and_setup(tree)
    if call is None:
        return Project(path=file.path, unread=(Unread(file.path, "it does not call setup()", begin),))
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    name = _literal(given.get("name"), names, 0)
    wanted = _literal(given.get("install_requires"), names, 0) if "install_requires" in given else []
    unread: list[Unread] = []
    dependencies: tuple[Requirement, ...] = ()
    places = Places(file)
    if isinstance(wanted, list | str):
        wanted = wanted.splitlines() if isinstance(wanted, str) else wanted
        dependencies = _all(wanted, places)
    else:
        where = given["install_requires"]
        at = Span(file.path, where.lineno, where.col_offset + 1)
        lists = {text for text in constants if re.fullmatch(r"[\w./-]*requirements[\w./-]*\.(txt|in)", text)}
        if len(lists) == 1:
            # It computes the list, out of the only requirements file that it names.
            asked = RequestedPackages()
            requirements.follow(asked, posixpath.join(directory, lists.pop()), at, files, cwd, {})
            dependencies, unread = tuple(asked.requirements), asked.unread
        else:
            unread.append(Unread(file.path, "it computes install_requires", at))
    extras = _literal(given.get("extras_require"), names, 0) if "extras_require" in given else {}
    named = extras if isinstance(extras, dict) else {}
    optional = {canonical(extra): _all(value, places) for extra, value in named.items() if isinstance(extra, str)}
    python = _literal(given.get("python_requires"), names, 0)
    name, python = (value if isinstance(value, str) else "" for value in (name, python))
    found = Project(canonical(name), file.path, python, None, dependencies, optional, unread=tuple(unread))
    return replace(found, backend="setuptools")


_SKIPPED = (
    ast.If, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.While, ast.With, ast.IfExp,
    ast.BoolOp, ast.Lambda,
)  # fmt: skip


def built(directory: str, cwd: str, files: Files) -> frozenset[str]:
    """What building the project in ``directory`` surely does, for Install.builds; empty where nothing is sure.

    Source: torch.utils.cpp_extension, whose CUDAExtension is compiled for the GPUs that torch sees where neither
    TORCH_CUDA_ARCH_LIST nor an option of nvcc names others.
    """
    base = directory if directory not in ("", ".") else ""
    script = files.read(posixpath.join(base, "setup.py"), cwd)
    if not isinstance(script, FileText) or "torch" not in script.text or len(script.text) > LARGEST:
        return frozenset()
    config = files.read(posixpath.join(base, "pyproject.toml"), cwd)
    data = toml(config) if isinstance(config, FileText) else {}
    system = table(data, "build-system") if isinstance(data, dict) else {"build-backend": "unread"}
    if not str(system.get("build-backend", "setuptools")).startswith("setuptools"):
        return frozenset()
    try:
        sure = list(_certain(ast.parse(script.text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    found = set[str]()
    modules = [name.name for node in sure if isinstance(node, ast.Import) for name in node.names]
    modules += [node.module or "" for node in sure if isinstance(node, ast.ImportFrom) and not node.level]
    asked = texts(system.get("requires"))
    if any(name.partition(".")[0] == "torch" for name in modules) and not any(_TORCH.match(one) for one in asked):
        found.add("torch")
    called = [node.func for node in sure if isinstance(node, ast.Call)]
    if any("CUDAExtension" in (getattr(each, "id", ""), getattr(each, "attr", "")) for each in called):
        found.add("cuda")
        if not re.search(r"gencode|-arch|ARCH_LIST|sm_\d", script.text):
            found.add("open")
    if isinstance(config, FileText):
        found.add("apart")
    return frozenset(BUILDS + one for one in found)


_TORCH = pattern(r"\s*torch\s*(?:[\[(<>=!~;@,]|\Z)", re.IGNORECASE)


def _certain(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are reached whenever the module is: none under a condition, in a function or in what may fail."""
    for child in ast.iter_child_nodes(node):
        main = isinstance(child, ast.If) and "__main__" in ast.dump(child.test)
        if main or not isinstance(child, _SKIPPED):
            yield child
            yield from _certain(child)


def _literal(node: ast.expr | None, names: Mapping[str, ast.expr], depth: int) -> Any:
    """The value of a literal, of a name that stands for one, of a sum of such; None where it is computed."""
    if node is None or depth > 10:
        return None
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return _literal(names.get(node.id), names, depth + 1)
    if isinstance(node, ast.List | ast.Tuple):
        values = [_literal(one, names, depth + 1) for one in node.elts]
        # One computed entry (an f-string) does not take away what the others say.
        return [value for value in values if isinstance(value, str)] if any(values) or not values else None
    if isinstance(node, ast.Dict):
        return {
            _literal(key, names, depth + 1): _literal(value, names, depth + 1)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _literal(node.left, names, depth + 1), _literal(node.right, names, depth + 1)
        return left + right if isinstance(left, list) and isinstance(right, list) else None
    return None


def needed(
    project: Project, extras: frozenset[str], groups: Iterable[str] = (), python: str = "", *, main: bool = True
) -> tuple[Requirement, ...]:
    """What an install of the project with these extras and groups asks for, each tied to its source.

    An extra that names the project itself (``demo[gpu]`` within demo) brings its own extras.
    """
    wanted = set(extras)
    listed: list[tuple[Requirement, str]] = [(one, "") for one in project.dependencies] if main else []
    queue, done = sorted(extras), set[str]()
    while queue:
        extra = queue.pop(0)
        if extra in done:
            continue
        done.add(extra)
        for one in project.optional.get(extra, ()):
            if one.name == project.name and one.name:
                queue += one.extras
                wanted.update(one.extras)
            else:
                listed.append((one, ""))
    for group in groups:
        listed += [(one, canonical(group)) for one in project.groups.get(canonical(group), ())]
    found = []
    for one, group in listed:
        for source in project.sources.get(one.name, ()):
            if source.extra and source.extra not in wanted:
                continue
            if source.group and source.group != group:
                continue
            if requirements.holds(source.marker, python, requires=project.python) is False:
                continue
            told = requirements.requirement(source.url, one.span) if source.url else None
            version, local = (told.version, told.local) if told else ("", "")
            one = replace(one, index=source.index or one.index, url=source.url or one.url)
            one = replace(one, version=one.version or version, local=one.local or local)
            break
        found.append(one)
    return tuple(found)
