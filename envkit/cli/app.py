"""The parser that verbs register with, its help, and what it says of wrong words."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cache
from typing import Annotated, get_type_hints

import click
import typer
import typer.core
import typer.main

from envkit import __version__
from envkit.cli.ending import exits
from envkit.errors import UsageError, nearest
from envkit.system.terminal import columns

# The verbs that take a command behind `--`, which is cut off before anything is parsed.
BEFORE_COMMANDS = ("render", "preflight", "run", "debug")

WORDS = "envkit.words"  # of a context's meta: the verb's words as they were given

COMPLETE = "_ENVKIT_COMPLETE"  # the variable by which a shell's script asks for completions

# The panels of --help in their order.
MAKE, PACKAGES, LOOK, JOB, MACHINE, WRITTEN, FAILED, SHELL = (
    "Make an image", "Packages of a spec", "Examine an image", "Run a job", "Examine a machine", "Files and facts",
    "Failing jobs", "Shell",
)  # fmt: skip


class _Context(click.Context):
    """Help as wide as the terminal; in a pipe a line an option."""

    def make_formatter(self) -> click.HelpFormatter:
        return click.HelpFormatter(width=columns(sys.stdout) if sys.stdout else None)


class Verb(typer.core.TyperCommand):
    """A verb whose help groups its options, and that refuses an empty value of any option or argument that was given.

    An unset variable would else leave out what the option asks for, or name the current folder, and the verdict would
    be of something else.  The words are looked at before they become paths, for Path("") is Path(".").
    """

    context_class = _Context

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # of a line that is still being typed
            return super().parse_args(ctx, args)
        ctx.meta[WORDS] = tuple(args)
        try:
            given, _, order = self.make_parser(ctx).parse_args(list(args))
        except click.UsageError as error:
            raise refusal(error, ctx) from error
        with exits(str(given.get("exit_style") or "").strip() or "envkit"):
            for each in order:
                value = given.get(each.name or "")
                words = value if isinstance(value, (list, tuple)) else [value]
                if any(isinstance(word, str) and not word.strip() for word in words):
                    raise UsageError(
                        f"{_named(each, ctx)} is empty",
                        "check the variable that should contain it, or leave the option out",
                    )
            try:
                return super().parse_args(ctx, args)
            except click.UsageError as error:
                raise refusal(error, ctx) from error

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        command = ["[-- COMMAND ...]"] if self.name in BEFORE_COMMANDS else []
        return super().collect_usage_pieces(ctx) + command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for each, record in help_records(self, ctx):
            kind = "Arguments" if isinstance(each, click.Argument) else "Options"
            panels.setdefault(getattr(each, "rich_help_panel", None) or kind, []).append(record)
        _sections(formatter, panels)


class _Verbs(typer.core.TyperGroup):
    """All verbs; help groups them and cuts no sentence."""

    context_class = _Context

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            known = sorted(self.commands)
            raise UsageError(
                f"there is no command `{args[0]}`{nearest(args[0], known)}", "`envkit --help` lists the commands"
            )
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [record for each in self.get_params(ctx) if (record := each.get_help_record(ctx))]
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            verb = self.commands[name]
            panel = getattr(verb, "rich_help_panel", None) or SHELL
            panels.setdefault(panel, []).append((name, verb.get_short_help_str(limit=1000)))
        _sections(formatter, {**panels, "Options": options})


def help_records(verb: click.Command, ctx: click.Context) -> Iterator[tuple[click.Parameter, tuple[str, str]]]:
    """The arguments and options of a verb that help tells of, each as it is written and what it is."""
    told = _told_of_arguments(verb)
    for each in verb.get_params(ctx):
        record = each.get_help_record(ctx)
        if record and isinstance(each, typer.core.TyperArgument) and not each.help:
            record = (record[0], f"{told[each.name or '']}  {record[1]}".strip())
        if record:
            yield each, record


def _told_of_arguments(verb: click.Command) -> dict[str, str]:
    """What the verb's function says of its arguments: from 8.4 on click forgets the text that typer gives it."""
    hints = get_type_hints(inspect.unwrap(verb.callback), include_extras=True) if verb.callback else {}
    said = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {
        name: each.help or ""
        for name, metadata in said.items()
        for each in metadata
        if isinstance(each, typer.models.ArgumentInfo)
    }


def _sections(formatter: click.HelpFormatter, panels: dict[str, list[tuple[str, str]]]) -> None:
    for title, rows in panels.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


app = typer.Typer(
    name="envkit",
    cls=_Verbs,
    help="GPU container environments that are pinned, proven and explained.",
    rich_markup_mode=None,  # plain help: loading rich for it would take as long as all the rest
    add_completion=False,  # `envkit completion` prints click's own script
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"envkit {__version__}")
        raise typer.Exit


@app.callback()
def _envkit(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """GPU container environments that are pinned, proven and explained.

    Exit codes: 0 no findings, 1 findings, 2 wrong input, 3 undecided (unknown is never a pass), 70 an internal error of
    envkit itself.
    """


@cache
def parser(verb: str) -> click.Group:
    """The parser that knows ``verb`` alone, made in 2 ms; if there is no such verb that of all verbs, made in 20."""
    alone = copy(app)
    alone.registered_commands = [each for each in app.registered_commands if _name(each) == verb]
    for each in app.registered_commands:
        each.cls = Verb
    return typer.main.get_group(alone if alone.registered_commands else app)


def _name(command: typer.models.CommandInfo) -> str:
    assert command.callback is not None
    return command.name or typer.main.get_command_name(command.callback.__name__)


def _named(each: click.Parameter, ctx: click.Context) -> str:
    """A parameter as a person writes it: ``--tag``, ``SPEC``."""
    return each.opts[0] if isinstance(each, click.Option) else each.make_metavar(ctx).strip("[].")


def refusal(error: click.UsageError, ctx: click.Context | None) -> UsageError:
    """What the parser says of wrong words, as one sentence and its fix."""
    path = ctx.command_path if ctx else "envkit"
    fix = f"see `{path} --help`"
    if isinstance(error, click.NoSuchOption):
        known = [name for each in ctx.command.get_params(ctx) for name in each.opts] if ctx else []
        return UsageError(f"`{path}` has no option `{error.option_name}`{nearest(error.option_name, known)}", fix)
    if isinstance(error, click.BadParameter) and error.param and ctx:
        if isinstance(error, click.MissingParameter):
            return UsageError(f"`{path}` needs {_named(error.param, ctx)}", fix)
        return UsageError(f"{_named(error.param, ctx)}: {_sentence(error.message)}", fix)
    return UsageError(f"`{path}`: {_sentence(error.format_message())}", fix)


def _sentence(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")


def invoke(words: Sequence[str], command: tuple[str, ...] | None = None) -> None:
    """Runs the verb that ``words`` begin with; ``command`` is what stood behind ``--``.

    Raises: EnvkitError and Interrupted of the verb, what is a fault of envkit, and SystemExit with the exit code.
    """
    group = parser(words[0] if words else "")
    if not words:
        print(group.get_help(group.make_context("envkit", ["--help"], resilient_parsing=True)), file=sys.stderr)
        raise SystemExit(2)
    try:
        code = group(args=list(words), prog_name="envkit", obj=command, standalone_mode=False)
    except click.UsageError as error:
        raise refusal(error, error.ctx) from error
    except click.Abort as error:  # which the parser makes of any EOFError
        raise error.__cause__ or error from None
    raise SystemExit(code or 0)
