"""Puts a Launch together: the image's files, the machine, and what somebody declares of the job.

Nothing is run and nothing is judged here.  What the job mounts is looked at in a child each, for a network file system
whose server is gone answers nobody.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from envkit.engine import Engine, Say
from envkit.errors import EnvkitError, Undecided
from envkit.host.root import HostRoot, short
from envkit.image import exposed
from envkit.image.config import DEFAULT_PATH, variables
from envkit.model import Observed
from envkit.payload import isolate
from envkit.payload.isolate import Task
from envkit.payload.probe import environ
from envkit.records import dataclass
from envkit.subjects.audit import Audit
from envkit.subjects.codec import from_plain, to_plain
from envkit.subjects.declared import Job, Mount
from envkit.subjects.host import Host
from envkit.subjects.launch import Account, CompatLibrary, FileKind, Inside, Launch
from envkit.system import files

if TYPE_CHECKING:
    from envkit.image.tree import Tree

_MOUNT_S = 2.0  # stat and statvfs take microseconds; beyond this the file system hangs
# Beside the steering ones, what decides where a process writes and who it is; none of them holds a secret.
_MORE = ("HOME", "USER", "LOGNAME", "TMPDIR")
_COMPAT = re.compile(r"/libcuda\.so\.([0-9]+(?:\.[0-9]+)+)\Z")
_NOTE, _NOTE_OWNER = ".note.cuda.fwd_compatibility", b"NVIDIA Corporation"
_MOST_RECORDS = 64  # of what was seen of images, some 100 KB each
_MOST_NOTE = 1 << 16  # bytes; real ones have some two hundred


@dataclass(frozen=True, slots=True)
class ImageSide:
    """What a launch takes of an image: its configuration, and of its files what the fields of a Launch say."""

    config: Mapping[str, Any]
    audit: Audit
    compat: Observed[tuple[CompatLibrary, ...]]
    accounts: Observed[tuple[Account, ...]]
    paths: Mapping[str, Inside]
    program: Observed[str]


def observe(
    image_target: str,
    host: Host,
    job: Job,
    connect: Callable[[], Engine],
    say: Say,
    place: HostRoot | None = None,
    kept: Path | None = None,
) -> Launch:
    """The launch of ``job`` from ``image_target`` on ``host``, before anything runs.

    ``image_target`` is what `envkit audit` takes: a directory, a saved image, or an image of the engine that
    ``connect`` gives, which is called for nothing else.  ``place`` is where the host itself lies: None for one that was
    recorded elsewhere, whose mounts stay open then.  ``kept`` is a folder for what was seen of an engine's image, which
    is its content's hash: the next launch of such a job need not read gigabytes.  Raises UsageError for an image that
    does not exist; an engine or a disk that does not serve leaves the image open and raises nothing.
    """
    launch = Launch(f"{image_target} on {host.name}", host, job=_looked_at(job, place))
    try:
        if kept is None or os.path.exists(image_target):
            return _joined(launch, _read(image_target, job, connect, say))
        record = kept / f"{_key(connect().stored(image_target).id, job)}.json"
        side = _recorded(record)
        if side is None:
            side = _read(image_target, job, connect, say)
            _record(record, side)
        return _joined(launch, side)
    except Undecided as error:
        why = error.message
        lost: Observed[Any] = Observed.lost(why)
        open_job = replace(launch.job, environment=Observed.lost(f"the image's variables: {why}"), replaced=lost)
        return replace(launch, image=lost, compat=lost, accounts=lost, paths=lost, program=lost, job=open_job)


def _read(image_target: str, job: Job, connect: Callable[[], Engine], say: Say) -> ImageSide:
    # Of use to the first launch of an image alone; to import them takes as long as all that a later one does.
    from envkit.image.audit import observe as observe_files
    from envkit.image.tree import open_tree
    from envkit.runner.runner import promised

    with open_tree(image_target, connect, say) as tree:
        labels = tree.config.get("Labels")
        texts = {str(key): str(text) for key, text in labels.items()} if isinstance(labels, dict) else {}
        audit = observe_files(tree, gpus=(), promise=promised(texts, image_target), say=say)
        job, path = _in_image(job, tree.config)
        accounts = _accounts(tree)
        paths = {path: _inside(tree, path) for path in _named(job, accounts)}
        return ImageSide(_told(tree.config), audit, _compat(tree), accounts, paths, _program(tree, job.command, path))


def _key(image: str, job: Job) -> str:
    """What an ImageSide depends on: the image's content, what of the job names paths in it, and the code that reads."""
    package = Path(__file__).parents[1]
    code = sorted(
        (entry.path, (about := entry.stat()).st_size, about.st_mtime_ns)
        for room in ("image", "launch", "payload", "subjects")
        for entry in _modules(str(package / room))
    )
    mounts = [mount.target for mount in job.mounts.value or ()]
    command = to_plain(job.command) if job.command.missing else (job.command.value or ())[:1]
    asked = [to_plain(job.environment), mounts, job.checkpoint.value, job.user.value, command]
    return sha256(json.dumps([image, asked, code]).encode()).hexdigest()[:32]


def _modules(folder: str) -> Iterator[os.DirEntry[str]]:
    """The modules below ``folder``; `Path.rglob` takes five times as long, at every run."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _modules(entry.path)
            elif entry.name.endswith(".py"):
                yield entry


def _recorded(path: Path) -> ImageSide | None:
    """What was seen earlier; None for nothing, and for a file that is not as envkit wrote it."""
    try:
        return from_plain(ImageSide, json.loads(path.read_bytes()))
    except (OSError, ValueError, EnvkitError):
        return None


def _record(path: Path, side: ImageSide) -> None:
    """Writes what was seen, and drops what has not been asked for for long; a disk that is full keeps nothing."""
    with suppress(EnvkitError, OSError):
        files.write(files.folder(path.parent) / path.name, json.dumps(to_plain(side)), 0o600)
        others = sorted(path.parent.glob("*.json"), key=lambda one: one.stat().st_mtime_ns)
        for stale in others[:-_MOST_RECORDS]:
            stale.unlink()


def _steering(variables: Mapping[str, str]) -> dict[str, str]:
    """Those that say how the process runs, credentials in them hidden."""
    kept = {name: value for name, value in sorted(variables.items()) if environ.steers(name) or name in _MORE}
    return {name: exposed.command(value)[0] for name, value in kept.items()}


def _told(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of a configuration what a launch asks for, and of its variables those that hold no secret."""
    kept = {name: config[name] for name in ("User", "Entrypoint", "Cmd") if config.get(name)}
    asked = (*_MORE, "PATH")
    env = [f"{name}={value}" for name, value in variables(config).items() if environ.steers(name) or name in asked]
    return {**kept, "Env": env} if config else {}


def _in_image(job: Job, config: Mapping[str, Any]) -> tuple[Job, str]:
    """The job with what the image's configuration adds, and the PATH that it has there."""
    of_image = variables(config)
    of_job = dict(job.environment.value or {})
    whole = of_image | of_job
    told = f"image config, then {job.environment.via}" if of_job else "image config"
    replaced = {name: of_image[name] for name in of_job if name in of_image and of_image[name] != of_job[name]}
    user = job.user
    if user.missing and config:
        user = Observed.of(str(config.get("User") or "root"), "image config")
    command = job.command
    if config:  # the engine puts the image's entry point before any command, and its Cmd only where there is none
        entry = tuple(map(str, config.get("Entrypoint") or ()))
        given = tuple(map(str, config.get("Cmd") or ())) if command.missing else command.value or ()
        via = "image config" if command.missing else f"image config, then {command.via}" if entry else command.via
        command = Observed.of((*entry, *given), via) if entry or given else command
    merged = replace(
        job,
        environment=Observed.of(_steering(whole), told),
        replaced=Observed.of(_steering(replaced), "image config"),
        user=user,
        command=command,
    )
    return merged, whole.get("PATH", DEFAULT_PATH if config else "")


def _joined(launch: Launch, side: ImageSide) -> Launch:
    job, _ = _in_image(launch.job, side.config)
    if job.command.value:
        words = tuple(exposed.command(word)[0] for word in job.command.value)
        job = replace(job, command=replace(job.command, value=words))
    return replace(
        launch,
        image=Observed.of(side.audit, "its files"),
        compat=side.compat,
        accounts=side.accounts,
        paths=Observed.of(side.paths, "the image's files"),
        program=side.program,
        job=job,
    )


def _inside(tree: Tree, path: str) -> Inside:
    real = tree.real(path)
    if not real:
        return Inside("absent")
    entry = tree.entries[real]
    kinds: Mapping[str, FileKind] = {"file": "file", "directory": "directory"}
    kind = kinds.get(entry.kind, "other")
    return Inside(kind, real, entry.uid, entry.gid, entry.mode & 0o7777)


def _named(job: Job, accounts: Observed[tuple[Account, ...]]) -> list[str]:
    """Every path from the root that the job or one of its variables names, and the users' homes."""
    found = {"/", "/tmp", "/root"} | {account.home for account in accounts.value or ()}
    found |= {mount.target for mount in job.mounts.value or ()} | {job.checkpoint.value or "/"}
    for values in (job.environment.value or {}, job.replaced.value or {}):
        found |= {part for value in values.values() for part in re.split(r"[:; ]", value)}
    paths = {posixpath.normpath(path) for path in found if path.startswith("/")}
    # a program makes its folder where there is none, so what lies above counts too
    return sorted(paths | {str(parent) for path in paths for parent in PurePosixPath(path).parents})


def _accounts(tree: Tree) -> Observed[tuple[Account, ...]]:
    if not tree.real("/etc/passwd"):
        return Observed.of((), "the image has no /etc/passwd")
    try:
        text = bytes(tree.data("/etc/passwd")[: 1 << 20]).decode("utf-8", "replace")
    except Undecided as error:
        return Observed.lost(error.message)
    found = []
    for line in text.splitlines():
        parts = line.split(":")
        if len(parts) >= 6 and parts[2].isdecimal() and parts[3].isdecimal():
            found.append(Account(parts[0], int(parts[2]), int(parts[3]), parts[5]))
    return Observed.of(tuple(found), "/etc/passwd of the image")


def _program(tree: Tree, command: Observed[tuple[str, ...]], path: str) -> Observed[str]:
    """Where the first word of the command is found in the image; what a mount brings is not looked into."""
    words = command.value
    if not words:
        return Observed.lost(command.missing or "there is no command")
    if "/" in words[0] and not words[0].startswith("/"):
        return Observed.lost(f"{words[0]} counts from the working directory")
    if "/" not in words[0] and not path:
        return Observed.lost("a directory has no image configuration, and so no PATH")
    places = [words[0]] if "/" in words[0] else [f"{folder}/{words[0]}" for folder in path.split(":") if folder]
    for one in places:
        real = tree.real(one)
        if real and tree.entries[real].kind == "file" and tree.entries[real].mode & 0o111:
            return Observed.of(one, "PATH of the image")
    return Observed.of("", "PATH of the image")


def parse_note(data: bytes) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """CUDA, driver branches and brands out of the section .note.cuda.fwd_compatibility.

    The note's owner is NVIDIA and its description JSON, whose keys may be written in any case.  Raises ValueError for
    anything else.
    """
    if not 12 <= len(data) <= _MOST_NOTE:
        raise ValueError(f"a note of {len(data)} bytes")
    owner_size, text_size, _ = struct.unpack_from("<III", data)
    start = 12 + (owner_size + 3) // 4 * 4
    if data[12 : 12 + owner_size].rstrip(b"\0") != _NOTE_OWNER or start >= len(data):
        raise ValueError("its note is not of NVIDIA's, or cut off")
    # the size of one for Tegra counts two bytes more than its section has
    told = json.loads(data[start : start + text_size].rstrip(b"\0"))
    if not isinstance(told, dict):
        raise ValueError("its note holds no table")
    by_key = {str(key).lower(): value for key, value in told.items()}
    numbers = []
    for key in ("driver", "device"):
        value = by_key.get(key) or []
        if not isinstance(value, list) or not all(type(one) is int for one in value):
            raise ValueError(f"`{key}` in its note is no list of numbers")
        numbers.append(tuple(value))
    return str(by_key.get("cuda version") or ""), numbers[0], numbers[1]


def _compat(tree: Tree) -> Observed[tuple[CompatLibrary, ...]]:
    """The libcuda files of forward-compatibility packages: regular files in a directory of the name compat."""
    from envkit.payload import elf

    found = []
    offered = tree.real("/usr/local/cuda/compat")
    for path, entry in tree.entries.items():
        version = _COMPAT.search(path)
        if version is None or entry.kind != "file" or "compat" not in path.split("/"):
            continue
        try:
            data = tree.data(path)
            start, length = elf.read(data).sections.get(_NOTE, (0, 0))
            if not length:
                found.append(CompatLibrary(path, version[1], posixpath.dirname(path) == offered))
                continue
            told = parse_note(bytes(data[start : start + length]))
            found.append(CompatLibrary(path, version[1], posixpath.dirname(path) == offered, True, *told))
        except (ValueError, Undecided) as error:
            return Observed.lost(f"{path}: {error}")
    return Observed.of(tuple(found), "file names and ELF notes")


def _looked_at(job: Job, place: HostRoot | None) -> Job:
    """The job with what its mounts lead to on the machine, seen by a child; one that hangs costs its own answer."""
    mounts = job.mounts.value
    if not mounts:
        return job
    if place is None:
        lost = "the machine was recorded elsewhere"
        told = [
            replace(one, kind=Observed.lost(lost), owner=Observed.lost(lost), group=Observed.lost(lost),
                    mode=Observed.lost(lost), free=Observed.lost(lost))
            for one in mounts
        ]  # fmt: skip
        return replace(job, mounts=Observed.of(tuple(told), job.mounts.via))
    seen = dict(enumerate(mounts))

    def done(task: Task, ending: isolate.Ending) -> None:
        number = int(task.name)
        if ending.ended == "ran":
            seen[number] = from_plain(Mount, ending.value)
            return
        why = "it does not answer: its file system hangs" if ending.ended == "hung" else ending.detail or ending.ended
        gone: Observed[Any] = Observed.lost(why, "stat")
        seen[number] = _unseen(seen[number], gone, gone)

    lanes = [[_looking(number, one, place) for number, one in enumerate(mounts)]]
    isolate.run(lanes, _MOUNT_S * len(mounts) + 1.0, done, shared=True)
    return replace(job, mounts=Observed.of(tuple(seen[number] for number in sorted(seen)), job.mounts.via))


def _looking(number: int, mount: Mount, place: HostRoot) -> Task:
    def work(say: Callable[[Any], None]) -> Any:
        return to_plain(look(mount, place))

    return Task(str(number), "", _MOUNT_S, work, strict=True)


def look(mount: Mount, place: HostRoot) -> Mount:
    """The mount with what lies at its source; what is no path is a volume that the engine keeps."""
    if not mount.source.startswith(("/", ".", "~")):
        return _unseen(mount, Observed.of("volume", "its name"), Observed.lost("the engine keeps it"))
    try:
        path = place.path(os.path.abspath(os.path.expanduser(mount.source)).lstrip("/"))
        about = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return _unseen(mount, Observed.of("absent", "stat"), Observed.lost("it does not exist"))
    except OSError as error:
        lost: Observed[Any] = Observed.lost(short(error), "stat")
        return _unseen(mount, lost, lost)
    kinds = {0o040000: "directory", 0o100000: "file"}
    return replace(
        mount,
        kind=Observed.of(kinds.get(about.st_mode & 0o170000, "other"), "stat"),
        owner=Observed.of(about.st_uid, "stat"),
        group=Observed.of(about.st_gid, "stat"),
        mode=Observed.of(about.st_mode & 0o7777, "stat"),
        free=_free(path),
    )


def _unseen(mount: Mount, kind: Observed[str], lost: Observed[Any]) -> Mount:
    return replace(mount, kind=kind, owner=lost, group=lost, mode=lost, free=lost)


def _free(path: Path) -> Observed[int]:
    try:
        room = os.statvfs(path)
    except OSError as error:
        return Observed.lost(short(error), "statvfs")
    return Observed.of(room.f_bavail * room.f_frsize, "statvfs")
