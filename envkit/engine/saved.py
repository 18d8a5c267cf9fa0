"""What Charliecloud and Apptainer have in common: they start a program in an image that another engine built and saved.

Neither builds, and neither has a daemon: a run is a child of envkit and ends with it.  How much of the machine a run
sees is told in ``where``, for it is more than in a container of Docker or Podman.
"""

from __future__ import annotations

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from envkit.engine import (
    Ability,
    Attend,
    BaseRequest,
    BuildRequest,
    BuiltImage,
    CannotStart,
    DeclaredStart,
    JobEnd,
    JobLine,
    JobRequest,
    ResolvedBase,
    Say,
    Start,
    StoredImage,
    cannot,
    unpacked,
)
from envkit.engine.unpacked import Unpacked
from envkit.errors import Undecided, UsageError, one_line
from envkit.system import files, proc
from envkit.system.proc import Completed

_SAVE = "build it with --engine docker or --engine podman, save it (`podman save -o image.tar NAME`), name that file"


class SavedEngine(ABC):
    """Images are files that `docker save` or `podman save` wrote, or folders; the files are unpacked below ``cache``.

    Making one raises Undecided where its program is missing.
    """

    name: str
    program: str
    containers = True
    abilities = frozenset({Ability.LAYERS})

    def __init__(self, cache: Path) -> None:
        found = shutil.which(self.program)
        if found is None:
            raise Undecided(f"there is no {self.program} on PATH", f"install {self.name}, or load its module")
        self._program = found
        self._images = cache / "unpacked"
        told = proc.run([found, "--version"], timeout_s=60, env=self._environment())
        self.version = unpacked.version_of(told.stdout + told.stderr)
        self.where = f"{self.name} {self.version} ({self.open_to})".replace("  ", " ")

    open_to: str  # what a run sees of the machine beside what it is given

    # -- what each does in its own way

    @abstractmethod
    def _line(
        self,
        image: Unpacked,
        argv: Sequence[str],
        env: Mapping[str, str],
        binds: Mapping[str, tuple[str, bool]],
        workdir: str,
        user: str,
        gpus: tuple[str, ...],
        scratch: Path | None,
    ) -> JobLine:
        """The command line that starts ``argv`` in ``image`` with the variables ``env``, ``binds`` (source and whether
        it may be written to, by target) and ``gpus``.  A payload's run has a folder ``scratch`` of its own, and sees as
        little as can be had of the machine."""

    @abstractmethod
    def _refused(self, done: Completed) -> str:
        """Why the engine could not start the program, empty if it did."""

    def _environment(self) -> dict[str, str]:
        """This process's environment, as the program needs it."""
        return dict(os.environ)

    # -- images

    def _image(self, name: str, say: Say = lambda line: None) -> Unpacked:
        return unpacked.opened(name, self._images, say)

    def resolve_base(self, request: BaseRequest, say: Say) -> ResolvedBase:
        """Not possible: it builds nothing."""
        raise self._builds_nothing()

    def build(self, request: BuildRequest, say: Say) -> BuiltImage:
        """Not possible."""
        raise self._builds_nothing()

    def load(self, saved: Path, request: BaseRequest) -> ResolvedBase:
        """Not possible: it builds nothing."""
        raise self._builds_nothing()

    def _builds_nothing(self) -> UsageError:
        return UsageError(f"the {self.name} engine cannot {Ability.BUILD.value}", _SAVE)

    def compile(
        self, image: str, argv: Sequence[str], given: Path, made: Path, *, timeout_s: float, say: Say
    ) -> Completed:
        """Not possible: it would run a package's own code with all that this user may do."""
        raise cannot(self, Ability.COMPILE)

    def follow(
        self,
        image: str,
        argv: Sequence[str],
        *,
        mounts: Mapping[str, tuple[Path, bool]],
        gpus: tuple[str, ...] = (),
        network: str = "",
        placed: DeclaredStart | None = None,
        timeout_s: float,
        say: Say,
    ) -> Completed:
        """Not possible."""
        raise cannot(self, Ability.FOLLOW)

    def digest(self, ref: str) -> str:
        """Not possible: it speaks to no registry."""
        raise cannot(self, Ability.DIGEST)

    def layers(self, image: str) -> tuple[str, ...]:
        """The content hashes of the layers of a saved image; UsageError for a folder, which has none."""
        found = self._image(image)
        if not found.layers:
            raise UsageError(f"the folder {one_line(image)} has no layers", _SAVE)
        return found.layers

    def stored(self, image: str) -> StoredImage:
        """The unpacked image, which is one folder."""
        found = self._image(image)
        return StoredImage(found.id, found.size, roots=(found.root,))

    def file(self, image: str, path: str) -> bytes:
        """The content of the file ``path`` in ``image``; UsageError if there is none."""
        content = self._image(image).read(path)
        if content is None:
            raise UsageError(f"the image {one_line(image)} has no file {path}", "choose an image with it")
        return content

    def save(self, image: str, target: Path) -> None:
        """Copies the saved image; UsageError for a folder."""
        if not Path(image).is_file():
            raise UsageError(f"the folder {one_line(image)} is no saved image", _SAVE)
        shutil.copyfile(image, target)

    def push(self, image: str, ref: str, say: Say) -> str:
        """Not possible: it speaks to no registry."""
        raise cannot(self, Ability.PUSH)

    def join(self, index: str, pinned: str, platform: str, say: Say) -> str:
        """Not possible, as for ``push``."""
        raise cannot(self, Ability.JOIN)

    def elsewhere(self) -> bool:
        """Never."""
        return False

    def labels(self, image: str) -> Mapping[str, str]:
        """The labels of a saved image; of a folder, none."""
        return self._image(image).labels()

    def declared(self, image: str) -> DeclaredStart:
        """How a saved image says that its containers start; of a folder, nothing."""
        return self._image(image).declared()

    def remove(self, image: str) -> None:
        """Takes away what was unpacked; the saved file is the person's own."""
        unpacked.remove(image, self._images)

    # -- runs

    def run(
        self,
        image: str,
        argv: Sequence[str],
        *,
        payload: bytes,
        gpus: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        start: Start | None = None,
        placed: DeclaredStart | None = None,
        mounts: Mapping[str, Path] | None = None,
        timeout_s: float,
        say: Say,
        stop: Callable[[], bool] | None = None,
    ) -> Completed:
        """Runs the payload as a child of this process, which ends with it.

        Raises UsageError if the image or a mount does not exist, CannotStart if the image has no such program, and
        Undecided if it cannot be given GPUs.
        """
        found = self._image(image, say)
        own = ["/mnt/envkit.pyz", *argv, "--watch-stdin"]
        command = list(start(own)) if start else ["python3", *own]
        said = placed or found.declared()
        with proc.scratch_folder() as folder:
            (folder / "payload").mkdir(mode=0o755)
            (folder / "payload" / "envkit.pyz").write_bytes(payload)
            binds = {"/mnt": (str(folder / "payload"), False)}
            for at, path in (mounts or {}).items():
                if not path.exists():
                    raise UsageError(f"there is no {path}", "name a file or folder that exists")
                binds[at] = (str(path.resolve()), False)
            line = self._line(
                found, command, {**said.environment, **(env or {})}, binds, said.workdir, said.user, gpus, folder
            )
            with proc.sigterm_raises():
                done = proc.run(
                    line.argv, timeout_s=timeout_s, env={**self._environment(), **line.env}, hold_stdin=True,
                    on_line=say, stop=stop,
                )  # fmt: skip
        if why := self._refused(done):
            if command[0] == "python3" and re.search("python3|no such file", why, re.IGNORECASE):
                fix = "an image without Python cannot be probed: choose one that has it on PATH"
                raise CannotStart(f"the image {one_line(image)} has no python3 to run the payload with", fix)
            raise CannotStart(f"{self.name} could not start {one_line(command[0])}: {why}", "see what it names")
        return Completed(tuple(command), _signal(done.exit), done.stdout, done.stderr, done.timed_out)

    def job_line(self, request: JobRequest) -> JobLine:
        """The engine's own line for ``request``.  Its options are those of a container with limits of its own, which
        this engine does not make: it has the machine's /dev/shm, limits and network."""
        found = self._image(request.image)
        binds = {bind.target: (bind.source, bind.writable) for bind in request.binds}
        declared = found.declared()
        user = ":".join(map(str, request.user)) if request.user else declared.user
        argv = (*declared.entrypoint, *(request.argv or declared.command))
        env = {**declared.environment, **request.env}
        return self._line(found, argv, env, binds, request.workdir, user, request.gpus, None)

    def attend(self, request: JobRequest, attend: Attend) -> JobEnd:
        """A child of this process; an engine that cannot start it says why and ends."""
        code = attend(self.job_line(request))
        return JobEnd(128 - code if code < 0 else code)


def _signal(code: int) -> int:
    return 128 - code if 128 < code <= 192 else code


def in_folder(folder: Path, name: str, text: str) -> Path:
    """A file with ``text`` for this user alone."""
    path = folder / name
    files.write(path, text, 0o600)
    return path
