"""Verbs that read what people write, and what is known: check, facts."""

from __future__ import annotations

import dataclasses
import os
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from envkit.cli import options
from envkit.cli.app import WRITTEN, app
from envkit.cli.ending import say, warn
from envkit.cli.options import CHECK_FORMATS, DATA_FORMATS, NAME_OR_FILE, OUTPUT, SEVERITIES, TOPICS
from envkit.errors import UsageError
from envkit.system.terminal import columns, wants_color

_EXAMPLES = 6  # names shown of each topic where all topics are listed
_output = partial(Option, rich_help_panel=OUTPUT)


@app.command(rich_help_panel=WRITTEN)
def check(
    paths: Annotated[
        list[str] | None,
        Argument(
            metavar="[PATH]...",
            click_type=NAME_OR_FILE,
            help="Files or folders, by default the current folder; - is a Dockerfile on stdin.",
        ),
    ] = None,
    context: Annotated[
        Path | None, Option("--context", help="The build context; by default each Dockerfile's own folder.")
    ] = None,
    start: options.StartFile = "",
    gpu: Annotated[
        list[str] | None,
        Option("--gpu", metavar="GPU", help='A GPU it must run on, such as "H100"; may be given again.'),
    ] = None,
    driver: Annotated[
        str, Option("--driver", metavar="VERSION", help='The oldest driver it must run on, such as "550".')
    ] = "",
    host: Annotated[
        Path | None,
        Option("--host", help="The machine it must run on, as `doctor --save` wrote it: its GPUs and its driver."),
    ] = None,
    fleet: Annotated[
        Path | None,
        Option("--fleet", metavar="TOML", help="The machines it must run on: a file with [[machine]] tables."),
    ] = None,
    fix: Annotated[bool, Option("--fix", help="Print the diff of the safe fixes and apply them.")] = False,
    diff: Annotated[bool, Option("--diff", help="Print the diff of the safe fixes and change nothing.")] = False,
    pin: Annotated[
        bool,
        Option("--pin", help="With --fix or --diff: add the current digests of base images, from their registries."),
    ] = False,
    stdin: Annotated[bool, Option("--stdin", help="Read one file from stdin, as an editor gives it.")] = False,
    stdin_filename: Annotated[
        str,
        Option("--stdin-filename", metavar="NAME", help="Where the file on stdin belongs; its neighbours are read."),
    ] = "",
    since: Annotated[
        str, Option("--since", metavar="COMMIT", help="Only files that differ from that branch, tag or commit.")
    ] = "",
    resolve: Annotated[
        bool,
        Option("--resolve", help="Ask the package index what each install of pip and uv does to torch."),
    ] = False,
    resolve_budget: Annotated[
        float,
        Option("--resolve-budget", metavar="SECONDS", min=1, help="With --resolve: the most time for each file."),
    ] = 120.0,
    exclude_newer: Annotated[
        str,
        Option("--exclude-newer", metavar="DATE", help="With --resolve: the index as it was on that day."),
    ] = "",
    only: Annotated[
        list[str] | None, Option("--only", metavar="CHECK", help="Run only this check; may be given again.")
    ] = None,
    baseline: Annotated[Path | None, _output("--baseline", help="Ignore the findings that this file contains.")] = None,
    write_baseline: Annotated[
        Path | None, _output("--write-baseline", help="Write the current findings to this file.")
    ] = None,
    config: Annotated[
        Path | None, Option("--config", help="An envkit.toml with a [check] table; by default the nearest one.")
    ] = None,
    format: Annotated[str, options.format_option(CHECK_FORMATS)] = "console",
    fail_on: Annotated[
        str,
        _output(
            "--fail-on",
            click_type=SEVERITIES,
            help="Lowest severity that makes the exit code 1; by default as in the settings, or error.",
        ),
    ] = "",
    strict: Annotated[
        bool, _output("--strict", help="Exit with 3 for every doubt, also where its answer could only be a warning.")
    ] = False,
    if_any: Annotated[
        bool, _output("--allow-no-files", help="Exit with 0 if no file concerns envkit, for use in hooks.")
    ] = False,
    observed: Annotated[bool, _output("--observed", help="Include what the files say in the JSON.")] = False,
    quiet: options.Quiet = False,
    list_checks: Annotated[bool, Option("--list", help="List the checks and exit.")] = False,
) -> None:
    """Check Dockerfiles, requirements, compose and Kubernetes files: what does not fit together, and the fix."""
    from envkit.static import check as verb

    if list_checks:
        sys.stdout.write(verb.listed())
        return
    amount = options.detail(quiet, False)
    if pin and not (fix or diff):
        raise UsageError("--pin needs --diff or --fix", "add --diff to see what it would change, or --fix to change it")
    if host and (gpu or driver):
        raise UsageError("--host already names the GPUs and the driver", "leave out --host, or --gpu and --driver")
    if fleet and (gpu or driver or host):
        raise UsageError("--fleet already names the machines", "leave out --fleet, or --gpu, --driver and --host")
    if stdin or stdin_filename:
        if set(paths or ()) - {"-"}:
            raise UsageError("a file on stdin is checked alone", "leave out the paths, or --stdin and --stdin-filename")
        if fix or since or fleet or start:
            raise UsageError(
                "a file on stdin goes with none of --fix, --since, --fleet and --start",
                "leave that out, or name the file",
            )
        paths = None if stdin_filename else ["-"]
    if exclude_newer and not resolve:
        raise UsageError("--exclude-newer needs --resolve", "add --resolve, which asks the package index")
    asked = verb.CheckRequest(
        tuple(paths or ()),
        context,
        tuple(gpu or ()),
        driver,
        host,
        config,
        baseline,
        write_baseline,
        tuple(only or ()),
        if_any,
        start,
        strict,
        since,
        fleet,
        stdin_filename,
        verb.asking(exclude_newer, resolve_budget, say) if resolve else None,
    )
    if write_baseline:
        from envkit.system.files import can_be_written

        can_be_written(write_baseline)
    settings = verb.config_of(asked)
    least = options.severity(fail_on or settings.fail_on or "error")
    found = verb.answer(asked, settings)
    if fix or diff:
        more = verb.pinned(found.judged, _digests, say) if pin else {}
        shown, texts = verb.fixed(found.judged, more)
        if diff:
            sys.stdout.write(shown)
            raise Exit(found.code(least, if_any or bool(since)))
        # A document on stdout stays one document.
        (sys.stdout if format == "console" else sys.stderr).write(shown)
        verb.write(found.judged, texts, say)
        if texts:
            found = verb.answer(asked, settings)
    for line in verb.remarks(found, asked):
        warn(f"envkit: {line}")
    if write_baseline:
        found, count = verb.taken_down(found, write_baseline)
        say(f"wrote {write_baseline}: {count} finding{'' if count == 1 else 's'}")
    color = wants_color(sys.stdout, os.environ)
    sys.stdout.write(
        verb.printed(found, format, least, observed=observed, color=color, width=columns(sys.stdout), detail=amount)
    )
    raise Exit(found.code(least, if_any or bool(since)))


def _digests() -> Callable[[str], str]:
    """What asks the registries, by way of the engine; raises Undecided where there is no engine."""
    from envkit.engine import Ability
    from envkit.engine.choice import with_ability

    return with_ability(Ability.DIGEST, say).digest


@app.command(name="facts", rich_help_panel=WRITTEN)
def facts_about(
    topic: Annotated[
        str, Argument(metavar="[TOPIC]", click_type=TOPICS, help="By default all topics, and how to query each.")
    ] = "",
    query: Annotated[
        str, Argument(metavar="[QUERY]", help='A release, "RTX 4090", a driver branch, ...; by default all names.')
    ] = "",
    format: Annotated[str, options.format_option(DATA_FORMATS)] = "console",
) -> None:
    """Print facts, each with its source; without arguments, list the topics."""
    import json

    from envkit import facts
    from envkit.facts import show

    known = facts.load()
    if topic and query:
        if format == "json":
            print(json.dumps(show.data(known, topic, query), indent=1))
            return
        for label, text in show.describe(known, topic, query):
            print(f"  {label}: {text}" if text else label)
        return
    listed = [each for each in show.known(known) if topic in ("", each.topic)]
    if format == "json":
        print(json.dumps([dataclasses.asdict(each) for each in listed], indent=1))
        return
    for each in listed:
        print(f"{each.topic} ({each.rows} rows): `envkit facts {each.topic} QUERY`, where QUERY is {each.ask}")
        _print_names(each.names, whole=bool(topic))


def _print_names(names: tuple[str, ...], whole: bool) -> None:
    """The names as one sentence, or so many as tell what they look like; wrapped in a terminal."""
    shown = names if whole else names[:_EXAMPLES]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    text = f"{', '.join(shown)}{more}"
    width = max(columns(sys.stdout), 40)
    for line in textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_long_words=False):
        print(line)
