"""All inputs of a build in one folder, so that it works after a mirror has moved on, and with the network off.

The folder holds envkit.lock, ``base.tar`` as ``docker load`` reads it, ``wheels/`` (the installer's among them) and
``debs/``, a Debian repository with no other index than its ``Packages``.  Every file is compared with the lock's hash
when it comes in and again when it is used.  ``project/`` is what images hold of the project, with its hashes beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from envkit.build import inside, up
from envkit.engine import Engine, ResolvedBase, Say
from envkit.errors import EnvkitError, Undecided, UsageError
from envkit.facts.rows import own_index
from envkit.plan import apt, compiled, given, sources
from envkit.plan import lockfile as locks
from envkit.plan.given import GivenWheel
from envkit.plan.indexes import Indexes
from envkit.plan.lockfile import Lock
from envkit.plan.spec import Platform, Spec
from envkit.plan.update import base_request
from envkit.system import files, proc

_BUDGET_S = 3600.0  # three gigabytes of wheels over a slow line

_LOCK, _WHEELS, _DEBS = "envkit.lock", "wheels", "debs"
_SUMS = "project.json"  # the hashes of what is in project/


def can_be_filled(directory: Path) -> None:
    """Raises UsageError, before any work, for a place that ``save`` could not fill."""
    fix = "name a new folder, inside a writable one"
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(directory)  # a name that no folder can have is an error here
        if os.path.lexists(directory) and (not directory.is_dir() or any(directory.iterdir())):
            raise UsageError(f"{directory} already exists and is not empty", fix)
        above = directory.resolve().parent
        while not above.exists():
            above = above.parent
        if not above.is_dir():
            raise UsageError(f"{directory} cannot be filled: {above} is not a folder", fix)
        with files.scratch("vendor", above):  # whether it may be: root may write anywhere, but for where nobody may
            pass
    except OSError as error:
        raise _unfilled(directory, error) from error
    except RuntimeError as error:
        raise UsageError(f"{directory} cannot be filled: it is a link that leads in a circle", fix) from error


def _unfilled(directory: Path, error: OSError) -> EnvkitError:
    """What is said of a folder that cannot be made or written to."""
    if files.is_full(error):
        return Undecided(f"the disk is full: {directory} was not filled", f"free some space on {directory.parent}")
    fix = "name a new folder, inside a writable one"
    return UsageError(f"{directory} cannot be filled: {files.why(error)}", fix)


def save(
    lock: Lock,
    directory: Path,
    engine: Engine,
    say: Say,
    indexes: Indexes | None = None,
    wheels: tuple[GivenWheel, ...] = (),
    spec: Spec | None = None,
) -> None:
    """Fills ``directory``, which is new or empty, with all that the three flavors of ``lock`` are built from, the
    wheels from ``indexes`` where the spec names some, but for ``wheels``, which no index has, and with what the images
    hold of the project of ``spec``.

    The folder is filled beside its place and renamed.  Raises UsageError for a folder with something in it and for a
    lock without versions of its Debian packages, Undecided when network, engine or disk does not serve.
    """
    can_be_filled(directory)
    if not lock.archive or not lock.digest:
        said = "the lock has Debian packages only by name, or no base, so it is not known which to save"
        raise UsageError(said, "lock again on a Debian machine with an engine: envkit lock --refresh-os")
    base = engine.resolve_base(base_request(lock), say)
    parent = files.folder(directory.resolve().parent)
    named = indexes or Indexes()

    def fetch(target: Path) -> None:
        fetch_wheels(lock, named, wheels, target)
        again = compiled.compiled_again(lock, engine, up.workshop, named, files.cache_dir(), say)
        sources.gather(lock, target, files.cache_dir(), say, named, again=again)
        if spec is not None and inside.wanted(lock):
            staged = files.folder(target.parent / inside.STAGE)
            inside.stage(spec, lock, staged, say, named)
            (target.parent / _SUMS).write_text(json.dumps(_sums(staged)), encoding="utf-8")

    try:
        _fill(lock, directory, parent, base, engine, fetch, say)
    except OSError as error:
        raise _unfilled(directory, error) from error
    say(f"wrote {directory}")


def _fill(
    lock: Lock,
    directory: Path,
    parent: Path,
    base: ResolvedBase,
    engine: Engine,
    fetch: Callable[[Path], None],
    say: Say,
) -> None:
    with files.scratch("vendor", parent) as folder:
        draft = folder / "draft"
        for part in (_WHEELS, _DEBS):
            files.folder(draft / part)
        debs = proc.beside(lambda: _fetch_debs(lock, draft / _DEBS, say))
        say(f"downloading {len(lock.wheels) + 1} wheels, {sum(pin.size for pin in lock.wheels) / 1e9:.1f} GB")
        fetch(draft / _WHEELS)
        debs()
        engine.save(base.ref, draft / up.VENDORED_BASE)
        locks.save(lock, draft / _LOCK)
        check(lock, draft)
        if directory.exists():
            directory.rmdir()
        draft.chmod(0o755)
        draft.rename(directory.resolve())


def _fetch_debs(lock: Lock, target: Path, say: Say) -> None:
    machine = Platform(lock.platform).machine
    if lock.debs:
        apt.fetch(lock.debs, lock.suite, lock.components, machine, files.cache_dir(), target, say)


def fetch_wheels(lock: Lock, indexes: Indexes, wheels: tuple[GivenWheel, ...], target: Path) -> None:
    """The wheels by pip, which uv brings here: uv itself downloads nothing without installing it."""
    with files.scratch("wheels") as folder:
        wanted = folder / "requirements.txt"
        listed = (*(pin for pin in lock.wheels if pin.name not in lock.unindexed), lock.installer)
        wanted.write_text(locks.requirements(listed), encoding="utf-8")
        command = [proc.uv_path(), "tool", "run", "--no-config", "--python", sys.executable, "pip", "download"]
        command += ["--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps", "--require-hashes"]
        command += ["--only-binary=:all:", f"--python-version={lock.python}", f"--dest={target}", f"-r{wanted}"]
        command += [f"--platform={tag}" for tag in _platforms(lock)]
        if lock.backend:
            command.append(f"--extra-index-url={own_index(lock.backend)}")
        done = proc.run(command, timeout_s=_BUDGET_S, env=indexes.environment())
    if done.exit != 0 or done.timed_out:
        if "No space left on device" in done.stderr:
            raise Undecided(f"the disk is full: {target.parent} was not filled", f"free some space on {target.parent}")
        if "401" in done.stderr and (error := indexes.refused(done.stderr)):
            raise error
        said = " ".join(line for line in done.stderr.splitlines() if line.startswith("ERROR"))[-400:]
        why = f"the wheels could not be downloaded: {said or f'pip ended with exit code {done.exit}'}"
        raise Undecided(why, "check the network and the package index")
    given.gather(wheels, target)


def _platforms(lock: Lock) -> list[str]:
    """The platform tags of the wheels that the lock holds, for pip takes none but those it is told."""
    pins = (*lock.wheels, lock.installer)
    return sorted({tag for pin in pins for tag in pin.file.removesuffix(".whl").split("-")[-1].split(".")} - {"any"})


def load(directory: Path, say: Say) -> Lock:
    """The lock in ``directory``, its files compared with it.

    Raises UsageError for a folder that ``save`` did not fill or in which a file is missing or another one.
    """
    path = directory / _LOCK
    filled = "name a folder that `envkit vendor` filled"
    if not os.path.lexists(path):
        raise UsageError(f"{directory} contains no {_LOCK}", filled)
    lock = locks.parse(files.text(path, filled, files.MOST_BYTES), str(path))
    say(f"comparing {directory} with its lock")
    check(lock, directory)
    return lock


def check(lock: Lock, directory: Path) -> None:
    """Compares every file with the hash in the lock; raises UsageError naming those that are missing or differ."""
    wanted = {f"{_WHEELS}/{pin.file}": pin.sha256 for pin in (*lock.wheels, lock.installer)}
    wanted |= {f"{_DEBS}/{apt.file_of(deb)}": deb.sha256 for deb in lock.debs}
    with ThreadPoolExecutor() as pool:
        found = dict(zip(wanted, pool.map(lambda name: _hash(directory / name), wanted), strict=True))
    bad = [name for name, sha256 in wanted.items() if found[name] != sha256]
    if inside.wanted(lock):
        bad += _changed(directory)
    if bad or not (directory / up.VENDORED_BASE).is_file():
        said = f"{directory} does not contain what its lock says: {', '.join(bad[:5]) or up.VENDORED_BASE}"
        raise UsageError(said, "fill it again with `envkit vendor`")


def _sums(staged: Path) -> dict[str, str]:
    """The hash of each file of the project, and where each link leads, by its path."""
    paths = sorted(path for path in staged.rglob("*") if path.is_symlink() or not path.is_dir())
    return {str(path.relative_to(staged)): os.readlink(path) if path.is_symlink() else _hash(path) for path in paths}


def _changed(directory: Path) -> list[str]:
    """The files of the project that are not as they were saved."""
    try:
        saved = dict(json.loads(files.content(directory / _SUMS)))
    except (OSError, ValueError, TypeError):
        return [_SUMS]
    now = _sums(directory / inside.STAGE)
    return [f"{inside.STAGE}/{name}" for name in sorted({*saved, *now}) if saved.get(name) != now.get(name)]


def _hash(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
