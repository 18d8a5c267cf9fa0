"""HTTP with an engine's socket for single questions: what the answer is, and nothing of why there is none.

The SDK and the standard library's client take 0.1 s and 20 ms to import, a question of this kind takes two.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any, NamedTuple

from envkit.engine.endpoint import Endpoint

MOST_BYTES = 8 << 20  # of one answer; what an engine says of itself or of an image has some 10 KB
_ANSWER_S = 10.0  # an idle engine answers in milliseconds; one that takes longer is asked by the SDK, which waits


class Answer(NamedTuple):
    """The status of an answer and the JSON object that came with it, empty if none did."""

    status: int
    value: dict[str, Any]


def ask(found: Endpoint, path: str, method: str = "GET") -> Answer | None:
    """What the engine at ``found`` says to ``method`` of ``path``, in which names are quoted, within 10 s.

    None if it is not at a Unix socket, or said nothing that is HTTP.
    """
    scheme, _, place = found.host.partition("://")
    try:
        return said(place, path, method) if scheme == "unix" else None
    except (OSError, ValueError, RecursionError):
        return None


def said(place: str, path: str, method: str = "GET", timeout_s: float = _ANSWER_S) -> Answer:
    """What is said at the Unix socket ``place``; raises OSError where nothing is, and ValueError for no answer."""
    with socket.socket(socket.AF_UNIX) as one:
        end = time.monotonic() + timeout_s
        one.settimeout(timeout_s)
        one.connect(place)
        # of version 1.0 no answer comes in pieces, and its end is the connection's
        one.sendall(f"{method} {path} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
        return parse(_all(one, end))


def _all(one: socket.socket, end: float) -> bytes:
    """All that comes until the time ``end``; raises ValueError for too much."""
    data = bytearray()
    while piece := one.recv(1 << 16):
        data += piece
        if len(data) > MOST_BYTES:
            raise ValueError(f"it answered with more than {MOST_BYTES >> 20} MiB")
        if time.monotonic() > end:
            raise TimeoutError
    return bytes(data)


def parse(data: bytes) -> Answer:
    """The answer that ``data`` is; raises ValueError for what is none or is cut short."""
    head, blank, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not blank or not version.startswith("HTTP/1."):
        raise ValueError("no answer of HTTP")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "transfer-encoding" in fields or int(fields.get("content-length", len(body))) != len(body):
        raise ValueError("the answer is cut short, or in pieces")
    status = int(rest[:3])
    value = json.loads(body) if body.strip() else {}
    if not isinstance(value, dict):
        raise ValueError("the answer is no object")
    return Answer(status, value)
