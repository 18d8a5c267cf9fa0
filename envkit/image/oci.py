"""What an engine saves of an image as one archive in the layout of OCI, whose bytes depend on the image alone.

Engines save the same image differently: with times of today, in another order, with layers packed or not, under names
of their own.  Here each layer is plain (its digest is then the hash of its content, which no compressor changes), blobs
are in the order of their digests, and nothing has a time.  The archive has Docker's manifest.json too, by which
`docker load` of any age takes it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import posixpath
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from envkit.errors import Undecided
from envkit.records import dataclass

_MANIFEST, _INDEX = (f"application/vnd.oci.image.{kind}.v1+json" for kind in ("manifest", "index"))
_CONFIG, _LAYER = "application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar"
_MOST_JSON = 16 << 20  # bytes of a manifest or a configuration; a lock in a label has 100 KB
_MOST_LAYERS = 500  # overlay's own limit is 127
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: the digest of the manifest ("sha256:...") and the bytes of the layers."""

    digest: str
    size: int


def write(saved: Path, target: Path, name: str) -> Written:
    """Writes what an engine saved of one image into the file ``target``, under the name ``name``.

    Raises Undecided for what is no saved image of one, or not the one that its configuration says, and OSError.
    """
    with tarfile.open(saved, "r:") as archive, target.open("wb") as out:
        try:
            return _written(archive, out, name)
        except (tarfile.TarError, ValueError, LookupError, TypeError, EOFError, zlib.error, RecursionError) as error:
            raise _broken(f"it cannot be read ({type(error).__name__})") from error


def _broken(why: str) -> Undecided:
    return Undecided(f"what the engine saved of the image is not whole: {why}", "run again, and see the engine's log")


def _written(archive: tarfile.TarFile, out: IO[bytes], name: str) -> Written:
    (held,) = json.loads(_small(archive, "manifest.json"))
    config = _small(archive, str(held["Config"]))
    said = json.loads(config)
    diffs, paths = [str(one) for one in said["rootfs"]["diff_ids"]], [str(one) for one in held["Layers"]]
    if len(diffs) != len(paths) or len(diffs) > _MOST_LAYERS:
        raise _broken(f"its configuration has {len(diffs)} layers and the archive {len(paths)}")
    where, sizes = dict(zip(diffs, paths, strict=True)), dict[str, int]()
    for diff, path in where.items():
        sizes[diff] = _held_to(diff, archive, path)
    layers = [{"mediaType": _LAYER, "digest": diff, "size": sizes[diff]} for diff in diffs]
    about = {"mediaType": _CONFIG, "digest": _digest(config), "size": len(config)}
    manifest = _json({"schemaVersion": 2, "mediaType": _MANIFEST, "config": about, "layers": layers})
    tag = name.rpartition(":")[2]
    entry = {
        "mediaType": _MANIFEST,
        "digest": _digest(manifest),
        "size": len(manifest),
        "platform": {key: said[key] for key in ("architecture", "os", "variant") if said.get(key)},
        "annotations": {"io.containerd.image.name": _whole(name), "org.opencontainers.image.ref.name": tag},
    }
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}
    docker = [{"Config": _blob(_digest(config)), "RepoTags": [name], "Layers": [_blob(diff) for diff in diffs]}]
    texts = {_digest(config): config, _digest(manifest): manifest}
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as made:
        for folder in ("blobs", "blobs/sha256"):
            made.addfile(_entry(folder, 0, tarfile.DIRTYPE))
        for digest in sorted({*texts, *where}):
            if digest in texts:
                made.addfile(_entry(_blob(digest), len(texts[digest])), io.BytesIO(texts[digest]))
            else:
                with _plain(archive, where[digest]) as layer:
                    made.addfile(_entry(_blob(digest), sizes[digest]), layer)
        for path, value in (("index.json", index), ("manifest.json", docker), ("oci-layout", _LAYOUT)):
            text = _json(value)
            made.addfile(_entry(path, len(text)), io.BytesIO(text))
    return Written(_digest(manifest), sum(sizes.values()))


_LAYOUT = {"imageLayoutVersion": "1.0.0"}


def _held_to(diff: str, archive: tarfile.TarFile, path: str) -> int:
    """The bytes of a layer whose content has the hash that its configuration says."""
    running, size = hashlib.sha256(), 0
    with _plain(archive, path) as layer:
        for piece in _pieces(layer):
            running.update(piece)
            size += len(piece)
    if f"sha256:{running.hexdigest()}" != diff:
        raise _broken(f"the layer {diff} has another content")
    return size


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    while piece := stream.read(_PIECE):
        yield piece


def _plain(archive: tarfile.TarFile, path: str) -> IO[bytes]:
    """A layer as a plain tar."""
    layer = _file(archive, path)
    packed = layer.read(2) == b"\x1f\x8b"
    layer.seek(0)
    return gzip.GzipFile(fileobj=layer) if packed else layer  # type: ignore[return-value]


def _file(archive: tarfile.TarFile, path: str) -> IO[bytes]:
    member = archive.getmember(path)
    if member.issym():  # by which some engines name a layer that two images share
        member = archive.getmember(posixpath.normpath(posixpath.join(posixpath.dirname(path), member.linkname)))
    found = archive.extractfile(member) if member.isreg() else None
    if found is None:
        raise _broken(f"{path} is no file")
    return found


def _small(archive: tarfile.TarFile, path: str) -> bytes:
    text = _file(archive, path).read(_MOST_JSON + 1)
    if len(text) > _MOST_JSON:
        raise _broken(f"{path} has more than {_MOST_JSON >> 20} MiB")
    return text


def _entry(path: str, size: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.size, entry.type, entry.mode = size, kind, 0o755 if kind == tarfile.DIRTYPE else 0o644
    return entry


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(text: bytes) -> str:
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _whole(name: str) -> str:
    """A name with its registry, as containerd has it."""
    host, slash, rest = name.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{host}{rest}"
