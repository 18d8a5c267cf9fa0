"""Variables that a RUN uses and nobody sets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from envkit.judging.checks._dockerfile import forgiven, need_stages, reached
from envkit.judging.checks._outcomes import found, skip_if
from envkit.model import Finding, Severity, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Command, Dockerfile, Setting, Step, Word

_USED = pattern(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
# What a shell, Docker or BuildKit gives without a word of the file.  Source: POSIX, "Shell Variables"; bash(1), "Shell
# Variables"; Dockerfile reference, "Predefined ARGs".
_GIVEN = pattern(
    r"(?i)(?:(?:https?|ftp|no|all)_proxy)|HOME|PATH|PWD|OLDPWD|SHELL|SHLVL|HOSTNAME|TERM|LANG|LC_\w+|USER|LOGNAME|_"
    r"|E?UID|PPID|IFS|OPT(?:ARG|IND|ERR)|REPLY|RANDOM|SECONDS|LINENO|BASH\w*|ZSH\w*|PIPESTATUS|FUNCNAME|GROUPS|HOSTTYPE"
    r"|MACHTYPE|OSTYPE|DIRSTACK|EPOCH\w+|COMP_\w+|PS\d|COLUMNS|LINES"
)
# What the images of a family set, and what they may.
_OF_CUDA = r"NV\w*|CUDA\w*|NCCL\w*|CUDNN\w*|L(?:D|IB)\w*"
_OF_BASE = {
    "os": pattern(r"LANG"),
    "python": pattern(r"PYTHON\w*|GPG\w*|PIP\w*|SETUP\w*"),
    "nvidia": pattern(_OF_CUDA),
    "pytorch": pattern(rf"PYTORCH\w*|CONDA\w*|{_OF_CUDA}"),
}
# What may set variables that the words do not show.
_SETS_OTHERS = pattern(r"(?:^|[\s;&|(])(?:\.|source|eval|read|mapfile|readarray|getopts|envsubst|xargs|set\s+-a)\s|<<")
_SPEAKS = frozenset({"[", "[[", "test", "echo", "printf", ":", "export", "set", "unset", "local", "declare", "cat"})
_VERSION = pattern(r".*(?:[=~!]=|===)\$\{?\w+\}?[\"']?")
_PIPS = pattern(r"pip[\d.]*|uv|python[\d.]*")


def variable_never_set(dockerfile: Dockerfile) -> Iterator[Finding]:
    """A variable that a RUN uses is set by then.  Source: Dockerfile reference, "Understand how ARG and FROM interact"
    and "Scope": an ARG before FROM, or of another stage, is not there in this one."""
    need_stages(dockerfile)
    asked = 0
    told: set[tuple[int, str]] = set()
    for index, step in reached(dockerfile):
        base = dockerfile.stages[index].base
        if step.name != "RUN" or step.exec_form or ("$" not in step.value and "<<" not in step.value):
            continue
        for at, command in enumerate(step.commands):
            for name, word in _open(command, step.span.path):
                asked += 1
                if (index, name) in told or not _nobody_sets(name, dockerfile, index, step, base):
                    continue
                told.add((index, name))
                yield _never(dockerfile, name, word, command, forgiven(step, at))
    skip_if(not asked, "each variable that a RUN uses is set before, or by whoever builds")


def _open(command: Command, path: str) -> Iterator[tuple[str, Word]]:
    """The variables of a command that have no value, outside of single quotes."""
    if not command.sure or command.program in _SPEAKS:
        return
    for word in command.words:
        if word.sure or "$" not in word.text or word.span.path != path:
            continue
        for match in _USED.finditer(word.text):
            name = match[1] or match[2]
            if name not in command.env and not re.search(rf"'[^']*\$\{{?{name}\b", word.raw):
                yield name, word


def _nobody_sets(name: str, dockerfile: Dockerfile, index: int, step: Step, base: Base) -> bool:
    """Whether neither the base, the shell, the stage nor the RUN itself may set a variable."""
    own = _OF_BASE.get(base.family)
    if own is None or not base.sure or _GIVEN.fullmatch(name) or own.fullmatch(name):
        return False
    if _SETS_OTHERS.search(step.value) or any(name in flag for flag in step.flags):
        return False
    if name in _set_by_runs(dockerfile.text):
        return False
    stage = dockerfile.steps_of(index)
    return not any(one.name == name for each in stage for one in each.settings) and not any(
        each.name == "SHELL" or (each.name == "RUN" and "/etc/environment" in each.value) for each in stage
    )


@lru_cache(maxsize=4)  # asked for each variable of a file
def _set_by_runs(text: str) -> frozenset[str]:
    """The variables that lines of a Dockerfile set which are no ARG or ENV: RUNs, with their here-documents."""
    may = (line for line in text.splitlines() if "=" in line or "for" in line)
    lines = (line for line in may if not _INSTRUCTION.match(line))
    return frozenset(name for line in lines for match in _SETS.finditer(line) if (name := match[match.lastindex or 0]))


_INSTRUCTION = pattern(r"(?i)\s*(?:ARG|ENV)\s")
_SETS = pattern(r"\b(\w+)\+?=|\bfor\s+(\w+)\b|=\s*\$\((\w+)\)")


def _never(dockerfile: Dockerfile, name: str, word: Word, command: Command, lenient: bool) -> Finding:
    elsewhere = _declared(dockerfile, name)
    ends = bool(_VERSION.fullmatch(word.raw)) and bool(_PIPS.fullmatch(command.program)) and not lenient
    evidence = {f"{word.raw} is used": word.span.place}
    if elsewhere is not None:
        evidence[f"ARG {name} is of another stage, or before every FROM"] = elsewhere.span.place
    so = ", so that pip refuses it and the build ends here" if ends else ", and the shell puts nothing in its place"
    return found(
        f"{name} is not set here{so}",
        word.span,
        Severity.ERROR if ends else Severity.WARNING,
        f"write `ARG {name}` after the FROM of this stage, which gives it the value from above"
        if elsewhere is not None
        else f"set it before, `ARG {name}=VALUE`, or write the value",
        evidence,
    )


def _declared(dockerfile: Dockerfile, name: str) -> Setting | None:
    """Where another stage, or a line before the first FROM, sets the variable."""
    for stage in dockerfile.stages:
        for step in stage.steps:
            for one in step.settings:
                if one.name == name and one.kind == "ARG":
                    return one
    lines = dockerfile.text.splitlines()
    for number, line in enumerate(lines, 1):
        if re.match(rf"(?i)\s*ARG\s+{name}\b", line):
            return Setting("ARG", name, None, Span(dockerfile.path, number, 1))
        if re.match(r"(?i)\s*FROM\s", line):
            break
    return None
