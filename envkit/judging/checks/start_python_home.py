"""PYTHONHOME of a start: the folder in which a Python looks for its own library."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envkit.dockerfile import pip
from envkit.judging.checks._outcomes import error, skip_if, unknown_if
from envkit.model import Finding, Span
from envkit.subjects.dockerfile import Base, Dockerfile, Step
from envkit.subjects.start import JobStart

_NAME = "PYTHONHOME"
_PYTHON = re.compile(r"(?:python|pip|torchrun|accelerate|uvicorn|gunicorn|jupyter|vllm|deepspeed|streamlit)")
# Where the images of a family have a Python, as far as their publishers say.
_HOMES = {"os": ("/usr",), "nvidia": ("/usr",), "python": ("/usr/local", "/usr"), "conda": ("/opt/conda", "/usr"),
          "pytorch": ("/opt/conda", "/usr", "/usr/local")}  # fmt: skip

# What may unpack or install a Python into any folder, in ways that the text does not show.
_FETCHES = frozenset(
    {"curl", "wget", "tar", "unzip", "make", "cmake", "conda", "mamba", "micromamba", "uv", "pyenv", "git", "ln", "mv",
     "cp", "sh", "bash"}
)  # fmt: skip


def start_python_home_missing(start: JobStart) -> Iterator[Finding]:
    """PYTHONHOME leads to a Python.  Source: Python documentation, PYTHONHOME: the standard library is searched in
    lib/pythonX.Y below it, and without that no Python starts."""
    program = start.job[0].value if start.job else ""
    skip_if(not _PYTHON.match(posixpath.basename(program)), "no Python is started")
    given = start.environment.get(_NAME)
    skip_if(_NAME in start.environment and given is None, "its value comes from elsewhere")
    setting = _setting(start.dockerfile) if start.dockerfile is not None else None
    skip_if(given is None and setting is None, "PYTHONHOME is not set, as far as the files say")
    value, span = (given.value, given.span) if given is not None else setting or ("", start.span)
    skip_if(not value, "PYTHONHOME is set to nothing")
    unknown_if(start.dockerfile is None, f"the image's files are not known: {start.why}")
    assert start.dockerfile is not None
    home = posixpath.normpath(value.partition(":")[0])  # prefix:exec_prefix
    made = _environment(start.dockerfile, home)
    if made is not None:
        yield error(
            f"PYTHONHOME leads to the virtual environment {home}, which has no standard library, so that none starts",
            span,
            {f"{home} is made": made.place},
            f"leave PYTHONHOME unset and start {home}/bin/python",
        )
    elif _nothing_there(start.dockerfile, home):
        yield error(
            f"PYTHONHOME leads to {home}, where the image has no Python, so that none starts",
            span,
            {f"nothing puts files into {home}": start.dockerfile.base.reference},
            "leave PYTHONHOME unset: a Python finds its own library",
        )


def _setting(dockerfile: Dockerfile) -> tuple[str, Span] | None:
    """The value and the place of the last ENV; None where there is none, or only the build knows its value."""
    for step in reversed(dockerfile.steps):
        for setting in reversed(step.settings):
            if setting.kind == "ENV" and setting.name == _NAME:
                return (setting.value, setting.span) if setting.sure and setting.value is not None else None
    return None


def _environment(dockerfile: Dockerfile, home: str) -> Span | None:
    """Where a virtual environment of that folder is made."""
    for step, command in dockerfile.commands:
        made = pip.environment(command)
        if made is not None and command.sure and _at(made.path, step) == home:
            return command.span
        by_uv = command.program == "uv" and command.args[:1] == ("venv",) and command.sure
        if by_uv and any(_at(word, step) == home for word in command.args[1:] if not word.startswith("-")):
            return command.span
    return None


def _at(path: str, step: Step) -> str:
    return posixpath.normpath(posixpath.join(step.workdir or "/", path))


def _nothing_there(dockerfile: Dockerfile, home: str) -> bool:
    """Whether the base is known to have no Python at ``home`` and no step can have put one there."""
    base: Base = dockerfile.base
    homes = _HOMES.get(base.family)
    if homes is None or not base.sure or home in homes:
        return False
    top = "/".join(home.split("/")[:2])
    for step in dockerfile.steps:
        if step.copy is not None and (
            f"{home}/".startswith(posixpath.normpath(step.copy.target) + "/") or step.copy.target in ("/", "")
        ):
            return False
        if step.name == "RUN" and (top in step.value or any(command.program in _FETCHES for command in step.commands)):
            return False
    return True
