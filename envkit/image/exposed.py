"""Credentials that lie in an image, by place and kind and never by value, and files that anybody may write."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from envkit.credentials import HIDDEN, SHAPES
from envkit.subjects.audit import Secret, Writable

if TYPE_CHECKING:
    from envkit.image.tree import Entry, Tree

_MOST = 1 << 20  # bytes of a file that are looked at; no credential file is as large
_KEY = "a private key"
_TESTS = {"test", "tests", "testdata", "test-data", "certdata", "fixtures"}

# The name ends in a word of these, or goes on with another word after a line: TOKENIZERS_PARALLELISM is none.
_NAME = re.compile(
    r"(?:.*[_-])?(?:TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIALS?|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|SECRET_?KEY)"
    r"(?:_[A-Z0-9]+)*\Z",
    re.IGNORECASE,
)
_PLACE = re.compile(r"_(?:FILE|PATH|DIR|NAME|URL|ID|TTL|LENGTH|COUNT)\Z", re.IGNORECASE)  # says where one lies, or less
_USERINFO = re.compile(r"://[^\s/?#\"'`:@]*:[^\s/?#\"'`@$]+@")  # RFC 3986, with a password that is no reference
_TOKENS = re.compile(rf"\b(?:{SHAPES})")
_PRIVATE = re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")
_ASSIGNED = re.compile(r"(?<![\w$])([A-Za-z_][A-Za-z0-9_-]*)=(\"[^\"]*\"|'[^']*'|[^\s\"';|&]+)")


def _holds(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    return lambda said: compiled.search(said) is not None


_AN_INDEX = _USERINFO.search
# What makes a file of this name (or this end of its path) a credential, and what to call it.
_FILES: Mapping[str, tuple[str, Callable[[str], object]]] = {
    ".netrc": ("a password for a host", _holds(r"\bpassword\s+\S")),
    "_netrc": ("a password for a host", _holds(r"\bpassword\s+\S")),
    ".pypirc": ("a password for a package index", _holds(r"^\s*password\s*[:=]\s*\S")),
    "pip.conf": ("a password in the address of a package index", _AN_INDEX),
    "uv.toml": ("a password in the address of a package index", _AN_INDEX),
    ".condarc": ("a password in the address of a channel", _AN_INDEX),
    ".git-credentials": ("a password for a git host", _AN_INDEX),
    ".gitconfig": ("a password in the address of a git host", _AN_INDEX),
    ".aws/credentials": ("an AWS key", _holds(r"^\s*aws_secret_access_key\s*=\s*\S")),
    ".docker/config.json": ("a login for a registry", _holds(r'"(?:auth|identitytoken)"\s*:\s*"[^"]+"')),
    ".dockercfg": ("a login for a registry", _holds(r'"auth"\s*:\s*"[^"]+"')),
    ".npmrc": ("a token for a package registry", _holds(r"_(?:authToken|password|auth)\s*=\s*[^\s$]")),
    ".config/gh/hosts.yml": ("a GitHub token", _holds(r"oauth_token:\s*\S")),
    ".kube/config": ("a login for a cluster", _holds(r"\b(?:token|client-key-data|password):\s*\S")),
    ".cache/huggingface/token": ("a Hugging Face token", _holds(r"\S")),
    ".huggingface/token": ("a Hugging Face token", _holds(r"\S")),
    "gcloud/application_default_credentials.json": ("a Google key", _holds(r'"(?:private_key|refresh_token)"')),
    ".ngc/config": ("an NGC key", _holds(r"^\s*apikey\s*=\s*\S")),
    ".env": ("a credential in a file of variables", lambda said: any(_is_set(*one) for one in _ASSIGNED.findall(said))),
}
_BY_NAME = {path.rpartition("/")[2] for path in _FILES}
_KEY_FILE = re.compile(r"(?:id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?|identity|ssh_host_\w+_key|.*\.(?:pem|key|p8|ppk))\Z")


def _is_set(name: str, value: str) -> bool:
    """Whether the variable ``name`` holds a credential: its name says so, and its value is no reference or switch."""
    value = value.strip("\"'")
    if _TOKENS.search(value) or _USERINFO.search(value) or _PRIVATE.search(value):
        return True
    plain = not value or value.startswith(("$", "/", "~")) or value.lower() in ("true", "false", "none", "0", "1")
    return bool(_NAME.match(name)) and not _PLACE.search(name) and not plain


def variable(name: str, value: str) -> Secret | None:
    """What the variable ``name`` of the image's configuration gives away, None if nothing."""
    if not _is_set(name, value):
        return None
    kind = "a password in an address" if _USERINFO.search(value) else "a credential in a variable"
    return Secret(f"variable {name}", kind)


def file(path: str, said: str) -> str:
    """What kind of credential the file at ``path`` with the text ``said`` is, empty if none."""
    name = posixpath.basename(path)
    for ending, (kind, holds) in _FILES.items():
        if (path.endswith(f"/{ending}") if "/" in ending or ending[0] in "._" else name == ending) and holds(said):
            return kind
    return _KEY if _KEY_FILE.match(name) and _PRIVATE.search(said) else ""


def _suspect(path: str, entry: Entry) -> bool:
    name = path.rpartition("/")[2]
    return entry.kind == "file" and 0 < entry.size <= _MOST and (name in _BY_NAME or bool(_KEY_FILE.match(name)))


def files(tree: Tree, owned: Collection[str], unread: list[str]) -> Iterator[Secret]:
    """The credential files of the tree and of its lower layers, from which whoever pulls the image can take them.

    What a package brought is published with it and no secret.  ``unread`` gets the files that could not be read.
    """
    from envkit.image.tree import Unreadable  # who asks for words and variables alone reads no tree

    removed = ((path, entry, "removed by a later layer") for path, entry in tree.removed)
    for path, entry, where in chain(((path, entry, "") for path, entry in tree.entries.items()), removed):
        if path in owned or not _suspect(path, entry):
            continue
        try:
            data = tree.removed_data(path, entry) if where else tree.data(path)
            kind = file(path, bytes(data).decode("utf-8", "replace"))
        except Unreadable as error:
            unread.append(f"{path}: {error.why}")
            continue
        if kind:
            tests = kind == _KEY and not _TESTS.isdisjoint(path.split("/"))
            yield Secret(f"{path} in layer {entry.layer + 1}, {where}" if where else path, kind, tests)


def command(said: str) -> tuple[str, bool]:
    """A build command with every credential in it hidden, and whether there was one."""
    safe = _TOKENS.sub(HIDDEN, _USERINFO.sub(f"://{HIDDEN}@", said))
    safe = _ASSIGNED.sub(lambda found: f"{found[1]}={HIDDEN}" if _is_set(found[1], found[2]) else found[0], safe)
    return safe, safe != said


def writable(tree: Tree, places: Iterable[tuple[str, str]]) -> Iterator[Writable]:
    """Files that every user may write, and directories without the sticky bit, at and below ``places``.

    A place is a directory and what it is for; a parent of one counts as the place does, for who may write there may
    replace it.
    """
    why: dict[str, str] = {}
    above: dict[str, str] = {}
    for directory, reason in places:
        real = tree.real(directory)
        if real:
            why.setdefault(real, reason)
            parent = posixpath.dirname(real)
            while parent != "/":
                above.setdefault(parent, reason)
                parent = posixpath.dirname(parent)
    inside = tuple(f"{each.rstrip('/')}/" for each in why if each != "/")
    for path, entry in sorted(tree.entries.items()):
        if not entry.mode & 0o002 or entry.kind not in ("file", "directory"):
            continue
        if entry.kind == "directory" and entry.mode & 0o1000:
            continue
        reason = above.get(path, "")
        if path in why or path.startswith(inside):
            place = next((each for each in why if path == each or path.startswith(f"{each}/")), "")
            reason = why.get(place, "") or reason
        if reason:
            yield Writable(path, f"{entry.mode & 0o7777:04o}", reason)
