"""A Debian base made from the distribution's packages, for machines that reach no image registry.

mmdebstrap writes the same bytes for the same packages and SOURCE_DATE_EPOCH; what it copies from this machine (host
name, name servers, apt's settings) is put back to what any machine would have.  The tree becomes an image whose id
depends on the tree alone, where ``docker import`` would stamp the time of day into it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from envkit.engine import Say, debian
from envkit.engine.trouble import explain
from envkit.errors import Undecided, UsageError
from envkit.records import dataclass
from envkit.system import files, proc
from envkit.system.no_room import refused

SUITES = ("bookworm", "trixie")

_BUDGET_S = 900.0  # 15 to 25 s with a near mirror; a slow line needs minutes for 60 MB of packages
_FRESH_S = 24 * 3600.0  # an unpinned base is made again after a day, so that security updates come in
_RECIPE = 5  # part of the cache's key: count up when a hook below changes
_CHUNK = 1 << 20

# What is never unpacked: documents, as in Debian's own slim images, whose licences stay; and of the compilers what only
# static linking, the sanitizers and the linker's optimiser need.  The step that installs packages has the same list.
UNPACKED = (
    "path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright", "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*", "path-exclude=/usr/share/locale/*", "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/lib/*/libc.a", "path-exclude=/usr/lib/*/libm-*.a", "path-exclude=/usr/lib/*/libmvec.a",
    "path-exclude=/usr/lib/gcc/*/*/lib*san.a", "path-exclude=/usr/lib/gcc/*/*/lto1",
    "path-exclude=/usr/lib/python3*/config-*/libpython*.a", "path-exclude=/usr/lib/*/libpython*.a",
)  # fmt: skip

# What packages' own programs may see of this machine while they set up: with PYTHONDONTWRITEBYTECODE, for one, Python's
# packages leave other files.
_SEEN = re.compile(r"PATH|HOME|APT_CONFIG|SSL_CERT_(?:FILE|DIR)|(?:https?|ftp|all|no)_proxy", re.IGNORECASE)

# What this machine may say to apt while it downloads; none of it stays in the tree.
_APT_OPTIONS = re.compile(r"^Acquire::(https?::Proxy|https::CaInfo|Check-Valid-Until|Check-Date|Retries)\b")


@dataclass(frozen=True, slots=True)
class BootstrappedTree:
    """A file tree: ``tar`` holds it, ``sha256`` ("sha256:...") is that file's hash, ``arch`` Debian's name for the
    processor ("amd64")."""

    tar: Path
    sha256: str
    arch: str


def tag(suite: str, sha256: str) -> str:
    """The local name of a bootstrapped base."""
    return f"envkit-base:{suite}-{sha256.removeprefix('sha256:')[:12]}"


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def _ask(*argv: str) -> str:
    """The stdout of a quick local program; Undecided if it is missing or fails."""
    try:
        done = proc.run(argv, timeout_s=30)
    except FileNotFoundError:
        done = None
    if done is None or done.exit != 0:
        raise Undecided(
            f"this machine cannot make a Debian base: {argv[0]} is missing or fails",
            "do it on a Debian machine with mmdebstrap installed, or load the base image with docker load",
        )
    return done.stdout


def _clean(mirrors: list[str]) -> list[str]:
    """The hooks that take this machine and this moment out of the tree; ``$1`` is its root.

    The tree keeps the mirrors it came from, without a user and password that their addresses may hold.
    """
    public = " ".join(shlex.quote(re.sub(r"//[^/@\s]*@", "//", line)) for line in mirrors)
    sources = ['rm -f "$1/etc/apt/sources.list.d/"*.list', f'printf "%s\\n" {public} > "$1/etc/apt/sources.list"']
    return [
        'rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap" "$1/etc/dpkg/dpkg.cfg.d/99mmdebstrap"',
        *(sources if mirrors else []),
        # The engine mounts its own files over these two; a regular, empty file is what it expects to find.
        'for f in hostname resolv.conf; do rm -f "$1/etc/$f"; : > "$1/etc/$f"; chmod 644 "$1/etc/$f"; done',
        'rm -f "$1/var/lib/dbus/machine-id"; : > "$1/etc/machine-id"; chmod 444 "$1/etc/machine-id"',
        'rm -rf "$1/var/log/apt" "$1/var/log/dpkg.log" "$1/var/log/alternatives.log" "$1/var/cache/ldconfig/aux-cache"',
    ]


def _own_mounts() -> list[str]:
    """What to put before mmdebstrap as root so that its mounts end with its processes, even if envkit is killed and
    mmdebstrap with it; any other user has a mount namespace by ``unshare`` mode."""
    prefix = ["unshare", "--mount"]
    try:
        allowed = os.geteuid() == 0 and proc.run([*prefix, "true"], timeout_s=30).exit == 0
    except FileNotFoundError:
        return []
    return prefix if allowed else []


def _failed(completed: proc.Completed, suite: str, cache: Path) -> Exception:
    lines = [line for line in completed.stderr.splitlines() if not line.startswith("I: ")][-20:]
    if completed.timed_out:
        said = f"making the base from {suite} did not end within {_BUDGET_S:.0f} s"
        return Undecided(said, "check the speed of the Debian mirror in /etc/apt")
    places = (str(cache), tempfile.gettempdir())
    known = explain(lines, where=" or ".join(places), free=min(shutil.disk_usage(place).free for place in places))
    known = known or refused(completed, "mmdebstrap", places)
    if known is not None:
        return known
    text = " ".join(lines).strip() or f"exit code {completed.exit}"
    text = re.sub(r"\s+", " ", text)[-400:].rstrip(".")
    if re.search(r"user namespace|unshare|subuid|newuidmap|unable to pick chroot mode", text):
        said = f"mmdebstrap may not make a tree as this user: {text}"
        return Undecided(said, "run as root, or give the user sub-ids (/etc/subuid, /etc/subgid) and install uidmap")
    if re.search(r"NO_PUBKEY|keyring|is not signed", text):
        said = f"the packages of {suite} cannot be verified: {text}"
        return Undecided(said, "install a debian-archive-keyring that knows the suite")
    return Undecided(f"mmdebstrap failed for {suite}: {text}", "run it by hand to see all of its output")


def _cached(store: Path, record: Path, wanted: str) -> tuple[Path, str] | None:
    """A tree made before: the one of hash ``wanted``, else the recent one of ``record``; its bytes are hashed again."""
    sha = wanted or _of_today(record)
    if not sha:
        return None
    tar = store / (sha.removeprefix("sha256:") + ".tar")
    return (tar, sha) if tar.is_file() and _hash(tar) == sha else None


def _arch() -> str:
    return _ask("dpkg", "--print-architecture").strip()


def _record(store: Path, suite: str, include: tuple[str, ...], epoch: int, arch: str) -> Path:
    """The file with the hash of the newest tree that was made so."""
    key = json.dumps([_RECIPE, suite, sorted(include), epoch, arch])
    return store / (hashlib.sha256(key.encode()).hexdigest()[:16] + ".latest")


def _of_today(record: Path) -> str:
    """The hash in ``record``; empty if it is older than a day or no hash."""
    if not record.is_file() or time.time() - record.stat().st_mtime >= _FRESH_S:
        return ""
    sha = record.read_text(encoding="utf-8", errors="replace").strip()
    return sha if re.fullmatch("sha256:[0-9a-f]{64}", sha) else ""


def recent(suite: str, include: tuple[str, ...], epoch: int, cache: Path) -> str:
    """The hash of the tree that ``bootstrap`` would take from ``cache``, empty if it would make one.

    Its file is not read: an engine that holds an image with this very layer has hashed the same bytes when it took
    them in, and a lock need not wait until 300 MB are hashed once more.  Raises Undecided if dpkg is missing.
    """
    return _of_today(_record(cache / "bases", suite, include, epoch, _arch()))


def bootstrap(
    suite: str, include: tuple[str, ...], epoch: int, cache: Path, say: Say, wanted: str = ""
) -> BootstrappedTree:
    """The minimal tree of a Debian ``suite`` with the packages ``include``, no file younger than ``epoch``.

    Trees are kept under ``cache``; the one of hash ``wanted`` is taken from there whatever its age, any other only for
    a day.  Raises UsageError for a suite that is not Debian's, Undecided if mmdebstrap is missing, may not run as this
    user, or cannot reach a mirror.
    """
    if suite not in SUITES:
        raise UsageError(f"{suite} is no Debian suite that can be made from packages", f"one of: {', '.join(SUITES)}")
    store, arch = files.folder(cache / "bases"), _arch()
    record = _record(store, suite, include, epoch, arch)
    kept = _cached(store, record, wanted) or _cached(store, record, "")
    if kept is not None:
        return BootstrappedTree(kept[0], kept[1], arch)
    if shutil.which("mmdebstrap") is None:
        said = f"no registry serves the base and mmdebstrap, which would make it from {suite}'s packages, is missing"
        raise Undecided(said, "apt-get install mmdebstrap, or bring the image with docker load")
    options = [line for line in _ask("apt-config", "dump").splitlines() if _APT_OPTIONS.match(line)]
    with files.scratch("base", store) as scratch, files.scratch("base") as work:
        os.chmod(work, 0o755)  # the sub-ids of an ordinary user must get through it
        draft = scratch / "base.tar"
        argv = [*_own_mounts(), "mmdebstrap", "--variant=minbase", f"--architectures={arch}"]
        argv += [f"--include={','.join(sorted({*include, 'usr-is-merged'}))}"]
        argv += [f"--aptopt={option}" for option in options]
        argv += ['--aptopt=APT::Install-Recommends "false"']
        # The merged /usr is laid out at once; else bookworm takes the package that converts it, and perl with it.
        argv += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"]
        argv += [f"--dpkgopt={option}" for option in UNPACKED]
        mirrors = debian.sources(suite)
        argv += [f"--customize-hook={hook}" for hook in _clean(mirrors)]

        def progress(line: str) -> None:
            if line.startswith("I: ") and not re.search("tempdir|received signal", line) and line.endswith("..."):
                say(f"{suite}: {line[3:].rstrip('.')}")

        done = proc.run(
            [*argv, suite, str(draft), *mirrors],
            timeout_s=_BUDGET_S,
            env={
                **{name: value for name, value in os.environ.items() if _SEEN.fullmatch(name)},
                "SOURCE_DATE_EPOCH": str(epoch),
                "LC_ALL": "C.UTF-8",
                "TMPDIR": str(work),
            },
            on_line=progress,
        )
        if done.exit != 0 or done.timed_out:
            raise _failed(done, suite, store)
        sha = _hash(draft)
        tar = store / (sha.removeprefix("sha256:") + ".tar")
        draft.replace(tar)
        fresh = scratch / "latest"
        fresh.write_text(sha)
        fresh.replace(record)
    return BootstrappedTree(tar, sha, arch)


def _blob(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _descriptor(kind: str, sha: str, size: int) -> dict[str, object]:
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{sha}", "size": size}


def _document(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def image_archive(made: BootstrappedTree, ref: str, epoch: int, labels: Mapping[str, str]) -> Iterator[bytes]:
    """The tree as an archive for ``docker load``, in pieces: an OCI image layout (image-spec v1) with the
    ``manifest.json`` that older engines read.  The same tree, ``ref``, ``epoch`` and ``labels`` give the same bytes."""
    layer, size = made.sha256.removeprefix("sha256:"), made.tar.stat().st_size
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = _document(
        {
            "architecture": made.arch,
            "os": "linux",
            "created": created,
            "config": {
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Cmd": ["bash"],
                "Labels": dict(labels),
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
            "history": [{"created": created, "created_by": "mmdebstrap", "comment": "envkit"}],
        }
    )
    manifest = _document(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("config.v1+json", _blob(config), len(config)),
            "layers": [_descriptor("layer.v1.tar", layer, size)],
        }
    )
    pointer = _descriptor("manifest.v1+json", _blob(manifest), len(manifest))
    pointer["annotations"] = {
        "io.containerd.image.name": f"docker.io/library/{ref}",
        "org.opencontainers.image.ref.name": ref.rpartition(":")[2],
    }
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [pointer]}
    blobs = "blobs/sha256/"
    legacy = [{"Config": blobs + _blob(config), "RepoTags": [ref], "Layers": [blobs + layer]}]
    for name, content in (
        ("oci-layout", _document({"imageLayoutVersion": "1.0.0"})),
        ("index.json", _document(index)),
        ("manifest.json", _document(legacy)),
        (blobs + _blob(config), config),
        (blobs + _blob(manifest), manifest),
    ):
        yield _header(name, len(content)) + content + _padding(len(content))
    yield _header(blobs + layer, size)
    with made.tar.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
    yield _padding(size) + b"\0" * (2 * tarfile.BLOCKSIZE)


def _header(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry.tobuf(tarfile.USTAR_FORMAT)


def _padding(size: int) -> bytes:
    return b"\0" * (-size % tarfile.BLOCKSIZE)
