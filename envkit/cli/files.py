"""Verbs that read what people write, and what is known: check, facts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import typer.core
import typer.main

from envkit.cli.app import app
from envkit.cli.ending import say
from envkit.cli.options import severity
from envkit.errors import UsageError

if TYPE_CHECKING:
    pass


@app.command()
def check(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH]...", help="Files or folders, by default this one; - is a Dockerfile on stdin."),
    ] = None,
    context: Annotated[
        Path | None, typer.Option("--context", help="The build context; by default each Dockerfile's own folder.")
    ] = None,
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", help='A GPU it must run on, "H100"; may be given again.')
    ] = None,
    driver: Annotated[str, typer.Option("--driver", help='The oldest driver it will meet, "550".')] = "",
    fix: Annotated[bool, typer.Option("--fix", help="Make the safe fixes, after their diff was printed.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print the diff of the safe fixes and change nothing.")] = False,
    pin: Annotated[
        bool, typer.Option("--pin", help="With --fix or --diff: the digests of bases, as registries give them today.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="One check; may be given again.")] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Findings that this file holds do not count.")
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option("--write-baseline", help="Write the findings of now into this file.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="An envkit.toml with a [check] table; by default the nearest.")
    ] = None,
    format: Annotated[
        str, typer.Option("--format", "-f", help="console, json, sarif, github, gitlab, junit or html.")
    ] = "console",
    fail_on: Annotated[
        str, typer.Option("--fail-on", help="Lowest severity that makes the exit code 1: note, warning, error.")
    ] = "",
    if_any: Annotated[
        bool, typer.Option("--if-any", help="Exit with 0 where nothing concerns envkit, as hooks want it.")
    ] = False,
    observed: Annotated[bool, typer.Option("--observed", help="Put what the files say into the JSON.")] = False,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks and exit.")] = False,
) -> None:
    """Judge anybody's Dockerfile, requirements, compose or Kubernetes file: what does not fit, and the fix."""
    import shutil

    from envkit.report import wants_color
    from envkit.static import check as verb

    if list_checks:
        sys.stdout.write(verb.listed())
        return
    if format not in verb.FORMATS:
        raise UsageError(f"there is no format `{format}` here", f"one of: {', '.join(verb.FORMATS)}")
    if pin and not (fix or diff):
        raise UsageError("--pin changes files", "add --diff to see what it would write, or --fix to write it")
    asked = verb.Asked(
        tuple(paths or (".",)),
        context,
        tuple(gpu or ()),
        driver,
        config,
        baseline,
        write_baseline,
        tuple(only or ()),
        if_any,
    )
    if write_baseline:
        from envkit.system.files import can_be_written

        can_be_written(write_baseline)
    settings = verb.config_of(asked)
    least = severity(fail_on or settings.fail_on or "error")
    found = verb.answer(asked, settings)
    if fix or diff:
        more = verb.pinned(found.judged, _digests, say) if pin else {}
        shown, texts = verb.mended(found.judged, more)
        if diff:
            sys.stdout.write(shown)
            raise typer.Exit(found.code(least, if_any))
        # A document on stdout stays one document.
        (sys.stdout if format == "console" else sys.stderr).write(shown)
        verb.write(found.judged, texts, say)
        if texts:
            found = verb.answer(asked, settings)
    for line in verb.remarks(found):
        say(f"envkit: {line}")
    if write_baseline:
        found, count = verb.taken_down(found, write_baseline)
        say(f"wrote {write_baseline}: {count} finding{'' if count == 1 else 's'}")
    width = shutil.get_terminal_size((100, 24)).columns
    color = wants_color(sys.stdout, os.environ)
    sys.stdout.write(verb.printed(found, format, least, observed=observed, color=color, width=width))
    raise typer.Exit(found.code(least, if_any))


def _digests() -> Callable[[str], str]:
    """What asks the registries, by way of the engine; raises Undecided where there is no engine."""
    from envkit.engine.docker import DockerEngine
    from envkit.system.files import cache_dir

    return DockerEngine(cache_dir()).digest


@app.command(name="facts")
def facts_about(
    topic: Annotated[str, typer.Argument(help="torch, gpu, cuda, driver, cudnn, image, os or tool.")],
    query: Annotated[str, typer.Argument(help='What about it: a release, "RTX 4090", a branch, ...')] = "",
    format: Annotated[str, typer.Option("--format", "-f", help="console or json.")] = "console",
) -> None:
    """Print what is known, each row with its source."""
    import json

    from envkit import facts
    from envkit.facts import show

    if format == "json":
        print(json.dumps(show.data(facts.load(), topic, query), indent=1))
        return
    if format != "console":
        raise UsageError(f"there is no format `{format}` here", "one of: console, json")
    for label, text in show.describe(facts.load(), topic, query):
        print(f"  {label}: {text}" if text else label)
