"""Installers whose options and files are not read: all that is said of them is that they change what is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envkit.dockerfile import pip
from envkit.subjects.dockerfile import Command, Unread

# By program, the subcommands after which other packages are there, or a file that says which packages should be;
# for a program without subcommands, nothing.
_VERBS: Mapping[str, frozenset[str]] = {
    "easy_install": frozenset(),
    "pip-sync": frozenset(),
    "pipx": frozenset({"install", "inject", "upgrade"}),
    "pdm": frozenset({"install", "sync", "add", "update", "remove", "run", "export"}),
    "pipenv": frozenset({"install", "sync", "update", "upgrade", "uninstall", "run", "requirements"}),
    "pixi": frozenset({"install", "i", "add", "remove", "update", "reinstall", "global", "run", "shell-hook"}),
}


def read(command: Command) -> Iterator[Unread]:
    """One record for a command of such an installer that may change what is installed; nothing for any other."""
    program, words = command.program, command.words[1:]
    module, after = pip.module_of(command)
    if module in _VERBS:
        program, words = module, after
    elif program.startswith("easy_install"):  # easy_install3, easy_install-3.8
        program = "easy_install"
    verbs = _VERBS.get(program)
    if verbs is None or "--help" in command.args:
        return
    verb = next((word.text for word in words if word.text in verbs), "")
    if not verb and verbs:
        return
    if verb == "run" and program != "pixi" and not {"pip", "install"} & set(command.args):
        return  # it starts a program of the environment; pixi makes the environment first
    alone = program == "pipx"  # each of its tools has an environment of its own
    yield Unread(f"{program} {verb}".rstrip(), f"what {program} installs is not read", command.span, alone)
