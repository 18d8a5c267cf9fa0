"""HTTP with Kubernetes' API server, for the few questions and changes that a fleet needs.

Where the server is and who one is there is kubectl's knowledge, which reads every kubeconfig and runs every cloud's
plugin: `kubectl proxy` listens on a socket in a folder of envkit's own and adds the credentials, and the server's own
answers come through.  A Pod has no kubectl, but the token of its service account, with which the server is asked
directly.

A server that is busy (429), restarting (5xx) or out of reach is asked again until a limit, with the pauses that it asks
for; a refusal is final.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

from envkit.credentials import redacted_text
from envkit.errors import Undecided, one_line
from envkit.records import dataclass
from envkit.system import proc

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # where Kubernetes puts the token of a Pod's account
PATIENCE_S = 30.0  # of a question with all its repetitions; an API server that restarts is back within it
_START_S = 30.0  # of kubectl; its plugins of clouds run at the first question, not before
_FOREVER_S = 1e6  # of the proxy, which ends with the block that needs it
_PAUSE_S = 0.1  # before a question is repeated the first time; then twice as long each time
_LONGEST_PAUSE_S = 5.0
_BUSY = frozenset((429, 500, 502, 503, 504))
_GONE = 410  # a list that took so long that the server does not know its beginning any more
_PAGE = 500  # objects of one answer, as kubectl asks for them
_MOST_BYTES = 64 << 20  # of one answer; 500 Pods have about 5 MB
_FIX = "see whether `kubectl get nodes` works here"

Patch = Literal["merge", "strategic"]
_PATCHES: dict[Patch, str] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Refusal(Undecided):
    """The server answered, and with no: its status and its own sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the API server refused with {status}: {message}", _fix(status))
        self.status = status


def _fix(status: int) -> str:
    if status == 401:
        return "log in again, or see the token in your kubeconfig"
    if status == 403:
        return "grant the right that it names; docs/fleet.md lists those that envkit needs"
    return _FIX


@dataclass(frozen=True, slots=True)
class Api:
    """A server that can be asked: ``connect`` makes a connection with a time limit in seconds, ``patience_s`` is the
    limit of a question with its repetitions, ``headers`` are what each carries, read anew for a token that changes."""

    connect: Callable[[float], HTTPConnection]
    patience_s: float
    headers: Callable[[], Mapping[str, str]] = dict

    def get(self, path: str, accept: str = "application/json") -> dict[str, Any]:
        """The object at ``path``.  Raises Refusal for a no, such as 404, and Undecided without an answer."""
        return self._asked("GET", path, None, {"Accept": accept})

    def items(self, path: str, query: Mapping[str, str], names_only: bool = False) -> list[dict[str, Any]]:
        """All objects of the list at ``path``, page by page; with ``names_only`` only their metadata comes."""
        accept = _NAMES_ONLY if names_only else "application/json"
        for _ in range(3):
            found: list[dict[str, Any]] = []
            more = ""
            try:
                while True:
                    asked = {**query, "limit": str(_PAGE), **({"continue": more} if more else {})}
                    page = self.get(f"{path}?{urlencode(asked)}", accept)
                    listed, about = page.get("items"), page.get("metadata")
                    found += [each for each in listed or () if isinstance(each, dict)]
                    more = about.get("continue", "") if isinstance(about, dict) else ""
                    if not more:
                        return found
            except Refusal as refusal:
                if refusal.status != _GONE:
                    raise
        raise Undecided(f"the list of {path} changed faster than it could be read", "try again")

    def patch(self, path: str, kind: Patch, body: Mapping[str, Any]) -> dict[str, Any]:
        """Changes the object at ``path`` and gives what it is then.  Raises Refusal, of 409 where it was changed since
        the version that ``body`` names, and Undecided without an answer."""
        headers = {"Accept": "application/json", "Content-Type": _PATCHES[kind]}
        return self._asked("PATCH", path, json.dumps(body).encode(), headers)

    def _asked(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> dict[str, Any]:
        end = time.monotonic() + self.patience_s
        pause = _PAUSE_S
        while True:
            least = pause
            try:
                status, after, data = self._once(method, path, body, headers, end)
            except ssl.SSLCertVerificationError as error:
                raise Undecided(f"the API server's certificate is not trusted: {error.verify_message}", _FIX) from error
            except TimeoutError:
                why = f"the API server did not answer within {self.patience_s:g} s"
            except (OSError, HTTPException) as error:
                why = f"the API server cannot be reached: {one_line(str(error)) or type(error).__name__}"
            else:
                if status < 300:
                    return _object(data)
                sentence = _sentence(data)
                if status not in _BUSY:
                    raise Refusal(status, sentence)
                why = f"the API server answers with {status}: {sentence}"
                least = max(least, after)
            if time.monotonic() + least >= end:
                raise Undecided(why, _FIX)
            time.sleep(least)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _once(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], end: float
    ) -> tuple[int, float, bytes]:
        """Status, the pause that the server asks for in seconds, and the body of one answer."""
        with closing(self.connect(_left(end))) as connection:
            connection.request(method, path, body, {"User-Agent": "envkit", **self.headers(), **headers})
            opened = connection.sock
            with closing(connection.getresponse()) as answer:
                after = answer.headers.get("Retry-After", "")
                return answer.status, float(after) if after.isdigit() else 0.0, _read(answer, opened, end)


def _read(answer: HTTPResponse, opened: socket.socket, end: float) -> bytes:
    """The whole body; raises TimeoutError for one that comes drop by drop."""
    data = bytearray()
    while True:
        if opened.fileno() >= 0:  # it is closed once the last piece was read
            opened.settimeout(_left(end))
        piece = answer.read1(1 << 16)
        if not piece:
            break
        data += piece
        if len(data) > _MOST_BYTES:
            raise Undecided(f"the API server answered with more than {_MOST_BYTES >> 20} MiB", _FIX)
    if answer.length:
        raise HTTPException("its answer is cut off")
    return bytes(data)


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def name_in(path: str) -> str:
    """A name as it stands in a path."""
    return quote(path, safe="")


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Undecided("the API server's answer is no JSON", _FIX) from error
    if not isinstance(value, dict):
        raise Undecided("the API server's answer is no object", _FIX)
    return value


def _sentence(data: bytes) -> str:
    """The sentence of an answer that is an error: a Status of Kubernetes, or whatever a proxy in between wrote."""
    try:
        value = json.loads(data)
        text = str(value["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        text = data.decode("utf-8", "replace").strip()
    return one_line(redacted_text(text)) or "it says no more"


@contextmanager
def connected(environ: Mapping[str, str], account: Path = ACCOUNT) -> Iterator[Api]:
    """The API server of this Pod, or else of kubectl's current context.

    Raises Undecided where there is neither, or kubectl does not start.
    """
    inside, token = environ.get("KUBERNETES_SERVICE_HOST", ""), account / "token"
    if inside and not environ.get("KUBECONFIG") and token.exists():
        port = environ.get("KUBERNETES_SERVICE_PORT", "")
        yield _in_a_pod(inside, int(port) if port.isdigit() else 443, account)
        return
    with proc.scratch_folder() as folder, _proxy(folder / "api") as path:
        yield Api(lambda limit: _Unix(path, limit), PATIENCE_S)


def _in_a_pod(host: str, port: int, account: Path) -> Api:
    try:
        context = ssl.create_default_context(cafile=account / "ca.crt")
    except OSError as error:
        raise Undecided(f"{account / 'ca.crt'} cannot be used: {error.strerror or error}", _FIX) from error

    def headers() -> dict[str, str]:
        return {"Authorization": f"Bearer {(account / 'token').read_text().strip()}"}

    return Api(lambda limit: HTTPSConnection(host, port, timeout=limit, context=context), PATIENCE_S, headers)


class _Unix(HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        """Opens the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


@contextmanager
def _proxy(path: Path) -> Iterator[Path]:
    """While it holds, kubectl listens at ``path`` and passes on what it gets there."""
    over = threading.Event()
    words = ("kubectl", "proxy", f"--unix-socket={path}")
    ended: list[str] = []

    def work() -> None:
        try:
            done = proc.run(words, timeout_s=_FOREVER_S, stop=over.is_set)
            ended.append((done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2] or "it says no more")
        except OSError as error:
            ended.append(error.strerror or str(error))

    wait = proc.beside(work)
    try:
        end = time.monotonic() + _START_S
        while not path.exists():
            if ended:
                raise Undecided(
                    f"`kubectl proxy` does not run: {one_line(redacted_text(ended[0]))}", "install kubectl; " + _FIX
                )
            if time.monotonic() > end:
                raise Undecided(f"kubectl did not start within {_START_S:g} s", _FIX)
            time.sleep(0.02)
        yield path
    finally:
        over.set()
        wait()
