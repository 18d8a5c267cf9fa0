"""What the image's files say of how it starts: its entry point, and what ld.so loads before a program."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envkit.image.audit.access import may_execute
from envkit.image.audit.linker import is_file, text
from envkit.image.tree import DEFAULT_PATH, Tree, variables
from envkit.model import Observed
from envkit.payload import elf
from envkit.payload.probe import libs, preloaded
from envkit.subjects.audit import EntryPoint
from envkit.subjects.image import Preload

# Programs that start the one which their next word names, and shells, which read it.
_STARTERS = ("tini", "dumb-init", "catatonit", "env")
_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_HEAD = 1 << 14  # bytes


def preloads(tree: Tree, machine: str) -> Iterator[Preload]:
    """Each entry of LD_PRELOAD and /etc/ld.so.preload, with the file that it names; of a name alone no search is made,
    and it counts as loaded, for where it is searched depends on the program."""
    said = text(tree, preloaded.FILE, 1 << 16) if is_file(tree, preloaded.FILE) else ""
    variable = variables(tree.config).get(preloaded.VARIABLE, "")
    for by, entries in ((preloaded.VARIABLE, variable), (preloaded.FILE, said)):
        for name in preloaded.named(entries):
            if "/" not in name or "$" in name:
                yield Preload(name, by, name, name, machine, libs.family(name))
                continue
            found = tree.real(name) if is_file(tree, name) else ""
            made_for = _machine(tree, found) if found else ""
            yield Preload(name, by, found if made_for == machine else "", found, made_for, libs.family(name))


def _machine(tree: Tree, path: str) -> str:
    try:
        return elf.read(tree.data(path)).machine
    except ValueError:
        return ""


def entrypoint(tree: Tree) -> Observed[EntryPoint]:
    """The program that a container starts, followed through shells and the likes of tini to the script that they run.

    Unsupported where the image names none, or a directory has no configuration.
    """
    config = tree.config
    words = [str(word) for part in ("Entrypoint", "Cmd") for word in config.get(part) or ()]
    if not words:
        return Observed.unsupported("the image starts no program by itself")
    at, direct = 0, True
    while True:
        found = _find(tree, words[at], direct)
        name = posixpath.basename(words[at])
        after = next((one for one in range(at + 1, len(words)) if words[one] != "--"), len(words))
        if not found or name not in (*_STARTERS, *_SHELLS) or after == len(words) or re.match(r"-|\w+=", words[after]):
            break
        at, direct = after, name not in _SHELLS
    return Observed.of(_described(tree, tuple(words), words[at], found, direct), "image config, files")


def _find(tree: Tree, word: str, direct: bool) -> str:
    """Where a word of the command leads, "" if nowhere: by PATH where it is to be executed and has no slash."""
    workdir = str(tree.config.get("WorkingDir") or "/")
    folders = variables(tree.config).get("PATH", DEFAULT_PATH).split(":")
    places = [workdir] if "/" in word else folders if direct else [workdir, *folders]
    paths = (posixpath.normpath(posixpath.join(folder, word)) for folder in places if folder.startswith("/"))
    return next((path for path in paths if is_file(tree, path)), "")


def _described(tree: Tree, words: tuple[str, ...], program: str, found: str, direct: bool) -> EntryPoint:
    """What there is to say of the file ``found``; the interpreter of `#!/usr/bin/env NAME` is NAME."""
    if not found:
        return EntryPoint(words, program, direct=direct)
    head = bytes(tree.data(found)[:_HEAD])
    asked = head.split(b"\n", 1)[0][2:].decode("utf-8", "replace").split() if head.startswith(b"#!") else []
    if asked and posixpath.basename(asked[0]) == "env":
        asked = [one for one in asked[1:] if not one.startswith("-") and "=" not in one] or asked
    return EntryPoint(
        words,
        program,
        found,
        mode=f"{tree.entries[tree.real(found)].mode & 0o7777:04o}",
        executable=may_execute(tree, found),
        program=head.startswith((b"#!", b"\x7fELF")),
        interpreter=asked[0] if asked else "",
        interpreter_found=_find(tree, asked[0], True) if asked else "",
        carriage_returns=b"\r\n" in head and not head.startswith(b"\x7fELF"),
        direct=direct,
    )
