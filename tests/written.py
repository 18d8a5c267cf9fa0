"""Files that people write, as the pages of checks show them: the file, what lies beside it, and what the user wishes.

    #: gpu RTX 5090
    #: driver 450.80.02
    FROM ...
    --- requirements.txt ---
    torch==2.1.0

Lines that begin so at the top are wishes; what follows a line of dashes is another file of the build context.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import answers

from envkit.dockerfile.context import ignored, rules
from envkit.dockerfile.files import FileText, Project, folders
from envkit.facts import Facts
from envkit.model import Outcome, Result
from envkit.static import CheckOptions, JudgedFile
from envkit.static.judged import READERS, of_text

KINDS = READERS
NAMES = {"dockerfile": "Dockerfile"}
_FILE = re.compile(r"^--- (\S+) ---$", re.MULTILINE)
_WISH = re.compile(r"#: (gpu|driver) (.+)\n")


@dataclass(frozen=True)
class Beside:
    """A build context of a few files."""

    files: dict[str, str]
    address: str = ""  # of the repository that they are, as it were

    def clone_of(self, url: str) -> Beside | None:
        """Itself, where that is its address."""
        return self if url and url == self.address else None

    def read(self, path: str) -> FileText | str:
        """The file, or the reason that the real context gives for one that is not there."""
        return FileText(path, self.files[path]) if path in self.files else f"{path} is not in the build context"

    def has(self, name: str) -> bool:
        """Whether the file is there."""
        return name in self.files

    def keeps_out(self, name: str) -> bool:
        """Whether its .dockerignore says so."""
        return ignored(name, rules(self.files.get(".dockerignore", "")))

    def project(self) -> Project | None:
        """The files as a whole project, where one is git's own: a checkout."""
        if ".git/config" not in self.files:
            return None
        unseen, names = rules(self.files.get(".gitignore", "")), folders(self.files)
        text, leaves_out = (lambda path: self.files.get(path, "")), (lambda path: ignored(path, unseen))
        return Project("", "", names, frozenset(), text, leaves_out, self.keeps_out)

    def names(self, path: str) -> tuple[str, ...]:
        """The names below a folder."""
        below = path.rstrip("/.") + "/" if path not in ("", ".", "./") else ""
        return tuple(sorted({name[len(below) :].split("/")[0] for name in self.files if name.startswith(below)}))


@lru_cache(maxsize=1)  # a block is asked for several of its checks, one after the other
def file(kind: str, text: str, facts: Facts) -> JudgedFile:
    """The shown file, judged by all its checks."""
    gpus: list[str] = []
    driver = ""
    while wish := _WISH.match(text):
        if wish[1] == "gpu":
            gpus.append(wish[2])
        else:
            driver = wish[2]
        text = text[wish.end() :]
    main, *others = _FILE.split(text)
    context = Beside({name: body.lstrip("\n") for name, body in zip(others[::2], others[1::2], strict=True)})
    found = of_text(kind, main, NAMES.get(kind, kind), context, CheckOptions(tuple(gpus), driver), facts)
    return answers.same("files", (kind, main, others, gpus, driver), found)


def judged(check: str, kind: str, text: str, facts: Facts) -> Result:
    """What one check says of a shown file."""
    found = [result for result in file(kind, text, facts).results if result.check == check]
    assert found, f"{check} does not judge a {kind}"
    return found[0]


def ended(kind: str, text: str, facts: Facts, outcome: Outcome) -> set[str]:
    """The checks that end so on a file."""
    return {result.check for result in file(kind, text, facts).results if result.outcome is outcome}


def fired(text: str, facts: Facts, kind: str = "dockerfile") -> set[str]:
    """The checks that find something in a file."""
    return ended(kind, text, facts, Outcome.FAIL)
