"""Options that several verbs have, and what becomes of their words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
import typer.main

from envkit.cli.ending import say
from envkit.errors import UsageError

if TYPE_CHECKING:
    from envkit.model import Severity
    from envkit.plan.spec import Flavor


SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="envkit.toml, or the directory that holds it.")]
EngineName = Annotated[str, typer.Option("--engine", help="docker, local (a private virtual environment) or auto.")]
Format = Annotated[str, typer.Option("--format", "-f", help="console, json, junit or html.")]
FailOn = Annotated[str, typer.Option("--fail-on", help="Lowest severity that makes the exit code 1.")]
WithObserved = Annotated[bool, typer.Option("--observed", help="Put all that was observed into the JSON.")]
Gpus = Annotated[str, typer.Option("--gpus", help="auto, all, none, or indexes with commas.")]
ExitStyle = Annotated[str, typer.Option("--exit-style", help="envkit, nagios or slurm: whose exit codes.")]
Save = Annotated[Path | None, typer.Option("--save", help="Write what was observed to this file, for `envkit judge`.")]
Target = Annotated[
    str | None, typer.Argument(metavar="IMAGE", help="An image; without one, the Python envkit runs under.")
]
RequireGpu = Annotated[
    bool, typer.Option("--require-gpu", help="Undecided (exit 3) unless a GPU had a part in the verdict.")
]
Frameworks = Annotated[
    list[str] | None,
    typer.Option("--framework", help="In place of torch: jax, tensorflow, ... or none; may be given again."),
]
PythonPath = Annotated[Path | None, typer.Option("--python", help="Another Python of this machine.")]
Tag = Annotated[str, typer.Option("--tag", "-t", help="The image's name; by default envkit/NAME:latest.")]
FlavorName = Annotated[str, typer.Option("--flavor", help="runtime, devel or debug; by default the spec's.")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Build every layer anew.")]
RefreshOs = Annotated[
    bool, typer.Option("--refresh-os", help="Take today's base and Debian packages into the lock; wheels stay.")
]
AllowUnpinned = Annotated[
    list[str] | None,
    typer.Option("--allow-unpinned", help="os or base: lock though it cannot be pinned; may be given again."),
]


def severity(word: str) -> Severity:
    from envkit.model import Severity

    if word.upper() not in Severity.__members__:
        raise UsageError(f"there is no severity `{word}`", "one of: note, warning, error")
    return Severity[word.upper()]


def flavor_of(word: str) -> Flavor | None:
    """The flavor asked for, None where the spec's is meant; raises UsageError for one that does not exist."""
    from envkit.plan.spec import Flavor

    known = [flavor.value for flavor in Flavor]
    if word and word not in known:
        raise UsageError(f"there is no flavor `{word}`", f"one of: {', '.join(known)}")
    return Flavor(word) if word else None


def open_parts(words: list[str] | None) -> tuple[str, ...]:
    """The parts of a lock that may stay open; raises UsageError for what is no part."""
    from envkit.plan.lockfile import PARTS

    for word in words or ():
        if word not in PARTS:
            raise UsageError(f"`{word}` is nothing that a lock may leave open", f"one of: {', '.join(PARTS)}")
    return tuple(words or ())


def consistent(required: bool, gpus: str) -> None:
    """Refuses what contradicts itself, before any work."""
    if required and gpus == "none":
        raise UsageError("--require-gpu and --gpus none were given together", "take one of them")


def place_of(image: str | None, python: Path | None, engine: str, gpus: str) -> Any:
    from envkit.engine.choice import connect, known_engine
    from envkit.runner import runner

    if image and python:
        raise UsageError("an image and --python were both given", "name one of them")
    shown = runner.default_gpus(gpus)
    known_engine(engine)
    if image:
        connected = connect(engine, say)
        runner.are_here(shown, connected)
        return runner.InEngine(connected, image, "", shown)
    runner.are_here(shown)
    return runner.Here(runner.interpreter(python), shown) if python else runner.this_python(shown)


def printable(format: str, fail_on: str, *files: Path | None) -> None:
    """Refuses, before the work rather than after it, what its result could not be printed or written by."""
    from envkit.report import FORMATS
    from envkit.system.files import can_be_written

    severity(fail_on)
    if format not in FORMATS:
        raise UsageError(f"there is no format `{format}`", f"one of: {', '.join(FORMATS)}")
    for file in files:
        if file is not None:
            can_be_written(file)


def save_subject(path: Path | None, kind: str, subject: object) -> None:
    from envkit.subjects import codec, saved
    from envkit.system import files

    if path is not None:
        files.write(path, saved.text(kind, codec.to_plain(subject)), 0o600)
        say(f"wrote {path}")
