"""Whether pip may install into the Python that it is called for: a distribution's own refuses (PEP 668)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envkit.dockerfile import options, pip
from envkit.dockerfile.pythons import SYSTEM
from envkit.facts import Facts
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import forgiven, need_stages
from envkit.judging.checks._outcomes import error, skip_if
from envkit.model import Finding, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Command, Dockerfile, Install, Stage, Step

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
    skip_if(not asked, "the base's Python is not marked as externally managed, as far as is known")


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
        brings = step.copy.source_stage is not None or bool(step.copy.image)
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
