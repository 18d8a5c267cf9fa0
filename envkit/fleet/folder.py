"""The folder that all nodes of a run share: who joins, what each leaves there, and what it costs when it hangs.

    RUN/run.json                 the nodes that shall answer; made by whoever comes first, and never changed
    RUN/beats/NODE.ATTEMPT.json  a node's last heartbeat
    RUN/nodes/NODE.ATTEMPT.json  a node's document
    RUN/links/                   the trials between nodes, as `trials` says
    RUN/start.json               which nodes the job starts on, where a command follows the check

Names hold the attempt, so that a second process of a node overwrites nothing.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from envkit.errors import EnvkitError, Undecided, UsageError, one_line
from envkit.fleet import hostlist
from envkit.fleet.documents import MOST_RUN_BYTES, Beat, Refused, Run, read_as, word
from envkit.fleet.launchers import Placement
from envkit.records import dataclass
from envkit.system import files

Made = TypeVar("Made")

GRACE_S = 5.0  # a node's answer may come so much later than its budget ends
WRITING_S = 30.0  # what a shared folder has for one file; a loaded one takes seconds for a rename
EAGER = 3  # nodes that look through the folder; the others wait for what these make, or for their time to be over
_LOOKED_EVERY_S = 0.25
_REFRESHED_EVERY_S = 2.0
_OWN_FOLDER = "give each launch a folder of its own, such as runs/$SLURM_JOB_ID, or remove this one"


class Hangs(Exception):
    """The shared folder did not answer in time."""


@dataclass(frozen=True, slots=True)
class Place:
    """A run's folder and the run; ``ahead_s`` is how much this node's clock is ahead of the folder's."""

    folder: Path
    run: Run
    ahead_s: float | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What all nodes of a run must be asked alike: the fields of the same names of `documents.Run`."""

    level: str
    budget_s: float
    spares: int = 0
    links: Literal["", "pairs", "groups"] = ""
    trial_s: float = 0.0
    floor: float = 0.0


def join(root: Path, placement: Placement, terms: Terms) -> Place:
    """The run of this launch in ``root``, or in a folder below it that has the launch's name.

    Raises UsageError where another run lies there or the nodes do not agree on what is asked, Undecided where the
    folder cannot be written.
    """
    folder = root / word(placement.launch) if placement.launch else root
    name = word(placement.launch or f"run-{secrets.token_hex(6)}")
    mine = Run(
        "envkit.run/1", name, secrets.token_hex(16), placement.hosts, terms.budget_s, time.time(), terms.level,
        placement.launcher, terms.spares, terms.links, terms.trial_s, terms.floor,
    )  # fmt: skip
    return in_time(lambda: _joined(folder, mine, bool(placement.launch)), WRITING_S)


def _joined(folder: Path, mine: Run, named: bool) -> Place:
    path = folder / "run.json"
    run = run_in(folder) or _begun(folder, mine)
    ahead_s = _ahead(folder)
    if named and run.run != mine.run:
        raise UsageError(f"{folder} holds the run {run.run}, and this is {mine.run}", _OWN_FOLDER)
    if time.time() - (ahead_s or 0.0) > run.created + run.budget_s + 2 * GRACE_S + WRITING_S:
        raise UsageError(f"{folder} holds the run {run.run}, which is over", _OWN_FOLDER)
    for what, theirs, own in (
        ("nodes", hostlist.compressed(run.hosts), hostlist.compressed(mine.hosts)),
        ("level", run.level, mine.level),
        ("budget", f"{run.budget_s:g} s", f"{mine.budget_s:g} s"),
        ("spares", str(run.spares), str(mine.spares)),
        ("test of links", _links(run), _links(mine)),
    ):
        if theirs != own:
            said = f"the {what} of this run: {one_line(theirs)} in {path}, {one_line(own)} here"
            raise UsageError(said, f"start all nodes with the same options; {_OWN_FOLDER}")
    return Place(folder, run, ahead_s)


def _links(run: Run) -> str:
    return f"{run.links} with {run.trial_s:g} s a trial and at least {run.floor:g} GB/s" if run.links else "none"


def _begun(folder: Path, mine: Run) -> Run:
    """The run in a folder that had none: ``mine``, or that of whoever was first.

    A node that may not write there waits for the others for a while: it can still examine itself, and print.
    """
    try:
        for each in (folder / "beats", folder / "nodes"):
            files.folder(each, "name a folder that all nodes share and that may be written to")
        create(folder / "run.json", msgspec.json.encode(mine))
    except EnvkitError:
        limit = time.monotonic() + GRACE_S
        while (found := run_in(folder)) is None:
            if time.monotonic() > limit:
                raise
            time.sleep(0.1)
        return found
    run = run_in(folder)
    if run is None:
        raise Undecided(f"{folder / 'run.json'} was written and is not there", "name a folder that all nodes share")
    return run


def run_in(folder: Path) -> Run | None:
    """The run that lies in ``folder``, None where there is none; raises UsageError where run.json holds none."""
    path = folder / "run.json"
    try:
        return read_as(Run, files.content(path, MOST_RUN_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, Refused) as error:
        why = files.why(error) if isinstance(error, OSError) else error.why
        raise UsageError(f"{path} holds no run: {why}", "name the folder of a run") from error


def _ahead(folder: Path) -> float | None:
    """How many seconds this node's clock is ahead of the one that dates the files of ``folder``."""
    path = folder / f".clock.{secrets.token_hex(8)}"
    try:
        before = time.time()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, b"\n")
            os.fsync(handle)
            dated = os.fstat(handle).st_mtime
        finally:
            os.close(handle)
            path.unlink()
        after = time.time()
    except OSError:  # a full folder; what is written next says so
        return None
    least, most = before - dated, after - dated  # the truth lies between them
    return round(least if least > 0 else most if most < 0 else 0.0, 3)


def create(path: Path, data: bytes) -> bool:
    """Puts a file there whole if none is: False where somebody was first.  Raises Undecided on a full disk and
    UsageError where the folder may not be written to or knows no hard links."""
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        temporary.write_bytes(data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return True


def replace_with(path: Path, data: bytes) -> None:
    """Puts a file there whole, over an older one; raises as ``create`` does."""
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise _unwritten(path, error) from error


def _unwritten(path: Path, error: OSError) -> Undecided | UsageError:
    if files.is_full(error):
        return Undecided(f"the disk is full: {path} was not written", f"free some space on {path.parent}")
    if (
        error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
        and path.parent.is_dir()
        and os.access(path.parent, os.W_OK)
    ):
        return UsageError(
            f"the file system of {path.parent} has no hard links", "name a folder on NFS, Lustre or a disk"
        )
    return UsageError(f"{path} cannot be written: {files.why(error)}", f"check the folder {path.parent}")


def beat(place: Place, node: str, attempt: str, started: float, level: str) -> None:
    """Leaves a heartbeat; raises as ``create`` does, and Hangs."""
    made = Beat("envkit.beat/1", place.run.run, place.run.nonce, node, attempt, started, time.time(), level)
    path = place.folder / "beats" / f"{node}.{attempt}.json"
    in_time(lambda: replace_with(path, msgspec.json.encode(made)), WRITING_S)


def deliver(place: Place, node: str, attempt: str, data: bytes) -> Path:
    """Leaves a node's document; raises as ``create`` does, and Hangs."""
    path = place.folder / "nodes" / f"{node}.{attempt}.json"
    in_time(lambda: replace_with(path, data), WRITING_S)
    return path


def look_again(folder: Path) -> None:
    """Has a network file system ask its server what lies in ``folder``: one that remembers that a name was not there
    (NFS: lookupcache, acdirmax) else takes a minute to see it, and a change of its own ends that."""
    path = folder / f".look.{secrets.token_hex(8)}"
    with suppress(OSError):
        path.touch(exist_ok=False)
        path.unlink()


def in_time(work: Callable[[], Made], seconds: float) -> Made:
    """What ``work`` gives, or raises; raises Hangs where that takes longer.

    In a thread, which is left behind: a process that waits for a file system that hangs cannot even be killed.
    """
    done: list[Made] = []
    failed: list[Exception] = []

    def begin() -> None:
        try:
            done.append(work())
        except (EnvkitError, OSError, Refused) as error:
            failed.append(error)

    thread = threading.Thread(target=begin, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not done and not thread.is_alive():
        raise RuntimeError("a thread ended without a result")
    if not done:
        raise Hangs(f"the shared folder did not answer within {seconds:g} s")
    return done[0]


def awaited(inside: Path, what: str, eager: bool, limit: float, attempt: Callable[[bool], Made | None]) -> Made:
    """What ``attempt`` gives, which is called until that is not None; it is told whether the time ``limit``
    (time.monotonic) has come.  ``inside`` is the folder in which a file is to appear, ``what`` names it for a person.

    Raises Undecided where the shared folder hangs.
    """
    refreshed = time.monotonic()
    while True:
        over = time.monotonic() >= limit
        try:
            if time.monotonic() - refreshed > _REFRESHED_EVERY_S * (1 if eager else EAGER):
                in_time(partial(look_again, inside), WRITING_S)
                refreshed = time.monotonic()
            if (made := attempt(over)) is not None:
                return made
        except Hangs as error:
            raise Undecided(f"{what} was not read: {error}", "see the shared folder") from error
        time.sleep(_LOOKED_EVERY_S)
