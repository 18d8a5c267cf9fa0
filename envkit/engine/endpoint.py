"""Which engine is meant: found as the docker client finds it, for all that envkit does with one.

The order is the client's (docker/cli, resolveContextName; docs.docker.com/engine/manage-resources/contexts):
DOCKER_HOST with DOCKER_TLS_VERIFY, DOCKER_TLS and DOCKER_CERT_PATH; DOCKER_CONTEXT; ``currentContext`` of config.json,
which ``docker context use`` writes; the socket in /var/run.  The SDK's from_env() knows the first and the last alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envkit.credentials import redacted_text
from envkit.errors import Undecided, UsageError, one_line
from envkit.records import dataclass

if TYPE_CHECKING:
    import docker

SOCKET = "unix:///var/run/docker.sock"
_MOST_BYTES = 1 << 20  # of config.json and of a context's meta.json, which have some KB


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of TLS, each None where there is none; ``verify`` whether the engine's certificate must be good."""

    ca: Path | None
    cert: Path | None
    key: Path | None
    verify: bool


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An engine: the docker context it is ("default" where DOCKER_HOST or nothing names one), its address, and its TLS,
    None without."""

    context: str
    host: str
    tls: Tls | None = None

    @property
    def shown(self) -> str:
        """What a report calls it, without credentials."""
        host = one_line(redacted_text(self.host))
        return host if self.context == "default" else f"{host} (docker context {one_line(self.context)})"


def endpoint(environ: Mapping[str, str], at: Callable[[str], Path] = Path) -> Endpoint:
    """The engine that ``environ`` and docker's configuration name; ``at`` gives the file that lies at a path.

    Raises UsageError for a context that does not exist or cannot be read, and for an address that is none.
    """
    folder = environ.get("DOCKER_CONFIG") or f"{environ.get('HOME') or '/root'}/.docker"
    if host := environ.get("DOCKER_HOST", ""):
        tls = _tls_of(environ, folder, at)
        if tls and tls.verify and tls.ca is None and not host.startswith("unix:"):  # the client ends here as well
            where = environ.get("DOCKER_CERT_PATH") or folder
            why = f"DOCKER_TLS_VERIFY is set, and {one_line(where)} holds no ca.pem to verify the engine with"
            raise UsageError(why, "point DOCKER_CERT_PATH at the folder with ca.pem, cert.pem and key.pem")
        return Endpoint("default", _address(host, "DOCKER_HOST"), tls)
    name, by = environ.get("DOCKER_CONTEXT", ""), "DOCKER_CONTEXT"
    if not name:
        name, by = _current(at(f"{folder}/config.json")), f"currentContext of {folder}/config.json"
    if name in ("", "default"):
        return Endpoint("default", SOCKET, _tls_of(environ, folder, at))
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    shown, meta = one_line(name), at(f"{folder}/contexts/meta/{digest}/meta.json")
    fix = f"`docker context ls` names those that are there: choose one in {by.partition(' ')[0]}, or leave it unset"
    try:
        said = _json(meta)["Endpoints"]["docker"]
        host, skip = str(said.get("Host") or SOCKET), bool(said.get("SkipTLSVerify"))
    except FileNotFoundError:
        raise UsageError(f"there is no docker context `{shown}`, which {by} names", fix) from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"the docker context `{shown}`, which {by} names, cannot be read: {meta}", fix) from error
    files = [at(f"{folder}/contexts/tls/{digest}/docker/{one}.pem") for one in ("ca", "cert", "key")]
    tls = _tls(files, verify=not skip) if skip or any(file.is_file() for file in files) else None
    return Endpoint(name, _address(host, f"the docker context `{shown}`"), tls)


def _json(path: Path) -> Any:
    with path.open("rb") as file:
        return json.loads(file.read(_MOST_BYTES))


def _current(config: Path) -> str:
    """The context in use; a configuration that is not there or cannot be read names none, as for the client."""
    try:
        return str(_json(config).get("currentContext") or "")
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""


def _address(host: str, by: str) -> str:
    scheme, colon, rest = host.partition("://")
    user, at, _ = (rest if colon else host).rpartition("@")
    if at and scheme not in ("unix", "npipe", "fd") and (scheme != "ssh" or ":" in user):
        said = f"{by} has a user or a password in its address, which no engine takes and its errors would show"
        raise UsageError(said, "write it without one, like tcp://HOST:2376; TLS (DOCKER_TLS_VERIFY) says who may")
    if not colon or not rest or scheme not in ("unix", "tcp", "http", "https", "ssh", "npipe", "fd"):
        said = f"{by} is `{one_line(redacted_text(host))}`, which is no address of an engine"
        raise UsageError(said, "write it like unix:///var/run/docker.sock or tcp://HOST:2376")
    return host


def _tls_of(environ: Mapping[str, str], folder: str, at: Callable[[str], Path]) -> Tls | None:
    """The TLS that the variables ask for; any value of them but the empty one does, as for the client."""
    verify = bool(environ.get("DOCKER_TLS_VERIFY"))
    if not verify and not environ.get("DOCKER_TLS"):
        return None
    where = environ.get("DOCKER_CERT_PATH") or folder
    return _tls([at(f"{where}/{one}.pem") for one in ("ca", "cert", "key")], verify=verify)


def _tls(files: list[Path], *, verify: bool) -> Tls:
    ca, cert, key = [file if file.is_file() else None for file in files]
    return Tls(ca, cert, key, verify)


def api_version(found: Endpoint) -> str | None:
    """The version of the API that DOCKER_API_VERSION names, None without.

    Raises Undecided for an engine that is reached by a way that envkit does not speak, and UsageError for a
    DOCKER_API_VERSION that is none.
    """
    scheme = found.host.partition("://")[0]
    if scheme == "ssh":
        raise Undecided(
            f"the docker engine is {found.shown}, and envkit speaks to no engine through ssh",
            "forward its socket, as in `ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST`, and set "
            "DOCKER_HOST=unix:///tmp/docker.sock; or run envkit on that machine",
        )
    if scheme in ("npipe", "fd"):
        said = f"the docker engine is {found.shown}, which is no socket of Linux"
        raise Undecided(said, "set DOCKER_HOST to unix:///PATH or tcp://HOST:PORT")
    version = os.environ.get("DOCKER_API_VERSION") or None
    if version and not re.fullmatch(r"\d{1,3}\.\d{1,3}", version):
        raise UsageError(
            f"DOCKER_API_VERSION is `{one_line(version)}`, which is no version", "write it like 1.45, or leave it unset"
        )
    return version


def client(found: Endpoint, timeout_s: float) -> docker.DockerClient:
    """The SDK's client for an engine; each call may take ``timeout_s`` seconds.  Raises as ``api_version``."""
    version, scheme = api_version(found), found.host.partition("://")[0]

    import docker
    import docker.constants
    import docker.tls

    if found.tls is None or scheme == "unix":
        return docker.DockerClient(base_url=found.host, version=version, timeout=int(timeout_s))
    pair = (str(found.tls.cert), str(found.tls.key)) if found.tls.cert and found.tls.key else None
    tls = docker.tls.TLSConfig(pair, str(found.tls.ca) if found.tls.ca else None, found.tls.verify)

    def made(version: str) -> docker.DockerClient:
        one = docker.DockerClient(base_url=found.host, tls=tls, version=version, timeout=int(timeout_s))
        # With it, requests takes the certificates of REQUESTS_CA_BUNDLE in place of the engine's own, and says nothing.
        one.api.trust_env = False
        return one

    return made(version or str(made(docker.constants.MINIMUM_DOCKER_API_VERSION).api.version(False)["ApiVersion"]))
