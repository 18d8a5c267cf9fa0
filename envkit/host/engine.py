"""Asks the Docker Engine for /version and /info over its socket: to import the docker package takes longer than the
answer, and the standard library's HTTP client, which TCP gets, as long."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from envkit.engine import wire
from envkit.engine.endpoint import SOCKET, Tls, endpoint
from envkit.errors import UsageError
from envkit.host.root import HostRoot, Source, short
from envkit.model import Observed
from envkit.payload.isolate import Ending
from envkit.subjects.host import Docker

if TYPE_CHECKING:
    import ssl

_ANSWER_S = 2  # /info takes under 0.1 s on an idle engine; a busy one answers within a second


def _said(where: str, path: str, timeout_s: float, tls: Tls | None) -> dict[str, Any]:
    """What an engine says at ``path``; raises OSError for one that is not there, ValueError for no such answer."""
    scheme, _, rest = where.partition("://")
    if scheme == "unix":
        answer = wire.said(rest, path, timeout_s=timeout_s)
        if answer.status != 200:
            raise ValueError(f"{path} answered with status {answer.status}")
        return answer.value
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    try:
        if tls is None and scheme != "https":
            connection = HTTPConnection(rest.rstrip("/"), timeout=timeout_s)
        else:
            connection = HTTPSConnection(rest.rstrip("/"), timeout=timeout_s, context=_context(tls))
        with closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read(wire.MOST_BYTES + 1)
    except HTTPException as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if len(body) > wire.MOST_BYTES:
        raise ValueError(f"{path} answered with more than {wire.MOST_BYTES >> 20} MiB")
    if response.status != 200:
        raise ValueError(f"{path} answered with status {response.status}")
    data = json.loads(body)
    if not isinstance(data, dict):
        raise ValueError(f"{path} is no JSON object")
    return data


def _context(tls: Tls | None) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context(cafile=tls.ca if tls else None)
    if tls and not tls.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if tls and tls.cert and tls.key:
        context.load_cert_chain(tls.cert, tls.key)
    return context


def parse_answers(version: Mapping[str, Any], info: Mapping[str, Any], where: str) -> Docker:
    """The engine's own words, out of the bodies of /version and /info (Docker Engine API)."""
    dirs, devices = info.get("CDISpecDirs"), info.get("DiscoveredDevices")
    found = [str(device.get("ID", "")) for device in devices or () if device.get("Source") == "cdi"]
    names = [str(part.get("Name", "")) for part in version.get("Components") or ()]
    podman = any(name.startswith("Podman") for name in names)
    return Docker(
        "answered",
        endpoint=where,
        version=str(version.get("Version", "")),
        api=str(version.get("ApiVersion", "")),
        root=str(info.get("DockerRootDir", "")),
        cgroup=str(info.get("CgroupVersion", "")),
        runtimes=tuple(sorted(info.get("Runtimes") or {})),
        default_runtime=str(info.get("DefaultRuntime", "")),
        security=tuple(str(option) for option in info.get("SecurityOptions") or ()),
        # a Docker Engine that does not know the word reads no CDI spec; one whose CDI is off gives an empty list
        cdi_dirs=(
            Observed.lost("Podman does not tell", "/info CDISpecDirs")
            if podman and dirs is None
            else Observed.of(tuple(str(path) for path in dirs or ()), "/info CDISpecDirs")
        ),
        cdi_devices=(
            Observed.lost("the engine is too old to list its CDI devices", "/info DiscoveredDevices")
            if devices is None
            else Observed.of(tuple(found), "/info DiscoveredDevices")
        ),
        product="podman" if podman else "docker",
        system=str(info.get("OperatingSystem", "")),
        storage=str(info.get("Driver", "")),
        cgroup_driver=str(info.get("CgroupDriver", "")),
        warnings=tuple(str(warning) for warning in info.get("Warnings") or ()),
    )


def socket_mode(where: str) -> Observed[int]:
    """The permission bits of the engine's Unix socket."""
    scheme, _, path = where.partition("://")
    if scheme != "unix":
        return Observed.unsupported(where)
    try:
        return Observed.of(stat.S_IMODE(os.stat(path).st_mode), f"stat {path}")
    except OSError as error:
        return Observed.lost(short(error), f"stat {path}")


def ask(where: str, installed: bool, timeout_s: float = _ANSWER_S, tls: Tls | None = None) -> Docker:
    """How the engine at ``where`` answered; each of its answers may take ``timeout_s`` seconds."""
    if where.partition("://")[0] not in ("unix", "tcp", "http", "https"):
        return Docker("unsupported", f"{where} is neither a Unix socket nor TCP", where, installed)
    try:
        version, info = (_said(where, path, timeout_s, tls) for path in ("/version", "/info"))
        return replace(parse_answers(version, info, where), mode=socket_mode(where))
    except FileNotFoundError:
        return Docker("no socket", "the socket does not exist", where, installed)
    except PermissionError:
        return Docker("permission denied", "the socket may not be opened", where, True)
    except ConnectionRefusedError:
        return Docker("refused", "nobody listens", where, installed)
    except TimeoutError:
        return Docker("hung", f"no answer within {timeout_s:g} s", where, True)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        return Docker("error", f"{type(error).__name__}: {error}", where, True)


def docker(place: HostRoot) -> Observed[Docker]:
    """How the engine answered that the docker client would ask, and whether one of its programs is here."""
    installed = bool(place.program("docker", "dockerd"))
    try:
        found = endpoint(place.environ, place.path)
    except UsageError as error:
        return Observed.of(Docker("error", error.message, installed=installed), "docker's configuration")
    where = f"unix://{place.path('var/run/docker.sock')}" if found.host == SOCKET else found.host
    return Observed.of(ask(where, installed, tls=found.tls), "the engine's socket")


SOURCES: dict[str, Source] = {"docker": docker}


def join(found: Mapping[str, Observed[Any]], ending: Ending | None) -> Mapping[str, Observed[Any]]:
    """That the engine does not answer is itself an observation."""
    if ending is not None and ending.ended == "hung" and found["docker"].value is None:
        return {"docker": Observed.of(Docker("hung", ending.detail), "the engine's socket")}
    return found
