"""Which Debian packages an image gets on top of its base: asked of this machine's own apt-get, for any suite.

apt-get works on folders of envkit's own, with the package list of the base in place of this machine's; of this machine
it takes the mirrors, the proxies, the credentials and the keys.  Nothing is installed and no file of the system is
written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from datetime import UTC
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from envkit.engine import debian
from envkit.errors import EnvkitError, Undecided, UsageError
from envkit.plan.lockfile import FLAVORS, TOOLS, Deb, debs_in_order
from envkit.records import dataclass
from envkit.system import files, proc
from envkit.system.no_room import refused

Say = Callable[[str], None]

# What each layer stands on, "" being the base itself.
_BELOW = {**dict(zip(FLAVORS, ("", *FLAVORS), strict=False)), TOOLS: ""}

ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}  # uname's names of the processors to Debian's

_BUDGET_S = 300.0  # the lists of a suite are 10 MB: 2 s with a near mirror, a minute or two over a slow line
_FRESH_S = 24 * 3600.0  # as long as a base made from packages is taken for today's

# What this machine may say to apt about how it downloads; its hooks, pins and other wishes stay out.
_DOWNLOADS = re.compile(r"Acquire::(?:https?\b|Check-Valid-Until\b|Check-Date\b|Retries\b|ForceIPv[46]\b)")

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class NoApt(Undecided):
    """This machine is none that can solve Debian packages: it has no apt-get, or no Debian mirror."""


class NoBase(UsageError):
    """The command line forbids to look at any base (`--engine none`)."""


@dataclass(frozen=True, slots=True)
class Base:
    """The base an image starts from: its digest ("sha256:..."), what that is the digest of ("registry" for the manifest
    that a registry serves, "packages" for the tree made from the distribution's packages, empty where no digest is
    known), and its /var/lib/dpkg/status."""

    digest: str
    origin: str
    status: bytes


def bare(status: bytes) -> bytes:
    """Of the package list of a Debian base what any base of Debian has: the packages of priority "required", apt, and
    what these need.  It is what debootstrap's minimal variant installs (its manual, --variant=minbase), and with it
    the slim images.

    A lock is solved against this, so that it names all the rest with versions, and its Dockerfile builds on a base
    that has less.
    """
    paragraphs: dict[str, tuple[bytes, dict[str, str]]] = {}
    provided: dict[str, list[str]] = {}
    for text in status.split(b"\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", text.decode("utf-8", "replace"), re.MULTILINE))
        name = fields.get("Package", "")
        if name and fields.get("Status", "").endswith(" installed"):
            paragraphs[name] = text, fields
            for virtual in _names(fields.get("Provides", "")):
                provided.setdefault(virtual, []).append(name)
    found: set[str] = set()
    next_ones = [name for name, (_, fields) in paragraphs.items() if fields.get("Priority") == "required"] + ["apt"]
    while next_ones:
        name = next_ones.pop()
        if name in found:
            continue
        if name not in paragraphs:
            next_ones += provided.get(name, ())
            continue
        found.add(name)
        fields = paragraphs[name][1]
        next_ones += [*_names(fields.get("Pre-Depends", "")), *_names(fields.get("Depends", ""))]
    return b"".join(text.strip(b"\n") + b"\n\n" for name, (text, _) in paragraphs.items() if name in found)


def _names(relation: str) -> list[str]:
    """The packages that a field like Depends names, alternatives among them (Debian Policy, 7.1)."""
    return re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)", relation)


def solve(
    status: bytes,
    suite: str,
    components: Sequence[str],
    wanted: Mapping[str, tuple[str, ...]],
    machine: str,
    cache: Path,
    say: Say,
    *,
    fresh: bool = False,
    mirrors: Sequence[str] = (),
) -> tuple[str, tuple[Deb, ...]]:
    """The date of the archive and all that `apt-get install --no-install-recommends` takes for ``wanted``, by layer.

    ``status`` is the /var/lib/dpkg/status of the base, ``machine`` its processor as uname names it.  The flavors stand
    on one another and "tools" on the base; what a layer holds already is not named again.  The archive's lists are
    kept under ``cache``, fetched when older than a day or when ``fresh`` asks for it.  ``mirrors`` are lines of a
    sources.list to use in place of this machine's own.  Raises UsageError for packages that do not exist or do not go
    together, NoApt where apt-get or a Debian mirror is missing, Undecided where the network does not serve.
    """
    if shutil.which("apt-get") is None:
        raise NoApt(
            "this machine has no apt-get, which is needed to resolve Debian packages", "lock on a Debian machine"
        )
    room = files.folder(cache / "apt" / f"{suite}-{'+'.join(components)}-{ARCHES[machine]}")
    with _alone(room, say), files.scratch("apt") as private:
        apt = _Apt(room, private / "apt.conf")
        stamp = room / "fetched"
        old = fresh or not stamp.is_file() or time.time() - stamp.stat().st_mtime > _FRESH_S
        moved = (old or bool(mirrors)) and _mirrored(room, mirrors, suite, components)
        if not old and not moved and (debs := _answered(_answer(room, status, wanted))) is not None:
            return _date(room / "lists"), debs
        changed = _prepare(apt, ARCHES[machine], status)
        if old or moved:
            say(f"reading the package lists of {suite} for {ARCHES[machine]}")
            _update(apt, suite)
            stamp.touch()
        if old or moved or changed:
            apt.run("apt-cache", "gencaches")  # once, and not once in each of the calls below
            shutil.rmtree(room / "answers", ignore_errors=True)
        debs = debs_in_order(_layers(apt, wanted))
        files.write(_answer(room, status, wanted), json.dumps([astuple(deb) for deb in debs]))
        return _date(room / "lists"), debs


def _answer(room: Path, status: bytes, wanted: Mapping[str, tuple[str, ...]]) -> Path:
    """Where the answer to this question is kept: the same question to the same lists has the same answer, which costs
    half a second of all processors."""
    fetched = (room / "fetched").stat().st_mtime_ns
    asked = json.dumps([hashlib.sha256(status).hexdigest(), fetched, sorted(wanted.items())])
    return files.folder(room / "answers") / (hashlib.sha256(asked.encode()).hexdigest()[:32] + ".json")


def _answered(path: Path) -> tuple[Deb, ...] | None:
    """What was solved before, None if it was not or the file is damaged."""
    try:
        return tuple(Deb(*row) for row in json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class _Apt:
    """apt with folders of its own under ``room``; ``conf`` says so to it."""

    room: Path
    conf: Path

    def run(self, *argv: str, cwd: Path | None = None) -> proc.Completed:
        env = {**os.environ, "APT_CONFIG": str(self.conf), "LC_ALL": "C.UTF-8"}
        return proc.run(argv, timeout_s=_BUDGET_S, env=env, cwd=cwd)


def _signed(line: str) -> str:
    """The line with Debian's own keys named, where this machine keeps them apart from those that apt trusts."""
    return line.replace("deb ", f"deb [signed-by={_KEYRING}] ", 1) if _KEYRING.is_file() else line


@contextmanager
def _alone(room: Path, say: Say) -> Iterator[None]:
    """Holds the folder against any other envkit; raises Undecided if one does not give it back in time."""
    with (room / "lock").open("a") as handle:
        until, told = time.monotonic() + 2 * _BUDGET_S, False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Undecided(
                        f"another envkit has been using {room} for {2 * _BUDGET_S:.0f} s", "stop it, then try again"
                    ) from None
            if not told:
                say("waiting for another envkit that is resolving Debian packages")
                told = True
            time.sleep(0.05)
        yield


def _mirrored(room: Path, mirrors: Sequence[str], suite: str, components: Sequence[str]) -> bool:
    """Writes where to fetch from; whether that is another place than the last time."""
    lines = list(mirrors) or [_signed(line) for line in debian.sources(suite, components)]
    if not lines:
        raise NoApt("apt-get has no Debian mirror configured on this machine", "lock on a Debian machine")
    text = "".join(line + "\n" for line in lines)
    listed = room / "sources.list"
    if listed.is_file() and listed.read_text() == text:
        return False
    (room / "fetched").unlink(missing_ok=True)
    listed.touch(0o600)  # a mirror's address may hold a password
    listed.write_text(text)
    return True


def _prepare(apt: _Apt, arch: str, status: bytes) -> bool:
    """Writes what else apt-get reads; whether the package list of the base is another one than the last time."""
    room = apt.room
    for part in ("lists/partial", "cache/archives/partial", "state", "log"):
        files.folder(room / part)
    done = proc.run(["apt-config", "dump"], timeout_s=30)
    if done.exit != 0 or done.timed_out:
        raise debian.no_answer("apt-config dump", done)
    said = done.stdout.splitlines()
    settings = {
        "Dir::State": f"{room}/state", "Dir::State::lists": f"{room}/lists", "Dir::State::status": f"{room}/status",
        "Dir::Cache": f"{room}/cache", "Dir::Log": f"{room}/log",
        "Dir::Etc::sourcelist": f"{room}/sources.list", "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::main": "/dev/null", "Dir::Etc::parts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null", "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Architecture": arch, "APT::Architectures": arch,
        "APT::Install-Recommends": "false", "APT::Install-Suggests": "false",
        "APT::Cmd::Pattern-Only": "true",  # or a name that does not exist is taken for a regular expression
        "APT::Sandbox::User": "root",  # the user _apt may not enter a home; what is fetched is verified all the same
        "APT::Update::Error-Mode": "any",  # or a list that could not be fetched is a warning, and the old one stays
        "Acquire::Languages": "none",
        "Acquire::ForceHash": "SHA256",
        "Debug::NoLocking": "true",
    }  # fmt: skip
    apt.conf.write_text(
        "".join(line + "\n" for line in said if _DOWNLOADS.match(line))
        + "".join(f'{key} "{value}";\n' for key, value in settings.items())
    )
    held = room / "status"
    if held.is_file() and held.read_bytes() == status:
        return False
    held.write_bytes(status)
    return True


def _update(apt: _Apt, suite: str) -> None:
    done = apt.run("apt-get", "update", "-q")
    if done.timed_out:
        raise Undecided(
            f"the Debian mirror did not send the lists of {suite} within {_BUDGET_S:.0f} s", "check the network"
        )
    if done.exit != 0:
        raise _trouble(apt.room, done, f"the package lists of {suite} could not be fetched")


def _trouble(room: Path, done: proc.Completed, what: str) -> EnvkitError:
    """apt's failure as one of ours; ``room`` is where it wrote to."""
    from envkit.engine.trouble import explain  # the package engine is no small thing to load, and seldom needed here

    if full := refused(done, "apt-get", (str(room), os.environ.get("TMPDIR", ""))):
        return full
    said = [line for line in done.stderr.splitlines() if line.startswith(("E: ", "W: ", "  "))]
    said = [re.sub(r"//[^/@\s]*@", "//", line) for line in said]  # a mirror's address may hold a password
    if known := explain(said, where=str(room), free=shutil.disk_usage(room).free):
        return known
    text = " ".join(re.sub(r"^[EW]: ", "", line).strip() for line in said)[-400:].rstrip(". ")
    if re.search(r"NO_PUBKEY|keyring|not signed|EXPKEYSIG", text):
        why = f"{what}: no key on this machine matches their signature: {text}"
        return Undecided(why, "install a debian-archive-keyring that includes the suite")
    return Undecided(f"{what}: {text or f'exit code {done.exit}'}", "check the Debian mirror in /etc/apt")


_Package = tuple[str, str, str, int]  # version, processor, sha256, bytes


def _layers(apt: _Apt, wanted: Mapping[str, tuple[str, ...]]) -> list[Deb]:
    """The packages of all layers, each with the first layer that needs it."""
    names: dict[str, tuple[str, ...]] = {}
    for layer, below in _BELOW.items():
        names[layer] = (*names.get(below, ()), *wanted.get(layer, ()))
    answers = {layer: proc.beside(partial(_closure, apt, asked)) for layer, asked in names.items() if wanted.get(layer)}
    held: dict[str, dict[str, _Package]] = {"": {}}
    found: list[Deb] = []
    for layer, below in _BELOW.items():
        beneath = closure = held[below]
        if layer in answers:
            closure = answers[layer]()
        if not beneath.items() <= closure.items():
            # All names at once were met by other packages than the layers below hold, which stay as they are.
            exact = (f"{name}={package[0]}" for name, package in beneath.items())
            closure = _closure(apt, (*exact, *wanted[layer]))
        held[layer] = closure
        found += [Deb(name, *package, layer) for name, package in closure.items() if name not in beneath]
    return found


def _closure(apt: _Apt, names: tuple[str, ...]) -> dict[str, _Package]:
    """What apt-get would fetch to install ``names`` on the base, by name."""
    done = apt.run("apt-get", "install", "-q", "--yes", "--no-remove", "--print-uris", *names)
    if done.timed_out:
        raise Undecided(f"apt-get did not answer within {_BUDGET_S:.0f} s", "try again on a less busy machine")
    if done.exit != 0:
        raise _refusal(apt, done, names)
    found: dict[str, _Package] = {}
    for line in done.stdout.splitlines():
        match = re.fullmatch(r"'.*' (\S+)_(\S+)_(\S+)\.deb ([0-9]+) (?:SHA256:([0-9a-f]{64}))?", line)
        if match is None:
            continue
        if not match[5]:
            raise Undecided(f"the Debian archive gives no sha256 for {match[1]}", "use a mirror that does")
        found[match[1]] = (unquote(match[2]), match[3], match[5], int(match[4]))
    return found


def _refusal(apt: _Apt, done: proc.Completed, names: tuple[str, ...]) -> EnvkitError:
    """Why apt-get would not install ``names``."""
    text = done.stderr
    if found := re.search(r"Unable to locate package (\S+)|Couldn't find any package by \S+ '(\S+)'", text):
        name = found[1] or found[2]
        known = apt.run("apt-cache", "pkgnames", name[0]).stdout.split()
        close = get_close_matches(name, sorted(known), n=3)
        return UsageError(
            f"the Debian archive has no package {name}",
            f"did you mean {' or '.join(close)}?" if close else "look for its name with apt-cache search",
        )
    if found := re.search(r"Package '(\S+)' has no installation candidate", text):
        said = f"{found[1]} is not a package in the Debian archive, only a name that other packages provide or mention"
        return UsageError(said, "name an actual package")
    if found := re.search(r"Version '(\S+)' for '(\S+)' was not found", text):
        has = re.search(r"Candidate: (\S+)", apt.run("apt-cache", "policy", found[2]).stdout)
        said = f"the Debian archive has no {found[2]} of version {found[1]}{f', it has {has[1]}' if has else ''}"
        return UsageError(said, "name that version, or the package alone")
    if "remove is disabled" in text:
        said = f"{', '.join(names)} cannot be installed without removing packages of the base"
        return UsageError(said, "drop the package that conflicts with the others")
    if re.search(r"held broken packages|generated breaks|unmet dependencies", text):
        lines = [re.sub(r"\s+", " ", line).strip() for line in done.stdout.splitlines() if "Depends:" in line]
        why = "; ".join(lines[:3]) or re.sub(r"^E: (?:Error, )?", "", text.strip())[-300:].rstrip(".")
        return UsageError(f"the packages conflict with one another: {why}", "drop one of them, or name no versions")
    return _trouble(apt.room, done, "apt-get could not resolve the packages")


def _date(lists: Path) -> str:
    """The newest Date among the archive's release files, as UTC in ISO 8601."""
    from email.utils import parsedate_to_datetime  # 10 ms that only a lock made again needs

    dates = []
    for path in sorted(lists.iterdir()):
        if path.name.endswith(("_InRelease", "_Release")):
            found = re.search(r"(?m)^Date: (.+)$", path.read_text(encoding="utf-8", errors="replace"))
            if found:
                dates.append(parsedate_to_datetime(found[1].strip()).astimezone(UTC))
    if not dates:
        raise Undecided("the Debian archive does not state its date", "use a mirror with signed release files")
    return max(dates).strftime("%Y-%m-%dT%H:%M:%SZ")


def file_of(deb: Deb) -> str:
    """The file's name as apt-get writes it: the colon of an epoch, which some file systems refuse, is escaped."""
    return f"{deb.name}_{deb.version.replace(':', '%3a')}_{deb.arch}.deb"


def fetch(
    debs: Iterable[Deb], suite: str, components: Sequence[str], machine: str, cache: Path, target: Path, say: Say
) -> None:
    """Downloads the very packages into ``target`` and writes the ``Packages`` that makes it a repository for apt.

    Raises Undecided where the archive does not hold one of these versions any more, or does not answer.
    """
    wanted = {deb.name: deb for deb in debs}
    room = files.folder(cache / "apt" / f"{suite}-{'+'.join(components)}-{ARCHES[machine]}")
    exact = [f"{deb.name}={deb.version}" for deb in wanted.values()]
    with _alone(room, say), files.scratch("apt") as private:
        apt = _Apt(room, private / "apt.conf")
        moved = _mirrored(room, (), suite, components)
        held = room / "status"
        _prepare(apt, ARCHES[machine], held.read_bytes() if held.is_file() else b"")
        stamp = room / "fetched"
        if moved or not stamp.is_file():
            _update(apt, suite)
            stamp.touch()
        say(f"downloading {len(wanted)} Debian packages")
        done = apt.run("apt-get", "download", "-qq", *exact, cwd=target)
        if done.exit != 0 or done.timed_out:
            what = "the archive no longer has the locked Debian packages (use envkit lock --refresh-os)"
            raise _trouble(apt.room, done, what)
        shown = apt.run("apt-cache", "show", *exact)
    paragraphs = []
    for text in shown.stdout.split("\n\n"):
        fields = dict(re.findall(r"(?m)^(Package|Version|Architecture|SHA256): (.+)$", text))
        deb = wanted.get(fields.get("Package", ""))
        if deb is None or (deb.version, deb.sha256) != (fields.get("Version"), fields.get("SHA256")):
            continue
        paragraphs.append(re.sub(r"(?m)^Filename: .*$", f"Filename: ./{file_of(deb)}", text.strip()))
    files.write(target / "Packages", "\n\n".join(sorted(set(paragraphs))) + "\n")
