"""Which word of a command line is the program that it is for, and whether a script hands its words on."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence

from envkit.dockerfile import options
from envkit.dockerfile.shell_commands import LEADING, WRAPPERS
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Command

PYTHON = pattern(r"python(\d+(\.\d+)*t?)?|pypy\d*(\.\d+)?")
# Programs that run another one with an environment of their own making, in the words before it.
RUNNERS = {
    "conda": ("run",), "mamba": ("run",), "micromamba": ("run",), "uv": ("run",), "poetry": ("run",),
    "pdm": ("run",), "pipenv": ("run",), "pixi": ("run",), "hatch": ("run",), "catatonit": (), "numactl": (),
    "chrt": (), "nsys": ("profile",), "ncu": (), "s6-setuidgid": (), "chpst": (), "setpriv": (), "unshare": (),
}  # fmt: skip
_BETWEEN = pattern(r"(?:[;\n]|&&|\|\|)(?:\s*(?:then|else|do)\s)?")  # what stands between a script's commands


def is_job(command: Command) -> bool:
    """Whether a command may be what the script is for: not what shells do themselves, and no talk or log."""
    name = posixpath.basename(command.words[0].text)
    return command.after not in ("|", "|&") and name not in (
        "echo", "printf", "set", "export", "cd", "exit", "true", "false", ":", "[", "test", "source", ".", "wait",
        "shift", "unset", "ulimit", "umask", "trap", "local", "return", "mkdir", "rm", "cp", "mv", "ls", "cat", "date",
        "sleep", "nvidia-smi", "pip", "pip3", "hostname", "id", "env", "chmod", "chown", "touch", "read", "eval",
    )  # fmt: skip


def handed_on(script: str) -> str:
    """As what a script runs the words that it is given ('"$@"', '$@', '"$*"'), by its last command that does so; ""
    for one that runs them nowhere."""
    return next(filter(None, map(_passes_on, reversed(_BETWEEN.split(script)))), "")


def _passes_on(text: str) -> str:
    """The form of the words that a script was given, where a command is nothing but them and wrappers before them."""
    found = re.fullmatch(r"(.*?)(\"?\$(?:@|\{@\}|\*)\"?)\s*", text, re.DOTALL)
    try:
        before = shlex.split(found[1]) if found else None
    except ValueError:
        return ""
    if found is None or before is None:
        return ""
    while before and re.match(r"[A-Za-z_]\w*=", before[0]):  # a variable that is set for it alone
        before = before[1:]
    at = unwrapped([*before, "job"])
    passes = at == len(before) or (at < len(before) and posixpath.basename(before[at]) in RUNNERS)
    return found[2].replace("{@}", "@") if passes else ""


def unwrapped(words: Sequence[str]) -> int:
    """The index of the word that wrappers such as tini, env and exec before it start; their number if there is none."""
    at = 0
    while at < len(words) and (name := posixpath.basename(words[at])) in WRAPPERS:
        valued = options.valued(name).values
        at += 1
        while at < len(words) and words[at].startswith("-") and (words[at] != "-" or name == "env"):
            at += 2 if words[at] in valued else 1
            if words[at - 1] == "--":
                break
        while name in ("env", "sudo") and at < len(words) and re.match(r"[A-Za-z_]\w*=", words[at]):
            at += 1
        at += LEADING.get(name, 0)
    return at
