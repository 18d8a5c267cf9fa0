"""The client of the package index, against a real server on this machine."""

from __future__ import annotations

import base64
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from index import UPLOADED, Index

from envkit.errors import Undecided
from envkit.system import index as client

HTML = '<a href="../../files/a-1.0-py3-none-any.whl#sha256=00">a</a><a href="b%2Bc-1.tar.gz" data-yanked="">b</a><p>'


class Pages:
    """A server whose pages are what the test says: path to (status, headers, body); it notes who asked how."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.ranges = True
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                asked = dict(self.headers.items())
                pages.seen.append((self.path, asked))
                status, headers, body = pages.pages.get(self.path, (404, {}, b""))
                wanted = asked.get("Range", "").removeprefix("bytes=")
                if wanted and pages.ranges and status == 200:
                    first, _, last = wanted.partition("-")
                    start = int(first) if first else max(0, len(body) - int(last))
                    end = int(last) if first and last else len(body) - 1
                    headers = {**headers, "Content-Range": f"bytes {start}-{end}/{len(body)}"}
                    status, body = 206, body[start : end + 1]
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def json(self, project: str, *files: object) -> None:
        body = json.dumps({"meta": {"api-version": "1.1"}, "files": files}).encode()
        self.pages[f"/simple/{project}/"] = (200, {"Content-Type": "application/vnd.pypi.simple.v1+json"}, body)

    def html(self, project: str, text: str) -> None:
        self.pages[f"/simple/{project}/"] = (200, {"Content-Type": "text/html"}, text.encode())


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("NETRC", "/dev/null")
    made = Pages()
    yield made
    made.server.shutdown()
    made.server.server_close()


def asked(pages: Pages, budget_s: float = 60.0) -> client.Index:
    return client.Index(f"{pages.url}/simple", budget_s)


def test_files_of_a_page_in_json(pages: Pages) -> None:
    one = {"filename": "a-1.0-py3-none-any.whl", "url": "/files/a.whl", "upload-time": UPLOADED, "yanked": "broken"}
    pages.json("a", one, {"filename": "a-1.0.tar.gz", "url": "http://elsewhere.invalid/a.tar.gz"})
    first, second = asked(pages).files("a")
    assert (first.url, first.uploaded, first.yanked) == (f"{pages.url}/files/a.whl", UPLOADED[:10], True)
    assert (second.url, second.uploaded, second.yanked) == ("http://elsewhere.invalid/a.tar.gz", "", False)


def test_files_of_a_page_in_html(pages: Pages) -> None:
    pages.html("a", HTML)
    first, second = asked(pages).files("a")
    assert (first.name, first.yanked) == ("a-1.0-py3-none-any.whl", False)
    assert first.url.startswith(f"{pages.url}/files/a-1.0-py3-none-any.whl")
    assert (second.name, second.yanked, second.url) == ("b+c-1.tar.gz", True, f"{pages.url}/simple/a/b%2Bc-1.tar.gz")


def test_a_project_that_is_not_there_has_no_files(pages: Pages) -> None:
    assert asked(pages).files("nothing") == ()


@pytest.mark.parametrize("body", [b"[]", b"{}", b"[" * 9999, b'{"files": [1]}', b'{"files": [{"url": 1}]}', b"\xff"])
def test_a_page_that_is_none_is_said(pages: Pages, body: bytes) -> None:
    pages.pages["/simple/a/"] = (200, {"Content-Type": "application/json"}, body)
    with pytest.raises(Undecided, match="is no page of the simple API"):
        asked(pages).files("a")


@pytest.mark.parametrize(
    ("status", "words"), [(401, "wants credentials"), (403, "wants credentials"), (500, "HTTP status 500")]
)
def test_what_the_index_refuses_is_said(pages: Pages, status: int, words: str) -> None:
    pages.pages["/simple/a/"] = (status, {}, b"")
    with pytest.raises(Undecided, match=words):
        asked(pages).files("a")


def test_metadata_beside_the_wheel(pages: Pages) -> None:
    pages.pages["/f/a.whl.metadata"] = (200, {}, b"Name: a\n")
    assert asked(pages).metadata(client.IndexFile("a.whl", f"{pages.url}/f/a.whl")) == "Name: a\n"


@pytest.mark.parametrize("status", [404, 403])
def test_metadata_out_of_the_wheels_end(pages: Pages, index: Index, status: int) -> None:
    pin = index.add("a", "1.0", "torch>=2")
    pages.pages["/f/a.whl"] = (200, {}, index.wheels[pin.file])
    pages.pages["/f/a.whl.metadata"] = (status, {}, b"")
    text = asked(pages).metadata(client.IndexFile("a.whl", f"{pages.url}/f/a.whl"))
    assert "Requires-Dist: torch>=2" in text
    assert all("Range" in headers for path, headers in pages.seen if path == "/f/a.whl")


def test_metadata_of_the_wheel_and_not_of_one_that_lies_in_it(pages: Pages) -> None:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as made:
        made.writestr("a/_vendor/b-1.dist-info/METADATA", "Name: b\n")
        made.writestr("a-1.0.dist-info/METADATA", "Name: a\n")
    pages.pages["/f/a.whl"] = (200, {}, whole.getvalue())
    assert asked(pages).metadata(client.IndexFile("a.whl", f"{pages.url}/f/a.whl")) == "Name: a\n"


def test_a_wheel_without_parts_and_metadata_is_not_downloaded(pages: Pages) -> None:
    pages.ranges = False
    pages.pages["/f/a.whl"] = (200, {}, b"x" * 1000)
    with pytest.raises(Undecided, match="serves no parts of files"):
        asked(pages).metadata(client.IndexFile("a.whl", f"{pages.url}/f/a.whl"))


@pytest.mark.parametrize("body", [b"", b"PK", b"x" * 200_000])
def test_a_wheel_that_is_none_is_said(pages: Pages, body: bytes) -> None:
    pages.pages["/f/a.whl"] = (200, {}, body)
    with pytest.raises(Undecided):
        asked(pages).metadata(client.IndexFile("a.whl", f"{pages.url}/f/a.whl"))


def test_a_file_of_this_machine_is_not_read(pages: Pages, tmp_path: Path) -> None:
    (tmp_path / "a.whl.metadata").write_text("Name: secret\n")
    with pytest.raises(Undecided, match="on no server"):
        asked(pages).metadata(client.IndexFile("a.whl", f"file://{tmp_path}/a.whl"))


def test_credentials_go_to_the_index_alone(pages: Pages) -> None:
    other = f"http://localhost:{pages.server.server_port}"
    pages.json("a", {"filename": "a.whl", "url": f"{other}/f/a.whl"})
    pages.pages["/simple/b/"] = (302, {"Location": f"{other}/moved/"}, b"")
    pages.pages["/f/a.whl.metadata"] = (200, {}, b"Name: a\n")
    address = pages.url.replace("//", "//me:p%40ss@") + "/simple"
    own = client.Index(address, 60)
    own.metadata(own.files("a")[0])
    assert own.files("b") == ()
    given = {path: headers.get("Authorization", "") for path, headers in pages.seen}
    wanted = "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert given == {"/simple/a/": wanted, "/f/a.whl.metadata": "", "/simple/b/": wanted, "/moved/": ""}


def test_credentials_of_netrc(pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password word\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    pages.json("a")
    asked(pages).files("a")
    assert pages.seen[0][1]["Authorization"] == "Basic " + base64.b64encode(b"me:word").decode()


def test_an_index_that_says_nothing_costs_its_budget_and_no_more(pages: Pages) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_index = client.Index(f"http://127.0.0.1:{silent.getsockname()[1]}/simple", 0.2)
        with pytest.raises(Undecided, match="did not answer within"):
            silent_index.files("a")


def test_a_port_with_nobody_behind_it_is_said_without_credentials() -> None:
    with pytest.raises(Undecided, match="cannot be reached") as caught:
        client.Index("http://me:word@127.0.0.1:1/simple", 60).files("a")
    assert "word" not in caught.value.message


@pytest.mark.parametrize("address", ["", "file:///srv/simple", "/srv/simple", "ftp://host/simple", "http://"])
def test_an_index_that_is_no_server_is_said(address: str) -> None:
    with pytest.raises(Undecided, match="is no server"):
        client.Index(address)


# Which index.


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without configuration."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "PIP_CONFIG_FILE", "UV_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NETRC", "/dev/null")
    for tool in ("uv", "pip"):
        (tmp_path / "config" / tool).mkdir(parents=True)
    return tmp_path / "config"


def test_the_index_of_uvs_environment(index: Index) -> None:
    index.add("a", "1.0")
    assert [file.name for file in client.configured(60).files("a")] == ["a-1.0-py3-none-any.whl"]


def test_the_index_of_uvs_configuration(bare: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "uv/uv.toml").write_text(f'index-url = "{pages.url}/simple"\n')
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    pages.json("a")
    assert client.configured(60).files("a") == ()


@pytest.mark.parametrize("where", ["file", "environment"])
def test_the_index_of_pip_where_uv_has_none(
    bare: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    if where == "file":
        (bare / "pip/pip.conf").write_text(f"[global]\nindex-url = {pages.url}/simple\n")
    else:
        monkeypatch.setenv("PIP_INDEX_URL", f"{pages.url}/simple")
    pages.html("a", HTML)
    assert len(client.configured(60).files("a")) == 2


def test_a_project_around_does_not_choose_the_index(
    bare: Path, pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bare / "pip/pip.conf").write_text(f"[global]\nindex-url = {pages.url}/simple\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "job/uv.toml").write_text('index-url = "http://127.0.0.1:1/simple"\n')
    monkeypatch.chdir(tmp_path / "job")
    pages.html("a", HTML)
    assert len(client.configured(60).files("a")) == 2
