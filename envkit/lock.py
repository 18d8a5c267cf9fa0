"""envkit.lock: everything that goes into an image, by content.

The lock names the base image, each wheel of the closure with its sha256, the Debian packages and the installer.  It
holds no host name: a wheel is its file name and its hash, wherever it is fetched from.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from envkit import files
from envkit.errors import UsageError
from envkit.spec import APT, Base, Flavor, Platform, Spec, one_line

FORMAT = 1

_LATEST = 1 << 32  # the last second that a zip, a gzip header and 32-bit tools can all hold


@dataclass(frozen=True, slots=True)
class Pin:
    """One wheel: the distribution's normalised name, its version, the file's name and its sha256 (hex)."""

    name: str
    version: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Lock:
    """What was chosen and pinned; ``spec`` is the digest of the wish it answers.

    ``cudnn``, ``nccl``, ``triton`` and ``driver`` are empty where the facts do not know them.  ``image`` is the
    reference the Dockerfile starts from, ``suite`` the Debian suite that can stand in for it where no registry is
    reached, ``digest`` its content if it was seen.  ``backend`` names PyTorch's own index ("cuXYZ") for builds that the
    default index does not hold.  ``preinstalled`` means that the base brings torch and the wheels are what is added
    to it.  ``epoch`` is the newest upload time among the wheels, in seconds since 1970: the time stamp of everything
    built from this lock.  ``gpus`` are (name as declared, capability, how the build covers it); ``tools`` are debugging
    tools that came as wheels, (name, path of the program in site-packages).
    """

    name: str
    spec: str
    torch: str
    variant: str
    cuda: str
    cudnn: str
    nccl: str
    triton: str
    python: str
    os: str
    platform: str
    base: str
    flavor: str
    image: str
    suite: str
    digest: str
    backend: str
    preinstalled: bool
    driver: str
    epoch: int
    gpus: tuple[tuple[str, str, str], ...]
    apt: tuple[str, ...]
    tools: tuple[tuple[str, str], ...]
    installer: Pin
    wheels: tuple[Pin, ...]

    @property
    def requirements(self) -> str:
        """The wheels as pip and uv read them, each with its hash."""
        return requirements(self.wheels)


def requirements(pins: Iterable[Pin]) -> str:
    """Requirement lines with hashes, in the order given."""
    return "".join(f"{pin.name}=={pin.version} --hash=sha256:{pin.sha256}\n" for pin in pins)


def digest_of(spec: Spec) -> str:
    """The sha256 of what a spec wishes, whatever its comments, order, name and place."""
    wish = {
        "torch": spec.torch,
        "cuda": str(spec.cuda or "auto"),
        "python": str(spec.python),
        "os": spec.os,
        "base": spec.base.value,
        "tag": spec.tag,
        "flavor": spec.flavor.value,
        "platform": spec.platform.value,
        "packages": sorted(spec.packages),
        "apt": sorted(spec.apt),
        "gpus": sorted(spec.gpus),
        "driver": str(spec.driver or ""),
    }
    return sha256(json.dumps(wish, sort_keys=True).encode()).hexdigest()


_TEXTS = (
    "name", "spec", "torch", "variant", "cuda", "cudnn", "nccl", "triton", "python", "os", "platform", "base", "flavor",
    "image", "suite", "digest", "backend", "driver",
)  # fmt: skip


def dump(lock: Lock) -> str:
    """The lock as TOML, the same text for the same lock."""

    def quote(text: str) -> str:
        return json.dumps(text, ensure_ascii=False)  # a JSON string without DEL is a TOML basic string

    def table(pin: Pin) -> str:
        return "".join(f"{key} = {quote(getattr(pin, key))}\n" for key in ("name", "version", "file", "sha256"))

    lines = ["# Written by `envkit lock`.  To change it, change envkit.toml and lock again.\n", f"format = {FORMAT}\n"]
    lines += [f"{key} = {quote(getattr(lock, key))}\n" for key in _TEXTS]
    lines.append(f"preinstalled = {str(lock.preinstalled).lower()}\n")
    lines.append(f"epoch = {lock.epoch}\n")
    lines.append(f"apt = [{', '.join(quote(item) for item in lock.apt)}]\n")
    for name, capability, how in lock.gpus:
        lines.append(f"\n[[gpu]]\nname = {quote(name)}\nsm = {quote(capability)}\nby = {quote(how)}\n")
    for name, program in lock.tools:
        lines.append(f"\n[[tool]]\nname = {quote(name)}\npath = {quote(program)}\n")
    lines.append("\n[installer]\n" + table(lock.installer))
    lines += ["\n[[wheel]]\n" + table(pin) for pin in lock.wheels]
    return "".join(lines)


def parse(text: str, where: str) -> Lock:
    """The lock in ``text``; raises UsageError naming ``where`` if it is not one of this format."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # the two others: a number or a nesting past what Python reads
        raise UsageError(f"{where} is not TOML: {one_line(str(error))}", "write it anew with `envkit lock`") from error
    try:
        if table["format"] != FORMAT:
            raise UsageError(
                f"{where} has format {table['format']!r}, not {FORMAT}", "write it anew with `envkit lock`"
            )
        return Lock(
            **{key: _held(table, key, _TEXT_GRAMMAR.get(key, _PLAIN)) for key in _TEXTS},
            preinstalled=_flag(table, "preinstalled"),
            epoch=_epoch(table),
            gpus=tuple(
                (_held(row, "name", _PLAIN), _held(row, "sm", _SM), _held(row, "by", _PLAIN))
                for row in table.get("gpu", [])
            ),
            apt=tuple(_held({"apt": item}, "apt", APT) for item in _list(table, "apt")),
            tools=tuple(
                (_held(row, "name", _PROGRAM), _held(row, "path", _PROGRAM_PATH)) for row in table.get("tool", [])
            ),
            installer=_pin(table["installer"]),
            wheels=tuple(_pin(row) for row in table.get("wheel", [])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{where} is no envkit lock: {one_line(why)}", "write it anew with `envkit lock`") from error


def _text(table: Mapping[str, object], key: str) -> str:
    value = table[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is not text")
    return value


# A lock may have been edited or come from elsewhere, and its values go into a Dockerfile: each has its grammar.
_GRAMMAR = {
    "name": re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"),
    "version": re.compile(r"[0-9][A-Za-z0-9.!+_-]*"),
    "file": re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*\.whl"),
    "sha256": re.compile(r"[0-9a-f]{64}"),
}
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:-]*(?::[A-Za-z0-9._-]+)?(?:@sha256:[0-9a-f]{64})?")
_PLAIN = re.compile(r"[A-Za-z0-9 ._+:/~=-]*")
_SM = re.compile(r"sm_[0-9]{2,3}[af]?")
_PROGRAM = re.compile(r"[a-z][a-z0-9-]*")
_PROGRAM_PATH = re.compile(r"(?:(?!\.)[A-Za-z0-9._+-]+(?:/(?!\.)[A-Za-z0-9._+-]+)*)?")  # never up, never absolute


def _one_of(kind: type[StrEnum]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(member.value) for member in kind))


_TEXT_GRAMMAR = {
    "image": _IMAGE,
    "digest": re.compile(r"(?:sha256:[0-9a-f]{64})?"),
    "backend": re.compile(r"(?:cu[0-9]+)?"),
    "python": re.compile(r"3\.[0-9]{1,3}"),
    "suite": re.compile(r"[a-z]*"),
    "platform": _one_of(Platform),
    "base": _one_of(Base),
    "flavor": _one_of(Flavor),
}


def _held(table: Mapping[str, object], key: str, grammar: re.Pattern[str]) -> str:
    value = _text(table, key)
    if not grammar.fullmatch(value):
        raise ValueError(f"{key} is {value!r}")
    return value


def _flag(table: Mapping[str, object], key: str) -> bool:
    value = table[key]
    if not isinstance(value, bool):
        raise TypeError(f"{key} is neither true nor false")
    return value


def _epoch(table: Mapping[str, object]) -> int:
    value = table["epoch"]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _LATEST:
        raise ValueError("epoch is no time in seconds since 1970")
    return value


def _list(table: Mapping[str, object], key: str) -> list[object]:
    value = table[key]
    if not isinstance(value, list):
        raise TypeError(f"{key} is no list")
    return value


def _pin(row: Mapping[str, object]) -> Pin:
    return Pin(*(_held(row, key, grammar) for key, grammar in _GRAMMAR.items()))


def path_of(spec: Spec) -> Path:
    """Where the lock of a spec lies: beside it."""
    return spec.path.with_name("envkit.lock")


def save(lock: Lock, path: Path) -> None:
    """Writes the lock whole or not at all."""
    files.write(path, dump(lock))


def load(spec: Spec) -> Lock | None:
    """The lock beside ``spec`` if it answers this very wish, None if there is none or the wish has changed.

    Raises UsageError for a lock that cannot be read.
    """
    path = path_of(spec)
    if not path.exists():
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", "check the file and its permissions") from error
    lock = parse(text, str(path))
    return replace(lock, name=spec.name) if lock.spec == digest_of(spec) else None
