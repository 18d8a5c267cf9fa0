"""What pip and the installers of pip and conda refuse today: names that were given up, old Pythons, old systems."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from envkit.dockerfile import options
from envkit.dockerfile.requirements import admits, allows
from envkit.dockerfile.tree import cloned
from envkit.facts import Facts, MetadataRefusedRow, NeedsPythonRow, RefusedRow, TorchRow, WheelPythonRow
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._commands_refused import command_refused
from envkit.judging.checks._dockerfile import forgiven, need_stages, optional, reached_installs
from envkit.judging.checks._outcomes import error, skip_if, warning
from envkit.judging.checks._torch_fit import cited, default_build, for_others, other_python
from envkit.model import Finding, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Command, Dockerfile, Install, Step
from envkit.versions import Python

_ONE_EQUALS = pattern(r"=(?!=)")
_LIST = "requirements-txt"  # a name that nobody may have, by PyPI's help on the names of projects
_NO_VERSION = pattern(r"==(?!=)\s*(?!v\d)[a-z][\w.+-]*")  # upper case stands for what is still to be filled in
_TYPED_TWICE = pattern(r"\bpip3? install (?:-\S+ )*pip3? install\b")


def package_refused(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """No package is installed whose newest release refuses it.  Source: the packages on PyPI, tried with pip."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()
    newest: dict[tuple[int, str], bool] = {}  # whether pip is the newest, by stage and environment
    for finding in command_refused(dockerfile):
        asked += 1
        yield finding
    for root, step, one in _installed(dockerfile):
        asked += 1
        row = facts.refused(one.name)
        place = (root, one.prefix)
        if one.name == "pip":
            newest[place] = "--upgrade" in one.options and not one.specifier and bool(one.python)
        if one.span in told:
            continue
        unread = _metadata(one, facts) if one.manager == "pip" and newest.get(place) else None
        if unread is not None and Python(one.python) >= _READS_STRICTLY:
            told.add(one.span)
            yield error(
                f"the newest pip refuses the metadata of {one.name}{one.specifier}, so that the build ends here",
                one.span,
                {f"{one.name} from {unread.since} to {unread.until}": cited(unread)},
                f"pin pip before it, `pip install 'pip<24.1'`, or take another release of {one.name}",
            )
            continue
        if one.name == "install" and _TYPED_TWICE.search(step.value):
            told.add(one.span)
            yield warning(
                "`pip install` stands twice in one command, so that pip takes the second for the names of two packages",
                one.span,
                {"install is another project's package": "PyPI, install 1.3.5"},
                "remove the second `pip install`",
            )
        elif one.name == _LIST and one.manager in ("pip", "uv") and not one.specifier:
            told.add(one.span)
            yield error(
                "a list is named without -r, so that it is looked for as a package of that name, which there cannot "
                "be, and the build ends here",
                one.span,
                fix="write `-r` before the list",
            )
        elif _ONE_EQUALS.match(one.specifier) and "$" not in one.specifier:
            told.add(one.span)
            yield error(
                f"{one.name}{one.specifier} has one =, which is no operator of a version, so that the build ends here",
                one.span,
                fix=f"write {one.name}={one.specifier}",
            )
        elif _NO_VERSION.fullmatch(one.specifier):
            told.add(one.span)
            yield error(
                f"{one.name}{one.specifier} names no version, so that the build ends here",
                one.span,
                {"a version begins with a number": "PEP 440"},
                f"write a release of {one.name}, or its name alone for the newest one",
            )
        elif (wheels := _without_wheel(one, dockerfile, facts)) is not None:
            told.add(one.span)
            yield error(
                f"{one.name} {one.version} has wheels for Python {_listed(wheels.pythons)} and no source, and is "
                f"installed into Python {_minor(one.python)}, so that the build ends here",
                one.span,
                {f"{one.name} from {wheels.since} to {wheels.until}": cited(wheels)},
                f"take a Python from {wheels.pythons[0]} to {wheels.pythons[-1]}, or another release of {one.name}",
            )
        elif (needs := _without_python(one, facts)) is not None:
            told.add(one.span)
            yield error(
                f"{one.name} {one.version} asks for Python {needs.requires}, and is installed into Python "
                f"{_minor(one.python)}, so that {one.manager} finds no release of it and the build ends here",
                one.span,
                {f"{one.name} from {needs.since} to {needs.until}": cited(needs)},
                f"take a Python that it asks for, or a release of {one.name} for Python {_minor(one.python)}",
            )
        elif row is not None and _meets(row, one) and not _allowed(row, step):
            told.add(one.span)
            yield error(
                f"{one.name} is no package that can be installed: {row.why}, so that the build ends here",
                one.span,
                {f"{one.name}{one.specifier} is asked for": one.span.place},
                f"install {row.instead}"
                if row.instead
                else "take it out of the list: `pip freeze` wrote what no index has",
            )
    named = (_of_sources(dockerfile, facts), _of_other_pythons(dockerfile), _on_musl(dockerfile, facts))
    projects = (*_projects(dockerfile), *_of_poetry(dockerfile))
    for finding in (*chain.from_iterable(named), *_on_old_glibc(dockerfile, facts), *projects):
        asked += 1
        yield finding
    skip_if(not asked, "pip installs no package by its name")


def _projects(dockerfile: Dockerfile) -> Iterator[Finding]:
    """Each project of the context whose own word on Pythons leaves out the one that pip installs it into."""
    told: set[Span] = set()
    for _, step, one in _surely_installed(dockerfile):
        heeded = one.manager == "pip" and one.python and "--ignore-requires-python" not in one.options
        if not heeded or one.span in told or not _left_out(one.requires, one.python):
            continue
        told.add(one.span)
        yield error(
            f"{'the project' if one.name == '.' else one.name} asks for Python {one.requires}, and is installed into "
            f"Python {_minor(one.python)}, so that the build ends here",
            one.span,
            {f"it asks for Python {one.requires}": one.url, f"Python {_minor(one.python)}": step.span.place},
            f"take a Python that it asks for, or let Python {_minor(one.python)} in where the project does run with it",
        )


# Packages of Debian that bring no Python along: a second one may be the one that Poetry wants.
_WITHOUT_PYTHON = options.names(
    "build-essential bzip2 ca-certificates cmake curl dumb-init g++ gcc git gnupg gosu jq libffi-dev libgl1 "
    "libglib2.0-0 libgomp1 libpq-dev libpq5 libsm6 libsndfile1 libssl-dev libxext6 libxrender1 locales make "
    "netcat-openbsd openssh-client pkg-config procps tini tzdata unzip wget zip"
)
_BRING_PYTHON = options.names("uv pyenv conda mamba micromamba asdf mise rye hatch")


def _of_poetry(dockerfile: Dockerfile) -> Iterator[Finding]:
    """A project whose own word on Pythons leaves out the only one of the image, which `poetry install` then refuses.

    Source: Poetry, EnvManager.create_venv, which looks for another one on PATH and ends where there is none.
    """
    told: set[Span] = set()
    for index in dockerfile.reachable:
        base, steps = dockerfile.stages[index].base, dockerfile.steps_of(index)
        if base.family != "python" or not base.sure or not re.search(r"slim|alpine", base.tag):
            continue
        asked = [
            (step, one) for step in dockerfile.stages[index].steps for one in step.installs if one.name == "python"
        ]
        for step, one in asked:
            heeded = one.manager == "poetry" and one.constraint and one.sure and one.span not in told
            lenient = any(one.after in ("||", ";", "|") for one in step.commands)
            lenient = lenient or any(one.env.get("VIRTUAL_ENV") for one in step.commands)  # which is taken as it is
            if heeded and not lenient and _left_out(one.specifier, one.python) and not _may_hold_another(steps):
                told.add(one.span)
                yield error(
                    f"the project asks for Python {one.specifier}, and the image has Python {_minor(one.python)} "
                    "alone, so that `poetry install` finds none and the build ends here",
                    one.span,
                    {f"Python {_minor(one.python)}": base.span.place, "poetry install": step.span.place},
                    f"take a base with a Python that it asks for, or let Python {_minor(one.python)} in where the "
                    "project does run with it",
                )


def _may_hold_another(steps: Sequence[Step]) -> bool:
    """Whether a stage may get a second Python."""
    for step in steps:
        if step.copy is not None and step.copy.foreign:
            return True
        if any(one.manager not in ("pip", "poetry", "apt") for one in step.installs) or any(
            one.manager == "apt" and one.name not in _WITHOUT_PYTHON for one in step.installs
        ):
            return True
        if any(each.program in _BRING_PYTHON or "/" in each.words[0].text for each in step.commands):
            return True
    return False


def _left_out(requires: str, python: str) -> bool:
    """Whether each patch release of a Python is left out; pip compares all three numbers."""
    patches = (python,) if python.count(".") > 1 else (f"{python}.1", f"{python}.99")
    return bool(requires) and "|" not in requires and all(admits(requires, one) is False for one in patches)


def _of_other_pythons(dockerfile: Dockerfile) -> Iterator[Finding]:
    """Each wheel but torch's that is named by its file, and goes into a Python that it is not made for."""
    told: set[Span] = set()
    for _, step, one in _surely_installed(dockerfile):
        made = "" if one.name == "torch" or one.span in told or for_others(one) else other_python(one)
        if made:
            told.add(one.span)
            yield error(
                f"the wheel of {one.name} is made for Python {made}, and is installed into Python "
                f"{_minor(one.python)}, so that the build ends here",
                one.span,
                {f"Python {made}": "the wheel's name", f"Python {_minor(one.python)}": step.span.place},
                f"take the wheel for Python {_minor(one.python)}, or a Python {made}",
            )


def _on_old_glibc(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """Each pinned torch whose wheels are for a newer glibc than the system's: pip does not see them.

    Source: PEP 600; the tags of the wheels on the package index.
    """
    told: set[Span] = set()
    least = facts.installer("miniconda").least
    for root, _, one in _installed(dockerfile):
        if one.name != "torch" or not one.version or one.span in told:
            continue
        base = dockerfile.stages[root].base
        row = default_build(one.version, facts)
        if row is None or not isinstance(row, TorchRow) or str(row.glibc) != least or not _old_system(base):
            continue
        told.add(one.span)
        older = [each.torch for each in facts.torches if each.default and each.glibc and str(each.glibc) != least]
        last = str(max(older)) if older else ""
        yield error(
            f"the wheels of torch {one.version} need glibc {least}, and {base.os.value} has an older one, so that pip "
            "finds none and the build ends here",
            one.span,
            {
                f"torch {one.version} needs glibc {least}": cited(row),
                f"the base is {base.os.value}": f"{base.span.place}, {base.os.via}",
            },
            "take a base with a newer system" + (f", or torch {last}, whose wheels are for older ones" if last else ""),
        )


def _on_musl(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """Each package that pip finds nothing of on Alpine.  Source: PEP 656, the platform tags of musl."""
    rows = {row.name: row for row in facts.glibc_only}
    told: set[Span] = set()
    for root, _, one in _installed(dockerfile):
        base = dockerfile.stages[root].base
        row = rows.get(one.name) if one.span not in told else None
        alpine = stack.said(base.os).startswith("alpine") and base.family in ("python", "os") and base.sure
        elsewhere = one.index or one.extra_indexes or one.find_links or one.local or "--no-index" in one.options
        if row is None or not alpine or elsewhere:
            continue
        told.add(one.span)
        yield error(
            f"{one.name} has no wheel for a system with musl and no source, and {base.reference} is Alpine, so that "
            "the build ends here",
            one.span,
            {f"{one.name} has wheels for glibc alone": cited(row), "Alpine": f"{base.span.place}, {base.os.via}"},
            "take a base with glibc, such as a slim image of the same Python",
        )


_REPOSITORY = pattern(
    r"(?:git\+)?https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?(?:/archive/(?:refs/heads/)?(?:main|master)\.zip)?/?(?:#.*)?"
)
_MOVED = pattern(r"\bgit (?:-C \S+ )?(?:checkout|reset|switch)\b")


def _of_sources(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """Each package that is installed out of the newest source of its repository, which is not for the Python there."""
    rows = {row.repository.lower(): row for row in facts.source_pythons}
    if "github.com" not in dockerfile.text and not any(
        "github.com" in one.url for *_, one in reached_installs(dockerfile)
    ):
        return
    told: set[Span] = set()
    for index in dockerfile.reachable:
        clones: dict[str, str] = {}
        for step in dockerfile.steps_of(index):
            moved = _MOVED.search(step.value) is not None
            for command in step.commands if step.name == "RUN" else ():
                clone = cloned(command)
                if clone is not None:
                    clones[clone.folder] = "" if clone.ref or moved else clone.url
            if moved:
                clones = dict.fromkeys(clones, "")
            lenient = optional(step)
            for one in step.installs:
                address = _REPOSITORY.fullmatch(clones.get(one.url, one.url))
                row = rows.get(address[1].lower()) if address is not None else None
                old = one.python and not one.python.startswith("2") and one.manager in ("pip", "uv") and one.sure
                if row is None or not old or one.span in lenient | told or Python(one.python).upto(2) >= row.python:
                    continue
                told.add(one.span)
                yield error(
                    f"the newest source of {row.package} needs Python {row.python}, and is installed into Python "
                    f"{_minor(one.python)}, so that the build ends here",
                    one.span,
                    {f"{row.package} needs Python {row.python}": cited(row)},
                    f"name a tag of {row.repository} that is for Python {_minor(one.python)}, or take a newer Python",
                )


_READS_STRICTLY = Python("3.8")  # the newest pip for it, and for each newer one, refuses metadata out of the standard


def _metadata(one: Install, facts: Facts) -> MetadataRefusedRow | None:
    """The row of a pinned release whose metadata the newest pip refuses."""
    mine = (row for row in facts.metadata_refused if row.name == one.name and one.version)
    return next((row for row in mine if allows(f">={row.since},<={row.until}", one.version) is True), None)


def _without_wheel(one: Install, dockerfile: Dockerfile, facts: Facts) -> WheelPythonRow | None:
    """The row of a pinned release that has neither a wheel for the Python that it is installed into nor a source."""
    elsewhere = one.index or one.extra_indexes or one.find_links or one.local or "--no-index" in one.options
    if not one.version or not one.python or elsewhere or re.search("arm|aarch", dockerfile.base.platform):
        return None
    row = facts.wheel_python(one.name, one.version)
    return row if row is not None and _minor(one.python) not in row.pythons else None


def _without_python(one: Install, facts: Facts) -> NeedsPythonRow | None:
    """The row of a pinned release that asks for other Pythons than the one that it is installed into."""
    elsewhere = one.index or one.extra_indexes or one.find_links or one.local or "--no-index" in one.options
    if not one.version or not one.python or elsewhere or "--ignore-requires-python" in one.options:
        return None
    mine = (row for row in facts.needs_pythons if row.package == one.name and _left_out(row.requires, one.python))
    return next((row for row in mine if allows(f">={row.since},<={row.until}", one.version) is True), None)


def _minor(python: str) -> str:
    return ".".join(python.split(".")[:2])


def _listed(pythons: Sequence[str]) -> str:
    return pythons[0] if len(pythons) == 1 else f"{', '.join(pythons[:-1])} and {pythons[-1]}"


def _installed(dockerfile: Dockerfile) -> Iterator[tuple[int, Step, Install]]:
    """What pip and uv install by name, of whose failure the build ends, with the first stage of its line."""
    for root, step, one in _surely_installed(dockerfile):
        if one.manager in ("pip", "uv") and not one.url and not one.locked:
            yield root, step, one


def _surely_installed(dockerfile: Dockerfile) -> Iterator[tuple[int, Step, Install]]:
    """What is installed in any case and of whose failure the build ends, with the first stage of its line."""
    for index in dockerfile.reachable:
        root = dockerfile.stages[index].line[0]
        for step in dockerfile.stages[index].steps:
            lenient = optional(step)
            for one in step.installs:
                if one.sure and not (one.constraint or one.marker or one.span in lenient):
                    yield root, step, one


def _allowed(row: RefusedRow, step: Step) -> bool:
    """Whether the variable is set that installs it all the same."""
    return bool(row.allowed_by) and (row.allowed_by in step.value or row.allowed_by in step.env)


def _meets(row: RefusedRow, one: Install) -> bool:
    """Whether the release that pip takes is the one that refuses, and no other index may have another."""
    mirror = bool(row.newest) and re.search(r"/simple/?$", one.index) is not None  # which has what the index itself has
    if (one.index and not mirror) or one.extra_indexes or one.find_links:
        return False
    if "--no-index" in one.options or "$" in one.specifier:
        return False
    return not one.specifier or (row.newest == "" and not one.url) or allows(one.specifier, row.newest) is True


# ---------------------------------------------------------------- the newest pip

_NEWEST = pattern(r"bootstrap\.pypa\.io/(?:pip/)?get-pip\.py")
_OLDER = pattern(r"bootstrap\.pypa\.io/(?:pip/)?\d+\.\d+/get-pip\.py|pip/\d+\.\d+/get-pip\.py")
_NUMBERED = pattern(r"python(\d+\.\d+)")


def pip_too_new(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """get-pip.py and pip are taken for the Python that runs them.  Source: pypa/get-pip, README; pip's METADATA,
    Requires-Python."""
    need_stages(dockerfile)
    row = facts.installer("get-pip.py")
    asked = 0
    told: set[Span] = set()
    for one in _blind_upgrades(dockerfile):
        asked += 1
        yield error(
            f"the pip of ubuntu16.04 takes the newest pip, which Python {one.python} cannot run, so that the next call "
            "of pip ends the build",
            one.span,
            {"pip 8.1.1 does not read Requires-Python": "python3-pip of Ubuntu 16.04"},
            "pin the last one for it, `pip install 'pip<21'`",
        )
    for index in dockerfile.reachable:
        base, steps = dockerfile.stages[index].base, dockerfile.steps_of(index)
        fetched = ""
        for number, step in enumerate(steps):
            fetched = _fetched(step, fetched)
            for at, command in enumerate(step.commands if step.name == "RUN" else ()):
                if fetched != "newest" or not _runs_it(command) or forgiven(step, at + 1):
                    continue
                asked += 1
                python = _python_of(command, step) or _second(command, base, steps[: number + 1], facts)
                if not python or command.span in told or Python(python) >= Python(row.least):
                    continue
                told.add(command.span)
                yield error(
                    f"today's get-pip.py needs Python {row.least} and is run with Python {python}, so that the build "
                    "ends here",
                    command.words[0].span,
                    {f"Python {python}": step.span.place, f"get-pip.py needs Python {row.least}": cited(row)},
                    f"take https://bootstrap.pypa.io/pip/{python}/get-pip.py",
                )
    skip_if(not asked, "no get-pip.py without a version in its address is run")


def _blind_upgrades(dockerfile: Dockerfile) -> Iterator[Install]:
    """The first upgrade of pip by that of Ubuntu 16.04 in each stage, where pip is called again."""
    told: set[Span] = set()
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        if stack.said(base.os) != "ubuntu16.04" or base.family not in ("os", "nvidia"):
            continue  # images of frameworks bring a pip of their own
        steps = dockerfile.steps_of(index)
        if any("get-pip" in step.value for step in steps):
            continue
        installed = [one for step in steps for one in step.installs if one.manager == "pip" and not one.constraint]
        own = [one for one in installed if one.prefix == "/usr/local" and one.python.startswith(("2.", "3.5"))]
        first = next((one for one in own if one.name == "pip"), None)
        own = [one for one in own if first is not None and one.python == first.python]
        blind = first is not None and not first.specifier and first.sure and "--upgrade" in first.options
        if first is None or not blind or first.span in told:
            continue
        if own[-1] is not first or _called_again(first, steps):
            told.add(first.span)
            yield first


_LOOPS = pattern(r"\bfor\s+\w+\s+in\s(?:[^;\n]*\s)?[\w.-]+\s*;")  # at least once: over a word that stands there


def _called_again(first: Install, steps: Sequence[Step]) -> bool:
    """Whether the program that made an install is called behind it, whatever it installs then."""
    program = first.target.partition(" ")[0] or "pip"
    for step in steps:
        runs = _LOOPS.search(step.value) is not None
        for each in step.commands if step.span.path == first.span.path else ():
            behind = (each.span.line, each.span.column) > (first.span.line, first.span.column)
            if behind and each.words[0].text == program and (each.sure or runs):
                return True
    return False


def _fetched(step: Step, before: str) -> str:
    """Which get-pip.py lies there behind a step: "newest", "older" or "" where that is not known."""
    if _OLDER.search(step.value):
        return "older"
    return "newest" if _NEWEST.search(step.value) else before


def _runs_it(command: Command) -> bool:
    """Whether a command runs get-pip.py with a Python, as a file or out of a pipe."""
    if not command.sure or not re.fullmatch(r"python[0-9.]*", command.program):
        return False
    file = next((arg for arg in command.args if not arg.startswith("-")), "")
    return file.endswith(("get-pip.py", "get_pip.py")) or (command.after == "|" and file in ("", "/dev/stdin"))


def _python_of(command: Command, step: Step) -> str:
    """The version of the Python that runs get-pip.py, "" where it is not known."""
    named = _NUMBERED.fullmatch(command.program)
    if named:
        return str(named[1])
    mine = (one for one in step.installs if one.name == "pip" and one.target.startswith(command.words[0].text))
    own = next(mine, None)
    return own.python if own is not None else ""


_PYTHON2 = pattern(r"python2?(?:-(?:dev|minimal|setuptools))?")
_RENAMED = pattern(r"(?:\bln\b|alternatives|\bPATH=).*python|conda|pyenv|virtualenv")


def _second(command: Command, base: Base, steps: Sequence[Step], facts: Facts) -> str:
    """The last Python 2 where ``python`` is surely that of a distribution which the steps install, else ""."""
    own = facts.os_python2(stack.said(base.os)) if base.family in ("os", "nvidia") and base.sure else ""
    if not own or command.words[0].text not in ("python", "python2") or any(_RENAMED.search(s.value) for s in steps):
        return ""
    there = any(one.manager == "apt" and _PYTHON2.fullmatch(one.name) for step in steps for one in step.installs)
    return own if there else ""


# ---------------------------------------------------------------- an old pip

# Distributions whose pip is too old to build a source apart, and with it to read wheels of later than manylinux1.
# Source: pip's news of PEP 518 and of PEP 571; the packages python3-pip.
_OLD_PIPS = frozenset({"ubuntu16.04", "ubuntu18.04", "debian9"})
# Packages of which such a pip takes no release that it can install, with those of the releases where they are pinned,
# and why.  Source: opencv/opencv-python issues 372 and 387; pyca/cryptography, FAQ; the index, asked for wheels of
# manylinux1 and Python 3.6 on 2026-11-29.
_SKBUILD = "its setup.py imports skbuild, which is not there"
_RUST = "its setup.py imports setuptools_rust, which is not there"
_NO_FILE = "the index has no file of it that this pip reads"
_TOO_NEW = {
    **dict.fromkeys(
        (f"opencv-{kind}python{more}" for kind in ("", "contrib-") for more in ("", "-headless")),
        (">=4.3.0.38", True, _SKBUILD),
    ),
    "cryptography": (">=3.4", True, _RUST),
    "tokenizers": (">=0.12", True, _RUST),
    "tensorflow": (">=1.15", False, _NO_FILE),
    "tensorflow-cpu": (">=1.15", False, _NO_FILE),
}


_MENDS = frozenset({"pip", "scikit-build", "setuptools-rust"})


def pip_too_old(dockerfile: Dockerfile) -> Iterator[Finding]:
    """The pip of an old distribution can install what it is asked for, and runs with the Python that is put beside it.
    Source: opencv/opencv-python issues 372 and 387; pip, news of PEP 518 and of PEP 571; deadsnakes/issues issue 276.
    """
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        system, steps = stack.said(base.os), dockerfile.steps_of(index)
        first = _under_a_newer_python(steps) if system in _PIPS_OF_DISTUTILS and base.sure else None
        asked += first is not None
        if first is not None and base.family in ("os", "nvidia") and first.span not in told:
            told.add(first.span)
            yield error(
                f"the pip of {system} does not run with Python {first.python}, which has neither distutils nor "
                "pkgutil.ImpImporter, so that the build ends here",
                first.span,
                {f"{system} has pip of before Python 3.12": f"{base.span.place}, {base.reference}"},
                f"give that Python a pip of its own, `python{first.python} -m ensurepip` or get-pip.py, or make an "
                f"environment with it, `python{first.python} -m venv /opt/venv`",
            )
        if system not in _OLD_PIPS or base.family not in ("os", "nvidia") or not base.sure:
            continue
        for one in _of_the_systems_pip(steps):
            asked += 1
            bound, free, why = _TOO_NEW.get(one.name, ("", False, ""))
            pinned = bool(one.version) and allows(bound, one.version) is True if bound else False
            if one.span not in told and (pinned or (free and bound and not one.specifier)):
                told.add(one.span)
                yield error(
                    f"the pip of {system} cannot install {one.name}{one.specifier}: {why}, so that the build ends here",
                    one.span,
                    {f"{system} has an old pip": f"{base.span.place}, {base.reference}"},
                    "upgrade pip before, with a bound for an old Python: `python3 -m pip install --upgrade 'pip<22'`",
                )
    skip_if(not asked, "no pip of an old distribution installs a package")


# Distributions whose pip imports distutils and pkgutil.ImpImporter, which Python has no more since 3.12, and for which
# there are packages of such a Python.  Source: _internal/locations and _vendor/pkg_resources of pip 20.0.2 and 22.0.2;
# deadsnakes/issues issue 276.
_PIPS_OF_DISTUTILS = frozenset({"ubuntu20.04", "ubuntu22.04"})
_WITHOUT_DISTUTILS = pattern(r"3\.(?:1[2-9]|[2-9]\d)")


def _under_a_newer_python(steps: Sequence[Step]) -> Install | None:
    """The first that a system's own pip surely is to install with a newer Python of apt's; None where that Python may
    have a pip of its own."""
    packages: set[str] = set()
    for step in steps:
        brings = step.copy is not None and step.copy.foreign and not step.copy.of_uv
        if brings or "get-pip" in step.value or "ensurepip" in step.value:
            return None
        for one in step.installs:
            if one.manager == "apt":
                packages.add(one.name)
            elif one.manager in ("source", "conda"):
                return None
            elif one.manager == "pip" and _WITHOUT_DISTUTILS.fullmatch(one.python) and one.prefix == "/usr/local":
                by_apt = "python3-pip" in packages and any(name.startswith(f"python{one.python}") for name in packages)
                return one if by_apt and one.sure and one.span not in optional(step) else None
            elif one.manager == "pip" and not one.python:
                return None
    return None


def _of_the_systems_pip(steps: Sequence[Step]) -> Iterator[Install]:
    """What pip installs into a system's own Python 3, as long as it surely is the system's own pip that does it."""
    for step in steps:
        if step.unread or "get-pip" in step.value or "ensurepip" in step.value:
            return
        if step.copy is not None and step.copy.foreign:
            return
        lenient = optional(step)
        for one in step.installs:
            if one.name in _MENDS and one.manager in ("pip", "source", "conda"):
                return
            plain = not (one.url or one.index or one.extra_indexes or one.find_links or one.constraint or one.marker)
            own = one.manager == "pip" and one.prefix == "/usr/local" and one.python in ("3.5", "3.6")
            if own and plain and one.sure and one.span not in lenient:
                yield one


# ---------------------------------------------------------------- the newest Miniconda

# The first release of each that has the glibc which the newest Miniconda asks for, and the newer wheels of torch.
_GLIBC_SINCE = {"ubuntu": 20, "debian": 10, "centos": 8, "rockylinux": 8, "almalinux": 8, "ubi": 8, "rhel": 8}
# Miniconda2 is of Python 2, and Miniconda without a number stayed at a release of 2015: ContinuumIO/anaconda-issues
# issue 1494.
_NEWEST_CONDA = pattern(r"(?:Mini|Ana)conda3-latest")


def miniconda_too_new(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """The newest Miniconda is installed on a system whose glibc it takes, and the terms of Anaconda's channels are
    accepted before it takes something from them.  Source: its installer's own words; anaconda/conda-anaconda-tos,
    plugin.py and console/render.py; Anaconda, "Managing Terms of Service on the command line"."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        steps = dockerfile.steps_of(index)
        brought = [one for step in steps for one in step.installs if one.name in ("miniconda", "anaconda")]
        if not brought and not _updatable(base, ()):
            continue
        asked += 1
        old = list(_old_glibc(base, brought, facts))  # where the build ends before anything asks for terms
        ends = "so that the build would end here too" if old else "so that the build ends here"
        for finding in (*old, *_open_terms(base, steps, facts, ends)):
            if finding.span is not None and finding.span not in told:
                told.add(finding.span)
                yield finding
    skip_if(not asked, "no Miniconda is installed on a system with an old glibc, as far as is known")


def _old_glibc(base: Base, brought: Sequence[Install], facts: Facts) -> Iterator[Finding]:
    """Each newest Miniconda on a system that is too old for its installer."""
    row = facts.installer("miniconda")
    if not _old_system(base):
        return
    for one in brought:
        if _newest(one) and "aarch64" not in one.url:
            yield error(
                f"{'this' if _of_late(one) else 'the newest'} Miniconda needs glibc {row.least}, and {base.os.value} "
                "has an older one, so that the build ends here",
                one.span,
                {
                    f"Miniconda needs glibc {row.least}": cited(row),
                    f"the base is {base.os.value}": f"{base.span.place}, {base.os.via}",
                },
                "name a release of before 2025, such as Miniconda3-py311_24.9.2-0-Linux-x86_64.sh, or take "
                "Miniforge, or a newer base",
            )


def _old_system(base: Base) -> bool:
    """Whether a base is of a system that is known to have an older glibc."""
    system = re.fullmatch(r"([a-z]+)(\d+)(?:\.\d+)?", stack.said(base.os))
    since = _GLIBC_SINCE.get(system[1]) if system else None
    return system is not None and since is not None and int(system[2]) < since


def _newest(one: Install) -> bool:
    return one.sure and (_NEWEST_CONDA.search(one.url) is not None or _of_late(one))


def _of_late(one: Install) -> bool:
    """Whether a release that is named came after July 2025, when the part of conda that asks for the terms came."""
    mini = _MINICONDA.search(one.url)
    if mini is not None:
        return (int(mini[1]), int(mini[2])) >= (25, 7)
    whole = _ANACONDA.search(one.url)
    return whole is not None and (int(whole[1]), int(whole[2])) >= (2025, 7)


_MINICONDA = pattern(r"Miniconda3-py3\d+_(\d{2})\.(\d{1,2})\.")
_ANACONDA = pattern(r"Anaconda3-(20\d{2})\.(\d{2})-")


# ---------------------------------------------------------------- the terms of conda's channels

# What conda looks up its channels' terms for; `conda env` has a word behind it.
_ASKING = frozenset({"create", "install", "update", "upgrade", "remove", "uninstall", "search"})
_ASKING_ENV = frozenset({"create", "update", "remove"})
# What accepts the terms, leaves the channels out that have some, or takes the plugin that asks away; a variable of a CI
# accepts them as well.
_TERMS = pattern(
    r"\btos\b|auto_accept_tos|condarc|conda-anaconda-tos|conda_anaconda_tos|default_channels|nodefaults|NO_PLUGINS"
    r"|no-plugins|\bconda config\b[^&;|]*channels|\bCI=",
    re.IGNORECASE,
)
# Bases without a conda of their own; Anaconda's images have accepted the terms and hold no plugin that asks.  Source:
# anaconda/docker-images at a32b8c1e, miniconda3/debian/Dockerfile.
_PLAIN = ("os", "nvidia", "python")


_CONDAS = frozenset({"miniconda", "anaconda", "archiconda", "miniforge", "mambaforge", "micromamba"})


def _open_terms(base: Base, steps: Sequence[Step], facts: Facts, so: str) -> Iterator[Finding]:
    """The first call of the newest Miniconda's conda that asks whether the terms are accepted, which nobody answers."""
    newest, updated, older = False, False, _updatable(base, ())
    whose = "the newest Miniconda"
    for step in steps if base.family in (*_PLAIN, "conda") else ():
        copied = step.copy is not None and any("condarc" in name for name in (*step.copy.sources, step.copy.target))
        if copied or _TERMS.search(step.value) or "CONDA_PLUGINS_AUTO_ACCEPT_TOS" in step.env or "CI" in step.env:
            return
        brought = [one for one in step.installs if one.manager == "source" and one.name in _CONDAS]
        newest = all(map(_newest, brought)) if brought else newest
        whose = "this Miniconda" if any(map(_of_late, brought)) else whose
        ends = [at for at, each in enumerate(step.commands) if _asks_for_terms(each) and not forgiven(step, at)]
        older = _updatable(base, brought) if brought else older
        first = next((at for at, each in enumerate(step.commands) if _updates_conda(each)), None) if older else None
        behind = [at for at in ends if updated or (first is not None and at > first)] if older and not newest else []
        updated = updated or first is not None
        if behind:
            yield warning(
                "conda was brought to its newest release, which takes nothing from Anaconda's channels before their "
                "terms are accepted, so that the build ends here",
                step.commands[behind[0]].words[0].span,
                {"it asks, and nothing answers": cited(facts.installer("conda-anaconda-tos"))},
                "leave conda as it is, take Miniforge, or, where you accept the terms, write before it "
                "`ENV CONDA_PLUGINS_AUTO_ACCEPT_TOS=yes`",
            )
            return
        command = step.commands[ends[0]] if ends and newest and step.name == "RUN" else None
        if command is not None:
            yield error(
                f"conda of {whose} takes nothing from Anaconda's channels before their terms are accepted, {so}",
                command.words[0].span,
                {"it asks, and nothing answers": cited(facts.installer("conda-anaconda-tos"))},
                "take Miniforge, whose channel has no such terms, or, where you accept them, write before it "
                "`ENV CONDA_PLUGINS_AUTO_ACCEPT_TOS=yes`",
            )
            return


# The oldest Python for which Anaconda's channels had a conda that asks when it came, in July 2025.
_ASKING_SINCE = Python("3.9")
_PY = pattern(r"py(3)(\d{1,2})")


def _updatable(base: Base, brought: Sequence[Install]) -> bool:
    """Whether Anaconda's channels bring a conda with the part that asks to a named, older Miniconda or its image."""
    of_image = base.repository == "continuumio/miniconda3" and re.match(r"\d", base.tag) and base.python.value
    named = [found for one in brought if (found := _PY.fullmatch(one.local)) and one.name == "miniconda"]
    pythons = [f"{found[1]}.{found[2]}" for found in named] or ([base.python.value or ""] if of_image else [])
    return bool(pythons) and Python(pythons[-1]) >= _ASKING_SINCE


def _updates_conda(command: Command) -> bool:
    """Whether a command brings conda itself to its newest release."""
    words = [word for word in command.args if not word.startswith("-")]
    own = command.program in ("conda", "mamba") and command.sure and "conda-forge" not in command.args
    elsewhere = {"-p", "--prefix"} & set(command.args) or ("-n" in command.args and "base" not in words)
    return own and not elsewhere and words[:1] in (["update"], ["upgrade"], ["install"]) and "conda" in words


def _asks_for_terms(command: Command) -> bool:
    """Whether a command is one of conda's that looks at the terms of the channels that are set for all."""
    if command.program not in ("conda", "conda-env") or not command.sure or "--override-channels" in command.args:
        return False
    words = [word for word in command.args if not word.startswith("-")]
    if command.program == "conda-env" or words[:1] == ["env"]:
        return bool(_ASKING_ENV.intersection(words[:2]))
    return bool(words) and words[0] in _ASKING and "--help" not in command.args
