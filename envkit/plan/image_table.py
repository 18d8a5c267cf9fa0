"""The table [image] of a spec: what of the project an image holds, and how its containers start.

Each value is held to a grammar here, wherever it comes from: a spec, or a lock, which carries the table so that what
was vendored is built without the spec.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import msgspec

from envkit.credentials import HIDDEN, names_secret, redacted_text
from envkit.errors import UsageError, one_line
from envkit.records import dataclass

WORKSPACE = "/workspace"  # where `envkit run` mounts the project, too
# Debian Policy, "UID and GID classes": below are the system's; above, not every tool can count.
FIRST_UID, LAST_UID = 1000, (1 << 31) - 1
_NAME, _UID = "app", FIRST_UID  # of a user that is named by the other alone

_LONGEST = 1000  # characters of one text; a command with a short program in it has some hundred
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,30}\Z")  # useradd(8)
_WORKDIR = re.compile(r"(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9._-]{1,64}){1,16}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_PORT = re.compile(r"([0-9]{1,5})(?:/(?:tcp|udp|sctp))?\Z")
# Go's time.ParseDuration, of which whole numbers are enough.
_DURATION = re.compile(r"(?:[0-9]{1,6}(?:ms|s|m|h))+\Z")
# What a working folder would hide or change: the system's own folders, and all below some of them.
_OF_THE_SYSTEM = (
    "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root", "/run",
    "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var",
)  # fmt: skip
_BELOW_TOO = (
    "/dev/", "/etc/", "/proc/", "/root/", "/run/", "/sys/", "/tmp/", "/var/tmp", "/opt/venv", "/usr/share/envkit",
    "/usr/local/cuda",
)  # fmt: skip
# The variables that envkit sets, or that follow from another key, and what to do instead.
_OWN = {
    "PATH": "name the program with its path in `cmd` or `entrypoint`",
    "VIRTUAL_ENV": "leave it out: it is the image's own environment",
    "CUDA_HOME": "leave it out: it is where the image has CUDA",
    "HOME": "leave it out: `user` has a home",
}


@dataclass(frozen=True, slots=True)
class Healthcheck:
    """How an engine asks whether a container serves: ``command`` and when; "" and 0 leave the engine's own."""

    command: tuple[str, ...]
    interval: str = ""
    timeout: str = ""
    start_period: str = ""
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    """A user that an image has beside those of its base, its group of the same name and number, and its home."""

    name: str
    uid: int

    @property
    def home(self) -> str:
        """The folder that it may write."""
        return f"/home/{self.name}"


@dataclass(frozen=True, slots=True)
class ImageTable:
    """What a spec says of the image beside its packages; empty for what it does not say.

    ``copy`` are paths from the folder of the spec on, in POSIX's form.  ``user`` is as written.  ``env`` are name and
    value, in the order of the names.
    """

    copy: tuple[str, ...] = ()
    workdir: str = ""
    user: str = ""
    env: tuple[tuple[str, str], ...] = ()
    expose: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    healthcheck: Healthcheck | None = None

    @property
    def account(self) -> Account | None:
        """The user that is to be made, None for root and where nothing is said."""
        if self.user in ("", "root", "0"):
            return None
        name, _, uid = self.user.partition(":")
        return Account(_NAME, int(name)) if name.isdecimal() else Account(name, int(uid or _UID))

    @property
    def place(self) -> str:
        """The working folder; "" for that of the image without this table."""
        return self.workdir or (WORKSPACE if self.copy else "")


NOTHING = ImageTable()


class RawHealthcheck(msgspec.Struct, kw_only=True, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """The table [image.healthcheck] as a person writes it."""

    command: tuple[str, ...]
    interval: str = ""
    timeout: str = ""
    start_period: str = ""
    retries: int = 0


class RawImage(msgspec.Struct, kw_only=True, frozen=True, rename="kebab"):
    """The table [image] as a person writes it: its keys and their kinds."""

    copy: tuple[str, ...] = ()
    workdir: str = ""
    user: str = ""
    env: dict[str, str] = {}
    expose: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    healthcheck: RawHealthcheck | None = None


def read(raw: RawImage) -> ImageTable:
    """The table with each value checked; raises UsageError for one outside its grammar."""
    return ImageTable(
        copy=tuple(dict.fromkeys(_path(item) for item in raw.copy)),
        workdir=_workdir(_text("workdir", raw.workdir)),
        user=_user(_text("user", raw.user)),
        env=tuple(sorted((_variable(name), _value(name, value)) for name, value in raw.env.items())),
        expose=tuple(dict.fromkeys(_port(_text("expose", item)) for item in raw.expose)),
        entrypoint=_command("entrypoint", raw.entrypoint),
        cmd=_command("cmd", raw.cmd),
        healthcheck=_healthcheck(raw.healthcheck) if raw.healthcheck is not None else None,
    )


def lines(table: ImageTable) -> Iterator[str]:
    """The table as lines of TOML below its heading, without what it does not say."""
    for field in fields(ImageTable):
        value = getattr(table, field.name)
        if not value:
            continue
        if field.name == "env":
            value = dict(value)
        if isinstance(value, Healthcheck):
            pairs = ((one.name.replace("_", "-"), getattr(value, one.name)) for one in fields(value))
            value = {name: held for name, held in pairs if held}
        yield f"{field.name} = {_toml(value)}\n"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(held)}" for name, held in value.items()) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _text(key: str, text: str) -> str:
    if len(text) > _LONGEST or not text.isprintable():
        raise UsageError(
            f"`image.{key}` holds `{one_line(text[:200])}`", f"at most {_LONGEST} printable characters, in one line"
        )
    return text


def _refused(key: str, text: str, expected: str) -> UsageError:
    return UsageError(f"`image.{key}` is `{one_line(text)}`; expected {expected}", f"change `{key}`")


def _path(text: str) -> str:
    path = posixpath.normpath(_text("copy", text.strip()) or ".")
    outside = path == ".." or path.startswith(("/", "~", "../"))
    if outside or not text.strip() or "\\" in path:
        raise UsageError(
            f"`image.copy` holds `{one_line(text)}`, which is no path below the folder of the spec",
            "name files and folders from there on; put what lies elsewhere into it",
        )
    return path


def _workdir(text: str) -> str:
    if not text:
        return ""
    path = text.rstrip("/") or "/"
    taken = path in _OF_THE_SYSTEM or path.startswith(_BELOW_TOO)
    if taken or not _WORKDIR.match(path):
        why = "a folder that is not the system's, such as /workspace" if taken or path == "/" else "a plain path from /"
        raise _refused("workdir", text, why)
    return path


def _user(text: str) -> str:
    if text in ("", "root", "0"):
        return text
    name, colon, uid = text.partition(":")
    if name.isascii() and name.isdecimal() and not colon:
        name, uid = _NAME, name
    elif colon and not uid:
        uid = "-"
    in_range = not uid or (uid.isascii() and uid.isdecimal() and FIRST_UID <= int(uid[:11]) <= LAST_UID)
    if not _ACCOUNT.match(name) or name == "root" or not in_range:
        raise _refused("user", text, f"NAME, UID or NAME:UID with a UID from {FIRST_UID} on, or root")
    return text


def _variable(name: str) -> str:
    if not _VARIABLE.match(name):
        raise UsageError(f"`image.env` holds `{one_line(name[:200])}`, which is no name of a variable", "change it")
    if name in _OWN:
        raise UsageError(f"`image.env` holds {name}, which envkit sets", _OWN[name])
    return name


def _value(name: str, value: str) -> str:
    if value and names_secret(name):
        raise UsageError(
            f"`image.env` holds {name}, which by its name is a secret, and everybody who has the image can read it",
            f"give it to the container that runs: envkit run --env {name}",
        )
    return _open(f"env.{name}", _text(f"env.{name}", value))


def _open(key: str, text: str) -> str:
    """The text, which is for everybody to read; raises UsageError for one with a credential in it."""
    if HIDDEN in redacted_text(text) and HIDDEN not in text:
        raise UsageError(
            f"`image.{key}` holds a credential, and everybody who has the image can read it",
            "give it to the container that runs, as a variable: envkit run --env NAME",
        )
    return text


def _port(text: str) -> str:
    found = _PORT.match(text.strip())
    if found is None or not 0 < int(found[1]) < 1 << 16:
        raise _refused("expose", text, 'a port, such as "8080" or "53/udp"')
    return text.strip()


def _command(key: str, words: tuple[str, ...]) -> tuple[str, ...]:
    if words and (not words[0].strip() or words[0].startswith("-")):
        raise UsageError(f"`image.{key}` begins with `{one_line(words[0])}`, which is no program", "name one first")
    _open(key, " ".join(words))
    return tuple(_text(key, word) for word in words)


def _healthcheck(raw: RawHealthcheck) -> Healthcheck:
    if not raw.command:
        raise UsageError("`image.healthcheck` has no command", 'write command = ["python", "-c", "..."]')
    times = {}
    for key in ("interval", "timeout", "start_period"):
        text = _text(f"healthcheck.{key}", getattr(raw, key).strip())
        if text and not _DURATION.match(text):
            raise _refused(f"healthcheck.{key.replace('_', '-')}", text, 'a time, such as "30s" or "1m30s"')
        times[key] = text
    if not 0 <= raw.retries <= 100:
        raise _refused("healthcheck.retries", str(raw.retries), "a number from 1 to 100")
    return Healthcheck(_command("healthcheck.command", raw.command), **times, retries=raw.retries)
