"""Registries of this machine for tests: Debian's docker-registry, and a server before it that plants faults."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from clocks import comes

USER, PASSWORD = "porter", "open-sesame-7391"
# Of that user and password, by bcrypt, which is all that the registry takes.
HTPASSWD = "porter:$2y$05$/so8CnuNxOA65FNE/G1aNOfTXXyCsdRYFB/EoQvXSdBZfvvZZBBF.\n"
_HOP = ("connection", "transfer-encoding", "content-length", "keep-alive")


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry that runs: its HOST:PORT, and the folder of what it holds."""

    host: str
    root: Path

    def manifests(self) -> list[str]:
        """The tags that it has."""
        return sorted(path.name for path in self.root.glob("docker/registry/v2/repositories/**/_manifests/tags/*"))


@contextmanager
def registry(
    folder: Path, *, address: str = "127.0.0.1", auth: bool = False, tls: tuple[Path, Path] | None = None,
    root: Path | None = None,
) -> Iterator[Registry]:  # fmt: skip
    """A registry at a free port of ``address``; with ``auth`` for USER alone, with ``tls`` by this certificate and key.
    Skips the test where the package is not here."""
    if not shutil.which("docker-registry"):
        if os.environ.get("ENVKIT_REQUIRE_REGISTRY") == "1":
            pytest.fail("ENVKIT_REQUIRE_REGISTRY=1 and docker-registry is not on PATH")
        pytest.skip("docker-registry is not on PATH (Debian's package of that name)")
    with socket.socket() as free:
        free.bind((address, 0))
        host = f"{address}:{free.getsockname()[1]}"
    folder.mkdir(parents=True, exist_ok=True)
    root = root or folder / "root"
    (folder / "htpasswd").write_text(HTPASSWD)
    config: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(root)}, "delete": {"enabled": True}},
        "http": {"addr": host},
    }
    if auth:
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
    if tls:
        config["http"]["tls"] = {"certificate": str(tls[0]), "key": str(tls[1])}
    (folder / "config.yml").write_text(json.dumps(config))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    try:
        assert comes(lambda: _answers(host)), (folder / "log").read_text()
        yield Registry(host, root)
    finally:
        process.kill()
        process.wait()


def _answers(host: str) -> bool:
    name, _, port = host.partition(":")
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex((name, int(port))) == 0


@dataclass(slots=True)
class Fault:
    """What goes wrong with a request: ``meets`` says of its method and path whether it does, ``code`` is the answer's
    status in place of the registry's, 0 for none ever; ``met`` is set once it did."""

    meets: Callable[[str, str], bool]
    code: int
    met: threading.Event = field(default_factory=threading.Event)


@contextmanager
def before(held: Registry, fault: Fault) -> Iterator[Registry]:
    """A server that hands each request on to the registry but for those that the fault meets."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handed_on(self) -> None:
            if fault.meets(self.command, self.path):
                fault.met.set()
                self.close_connection = True
                if fault.code:
                    self.send_response(fault.code)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                else:
                    over.wait(120)
                return
            there = http.client.HTTPConnection(held.host, timeout=60)
            heads = {key: value for key, value in self.headers.items() if key.lower() not in _HOP}
            there.request(self.command, self.path, self._body(), heads)
            answer = there.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in _HOP or (self.command == "HEAD" and key.lower() == "content-length"):
                    self.send_header(key, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            there.close()

        def _body(self) -> bytes | None:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                size = self.headers.get("Content-Length")
                return self.rfile.read(int(size)) if size else None
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _handed_on

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Registry(f"127.0.0.1:{server.server_address[1]}", held.root)
    finally:
        over.set()
        server.shutdown()
        server.server_close()
