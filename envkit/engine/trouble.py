"""Recognises the world's failures (network, certificates, disk, engine) in what other tools print.

The phrases are those of BuildKit, dockerd, containerd, apt, pip, uv, curl and git as seen in their output; a line that
fits none of them stays the build's own failure and is shown as it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from envkit.engine import CannotStart
from envkit.errors import EnvkitError, Undecided, UsageError, one_line

_NO_ENGINE = re.compile(
    r"cannot connect to the docker daemon|is the docker daemon running|rpc error: code = unavailable"
    r"|error reading from server: eof|error reading preface from server|transport is closing",
    re.I,
)
_FORBIDDEN = re.compile(r"permission denied while trying to connect to the docker", re.I)
_NO_BUILDX = re.compile(
    r"'buildx' is not a docker command|unknown command: docker buildx|buildx component is missing", re.I
)
_DISK = re.compile(r"no space left on device|disk quota exceeded|don't have enough free space in|os error 28\b", re.I)
_HASH = re.compile(r"do not match the hashes|hash mismatch for|hash sum mismatch", re.I)
_CERTIFICATE = re.compile(
    r"certificate[_ ]verify[_ ]failed|certificate verification failed|invalid peer certificate|x509: "
    r"|failed to verify certificate|ssl certificate problem|unable to get local issuer certificate",
    re.I,
)
_ABSENT = re.compile(
    r"pull access denied|manifest unknown|repository does not exist|: not found$|requested access to the resource", re.I
)
_LIMIT = re.compile(r"toomanyrequests|too many requests", re.I)
_NETWORK = re.compile(
    r"no such host|temporary failure (?:in name resolution|resolving)|could not resolve|name or service not known"
    r"|dns error|failed to lookup address|network is unreachable|no route to host|connection refused"
    r"|connection timed out|connection reset by peer|i/o timeout|tls handshake timeout|newconnectionerror"
    r"|connecttimeouterror|unable to connect to|could not connect to|error sending request for url|operation timed out"
    r"|client\.timeout exceeded|context deadline exceeded",
    re.I,
)
_SYNTAX = re.compile(r"dockerfile parse error|failed to parse stage name|unknown instruction|file with no instructions")
_BASE = re.compile(r"failed to resolve source metadata for (\S+?):? ")

CA_FIX = "point SSL_CERT_FILE at the CA bundle of your proxy; envkit hands it to the build as a secret, in no layer"
_LOCKED_FIX = (
    "find out why it changed (a proxy, a replaced release); run envkit lock again only if the change is wanted"
)
_NETWORK_FIX = "check the network, the proxy (HTTPS_PROXY) and the name service; nothing half-made was left"
_WORLD = (
    (_HASH, "a downloaded file is not the one the lock holds", _LOCKED_FIX),
    (_CERTIFICATE, "a server's certificate was not trusted", CA_FIX),
    (_LIMIT, "the registry limits this machine", "log in with docker login, or wait"),
    (_NETWORK, "the network did not serve", _NETWORK_FIX),
)


def _quote(line: str) -> str:
    """One line as it may stand in a message: no leading clock or colour, at most 300 characters."""
    line = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
    line = re.sub(r"^ERROR: (?:failed to (?:solve|build): )?|^[EW]: |^error: ", "", line)
    return (line if len(line) <= 300 else line[:297] + "...").rstrip(".")


def _last(lines: Sequence[str], pattern: re.Pattern[str]) -> str:
    """The last of ``lines`` that ``pattern`` fits, made fit for a message; empty if none does."""
    return next((_quote(line) for line in reversed(lines) if pattern.search(line)), "")


def words_of(error: BaseException) -> str:
    """What the innermost of a chain of exceptions says: the SDK's own words for a daemon that it cannot reach hold the
    others as Python writes them."""
    seen: list[BaseException] = []
    while not any(error is one for one in seen):
        seen.append(error)
        inner = (*error.args, getattr(error, "reason", None), error.__cause__, error.__context__)
        error = next((one for one in inner if isinstance(one, BaseException)), error)
    tls = sys.modules.get("ssl")  # who raised an error of it has imported it, which takes 5 ms
    if tls and isinstance(error, tls.SSLCertVerificationError):
        return f"its certificate was not trusted: {error.verify_message}"
    if tls and isinstance(error, tls.SSLError):
        # what Python's own code raises has no reason
        return f"TLS failed: {(getattr(error, 'reason', None) or 'no reason was given').replace('_', ' ')}"
    return (error.strerror or "" if isinstance(error, OSError) else "") or str(error) or type(error).__name__


def no_engine(detail: str) -> Undecided:
    """The error for a daemon that does not answer."""
    return Undecided(
        f"no docker engine answers: {_quote(detail).lower()}",
        "start it (systemctl start docker), or set DOCKER_HOST or the docker context to one that runs, "
        "or use --engine local",
    )


def forbidden(detail: str) -> Undecided:
    """The error for a socket that this user may not open."""
    return Undecided(
        f"this user may not talk to the docker engine: {_quote(detail)}",
        "add the user to the group docker and log in again, or use rootless docker, or use --engine local",
    )


def disk_full(detail: str, where: str, free: int | None) -> Undecided:
    """The error for a full disk; ``free`` is in bytes, None if it cannot be seen from here."""
    left = "" if free is None else f", where {free / 1e6:.0f} MB are free"
    how = " (docker buildx prune, docker image rm)" if "engine" in where else ""
    said = f"the disk is full: {_quote(detail)} ({where}{left})"
    return Undecided(said, f"make room there{how} and run again; finished steps are kept")


def explain(lines: Sequence[str], *, where: str, free: int | None = None) -> EnvkitError | None:
    """The error that the failing tool's last ``lines`` speak of, or None if they name no failure of the world.

    ``where`` says what was written to (for a full disk) and ``free`` the bytes free there.
    """
    if line := _last(lines, _NO_BUILDX):
        said = f"the docker client has no buildx plugin: {line}"
        return Undecided(said, "install docker-buildx (Debian) or docker-buildx-plugin (Docker's packages)")
    if line := _last(lines, _FORBIDDEN):
        return forbidden(line)
    if line := _last(lines, _NO_ENGINE):
        return no_engine(line)
    if line := _last(lines, _DISK):
        return disk_full(line, where, free)
    for pattern, what, fix in _WORLD:
        if line := _last(lines, pattern):
            return Undecided(f"{what}: {line}", fix)
    if line := _last(lines, _SYNTAX):
        return UsageError(f"the Dockerfile cannot be read: {line}", "fix the line it names")
    if (line := _last(lines, _BASE)) and _ABSENT.search(line):
        return UsageError(f"the base image does not exist or is private: {line}", "check its name, or docker login")
    return None


def absent(detail: str) -> bool:
    """Whether a registry answered that the image does not exist (or is not for this user)."""
    return bool(_ABSENT.search(detail)) and not unreachable(detail)


def unreachable(detail: str) -> bool:
    """Whether ``detail`` says that a server could not be reached, trusted or used now."""
    return any(pattern.search(detail) for pattern in (_NETWORK, _CERTIFICATE, _LIMIT))


def started(stderr: str, image: str) -> None:
    """Raises CannotStart if ``stderr`` is the runtime's word that the kernel did not take the program."""
    said = re.fullmatch(r"exec (/\S+): (exec format error|no such file or directory|permission denied)\s*", stderr)
    if said is None:
        return
    path, why = one_line(said[1]), said[2]
    raise CannotStart(
        *{
            "exec format error": (
                f"{path} in the image {image} is no program for this machine's processor",
                "build the image for the platform of this machine (docker build --platform)",
            ),
            "no such file or directory": (
                f"{path} in the image {image} cannot start: the loader or interpreter it names is not in the image",
                "look at `file` and `ldd` of it: a program of another distribution, or a broken link, was copied in",
            ),
            "permission denied": (
                f"{path} in the image {image} may not be executed by the image's user",
                "make it executable for that user (chmod a+rx), its folders included",
            ),
        }[why]
    )
