"""Commands of pip and uv that end at once, whatever they were to install.

Source: what pip 23.0 and uv 0.4.30, 0.5.0, 0.6.0, 0.7.0 and 0.13.9 answered to each, 2026-11-30.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.dockerfile.uv import LACKING
from envkit.judging.checks._dockerfile import forgiven, reached
from envkit.judging.checks._outcomes import error, warning
from envkit.model import Finding
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Command, Dockerfile

_WITH_VALUE = pattern(
    r"-(?:r|c|e|i|f|t)\Z|--(?:requirements?|constraints?|editable|index-url|extra-index-url|find-links|target|prefix|root|"
    r"default-index|index|python-version|platform|extra|group)\Z"
)
_SILENT = pattern(r"(?:astral-sh/uv:|\buv==)0\.[0-5](?:\.|\b)")  # releases of uv that take an extra that is nowhere


def command_refused(dockerfile: Dockerfile) -> Iterator[Finding]:
    """An option that its value was forgotten of, and an extra or a group that the project does not define."""
    for _, step in reached(dockerfile):
        for at, command in enumerate(step.commands if step.name == "RUN" else ()):
            last = command.words[-1]
            if _WITH_VALUE.match(last.text) and _ends(command) and _installs(command) and not forgiven(step, at):
                yield error(
                    f"{last.text} is the last word of the command, without the value that it takes, so that "
                    f"{command.program} refuses the command and the build ends here",
                    last.span,
                    fix=f"write what {last.text} is to name behind it, or leave it out",
                )
        for one in step.installs:
            if one.manager != LACKING or not one.sure:
                continue
            kind, _, name = one.name.partition(" ")
            table = "project.optional-dependencies" if kind == "extra" else "dependency-groups"
            fix = f"define it in [{table}] of pyproject.toml, or name one that is there"
            if kind == "extra" and _SILENT.search(dockerfile.text):
                yield warning(f"the project defines no extra {name}, and this uv goes on without it", one.span, fix=fix)
            else:
                yield error(
                    f"the project defines no {kind} {name}, so that uv refuses the command and the build ends here",
                    one.span,
                    {f"no {name} in [{table}]": "pyproject.toml"},
                    fix,
                )


def _ends(command: Command) -> bool:
    """Whether nothing at all stands behind the last word, a variable that may be empty least of all."""
    last, whole = command.words[-1].span, command.span
    return command.sure and (last.end_line, last.end_column) == (whole.end_line, whole.end_column)


def _installs(command: Command) -> bool:
    """Whether it is pip's or uv's installation, under whichever name."""
    words = [word.text for word in command.words[:6]]
    pip = bool(re.match(r"pip[\d.]*\Z", command.program)) or "pip" in words[1:4]
    return ("install" in words and pip) or (command.program == "uv" and words[1:2] == ["sync"])
