"""The command in a container: each run is one, with the folder of its files and the companion bound into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from envkit.debug.job import COMPANION
from envkit.engine import DeclaredStart, Engine, Say
from envkit.errors import UsageError
from envkit.records import dataclass
from envkit.system.proc import Completed

_FOLDER, _COMPANION = "/envkit-debug", "/envkit-companion"


@dataclass(frozen=True, slots=True)
class Container:
    """An image of an engine, shown the GPUs in ``gpus``; the supervisor runs on the image's own ``python3``.

    ``root`` is the folder of this session, ``volumes`` what else is bound: where, and whether it may be written to.
    ``placed`` holds the variables, the user and the working folder that count in the place of the image's.
    """

    engine: Engine
    image: str
    gpus: tuple[str, ...]
    say: Say
    network: str = ""
    volumes: Mapping[str, tuple[Path, bool]] = field(default_factory=dict)
    placed: DeclaredStart | None = None
    root: Path = Path()

    def at(self, folder: Path) -> Container:
        """The same with ``folder`` for its files, which the image's user must be able to write."""
        folder.chmod(0o777)
        return replace(self, root=folder)

    def seen(self, path: Path) -> str:
        """The path as the container has it; ``path`` is the companion, or in the folder of this session."""
        if path == COMPANION:
            return _COMPANION
        return f"{_FOLDER}/{path.relative_to(self.root).as_posix()}"

    def keep(self, job: Path, timeout_s: float) -> Completed:
        """Runs the supervisor in a container of its own, which is gone when this returns."""
        argv: Sequence[str] = ("python3", "-I", f"{_COMPANION}/envkit_supervisor.py", self.seen(job))
        mounts = {**self.volumes, _FOLDER: (self.root, True), _COMPANION: (COMPANION, False)}
        return self.engine.follow(
            self.image, argv, mounts=mounts, gpus=self.gpus, network=self.network, placed=self.placed,
            timeout_s=timeout_s, say=self.say,
        )  # fmt: skip


def volumes(words: Sequence[str]) -> dict[str, tuple[Path, bool]]:
    """What ``docker run -v`` takes, SOURCE:TARGET[:ro|:rw], of folders and files; UsageError for anything else."""
    found = {}
    for word in words:
        source, _, rest = word.partition(":")
        target, _, mode = rest.partition(":")
        if not source.startswith("/") or not target.startswith("/") or mode not in ("", "ro", "rw"):
            raise UsageError(f"`{word}` is no volume", "write SOURCE:TARGET or SOURCE:TARGET:ro, both from the root")
        found[target] = (Path(source), mode != "ro")
    return found
