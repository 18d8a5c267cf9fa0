"""The package indexes that a spec names, and how a program is given their credentials.

A spec holds no credential: an address names a variable in its place, or the credential is found by the index's host in
the variables of uv and pip, in netrc, or by the program keyring.  It reaches uv and pip in the environment alone, and a
build as a secret (BuildKit: RUN --mount=type=secret), so that it is in no command line, lock, layer, label or message.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from envkit.credentials import SHAPES
from envkit.errors import UsageError
from envkit.records import dataclass
from envkit.system import proc

if TYPE_CHECKING:
    from envkit.system.index import Index

_TOKEN = re.compile(SHAPES)
_KEYRING_S = 30.0  # it may ask a person to unlock it
_LONGEST = 500  # characters of an address

_VARIABLE = r"\$\{[A-Za-z_][A-Za-z0-9_]{0,99}\}"
# Users that are no secret: PyPI's, Google's, Azure's and AWS's documentation of access by token.
_USERS = "__token__|oauth2accesstoken|VssSessionToken|aws"
_ADDRESS = re.compile(
    rf"(?:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{{0,63}})=)?(?P<scheme>https?)://"
    rf"(?:(?P<user>{_VARIABLE}|{_USERS})(?::(?P<password>{_VARIABLE})?)?@)?"
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?)(?P<path>/[A-Za-z0-9._~!$&()*+,;=:@%/-]*)?"
)


@dataclass(frozen=True, slots=True)
class Access:
    """An index with its credential: ``user`` None where none was found, else found in ``where``."""

    url: str
    user: str | None = field(default=None, repr=False)
    password: str = field(default="", repr=False)
    where: str = ""

    @property
    def host(self) -> str:
        """Its host, with the port if the address names one."""
        return urlsplit(self.url).netloc

    @property
    def full(self) -> str:
        """The address with the credential in it."""
        if self.user is None:
            return self.url
        scheme, _, rest = self.url.partition("://")
        password = f":{quote(self.password, safe='')}" if self.password else ""
        return f"{scheme}://{quote(self.user, safe='')}{password}@{rest}"


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes of a spec: ``own`` takes the place of the one that uv is configured for, ``extra`` are asked before
    it."""

    own: Access | None = None
    extra: tuple[Access, ...] = ()

    def variables(self) -> dict[str, str]:
        """What makes uv and pip ask these indexes; the credentials of uv stand apart, so that no message of it shows
        them."""
        found = {}
        for number, one in enumerate(self.every):
            if one.user is not None:
                found[f"UV_INDEX_ENVKIT_{number}_USERNAME"] = one.user
                found[f"UV_INDEX_ENVKIT_{number}_PASSWORD"] = one.password
        named = [f"envkit-{number}={one.url}" for number, one in enumerate(self.every)]
        if self.own:
            found |= {"UV_DEFAULT_INDEX": named.pop(), "PIP_INDEX_URL": self.own.full}
        if self.extra:
            found |= {"UV_INDEX": " ".join(named), "PIP_EXTRA_INDEX_URL": " ".join(one.full for one in self.extra)}
        return found | {"PIP_NO_INPUT": "1"} if found else {}

    @property
    def every(self) -> tuple[Access, ...]:
        """All of them, in the order in which uv asks them."""
        return (*self.extra, *([self.own] if self.own else []))

    def pages(self, budget_s: float) -> Index:
        """What is asked for the files of a project: the spec's own index, or the one that this machine is set to."""
        from envkit.system import index  # it costs 40 ms

        return index.Index(self.own.full, budget_s) if self.own else index.configured(budget_s)

    def places(self, budget_s: float) -> tuple[Index, ...]:
        """All that are asked for the files of a project, in uv's order; the first that has it counts."""
        from envkit.system import index  # as above

        return (*(index.Index(one.full, budget_s) for one in self.extra), self.pages(budget_s))

    def secret(self) -> str:
        """The text of the build's secret `index`, which a shell can read; "" where the spec names no index."""
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.variables().items())

    def environment(self) -> dict[str, str]:
        """This process's environment with these indexes in it; others that are extra there stay so."""
        found = self.variables()
        for name in ("UV_INDEX", "PIP_EXTRA_INDEX_URL"):
            if name in found and os.environ.get(name):
                found[name] += f" {os.environ[name]}"
        return {**proc.FOR_INDEX, **os.environ, **found}

    def refused(self, said: str) -> UsageError | None:
        """The error for what uv or pip said of an index that wants another credential; None if that is none of
        these."""
        one = next((one for one in self.every if f"//{one.host}/" in said or f"@{one.host}/" in said), None)
        if one is None:
            return None
        if one.user is None:
            return UsageError(
                f"the package index at {one.host} wants a credential, and none was found",
                "keep it in netrc or keyring, or write a variable's name before the host, as in ${TOKEN}@",
            )
        said = f"the package index at {one.host} does not accept the credential of {one.where}"
        return UsageError(said, f"correct it: {one.where}")


def address(key: str, text: str) -> str:
    """The address of an index as a spec may hold it; raises UsageError, without the text, for any other."""
    text = text.strip()
    found = _ADDRESS.fullmatch(text) if len(text) <= _LONGEST else None
    if found and not _TOKEN.search(text):
        return text
    host = re.search(r"@([A-Za-z0-9.-]+)", text) or re.match(r"https?://([A-Za-z0-9.-]+)", text)
    at = host[1] if host else "HOST"
    if re.match(r"[^/]*://", text) and (set("@?#") & set(text) or _TOKEN.search(text)):
        raise UsageError(
            f"`{key}` holds a credential in the address of {at}",
            "take it out, revoke it, and write a variable's name in its place, as in ${TOKEN}, or keep it in netrc",
        )
    raise UsageError(f"`{key}` is no address of a package index", 'write "https://HOST/simple"')


def digest(own: str, extra: Sequence[str]) -> str:
    """A short hash of the addresses, for a lock, which holds none; "" for none."""
    bare = [_parts(text)[0] if text else "" for text in (own, *extra)]
    return sha256("\n".join(bare).encode()).hexdigest()[:16] if any(bare) else ""


def of(own: str, extra: Sequence[str]) -> Indexes:
    """The indexes with their credentials as they are now.

    Raises UsageError for a variable that an address names and nobody has set.
    """
    return Indexes(_access("index", own) if own else None, tuple(_access("extra-index", text) for text in extra))


def _parts(text: str) -> tuple[str, Mapping[str, str | None]]:
    """The address without name and credential, and its parts."""
    found = _ADDRESS.fullmatch(text)
    assert found is not None  # `address` has seen it
    parts = found.groupdict()
    return f"{parts['scheme']}://{parts['host']}{parts['path'] or '/'}", parts


def _access(key: str, text: str) -> Access:
    url, parts = _parts(text)
    user, password = parts["user"], parts["password"]
    named = [word[2:-1] for word in (user, password) if word and word.startswith("${")]
    missing = [name for name in named if not os.environ.get(name)]
    if missing:
        raise UsageError(
            f"`{key}` takes a credential from the variable {missing[0]}, which is not set", f"set {missing[0]}"
        )

    def value(word: str) -> str:
        return os.environ[word[2:-1]] if word.startswith("${") else word

    if named:
        return Access(url, value(user or ""), value(password or ""), f"the variable {named[-1]}")
    for found in _of_variables(url, parts["name"]):
        return found
    from envkit.system.index import in_netrc  # it costs 40 ms, and most specs name no index

    if kept := in_netrc(urlsplit(url).hostname or ""):
        return Access(url, *kept, "netrc")
    tool = shutil.which("keyring")
    if tool and (held := _in_keyring(tool, url, user or "")):
        return Access(url, *held, "keyring")
    return Access(url)


def _of_variables(url: str, name: str | None) -> Iterator[Access]:
    """The credentials for an index that uv's and pip's variables hold: by its name, or in an address of its host."""
    if name:
        prefix = f"UV_INDEX_{re.sub(r'[^A-Z0-9]', '_', name.upper())}"
        user, password = (os.environ.get(f"{prefix}_{part}", "") for part in ("USERNAME", "PASSWORD"))
        if user or password:
            yield Access(url, user, password, f"the variables {prefix}_USERNAME and _PASSWORD")
    wanted = urlsplit(url)
    for variable in (
        "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL",
    ):  # fmt: skip
        for text in os.environ.get(variable, "").split():
            held, _, there = text.rpartition("@")
            scheme, _, both = held.partition("://")
            other = urlsplit(f"{scheme}://{there}") if both else None
            if other and (other.scheme.rpartition("=")[2], other.netloc) == (wanted.scheme, wanted.netloc):
                user, _, password = both.partition(":")
                yield Access(url, unquote(user), unquote(password), f"the variable {variable}")


@cache
def _in_keyring(tool: str, url: str, user: str) -> tuple[str, str] | None:
    """User and password that the program keyring has for the address or its host, asked as uv asks it; None if none."""
    for service in (url, urlsplit(url).netloc):
        words = ["get", service, user] if user else ["--mode", "creds", "get", service]
        try:
            done = proc.run([tool, *words], timeout_s=_KEYRING_S)
        except OSError:
            return None
        lines = done.stdout.splitlines()
        if done.exit == 0 and lines:
            return (user, lines[0]) if user else (lines[0], lines[1] if len(lines) > 1 else "")
    return None
