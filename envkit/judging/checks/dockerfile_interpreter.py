"""Whether there is a Python at all where a build or its image calls one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envkit.dockerfile import system
from envkit.facts import Facts
from envkit.facts.rows import OsLifeRow
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import forgiven, installs_of, need_stages
from envkit.judging.checks._outcomes import error, skip_if
from envkit.judging.checks._torch_fit import cited
from envkit.model import Finding, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Carried, Command, Dockerfile, Install, Stage, Step

_BARE = ("os", "nvidia")  # families of bases without a Python of their own
# The last releases whose packages python and python-pip are Python 2.
_WITH_PYTHON2 = ("ubuntu18.04", "ubuntu18.10", "ubuntu19.04", "debian10")
_NAMED = pattern(r"python(3\.\d+)(?:-(?:minimal|full|dev|venv|distutils|tk|gdbm))?")
_NEVER = pattern(r"python3\.\d+-(?:pip|setuptools|wheel|numpy)")
_WITHOUT_PIP = pattern(r"python3(?:\.\d+)?(?:-(?:dev|venv|minimal|full|distutils|setuptools|wheel|opencv|numpy|tk))?")
# What may bring a Python, or packages of another archive, by ways that the text does not show.
_OPAQUE = frozenset(
    {"curl", "wget", "git", "tar", "make", "cmake", "dpkg", "conda", "mamba", "micromamba", "uv", "pyenv"}
)
_ARCHIVE = pattern(
    r"deadsnakes|add-apt-repository|\bppa:|sources\.list|\.sources\b|apt-key|keyring|backports|debian\.org"
)


def python_missing(dockerfile: Dockerfile) -> Iterator[Finding]:
    """pip, or python by that name, is there where a RUN calls it or the image starts with it, and so is the Python that
    an environment is made of which a COPY takes out of another stage: `python -m venv` links to it (Python's
    documentation, venv)."""
    need_stages(dockerfile)
    asked = 0
    told: set[str] = set()
    for index in dockerfile.reachable:
        stage = dockerfile.stages[index]
        asked += len(stage.carried)
        for each in stage.carried:
            if each.left:
                told.add("python")
                yield _left_behind(dockerfile, stage, each)
        if not _bare(stage):
            continue
        asked += 1
        for step, command, name in _calls(dockerfile, stage):
            if name in told:
                continue
            told.add(name)
            base = stage.base
            so = "the build ends here" if step.name == "RUN" else "the image cannot start"
            yield error(
                f"{name} is called, and neither {base.reference} nor a step before brings it, so that {so}",
                command.words[0].span,
                {f"no {name} in the base": f"{base.span.place}, {base.reference}"},
                _FIXES[name],
            )
        unable = _without_venv(dockerfile, stage)
        if unable is not None and "venv" not in told:
            told.add("venv")
            command, package = unable
            yield error(
                f"{command.words[0].text} -m venv finds no ensurepip, which is in the package {package} on "
                f"{stage.base.os.value}, so that the build ends here",
                command.words[0].span,
                {f"no step before installs {package}": f"{stage.base.span.place}, {stage.base.reference}"},
                f"install it before: `apt-get install -y {package}`",
            )
    skip_if(not asked, "the base has a Python of its own, or is not known")


def _left_behind(dockerfile: Dockerfile, stage: Stage, lost: Carried) -> Finding:
    made = dockerfile.stages[lost.stage]
    name, python = made.name or str(made.index), f"Python {lost.version}".rstrip()
    return error(
        f"the environment {lost.prefix} is copied without the {python} below {lost.home} that it links to, which "
        f"{stage.base.reference} does not have there, so that nothing in it starts",
        lost.span,
        {
            f"{python} is below {lost.home} in the stage {name}": made.span.place,
            f"the environment goes on from {stage.base.reference}": stage.span.place,
        },
        f"set UV_PYTHON_INSTALL_DIR=/python in the stage {name} and copy /python as well, or make {lost.prefix} in the "
        "stage that runs it"
        if lost.home.endswith("/uv/python")
        else f"make {lost.prefix} in the stage that runs it, or start both stages from one base"
        + ("" if lost.home.startswith("/usr") else f", or copy {lost.home} as well"),
    )


def _calls(dockerfile: Dockerfile, stage: Stage) -> Iterator[tuple[Step, Command, str]]:
    """The commands that surely find no pip, or no ``python``, with its name."""
    # What nothing up to here brings: a plain system that holds a python3 has pip, and no ``python``.
    lacking = {"python"} if stage.base.python.value else {*_FIXES}
    starts = _started(dockerfile) if stage.index == dockerfile.target.index else ()
    for step in dockerfile.steps_of(stage.index):
        if _brings(step):
            return
        if step.name != "RUN" and step not in starts:
            continue
        for at, (command, own) in enumerate(installs_of(step)):
            name = next((each for each in _called(command, stage) if each in lacking), "")
            if name and not forgiven(step, at):
                yield step, command, name
            lacking -= _brought(command, own)
            if not lacking:
                return


# Packages that are, require or recommend the one with ensurepip, or bring more than their name says.
_MAY_BRING_VENV = pattern(
    r".*venv.*|python3(?:\.\d+)?-full|pipx|.*virtualenv.*|.*conda.*|ros-.*|.*colcon.*|.*poetry.*|.*tox.*|ansible.*|ubuntu-.*"
    r"|.*jupyter.*|.*spyder.*|thonny|.*-desktop|.*-all(?:-dev)?|python3-(?:build|hatch|nox|pdm|cookiecutter)"
)


def _without_venv(dockerfile: Dockerfile, stage: Stage) -> tuple[Command, str] | None:
    """The first `python3 -m venv` of the distribution's or deadsnakes' Python without the package that has ensurepip,
    and that package.  Source: Debian's and deadsnakes' sources of Python, debian/control, whose venv packages hold it.
    """
    there = False
    for step in dockerfile.steps_of(stage.index):
        if _brings(step):
            return None
        for at, (command, own) in enumerate(installs_of(step) if step.name == "RUN" else ()):
            name = command.words[0].text
            if command.args[:2] == ("-m", "venv") and (found := _CALLED.fullmatch(name)) is not None:
                if not there or not command.sure or forgiven(step, at) or "--without-pip" in command.args:
                    return None
                return command, f"python{found[1] or '3'}-venv"
            hidden = command.program in system.APT and any(not word.sure for word in command.words)
            other = command.program in (_OPAQUE - {"curl", "wget", "git"}) or command.program in system.SHELLS
            if (
                hidden
                or other
                or "/" in name
                or command.program in (".", "source", "eval", "ln", "update-alternatives")
            ):
                return None
            if any(one.manager == "source" or _MAY_BRING_VENV.fullmatch(one.name) for one in own):
                return None
            there = there or any(one.manager == "apt" and one.name.startswith("python3") for one in own)
    return None


_CALLED = pattern(r"(?:/usr/bin/)?python(3(?:\.\d+)?)?")


def _started(dockerfile: Dockerfile) -> tuple[Step, ...]:
    """The ENTRYPOINT, or else the CMD, with which the image starts."""
    named = {step.name: step for step in dockerfile.steps if step.name in ("ENTRYPOINT", "CMD")}
    last = named.get("ENTRYPOINT") or named.get("CMD")
    return (last,) if last is not None else ()


_FIXES = {
    "pip": "install it before: `apt-get install -y python3-pip`",
    "pip3": "install it before: `apt-get install -y python3-pip`",
    "python": "start python3, or install python-is-python3",
}


def _bare(stage: Stage) -> bool:
    """Whether the base is a plain Ubuntu or Debian, in which neither a package nor a link makes a ``python``."""
    base = stage.base
    found = re.fullmatch(r"(ubuntu|debian)(\d+)(?:\.\d+)?", stack.said(base.os))
    new = found is not None and int(found[2]) >= (18 if found[1] == "ubuntu" else 10)
    return new and base.family in _BARE and base.sure and not base.digest


def _brings(step: Step) -> bool:
    """Whether a step may bring any program: files of another image or stage, archives, a PATH of its own."""
    if step.copy is not None:
        archive = any(
            re.search(r"\.(?:tar|tgz|tbz|txz|gz|xz|bz2|deb|sh|whl)\b|://", name) for name in step.copy.sources
        )
        return step.copy.foreign or archive or step.copy.target in ("/", "/usr")
    return (
        step.name == "SHELL"
        or any(each.system for each in step.unread)
        or "--mount=from" in " ".join(step.flags)
        or _sets_path(step)
    )


def _sets_path(step: Step) -> bool:
    return step.name == "ENV" and any(setting.name == "PATH" for setting in step.settings)


def _called(command: Command, stage: Stage) -> list[str]:
    """The plain names of a ``python`` and of a pip that a command starts.

    Older systems call Python 2 by that name, and packages bring it along.
    """
    name = command.words[0].text
    names = [name] if name in _FIXES else []
    if re.fullmatch(r"python[0-9.]*", name) and command.args[:2] == ("-m", "pip"):
        names.append("pip")  # a module of its own package on these systems
    if stack.said(stage.base.os) in _WITH_PYTHON2:
        names = [each for each in names if each != "python"]
    return names if command.sure else []


def _brought(command: Command, installs: Sequence[Install]) -> set[str]:
    """The programs of _FIXES that a command may bring; ``installs`` are its own."""
    opaque = command.program in _OPAQUE or command.program in system.SHELLS or "/" in command.words[0].text
    own = command.program.startswith("python") and command.args[:2] != ("-m", "pip")
    hidden = command.program in system.APT and any(not word.sure for word in command.words)
    if opaque or not command.sure or own or hidden or command.program in (".", "source", "eval"):
        return {*_FIXES}
    links = {link.name.rsplit("/", 1)[-1] for link in system.links(command)}
    return links | {name for name in _FIXES if any(_could_bring(name, one.name) for one in installs)}


def _could_bring(name: str, package: str) -> bool:
    """Whether a package of the distribution may bring the program, itself or by what it requires."""
    if name == "python":
        return package in ("python", "python2", "python-minimal", "python2-minimal", "python-is-python3") or (
            package.startswith("python-") or "conda" in package
        )
    plain = _WITHOUT_PIP.fullmatch(package)
    return "pip" in package or "conda" in package or "virtualenv" in package or ("python" in package and not plain)


# ---------------------------------------------------------------- a Python that the distribution does not have


def apt_python_missing(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """The distribution has the Python that apt is told to install.  Source: its own archive's packages."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()  # stages that are FROM one another share their steps
    for index in dockerfile.reachable:
        stage = dockerfile.stages[index]
        row = facts.os_life(stack.said(stage.base.os))
        if row is None or not stage.base.sure or stage.base.family in ("python", "conda"):
            continue
        gone_for_it = _deleted(dockerfile, stage, row)
        if stage.base.family not in _BARE and gone_for_it is None:
            continue  # somebody's own image may know other archives
        asked += gone_for_it is not None or row.pythons is not None or _after_python2(row.name)
        if gone_for_it is not None and gone_for_it.span in told:
            continue
        if gone_for_it is not None:
            told.add(gone_for_it.span)
            yield error(
                f"{gone_for_it.name} comes from the deadsnakes archive, which deleted its packages for {row.name} at "
                f"the end of its life on {row.eol}, so that the build ends here",
                gone_for_it.span,
                {
                    f"{row.name} ended on {row.eol}": cited(row),
                    "deadsnakes keeps no packages for ended releases": _DELETED,
                },
                "take a base whose system still lives, or let uv or conda bring that Python",
            )
            continue
        if row.pythons is None and not _after_python2(row.name):
            continue
        if (never := _never_made(dockerfile, stage)) is not None:
            yield error(
                f"{never.name} is a package of no Debian, no Ubuntu and no archive of Pythons for them, so that the "
                "build ends here",
                never.span,
                {f"no package {never.name}": "the packages that Debian's and deadsnakes' sources of Python make"},
                f"install python3-pip, or call `{never.name.partition('-')[0]} -m ensurepip`, whose package is "
                f"{never.name.partition('-')[0]}-venv",
            )
            continue
        for step in dockerfile.steps_of(stage.index):
            if other_archive(step):
                break
            named = [
                (one, found[1])
                for one in step.installs
                if one.manager == "apt" and one.sure and (found := _NAMED.fullmatch(one.name)) is not None
            ]
            pythons = row.pythons or ()
            lacking = next(((one, minor) for one, minor in named if pythons and minor not in pythons), None)
            gone = next((one for one in step.installs if one.manager == "apt" and one.name == "python-pip"), None)
            if gone is not None and gone.sure and row.name not in _WITH_PYTHON2:
                yield error(
                    f"python-pip is not among the packages of {row.name}, so that the build ends here",
                    gone.span,
                    {f"{row.name} has Python {' and '.join(pythons) or row.python}": cited(row)},
                    "install python3-pip",
                )
                break
            if lacking is not None:
                one, minor = lacking
                has = " and ".join(pythons)
                yield error(
                    f"{one.name} is not among the packages of {row.name}, which has Python {has}, so that the build "
                    "ends here",
                    one.span,
                    {f"{row.name} has Python {has}": cited(row)},
                    f"take Python {pythons[-1]}, a base whose system has Python {minor}, or uv, conda or the "
                    "deadsnakes archive for it",
                )
                break
    skip_if(not asked, "which Pythons the base's system has is not known")


def _after_python2(system: str) -> bool:
    """Whether a release of Debian or Ubuntu surely came after the last one with a pip for Python 2."""
    found = re.fullmatch(r"(ubuntu|debian)(\d+)(?:\.\d+)?", system)
    return found is not None and int(found[2]) > {"ubuntu": 20, "debian": 11}[found[1]]


_DELETED = "deadsnakes/issues 251: packages are deleted once a release of Ubuntu reaches its end of life"
# What may bring a Python of that number to an old system by other ways: another archive of Pythons, a newer release.
_OTHERWISE = pattern(r"ppa:(?!deadsnakes)\S*(?:python|snakes)|\b(?:jammy|noble|resolute)\b|release-upgrade|\.deb\b")


def _deleted(dockerfile: Dockerfile, stage: Stage, row: OsLifeRow) -> Install | None:
    """The first package of a numbered Python that only deadsnakes had for a release of Ubuntu which has ended."""
    if not row.name.startswith("ubuntu") or row.eol is None or row.eol >= row.seen:
        return None
    own = (*(row.pythons or (str(row.python),)), ".".join((stage.base.python.value or "").split(".")[:2]))
    added = False
    for step in dockerfile.steps_of(stage.index):
        if (step.copy is not None and other_archive(step)) or (step.name == "RUN" and _OTHERWISE.search(step.value)):
            return None
        for at, (command, installs) in enumerate(installs_of(step) if step.name == "RUN" else ()):
            if any(_DEADSNAKES.search(word) for word in command.args) and not forgiven(step, at):
                added = added or command.sure
            for one in installs if added and not forgiven(step, at) else ():
                found = _NAMED.fullmatch(one.name)
                if found is not None and one.manager == "apt" and one.sure and found[1] not in own:
                    return one
    return None


_DEADSNAKES = pattern(r"ppa:deadsnakes/|ppa\.launchpad(?:content)?\.net/deadsnakes/")


def _never_made(dockerfile: Dockerfile, stage: Stage) -> Install | None:
    """The first package of a numbered Python that is made for python3 alone."""
    asked = (one for step in dockerfile.steps_of(stage.index) for one in step.installs)
    return next((one for one in asked if one.manager == "apt" and one.sure and _NEVER.fullmatch(one.name)), None)


def other_archive(step: Step) -> bool:
    """Whether a step may add an archive of packages, or bring files that say where packages come from."""
    if step.copy is not None:
        return bool(re.search(r"^/etc\b|^/$|apt|sources", step.copy.target)) or step.copy.source_stage is not None
    return step.name == "RUN" and (bool(_ARCHIVE.search(step.value)) or any(_script(each) for each in step.commands))


def _script(command: Command) -> bool:
    return command.program in system.SHELLS or "/" in command.words[0].text or command.program in ("curl", "wget")
