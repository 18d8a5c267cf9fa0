"""What the checks of Dockerfiles share."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ParamSpec, TypeVar

from envkit.dockerfile.files import MISSING, NOWHERE, FromOthers
from envkit.judging.checks._outcomes import skip_if
from envkit.model import Severity, Skip, Span, Unknown
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Command, Dockerfile, Install, Step, Torch, Unread

Asked = ParamSpec("Asked")
Found = TypeVar("Found")


def once(function: Callable[Asked, Found]) -> Callable[Asked, Found]:
    """The function of a Dockerfile, which works its answer out once for the one that it is asked of last: several
    checks ask it, and some of them for each install.  Its arguments are compared by identity."""
    last: list[tuple[tuple[object, ...], Found]] = []

    def answered(*args: Asked.args, **named: Asked.kwargs) -> Found:
        if not last or any(old is not new for old, new in zip(last[0][0], args, strict=True)):
            last[:] = [(args, function(*args, **named))]
        return last[0][1]

    return answered


def need_stages(dockerfile: Dockerfile) -> None:
    """Raises Skip where the file has no stage, so that nothing gets built."""
    skip_if(not dockerfile.stages, "the file has no FROM")


def unknown_if_unread(unread: Sequence[Unread], so: str = "", at_most: Severity = Severity.ERROR) -> None:
    """Raises Unknown where a file was not read; ``so`` says what is open then, ``at_most`` what its answer is worth."""
    if unread:
        # Without the file the build ends where it is named; where something makes it before, the check reads it then.
        worst = min(at_most, Severity.WARNING) if unread[0].why == MISSING else at_most
        raise Unknown(f"{unread[0].path} was not read ({unread[0].why}){so}", worst, unread[0].path)


MOVING = pattern(r"(?:^|[-_.])(?:latest|rolling|edge|nightly|main|master|dev)(?:$|[-_.])")

JETSON = pattern(r"l4t|jetson|dustynv")  # in the name of a base: the driver is the board's, and builds see the GPU


def worth_on(base: Base) -> Severity:
    """What a doubt is worth whose answer shows in the build: whether a package is to be had, a compiler is there.

    Under a name that stays, such as a release of somebody's own image, the first build gave the answer and each later
    one gives the same; a name that moves, or that an argument gives, may bring another base tomorrow.
    """
    fixed = bool(base.digest) or (bool(re.search(r"[0-9]", base.tag)) and not MOVING.search(base.tag))
    return Severity.WARNING if fixed and base.sure else Severity.ERROR


def own(unread: Sequence[Unread]) -> list[Unread]:
    """The files that the project itself holds or makes, without those of a clone, a download or the base.

    What nothing puts at an absolute path lies in the base; a name alone may be one of the project.
    """
    return [one for one in unread if not (isinstance(one.why, FromOthers) or _in_base(one))]


def _in_base(unread: Unread) -> bool:
    return unread.why == NOWHERE and unread.path.startswith("/")


_PLAIN = ("os", "nvidia", "python", "pytorch", "conda")  # bases that hold nobody's project


def resolved_anew(dockerfile: Dockerfile, unread: Unread) -> bool:
    """Whether it is a lock of poetry's that nothing brings into the image, so that poetry takes the newest releases."""
    lock = posixpath.basename(unread.path) == "poetry.lock" and unread.why == NOWHERE
    return lock and all(dockerfile.stages[index].base.family in _PLAIN for index in dockerfile.reachable)


def need_torch(dockerfile: Dockerfile) -> Torch:
    """The torch that stays; raises Skip where none gets installed, Unknown where an unread file may do it."""
    need_stages(dockerfile)
    if dockerfile.torch is not None:
        return dockerfile.torch
    unknown_if_unread(dockerfile.unread, ", so what it installs is not known")
    raise Skip("nothing here installs torch")


def reached(dockerfile: Dockerfile) -> Iterator[tuple[int, Step]]:
    """The steps of every stage that the default build makes, with the index of their stage."""
    for index in dockerfile.reachable:
        for step in dockerfile.stages[index].steps:
            yield index, step


def reached_commands(dockerfile: Dockerfile) -> Iterator[tuple[int, Step, Command]]:
    """Every command that the default build runs, with its stage and step."""
    for index, step in reached(dockerfile):
        if step.name == "RUN":
            for command in step.commands:
                yield index, step, command


def inside(outer: Span, inner: Span) -> bool:
    """Whether one stretch of a file lies in another."""
    if outer.path != inner.path:
        return False
    end = (outer.end_line or outer.line, outer.end_column or 1 << 30)
    return (outer.line, outer.column) <= (inner.line, inner.column) < end


def installs_of(step: Step) -> Iterator[tuple[Command, list[Install]]]:
    """Each command of a step, with the installs that stand in its own text, not those of a list that it names."""
    if not step.installs:
        yield from ((command, []) for command in step.commands)
        return
    by_line: dict[int, list[Install]] = {}
    for install in step.installs:
        by_line.setdefault(install.span.line, []).append(install)
    for command in step.commands:
        lines = range(command.span.line, (command.span.end_line or command.span.line) + 1)
        yield command, [one for line in lines for one in by_line.get(line, ()) if inside(command.span, one.span)]


def forgiven(step: Step, at: int) -> bool:
    """Whether the build goes on where the step's command number ``at`` fails: ``||`` follows, or it is a condition."""
    return any(each.after in _GOES_ON for each in step.commands[at : at + 2])


_GOES_ON = frozenset({"||", "|", "|&", "&"})


def optional(step: Step) -> set[Span]:
    """Where the installs of a step stand without which the build goes on."""
    if not step.installs or not any(each.after in _GOES_ON for each in step.commands):
        return set()
    return {one.span for at, (_, own) in enumerate(installs_of(step)) if forgiven(step, at) for one in own}


def reached_installs(dockerfile: Dockerfile) -> Iterator[tuple[int, Step, Install]]:
    """Every install that the default build does, with its stage and step."""
    for index, step in reached(dockerfile):
        for install in step.installs:
            yield index, step, install


def apart(prefix: str) -> bool:
    """Whether a folder is an environment of its own, beside what the base has."""
    return bool(re.search(r"/(?:\.?v?env|\.venv|venvs?|envs)(?:/|$)", prefix))


Commands = Mapping[int, int | None]  # by the number of a step, the place of a command in it


@once
def commands_of(dockerfile: Dockerfile) -> Mapping[Span, Commands]:
    """By the place of an install, the steps that do it, each with its command's place: the one around it, or the only
    one that names its file; None where that is not sure."""
    made: dict[Span, dict[int, int | None]] = {}
    for number, step in enumerate(dockerfile.steps):
        around: dict[Span, list[int]] = {}
        for at, (_, own) in enumerate(installs_of(step)):
            for one in own:
                around.setdefault(one.span, []).append(at)
        for span in dict.fromkeys(one.span for one in step.installs):
            places = list(dict.fromkeys(around.get(span, ()))) or _naming(step, posixpath.basename(span.path))
            made.setdefault(span, {})[number] = places[0] if len(places) == 1 else None
    return made


def _naming(step: Step, file: str) -> list[int]:
    """The places of the commands that name a file."""
    return [at for at, each in enumerate(step.commands) if any(word.endswith(file) for word in each.args)]


def together(mine: Commands, theirs: Commands) -> bool:
    """Whether one command installs both, so that its resolver has to fit them."""
    step = min(mine.keys() & theirs.keys(), default=None)
    return step is not None and mine[step] is not None and mine[step] == theirs[step]
