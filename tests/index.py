"""A package index of hand-made wheels, for the real uv."""

from __future__ import annotations

import base64
import ensurepip
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Callable, Mapping
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from envkit.facts import load as load_facts
from envkit.plan import wheels
from envkit.plan.lockfile import Pin
from envkit.plan.resolve import resolve
from envkit.plan.spec import Spec, parse

UPLOADED = "2025-01-02T03:04:05.000000Z"
UPLOADED_S = int(datetime.fromisoformat(UPLOADED).timestamp())

Publish = Callable[..., Spec]


def asked_by_uv(index: Index, cache: Path, patch: pytest.MonkeyPatch) -> None:
    """Has uv ask ``index`` in place of any other, with a cache of its own."""
    for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE"):
        patch.delenv(name, raising=False)
    patch.setenv("UV_DEFAULT_INDEX", index.url)
    patch.setenv("UV_CACHE_DIR", str(cache))
    patch.setenv("UV_HTTP_RETRIES", "0")
    patch.setenv("NO_PROXY", "127.0.0.1")


class Index:
    """A package index on a port of this machine, of its address ``host``; ``wheels`` by file name."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.wheels: dict[str, bytes] = {}
        self.yanked: set[str] = set()
        self.uploaded: dict[str, str] = {}
        self.pythons: dict[str, str] = {}
        self.lies: set[str] = set()  # files whose page tells of another hash
        self.hashed = True
        self.sized = False
        self.status = 200
        self.asked = threading.Event()
        self.pages: list[str] = []  # the projects whose pages were read, one for each time
        self.wants = ""  # "USER:PASSWORD" that it wants to see, "" for nothing
        index = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                index.asked.set()
                if index.wants and self.headers.get("Authorization", "") != index.expected():
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", 'Basic realm="packages"')
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                body, kind = index.answer(self.path)
                self.send_response(index.status if index.status != 200 else 200 if body is not None else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body or b"")

        self.server = ThreadingHTTPServer((host, 0), Handler)
        self.url = f"http://{host}:{self.server.server_port}/simple"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def expected(self) -> str:
        return "Basic " + base64.b64encode(self.wants.encode()).decode()

    def answer(self, path: str) -> tuple[bytes | None, str]:
        if path.startswith("/files/") and path.endswith(".metadata"):  # PEP 658
            data = self.wheels.get(path.removeprefix("/files/").removesuffix(".metadata").replace("%2B", "+"))
            return _metadata(data or b""), "text/plain"
        if path.startswith("/files/"):
            return self.wheels.get(path.removeprefix("/files/").replace("%2B", "+")), "application/octet-stream"
        name = path.removeprefix("/simple/").strip("/")
        self.pages.append(name)
        listed = [
            {
                "filename": file,
                "url": f"/files/{file.replace('+', '%2B')}",
                "hashes": {"sha256": hashlib.sha256(b"" if file in self.lies else data).hexdigest()}
                if self.hashed
                else {},
                "upload-time": self.uploaded.get(file, UPLOADED),
                "yanked": file in self.yanked,
                **({"requires-python": self.pythons[file]} if file in self.pythons else {}),
                **({"size": len(data)} if self.sized else {}),
            }
            for file, data in sorted(self.wheels.items())
            if file.split("-")[0].lower().replace("_", "-") == name
        ]
        if not listed:
            return None, "text/plain"
        page = {"meta": {"api-version": "1.1"}, "name": name, "files": listed, "versions": []}
        return json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json"

    def add(
        self,
        name: str,
        version: str,
        *requires: str,
        tag: str = "py3-none-any",
        uploaded: str = "",
        heads: tuple[str, ...] = (),
    ) -> Pin:
        """Publishes a wheel without content, with ``heads`` in its METADATA, and gives its pin."""
        stem = name.replace("-", "_")
        file = Path(f"{stem}-{version}-{tag}.whl")
        info = f"{stem}-{version}.dist-info"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [*(f"Requires-Dist: {each}" for each in requires), *heads]
        with (self.folder / file).open("wb") as out, zipfile.ZipFile(out, "w") as archive:
            for member, text in (
                (f"{info}/METADATA", "\n".join(lines) + "\n"),
                (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: {tag}\n"),
                (f"{info}/RECORD", ""),
            ):
                archive.writestr(zipfile.ZipInfo(member), text)
        data = (self.folder / file).read_bytes()
        self.wheels[file.name] = data
        self.uploaded.update({file.name: uploaded} if uploaded else {})
        return Pin(name, version, file.name, hashlib.sha256(data).hexdigest())

    folder: Path


def _metadata(wheel: bytes) -> bytes | None:
    if not zipfile.is_zipfile(io.BytesIO(wheel)):
        return None
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name)


def pip_wheel() -> Path:
    """The wheel of pip that comes with this Python; Debian keeps it with others of the kind."""
    places = (Path(ensurepip.__file__).parent / "_bundled", Path("/usr/share/python-wheels"))
    return next(each for place in places for each in sorted(place.glob("pip-*.whl")))


def publish(index: Index, torch: str, python: str, cudnn: str, *packages: str, text: str = "") -> Spec:
    """Publishes a torch of CUDA 12 or 13, what the flavors add to it and the solver's own wheel; gives the spec that
    asks for it."""
    tag = f"cp{python.replace('.', '')}"
    index.add("torch", torch, cudnn, tag=f"{tag}-{tag}-manylinux_2_28_x86_64")
    index.add(cudnn, "9.1.0.70")
    index.add("setuptools", "80.9.0")
    index.add("uv", wheels.uv_version(), tag="py3-none-manylinux_2_17_x86_64")
    listed = ", ".join(f'"{each}"' for each in packages)
    spec = parse(f'torch = "{torch}"\npython = "{python}"\npackages = [{listed}]\n{text}', Path("/srv/job/envkit.toml"))
    publish_extras(index, resolve(spec, load_facts()).extras.wheels)
    return spec


def publish_extras(index: Index, extras: Mapping[str, tuple[str, ...]]) -> None:
    """Publishes what the flavors add to a torch."""
    for requirement in map(Requirement, [line for lines in extras.values() for line in lines]):
        bounds = sorted(
            (bound.version.replace("*", "0") for bound in requirement.specifier if bound.operator in ("==", ">=")),
            key=Version,
        )
        index.add(requirement.name, bounds[-1] if bounds else "1.0")


def extra_wheels(spec: Spec) -> list[str]:
    wheels = resolve(spec, load_facts()).extras.wheels
    return [line for lines in wheels.values() for line in lines]
