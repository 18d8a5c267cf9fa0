"""The job that options like those of `docker run` declare.

No machine and no image is looked at here, and neither's records are imported: `envkit run` needs the words alone.
"""

from __future__ import annotations

import math
import os
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envkit.errors import UsageError
from envkit.model import Observed
from envkit.subjects.declared import UNDECLARED, Job, Mount
from envkit.subjects.limit import Limit
from envkit.system import files

ENGINE_SHM = 64 << 20  # what moby gives to a container that asks for nothing (daemon/config, DefaultShmSize)
_IPC = re.compile(r"none|private|shareable|host|container:.+")  # docker run --ipc
_USER = re.compile(r"[^:\s]+(?::[^:\s]+)?")
_GPU = re.compile(r"[0-9]+(?::[0-9]+)?|(?:GPU|MIG)-[0-9A-Za-z/-]+")
# what go-units knows, by which docker run reads --ulimit
_LIMITS = (
    "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio",
    "rttime", "sigpending", "stack",
)  # fmt: skip
_MOST_BYTES = 1 << 60
_MOST_GPUS = 1024  # far above any machine; it bounds what a mistyped count makes
_WAYS = ("cdi", "hook", "none")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([bkmgt]?)(?:i?b)?\Z")
_ULIMIT = re.compile(r"([a-z]+)=(-1|unlimited|[0-9]+)(?::(-1|unlimited|[0-9]+))?\Z")


def size(text: str, what: str) -> int:
    """Bytes out of "64m", "16g" or a plain number, as the engine reads sizes (powers of 1024).

    Raises UsageError, naming ``what``, for anything else.
    """
    found = _SIZE.match(text.strip().lower())
    if found is None or len(found[1]) > 20 or float(found[1]) * _UNITS[found[2]] > _MOST_BYTES:
        raise UsageError(f"`{text[:40]}` is no size for {what}", "write it like 512m or 16g")
    return int(float(found[1]) * _UNITS[found[2]])


def _limiting(text: str | None, what: str) -> int | None:
    """A size of which 0 means, as for the engine, that nobody gave one."""
    return None if text is None else size(text, what) or None


def read_env_file(path: Path, caller: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file as `docker run --env-file` reads it.

    A line is NAME=VALUE, the value taken as it is, quotes and all; NAME alone takes the caller's value, if it has one;
    empty lines and those that begin with # are left out.  Raises UsageError, with the line's number, for a name that is
    missing or holds white space, and for a file that cannot be read or is no UTF-8.
    """
    try:
        lines = files.content(path).removeprefix(b"\xef\xbb\xbf").decode("utf-8").split("\n")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {files.why(error)}", "name a file of lines like NAME=VALUE"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8 at byte {error.start}", "write it again as UTF-8") from error
    found: dict[str, str] = {}
    for number, whole in enumerate(lines, 1):
        line = whole.removesuffix("\r").lstrip()
        if line and not line.startswith("#"):
            _put(found, line, caller, f"line {number} of {path}")
    return found


def _put(found: dict[str, str], line: str, caller: Mapping[str, str], where: str) -> None:
    """Adds NAME=VALUE or NAME to ``found``; raises UsageError, saying ``where`` it stands and never the value."""
    name, is_set, value = line.partition("=")
    fix = "write NAME=VALUE, or NAME alone for your own value of it"
    if not name:
        raise UsageError(f"{where} has no name before the =", fix)
    if re.search(r"\s", name):
        raise UsageError(f"{where} has white space in the name of a variable", fix)
    if "\0" in line:
        raise UsageError(f"{where} holds a zero byte, which no variable can", "write it again")
    if is_set:
        found[name] = value
    elif name in caller:
        found[name] = caller[name]


def gpus_of(asked: str) -> tuple[str, ...]:
    """The GPUs that `--gpus` names: "all", "none", a count, "device=0,2" or a list of indices and UUIDs.

    A count means the first ones, as the toolkit's hook takes them.  One index is written "device=0".  Raises UsageError
    for whatever else.
    """
    text = asked.strip().strip("\"'")
    if text in ("all", "-1", "none"):
        return () if text == "none" else ("all",)
    names = [one.strip() for one in text.removeprefix("device=").removeprefix("nvidia.com/gpu=").split(",")]
    if names == ["all"]:
        return ("all",)
    if len(names) == 1 and names[0].isdecimal() and "=" not in text:
        if int(names[0]) > _MOST_GPUS:
            raise UsageError(f"no machine has {names[0]} GPUs", "write all, none, a count, or device=0,1")
        return tuple(str(number) for number in range(int(names[0])))
    if not all(map(_GPU.fullmatch, names)):
        raise UsageError(f"`{asked}` names no GPUs", "write all, none, a count, or device=0,1")
    return tuple(names)


def _mount(text: str) -> Mount:
    source, _, rest = text.partition(":")
    target, _, options = rest.partition(":")
    if not source or not target.startswith("/"):
        raise UsageError(f"`{text}` is no mount", "write SOURCE:TARGET or SOURCE:TARGET:ro, TARGET from the root")
    return Mount(source, posixpath.normpath(target), "ro" in options.split(","))


def _limit(text: str) -> tuple[str, Limit]:
    found = _ULIMIT.match(text)
    if found is None:
        raise UsageError(f"`{text}` is no limit", "write it like memlock=-1 or stack=67108864:67108864")
    soft, hard = (-1 if one in ("-1", "unlimited") else int(one) for one in (found[2], found[3] or found[2]))
    if found[1] not in _LIMITS:
        raise UsageError(f"there is no limit `{found[1]}`", f"one of: {', '.join(_LIMITS)}")
    if hard >= 0 and not 0 <= soft <= hard:
        raise UsageError(f"`{text}` has its soft limit above the hard one", "write it like SOFT:HARD, the larger last")
    return found[1], Limit(soft, hard)


def _said(value: Any, via: str, make: Callable[[Any], Any] = lambda value: value) -> Observed[Any]:
    """What ``make`` reads in the value of an option, None where nobody gave it."""
    return Observed.lost(UNDECLARED, via) if value is None else Observed.of(make(value), via)


def job_from(
    *,
    gpus: str | None = None,
    way: str | None = None,
    nodes: int | None = None,
    ranks: int | None = None,
    workers: int | None = None,
    env: Sequence[str] = (),
    env_files: Sequence[Path] = (),
    caller: Mapping[str, str] | None = None,
    shm: str | None = None,
    memory: str | None = None,
    ipc: str | None = None,
    network: str | None = None,
    ulimits: Sequence[str] | None = None,
    user: str | None = None,
    mounts: Sequence[str] | None = None,
    tmpfs: Sequence[str] | None = None,
    devices: Sequence[str] | None = None,
    capabilities: Sequence[str] | None = None,
    privileged: bool | None = None,
    read_only: bool | None = None,
    checkpoint: str | None = None,
    checkpoint_size: str | None = None,
    command: Sequence[str] | None = None,
    pids: int | None = None,
    cpus: float | None = None,
) -> Job:
    """The job that options like those of `docker run` declare; None is what nobody said.

    Variables of ``env_files`` come first, ``env`` over them; ``caller`` is the environment that a name without a value
    is taken from, this process's by default.  Without ``shm`` it is what an engine gives, unless ``ipc`` is "host".
    Raises UsageError for whatever means nothing.
    """
    variables = _variables(env, env_files, os.environ if caller is None else caller)
    if way is not None and way not in _WAYS:
        raise UsageError(f"`{way}` is no way for GPUs to enter a container", f"one of: {', '.join(_WAYS)}")
    for name, count in (("nodes", nodes), ("ranks", ranks)):
        if count is not None and count < 1:
            raise UsageError(f"a job of {count} {name} is none", f"give {name} as 1 or more")
    if pids is not None and pids < -1:
        raise UsageError(f"a container cannot have {pids} processes", "give a number, or -1 for no limit")
    if cpus is not None and not 0 <= cpus < math.inf:
        raise UsageError(f"a job cannot have {cpus:g} processors", "give a number such as 4 or 1.5")
    if workers is not None and workers < 0:
        raise UsageError(f"a data loader cannot have {workers} workers", "give 0 or more")
    if checkpoint is not None and not checkpoint.startswith("/"):
        raise UsageError(
            f"the checkpoint directory `{checkpoint}` is no path from the root", "write it as the job sees it"
        )
    if ipc is not None and not _IPC.fullmatch(ipc):
        raise UsageError(f"`{ipc}` is no way to share memory", "one of: private, shareable, host, none, container:NAME")
    if network is not None and not network.strip():
        raise UsageError("--network names no network", "one of: bridge, host, none, or a network's name")
    if user is not None and not _USER.fullmatch(user):
        raise UsageError(f"`{user}` is no user", "write UID, UID:GID or a name")
    return Job(
        gpus=_said(gpus, "--gpus", gpus_of),
        way=_said(way, "declared"),
        nodes=_said(nodes, "--nodes"),
        ranks=_said(ranks, "--ranks"),
        workers=_said(workers, "--workers"),
        environment=Observed.of(variables, "--env, --env-file"),
        shm=_shm(shm, ipc),
        memory=_said(_limiting(memory, "--memory"), "--memory"),
        ipc=_said(ipc, "--ipc"),
        network=_said(network, "--network"),
        limits=_said(ulimits, "--ulimit", lambda given: dict(map(_limit, given))),
        user=_said(user, "--user"),
        mounts=_said(mounts, "--volume", lambda given: tuple(map(_mount, given))),
        tmpfs=_said(tmpfs, "--tmpfs", lambda given: tuple(map(_memory_folder, given))),
        devices=_said(devices, "--device", tuple),
        capabilities=_said(
            capabilities, "--cap-add", lambda given: tuple(one.upper().removeprefix("CAP_") for one in given)
        ),
        privileged=_said(privileged, "--privileged"),
        read_only=_said(read_only, "--read-only"),
        checkpoint=_said(checkpoint, "--checkpoint"),
        checkpoint_bytes=_said(checkpoint_size, "--checkpoint-size", lambda text: size(text, "--checkpoint-size")),
        command=_said(command, "command line", tuple),
        pids=_said(pids if pids and pids > 0 else None, "--pids-limit"),  # docker's words for no limit: 0 and -1
        cpus=_said(cpus or None, "--cpus"),
    )


def _variables(env: Sequence[str], env_files: Sequence[Path], caller: Mapping[str, str]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for path in env_files:
        variables.update(read_env_file(path, caller))
    for number, line in enumerate(env, 1):
        _put(variables, line, caller, f"the variable number {number} of --env")
    return variables


def _memory_folder(text: str) -> str:
    """The folder that an option of --tmpfs names."""
    if not text.startswith("/"):
        raise UsageError(f"`{text}` is no path for --tmpfs", "write it from the root, as the job sees it")
    return text.partition(":")[0]


def _shm(shm: str | None, ipc: str | None) -> Observed[int]:
    if ipc is not None and ipc not in ("private", "shareable"):
        return Observed.lost(f"it is not the job's own, by --ipc {ipc}")
    wanted = _limiting(shm, "--shm-size")
    return Observed.of(wanted, "--shm-size") if wanted else Observed.of(ENGINE_SHM, "the engine's default")
