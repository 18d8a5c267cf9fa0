"""The paths of Kubernetes' API that envkit uses, on loopback: lists with pages, labels and fields; merge patches and
strategic ones of conditions; versions and their conflicts; and refusals that a test plans.

The real servers, with the same words of envkit, are those of tests/test_fleet_kubernetes_real.py.
"""

from __future__ import annotations

import json
import re
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from envkit.fleet.apiserver import Api

# Passes on what comes at the socket to the server at HOST:PORT, as `kubectl proxy` does.
KUBECTL = """#!{python} -IS
import socket, sys, threading
path = next(word.partition("=")[2] for word in sys.argv if word.startswith("--unix-socket="))
assert sys.argv[1] == "proxy"
door = socket.socket(socket.AF_UNIX)
door.bind(path)
door.listen(64)
def pump(one, other):
    while piece := one.recv(65536):
        other.sendall(piece)
    other.shutdown(socket.SHUT_WR)
while True:
    near, _ = door.accept()
    far = socket.create_connection(("127.0.0.1", {port}))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""


@dataclass
class Planned:
    """An answer in place of the server's own: a status with a sentence, after ``wait_s`` seconds; status 0 closes the
    connection without a word.  Of ``raw`` bytes the last one comes again and again if they ``drip``."""

    status: int
    says: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    raw: bytes | None = None
    drip: bool = False


def status(code: int, says: str) -> bytes:
    return json.dumps({"kind": "Status", "status": "Failure", "message": says, "code": code}).encode()


class KubeServer:
    """Objects by their path; ``planned`` are answers to the next requests whose line fits the pattern beside them."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.planned: list[tuple[str, Planned]] = []
        self.asked: list[str] = []
        self.before: dict[str, Any] = {}  # a change that somebody else makes just before a request of this pattern
        self.authorized: list[str] = []
        self.version = 100
        self.lock = threading.Lock()
        self.port = 0

    def put(self, path: str, **parts: Any) -> dict[str, Any]:
        """An object at its path, such as /api/v1/nodes/gpu-1."""
        self.version += 1
        made = {"metadata": {"name": path.rpartition("/")[2], "resourceVersion": str(self.version)}, "spec": {}}
        made["metadata"] |= parts.pop("metadata", {})
        self.objects[path] = {**made, **parts}
        return self.objects[path]

    def node(self, name: str, labels: dict[str, str] | None = None, **parts: Any) -> dict[str, Any]:
        """A node as the kubelet reports it."""
        about = {"labels": {"kubernetes.io/hostname": name, **(labels or {})}}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        return self.put(f"/api/v1/nodes/{name}", metadata=about, status={"conditions": [ready]}, **parts)

    def pod(self, name: str, node: str, labels: dict[str, str] | None = None, **parts: Any) -> dict[str, Any]:
        """A Pod that runs on a node."""
        parts = {"spec": {"nodeName": node}, "status": {"phase": "Running"}, **parts}
        about = {"labels": labels or {}, **parts.pop("metadata", {})}
        return self.put(f"/api/v1/namespaces/default/pods/{name}", metadata=about, **parts)

    def api(self, patience_s: float = 5.0) -> Api:
        """The server for envkit, without kubectl between."""
        return Api(lambda limit: HTTPConnection("127.0.0.1", self.port, timeout=limit), patience_s)

    def kubectl(self, folder: Path) -> Path:
        """A folder with a kubectl that leads here."""
        folder.mkdir(exist_ok=True)
        program = folder / "kubectl"
        program.write_text(KUBECTL.format(python=sys.executable, port=self.port))
        program.chmod(0o755)
        return folder

    def answer(self, method: str, path: str, body: bytes, kind: str) -> tuple[int, bytes]:
        where = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(where.query).items()}
        with self.lock:
            if method == "GET" and where.path in self.objects:
                return 200, json.dumps(self.objects[where.path]).encode()
            if method == "GET" and re.fullmatch(r"/api/v1/(nodes|pods|namespaces/[^/]+/pods)", where.path):
                return self._listed(where.path, query)
            if method == "PATCH":
                return self._patched(where.path, json.loads(body), kind)
        return 404, status(404, f'"{where.path}" not found')

    def _listed(self, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        inner = r"/api/v1/namespaces/[^/]+/pods" if path == "/api/v1/pods" else re.escape(path)
        found = [one for at, one in sorted(self.objects.items()) if re.fullmatch(f"{inner}/[^/]+", at)]
        for word in filter(None, query.get("labelSelector", "").split(",")):
            key, _, value = word.partition("=")
            found = [one for one in found if one["metadata"].get("labels", {}).get(key) == value]
        for word in filter(None, query.get("fieldSelector", "").split(",")):
            key, _, value = word.partition("=")
            first, second = key.split(".")
            found = [one for one in found if one.get(first, {}).get(second) == value]
        start, limit = int(query.get("continue", "0")), int(query["limit"])
        more = {"continue": str(start + limit)} if len(found) > start + limit else {}
        return 200, json.dumps({"metadata": more, "items": found[start : start + limit]}).encode()

    def _patched(self, path: str, body: dict[str, Any], kind: str) -> tuple[int, bytes]:
        held = self.objects.get(path.removesuffix("/status"))
        if held is None:
            return 404, status(404, f'nodes "{path}" not found')
        wanted = body.get("metadata", {}).get("resourceVersion", held["metadata"]["resourceVersion"])
        if wanted != held["metadata"]["resourceVersion"]:
            return 409, status(409, "Operation cannot be fulfilled: the object has been modified")
        if path.endswith("/status"):
            assert kind == "application/strategic-merge-patch+json" and set(body) == {"status"}
            for change in body["status"]["conditions"]:
                kept = [one for one in held["status"]["conditions"] if one["type"] != change["type"]]
                held["status"]["conditions"] = kept + ([] if change.get("$patch") == "delete" else [change])
        else:
            assert kind == "application/merge-patch+json" and "status" not in body
            merge(held, body)
        self.version += 1
        held["metadata"]["resourceVersion"] = str(self.version)
        return 200, json.dumps(held).encode()


def merge(held: dict[str, Any], change: dict[str, Any]) -> None:
    """RFC 7396."""
    for key, value in change.items():
        if value is None:
            held.pop(key, None)
        elif isinstance(value, dict):
            merge(held.setdefault(key, {}), value)
        else:
            held[key] = value


def handler(server: KubeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            line = f"{self.command} {self.path}"
            server.asked.append(line)
            server.authorized += self.headers.get_all("Authorization", [])
            for pattern in list(server.before):
                if re.search(pattern, line):
                    server.before.pop(pattern)()
            for number, (pattern, plan) in enumerate(server.planned):
                if re.search(pattern, line):
                    server.planned.pop(number)
                    self.planned(plan)
                    return
            self.send(*server.answer(self.command, self.path, body, self.headers.get("Content-Type", "")))

        do_PATCH = do_GET

        def planned(self, plan: Planned) -> None:
            time.sleep(plan.wait_s)
            self.close_connection = True
            if plan.raw is not None:
                self.wfile.write(plan.raw)
                with suppress(OSError):  # until nobody reads any more
                    while plan.drip:
                        self.wfile.write(plan.raw[-1:])
                        time.sleep(0.02)
            elif plan.status:
                self.send(plan.status, status(plan.status, plan.says), plan.headers)

        def send(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(code)
            for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


class Patient(ThreadingHTTPServer):
    """A server that says nothing of clients which gave up waiting."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def serving(certificate: Path | None = None, key: Path | None = None) -> Iterator[KubeServer]:
    """A server with nothing in it, behind TLS where it has a certificate."""
    made = KubeServer()
    with Patient(("127.0.0.1", 0), handler(made)) as http:
        if certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate, key)
            http.socket = context.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
        http.daemon_threads = True
        made.port = http.server_port
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield made
        http.shutdown()
        thread.join()
