"""The line of `docker run`, or of `podman run`, for a job: what a person would type, word by word."""

from __future__ import annotations

import csv
import errno
import io
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from envkit.credentials import names_secret
from envkit.engine import JobEnd, JobLine, JobRequest
from envkit.errors import Undecided
from envkit.records import dataclass

# A rootless engine's root is this machine's user, and its other users are nobody here.
ROOTLESS, REMAPPED = "name=rootless", "name=userns"
# What the first process that `--init` gives a container says of a command that it could not start: tini's src/tini.c
# (Docker), catatonit's catatonit.c (Podman), which does not name it.
_TINI = re.compile(r"\[FATAL tini \([0-9]+\)\] exec (.+) failed: (.+?)\s*\Z")
_CATATONIT = re.compile(r"ERROR \(catatonit:[0-9]+\): failed to exec pid1: (.+?)\s*\Z")
_VOLUME = re.compile(r"[^:,\"\n]+")


@dataclass(frozen=True, slots=True)
class Terms:
    """What decides the words of a line: the ``program``, whether GPUs are asked for by "cdi" or by the option "gpus",
    whether its root is this machine's user (``rootless``) and whether its users are others here (``remapped``)."""

    program: str = "docker"
    gpus: str = "cdi"
    rootless: bool = False
    remapped: bool = False


def terms(info: Mapping[str, Any]) -> Terms:
    """The terms of a Docker Engine that says ``info`` of itself.

    Devices by CDI where the engine reads such files, else `--gpus` where it has NVIDIA's runtime, which that option
    asks for; an engine with neither is given CDI's words, for its refusal names what is missing.
    """
    security = " ".join(map(str, info.get("SecurityOptions") or ()))
    by_option = not info.get("CDISpecDirs") and "nvidia" in (info.get("Runtimes") or {})
    return Terms("docker", "gpus" if by_option else "cdi", ROOTLESS in security, REMAPPED in security)


def _gpu_options(by: Terms, gpus: tuple[str, ...]) -> tuple[str, ...]:
    if not gpus:
        return ()
    if by.gpus == "gpus":
        return ("--gpus", "all" if gpus == ("all",) else '"device=' + ",".join(gpus) + '"')
    return tuple(word for gpu in gpus for word in ("--device", f"nvidia.com/gpu={gpu}"))


def line(request: JobRequest, by: Terms, own: tuple[str, ...] = ("--rm",)) -> JobLine:
    """`docker run` for ``request``; ``own`` are the words on what becomes of the container itself.

    The value of a variable whose name says that it is a secret is no word of the line, which every user of the machine
    can read: it is handed over in the environment.
    """
    words = [by.program, "run", *own]
    if request.stdin or request.terminal:
        words.append("--interactive")
    if request.terminal:
        words.append("--tty")
    words += [*_gpu_options(by, request.gpus), *request.options]
    if request.user is not None:
        uid, gid = (0, 0) if by.rootless else request.user
        words += ["--user", f"{uid}:{gid}"]
        if by.remapped:
            words += ["--userns", "host"]
    secrets = {}
    for name, value in request.env.items():
        if names_secret(name):
            secrets[name] = value
        words += ["--env", name if name in secrets else f"{name}={value}"]
    for bind in request.binds:
        words += bound(bind.source, bind.target, bind.writable)
    if request.workdir:
        words += ["--workdir", request.workdir]
    return JobLine((*words, request.image, *request.argv), secrets)


def refused(code: int, text: str) -> tuple[int, str]:
    """A shell's exit code for a command that the first process that `--init` gives a container could not start, and
    why, by the last words ``text`` of one that ended with ``code``; ``code`` and an empty text if it did.  tini's
    codes are a shell's, catatonit's is 1 (its die in catatonit.c)."""
    if code in (126, 127) and (found := _TINI.search(text)):
        return code, f"{found[1]}: {found[2]}"
    if code == 1 and (found := _CATATONIT.search(text)):
        return 127 if found[1] == os.strerror(errno.ENOENT) else 126, found[1]
    return code, ""


def end(code: int, state: Mapping[str, Any]) -> JobEnd:
    """How a job ended whose `docker run` ended with ``code``, by the engine's own words on its container."""
    if state.get("Status") == "created" or state.get("Error"):
        return JobEnd(code, str(state.get("Error") or "the engine did not start it").strip())
    ended = state.get("Status") in ("exited", "dead")
    exit = int(state.get("ExitCode") or 0) if ended else 128 - code if code < 0 else code
    return JobEnd(exit, out_of_memory=bool(state.get("OOMKilled")))


def dropped(record: Mapping[str, Any], gpus: Sequence[str]) -> str:
    """Why a container that was asked for with ``gpus`` has none, empty if the engine's ``record`` of it names some:
    Podman's Docker API before 5.4 takes the request and drops it without a word (containers/podman#22645)."""
    held = record.get("HostConfig") or {}
    if not gpus or held.get("DeviceRequests") or held.get("Devices"):
        return ""
    return "the docker engine took the request for GPUs and dropped it: its record of the container names none"


def lost(container: str, error: Undecided, back_s: float) -> Undecided:
    """What to raise where the engine went away, as ``error`` says, while the command ran; its ``container`` is removed
    by itself once the engine is back within ``back_s`` seconds."""
    said = f"the docker engine went away while the command ran ({error.message}): how the command ended is not known"
    by = f"its container goes by itself for {back_s / 60:.0f} minutes, later by `docker rm --force {container}`"
    return Undecided(said, f"start the engine again: {by}")


def bound(source: str, target: str, writable: bool) -> list[str]:
    """`--volume`, whose form everybody knows, or for a name that has its separators `--mount`, a line of CSV."""
    if _VOLUME.fullmatch(source) and _VOLUME.fullmatch(target):
        return ["--volume", f"{source}:{target}" + ("" if writable else ":ro")]
    fields = ["type=bind", f"source={source}", f"target={target}", *([] if writable else ["readonly"])]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return ["--mount", text.getvalue()]
