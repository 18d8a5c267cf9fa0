"""What commands that belong to no language install: apt, dnf, apk, dpkg, archives of CUDA and cuDNN, Pythons, conda.

A build often downloads a file in one command and runs or unpacks it in another, under another name.  What has to be
remembered of earlier commands is a ``Trail``: ``trail = remember(command, trail)`` after each command, in order.
Without one everything still works as far as the command itself says it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from envkit.dockerfile import options
from envkit.dockerfile.files import Files
from envkit.dockerfile.options import Grammar, ParsedOptions
from envkit.model import Span
from envkit.patterns import pattern
from envkit.records import dataclass, replace
from envkit.subjects.dockerfile import Command, Install, Removal, Unread, Word

UNKNOWN_WORD = "what it stands for is not known before the build"

# ---------------------------------------------------------------- options


def _has(given: ParsedOptions, *names: str) -> bool:
    return not given.names().isdisjoint(names)


def _values(given: ParsedOptions, *names: str) -> tuple[str, ...]:
    return tuple(value.text for name, value in given.options if name in names and value is not None)


def _value(given: ParsedOptions, *names: str) -> str:
    """The value given last, "" without one."""
    return (_values(given, *names) or ("",))[-1]


# ---------------------------------------------------------------- what earlier commands left


@dataclass(frozen=True, slots=True)
class Trail:
    """What earlier commands of a stage left for later ones.

    ``files`` maps a downloaded file's base name to the URL it came from; ``python`` is the version of Python sources
    that were fetched and not built yet, ``prefix`` where they were configured to go; ``piped`` is the URL that the
    command just before wrote to its output.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    prefix: str = ""
    piped: str = ""

    def origin(self, path: str) -> str:
        """The file's name as its publisher calls it: of the URL it came from, else of the path."""
        return _base(self.files.get(_base(path), path))

    def fetched(self, url: str, path: str) -> Trail:
        """With one more download (ADD of a URL, too); ``path`` ending in a slash takes the URL's name."""
        trail = replace(self, files={**self.files, _base(path) or _base(url): url})
        source = _PYTHON_SOURCE.search(url)
        return replace(trail, python=source[1]) if source else trail


_PYTHON_SOURCE = pattern(
    r"(?:^|/)Python-(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)(?:\.t(?:ar\.)?[gx]z|\.tar\.bz2|\.tar\.zst|\.tar|(?=/|$))"
)
_CPYTHON_TAG = pattern(r"(?:^|/)v(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)(?:\.tar\.gz|\.zip)?$")
_URL = pattern(r"(?:https?|ftp)://", re.IGNORECASE)


def _base(path: str) -> str:
    return path.partition("?")[0].partition("#")[0].rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Download:
    """``url`` is fetched to ``path``; "" is standard output."""

    url: str
    path: str
    word: Word


_FETCHERS = {
    "curl": (options.valued("curl"), ("-o", "--output")),
    "wget": (options.valued("wget"), ("-O", "--output-document")),
    **dict.fromkeys(("aria2c", "axel"), (options.valued("aria2c"), ("-o", "--out", "--output"))),
}


def downloads(command: Command) -> tuple[Download, ...]:
    """What curl, wget or aria2c fetch, and where to."""
    if command.program not in _FETCHERS:
        return ()
    grammar, outputs = _FETCHERS[command.program]
    given = options.read(command.words[1:], grammar)
    names = _values(given, *outputs)
    remote = _has(given, "-O", "--remote-name", "--remote-name-all", "-J") if command.program == "curl" else not names
    found: list[Download] = []
    for index, word in enumerate(word for word in given.rest if _URL.match(word.text)):
        name = names[min(index, len(names) - 1)] if names else ""
        path = "" if name in ("-", "/dev/stdout") else name or (_base(word.text) if remote else "")
        if not path:
            path = next((r.target.text for r in command.redirects if r.op in (">", ">>", ">|")), "")
        found.append(Download(word.text, path, word))
    return tuple(found)


def _downloaded(fetched: Iterable[Download], trail: Trail) -> Trail:
    """What is known after downloads: files and where they are from, or what a pipe carries on."""
    for download in fetched:
        if download.path:
            trail = trail.fetched(download.url, download.path)
        else:
            source = _PYTHON_SOURCE.search(download.url)
            trail = replace(trail, piped=download.url, python=source[1] if source else trail.python)
    return trail


def _cloned_python(command: Command) -> str:
    """The version of CPython whose sources ``git clone`` fetches, else ""."""
    given = options.read(command.words[1:], options.valued("git"))
    tag = _CPYTHON_TAG.search(_value(given, "-b", "--branch"))
    return tag[1] if tag and any(re.search(r"/cpython(?:\.git)?/?$", word.text) for word in given.rest) else ""


def remember(command: Command, trail: Trail) -> Trail:
    """What is known after ``command``; call it for each command, after ``read`` and ``links``."""
    piped = trail.piped
    if piped:
        trail = replace(trail, piped="")
    program = command.program
    fetched = downloads(command)
    if fetched:
        trail = _downloaded(fetched, trail)
    elif program in ("mv", "cp") and len(command.words) >= 3:
        old, new = command.words[-2].text, command.words[-1].text
        if _base(old) in trail.files:
            trail = trail.fetched(trail.files[_base(old)], new)
    elif program == "tar":
        for word in command.words[1:]:
            source = _PYTHON_SOURCE.search(trail.origin(word.text)) if word.text[-1:].isalnum() else None
            if source and not source[0].endswith(source[1]):
                trail = replace(trail, python=source[1])
    elif program == "tee" and piped and len(command.words) > 1:
        trail = trail.fetched(piped, command.words[-1].text)
    elif program == "git" and "clone" in command.args:
        trail = replace(trail, python=_cloned_python(command) or trail.python)
    elif program == "configure" and trail.python:
        prefix = next((word.partition("=")[2] for word in command.args if word.startswith("--prefix=")), "")
        trail = replace(trail, prefix=prefix or trail.prefix)
    elif program == "make" and any(word in _MAKE_INSTALL for word in command.args) and _built(command, trail):
        trail = replace(trail, python="", prefix="")
    return trail


# ---------------------------------------------------------------- readers


def read(command: Command, files: Files, trail: Trail | None = None) -> Iterator[Install | Removal | Unread]:
    """What a command of the system's package managers or of an installer does; nothing for any other command.

    Debian's packages have manager "apt", those of dnf, yum, microdnf, tdnf, zypper and rpm "dnf", of Alpine "apk".
    What comes as an installer, an archive or sources has manager "source" and one of the names cuda-toolkit,
    nvidia-driver, cudnn, python, miniconda, anaconda, miniforge, mambaforge; ``target`` is then where it goes, as far
    as that is said.
    """
    trail = trail or Trail()
    program = command.program
    if program in APT:
        yield from _apt(command, trail)
    elif program in _DNF:
        yield from _dnf(command, trail)
    elif program == "apk":
        yield from _apk(command)
    elif program == "dpkg" or program == "rpm":
        yield from _files_of_packages(command, trail)
    elif program == "pyenv":
        yield from _pyenv(command)
    elif program == "python-build":
        yield Unread("python-build", "which Python it builds is not read", command.span)
    elif program == "make":
        yield from _make(command, trail)
    elif program == "tar":
        yield from _tar(command, trail)
    elif program in ("curl", "wget"):
        for download in downloads(command):
            if not download.path:
                yield from _cudnn(_base(download.url), download.url, download.word, command, "")
    elif _given_get_pip(command, trail):
        word = command.words[0]
        yield Install("pip", "pip", word.span, target=f"{word.text} -m pip", sure=command.sure)
    else:
        yield from _installer(command, trail)


APT = frozenset({"apt", "apt-get", "aptitude", "apt-fast", "nala"})
_DNF = frozenset({"dnf", "dnf5", "yum", "microdnf", "tdnf", "zypper"})
_REMOVE = frozenset({"remove", "purge", "autoremove", "autopurge", "erase", "rm"})
_APT_NOTHING = ("-s", "--simulate", "--dry-run", "--just-print", "--no-act", "-d", "--download-only", "--print-uris")
_DEB = pattern(r"^([a-z0-9][a-z0-9+.\-]*)_(?:(\d[^_]*|[^_]*[$`][^_]*)_)?(?:[a-z0-9]+|x86_64|.*[$`].*)\.deb$")
_LOCAL_CUDA = pattern(r"\+?(cuda\d+(?:\.\d+)?)")


def _kept(given: ParsedOptions) -> frozenset[str]:
    return frozenset(name for name in given.names() if name.startswith("--"))


def _local(version: str) -> str:
    found = _LOCAL_CUDA.search(version)
    return found[1] if found else ""


def _known(text: str) -> bool:
    return "$" not in text and "`" not in text


def apt_words(command: Command) -> list[str]:
    """The verb of a command of apt's and what it is told to act on, without options and their values."""
    return [word.text for word in options.read(command.words[1:], options.valued("apt")).rest]


def _apt(command: Command, trail: Trail) -> Iterator[Install | Removal | Unread]:
    given = options.read(command.words[1:], options.valued("apt"))
    if not given.rest or _has(given, *_APT_NOTHING):
        return
    verb, kept = given.rest[0].text, _kept(given)
    removing = verb in _REMOVE
    if verb not in ("install", "reinstall") and not removing:
        return
    for word in given.rest[1:]:
        text = word.text
        if text.endswith(".deb"):
            yield from _package_file(word, command, trail, kept)
        elif not word.sure and text[:1] in "$`":
            yield Unread(text, UNKNOWN_WORD, word.span)
        elif removing or (text.endswith("-") and len(text) > 1):
            yield Removal("apt", text.rstrip("-").partition(":")[0], word.span, sure=command.sure and word.sure)
        else:
            yield _debian(word, command, kept)


def _debian(word: Word, command: Command, kept: frozenset[str]) -> Install:
    """One word of ``apt-get install``: name, name:arch, name=version, name/release, name+."""
    name, equals, version = word.text.partition("=")
    if not equals and "$" not in name:  # a slash inside an unset variable's default is not a release
        name = name.partition("/")[0]
    name = re.sub(r"(?<=.):(?:amd64|arm64|i386|any|native|all|armhf|ppc64el|x86_64)$", "", name)
    if name.endswith("+") and not name.endswith(("++", "c+")):
        name = name[:-1]
    return _package("apt", name, version, f"={version}" if equals else "", word, command, kept)


def _package(
    manager: str, name: str, version: str, specifier: str, word: Word, command: Command, kept: frozenset[str]
) -> Install:
    """A package of the system, pinned where its version is known to the last character."""
    exact = version if _known(version) and "*" not in version else ""
    sure = command.sure and (word.sure or _known(name))
    return Install(manager, name, word.span, specifier, exact, _local(version), options=kept, sure=sure)


_RPM_FILE = pattern(r"^(.+)-([^-]+)-([^-]+)\.(?:x86_64|noarch|aarch64|i686|src)\.rpm$")
_RPM_WORD = pattern(r"^(.+?)-(\d+\.[\w.+~^*]*(?:-[\w.+~^*]+)?)$")


def _package_file(word: Word, command: Command, trail: Trail, kept: frozenset[str]) -> Iterator[Install | Unread]:
    """A package given as a file or an URL: its name says what it is, whatever it is called here."""
    origin = trail.origin(word.text)
    deb, rpm = _DEB.match(origin), _RPM_FILE.match(origin)
    url = trail.files.get(_base(word.text), word.text)
    if deb:
        name, version, manager = deb[1], (deb[2] or "").replace("%2B", "+").replace("%2b", "+"), "apt"
    elif rpm:
        name, version, manager = rpm[1], f"{rpm[2]}-{rpm[3]}", "dnf"
    else:
        yield Unread(word.text, "the file's name does not say which package it is", word.span)
        return
    version = version if _known(version) else ""
    found = Install(manager, name, word.span, version=version, local=_local(version), url=url, options=kept)
    yield replace(found, sure=command.sure)


def _dnf(command: Command, trail: Trail) -> Iterator[Install | Removal | Unread]:
    given = options.read(command.words[1:], options.valued("zypper" if command.program == "zypper" else "dnf"))
    if not given.rest or _has(given, "--assumeno", "--downloadonly", "--dry-run", "-D"):
        return
    verb, kept, packages = given.rest[0].text, _kept(given), given.rest[1:]
    if verb == "module" and packages:  # dnf module install nvidia-driver:latest-dkms
        verb, packages = packages[0].text, tuple(replace(w, text=w.text.partition(":")[0]) for w in packages[1:])
    removing = verb in _REMOVE
    if verb not in ("install", "in", "localinstall", "reinstall", "swap") and not removing:
        return
    for word in packages:
        text = word.text
        if text.endswith(".rpm"):
            yield from _package_file(word, command, trail, kept)
        elif not word.sure and text[:1] in "$`":
            yield Unread(text, UNKNOWN_WORD, word.span)
        elif removing:
            yield Removal("dnf", text, word.span, sure=command.sure and word.sure)
        elif not text.startswith("@"):  # a group of packages
            yield _rpm(word, command, kept)


def _rpm(word: Word, command: Command, kept: frozenset[str]) -> Install:
    """One word of ``dnf install``: a name, with a version behind a dash (zypper: =), which a dot tells from a name."""
    text = re.sub(r"\.(?:x86_64|noarch|aarch64|i686)$", "", word.text)
    name, equals, version = text.partition("=")
    if not equals:
        found = _RPM_WORD.match(text)
        if found:
            name, version = found[1], found[2]
    return _package("dnf", name, version, f"={version}" if version else "", word, command, kept)


def _apk(command: Command) -> Iterator[Install | Removal | Unread]:
    given = options.read(command.words[1:], options.valued("apk"))
    if not given.rest or given.rest[0].text not in ("add", "del") or _has(given, "-s", "--simulate"):
        return
    for word in given.rest[1:]:
        if not word.sure and word.text[:1] in "$`":
            yield Unread(word.text, UNKNOWN_WORD, word.span)
            continue
        found = re.match(r"^([^=<>~@]+)([=<>~]*)(.*)$", word.text)
        if not found:
            continue
        name, operator, version = found[1], found[2], found[3].partition("@")[0]
        sure = command.sure and (word.sure or _known(name))
        if given.rest[0].text == "del":
            yield Removal("apk", name, word.span, sure=sure)
        else:
            exact = version if operator == "=" and _known(version) else ""
            specifier = operator + version if operator else ""
            yield Install("apk", name, word.span, specifier=specifier, version=exact, options=_kept(given), sure=sure)


def _files_of_packages(command: Command, trail: Trail) -> Iterator[Install | Removal | Unread]:
    given = options.read(command.words[1:], options.valued("dpkg"))
    manager = "apt" if command.program == "dpkg" else "dnf"
    if manager == "apt":
        installs = _has(given, "-i", "--install", "--unpack")
        removes = _has(given, "-r", "--remove", "-P", "--purge")
    else:
        asks = _has(given, "-q", "--query", "--import")
        installs = _has(given, "-i", "--install", "-U", "--upgrade", "-F") and not asks
        removes = _has(given, "-e", "--erase") and not _has(given, "-i", "-U")
    for word in given.rest:
        if installs:
            yield from _package_file(word, command, trail, _kept(given))
        elif removes:
            yield Removal(manager, word.text, word.span, sure=command.sure and word.sure)


# ---------------------------------------------------------------- installers and archives

_RUNFILE = pattern(r"^cuda_(\d+\.\d+(?:\.\d+)?)(?:_([\d.]+\d))?_linux(?:_\w+?)?(?:[.-]run)?$")
_PLACE = pattern(r"--?(?:toolkitpath|installpath|defaultroot|prefix)=")
_DRIVER = pattern(r"^NVIDIA-Linux-\w+-([\d.]+\d)(?:-\w+)?\.run$")
# A pattern of the shell's for it: CUDA's runfile lays it there where it is asked to --extract.
_DRIVERS = pattern(r"^NVIDIA[\w.-]*\*[\w.*-]*\.run$")
_CUDNN = pattern(r"^cudnn-linux-\w+-([\d.]+)_(cuda\d+(?:\.\d+)?)-archive\.(?:tar\.\w+|tgz)$")
_OLD_CUDNN = pattern(r"^cudnn-(\d+(?:\.\d+)?)-linux-\w+-v([\d.]+\d)\.(?:tgz|solitairetheme8|tar\.gz)$")
_CONDA = pattern(
    r"^(Miniconda|Anaconda|Archiconda|Miniforge|Mambaforge)\d?(?:-pypy3)?"
    r"(?:-(?:(py\d+)_)?(latest|\d[\w.]*(?:-\d+)?))?-(?:Linux|MacOSX|[$`]).*\.sh$"
)
# The first release of Anaconda with a Python in its base (its release notes, "The installer and base environment").
_ANACONDA = (
    ("2018.12", "py37"),
    ("2020.07", "py38"),
    ("2021.11", "py39"),
    ("2023.03", "py310"),
    ("2023.07", "py311"),
    ("2024.06", "py312"),
    ("2025.06", "py313"),
)
_CONDA_NAMED = pattern(
    r"(miniconda|anaconda|miniforge|mambaforge|conda|mamba)\w{0,20}(?:[-_]?(?:install\w{0,20}|latest))?\.sh$",
    re.IGNORECASE,
)
_FORGE_RELEASE = pattern(r"/download/(\d[\w.]*(?:-\d+)?)/")
SHELLS = ("sh", "bash", "dash", "ash", "zsh")


def _installer(command: Command, trail: Trail) -> Iterator[Install | Unread]:
    """An installer that is started, by a shell or by itself: CUDA's and the driver's runfiles, conda's."""
    words = command.words
    if command.program in SHELLS:
        rest = options.read(words[1:], options.valued("sh"), inner=True).rest
        if not rest:
            if trail.piped and command.after in ("|", "|&"):  # curl URL | bash -s -- -b -p PREFIX
                yield from _conda_installer(trail.piped, words[0], words[1:], command)
            return
        words = rest
    path = words[0].text
    name = trail.origin(path)
    if not name.endswith((".run", ".sh", "-run", "_linux")):
        return
    runfile, driver = _RUNFILE.match(name), _DRIVER.match(name)
    if runfile:
        yield from _runfile(runfile, words, command, trail)
    elif driver or _DRIVERS.match(name):
        kept, version = _dashes(words[1:]), driver[1] if driver else ""  # digits and dots, no part of a variable
        if kept & {"--extract-only", "-x", "--help", "-h", "--advanced-options", "-A", "--info", "--check"}:
            return
        yield Install("source", "nvidia-driver", words[0].span, "", version, options=kept, sure=command.sure)
    else:
        yield from _conda_installer(trail.files.get(_base(path), path), words[0], words[1:], command)


def _dashes(words: Sequence[Word]) -> frozenset[str]:
    """The names of the options given; old installers take one dash for long names."""
    names = (word.text.partition("=")[0] for word in words if word.text.startswith("-"))
    return frozenset(name if name.startswith("--") or len(name) == 2 else f"-{name}" for name in names)


def _runfile(found: re.Match[str], words: Sequence[Word], command: Command, trail: Trail) -> Iterator[Install]:
    """CUDA's runfile installs the components asked for, or all, the driver among them (CUDA Installation Guide for
    Linux, "Runfile Installation", advanced options)."""
    kept = _dashes(words[1:])
    if kept & {"--help", "--extract", "--info", "--uninstall"}:
        return
    wanted = kept & {"--toolkit", "--driver", "--samples"}
    if not wanted:
        kept |= {"--driver"}
    place = next((word.text.partition("=")[2] for word in words if _PLACE.match(word.text)), "")
    url = trail.files.get(_base(words[0].text), "")
    driver = Install("source", "nvidia-driver", words[0].span, url=url, options=kept, sure=command.sure)
    if not wanted or "--toolkit" in wanted:
        place = place or f"/usr/local/cuda-{'.'.join(found[1].split('.')[:2])}"
        yield replace(driver, name="cuda-toolkit", version=found[1], target=place)
    elif "--driver" in wanted:
        yield replace(driver, version=found[2] or "")


def _conda_installer(path: str, at: Word, words: Sequence[Word], command: Command) -> Iterator[Install]:
    """An installer of conda by its publisher's name, else by what the build calls it ("miniconda.sh")."""
    given = options.read(words, Grammar(frozenset({"-p"})))
    found = _CONDA.match(_base(path))
    named = None if found else _CONDA_NAMED.search(_base(path))
    if found:
        name, local, version = found[1].lower(), found[2] or "", found[3] or ""
        release = _FORGE_RELEASE.search(path)
        version = version or (release[1] if release else "")
        version = "" if version == "latest" or not _known(version) else version
        if name == "anaconda" and re.match(r"20\d\d\.\d\d", version):
            local = next((python for since, python in reversed(_ANACONDA) if version[:7] >= since), "")
        if name == "archiconda":
            local = "py37"  # of its few releases, all of 2018 and 2019
        if re.match(r"(?:Mini|Ana)conda2-", _base(path)):
            local = "py27"  # of whichever release
    elif named and _has(given, "-b", "-p"):
        name, local, version = named[1].lower(), "", ""
        name = {"conda": "miniconda", "mamba": "mambaforge"}.get(name, name)
    else:
        return
    home = command.env.get("HOME") or "/root"
    place = _value(given, "-p") or f"{home}/{name}{'' if name == 'mambaforge' else '3'}"
    place = re.sub(r"^(?:~|\$HOME|\$\{HOME\})(?=/|$)", home, place)
    url, target = path if _URL.match(path) else "", _absolute(place, command.cwd)
    yield Install("source", name, at.span, "", version, local, url=url, target=target, sure=command.sure)


def _absolute(path: str, cwd: str) -> str:
    if path.startswith(("/", "$", "~")) or not cwd:
        return path
    return posixpath.normpath(posixpath.join(cwd, path))


def _tar(command: Command, trail: Trail) -> Iterator[Install]:
    words = command.words[1:]
    place = options.value_of(command.args, "-C", "--directory")
    for word in words:
        origin = trail.files.get(_base(word.text), word.text)
        yield from _cudnn(_base(origin), origin if _URL.match(origin) else "", word, command, place)


def _cudnn(name: str, url: str, word: Word, command: Command, place: str) -> Iterator[Install]:
    """cuDNN's archives; the CUDA they are made for is in their names."""
    found, old = _CUDNN.match(name), _OLD_CUDNN.match(name)
    if found:
        version, local = found[1], found[2]
    elif old:
        version, local = old[2], f"cuda{old[1]}"
    else:
        return
    yield Install("source", "cudnn", word.span, version=version, local=local, url=url, target=place, sure=command.sure)


# ---------------------------------------------------------------- Pythons

_MAKE_INSTALL = frozenset({"install", "altinstall", "bininstall", "altbininstall"})
_PYTHON_VERSION = pattern(r"^(\d+\.\d+(?:\.\d+)?(?:(?:a|b|rc)\d+)?)$")


def _built(command: Command, trail: Trail) -> str:
    """The version of Python that this ``make install`` installs, "" where it is something else."""
    given = options.read(command.words[1:], options.valued("make"))
    folder = _absolute(_value(given, "-C", "--directory"), command.cwd) or command.cwd
    found = _PYTHON_SOURCE.search(folder)
    if found:
        return found[1]
    alternative = any(word.text.startswith("alt") for word in given.rest)  # only Python's makefile has it
    if trail.python and (alternative or not folder or "python" in folder.lower()):
        return trail.python
    return ""


def _make(command: Command, trail: Trail) -> Iterator[Install]:
    words = [word for word in command.words[1:] if word.text in _MAKE_INSTALL]
    version = _built(command, trail) if words else ""
    if version:
        kept = frozenset({"altinstall"} if words[0].text.startswith("alt") else ())
        made = Install("source", "python", words[0].span, f"=={version}", version, options=kept, sure=command.sure)
        yield replace(made, target=trail.prefix or "/usr/local")


def _pyenv_root(command: Command) -> str:
    return command.env.get("PYENV_ROOT") or f"{command.env.get('HOME') or '/root'}/.pyenv"


def _pyenv(command: Command) -> Iterator[Install | Unread]:
    given = options.read(command.words[1:], options.valued("pyenv"))
    if not given.rest or given.rest[0].text != "install" or _has(given, "-l", "--list"):
        return
    for word in given.rest[1:]:
        version = word.text.partition(":")[0]  # "3.X:latest" of a plugin
        if _PYTHON_VERSION.match(version):
            made = Install("source", "python", word.span, f"=={version}", version, sure=command.sure)
            place = f"{_pyenv_root(command)}/versions/{version}"
            yield replace(made, options=frozenset({"--pyenv"}), target=place)
        elif not word.sure:
            yield Unread(word.text, UNKNOWN_WORD, word.span)


# ---------------------------------------------------------------- links


@dataclass(frozen=True, slots=True)
class Link:
    """``name`` (a path, or a program's name where the path is not said) now stands for ``target``.

    ``priority`` is that of update-alternatives --install, of which the highest wins; -1 is any other link, which wins.
    """

    name: str
    target: str
    span: Span
    priority: int = -1


_DIRECTORIES = options.names(
    "/usr/bin /usr/local/bin /bin /sbin /usr/sbin /usr/lib /usr/local/lib /usr/lib/x86_64-linux-gnu"
)
_WHICH = pattern(r"^(?:\$\(|`)\s*(?:which|command -v|type -p|readlink -f|realpath)\s+([\w./+-]+)\s*[)`]$")


def links(command: Command, trail: Trail | None = None) -> tuple[Link, ...]:
    """What names a command gives to programs and files: ln -s, update-alternatives, python-is-python3, a Python that is
    built, and get-pip.py piped into a Python."""
    trail = trail or Trail()
    program = command.program
    if program == "ln":
        return tuple(_ln(command))
    if program in ("update-alternatives", "alternatives"):
        return tuple(_alternatives(command))
    if program in APT:
        return tuple(
            Link(f"/usr/bin/{name}", f"/usr/bin/{target}", word.span)
            for word in command.words[2:]
            for name, target in _IS_PYTHON.get(word.text, ())
            if "install" in command.args
        )
    if program == "make":
        found = next(iter(_make(command, trail)), None)
        if found is not None and "altinstall" not in found.options:
            series = ".".join(found.version.split(".")[:2])
            return tuple(
                Link(f"{found.target}/bin/{name}3", f"{found.target}/bin/{name}{series}", found.span)
                for name in ("python", "pip")
            )
    if _given_get_pip(command, trail):
        return tuple(
            Link(f"/usr/local/bin/{name}", command.words[0].text, command.words[0].span) for name in ("pip", "pip3")
        )
    return ()


def _given_get_pip(command: Command, trail: Trail) -> bool:
    """Whether a Python gets get-pip.py out of a pipe."""
    return trail.piped.endswith("/get-pip.py") and command.after == "|" and command.program.startswith("python")


_IS_PYTHON = {
    "python-is-python3": (("python", "python3"),),
    "python-is-python2": (("python", "python2"),),
    "python-dev-is-python3": (("python", "python3"),),
}


def _resolved(word: Word) -> str:
    """The word's text, a plain ``$(which x)`` taken for x."""
    found = _WHICH.match(word.text)
    return found[1] if found else word.text


def _ln(command: Command) -> Iterator[Link]:
    given = options.read(command.words[1:], options.valued("ln"))
    folder = _value(given, "-t", "--target-directory")
    words = given.rest
    if not folder and not words:
        return
    if folder or len(words) == 1:
        pairs = [(word, posixpath.join(folder or command.cwd, _base(_resolved(word)))) for word in words]
    elif words[-1].text.endswith("/") or words[-1].text in _DIRECTORIES or len(words) > 2:
        pairs = [(word, posixpath.join(words[-1].text, _base(_resolved(word)))) for word in words[:-1]]
    else:
        pairs = [(words[0], words[-1].text)]
    symbolic = _has(given, "-s", "--symbolic")
    for word, name in pairs:
        name = _absolute(name, command.cwd)
        target = _resolved(word)
        if target == word.text:  # a symbolic link's target is relative to the link; what `which` says is a program
            target = _absolute(target, posixpath.dirname(name) if symbolic else command.cwd)
        yield Link(name, target, word.span)


def _alternatives(command: Command) -> Iterator[Link]:
    priority = -1
    for at, word in enumerate(command.words, 1):
        after = command.words[at:]
        if word.text == "--install" and len(after) > 3:
            number = after[3].text
            priority = int(number) if number.isdecimal() and len(number) < 10 else 0
        if word.text in ("--install", "--slave") and len(after) > 2:
            yield Link(after[0].text, _resolved(after[2]), after[2].span, priority)
        elif word.text == "--set" and len(after) > 1:
            yield Link(after[0].text, _resolved(after[1]), after[1].span)
