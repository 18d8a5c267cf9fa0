"""Which Python the packages go into, and which one the image starts."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from envkit.dockerfile import conda, pip, system
from envkit.facts import Facts
from envkit.judging.checks._dockerfile import need_stages, worth_on
from envkit.judging.checks._outcomes import error, found, skip_if, warning
from envkit.model import Finding, Severity, Span, Unknown
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Command, Dockerfile, Install, StartCommand, Step

_MANAGERS = ("pip", "uv", "poetry", "conda")
_NUMBERED = pattern(r"python(\d+\.\d+)\Z")
_PLAIN = pattern(r"python3?\Z")
_SYSTEM = "/usr/local"
_OPEN = "which Python the packages go into, or which one is started, is not known"
_INITS = frozenset({"tini", "dumb-init", "nvidia_entrypoint.sh"})
_TOOLS = frozenset({"pip", "setuptools", "wheel", "virtualenv", "uv", "poetry", "pipx", "build", "ninja", "cmake"})


def pip_python_mismatch(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """What pip installs lands in the Python that the image starts."""
    need_stages(dockerfile)
    wanted = [each for each in dockerfile.installs if each.manager in _MANAGERS and not each.constraint]
    found_any = list(_void_activations(dockerfile))
    yield from found_any
    packages = [each for each in wanted if each.sure and each.name not in _TOOLS and each.name != "python"]
    if found_any or (not packages and dockerfile.unread):
        return
    skip_if(not packages, "nothing gets installed into a Python")
    if dockerfile.started is not None:
        yield from _started_elsewhere(dockerfile, dockerfile.started, packages, facts)
    else:
        yield from _named_elsewhere(dockerfile, packages)


def _started_elsewhere(
    dockerfile: Dockerfile, started: StartCommand, packages: list[Install], facts: Facts
) -> Iterator[Finding]:
    """The command that the image starts runs a Python into which nothing was installed."""
    if any(_same(each, started) for each in packages) or _sees_others(dockerfile, started):
        return
    known = [each for each in packages if each.python and each.prefix]
    if not started.version and started.prefix in ("", _SYSTEM) and _PLAIN.match(started.command.words[0].text):
        yield from _past_the_environment(dockerfile, started, packages, facts)
        return
    if not started.version or not started.prefix or len(known) != len(packages):
        raise Unknown(_OPEN, worth_on(dockerfile.base))
    last = dockerfile.torch.install if dockerfile.torch is not None else None
    certain = last is not None and last.sure and bool(last.python) and bool(last.prefix)
    where = last if last is not None and certain else known[-1]
    span = started.command.span
    yield found(
        f"{where.name} goes into Python {where.python} of {where.prefix}, and the image starts Python "
        f"{started.version} of {started.prefix}, which has none of the packages",
        where.span,
        Severity.ERROR if certain else Severity.WARNING,
        f"install with the Python that is started: `python{started.version} -m pip install ...`"
        if started.prefix == where.prefix
        else f"install with `{started.prefix}/bin/python -m pip`, or start {where.prefix}/bin/python",
        {f"Python {started.version}": span.place, f"Python {where.python}": _by(where)},
    )


def _past_the_environment(
    dockerfile: Dockerfile, started: StartCommand, packages: list[Install], facts: Facts
) -> Iterator[Finding]:
    """What PATH finds as python is not known, but it is not the environment that holds the packages.

    That is certain where they are in a virtual environment which PATH does not name, and likely where they are in
    another version than the distribution's, which the plain name means.
    """
    path = dockerfile.target.env.get("PATH", "").split(":")
    last = packages[-1]
    name, span = started.command.words[0].text, started.command.span
    evidence = {f"{name} is started": span.place, f"{last.name} goes into {last.prefix}": _by(last)}
    prefixes = {each.prefix for each in packages}
    beside = all(each.startswith("/") and each != _SYSTEM and f"{each}/bin" not in path for each in prefixes)
    if beside and all(each.manager in ("pip", "uv") for each in packages):
        yield error(
            f"{last.name} goes into {last.prefix}, which PATH does not name, and the image starts {name}",
            last.span,
            evidence,
            f"set `ENV PATH={last.prefix}/bin:$PATH`, or start {last.prefix}/bin/python",
        )
        return
    base = dockerfile.base
    own = facts.os_python(base.os.value) if base.os.value and base.family in ("os", "nvidia") else ""
    versions = {each.python for each in packages}
    if prefixes != {_SYSTEM} or not own or "" in versions or own in versions or name != "python3":
        raise Unknown(_OPEN, worth_on(dockerfile.base))
    yield warning(
        f"{last.name} goes into Python {last.python}, and python3 is Python {own} on {base.os.value}",
        last.span,
        {**evidence, f"python3 is {own}": f"the python3 package of {base.os.value}"},
        f"start python{last.python}",
    )


def _same(install: Install, started: StartCommand) -> bool:
    """Whether a package goes where the started Python looks; of a base whose version nobody knows both are its one.

    A user's own folder belongs to the Python whose pip writes there, which a plain name finds for both.
    """
    if install.prefix.endswith("/.local") and _PLAIN.match(started.command.words[0].text):
        return install.python == started.version
    return bool(started.prefix) and install.python == started.version and install.prefix == started.prefix


def _sees_others(dockerfile: Dockerfile, started: StartCommand) -> bool:
    """Whether the started Python may find packages elsewhere: by PYTHONPATH, by an activation in front of it, or as a
    virtual environment that sees those of the Python it is made of."""
    if "PYTHONPATH" in dockerfile.target.env:
        return True
    entry = next((step for step in reversed(dockerfile.steps) if step.name == "ENTRYPOINT"), None)
    before = entry.commands if entry is not None and started.command not in entry.commands else ()
    if any(each.program not in _INITS for each in before):
        return True  # a script in front may activate what it likes; an init or NVIDIA's own script does not
    for step in dockerfile.steps:
        if started.command in step.commands:
            before = step.commands[: step.commands.index(started.command)]
            if any(conda.activated(each) is not None or each.program in ("source", ".", "export") for each in before):
                return True
    made = [place for _, command in dockerfile.commands if (place := pip.environment(command)) is not None]
    return any(each.system and each.path == started.prefix for each in made)


def _by(install: Install) -> str:
    place = install.span.place
    return f"{place}, `{install.target}`" if install.target else place


def _named_elsewhere(dockerfile: Dockerfile, packages: list[Install]) -> Iterator[Finding]:
    """``python`` was pointed at one version on purpose, and pip serves another one."""
    named: tuple[str, Span] | None = None
    for _, command in dockerfile.commands:
        if not command.sure:
            continue
        for link in system.links(command):
            numbered = _NUMBERED.match(posixpath.basename(link.target))
            if posixpath.basename(link.name) == "python" and numbered:
                named = numbered[1], command.span
    if named is None:
        return
    version, span = named
    plain = [each for each in packages if each.prefix == _SYSTEM and each.python]
    if not plain or len(plain) != len(packages) or any(each.python == version for each in plain):
        return
    first = plain[-1] if dockerfile.torch is None else dockerfile.torch.install or plain[-1]
    yield warning(
        f"python means Python {version} here, and {first.name} goes into Python {first.python or plain[-1].python}",
        first.span,
        {f"Python {version}": span.place, f"Python {first.python}": _by(first)},
        f"install with `python{version} -m pip install ...`",
    )


def _void_activations(dockerfile: Dockerfile) -> Iterator[Finding]:
    """``conda activate`` at the end of a RUN whose shell ends with it, before a pip that installs elsewhere."""
    runs = [step for step in dockerfile.steps if step.name == "RUN"]
    for number, step in enumerate(runs):
        last = next((command for command in reversed(step.commands) if command.sure), None)
        if last is None or not step.commands or last is not step.commands[-1]:
            continue
        name = conda.activated(last)
        if not name or name in ("base", "root") or "$" in name:
            continue
        missed = _outside(runs[number + 1 :], name)
        if missed is not None:
            yield warning(
                f"{name} is active until this RUN ends, and {missed.name} at line {missed.span.line} goes into "
                f"{missed.prefix}",
                last.span,
                {f"{missed.name} goes into {missed.prefix}": _by(missed)},
                f"install with `conda run -n {posixpath.basename(name)} pip install ...`, or activate in the same RUN",
            )


def _outside(steps: list[Step], name: str) -> Install | None:
    """The first package that a later step's plain pip puts outside the environment, None where there is none."""
    first: Install | None = None
    for step in steps:
        for command in step.commands:
            if conda.activated(command) is not None or not _plain_pip(command):
                continue
            for install in step.installs:
                if install.manager != "pip" or not install.prefix or not install.sure or install.name in _TOOLS:
                    continue
                if posixpath.basename(install.prefix) == posixpath.basename(name):
                    return None
                first = first or install
    return first


def _plain_pip(command: Command) -> bool:
    target, _ = pip.started(command)
    return bool(target) and "/" not in target
