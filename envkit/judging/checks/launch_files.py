"""What is asked of a job's files: its mounts, its checkpoint directory, its home, its user, its command."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import PurePosixPath

from envkit.facts import Facts
from envkit.judging import variables as judgement
from envkit.judging.checks import _launch as job
from envkit.judging.checks._outcomes import error, or_skip, or_unknown, skip_if, unknown_if, warning
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects.declared import Mount
from envkit.subjects.launch import Inside, Launch

# What a mount must not hide: the C library, the programs and the linker's configuration
_SYSTEM = ("/", "/usr", "/usr/lib", "/lib", "/lib64", "/usr/lib64", "/usr/bin", "/bin", "/etc", "/proc", "/sys", "/dev")
_CACHES = ("XDG_CACHE_HOME", "HF_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
_OFFLINE = "HF_HUB_OFFLINE"


def launch_mount_source_missing(launch: Launch) -> Iterator[Finding]:
    """Every path that the job mounts exists on this machine."""
    doubts = []
    for one in job.mounts(launch):
        if one.kind.value == "absent":
            yield error(
                f"{one.source} is mounted at {one.target} and does not exist: the job would find an empty directory",
                one.source,
                {one.source: one.kind.via},
                f"fix the path, or mount the file system it lies on; {job.AGAIN}",
            )
        elif one.kind.value is None:
            doubts.append(f"{one.source}: {one.kind.missing}")
    unknown_if(doubts, f"what is mounted was not seen: {'; '.join(doubts)}")


def launch_mount_hides_image_files(launch: Launch) -> Iterator[Finding]:
    """No mount covers the image's Python packages, its system, its CUDA or the place of the driver."""
    audit = job.image(launch)
    site = audit.interpreter.need("the image's Python").site if audit.interpreter.value is not None else ()
    if audit.interpreter.value is None and job.mounts(launch):
        audit.interpreter.need("the image's Python")
    for one in job.mounts(launch):
        hidden = next((each for each in site if job.below(each, one.target)), "")
        system = one.target in _SYSTEM or one.target.startswith(("/usr/lib/x86_64-", "/usr/lib/aarch64-"))
        cuda = next((each for each in ("/usr/local/cuda", "/usr/local/nvidia") if job.below(each, one.target)), "")
        if one.kind.value == "file" or not (hidden or system or cuda):
            continue
        what = f"the packages in {hidden}" if hidden else "the system" if system else cuda
        yield Finding(
            f"{one.source} is mounted at {one.target} and hides {what} of the image",
            Severity.ERROR if hidden or system else Severity.WARNING,
            one.target,
            {one.target: launch.job.mounts.via, **({hidden: audit.interpreter.via} if hidden else {})},
            f"mount it elsewhere, such as at /workspace; {job.AGAIN}",
        )


def _checkpoint(launch: Launch) -> str:
    return job.declared(launch.job.checkpoint, "where checkpoints are written")


def _holding(launch: Launch) -> Mount:
    """The mount that holds the checkpoints; raises Skip if there is none."""
    path = _checkpoint(launch)
    return or_skip(job.mount_of(launch, path), f"{path} lies in no mount")


def launch_checkpoints_lost_with_container(launch: Launch) -> Iterator[Finding]:
    """The checkpoint directory lies in a mount, so that it outlives the container."""
    path = _checkpoint(launch)
    memory = any(job.below(path, one) for one in launch.job.tmpfs.value or ())
    if memory or job.mount_of(launch, path) is None:
        yield warning(
            f"checkpoints go to {path}, which lies in "
            + ("memory" if memory else "no mount and disappears with the container"),
            path,
            {path: launch.job.checkpoint.via, f"{len(job.mounts(launch))} mounts": launch.job.mounts.via},
            f"mount a directory there: `--volume /data/run:{path}`; {job.AGAIN}",
        )


def launch_checkpoint_directory_not_writable(launch: Launch) -> Iterator[Finding]:
    """The job may write its checkpoint directory."""
    mount = _holding(launch)
    path = _checkpoint(launch)
    if mount.read_only:
        yield error(
            f"checkpoints go to {path}, and {mount.target} is mounted read-only",
            mount.target,
            {mount.target: launch.job.mounts.via},
            f"mount it without :ro; {job.AGAIN}",
        )
        return
    if mount.kind.value == "volume":
        raise Skip(f"{mount.source} is a volume of the engine, whose owner is not known before it is mounted")
    one = job.who(launch)
    kind = mount.kind.need(f"what lies at {mount.source}")
    unknown_if(kind == "absent", f"{mount.source} does not exist yet, so its owner is not known")
    owner = mount.owner.need(f"the owner of {mount.source}")
    group = mount.group.need(f"the group of {mount.source}")
    mode = mount.mode.need(f"the mode of {mount.source}")
    if not job.may_write(one, owner, group, mode):
        yield error(
            f"the job runs as {one.uid}:{one.gid} and {mount.source} at {mount.target} is of {owner}:{group} with mode "
            f"{mode:04o}",
            mount.source,
            {f"{one.uid}:{one.gid}": launch.job.user.via, f"{mode:04o}": mount.mode.via},
            f"run as {owner}:{group}, or `chown {one.uid}:{one.gid} {mount.source}`; {job.AGAIN}",
        )


def launch_no_space_for_checkpoint(launch: Launch) -> Iterator[Finding]:
    """There is room for the checkpoint that the job will write, and for the next one before the last is gone."""
    size = job.declared(launch.job.checkpoint_bytes, "how large a checkpoint is")
    mount = _holding(launch)
    skip_if(mount.kind.value == "volume", f"{mount.source} is a volume of the engine, whose free space is not known")
    free = mount.free.need(f"the room at {mount.source}")
    if free < 2 * size:
        yield Finding(
            f"a checkpoint has {size / job.GIB:.1f} GiB and {mount.source} has {free / job.GIB:.1f} GiB free",
            Severity.ERROR if free < size else Severity.WARNING,
            mount.source,
            {f"{free} bytes": mount.free.via, f"{size} bytes": launch.job.checkpoint_bytes.via},
            f"make room, or write to a larger disk; check it with `df -h {mount.source}`",
        )


def launch_user_without_name(launch: Launch) -> Iterator[Finding]:
    """The user that the job runs as has a name in the image, or USER says one."""
    one = job.who(launch)
    env = job.variables(launch)
    named = next((name for name in ("LOGNAME", "USER", "TORCHINDUCTOR_CACHE_DIR") if env.get(name)), "")
    if one.account is None and not named:
        yield warning(
            f"the job runs as {one.uid}, which has no name in the image, and USER is not set",
            "--user",
            {str(one.uid): launch.job.user.via, "no such line": launch.accounts.via},
            f"set USER and HOME, or TORCHINDUCTOR_CACHE_DIR, or create the user in the image; {job.AGAIN}",
        )


def _writable(launch: Launch, path: str, one: job.JobUser) -> str:
    """Why ``path`` cannot be written in the job, empty if it can; raises Unknown where that is open."""
    if any(job.below(path, each) for each in launch.job.tmpfs.value or ()):
        return ""
    holding = [each for each in launch.job.mounts.value or () if job.below(path, each.target)]
    if holding:
        return "is mounted read-only" if max(holding, key=lambda each: len(each.target)).read_only else ""
    if launch.job.read_only.value:
        return "lies in a read-only root"
    paths = launch.paths.need("what lies at the paths that the job names")
    there = or_unknown(paths.get(path), f"what the image has at {path} was not seen")
    if there.kind == "absent":
        return "" if one.uid == 0 else "does not exist"
    return _closed(there, one)


def _closed(there: Inside, one: job.JobUser) -> str:
    if not job.may_write(one, there.uid, there.gid, there.mode):
        return f"is of {there.uid}:{there.gid} with mode {there.mode:04o}"
    return ""


def _makeable(launch: Launch, path: str, one: job.JobUser) -> str:
    """Why a program cannot write to ``path``, which it makes where it does not exist; as ``_writable``."""
    paths = launch.paths.value or {}
    there = paths.get(path)
    if there is None or there.kind != "absent" or one.uid == 0:
        return _writable(launch, path, one)
    for parent in map(str, PurePosixPath(path).parents):
        if _writable(launch, path, one) == "" or parent not in paths:
            break  # a mount or a tmpfs holds it, or nobody looked above it
        if paths[parent].kind != "absent":
            closed = _closed(paths[parent], one)
            return f"does not exist, and {parent} {closed}" if closed else ""
    return _writable(launch, path, one)


def launch_cache_not_writable(launch: Launch, facts: Facts) -> Iterator[Finding]:
    """The job may write to every cache folder that its variables name."""
    env = job.variables(launch)
    table = judgement.rows(facts)
    named = {name: env[name] for name in sorted(env) if name in table and table[name].type == "folder"}
    offline = table[_OFFLINE]
    if judgement.is_on(offline, env.get(_OFFLINE, "")):  # then what was downloaded is only read
        named = {name: path for name, path in named.items() if table[name].of != offline.of}
    named = {name: posixpath.normpath(path) for name, path in named.items() if path.startswith("/")}
    skip_if(not named, "no variable of the job names a cache folder")
    one = job.who(launch)
    for name, path in named.items():
        why = _makeable(launch, path, one)
        if why:
            yield Finding(
                f"{name} is {path}, which {why} for {one.uid}:{one.gid}: {table[name].otherwise}",
                Severity.WARNING,
                name,
                {**job.said(launch, name), why: launch.paths.via or launch.job.read_only.via},
                f"let {name} name a directory that the user may write, or mount one there; {job.AGAIN}",
            )


def launch_home_not_writable(launch: Launch) -> Iterator[Finding]:
    """The job may write its home, or its caches lie elsewhere."""
    one = job.who(launch)
    home = job.variables(launch).get("HOME") or (one.account.home if one.account else "/")
    why = _writable(launch, home, one)
    env = job.variables(launch)
    elsewhere = [posixpath.normpath(env[name]) for name in _CACHES if env.get(name)]
    if why and not any(path.startswith("/") and not _makeable(launch, path, one) for path in elsewhere):
        yield warning(
            f"the home of the job, {home}, {why} for {one.uid}:{one.gid}, and no variable puts the caches where it may "
            "write",
            home,
            {home: launch.job.user.via, why: launch.paths.via or launch.job.read_only.via},
            f"set HOME to a directory that the user may write, or give `--tmpfs {home}`; {job.AGAIN}",
        )


def launch_temporary_directory_not_writable(launch: Launch) -> Iterator[Finding]:
    """The job may write where temporary files go."""
    one = job.who(launch)
    place = job.variables(launch).get("TMPDIR") or "/tmp"
    why = _writable(launch, place, one)
    if why:
        yield error(
            f"temporary files go to {place}, which {why} for {one.uid}:{one.gid}",
            place,
            {place: launch.job.environment.via, why: launch.paths.via or launch.job.read_only.via},
            f"give `--tmpfs {place}`, or set TMPDIR to a directory that the job may write; {job.AGAIN}",
        )


def launch_command_not_found(launch: Launch) -> Iterator[Finding]:
    """The job's command is a program that the image has on its PATH.

    What a mount brings is not looked into.
    """
    words = job.declared(launch.job.command, "the command")
    skip_if(not words, "the image's own command runs")
    path = launch.program.need(f"where the image has {words[0]}")
    if path:
        return
    bringing = [one.target for one in launch.job.mounts.value or () if job.below(words[0], one.target)]
    if bringing:
        raise Unknown(f"{words[0]} lies in the mount at {bringing[0]}, which was not looked into")
    yield error(
        f"the command is {words[0]} and the image has no such program",
        words[0],
        {words[0]: launch.job.command.via, "none": launch.program.via},
        f"fix the command, or install the program into the image; {job.AGAIN}",
    )
