"""The parser that verbs register with."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from functools import cache
from typing import Annotated

import click
import typer
import typer.core
import typer.main

from envkit import __version__
from envkit.cli.ending import exits
from envkit.errors import UsageError


class Verb(typer.core.TyperCommand):
    """A verb that refuses an empty value of any option or argument that was given.

    An unset variable would else leave out what the option asks for, or name the current folder, and the verdict would
    be of something else.  The words are looked at before they become paths, for Path("") is Path(".").
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given, _, order = self.make_parser(ctx).parse_args(list(args))
        with exits(str(given.get("exit_style") or "").strip() or "envkit"):
            for each in order:
                value = given.get(each.name or "")
                words = value if isinstance(value, (list, tuple)) else [value]
                if any(isinstance(word, str) and not word.strip() for word in words):
                    name = each.opts[0] if isinstance(each, click.Option) else each.make_metavar(ctx).strip("[].")
                    raise UsageError(f"{name} is empty", "look at the variable that should hold it, or leave it out")
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="envkit",
    help="GPU container environments that are pinned, proven and explained.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: loading rich for it would take as long as all the rest
    add_completion=False,
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """GPU container environments that are pinned, proven and explained.

    Exit codes: 0 nothing found, 1 something found, 2 wrong input, 3 undecided (not known is never green), 70 a fault of
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


def invoke(words: Sequence[str], command: tuple[str, ...] | None = None) -> None:
    """Runs the verb that ``words`` begin with; ``command`` is what stood behind ``--``.

    Raises: EnvkitError and Interrupted of the verb, what is a fault of envkit, and SystemExit with the exit code.
    """
    try:
        code = parser(words[0] if words else "")(args=list(words), obj=command, standalone_mode=False)
    except click.ClickException as error:
        from envkit.credentials import redacted_text

        shown = io.StringIO()
        error.show(shown)
        with suppress(OSError):
            print(redacted_text(shown.getvalue()), end="", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except click.Abort as error:  # which the parser makes of any EOFError
        raise error.__cause__ or error from None
    raise SystemExit(code or 0)
