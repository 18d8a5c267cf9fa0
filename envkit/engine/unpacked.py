"""A saved image as a folder of files, for engines that start programs in a folder: Charliecloud and Apptainer.

What `docker save` and `podman save` write is read in both its layouts.  The folder is one for each content, made beside
its place and renamed: a killed envkit leaves none that is half an image.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
import tarfile
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from envkit.engine import DeclaredStart, Say
from envkit.errors import Undecided, UsageError, one_line
from envkit.records import dataclass
from envkit.system import files
from envkit.system.files import is_full

_HOPS = 40  # MAXSYMLINKS of linux/namei.h
_MOST_BYTES = 16 << 20  # of a manifest or a configuration, which have some KB; envkit's lock is in a label
_MOST_ENTRIES = 5_000_000  # of one image; torch's largest have 100,000
_EVERYWHERE = ("dev", "proc", "sys", "tmp", "run", "etc", "home", "mnt", "var/tmp")  # what engines mount at
_MARK = "envkit-image.json"  # beside the folder; says what is in it, written last
_FIX = "name a file that `docker save` or `podman save` wrote"


@dataclass(frozen=True, slots=True)
class Unpacked:
    """An image as a folder: ``root``, its configuration as OCI has it (empty for a folder that somebody else made), and
    ``id``, the configuration's hash.  ``ours``: mount points may be made in it."""

    root: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    layers: tuple[str, ...] = ()
    size: int = 0
    ours: bool = False

    def labels(self) -> dict[str, str]:
        """Its labels."""
        return {str(name): str(value) for name, value in (self._settings().get("Labels") or {}).items()}

    def declared(self) -> DeclaredStart:
        """What it says of its start."""
        settings = self._settings()
        return DeclaredStart(
            tuple(settings.get("Entrypoint") or ()),
            tuple(settings.get("Cmd") or ()),
            dict(entry.partition("=")[::2] for entry in settings.get("Env") or ()),
            str(settings.get("User") or ""),
            str(settings.get("WorkingDir") or ""),
        )

    def _settings(self) -> Mapping[str, Any]:
        return self.config.get("config") or {}

    def read(self, path: str) -> bytes | None:
        """The content of the file that ``path`` leads to within it, None if it leads to none."""
        try:
            for _ in range(_HOPS):
                *above, name = path.split("/")
                place = _place(self.root, above, make=False) / name
                if not place.is_symlink():
                    return place.read_bytes() if place.is_file() else None
                target = os.readlink(place)
                path = target if target.startswith("/") else f"{'/'.join(above)}/{target}"
        except (tarfile.TarError, OSError):
            pass
        return None

    def mount_point(self, path: str, folder: bool) -> None:
        """Makes the folder or the file ``path`` in it where there is none, to mount something at.

        Raises UsageError in a folder that is not envkit's own.
        """
        if os.path.lexists(self.root / path.lstrip("/")):
            return
        if not self.ours:
            said = f"{self.root} has no {path} to mount at"
            raise UsageError(said, f"make it (mkdir {self.root}{path}), or name the saved image, which envkit unpacks")
        try:
            *above, name = _parts(path)
            place = _place(self.root, above) / name
            if folder:
                place.mkdir(exist_ok=True)
            else:
                place.touch()
        except (tarfile.TarError, OSError) as error:
            raise UsageError(f"nothing can be mounted at {one_line(path)}: {error}", "mount it elsewhere") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def opened(name: str, store: Path, say: Say) -> Unpacked:
    """The image that ``name`` says: a saved one, unpacked below ``store`` if it is not there yet, or a folder.

    Raises UsageError for anything else, and Undecided where the disk does not serve.
    """
    path = Path(name)
    if path.is_dir():
        return Unpacked(path.resolve())
    if not path.is_file():
        raise UsageError(f"there is no file or folder {one_line(name)}", _FIX)
    try:
        with tarfile.open(path) as archive:
            config_bytes, layers = _contents(archive, name)
            identity = sha256(config_bytes).hexdigest()
            config = _json(config_bytes, name)
            place = files.folder(store) / identity
            with _locked(store / f"{identity}.lock"):
                if not (place / _MARK).is_file():
                    say(f"unpacking {one_line(name)}")
                    _make(archive, layers, place)
            told = json.loads((place / _MARK).read_text())
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and is_full(error):
            raise Undecided(f"the disk is full: {store} has no room for {one_line(name)}", "make room there") from error
        raise UsageError(f"{one_line(name)} is no saved image that can be read: {error}", _FIX) from error
    diff_ids = tuple(map(str, (config.get("rootfs") or {}).get("diff_ids") or ()))
    return Unpacked(place / "root", config, f"sha256:{identity}", diff_ids, int(told["size"]), True)


def remove(name: str, store: Path) -> None:
    """Takes away what was unpacked of ``name``; the saved file and folders of others stay."""
    with suppress(UsageError, OSError, tarfile.TarError):
        if not Path(name).is_file():  # to open a pipe would wait for somebody to write
            return
        with tarfile.open(name) as archive:
            identity = sha256(_contents(archive, name)[0]).hexdigest()
        with _locked(store / f"{identity}.lock"):
            _cleared(store / identity)


def _cleared(folder: Path) -> None:
    for top, names, _ in os.walk(folder):  # a folder without w cannot be emptied
        for name in names:
            path = os.path.join(top, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _make(archive: tarfile.TarFile, layers: Sequence[str], place: Path) -> None:
    _cleared(place)
    draft = place.with_name(f".making-{place.name}")
    _cleared(draft)
    root = draft / "root"
    root.mkdir(parents=True)
    try:
        unpacking = _Unpacking(root)
        for layer in layers:
            unpacking.layer(_opened(archive, layer))
        unpacking.settle()
        for name in _EVERYWHERE:
            _place(root, _parts(name))
        (draft / _MARK).write_text(json.dumps({"size": unpacking.size}))
        draft.rename(place)
    except BaseException:
        _cleared(draft)
        raise


def _contents(archive: tarfile.TarFile, name: str) -> tuple[bytes, list[str]]:
    """The configuration of the one image in ``archive``, and the names of its layers, the lowest first."""
    names = set(archive.getnames())
    if "manifest.json" in names:
        told = _json(_read(archive, "manifest.json"), name)
        if len(told) != 1:
            raise UsageError(f"{one_line(name)} holds {len(told)} images", "save one image alone")
        return _read(archive, str(told[0]["Config"])), [str(layer) for layer in told[0]["Layers"]]
    if "index.json" not in names:
        raise UsageError(f"{one_line(name)} is no saved image: it has no manifest.json and no index.json", _FIX)
    document = _json(_read(archive, "index.json"), name)
    while "manifests" in document:
        if len(document["manifests"]) != 1:
            raise UsageError(f"{one_line(name)} holds {len(document['manifests'])} images", "save one image alone")
        document = _json(_read(archive, _blob(document["manifests"][0]["digest"])), name)
    layers = [_blob(layer["digest"]) for layer in document["layers"]]
    return _read(archive, _blob(document["config"]["digest"])), layers


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _json(content: bytes, name: str) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise UsageError(f"{one_line(name)} is no saved image that can be read: {error}", _FIX) from error


def _opened(archive: tarfile.TarFile, member: str) -> IO[bytes]:
    try:
        found = archive.extractfile(member)
    except KeyError:
        found = None
    if found is None:
        raise tarfile.ReadError(f"{one_line(member)} is not in it")
    return found


def _read(archive: tarfile.TarFile, member: str) -> bytes:
    with _opened(archive, member) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise tarfile.ReadError(f"{one_line(member)} has more than {_MOST_BYTES >> 20} MiB")
    return content


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise tarfile.ReadError(f"{one_line(path)} leads out of the image")
    return parts


def _place(root: Path, parts: Sequence[str], make: bool = True, made: Container[Path] | None = None) -> Path:
    """The folder that ``parts`` lead to below ``root``, as a program would find it whose root that is: links are
    followed within it, and what is missing is made.

    With ``made``, what one layer has put there, a link of a layer below gives way to a folder: engines unpack each
    layer by itself and lay one over the other.
    """
    here: list[str] = []
    names, hops = list(reversed(parts)), 0
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = here[:-1]
            continue
        step = Path(root, *here, name)
        try:
            mode = step.lstat().st_mode
        except FileNotFoundError:
            if not make:
                raise tarfile.ReadError(f"/{one_line('/'.join(parts))} is not in the image") from None
            step.mkdir()
            mode = stat.S_IFDIR
        if stat.S_ISLNK(mode) and made is not None and step not in made:
            step.unlink()
            step.mkdir()
            mode = stat.S_IFDIR
        if stat.S_ISLNK(mode):
            hops += 1
            target = os.readlink(step)
            if hops > _HOPS:
                raise tarfile.ReadError(f"/{one_line('/'.join(parts))} goes through more than {_HOPS} links")
            here = [] if target.startswith("/") else here
            names += reversed(target.split("/"))
        elif stat.S_ISDIR(mode):
            here = [*here, name]
        else:
            raise tarfile.ReadError(f"/{one_line('/'.join([*here, name]))} is a file and a folder")
    return Path(root, *here)


class _Unpacking:
    """Layer upon layer into one folder, as this user: owners are not kept, devices are left out, for the engines show
    the machine's own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modes: dict[Path, int] = {}
        self._entries = 0
        self.size = 0

    def layer(self, stream: IO[bytes]) -> None:
        """Takes one layer, plain or packed by gzip, bzip2 or xz; raises TarError for what no engine would unpack."""
        made: set[Path] = set()
        with stream, tarfile.open(fileobj=stream, mode="r|*") as archive:
            for member in archive:
                self._entries += 1
                if self._entries > _MOST_ENTRIES:
                    raise tarfile.ReadError(f"it has more than {_MOST_ENTRIES} files")
                parts = _parts(member.name)
                if parts:
                    self._take(archive, member, parts, made)

    def settle(self) -> None:
        """Gives the folders the modes they are to have; until then they can be written to."""
        for path, mode in self._modes.items():
            if path.is_dir() and not path.is_symlink():
                path.chmod(mode)

    def _take(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parts: list[str], made: set[Path]) -> None:
        folder = _place(self._root, parts[:-1], made=made)
        name = parts[-1]
        if name.startswith(".wh."):
            self._whiteout(folder, name, made)
            return
        path = folder / name
        made.update((path, *path.parents))
        if member.isdir():
            if path.is_symlink() or not path.is_dir():
                _gone(path)
                path.mkdir()
            self._modes[path] = stat.S_IMODE(member.mode) & 0o1777 | 0o700
        elif member.isreg():
            _gone(path)
            content = archive.extractfile(member)
            assert content is not None
            with path.open("xb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
            path.chmod(member.mode & 0o777 | 0o400)
            os.utime(path, (member.mtime, member.mtime))  # Python holds compiled files against it
            self.size += member.size
        elif member.issym():
            _gone(path)
            path.symlink_to(member.linkname)
        elif member.islnk():
            *above, last = _parts(member.linkname)
            source = _place(self._root, above, make=False) / last
            if source != path:
                _gone(path)
                os.link(source, path, follow_symlinks=False)

    def _whiteout(self, folder: Path, name: str, made: set[Path]) -> None:
        # OCI image specification, layer.md, "Whiteouts"
        if name == ".wh..wh..opq":
            for entry in list(folder.iterdir()):
                if entry not in made:
                    _gone(entry)
        elif not name.startswith(".wh..wh."):
            taken = name.removeprefix(".wh.")
            if taken in ("", ".", ".."):
                raise tarfile.ReadError(f"{one_line(name)} takes away no file")
            _gone(folder / taken)


def _gone(path: Path) -> None:
    """Takes away what is at ``path``, a whole folder too."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def version_of(words: str) -> str:
    """The version in what a program prints of itself, empty if it prints none."""
    found = re.search(r"\d+(?:\.\d+)+", words)
    return found[0] if found else ""
