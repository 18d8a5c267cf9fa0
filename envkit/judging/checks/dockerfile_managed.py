"""Whether pip may install into the Python that it is called for: a distribution's own refuses (PEP 668)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envkit.dockerfile import options, pip, system
from envkit.dockerfile.pythons import SYSTEM
from envkit.facts import Facts
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import forgiven, need_stages
from envkit.judging.checks._outcomes import error, skip_if
from envkit.model import Finding, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Command, Dockerfile, Install, Stage, Step
from envkit.versions import Torch

_BARE = ("os", "nvidia")  # families of bases whose one Python is the distribution's
# Other images on a plain Ubuntu, whose Python is the distribution's where apt installs one.
_SYSTEMS_PYTHON = pattern(r"(?:osrf/)?ros|nvcr\.io/nvidia/nvhpc")
# The first release of each whose Python is marked: Debian, "python3.11 and pip3"; Ubuntu has it from Debian; Alpine,
# alpinelinux/docker-alpine issue 361 and pypa/pip issue 12429.
_MARKED_SINCE = {"ubuntu": 23, "debian": 12}
_ALPINE_SINCE = (3, 19)
_ANY = "3"  # of a distribution whose one Python the facts do not number
_ELSEWHERE = frozenset({"--break-system-packages", "--target", "--prefix", "--root", "--dry-run", "--python"})
_LIFTED = pattern(r"EXTERNALLY-MANAGED|break[-_]system[-_]packages", re.IGNORECASE)
# What brings a Python of its own, or a file of settings, in ways that the text does not show.
_OPAQUE = pattern(r"deadsnakes|pyenv|Python-3|conda|mamba|pip\.conf|get-pip|virtualenv|PIP_CONFIG_FILE")


def pip_externally_managed(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """pip and uv are not called for a distribution's Python that refuses them.  Source: PEP 668."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()  # stages that are FROM one another share their steps
    for index in dockerfile.reachable:
        stage = dockerfile.stages[index]
        own = _marked(stage, facts)
        if not own:
            continue
        asked += 1
        refused = next(_refused(dockerfile, stage, own), None)  # the build ends at the first one
        if refused is not None and refused[1].span not in told:
            step, command, name = refused
            told.add(command.span)
            yield error(
                f"{name} refuses to install into Python {own} of {_name(stage)}, which is externally managed, "
                "so that the build ends here",
                command.words[0].span,
                {f"{_name(stage)} marks its Python": f"{stage.base.span.place}, {stage.base.os.via or 'by its tag'}",
                 "it goes into the distribution's Python": step.span.place},
                "make an environment, `python3 -m venv /opt/venv` with `ENV PATH=/opt/venv/bin:$PATH`, or add "
                "--break-system-packages",
            )  # fmt: skip
    for index in dockerfile.reachable:
        stage = dockerfile.stages[index]
        called = _without_environment(dockerfile, stage, facts)
        asked += called is not None
        if called is not None and called.span not in told:
            told.add(called.span)
            yield error(
                "`uv pip` installs into a virtual environment unless it is told otherwise, and none was made, so that "
                "the build ends here",
                called.words[0].span,
                {"uv finds no virtual environment": "uv documentation, Using Python environments; astral-sh/uv issue "
                 "15923: `error: No virtual environment found`"},
                "add --system, or write before it `RUN uv venv /opt/venv` and "
                "`ENV VIRTUAL_ENV=/opt/venv PATH=/opt/venv/bin:$PATH`",
            )  # fmt: skip
    skip_if(not asked, "the base's Python is not marked as externally managed, as far as is known")


_ENDED_CONDA = "pytorch-image-conda"
# What may make an environment, or tell uv of one or of the system's Python.
_ENVIRONMENT = pattern(
    r"venv|virtualenv|conda|mamba|activate|pixi|poetry|UV_(?:SYSTEM_PYTHON|PYTHON|CONFIG_FILE|VENV)|VIRTUAL_ENV|uv\.toml"
    r"|\buv\s+(?:sync|run|init|add|lock)"
)
_UV_PLACED = pattern(r"--(?:system|python|target|prefix|break-system-packages|config-file|dry-run)(?:=.*)?|-p.*")


def _without_environment(dockerfile: Dockerfile, stage: Stage, facts: Facts) -> Command | None:
    """The first `uv pip install` that surely finds no virtual environment, None where there may be one.

    A project's own pyproject.toml may say that uv is to take the system's Python, and a folder may bring .venv.
    PyTorch's images of late hold an environment in place of conda.
    """
    base, release = stage.base, stack.said(stage.base.torch)
    if base.family == "pytorch" and (not release or Torch(release) >= Torch(facts.milestone(_ENDED_CONDA).release)):
        return None
    if base.family not in ("os", "nvidia", "python", "pytorch") or not base.sure or base.digest:
        return None
    for step in dockerfile.steps_of(stage.index):
        if step.copy is not None:
            brought = step.copy.foreign
            programs = re.search(r"/bin(?:/(?:uvx?)?)?$|/uvx?$", step.copy.target)
            lists = step.copy.sources and all(re.search(r"\.(?:txt|in|sh)$", one) for one in step.copy.sources)
            if not (programs if brought else lists):
                return None
        if step.name == "RUN" and (step.unread and any(one.system for one in step.unread)):
            return None
        if _ENVIRONMENT.search(step.value) or "--mount=type=bind" in " ".join(step.flags):
            return None
        for at, command in enumerate(step.commands if step.name == "RUN" else ()):
            script = command.program in system.SHELLS and "astral.sh/uv/" not in step.value
            if script or command.program in (".", "source"):
                return None
            if command.program != "uv" or command.args[:2] not in (("pip", "install"), ("pip", "sync")):
                continue
            told = any(_UV_PLACED.fullmatch(word) for word in command.args) or any(
                name in command.env for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "UV_PYTHON", "UV_SYSTEM_PYTHON")
            )
            if told or "UV_CONFIG_FILE" in command.env or not command.sure or forgiven(step, at):
                return None
            return command if all(word.sure for word in command.words) else None
    return None


def _name(stage: Stage) -> str:
    return stage.base.os.value or stage.base.reference


def _marked(stage: Stage, facts: Facts) -> str:
    """The version of the distribution's Python where it is marked for sure, else ""."""
    base, system = stage.base, stack.said(stage.base.os)
    if base.family == "os" and base.repository.rpartition("/")[2] == "alpine" and base.sure and not base.digest:
        number = re.fullmatch(r"alpine(\d+)\.(\d+)", system)
        moving = base.tag in ("", "latest", "edge", _ANY)
        return _ANY if moving or (number and (int(number[1]), int(number[2])) >= _ALPINE_SINCE) else ""
    found = re.fullmatch(r"(ubuntu|debian)(\d+)(?:\.\d+)?", system)
    plain = base.family in _BARE or _SYSTEMS_PYTHON.fullmatch(base.repository)
    if found is None or int(found[2]) < _MARKED_SINCE[found[1]] or not plain or not base.sure:
        return ""
    return "" if base.digest else facts.os_python(system)


def _refused(dockerfile: Dockerfile, stage: Stage, own: str) -> Iterator[tuple[Step, Command, str]]:
    """The commands that surely install into the marked Python, with their name."""
    for step in dockerfile.steps_of(stage.index):
        if _changes(step):
            return
        for at, command in enumerate(step.commands if step.name == "RUN" else ()):
            name = _installs(command, step, own)
            if name and command.sure and not forgiven(step, at) and not _allowed(command.env):
                yield step, command, name


def _changes(step: Step) -> bool:
    """Whether a step may take the mark away, or bring a Python or settings of pip's that nobody sees."""
    if step.copy is not None:
        brings = step.copy.foreign
        return (brings and not step.copy.target.startswith(("/app", "/bin", "/usr/local/bin"))) or bool(
            re.search(r"pip\.conf|\.pip\b|/etc\b", step.copy.target)
        )
    if step.name == "ENV":
        return any(one.name == "PIP_CONFIG_FILE" for one in step.settings)
    return step.name == "RUN" and bool(_LIFTED.search(step.value) or _OPAQUE.search(step.value))


def _allowed(env: Mapping[str, str]) -> bool:
    return any(options.is_true(env.get(f"{tool}_BREAK_SYSTEM_PACKAGES", "")) for tool in ("PIP", "UV"))


def _installs(command: Command, step: Step, own: str) -> str:
    """The name of the installer that this command calls for the distribution's Python, "" for others."""
    target, words = pip.started(command)
    name = "pip"
    if not target and command.program == "uv" and command.args[:2] == ("pip", "install"):
        name, words, target = "uv", command.words[2:], "uv:--system" if "--system" in command.args else ""
    if not target or "$" in target:
        return ""
    given = options.read(words, pip.GRAMMAR)
    if not given.rest or given.rest[0].text != "install" or given.names() & _ELSEWHERE:
        return ""
    placed = [one for one in step.installs if one.target == target and not one.constraint]
    return name if placed and all(_system(one, own) for one in placed) else ""


def _system(one: Install, own: str) -> bool:
    return one.prefix == SYSTEM and (one.python == own or (own == _ANY and not one.python))
