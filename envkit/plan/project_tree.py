"""A copy of a project's files for an image or a build, without credentials and without what tools can make again.

Nothing is followed out of the project, and what is left out is named.
"""

from __future__ import annotations

import fnmatch
import os
import posixpath
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import field
from pathlib import Path

from envkit.dockerfile.context import Rule, ignored
from envkit.errors import EnvkitError, Undecided, UsageError, one_line
from envkit.records import dataclass
from envkit.system import files

# What by its name holds credentials, in whatever folder: git and ssh (gitcredentials(7), ssh_config(5)), netrc, pip and
# PyPI (.pypirc), npm, cloud and container tools, and files of keys.
_SECRET = (
    ".git", ".hg", ".svn", ".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", "netrc", ".pypirc", ".npmrc",
    ".yarnrc.yml", "pip.conf", ".git-credentials", ".gitcredentials", ".htpasswd", ".pgpass", ".my.cnf", ".ssh",
    ".gnupg", ".aws", ".azure", ".gcloud", ".kube", ".docker", ".dockercfg", "kubeconfig", "id_rsa*", "id_dsa*",
    "id_ecdsa*", "id_ed25519*", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "credentials.json",
    "application_default_credentials.json", "service-account*.json", "service_account*.json", "secrets.toml",
    "secrets.y*ml", ".vault-token", ".terraform", "*.tfstate", "terraform.tfvars",
)  # fmt: skip
_NO_SECRET = ("*.example", "*.sample", "*.template", "*.dist", "*.pub")
_KEY = b"PRIVATE KEY-----"  # RFC 7468, and OpenSSH's own form
_HEAD = 4096  # bytes of a file in which its kind stands
# What tools make again, and what a virtual environment is known by.
_MADE = (
    "__pycache__", "*.pyc", ".venv", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis",
    ".ipynb_checkpoints", "node_modules", ".DS_Store", ".envkit",
)  # fmt: skip
_VENV = "pyvenv.cfg"
_MOST_FILES = 100_000
_MOST_BYTES = 8 << 30
_NAMED = 8  # paths in one line


@dataclass(slots=True)
class LeftOut:
    """The paths that a copy does not hold, by reason."""

    secret: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def said(self) -> Iterator[str]:
        """A line for each reason."""
        for paths, why in (
            (self.secret, "it may hold credentials"),
            (self.outside, "it leads out of the project, or is no file"),
            (self.ignored, "the .dockerignore says so"),
            (self.made, "tools make it again"),
        ):
            if paths:
                shown = ", ".join(one_line(path) for path in paths[:_NAMED])
                more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
                yield f"left out of the image: {shown}{more} ({why})"


def copy(
    root: Path, paths: Iterable[str], target: Path, rules: tuple[Rule, ...] = (), left_out: LeftOut | None = None
) -> LeftOut:
    """Copies ``paths``, from ``root`` on, to the same places below ``target``, which is there; modes become 0755 and
    0644.  ``rules`` are those of a .dockerignore.

    Raises UsageError for a path that is not there or is itself left out, for one that cannot be read, and for more
    than an image should hold; Undecided on a full disk.
    """
    made = _Copy(root.resolve(), target, rules, left_out or LeftOut())
    for path in paths:
        made.named(path)
    return made.left_out


@dataclass(slots=True)
class _Copy:
    root: Path
    target: Path
    rules: tuple[Rule, ...]
    left_out: LeftOut
    count: int = 0
    size: int = 0

    def named(self, path: str) -> None:
        """A path that the spec names itself."""
        place = self.root / path
        above = place.parent.resolve() if path != "." else place
        if not os.path.lexists(place) or not above.is_relative_to(self.root):
            raise UsageError(f"`image.copy` names {path}, and there is none in {self.root}", "correct it")
        why = next((why for part in _prefixes(path) if (why := self._why_not(part))), "")
        if why:
            fix = "mount what is secret when the container runs: envkit run --env-file, --volume"
            if why == "the .dockerignore says so":
                fix = "change one of the two"
            raise UsageError(f"`image.copy` names {path}, which is left out: {why}", fix)
        if place.is_dir() and not place.is_symlink():
            self._folder(path)
        else:
            self._entry(path)

    def _why_not(self, path: str) -> str:
        """Why a path that is named does not come along, as a clause; "" where it does."""
        name = posixpath.basename(path)
        if path == ".":
            return ""
        if _like(name, _SECRET) and not _like(name, _NO_SECRET):
            return "it may hold credentials"
        if _like(name, _MADE):
            return "tools make it again"
        return "the .dockerignore says so" if ignored(path, self.rules) else ""

    def _folder(self, path: str) -> None:
        here = self.root / path
        if path != "." and (here / _VENV).is_file():
            self.left_out.made.append(path)
            return
        _made(self.target / path)
        try:
            names = sorted(os.listdir(here))
        except OSError as error:
            raise _unread(here, error) from error
        for name in names:
            self._entry(posixpath.normpath(posixpath.join(path, name)))

    def _entry(self, path: str) -> None:
        name, place = posixpath.basename(path), self.root / path
        kind = place.lstat().st_mode
        if _like(name, _SECRET) and not _like(name, _NO_SECRET):
            self.left_out.secret.append(path)
        elif _like(name, _MADE):
            self.left_out.made.append(path)
        elif ignored(path, self.rules):
            # What a later line keeps may lie in an ignored folder.
            if stat.S_ISDIR(kind) and any(rule.keeps for rule in self.rules):
                self._kept_below(path)
            else:
                self.left_out.ignored.append(path)
        elif stat.S_ISLNK(kind):
            self._link(path)
        elif stat.S_ISDIR(kind):
            self._folder(path)
        elif stat.S_ISREG(kind):
            self._file(path, kind)
        else:
            self.left_out.outside.append(path)

    def _kept_below(self, path: str) -> None:
        before = self.count
        self._folder(path)
        if self.count == before:
            shutil.rmtree(self.target / path)

    def _link(self, path: str) -> None:
        to = os.readlink(self.root / path)
        end = (self.root / path).resolve()
        if to.startswith("/") or not end.is_relative_to(self.root):
            self.left_out.outside.append(path)
            return
        _made((self.target / path).parent)
        if not os.path.lexists(self.target / path):
            os.symlink(to, self.target / path)
        self.count += 1

    def _file(self, path: str, kind: int) -> None:
        place, target = self.root / path, self.target / path
        try:
            with place.open("rb") as file:
                if _KEY in file.read(_HEAD):
                    self.left_out.secret.append(path)
                    return
                self.count, self.size = self.count + 1, self.size + os.fstat(file.fileno()).st_size
                self._bounded()
                file.seek(0)
                _made(target.parent)
                with target.open("wb") as out:
                    shutil.copyfileobj(file, out, 1 << 20)
        except OSError as error:
            raise _unread(place, error) from error
        target.chmod(0o755 if kind & 0o100 else 0o644)

    def _bounded(self) -> None:
        if self.count > _MOST_FILES or self.size > _MOST_BYTES:
            raise UsageError(
                f"the project in {self.root} has more than {_MOST_FILES} files or {_MOST_BYTES >> 30} GB to copy",
                "leave data out by a .dockerignore, and mount it when the container runs",
            )


def _prefixes(path: str) -> Iterator[str]:
    """The path, and the folders above it."""
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        yield "/".join(parts[:count])


def _like(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def _made(folder: Path) -> None:
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)


def _unread(path: Path, error: OSError) -> EnvkitError:
    if files.is_full(error):
        return Undecided("the disk is full: the project's files were not copied", "free some space and run again")
    return UsageError(f"{path} cannot be read: {files.why(error)}", "change its permissions, or leave it out")
