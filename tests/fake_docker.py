"""A docker engine in a folder: its API on a socket, for the real SDK, and a client program that builds nothing.

What the client is told is kept, and each build "makes" the next of the images that a test has laid down.
"""

from __future__ import annotations

import json
import re
import ssl
import struct
import sys
import threading
from contextlib import suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any
from urllib.parse import parse_qs, unquote, unquote_plus, urlsplit

from test_prove import content_id, layer, saved_image

CLIENT = """#!{python}
import json, sys, time
from pathlib import Path
folder, argv = Path({folder!r}), sys.argv[1:]
words = dict(word[2:].split("=", 1) for word in argv if word.startswith("--") and "=" in word)
context = Path(argv[-1])
held = sorted(path.name for path in context.iterdir())
folders = [word.split("=", 2)[2] for word in argv if word.startswith("--build-context=")]
given = [sorted(each.name for each in Path(one).iterdir()) for one in folders]
seen = {{"argv": argv, "context": held, "folders": given}}
with (folder / "builds.jsonl").open("a") as file:
    file.write(json.dumps(seen) + "\\n")
makes = json.loads((folder / "makes.json").read_text())
says = folder / "says.txt"
if says.exists() and "-ahead" not in words["tag"]:
    sys.stderr.write(says.read_text())
    sys.stderr.flush()
    time.sleep(1)  # there is more to do than what it says
if not makes:
    sys.exit("ERROR: failed to solve: process did not complete successfully: exit code: 7")
number = len((folder / "builds.jsonl").read_text().splitlines()) - 1
image = makes[min(number, len(makes) - 1)]
labels = dict(word.split("=", 2)[1:] for word in argv if word.startswith("--label="))
(folder / "images" / (words["tag"].replace("/", "%"))).write_text(json.dumps({{**image, "labels": labels}}))
Path(words["iidfile"]).write_text(image["id"])
"""


class Stream(list[Any]):
    """An answer that comes event by event."""


class FakeDocker:
    """``folder`` holds the images by name, the client in ``bin`` and the socket of the API."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, bytes] = {}
        self.layers: dict[str, bytes] = {}
        self.heard: list[tuple[str, str, Any]] = []  # method, path, and the body where it is JSON
        self.lines: list[str] = []  # the same with what stands behind a question mark
        self.put: list[bytes] = []  # the archives that containers got
        self.answers: dict[str, tuple[int, Any]] = {}  # by "METHOD path", in the place of the usual ones
        self.writes: list[tuple[int, bytes]] | None = None  # of a container that starts, by stream; None: none attaches
        self.ends = True  # whether it ends then
        self._started = threading.Event()
        (folder / "images").mkdir(parents=True)
        (folder / "bin").mkdir()
        client = folder / "bin" / "docker"
        client.write_text(CLIENT.format(python=sys.executable, folder=str(folder)))
        client.chmod(0o755)
        (folder / "makes.json").write_text("[]")
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def _serve(self) -> None:
                parts = urlsplit(self.path)
                path = unquote(re.sub(r"^/v[0-9.]+", "", parts.path))
                words = {key: values[0] for key, values in parse_qs(parts.query).items()}
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                json_body = self.headers.get("Content-Type") == "application/json" and body
                engine.lines.append(f"{self.command} {unquote_plus(self.path.removeprefix('/v1.44'))}")
                engine.heard.append((self.command, path, json.loads(body) if json_body else None))
                if engine.writes is not None and path.endswith("/attach"):
                    self._attach(engine.writes)
                    return
                if path.endswith("/start"):
                    engine._started.set()
                usual = engine.answers.get(f"{self.command} {path}")
                status, answer = usual or engine.answer(self.command, path, words, body)
                if isinstance(answer, Stream):
                    self._stream(status, answer)
                    return
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                with suppress(ConnectionError):  # a client that knows enough hangs up
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def _stream(self, status: int, events: Stream) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                with suppress(ConnectionError):
                    for event in events:
                        data = json.dumps(event).encode() + b"\r\n"
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                        self.wfile.flush()
                    self.wfile.write(b"0\r\n\r\n")

            def _attach(self, frames: list[tuple[int, bytes]]) -> None:
                self.wfile.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
                self.wfile.flush()
                engine._started.wait(20)
                engine._started.clear()
                with suppress(OSError):
                    for number, data in frames:
                        self.wfile.write(struct.pack(">BxxxL", number, len(data)) + data)
                        self.wfile.flush()
                    if not engine.ends:
                        self.connection.recv(1)  # until who attached hangs up
                self.close_connection = True

            do_GET = do_POST = do_PUT = do_DELETE = _serve

        self._handler = Handler
        self._more: list[ThreadingHTTPServer] = []
        self.server = ThreadingUnixStreamServer(str(folder / "s"), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def over_tcp(self, tls: ssl.SSLContext | None = None) -> str:
        """Listens on a port of this machine too, through TLS where a context is given; returns HOST:PORT."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler)
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self._more.append(server)
        return f"127.0.0.1:{server.server_port}"

    def close(self) -> None:
        for server in self._more:
            server.shutdown()
            server.server_close()
        self.server.shutdown()
        self.server.server_close()

    def holds(
        self,
        name: str,
        *content: bytes,
        labels: dict[str, str] | None = None,
        digest: str = "",
        volumes: tuple[str, ...] = (),
    ) -> None:
        """Gives the engine an image."""
        config = {"labels": labels or {}, "digest": digest, "volumes": {path: {} for path in volumes}}
        self._path(name).write_text(json.dumps({**self._image(content), **config}))

    def will_make(self, *images: tuple[bytes, ...]) -> None:
        """What the builds make, one after the other and the last one again."""
        (self.folder / "makes.json").write_text(json.dumps([self._image(content) for content in images]))

    def will_say(self, *lines: str) -> None:
        """The progress of a build, which then takes a second more; a build that runs beside another says nothing."""
        (self.folder / "says.txt").write_text("".join(f"{line}\n" for line in lines))

    def names(self) -> list[str]:
        return sorted(path.name.replace("%", "/") for path in (self.folder / "images").iterdir())

    def builds(self) -> list[dict[str, Any]]:
        """What the client was told: ``argv``, and the names of the files in the context and in the other folders."""
        told = self.folder / "builds.jsonl"
        return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []

    def _image(self, content: tuple[bytes, ...]) -> dict[str, Any]:
        named = {f"sha256:{sha256(one).hexdigest()}": one for one in content}
        self.layers |= named
        return {"id": content_id(content), "layers": list(named)}

    def _path(self, name: str) -> Path:
        return self.folder / "images" / name.replace("/", "%")

    def _find(self, name: str) -> dict[str, Any] | None:
        path = self._path(name)
        if name.startswith("sha256:"):
            every = (json.loads(each.read_text()) for each in (self.folder / "images").iterdir())
            return next((each for each in every if each["id"] == name), None)
        if not path.is_file():
            return None
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def answer(self, method: str, path: str, words: dict[str, str], body: bytes) -> tuple[int, Any]:
        """The status and the body for one request."""
        if path == "/version":
            return 200, {"ApiVersion": "1.44"}
        if path == "/info":
            return 200, {"DriverStatus": [], "DockerRootDir": str(self.folder)}
        if path == "/images/json":
            filters = {key: [*value] for key, value in json.loads(words.get("filters", "{}")).items()}
            (prefix,), labels = filters.get("reference", [""]), {*filters.get("label", ())}
            found = [name for name in self.names() if name.startswith(prefix)]
            found = [name for name in found if labels <= {*(self._find(name) or {}).get("labels", ())}]
            return 200, [{"RepoTags": [name], "Size": 7} for name in found]
        if path == "/images/create":
            return 200, {"error": f"dial tcp: lookup registry for {words['fromImage']}: no such host"}
        if path == "/images/load":
            name = "loaded:base"
            self.holds(name, layer(loaded=sha256(body).hexdigest().encode()))
            return 200, {"stream": f"Loaded image: {name}\n"}
        if path == "/containers/create":
            return 201, {"Id": "c1"}
        if path == "/containers/json":
            return 200, []
        if path == "/containers/c1/archive" and method == "PUT":
            self.put.append(body)
            return 200, b""
        if path == "/containers/c1/archive":
            name = words["path"]
            return (200, layer(file=self.files[name])) if name in self.files else (404, {"message": "no such file"})
        if path == "/containers/c1":
            return 204, b""
        match = re.fullmatch(r"/images/(.*?)(?:/(json|get|tag))?", path)
        found = self._find(match[1]) if match else None
        if match is None or found is None:
            return 404, {"message": f"no such image: {path}"}
        if match[2] == "get":
            return 200, saved_image(tuple(self.layers[each] for each in found["layers"]), match[1])
        if match[2] == "tag":
            self._path(f"{words['repo']}:{words['tag']}").write_text(json.dumps(found))
            return 201, b""
        if method == "DELETE":
            self._path(match[1]).unlink()
            return 200, []
        digests = [f"{match[1]}@{found['digest']}"] if found.get("digest") else []
        return 200, {
            "Id": found["id"],
            "RepoTags": [match[1]],
            "Config": {"Labels": found["labels"], "Volumes": found.get("volumes")},
            "RootFS": {"Layers": found["layers"]},
            "RepoDigests": digests,
            "Size": 7,
        }
