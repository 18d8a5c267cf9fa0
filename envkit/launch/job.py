"""A person's own command in the image of a spec: the folders and caches it sees, the user it is, and the image itself.

The project's folder is at /workspace, and HOME is a folder of this machine that every job of the same stack shares, so
that what torch.compile, Triton and pip keep is kept.  What does not depend on the stack, models and weights, is that of
the user's own programs.
"""

from __future__ import annotations

import os
import posixpath
import pwd
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from envkit.build.flags import HOME, WORKSPACE, run_flags, stack
from envkit.credentials import names_secret
from envkit.engine import Ability, Bind, Engine, JobRequest
from envkit.errors import UsageError, one_line
from envkit.launch import docker_options
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import Lock
from envkit.plan.spec import Flavor, Spec
from envkit.records import dataclass
from envkit.runner import asked
from envkit.subjects.declared import Job, Mount
from envkit.system import files
from envkit.system.files import cache_dir

# Of run_flags: what this module gives in a way of its own, and ports, which belong to servers in the debug flavor.
_OWN_WAY = ("--device", "--volume", "--publish")
# Of use to GPUs alone, and more than an engine without root's power may give.
_FOR_GPUS = ("--ulimit", "memlock=-1")
# A cache of files from the network, the variable that names it, and where it is without (their own documentation).
_SHARED = (
    ("HF_HOME", ".cache/huggingface"),
    ("TORCH_HOME", ".cache/torch"),
    ("PIP_CACHE_DIR", ".cache/pip"),
)
# [address:][port of the machine:]port of the container
_PORT = re.compile(r"(?:(?:[0-9.]{7,15}|\[[0-9a-fA-F:.]+\]):)?(?:([0-9]{1,5}):)?([0-9]{1,5})(?:/(?:tcp|udp|sctp))?")
_ALONE = ("--init",)  # options without a value


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What a person says of the job beside the command.

    ``gpus`` are "all", indexes or UUIDs, ``env`` variables, ``binds`` what else it sees.  ``user`` are uid and gid,
    those of this process without.  ``workdir`` is a path of the container, by default where this process is in the
    project.  ``words`` are options of `docker run` as they are: they come last, and so go before those of envkit.
    """

    gpus: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    binds: tuple[Bind, ...] = ()
    user: tuple[int, int] | None = None
    workdir: str = ""
    words: tuple[str, ...] = ()


def tag_of(spec: Spec, flavor: str = "", tag: str = "") -> str:
    """The name of the image that a job of ``spec`` runs in."""
    return tag or f"envkit/{spec.name}:{'latest' if flavor in ('', spec.flavor.value) else flavor}"


def is_built(lock: Lock, name: str, engine: Engine, flavor: str = "") -> bool:
    """Whether the image ``name`` is that of ``lock`` in this flavor, by its labels."""
    try:
        held = engine.labels(name)
    except UsageError:  # there is no such image
        return False
    return (held.get(asked.LOCK_LABEL), held.get(asked.FLAVOR_LABEL)) == (locks.dump(lock), flavor or lock.flavor)


def request(
    lock: Lock,
    name: str,
    project: Path,
    argv: Sequence[str],
    options: JobOptions,
    environ: Mapping[str, str],
    here: Path,
    *,
    flavor: str = "",
    package: Path | None = None,
    containers: bool = True,
) -> JobRequest:
    """The job ``argv`` in the image ``name`` of ``lock``, over the folder ``project``.

    ``environ`` says where this user's caches are, ``here`` is where this process is.  Where the lock installs the
    project that lies at ``package``, its modules are those of the folder as it is now, and not of the image's wheel.
    Without ``containers`` it sees this machine as it is.
    """
    project, here = project.resolve(), here.resolve()
    inside = here.relative_to(project) if here.is_relative_to(project) else Path()
    given = {"PYTHONUNBUFFERED": "1", **(options.env or {})}  # or what it printed last is lost with it, and late anyway
    if package is not None and "PYTHONPATH" not in given and (roots := _roots(lock, package.resolve())):
        seen = [Path(WORKSPACE) / root.relative_to(project) if root.is_relative_to(project) else None for root in roots]
        places = [str(place) for place in (seen if containers else roots) if place is not None]
        given |= {"PYTHONPATH": os.pathsep.join(places)} if len(places) == len(roots) else {}
    if not containers:
        return JobRequest(name, tuple(argv), options.gpus, given, project=project / inside)
    user = options.user or (os.getuid(), os.getgid())
    account = _account(user[0])
    env = {"HOME": HOME, "USER": account, "LOGNAME": account, "TORCHINDUCTOR_CACHE_DIR": f"{HOME}/.cache/inductor"}
    mine = user[0] == os.getuid()  # or nothing in my caches is for that user to write
    home = _home(lock) if mine else _home(lock).with_name(f"{_home(lock).name}-uid{user[0]}")
    shared = _shared(environ) if mine else ()
    binds = (Bind(str(project), WORKSPACE), Bind(str(home), HOME), *shared, *options.binds)
    workdir = options.workdir or (WORKSPACE if inside == Path() else f"{WORKSPACE}/{inside.as_posix()}")
    flags = run_flags(lock, Flavor(flavor or lock.flavor))
    left_out = ((), _FOR_GPUS)[not options.gpus]
    words = tuple(
        word
        for flag in flags
        if flag.arguments[0] not in _OWN_WAY and flag.arguments != left_out
        for word in flag.arguments
    )
    return JobRequest(
        name, tuple(argv), options.gpus, env | given, binds, workdir, user, (*words, *options.words), project=project
    )


def of_image(
    image: str, labels: Mapping[str, str], gpus: tuple[str, ...], here: Path, environ: Mapping[str, str]
) -> JobRequest:
    """`python train.py` in ``image``, over the folder ``here``: as `envkit run` starts it if ``labels`` hold a lock,
    else with the least that any image needs."""
    command = ("python", "train.py")
    try:
        lock = locks.parse(labels.get(asked.LOCK_LABEL, ""), "its label")
    except UsageError:  # somebody else's image
        seen, mine = (Bind(str(here.resolve()), WORKSPACE),), (os.getuid(), os.getgid())
        return JobRequest(image, command, gpus, binds=seen, workdir=WORKSPACE, user=mine, options=("--init",))
    flavor = labels.get(asked.FLAVOR_LABEL, "")
    known = flavor if flavor in {each.value for each in Flavor} else ""
    return request(lock, image, here, command, JobOptions(gpus=gpus), environ, here, flavor=known)


def _roots(lock: Lock, package: Path) -> list[Path]:
    """The folders of the project from which Python imports its modules."""
    return [package / root for root in lock.project.roots] if lock.project else []


def ready(job: JobRequest) -> None:
    """Makes the folders that ``job`` sees and that are not there yet, as this user: an engine would make them as root.

    Raises UsageError where one cannot be made, and for a source that is a path of nothing.
    """
    are_there(job.binds)
    own = cache_dir()
    homes = [Path(bind.source) for bind in job.binds if bind.target == HOME]
    for bind in job.binds:
        path = Path(bind.source)
        if bind.target.startswith(f"{HOME}/"):
            files.folder(path, "make it, or point its variable at a folder that may be written to")
            for home in homes:  # or the engine makes the point to mount at, as root
                files.folder(home / bind.target.removeprefix(f"{HOME}/"))
        elif path.is_absolute() and path.is_relative_to(own):
            files.folder(path)
    if job.user and os.geteuid() == 0:
        for home in homes:
            os.chown(home, *job.user)


def are_there(binds: Sequence[Bind]) -> None:
    """Raises UsageError for a source that is a path of nothing and that `ready` does not make."""
    for bind in binds:
        path = Path(bind.source)
        made = bind.target.startswith(f"{HOME}/") or path.is_relative_to(cache_dir())
        if path.is_absolute() and not made and not path.exists():
            raise UsageError(f"there is no {path} to mount at {bind.target}", "name a file or folder that exists")


def binds(mounts: Sequence[Mount]) -> tuple[Bind, ...]:
    """The mounts of options, a source that is a path from the root on."""
    return tuple(
        Bind(str(Path(one.source).expanduser().absolute()) if _is_path(one.source) else one.source, one.target,
             not one.read_only)
        for one in mounts
    )  # fmt: skip


def _is_path(source: str) -> bool:
    return source.startswith(("/", ".", "~"))


def user_of(text: str | None) -> tuple[int, int] | None:
    """UID or UID:GID; the group is 0 without, as for the engine, but your own for your own uid.

    Raises UsageError for anything else: names are the image's, and its numbers may be anybody's here.
    """
    if text is None:
        return None
    uid, _, gid = text.partition(":")
    if not uid.isdecimal() or not (gid or "0").isdecimal() or max(int(uid), int(gid or 0)) >= 1 << 32:
        raise UsageError(f"`{one_line(text)}` is no user", "write UID or UID:GID, in numbers")
    return int(uid), int(gid) if gid else os.getgid() if int(uid) == os.getuid() else 0


def network(word: str) -> str:
    """``word`` if it can name a network of an engine; UsageError for anything else."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]*", word):
        said = f"`{one_line(word)}` is no network"
        raise UsageError(said, "take bridge, host, none, or the name of one that the engine has")
    return word


def port(word: str) -> str:
    """``word`` if it publishes a port; UsageError for anything else."""
    found = _PORT.fullmatch(word)
    if found is None or not all(0 < int(number) < 1 << 16 for number in found.groups() if number):
        raise UsageError(f"`{one_line(word)}` is no port", "write it like 8080:80 or 127.0.0.1:8080:80")
    return word


def working_folder(text: str | None) -> str:
    """A path of the container; empty for none.  Raises UsageError for one that does not begin at the root."""
    if text is not None and not text.startswith("/"):
        raise UsageError(f"`{one_line(text)}` is no path from the container's root", "write it like /workspace/src")
    return posixpath.normpath(text) if text else ""


def project_of(spec: Spec, here: Path) -> Path:
    """The folder that a job of ``spec`` sees: the spec's, if ``here`` lies in it, else ``here``."""
    folder, here = spec.path.parent.resolve(), here.resolve()
    return folder if here.is_relative_to(folder) else here


def folder_of(name: str) -> Path:
    """Where jobs of the spec ``name`` keep files on this machine."""
    return cache_dir() / "jobs" / name


def debug_words(job: JobRequest, engine: Engine) -> list[str]:
    """The command line of `envkit debug` for the same job; values of secrets are left to the environment."""
    words = ["envkit", "debug"]
    if Ability.FOLLOW not in engine.abilities:
        return [*words, "--", *engine.job_line(job).argv]
    words += [] if engine.name == "docker" else ["--engine", engine.name]
    words += ["--image", job.image, "--gpus", ",".join(job.gpus) or "none"]
    for bind in job.binds:
        if Path(bind.source).is_absolute():
            words += ["--volume", f"{bind.source}:{bind.target}" + ("" if bind.writable else ":ro")]
    for name, value in job.env.items():
        words += ["--env", name if names_secret(name) else f"{name}={value}"]
    if job.user:
        words += ["--user", ":".join(map(str, job.user))]
    return [*words, "--workdir", job.workdir or "/", "--", *job.argv]


def declared(job: JobRequest) -> Job:
    """What ``job`` means to preflight; raises UsageError for an option whose value means nothing."""
    said: dict[str, list[str]] = {}
    words = iter(job.options)
    for word in words:
        if word not in _ALONE:
            said.setdefault(word, []).append(next(words))
    last = {name: values[-1] for name, values in said.items()}
    gpus = ",".join(job.gpus)
    return docker_options.job_from(
        gpus=gpus if gpus == "all" else f"device={gpus}" if gpus else "none",
        env=[f"{name}={value}" for name, value in job.env.items()],
        shm=last.get("--shm-size"),
        memory=last.get("--memory"),
        ipc=last.get("--ipc"),
        network=last.get("--network"),
        ulimits=said.get("--ulimit"),
        user=":".join(map(str, job.user)) if job.user else None,
        mounts=[f"{one.source}:{one.target}" + ("" if one.writable else ":ro") for one in job.binds],
        capabilities=said.get("--cap-add"),
        command=job.argv,
    )


def _account(uid: int) -> str:
    """A name for programs that ask for one; the container knows this machine's users by number alone."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid{uid}"


def _home(lock: Lock) -> Path:
    """Where jobs keep files between runs: a folder for each stack."""
    return folder_of(lock.name) / stack(lock)


def _shared(environ: Mapping[str, str]) -> tuple[Bind, ...]:
    home = Path(environ.get("HOME") or Path.home())
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    return tuple(
        Bind(str(Path(environ.get(variable) or cache / Path(path).name).absolute()), f"{HOME}/{path}")
        for variable, path in _SHARED
    )
