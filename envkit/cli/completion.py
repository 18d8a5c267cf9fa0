"""The verb `completion`, and what a shell with its script asks: click's own protocol, in a variable."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from typer import Argument

from envkit.cli.app import COMPLETE, SHELL, app, parser
from envkit.cli.options import Choice

SHELLS = Choice("shell", ("bash", "zsh", "fish"))


@app.command(rich_help_panel=SHELL)
def completion(shell: Annotated[str, Argument(metavar="SHELL", click_type=SHELLS, help="bash, zsh or fish.")]) -> None:
    """Print the script that completes commands, options and their values in a shell.

    bash: eval "$(envkit completion bash)" in ~/.bashrc, bash 4.4 or newer. zsh: the same with zsh in ~/.zshrc, after
    compinit. fish: envkit completion fish > ~/.config/fish/completions/envkit.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(parser(""), {}, "envkit", COMPLETE)
    sys.stdout.write(made.source_template % made.source_vars())  # source() would start a bash to ask for its version


def answer() -> None:
    """Prints the words that may stand where the cursor is; behind `--` they are files, for there begins a command.

    What was typed so far is no input of envkit's: nothing is ever said of it.
    """
    from click.shell_completion import CompletionItem, get_completion_class

    from envkit.errors import EnvkitError

    kind = get_completion_class(os.environ[COMPLETE].partition("_")[0])
    if kind is None:
        return
    made = kind(parser(""), {}, "envkit", COMPLETE)
    try:
        words, incomplete = made.get_completion_args()
        files = [CompletionItem(incomplete, type="file")]
        found = files if "--" in words else made.get_completions(words, incomplete)
    except (EnvkitError, KeyError, ValueError):
        return
    sys.stdout.write("".join(f"{made.format_completion(each)}\n" for each in found))
