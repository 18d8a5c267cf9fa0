"""The package index of this machine: which files a project has there, and the METADATA of a wheel.

No address stands in code: uv says which index it is configured for (its environment, its configuration of user and
system, else its own default), and pip's settings count where uv has none.  Credentials come from that address or from
netrc; they go to the index's own host alone and into no message.
"""

from __future__ import annotations

import base64
import configparser
import io
import json
import netrc
import os
import queue
import re
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from envkit.errors import EnvkitError, Undecided, one_line
from envkit.records import dataclass
from envkit.system import files, proc

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

BUDGET_S = 30.0  # for all that one Index is asked
_MOST_PAGE = 64 << 20  # bytes; a page of a project with every nightly build has 10 MB
_MOST_METADATA = 4 << 20  # bytes; it may hold a whole README
_MOST_READ = 32 << 20  # bytes of one wheel: the table of contents of one with 100 000 files, and METADATA
_BLOCK = 1 << 16  # bytes asked for at once: the end of a wheel of torch with its table of contents is some 1 MB
# PEP 691: JSON first, HTML from those that have no other.
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
_FIX = "check the network, and the index that uv is configured for"


_Answer = tuple[bytes, str, str, str]  # the body, its type, its address after redirects, Content-Range


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One file of a project; ``uploaded`` is a day, ``requires`` the Pythons it is for and ``sha256`` its hash, each ""
    where the index gives none."""

    name: str
    url: str
    uploaded: str = ""
    yanked: bool = False
    requires: str = ""
    sha256: str = ""


class _Absent(Exception):
    """The index answers that there is no such page."""


class _Forbidden(Undecided):
    """The index wants to know who asks, or says so of what it does not have."""


class Index:
    """The index whose simple API is at ``url``; everything asked of it together takes at most ``budget_s`` seconds.

    Its methods raise Undecided where no answer is to be had, and may be called from several threads.
    """

    def __init__(self, url: str, budget_s: float = BUDGET_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Undecided("the package index of this machine is no server, so it has no pages to read", _FIX)
        host = parts.hostname + (f":{parts.port}" if parts.port else "")
        self._root = urlunsplit((parts.scheme, host, parts.path.rstrip("/") + "/", "", ""))
        self._origin = (parts.scheme, host)
        self._credentials = _credentials(parts.hostname, parts.username, parts.password)
        self._end = time.monotonic() + budget_s
        self._budget_s = budget_s

    def files(self, project: str) -> tuple[IndexFile, ...]:
        """The files of ``project`` (its canonical name), in the index's order; empty where it has none of that name."""
        try:
            body, kind, url, _ = self._answer(urljoin(self._root, f"{project}/"), {"Accept": _ACCEPT}, _MOST_PAGE)
        except _Absent:
            return ()
        try:
            found = _from_json(json.loads(body)) if "json" in kind else _from_html(body.decode("utf-8", "replace"))
            return tuple(replace(one, url=urljoin(url, one.url)) for one in found)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Undecided(f"the package index's page of {project} is no page of the simple API", _FIX) from error

    def metadata(self, file: IndexFile) -> str:
        """The METADATA of a wheel: as the index serves it, or read out of the wheel's end."""
        try:  # asked for even where no page announces it: mirrors copy files and write pages of their own
            return self._answer(file.url + ".metadata", {}, _MOST_METADATA)[0].decode("utf-8", "replace")
        except (_Absent, _Forbidden):  # storage without listing says so of what is not there
            pass
        try:
            with zipfile.ZipFile(io.BufferedReader(_Remote(self, file), _BLOCK)) as wheel:
                # Of the wheel's own distribution, not of one that lies in it.
                names = [each for each in wheel.infolist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each.filename)]
                if len(names) != 1 or names[0].file_size > _MOST_METADATA:
                    raise Undecided(f"{file.name} has no METADATA that can be read", _FIX)
                return wheel.read(names[0]).decode("utf-8", "replace")
        except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, OSError, _Absent, EOFError) as error:
            raise Undecided(f"{file.name} on the package index is no wheel that can be read", _FIX) from error

    def whole(self, file: IndexFile, most: int) -> bytes:
        """All bytes of a file of at most ``most``; raises Undecided where it is longer, or gone."""
        try:
            return self._answer(file.url, {}, most)[0]
        except _Absent as error:
            raise Undecided(f"{file.name} is not on the package index any more", _FIX) from error

    def part(self, url: str, range_: str) -> tuple[bytes, int]:
        """The bytes ``range_`` ("5-9", "-9" for the last) of a file, and the file's size."""
        request = {"Range": f"bytes={range_}"}
        body, _, _, whole = self._answer(url, request, _BLOCK + 1, ranged=True)
        size = whole.rpartition("/")[2]
        if not size.isdigit():
            raise Undecided("the package index serves no parts of files, and no METADATA beside them", _FIX)
        return body, int(size)

    def _answer(self, url: str, headers: Mapping[str, str], most: int, *, ranged: bool = False) -> _Answer:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise Undecided("the package index names a file that is on no server", _FIX)
        request = urllib.request.Request(url.partition("#")[0], headers={"User-Agent": "envkit", **headers})
        if self._credentials and (parts.scheme, parts.netloc.rpartition("@")[2]) == self._origin:
            request.add_unredirected_header("Authorization", self._credentials)  # not to another host

        def ask() -> _Answer:
            with urllib.request.urlopen(request, timeout=max(0.1, self._end - time.monotonic())) as answer:
                if ranged and answer.status != 206:
                    raise Undecided("the package index serves no parts of files, and no METADATA beside them", _FIX)
                body: bytes = answer.read(most + 1)
                if len(body) > most:
                    raise Undecided(f"the package index answers with more than {most >> 20} MB", _FIX)
                return body, answer.headers.get("Content-Type", ""), answer.url, answer.headers.get("Content-Range", "")

        return self._within(ask)

    def _within(self, ask: Callable[[], _Answer]) -> _Answer:
        """What ``ask`` gives, in a thread of its own: a name that is looked up for minutes has no timeout itself."""
        answers: queue.SimpleQueue[_Answer | Exception] = queue.SimpleQueue()

        def work() -> None:
            try:
                answers.put(ask())
            except (EnvkitError, OSError, HTTPException, ValueError) as error:  # URLError is an OSError
                answers.put(error)

        threading.Thread(target=work, daemon=True).start()
        try:
            got = answers.get(timeout=max(0.0, self._end - time.monotonic()))
        except queue.Empty:
            raise Undecided(f"the package index did not answer within {self._budget_s:.0f} s", _FIX) from None
        if not isinstance(got, Exception):
            return got
        if isinstance(got, Undecided):
            raise got
        if isinstance(got, urllib.error.HTTPError):
            if got.code in (404, 410):
                raise _Absent from got
            if got.code in (401, 403):
                raise _Forbidden(
                    "the package index refuses to answer: it wants credentials",
                    "give them in the index's address or in netrc",
                ) from got
            raise Undecided(f"the package index answers with HTTP status {got.code}", _FIX) from got
        if isinstance(got, TimeoutError):
            raise Undecided(f"the package index did not answer within {self._budget_s:.0f} s", _FIX) from got
        why = got.reason if isinstance(got, urllib.error.URLError) else got
        raise Undecided(f"the package index cannot be reached: {one_line(str(why))}", _FIX) from got


class _Remote(io.RawIOBase):
    """A file of an index that can seek, so that zipfile reads its end and one member alone."""

    def __init__(self, index: Index, file: IndexFile) -> None:
        self._index = index
        self._url = file.url
        tail, self._size = index.part(self._url, f"-{_BLOCK}")
        self._tail = (self._size - len(tail), tail)  # zipfile asks for it several times
        self._at = 0
        self._read = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        end = min(self._at + min(len(view), _BLOCK), self._size)
        if end <= self._at:
            return 0
        start, tail = self._tail
        if self._at >= start:
            got = tail[self._at - start : end - start]
        else:
            got, _ = self._index.part(self._url, f"{self._at}-{end - 1}")
            got = got[: end - self._at]
        self._read += len(got)
        if not got or self._read > _MOST_READ:
            raise OSError("a wheel gives no bytes, or has no end")
        view[: len(got)] = got
        self._at += len(got)
        return len(got)


def _from_json(page: Any) -> list[IndexFile]:
    """PEP 691, with PEP 700's upload times."""
    return [
        IndexFile(
            str(one["filename"]),
            str(one["url"]),
            str(one.get("upload-time") or "")[:10],
            bool(one.get("yanked")),
            str(one.get("requires-python") or ""),
            str((one.get("hashes") or {}).get("sha256", "")),
        )
        for one in page["files"]
    ]


class _Links(HTMLParser):
    """The files of a page of PEP 503: one link a file."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[IndexFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        href = given.get("href")
        if tag != "a" or not href:
            return
        parts = urlsplit(href)
        name = unquote(parts.path.rpartition("/")[2])
        digest = parts.fragment.removeprefix("sha256=") if parts.fragment.startswith("sha256=") else ""
        self.found.append(
            IndexFile(name, href, "", "data-yanked" in given, given.get("data-requires-python") or "", digest)
        )


def _from_html(text: str) -> list[IndexFile]:
    links = _Links()
    links.feed(text)
    return links.found


def _credentials(host: str, user: str | None, password: str | None) -> str:
    """The value of the header Authorization for ``host``, "" for none: from the address, else from netrc."""
    if user is None:
        found = in_netrc(host)
        if not found:
            return ""
        user, password = found
    both = f"{unquote(user or '')}:{unquote(password or '')}"
    return "Basic " + base64.b64encode(both.encode()).decode()


def in_netrc(host: str) -> tuple[str, str] | None:
    """User and password that netrc has for ``host``, None if it has none."""
    try:
        found = netrc.netrc(os.environ.get("NETRC") or None).authenticators(host)
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError, RuntimeError):
        return None  # there is none, or no home folder
    return (found[0], found[2] or "") if found else None


def configured(budget_s: float = BUDGET_S) -> Index:
    """The index that uv, or else pip, is configured for on this machine; raises Undecided where uv names none."""
    environ = os.environ.get
    without = proc.beside(partial(_of_uv, configured=False))
    own = _of_uv(configured=True)
    of_uv = environ("UV_DEFAULT_INDEX") or environ("UV_INDEX_URL") or own != without()
    if not of_uv:
        own = environ("PIP_INDEX_URL") or _of_pip() or own
    return Index(own, budget_s)


def _of_uv(*, configured: bool) -> str:
    """The address that uv writes on top of what it compiles; without ``configured`` the one that it has of its own."""
    argv = [proc.uv_path(), *([] if configured else ["--no-config"]), "pip", "compile", "-", "--quiet"]
    with files.scratch("index") as folder:  # a uv.toml of the folder that envkit runs in does not count
        done = proc.run(
            [*argv, "--offline", "--no-header", "--emit-index-url"],
            timeout_s=30,
            cwd=folder,
            stdin="\n",
        )
    words = done.stdout.split()
    if done.exit != 0 or "--index-url" not in words[:-1]:
        raise Undecided("uv does not say which package index it is configured for", "check uv's configuration")
    return words[words.index("--index-url") + 1]


def _of_pip() -> str:
    """index-url of pip's configuration files, "" for none (pip's documentation, location of configuration files)."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places: Iterable[str] = (
        os.environ.get("PIP_CONFIG_FILE", ""), f"{config}/pip/pip.conf", os.path.expanduser("~/.pip/pip.conf"),
        "/etc/pip.conf",
    )  # fmt: skip
    for place in places:
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(Path(place).read_text("utf-8"))
        except (OSError, ValueError, configparser.Error):
            continue  # none there, or none that pip could read
        for section in ("install", "global"):
            if found := parser.get(section, "index-url", fallback="").strip():
                return found
    return ""
