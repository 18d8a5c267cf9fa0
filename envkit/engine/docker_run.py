"""The line of `docker run` for a job: what a person would type, word by word."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from typing import Any

from envkit.credentials import names_secret
from envkit.engine import Bind, JobEnd, JobLine, JobRequest

# A rootless engine's root is this machine's user, and its other users are nobody here.
ROOTLESS, REMAPPED = "name=rootless", "name=userns"
_TINI = re.compile(r"\[FATAL tini \([0-9]+\)\] exec (.+) failed: (.+?)\s*\Z")
_VOLUME = re.compile(r"[^:,\"\n]+")


def gpu_options(info: Mapping[str, Any], gpus: tuple[str, ...]) -> tuple[str, ...]:
    """The words that give ``gpus`` to a container of an engine that says ``info`` of itself.

    Devices by CDI where the engine reads such files, else `--gpus` where it has NVIDIA's runtime, which that option
    asks for; an engine with neither is given CDI's words, for its refusal names what is missing.
    """
    if not gpus:
        return ()
    if not info.get("CDISpecDirs") and "nvidia" in (info.get("Runtimes") or {}):
        return ("--gpus", "all" if gpus == ("all",) else '"device=' + ",".join(gpus) + '"')
    return tuple(word for gpu in gpus for word in ("--device", f"nvidia.com/gpu={gpu}"))


def line(request: JobRequest, info: Mapping[str, Any], own: tuple[str, ...] = ("--rm",)) -> JobLine:
    """`docker run` for ``request``; ``own`` are the words on what becomes of the container itself.

    The value of a variable whose name says that it is a secret is no word of the line, which every user of the machine
    can read: it is handed over in the environment.
    """
    words = ["docker", "run", *own]
    if request.stdin or request.terminal:
        words.append("--interactive")
    if request.terminal:
        words.append("--tty")
    words += [*gpu_options(info, request.gpus), *request.options]
    security = " ".join(map(str, info.get("SecurityOptions") or ()))
    if request.user is not None:
        uid, gid = (0, 0) if ROOTLESS in security else request.user
        words += ["--user", f"{uid}:{gid}"]
        if REMAPPED in security:
            words += ["--userns", "host"]
    secrets = {}
    for name, value in request.env.items():
        if names_secret(name):
            secrets[name] = value
        words += ["--env", name if name in secrets else f"{name}={value}"]
    for bind in request.binds:
        words += _bound(bind)
    if request.workdir:
        words += ["--workdir", request.workdir]
    return JobLine((*words, request.image, *request.argv), secrets)


def refused(code: int, text: str) -> str:
    """Why the first process that `--init` gives a container could not start the command, by the last words ``text`` of
    one that ended with ``code``; empty if it did.  It is tini, whose codes are a shell's (its src/tini.c)."""
    found = _TINI.search(text) if code in (126, 127) else None
    return f"{found[1]}: {found[2]}" if found else ""


def end(code: int, state: Mapping[str, Any]) -> JobEnd:
    """How a job ended whose `docker run` ended with ``code``, by the engine's own words on its container."""
    if state.get("Status") == "created" or state.get("Error"):
        return JobEnd(code, str(state.get("Error") or "the engine did not start it").strip())
    ended = state.get("Status") in ("exited", "dead")
    exit = int(state.get("ExitCode") or 0) if ended else 128 - code if code < 0 else code
    return JobEnd(exit, out_of_memory=bool(state.get("OOMKilled")))


def _bound(bind: Bind) -> list[str]:
    """`--volume`, whose form everybody knows, or for a name that has its separators `--mount`, a line of CSV."""
    if _VOLUME.fullmatch(bind.source) and _VOLUME.fullmatch(bind.target):
        return ["--volume", f"{bind.source}:{bind.target}" + ("" if bind.writable else ":ro")]
    fields = ["type=bind", f"source={bind.source}", f"target={bind.target}", *([] if bind.writable else ["readonly"])]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return ["--mount", text.getvalue()]
