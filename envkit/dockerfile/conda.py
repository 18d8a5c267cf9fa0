"""What conda, mamba and micromamba install, and which environment a command activates.

Names follow conda's own match specifications (docs.conda.io, "Package match specifications"): a single "=" is a prefix
("=3.10" lets 3.10.13 in), a third part names the build.  PyTorch's package is called "pytorch" there, "torch" here.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

from envkit.dockerfile import options, requirements
from envkit.dockerfile.files import Files, FileText
from envkit.dockerfile.nodes import Node, documents
from envkit.dockerfile.options import ParsedOptions
from envkit.dockerfile.system import UNKNOWN_WORD
from envkit.facts import Facts
from envkit.model import Span
from envkit.patterns import pattern
from envkit.records import dataclass, replace
from envkit.subjects.dockerfile import Command, Install, Removal, Unread, Word

MOST = 20_000  # parts of one environment file
MOST_LOCKED = 1_000_000  # of a lock of conda-lock's, which has some thirty for each package of each platform

_PROGRAMS = frozenset({"conda", "mamba", "micromamba", "mamba-env", "conda-env"})
_LINUX = "linux-64"
_TORCH = {"pytorch": "", "pytorch-gpu": "cuda", "pytorch-cpu": "cpu"}
# Packages whose version is a series: two parts say which one it is.
_SERIES = frozenset(
    {"python", "cudatoolkit", "cudatoolkit-dev", "pytorch-cuda", "cuda-version", "cuda", "cuda-toolkit", "cuda-nvcc"}
)

_GRAMMAR = options.grammar("conda")
# "-f" is a file for micromamba and for ``env``; for old conda's install it is --force and takes nothing.
_WITH_FILE = replace(_GRAMMAR, short={**_GRAMMAR.short, "f": "--file"})
# What other fields of the record say, or nothing of interest.
_NO_OPTIONS = frozenset({"--yes", "--quiet", "--name", "--prefix", "--channel", "--file"})
_RUN = replace(_GRAMMAR, short={"n": "--name", "p": "--prefix", "r": "--root-prefix", "e": "--environment"})


# ---------------------------------------------------------------- one match specification


@dataclass(frozen=True, slots=True)
class Spec:
    """One match specification: ``specifier`` as written without the build, ``version`` where it pins one exactly,
    ``build`` the build's pattern, ``channel`` where it names one."""

    name: str
    specifier: str = ""
    version: str = ""
    build: str = ""
    channel: str = ""

    @property
    def local(self) -> str:
        """What the build says of CUDA: "cuNNN", "cuda" where it does not say which, "cpu", "" for nothing."""
        return _local(self.build) or _TORCH.get(self.name, "")


_SPEC = pattern(
    r"(?:(?P<channel>[^\s:=<>!~\[]+(?:\[[^\]]*\])?)(?::[^:\s]*)?::)?(?P<name>[A-Za-z0-9_][\w.-]*)\s*(?P<rest>.*)",
    re.DOTALL,
)
_BLANKS = pattern(r"\s*([<>=!~,|])\s*")
_BUILD_MARK = pattern(r"(?<![<>=!~])=(?!=)")
_CUDA_BUILD = pattern(r"cuda_?(\d+)(?:\.(\d+))?")
_ROCM_BUILD = pattern(r"(?:rocm|hip)")


def _local(build: str) -> str:
    found = _CUDA_BUILD.search(build)
    if found:
        digits = found[1] + (found[2] or "")
        return f"cu{digits}"
    if "cuda" in build or "gpu" in build:
        return "cuda"
    if "cpu" in build:
        return "cpu"
    return "rocm" if _ROCM_BUILD.search(build) else ""


def spec(text: str) -> Spec | None:
    """One word of ``conda install`` or one entry of ``dependencies``, None where it is none.

    ``version`` is what "==" names, or "=" with three parts; with two parts for packages whose version is a series
    (python, pytorch-cuda, cudatoolkit, cuda-version).
    """
    text = text.strip().strip("'\"").strip()
    if len(text) > 1000:
        return None
    found = _SPEC.fullmatch(text)
    if not found:
        return None
    channel = (found["channel"] or "").partition("[")[0]
    name, rest = found["name"].lower(), found["rest"].strip()
    blank = rest[:1].isalnum() or rest[:1] == "*"  # "python 3.10.4 build": without an operator it is exact
    if rest and not blank and rest[0] not in "<>=!~":
        return None
    rest = _BLANKS.sub(r"\1", rest)
    version, _, tail = rest.partition(" ")
    operator = re.match(r"[<>=!~]*", version)
    head = operator[0] if operator else ""
    mark = _BUILD_MARK.search(version, len(head))
    if mark:
        version, tail = version[: mark.start()], version[mark.end() :]
    if blank and version and version != "*":
        head, version = "==", f"=={version}"
    build = tail.strip().lstrip("=")
    if head not in ("", "=", "==", "===", "<", ">", "<=", ">=", "!=", "~="):
        return None
    return Spec(name, version if version != "=*" else "", _exact(name, head, version), build, channel)


def _exact(name: str, operator: str, version: str) -> str:
    """The version that a specifier pins, "" where it leaves a choice."""
    bare = version[len(operator) :]
    if operator not in ("=", "==", "===") or not re.fullmatch(r"(?:\d+!)?\d+(?:\.\w+)*(?:\.?\*)?", bare):
        return ""
    fuzzy = operator == "=" or bare.endswith("*")
    bare = bare.rstrip("*").rstrip(".")
    parts = bare.count(".") + 1
    if fuzzy and parts < (2 if name in _SERIES else 3):
        return ""
    return bare


# ---------------------------------------------------------------- one command's settings


@dataclass(frozen=True, slots=True)
class _InstallTarget:
    """Where the packages of one command go and come from."""

    target: str
    channels: tuple[str, ...]
    options: frozenset[str]
    sure: bool

    def install(self, wanted: Spec, span: Span) -> Install:
        channels = self.channels
        if wanted.channel:
            channels = (wanted.channel, *(c for c in channels if c != wanted.channel))
        name = "torch" if wanted.name in _TORCH else wanted.name
        found = Install("conda", name, span, wanted.specifier, wanted.version, wanted.local, channels=channels)
        return replace(found, options=self.options, target=self.target, sure=self.sure)


def _target(given: ParsedOptions, command: Command, name: str = "") -> str:
    """ "conda:NAME" or "conda:/prefix"; "conda:" is the environment that is active, or the base one."""
    prefix, asked = given.last("--prefix"), given.last("--name")
    if prefix is not None:
        return f"conda:{_place(prefix.text, command)}"
    return f"conda:{asked.text if asked is not None else name}"


def _place(path: str, command: Command) -> str:
    """A path of the container as far as the working directory is known."""
    if path == "~" or path.startswith("~/"):
        path = (command.env.get("HOME") or "/root") + path[1:]
    if path.startswith(("/", "$", "`")) or not command.cwd:
        return path.rstrip("/") or path
    return posixpath.normpath(posixpath.join(command.cwd, path))


def _channels(given: ParsedOptions, command: Command) -> tuple[str, ...]:
    found = [part for word in given.every("--channel") for part in word.text.split(",") if part]
    if "--override-channels" not in given.names():
        found += [part for part in command.env.get("CONDA_CHANNELS", "").split(",") if part]
    return tuple(dict.fromkeys(found))


def _kept(given: ParsedOptions, command: Command) -> frozenset[str]:
    """The options by name, and CONDA_OVERRIDE_CUDA with its value: it decides whether a build with CUDA is taken."""
    names = {name for name in given.names() if name.startswith("--")} - _NO_OPTIONS
    cuda = command.env.get("CONDA_OVERRIDE_CUDA")
    return frozenset(names | ({f"CONDA_OVERRIDE_CUDA={cuda}"} if cuda else set()))


# ---------------------------------------------------------------- commands


def read(command: Command, files: Files) -> Iterator[Install | Removal | Unread]:
    """What a command of conda's family does; nothing for any other command.

    A package of ``conda run -n NAME pip install`` has pip's own record with the target "conda:NAME".  A target of
    "conda:" alone is the active environment.
    """
    program = command.program
    if program == "conda-lock" and "install" in command.args:
        yield from _locked_environment(command, files)
    if program not in _PROGRAMS:
        return
    verb, words = _verb(command)
    if verb == "run":
        yield from _run(command, files)
    elif verb == "env":
        yield from _env(command, words, files)
    elif verb in ("install", "create", "update", "upgrade", "remove", "uninstall"):
        yield from _packages(command, verb, words, files)


_VERBS = options.names("install create update upgrade remove uninstall env run activate deactivate config clean")


def _verb(command: Command) -> tuple[str, tuple[Word, ...]]:
    """The subcommand, and all other words; micromamba takes options in front of it."""
    if command.program.endswith("-env"):
        return "env", command.words[1:]
    for index, word in enumerate(command.words[1:8], 1):
        if word.text in _VERBS:
            return word.text, command.words[1:index] + command.words[index + 1 :]
    return "", command.words[1:]


def _is_file(text: str) -> bool:
    return text.lower().endswith((".yml", ".yaml", ".txt", ".lock"))


def _packages(
    command: Command, verb: str, words: tuple[Word, ...], files: Files
) -> Iterator[Install | Removal | Unread]:
    after = {word.text: words[index + 1].text for index, word in enumerate(words[:-1])}
    takes_file = command.program != "conda" or _is_file(after.get("-f", ""))
    given = options.read(words, _WITH_FILE if takes_file else _GRAMMAR)
    names = given.names()
    if names & {"--dry-run", "--download-only"}:
        return
    kept = _kept(given, command)
    if verb in ("update", "upgrade"):
        kept |= {"--upgrade"}
    into = _InstallTarget(_target(given, command), _channels(given, command), kept, command.sure)
    if verb in ("remove", "uninstall"):
        for word in given.rest:
            wanted = spec(word.text)
            if wanted:
                name = "torch" if wanted.name in _TORCH else wanted.name
                yield Removal("conda", name, word.span, into.target, command.sure and word.sure)
        return
    for file in given.every("--file"):
        yield from _file(file, command, given, into, files, named=verb == "create")
    if "--only-deps" in names or ("--all" in names and verb in ("update", "upgrade")):
        return
    rest = list(given.rest)
    while rest:
        word = rest.pop(0)
        if rest and re.match(r"[=<>\d]", rest[0].text):
            # "python 3.10" and "python = 3.10": the version is a word of its own, which is not read
            yield Unread(f"{word.text} {rest.pop(0).text}", UNKNOWN_WORD, word.span)
        else:
            yield from _word(word, command, given, into, files, named=verb == "create")


def _word(
    word: Word, command: Command, given: ParsedOptions, into: _InstallTarget, files: Files, *, named: bool
) -> Iterator[Install | Removal | Unread]:
    text = word.text
    if text.endswith((".conda", ".tar.bz2")):
        yield Unread(text, "which package the file holds is not read", word.span)
        return
    if _is_file(text):  # micromamba create env.yml
        yield from _file(word, command, given, into, files, named=named)
        return
    wanted = spec(text)
    if not word.sure:
        head = re.match(r"[\w.:-]+?(?=[=<>!~ \[])", text)
        known = spec(head[0]) if head else None
        if known is None:
            yield Unread(text, UNKNOWN_WORD, word.span)
        else:  # the version is what nobody knows
            yield into.install(replace(known, specifier=text[len(head[0] if head else "") :]), word.span)
    elif wanted is None:
        yield Unread(text, "it is no package specification of conda's", word.span)
    else:
        yield into.install(wanted, word.span)


def _file(
    word: Word, command: Command, given: ParsedOptions, into: _InstallTarget, files: Files, *, named: bool
) -> Iterator[Install | Removal | Unread]:
    """A file of packages: YAML, or line by line.  ``named``: its own name for the environment counts."""
    if not word.sure:
        yield Unread(word.text, UNKNOWN_WORD, word.span)
        return
    found = files.read(word.text, command.cwd)
    if isinstance(found, str):
        yield Unread(word.text, found, word.span)
        return
    folder = posixpath.dirname(word.text)
    if word.text.lower().endswith((".yml", ".yaml")):
        free = named and given.last("--name") is None and given.last("--prefix") is None
        yield from environment(found, files, into, cwd=command.cwd, folder=folder, env=command.env, named=free)
    else:
        yield from _lines(found, into)


def _lines(file: FileText, into: _InstallTarget) -> Iterator[Install | Unread]:
    """Specifications line by line, or the addresses of packages (``conda list --explicit``)."""
    for number, line in enumerate(file.text.splitlines()[:MOST], 1):
        text = line.strip()
        if not text or text.startswith(("#", "@")):
            continue
        span = Span(file.path, number, len(line) - len(line.lstrip()) + 1, number, len(line.rstrip()) + 1)
        wanted = _artifact(text) if "://" in text else spec(text.partition(" #")[0])
        if wanted is None:
            yield Unread(file.path, f"line {number} is no package specification of conda's", span)
        else:
            yield into.install(wanted, span)


def _artifact(url: str) -> Spec | None:
    """The package that an address of a channel names: NAME-VERSION-BUILD, as conda names its files."""
    found = re.search(r"/([^/#]+)-([^/#-]+)-([^/#-]+)\.(?:conda|tar\.bz2)(?:$|#)", url)
    return Spec(found[1].lower(), f"={found[2]}={found[3]}", found[2], found[3]) if found else None


def _locked_environment(command: Command, files: Files) -> Iterator[Install | Removal | Unread]:
    """What ``conda-lock install`` takes from its lock."""
    given = options.read(command.words[command.args.index("install") + 2 :], _GRAMMAR)
    into = _InstallTarget(_target(given, command), (), _kept(given, command), command.sure)
    word = next(iter(given.rest), replace(command.words[0], text="conda-lock.yml", sure=True))
    yield from _file(word, command, given, into, files, named=False)


def _env(command: Command, words: tuple[Word, ...], files: Files) -> Iterator[Install | Removal | Unread]:
    given = options.read(words, _WITH_FILE)
    if not given.rest or given.rest[0].text not in ("create", "update") or "--dry-run" in given.names():
        return
    into = _InstallTarget(_target(given, command), _channels(given, command), _kept(given, command), command.sure)
    named = given.every("--file") or [word for word in given.rest[1:] if _is_file(word.text)]
    for word in named or [replace(command.words[0], text="environment.yml", sure=True)]:
        yield from _file(word, command, given, into, files, named=True)


# ---------------------------------------------------------------- environment files


def environment(
    file: FileText,
    files: Files,
    into: _InstallTarget | None = None,
    *,
    cwd: str = "",
    folder: str = "",
    env: Mapping[str, str] | None = None,
    named: bool = True,
) -> Iterator[Install | Unread]:
    """What an environment.yml asks for, its pip list too.

    ``folder`` is where the file lies as the command names it: what its pip list includes is relative to that.
    ``named`` lets the file's own name or prefix decide the target.
    """
    into = into or _InstallTarget("conda:", (), frozenset(), True)
    start = Span(file.path, 1)
    locked = _LOCK.search(file.text[:4000]) is not None
    roots = documents(file.text, file.path, MOST_LOCKED if locked else MOST)
    if isinstance(roots, str) or not roots:
        yield Unread(file.path, roots if isinstance(roots, str) else "it is empty", start)
        return
    document = roots[0]
    if document.get("package") is not None and document.get("metadata") is not None:
        yield from _locked(document, into)
        return
    dependencies = document.get("dependencies")
    if dependencies is None or dependencies.items is None:
        if dependencies is None or not dependencies.empty:
            yield Unread(file.path, "it has no list of dependencies", start)
        return
    if named and into.target == "conda:":
        prefix, name = document.get("prefix"), document.get("name")
        into = replace(into, target=f"conda:{name.text if name else prefix.text if prefix else ''}")
    listed = tuple(node.text for node in document.listed("channels") if node.text not in ("", "nodefaults"))
    if listed:
        into = replace(into, channels=tuple(dict.fromkeys((*listed, *into.channels))))
    for node in dependencies.items:
        for key, value in node.pairs():
            if key.text == "pip":
                yield from _pip(file, value, files, into, cwd, folder, env or {})
            elif key.text in ("sel(linux)", "sel(unix)"):  # micromamba's selectors
                yield from _dependency(file, value, into)
        if node.keys is None:
            yield from _dependency(file, node, into)


_LOCK = pattern(r"^(?:metadata|package|version):", re.MULTILINE)


def _locked(document: Node, into: _InstallTarget) -> Iterator[Install]:
    """The packages of a lock of conda-lock's for Linux on x86_64."""
    for entry in document.listed("package"):
        said = {key.text: value.text for key, value in entry.pairs()}
        named, version, url = entry.get("name"), said.get("version", ""), said.get("url", "")
        ours = (said.get("platform", _LINUX), said.get("category", "main")) == (_LINUX, "main")
        if named is None or not version or not ours:
            continue
        if said.get("manager") == "pip":
            wanted = requirements.requirement(f"{named.text}=={version}", named.span)
            if wanted is not None:
                asked = requirements.RequestedPackages()
                one = requirements.install(wanted, asked, "pip", into.target, sure=into.sure)
                yield replace(one, locked=True, url=url)
            continue
        exact = _artifact(url) or Spec(named.text.lower(), f"={version}", version, "")
        yield replace(into.install(exact, named.span), locked=True)


def _dependency(file: FileText, node: Node, into: _InstallTarget) -> Iterator[Install | Unread]:
    if not node.text.strip():
        return
    wanted = spec(node.text)
    if wanted is None:
        yield Unread(file.path, f"line {node.span.line} is no package specification of conda's", node.span)
    else:
        yield into.install(wanted, node.span)


def _pip(
    file: FileText, node: Node, files: Files, into: _InstallTarget, cwd: str, folder: str, env: Mapping[str, str]
) -> Iterator[Install | Unread]:
    """The pip list as the requirements file that conda makes of it, each entry on its line and column of ``file``."""
    lines: list[str] = []
    for item in node.items or ():
        line, column = item.span.line - 1, item.span.column - 1
        if "\n" in item.text or line < len(lines):
            yield Unread(file.path, f"line {item.span.line} holds more than one requirement", item.span)
            continue
        lines += [""] * (line - len(lines))
        lines.append(" " * min(column, 200) + item.text)
    asked = requirements.RequestedPackages()
    within = (posixpath.join(folder, posixpath.basename(file.path)),) if folder else ()
    requirements.add_text(asked, "\n".join(lines), file.path, files, cwd, env, within=within)
    yield from asked.unread
    for constraint, wanted in (*((False, w) for w in asked.requirements), *((True, w) for w in asked.constraints)):
        if requirements.holds(wanted.marker) is False:
            continue
        found = requirements.install(wanted, asked, "pip", into.target, sure=into.sure, constraint=constraint)
        yield replace(found, marker="") if requirements.holds(wanted.marker) else found


# ---------------------------------------------------------------- conda run


def inner(command: Command) -> tuple[str, Command] | None:
    """What ``conda run -n NAME CMD...`` (also mamba's and micromamba's) starts: the environment, and CMD as if it had
    been written by itself; None for any other command.  The environment is a name, a folder, or "" for the active one.
    """
    if command.program not in _PROGRAMS or "run" not in command.args:
        return None
    place = command.args.index("run") + 1
    before = options.read(command.words[1:place], _RUN)
    given = options.read(command.words[place + 1 :], _RUN, inner=True)
    if before.rest or not given.rest:
        return None
    target = _target(given, command)
    target = target if target != "conda:" else _target(before, command)
    return target.removeprefix("conda:"), replace(command, words=given.rest)


def _run(command: Command, files: Files) -> Iterator[Install | Removal | Unread]:
    found = inner(command)
    if found is None:
        return
    from envkit.dockerfile import pip, poetry, uv

    name, one = found
    if one.program in ("sh", "bash", "dash", "zsh") and "-c" in "".join(one.args[:1]):
        yield Unread("conda run", "the script that it hands to a shell is not read", command.span)
    if inner(one) is not None:  # conda run in conda run: nobody writes that
        return
    for record in (*pip.read(one, files), *uv.read(one, files), *poetry.read(one, files), *read(one, files)):
        if isinstance(record, Install | Removal) and _relative(record.target):
            yield replace(record, target=f"conda:{name}")
        else:
            yield record


def _relative(target: str) -> bool:
    """Whether what is active decides the environment: no path and no environment is named."""
    return target == "conda:" or ("/" not in target and not target.startswith("conda:"))


# ---------------------------------------------------------------- activation


def activated(command: Command) -> str | None:
    """The environment that a command activates for what follows in its shell, None where it activates none.

    A conda environment's name, or the folder of a virtual environment or of a conda prefix; "base" is conda's own, ""
    after a deactivation.  What is not known before the build stays as written (it has a "$").
    """
    program = command.program
    words = [word.text for word in command.words]
    if program in _PROGRAMS:
        verb, rest = _verb(command)
        if verb == "activate":
            given = options.read(rest, _GRAMMAR)
            name = given.last("--name") or given.last("--prefix") or (given.rest[0] if given.rest else None)
            return _environment(name.text, command) if name is not None else "base"
        return "" if verb == "deactivate" else None
    if words[0] in ("source", ".") and len(words) > 1:
        script, name_of_script = words[1], words[1].rsplit("/", 1)[-1]
        if name_of_script not in ("activate", "activate.sh", "deactivate"):
            return None
        if name_of_script == "deactivate":
            return ""
        plain = [word for word in words[2:] if not word.startswith("-")]
        if plain:
            return _environment(plain[0], command)
        if "/" not in script or not posixpath.dirname(script).endswith("bin"):
            return "base"  # conda's own script, found through PATH or linked to from elsewhere
        return _place(posixpath.dirname(posixpath.dirname(script)) or ".", command)
    return "" if words[0] == "deactivate" else None


def _environment(name: str, command: Command) -> str:
    return _place(name, command) if "/" in name or name.startswith("~") else name


# Images that are made with nothing but an installer of conda, so that a release of one tells of the other.
_INSTALLED = {
    "miniconda": "continuumio/miniconda3",
    **dict.fromkeys(("miniforge", "mambaforge"), "condaforge/miniforge3"),
}


def with_python(install: Install, facts: Facts) -> Install:
    """An installer of conda with the Python that the facts know of its release, where its name does not tell it.

    The newest Miniconda is none: which of its Pythons it brings is not said.
    """
    image = _INSTALLED.get(install.name)
    newest = "latest" if "/latest/" in install.url and install.name != "miniconda" else ""
    if image is None or install.local or not (install.version or newest):
        return install
    row = facts.base_image(image, install.version or newest)
    python = str(row.python) if row is not None and row.python is not None else ""
    return replace(install, local=f"py{python.replace('.', '')}") if python else install
