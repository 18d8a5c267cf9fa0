"""Pushes by an engine that does not stay, on a socket of this machine; real engines are in test_push_engine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import docker
import pytest

from envkit.engine import docker_push
from envkit.errors import EnvkitError, Undecided

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(event: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(event), event)


PREPARING = chunk(b'{"status": "Preparing", "id": "a"}\r\n')
DENIED = chunk(b'{"error": "denied: requested access to the resource is denied"}\r\n') + b"0\r\n\r\n"


@contextmanager
def engine(answer: bytes) -> Iterator[docker.APIClient]:
    """The client of an engine that says this to one request and is gone."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += connection.recv(65536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        api = docker.APIClient(base_url=f"tcp://127.0.0.1:{listening.getsockname()[1]}", version="1.44")
        yield api
        api.close()
        thread.join()


def pushed(api: docker.APIClient) -> str:
    return docker_push._followed(api, "registry:5000/a", "1", {}, "registry:5000", lambda line: None)


@pytest.mark.parametrize("answer", [b"", HEAD, HEAD + PREPARING, HEAD + PREPARING[:12], HEAD + PREPARING + b"40\r\n{"])
def test_an_engine_that_ends_during_a_push_is_said_at_once(answer: bytes) -> None:
    with engine(answer) as api, pytest.raises(Undecided, match="the engine broke off the push: ") as caught:
        pushed(api)
    assert "push again" in caught.value.fix


def test_what_the_registry_refused_is_told_of_the_registry() -> None:
    with engine(HEAD + PREPARING + DENIED) as api, pytest.raises(EnvkitError, match="registry:5000") as caught:
        pushed(api)
    assert "denied" in str(caught.value)
