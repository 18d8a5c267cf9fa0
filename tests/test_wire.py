"""Single questions at an engine's socket: an answer that is whole, or none."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from envkit.engine import sdk, wire
from envkit.engine.endpoint import Endpoint


@contextmanager
def answering(path: Path, data: bytes) -> Iterator[list[bytes]]:
    """A socket that answers one question with ``data``; gives what was asked."""
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            one, _ = server.accept()
            with one:
                asked.append(one.recv(4096))
                with suppress(OSError):  # who has read enough goes
                    one.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield asked
        thread.join(10)


def _http(body: bytes, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


def test_an_answer_is_its_status_and_its_object(tmp_path: Path) -> None:
    body = json.dumps({"Id": "sha256:1"}).encode()
    with answering(tmp_path / "s", _http(body)) as asked:
        said = wire.ask(Endpoint("default", f"unix://{tmp_path}/s"), "/images/a%20b/json")
    assert said == (200, {"Id": "sha256:1"})
    assert asked == [b"GET /images/a%20b/json HTTP/1.0\r\nHost: docker\r\n\r\n"]


def test_an_answer_without_a_body_has_its_status(tmp_path: Path) -> None:
    with answering(tmp_path / "s", b"HTTP/1.1 204 No Content\r\n\r\n") as asked:
        assert wire.ask(Endpoint("default", f"unix://{tmp_path}/s"), "/containers/x", "DELETE") == (204, {})
    assert asked[0].startswith(b"DELETE ")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"SSH-2.0-OpenSSH\r\n\r\n", _http(b"{}")[:-1], _http(b"[]"), _http(b"{"), b"HTTP/1.0 none\r\n\r\n",
        _http(b"{}", more="Transfer-Encoding: chunked\r\n"), b"HTTP/1.0 200 OK\r\nContent-Length: x\r\n\r\n",
        _http(b'{"a": ' + b"[" * 100_000),
    ],
)  # fmt: skip
def test_what_is_no_whole_answer_is_none(tmp_path: Path, data: bytes) -> None:
    with answering(tmp_path / "s", data):
        assert wire.ask(Endpoint("default", f"unix://{tmp_path}/s"), "/info") is None


def test_more_than_any_answer_has_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="more than 8 MiB"), answering(tmp_path / "s", _http(b" " * (9 << 20))):
        wire.said(str(tmp_path / "s"), "/info")


def test_nobody_and_other_ways_are_none(tmp_path: Path) -> None:
    assert wire.ask(Endpoint("default", f"unix://{tmp_path}/none"), "/info") is None
    assert wire.ask(Endpoint("default", "tcp://127.0.0.1:1"), "/info") is None


def test_a_silent_socket_costs_no_more_than_its_time(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        with pytest.raises(TimeoutError):
            wire.said(str(tmp_path / "s"), "/info", timeout_s=0.1)


def test_the_sdk_is_there_when_one_of_its_names_is_used() -> None:
    assert issubclass(sdk.docker.errors.NotFound, sdk.docker.errors.APIError)
    assert issubclass(sdk.requests.exceptions.Timeout, OSError)
    with pytest.raises(AttributeError):
        sdk.docker.no_such_name  # noqa: B018
