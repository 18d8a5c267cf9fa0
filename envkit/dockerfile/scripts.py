"""The scripts and makefiles of a project that a command starts: their commands in its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from envkit.dockerfile import makefile, shell, system
from envkit.dockerfile.files import Files, FileText
from envkit.dockerfile.instructions import Text
from envkit.patterns import pattern
from envkit.records import replace
from envkit.subjects.dockerfile import Command, Unread

_DEEPEST = 4  # scripts that start scripts
MOST = 20_000  # commands of one RUN, scripts that start themselves included
NO_END = "it is too long or too deep to follow, or no script that a shell reads"
_LOCAL = "/usr/local/bin"  # where a project puts a script that it calls by its name alone
_FOR_A_SHELL = pattern(r"#!\s*/\S*/(?:env\s+(?:-S\s+)?)?(?:ba|da|z|k)?sh\b")
_PLAIN_NAME = pattern(r"[\w.]+(?:[-_.][\w.]+)+")  # of two parts, as hardly a program of the system has


def reader(files: Files) -> Callable[[str, str], Text | None]:
    """What gives the text of a file that a script sources, None where it is not known."""

    def read(path: str, cwd: str) -> Text | None:
        found = files.read(path, cwd)
        return None if isinstance(found, str) else _placed_text(found.text, found.path)

    return read


def started(command: Command, files: Files, unread: list[Unread], depth: int = 0) -> Iterator[Command]:
    """The commands of a script or makefile out of the context that a command starts; the command itself where it starts
    none that can be read, and make beside what it starts.  ``unread`` gets those that could not be followed to the end.
    """
    recipe = makefile.started(command, files) if depth < _DEEPEST else None
    if recipe is not None:
        yield command
        for line, sure in recipe:
            recipe_line = shell.commands(line, command.env, makefile.folder(command), read=reader(files))
            if not recipe_line.complete:
                unread.append(Unread(f"the line {line.span(0, 0).place}", NO_END, command.span))
            yield from _followed(recipe_line.commands, sure and command.sure, files, unread, depth)
        return
    found = _script(command, files) if depth < _DEEPEST else None
    if found is None:
        yield command
        return
    name, at, text = found
    first = text.text.lstrip().split("\n", 1)[0]  # what the build writes has empty lines in front
    dialect = "bash" if command.program == "bash" or "bash" in first else "sh"
    given = command.words[at + 1 :]
    script = shell.commands(
        _placed_text(text.text, text.path),
        command.env,
        command.cwd,
        dialect=dialect,
        args=tuple(word.text for word in given) if all(word.sure for word in given) else None,
        name=name,
        read=reader(files),
    )
    if not script.complete:
        unread.append(Unread(text.path, NO_END, command.span))
    yield from _followed(script.commands, command.sure, files, unread, depth)


def _followed(
    commands: Iterable[Command], sure: bool, files: Files, unread: list[Unread], depth: int
) -> Iterator[Command]:
    """What the commands of a script start in turn; none of them is sure where it is not sure that they run."""
    for each in commands:
        yield from started(each if sure or not each.sure else replace(each, sure=False), files, unread, depth + 1)


def _script(command: Command, files: Files) -> tuple[str, int, FileText] | None:
    """The script that a command starts: its name, the place of that word, and its text; None where it starts none."""
    plain = [at for at, word in enumerate(command.words) if not word.text.startswith("-")]
    by_shell = command.program in system.SHELLS and not any(
        re.fullmatch(r"-[a-z]*c", word.text) for word in command.words
    )
    at = plain[1] if by_shell and len(plain) > 1 else plain[0] if plain else None
    if at is None:
        return None
    path = command.words[at].text  # "-c" is a command too
    if by_shell or ("/" in path and path.endswith((".sh", ".bash"))):
        found = files.read(path, command.cwd)
        return None if isinstance(found, str) else (path, at, found)
    if at or not command.words[0].sure or not ("/" in path or _PLAIN_NAME.fullmatch(path)):
        return None
    path = path if "/" in path else f"{_LOCAL}/{path}"
    found = files.read(path, command.cwd)
    return None if isinstance(found, str) or not _FOR_A_SHELL.match(found.text) else (path, at, found)


_placed_text = lru_cache(maxsize=64)(Text.of)  # a script is started again and again, with other arguments
