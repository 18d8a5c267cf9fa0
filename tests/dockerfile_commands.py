"""Commands and files for the tests of what a command installs."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping

from envkit.dockerfile.files import FileText
from envkit.model import Span
from envkit.subjects.dockerfile import Command, Install, Removal, Unread, Word

DEFAULT_INDEX = "https://" + ".".join(("pypi", "org")) + "/simple"
ABSENT = "there is no such file in the build context"


class Folder:
    """Files of a container, by absolute path; what is not there is absent from the build context."""

    def __init__(self, texts: Mapping[str, str], why: str = ABSENT) -> None:
        self.texts, self.why = dict(texts), why
        self.asked: list[str] = []

    def read(self, path: str, cwd: str) -> FileText | str:
        """The file, named for people without the first slash."""
        whole = posixpath.normpath(posixpath.join("/", cwd, path))
        self.asked.append(whole)
        return FileText(whole[1:], self.texts[whole]) if whole in self.texts else self.why


NOTHING = Folder({}, "no build context was given")


def command(text: str, env: Mapping[str, str] | None = None, cwd: str = "/app", heredoc: str = "") -> Command:
    """A simple command; a word with a dollar sign is one that nobody knows."""
    words, at = [], 0
    for part in shlex.split(text):
        bare = re.sub(r"[\"'].*", "", part.split(" ")[0])
        begin = max(text.find(bare, at), at)
        at = begin + len(part)
        words.append(Word(part, part, Span("Dockerfile", 3, begin + 1, 3, at + 1), "$" not in part))
    span = Span("Dockerfile", 3, 1, 3, len(text) + 1)
    return Command(tuple(words), span, tuple(words), env=dict(env or {}), cwd=cwd, heredoc=heredoc)


def installs(found: Iterable[Install | Removal | Unread]) -> dict[str, Install]:
    """The installs by name, the last of each, constraints left out."""
    return {one.name: one for one in found if isinstance(one, Install) and not one.constraint}


def unread(found: Iterable[Install | Removal | Unread]) -> list[tuple[str, str]]:
    """Path and reason of what was not read."""
    return [(one.path, one.why) for one in found if isinstance(one, Unread)]
