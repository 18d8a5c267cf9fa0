"""What is asked of an image's own start: it reaches the job's Python, and what it changes on the way."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator

from envkit.judging.checks._outcomes import error, note, warning
from envkit.model import Finding, Skip
from envkit.records import dataclass
from envkit.subjects.image import Image, StartReached, Variable

_ENTRY, _PYTHON = "the entry point", "Python's own start"  # the entry point stands for all that runs before the Python
_ENDS = {
    StartReached.FAILED: "does not reach the job's Python: ",
    StartReached.HUNG: "does not reach the job's Python ",
    StartReached.DROPPED: "ends without an error and never starts the command that it is given",
}


@dataclass(frozen=True, slots=True)
class Change:
    """A variable that ``by`` sets, changes or takes away before the job's program begins; None is not set."""

    name: str
    before: str | None
    after: str | None
    by: str


def _values(variables: tuple[Variable, ...], path: str) -> dict[str, str]:
    return {**({"PATH": path} if path else {}), **{one.name: one.value for one in variables}}


def environment_changes(image: Image) -> Iterator[Change]:
    """What the entry point, a shell before the Python, and Python's own start change of the variables that steer."""
    start, process = image.start.value, image.process.value
    if process is None:
        return
    stages = [(_PYTHON, _values(process.variables, ""), _values(image.variables.value or process.variables, ""))]
    if start is not None and start.reached is StartReached.REACHED:
        stages.insert(0, (_ENTRY, _values(start.variables, start.path), _values(process.variables, process.path)))
    for by, before, after in stages:
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                yield Change(name, before.get(name), after.get(name), by)


def moves(image: Image) -> Iterator[tuple[str, str, str, str]]:
    """The user, the working folder and the Python where they are not those that the image names: by whom they are
    changed, which of them, from what, to what."""
    start, process = image.start.value, image.process.value
    if start is None or process is None or start.reached is not StartReached.REACHED:
        return
    by, named = before_python(image), (start.user or "root").partition(":")[0]
    if named not in (process.user, str(process.uid)):
        yield by, "the user", named, process.user or str(process.uid)
    if process.folder != (posixpath.normpath(start.workdir) if start.workdir else "/"):
        yield by, "the working folder", start.workdir or "/", process.folder


def before_python(image: Image) -> str:
    """What runs between the container's begin and the Python, in the words of a person."""
    start = image.start.value
    return ", ".join(start.through) if start is not None and start.through else _ENTRY


def image_start_fails(image: Image) -> Iterator[Finding]:
    """The image's entry point and command reach the Python of the job."""
    if image.start.is_unsupported:
        raise Skip("it was examined past its own start, or has none")
    start = image.start.need("how the image starts its job")
    if start.reached is not StartReached.REACHED:
        job = shlex.join(start.job)
        said = f": {start.how}" if start.reached is StartReached.DROPPED and start.how else start.how
        if start.reached is StartReached.DROPPED:
            fix = 'end the entry point with `exec "$@"`; if it is itself the job, name its Python with --command'
        else:
            fix = f"run `docker run --rm IMAGE {start.python} -c pass` and correct ENTRYPOINT, CMD, USER or WORKDIR"
        yield error(f"`{job}` {_ENDS[start.reached]}{said}", job, {job: image.start.via}, fix)


def image_workdir_closed(image: Image) -> Iterator[Finding]:
    """The user of the job may read the working folder that it starts in."""
    if image.process.is_unsupported:
        raise Skip("it was observed by a version that did not look at the process")
    process = image.process.need("the examined process")
    if process.folder_closed is None:
        raise Skip("it was observed by a version that did not ask")
    if process.folder_closed:
        who = f"{process.user} (uid {process.uid})" if process.user else f"uid {process.uid}"
        yield error(
            f"{who} may not read the working folder {process.folder}",
            process.folder,
            {process.folder: image.process.via},
            "give it to the user (COPY --chown, RUN chown), or choose another WORKDIR or USER",
        )


def image_python_start_error(image: Image) -> Iterator[Finding]:
    """Python's own start ends without an error: its sitecustomize and the lines of its .pth files run."""
    if image.process.is_unsupported:
        raise Skip("it was observed by a version that did not look at the process")
    process = image.process.need("the examined process")
    if process.start_errors is None:
        raise Skip("it was observed by a version that did not ask, or another start of this Python did not end")
    for line in process.start_errors:
        yield warning(
            f"every start of {process.executable} goes on after an error: {line}",
            process.executable,
            {line: image.process.via},
            "correct that file or remove it: what it was there for does not happen",
        )


def image_entrypoint_changes_environment(image: Image) -> Iterator[Finding]:
    """The entry point changes no variable that controls the linker, CUDA or a framework."""
    yield from _changed(image, _ENTRY)


def image_python_start_changes_environment(image: Image) -> Iterator[Finding]:
    """No sitecustomize and no .pth file changes a variable that controls the linker, CUDA or a framework."""
    yield from _changed(image, _PYTHON)


def _changed(image: Image, by: str) -> Iterator[Finding]:
    if by == _ENTRY and image.start.is_unsupported:
        raise Skip("it was examined past its own start, or has none")
    if image.process.is_unsupported:
        raise Skip("it was observed by a version that did not look at the process")
    process = image.process.need("the examined process")
    image.variables.need("the environment variables")
    if by == _ENTRY and image.start.need("how the image starts its job").reached is not StartReached.REACHED:
        raise Skip("its entry point was not passed")
    files = dict.fromkeys(process.at_start, image.process.via) if by == _PYTHON else {}
    for change in environment_changes(image):
        if change.by != by or change.name == "PATH":
            continue
        before, after = ("not set" if value is None else f"`{value}`" for value in (change.before, change.after))
        yield (note if by == _ENTRY else warning)(
            f"{before_python(image) if by == _ENTRY else by} changes {change.name} from {before} to {after}",
            change.name,
            {f"{change.name}={change.after or ''}": image.process.via, **files},
            "set it with ENV in the Dockerfile, where everybody sees it, or leave it alone",
        )
