"""From a spec to the lock beside it: on what base, and with how much of the lock that is there.

It imports neither Docker's client nor what proves an image: a lock is waited for, and the engine is looked for while uv
solves.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from envkit.engine import BaseRequest, Engine, ResolvedBase, Say
from envkit.errors import EnvkitError, Undecided, UsageError
from envkit.facts import Facts
from envkit.plan import derive, indexes, solve
from envkit.plan import lockfile as locks
from envkit.plan.apt import Base, NoBase, bare
from envkit.plan.flavors import RUNTIME
from envkit.plan.indexes import Indexes
from envkit.plan.lockfile import Lock
from envkit.plan.resolve import Choice
from envkit.plan.spec import Spec
from envkit.system import files
from envkit.system.files import cache_dir
from envkit.system.no_room import NoRoom

if TYPE_CHECKING:
    from envkit.plan.compiled import Run, Workshop

# Raises for a lock that is not to be written.
Accept = Callable[[Spec, Facts, Lock], None]

# A bootstrapped base is the same for all locks; its files are as old as a zip file can say, the youngest age that
# every tool can write.
BASE_EPOCH = 315532800

_STATUS = "/var/lib/dpkg/status"


def base_request(lock: Lock) -> BaseRequest:
    """The base that ``lock`` pins."""
    return suite_wish(lock.suite, lock.image, lock.digest)


def suite_wish(suite: str, image: str = "", digest: str = "") -> BaseRequest:
    """The base ``image``, or of this ``digest``, which may be made from the packages of ``suite`` if that is named.

    What is made so holds already what every image of envkit holds, and no build installs it again.
    """
    return BaseRequest(ref=image, suite=suite, digest=digest, include=RUNTIME, epoch=BASE_EPOCH)


def base_of(connect: Callable[[], Engine | None], say: Say, choice: Choice, cache: Path | None = None) -> Base:
    """The base that a lock of ``choice`` made now starts from; the package list of one made from packages is kept under
    ``cache``.

    Raises NoBase where ``connect`` gives no engine, for none is wanted, and Undecided without a container engine, which
    alone can say anything of a base.
    """
    engine = connect()
    if engine is None:
        raise NoBase("--engine none examines no base", "lock with a container engine")
    if not engine.containers:
        raise Undecided("a base can only be examined with a container engine", "lock on a machine with Docker")
    found = engine.resolve_base(suite_wish(choice.suite, choice.image), say)
    if not found.sha256 and choice.suite:
        say(f"the engine has no digest for its {choice.image}; trying a base made from packages, which has one")
        try:
            found = engine.resolve_base(suite_wish(choice.suite), say)
        except NoRoom:
            raise
        except Undecided as error:
            say(f"a base cannot be made here: {error.message}")
    if found.how == "bootstrapped":
        kept = cache / "bases" / f"{choice.suite}.status" if cache else None
        return Base(found.sha256, "packages", _bare(engine, found, kept))
    return Base(found.sha256, "registry" if found.sha256 else "", engine.file(found.ref, _STATUS))


def _bare(engine: Engine, found: ResolvedBase, kept: Path | None) -> bytes:
    """The ``bare`` package list of a base made from packages.  Its digest is that of all its files, so that the list in
    the file ``kept`` is the same for the same digest, and no container, which takes most of a second, is made to read
    it again."""
    if kept:
        with suppress(OSError, EnvkitError):
            head, _, held = files.content(kept).partition(b"\n")
            if head == _sealed(found.sha256, held):
                return held
    status = bare(engine.file(found.ref, _STATUS))
    if kept:
        with suppress(EnvkitError, UnicodeDecodeError):  # a folder that cannot be written to, a full disk
            text = status.decode()
            files.write(files.folder(kept.parent) / kept.name, f"{_sealed(found.sha256, status).decode()}\n{text}")
    return status


def _sealed(digest: str, status: bytes) -> bytes:
    """The first line of a kept package list: of which base it is, and its own hash."""
    return f"{digest} {hashlib.sha256(status).hexdigest()}".encode()


def not_here(lock: Lock, engine: Engine, named: Indexes, say: Say) -> AbstractContextManager[Run]:
    """The workshop of who compiles nothing."""
    raise Undecided("`build` asks for packages to be compiled, and this command compiles nothing", "run `envkit lock`")


def new_lock(
    spec: Spec,
    facts: Facts,
    connect: Callable[[], Engine | None],
    say: Say,
    *,
    previous: Lock | None = None,
    upgrade: tuple[str, ...] | None = None,
    may_stay_open: Collection[str] = (),
    warn: Say | None = None,
    accept: Accept = lambda spec, facts, lock: None,
    workshop: Workshop | None = not_here,
    meanwhile: Callable[[], None] = lambda: None,
) -> Lock:
    """A lock for ``spec`` as of now; see ``envkit.plan.solve.lock`` for what stays of ``previous``, for the lock that
    is refused unless ``may_stay_open`` names what it does not pin, and for ``warn`` and ``meanwhile``.  ``accept`` sees
    it, and raises for one that is not to be written.  ``workshop`` is where `build` is compiled; without one nothing
    is, see `compiled.lock`."""
    facts = derive.for_spec(spec, facts, say)
    afterwards: list[Callable[[], None]] = []

    def solved(spec: Spec, previous: Lock | None, upgrade: tuple[str, ...] | None, say: Say, warn: Say | None) -> Lock:
        return solve.lock(
            spec,
            facts,
            say,
            base=partial(base_of, connect, say, cache=cache_dir()),
            previous=previous,
            upgrade=upgrade,
            cache=cache_dir(),
            may_stay_open=may_stay_open,
            warn=warn,
            meanwhile=meanwhile,
            afterwards=afterwards.append,
        )

    if spec.build:
        from envkit.plan import compiled  # most specs compile nothing, and what reads a wheel's code costs 20 ms

        made = compiled.lock(
            spec, facts, solved, connect, workshop, say, warn, previous=previous, upgrade=upgrade, cache=cache_dir()
        )
    else:
        made = solved(spec, previous, upgrade, say, warn)
    if spec.package:
        from envkit.plan import project  # what packs a project's files takes 5 ms, and most specs have none

        named = indexes.of(spec.index, spec.extra_index)
        same = previous is not None and upgrade != () and previous.wish.get("project") == spec.package
        resolve = partial(solve.build_tools, named, before=spec.before)
        own = project.lock(spec, made.python, previous.project if previous and same else None, resolve)
        made = replace(made, project=own)
    accept(spec, facts, made)
    for each in afterwards:
        each()
    return made


def save(spec: Spec, made: Lock, say: Say) -> None:
    """Writes the lock beside the spec, and says so."""
    path = locks.path_of(spec)
    locks.save(made, path)
    say(f"wrote {path}: {len(made.wheels)} wheels, {len(made.debs)} Debian packages")


def save_both(spec: Spec, was: str, text: str, made: Lock) -> None:
    """Writes the spec's new ``text`` and its lock, both or none; ``was`` is the text that the change began with.

    Raises UsageError where the spec is another by now, and what ``files.write`` does.
    """
    if files.text(spec.path, "check the file and its permissions") != was:
        raise UsageError(f"{spec.path} was changed while the lock was made, and nothing was written", "run it again")
    path = files.beside(spec.path.parent, spec.path.name)
    mode = stat.S_IMODE(os.stat(path).st_mode)
    files.write(path, text, mode)
    try:
        locks.save(made, locks.path_of(spec))
    except BaseException:  # an end by Ctrl-C too
        files.write(path, was, mode)
        raise


def ensure_lock(
    spec: Spec,
    facts: Facts,
    connect: Callable[[], Engine | None],
    say: Say,
    *,
    refresh_os: bool = False,
    may_stay_open: Collection[str] = (),
    warn: Say | None = None,
    accept: Accept = lambda spec, facts, lock: None,
    workshop: Workshop = not_here,
) -> Lock:
    """The lock beside the spec if it answers the spec; else a new one, written there.

    With ``refresh_os`` its base and Debian packages become today's, for archives that keep no old versions; its wheels
    stay.  Without a container engine nothing of the system is built: there is nothing to refresh, and a new lock leaves
    base and Debian packages open, which an environment on this machine does not have.
    """
    held = locks.read(spec)
    answers = held is not None and not locks.problems(spec, held)
    if held is not None and answers:
        if not refresh_os:
            return held
        engine = connect()
        if engine is None or not engine.containers:
            say("keeping the locked base and Debian packages: no container engine here builds on them")
            return held
    path = locks.path_of(spec)
    if not answers:
        say(f"{path} {'is for another spec, locking again' if held else 'does not exist yet, locking'}")
    upgrade = (debs_of(held) if refresh_os else ()) or None
    pinned = held is not None and not locks.unpinned(held)  # what was pinned once is not given up without being asked
    if not pinned and (engine := connect()) is not None and not engine.containers:
        may_stay_open = {*may_stay_open, "os", "base"}
    made = new_lock(
        spec, facts, connect, say,
        previous=held, upgrade=upgrade, may_stay_open=may_stay_open, warn=warn, accept=accept, workshop=workshop,
    )  # fmt: skip
    save(spec, made, say)
    return made


def debs_of(lock: Lock | None) -> tuple[str, ...]:
    """The names of the Debian packages that ``lock`` holds, which is all that `--refresh-os` solves again."""
    return tuple(sorted({deb.name for deb in lock.debs})) if lock else ()
