"""A container's start as files describe it: the words that it begins with, and what the build's context shows of the
scripts that they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from envkit.model import Span
from envkit.records import dataclass
from envkit.subjects.dockerfile import Dockerfile
from envkit.subjects.workload import FileValue, Mount, StartLine


class HandsOn(StrEnum):
    """As what a script runs the words that it is given."""

    EACH = "each"  # "$@"
    SPLIT = "split"  # $@ or $*, which the shell splits again
    JOINED = "joined"  # "$*", one word of all
    USED = "used"  # it reads them and runs something else, or nobody knows
    IGNORED = "ignored"  # it mentions none of them


@dataclass(frozen=True, slots=True)
class StartScript:
    """One script of a start: a file, or the text behind a shell's -c.

    ``word`` names it on the command line.  ``path`` is where it lies in the image, empty for a text; ``origin`` is what
    a person calls the file.  ``by_shell`` is the shell that is handed it, empty where the kernel is; ``login`` says
    that this shell reads the files of a login or of a terminal.  ``given`` are the words behind it, of which a text's
    first is its $0.  ``executable`` and ``edited`` tell of the file in the image: None where its mode is not known,
    True where a step of the build changes its text.  ``said`` is True where the Dockerfile itself gives the mode.
    """

    word: FileValue
    text: str
    hands_on: HandsOn
    path: str = ""
    origin: str = ""
    by_shell: str = ""
    login: bool = False
    given: tuple[FileValue, ...] = ()
    executable: bool | None = None
    edited: bool = False
    said: bool = False


@dataclass(frozen=True, slots=True)
class Absent:
    """A file that the start names and that surely is not where it looks: ``path`` in the image.  ``copied`` is where
    the build puts a file of this name, empty if nowhere; ``hidden`` the mount that lies over it; ``kept_out`` its name
    in the build context where the .dockerignore keeps it out, else empty; ``module`` the module that is to be imported
    from it, empty where the file is named.  ``path`` is a bare name where it is looked for on PATH."""

    word: FileValue
    path: str
    copied: str = ""
    hidden: Mount | None = None
    kept_out: str = ""
    module: str = ""


@dataclass(frozen=True, slots=True)
class JobStart:
    """How a service, a container of a pod, a development container or the image of a Dockerfile starts.

    ``kind`` is that of the file, ``name`` the service.  ``entrypoint`` and ``command`` are what is in force, None where
    there is none that is known.  ``replaced`` and ``dropped`` are the ENTRYPOINT and the CMD of the Dockerfile that no
    longer count.  ``dockerfile`` is what the image is built from, with this start in the place of its own; None where
    it is not known, and ``why`` says so.  Behind ``lines`` lines of its text stands what the other file says.
    ``job`` is the program that is the job, with its words, as far as the scripts show it, and ``folder`` the working
    folder that it gets, empty where nobody knows.
    """

    path: str
    kind: str
    name: str
    span: Span
    entrypoint: StartLine | None = None
    command: StartLine | None = None
    replaced: StartLine | None = None
    dropped: StartLine | None = None
    dockerfile: Dockerfile | None = None
    why: str = ""
    lines: int = 0
    scripts: tuple[StartScript, ...] = ()
    replaced_script: StartScript | None = None
    job: tuple[FileValue, ...] = ()
    folder: str = ""
    absent: tuple[Absent, ...] = ()
    user: FileValue | None = None
    environment: Mapping[str, FileValue | None] = field(default_factory=dict)
